"""A bookie of a page for the client's tests: entries in dictionaries, answers at once, misbehaviour on demand.

It keeps the rules a client relies on (key, fence, order) and speaks both protocol versions through the real codec.

    rule    called with every request; returns what to do with it: None (serve it), a Status (answer that),
            SILENCE (never answer), HOLD (answer when `release` is called), CLOSE (end the connection), LET_NOBODY_IN
            (answer as before TLS or authentication), a dictionary (answer OK with these fields)
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.connecting import metadata_settings
from bookkeeper.config import ClientSettings
from bookkeeper.metadata.memory.store import MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT, BookieId, BookieMode, BookieServiceInfo, Endpoint, Status
from bookkeeper.wire import messages
from bookkeeper.wire.availability import encode_availability
from bookkeeper.wire.codec import ServerCodec
from bookkeeper.wire.digest import lac_of
from bookkeeper.wire.framing import FRAME_ALLOWANCE, LENGTH_SIZE
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess
from tests.support.simulated_network import SimulatedNetwork

SILENCE, HOLD, CLOSE, LET_NOBODY_IN = object(), object(), object(), object()
PORT = 3181

BAD_VERSION_IN_V2 = struct.pack(">iBBhiqq", 24, 2, 2, 0, 103, -1, -1)
"""An answer to a read."""

Rule = Callable[[Any], object]


class FakeBookie:
    """One bookie: its memory survives `crash` and `restart`, as a disk does."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.bookie_id = BookieId(f"{name}:{PORT}")
        self.entries: dict[int, dict[int, bytes]] = {}
        self.keys: dict[int, bytes] = {}
        self.fenced: set[int] = set()
        self.explicit_lacs: dict[int, bytes] = {}
        self.rule: Rule = lambda request: None
        self.requests: list[Any] = []
        self.held: list[tuple[_Connection, Any]] = []
        self.pollers: list[tuple[_Connection, messages.LongPollRead]] = []
        self.version_3 = True
        self.hangs_up = True  # on v3 where it does not speak that; else it answers in v2, as Apache's of 4.2 do
        self.told_lac: int | None = None  # told beside entries instead of the one it knows (v3)
        self.free_bytes = 600
        self.process: SimulatedProcess
        self.store: MemoryMetadataStore
        self.start()

    def start(self) -> None:
        cluster = self.cluster
        self.process = SimulatedProcess(self.name, cluster.clock)
        network = cluster.network.host(self.process, self.name)
        network.listen(self.name, PORT, lambda: _Connection(self))
        self.store = MemoryMetadataStore(cluster.metadata, self.process.clock, random.Random(self.name))
        info = BookieServiceInfo((Endpoint("b", self.name, PORT, "bookie-rpc"),))
        self.store.registration.register(self.bookie_id, info, BookieMode.WRITABLE)

    def crash(self) -> None:
        """kill -9; the registration lingers."""
        self.process.crash()
        self.store.crash()

    def leave(self) -> None:
        """Stop in order: the registration goes."""
        self.store.registration.unregister(self.bookie_id)
        self.store.close()
        self.process.crash()

    def release(self) -> None:
        """Serve what was held."""
        held, self.held = self.held, []
        for connection, request in held:
            connection.serve(request)

    def wake(self) -> None:
        """Something changed: answer the long polls that it concerns."""
        pollers, self.pollers = self.pollers, []
        for connection, request in pollers:
            connection.poll(request)

    def payload_count(self, ledger_id: int) -> int:
        return len(self.entries.get(ledger_id, {}))


class _Connection:
    def __init__(self, bookie: FakeBookie) -> None:
        self.bookie = bookie
        cluster = bookie.cluster
        allowance = LENGTH_SIZE + FRAME_ALLOWANCE if cluster.strict_frames else 0
        self.codec = ServerCodec(cluster.frame_size_max - allowance)
        self.transport: Any = None

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport

    def connectionLost(self, reason: Any) -> None:
        self.transport = None

    def dataReceived(self, data: bytes) -> None:
        for request in self.codec.receive(data):
            if self.codec.version == 3 and not self.bookie.version_3:
                if self.bookie.hangs_up:
                    self.transport.abortConnection()
                else:
                    self.send(BAD_VERSION_IN_V2)
                return
            self.bookie.requests.append(request)
            verdict = self.bookie.rule(request)
            if verdict is HOLD:
                self.bookie.held.append((self, request))
            elif verdict is CLOSE:
                self.transport.abortConnection()
                return
            elif verdict is LET_NOBODY_IN:
                self.send(self.codec.unauthorized(request))
            elif isinstance(verdict, dict):
                self.send(self.codec.reply(request, Status.OK, **verdict))
            elif isinstance(verdict, Status):
                self.send(self.codec.reply(request, verdict))
            elif verdict is not SILENCE:
                self.serve(request)
        assert not self.codec.pending
        if self.codec.error is not None and self.bookie.cluster.strict_frames and self.transport is not None:
            self.transport.abortConnection()
            return
        assert self.codec.error is None, self.codec.error

    def send(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def serve(self, request: Any) -> None:
        bookie, reply = self.bookie, self.codec.reply
        match request:
            case messages.AddBatch():
                if bookie.keys.setdefault(request.ledger_id, request.master_key) != request.master_key:
                    self.send(reply(request, Status.UNAUTHORIZED))
                elif request.ledger_id in bookie.fenced and not request.recovery:
                    self.send(reply(request, Status.FENCED))
                else:
                    held = bookie.entries.setdefault(request.ledger_id, {})
                    held.update(zip(request.entry_ids, request.bodies, strict=True))
                    self.send(reply(request, Status.OK))
                    bookie.wake()
            case messages.ReadBatch():
                results = [self.find(request.ledger_id, entry_id) for entry_id in request.entry_ids]
                told = self.known_lac(request.ledger_id) if bookie.told_lac is None else bookie.told_lac
                self.send(b"".join(self.codec.read_replies(request, results, told)))
            case messages.FenceRead():
                key = bookie.keys.setdefault(request.ledger_id, request.master_key or b"")
                if request.master_key != key:
                    self.send(reply(request, Status.UNAUTHORIZED))
                    return
                bookie.fenced.add(request.ledger_id)
                bookie.wake()
                found = self.find(request.ledger_id, request.entry_id)
                if isinstance(found, Status):
                    self.send(reply(request, found))
                else:
                    self.send(reply(request, Status.OK, body=found))
            case messages.ReadLac():
                found = self.find(request.ledger_id, -1)
                explicit = bookie.explicit_lacs.get(request.ledger_id)
                if isinstance(found, Status) and explicit is None:
                    self.send(reply(request, found))
                else:
                    last = None if isinstance(found, Status) else found
                    self.send(reply(request, Status.OK, explicit_lac=explicit, last_entry=last))
            case messages.WriteLac():
                bookie.explicit_lacs[request.ledger_id] = request.body
                self.send(reply(request, Status.OK))
                bookie.wake()
            case messages.LongPollRead():
                self.poll(request)
                if (self, request) in bookie.pollers:
                    bookie.process.clock.callLater((request.timeout_ms or 0) / 1000, self.expire, request)
            case messages.BatchRead():
                self.send(self.batch(request))
            case messages.ListEntries():
                held = sorted(bookie.entries.get(request.ledger_id, ()))
                runs = [range(entry_id, entry_id + 1) for entry_id in held]
                status = Status.OK if held else Status.NO_LEDGER
                self.send(reply(request, status, availability=encode_availability(runs) if held else None))
            case messages.BookieInfo():
                self.send(reply(request, Status.OK, total_bytes=1000, free_bytes=bookie.free_bytes))
            case messages.Auth():
                self.send(reply(request, Status.OK, plugin="AuthDisabledPlugin"))
            case _:
                self.send(reply(request, Status.BAD_REQUEST))

    def poll(self, request: messages.LongPollRead) -> None:
        """Answer it, or keep it until there is something to say."""
        bookie, ledger_id = self.bookie, request.ledger_id
        known = self.known_lac(ledger_id)
        if known is None:
            self.send(self.codec.reply(request, Status.NO_LEDGER))
            return
        if ledger_id in bookie.explicit_lacs:
            known = max(known, struct.unpack(">qq", bookie.explicit_lacs[ledger_id][:16])[1])
        if known <= request.previous_lac and request.timeout_ms and ledger_id not in bookie.fenced:
            bookie.pollers.append((self, request))
            return
        body = bookie.entries[ledger_id].get(request.previous_lac + 1) if known > request.previous_lac else None
        self.send(self.codec.reply(request, Status.OK, body=body, max_lac=known))

    def expire(self, request: messages.LongPollRead) -> None:
        """The time of a long poll is up."""
        if (self, request) in self.bookie.pollers:
            self.bookie.pollers.remove((self, request))
            self.send(self.codec.reply(request, Status.OK, max_lac=self.known_lac(request.ledger_id)))

    def batch(self, request: messages.BatchRead) -> bytes:
        """Consecutive entries, at least one, within the bounds of the request."""
        bodies: list[bytes] = []
        size = 0
        while request.count_max <= 0 or len(bodies) < request.count_max:
            found = self.find(request.ledger_id, request.first_entry_id + len(bodies))
            if isinstance(found, Status):
                if not bodies:
                    return self.codec.reply(request, found)
                break
            size += len(found) + 4
            if bodies and 0 < request.size_max < size:
                break
            bodies.append(found)
        return self.codec.reply(request, Status.OK, bodies=bodies)

    def find(self, ledger_id: int, entry_id: int) -> bytes | Status:
        held = self.bookie.entries.get(ledger_id)
        if not held:
            return Status.NO_ENTRY if ledger_id in self.bookie.keys else Status.NO_LEDGER
        return held.get(max(held) if entry_id < 0 else entry_id, Status.NO_ENTRY)

    def known_lac(self, ledger_id: int) -> int | None:
        held = self.bookie.entries.get(ledger_id)
        return max(map(lac_of, held.values())) if held else None


class FakeCluster:
    """Fake bookies, the simulated network and the real metadata store in memory, on one simulated clock.

    frame_size_max: the bookies' limit. strict_frames: bookies close a connection at a longer frame, as Apache's do.
    """

    def __init__(
        self,
        bookie_count: int = 3,
        *,
        seed: int = 1,
        frame_size_max: int = FRAME_SIZE_MAX_DEFAULT,
        strict_frames: bool = False,
    ) -> None:
        self.frame_size_max, self.strict_frames = frame_size_max, strict_frames
        self.rng = random.Random(seed)
        self.clock = SimulatedClock()
        self.network = SimulatedNetwork(self.clock, random.Random(seed))
        self.metadata = MemoryMetadata()
        self.bookies = [FakeBookie(self, f"b{number}") for number in range(1, bookie_count + 1)]
        self._clients = 0

    def by_id(self, bookie_id: str) -> FakeBookie:
        return next(bookie for bookie in self.bookies if bookie.bookie_id == bookie_id)

    def client(
        self, settings: ClientSettings | None = None, *, faults: MemoryFaults | None = None, **options: Any
    ) -> LedgerClient:
        self._clients += 1
        process = SimulatedProcess(f"client{self._clients}", self.clock)
        settings = settings or ClientSettings(explicit_lac_interval_s=0.0)
        store = MemoryMetadataStore(
            self.metadata, process.clock, random.Random(self._clients), faults, settings=metadata_settings(settings)
        )
        return LedgerClient(
            store,
            self.network.host(process, process.name),
            process.clock,
            random.Random(self._clients),
            settings,
            owns_store=True,
            **options,
        )

    def wait(self, work: Any, *, seconds: float = 300.0) -> Any:
        """Run the clock until a Deferred or coroutine has its result; return or raise it."""
        deferred = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
        outcome: list[Any] = []
        deferred.addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=seconds), f"no result within {seconds} simulated s"
        result = outcome[0]
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result

    def run(self, seconds: float) -> None:
        """Let exactly so much simulated time pass."""
        over: list[None] = []
        self.clock.callLater(seconds, over.append, None)
        self.clock.run_until(lambda: bool(over), seconds=seconds)
