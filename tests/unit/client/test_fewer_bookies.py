"""What a writer may do with fewer bookies than it was created for: opportunisticStriping, delayEnsembleChange."""

from typing import Any

import pytest

from bookkeeper.config import ClientSettings
from bookkeeper.errors import NotEnoughBookies
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch
from tests.support.fake_bookie import FakeCluster


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


@pytest.mark.parametrize(("asked", "write_quorum", "got"), [(5, 2, 3), (3, 2, 3), (2, 2, 2), (4, 3, 3)])
def test_an_ensemble_is_as_wide_as_there_are_bookies(asked: int, write_quorum: int, got: int) -> None:
    cluster = FakeCluster(3)
    client = cluster.client(settings(opportunistic_striping=True))
    ledger = cluster.wait(client.create(ensemble=asked, write_quorum=write_quorum, ack_quorum=2))
    cluster.wait(ledger.append_many([b"x"] * 10))
    metadata = cluster.wait(ledger.close())
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (got, write_quorum, 2)
    assert len(set(metadata.fragments[0].ensemble)) == got
    handle = cluster.wait(cluster.client().open(ledger.ledger_id))
    assert len(cluster.wait(handle.read(0, 9))) == 10


def test_but_never_narrower_than_a_write_quorum() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings(opportunistic_striping=True))
    with pytest.raises(NotEnoughBookies, match="needs 3 bookies and 2 are writable"):
        cluster.wait(client.create(ensemble=5, write_quorum=3, ack_quorum=2))


def test_bookies_named_by_the_caller_are_all_taken() -> None:
    cluster = FakeCluster(3)
    cluster.by_id("b3:3181").store.registration.unregister(cluster.by_id("b3:3181").bookie_id)
    client = cluster.client(settings(opportunistic_striping=True))
    ledger = cluster.wait(
        client.create(ensemble=3, write_quorum=2, ack_quorum=2, bookies=["b1:3181", "b2:3181", "b3:3181"])
    )
    assert ledger.metadata.ensemble_size == 3


def test_without_it_the_ledger_is_not_created() -> None:
    cluster = FakeCluster(3)
    with pytest.raises(NotEnoughBookies, match="needs 5 bookies and 3 are writable"):
        cluster.wait(cluster.client(settings()).create(ensemble=5, write_quorum=2, ack_quorum=2))


def fragments_after(*, failed: int, delayed: bool, status: Status | None = None) -> list[tuple[int, set[str]]]:
    """First entry id and replaced members of each further fragment, after `failed` of three bookies failed in turn."""
    cluster = FakeCluster(6)
    client = cluster.client(settings(delay_ensemble_change=delayed))
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=3, ack_quorum=2))
    cluster.wait(ledger.append_many([b"x"] * 10))
    first = ledger.metadata.fragments[0].ensemble
    for bookie_id in first[:failed]:
        if status is None:
            cluster.by_id(bookie_id).crash()
        else:
            cluster.by_id(bookie_id).rule = lambda request: status if isinstance(request, AddBatch) else None
        cluster.wait(ledger.append_many([b"y"] * 10))
        cluster.run(1.0)
    last_entry_id = cluster.wait(ledger.append(b"z"))
    metadata = cluster.wait(ledger.close())
    handle = cluster.wait(cluster.client().open(ledger.ledger_id))
    assert len(cluster.wait(handle.read(0, last_entry_id))) == last_entry_id + 1, "nothing acknowledged is lost"
    return [
        (fragment.first_entry_id, set(before.ensemble) - set(fragment.ensemble))
        for before, fragment in zip(metadata.fragments, metadata.fragments[1:], strict=False)
    ]


@pytest.mark.parametrize("status", [None, Status.IO_ERROR])
def test_a_delayed_change_waits_until_the_ack_quorum_needs_it_and_then_replaces_all(status: Status | None) -> None:
    assert fragments_after(failed=1, delayed=True, status=status) == []
    ((first_entry_id, replaced),) = fragments_after(failed=2, delayed=True, status=status)
    assert (first_entry_id, len(replaced)) == (20, 2)


def test_without_delay_each_failure_is_a_change() -> None:
    changes = fragments_after(failed=2, delayed=False)
    assert [(first_entry_id, len(replaced)) for first_entry_id, replaced in changes] == [(10, 1), (20, 1)]


def test_a_read_only_bookie_is_replaced_at_once_all_the_same() -> None:
    (change,) = fragments_after(failed=1, delayed=True, status=Status.READ_ONLY)
    assert len(change[1]) == 1
