"""The real worker threads and the real network: `ports.Worker` and `ports.Network` over a Twisted reactor.

`watch_turns` measures the reactor's longest turn, for the metrics of servers.

The only place where a thread of ours meets the reactor. The reactor is an argument; nothing here imports one.
"""

from __future__ import annotations

import errno
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet import protocol
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.error import CannotListenError, ConnectError
from twisted.python.failure import Failure

from bookkeeper.clock import clock_of
from bookkeeper.errors import ConnectFailed
from bookkeeper.ports import Clock, Listener, StreamProtocol, Timer

T = TypeVar("T")

GATHERED_SIZE_MIN = 4096
"""Pieces of this mean size are handed to the system one by one; below it a joined copy costs less than the list."""

GATHERED_COUNT_MAX = 1024
"""Pieces the system takes in one call (IOV_MAX of Linux)."""

KEEPALIVE_IDLE_S = 60
"""Without a byte from the peer, before the system asks whether it is there."""

KEEPALIVE_INTERVAL_S = 10
KEEPALIVE_COUNT = 6
"""Questions without an answer that end the connection."""

LISTEN_BACKLOG = 512
"""Connections that may wait to be accepted."""


def watch_turns(reactor: Any, seconds: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    """Return a function that returns the longest reactor turn since its last call, in seconds. May be called again.

    A turn is the time between two waits for events, in which no other event is served. A turn in progress counts for
    the next call. The result is NaN for a reactor without epoll, such as a reactor in tests.

    Twisted does not report turns. A timer that measures its own delay misses turns shorter than its period and wakes an
    idle server. So the clock is read before and after each wait, which takes 0.1 us per turn.
    """
    poller = getattr(reactor, "_poller", None)
    if poller is None:
        return lambda: math.nan
    if not isinstance(poller, _TimedPoller):
        poller = reactor._poller = _TimedPoller(poller, seconds)  # noqa: SLF001 - see above
    return poller.take_longest


class _TimedPoller:
    """The epoll object of a reactor, with the methods that Twisted calls. Measures the time between two waits."""

    def __init__(self, poller: Any, seconds: Callable[[], float]) -> None:
        self.register, self.modify, self.unregister = poller.register, poller.modify, poller.unregister
        self._wait, self._seconds = poller.poll, seconds
        self._began_s = seconds()
        self._longest_s = 0.0

    def poll(self, timeout: float, count_max: int) -> Any:
        """See select.epoll."""
        turn_s = self._seconds() - self._began_s
        if turn_s > self._longest_s:
            self._longest_s = turn_s
        try:
            return self._wait(timeout, count_max)
        finally:
            self._began_s = self._seconds()

    def take_longest(self) -> float:
        """Return the longest turn since the last call, in seconds."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s


class ThreadWorker:
    """A named daemon thread that runs pieces of work in order; their callbacks run on the reactor thread, in order.

    Thread: all methods on the reactor's. A daemon, so that a disk that hangs does not keep a dying process alive.
    """

    def __init__(self, reactor: Any, name: str) -> None:
        self.name = name
        self._call_from_thread = clock_of(reactor).callFromThread
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stopped: Deferred[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], object], on_error: Callable[[BaseException], object]
    ) -> None:
        """See ports.Worker."""
        if self._stopped is not None:
            raise RuntimeError(f"worker {self.name} was stopped and takes no more work")

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - handed to whoever submitted the work
                self._call_from_thread(on_error, error)
            else:
                self._call_from_thread(on_done, result)

        self._work.put(run)

    def stop(self) -> Deferred[None]:
        """See ports.Worker. A second call returns a Deferred of its own that fires with the first."""
        waiting: Deferred[None] = Deferred()
        if self._stopped is None:
            self._stopped = Deferred()
            self._work.put(None)
        self._stopped.chainDeferred(waiting)
        return waiting

    def _run(self) -> None:
        while (run := self._work.get()) is not None:
            run()
        self._call_from_thread(self._ended)

    def _ended(self) -> None:
        assert self._stopped is not None
        self._stopped.callback(None)


# --- network ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """Options of every connection.

    no_delay: Nagle's algorithm off. Group commit batches already; its wait would add 40 ms to a lone answer.
    keepalive: a peer that vanished without a word is noticed after some two minutes, also where nothing is being sent
    (KEEPALIVE_*; the system's own default is two hours).
    buffer_size: bytes that are read at once, and that wait to be written before a producer is paused; None: Twisted's
    own, 64 KiB.
    """

    no_delay: bool = True
    keepalive: bool = True
    buffer_size: int | None = None


class EagerTransport:
    """A TCP transport whose writes try the socket at once; what it does not take waits in Twisted's buffer as usual.

    Twisted alone sends in the next turn of the reactor: two epoll_ctl calls and a turn for every write, which at a few
    thousand writes a second are a tenth of a bookie's CPU, and the wait is part of every answer. Order is kept: while
    anything waits in the buffer, all writes go behind it.
    """

    __slots__ = (
        "_aborted",
        "getPeer",
        "inner",
        "loseConnection",
        "pauseProducing",
        "registerProducer",
        "resumeProducing",
        "unregisterProducer",
    )

    def __init__(self, transport: Any) -> None:
        self.inner = transport
        self._aborted = False
        self.getPeer = transport.getPeer
        self.loseConnection = transport.loseConnection
        self.pauseProducing = transport.pauseProducing
        self.registerProducer = transport.registerProducer
        self.resumeProducing = transport.resumeProducing
        self.unregisterProducer = transport.unregisterProducer

    @property
    def unsent_bytes(self) -> int:
        """See ports.Transport. Twisted frees the sent part of a piece only when little of the piece remains."""
        transport = self.inner
        size: int = len(transport.dataBuffer) + transport._tempDataLen  # noqa: SLF001 - not public
        return size

    def abortConnection(self) -> None:
        """Close at once; what is written from now on goes nowhere (I-48), as what still waits."""
        self._aborted = True
        self.inner.abortConnection()

    def write(self, data: bytes) -> None:
        """Send as much as the socket takes now, the rest when it takes more."""
        if self._aborted:
            return
        transport = self.inner
        waiting = transport.dataBuffer or transport._tempDataBuffer  # noqa: SLF001 - nothing public tells
        if transport.connected and not (waiting or transport.disconnecting or transport.TLS):
            sent = transport.writeSomeData(data)
            # Anything but a number is a broken connection: Twisted finds out by itself, and tells in a turn of its own.
            if isinstance(sent, int) and sent:
                if sent == len(data):
                    return
                data = data[sent:]
        transport.write(data)

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        """As `write`, of several pieces; large ones are sent from where they are, without being joined first."""
        size = sum(map(len, parts))
        if size < len(parts) * GATHERED_SIZE_MIN:
            self.write(b"".join(parts))
            return
        transport = self.inner
        waiting = transport.dataBuffer or transport._tempDataBuffer  # noqa: SLF001 - nothing public tells
        if transport.connected and not (waiting or transport.disconnecting or transport.TLS or self._aborted):
            try:
                sent = transport.socket.sendmsg(parts[:GATHERED_COUNT_MAX])
            except OSError:
                sent = 0  # full, or broken: Twisted finds out which, and tells in a turn of its own
            if sent == size:
                return
            parts = _behind(parts, sent)
        self.write(b"".join(parts))


def _behind(parts: Sequence[bytes], sent: int) -> Sequence[bytes]:
    """What is left of the pieces once so many of their bytes have gone."""
    for position, part in enumerate(parts):
        if sent < len(part):
            return (part[sent:], *parts[position + 1 :])
        sent -= len(part)
    return ()


def _set_keepalive(transport: Any, *, on: bool) -> None:
    transport.setTcpKeepAlive(on)
    if not on:
        return
    values = {"TCP_KEEPIDLE": KEEPALIVE_IDLE_S, "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S, "TCP_KEEPCNT": KEEPALIVE_COUNT}
    for name, value in values.items():
        if hasattr(socket, name):  # not every system has all of them
            transport.getHandle().setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Tuned:
    """Between a new connection and its protocol for one call: sets the socket options, then is out of the way.

    Twisted calls `dataReceived` and `connectionLost` on this object; both are the protocol's own methods.
    """

    def __init__(self, inner: StreamProtocol, options: TcpOptions, on_connected: Callable[[], None]) -> None:
        self._inner = inner
        self._options = options
        self._on_connected = on_connected
        self.dataReceived = inner.dataReceived
        self.connectionLost = inner.connectionLost

    def makeConnection(self, transport: Any) -> None:
        transport.setTcpNoDelay(self._options.no_delay)
        _set_keepalive(transport, on=self._options.keepalive)
        if self._options.buffer_size is not None:
            transport.bufferSize = self._options.buffer_size
        self._inner.makeConnection(EagerTransport(transport))
        self._on_connected()


class _Connecting(protocol.ClientFactory):
    """One outgoing connection.

    The timeout runs on our own clock: the reactor may be the caller's and follow the wall clock.
    """

    noisy = False

    def __init__(
        self, inner: StreamProtocol, options: TcpOptions, host: str, port: int, clock: Clock, timeout_s: float
    ) -> None:
        self._inner = inner
        self._options = options
        self._target = f"{host}:{port}"
        self._connector: Any = None
        self._cancelled = False
        self._timeout_s = timeout_s
        self._timer: Timer | None = clock.callLater(timeout_s, self._time_over)
        self.result: Deferred[None] = Deferred(self._cancel)

    def startedConnecting(self, connector: Any) -> None:
        self._connector = connector

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _time_over(self) -> None:
        self._timer = None
        self._fail(ConnectFailed(f"cannot connect to {self._target}: no connection within {self._timeout_s:g} s"))
        self._give_up()

    def _give_up(self) -> None:
        self._cancelled = True  # the connector's error after this is not a failure of the peer
        if self._connector is not None:
            self._connector.disconnect()

    def _fail(self, error: ConnectFailed) -> None:
        if not (self.result.called or self._cancelled):
            self.result.errback(error)

    def buildProtocol(self, addr: Any) -> Any:
        return _Tuned(self._inner, self._options, self._connected)

    def _connected(self) -> None:
        self._stop_timer()
        if not self.result.called:
            self.result.callback(None)

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self._stop_timer()
        error = ConnectFailed(f"cannot connect to {self._target}: {_why(reason)}")
        error.__cause__ = reason.value
        self._fail(error)

    def _cancel(self, _: Deferred[None]) -> None:
        self._stop_timer()
        self._give_up()


def _why(reason: Failure) -> str:
    """Why a connection failed; once, where Twisted would say it in its words, as a number and in the system's."""
    error = reason.value
    if isinstance(error, ConnectError) and isinstance(error.osError, int) and error.args:
        return str(error.args[0])
    return reason.getErrorMessage()


class _Accepting(protocol.ServerFactory):
    """One listening port."""

    noisy = False

    def __init__(self, accept: Callable[[], StreamProtocol], options: TcpOptions) -> None:
        self._accept = accept
        self._options = options

    def buildProtocol(self, addr: Any) -> Any:
        return _Tuned(self._accept(), self._options, _nothing)


def _nothing() -> None:
    """The server side has nobody to tell."""


class TwistedListener:
    """A bound port; see ports.Listener."""

    def __init__(self, port: Any) -> None:
        self._port = port
        address = port.getHost()
        self.host: str = address.host
        self.port: int = address.port

    def stop(self) -> Deferred[None]:
        """Accept no more; existing connections stay."""
        return maybeDeferred(self._port.stopListening).addCallback(lambda _: None)


class TwistedNetwork:
    """TCP of a reactor, with the same options on every connection. Thread: reactor."""

    def __init__(self, reactor: Any, options: TcpOptions = TcpOptions()) -> None:
        self._reactor, self._clock = reactor, clock_of(reactor)
        self._options = options

    def connect(self, host: str, port: int, protocol: StreamProtocol, *, timeout_s: float) -> Deferred[None]:
        """See ports.Network."""
        connecting = _Connecting(protocol, self._options, host, port, self._clock, timeout_s)
        self._reactor.connectTCP(host, port, connecting, timeout=None)
        return connecting.result

    def listen(self, host: str, port: int, accept: Callable[[], StreamProtocol]) -> Deferred[Listener]:
        """See ports.Network. host: address to bind, "" for all."""
        try:
            bound = self._reactor.listenTCP(
                port, _Accepting(accept, self._options), backlog=LISTEN_BACKLOG, interface=host
            )
        except CannotListenError as error:
            cause = error.socketError
            number = getattr(cause, "errno", None) or errno.EADDRNOTAVAIL
            text = f"cannot listen on {host or '*'}:{port}: {getattr(cause, 'strerror', None) or cause}"
            return fail(OSError(number, text))
        listener: Listener = TwistedListener(bound)
        return succeed(listener)
