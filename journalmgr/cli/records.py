"""How transactions are printed: one printer per format, records in batches in, bytes out.

json    one object per line, every field
xml     the document of `hdfs oev -p xml`
hex     txid, operation and the whole record in hexadecimal digits, one per line
edits   a file of edits: header and records, as `hdfs oev` and name nodes read it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from bookkeeper.console.output import CommandFailed
from journalmgr.copying import encoded
from journalmgr.edits.codec import decode
from journalmgr.edits.file import encode_header
from journalmgr.edits.frame import encode_record
from journalmgr.edits.json import dumps
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.xml import END, begin
from journalmgr.edits.xml import record as xml_record
from journalmgr.errors import EditsError

if TYPE_CHECKING:
    from journalmgr.contract import Record

_NAMES = {int(opcode): opcode.hadoop_name for opcode in OpCode}

OnUndecodable = Callable[[EditsError], object]
"""Called for a transaction whose fields make no sense; what it does not raise is skipped."""


class Printer(Protocol):
    """One format. Layout versions are those of the segment that the records are in."""

    def records(self, records: Sequence[Record], layout_version: int, source: str) -> bytes:
        """Their text, and what has to stand before it."""

    def end(self) -> bytes:
        """What stands behind the last one."""


def _raise(error: EditsError) -> None:
    raise error


def printer_of(name: str, on_undecodable: OnUndecodable = _raise) -> Printer:
    """The printer of a format."""
    printers: dict[str, Callable[[OnUndecodable], Printer]] = {
        "json": _JsonPrinter,
        "xml": _XmlPrinter,
        "hex": _HexPrinter,
        "edits": _EditsPrinter,
    }
    return printers[name](on_undecodable)


class _JsonPrinter:
    def __init__(self, on_undecodable: OnUndecodable) -> None:
        self._on_undecodable = on_undecodable

    def records(self, records: Sequence[Record], layout_version: int, source: str) -> bytes:
        lines = []
        for record in records:
            try:
                lines.append(dumps(decode(record, layout_version, source)))
            except EditsError as error:
                self._on_undecodable(error)
        return "".join([f"{line}\n" for line in lines]).encode()

    def end(self) -> bytes:
        return b""


class _OneLayout:
    """What prints a document that has one layout version."""

    def __init__(self, on_undecodable: OnUndecodable) -> None:
        self._on_undecodable = on_undecodable
        self._layout_version: int | None = None

    def _is_first(self, records: Sequence[Record], layout_version: int) -> bool:
        before, self._layout_version = self._layout_version, layout_version
        if before not in (None, layout_version):
            raise CommandFailed(
                f"the layout version changes from {before} to {layout_version} at txid {records[0].txid}, and one "
                f"document has one: print what is before with --to {records[0].txid - 1}, the rest with --from "
                f"{records[0].txid}, or all with --format json"
            )
        return before is None


class _XmlPrinter(_OneLayout):
    def records(self, records: Sequence[Record], layout_version: int, source: str) -> bytes:
        parts = [begin(layout_version)] if self._is_first(records, layout_version) else []
        for record in records:
            try:
                parts.append(xml_record(decode(record, layout_version, source), layout_version))
            except EditsError as error:
                self._on_undecodable(error)
        return "".join(parts).encode()

    def end(self) -> bytes:
        return b"" if self._layout_version is None else END.encode()


class _HexPrinter:
    def __init__(self, _on_undecodable: OnUndecodable) -> None:
        pass

    def records(self, records: Sequence[Record], layout_version: int, source: str) -> bytes:
        return "".join(
            [
                f"{record.txid} {_name(record.opcode)} {encode_record(record.opcode, record.txid, record.body).hex()}\n"
                for record in records
            ]
        ).encode()

    def end(self) -> bytes:
        return b""


def _name(opcode: int) -> str:
    return _NAMES.get(opcode, f"opcode_{opcode}")


class _EditsPrinter(_OneLayout):
    def records(self, records: Sequence[Record], layout_version: int, source: str) -> bytes:
        header = encode_header(layout_version) if self._is_first(records, layout_version) else b""
        return header + b"".join(encoded(records))

    def end(self) -> bytes:
        return b""
