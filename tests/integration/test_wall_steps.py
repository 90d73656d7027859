"""The wall clock of one process is stepped back and forward under load, for real: every process continues soon.

Each test steps the clock of one process and of no other. Forty steps of three minutes back make two hours:
a call that was pending at one of them would wait for as long as the clock was set back.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hedwig.blocking
from bookkeeper.blocking import connect
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import dying_with_parent
from hedwig.embedded import LocalHub
from journalmgr.cli.servers import LocalServer, LocalServers
from journalmgr.namenode.fs_client import FileSystemClient
from tests.support.auto_recovery import LocalAutoRecovery, await_no_marks, await_unregistered, names
from tests.support.cluster import STEADY, local_cluster
from tests.support.stepped_clients import FACES
from tests.support.wall_steps import SteppedWall

pytestmark = pytest.mark.timeout(300)

STEPS_BACK = [-180] * 40
HOURS_FORWARD = [7200]
SECONDS = [-5, 5]
LATE_S = 60.0
"""Time within which a process must continue after a step; the machine may be busy."""


@pytest.fixture
def wall(tmp_path: Path) -> SteppedWall:
    return SteppedWall(tmp_path / "wall")


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """One bookie."""
    settings = {**STEADY, "flushInterval": "1000"}
    with local_cluster(
        zookeeper.address, ledgers_root, 1, directory=tmp_path / "cluster", settings=settings
    ) as running:
        yield running


class WritingChild:
    """A program of `stepped_clients`, which prints a line for each acknowledged batch."""

    def __init__(self, face: str, address: str, wall: SteppedWall, log: Path) -> None:
        command = [sys.executable, "-m", "tests.support.stepped_clients", face, address]
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                dying_with_parent(command), stdout=subprocess.PIPE, stderr=errors, env=_with(wall)
            )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._last = 0

    def __enter__(self) -> WritingChild:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._out.close()

    def continues(self, batches: int) -> None:
        """Return once `batches` more batches were acknowledged."""
        self._take_all()
        wanted, deadline_s = self._last + batches, time.monotonic() + LATE_S
        while self._last < wanted:
            left_s = deadline_s - time.monotonic()
            readable, _, _ = select.select([self._out], [], [], max(0.0, left_s))
            if not readable:
                pytest.fail(f"{self._last} batches, and none for {LATE_S:g} s: {self._log.read_text()[-2000:]}")
            self._take()

    def _take_all(self) -> None:
        while select.select([self._out], [], [], 0)[0]:
            self._take()

    def _take(self) -> None:
        line = self._out.readline()
        assert line, f"it ended: {self._log.read_text()[-2000:]}"
        self._last = int(line)


def _with(wall: SteppedWall) -> dict[str, str]:
    import os

    return {**os.environ, **wall.environment()}


def await_true(what: str, look: Callable[[], bool]) -> None:
    """Return once `look()` is true, for at most LATE_S; each call of it takes a moment."""
    deadline_s = time.monotonic() + LATE_S
    while not look():
        assert time.monotonic() < deadline_s, f"{what}: not within {LATE_S:g} s"


@pytest.mark.parametrize("face", [face for face in FACES if face.startswith("ledger")])
def test_a_ledger_client_continues(face: str, cluster: LocalCluster, wall: SteppedWall, tmp_path: Path) -> None:
    with WritingChild(face, cluster.uri, wall, tmp_path / "client.log") as child:
        child.continues(3)
        for step_s in (*STEPS_BACK, *HOURS_FORWARD, *SECONDS):
            wall.step(step_s)
            child.continues(1)


@pytest.fixture
def hub(cluster: LocalCluster, wall: SteppedWall, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    hub = LocalHub.beside(cluster, 1, {"zk_prefix": f"{cluster.root}-hubs", "zk_timeout": "2000"})
    with wall.around(monkeypatch):
        cluster.start_others([hub])
    return hub


@pytest.mark.parametrize("face", [face for face in FACES if face.startswith("hub")])
def test_a_hub_client_continues(face: str, cluster: LocalCluster, tmp_path: Path) -> None:
    hub = LocalHub.beside(cluster, 1, {"zk_prefix": f"{cluster.root}-hubs", "zk_timeout": "30000"})
    cluster.start_others([hub])
    wall = SteppedWall(tmp_path / "of-the-client")
    with WritingChild(face, hub.address, wall, tmp_path / "client.log") as child:
        child.continues(3)
        for step_s in (*STEPS_BACK, *HOURS_FORWARD, *SECONDS):
            wall.step(step_s)
            child.continues(1)


def test_a_hub_continues(hub: LocalHub, wall: SteppedWall) -> None:
    with hedwig.blocking.connect(hub.address) as client, client.subscribe("steps", "reader") as subscription:
        messages = iter(subscription)
        number = 0
        for step_s in (0, *STEPS_BACK, *HOURS_FORWARD, *SECONDS):
            sent = [client.publish_soon("steps", b"%d" % each) for each in range(number, number + 50)]
            wall.step(step_s)
            for future in sent:
                future.result(LATE_S)
            for _ in sent:
                message = next(messages)
                assert message.body == b"%d" % number
                number += 1
        with hedwig.blocking.connect(hub.address) as another:
            another.publish("steps", b"of another connection")


@pytest.mark.parametrize("step_s", [-7200, 7200])
def test_a_message_that_is_not_acknowledged_comes_again_after_its_timeout(
    step_s: int, hub: LocalHub, wall: SteppedWall
) -> None:
    with (
        hedwig.blocking.connect(hub.address) as client,
        client.subscribe("jobs", "workers", preferences=hedwig.one_by_one(shared=True, timeout_s=4)) as mine,
    ):
        client.publish("jobs", b"job")
        messages = iter(mine)
        assert next(messages).body == b"job"
        wall.step(step_s)
        begun_s = time.monotonic()
        assert next(messages).body == b"job"
        assert time.monotonic() - begun_s < LATE_S


def test_a_bookie_continues_and_makes_checkpoints(
    zookeeper: Any, ledgers_root: str, wall: SteppedWall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wall.around(monkeypatch):
        cluster = local_cluster(
            zookeeper.address, ledgers_root, 1, directory=tmp_path / "cluster", settings={"flushInterval": "1000"}
        )
        cluster.start()
    mark = cluster.bookies[0].ledger_directory / "current" / "lastMark"
    try:
        with connect(cluster.uri) as client, client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
            for step_s in (0, *STEPS_BACK):
                wall.step(step_s)
                ledger.append_many([b"x" * 100] * 500)
            for step_s in (*HOURS_FORWARD, -7200):
                wall.step(step_s)
                before = _stamp(mark)

                def marked(before: tuple[int, ...] = before) -> bool:
                    ledger.append_many([b"x" * 100] * 50)
                    return _stamp(mark) != before

                await_true("a checkpoint", marked)
            with connect(cluster.uri) as another:
                assert len(list(another.open_without_recovery(ledger.id).entries())) > 5000
    finally:
        cluster.stop()


def _stamp(path: Path) -> tuple[int, ...]:
    """Return values that change when the file is written. File times come from the machine's own clock."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_ino


@pytest.mark.parametrize("step_s", [-7200, 7200])
def test_auto_recovery_repairs_after_its_delay(
    step_s: int,
    zookeeper: Any,
    ledgers_root: str,
    wall: SteppedWall,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"lostBookieRecoveryDelay": "4"}
    sessions = {"zkTimeout": "5000"}  # the other two bookies must keep theirs
    with local_cluster(
        zookeeper.address, ledgers_root, 3, directory=tmp_path / "cluster", settings=sessions
    ) as cluster:
        lost = cluster.bookies[0]
        with connect(cluster.uri) as client:
            ids = [_written(client, [lost.bookie_id, cluster.bookies[1].bookie_id]) for _ in range(5)]
            daemon = LocalAutoRecovery(tmp_path / "recovery", cluster.uri, settings)
            with wall.around(monkeypatch), daemon:
                lost.kill()
                await_unregistered(cluster.uri, lost.bookie_id)
                await_true(
                    "the auditor to wait", lambda: "its ledgers are looked for in" in daemon.log_path.read_text()
                )
                wall.step(step_s)
                await_true(
                    "the repair",
                    lambda: (
                        await_no_marks(cluster.uri) is None
                        and not any(names(client.metadata(each), lost.bookie_id) for each in ids)
                    ),
                )


def _written(client: BlockingBookKeeper, members: list[str]) -> int:
    with client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=members) as ledger:
        ledger.append_many([b"entry"] * 20)
    return int(ledger.id)


def _applied(server: LocalServer) -> int:
    """Return the last txid that a name node has applied, once the name node answers."""
    found: list[dict[str, Any] | None] = []

    def asked() -> bool:
        found.append(server.status())
        return found[-1] is not None

    await_true(f"server {server.number} to answer", asked)
    assert found[-1] is not None
    return int(found[-1]["applied_txid"])


def test_name_nodes_continue_to_end_segments_and_take_over(
    cluster: LocalCluster, zookeeper: Any, wall: SteppedWall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"{cluster.root}-names"
    uri = f"bookkeeper://{zookeeper.address}{root}"
    options = [
        *("-D", f"dfs.namenode.bookkeeperjournal.zk.availablebookies={cluster.root}/available"),
        *("-D", "dfs.namenode.bookkeeperjournal.ensemble-size=1"),
        *("-D", "dfs.namenode.bookkeeperjournal.quorum-size=1"),
        *("-D", "dfs.namenode.bookkeeperjournal.addEntryTimeoutSec=60"),
        *("-D", "ha.zookeeper.session-timeout.ms=5000"),
        *("-D", "dfs.ha.log-roll.period=1"),
    ]
    made = [sys.executable, "-m", "journalmgr.cli.main", "format", uri, *options]
    subprocess.run(made, check=True, timeout=60, capture_output=True)
    with wall.around(monkeypatch):
        servers = LocalServers(2, tmp_path, uri, options)
        servers.__enter__()
    try:
        active = servers.active()
        [standby] = [server for server in servers.servers if server is not active]
        with FileSystemClient(servers.addresses, timeout_s=LATE_S) as client:
            for number, steps in enumerate((STEPS_BACK, HOURS_FORWARD)):
                for step_s in steps:
                    wall.step(step_s)
                    client.mkdirs(f"/made-{number}/{step_s}")
                txid = _applied(active)
                # A standby reads finished segments, and a timer of the active name node finishes them.
                await_true("the standby to read on", lambda txid=txid: _applied(standby) >= txid)  # type: ignore[misc]
            active.kill()
            wall.step(-7200)
            assert servers.active(but=active, timeout_s=LATE_S) is standby
            client.mkdirs("/after")
            assert client.exists("/made-1")
    finally:
        servers.close()
