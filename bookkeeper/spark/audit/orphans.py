"""Ledgers that bookies have and the cluster has not: orphans, left to be collected.

    begin   1  bookies that run are asked which ledgers they have (table held_ledgers)
            2  the metadata store is asked which ledgers there are, after a sync       -> suspects: in 1 and not in 2
            -  directories of bookies that do not run: what they hold and 2 lacks is suspected, too
    end     3  the metadata store is asked for each suspect by itself, after a sync
            4  the bookies that run are asked again

An orphan is a suspect that 3 lacks and that its bookie has still (4). A ledger that was made since 1 is in no answer
of 1; one that was deleted since 2 was there in 2. What was deleted before, and waits for the collector of its bookie,
is an orphan, as long as it waits: nothing is wrong with it. A bookie that did not tell, at the beginning or at the end,
is named: nothing is known of its ledgers.

Ledgers are held as ranges of ids, of which a bookie has few. Thread: the driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.spark.audit.metadata_now import looking
from bookkeeper.spark.audit.stored_evidence import HELD, OTHER
from bookkeeper.spark.options.id_ranges import IdRanges
from bookkeeper.spark.pipeline import cluster_table

HELD_TABLE = "held_ledgers"

GROUP = 1000
"""Ledgers that are asked about after one sync."""

WAITS = "the cluster has no such ledger; the bookie's garbage collection deletes it when it runs"


RANGE_COLUMNS = "bookie STRING, low LONG, high LONG"


@dataclass(slots=True)
class Held:
    """Ledgers by bookie. untold: bookies that did not tell all of theirs, and why."""

    ledgers: dict[str, IdRanges] = field(default_factory=dict)
    untold: dict[str, str] = field(default_factory=dict)

    def without(self, there: IdRanges) -> Held:
        """Without these ledgers."""
        return self._with({bookie: ledgers - there for bookie, ledgers in self.ledgers.items()})

    def within(self, ids: IdRanges) -> Held:
        """Of these ledgers alone."""
        return self._with({bookie: ledgers & ids for bookie, ledgers in self.ledgers.items()})

    def of(self, bookies: Callable[[str], bool]) -> Held:
        """Of some bookies alone."""
        untold = {bookie: why for bookie, why in self.untold.items() if bookies(bookie)}
        return Held({bookie: ledgers for bookie, ledgers in self.ledgers.items() if bookies(bookie)}, untold)

    def __and__(self, other: Held) -> Held:
        """What is in both; who did not tell in one of them."""
        nothing = IdRanges()
        both = {bookie: ledgers & other.ledgers.get(bookie, nothing) for bookie, ledgers in self.ledgers.items()}
        return Held({}, self.untold | other.untold)._with(both)

    def __or__(self, other: Held) -> Held:
        """All of it; no bookie is in both."""
        return Held(self.ledgers | other.ledgers, self.untold | other.untold)

    def all_of_them(self) -> IdRanges:
        """The ledgers of all bookies."""
        found = IdRanges()
        for ledgers in self.ledgers.values():
            found |= ledgers
        return found

    def rows(self) -> list[tuple[str, int, int]]:
        """As RANGE_COLUMNS."""
        return [(bookie, *each) for bookie, ledgers in self.ledgers.items() for each in ledgers.ranges]

    def _with(self, ledgers: Mapping[str, IdRanges]) -> Held:
        return Held({bookie: each for bookie, each in ledgers.items() if each.ranges}, self.untold)


def held_in(rows: Iterable[tuple[str, int | None, int | None, str | None]]) -> Held:
    """Of rows bookie, first and last id of a range, problem; the ids of a bookie ascend. No ids: it did not tell."""
    found: dict[str, list[tuple[int, int]]] = {}
    untold: dict[str, str] = {}
    for bookie, low, high, problem in rows:
        if low is None or high is None:
            untold[bookie] = problem or "it does not say why"
            continue
        ranges = found.setdefault(bookie, [])
        if ranges and ranges[-1][1] + 1 == low:
            low = ranges.pop()[0]
        ranges.append((low, high))
    return Held({bookie: IdRanges(tuple(ranges)) for bookie, ranges in found.items()}, untold)


def held_now(spark: SparkSession, given: Mapping[str, str]) -> Held:
    """What bookies that run say. given: options of the client."""
    rows = cluster_table(spark, HELD_TABLE, given).toLocalIterator()
    return held_in((row.bookie, row.first_ledger_id, row.last_ledger_id, row.problem) for row in rows)


def held_in_place(rows: DataFrame) -> Held:
    """What was found in directories. rows: of `stored_evidence`."""
    held = rows.where(F.col("kind") == HELD).select("bookie", "ledger_id").distinct().orderBy("bookie", "ledger_id")
    return held_in((row.bookie, row.ledger_id, row.ledger_id, None) for row in held.toLocalIterator())


def find_orphans(
    running: Held,
    stored: Held,
    client: BlockingBookKeeper,
    is_chosen: Callable[[int], bool],
    held_again: Callable[[], Held],
) -> Held:
    """The end of the search. Raises MetadataError where it cannot be told whether a suspect is there.

    running, stored: suspects of bookies that run, and of others, which were read in place. held_again: what the former
    say now; they are asked only where one of them has a suspect still.
    """
    gone = _gone(client, (running | stored).all_of_them(), is_chosen)
    running, stored = running.within(gone), stored.within(gone)
    return (running & held_again() if running.ledgers else running) | stored


def _gone(client: BlockingBookKeeper, suspects: IdRanges, is_chosen: Callable[[int], bool]) -> IdRanges:
    """The chosen ones of them of which the metadata store says, after a sync, that there is none."""
    gone = IdRanges()
    ids = (each for low, high in suspects.ranges for each in range(low, high + 1) if is_chosen(each))
    while group := list(islice(ids, GROUP)):
        there = {each["ledger_id"] for each in client.run(looking(group))}
        gone |= IdRanges.of(each for each in group if each not in there)
    return gone


def sizes_in_place(rows: DataFrame) -> DataFrame:
    """Entries and bytes of ledgers that nobody asked for, where directories have told: bookie, ledger_id."""
    other = rows.where(F.col("kind") == OTHER).groupBy("bookie", "ledger_id")
    return other.agg(F.sum("entries").alias("entries"), F.sum("bytes").alias("bytes"))
