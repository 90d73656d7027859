"""Worker threads and loopback connections under a reactor of the test's own."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.selectreactor import SelectReactor

from bookkeeper.errors import ConnectFailed
from bookkeeper.runtime import KEEPALIVE_IDLE_S, TcpOptions, ThreadWorker, TwistedNetwork

LIMIT_S = 60


@pytest.fixture
def reactor() -> Iterator[SelectReactor]:
    own = SelectReactor()
    yield own
    for reader in own.removeAll():
        reader.connectionLost(None) if hasattr(reader, "abortConnection") else None


def run(reactor: SelectReactor, until: Deferred[Any]) -> Any:
    """Run the reactor until the Deferred fires; its result, or its error raised."""
    results: list[Any] = []

    def done(result: Any) -> None:
        results.append(result)
        reactor.crash()

    until.addBoth(done)
    if not results:
        timer = reactor.callLater(LIMIT_S, reactor.crash)
        reactor.run(installSignalHandlers=False)
        if timer.active():
            timer.cancel()
    assert results, "nothing happened in time"
    if hasattr(results[0], "raiseException"):
        results[0].raiseException()
    return results[0]


class Recorder:
    """A StreamProtocol that keeps what it saw."""

    def __init__(self, on_data: Callable[["Recorder"], None] = lambda _: None) -> None:
        self.transport: Any = None
        self.data = b""
        self.lost = 0
        self.on_data = on_data
        self.on_lost: Deferred[None] = Deferred()

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        self.on_data(self)

    def connectionLost(self, reason: Any) -> None:
        self.lost += 1
        self.on_lost.callback(None)


# --- workers


def test_work_runs_in_order_on_a_named_thread_and_callbacks_on_the_reactor(reactor: SelectReactor):
    worker = ThreadWorker(reactor, "journal-0")
    events: list[tuple[str, object]] = []
    threads: list[threading.Thread] = []

    def work(number: int) -> int:
        threads.append(threading.current_thread())
        if number == 2:
            raise OSError(5, "the disk is gone")
        return number

    main = threading.current_thread()
    for number in range(4):
        worker.submit(
            lambda number=number: work(number),
            lambda result: events.append(("done", result, threading.current_thread() is main)),
            lambda error: events.append(("failed", type(error), threading.current_thread() is main)),
        )
    run(reactor, worker.stop())
    assert events == [("done", 0, True), ("done", 1, True), ("failed", OSError, True), ("done", 3, True)]
    assert {thread.name for thread in threads} == {"journal-0"}
    assert all(thread.daemon for thread in threads)
    with pytest.raises(RuntimeError, match="journal-0"):
        worker.submit(lambda: None, lambda _: None, lambda _: None)


def test_a_worker_can_be_stopped_twice(reactor: SelectReactor):
    worker = ThreadWorker(reactor, "w")
    first, second = worker.stop(), worker.stop()
    fired: list[int] = []
    first.addCallback(lambda _: fired.append(1))
    run(reactor, second)
    assert fired == [1]


# --- network


@pytest.mark.parametrize("options", [TcpOptions(), TcpOptions(no_delay=False, keepalive=False)])
def test_bytes_go_both_ways_with_the_socket_options_set(reactor: SelectReactor, options: TcpOptions):
    network = TwistedNetwork(reactor, options)
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder(lambda server: server.transport.write(b"echo " + server.data)))
        return accepted[-1]

    listener = run(reactor, network.listen("127.0.0.1", 0, accept))
    assert listener.host == "127.0.0.1"
    assert listener.port > 0
    answered: Deferred[None] = Deferred()
    client = Recorder(lambda me: answered.callback(None) if me.data == b"echo hello" else None)
    run(reactor, network.connect("127.0.0.1", listener.port, client, timeout_s=LIMIT_S))
    assert client.transport is not None
    client.transport.write(b"hello")
    run(reactor, answered)
    for transport in (client.transport, accepted[0].transport):
        assert bool(transport.inner.getTcpNoDelay()) == options.no_delay
        assert bool(transport.inner.getTcpKeepAlive()) == options.keepalive
        idle_s = transport.inner.getHandle().getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert (idle_s == KEEPALIVE_IDLE_S) == options.keepalive, "else a machine that died is noticed after two hours"
    run(reactor, listener.stop())
    client.transport.loseConnection()
    run(reactor, accepted[0].on_lost)
    run(reactor, client.on_lost)
    assert (client.lost, accepted[0].lost) == (1, 1)


def connected(reactor: SelectReactor, server: Recorder, client: Recorder) -> Any:
    """Connect the two; the listener."""
    network = TwistedNetwork(reactor)
    listener = run(reactor, network.listen("127.0.0.1", 0, lambda: server))
    run(reactor, network.connect("127.0.0.1", listener.port, client, timeout_s=LIMIT_S))
    while server.transport is None:
        reactor.iterate(0.1)
    return listener


def disconnect(reactor: SelectReactor, listener: Any, server: Recorder, client: Recorder) -> None:
    run(reactor, listener.stop())
    client.transport.loseConnection()
    run(reactor, client.on_lost)
    run(reactor, server.on_lost)


def test_a_write_leaves_in_the_turn_that_makes_it(reactor: SelectReactor):
    server, client = Recorder(), Recorder()
    listener = connected(reactor, server, client)
    client.transport.write(b"now")
    select.select([server.transport.inner.socket], [], [], LIMIT_S)
    assert server.transport.inner.socket.recv(100) == b"now"  # no turn of the reactor in between
    disconnect(reactor, listener, server, client)


def test_writes_to_a_slow_reader_arrive_whole_and_in_order(reactor: SelectReactor):
    """What the socket does not take waits in Twisted's buffer, and later writes behind it."""
    pieces = [bytes([number % 251]) * (1 + number * 7919 % 90_000) for number in range(400)]
    expected = b"".join(pieces)
    complete: Deferred[None] = Deferred()
    chunks: list[bytes] = []
    received = 0

    class Reader(Recorder):
        def dataReceived(self, data: bytes) -> None:
            nonlocal received
            chunks.append(data)
            received += len(data)
            if received >= len(expected):
                complete.callback(None)

    server, client = Reader(), Recorder()
    listener = connected(reactor, server, client)
    server.transport.pauseProducing()
    client.transport.inner.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    for piece in pieces[:250]:
        client.transport.write(piece)
    assert client.transport.inner in reactor.getWriters()  # the socket is full
    server.transport.resumeProducing()

    def more(first: int) -> None:
        for piece in pieces[first : first + 10]:
            client.transport.writeSequence([piece[:5], piece[5:]])
        if first + 10 < len(pieces):
            reactor.callLater(0, more, first + 10)

    more(250)
    run(reactor, complete)
    assert b"".join(chunks) == expected
    disconnect(reactor, listener, server, client)


def test_bytes_that_the_socket_does_not_take_are_counted_until_it_does(reactor: SelectReactor):
    size = 16 * 1024 * 1024
    complete: Deferred[None] = Deferred()
    received = 0

    class Reader(Recorder):
        def dataReceived(self, data: bytes) -> None:
            nonlocal received
            received += len(data)
            if received == size + 1000:
                complete.callback(None)

    server, client = Reader(), Recorder()
    listener = connected(reactor, server, client)
    server.transport.pauseProducing()
    client.transport.inner.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    assert client.transport.unsent_bytes == 0
    client.transport.write(bytes(size))
    waiting = client.transport.unsent_bytes
    assert client.transport.inner in reactor.getWriters()  # the socket is full
    assert 0 < waiting <= size
    client.transport.write(bytes(1000))
    assert client.transport.unsent_bytes == waiting + 1000
    server.transport.resumeProducing()
    run(reactor, complete)
    assert client.transport.unsent_bytes == 0
    disconnect(reactor, listener, server, client)


@pytest.mark.parametrize("shape", [(300, 10_000, 4), (1500, 4_096, 0), (2, 2_000_000, 1)])
def test_large_pieces_are_sent_from_where_they_are_and_arrive_in_order(
    reactor: SelectReactor, shape: tuple[int, int, int]
):
    """Also where the socket takes only a part of them, ends in the middle of one, or is given more than IOV_MAX."""
    count, size, head = shape
    sequences = [[bytes([turn]) * head + bytes([n % 251]) * size for n in range(count)] for turn in range(3)]
    expected = b"".join(b"".join(parts) for parts in sequences)
    complete: Deferred[None] = Deferred()

    class Reader(Recorder):
        def dataReceived(self, data: bytes) -> None:
            super().dataReceived(data)
            if len(self.data) >= len(expected) and not complete.called:
                complete.callback(None)

    server, client = Reader(), Recorder()
    listener = connected(reactor, server, client)
    server.transport.pauseProducing()
    for parts in sequences:
        client.transport.writeSequence(parts)
    assert client.transport.inner in reactor.getWriters()  # the socket is full
    server.transport.resumeProducing()
    run(reactor, complete)
    assert bytes(server.data) == expected
    disconnect(reactor, listener, server, client)


def test_nothing_leaves_after_an_abort(reactor: SelectReactor):
    server, client = Recorder(), Recorder()
    listener = connected(reactor, server, client)
    client.transport.abortConnection()
    client.transport.write(b"too late")  # I-48
    client.transport.writeSequence([b"too late" * 1000, b"by far" * 1000])
    run(reactor, server.on_lost)
    assert server.data == b""
    run(reactor, listener.stop())


def test_a_write_to_a_peer_that_is_gone_is_told_as_a_lost_connection(reactor: SelectReactor):
    server, client = Recorder(), Recorder()
    listener = connected(reactor, server, client)
    server.transport.abortConnection()
    run(reactor, server.on_lost)
    for _ in range(3):
        client.transport.write(b"anybody there?")  # raises nothing
        client.transport.writeSequence([b"anybody" * 1000, b"there?" * 1000])
    run(reactor, client.on_lost)
    client.transport.write(b"after the end")
    assert client.lost == 1
    run(reactor, listener.stop())


def test_a_refused_connection_is_connect_failed(reactor: SelectReactor):
    network = TwistedNetwork(reactor)
    listener = run(reactor, network.listen("127.0.0.1", 0, Recorder))
    run(reactor, listener.stop())
    client = Recorder()
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{listener.port}: Connection refused$"):
        run(reactor, network.connect("127.0.0.1", listener.port, client, timeout_s=LIMIT_S))
    assert (client.transport, client.lost) == (None, 0)


def test_a_cancelled_connect_is_no_failure_of_the_peer(reactor: SelectReactor):
    """Whoever tries again after failures went on for ever when it was told to stop."""
    network = TwistedNetwork(reactor)
    listener = run(reactor, network.listen("127.0.0.1", 0, Recorder))
    attempt = network.connect("127.0.0.1", listener.port, Recorder(), timeout_s=LIMIT_S)
    attempt.cancel()
    with pytest.raises(CancelledError):
        run(reactor, attempt)
    run(reactor, listener.stop())


def test_a_taken_port_is_an_oserror_that_names_it(reactor: SelectReactor):
    network = TwistedNetwork(reactor)
    listener = run(reactor, network.listen("127.0.0.1", 0, Recorder))
    with pytest.raises(OSError, match=f"127.0.0.1:{listener.port}"):
        run(reactor, network.listen("127.0.0.1", listener.port, Recorder))
    run(reactor, listener.stop())
