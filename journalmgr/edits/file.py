"""A file of edits: its name, its header, and the records and padding behind it. Pure.

    layouts from -50 on, opaque | layout version i32 | flags i32, always 0 | records | padding |
    layouts -49 ... -40         | layout version i32 |                       records | padding |

    edits_%019d-%019d           first and last txid: finalised, no padding
    edits_inprogress_%019d      first txid: in progress; it may end in padding, which its writer puts there ahead

Source: journalmgr/FORMATS.md 5.1, 6.4. Ledgers have no header: their layout version is in the journal's list.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from bookkeeper.errors import again
from journalmgr.contract import Record
from journalmgr.edits.codec import measure
from journalmgr.edits.frame import OP_SIZE_MAX, RecordDecoder, check_readable, check_writable, has_length
from journalmgr.errors import EditsCorrupt, EditsError, SegmentUnreadable
from journalmgr.model import OPAQUE, TxId

FLAGS_SINCE = -50
"""First layout with flags in the header."""

HEADER_SIZE_MAX = 8
"""Bytes that hold the header of any layout."""

PADDING_SIZE = 1024 * 1024
"""Bytes that a writer puts ahead of the records at a time (Hadoop's)."""

_I32 = struct.Struct(">i")
_FINALISED = re.compile(r"edits_([0-9]{1,19})-([0-9]{1,19})\Z")
_IN_PROGRESS = re.compile(r"edits_inprogress_([0-9]{1,19})\Z")


class EditsFileName(NamedTuple):
    """What a name says of its file; last_txid is None while it is in progress."""

    first_txid: TxId
    last_txid: TxId | None

    def __str__(self) -> str:
        if self.last_txid is None:
            return f"edits_inprogress_{self.first_txid:019d}"
        return f"edits_{self.first_txid:019d}-{self.last_txid:019d}"


def parse_name(name: str) -> EditsFileName | None:
    """What the name of a file says; None where it is no file of edits. Raises SegmentUnreadable for a contradiction."""
    if found := _IN_PROGRESS.match(name):
        return EditsFileName(TxId(int(found[1])), None)
    if not (found := _FINALISED.match(name)):
        return None
    parsed = EditsFileName(TxId(int(found[1])), TxId(int(found[2])))
    if int(found[1]) > int(found[2]):
        raise SegmentUnreadable(
            f"{name}: a file of edits that ends at txid {found[2]}, before its first, {found[1]}; move it away"
        )
    return parsed


def is_in_progress_name(name: str) -> bool:
    """Whether it is the name of a file in progress."""
    return _IN_PROGRESS.match(name) is not None


def padding(size: int = PADDING_SIZE) -> bytes:
    """What a writer puts ahead of the records."""
    return b"\xff" * size


def has_flags(layout_version: int) -> bool:
    """Whether the header of this layout has flags."""
    return layout_version == OPAQUE or layout_version <= FLAGS_SINCE


def header_size(layout_version: int) -> int:
    """Bytes before the first record."""
    return 2 * _I32.size if has_flags(layout_version) else _I32.size


def encode_header(layout_version: int) -> bytes:
    """The header of a file. Raises UnsupportedLayout for a layout that is not written."""
    check_writable(layout_version)
    return _I32.pack(layout_version) + _I32.pack(0)


class EditsFileDecoder:
    """Chunks of any size -> records; a record's offset counts from the beginning of the file.

    source: the file's name, for messages; where it is one of a file of edits, the records must begin at its first
    txid and a finalised one must end at its last. expected_txid: of the first record, if it is known otherwise.

    A fault ends the decoder, as it ends a RecordDecoder.
    """

    __slots__ = (
        "_expected_txid",
        "_fault",
        "_head",
        "_last_txid",
        "_layout_version",
        "_op_size_max",
        "_records",
        "source",
    )

    def __init__(self, *, source: str, expected_txid: int | None = None, op_size_max: int = OP_SIZE_MAX) -> None:
        name = parse_name(source.rpartition("/")[2])
        self.source = source
        self._expected_txid = expected_txid if expected_txid is not None or name is None else name.first_txid
        self._last_txid = name.last_txid if name is not None else None
        self._op_size_max = op_size_max
        self._head = b""
        self._layout_version: int | None = None
        self._records: RecordDecoder | None = None
        self._fault: EditsError | None = None

    @property
    def layout_version(self) -> int | None:
        """How the records are encoded; None until the header was read."""
        return self._layout_version

    @property
    def offset(self) -> int:
        """Of the first byte that is not part of the header or of a record delivered."""
        return 0 if self._records is None else self._records.offset

    @property
    def padding(self) -> bool:
        """The padding behind the last record has begun."""
        return self._records is not None and self._records.padding

    @property
    def expected_txid(self) -> int | None:
        """Of the next record, if it is known."""
        return self._expected_txid if self._records is None else self._records.expected_txid

    def feed(self, data: bytes) -> list[Record]:
        """The records that these bytes complete. Raises UnsupportedLayout and what RecordDecoder.feed raises."""
        if self._fault is not None:
            raise again(self._fault)
        if self._records is not None:
            return self._records.feed(data)
        self._head += data
        try:
            self._records = self._read_header()
        except EditsError as error:
            self._fault = error
            raise
        if self._records is None:
            return []
        rest, self._head = self._head[self._records.offset :], b""
        return self._records.feed(rest)

    def finish(self) -> None:
        """No more bytes will come. Raises EditsCorrupt where the header or a record was cut short, or records lack."""
        if self._fault is not None:
            raise again(self._fault)
        if self._records is None:
            raise EditsCorrupt(
                f"{len(self._head)} bytes are no header: the file was cut, or its writer died before it wrote one; "
                "there is no transaction in it",
                source=self.source,
                offset=0,
            )
        self._records.finish()
        ended = self._records.expected_txid
        if self._last_txid is not None and (ended is None or ended != self._last_txid + 1):
            last = "it has none" if ended is None or ended == self._expected_txid else f"its last is {ended - 1}"
            raise EditsCorrupt(
                f"by its name the file goes on to txid {self._last_txid}, but {last}; read another copy of it",
                source=self.source,
                offset=self._records.offset,
            )

    def _read_header(self) -> RecordDecoder | None:
        """The decoder of what is behind the header; None before the header is whole."""
        if len(self._head) < _I32.size:
            return None
        layout_version = _I32.unpack_from(self._head)[0]
        if layout_version == -1:
            raise EditsCorrupt(
                "padding where the header should be: the writer died before it wrote one; no transaction is in it",
                source=self.source,
                offset=0,
            )
        check_readable(layout_version, self.source)
        size = header_size(layout_version)
        if len(self._head) < size:
            return None
        if size > _I32.size and (flags := _I32.unpack_from(self._head, _I32.size)[0]) != 0:
            raise EditsCorrupt(
                f"flags {flags:#x} in the header; only 0 is known: the file is damaged, or of a newer kind",
                source=self.source,
                offset=_I32.size,
            )
        self._layout_version = layout_version
        return RecordDecoder(
            layout_version,
            source=self.source,
            offset=size,
            expected_txid=self._expected_txid,
            op_size_max=self._op_size_max,
            measure=None if has_length(layout_version) else measure(layout_version),
        )


def decode_header(data: bytes, source: str) -> tuple[int, int]:
    """(layout version, size of the header) from a file's first HEADER_SIZE_MAX bytes.

    Raises EditsCorrupt, UnsupportedLayout.
    """
    decoder = EditsFileDecoder(source=source)
    for start in range(0, HEADER_SIZE_MAX, HEADER_SIZE_MAX // 2):
        if decoder.layout_version is None:
            decoder.feed(data[start : start + HEADER_SIZE_MAX // 2])
    layout_version = decoder.layout_version
    if layout_version is None:
        decoder.finish()  # raises: it was cut short
        raise AssertionError("a header that is neither whole nor cut short")
    return layout_version, header_size(layout_version)
