"""Operations as the XML that `hdfs oev -p xml` of Hadoop 2.7 prints, byte for byte, and back. Pure.

    <EDITS> <EDITS_VERSION>-63</EDITS_VERSION> <RECORD> <OPCODE/> <DATA> <TXID/> ... </DATA> </RECORD> ... </EDITS>

What this XML does not hold, and reading it leaves at its default: the attributes and the storage policy of ADD, the
second time of MKDIR (read as the first, which it always is), bits of a mode beyond rwxrwxrwx and sticky, whether an
empty name of an access control list or an absent path of attributes was written. Layouts of Hadoop 3 have the elements
that Hadoop 3 prints for their new fields.

Ours: a transaction that is not taken apart (opaque ones, erasure coding policies) has a BODY in hexadecimal digits,
which Hadoop does not know. Characters that XML cannot hold are \\HHHH; as Hadoop writes them, also the backslash.

Differs from Apache: a rename with several options prints these and no more (Hadoop prints what its buffer has behind
them); a reader takes texts as they are (Hadoop cuts blanks off their ends), refuses elements it does not know, and
reads the block of TRUNCATE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.parsers import expat

from bookkeeper.errors import InvalidArgument, again
from journalmgr.edits.frame import OP_SIZE_MAX, check_readable
from journalmgr.edits.opcodes import HADOOP_3_ONLY, OpCode
from journalmgr.edits.ops import ALWAYS, OPS, AnyOp, RawOp
from journalmgr.edits.xml_fields import FIELDS, Element, InvalidElement, Node
from journalmgr.errors import EditsCorrupt, EditsError

END = "</EDITS>\n"
"""Behind the last record."""

TEXT_SIZE_MAX = 4 * OP_SIZE_MAX
"""Characters of one record that a reader takes."""

ENCODINGS = frozenset({"UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE"})
"""Encodings that a document may declare: those of expat. For others, expat would ask for one of Python's codecs."""

_INDENT = "  "
_SPECIAL = re.compile("[\\\\&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff\U00010000-\U0010ffff]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xd;"}
_MANGLED = re.compile(r"\\(?:([0-9a-fA-F]{4});)?")


def begin(layout_version: int) -> str:
    """Before the first record."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<EDITS>\n{_INDENT}<EDITS_VERSION>{layout_version}</EDITS_VERSION>\n'
    )


def record(op: AnyOp, layout_version: int) -> str:
    """One operation."""
    nodes: list[Node] = [("TXID", str(op.txid))]
    if isinstance(op, RawOp):
        if op.opcode not in (OpCode.OPAQUE, *HADOOP_3_ONLY):
            raise InvalidArgument(f"an operation of opcode {op.opcode} has no name to be written by")
        nodes.append(("BODY", op.body.hex()))
    else:
        for field in FIELDS[op.opcode]:
            if field.since == ALWAYS or layout_version <= field.since:
                nodes += field.write(getattr(op, field.name) if field.name else None)
    lines: list[str] = []
    _write([("RECORD", [("OPCODE", OpCode(op.opcode).hadoop_name), ("DATA", nodes)])], _INDENT, lines)
    return "".join(lines)


def write_xml(ops: Iterable[AnyOp], layout_version: int) -> Iterator[str]:
    """The whole document, a record at a time; to be encoded as UTF-8."""
    yield begin(layout_version)
    for op in ops:
        yield record(op, layout_version)
    yield END


def _write(nodes: list[Node], indent: str, lines: list[str]) -> None:
    for tag, content in nodes:
        if isinstance(content, str):
            lines.append(f"{indent}<{tag}>{_escape(content)}</{tag}>\n")
        elif content:
            lines.append(f"{indent}<{tag}>\n")
            _write(content, indent + _INDENT, lines)
            lines.append(f"{indent}</{tag}>\n")
        else:
            lines.append(f"{indent}<{tag}/>\n")


def _escape(text: str) -> str:
    return _SPECIAL.sub(_escape_one, text)


def _escape_one(found: re.Match[str]) -> str:
    character = found[0]
    if character in _ENTITIES:
        return _ENTITIES[character]
    return f"&#x{ord(character):x};" if ord(character) > 0xFFFF else f"\\{ord(character):04x};"


class XmlDecoder:
    """Chunks of a document, of any size -> its operations, in order.

    source: for messages. Errors name line and element; the first one ends the decoder, and the operations before it
    in the same chunk are delivered first.
    """

    def __init__(self, *, source: str, text_size_max: int = TEXT_SIZE_MAX) -> None:
        self.source = source
        self.layout_version: int | None = None
        """How the records are encoded; None until it was read."""
        self._text_size_max = text_size_max
        self._text_size = 0
        self._open: list[Element] = []
        self._texts: list[list[str]] = []  # of the open elements, in pieces
        self._ops: list[AnyOp] = []
        self._fault: EditsError | None = None
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        self._parser.CharacterDataHandler = self._on_text
        self._parser.StartDoctypeDeclHandler = self._on_doctype
        self._parser.XmlDeclHandler = self._on_declaration

    def feed(self, data: bytes) -> list[AnyOp]:
        """The operations that these bytes complete. Raises EditsCorrupt, UnsupportedLayout."""
        return self._parse(data, is_final=False)

    def finish(self) -> list[AnyOp]:
        """No more bytes will come. Raises EditsCorrupt where the document is cut short."""
        return self._parse(b"", is_final=True)

    def _parse(self, data: bytes, *, is_final: bool) -> list[AnyOp]:
        if self._fault is not None:
            raise again(self._fault)
        try:
            self._parser.Parse(data, is_final)
        except expat.ExpatError as error:
            self._fault = self._corrupt(f"line {error.lineno}: {expat.ErrorString(error.code)}", error)
        except InvalidElement as error:
            self._fault = self._corrupt(str(error), error)
        except EditsError as error:
            self._fault = error
        ops, self._ops = self._ops, []
        if self._fault is not None and not ops:
            raise again(self._fault)
        return ops

    def _corrupt(self, why: str, cause: Exception) -> EditsCorrupt:
        error = EditsCorrupt(why, source=self.source)
        error.__cause__ = cause
        return error

    def _on_declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.upper() not in ENCODINGS:
            raise InvalidElement(
                self._parser.CurrentLineNumber,
                f"encoding {encoding[:40]!r}, not one of {', '.join(sorted(ENCODINGS))}; write the document as UTF-8",
            )

    def _on_doctype(self, *_: object) -> None:
        raise InvalidElement(self._parser.CurrentLineNumber, "a document type; edits have none")

    def _on_start(self, tag: str, _: dict[str, str]) -> None:
        element = Element(tag, self._parser.CurrentLineNumber)
        if not self._open and tag != "EDITS":
            raise InvalidElement(element.line, f"{tag} where EDITS should be")
        if len(self._open) == 1:
            self._text_size = 0
            wanted = "EDITS_VERSION" if self.layout_version is None else "RECORD"
            if tag != wanted:
                raise InvalidElement(element.line, f"{tag} where {wanted} should be")
        elif self._open:
            self._open[-1].children.append(element)
            self._count(len(tag))
        self._open.append(element)
        self._texts.append([])

    def _on_text(self, text: str) -> None:
        if len(self._open) > 1:
            self._count(len(text))
            self._texts[-1].append(text)

    def _count(self, size: int) -> None:
        self._text_size += size
        if self._text_size > self._text_size_max:
            raise InvalidElement(
                self._parser.CurrentLineNumber, f"a record of more than {self._text_size_max} characters"
            )

    def _on_end(self, _: str) -> None:
        element = self._open.pop()
        element.text = "".join(self._texts.pop())
        if element.children:
            if element.text.strip():
                raise InvalidElement(element.line, f"text between the elements of {element.tag}")
        elif "\\" in element.text:
            element.text = _MANGLED.sub(lambda found: _unmangle(found, element), element.text)
        if len(self._open) == 1:
            if element.tag == "EDITS_VERSION":
                self.layout_version = element.integer(32)
                check_readable(self.layout_version, self.source)
            else:
                assert self.layout_version is not None
                self._ops.append(_read_record(element, self.layout_version))
        elif not self._open and self.layout_version is None:
            raise InvalidElement(element.line, "EDITS has no EDITS_VERSION")


def _unmangle(found: re.Match[str], element: Element) -> str:
    if found[1] is None:
        raise InvalidElement(element.line, f"a backslash in {element.tag} that is no \\HHHH; of a character")
    return chr(int(found[1], 16))


def _read_record(element: Element, layout_version: int) -> AnyOp:
    name, data = element.one("OPCODE"), element.one("DATA")
    element.check_all_taken()
    opcode = OpCode.__members__.get(name.text.strip().removeprefix("OP_"))
    if opcode is None or not name.text.strip().startswith("OP_"):
        raise InvalidElement(name.line, f"OPCODE is {name.text[:60]!r}, no operation")
    txid = data.one("TXID").integer()
    op: AnyOp
    if opcode in HADOOP_3_ONLY or opcode == OpCode.OPAQUE:
        op = RawOp(opcode, data.one("BODY").hexadecimal(), txid)
    elif opcode in OPS:
        op = OPS[opcode](txid=txid)
        for field in FIELDS[opcode]:
            if field.since == ALWAYS or layout_version <= field.since:
                value = field.read(data)
                if field.name:
                    setattr(op, field.name, value)
        if opcode == OpCode.MKDIR:
            op.atime = op.mtime  # type: ignore[attr-defined]  # both are the time of the operation
    else:
        raise InvalidElement(name.line, f"{opcode.hadoop_name} is obsolete and not read")
    data.check_all_taken()
    return op
