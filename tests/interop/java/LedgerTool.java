import java.util.Enumeration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The genuine Apache client as a command: what our tests let it do to our bookies and ledgers.
 *
 * <pre>
 *   write   URI VERSION DIGEST PASSWORD E QW QA COUNT   entries "entry-0", "entry-1", ...; prints the ledger id
 *   abandon URI VERSION DIGEST PASSWORD E QW QA COUNT   the same, but exits without closing the ledger
 *   read    URI VERSION DIGEST PASSWORD LEDGER          opens with recovery; prints every entry's text, one a line
 *   tail    URI VERSION DIGEST PASSWORD LEDGER          opens without recovery; prints the last confirmed entry id
 * </pre>
 */
public class LedgerTool {
    public static void main(String[] args) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(args[1]);
        conf.setUseV2WireProtocol(args[2].equals("2"));
        DigestType digest = DigestType.valueOf(args[3]);
        byte[] password = args[4].getBytes("UTF-8");
        try (BookKeeper client = new BookKeeper(conf)) {
            switch (args[0]) {
                case "write":
                case "abandon":
                    write(client, digest, password, args);
                    break;
                case "read":
                    read(client.openLedger(Long.parseLong(args[5]), digest, password));
                    break;
                case "tail":
                    LedgerHandle tailed = client.openLedgerNoRecovery(Long.parseLong(args[5]), digest, password);
                    System.out.println(tailed.readLastConfirmed());
                    break;
                default:
                    throw new IllegalArgumentException(args[0]);
            }
        }
    }

    private static void write(BookKeeper client, DigestType digest, byte[] password, String[] args) throws Exception {
        int ensemble = Integer.parseInt(args[5]);
        int writeQuorum = Integer.parseInt(args[6]);
        int ackQuorum = Integer.parseInt(args[7]);
        int count = Integer.parseInt(args[8]);
        LedgerHandle ledger = client.createLedger(ensemble, writeQuorum, ackQuorum, digest, password);
        for (int i = 0; i < count; i++) {
            ledger.addEntry(("entry-" + i).getBytes("UTF-8"));
        }
        System.out.println(ledger.getId());
        System.out.flush();
        if (args[0].equals("abandon")) {
            Runtime.getRuntime().halt(0);
        }
        ledger.close();
    }

    private static void read(LedgerHandle ledger) throws Exception {
        long last = ledger.getLastAddConfirmed();
        for (long first = 0; first <= last; first += 100) {
            Enumeration<LedgerEntry> entries = ledger.readEntries(first, Math.min(last, first + 99));
            while (entries.hasMoreElements()) {
                System.out.println(new String(entries.nextElement().getEntry(), "UTF-8"));
            }
        }
    }
}
