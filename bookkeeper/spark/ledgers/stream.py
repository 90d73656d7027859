"""Data source `bookkeeper` as a stream: ledgers that are still written, and new ones, followed without fencing.

One process of the query asks how far the ledgers are confirmed and plans the micro-batches; tasks read them as those of
a batch read. What a micro-batch holds, and how it is divided, follows from its end alone (`offsets`,
`stream_offsets`), so that a query which is restarted from its checkpoint reads the same again.

New ledgers are looked for with every micro-batch; where the ids of all ledgers have to be listed for that, at most
every DISCOVERY_S seconds (a cluster may have very many).

Thread: the process has one for Spark's calls; the client another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from twisted.logger import Logger

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.ledgers.extents import chosen_ledgers, extents_between, position_in
from bookkeeper.spark.ledgers.offsets import Position, Seen, advance, beginning, between
from bookkeeper.spark.ledgers.options import EARLIEST, LATEST, LedgerChoice, LedgerReadOptions, Positions
from bookkeeper.spark.ledgers.partition import LedgerPartition
from bookkeeper.spark.ledgers.plan import partitions_of
from bookkeeper.spark.ledgers.sight import LedgerSight
from bookkeeper.spark.ledgers.slices import read_slices
from bookkeeper.spark.ledgers.stream_offsets import (
    Offset,
    check_cluster,
    initial_offset,
    next_offset,
    planned,
    position_of,
)
from bookkeeper.spark.options.limits import Limits
from bookkeeper.spark.options.stream_limits import default_limit, limits_of
from bookkeeper.spark.options.tables import SourceOptions
from bookkeeper.spark.process_client import client_of, instance_of

log = Logger()

EARLIEST_OF_ALL = Positions(EARLIEST, {})

DISCOVERY_S = 5.0
"""How old a listing of all ledgers may be."""


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream."""

    def __init__(self, options: SourceOptions[LedgerReadOptions]) -> None:
        self._options = options
        self._target: Position | None = None  # of a query that ends with what is there
        self._latest: Position | None = None
        self._listed: tuple[float, Sequence[int]] | None = None
        self._sight: LedgerSight | None = None
        self._told = False

    # --- positions

    def initialOffset(self) -> Offset:
        """Where a new query begins: option startingOffsets, by default the latest.

        Raises InvalidArgument for a position that its ledger does not have, or not yet.
        """
        start = self._options.own.start or Positions(LATEST, {})
        if start == EARLIEST_OF_ALL:
            return initial_offset(Position().offset(), self._instance)
        seen = self._see(Position())
        if self._options.own.start is None and not self._told and nothing_will_come(self._options.own.ledgers, seen):
            self._told = True  # Spark asks more than once
            log.warn(
                "this stream begins at the latest entry, as no option startingOffsets is given, and its ledgers are "
                "closed: it will read nothing. startingOffsets=earliest reads what they have"
            )
        for each, position in start.by_ledger.items():
            if position > 0 and each not in seen:  # others begin there anyway, whenever they come
                raise InvalidArgument(
                    f"option startingOffsets: ledger {each} is not there, or has no entries, so far; {position} is "
                    "beyond. Leave it out: a ledger that comes later is read from its first entry"
                )
        first = {each: position_in(each, start, now.end, "startingOffsets") for each, now in seen.items()}
        return initial_offset(beginning(first, seen).offset(), self._instance)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Offset:
        """How far the next micro-batch goes; `start` itself where there is nothing new."""
        check_cluster(start, self._instance)
        begin = Position.of(position_of(start))
        own = self._options.own
        seen = self._see(begin)
        self._latest = advance(begin, seen, Limits())
        end = advance(begin, seen, limits_of(limit, own.per_trigger)).offset()
        return next_offset(start, end, own.division, self._instance)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        return default_limit(self._options.own.per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends with what is confirmed now."""
        self._target = None
        self._listed = None
        # Where the query is comes later: a ledger that it has read to its end may be gone.
        self._target = advance(Position(), self._see(Position(), may_be_gone=True, is_last=True), Limits())

    def reportLatestOffset(self) -> Offset | None:
        """How far the ledgers were confirmed when they were looked at last, for the query's status."""
        return None if self._latest is None else self._latest.offset()

    def _see(self, position: Position, *, may_be_gone: bool = False, is_last: bool = False) -> dict[int, Seen]:
        """How far the ledgers are confirmed that are not done; of a query that ends, no further than its target."""
        own, target = self._options.own, self._target
        client = client_of(self._options.client)
        if self._sight is None:
            self._sight = LedgerSight(client, fail_on_data_loss=own.fail_on_data_loss)
        now = time.monotonic()
        if self._listed is None or now - self._listed[0] >= DISCOVERY_S:
            self._listed = (now, chosen_ledgers(client, own))
        wanted = {*self._listed[1], *position.next}
        if target is not None:
            wanted = {each for each in wanted if each in target.done or each in target.next}
        asked = sorted(each for each in wanted if each not in position.done)
        seen = self._sight.see(asked, may_be_gone=may_be_gone, is_last=is_last)
        return seen if target is None else {each: _up_to(target, each, now) for each, now in seen.items()}

    # --- micro-batches

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Who reads what lies between two positions. Raises NoSuchLedger for a ledger that is gone (failOnDataLoss)."""
        check_cluster(end, self._instance)
        plan = planned(start, end, self._options.own.division)
        wanted = between(Position.of(plan.start), Position.of(plan.end))
        extents = extents_between(client_of(self._options.client), self._options.own, wanted)
        found = partitions_of(
            extents,
            partition_bytes_max=plan.division.partition_bytes_max,
            partitions_min=plan.division.partitions_min,
        )
        return [LedgerPartition(slices) for slices in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition as Arrow batches."""
        assert isinstance(partition, LedgerPartition)
        return read_slices(client_of(self._options.client), self._options.own, partition.slices, partition.entry_ids)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: reading a ledger leaves no trace in it."""

    def stop(self) -> None:
        """Nothing is held that needs it."""

    @cached_property
    def _instance(self) -> str:
        """Id of the cluster that is read."""
        return instance_of(client_of(self._options.client))


def nothing_will_come(ledgers: LedgerChoice | None, seen: Mapping[int, Seen]) -> bool:
    """Whether ledgers that were named one by one are all closed, so that nothing is ever added to any of them."""
    named = frozenset(ledgers.single if ledgers is not None else ())
    whole = ledgers is not None and ledgers.ranges is not None and len(named) == len(ledgers.ranges)
    return whole and bool(seen) and all(now.closed for now in seen.values())


def _up_to(target: Position, ledger_id: int, seen: Seen) -> Seen:
    """What is seen of a ledger, up to where it was when the target was taken."""
    if ledger_id in target.done:
        return seen
    return Seen(min(seen.end, target.of_ledger(ledger_id) - 1), closed=False, mean_size=seen.mean_size)
