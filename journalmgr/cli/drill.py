"""A failover drill: callers write without a break while the active server is killed or stopped, again and again.

Every path is created once, with a content of its own; what was acknowledged is noted before the next one. In the end
the journal itself is read: each acknowledged creation must be in it exactly once, and the state of all servers must be
the same. What is measured is the time from SIGKILL of the active to the first edit that another server acknowledges.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bookkeeper.console.output import CommandFailed
from bookkeeper.errors import BookKeeperError
from journalmgr.cli.servers import LocalServer, LocalServers
from journalmgr.namenode.fs_client import FileSystemClient, NoActiveServer

ATTEMPT_TIMEOUT_S = 1.0
"""Of one attempt of a caller: a server that is stopped does not answer, and another may be active already."""

PROBE_INTERVAL_S = 0.005
SETTLE_EDITS = 20
"""Edits that are acknowledged between one kill and the next."""

WAIT_S = 60.0


@dataclass(slots=True)
class Drill:
    """What a drill found. failovers_s: of each SIGKILL, in seconds; stops: how often SIGSTOP was used instead."""

    acknowledged: dict[str, bytes] = field(default_factory=dict)
    failovers_s: list[float] = field(default_factory=list)
    kills: int = 0
    stops: int = 0
    seconds: float = 0.0

    @property
    def median_s(self) -> float:
        """Of the failovers."""
        return statistics.median(self.failovers_s) if self.failovers_s else 0.0


class Callers:
    """Threads that create files, one after the other each."""

    def __init__(self, servers: LocalServers, count: int) -> None:
        self.acknowledged: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._call, args=(servers.addresses, number), name=f"caller-{number}", daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after what each has under way. Raises CommandFailed with the first error of a caller."""
        self._over.set()
        for thread in self._threads:
            thread.join(WAIT_S + 10)
        self.check()

    def check(self) -> None:
        """Raise CommandFailed where a caller was told anything but yes."""
        if self._errors:
            raise CommandFailed(f"a caller failed: {self._errors[0]!r}") from self._errors[0]

    def wait_for_more(self, count: int) -> None:
        """Return once so many more edits are acknowledged."""
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + WAIT_S
        while len(self.acknowledged) < wanted:
            self.check()
            if time.monotonic() > deadline:
                raise CommandFailed(f"no {count} edits were acknowledged within {WAIT_S:g} s")
            self._over.wait(PROBE_INTERVAL_S)

    def _call(self, addresses: list[str], number: int) -> None:
        try:
            with FileSystemClient(addresses, timeout_s=ATTEMPT_TIMEOUT_S, wait_s=WAIT_S, user="drill") as client:
                client.mkdirs(f"/caller-{number}")
                count = 0
                while not self._over.is_set():
                    count += 1
                    path, content = f"/caller-{number}/{count:06d}", b"%d/%d" % (number, count)
                    client.create(path, content)
                    with self._lock:
                        self.acknowledged[path] = content
        except BookKeeperError as error:
            self._errors.append(error)


def run_drill(
    servers: LocalServers,
    *,
    kills: int,
    stop_share: float = 0.3,
    callers: int = 2,
    seed: int = 1,
    tell: Callable[[int, float | None], object] = lambda number, seconds: None,
) -> Drill:
    """Kill (or, in the given share, stop) the active so often, under load. Raises CommandFailed where a promise broke.

    tell: after each, its number and how long the failover took (None for one that was stopped).
    """
    rng = random.Random(seed)
    drill = Drill()
    load = Callers(servers, callers)
    begun = time.monotonic()
    load.start()
    for number in range(1, kills + 1):
        load.wait_for_more(SETTLE_EDITS)
        active = servers.active()
        if rng.random() < stop_share:
            turn = _status(active)["turns"]
            active.stop()
            drill.stops += 1
            servers.active(but=active, timeout_s=WAIT_S)
            load.wait_for_more(SETTLE_EDITS)
            active.go_on()
            _wait_for_end_of_turn(active, turn)
            tell(number, None)
        else:
            drill.kills += 1
            drill.failovers_s.append(_kill(servers, active, number))
            active.start()
            active.wait_for("standby", "active")
            tell(number, drill.failovers_s[-1])
    load.wait_for_more(SETTLE_EDITS)
    load.stop()
    drill.seconds = time.monotonic() - begun
    drill.acknowledged = dict(load.acknowledged)
    check_state(servers, drill.acknowledged)
    return drill


def _wait_for_end_of_turn(server: LocalServer, turn: int) -> None:
    """Return once a resumed server knows that its turn is over: it is a standby, or active in a later turn."""
    deadline = time.monotonic() + WAIT_S
    while (found := _status(server))["role"] != "standby" and found["turns"] == turn:
        if time.monotonic() > deadline:
            raise CommandFailed(f"server {server.number} does not end its turn within {WAIT_S:g} s: {found}")
        time.sleep(PROBE_INTERVAL_S)


def _status(server: LocalServer) -> dict[str, Any]:
    """Return the status of a server. Raises CommandFailed if the server does not answer in time."""
    deadline = time.monotonic() + WAIT_S
    while (found := server.status()) is None:
        if time.monotonic() > deadline:
            raise CommandFailed(f"server {server.number} does not answer within {WAIT_S:g} s")
        time.sleep(PROBE_INTERVAL_S)
    return found


def _kill(servers: LocalServers, active: LocalServer, number: int) -> float:
    """SIGKILL the active; seconds until another acknowledges an edit."""
    others = [server.address for server in servers.servers if server is not active]
    # Each asks one server; what that says of the active, which is dead, is not worth waiting for.
    probes = [
        FileSystemClient(
            [address],
            timeout_s=ATTEMPT_TIMEOUT_S,
            wait_s=4 * PROBE_INTERVAL_S,
            sleep=lambda _: time.sleep(PROBE_INTERVAL_S),
        )
        for address in others
    ]
    begun = time.monotonic()
    active.kill()
    while True:
        for probe in probes:
            try:
                probe.mkdirs(f"/probe-{number}")
            except NoActiveServer:
                continue
            seconds = time.monotonic() - begun
            for each in probes:
                each.close()
            return seconds
        if time.monotonic() - begun > WAIT_S:
            raise CommandFailed(f"no server took over within {WAIT_S:g} s")


def check_state(servers: LocalServers, acknowledged: dict[str, bytes]) -> None:
    """Check that every acknowledged file exists with its content, and that all servers reach the same state."""
    with FileSystemClient(servers.addresses, wait_s=WAIT_S) as client:
        for path, content in acknowledged.items():
            found = client.read(path)
            if found != content:
                raise CommandFailed(f"{path} was acknowledged with {content!r} and holds {found!r}")
        deadline = time.monotonic() + WAIT_S
        while True:
            prints = {server.address: _fingerprint(client, server) for server in servers.servers}
            if len(set(prints.values())) == 1 and None not in prints.values():
                return
            if time.monotonic() > deadline:
                raise CommandFailed(f"the servers do not come to the same state: {prints}")
            time.sleep(PROBE_INTERVAL_S)


def _fingerprint(client: FileSystemClient, server: LocalServer) -> tuple[int, str] | None:
    """Return the txid and fingerprint of a server's state, or None if the server does not answer."""
    try:
        return client.fingerprint(server.address)
    except BookKeeperError:
        return None


def check_journal(created: Counter[str], acknowledged: dict[str, bytes]) -> None:
    """Every acknowledged path was created in the journal exactly once. created: how often each path was."""
    for path in acknowledged:
        if created[path] != 1:
            raise CommandFailed(f"{path} was acknowledged, and the journal creates it {created[path]} times")
