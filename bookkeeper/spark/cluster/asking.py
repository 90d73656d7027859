"""Asking a cluster about many things, some at a time, from a thread that waits. Bounds: AT_ONCE, ROWS.

Every list begins with a sync: a table has what was written before its query was planned, and a task whose session is
with another server than the planner's never takes a ledger for deleted that it does not see yet (I-19).
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.parallel import in_parallel
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.spark.cluster.id_runs import IdRuns
from bookkeeper.spark.cluster.table import ManyOptions, Row
from bookkeeper.spark.options.bounds import Bounds

T = TypeVar("T")

AT_ONCE = 64
"""Questions under way."""

ROWS = 1000
"""Rows that are handed over in one piece, or a few more."""

CHOSEN_MAX = 10_000
"""Ids that a filter names one by one, for which nothing is listed."""


async def rows_of(
    items: Iterable[T], ask: Callable[[T], Awaitable[Sequence[Row]]], at_once: int = AT_ONCE
) -> AsyncGenerator[list[Row]]:
    """The rows of each item, in the order of the items, about ROWS at a time; asked for in groups of `at_once`."""
    source, rows = iter(items), list[Row]()
    while group := list(islice(source, at_once)):
        found: dict[int, Sequence[Row]] = {}

        async def one(at: int, item: T, found: dict[int, Sequence[Row]] = found) -> None:
            found[at] = await ask(item)

        await in_parallel((one(at, item) for at, item in enumerate(group)), at_once)
        for at in range(len(group)):
            rows += found[at]
        if len(rows) >= ROWS:
            yield rows
            rows = []
    if rows:
        yield rows


def shares_of_ids(
    client: BlockingBookKeeper,
    options: ManyOptions,
    bounds: Bounds,
    listed: Callable[[LedgerClient, BadRecords], AsyncIterator[Sequence[int]]],
) -> list[array[int]]:
    """Return the listed ids, or those that the bounds name one by one, as shares; log stray znodes."""

    async def collect(ledgers: LedgerClient) -> IdRuns:
        runs = IdRuns()
        if bounds.only is not None and len(bounds.only) <= CHOSEN_MAX:
            runs.add(sorted(each for each in bounds.only if each in bounds))
            return runs
        await ledgers.store.sync()
        strays = BadRecords()
        async for batch in listed(ledgers, strays):
            runs.add(each for each in batch if each in bounds)
        ReportedRecords().report(strays, "it has a row in table unreadable, and none in this one")
        return runs

    runs = client.run(lambda ledgers: Deferred.fromCoroutine(collect(ledgers)))
    return runs.shares(options.partition_rows_max, options.partitions_min)
