"""Transactions of a metadata server as bytes, and as text. Pure.

    file      frame        codec            xml, json
    bytes --> records  --> operations  -->  text       and back
              opcode, txid, body             (xml as Hadoop's offline viewer prints it)

    frame.py       the record: opcode, length, txid, body, checksum; RecordDecoder for chunks of any size
    opcodes.py     numbers and names of operations
    primitives.py  how numbers and strings are written
    fields.py      one codec per kind of composed field
    ops.py         one dataclass per operation; its annotations say how, and since which layout, a field is written
    codec.py       operations <-> bodies and records, put together from their fields for each layout
    file.py        a file of edits: name, header, padding; EditsFileDecoder
    xml.py         the XML of `hdfs oev`, streaming both ways; xml_fields.py has the elements of each operation
    json.py        one JSON object per operation, with every field

Layouts -40 to -55 are read, -56 to -67 and our own 1 (opaque) read and written. A decoder checks lengths before it
takes memory and checksums before it looks into a body; it delivers what is whole before a fault, and then only the
fault. Source: journalmgr/FORMATS.md 5.
"""
