"""What the cells work on: a session, a cluster, and the same rows as ledgers, as Parquet and in memory."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

import bookkeeper.blocking
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.model import EntryId, Fragment, LedgerId, LedgerMetadata
from tests.benchmarks.spark.memory_source import MemorySource

BATCH_ROWS = 10_000
TASKS = 2
LEDGERS = 2
"""The rows of a size lie in so many ledgers; every entry on all three bookies, so that they are read in batches."""

FRAGMENTS = 8
"""Of the ledger that is read with more and more partitions."""

FRAGMENTED_SHARE = 4
"""It has one of so many rows."""

WRITTEN_SHARE = 10
"""Of what is written each time: one of so many rows, or the disk would fill."""


@dataclass(frozen=True)
class Ground:
    """rows: how many, by size of a value in bytes. ledgers: with these rows. fragmented: with fewer, in many parts."""

    spark: Any
    uri: str
    directory: Path
    rows: Mapping[int, int]
    ledgers: Mapping[int, Sequence[int]] = field(default_factory=dict)
    fragmented: Mapping[int, int] = field(default_factory=dict)
    bookie: Path | None = None
    """A ledger directory of a bookie that can be stopped."""

    def in_memory(self, reader: Any, size: int, rows: int | None = None) -> Any:
        """Rows out of memory, of as many partitions as there are tasks."""
        options = {"rows": rows or self.rows[size], "size": size, "partitions": TASKS}
        return reader.format(MemorySource.name()).options(**options).load()

    def in_ledgers(self, reader: Any, ledger_ids: Sequence[int], **options: object) -> Any:
        """Rows of ledgers."""
        named = ",".join(map(str, ledger_ids))
        return reader.format("bookkeeper").options(uri=self.uri, ledgers=named, **options).load()

    def parquet_path(self, size: int) -> str:
        """Where the rows of a size lie as Parquet."""
        return str(self.directory / f"rows-{size}.parquet")

    def write_parquet(self) -> None:
        """The same rows as Parquet, uncompressed, in as many files as there are tasks."""
        for size in self.rows:
            frame = self.in_memory(self.spark.read, size)
            frame.write.mode("overwrite").option("compression", "none").parquet(self.parquet_path(size))


@dataclass(frozen=True, slots=True)
class Load:
    """What was done: so many rows, or copies, in so many seconds. parts: the seconds of parts of it, by their names."""

    count: float
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load. run: do it with rows of a size. parts: the names of parts that are timed besides.

    timed_whole: nothing but the load happens while it runs, so that its CPU time can be told. in_place: the bookie
    whose directories are read must not run.
    """

    name: str
    run: Callable[[Ground, int], Load]
    timed_whole: bool = True
    in_place: bool = False
    parts: Sequence[str] = ()


def fill(uri: str, rows: Mapping[int, int]) -> dict[int, list[int]]:
    """Write the ledgers that are read."""
    found: dict[int, list[int]] = {}
    with bookkeeper.blocking.connect(uri) as client:
        for size, count in rows.items():
            borders = [count * part // LEDGERS for part in range(LEDGERS + 1)]
            found[size] = [_write(client, size, high - low) for low, high in itertools.pairwise(borders)]
    return found


def fill_fragmented(uri: str, rows: Mapping[int, int]) -> dict[int, int]:
    """Write the ledgers in many fragments.

    Their metadata are divided afterwards: every bookie has every entry, so any division of them is true.
    """
    found: dict[int, int] = {}
    with bookkeeper.blocking.connect(uri) as client:
        for size, count in rows.items():
            ledger_id = found[size] = _write(client, size, max(FRAGMENTS, count // FRAGMENTED_SHARE))
            client.run(lambda core, ledger_id=ledger_id: Deferred.fromCoroutine(_divide(core, LedgerId(ledger_id))))  # type: ignore[misc]
    return found


def _write(client: BlockingBookKeeper, size: int, count: int) -> int:
    with client.create(ensemble=3, write_quorum=3, ack_quorum=2) as ledger:
        for first in range(0, count, BATCH_ROWS):
            ledger.append_many([bytes(size)] * min(BATCH_ROWS, count - first))
    return ledger.id


async def _divide(client: LedgerClient, ledger_id: LedgerId) -> None:
    ledgers = client.context.store.ledgers
    found = await ledgers.read(ledger_id)
    await ledgers.write(ledger_id, divided(found.value, FRAGMENTS), found.version)


def divided(metadata: LedgerMetadata, count: int) -> LedgerMetadata:
    """A closed ledger of one fragment with `count` of them, whose ensembles are the same bookies in another order."""
    (whole,) = metadata.fragments
    bookies, last = whole.ensemble, metadata.last_entry_id
    assert last is not None, "the ledger is closed"
    assert last + 1 >= count, "no fragment is empty"
    assert metadata.write_quorum == len(bookies), "else not every division is true"
    fragments = [
        Fragment(EntryId((last + 1) * part // count), bookies[part % len(bookies) :] + bookies[: part % len(bookies)])
        for part in range(count)
    ]
    return dataclasses.replace(metadata, fragments=tuple(fragments))
