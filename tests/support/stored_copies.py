"""A bookie's directories on a faulty disk for what reads copies in place, and its slow twin.

disk = StoredCopies()
disk.create(7); disk.add(7, 0, 100); disk.checkpoint(); disk.journal(7, [100, 101])
verdicts(disk)            what the fast way says of each entry
slow_verdicts(disk)       the same from the readers that take one entry at a time
"""

from __future__ import annotations

import os
import pickle
import random
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import crc32c

from bookkeeper.bookie.journal.format import encode_group, encode_header, entry_record, file_name
from bookkeeper.bookie.journal.mark import mark_name, read_marks
from bookkeeper.bookie.journal.replay import examine
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.entry_log.format import location, log_name, split_location
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.bookie.storage.index.format import HEADER_SIZE, decode_slots, encode_slots
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import FileSystem, OpenMode, RealFileSystem, create_durable, replace_durable
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.model import BookieId, DigestType
from bookkeeper.spark.stored_copies import (
    BookieDirectories,
    LedgerToVerify,
    Plan,
    StoredBookie,
    UnitResult,
    UnknownCopies,
    open_bookie,
)
from bookkeeper.wire.digest import digest_of, ids_of, length_of, master_key
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.stored_ledgers import SMALL

BOOKIE_ID = "127.0.0.1:3181"
INSTANCE_ID = "d6a1f2c4-0000-4000-8000-000000000001"
PASSWORD = b"secret"

Verdict = tuple[str, int, int, int] | str
"""("good", CRC32C of the payload, its size, the length field); the name of a CopyFault; or "unknown"."""


@dataclass
class StoredCopies:
    """One bookie. bodies: what a client was acknowledged, by ledger and entry. group_end: of the journal file."""

    directories: BookieDirectories = field(
        default_factory=lambda: BookieDirectories(("/j0", "/j1"), ("/l0", "/l1"), ("/i0", "/i1"))
    )
    fs: FaultyFileSystem = field(default_factory=FaultyFileSystem)
    asked: dict[int, LedgerToVerify] = field(default_factory=dict)
    bodies: dict[tuple[int, int], bytes] = field(default_factory=dict)
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    def __post_init__(self) -> None:
        there = self.directories
        self.cookie = Cookie(BookieId(BOOKIE_ID), there.journal_dirs, there.ledger_dirs, INSTANCE_ID, there.indexes)
        for path in there.kinds:
            self.fs.make_dirs(current(path))
            create_durable(self.fs, f"{current(path)}/VERSION", self.cookie.format())
        self._journal_ends: dict[str, int] = {}
        self.storage = LedgerStorage(self.fs, LedgerDirectories(there.ledger_dirs, there.indexes), SMALL)
        self.storage.open()

    def create(self, ledger_id: int, digest_type: DigestType = DigestType.CRC32C) -> None:
        """A ledger of this bookie."""
        self.asked[ledger_id] = LedgerToVerify(ledger_id, digest_type, PASSWORD)
        self.storage.set_master_key(ledger_id, master_key(PASSWORD))

    def package(self, ledger_id: int, entry_ids: Sequence[int], *, size_max: int = 200, lac: int = -1) -> list[bytes]:
        """Bodies as a client sends them."""
        asked = self.asked[ledger_id]
        payloads = [self.rng.randbytes(self.rng.randint(0, size_max)) for _ in entry_ids]
        lengths = [self.rng.randrange(1 << 40) for _ in entry_ids]
        return digest_of(asked.digest_type, asked.password).package_entries(
            ledger_id, entry_ids, lac, lengths, payloads
        )

    def add(self, ledger_id: int, entry_ids: Sequence[int], *, size_max: int = 200) -> None:
        """Entries that end in an entry log."""
        bodies = self.package(ledger_id, entry_ids, size_max=size_max)
        self.storage.add(ledger_id, entry_ids, bodies)
        self._expect(ledger_id, entry_ids, bodies)

    def checkpoint(self) -> None:
        """Bring what was added to entry logs and index files."""
        self.storage.rotate()
        self.storage.checkpoint()

    def journal(self, ledger_id: int, entry_ids: Sequence[int], *, size_max: int = 200, index: int = 0) -> list[bytes]:
        """Entries that are in a journal behind its mark."""
        bodies = self.package(ledger_id, entry_ids, size_max=size_max)
        self.write_journal(list(map(entry_record, bodies)), index=index)
        self._expect(ledger_id, entry_ids, bodies)
        return bodies

    def write_journal(self, records: list[bytes], *, index: int = 0) -> None:
        """A group of records."""
        path = f"{current(self.directories.journal_dirs[index])}/{file_name(1)}"
        if path not in self._journal_ends:
            first = encode_group([], file_id=1, start=512, synced=(0, 0))
            create_durable(self.fs, path, encode_header() + first)
            self._journal_ends[path] = 512 + len(first)
        start = self._journal_ends[path]
        group = encode_group(records, file_id=1, start=start, synced=(1, start))
        self.write(path, start, group)
        self._journal_ends[path] = start + len(group)

    def _expect(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> None:
        self.bodies.update(((ledger_id, entry_id), body) for entry_id, body in zip(entry_ids, bodies, strict=True))

    # --- damage -------------------------------------------------------------------------------------------------------

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Change bytes of a file."""
        file = self.fs.open(path, OpenMode.UPDATE)
        file.pwrite(data, offset)
        file.sync()
        file.close()

    def flip(self, path: str, offset: int) -> None:
        """Change one byte."""
        self.write(path, offset, bytes([self.fs.contents(path)[offset] ^ 0x55]))

    def index_of(self, ledger_id: int) -> str:
        """The path of a ledger's index file."""
        paths = [index_path(directory, ledger_id) for directory in self.directories.indexes]
        return next(filter(self.fs.exists, paths))

    def place_of(self, ledger_id: int, entry_id: int) -> tuple[str, int]:
        """Entry log and offset of a body, as the index has it."""
        location = dict(inspection.iter_index(self.fs, self.index_of(ledger_id)))[entry_id]
        log_id, offset = split_location(location)
        return dict(inspection.list_entry_logs(self.fs, self.directories.ledger_dirs))[log_id], offset

    def without_side_files(self) -> None:
        """As Apache's bookie leaves its directories: no checksums."""
        for path in self.directories.kinds:
            for name in self.fs.listdir(current(path)):
                if name.endswith(".crc") or name == "indexChecksums":
                    self.fs.unlink(f"{current(path)}/{name}")

    def number_logs_from_zero(self) -> None:
        """As Apache's bookie numbers them: the first entry log is 0. Of the side files none is left."""
        self.without_side_files()
        for log_id, path in inspection.list_entry_logs(self.fs, self.directories.ledger_dirs):
            self.fs.rename(path, f"{os.path.dirname(path)}/{log_name(log_id - 1)}")
        for _, path in inspection.list_index_files(self.fs, self.directories.indexes):
            data = self.fs.contents(path)
            slots = decode_slots(data[HEADER_SIZE:])
            moved = array("q", [slot - location(1, 0) if slot else 0 for slot in slots])
            self.write(path, HEADER_SIZE, encode_slots(moved))

    def replace_file(self, path: str, data: bytes) -> None:
        """Give a file this content."""
        replace_durable(self.fs, path, data)

    def open(self) -> StoredBookie:
        """For reading in place."""
        return open_bookie(self.fs, self.directories)

    @property
    def expected(self) -> dict[tuple[int, int], Verdict]:
        """Every copy that was acknowledged, good."""
        return {
            (ledger_id, entry_id): good_verdict(self.asked[ledger_id], body)
            for (ledger_id, entry_id), body in self.bodies.items()
        }


def good_verdict(asked: LedgerToVerify, body: bytes) -> Verdict:
    """Of a body that is as it was written."""
    payload = body[digest_of(asked.digest_type, asked.password).overhead :]
    return "good", crc32c.crc32c(payload), len(payload), length_of(body)


def run_all(bookie: StoredBookie, asked: Mapping[int, LedgerToVerify]) -> tuple[Plan, list[UnitResult]]:
    """Plan and verify; plan, units and results pass through pickles, as between processes."""
    plan: Plan = pickle.loads(pickle.dumps(bookie.plan()))
    return plan, [pickle.loads(pickle.dumps(bookie.verify(unit, asked))) for unit in plan.units]


def flattened(
    plan: Plan, results: Iterable[UnitResult], entries: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], Verdict]:
    """By ledger and entry. entries: those that unknown ranges are looked up for."""
    found: dict[tuple[int, int], Verdict] = {}
    results = list(results)
    unknown: list[UnknownCopies] = [*plan.unknown, *(one for result in results for one in result.unknown)]
    for ledger_id, entry_id in entries:
        for one in unknown:
            last = entry_id if one.last_entry_id is None else one.last_entry_id
            if one.ledger_id in (None, ledger_id) and one.first_entry_id <= entry_id <= last:
                found[ledger_id, entry_id] = "unknown"
    for one in [*plan.bad, *(one for result in results for one in result.bad)]:
        for entry_id in range(one.first_entry_id, one.last_entry_id + 1):
            assert (one.ledger_id, entry_id) not in found or found[one.ledger_id, entry_id] == "unknown"
            found[one.ledger_id, entry_id] = one.fault.name
    for result in results:
        for ledger_id, good in result.good.items():
            columns = zip(good.entry_ids, good.payload_crcs, good.payload_sizes, good.lengths, strict=True)
            for entry_id, crc, size, length in columns:
                before = found.get((ledger_id, entry_id))
                assert before in (None, "unknown"), f"{ledger_id} {entry_id} is good and {before}"
                found[ledger_id, entry_id] = ("good", crc, size, length)
    return found


def verdicts(disk: StoredCopies) -> dict[tuple[int, int], Verdict]:
    """What the fast way says."""
    with disk.open() as bookie:
        return flattened(*run_all(bookie, disk.asked), disk.bodies)


# --- the slow twin --------------------------------------------------------------------------------------------------


@dataclass
class _Bodies:
    """A visitor that keeps the last body of each entry."""

    entry_id_max: int = (1 << 63) - 1
    bodies: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        self.bodies.update(((ledger_id, entry_id), body) for entry_id, body in zip(entry_ids, bodies, strict=True))

    def master_key(self, ledger_id: int, key: bytes) -> None:
        pass

    def fence(self, ledger_id: int) -> None:
        pass

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        pass


def slow_verdicts(
    fs: FileSystem, directories: BookieDirectories, asked: Mapping[int, LedgerToVerify]
) -> dict[tuple[int, int], Verdict]:
    """One entry at a time, with the readers of the command line. Pages are believed; nothing is unknown."""
    found: dict[tuple[int, int], Verdict] = {}
    logs = dict(inspection.list_entry_logs(fs, directories.ledger_dirs))
    for ledger_id, path in inspection.list_index_files(fs, directories.indexes):
        if ledger_id in asked:
            for entry_id, location in inspection.iter_index(fs, path):
                found[ledger_id, entry_id] = _slow_verdict(fs, logs, asked[ledger_id], entry_id, location)
    marks = list(map(current, directories.ledger_dirs))
    journal_dirs = directories.journal_dirs
    for index, directory in enumerate(journal_dirs):
        visitor = _Bodies()
        mark = read_marks(fs, marks, mark_name(index, len(journal_dirs)))
        examine(fs, current(directory), mark, visitor)
        for (ledger_id, entry_id), body in visitor.bodies.items():
            if ledger_id in asked:
                found[ledger_id, entry_id] = _verdict_of(asked[ledger_id], entry_id, body)
    return found


def _slow_verdict(
    fs: FileSystem, logs: Mapping[int, str], asked: LedgerToVerify, entry_id: int, location: int
) -> Verdict:
    path = logs.get(split_location(location)[0])
    if path is None:
        return "NO_PLACE"
    try:
        record = inspection.read_entry(fs, path, location)
    except CorruptRecord as error:
        if "ends before" in error.why:
            return "NO_PLACE"
        file = fs.open(path, OpenMode.READ)
        ids = file.pread(16, split_location(location)[1])
        file.close()
        return "LENGTH" if ids_of(ids) == (asked.ledger_id, entry_id) else "OTHER_ENTRY"
    if (record.ledger_id, record.entry_id) != (asked.ledger_id, entry_id):
        return "OTHER_ENTRY"
    assert record.body is not None
    return _verdict_of(asked, entry_id, record.body)


def _verdict_of(asked: LedgerToVerify, entry_id: int, body: bytes) -> Verdict:
    digest = digest_of(asked.digest_type, asked.password)
    if digest.verify(asked.ledger_id, [entry_id], [body])[0] is not None:
        return good_verdict(asked, body)
    return "LENGTH" if len(body) < digest.overhead else "DIGEST"


def directories_below(top: str | os.PathLike[str]) -> BookieDirectories:
    """Of a bookie on the real disk, by the first cookie found below a directory."""
    from bookkeeper.spark.stored_copies import named_directories

    for path, _, names in os.walk(top):
        if "VERSION" in names and os.path.basename(path) == "current":
            return named_directories(RealFileSystem(), os.path.dirname(path))
    raise AssertionError(f"no cookie below {top}")
