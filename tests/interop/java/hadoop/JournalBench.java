package org.apache.hadoop.hdfs.server.namenode;

import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.permission.PermissionStatus;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.server.protocol.NamespaceInfo;

/**
 * How many operations a second Hadoop's own edit log makes durable, alone, without a NameNode around it.
 *
 * <pre>JournalBench URI DIRECTORY CALLERS WARMING_SECONDS SECONDS</pre>
 *
 * URI names the journal (file:///... or qjournal://...) and is formatted; DIRECTORY is for the storage beside it. Each
 * caller logs one record of RECORD_SIZE bytes after the other and waits for each: an operation is logEdit and logSync.
 * Prints lines of JSON: {"mark": "start"} behind the warming-up, {"mark": "end"}, and the figures: times are those of
 * operations that began between the marks, in milliseconds; flushes are those of the edit log between them.
 */
public class JournalBench {
    private static final int RECORD_SIZE = 95;
    private static final int RECORD_SIZE_WITHOUT_PATH = 66;  // of this MKDIR
    private static final String PATH = "/" + "p".repeat(RECORD_SIZE - RECORD_SIZE_WITHOUT_PATH - 1);
    private static final PermissionStatus OWNER =
            new PermissionStatus("root", "supergroup", new FsPermission((short) 0755));

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);  // what Hadoop prints is no result
        URI journal = URI.create(arguments[0]);
        FSEditLog log = open(journal, new File(arguments[1]));
        int callers = Integer.parseInt(arguments[2]);
        String startMark = OpFields.JSON.writeValueAsString(Map.of("mark", "start"));  // while nothing is timed yet
        String endMark = OpFields.JSON.writeValueAsString(Map.of("mark", "end"));
        long begin = System.nanoTime() + (long) (Double.parseDouble(arguments[3]) * 1e9);
        long end = begin + (long) (Double.parseDouble(arguments[4]) * 1e9);

        List<Caller> running = new ArrayList<>();
        CountDownLatch ready = new CountDownLatch(callers);
        for (int number = 0; number < callers; number++) {
            running.add(new Caller(log, begin, end, ready));
            running.get(number).start();
        }
        long flushes = -flushesAt(log, begin, startMark, out);
        flushes += flushesAt(log, end, endMark, out);
        for (Caller caller : running) {
            caller.join();
        }
        log.close();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("journal", journal.getScheme());
        told.put("callers", callers);
        told.put("record_bytes", RECORD_SIZE);
        told.putAll(summary(running, end - begin));
        told.put("flushes", flushes);
        out.println(OpFields.JSON.writeValueAsString(told));
        System.exit(0);  // the journal's channels have threads that go on
    }

    /** Waits for that time, tells it with a line, and returns how often the log was flushed by then. */
    private static long flushesAt(FSEditLog log, long nanoTime, String line, PrintStream out) throws Exception {
        TimeUnit.NANOSECONDS.sleep(nanoTime - System.nanoTime());
        long flushes = log.getJournals().get(0).getCurrentStream().getNumSync();
        out.println(line);
        return flushes;
    }

    private static Map<String, Object> summary(List<Caller> callers, long nanoseconds) {
        int count = callers.stream().mapToInt(caller -> caller.count).sum();
        if (count == 0) {
            throw new IllegalStateException("not one operation was done in the time to measure");
        }
        long[] times = new long[count];
        int at = 0;
        for (Caller caller : callers) {
            System.arraycopy(caller.times, 0, times, at, caller.count);
            at += caller.count;
        }
        Arrays.sort(times);
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("operations", count);
        told.put("operations_per_s", count / (nanoseconds / 1e9));
        told.put("p50_ms", times[count / 2] / 1e6);
        told.put("p99_ms", times[(int) (count * 0.99)] / 1e6);
        return told;
    }

    private static FSEditLog open(URI journal, File directory) throws Exception {
        Configuration conf = new Configuration();
        conf.set(DFSConfigKeys.DFS_NAMENODE_EDITS_DIR_KEY, journal.toString());
        conf.set(DFSConfigKeys.DFS_NAMENODE_EDITS_DIR_REQUIRED_KEY, journal.toString());
        boolean isLocal = journal.getScheme().equals("file");
        NamespaceInfo namespace = new NamespaceInfo(1, "bench", "BP-1-127.0.0.1-1", 0);
        NNStorage storage =
                new NNStorage(conf, List.of(directory.toURI()), isLocal ? List.of(journal) : List.<URI>of());
        storage.format(namespace);
        FSEditLog log = new FSEditLog(conf, storage, List.of(journal));
        log.initJournalsForWrite();
        log.formatNonFileJournals(namespace);
        log.recoverUnclosedStreams();  // without which the quorum journal has no epoch to write in
        log.openForWrite();
        return log;
    }

    private static final class Caller extends Thread {
        private final FSEditLog log;
        private final long begin;
        private final long end;
        private final CountDownLatch ready;
        private long[] times = new long[1 << 12];
        private int count;

        Caller(FSEditLog log, long begin, long end, CountDownLatch ready) {
            this.log = log;
            this.begin = begin;
            this.end = end;
            this.ready = ready;
        }

        @Override
        public void run() {
            FSEditLogOp.MkdirOp op = FSEditLogOp.MkdirOp.getInstance(new FSEditLogOp.OpInstanceCache());
            ready.countDown();
            try {
                ready.await();
            } catch (InterruptedException error) {
                return;
            }
            while (true) {
                long started = System.nanoTime();
                if (started >= end) {
                    return;
                }
                // Logging clears the operation.
                op.setInodeId(1).setPath(PATH).setTimestamp(1).setPermissionStatus(OWNER);
                log.logEdit(op);
                log.logSync();
                if (started >= begin) {
                    if (count == times.length) {
                        times = Arrays.copyOf(times, 2 * count);
                    }
                    times[count++] = System.nanoTime() - started;
                }
            }
        }
    }
}
