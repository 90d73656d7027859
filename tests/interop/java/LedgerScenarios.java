import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.Enumeration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import org.apache.bookkeeper.client.AsyncCallback;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;

/**
 * Commands of LedgerTool for what happens to a ledger while it is written. For releases from 4.14 on.
 *
 * <pre>
 *   load     LEDGER SEED SIZE_MAX    entries made from a seed, one after the other, until `stop` or the first failure;
 *                                    the last acknowledged entry id and the failure's code (0 for none)
 *   progress LEDGER                  the last acknowledged entry id of a load that runs
 *   stop     LEDGER                  ends it; what is on its way is waited for
 *   holds    CLIENT LEDGER BOOKIE END  which of the entries 0..END-1 a bookie says it holds, in one line
 *   batches  LEDGERS LEDGER COUNT SIZE  opens with recovery; how many entries each of the batch reads brought that read
 *                                       all of it (see LedgerExtras)
 * </pre>
 */
public class LedgerScenarios implements LedgerTool.Extras {
    private static final int ON_THEIR_WAY_MAX = 8;
    private final Map<Long, Load> loads = new ConcurrentHashMap<>();

    @Override
    public boolean run(LedgerTool tool, String[] words, PrintStream out) throws Exception {
        switch (words[0]) {
            case "load":
                LedgerHandle ledger = tool.handle(words[1]);
                Load load = loads.computeIfAbsent(ledger.getId(), id -> new Load());
                load.run(ledger, words[2], Integer.parseInt(words[3]));
                loads.remove(ledger.getId());  // another cluster may have a ledger of that id
                out.println(load.acknowledged + " " + load.code);
                return true;
            case "progress":
                out.println(load(words).acknowledged);
                return true;
            case "stop":
                load(words).stopped = true;
                return true;
            case "holds":
                holds(tool, words, out);
                return true;
            case "batches":
                batches(tool, words, out);
                return true;
            default:
                return false;
        }
    }

    private Load load(String[] words) {
        return loads.computeIfAbsent(Long.parseLong(words[1]), id -> new Load());
    }

    /** Adds to one ledger. Acknowledgements come in order of entry ids, on one thread. */
    private static class Load implements AsyncCallback.AddCallback {
        private final Semaphore room = new Semaphore(ON_THEIR_WAY_MAX);
        volatile boolean stopped;
        volatile long acknowledged = -1;
        volatile int code;

        void run(LedgerHandle ledger, String seed, int sizeMax) throws Exception {
            while (!stopped && code == 0) {
                room.acquire();
                byte[] entry = LedgerTool.payload(seed, ledger.getLastAddPushed() + 1, sizeMax);
                ledger.asyncAddEntry(entry, this, null);
            }
            room.acquire(ON_THEIR_WAY_MAX);
        }

        @Override
        public void addComplete(int rc, LedgerHandle ledger, long entryId, Object context) {
            if (rc == BKException.Code.OK && code == 0 && entryId == acknowledged + 1) {
                acknowledged = entryId;
            } else if (code == 0) {
                code = rc == BKException.Code.OK ? BKException.Code.UnexpectedConditionException : rc;
            }
            room.release();
        }
    }

    private static void batches(LedgerTool tool, String[] words, PrintStream out) throws Exception {
        LedgerHandle ledger = tool.client(words)
                .openLedger(Long.parseLong(words[5]), LedgerTool.digest(words), LedgerTool.password(words));
        Method read = LedgerHandle.class.getMethod("batchReadEntries", long.class, int.class, long.class);
        for (long next = 0, first = 0; next <= ledger.getLastAddConfirmed(); first = next) {
            @SuppressWarnings("unchecked")
            Enumeration<LedgerEntry> entries = (Enumeration<LedgerEntry>)
                    read.invoke(ledger, first, Integer.parseInt(words[6]), Long.parseLong(words[7]));
            next = LedgerTool.take(entries, first, (entry, length) -> { });
            out.println(next - first);
        }
    }

    private static void holds(LedgerTool tool, String[] words, PrintStream out) throws Exception {
        BookKeeperAdmin admin = new BookKeeperAdmin(tool.client(words));
        AvailabilityOfEntriesOfLedger there =
                admin.asyncGetListOfEntriesOfLedger(BookieId.parse(words[4]), Long.parseLong(words[3])).get();
        StringBuilder line = new StringBuilder();
        for (long entryId = 0; entryId < Long.parseLong(words[5]); entryId++) {
            if (there.isEntryAvailable(entryId)) {
                line.append(line.length() > 0 ? " " : "").append(entryId);
            }
        }
        out.println(line);
    }
}
