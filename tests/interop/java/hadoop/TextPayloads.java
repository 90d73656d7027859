package org.apache.hadoop.hdfs.server.namenode;

import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto.Label;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto.Type;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.DescriptorValidationException;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.TextFormat;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.hdfs.protocol.proto.HdfsProtos;

/**
 * Payloads of the znodes of Hadoop's journal manager on ledgers, read and printed as it does, with the genuine text
 * format of protobuf-java. Its own messages are declared here, for its jar is not to be had; the namespace is Hadoop's.
 */
final class TextPayloads {
    private static final FileDescriptor FILE = file();

    private TextPayloads() {}

    /** What the text of a message says, as binary protobuf. */
    static byte[] merge(String message, byte[] data) throws IOException {
        DynamicMessage.Builder builder = DynamicMessage.newBuilder(descriptor(message));
        TextFormat.merge(new String(data, StandardCharsets.UTF_8), builder);
        if (!builder.isInitialized()) {
            throw new IOException("Invalid/Incomplete data in znode");
        }
        return builder.build().toByteArray();
    }

    /** The text of a message that is given as binary protobuf. */
    static byte[] print(String message, byte[] wire) throws IOException {
        DynamicMessage read = DynamicMessage.parseFrom(descriptor(message), ByteString.copyFrom(wire));
        return TextFormat.printToString(read).getBytes(StandardCharsets.UTF_8);
    }

    private static Descriptor descriptor(String message) {
        Descriptor found = FILE.findMessageTypeByName(message);
        if (found == null) {
            throw new IllegalArgumentException("no message " + message);
        }
        return found;
    }

    private static FileDescriptor file() {
        FileDescriptor hdfs = HdfsProtos.getDescriptor();
        FileDescriptorProto file = FileDescriptorProto.newBuilder()
                .setName("bkjournal.proto")
                .setPackage(hdfs.getPackage())
                .addDependency(hdfs.getName())
                .addMessageType(DescriptorProto.newBuilder()
                        .setName("VersionProto")
                        .addField(field("layoutVersion", 1, Type.TYPE_INT32, Label.LABEL_REQUIRED))
                        .addField(field("namespaceInfo", 2, Type.TYPE_MESSAGE, Label.LABEL_OPTIONAL)
                                .setTypeName("." + hdfs.getPackage() + ".NamespaceInfoProto")))
                .addMessageType(DescriptorProto.newBuilder()
                        .setName("EditLogLedgerProto")
                        .addField(field("dataLayoutVersion", 1, Type.TYPE_INT32, Label.LABEL_REQUIRED))
                        .addField(field("ledgerId", 2, Type.TYPE_INT64, Label.LABEL_REQUIRED))
                        .addField(field("firstTxId", 3, Type.TYPE_INT64, Label.LABEL_REQUIRED))
                        .addField(field("lastTxId", 4, Type.TYPE_INT64, Label.LABEL_OPTIONAL)))
                .addMessageType(DescriptorProto.newBuilder()
                        .setName("MaxTxIdProto")
                        .addField(field("txId", 1, Type.TYPE_INT64, Label.LABEL_REQUIRED)))
                .addMessageType(DescriptorProto.newBuilder()
                        .setName("CurrentInprogressProto")
                        .addField(field("path", 1, Type.TYPE_STRING, Label.LABEL_REQUIRED))
                        .addField(field("hostname", 2, Type.TYPE_STRING, Label.LABEL_OPTIONAL)))
                .build();
        try {
            return FileDescriptor.buildFrom(file, new FileDescriptor[] {hdfs});
        } catch (DescriptorValidationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static FieldDescriptorProto.Builder field(String name, int number, Type type, Label label) {
        return FieldDescriptorProto.newBuilder().setName(name).setNumber(number).setType(type).setLabel(label);
    }
}
