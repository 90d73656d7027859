package org.apache.hadoop.hdfs.server.namenode;

import java.io.IOException;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;

/** A NameNode on one name directory, served on the loopback interface, and a client of it. No DataNode is needed. */
final class NameNodeInProcess {
    private final NameNode nameNode;
    private final DistributedFileSystem client;
    private final long lastLoadedTxId;

    NameNodeInProcess(String directory) throws IOException {
        Configuration conf = configuration(directory);
        nameNode = NameNode.createNameNode(new String[0], conf);
        // The NameNode has opened a segment of its own by now, with one transaction.
        lastLoadedTxId = nameNode.getNamesystem().getEditLog().getCurSegmentTxId() - 1;
        client = new DistributedFileSystem();
        client.initialize(URI.create("hdfs://127.0.0.1:" + port()), conf);
    }

    static void format(String directory) throws IOException {
        NameNode.format(configuration(directory));
    }

    private static Configuration configuration(String directory) {
        Configuration conf = new Configuration();
        conf.set("fs.defaultFS", "hdfs://127.0.0.1:0");
        conf.set(DFSConfigKeys.DFS_NAMENODE_HTTP_ADDRESS_KEY, "127.0.0.1:0");
        conf.set(DFSConfigKeys.DFS_NAMENODE_NAME_DIR_KEY, "file://" + directory);
        conf.setBoolean(DFSConfigKeys.DFS_NAMENODE_ACLS_ENABLED_KEY, true);
        // No block is ever reported: it is not to wait for them.
        conf.setFloat(DFSConfigKeys.DFS_NAMENODE_SAFEMODE_THRESHOLD_PCT_KEY, 0);
        conf.setInt(DFSConfigKeys.DFS_NAMENODE_SAFEMODE_EXTENSION_KEY, 0);
        return conf;
    }

    int port() {
        return nameNode.getNameNodeAddress().getPort();
    }

    long lastLoadedTxId() {
        return lastLoadedTxId;
    }

    void stop() throws IOException {
        client.close();
        nameNode.stop();
        nameNode.join();
    }

    /** Each path in the order of names; links are not followed. */
    void tree(String path, PrintStream out) throws Exception {
        tree(client.getFileLinkStatus(new Path(path)), out);
    }

    private void tree(FileStatus status, PrintStream out) throws Exception {
        Path path = status.getPath();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("path", path.toUri().getPath());
        told.put("kind", status.isSymlink() ? "link" : status.isDirectory() ? "directory" : "file");
        told.put("owner", status.getOwner());
        told.put("group", status.getGroup());
        told.put("mode", status.getPermission().toShort());
        if (status.isSymlink()) {
            told.put("target", client.getLinkTarget(path).toUri().getPath());
        } else {
            told.put("mtime", status.getModificationTime());
            Map<String, Object> attributes = new TreeMap<>();
            for (Map.Entry<String, byte[]> attribute : client.getXAttrs(path).entrySet()) {
                attributes.put(attribute.getKey(), OpFields.plain(attribute.getValue()));
            }
            told.put("xattrs", attributes);
            told.put("acl", client.getAclStatus(path).getEntries().stream().map(AclEntry::toString).toList());
        }
        if (status.isFile()) {
            told.put("length", status.getLen());
            told.put("blocks", client.getFileBlockLocations(path, 0, Long.MAX_VALUE).length);
            told.put("replication", status.getReplication());
            told.put("block_size", status.getBlockSize());
            told.put("atime", status.getAccessTime());
        } else if (status.isDirectory()) {
            told.put("quota", client.getContentSummary(path).getQuota());
            told.put("space_quota", client.getContentSummary(path).getSpaceQuota());
        }
        out.println(OpFields.JSON.writeValueAsString(told));
        if (status.isDirectory()) {
            FileStatus[] children = client.listStatus(path);
            Arrays.sort(children);
            for (FileStatus child : children) {
                tree(child, out);
            }
        }
    }

    void operate(String[] words, PrintStream out) throws Exception {
        switch (words[1]) {
            case "mkdir" -> client.mkdirs(new Path(words[2]));
            case "create" -> client.create(new Path(words[2])).close();
            case "delete" -> client.delete(new Path(words[2]), true);
            case "chmod" -> client.setPermission(new Path(words[2]), new FsPermission(words[3]));
            case "chown" -> client.setOwner(new Path(words[2]), words[3], words[4]);
            case "xattr" -> client.setXAttr(new Path(words[2]), words[3], words[4].getBytes(StandardCharsets.UTF_8));
            case "rename" -> renameOld(new Path(words[2]), new Path(words[3]));
            case "replace" -> client.rename(new Path(words[2]), new Path(words[3]), Options.Rename.OVERWRITE);
            case "snapshot" -> {
                client.allowSnapshot(new Path(words[2]));
                client.createSnapshot(new Path(words[2]), words[3]);
            }
            case "save" -> save();
            case "roll" -> out.println(client.rollEdits());
            case "txid" -> out.println(nameNode.getNamesystem().getEditLog().getLastWrittenTxId());
            default -> throw new IllegalArgumentException("no such operation: " + words[1]);
        }
    }

    /** An image of all that was done so far; its name has the last transaction that is in it. */
    private void save() throws IOException {
        client.setSafeMode(HdfsConstants.SafeModeAction.SAFEMODE_ENTER);
        client.saveNamespace();
        client.setSafeMode(HdfsConstants.SafeModeAction.SAFEMODE_LEAVE);
    }

    private void renameOld(Path from, Path to) throws IOException {
        if (!client.rename(from, to)) {
            throw new IOException("not renamed: " + from);
        }
    }
}
