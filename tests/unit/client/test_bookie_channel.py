"""Connections to bookies: opened on demand, backed off, authenticated, closed when idle."""

from typing import Any

import pytest

from bookkeeper.client.bookies import pending_requests as channels
from bookkeeper.client.bookies.connection import WRITE_SIZE
from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    AuthenticationRefused,
    BookieUnavailable,
    ConnectionLost,
    EntryUnreadable,
    NotEnoughBookies,
    NotSupportedByBookie,
    RequestNotSent,
    RequestTimedOut,
)
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch, Auth, ReadBatch
from tests.support.fake_bookie import SILENCE, FakeCluster
from tests.support.simulated_network import SimulatedTransport


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def written(cluster: FakeCluster, client: Any, count: int = 10) -> Any:
    ledger = cluster.wait(client.create(ensemble=2, write_quorum=2, ack_quorum=2))
    cluster.wait(ledger.append_many([b"x"] * count))
    return ledger


def connections(cluster: FakeCluster) -> int:
    return len(cluster.network.connections)


def test_no_connection_is_made_before_something_is_sent() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    cluster.wait(client.available_bookies())
    cluster.run(1.0)
    assert connections(cluster) == 0
    ledger = cluster.wait(client.create(ensemble=2, write_quorum=2, ack_quorum=2))  # connects to ask the bookies
    cluster.wait(ledger.append(b"x"))
    assert connections(cluster) == 2


def test_a_lost_connection_is_made_again_by_the_next_request() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings())
    ledger = written(cluster, client)
    cluster.wait(ledger.close())
    for connection in list(cluster.network.connections):
        connection.cut()
    cluster.run(1.0)
    assert connections(cluster) == 0
    handle = cluster.wait(client.open(ledger.ledger_id))
    assert len(cluster.wait(handle.read(0, 9))) == 10


def test_a_request_right_after_the_end_of_an_idle_connection_connects_again() -> None:
    """A bookie closes idle connections. There is only one bookie, so no other bookie can answer."""
    cluster = FakeCluster(1)
    client = cluster.client(settings(reconnect_delay_min_s=600.0, reconnect_delay_max_s=600.0))
    ledger = cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1))
    cluster.wait(ledger.append(b"x"))
    for end in ("read", "append"):
        [connection] = cluster.network.connections
        connection.cut()
        cluster.run(0.01)
        assert connections(cluster) == 0
        if end == "read":
            assert len(cluster.wait(ledger.read(0, 0))) == 1
        else:
            assert cluster.wait(ledger.append(b"y")) == 1


def test_a_connection_that_ends_fails_what_is_outstanding_as_unknown() -> None:
    """Unknown is never "no": the read goes on at the other replica, the add causes an ensemble change."""
    cluster = FakeCluster(3)
    client = cluster.client(settings())
    ledger = written(cluster, client)
    silent = cluster.by_id(ledger.metadata.last_fragment.ensemble[0])
    silent.rule = lambda request: SILENCE if isinstance(request, AddBatch | ReadBatch) else None
    pending, reading = ledger.append(b"y"), ledger.read(0, 9)
    cluster.run(0.1)
    for connection in list(cluster.network.connections):
        if silent.name in (end.host for end in connection.ends):
            connection.cut()
    assert cluster.wait(pending) == 10
    assert len(cluster.wait(reading)) == 10
    assert silent.bookie_id not in ledger.metadata.last_fragment.ensemble


def test_a_dead_bookie_costs_one_connect_timeout_then_nothing() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings(connect_timeout_s=3.0, reconnect_delay_min_s=60.0, reconnect_delay_max_s=60.0))
    ledger = written(cluster, client)
    cluster.wait(ledger.close())
    handle = cluster.wait(client.open(ledger.ledger_id))
    cluster.bookies[0].crash()
    cluster.wait(handle.read(0, 9))
    began = cluster.clock.seconds()
    for _ in range(20):
        cluster.wait(handle.read(0, 9))
    assert cluster.clock.seconds() - began < 1.0


@pytest.mark.parametrize("use_v2", [True, False])
def test_a_bookie_that_did_not_answer_in_time_is_left_alone_for_a_while(use_v2: bool) -> None:
    """The connection has nothing else outstanding when the client ends it; a back-off follows all the same."""
    cluster = FakeCluster(1)
    delays = settings(use_v2=use_v2, read_timeout_s=5.0, reconnect_delay_min_s=600.0, reconnect_delay_max_s=600.0)
    client = cluster.client(delays)
    ledger = cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1))
    cluster.wait(ledger.append_many([b"x"] * 10))
    cluster.wait(ledger.close())
    handle = cluster.wait(client.open(ledger.ledger_id))
    assert len(cluster.wait(handle.read(0, 9))) == 10
    cluster.bookies[0].rule = lambda request: SILENCE
    with pytest.raises(EntryUnreadable):
        cluster.wait(handle.read(0, 9))
    began = cluster.clock.seconds()
    with pytest.raises(EntryUnreadable):
        cluster.wait(handle.read(0, 9))
    assert cluster.clock.seconds() - began < 1.0


def test_a_bookie_that_registers_anew_is_tried_at_once() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings(reconnect_delay_min_s=600.0, reconnect_delay_max_s=600.0))
    ledger = written(cluster, client)
    bookie = cluster.by_id(ledger.metadata.last_fragment.ensemble[0])
    bookie.leave()
    with pytest.raises(NotEnoughBookies):
        cluster.wait(ledger.append(b"y"))
    bookie.start()
    cluster.run(1.0)
    again = written(cluster, client)
    assert bookie.bookie_id in again.metadata.last_fragment.ensemble


def test_an_idle_connection_is_closed_and_opened_again_when_needed() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings(idle_connection_s=30.0))
    ledger = written(cluster, client)
    assert connections(cluster) == 2
    cluster.run(100.0)
    assert connections(cluster) == 0
    assert cluster.wait(ledger.append(b"y")) == 10
    assert len(ledger.metadata.fragments) == 1


def test_credentials_go_first_when_a_plugin_is_configured() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings(auth_provider="tests.support.auth_plugins:token_client"))
    written(cluster, client)
    for bookie in cluster.bookies:
        assert isinstance(bookie.requests[0], Auth)
        assert (bookie.requests[0].plugin, bookie.requests[0].payload) == ("token", b"secret")


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
def test_refused_credentials_are_told(use_v2: bool) -> None:
    cluster = FakeCluster(2)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: Status.UNAUTHORIZED if isinstance(request, Auth) else None
    provider = "tests.support.auth_plugins:token_client"
    client = cluster.client(settings(auth_provider=provider, use_v2=use_v2, connect_timeout_s=2.0, add_timeout_s=2.0))
    # In v2 there is no refusal: this bookie stays silent, as one does that was never asked.
    with pytest.raises(NotEnoughBookies if use_v2 else AuthenticationRefused):
        cluster.wait(client.create(ensemble=2, write_quorum=2, ack_quorum=2))


def test_disk_space_is_asked_over_v3_and_missing_v3_is_told() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings())
    info = cluster.wait(client.bookie_info("b1:3181"))
    assert (info.total_bytes, info.free_bytes) == (1000, 600)
    cluster.bookies[1].version_3 = False
    with pytest.raises(NotSupportedByBookie, match="b2:3181 does not speak protocol v3"):
        cluster.wait(client.bookie_info("b2:3181"))
    cluster.bookies[0].crash()
    cluster.run(5.0)
    with pytest.raises(BookieUnavailable):
        cluster.wait(cluster.client(settings()).bookie_info("b1:3181"))


def test_a_bookie_that_is_nowhere_is_named() -> None:
    cluster = FakeCluster(1)
    with pytest.raises(BookieUnavailable, match="bookie nowhere is not registered and its id is no host:port"):
        cluster.wait(cluster.client(settings()).bookie_info("nowhere"))


def test_a_peer_that_is_no_bookie_is_given_up() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings())

    class Babbler:
        def makeConnection(self, transport: Any) -> None:
            transport.write(b"\xff" * 100)

        def dataReceived(self, data: bytes) -> None:
            pass

        def connectionLost(self, reason: Any) -> None:
            pass

    for listener in cluster.network.listeners.values():
        listener.accept = Babbler
    with pytest.raises(NotEnoughBookies, match="broke the protocol"):
        cluster.wait(client.create(ensemble=2, write_quorum=2, ack_quorum=2))


class Asking:
    """Asks one bookie for entries and notes what comes."""

    def __init__(self, channel: Any, ledger_id: int, entry_ids: Any) -> None:
        self.found: list[int] = []
        self.unknown: list[tuple[list[int], type]] = []
        channel.read(self, ledger_id, entry_ids)

    def on_bodies(self, bookie_id: Any, entry_ids: list[int], bodies: list[bytes], max_lac: int | None) -> None:
        self.found += entry_ids

    def on_read_status(self, bookie_id: Any, entry_id: int, status: Status) -> None:
        raise AssertionError(f"entry {entry_id}: {status}")

    def on_read_unknown(self, bookie_id: Any, entry_ids: list[int], error: Exception) -> None:
        self.unknown.append((entry_ids, type(error)))


@pytest.fixture
def few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "READS_MAX", 4)
    monkeypatch.setattr(channels, "READS_WAITING_MAX", 30)


def channel_of(cluster: FakeCluster, **values: Any) -> tuple[Any, int]:
    client = cluster.client(settings(**values))
    ledger = cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1))
    cluster.wait(ledger.append_many([b"x"] * 20))
    return client._context.channel(cluster.bookies[0].bookie_id), ledger.id  # noqa: SLF001


@pytest.mark.usefixtures("few_reads")
def test_reads_beyond_what_may_be_outstanding_wait_for_their_turn() -> None:
    cluster = FakeCluster(1)
    channel, ledger_id = channel_of(cluster)
    (bookie,) = cluster.bookies
    outstanding: list[int] = []

    def note(request: Any) -> object:
        if isinstance(request, ReadBatch):
            outstanding.append(len(request.entry_ids))
        return None

    bookie.rule = note
    asked = [
        Asking(channel, ledger_id, range(10)),
        Asking(channel, ledger_id, [12, 11]),
        Asking(channel, ledger_id, [3]),
    ]
    cluster.run(1.0)
    assert [sorted(asking.found) for asking in asked] == [list(range(10)), [11, 12], [3]]
    assert (max(outstanding), sum(outstanding)) == (4, 13)


@pytest.mark.usefixtures("few_reads")
def test_reads_that_wait_too_long_time_out_and_too_many_are_refused() -> None:
    cluster = FakeCluster(1)
    channel, ledger_id = channel_of(cluster, read_timeout_s=5.0)
    cluster.bookies[0].rule = lambda request: SILENCE
    first, refused = Asking(channel, ledger_id, range(20)), Asking(channel, ledger_id, range(15))
    cluster.run(0.5)
    assert [kind for _, kind in refused.unknown] == [RequestNotSent]
    cluster.run(10.0)
    assert sorted(entry_id for entry_ids, _ in first.unknown for entry_id in entry_ids) == list(range(20))
    assert RequestTimedOut in {kind for _, kind in first.unknown}


def test_a_read_that_was_never_sent_blames_no_bookie() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings())
    ledger = written(cluster, client)
    cluster.wait(ledger.close())
    reader = cluster.wait(client.open(ledger.id))
    bookie_id = cluster.bookies[0].bookie_id

    def chosen() -> set[str]:
        ledgers = [cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1)) for _ in range(20)]
        return {ledger.metadata.last_fragment.ensemble[0] for ledger in ledgers}

    reading = reader.start_read(0, 5)
    reading.result.addErrback(lambda _: None)
    reading.on_read_unknown(bookie_id, [0], RequestNotSent("waited", bookie_id=bookie_id))
    assert bookie_id in chosen()
    reading = reader.start_read(0, 5)
    reading.result.addErrback(lambda _: None)
    reading.on_read_unknown(bookie_id, [1], RequestTimedOut("silent", bookie_id=bookie_id))
    assert bookie_id not in chosen()


@pytest.mark.usefixtures("few_reads")
def test_reads_that_wait_are_told_when_the_connection_ends() -> None:
    cluster = FakeCluster(1)
    channel, ledger_id = channel_of(cluster)
    cluster.bookies[0].rule = lambda request: SILENCE
    asking = Asking(channel, ledger_id, range(10))
    cluster.run(0.5)
    for link in list(cluster.network.connections):
        link.cut()
    cluster.run(0.5)
    assert asking.unknown == [([0, 1, 2, 3], ConnectionLost), ([4, 5, 6, 7, 8, 9], ConnectionLost)]


def _write_sizes(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> list[int]:
    """Sizes of the writes of the client's connections from now on; bookies write answers, which are small."""
    sizes: list[int] = []
    write = SimulatedTransport.write

    def note(transport: SimulatedTransport, data: bytes) -> None:
        if transport.host not in {bookie.name for bookie in cluster.bookies}:
            sizes.append(len(data))
        write(transport, data)

    monkeypatch.setattr(SimulatedTransport, "write", note)
    return sizes


def test_what_waits_for_a_paused_transport_leaves_in_writes_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """One write of all of it would copy megabytes twice: once to join them, once to keep what the socket leaves."""
    cluster = FakeCluster(1)
    client = cluster.client(settings())
    ledger = cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1))
    entries = [bytes([number % 251]) * 10_000 for number in range(300)]
    sizes = _write_sizes(monkeypatch, cluster)
    cluster.wait(ledger.append_many(entries))
    assert sum(sizes) > 3_000_000
    assert WRITE_SIZE <= max(sizes) < WRITE_SIZE + 20_000
    assert [entry.payload for entry in cluster.wait(ledger.read(0, 299))] == entries


def test_what_waited_for_a_connection_that_ended_is_not_sent_over_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told as unknown; sent later it could land behind a recovery (I-48)."""
    cluster = FakeCluster(1)
    channel, ledger_id = channel_of(cluster, reconnect_delay_min_s=1.0, reconnect_delay_max_s=1.0)
    (bookie,) = cluster.bookies

    for connection in list(cluster.network.connections):
        connection.cut()
    cluster.run(5.0)
    write = SimulatedTransport.write

    def end_at_once(transport: SimulatedTransport, data: bytes) -> None:
        write(transport, data)
        if transport.host != bookie.name:
            monkeypatch.setattr(SimulatedTransport, "write", write)
            transport.protocol.abort(ConnectionLost("gone in the middle", bookie_id=bookie.bookie_id))

    monkeypatch.setattr(SimulatedTransport, "write", end_at_once)
    bookie.requests.clear()
    asked = [Asking(channel, ledger_id, [number % 20] * 1000) for number in range(40)]
    cluster.run(0.1)
    assert [[(len(ids), error) for ids, error in each.unknown] for each in asked] == [[(1000, ConnectionLost)]] * 40
    cluster.run(60.0)
    again = Asking(channel, ledger_id, [3])
    cluster.run(1.0)
    assert (again.found, again.unknown) == ([3], [])
    assert [list(request.entry_ids) for request in bookie.requests if isinstance(request, ReadBatch)] == [[3]]
