import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.AsyncCallback;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The genuine Apache client, driven over standard input: one command a line, words separated by blanks. This source
 * compiles against every release from 4.2 on; what older ones lack is in LedgerExtras.
 *
 * <p>CLIENT stands for URI VERSION, LEDGERS for URI VERSION DIGEST PASSWORD ("-" is the empty password). There is one
 * client per URI and wire version.
 *
 * <pre>
 *   configure CLIENT KEY=VALUE ...     settings of that client, before its first use
 *   write  LEDGERS E QW QA COUNT       a new ledger of entries "entry-0", "entry-1", ..., closed; its id
 *   begin  LEDGERS E QW QA COUNT       the same, but the ledger stays open
 *   many   LEDGERS E QW QA COUNT       COUNT ledgers, one after the other, each closed with the entry "entry-0"; their ids
 *   append LEDGER COUNT                more such entries to a ledger that was begun, one by one; the last entry id
 *   fill   LEDGER COUNT SEED SIZE_MAX  more entries made from a seed (tests/support/apache/content.py), many on their
 *                                      way at once; the last entry id
 *   putbytes LEDGER HEX ...              more entries, of these bytes, one by one; the last entry id
 *   close  LEDGER                      closes a ledger that was begun; its last entry id and its length
 *   abandon LEDGER                     forgets the handle of a ledger that was begun, as if its writer had died
 *   read   LEDGERS LEDGER              opens with recovery; the text of every entry, one a line
 *   hashes LEDGERS LEDGER              opens with recovery; size and SHA-256 of every entry, one a line
 *   dump   LEDGERS LEDGER              opens with recovery; the bytes of every entry as hexadecimal digits, one a line
 *   lengths LEDGERS LEDGER             opens with recovery; the running length of every entry, one a line
 *   peek   LEDGERS LEDGER              as hashes, but opens without recovery: the entries confirmed now
 *   tail   LEDGERS LEDGER              opens without recovery; the last confirmed entry id
 *   watch  LEDGERS LEDGER              the same, but the handle stays; the last confirmed entry id
 *   lac    LEDGER                      asks the bookies for the last confirmed entry id of a watched ledger
 *   list   CLIENT                      the ids of all ledgers
 *   delete CLIENT LEDGER
 *   spawn  COMMAND ...                 runs a command beside those that follow; a number for it
 *   wait   NUMBER                      its answer, once it has ended
 *   forget CLIENT                      begins to close the client; the next command makes a new one
 *   forget                             the same with all clients
 * </pre>
 *
 * Every answer ends with a line "= ok" or "= CODE MESSAGE" (BKException's number; 1 for another error).
 */
public class LedgerTool {
    static final int ON_THEIR_WAY_MAX = 64;
    static final int BYTES_ON_THEIR_WAY_MAX = 16 << 20;
    static final int READ_AT_ONCE = 16;
    /** Default request timeout: the client does not replace a bookie that pauses for seconds. */
    private static final int REQUEST_TIMEOUT_S = 60;
    private static final String[] REQUEST_TIMEOUTS = {
        "addEntryTimeoutSec", "readEntryTimeoutSec", "getBookieInfoTimeoutSecs", "readTimeout"
    };
    private static final int NOISE_SIZE = 1 << 20;
    private static byte[] noise;

    /** Commands that only newer releases have. */
    interface Extras {
        /** Runs a command. Returns false if it knows none of that name. */
        boolean run(LedgerTool tool, String[] words, PrintStream out) throws Exception;
    }

    final Map<Long, LedgerHandle> begun = new ConcurrentHashMap<>();
    private final Map<String, BookKeeper> clients = new ConcurrentHashMap<>();
    private final Map<String, String[]> configured = new ConcurrentHashMap<>();
    private final Map<Long, LedgerHandle> watched = new ConcurrentHashMap<>();
    private final Map<Integer, Spawned> spawned = new ConcurrentHashMap<>();
    private final AtomicInteger spawnedNumbers = new AtomicInteger();
    private final Extras extras = extras();

    public static void main(String[] args) throws Exception {
        LedgerTool tool = new LedgerTool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream answer = new ByteArrayOutputStream();
            tool.answer(line.split(" "), new PrintStream(answer, true, "UTF-8"));
            System.out.write(answer.toByteArray());
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Extras extras() {
        try {
            return (Extras) Class.forName("LedgerExtras").getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException absent) {
            return (tool, words, out) -> false;
        }
    }

    private void answer(String[] words, PrintStream out) {
        String outcome = "= ok";
        try {
            run(words, out);
        } catch (Exception error) {
            Throwable cause = error;
            while (!(cause instanceof BKException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            int code = cause instanceof BKException ? ((BKException) cause).getCode() : 1;
            outcome = "= " + code + " " + String.valueOf(cause).replace('\n', ' ');
            if (code == 1) {
                error.printStackTrace();
            }
        }
        out.println(outcome);
    }

    private void run(String[] words, PrintStream out) throws Exception {
        switch (words[0]) {
            case "configure":
                configured.put(words[1] + " " + words[2], Arrays.copyOfRange(words, 3, words.length));
                break;
            case "write":
                LedgerHandle written = begin(words);
                written.close();
                out.println(written.getId());
                break;
            case "begin":
                LedgerHandle open = begin(words);
                begun.put(open.getId(), open);
                out.println(open.getId());
                break;
            case "many":
                String[] one = words.clone();
                one[8] = "1";
                for (int i = 0; i < Integer.parseInt(words[8]); i++) {
                    LedgerHandle next = begin(one);
                    next.close();
                    out.println(next.getId());
                }
                break;
            case "append":
                out.println(append(handle(words[1]), Integer.parseInt(words[2])));
                break;
            case "fill":
                out.println(fill(handle(words[1]), words));
                break;
            case "putbytes":
                LedgerHandle given = handle(words[1]);
                for (String hex : Arrays.copyOfRange(words, 2, words.length)) {
                    given.addEntry(HexFormat.of().parseHex(hex));
                }
                out.println(given.getLastAddPushed());
                break;
            case "close":
                LedgerHandle ended = handle(words[1]);
                ended.close();
                begun.remove(ended.getId());
                out.println(ended.getLastAddConfirmed() + " " + ended.getLength());
                break;
            case "abandon":
                begun.remove(handle(words[1]).getId());
                break;
            case "read":
                readAll(open(words), (entry, length) -> out.println(new String(entry, StandardCharsets.UTF_8)));
                break;
            case "hashes":
                readAll(open(words), (entry, length) -> out.println(fingerprint(entry)));
                break;
            case "dump":
                readAll(open(words), (entry, length) -> out.println(HexFormat.of().formatHex(entry)));
                break;
            case "lengths":
                readAll(open(words), (entry, length) -> out.println(length));
                break;
            case "peek":
                readAll(openNoRecovery(words), (entry, length) -> out.println(fingerprint(entry)));
                break;
            case "tail":
                out.println(openNoRecovery(words).readLastConfirmed());
                break;
            case "watch":
                LedgerHandle tail = openNoRecovery(words);
                watched.put(tail.getId(), tail);
                out.println(tail.getLastAddConfirmed());
                break;
            case "lac":
                out.println(watched(words[1]).readLastConfirmed());
                break;
            case "list":
                for (long ledger : new BookKeeperAdmin(client(words)).listLedgers()) {
                    out.println(ledger);
                }
                break;
            case "delete":
                client(words).deleteLedger(Long.parseLong(words[3]));
                break;
            case "spawn":
                out.println(spawn(Arrays.copyOfRange(words, 1, words.length)));
                break;
            case "wait":
                Spawned ending = spawned.remove(Integer.parseInt(words[1]));
                ending.thread.join();
                ending.repeat(out);
                break;
            case "forget":
                if (words.length > 1) {
                    forget(words[1] + " " + words[2]);
                } else {
                    clients.keySet().forEach(this::forget);
                }
                break;
            default:
                if (!extras.run(this, words, out)) {
                    throw new IllegalArgumentException("this release has no command " + words[0]);
                }
        }
    }

    private void forget(String key) {
        BookKeeper forgotten = clients.remove(key);
        if (forgotten == null) {
            return;
        }
        // Not waited for: close() of 4.18.0 never returns when a TLS handshake fails while it runs.
        Thread closing = new Thread(() -> {
            try {
                forgotten.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        closing.setDaemon(true);
        closing.start();
    }

    /**
     * The client of the URI and wire version in words 1 and 2; behind the version there may be letters, which name a
     * further client with connections of its own. Of one client that speaks version 2 what a bookie answers to the
     * writer of a ledger ends the recovery's add of the same entry: such requests have no numbers.
     */
    synchronized BookKeeper client(String[] words) throws Exception {
        String key = words[1] + " " + words[2];
        if (!clients.containsKey(key)) {
            ClientConfiguration conf = new ClientConfiguration();
            locate(conf, words[1]);
            conf.setProperty("useV2WireProtocol", words[2].startsWith("2"));
            for (String timeout : REQUEST_TIMEOUTS) {
                conf.setProperty(timeout, REQUEST_TIMEOUT_S);
            }
            for (String setting : configured.getOrDefault(key, new String[0])) {
                String[] pair = setting.split("=", 2);
                conf.setProperty(pair[0], pair[1]);
            }
            clients.put(key, new BookKeeper(conf));
        }
        return clients.get(key);
    }

    /** Releases before 4.7 know no metadataServiceUri. */
    private static void locate(ClientConfiguration conf, String uri) throws Exception {
        try {
            Class.forName("org.apache.bookkeeper.meta.MetadataClientDriver");
            conf.setProperty("metadataServiceUri", uri);
        } catch (ClassNotFoundException old) {
            int authority = uri.indexOf("://") + 3;
            int root = uri.indexOf('/', authority);
            conf.setProperty("zkServers", uri.substring(authority, root).replace(';', ','));
            conf.setProperty("zkLedgersRootPath", uri.substring(root));
        }
    }

    LedgerHandle handle(String ledger) {
        LedgerHandle found = begun.get(Long.parseLong(ledger));
        if (found == null) {
            throw new IllegalArgumentException("ledger " + ledger + " was not begun");
        }
        return found;
    }

    LedgerHandle watched(String ledger) {
        LedgerHandle found = watched.get(Long.parseLong(ledger));
        if (found == null) {
            throw new IllegalArgumentException("ledger " + ledger + " is not watched");
        }
        return found;
    }

    static DigestType digest(String[] words) {
        return DigestType.valueOf(words[3]);
    }

    static byte[] password(String[] words) {
        return (words[4].equals("-") ? "" : words[4]).getBytes(StandardCharsets.UTF_8);
    }

    private LedgerHandle open(String[] words) throws Exception {
        return client(words).openLedger(Long.parseLong(words[5]), digest(words), password(words));
    }

    private LedgerHandle openNoRecovery(String[] words) throws Exception {
        return client(words).openLedgerNoRecovery(Long.parseLong(words[5]), digest(words), password(words));
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

    private static long fill(LedgerHandle ledger, String[] words) throws Exception {
        int count = Integer.parseInt(words[2]);
        long first = ledger.getLastAddPushed() + 1;
        Pending pending = new Pending();
        for (long entryId = first; entryId < first + count; entryId++) {
            byte[] entry = payload(words[3], entryId, Integer.parseInt(words[4]));
            pending.begin(entry.length);
            ledger.asyncAddEntry(entry, pending, entry.length);
        }
        pending.await();
        return ledger.getLastAddPushed();
    }

    /** Adds on their way, bounded in number and bytes; the first error is thrown at the end. */
    static class Pending implements AsyncCallback.AddCallback {
        private final Semaphore entries = new Semaphore(ON_THEIR_WAY_MAX);
        private final Semaphore bytes = new Semaphore(BYTES_ON_THEIR_WAY_MAX);
        private final AtomicInteger code = new AtomicInteger();

        void begin(int size) throws InterruptedException {
            entries.acquire();
            bytes.acquire(size);
        }

        @Override
        public void addComplete(int rc, LedgerHandle ledger, long entryId, Object size) {
            code.compareAndSet(0, rc);
            bytes.release((Integer) size);
            entries.release();
        }

        void await() throws Exception {
            entries.acquire(ON_THEIR_WAY_MAX);
            if (code.get() != 0) {
                throw BKException.create(code.get());
            }
        }
    }

    /** Receives an entry, and the length of the ledger up to its end. */
    interface Sink {
        void take(byte[] entry, long length) throws Exception;
    }

    private static void readAll(LedgerHandle ledger, Sink sink) throws Exception {
        long last = ledger.getLastAddConfirmed();
        for (long first = 0; first <= last; first += READ_AT_ONCE) {
            Enumeration<LedgerEntry> entries = ledger.readEntries(first, Math.min(last, first + READ_AT_ONCE - 1));
            take(entries, first, sink);
        }
        ledger.close();
    }

    /** Hands out entries, checked to be `first` and those that follow it; the id after the last of them. */
    static long take(Enumeration<LedgerEntry> entries, long first, Sink sink) throws Exception {
        long next = first;
        while (entries.hasMoreElements()) {
            LedgerEntry entry = entries.nextElement();
            if (entry.getEntryId() != next++) {
                throw new IllegalStateException("read entry " + entry.getEntryId() + ", not " + (next - 1));
            }
            sink.take(entry.getEntry(), entry.getLength());
        }
        return next;
    }

    private int spawn(String[] words) {
        int number = spawnedNumbers.incrementAndGet();
        Spawned command = new Spawned();
        command.thread = new Thread(() -> answer(words, command.out));
        command.thread.setDaemon(true);
        spawned.put(number, command);
        command.thread.start();
        return number;
    }

    /** A command that runs in a thread of its own, and what it says. */
    private static class Spawned {
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        final PrintStream out = new PrintStream(bytes, true);
        Thread thread;

        void repeat(PrintStream to) throws Exception {
            String said = new String(bytes.toByteArray(), StandardCharsets.UTF_8);
            int outcome = said.lastIndexOf("= ");
            to.print(said.substring(0, outcome));
            String[] words = said.substring(outcome + 2).trim().split(" ", 2);
            if (!words[0].equals("ok")) {
                throw words[0].equals("1")
                        ? new IllegalStateException(words[1])
                        : BKException.create(Integer.parseInt(words[0]));
            }
        }
    }

    /** Entry `entryId` of a seed; content.py makes the same. */
    static byte[] payload(String seed, long entryId, int sizeMax) throws Exception {
        ByteBuffer choice = ByteBuffer.wrap(sha256((seed + "/" + entryId).getBytes(StandardCharsets.US_ASCII)));
        int start = (int) ((choice.getInt(0) & 0xFFFFFFFFL) % NOISE_SIZE);
        int kind = (choice.get(4) & 0xFF) % 16;
        long drawn = choice.getInt(5) & 0xFFFFFFFFL;
        int size;
        if (entryId < 2) {
            size = (int) (sizeMax * entryId);
        } else if (kind == 0) {
            size = 0;
        } else if (kind < 3) {
            size = (int) (drawn % (sizeMax + 1));
        } else {
            size = (int) (drawn % (Math.min(sizeMax, kind > 7 ? 2047 : 65535) + 1));
        }
        byte[] entry = new byte[size];
        int head = Math.min(size, NOISE_SIZE - start);
        System.arraycopy(noise(), start, entry, 0, head);
        System.arraycopy(noise(), 0, entry, head, size - head);
        return entry;
    }

    private static synchronized byte[] noise() throws Exception {
        if (noise == null) {
            byte[] made = new byte[NOISE_SIZE];
            for (int block = 0; block < NOISE_SIZE / 32; block++) {
                byte[] piece = sha256(("noise/" + block).getBytes(StandardCharsets.US_ASCII));
                System.arraycopy(piece, 0, made, block * 32, 32);
            }
            noise = made;
        }
        return noise;
    }

    static String fingerprint(byte[] entry) throws Exception {
        return entry.length + " " + HexFormat.of().formatHex(sha256(entry));
    }

    private static byte[] sha256(byte[] data) throws Exception {
        return MessageDigest.getInstance("SHA-256").digest(data);
    }
}
