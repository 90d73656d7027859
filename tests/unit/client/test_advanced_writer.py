"""Entry ids that the caller chooses."""

from typing import Any

import pytest

from bookkeeper.client.write.chosen_ids import AdvancedWriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import DuplicateEntry, InvalidArgument, LedgerClosed, WindowFull
from tests.support.fake_bookie import FakeCluster


def create(cluster: FakeCluster, **values: Any) -> AdvancedWriteHandle:
    client = cluster.client(ClientSettings(explicit_lac_interval_s=0.0, **values))
    ledger: AdvancedWriteHandle = cluster.wait(client.create_advanced(ledger_id=4711))
    return ledger


def test_entries_in_any_order_are_acknowledged_in_the_order_of_their_ids() -> None:
    """I-03, I-06."""
    cluster = FakeCluster()
    ledger = create(cluster)
    assert ledger.ledger_id == 4711
    order: list[int] = []
    for entry_id in (2, 0, 3, 1):
        ledger.append(entry_id, b"entry %d" % entry_id).addCallback(order.append)
    cluster.wait(ledger.flush())
    assert order == [0, 1, 2, 3]
    entries = cluster.wait(ledger.read(0, 3))
    assert [entry.payload for entry in entries] == [b"entry %d" % entry_id for entry_id in range(4)]
    assert [entry.length for entry in entries] == [14, 28, 7, 21], "in the order of the calls"


def test_a_gap_holds_back_what_lies_behind_it() -> None:
    """I-03."""
    cluster = FakeCluster()
    ledger = create(cluster)
    later = ledger.append(1, b"later")
    cluster.run(5.0)
    assert not later.called
    assert cluster.wait(ledger.append(0, b"first")) == 0
    assert cluster.wait(later) == 1


@pytest.mark.parametrize("entry_id", [0, 3, 5])
def test_an_id_is_bound_to_one_entry(entry_id: int) -> None:
    """I-03."""
    cluster = FakeCluster()
    ledger = create(cluster)
    cluster.wait(ledger.append_many(0, [b"x"] * 4))
    ledger.append_nowait(5, b"pending")
    with pytest.raises(DuplicateEntry, match=f"entry id {entry_id} was used already"):
        cluster.wait(ledger.append(entry_id, b"again"))
    assert cluster.wait(ledger.append(4, b"fills the gap")) == 4


def test_a_negative_id_is_refused() -> None:
    cluster = FakeCluster()
    ledger = create(cluster)
    with pytest.raises(InvalidArgument, match="entry id -1 is negative"):
        cluster.wait(ledger.append(-1, b"x"))
    assert cluster.wait(ledger.append(0, b"x")) == 0


def test_a_window_full_of_later_entries_still_takes_the_one_they_wait_for() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, window_entries_max=4)
    later = [ledger.append(entry_id, b"x") for entry_id in (3, 2, 1)]
    with pytest.raises(WindowFull):
        ledger.append_nowait(4, b"x")
    assert cluster.wait(ledger.append(0, b"x")) == 0
    assert [cluster.wait(deferred) for deferred in later] == [3, 2, 1]


def test_more_entries_than_the_window_holds_wait_for_room() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, window_entries_max=8)
    adds = [ledger.append(entry_id, b"x") for entry_id in reversed(range(12))]
    assert [cluster.wait(deferred) for deferred in adds] == list(reversed(range(12)))


def test_many_more_entries_than_the_window_holds_are_fed_as_there_is_room() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, window_entries_max=8)
    assert cluster.wait(ledger.append_many(0, [b"x"] * 200)) == range(200)


def test_closing_with_a_gap_ends_the_ledger_before_it() -> None:
    """I-12."""
    cluster = FakeCluster()
    ledger = create(cluster)
    cluster.wait(ledger.append_many(0, [b"four"] * 3))
    behind = ledger.append(4, b"behind the gap")
    metadata = cluster.wait(ledger.close_now())
    assert metadata.last_entry_id == 2
    with pytest.raises(LedgerClosed):
        cluster.wait(behind)
