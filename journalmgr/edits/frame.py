"""The frame of a transaction in an edits file or ledger. Pure.

    layouts from -56 on        | opcode u8 | length u32 | txid i64 | body | crc u32 |
                                 length = body + 12: everything behind it but itself
    layouts -55 ... -40        | opcode u8 | txid i64 | body | crc u32 |
    opaque (our own layout 1)  as from -56 on

Big-endian. crc: CRC-32 (zlib's) of everything before it. A file may end in padding: an opcode of 0xFF, behind which
only 0xFF and 0x00 follow. Ledgers hold records and nothing else; a record never spans two entries.

Without a length only whoever knows the operations can tell where a body ends: such layouts need a `measure`.

Source: journalmgr/FORMATS.md 5.1, 5.2. Differs from Apache 2.7: a checksum is verified before the body is looked at, as
Hadoop does from 2.8 on.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from zlib import crc32

from bookkeeper.errors import again
from journalmgr.contract import Record
from journalmgr.errors import EditsCorrupt, EditsError, GapInTransactions, UnsupportedLayout
from journalmgr.model import OPAQUE, TxId

LENGTH_SINCE = -56
"""First layout with a length in the frame."""

OLDEST_READABLE = -40
"""Bodies of older layouts are of other shapes."""

NEWEST_READABLE = -67
"""The newest layout there is."""

RESERVED_LAYOUTS = frozenset({-41, -44, -54})
"""Lines of Hadoop 1 and a reservation: not what their number suggests."""

OP_SIZE_MAX = 52_428_800
"""Bytes of one record that are believed (dfs.namenode.max.op.size)."""

TERMINATOR = 0xFF

_HEAD = struct.Struct(">BIq")
_HEAD_WITHOUT_LENGTH = struct.Struct(">Bq")
_CRC = struct.Struct(">I")
_TXID = struct.Struct(">q")
FRAME_SIZE = _HEAD.size + _CRC.size
"""Bytes of a record besides its body."""

_new_record: Callable[[tuple[int, int, bytes, int, int]], Record] = functools.partial(tuple.__new__, Record)
"""Half the time of `Record(...)`, which is a function in Python that calls this."""

Measure = Callable[[int, bytes, int], int]
"""(opcode, data, offset of the body) -> offset behind the body; IndexError or struct.error where data is too short."""

_LENGTH_AND_OPCODE = 5
"""Bytes of a record that its length does not count."""

_BEFORE_LENGTH_ENDS = 12
"""What the length counts besides the body: txid and checksum."""


def has_length(layout_version: int) -> bool:
    """Whether records of this layout carry their length."""
    return layout_version == OPAQUE or layout_version <= LENGTH_SINCE


def check_readable(layout_version: int, source: str = "") -> None:
    """Raise UnsupportedLayout unless records of this layout can be read."""
    if layout_version == OPAQUE or (
        NEWEST_READABLE <= layout_version <= OLDEST_READABLE and layout_version not in RESERVED_LAYOUTS
    ):
        return
    raise UnsupportedLayout(
        f"layout version {layout_version} cannot be read; known are {OLDEST_READABLE} to {NEWEST_READABLE} of Hadoop 2 "
        f"and 3, without {', '.join(map(str, sorted(RESERVED_LAYOUTS, reverse=True)))}, and {OPAQUE} (opaque)",
        source=source,
    )


def check_writable(layout_version: int) -> None:
    """Raise UnsupportedLayout unless records of this layout can be written: those that carry their length."""
    check_readable(layout_version)
    if not has_length(layout_version):
        raise UnsupportedLayout(
            f"layout version {layout_version} is only read, not written; write {LENGTH_SINCE} to {NEWEST_READABLE}, "
            f"as a rule -63, or {OPAQUE} (opaque)"
        )


def encode_record(opcode: int, txid: int, body: bytes) -> bytes:
    """One whole record of a layout that has a length."""
    head = _HEAD.pack(opcode, len(body) + _BEFORE_LENGTH_ENDS, txid)
    return b"".join((head, body, _CRC.pack(crc32(body, crc32(head)))))


def txid_of(record: bytes) -> TxId:
    """The txid of a whole record of a layout that has a length."""
    return TxId(_TXID.unpack_from(record, _LENGTH_AND_OPCODE)[0])


def split_record(data: bytes, layout_version: int) -> Record:
    """The frame of one whole record that was read before: its checksum is not looked at again. offset: 0."""
    head = _HEAD if has_length(layout_version) else _HEAD_WITHOUT_LENGTH
    txid = TxId(_TXID.unpack_from(data, head.size - _TXID.size)[0])
    return Record(txid, data[0], data[head.size : -_CRC.size], 0, len(data))


class RecordDecoder:
    """Chunks of any size -> records, in order; checks frame, checksum and that txids are consecutive.

    source: for messages. offset: of the first byte that is fed, in its segment. expected_txid: of the first record;
    None takes any. consecutive: whether the others must follow it one by one. measure: for layouts without a length.

    A fault ends the decoder: records before it are delivered first, then every call raises it.
    """

    __slots__ = (
        "_chunks",
        "_consecutive",
        "_fault",
        "_measure",
        "_needed",
        "_op_size_max",
        "_padding",
        "_pending",
        "expected_txid",
        "offset",
        "source",
    )

    def __init__(
        self,
        layout_version: int,
        *,
        source: str,
        offset: int = 0,
        expected_txid: int | None = None,
        consecutive: bool = True,
        op_size_max: int = OP_SIZE_MAX,
        measure: Measure | None = None,
    ) -> None:
        check_readable(layout_version, source)
        assert has_length(layout_version) or measure is not None, "nothing tells where a record of this layout ends"
        self._measure = None if has_length(layout_version) else measure
        self.source = source
        self.offset = offset  # of the first byte that is not part of a record delivered
        self.expected_txid = expected_txid
        self._consecutive = consecutive
        self._op_size_max = op_size_max
        self._chunks: list[bytes] = []  # of a record that is not complete yet; never joined before the rest of it came
        self._pending = 0  # bytes in them
        self._needed = 0  # bytes that the first record in them has, as far as that is known
        self._padding = False
        self._fault: EditsError | GapInTransactions | None = None

    @property
    def pending(self) -> int:
        """Bytes of a record that is not complete yet."""
        return self._pending

    @property
    def padding(self) -> bool:
        """The padding behind the last record has begun."""
        return self._padding

    def feed(self, data: bytes) -> list[Record]:
        """The records that these bytes complete. Raises EditsCorrupt, GapInTransactions, UnknownOp."""
        if self._fault is not None:
            raise again(self._fault)
        self._chunks.append(data)
        self._pending += len(data)
        if self._pending < self._needed:
            return []
        buffer = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        records: list[Record] = []
        start = self.offset
        try:
            if not self._padding:
                (self._take_measured if self._measure is not None else self._take)(buffer, records)
            if self._padding:
                self._check_padding(buffer, self.offset - start)
                self.offset = start + len(buffer)
        except (EditsError, GapInTransactions) as error:
            self._fault = error
        rest = buffer[self.offset - start :]
        self._chunks = [rest] if rest else []
        self._pending = len(rest)
        if self._fault is not None and not records:
            raise again(self._fault)
        return records

    def finish(self) -> None:
        """No more bytes will come. Raises EditsCorrupt where a record was cut short."""
        if self._fault is not None:
            raise again(self._fault)
        if self._pending:
            raise self._corrupt(f"{self._pending} bytes are the beginning of a record whose end is missing")

    def _take(self, buffer: bytes, records: list[Record]) -> None:
        position, end, start = 0, len(buffer), self.offset
        expected, consecutive, size_max = self.expected_txid, self._consecutive, self._op_size_max
        unpack_head, unpack_crc, append = _HEAD.unpack_from, _CRC.unpack_from, records.append
        self._needed = 0
        view = memoryview(buffer)
        try:
            while position + FRAME_SIZE <= end:
                opcode, length, txid = unpack_head(buffer, position)
                if opcode == TERMINATOR:
                    break
                size = length + _LENGTH_AND_OPCODE
                if not FRAME_SIZE <= size <= size_max:
                    raise self._impossible_length(start + position, opcode, length)
                crc_at = position + size - _CRC.size
                if position + size > end:
                    self._needed = size
                    break
                stored = unpack_crc(buffer, crc_at)[0]
                computed = crc32(view[position:crc_at])
                if stored != computed:
                    raise self._wrong_checksum(start + position, opcode, txid, computed, stored)
                if expected is not None and txid != expected:
                    raise self._gap(start + position, expected, txid)
                append(_new_record((txid, opcode, buffer[position + _HEAD.size : crc_at], start + position, size)))
                position += size
                expected = txid + 1 if consecutive else None
        finally:
            self.offset, self.expected_txid = start + position, expected
        if position < end and buffer[position] == TERMINATOR:
            self._padding = True
        elif end - position >= _LENGTH_AND_OPCODE and end - position < FRAME_SIZE:
            length = int.from_bytes(buffer[position + 1 : position + _LENGTH_AND_OPCODE], "big")
            if not FRAME_SIZE <= length + _LENGTH_AND_OPCODE <= size_max:
                raise self._impossible_length(start + position, buffer[position], length)

    def _take_measured(self, buffer: bytes, records: list[Record]) -> None:
        assert self._measure is not None
        position, end, start = 0, len(buffer), self.offset
        view = memoryview(buffer)
        try:
            while position < end and not self._padding:
                opcode = buffer[position]
                if opcode == TERMINATOR:
                    self._padding = True
                    break
                body_at = position + _HEAD_WITHOUT_LENGTH.size
                if body_at > end:
                    break
                txid = _HEAD_WITHOUT_LENGTH.unpack_from(buffer, position)[1]
                try:
                    crc_at = self._measure(opcode, buffer, body_at)
                except (IndexError, struct.error):
                    crc_at = end  # cut off in the middle
                except EditsError as error:
                    raise type(error)(error.why, source=self.source, offset=start + position, txid=txid) from error
                if crc_at + _CRC.size > end:
                    if end - position > self._op_size_max:
                        raise self._corrupt(f"a record of opcode {opcode} has more than {self._op_size_max} bytes")
                    break
                stored, computed = _CRC.unpack_from(buffer, crc_at)[0], crc32(view[position:crc_at])
                if stored != computed:
                    raise self._wrong_checksum(start + position, opcode, txid, computed, stored)
                if self.expected_txid is not None and txid != self.expected_txid:
                    raise self._gap(start + position, self.expected_txid, txid)
                size = crc_at + _CRC.size - position
                records.append(Record(txid, opcode, buffer[body_at:crc_at], start + position, size))
                position += size
                self.expected_txid = txid + 1 if self._consecutive else None
        finally:
            self.offset = start + position

    def _check_padding(self, buffer: bytes, begin: int) -> None:
        rest = buffer[begin:].lstrip(b"\xff\x00")
        if rest:
            raise EditsCorrupt(
                f"a byte {rest[0]:#04x} behind the terminator of the edits; only padding may follow it",
                source=self.source,
                offset=self.offset + len(buffer) - begin - len(rest),
            )

    def _corrupt(self, why: str) -> EditsCorrupt:
        return EditsCorrupt(why, source=self.source, offset=self.offset, txid=self.expected_txid)

    def _impossible_length(self, offset: int, opcode: int, length: int) -> EditsCorrupt:
        return EditsCorrupt(
            f"a record of opcode {opcode} says that it is {length} long; possible are {_BEFORE_LENGTH_ENDS} to "
            f"{self._op_size_max - _LENGTH_AND_OPCODE}",
            source=self.source,
            offset=offset,
            txid=self.expected_txid,
        )

    def _wrong_checksum(self, offset: int, opcode: int, txid: int, computed: int, stored: int) -> EditsCorrupt:
        return EditsCorrupt(
            f"transaction of opcode {opcode} is corrupt: calculated checksum {computed:#010x}, read {stored:#010x}",
            source=self.source,
            offset=offset,
            txid=txid,
        )

    def _gap(self, offset: int, expected: int, found: int) -> GapInTransactions:
        return GapInTransactions(
            f"{self.source} at offset {offset}: expected txid {expected}, but got txid {found}: there appears to be "
            + ("a gap in the edit log" if found > expected else "an overlap of transactions"),
            expected=expected,
            found=found,
        )


def next_record_offset(data: bytes, offset: int = 0, *, op_size_max: int = OP_SIZE_MAX) -> int | None:
    """Where the next whole record with a right checksum begins, at or after `offset`: how reading resumes after damage.

    For layouts with a length only. None where there is none in these bytes.
    """
    view = memoryview(data)
    for position in range(offset, len(data) - FRAME_SIZE + 1):
        opcode, length, _ = _HEAD.unpack_from(data, position)
        size = length + _LENGTH_AND_OPCODE
        if opcode == TERMINATOR or not FRAME_SIZE <= size <= op_size_max or position + size > len(data):
            continue
        crc_at = position + size - _CRC.size
        if crc32(view[position:crc_at]) == _CRC.unpack_from(data, crc_at)[0]:
            return position
    return None
