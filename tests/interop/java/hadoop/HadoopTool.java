package org.apache.hadoop.hdfs.server.namenode;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.tools.offlineEditsViewer.OfflineEditsViewer;
import org.apache.hadoop.hdfs.tools.offlineImageViewer.OfflineImageViewerPB;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * Genuine Hadoop, driven over standard input: one command a line, words separated by blanks. It is in this package
 * because Hadoop's transactions are not public.
 *
 * <pre>
 *   view PROCESSOR IN OUT         what `hdfs oev -p PROCESSOR -i IN -o OUT` does
 *   image IN OUT                  what `hdfs oiv -p XML -i IN -o OUT` does
 *   read FILE                     the transactions of an edits file, a line of JSON each: its name, txid, offset, end and
 *                                 every field that Hadoop holds; where reading breaks, a last line tells "error"
 *   samples FILE SEED ROUNDS      an edits file by Hadoop's writer: each operation that it can write, ROUNDS times, with
 *                                 values that the seed makes
 *   cluster DIRECTORY             the operations of Hadoop's own test of the viewer on its MiniDFSCluster; the edits file
 *   merge MESSAGE HEX             what a znode's text says, as binary protobuf; both as hexadecimal digits (TextPayloads)
 *   print MESSAGE HEX             a znode's text for a message given as binary protobuf
 *   format DIRECTORY              a name directory
 *   start DIRECTORY               a NameNode on it; its port and the last txid that it loaded
 *   tree PATH                     what the NameNode serves there and below, a line of JSON for each path
 *   fs OPERATION ARGUMENT ...     one operation of a client (see NameNodeInProcess)
 *   stop                          the NameNode
 *   web HOST:PORT                 what Hadoop's WebHDFS client sees there (see WebClient), as a line of JSON
 * </pre>
 *
 * Every answer ends with a line "= ok" or "= 1 MESSAGE".
 */
public class HadoopTool {
    private static final HexFormat HEX = HexFormat.of();
    private static NameNodeInProcess nameNode;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);  // what Hadoop prints is no answer
        FileSystem.enableSymlinks();
        DefaultMetricsSystem.setMiniClusterMode(true);  // one NameNode after the other may have the same metrics
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                run(line.split(" "), out);
                out.println("= ok");
            } catch (Throwable error) {
                error.printStackTrace();
                out.println("= 1 " + String.valueOf(error).replace('\n', ' '));
            }
            out.flush();
        }
        System.exit(0);  // a NameNode has threads that go on
    }

    private static void run(String[] words, PrintStream out) throws Exception {
        switch (words[0]) {
            case "view" -> view(words[1], words[2], words[3]);
            case "image" -> image(words[1], words[2]);
            case "read" -> read(new File(words[1]), out);
            case "samples" -> OpSamples.write(new File(words[1]), Long.parseLong(words[2]), Integer.parseInt(words[3]));
            case "cluster" -> out.println(cluster(words[1]));
            case "merge" -> out.println(HEX.formatHex(TextPayloads.merge(words[1], parseHex(words))));
            case "print" -> out.println(HEX.formatHex(TextPayloads.print(words[1], parseHex(words))));
            case "format" -> NameNodeInProcess.format(words[1]);
            case "start" -> {
                stop();
                nameNode = new NameNodeInProcess(words[1]);
                out.println(nameNode.port() + " " + nameNode.lastLoadedTxId());
            }
            case "tree" -> nameNode.tree(words[1], out);
            case "fs" -> nameNode.operate(words, out);
            case "stop" -> stop();
            case "web" -> out.println(OpFields.JSON.writeValueAsString(WebClient.story(words[1])));
            default -> throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    /** The third word; there is none where there are no bytes. */
    private static byte[] parseHex(String[] words) {
        return HEX.parseHex(words.length > 2 ? words[2] : "");
    }

    private static void stop() throws Exception {
        if (nameNode != null) {
            nameNode.stop();
            nameNode = null;
        }
    }

    private static void view(String processor, String in, String out) throws Exception {
        OfflineEditsViewer viewer = new OfflineEditsViewer();
        viewer.setConf(new Configuration());
        int code = viewer.run(new String[] {"-p", processor, "-i", in, "-o", out});
        if (code != 0) {
            throw new IllegalStateException("the viewer ended with code " + code);
        }
    }

    private static void image(String in, String out) throws Exception {
        int code = OfflineImageViewerPB.run(new String[] {"-p", "XML", "-i", in, "-o", out});
        if (code != 0) {
            throw new IllegalStateException("the viewer ended with code " + code);
        }
    }

    private static void read(File file, PrintStream out) throws Exception {
        EditLogFileInputStream edits = new EditLogFileInputStream(file);
        try {
            out.println(edits.getVersion(true));
            while (true) {
                long offset = edits.getPosition();
                FSEditLogOp op;
                try {
                    op = edits.readOp();
                } catch (Throwable error) {
                    out.println(OpFields.JSON.writeValueAsString(Map.of("error", String.valueOf(error))));
                    return;
                }
                if (op == null) {
                    return;
                }
                Map<String, Object> told = new LinkedHashMap<>();
                told.put("name", op.opCode.name());
                told.put("txid", op.getTransactionId());
                told.put("offset", offset);
                told.put("end", edits.getPosition());
                told.put("fields", OpFields.of(op));
                out.println(OpFields.JSON.writeValueAsString(told));
            }
        } finally {
            edits.close();
        }
    }

    private static String cluster(String directory) throws Exception {
        System.setProperty("test.build.data", directory);
        OfflineEditsViewerHelper helper = new OfflineEditsViewerHelper();
        helper.config.setLong(DFSConfigKeys.DFS_NAMENODE_MIN_BLOCK_SIZE_KEY, 0);  // its blocks have 512 bytes
        helper.startCluster(directory);
        try {
            return helper.generateEdits();
        } finally {
            helper.shutdownCluster();
        }
    }
}
