import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * Commands of LedgerTool for releases from 4.14 on. What they begin is appended to, filled and closed as any other.
 *
 * <pre>
 *   initialise URI                           makes the metadata of a new cluster
 *   create   LEDGERS E QW QA KEY=HEX ...     an open ledger with custom metadata; its id
 *   custom   LEDGERS LEDGER                  a ledger's custom metadata, KEY=HEX lines in order of the keys
 *   metadata CLIENT LEDGER                   format version, state, last entry id, length, number of fragments
 *   chosen   LEDGERS E QW QA LEDGER          an open ledger of that id (-1: of any) whose entry ids are chosen; its id
 *   put      LEDGER SEED SIZE_MAX ID ...     entries of these ids from a seed, all on their way at once; the last
 *                                            confirmed entry id
 *   deferred LEDGERS E QW QA                 an open ledger whose entries are acknowledged before they are synced; its id
 *   force    LEDGER                          syncs it; the last confirmed entry id
 *   poll     LEDGER ENTRY TIMEOUT_MS         long poll of a watched ledger for an entry; the last confirmed entry id and,
 *                                            when it came, the entry as hashes has it
 *   explicit LEDGER                          the explicit last add confirmed of a watched ledger
 *   unconfirmed LEDGERS LEDGER FIRST LAST    opens without recovery; hashes of these entries, confirmed or not
 *   batch    LEDGERS LEDGER COUNT SIZE       opens with recovery; hashes of all entries, through batch reads of at most
 *                                            COUNT entries and SIZE bytes (from 4.17 on, wire version 2)
 *   info     CLIENT                          free and total bytes of each bookie's disks
 * </pre>
 */
public class LedgerExtras implements LedgerTool.Extras {
    private final LedgerScenarios scenarios = new LedgerScenarios();

    @Override
    public boolean run(LedgerTool tool, String[] words, PrintStream out) throws Exception {
        switch (words[0]) {
            case "initialise":
                ServerConfiguration conf = new ServerConfiguration();
                conf.setMetadataServiceUri(words[1]);
                if (!BookKeeperAdmin.initNewCluster(conf)) {
                    throw new IllegalStateException("there is a cluster at " + words[1]);
                }
                return true;
            case "create":
                begin(tool, out, create(tool, words, custom(words)));
                return true;
            case "custom":
                custom(openNoRecovery(tool, words), out);
                return true;
            case "metadata":
                LedgerMetadata metadata = tool.client(words).getLedgerMetadata(Long.parseLong(words[3])).get();
                out.println(metadata.getMetadataFormatVersion() + " " + metadata.getState() + " "
                        + metadata.getLastEntryId() + " " + metadata.getLength() + " "
                        + metadata.getAllEnsembles().size());
                return true;
            case "chosen":
                begin(tool, out, chosen(tool, words));
                return true;
            case "put":
                out.println(put(tool.handle(words[1]), words));
                return true;
            case "deferred":
                begin(tool, out, deferred(tool, words));
                return true;
            case "force":
                LedgerHandle forced = tool.handle(words[1]);
                forced.force().get();
                out.println(forced.getLastAddConfirmed());
                return true;
            case "poll":
                poll(tool.watched(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]), out);
                return true;
            case "explicit":
                out.println(tool.watched(words[1]).readExplicitLastConfirmed());
                return true;
            case "unconfirmed":
                long first = Long.parseLong(words[6]);
                LedgerTool.take(
                        openNoRecovery(tool, words).readUnconfirmedEntries(first, Long.parseLong(words[7])),
                        first,
                        (entry, length) -> out.println(LedgerTool.fingerprint(entry)));
                return true;
            case "batch":
                batch(tool, words, out);
                return true;
            case "info":
                tool.client(words).getBookieInfo().forEach((bookie, info) ->
                        out.println(bookie + " " + info.getFreeDiskSpace() + " " + info.getTotalDiskSpace()));
                return true;
            default:
                return scenarios.run(tool, words, out);
        }
    }

    private static void begin(LedgerTool tool, PrintStream out, LedgerHandle ledger) {
        tool.begun.put(ledger.getId(), ledger);
        out.println(ledger.getId());
    }

    private static Map<String, byte[]> custom(String[] words) {
        Map<String, byte[]> custom = new TreeMap<>();
        for (String word : Arrays.copyOfRange(words, 8, words.length)) {
            int end = word.lastIndexOf('=');
            custom.put(word.substring(0, end), HexFormat.of().parseHex(word.substring(end + 1)));
        }
        return custom;
    }

    private static LedgerHandle create(LedgerTool tool, String[] words, Map<String, byte[]> custom) throws Exception {
        return tool.client(words).createLedger(
                Integer.parseInt(words[5]),
                Integer.parseInt(words[6]),
                Integer.parseInt(words[7]),
                LedgerTool.digest(words),
                LedgerTool.password(words),
                custom);
    }

    private static LedgerHandle chosen(LedgerTool tool, String[] words) throws Exception {
        BookKeeper client = tool.client(words);
        int ensemble = Integer.parseInt(words[5]);
        int writeQuorum = Integer.parseInt(words[6]);
        int ackQuorum = Integer.parseInt(words[7]);
        long ledger = Long.parseLong(words[8]);
        BookKeeper.DigestType digest = LedgerTool.digest(words);
        byte[] password = LedgerTool.password(words);
        return ledger < 0
                ? client.createLedgerAdv(ensemble, writeQuorum, ackQuorum, digest, password)
                : client.createLedgerAdv(ledger, ensemble, writeQuorum, ackQuorum, digest, password, null);
    }

    private static long put(LedgerHandle ledger, String[] words) throws Exception {
        LedgerTool.Pending pending = new LedgerTool.Pending();
        for (String word : Arrays.copyOfRange(words, 4, words.length)) {
            long entryId = Long.parseLong(word);
            byte[] entry = LedgerTool.payload(words[2], entryId, Integer.parseInt(words[3]));
            pending.begin(entry.length);
            ledger.asyncAddEntry(entryId, entry, pending, entry.length);
        }
        pending.await();
        return ledger.getLastAddConfirmed();
    }

    private static LedgerHandle deferred(LedgerTool tool, String[] words) throws Exception {
        CompletableFuture<? extends Object> created = tool.client(words).newCreateLedgerOp()
                .withEnsembleSize(Integer.parseInt(words[5]))
                .withWriteQuorumSize(Integer.parseInt(words[6]))
                .withAckQuorumSize(Integer.parseInt(words[7]))
                .withDigestType(DigestType.valueOf(words[3]))
                .withPassword(LedgerTool.password(words))
                .withWriteFlags(WriteFlag.DEFERRED_SYNC)
                .execute();
        return (LedgerHandle) created.get();
    }

    private static LedgerHandle openNoRecovery(LedgerTool tool, String[] words) throws Exception {
        return tool.client(words).openLedgerNoRecovery(
                Long.parseLong(words[5]), LedgerTool.digest(words), LedgerTool.password(words));
    }

    private static void custom(LedgerHandle ledger, PrintStream out) {
        new TreeMap<>(ledger.getCustomMetadata())
                .forEach((key, value) -> out.println(key + "=" + HexFormat.of().formatHex(value)));
    }

    private static void poll(LedgerHandle ledger, long entryId, long timeoutMs, PrintStream out) throws Exception {
        try (LastConfirmedAndEntry found = ledger.readLastAddConfirmedAndEntry(entryId, timeoutMs, false)) {
            out.println(found.getLastAddConfirmed());
            if (found.hasEntry()) {
                out.println(LedgerTool.fingerprint(found.getEntry().getEntryBytes()));
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static void batch(LedgerTool tool, String[] words, PrintStream out) throws Exception {
        LedgerHandle ledger = tool.client(words)
                .openLedger(Long.parseLong(words[5]), LedgerTool.digest(words), LedgerTool.password(words));
        Method read = LedgerHandle.class.getMethod("batchReadEntries", long.class, int.class, long.class);
        for (long next = 0; next <= ledger.getLastAddConfirmed(); ) {
            Object entries = read.invoke(ledger, next, Integer.parseInt(words[6]), Long.parseLong(words[7]));
            next = LedgerTool.take(
                    (Enumeration<LedgerEntry>) entries,
                    next,
                    (entry, length) -> out.println(LedgerTool.fingerprint(entry)));
        }
    }
}
