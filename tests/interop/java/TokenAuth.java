import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.bookkeeper.auth.AuthCallbacks.GenericCallback;
import org.apache.bookkeeper.auth.AuthToken;
import org.apache.bookkeeper.auth.BookieAuthProvider;
import org.apache.bookkeeper.auth.ClientAuthProvider;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieConnectionPeer;
import org.apache.bookkeeper.proto.ClientConnectionPeer;

/** The plug-in "token" of tests/support/auth_plugins.py for genuine programs: the client says one word. */
public final class TokenAuth {
    private TokenAuth() {}

    /**
     * clientAuthProviderFactoryClass=TokenAuth$Client; the word is that of the key testToken. With testAfterTls=true it
     * is said once the connection has TLS, as plug-ins do that are made for it; otherwise at once, which is in clear text.
     */
    public static final class Client implements ClientAuthProvider.Factory {
        private byte[] word;
        private boolean afterTls;

        @Override
        public void init(ClientConfiguration conf) {
            afterTls = conf.getBoolean("testAfterTls", false);
            word = conf.getString("testToken", "secret").getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String getPluginName() {
            return "token";
        }

        @Override
        public ClientAuthProvider newProvider(ClientConnectionPeer peer, GenericCallback<Void> done) {
            return new ClientAuthProvider() {
                private GenericCallback<AuthToken> send;

                @Override
                public void init(GenericCallback<AuthToken> send) {
                    this.send = send;
                    if (!afterTls) {
                        say();
                    }
                }

                @Override
                public void onProtocolUpgrade() {
                    if (afterTls) {
                        say();
                    }
                }

                private void say() {
                    send.operationComplete(BKException.Code.OK, AuthToken.wrap(word));
                }

                @Override
                public void process(AuthToken answer, GenericCallback<AuthToken> send) {
                    done.operationComplete(BKException.Code.OK, null);
                }
            };
        }
    }

    /** bookieAuthProviderFactoryClass=TokenAuth$Bookie; the word is "secret". */
    public static final class Bookie implements BookieAuthProvider.Factory {
        @Override
        public void init(ServerConfiguration conf) {}

        @Override
        public String getPluginName() {
            return "token";
        }

        @Override
        public BookieAuthProvider newProvider(BookieConnectionPeer peer, GenericCallback<Void> done) {
            return (word, answer) -> {
                if (Arrays.equals(word.getData(), "secret".getBytes(StandardCharsets.UTF_8))) {
                    done.operationComplete(BKException.Code.OK, null);
                    answer.operationComplete(BKException.Code.OK, AuthToken.wrap(new byte[0]));
                } else {
                    done.operationComplete(BKException.Code.UnauthorizedAccessException, null);
                    answer.operationComplete(BKException.Code.UnauthorizedAccessException, null);
                }
            };
        }
    }
}
