"""Entries after the last add confirmed: found, and reported by readers that end before them."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.client.read.unconfirmed import last_stored, report
from bookkeeper.config import ClientSettings
from bookkeeper.errors import EntryMissing, EntryUnreadable, ReadBeyondEnd
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch, ReadBatch
from tests.support.fake_bookie import HOLD, FakeCluster


class Written:
    """A ledger with entries 0..last; those up to `confirmed` are confirmed."""

    ledger_id = 7

    def __init__(self, confirmed: int, last: int, error: type[Exception] = EntryMissing, *, closed: bool = False):
        self.last_add_confirmed, self._last, self._error, self.closed = confirmed, last, error, closed
        self.asked = 0

    def read_unconfirmed(self, first: int, last: int) -> Deferred[list[object]]:
        self.asked += 1
        assert first == last
        return succeed([object()]) if first <= self._last else fail(self._error("missing"))


def now(work: Any) -> Any:
    outcome: list[Any] = []
    Deferred.fromCoroutine(work).addCallbacks(outcome.append, lambda failure: outcome.append(failure.value))
    [found] = outcome
    if isinstance(found, Exception):
        raise found
    return found


@pytest.mark.parametrize("error", [EntryMissing, ReadBeyondEnd])
@pytest.mark.parametrize(("confirmed", "last"), [(-1, -1), (-1, 0), (0, 1), (6, 7), (10, 10), (10, 1000), (3, 130)])
def test_the_last_stored_entry_after_the_lac_is_found(confirmed: int, last: int, error: type[Exception]) -> None:
    ledger: Any = Written(confirmed, last, error)
    assert now(last_stored(ledger)) == last
    assert ledger.asked <= 2 * (last - confirmed).bit_length() + 1


def test_bookies_of_a_closed_ledger_are_not_asked() -> None:
    ledger: Any = Written(4, 9, closed=True)
    assert now(last_stored(ledger)) == 4
    assert now(report(ledger)) is None
    assert ledger.asked == 0


def test_an_unreadable_entry_makes_the_end_unknown() -> None:
    ledger: Any = Written(4, 9, EntryUnreadable)
    with pytest.raises(EntryUnreadable):
        now(last_stored(ledger))
    assert "unknown" in now(report(ledger))


@pytest.mark.parametrize(
    ("confirmed", "last", "said"),
    [
        (4, 4, None),
        (-1, -1, None),
        (4, 5, "entry 4 is the last one known to be acknowledged; entry 5 is stored"),
        (4, 99, "entries 5..99 are stored"),
        (-1, 0, "no entry is known to be acknowledged; entry 0 is stored"),
    ],
)
def test_a_reader_reports_unconfirmed_entries_that_may_be_acknowledged(
    confirmed: int, last: int, said: str | None
) -> None:
    ledger: Any = Written(confirmed, last)
    found = now(report(ledger))
    assert (found is None) if said is None else (said in found and "ledger 7" in found)


@pytest.mark.parametrize(
    ("end", "confirmed", "last", "closed", "said"),
    [
        (4, 4, 4, False, None),
        (-1, 2, 2, False, "no entry is known to be acknowledged; entries 0..2 are stored"),
        (4, 5, 9, False, "entry 4 is the last one known to be acknowledged; entries 5..9 are stored"),
        (4, 4, 9, True, None),
        (-1, 2, 9, True, "was closed while it was read; entries 0..2 are behind the end that was read"),
        (4, 5, 5, True, "was closed while it was read; entry 5 is behind the end that was read"),
    ],
)
def test_entries_confirmed_after_the_reader_took_its_end_are_reported(
    end: int, confirmed: int, last: int, closed: bool, said: str | None
) -> None:
    ledger: Any = Written(confirmed, last, closed=closed)
    found = now(report(ledger, end))
    assert (found is None) if said is None else (said in found and "ledger 7" in found)


def test_a_burst_whose_lac_was_not_sent_is_reported_and_not_read() -> None:
    cluster = FakeCluster()
    settings = ClientSettings(explicit_lac_interval_s=0.0)
    ledger = cluster.wait(cluster.client(settings).create(ensemble=3, write_quorum=2, ack_quorum=2))
    cluster.wait(ledger.append_many([b"x"] * 100))
    reader = cluster.wait(cluster.client(settings).open_without_recovery(ledger.id))
    confirmed = reader.last_add_confirmed
    assert confirmed < 99
    assert f"{confirmed + 1}..99 are stored" in cluster.wait(reader.report_unconfirmed())
    assert reader.last_add_confirmed == confirmed
    for bookie in cluster.bookies:
        bookie.rule = lambda request: Status.IO_ERROR if isinstance(request, ReadBatch) else None
    assert "unknown" in cluster.wait(reader.report_unconfirmed())


def test_an_entry_that_only_one_bookie_may_have_is_reported_too() -> None:
    """It may still reach its quorum: unknown is never "no"."""
    cluster = FakeCluster()
    settings = ClientSettings(explicit_lac_interval_s=1.0)
    ledger = cluster.wait(cluster.client(settings).create(ensemble=3, write_quorum=3, ack_quorum=2))
    cluster.wait(ledger.append(b"0"))
    cluster.run(1.0)
    for bookie in cluster.bookies[1:]:
        bookie.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    ledger.append_nowait(b"1")
    cluster.run(0.1)
    reader = cluster.wait(cluster.client(settings).open_without_recovery(ledger.id))
    assert reader.last_add_confirmed == 0
    assert "entry 1 is stored" in (cluster.wait(reader.report_unconfirmed()) or "")
