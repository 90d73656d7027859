"""Copies read in place: by the tasks that find a bookie's directory on their machine. Thread: a task's.

    each task, each directory:  there?  --no-->  nothing
                                 |  whose is it: its cookie, of this cluster
                                runs?   --yes->  a row `unread`: its copies are read through it
                                 |  plan, once on a machine; then units, one by one (`unit_queue`)
                                each unit -> rows of its copies, a row `unit`

Of which bookies nothing was found is for whoever planned it to see; a task cannot know what the others find.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.parallel import in_parallel
from bookkeeper.config import ClientSettings
from bookkeeper.errors import ConfigurationError, DirectoryInUse, NoSuchLedger
from bookkeeper.filesystem import FileSystem, RealFileSystem
from bookkeeper.model import BookieId, LedgerId
from bookkeeper.spark.arrow_map import ArrowMap
from bookkeeper.spark.audit.stored_evidence import (
    HELD,
    OTHER,
    PLAN,
    UNIT,
    UNREAD,
    Row,
    UnitDone,
    copies_rows,
    said_rows,
)
from bookkeeper.spark.audit.unit_queue import UnitQueue
from bookkeeper.spark.ledgers.options import LedgerChoice
from bookkeeper.spark.process_client import client_of, instance_of
from bookkeeper.spark.stored_copies import (
    BookieDirectories,
    LedgerToVerify,
    StoredBookie,
    UnitResult,
    named_directories,
    open_bookie,
)

BATCH_BYTES = 4 << 20
"""Of rows that are handed over at once, about."""

ASKED_AT_ONCE = 64
LEDGERS_MAX = 100_000
"""Ledgers whose digest a task remembers."""

SYNTAX = "a ledger directory, or LEDGER_DIRS|JOURNAL_DIRS[|INDEX_DIRS], each with commas between"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bookie's directories are. journal_dirs: none where the cookie says where the others are."""

    ledger_dirs: tuple[str, ...]
    journal_dirs: tuple[str, ...] = ()
    index_dirs: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Place:
        """Of what a user wrote. Raises ConfigurationError."""
        parts = [tuple(each for word in part.split(",") if (each := word.strip())) for part in text.split("|")]
        if len(parts) > 3 or not all(parts) or (len(parts) == 1 and len(parts[0]) > 1):
            raise ConfigurationError(f"bookie directory {text!r}: expected {SYNTAX}")
        if relative := [path for part in parts for path in part if not os.path.isabs(path)]:
            raise ConfigurationError(
                f"bookie directory {relative[0]!r} is not absolute: tasks run in other directories than this program"
            )
        return cls(*parts)

    def __str__(self) -> str:
        return "|".join(",".join(part) for part in (self.ledger_dirs, self.journal_dirs, self.index_dirs) if part)

    def directories(self, fs: FileSystem) -> BookieDirectories:
        """All of them. Raises what `named_directories` does."""
        if not self.journal_dirs:
            return named_directories(fs, self.ledger_dirs[0])
        return BookieDirectories(self.journal_dirs, self.ledger_dirs, self.index_dirs)


@dataclass(frozen=True, slots=True)
class InPlaceWork:
    """What every task of a pass is told.

    token: of the pass. done: units of a bookie and plan that earlier passes have. bytes_per_s: of a bookie, by a task.
    """

    token: str
    places: tuple[Place, ...]
    client: ClientSettings
    ledgers: LedgerChoice
    bytes_per_s: float
    done: Mapping[tuple[str, int], frozenset[int]]


def reading_in_place(work: InPlaceWork) -> ArrowMap:
    """For `map_in_arrow` on any rows, of which only the tasks count: rows of `stored_evidence`.

    Raises what opening and reading a bookie's directories does, but for one that runs.
    """

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        return _batches(row for place in work.places for row in _Task(work, place).rows())

    return read


def _batches(rows: Iterable[Row]) -> Iterator[Any]:
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += 200 + sum(len(row.get(name) or b"") for name in ("positions", "crcs", "sizes", "said"))
        if size >= BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


_COLUMNS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("kind", pa.string),
    ("bookie", pa.string),
    ("ledger_id", pa.int64),
    ("chunk", pa.int64),
    ("first", pa.int64),
    ("step", pa.int32),
    ("count", pa.int32),
    ("positions", pa.binary),
    ("crcs", pa.binary),
    ("sizes", pa.binary),
    ("said", pa.string),
    ("entries", pa.int64),
    ("bytes", pa.int64),
)


def _batch(rows: list[Row]) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, make()) for name, make in _COLUMNS]))


class _Task:
    """One task at one place."""

    def __init__(self, work: InPlaceWork, place: Place) -> None:
        self._work, self._place = work, place
        self._fs = RealFileSystem()
        self._ledgers: dict[int, LedgerToVerify] = {}

    def rows(self) -> Iterator[Row]:
        """All of them; none where the place is not on this machine."""
        if not self._fs.is_dir(self._place.ledger_dirs[0]):
            return
        directories = self._place.directories(self._fs)
        client = client_of(self._work.client)
        instance = instance_of(client)
        try:
            bookie = open_bookie(self._fs, directories, instance_id=instance, bytes_per_s=self._work.bytes_per_s)
        except DirectoryInUse as error:
            yield {"kind": UNREAD, "bookie": str(self._place), "said": str(error)}
            return
        with bookie:
            available = client.run(lambda ledgers: ledgers.store.bookies.current())
            if BookieId(bookie.bookie_id) in {*available.writable, *available.read_only}:
                why = (
                    f"bookie {bookie.bookie_id} is registered: it runs (its copies are read through it), or was killed "
                    "and its session has not ended yet (then audit again in a minute)"
                )
                yield {"kind": UNREAD, "bookie": str(self._place), "said": why}
                return
            yield from self._read(client, bookie)

    def _read(self, client: BlockingBookKeeper, bookie: StoredBookie) -> Iterator[Row]:
        name = bookie.bookie_id
        queue = UnitQueue(self._work.token, name, bookie.plan)
        plan = queue.plan
        number = zlib.crc32(f"{[unit.state for unit in plan.units[:1]]} {len(plan.units)}".encode())
        done = self._work.done.get((name, number), frozenset())
        if queue.first and PLAN not in done:
            bad, unknown = said_rows(name, plan.bad, plan.unknown)
            yield from bad
            for ledger_id in plan.ledger_ids:
                if ledger_id in self._work.ledgers:
                    yield {"kind": HELD, "bookie": name, "ledger_id": ledger_id}
            yield _done(name, UnitDone(str(self._place), number, PLAN, len(plan.units), unknown))
        for at in queue.units():
            if at in done:
                continue
            unit = plan.units[at]
            result = bookie.verify(unit, self._to_verify(client, unit.ledger_ids))
            rows, unknown = _rows_of(name, result)
            yield from rows
            yield _done(name, UnitDone(str(self._place), number, at, len(plan.units), unknown))

    def _to_verify(self, client: BlockingBookKeeper, ledger_ids: Collection[int]) -> Mapping[int, LedgerToVerify]:
        """Those that are to be audited and are there."""
        if len(self._ledgers) > LEDGERS_MAX:
            self._ledgers.clear()
        chosen = [each for each in ledger_ids if each in self._work.ledgers]
        lacking = [each for each in chosen if each not in self._ledgers]
        if lacking:
            self._ledgers |= client.run(lambda ledgers: Deferred.fromCoroutine(_digests(ledgers, lacking)))
        return {each: self._ledgers[each] for each in chosen if each in self._ledgers}


def _done(bookie: str, unit: UnitDone) -> Row:
    return {"kind": UNIT, "bookie": bookie, "said": unit.format()}


def _rows_of(bookie: str, result: UnitResult) -> tuple[Iterator[Row], Any]:
    said, unknown = said_rows(bookie, result.bad, result.unknown)

    def rows() -> Iterator[Row]:
        for copies in result.good.values():
            yield from copies_rows(bookie, copies)
        yield from said
        for ledger_id, other in result.others.items():
            yield {
                "kind": OTHER,
                "bookie": bookie,
                "ledger_id": ledger_id,
                "entries": other.entry_count,
                "bytes": other.byte_count,
            }

    return rows(), unknown


async def _digests(client: LedgerClient, ledger_ids: Iterable[int]) -> dict[int, LedgerToVerify]:
    """Of those that are there, seen after a sync."""
    found: dict[int, LedgerToVerify] = {}
    await client.store.sync()

    async def look(ledger_id: int) -> None:
        try:
            metadata = await client.metadata(LedgerId(ledger_id))
        except NoSuchLedger:
            return
        if metadata.digest_type is None or metadata.password is None:  # older than 4.2
            settings = client.settings
            found[ledger_id] = LedgerToVerify(ledger_id, settings.digest_type, settings.password)
        else:
            found[ledger_id] = LedgerToVerify(ledger_id, metadata.digest_type, metadata.password)

    await in_parallel((look(each) for each in ledger_ids), ASKED_AT_ONCE)
    return found
