package org.apache.hadoop.hdfs.server.namenode;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.XAttr;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.permission.PermissionStatus;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.CacheDirectiveInfo;
import org.apache.hadoop.hdfs.protocol.CachePoolInfo;
import org.apache.hadoop.hdfs.security.token.delegation.DelegationTokenIdentifier;
import org.apache.hadoop.security.token.delegation.AbstractDelegationTokenIdentifier;
import org.apache.hadoop.security.token.delegation.DelegationKey;
import org.codehaus.jackson.JsonGenerator;
import org.codehaus.jackson.map.ObjectMapper;

/**
 * What Hadoop holds of a transaction, by the names of its fields: numbers, strings and lists of them. Enums are their
 * ordinals, bytes are hexadecimal, a block is [id, size, generation stamp], and so on.
 */
final class OpFields {
    static final ObjectMapper JSON = new ObjectMapper().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);

    static Map<String, Object> of(FSEditLogOp op) throws ReflectiveOperationException {
        Map<String, Object> values = new LinkedHashMap<>();
        for (Field field : fields(op)) {
            values.put(field.getName(), plain(field.get(op)));
        }
        return values;
    }

    /** The fields of an operation that it reads and writes. */
    static List<Field> fields(FSEditLogOp op) {
        List<Field> found = new ArrayList<>();
        for (Class<?> type = op.getClass(); type != Object.class; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                // `length` is of layouts long gone, RollingUpgradeOp's `name` is a word for messages.
                boolean other = List.of("length", "name", "txid", "opCode").contains(field.getName());
                if (!other && !Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    found.add(field);
                }
            }
        }
        return found;
    }

    static Object plain(Object value) throws ReflectiveOperationException {
        if (value == null || value instanceof Number || value instanceof String || value instanceof Boolean) {
            return value;
        }
        if (value instanceof byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        }
        if (value instanceof Object[] array) {
            return plain(Arrays.asList(array));
        }
        if (value instanceof List<?> list) {
            List<Object> values = new ArrayList<>();
            for (Object item : list) {
                values.add(plain(item));
            }
            return values;
        }
        if (value instanceof Options.Rename option) {
            return option.value();
        }
        if (value instanceof Enum<?> constant) {
            return constant.ordinal();
        }
        return plain(parts(value));
    }

    private static List<Object> parts(Object value) throws ReflectiveOperationException {
        if (value instanceof Block block) {
            return Arrays.asList(block.getBlockId(), block.getNumBytes(), block.getGenerationStamp());
        }
        if (value instanceof PermissionStatus status) {
            return Arrays.asList(status.getUserName(), status.getGroupName(), status.getPermission().toShort());
        }
        if (value instanceof FsPermission permission) {
            return Arrays.asList(permission.toShort());
        }
        if (value instanceof AclEntry entry) {
            return Arrays.asList(entry.getType(), entry.getScope(), entry.getPermission(), entry.getName());
        }
        if (value instanceof XAttr attribute) {
            return Arrays.asList(attribute.getNameSpace(), attribute.getName(), attribute.getValue());
        }
        if (value instanceof DelegationKey key) {
            return Arrays.asList(key.getKeyId(), key.getExpiryDate(), key.getEncodedKey());
        }
        if (value instanceof DelegationTokenIdentifier token) {
            List<Object> parts = new ArrayList<>();
            for (String name : List.of("owner", "renewer", "realUser")) {
                parts.add(tokenField(name).get(token).toString());
            }
            parts.addAll(List.of(token.getIssueDate(), token.getMaxDate()));
            parts.addAll(List.of(token.getSequenceNumber(), token.getMasterKeyId()));
            return parts;
        }
        if (value instanceof CacheDirectiveInfo directive) {
            Path path = directive.getPath();
            CacheDirectiveInfo.Expiration expiration = directive.getExpiration();
            return Arrays.asList(
                    directive.getId(),
                    path == null ? null : path.toUri().getPath(),
                    directive.getReplication(),
                    directive.getPool(),
                    expiration == null ? null : expiration.getMillis());
        }
        if (value instanceof CachePoolInfo pool) {
            return Arrays.asList(
                    pool.getPoolName(),
                    pool.getOwnerName(),
                    pool.getGroupName(),
                    pool.getMode() == null ? null : pool.getMode().toShort(),
                    pool.getLimit(),
                    pool.getMaxRelativeExpiryMs());
        }
        throw new IllegalArgumentException("what is " + value.getClass() + "?");
    }

    static Field tokenField(String name) throws ReflectiveOperationException {
        Field field = AbstractDelegationTokenIdentifier.class.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    private OpFields() {}
}
