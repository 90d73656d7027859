"""Decoders of a bookie's files: journal, entry logs, indexes, checksums, marks, tombstones, status, history, names."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import cast

from crc32c import crc32c

from bookkeeper.auth.passwords import PasswordHash, parse_users
from bookkeeper.bookie.gc import tombstones
from bookkeeper.bookie.gc.history import format
from bookkeeper.bookie.gc.history.format import Finding, History
from bookkeeper.bookie.gc.tombstones import Tombstone, TombstoneKind
from bookkeeper.bookie.integrity.checksums import entry_log, index
from bookkeeper.bookie.integrity.checksums.index import Kind, Rows
from bookkeeper.bookie.journal import format as journal
from bookkeeper.bookie.journal.mark import decode_mark, encode_mark
from bookkeeper.bookie.journal.scan import scan_file
from bookkeeper.bookie.journal.torn_records import records_told, torn_records
from bookkeeper.bookie.offline.inspection import iter_index, iter_records, read_ledgers_map
from bookkeeper.bookie.process import status_format
from bookkeeper.bookie.storage.entry_log import format as entry_log_format
from bookkeeper.bookie.storage.index import format as index_format
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode
from bookkeeper.metadata.cluster.history_format import GeneratedIds
from bookkeeper.model import LogMark
from tests.fuzz.decoder import Decoder, text
from tests.fuzz.znodes import JSON_OPENERS, JSON_TOKENS

PATH = "/data/current/file"
JOURNAL_ID = 7
_LENGTH = struct.Struct(">i")


class OneFile:
    """A file system in which every path is one file, and that file."""

    path = PATH

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, _path: str, _mode: OpenMode) -> File:
        """Open it."""
        return cast("File", self)

    def pread(self, size: int, offset: int) -> bytes:
        """Return at most `size` bytes."""
        assert size >= 0, size
        assert offset >= 0, offset
        return self._data[offset : offset + size]

    def size(self) -> int:
        """Return its size."""
        return len(self._data)

    def close(self) -> None:
        """Do nothing."""


def files(data: bytes) -> FileSystem:
    """Return a file system with one file that contains these bytes."""
    return cast("FileSystem", OneFile(data))


class _Visitor:
    entry_id_max = 1 << 40

    def entries(self, _ledger_id: int, _entry_ids: list[int], _bodies: list[bytes]) -> None: ...
    def master_key(self, _ledger_id: int, _key: bytes) -> None: ...
    def fence(self, _ledger_id: int) -> None: ...
    def explicit_lac(self, _ledger_id: int, _packet: bytes) -> None: ...


# --- journal


def _body(ledger_id: int, entry_id: int) -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, 9) + b"payload"


def _records() -> list[bytes]:
    return [
        journal.master_key_record(5, bytes(20)),
        *(journal.entry_record(_body(5, number)) for number in range(3)),
        journal.fence_record(5),
        journal.explicit_lac_record(5, struct.pack(">qq", 5, 1) + b"crc."),
    ]


def _journal(records_of_groups: Sequence[list[bytes]]) -> bytes:
    data, synced = journal.encode_header(), (JOURNAL_ID - 1, 512)
    for records in records_of_groups:
        start = len(data)
        data += journal.encode_group(records, file_id=JOURNAL_ID, start=start, synced=synced)
        synced = (JOURNAL_ID, start)
    return data


def _journals() -> Sequence[bytes]:
    apaches = journal.encode_header(6) + b"".join(_records())
    return [
        _journal([_records(), _records()[:2]]),
        _journal([_records()]) + bytes(2048),
        apaches + journal.padding(len(apaches)),
        journal.encode_header(),
    ]


def _scan(data: bytes) -> object:
    return scan_file(files(data), "/j", JOURNAL_ID, 0, _Visitor())


def _torn(data: bytes) -> object:
    assert records_told(data, JOURNAL_ID)
    return list(torn_records(data, JOURNAL_ID))


def _sealed_journal(data: bytes) -> bytes:
    """Put right checksums into all groups."""
    found = bytearray(data)
    at = found.find(journal.ANY_GROUP_NEEDLE)
    while at >= 0:
        group = journal.decode_group(bytes(found), at, file_id=JOURNAL_ID, start=at)
        if group is not None:
            fields_end = at + journal.GROUP_RECORD_SIZE - 4
            checksum = crc32c(bytes(found[at + 4 : fields_end]))
            end = at + journal.GROUP_RECORD_SIZE
            checksum = crc32c(bytes(found[end : end + group.records_size]), checksum)
            found[fields_end:end] = checksum.to_bytes(4, "big")
        at = found.find(journal.ANY_GROUP_NEEDLE, at + 1)
    return bytes(found)


# --- entry logs and indexes


def _entry_logs() -> Sequence[bytes]:
    records = b"".join(journal.entry_record(_body(5 + number % 2, number)) for number in range(4))
    ledgers_map = entry_log_format.encode_ledgers_map({5: 60, 6: 60})
    at = entry_log_format.HEADER_SIZE + len(records)
    header = entry_log_format.LogHeader(1, at, 2, entry_log_format.Seal.of(ledgers_map))
    return [
        entry_log_format.encode_header(header) + records + ledgers_map,
        entry_log_format.encode_header(entry_log_format.LogHeader()) + records,
    ]


def _entry_log(data: bytes) -> object:
    return list(iter_records(files(data), PATH, log_id=3)), read_ledgers_map(files(data), PATH)


def _indexes() -> Sequence[bytes]:
    header = index_format.IndexHeader(bytes(20), True, struct.pack(">qq", 5, 1) + b"crc.", 3)
    slots = index_format.encode_slots(array("q", [1 << 32 | 1024, 0, 1 << 32 | 2048]))
    return [index_format.encode_header(header) + slots.ljust(256, b"\0")]


def _index(data: bytes) -> object:
    index_format.damaged_copy(data)
    whole = data[: len(data) - (len(data) - index_format.HEADER_SIZE) % 8]
    return (
        index_format.decode_header(data, PATH),
        list(index_format.decode_slots(whole[index_format.HEADER_SIZE :])),
        list(iter_index(files(data), PATH)),
    )


def _crc_in_copies(data: bytes) -> bytes:
    """Put right checksums into both copies of an index header."""
    if len(data) < index_format.HEADER_SIZE:
        return data
    size = index_format.COPY_SIZE
    copies = [data[:size], data[size : 2 * size]]
    return b"".join(copy[:-4] + crc32c(copy[:-4]).to_bytes(4, "big") for copy in copies) + data[2 * size :]


def _rows() -> Rows:
    rows = Rows()
    rows.add(5, 0, 7)
    rows.add(5, 1, 9)
    return rows


def crc_last(size: int = 4, behind: int = 0) -> Callable[[bytes], bytes]:
    """Return a function that appends the CRC32C of an input. behind: bytes after the checksum."""

    def sealed(data: bytes) -> bytes:
        end = len(data) - behind
        if end < size:
            return data
        return data[: end - size] + crc32c(data[: end - size]).to_bytes(4, "big") + data[end:]

    return sealed


def _tombstones_sealed(data: bytes) -> bytes:
    size = tombstones.RECORD_SIZE
    return b"".join(crc_last()(data[at : at + size]) for at in range(0, len(data), size))


# --- others


def _sealed_history(data: bytes) -> bytes:
    """Put right sizes and a right checksum into a history file. Its JSON ends before the compressed ids."""
    head = format._HEAD  # noqa: SLF001
    end = data.rfind(b"}", head.size) + 1
    if end <= 0:
        return crc_last()(data)
    magic = head.unpack_from(data)[0] if len(data) >= head.size else b""
    return crc_last()(head.pack(magic, end - head.size, max(0, len(data) - 4 - end)) + data[head.size :])


def _histories() -> Sequence[bytes]:
    finding = Finding(5, 6, GeneratedIds(7, 8), ((9, 10),), "reason")
    history = History(
        "cluster", ("a:1", "b:2"), 3, 4, 5, GeneratedIds(6, 7), 8, finding, array("q", [1, 2, 9]), ((3, 4),)
    )
    return [format.encode(history)]


def _statuses() -> Sequence[bytes]:
    status = status_format.BookieStatus(
        written_ms=10,
        bookie_id="b:1",
        process="7:99",
        started_ms=1,
        phase="serving",
        phase_since_ms=2,
        metadata_service_uri="zk://a/ledgers",
        instance_id="i",
        mode=status_format.ModeStatus(True, False, (status_format.Reason("DISK_FULL", "full", 4),)),
        registration=status_format.RegistrationStatus("registered", "read-only", 3, "é"),
        checkpoint=status_format.CheckpointStatus(8, 0.25, False),
        journals=(status_format.JournalStatus("/j", 0),),
    )
    return [status_format.format_status(status)]


def _names(data: bytes) -> object:
    name = text(data)
    return (
        journal.journal_id_of(name),
        entry_log_format.parse_log_name(name),
        entry_log_format.parse_compacted_name(name),
        index_format.parse_index_name(name),
        entry_log.parse_checksums_name(name),
    )


TABLE = (
    Decoder(
        name="bookie-journal",
        covers=(
            "bookkeeper.bookie.journal.scan:scan_file",
            "bookkeeper.bookie.journal.format:decode_header",
            "bookkeeper.bookie.journal.format:decode_group",
        ),
        decode=_scan,
        seeds=_journals,
        refusals=(StorageError,),
        sealed=_sealed_journal,
        suite_inputs=4_000,
    ),
    Decoder(
        name="bookie-journal-torn",
        covers=("bookkeeper.bookie.journal.torn_records:torn_records",),
        decode=_torn,
        seeds=lambda: [_journal([_records(), _records()[:2]])[512:]],
        refusals=(),
        sealed=_sealed_journal,
        suite_inputs=4_000,
    ),
    Decoder(
        name="bookie-mark",
        covers=("bookkeeper.bookie.journal.mark:decode_mark",),
        decode=lambda data: decode_mark(data, PATH),
        seeds=lambda: [encode_mark(LogMark(7, 512)), bytes(16)],
        refusals=(CorruptRecord,),
        sealed=crc_last(),
    ),
    Decoder(
        name="entry-log",
        covers=(
            "bookkeeper.bookie.storage.entry_log.format:decode_header",
            "bookkeeper.bookie.storage.entry_log.format:decode_ledgers_map",
            "bookkeeper.bookie.offline.inspection:iter_records",
        ),
        decode=_entry_log,
        seeds=_entry_logs,
        refusals=(StorageError,),
    ),
    Decoder(
        name="index",
        covers=(
            "bookkeeper.bookie.storage.index.format:decode_header",
            "bookkeeper.bookie.storage.index.format:decode_slots",
            "bookkeeper.bookie.storage.index.format:damaged_copy",
            "bookkeeper.bookie.offline.inspection:iter_index",
        ),
        decode=_index,
        seeds=_indexes,
        refusals=(StorageError,),
        sealed=_crc_in_copies,
    ),
    Decoder(
        name="index-checksums",
        covers=("bookkeeper.bookie.integrity.checksums.index:decode_record",),
        decode=lambda data: index.decode_record(data, 4096),
        seeds=lambda: [index.encode_record(kind, _rows(), 4096, 17) for kind in Kind],
        refusals=(),
        sealed=crc_last(),
    ),
    Decoder(
        name="entry-log-checksums",
        covers=("bookkeeper.bookie.integrity.checksums.entry_log:decode_block",),
        decode=lambda data: entry_log.decode_block(data, log_id=3, number=0),
        seeds=lambda: [entry_log.encode_block(3, 0, array("I", range(20)), end=70000, log_ends=True)],
        refusals=(),
        sealed=crc_last(),
    ),
    Decoder(
        name="tombstones",
        covers=("bookkeeper.bookie.gc.tombstones:decode_all",),
        decode=tombstones.decode_all,
        seeds=lambda: [
            b"".join(tombstones.encode(Tombstone(number, TombstoneKind.DELETED, 17)) for number in range(3)),
            tombstones.encode(Tombstone(9, TombstoneKind.MOVED, 17)),
        ],
        refusals=(),
        sealed=_tombstones_sealed,
    ),
    Decoder(
        name="bookie-status",
        covers=("bookkeeper.bookie.process.status_format:parse_status",),
        decode=lambda data: status_format.parse_status(data, PATH),
        seeds=_statuses,
        refusals=(StorageError,),
        tokens=JSON_TOKENS,
        openers=JSON_OPENERS,
    ),
    Decoder(
        name="bookie-history",
        covers=("bookkeeper.bookie.gc.history.format:decode",),
        decode=lambda data: format.decode(data, PATH),
        seeds=_histories,
        refusals=(StorageError,),
        tokens=JSON_TOKENS,
        sealed=_sealed_history,
    ),
    Decoder(
        name="bookie-file-names",
        covers=(
            "bookkeeper.bookie.journal.format:journal_id_of",
            "bookkeeper.bookie.storage.entry_log.format:parse_log_name",
            "bookkeeper.bookie.storage.entry_log.format:parse_compacted_name",
            "bookkeeper.bookie.storage.index.format:parse_index_name",
            "bookkeeper.bookie.integrity.checksums.entry_log:parse_checksums_name",
        ),
        decode=_names,
        seeds=lambda: [
            b"7f.txn",
            b"a.log",
            b"a.log.b.switching",
            b"a.idx",
            b"a.crc",
            b"ff.log.compacting",
            "\u0661.txn".encode(),
        ],
        refusals=(),
    ),
    Decoder(
        name="password-file",
        covers=("bookkeeper.auth.passwords:parse_users",),
        decode=lambda data: parse_users(text(data)),
        seeds=lambda: [f"# users\nann:{PasswordHash(1024, 8, 1, bytes(16), bytes(32))}\n".encode()],
        refusals=(ValueError,),
        result=dict[str, PasswordHash],
    ),
)
