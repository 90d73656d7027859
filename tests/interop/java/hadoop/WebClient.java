package org.apache.hadoop.hdfs.server.namenode;

import java.io.FileNotFoundException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.io.IOUtils;

/** Hadoop's WebHDFS client on a name node: writes, reads, lists, renames and deletes below a new directory. */
final class WebClient {
    private WebClient() {
    }

    /** Return what the client saw, by step. It leaves `/hadoop/sub/b`. */
    static Map<String, Object> story(String address) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("fs.permissions.umask-mode", "022");
        Map<String, Object> seen = new LinkedHashMap<>();
        try (FileSystem files = FileSystem.newInstance(URI.create("webhdfs://" + address), configuration)) {
            Path top = new Path("/hadoop");
            Path a = new Path(top, "a");
            Path sub = new Path(top, "sub");
            seen.put("mkdirs", files.mkdirs(sub));
            try (FSDataOutputStream out = files.create(a, FsPermission.valueOf("-rw-r-----"), true, 4096, (short) 2, 1 << 20, null)) {
                out.write("hello".getBytes(StandardCharsets.UTF_8));
            }
            try (FSDataOutputStream out = files.append(a)) {
                out.write(" world".getBytes(StandardCharsets.UTF_8));
            }
            seen.put("whole", read(files, a, 0));
            seen.put("rest", read(files, a, 6));
            FileStatus status = files.getFileStatus(a);
            seen.put("status", List.of(status.getLen(), status.getPermission().toShort(), status.isFile()));
            files.setPermission(a, FsPermission.valueOf("-rw-rw----"));
            files.setOwner(a, "ann", "staff");
            files.setTimes(a, 1_500_000_000_000L, -1);
            files.setReplication(a, (short) 3);
            FileStatus changed = files.getFileStatus(a);
            seen.put("changed", List.of(changed.getPermission().toShort(), changed.getOwner(), changed.getGroup(),
                    changed.getModificationTime(), changed.getReplication()));
            files.setXAttr(a, "user.note", "n".getBytes(StandardCharsets.UTF_8));
            seen.put("attribute", new String(files.getXAttr(a, "user.note"), StandardCharsets.UTF_8));
            seen.put("acl", files.getAclStatus(a).getOwner());
            List<String> names = new ArrayList<>();
            for (FileStatus each : files.listStatus(top)) {
                names.add(each.getPath().getName());
            }
            seen.put("names", names);
            ContentSummary summary = files.getContentSummary(top);
            seen.put("summary", List.of(summary.getFileCount(), summary.getDirectoryCount(), summary.getLength()));
            seen.put("renamed", files.rename(a, new Path(sub, "b")));
            try {
                files.open(a).read();
            } catch (FileNotFoundException error) {
                seen.put("missing", error.getMessage());
            }
            try {
                files.createSnapshot(top, "s");
            } catch (Exception error) {
                seen.put("snapshot", error.getClass().getSimpleName() + ": " + error.getMessage());
            }
            files.mkdirs(new Path(top, "gone/deep"));
            try {
                files.delete(new Path(top, "gone"), false);
            } catch (Exception error) {
                seen.put("not empty", error.getClass().getSimpleName());
            }
            seen.put("deleted", files.delete(new Path(top, "gone"), true));
            seen.put("deleted again", files.delete(new Path(top, "gone"), true));
        }
        return seen;
    }

    private static String read(FileSystem files, Path path, long offset) throws Exception {
        try (FSDataInputStream in = files.open(path)) {
            in.seek(offset);
            byte[] content = new byte[(int) (files.getFileStatus(path).getLen() - offset)];
            IOUtils.readFully(in, content, 0, content.length);
            return new String(content, StandardCharsets.UTF_8);
        }
    }
}
