"""What a query is planned from, where the server of the planner's session lags behind (I-19)."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from bookkeeper.metadata.memory.session import MemoryFaults
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.spark.ledgers.extents import chosen_ledgers, plan_extents
from bookkeeper.spark.ledgers.options import LedgerReadOptions, parse_ledgers, parse_positions
from bookkeeper.spark.options.bounds import Bounds
from tests.support.commit_bench import Bench
from tests.support.simulated_clock import SimulatedClock

NEW = LedgerMetadata(1, 1, 1, (Fragment(EntryId(0), (BookieId("bookie-a:3181"),)),))
CLOSED = dataclasses.replace(NEW, state=LedgerState.CLOSED, last_entry_id=EntryId(4), length=500)

LAG_S, SOON_S = 1000.0, 1.0


class Behind:
    """The blocking client of a process whose server lags, and another process that writes."""

    def __init__(self) -> None:
        self._clock, metadata, rng = SimulatedClock(), MemoryMetadata(), random.Random(1)
        self.writer = MemoryMetadataStore(metadata, self._clock, rng)
        faults = MemoryFaults(delay_max_s=0.001, lag_max_s=LAG_S)
        no_network: Any = None
        behind = MemoryMetadataStore(metadata, self._clock, rng, faults)
        self._client = LedgerClient(behind, no_network, self._clock, rng)
        self.run(lambda client: client.store.ledgers.create(CLOSED))  # it was used before, and has been told the layout

    def run(self, start: Callable[[LedgerClient], Deferred[Any]]) -> Any:
        outcome: list[Any] = []
        start(self._client).addBoth(outcome.append)
        until = self._clock.seconds() + SOON_S
        while not outcome and self._clock.step(until):
            pass
        return outcome[0]


def test_a_ledger_that_was_made_before_the_query_is_read() -> None:
    behind: Any = Behind()
    behind.writer.ledgers.create(NEW)
    behind.writer.ledgers.create(CLOSED)
    assert chosen_ledgers(behind, LedgerReadOptions(ledgers=parse_ledgers("all"))) == [0, 1, 2]


def test_a_ledger_that_was_closed_before_the_query_is_read_to_its_end() -> None:
    """One that is still called open would be read as far as its bookies say, which is not to its last entry."""
    behind: Any = Behind()
    made: list[Any] = []
    behind.writer.ledgers.create(NEW).addCallback(made.append)
    [(ledger_id, there)] = made
    behind.run(lambda client: client.store.sync())
    closed = dataclasses.replace(CLOSED, creator_token=there.value.creator_token)
    behind.writer.ledgers.write(ledger_id, closed, there.version)
    options = LedgerReadOptions(ledgers=parse_ledgers(str(ledger_id)))
    [extent] = plan_extents(behind, options, Bounds(), Bounds())
    assert (extent.first_entry_id, extent.last_entry_id) == (0, 4)


class There:
    """The blocking client of a bench."""

    def __init__(self) -> None:
        self.bench = Bench()

    def run(self, start: Callable[[LedgerClient], Deferred[Any]]) -> Any:
        async def ran() -> Any:
            return await start(self.bench.client)

        return self.bench.run(ran())


@pytest.mark.parametrize("ledgers", ["all", "5-9"])
@pytest.mark.parametrize("word", ["start", "end"])
def test_a_ledger_whose_position_is_given_is_named_by_that_and_must_be_there(ledgers: str, word: str) -> None:
    there: Any = There()
    positions: Any = {word: parse_positions('{"7": 3}')}
    options = LedgerReadOptions(ledgers=parse_ledgers(ledgers), **positions)
    with pytest.raises(NoSuchLedger, match="ledger 7 was to be read and is not there"):
        plan_extents(there, options, Bounds(), Bounds())
    assert plan_extents(there, options, Bounds().at_least(8), Bounds()) == [], "a filter of the query leaves it out"
    assert plan_extents(there, dataclasses.replace(options, fail_on_data_loss=False), Bounds(), Bounds()) == []


@pytest.mark.parametrize("word", ["start", "end"])
def test_a_position_of_a_ledger_that_a_query_has_not_committed_is_refused(word: str) -> None:
    there: Any = There()
    committed = there.bench.written(0)
    there.bench.commit(0, committed)
    positions: Any = {word: parse_positions(f'{{"{committed}": 1, "999": 3}}')}
    options = LedgerReadOptions(query="q", commit_path="/spark", **positions)
    with pytest.raises(InvalidArgument, match=rf"option {word}ingOffsets names .* not read, as query q .*: 999$"):
        plan_extents(there, options, Bounds(), Bounds())
