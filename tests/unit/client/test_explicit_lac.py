"""Explicit LACs: sent when a writer pauses, within the interval; not in a stream; bounded; never beyond the LAC."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs

from bookkeeper.client.write import explicit_lac
from bookkeeper.client.write.explicit_lac import BUSY_PAUSE_S, BUSY_WRITES_MAX, PATIENT_PER_S, WRITES_MAX
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import LedgerFencedOff
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch, WriteLac
from tests.support.fake_bookie import CLOSE, HOLD, FakeCluster

SHAPE = {"ensemble": 3, "write_quorum": 2, "ack_quorum": 2}
BUSY_PER_S = BUSY_WRITES_MAX / BUSY_PAUSE_S


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 1.0, **values})


def create(cluster: FakeCluster, client: Any, count: int) -> list[WriteHandle]:
    return [cluster.wait(client.create(**SHAPE)) for _ in range(count)]


def sent(cluster: FakeCluster) -> list[tuple[int, int]]:
    """Return ledger and LAC of every WRITE_LAC so far; each arrives at a write quorum."""
    return [
        (request.ledger_id, int.from_bytes(request.body[8:16]))
        for bookie in cluster.bookies
        for request in bookie.requests
        if isinstance(request, WriteLac)
    ]


class Publishing:
    """A busy client: appends an entry every `pause_s`, to the ledgers in turn."""

    def __init__(self, cluster: FakeCluster, ledgers: list[WriteHandle], pause_s: float) -> None:
        self._cluster, self._ledgers, self._pause_s = cluster, ledgers, pause_s
        self.count = 0
        self.stopped = False
        self._publish()

    def _publish(self) -> None:
        if not self.stopped:
            self._ledgers[self.count % len(self._ledgers)].append_nowait(b"x")
            self.count += 1
            self._cluster.clock.callLater(self._pause_s, self._publish)


def test_a_writer_that_pauses_sends_its_lac_once_within_the_interval() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    [ledger] = create(cluster, client, 1)
    for offset in range(20):  # at any phase of the sweeps
        ledger.append_batch_nowait([b"x"] * 100)
        cluster.run(1.0)
        reader = cluster.wait(client.open_without_recovery(ledger.id))
        assert cluster.wait(reader.read_last_confirmed()) == ledger.last_add_confirmed == offset * 100 + 99
        cluster.run(0.013 * offset)
    assert Counter(sent(cluster)) == {(ledger.id, offset * 100 + 99): 2 for offset in range(20)}


def test_a_steady_stream_sends_no_lac_and_its_pause_one() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    ledgers = create(cluster, client, 5)
    publishing = Publishing(cluster, ledgers, 0.1)  # an entry per ledger and 0.5 s
    cluster.run(60.0)
    assert sent(cluster) == []
    publishing.stopped = True
    cluster.run(1.1)
    assert Counter(sent(cluster)) == {(ledger.id, ledger.last_add_confirmed): 2 for ledger in ledgers}


def test_handles_whose_lac_was_sent_cost_nothing() -> None:
    cluster = FakeCluster()
    ledgers = create(cluster, cluster.client(settings(idle_connection_s=10_000.0)), 50)
    for ledger in ledgers:
        cluster.wait(ledger.append(b"x"))
    cluster.run(60.0)
    before = cluster.clock.steps
    cluster.run(1000.0)
    assert cluster.clock.steps <= before + 1


def test_an_interval_of_0_sends_no_lac() -> None:
    cluster = FakeCluster()
    [ledger] = create(cluster, cluster.client(settings(explicit_lac_interval_s=0.0)), 1)
    cluster.wait(ledger.append(b"x"))
    cluster.run(1000.0)
    assert sent(cluster) == []


def check_sent_within(cluster: FakeCluster, ledgers: list[WriteHandle], bound_s: float) -> None:
    """Check that the LACs of all ledgers are sent within `bound_s`, and at most BUSY_PER_S in any second."""
    began = cluster.clock.seconds()
    before = 0
    wanted = {(ledger.id, ledger.last_add_confirmed) for ledger in ledgers}
    per_second = []
    while not wanted <= set(sent(cluster)):
        assert cluster.clock.seconds() < began + bound_s
        cluster.run(0.25)
        now = len(sent(cluster)) // 2
        per_second.append((now - before) * 4)
        before = now
    assert max(per_second) <= BUSY_PER_S * 1.1


def test_lacs_of_n_paused_ledgers_are_sent_within_n_800ths_s_while_others_write() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    busy, *ledgers = create(cluster, client, 2001)
    publishing = Publishing(cluster, [busy], 0.02)
    for ledger in ledgers:
        ledger.append_nowait(b"x")
    cluster.run(0.1)
    check_sent_within(cluster, ledgers, len(ledgers) / 800)
    publishing.stopped = True
    assert max(Counter(sent(cluster)).values()) == 2, "each LAC once, to two bookies"


def test_lacs_of_many_ledgers_are_sent_at_once_when_the_whole_client_pauses() -> None:
    cluster = FakeCluster()
    ledgers = create(cluster, cluster.client(settings()), 2000)
    for ledger in ledgers:
        ledger.append_nowait(b"x")
    cluster.run(1.1)
    assert set(sent(cluster)) == {(ledger.id, 0) for ledger in ledgers}


def test_many_ledgers_written_in_turn_carry_their_lacs_in_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the interval, a thousand topics with a message per 1.5 s have paused; but each is written to again soon."""
    monkeypatch.setattr(explicit_lac, "PATIENT_PER_S", 250)
    cluster = FakeCluster()
    ledgers = create(cluster, cluster.client(settings()), 1000)
    publishing = Publishing(cluster, ledgers, 0.0015)
    cluster.run(5.0)
    early = len(sent(cluster))  # before the sweeps have counted the paused handles
    cluster.run(6.0)
    assert len(sent(cluster)) == early
    publishing.stopped = True
    cluster.run(1.5)
    assert {(ledger.id, ledger.last_add_confirmed) for ledger in ledgers} <= set(sent(cluster))


def test_one_paused_ledger_among_many_busy_ones_is_not_delayed() -> None:
    cluster = FakeCluster()
    paused, *ledgers = create(cluster, cluster.client(settings()), 500)
    publishing = Publishing(cluster, ledgers, 0.001)
    cluster.run(3.0)
    paused.append_nowait(b"x")
    cluster.run(1.05)
    assert (paused.id, 0) in sent(cluster)
    publishing.stopped = True


@pytest.mark.parametrize("seed", range(20))
def test_no_lac_is_beyond_the_last_acknowledged_entry(seed: int) -> None:
    """I-07: also for handles that are closed, aborted or fenced; after that nothing is sent."""
    rng = random.Random(seed)
    cluster = FakeCluster()
    client, other = (cluster.client(settings(add_timeout_s=1000.0)) for _ in range(2))
    ledgers = create(cluster, client, 6)
    ended: dict[int, int] = {}

    def release() -> None:
        for bookie in cluster.bookies:
            bookie.rule = lambda _: None
            bookie.release()

    for _ in range(60):
        ledger = rng.choice(ledgers)
        act = rng.random()
        if ledger.id not in ended and act < 0.7:
            ledger.append_batch_nowait([b"x"] * rng.randint(1, 5))
        elif ledger.id not in ended and act < 0.9:
            release()
            match rng.randrange(3):
                case 0:
                    cluster.wait(ledger.close())
                case 1:
                    ledger.abort()
                case _:
                    cluster.wait(other.open(ledger.id))
                    with suppress(LedgerFencedOff):
                        ledger.append_nowait(b"too late")
            cluster.run(0.2)
            ended[ledger.id] = sum(ledger_id == ledger.id for ledger_id, _ in sent(cluster))
        if rng.random() < 0.3:
            rng.choice(cluster.bookies).rule = lambda request: HOLD if isinstance(request, AddBatch) else None
        elif rng.random() < 0.3:
            release()
        cluster.run(rng.choice([0.0, 0.1, 0.5, 2.0]))
        known: dict[int, int] = {each.id: each.last_add_confirmed for each in ledgers}
        for ledger_id, lac in sent(cluster):
            assert 0 <= lac <= known[ledger_id]
        for ledger_id, count in ended.items():
            assert sum(each == ledger_id for each, _ in sent(cluster)) == count
    release()
    cluster.run(2.0)
    assert {(each.id, each.last_add_confirmed) for each in ledgers if each.id not in ended} - {
        (each.id, -1) for each in ledgers
    } <= set(sent(cluster))


def test_a_bookie_that_refuses_explicit_lacs_as_unknown_is_asked_once_and_logged_once() -> None:
    cluster = FakeCluster()
    [ledger] = create(cluster, cluster.client(settings()), 1)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: Status.BAD_REQUEST if isinstance(request, WriteLac) else None
    with capturedLogs() as logs:
        for _ in range(100):
            cluster.wait(ledger.append(b"x"))
            cluster.run(2.0)
    for bookie in cluster.bookies:
        assert sum(isinstance(request, WriteLac) for request in bookie.requests) == 1
    lines = [event for event in logs if "explicit LAC" in event["log_format"] and event["log_level"] >= LogLevel.info]
    assert sorted(event["bookie_id"] for event in lines) == sorted(bookie.bookie_id for bookie in cluster.bookies)
    assert ledger.error is None


def test_a_bookie_of_protocol_v2_alone_is_tried_8_times_an_hour_and_logged_once() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    [ledger] = create(cluster, client, 1)
    for bookie in cluster.bookies:
        bookie.version_3 = False
    with capturedLogs() as logs:
        for _ in range(3600):
            cluster.wait(ledger.append(b"x"))
            cluster.run(1.0)
    for bookie in cluster.bookies:
        assert client.context.v3_channel(bookie.bookie_id).connect_count <= 8
    lines = [event for event in logs if "explicit LAC" in event["log_format"] and event["log_level"] >= LogLevel.info]
    assert sorted(event["bookie_id"] for event in lines) == sorted(bookie.bookie_id for bookie in cluster.bookies)
    assert len(ledger.metadata.fragments) == 1


def test_a_bookie_that_breaks_off_on_an_explicit_lac_leaves_the_handle_working() -> None:
    cluster = FakeCluster()
    [ledger] = create(cluster, cluster.client(settings()), 1)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: CLOSE if isinstance(request, WriteLac) else None
    for _ in range(20):
        cluster.wait(ledger.append(b"x"))
        cluster.run(2.0)
    assert ledger.error is None
    assert len(ledger.metadata.fragments) == 1


def test_the_bounds_make_topics_divided_by_800_s() -> None:
    assert 1 / PATIENT_PER_S + 1 / BUSY_PER_S <= 1 / 800
    assert WRITES_MAX >= BUSY_WRITES_MAX


@pytest.mark.parametrize("status", [Status.TOO_MANY_REQUESTS, Status.READ_ONLY, Status.IO_ERROR])
def test_a_lac_that_bookies_refuse_for_now_is_sent_again(status: Status) -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    [ledger] = create(cluster, client, 1)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: status if isinstance(request, WriteLac) else None
    cluster.wait(ledger.append(b"x"))
    cluster.run(3.0)
    refused = len(sent(cluster))
    assert refused > 0
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
    cluster.run(10.0)
    assert len(sent(cluster)) > refused
    reader = cluster.wait(client.open_without_recovery(ledger.id))
    assert reader.last_add_confirmed == 0


def test_a_new_lac_does_not_wait_for_the_retry_of_an_older_one() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    [ledger] = create(cluster, client, 1)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: CLOSE if isinstance(request, WriteLac) else None
    cluster.wait(ledger.append(b"x"))
    cluster.run(130.0)  # retries are 64 s apart now
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
    cluster.wait(ledger.append(b"y"))
    cluster.run(1.0)
    assert (ledger.id, 1) in sent(cluster)


@pytest.mark.parametrize(("count", "pause_s"), [(500, 1.0), (800, 1.5)])
def test_ledgers_that_pause_repeatedly_are_counted_once(
    count: int, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    ledgers = create(cluster, client, count)
    publishing = Publishing(cluster, ledgers, pause_s / count)
    cluster.run(6 * pause_s)
    publishing.stopped = True
    busy = Publishing(cluster, create(cluster, client, 1), 0.01)
    cluster.run(max(1.0, count / 800) + 0.1)
    busy.stopped = True
    newest = dict(sorted(sent(cluster)))
    late = [each.id for each in ledgers if newest.get(each.id, -1) < each.last_add_confirmed]
    assert late == []
