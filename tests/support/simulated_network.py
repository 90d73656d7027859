"""The simulator's network: TCP between simulated processes, with the faults of real ones.

Per direction the bytes arrive in order, after random delays, in pieces of random size. Faults: a connection cut (bytes
in flight are lost on both sides), a partition between two hosts (bytes stall, new connections time out), a slow link.
Every random choice comes from the given generator; `faults` counts what was done.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.python.failure import Failure

from bookkeeper.errors import ConnectFailed
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess

SEND_BUFFER_HIGH = 64 * 1024
"""Unsent bytes above which a registered producer is paused (Twisted's own figure)."""

IN_FLIGHT_MAX = 256 * 1024
"""Bytes one direction of a connection carries at a time: the socket buffers of both sides."""


class SimulatedNetwork:
    """All hosts and connections of one simulation. `host(process, name)` gives a process its `Network` port."""

    def __init__(self, clock: SimulatedClock, rng: random.Random, *, latency_max_s: float = 0.002) -> None:
        self.clock, self.rng, self.latency_max_s = clock, rng, latency_max_s
        self.listeners: dict[tuple[str, int], _Listener] = {}
        self.connections: list[_Connection] = []
        self.partitions: set[frozenset[str]] = set()
        self.slow: dict[frozenset[str], float] = {}
        self.faults: Counter[str] = Counter()
        self.next_port = 10_000
        self.send_buffer_high, self.in_flight_max = SEND_BUFFER_HIGH, IN_FLIGHT_MAX

    def host(self, process: SimulatedProcess, name: str) -> HostNetwork:
        """The port of one process on host `name`. When the process dies its sockets close."""
        network = HostNetwork(self, process, name)
        process.on_crash(lambda: self._on_process_dead(process))
        return network

    def _on_process_dead(self, process: SimulatedProcess) -> None:
        for key, listener in list(self.listeners.items()):
            if listener.process is process:
                del self.listeners[key]
        for connection in list(self.connections):
            if process in (connection.ends[0].process, connection.ends[1].process):
                connection.cut()

    # --- faults

    def partition(self, a: str, b: str) -> None:
        """Nothing passes between hosts a and b until `heal`."""
        self.partitions.add(frozenset((a, b)))
        self.faults["partition"] += 1

    def heal(self) -> None:
        """End all partitions and slow links."""
        self.partitions.clear()
        self.slow.clear()
        for connection in list(self.connections):
            for end in connection.ends:
                end.release()

    def make_slow(self, a: str, b: str, delay_s: float) -> None:
        """Everything between a and b takes up to `delay_s` longer."""
        self.slow[frozenset((a, b))] = delay_s
        self.faults["slow link"] += 1

    def cut_some_connection(self) -> bool:
        """Reset one random established connection. False when there is none."""
        if not self.connections:
            return False
        self.rng.choice(self.connections).cut()
        self.faults["connection cut"] += 1
        return True

    def delay(self, a: str, b: str) -> float:
        """A random delay for one piece between two hosts, in seconds."""
        extra = self.slow.get(frozenset((a, b)), 0.0)
        return self.rng.random() * (self.latency_max_s + extra)


class HostNetwork:
    """The `Network` port of one process."""

    def __init__(self, network: SimulatedNetwork, process: SimulatedProcess, name: str) -> None:
        self._network, self._process, self.name = network, process, name

    def connect(self, host: str, port: int, protocol: Any, *, timeout_s: float) -> Deferred[None]:
        network, connected = self._network, Deferred[None]()

        def refuse(why: str) -> None:
            if not connected.called:
                connected.errback(ConnectFailed(f"cannot connect to {host}:{port}: {why}"))

        def arrive() -> None:
            if frozenset((self.name, host)) in network.partitions:
                return  # the SYN is lost; the timeout speaks
            listener = network.listeners.get((host, port))
            if listener is None or not listener.process.alive:
                self._process.clock.callLater(network.delay(self.name, host), refuse, "connection refused")
                return
            server_protocol = listener.accept()
            connection = _Connection(network, self, listener)
            network.connections.append(connection)
            client_end, server_end = connection.ends
            client_end.protocol, server_end.protocol = protocol, server_protocol
            server_protocol.makeConnection(server_end)
            self._process.clock.callLater(network.delay(self.name, host), established, connection)

        def established(connection: _Connection) -> None:
            if connected.called or connection.dead:
                connection.cut()
                refuse("connection reset")
                return
            timeout.cancel()
            connection.ends[0].up = True
            protocol.makeConnection(connection.ends[0])
            connection.ends[1].pump()
            connected.callback(None)

        timeout = self._process.clock.callLater(timeout_s, refuse, f"no answer within {timeout_s} s")
        # The listener's side runs in the listener's process: schedule it in the world's clock.
        network.clock.callLater(network.delay(self.name, host), arrive)

        def stop_timer(result: Any) -> Any:
            if timeout.active():
                timeout.cancel()
            return result

        return connected.addErrback(stop_timer)

    def listen(self, host: str, port: int, accept: Callable[[], Any]) -> Deferred[Any]:
        if port == 0:
            self._network.next_port += 1
            port = self._network.next_port
        if (self.name, port) in self._network.listeners:
            failed: Deferred[Any] = Deferred()
            failed.errback(OSError(98, f"address already in use: {self.name}:{port}"))
            return failed
        listener = _Listener(self._network, self._process, self.name, port, accept)
        self._network.listeners[(self.name, port)] = listener
        return succeed(listener)


class _Listener:
    def __init__(
        self, network: SimulatedNetwork, process: SimulatedProcess, host: str, port: int, accept: Callable[[], Any]
    ) -> None:
        self._network, self.process, self.host, self.port, self.accept = network, process, host, port, accept

    def stop(self) -> Deferred[None]:
        self._network.listeners.pop((self.host, self.port), None)
        return succeed(None)


class _Connection:
    def __init__(self, network: SimulatedNetwork, client: HostNetwork, listener: _Listener) -> None:
        self.network, self.dead = network, False
        client_end = SimulatedTransport(self, client._process, client.name)  # noqa: SLF001 - same module
        server_end = SimulatedTransport(self, listener.process, listener.host)
        client_end.peer, server_end.peer = server_end, client_end
        server_end.up = True
        self.ends = (client_end, server_end)

    def cut(self, reason: Exception | None = None) -> None:
        """Both sides hear of the end, each in its own time; bytes in flight are lost."""
        if self.dead:
            return
        self.dead = True
        self.network.connections.remove(self)
        for end in self.ends:
            end.lose(reason or TransportLost("connection reset"))


class SimulatedTransport:
    """One end of a connection: what a Twisted protocol sees as its transport."""

    def __init__(self, connection: _Connection, process: SimulatedProcess, host: str) -> None:
        self._connection, self.process, self.host = connection, process, host
        self.peer: SimulatedTransport
        self.protocol: Any = None
        self.up = False
        self.disconnecting = False
        self._unsent = bytearray()
        self._in_flight = 0
        self._last_arrival = 0.0
        self._arrived: list[bytes] = []
        self._reading = True
        self._stalled: list[bytes] = []
        self._producer: Any = None
        self._producer_paused = False
        self._told = False

    # --- what the protocol calls

    def write(self, data: bytes) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"write of {type(data).__name__}")
        if self._connection.dead or self.disconnecting:
            return
        self._unsent += data
        self.pump()
        high = self._network.send_buffer_high
        if self._producer is not None and not self._producer_paused and len(self._unsent) > high:
            self._producer_paused = True
            self._producer.pauseProducing()

    def writeSequence(self, parts: Any) -> None:
        self.write(b"".join(parts))

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def loseConnection(self) -> None:
        self.disconnecting = True
        self._close_if_drained()

    def abortConnection(self) -> None:
        self._connection.cut()

    def pauseProducing(self) -> None:
        self._reading = False

    def resumeProducing(self) -> None:
        self._reading = True
        self._deliver()
        self.peer.pump()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming
        self._producer, self._producer_paused = producer, False

    def unregisterProducer(self) -> None:
        self._producer = None

    def getPeer(self) -> str:
        return f"{self.peer.host} (simulated)"

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Nothing to do here."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Nothing to do here."""

    # --- moving bytes

    def pump(self) -> None:
        """Send what fits into the network, in random pieces."""
        network = self._connection.network
        stalled = frozenset((self.host, self.peer.host)) in network.partitions
        while self._unsent and self.peer.up and not stalled and not self._connection.dead:
            room = network.in_flight_max - self._in_flight - self.peer.unread
            if room <= 0:
                return
            size = min(len(self._unsent), room)
            if size > 1 and network.rng.random() < 0.3:
                size = network.rng.randint(1, size)
            piece = bytes(self._unsent[:size])
            del self._unsent[:size]
            self._in_flight += size
            now = network.clock.seconds()
            self._last_arrival = max(self._last_arrival, now + network.delay(self.host, self.peer.host))
            network.clock.callLater(self._last_arrival - now, self._arrive, piece)
        if self._producer is not None and self._producer_paused and len(self._unsent) <= network.send_buffer_high // 2:
            self._producer_paused = False
            if self._is_asleep:
                self.process.clock.callLater(0.0, self._resume_producer)
            else:
                self._producer.resumeProducing()
        self._close_if_drained()

    @property
    def _network(self) -> SimulatedNetwork:
        return self._connection.network

    @property
    def _is_asleep(self) -> bool:
        return self.process.asleep_until > self._network.clock.seconds()

    def _resume_producer(self) -> None:
        if self._producer is not None and not self._producer_paused and not self._connection.dead:
            self._producer.resumeProducing()

    def _arrive(self, piece: bytes) -> None:
        if self._connection.dead:
            return
        network = self._connection.network
        if frozenset((self.host, self.peer.host)) in network.partitions:
            self._stalled.append(piece)  # TCP retransmits it once the partition ends, unless the connection dies first
            return
        self._in_flight -= len(piece)
        self.peer._receive(piece)  # noqa: SLF001 - same class
        self.pump()

    def release(self) -> None:
        """The partition is over: what was stalled arrives, in order, then the rest is sent."""
        stalled, self._stalled = self._stalled, []
        now = self._connection.network.clock.seconds()
        for piece in stalled:
            self._last_arrival = max(self._last_arrival, now + 0.001)
            self._connection.network.clock.callLater(self._last_arrival - now, self._arrive, piece)
        self.pump()

    def _receive(self, piece: bytes) -> None:
        self._arrived.append(piece)
        self._deliver()

    def _deliver(self) -> None:
        if self._is_asleep:  # the bytes wait in the kernel
            self.process.clock.callLater(0.0, self._awake)
            return
        while self._arrived and self._reading and not self._connection.dead and self.process.alive:
            self.protocol.dataReceived(self._arrived.pop(0))

    def _awake(self) -> None:
        self._deliver()
        self.peer.pump()

    @property
    def unread(self) -> int:
        """Bytes that arrived, and that the protocol has not taken."""
        return sum(map(len, self._arrived))

    def _close_if_drained(self) -> None:
        if self.disconnecting and not self._unsent and not self._in_flight:
            self._connection.cut(ConnectionDone())

    def lose(self, reason: Exception) -> None:
        """Tell the protocol once, after a random delay, that the connection is gone."""
        self._unsent.clear()
        self._arrived.clear()
        if self._told or not self.up:
            return
        self._told = True
        network = self._connection.network

        def tell() -> None:
            if self.process.alive:
                self.protocol.connectionLost(Failure(reason))

        self.process.clock.callLater(network.delay(self.host, self.peer.host), tell)
