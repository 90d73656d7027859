import java.io.IOException;
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

/** Both sides of our plug-in PasswordFile: NUL user NUL password, from the key interopPassword (user:password). */
public class PasswordAuth {
    private static final String NAME = "PasswordFile";

    private static byte[] payload(String text) {
        return ("\0" + text.replaceFirst(":", "\0")).getBytes(StandardCharsets.UTF_8);
    }

    /** The client's side. */
    public static class Client implements ClientAuthProvider.Factory {
        private byte[] payload;

        @Override
        public void init(ClientConfiguration conf) throws IOException {
            payload = payload(conf.getString("interopPassword"));
        }

        @Override
        public String getPluginName() {
            return NAME;
        }

        @Override
        public ClientAuthProvider newProvider(ClientConnectionPeer peer, GenericCallback<Void> done) {
            return new ClientAuthProvider() {
                @Override
                public void init(GenericCallback<AuthToken> send) {
                    send.operationComplete(BKException.Code.OK, AuthToken.wrap(payload));
                }

                @Override
                public void process(AuthToken answer, GenericCallback<AuthToken> send) {
                    done.operationComplete(BKException.Code.OK, null);
                }
            };
        }
    }

    /** The bookie's side. */
    public static class Bookie implements BookieAuthProvider.Factory {
        private byte[] payload;

        @Override
        public void init(ServerConfiguration conf) throws IOException {
            payload = payload(conf.getString("interopPassword"));
        }

        @Override
        public String getPluginName() {
            return NAME;
        }

        @Override
        public BookieAuthProvider newProvider(BookieConnectionPeer peer, GenericCallback<Void> done) {
            return (shown, answer) -> {
                boolean right = Arrays.equals(shown.getData(), payload);
                int code = right ? BKException.Code.OK : BKException.Code.UnauthorizedAccessException;
                answer.operationComplete(code, AuthToken.wrap(new byte[0]));
                done.operationComplete(code, null);
            };
        }
    }
}
