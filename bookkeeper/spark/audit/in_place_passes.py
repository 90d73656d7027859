"""Passes over the directories of bookies: jobs whose tasks read in place, until nothing is missing.

Which task brings what is chance, and one that fails takes what it read with it: so each pass is kept, and what none of
them has is read in another one. What is missing after PASSES_MAX is asked of the bookies.

Thread: the driver's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.spark.arrow_map import map_in_arrow
from bookkeeper.spark.audit.division import Division
from bookkeeper.spark.audit.in_place import InPlaceWork, Place, reading_in_place
from bookkeeper.spark.audit.options import AuditOptions
from bookkeeper.spark.audit.stored_evidence import COLUMNS, PLAN, UNIT, UNREAD, StoredBookie, UnitDone, stored_bookies
from bookkeeper.spark.audit.unit_queue import remove_files
from bookkeeper.spark.audit.work_directory import AuditFailed, WorkDirectory
from bookkeeper.spark.options.tables import SourceOptions

PASSES_MAX = 3

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class InPlace:
    """What was read in place so far. done: units, by bookie and plan. seen: places that a task found."""

    rows: DataFrame | None
    bookies: Mapping[str, StoredBookie]
    done: Mapping[tuple[str, int], frozenset[int]]
    unread: Sequence[str]
    seen: frozenset[str]

    def is_complete_for(self, places: Sequence[Place]) -> bool:
        """Whether all places were found, and nothing of their bookies is missing."""
        return all(str(place) in self.seen for place in places) and all(each.whole for each in self.bookies.values())


NOTHING = InPlace(None, {}, {}, (), frozenset())


def _kept_in(directory: WorkDirectory) -> InPlace:
    rows = directory.in_place()
    if rows is None:
        return NOTHING
    told = rows.where(F.col("kind").isin(UNIT, UNREAD)).select("kind", "bookie", "said").collect()
    units = [(row.bookie, UnitDone.parse(row.said)) for row in told if row.kind == UNIT]
    done: dict[tuple[str, int], set[int]] = {}
    for bookie, unit in units:
        done.setdefault((bookie, unit.plan), set()).add(unit.unit)
    unread = {row.bookie: row.said for row in told if row.kind == UNREAD}
    return InPlace(
        rows,
        stored_bookies(units),
        {key: frozenset(each) for key, each in done.items()},
        tuple(unread.values()),
        frozenset([*unread, *(unit.directory for _, unit in units if unit.unit == PLAN)]),
    )


def _round_column(division: Division) -> Any:
    """The round of a row of what was read in place; -1 for what is of no chunk, -2 for what is in no round."""
    firsts = [division.starts[division.parts_of(number).start] for number in range(division.rounds)]
    before = F.lit(-2)
    after = reduce(
        lambda column, at: column.when(_at_least(*at[1]), at[0]),
        reversed(list(enumerate(firsts))),
        F.when(F.col("chunk").isNull(), -1),
    )
    return after.otherwise(before).alias("round")


def _at_least(ledger_id: int, chunk: int) -> Any:
    return (F.col("ledger_id") > ledger_id) | ((F.col("ledger_id") == ledger_id) & (F.col("chunk") >= chunk))


class Passes:
    """Reads in place. tasks: that run at once."""

    def __init__(
        self,
        spark: SparkSession,
        directory: WorkDirectory,
        options: SourceOptions[AuditOptions],
        places: Sequence[Place],
        tasks: int,
        say: Say,
    ) -> None:
        self._spark, self._directory, self._options = spark, directory, options
        self._places, self._tasks, self._say = tuple(places), tasks, say
        self._tokens: list[str] = []

    def run(self, division: Division) -> InPlace:
        """Run as many as it takes. Raises AuditFailed for a place that no task found."""
        found = _kept_in(self._directory)
        for number in range(PASSES_MAX):
            if found.is_complete_for(self._places):
                break
            self._say("reading copies in place" if not number else "reading in place what tasks have not brought back")
            self._pass(division, found)
            before, found = found, _kept_in(self._directory)
            if (found.seen, found.done) == (before.seen, before.done):
                break  # another pass would find as little
        lacking = [str(place) for place in self._places if str(place) not in found.seen]
        if lacking:
            raise AuditFailed(
                f"no task found {', '.join(lacking)} on its machine: is the path right, and does Spark run where it is?"
            )
        for name, bookie in found.bookies.items():
            if not bookie.whole:
                self._say(f"bookie {name}: a part of its directories was not read; the rest is asked of the bookie")
        for why in found.unread:
            self._say(f"not read in place: {why}")
        return found

    def _pass(self, division: Division, found: InPlace) -> None:
        token, own = uuid.uuid4().hex, self._options.own
        self._tokens.append(token)
        work = InPlaceWork(
            token, self._places, self._options.client, own.ledgers, own.bytes_per_s / self._tasks, found.done
        )
        rows = map_in_arrow(self._spark.range(0, self._tasks, 1, self._tasks), reading_in_place(work), COLUMNS)
        self._directory.keep_pass(rows.select("*", _round_column(division)))

    def clean_up(self) -> None:
        """Remove what the tasks left on this machine."""
        for token in self._tokens:
            remove_files(token)
