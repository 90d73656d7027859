"""Transactions of a metadata server as bytes, and as text. Pure.

    codec         operations <-> bodies and records, for each layout
    fields        one codec for each kind of composed field
    file          a file of edits: name, header, padding
    frame         the record: opcode, length, txid, body, checksum
    json          one JSON object for each operation
    opcodes       numbers and names of operations
    ops           one dataclass for each operation; annotations state how, and since which layout, a field is written
    primitives    how numbers and strings are written
    xml           the XML of `hdfs oev`, in both directions
    xml_fields    XML elements of each operation

    file      frame        codec            xml, json
    bytes --> records  --> operations  -->  text       and back
              opcode, txid, body             (xml as Hadoop's offline viewer prints it)

Layouts -40 to -55 are read, -56 to -67 and our own 1 (opaque) read and written. A decoder checks lengths before it
takes memory and checksums before it looks into a body; it delivers what is whole before a fault, and then only the
fault. Source: journalmgr/FORMATS.md 5.
"""
