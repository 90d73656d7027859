package org.apache.hadoop.hdfs.server.namenode;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.fs.XAttr;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclEntryScope;
import org.apache.hadoop.fs.permission.AclEntryType;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.permission.PermissionStatus;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.CacheDirectiveInfo;
import org.apache.hadoop.hdfs.protocol.CachePoolInfo;
import org.apache.hadoop.hdfs.security.token.delegation.DelegationTokenIdentifier;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.token.delegation.DelegationKey;

/** An edits file of every operation that Hadoop 2.7 can write, with values made from a seed. */
final class OpSamples {
    private static final int STRING_CHARS_MAX = 0xFFFF / 3;  // Hadoop cuts longer ones
    private static final int LIST_SIZE_MAX = 4;
    private static final long TXID_FIRST = 1;

    /** Have a number, and cannot be written or stand for no operation. */
    private static final Set<FSEditLogOpCodes> NOT_WRITTEN =
            EnumSet.of(
                    FSEditLogOpCodes.OP_SET_NS_QUOTA,
                    FSEditLogOpCodes.OP_CLEAR_NS_QUOTA,
                    FSEditLogOpCodes.OP_START_LOG_SEGMENT,
                    FSEditLogOpCodes.OP_END_LOG_SEGMENT,
                    FSEditLogOpCodes.OP_INVALID);

    /** Are left out at times. */
    private static final Set<String> NULLABLE = Set.of("penultimateBlock", "truncateBlock", "username", "groupname");

    private final Random random;

    private OpSamples(long seed) {
        random = new Random(seed);
    }

    static void write(File file, long seed, int rounds) throws Exception {
        OpSamples samples = new OpSamples(seed);
        FSEditLogOp.OpInstanceCache cache = new FSEditLogOp.OpInstanceCache();
        List<FSEditLogOpCodes> codes = new ArrayList<>();
        for (FSEditLogOpCodes code : FSEditLogOpCodes.values()) {
            if (!NOT_WRITTEN.contains(code) && cache.get(code) != null) {
                codes.addAll(Collections.nCopies(rounds, code));
            }
        }
        Collections.shuffle(codes, samples.random);
        codes.add(0, FSEditLogOpCodes.OP_START_LOG_SEGMENT);
        codes.add(FSEditLogOpCodes.OP_END_LOG_SEGMENT);

        EditLogFileOutputStream out = new EditLogFileOutputStream(new Configuration(), file, 1 << 19);
        out.create(NameNodeLayoutVersion.CURRENT_LAYOUT_VERSION);
        long txid = TXID_FIRST;
        for (FSEditLogOpCodes code : codes) {
            FSEditLogOp op = cache.get(code);
            op.setTransactionId(txid++);
            if (!NOT_WRITTEN.contains(code)) {
                samples.fill(op);
            }
            out.write(op);
        }
        out.setReadyToFlush();
        out.flush();
        out.close();
    }

    private void fill(FSEditLogOp op) throws Exception {
        for (Field field : OpFields.fields(op)) {
            if (NULLABLE.contains(field.getName()) && random.nextBoolean()) {
                field.set(op, null);
            } else if (field.getName().equals("rpcClientId")) {
                field.set(op, bytes(random.nextInt(4) == 0 ? 0 : 16));
            } else if (field.getName().equals("srcs")) {
                field.set(op, list(this::string).toArray(new String[0]));
            } else {
                field.set(op, value(field.getGenericType()));
            }
        }
    }

    private Object value(Type type) throws Exception {
        if (type instanceof ParameterizedType list) {
            return value(list.getActualTypeArguments()[0] == AclEntry.class ? AclEntry[].class : XAttr[].class);
        }
        return switch (((Class<?>) type).getSimpleName()) {
            case "boolean" -> random.nextBoolean();
            case "byte" -> (byte) random.nextInt();
            case "short" -> (short) random.nextInt();
            case "int" -> random.nextInt();
            case "long" -> number();
            case "String" -> string();
            case "Block" -> block();
            case "Block[]" -> list(this::block).toArray(new Block[0]);
            case "AclEntry[]" -> list(this::aclEntry);
            case "XAttr[]" -> list(this::attribute);
            case "Rename[]" -> renameOptions();
            case "PermissionStatus" -> new PermissionStatus(string(), string(), permission());
            case "FsPermission" -> permission();
            case "StorageType" -> pick(StorageType.values());
            case "DelegationTokenIdentifier" -> token();
            case "DelegationKey" -> new DelegationKey((int) number(), number(), maybe(() -> bytes(random.nextInt(40))));
            case "CacheDirectiveInfo" -> directive();
            case "CachePoolInfo" -> pool();
            default -> throw new IOException("no values of " + type);
        };
    }

    private <T> List<T> list(Supplier<T> one) {
        List<T> values = new ArrayList<>();
        for (int left = random.nextInt(LIST_SIZE_MAX + 1); left > 0; left--) {
            values.add(one.get());
        }
        return values;
    }

    private <T> T pick(T[] values) {
        return values[random.nextInt(values.length)];
    }

    private <T> T maybe(Supplier<T> one) {
        return random.nextBoolean() ? null : one.get();
    }

    /** At most one: of more, Hadoop's reader takes the spare room of its buffer for further ones. */
    private Options.Rename[] renameOptions() {
        Options.Rename option = maybe(() -> pick(Options.Rename.values()));
        return option == null ? new Options.Rename[0] : new Options.Rename[] {option};
    }

    private byte[] bytes(int size) {
        byte[] made = new byte[size];
        random.nextBytes(made);
        return made;
    }

    /** Of every size in bits, so that every length of a vlong comes. */
    private long number() {
        return switch (random.nextInt(8)) {
            case 0 -> 0;
            case 1 -> -1;
            case 2 -> pick(new Long[] {Long.MAX_VALUE, Long.MIN_VALUE, 127L, 128L, -112L, -113L});
            default -> random.nextLong() >> random.nextInt(64);
        };
    }

    private String string() {
        return switch (random.nextInt(24)) {
            case 0 -> "";
            case 1 -> "x".repeat(STRING_CHARS_MAX);
            case 2 -> "\u20ac".repeat(STRING_CHARS_MAX);
            case 3 -> "/tr\u00e4ger/\u65e5\u672c\u8a9e";
            case 4 -> "/\ud834\udd1e/\ud83d\ude00";
            case 5 -> "lone \ud834 surrogates \udd1e";
            case 6 -> "nul \u0000 bell \u0007 tab \t lf \n cr \r del \u007f nel \u0085 \u2028";
            case 7 -> "<a b=\"c\">&amp; 'd' ]]></a> \\0041; \\\\ \\";
            case 8 -> "\ufffd \ufffe \uffff \ufeff";
            case 9 -> anything(1 + random.nextInt(20));
            default -> "/dir" + random.nextInt(1000) + "/file " + random.nextInt(1000);
        };
    }

    private String anything(int chars) {
        StringBuilder made = new StringBuilder();
        for (int left = chars; left > 0; left--) {
            made.append((char) random.nextInt(0x10000));
        }
        return made.toString();
    }

    private Block block() {
        return new Block(number(), number() & Long.MAX_VALUE, number() & Long.MAX_VALUE);  // sizes and stamps count up
    }

    private FsPermission permission() {
        return new FsPermission((short) random.nextInt(01000 << 1));
    }

    private AclEntry aclEntry() {
        return new AclEntry.Builder()
                .setType(pick(AclEntryType.values()))
                .setScope(pick(AclEntryScope.values()))
                .setPermission(pick(FsAction.values()))
                .setName(maybe(this::string))
                .build();
    }

    private XAttr attribute() {
        return new XAttr.Builder()
                .setNameSpace(pick(XAttr.NameSpace.values()))
                .setName(string())
                .setValue(maybe(() -> bytes(random.nextInt(20))))
                .build();
    }

    private DelegationTokenIdentifier token() throws ReflectiveOperationException {
        DelegationTokenIdentifier token = new DelegationTokenIdentifier();
        for (String name : List.of("owner", "renewer", "realUser")) {
            OpFields.tokenField(name).set(token, new Text(string()));
        }
        token.setIssueDate(number());
        token.setMaxDate(number());
        token.setSequenceNumber((int) number());
        token.setMasterKeyId((int) number());
        return token;
    }

    private CacheDirectiveInfo directive() {
        CacheDirectiveInfo.Builder made = new CacheDirectiveInfo.Builder().setId(number());
        if (random.nextBoolean()) {
            made.setPath(new Path("/cached/\u00e4\ud834\udd1e" + random.nextInt(1000)));
        }
        if (random.nextBoolean()) {
            made.setReplication((short) random.nextInt());
        }
        if (random.nextBoolean()) {
            made.setPool(string());
        }
        if (random.nextBoolean()) {
            made.setExpiration(CacheDirectiveInfo.Expiration.newAbsolute(random.nextLong() >>> 8));
        }
        return made.build();
    }

    private CachePoolInfo pool() {
        return new CachePoolInfo(string())
                .setOwnerName(maybe(this::string))
                .setGroupName(maybe(this::string))
                .setMode(maybe(this::permission))
                .setLimit(maybe(this::number))
                .setMaxRelativeExpiryMs(maybe(this::number));
    }
}
