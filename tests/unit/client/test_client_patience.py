"""How long the client waits for whom, and what happens then."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.client.bookies.reachability import REFUSAL_S
from bookkeeper.client.write.explicit_lac import DOUBLINGS_MAX
from bookkeeper.config import ClientSettings
from bookkeeper.errors import NotEnoughBookies, RequestTimedOut
from bookkeeper.wire.messages import AddBatch, WriteLac
from tests.support.fake_bookie import HOLD, SILENCE, FakeCluster

ALL = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2}


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def test_a_bookie_that_answers_no_add_does_not_hold_up_handles_that_sent_it_nothing() -> None:
    """L-2: its connection is full and not silent, so that only the missing answers tell."""
    cluster = FakeCluster(4)
    client = cluster.client(settings(connection_bytes_max=100_000, add_timeout_s=5.0, add_quorum_timeout_s=1.0))
    busy = cluster.wait(client.create(bookies=[bookie.bookie_id for bookie in cluster.bookies[:3]], **ALL))
    other = cluster.wait(client.create(bookies=[bookie.bookie_id for bookie in cluster.bookies[:3]], **ALL))
    cluster.wait(other.append(b"0"))
    stuck = cluster.bookies[0]
    stuck.rule = lambda request: SILENCE if isinstance(request, AddBatch) else None
    busy.append_batch_nowait([b"x" * 1000] * 120)
    cluster.run(0.1)
    busy.abort()  # no caller waits for these answers any more
    reader = cluster.wait(client.open_without_recovery(other.id))
    ready = other.ready()
    for _ in range(30):
        cluster.wait(reader.try_read_last_confirmed())  # over the same connection, which is not silent by that
        cluster.run(0.4)
    assert ready.called


def test_a_bookie_that_is_kept_full_and_answers_keeps_its_connection() -> None:
    """Writers that always have more would else cut off a busy bookie every `add_timeout_s`, and change ensembles."""
    cluster = FakeCluster(4)
    client = cluster.client(settings(connection_bytes_max=100_000, add_timeout_s=5.0))
    members = [bookie.bookie_id for bookie in cluster.bookies[:3]]
    busy, other = (cluster.wait(client.create(bookies=members, **ALL)) for _ in range(2))
    for bookie in cluster.bookies:
        bookie.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    for _ in range(10):
        busy.append_batch_nowait([b"x" * 1000] * 120)
        cluster.run(0.1)
        ready = other.ready()
        cluster.run(1.9)
        assert not ready.called
        for bookie in cluster.bookies:
            bookie.release()
        cluster.wait(ready)
        cluster.run(0.1)
    assert len(busy.metadata.fragments) == 1


def test_a_shorter_timeout_is_not_kept_waiting_by_a_longer_one() -> None:
    cluster = FakeCluster(1)
    client = cluster.client(settings(read_timeout_s=60.0, add_timeout_s=60.0, info_timeout_s=1.0))
    ledger = cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1))
    (bookie,) = cluster.bookies
    cluster.wait(ledger.append(b"0"))
    bookie.rule = lambda request: None if isinstance(request, AddBatch) else SILENCE
    lac = ledger.read_handle.read_last_confirmed()
    started = cluster.clock.seconds()
    with pytest.raises(RequestTimedOut):
        cluster.wait(client.bookie_info(bookie.bookie_id))
    assert cluster.clock.seconds() - started < 2.0
    lac.addErrback(lambda _: None)


def test_a_bookie_that_seemed_to_have_no_v3_is_asked_again_after_a_while() -> None:
    """A connection cut at the wrong moment looks the same as a bookie that does not speak the protocol."""
    cluster = FakeCluster(1)
    client = cluster.client(settings(explicit_lac_interval_s=1.0))
    ledger = cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1))
    (bookie,) = cluster.bookies
    bookie.version_3 = False
    cluster.wait(ledger.append(b"0"))
    cluster.run(10.0)
    bookie.version_3 = True
    cluster.run(REFUSAL_S)
    cluster.wait(ledger.append(b"1"))
    cluster.run(10.0)
    assert ledger.id in bookie.explicit_lacs


def test_an_explicit_lac_that_too_few_bookies_took_is_written_again() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(explicit_lac_interval_s=1.0, add_timeout_s=2.0))
    ledger = cluster.wait(client.create(**ALL))
    cluster.wait(ledger.append(b"0"))
    for bookie in cluster.bookies:
        bookie.rule = lambda request: SILENCE if isinstance(request, WriteLac) else None
    cluster.run(4.0)
    assert not any(bookie.explicit_lacs for bookie in cluster.bookies)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
    cluster.run(10.0)
    assert all(ledger.id in bookie.explicit_lacs for bookie in cluster.bookies)


def test_an_explicit_lac_that_no_bookie_takes_is_sent_again_at_a_bounded_rate() -> None:
    """L-9. After six attempts it was given up, so readers saw the entries only with the next one."""
    cluster = FakeCluster()
    client = cluster.client(settings(explicit_lac_interval_s=1.0, add_timeout_s=2.0))
    ledger = cluster.wait(client.create(**ALL))
    cluster.wait(ledger.append(b"0"))
    for bookie in cluster.bookies:
        bookie.rule = lambda request: SILENCE if isinstance(request, WriteLac) else None
    cluster.run(10_000.0)
    for bookie in cluster.bookies:
        sent = sum(isinstance(request, WriteLac) for request in bookie.requests)
        assert DOUBLINGS_MAX < sent <= DOUBLINGS_MAX + 10_000 / 2**DOUBLINGS_MAX
        bookie.rule = lambda request: None
    cluster.run(2.0**DOUBLINGS_MAX + 4.0)
    assert all(ledger.id in bookie.explicit_lacs for bookie in cluster.bookies)
    assert cluster.wait(ledger.append(b"1")) == 1


def test_an_explicit_lac_is_sent_later_if_no_bookie_could_be_asked() -> None:
    """Protocol v3 counts as refused for a time after a connection ended at once, as a busy bookie's may."""
    cluster = FakeCluster()
    client = cluster.client(settings(explicit_lac_interval_s=1.0, add_timeout_s=2.0))
    ledger = cluster.wait(client.create(**ALL))
    for bookie in cluster.bookies:
        bookie.version_3 = False
    cluster.wait(ledger.append(b"0"))
    cluster.run(10.0)
    for bookie in cluster.bookies:
        bookie.version_3 = True
    cluster.run(REFUSAL_S + 2.0**DOUBLINGS_MAX)
    assert all(ledger.id in bookie.explicit_lacs for bookie in cluster.bookies)


def test_racks_that_are_insisted_on_are_had_or_the_ledger_is_not_made() -> None:
    cluster = FakeCluster(4)
    racks = {bookie.bookie_id: "/near" for bookie in cluster.bookies}
    racks[cluster.bookies[3].bookie_id] = "/far"
    insisting = settings(enforce_racks_per_write_quorum=True)
    client = cluster.client(insisting, rack_of=racks.__getitem__)
    ledger = cluster.wait(client.create(ensemble=2, write_quorum=2, ack_quorum=2))
    assert cluster.bookies[3].bookie_id in ledger.metadata.last_fragment.ensemble
    with pytest.raises(NotEnoughBookies, match="networkTopologyFile"):
        cluster.wait(client.create(ensemble=4, write_quorum=2, ack_quorum=2))
    cluster.wait(ledger.append(b"0"))
    cluster.bookies[3].crash()
    with pytest.raises(NotEnoughBookies, match="racks"):
        cluster.wait(ledger.append(b"1"))
