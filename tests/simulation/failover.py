"""One run of replicas that take each other's place while everything breaks, then peace, then the reckoning.

    servers       processes with a journal on ledgers, an election and a state (all payloads, in order)
    callers       hand payloads to whoever is active, each payload once, and note what was acknowledged
    faults        servers killed (also by aim, in the middle of what they do with the metadata) or put to sleep, their
                  sessions ended, calls of the metadata failed or their answers lost, connections cut, bookies killed

Held all the time:
    I-80    a txid is acknowledged for one payload only; what an active acknowledges it may acknowledge
    I-85    the states of all servers are prefixes of one sequence, or differ only in what was never acknowledged
At the end:
    I-82    every acknowledged payload is in the journal, once, with the txid that was told
    I-81    the journal's txids have no gap and no overlap; all servers have the same state
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, succeed

from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.election import Election
from journalmgr.contract import RecordBatch
from journalmgr.edits.opcodes import OpCode
from journalmgr.model import FIRST_TXID
from journalmgr.replaying import replay
from journalmgr.replica import Replica, ReplicaSettings, Role
from tests.simulation.history import Violation
from tests.simulation.journals import NAMESPACE, ROOT, journal_of
from tests.simulation.world import METADATA_SETTINGS, SimulatedClient, World

SERVERS = 3
BOOKIES = 5
CALLERS = 3
FAULT_SECONDS = 12.0
PEACE_SECONDS = 120.0
LOCK = "/hadoop-ha/journal/lock"


@dataclass(slots=True)
class Outcome:
    """What a run did."""

    seed: int
    acknowledged: int = 0
    turns: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violation: BaseException | None = None


class State:
    """All payloads by txid, in order."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}
        self.open: set[int] = set()  # logged by this server itself, and not known to be durable

    def load(self) -> Deferred[int]:
        """There are no checkpoints: everything is replayed."""
        self.payloads.clear()
        self.open.clear()
        return succeed(0)

    def apply(self, batch: RecordBatch) -> None:
        """Transactions that others logged."""
        for record in batch.records:
            if record.opcode == OpCode.OPAQUE:
                self.payloads[record.txid] = record.body


class Server:
    """One server: a process at a time."""

    def __init__(self, run: FailoverRun, number: int) -> None:
        self.run, self.number = run, number
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start a process."""
        self.starts += 1
        self.client: SimulatedClient = self.run.world.add_client()
        self.state = State()
        self.journal = journal_of(self.client, ensemble=3, write_quorum=2)
        tree, clock = self.client.store.tree, self.client.process.clock
        rng = random.Random(f"roll/{self.run.seed}/{self.number}/{self.starts}")

        def stand(
            on_elected: Callable[[int], object],
            on_lost: Callable[[], object],
            on_failed: Callable[[BaseException], object],
        ) -> Election:
            return Election(
                tree,
                clock,
                METADATA_SETTINGS,
                LOCK,
                str(self.number).encode(),
                on_elected=on_elected,
                on_lost=on_lost,
                on_failed=on_failed,
            )

        self.replica = Replica(
            self.journal,
            self.state,
            stand,
            clock,
            settings=ReplicaSettings(roll_transactions=rng.choice((5, 20, 10_000)), roll_interval_s=1.0 + rng.random()),
            on_role=self._on_role,
            on_failed=lambda error: self.run.world.errors.append(Violation(f"server {self.number} ended: {error!r}")),
        )
        self.replica.start()

    def _on_role(self, role: Role) -> None:
        self.run.world.note(f"server {self.number}#{self.starts} is {role.value}")
        if role is Role.ACTIVE:
            self.run.outcome.turns += 1

    @property
    def alive(self) -> bool:
        """Its process lives."""
        return self.client.process.alive

    def kill(self) -> None:
        """kill -9, and a supervisor that starts it again after a while."""
        if not self.alive:
            return
        self.client.crash()
        self.run.world.faults["server killed"] += 1
        self.run.world.clock.callLater(0.05 + self.run.rng.random() * 2, self._restart)

    def _restart(self) -> None:
        if not self.alive:
            self.start()

    def sleep(self, for_s: float) -> None:
        """SIGSTOP and SIGCONT; the servers of the metadata end its session when it sleeps too long."""
        if not self.alive:
            return
        world, client = self.run.world, self.client
        world.faults["server asleep"] += 1
        client.process.sleep(for_s)
        timeout_s = METADATA_SETTINGS.session_timeout_s
        if for_s > timeout_s:
            session_id = client.store.tree.session_id
            world.clock.callLater(timeout_s, lambda: world.metadata.znodes.end_session(session_id))
            # It learns of that only a moment after it woke up, and may have done much by then.
            client.process.clock.callLater(for_s + self.run.rng.random() * 0.05, client.store.expire_session, 0.05)

    def kill_at_metadata_operation(self, count: int) -> None:
        """It dies as soon as it has sent its n-th next change of the metadata."""
        client, left = self.client, count

        def look(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                result = call(*arguments, **named)
                left -= 1
                if left == 0 and self.client is client and self.alive and not self.run.peace:
                    self.run.world.faults["server killed in a change of the metadata"] += 1
                    self.run.world.clock.callLater(self.run.rng.random() * 0.02, self.kill)
                return result

            return counted

        tree: Any = client.store.tree
        for name in ("create", "write", "delete"):
            setattr(tree, name, look(getattr(tree, name)))


class FailoverRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"failover/{seed}")
        self.world = World(seed, use_v2=self.rng.random() < 0.7)
        self.outcome = Outcome(seed)
        self.servers: list[Server] = []
        self.acknowledged: dict[int, bytes] = {}
        self._payloads = 0
        self.peace = False

    def run(self) -> Outcome:
        """Run it all; a violation ends it and is in the outcome."""
        try:
            self._run()
        except Violation as violation:
            self.outcome.violation = violation
        self.outcome.faults = self.world.all_faults()
        self.outcome.acknowledged = len(self.acknowledged)
        return self.outcome

    def _run(self) -> None:
        world = self.world
        for _ in range(BOOKIES):
            world.add_bookie()
        self._until(lambda: all(bookie.serves for bookie in world.bookies), 20.0, "the bookies to start")
        self._do(journal_of(world.add_client()).format(NAMESPACE), "the journal to be formatted")
        self.servers = [Server(self, number) for number in range(SERVERS)]
        for _ in range(CALLERS):
            world.spawn(self._call())
        self._schedule_faults()
        world.run_until(lambda: bool(world.errors), seconds=FAULT_SECONDS)
        self._check_errors()
        self._make_peace()
        before = len(self.acknowledged)
        self._until(lambda: len(self.acknowledged) > before + 5, PEACE_SECONDS, "somebody to be active again (L-1)")
        self._reckon()

    # --- callers

    async def _call(self) -> None:
        while True:
            active = [server for server in self.servers if server.alive and server.replica.role is Role.ACTIVE]
            if not active:
                await self.world.pause(0.05)
                continue
            server = self.rng.choice(active)
            if server.client.process.asleep_until > self.world.clock.seconds():
                await self.world.pause(0.05)  # it would not take a call either
                continue
            count = self.rng.choice((1, 1, 3, 20))
            for _ in range(count - 1):
                self._append(server)
            await self._append(server)
            await self.world.pause(self.rng.random() * self.rng.choice((0.02, 0.2)))

    def _append(self, server: Server) -> Deferred[Any]:
        """Log a payload on a server; what a dead one answers is nobody's answer."""
        self._payloads += 1
        payload = b"payload %d" % self._payloads
        client, state = server.client, server.state
        told: Deferred[Any] = Deferred()

        def tell(result: Any) -> None:
            if not told.called:
                told.callback(result)

        def acknowledged(txid: int) -> None:
            state.open.discard(txid)
            if client.process.alive:
                self._acknowledge(txid, payload)
            tell(txid)

        try:
            edit_log = server.replica.log
            txid = edit_log.log(OpCode.OPAQUE, payload)
        except BookKeeperError as error:
            return succeed(error)
        state.payloads[txid] = payload
        state.open.add(txid)
        edit_log.sync(txid).addCallbacks(acknowledged, lambda failure: tell(failure.value))
        server.replica.logged()
        client.process.on_crash(lambda: tell(None))  # its caller hears nothing, and goes on after a while
        return told

    def _acknowledge(self, txid: int, payload: bytes) -> None:
        other = self.acknowledged.setdefault(txid, payload)
        if other != payload:
            self.world.errors.append(Violation(f"I-80: txid {txid} was acknowledged for {other!r} and for {payload!r}"))

    # --- faults

    def _schedule_faults(self) -> None:
        faults = self.world.metadata_faults
        if self.rng.random() < 0.7:
            faults.failed_before_probability = 0.02
            faults.reply_lost_probability = 0.02
        if self.rng.random() < 0.4:
            faults.session_lost_probability = 0.005
        for _ in range(self.rng.randint(3, 10)):
            self.world.clock.callLater(self.rng.random() * FAULT_SECONDS, self._fault)
        self.world.step_walls_until(
            self.world.clock.seconds() + FAULT_SECONDS,
            lambda: [
                *(server.client.process for server in self.servers),
                *(bookie.process for bookie in self.world.bookies if bookie.process is not None),
            ],
        )

    def _fault(self) -> None:
        if self.peace:
            return
        rng = self.rng
        active = [server for server in self.servers if server.alive and server.replica.role is Role.ACTIVE]
        victim = rng.choice(active if active and rng.random() < 0.7 else self.servers)
        kind = rng.choice(("kill", "kill", "sleep", "sleep", "aimed", "expire", "cut", "bookie"))
        if kind == "kill":
            victim.kill()
        elif kind == "sleep":
            victim.sleep(rng.choice((0.2, 1.0, 2.0, 4.0)))
        elif kind == "aimed" and victim.alive:
            victim.kill_at_metadata_operation(rng.randint(1, 12))
            if rng.random() < 0.5 and victim.replica.role is Role.ACTIVE:
                victim.client.store.expire_session(0.05)
        elif kind == "expire" and victim.alive:
            victim.client.store.expire_session(rng.random())
        elif kind == "cut" and victim.alive:
            victim.client.store.cut_connection(rng.random() * 3)
        elif kind == "bookie":
            bookie = rng.choice(self.world.bookies)
            if all(other.serves for other in self.world.bookies):
                bookie.cut_power()
                self.world.clock.callLater(rng.random() * 2, bookie.ensure_running)

    def _make_peace(self) -> None:
        self.peace = True
        faults = self.world.metadata_faults
        faults.failed_before_probability = faults.reply_lost_probability = faults.session_lost_probability = 0.0
        for bookie in self.world.bookies:
            bookie.forget_faults()
            bookie.ensure_running()
        for server in self.servers:
            if not server.alive:
                server.start()

    # --- the reckoning

    def _reckon(self) -> None:
        stopped = [False]

        async def stop() -> None:
            for server in self.servers:
                await server.replica.stop()
            stopped[0] = True

        self.world.spawn(stop())
        self._until(lambda: stopped[0], PEACE_SECONDS, "the servers to stop")
        journal = journal_of(self.world.add_client())
        found: dict[int, bytes] = {}
        txids: list[int] = []

        async def read() -> None:
            await journal.recover_unfinalized()  # what a server could not end in order
            async for batch in replay(journal, FIRST_TXID):
                for record in batch.records:
                    txids.append(record.txid)
                    if record.opcode == OpCode.OPAQUE:
                        found[record.txid] = record.body

        self._do(Deferred.fromCoroutine(read()), "the journal to be read")
        if txids != list(range(1, len(txids) + 1)):
            raise Violation(f"I-81: txids of {ROOT} have a gap or an overlap")
        for txid, payload in self.acknowledged.items():
            if found.get(txid) != payload:
                there = found.get(txid)
                raise Violation(f"I-82: txid {txid} was acknowledged for {payload!r}, the journal has {there!r}")
        again = [payload for payload, count in Counter(found.values()).items() if count > 1]
        if again:
            raise Violation(f"I-81: {again[0]!r} is in the journal twice")
        for server in self.servers:
            # A standby that was stopped may lag. An active that could not end its segment in order was stopped before
            # it loaded anew: what it logged last may be in its state alone.
            state = server.state
            if any(found.get(txid) != payload for txid, payload in state.payloads.items() if txid not in state.open):
                raise Violation(f"I-85: server {server.number} has applied what the journal does not have")

    def _do(self, deferred: Deferred[Any], what: str) -> Any:
        results: list[Any] = []
        deferred.addCallbacks(results.append, lambda failure: self.world.errors.append(failure.value))
        self._until(lambda: bool(results), PEACE_SECONDS, what)
        return results[0]

    def _until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        finished = self.world.run_until(lambda: done() or bool(self.world.errors), seconds=seconds)
        self._check_errors()
        if not finished:
            raise Violation(f"L-1: waited {seconds:g} simulated seconds for {what}")

    def _check_errors(self) -> None:
        for error in self.world.errors:
            if isinstance(error, Violation):
                raise error
            raise Violation(f"an error that no fault explains: {type(error).__name__}: {error}") from error


def run_seed(seed: int) -> Outcome:
    """One run."""
    return FailoverRun(seed).run()
