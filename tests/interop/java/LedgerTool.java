import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The genuine Apache client, driven over standard input: one command a line, words separated by blanks.
 *
 * <pre>
 *   write  URI VERSION DIGEST PASSWORD E QW QA COUNT   a new ledger of entries "entry-0", "entry-1", ..., closed; its id
 *   begin  URI VERSION DIGEST PASSWORD E QW QA COUNT   the same, but the ledger stays open
 *   append LEDGER COUNT                                more entries to a ledger that was begun; the last entry id
 *   read   URI VERSION DIGEST PASSWORD LEDGER          opens with recovery; the text of every entry, one a line
 *   tail   URI VERSION DIGEST PASSWORD LEDGER          opens without recovery; the last confirmed entry id
 *   delete URI VERSION LEDGER
 * </pre>
 *
 * Every answer ends with a line "= ok" or "= CODE MESSAGE" (BKException's number). One client per URI and version.
 */
public class LedgerTool {
    private final Map<String, BookKeeper> clients = new HashMap<>();
    private final Map<Long, LedgerHandle> begun = new HashMap<>();

    public static void main(String[] args) throws Exception {
        LedgerTool tool = new LedgerTool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String outcome = "= ok";
            try {
                tool.run(line.split(" "));
            } catch (BKException error) {
                outcome = "= " + error.getCode() + " " + error.getMessage();
            }
            System.out.println(outcome);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "write":
                LedgerHandle written = begin(words);
                written.close();
                System.out.println(written.getId());
                break;
            case "begin":
                LedgerHandle open = begin(words);
                begun.put(open.getId(), open);
                System.out.println(open.getId());
                break;
            case "append":
                System.out.println(append(begun.get(Long.parseLong(words[1])), Integer.parseInt(words[2])));
                break;
            case "read":
                read(client(words).openLedger(Long.parseLong(words[5]), digest(words), password(words)));
                break;
            case "tail":
                LedgerHandle tailed =
                        client(words).openLedgerNoRecovery(Long.parseLong(words[5]), digest(words), password(words));
                System.out.println(tailed.readLastConfirmed());
                break;
            case "delete":
                client(words).deleteLedger(Long.parseLong(words[3]));
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private BookKeeper client(String[] words) throws Exception {
        String key = words[1] + " " + words[2];
        if (!clients.containsKey(key)) {
            ClientConfiguration conf = new ClientConfiguration();
            conf.setMetadataServiceUri(words[1]);
            conf.setUseV2WireProtocol(words[2].equals("2"));
            clients.put(key, new BookKeeper(conf));
        }
        return clients.get(key);
    }

    private static DigestType digest(String[] words) {
        return DigestType.valueOf(words[3]);
    }

    private static byte[] password(String[] words) {
        return words[4].getBytes(StandardCharsets.UTF_8);
    }

    private LedgerHandle begin(String[] words) throws Exception {
        int ensemble = Integer.parseInt(words[5]);
        int writeQuorum = Integer.parseInt(words[6]);
        int ackQuorum = Integer.parseInt(words[7]);
        LedgerHandle ledger =
                client(words).createLedger(ensemble, writeQuorum, ackQuorum, digest(words), password(words));
        append(ledger, Integer.parseInt(words[8]));
        return ledger;
    }

    private static long append(LedgerHandle ledger, int count) throws Exception {
        long last = ledger.getLastAddPushed();
        for (int i = 0; i < count; i++) {
            last = ledger.addEntry(("entry-" + (last + 1)).getBytes(StandardCharsets.UTF_8));
        }
        return last;
    }

    private static void read(LedgerHandle ledger) throws Exception {
        long last = ledger.getLastAddConfirmed();
        for (long first = 0; first <= last; first += 100) {
            Enumeration<LedgerEntry> entries = ledger.readEntries(first, Math.min(last, first + 99));
            while (entries.hasMoreElements()) {
                System.out.println(new String(entries.nextElement().getEntry(), StandardCharsets.UTF_8));
            }
        }
    }
}
