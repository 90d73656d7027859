import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Apache's client under measurement, in one process for a whole run: one command a line, one JSON answer a line.
 *
 * <pre>
 *   write  URI VERSION E QW QA SIZE OUTSTANDING SECONDS     adds with a callback each, a fixed number outstanding
 *   fill   URI VERSION E QW QA SIZE COUNT                   a closed ledger to be read
 *   read   URI VERSION LEDGER RANGES PER_RANGE SECONDS      ranges in flight, the ledger from its start again and again
 *   batch  URI VERSION LEDGER RANGES PER_RANGE SECONDS      the same with batch reads
 *   delete URI VERSION LEDGER
 *   forget URI                                              close the clients of a cluster that goes away
 * </pre>
 *
 * While it measures it prints {"mark": "start"} after the first quarter and {"mark": "end"} when the time is up;
 * operations are what was completed between the two. Latency: from sending to the callback (an entry) or to the
 * complete answer (a range), every one of them. our_driver.py speaks the same language; buckets are those of
 * bookkeeper/cli/perf/latency.py.
 */
public class BenchDriver {
    private static final byte[] PASSWORD = "bench".getBytes(StandardCharsets.UTF_8);
    private static final double SKIPPED_SHARE = 0.25;
    private static final double SMALLEST_S = 1e-7;
    private static final double LOG_RATIO = Math.log(1.01);
    private static final int FILL_OUTSTANDING = 500;
    private static final long DRAIN_TIMEOUT_S = 60;

    private final Map<String, BookKeeper> clients = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BenchDriver driver = new BenchDriver();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                say(driver.run(line.split(" ")));
            } catch (Exception error) {
                say("{\"error\": \"" + String.valueOf(error).replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "write":
                return write(words);
            case "fill":
                return fill(words);
            case "read":
            case "batch":
                return read(words);
            case "delete":
                client(words).deleteLedger(Long.parseLong(words[3]));
                return "{}";
            case "forget":
                for (String version : new String[] {"2", "3"}) {
                    BookKeeper client = clients.remove(words[1] + " " + version);
                    if (client != null) {
                        client.close();
                    }
                }
                return "{}";
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
            conf.setThrottleValue(0);
            clients.put(key, new BookKeeper(conf));
        }
        return clients.get(key);
    }

    private LedgerHandle create(String[] words) throws Exception {
        return client(words)
                .createLedger(
                        Integer.parseInt(words[3]),
                        Integer.parseInt(words[4]),
                        Integer.parseInt(words[5]),
                        DigestType.CRC32C,
                        PASSWORD);
    }

    private static byte[] payload(String[] words) {
        byte[] payload = new byte[Integer.parseInt(words[6])];
        new Random(1).nextBytes(payload);
        return payload;
    }

    private String write(String[] words) throws Exception {
        LedgerHandle ledger = create(words);
        Window adds = new Adds(ledger, payload(words));
        String result = adds.measure(Integer.parseInt(words[7]), Double.parseDouble(words[8]), 1);
        ledger.close();
        return "{\"ledger\": " + ledger.getId() + ", " + result.substring(1);
    }

    private String fill(String[] words) throws Exception {
        LedgerHandle ledger = create(words);
        Window adds = new Adds(ledger, payload(words));
        adds.limit = Long.parseLong(words[7]);
        adds.begin(FILL_OUTSTANDING);
        adds.await();
        ledger.close();
        return "{\"ledger\": " + ledger.getId() + "}";
    }

    private String read(String[] words) throws Exception {
        LedgerHandle ledger =
                client(words).openLedgerNoRecovery(Long.parseLong(words[3]), DigestType.CRC32C, PASSWORD);
        int perRange = Integer.parseInt(words[5]);
        Window reads = new Reads(ledger, perRange, words[0].equals("batch"));
        String result = reads.measure(Integer.parseInt(words[4]), Double.parseDouble(words[6]), perRange);
        ledger.close();
        return result;
    }

    /** A fixed number of requests in flight; what completes is replaced at once, from its callback. */
    private abstract static class Window {
        private final CompletableFuture<Void> idle = new CompletableFuture<>();
        private long[] latencies = new long[1 << 20];
        private int completed;
        private long sent;
        private long running;
        private boolean stopping;
        long limit = Long.MAX_VALUE;

        /** Sends one request; its completion calls {@link #completed} with the time it was sent at. */
        abstract void send(long now);

        final synchronized void begin(int window) {
            for (int i = 0; i < window && sent < limit; i++) {
                sendOne(System.nanoTime());
            }
        }

        private void sendOne(long now) {
            sent++;
            running++;
            send(now);
        }

        final synchronized void completed(long sentAt) {
            long now = System.nanoTime();
            if (completed == latencies.length) {
                latencies = java.util.Arrays.copyOf(latencies, 2 * completed);
            }
            latencies[completed++] = now - sentAt;
            running--;
            if (!stopping && sent < limit) {
                sendOne(now);
            } else if (running == 0) {
                idle.complete(null);
            }
        }

        final void failed(Throwable error) {
            count(true);
            idle.completeExceptionally(error);
        }

        final void await() throws Exception {
            idle.get(DRAIN_TIMEOUT_S, TimeUnit.SECONDS);
        }

        private synchronized int count(boolean stop) {
            stopping |= stop;
            return completed;
        }

        private void pause(double seconds) throws Exception {
            try {
                idle.get((long) (seconds * 1e9), TimeUnit.NANOSECONDS); // only a failure ends it early
            } catch (java.util.concurrent.TimeoutException expected) {
                return;
            }
        }

        final String measure(int window, double seconds, int perRequest) throws Exception {
            begin(window);
            pause(seconds * SKIPPED_SHARE);
            int from = count(false);
            long started = System.nanoTime();
            say("{\"mark\": \"start\"}");
            pause(seconds * (1 - SKIPPED_SHARE));
            int to = count(true);
            long ended = System.nanoTime();
            say("{\"mark\": \"end\"}");
            await();
            return summary(from, to, (ended - started) / 1e9, perRequest);
        }

        private synchronized String summary(int from, int to, double seconds, int perRequest) {
            TreeMap<Integer, Integer> buckets = new TreeMap<>();
            double longest = 0;
            for (int i = from; i < to; i++) {
                double latency = Math.max(latencies[i] / 1e9, SMALLEST_S);
                longest = Math.max(longest, latency);
                buckets.merge((int) (Math.log(latency / SMALLEST_S) / LOG_RATIO), 1, Integer::sum);
            }
            StringBuilder text = new StringBuilder();
            buckets.forEach((bucket, count) ->
                    text.append(text.length() > 0 ? ", " : "").append("\"" + bucket + "\": " + count));
            return "{\"operations\": " + (long) (to - from) * perRequest + ", \"seconds\": " + seconds
                    + ", \"all_operations\": " + (long) completed * perRequest
                    + ", \"latencies\": [{\"buckets\": {" + text + "}, \"max_s\": " + longest + "}]}";
        }
    }

    private static final class Adds extends Window {
        private final LedgerHandle ledger;
        private final byte[] payload;

        Adds(LedgerHandle ledger, byte[] payload) {
            this.ledger = ledger;
            this.payload = payload;
        }

        @Override
        void send(long now) {
            ledger.asyncAddEntry(
                    payload,
                    (rc, handle, entryId, context) -> {
                        if (rc == 0) {
                            completed((Long) context);
                        } else {
                            failed(new Exception("add: " + org.apache.bookkeeper.client.BKException.getMessage(rc)));
                        }
                    },
                    now);
        }
    }

    private static final class Reads extends Window {
        private final LedgerHandle ledger;
        private final int perRange;
        private final boolean batch;
        private long next;

        Reads(LedgerHandle ledger, int perRange, boolean batch) {
            this.ledger = ledger;
            this.perRange = perRange;
            this.batch = batch;
        }

        @Override
        void send(long now) {
            long first = next;
            next = first + 2L * perRange - 1 <= ledger.getLastAddConfirmed() ? first + perRange : 0;
            CompletableFuture<LedgerEntries> answer = batch
                    ? ledger.batchReadAsync(first, perRange, -1)
                    : ledger.readAsync(first, first + perRange - 1);
            answer.whenComplete((entries, error) -> {
                if (error != null) {
                    failed(error);
                    return;
                }
                int count = 0;
                try (entries) {
                    for (LedgerEntry entry : entries) {
                        count += entry.getEntryBuffer().isReadable() ? 1 : 0;
                    }
                }
                if (count == perRange) {
                    completed(now);
                } else {
                    failed(new Exception(count + " entries instead of " + perRange));
                }
            });
        }
    }
}
