"""A failover drill: hubs and bookies are killed or stopped again and again while messages are published and delivered.

    a process publishes to all topics; what is acknowledged is written down
    a process has all subscribers; what is delivered is written down; some close and attach again
    here: SIGKILL, or SIGSTOP and SIGCONT, of a hub or a bookie, which comes back after a while; positions are read

The next blow waits until every topic publishes and every subscriber gets messages again. In the end everything must be
delivered, and is checked (`drill_check`). At least one hub is left each time; of the bookies one at a time is missing,
as two may hold all copies of a message. Everything blocks: for command lines and tests.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.server import LocalServer
from bookkeeper.errors import BookKeeperError
from hedwig.embedded import LocalHub
from hedwig.perf.drill_check import Blow, Findings, Noted, Pauses, Position, check, pauses
from hedwig.perf.drill_client import FINISH_S, topic_name
from hedwig.perf.drill_records import Session, deliveries, publishes
from hedwig.perf.process import ClientProcess

if TYPE_CHECKING:
    from hedwig.admin.blocking import Access
    from hedwig.admin.region import Region, Subscribed
    from hedwig.model import LedgerRange, Topic

HUB_KILL, HUB_STOP, BOOKIE_KILL, BOOKIE_STOP = "hub kill", "hub stop", "bookie kill", "bookie stop"

READY_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 90.0
FLUSH_TIMEOUT_S = 120.0
LOOK_S = 0.05
IN_FLIGHT_S = 0.5
"""Outcomes of this time after a blow may have been on their way before."""

POSITIONS_EVERY_S = 0.5
AWAY_S = (0.5, 4.0)
"""How long a killed server stays away."""

STOPPED_S = (0.5, 6.0)
"""How long one is stopped: shorter and longer than its session with ZooKeeper lasts."""

QUIET_S = (0.0, 1.0)
"""Between the moment when all goes well again and the next blow."""


class DrillFailed(BookKeeperError):
    """The drill did not come to its end; the message says what stood still."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done, and under which load. per_s: publishes, of all topics. outstanding: without an answer, of one.

    once: publishers give numbers, by which each message is stored once.
    """

    hub_kills: int
    bookie_kills: int
    hub_stops: int = 0
    bookie_stops: int = 0
    topics: int = 20
    subscribers_each: int = 2
    per_s: float = 500.0
    outstanding: int = 50
    size: int = 256
    seed: int = 1
    once: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found. trouble: what clients were told but success, and servers that ended by themselves.

    busy: how often a subscriber was held to be attached still. trimmed: messages whose ledgers were deleted.
    """

    plan: Plan
    findings: Findings
    blows: list[Blow]
    pauses: list[Pauses]
    trouble: list[str]
    busy: int
    trimmed: int
    seconds: float

    @property
    def kept(self) -> bool:
        """Every promise was."""
        return not self.findings.faults and not self.trouble


Tell = Callable[[int], object]


class Drill:
    """One drill on a cluster that runs. hubs: that run. directory: for what is noted. See `run_drill`."""

    def __init__(
        self, cluster: LocalCluster, hubs: Sequence[LocalHub], access: Access, plan: Plan, directory: Path
    ) -> None:
        self._cluster, self._hubs, self._access, self._plan, self._directory = cluster, hubs, access, plan, directory
        self._rng = random.Random(plan.seed)
        self._prefix = f"drill-{os.getpid()}-{time.monotonic_ns()}"
        self._topics = [topic_name(self._prefix, number) for number in range(plan.topics)]
        self._away: dict[LocalServer, tuple[float, bool]] = {}  # until when; whether it is stopped
        self._noted = Noted(plan.topics, plan.subscribers_each, plan.once)
        self._blows: list[Blow] = []
        self._trouble: list[str] = []
        self._positions_s = 0.0

    def run(self, tell: Tell) -> Outcome:
        """Do it. Raises DrillFailed, WorkerFailed, LocalProcessFailed."""
        plan = self._plan
        task = {
            "hubs": [hub.address for hub in self._hubs],
            "prefix": self._prefix,
            "topics": plan.topics,
            "subscribers": plan.subscribers_each,
            "per_s": plan.per_s,
            "outstanding": plan.outstanding,
            "size": plan.size,
            "seed": plan.seed,
            "once": plan.once,
        }
        files = {role: self._directory / f"{role}.noted" for role in ("subscribe", "publish")}
        begun = time.monotonic()
        with ExitStack() as stack:
            clients = []
            for role, path in files.items():  # subscriptions are there before anything is published
                module = "hedwig.perf.drill_client"
                client = stack.enter_context(ClientProcess(module, role, {**task, "role": role, "file": str(path)}))
                client.hear(READY_TIMEOUT_S)
                clients.append(client)
            subscribers, publisher = clients
            try:
                self._strike(clients, tell)
            finally:
                self._go_on()
            publisher.tell({"do": "stop"})
            told = publisher.hear(FLUSH_TIMEOUT_S)
            self._trouble += told["trouble"]
            subscribers.tell({"do": "stop", "last": told["last"]})
            told = subscribers.hear(FINISH_S + ANSWER_TIMEOUT_S)
            self._trouble += told["trouble"]
        seconds = time.monotonic() - begun
        self._read_positions()
        noted = self._noted
        noted.publishes += publishes(files["publish"].read_bytes())
        noted.deliveries += deliveries(files["subscribe"].read_bytes())
        noted.sessions += [Session(*values) for values in told["sessions"]]
        findings, paused, trimmed = check(noted), pauses(noted, self._blows), self._trimmed()
        return Outcome(plan, findings, self._blows, paused, self._trouble, told["busy"], trimmed, seconds)

    # --- blows

    def _strike(self, clients: Sequence[ClientProcess], tell: Tell) -> None:
        plan, rng = self._plan, self._rng
        kinds = [HUB_KILL] * plan.hub_kills + [HUB_STOP] * plan.hub_stops
        kinds += [BOOKIE_KILL] * plan.bookie_kills + [BOOKIE_STOP] * plan.bookie_stops
        rng.shuffle(kinds)
        last_s = time.monotonic()
        quiet_until: float | None = None
        while True:
            self._bring_back()
            self._look_at_servers()
            if time.monotonic() - self._positions_s > POSITIONS_EVERY_S:
                self._read_positions()
            waits = self._waiting_since(clients, last_s + IN_FLIGHT_S)
            if waits is None:
                now = time.monotonic()
                quiet_until = quiet_until or now + rng.uniform(*QUIET_S)
                if not kinds and not self._away:
                    return
                if kinds and now >= quiet_until and self._strike_one(kinds[-1]):
                    kinds.pop()
                    last_s, quiet_until = time.monotonic(), None
                    tell(len(self._blows))
            elif time.monotonic() > last_s + SETTLE_TIMEOUT_S:
                raise DrillFailed(f"nothing moved for {SETTLE_TIMEOUT_S:g} s after {self._last_blow()}: {waits}")
            time.sleep(LOOK_S)

    def _last_blow(self) -> str:
        return f"the {self._blows[-1].kind} of {self._blows[-1].server}" if self._blows else "the beginning"

    @staticmethod
    def _waiting_since(clients: Sequence[ClientProcess], since: float) -> str | None:
        """Who has not had anything since then; None where everybody has."""
        for client in clients:
            client.tell({"do": "progress"})
            told = client.hear(ANSWER_TIMEOUT_S)
            if told["oldest_s"] <= since:
                return str(told["who"])
        return None

    def _strike_one(self, kind: str) -> bool:
        """Whether there was somebody to strike now."""
        owned = self._owned()
        if kind in (HUB_KILL, HUB_STOP):
            there = [hub for hub in self._hubs if hub not in self._away and owned.get(hub.address)]
            if not there or len(self._hubs) - sum(hub in self._away for hub in self._hubs) < 2:
                return False
            hub = self._rng.choice(there)
            self._down(hub, kind, owned[hub.address])
        else:
            if any(bookie in self._away for bookie in self._cluster.bookies):
                return False
            self._down(self._rng.choice(self._cluster.bookies), kind, frozenset(range(self._plan.topics)))
        return True

    def _owned(self) -> dict[str, frozenset[int]]:
        """The topics of each hub, by its address."""
        owners = self._access.run(lambda region: region.owners(self._topics))
        found: dict[str, set[int]] = {}
        for number, owner in enumerate(owners):
            if owner is not None:
                found.setdefault(str(owner), set()).add(number)
        return {address: frozenset(numbers) for address, numbers in found.items()}

    def _down(self, server: LocalServer, kind: str, topics: frozenset[int]) -> None:
        stopped = kind in (HUB_STOP, BOOKIE_STOP)
        self._blows.append(Blow(kind, server.name, time.monotonic(), topics))
        if stopped:
            os.kill(server.pid, signal.SIGSTOP)
        else:
            server.kill()
        self._away[server] = (time.monotonic() + self._rng.uniform(*(STOPPED_S if stopped else AWAY_S)), stopped)

    def _bring_back(self) -> None:
        for server, (until, stopped) in list(self._away.items()):
            if time.monotonic() < until:
                continue
            del self._away[server]
            if stopped:
                os.kill(server.pid, signal.SIGCONT)
            else:
                server.start()

    def _go_on(self) -> None:
        """Whoever is stopped could not even be ended."""
        for server, (_, stopped) in self._away.items():
            if stopped and server.running:
                os.kill(server.pid, signal.SIGCONT)

    def _look_at_servers(self) -> None:
        for server in (*self._hubs, *self._cluster.bookies):
            if server.ended_by_itself:
                self._trouble.append(f"{server.name} ended by itself; its log is {server.log_path}")
                server.start()

    def _trimmed(self) -> int:
        ranges = [self._access.run(_ranges_of(topic)) for topic in self._topics]
        return sum((each[0].first or 1) - 1 for each in ranges if each)

    # --- positions

    def _read_positions(self) -> None:
        for number, topic in enumerate(self._topics):
            begun = time.monotonic()
            for each in self._access.run(_of(topic)):
                subscriber = int(each.subscriber.rpartition(b"-")[2])
                consumed = each.record.consumed.local
                self._noted.positions.append(Position(number, subscriber, begun, time.monotonic(), consumed))
        self._positions_s = time.monotonic()


def _of(topic: Topic) -> Callable[[Region], Coroutine[Any, Any, list[Subscribed]]]:
    return lambda region: region.subscriptions_of(topic, backlog=False)


def _ranges_of(topic: Topic) -> Callable[[Region], Coroutine[Any, Any, list[LedgerRange]]]:
    return lambda region: region.ranges(topic)


def run_drill(
    cluster: LocalCluster,
    hubs: Sequence[LocalHub],
    plan: Plan,
    directory: Path,
    *,
    tell: Tell = lambda number: None,
) -> Outcome:
    """Strike as planned, under load, and check. tell: after each blow, how many there were.

    Raises DrillFailed where something stood still, WorkerFailed, LocalProcessFailed.
    """
    from hedwig.admin.blocking import connect
    from hedwig.config.load import load_hub

    config = load_hub(None, hubs[0].settings, {}).settings
    with connect(config) as access:
        return Drill(cluster, hubs, access, plan, directory).run(tell)
