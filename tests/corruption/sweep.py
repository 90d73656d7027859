"""What becomes of a bookie when one byte, one sector or the end of one of its files is damaged.

Method: a bookie's files are copied, one of them is damaged, another process starts on them, is asked for everything
that was promised, and reads through everything it stores. Then

    detected    the start was refused with a message that names the file, or an answer said "unknown" and somebody was
                told, or the scrub or the start told of it while nothing was lost
    harmless    everything is as promised, and nobody noticed: padding, what is superseded, what is there twice
    silent      wrong bytes, "no such entry" of one that is there, a writer let in who must not be, or an answer of
                "unknown" that nobody was told of. There must be none.
"""

from __future__ import annotations

import enum
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bookkeeper.bookie.gc import tombstones
from bookkeeper.bookie.identity.identity import DirectoryKind, inspect_directory
from bookkeeper.bookie.identity.sessions import SessionFile
from bookkeeper.bookie.journal.mark import decode_mark
from bookkeeper.errors import BookKeeperError
from bookkeeper.filesystem import OpenMode
from tests.corruption.stored_bookie import COOKIE, MARK, Findings, Life, Promises, Reports, probe
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.manual_worker import ManualWorker

SECTOR_SIZE = 512
SMALL_FILE_SIZE = 64
"""Up to this size every bit of a file is flipped."""


class Outcome(enum.Enum):
    """See the module."""

    DETECTED = "detected"
    HARMLESS = "harmless"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Damage:
    """One change of one file: bytes written over, or cut off from `offset` on (data None)."""

    path: str
    offset: int
    data: bytes | None

    def apply(self, fs: FaultyFileSystem) -> None:
        """Change the file, also on the disk."""
        if self.data is not None:
            fs.poke(self.path, self.offset, self.data)
            return
        file = fs.open(self.path, OpenMode.UPDATE)
        file.truncate(self.offset)
        file.sync()
        file.close()

    def __str__(self) -> str:
        what = "cut" if self.data is None else f"{len(self.data)} bytes" if len(self.data) > 1 else self.data.hex()
        return f"{self.path} at {self.offset}: {what}"


@dataclass(slots=True)
class Tally:
    """Outcomes by kind of file; examples of the silent ones."""

    counts: dict[str, Counter[Outcome]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    def add(self, damage: Damage, outcome: Outcome, why: str) -> None:
        """One more."""
        self.counts.setdefault(kind_of(damage.path), Counter())[outcome] += 1
        if outcome is Outcome.SILENT:
            self.silent.append(f"{damage}: {why}")

    def total(self, outcome: Outcome) -> int:
        """Over all kinds of files."""
        return sum(count[outcome] for count in self.counts.values())


_KINDS = {
    ".log": "entry log",
    ".crc": "its checksums",
    ".idx": "index file",
    ".txn": "journal",
    "indexChecksums": "index checksums",
    "VERSION": "cookie",
    "metadata.sessions": "session file",
}


def kind_of(path: str) -> str:
    """What the table calls such a file."""
    name = os.path.basename(path)
    return _KINDS.get(name) or _KINDS.get(os.path.splitext(name)[1]) or name


def files_of(fs: FaultyFileSystem, directory: str = "/") -> Iterator[str]:
    """All files."""
    for name in fs.listdir(directory):
        path = os.path.join(directory, name)
        if fs.is_dir(path):
            yield from files_of(fs, path)
        else:
            yield path


def damages_of(fs: FaultyFileSystem, path: str) -> Iterator[Damage]:
    """Each byte with a bit flipped and with all of them, zeroed sectors, and cuts."""
    data = fs.contents(path)
    for offset, byte in enumerate(data):
        for bit in range(8) if len(data) <= SMALL_FILE_SIZE else (offset % 8,):
            yield Damage(path, offset, bytes([byte ^ (1 << bit)]))
        if offset % 16 == 0:
            yield Damage(path, offset, bytes([byte ^ 0xFF]))
    for offset in range(0, len(data), SECTOR_SIZE):
        sector = data[offset : offset + SECTOR_SIZE]
        if sector.strip(b"\0"):
            yield Damage(path, offset, bytes(len(sector)))
    for offset in sorted({0, 1, 15, *range(0, len(data), 509), max(0, len(data) - 1)}):
        if offset < len(data) and not _looks_like_a_crash(fs, path, offset):
            yield Damage(path, offset, None)


def _looks_like_a_crash(fs: FaultyFileSystem, path: str, offset: int) -> bool:
    """Cuts that nothing on the disk can tell from what is normal.

    A file of tombstones without any looks like one that never had some; a journal that ends behind its mark like one
    whose last groups a power cut tore before they were synced (I-51).
    """
    if path.endswith(".txn"):
        return offset >= decode_mark(fs.contents(MARK), MARK).offset
    return os.path.basename(path) == tombstones.FILE_NAME and offset == 0


def judge(intact: FaultyFileSystem, promises: Promises, damage: Damage) -> tuple[Outcome, str]:
    """Damage a copy of the files and see."""
    fs = intact.clone()
    damage.apply(fs)
    with Reports() as reports:
        try:
            return _live(fs, promises, damage, reports)
        except (BookKeeperError, OSError) as error:
            if damage.path in str(error):
                return Outcome.DETECTED, str(error)
            return Outcome.SILENT, f"the refusal does not name the file: {error}"
        except Exception as error:  # noqa: BLE001 - a traceback explains nothing to an operator
            return Outcome.SILENT, f"{type(error).__name__}: {error}"


def _live(fs: FaultyFileSystem, promises: Promises, damage: Damage, reports: Reports) -> tuple[Outcome, str]:
    for directory in ("/journal", "/ledgers"):
        found_cookie = inspect_directory(fs, directory, DirectoryKind.LEDGER).cookie
        if found_cookie != COOKIE:
            return Outcome.DETECTED, f"{damage.path}: another bookie's cookie: {found_cookie}"
    SessionFile(fs, "/journal/current", ManualWorker())
    life = Life(fs)
    found = probe(life, promises)
    for _ in life.storage.scrub().steps(everything=True):
        pass
    later = probe(life, promises)
    told = [line for line in reports.lines if damage.path in line] or [str(one) for one in life.storage.damage.all()]
    return _verdict(found, later, told, life)


def _verdict(found: Findings, later: Findings, told: list[str], life: Life) -> tuple[Outcome, str]:
    silent = found.silent + later.silent
    if silent:
        return Outcome.SILENT, "; ".join(silent[:3])
    if life.failures:
        return Outcome.SILENT, f"the bookie failed: {life.failures[0]}"
    if found.lost_with_report and told:
        return Outcome.DETECTED, told[0]
    if found.lost_with_report:
        return Outcome.SILENT, "; ".join(found.lost_with_report)
    if told:
        return Outcome.DETECTED, told[0]
    if found.unknown or later.unknown:
        return Outcome.SILENT, "answers are unknown, but nobody was told"
    return Outcome.HARMLESS, ""


def sweep(
    intact: FaultyFileSystem,
    promises: Promises,
    chosen: Callable[[int, Damage], bool] = lambda _, __: True,
    on_progress: Callable[[Damage], None] = lambda _: None,
) -> Tally:
    """Judge every damage of every file, or the chosen ones (asked with a running number)."""
    tally = Tally()
    number = 0
    for path in files_of(intact):
        for damage in damages_of(intact, path):
            number += 1
            if chosen(number, damage):
                on_progress(damage)
                tally.add(damage, *judge(intact, promises, damage))
    return tally
