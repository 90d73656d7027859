"""Auto-recovery over HTTP, in a process of its own and beside a bookie: a lost bookie's ledgers are moved as asked."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.main import main
from bookkeeper.client.faces.blocking import connect
from bookkeeper.embedded.cluster import free_port
from tests.support.auto_recovery import LocalAutoRecovery, await_unregistered, mark
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.zookeeper_sessions import end_dead_session

pytestmark = pytest.mark.timeout(300)


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(
            method,
            f"/api/v1/{path if path.startswith('bookie/') else f'autorecovery/{path}'}",
            None if body is None else json.dumps(body),
        )
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()
    finally:
        connection.close()


def ended(port: int, path: str) -> dict[str, Any]:
    """The newest task, once it has ended."""
    while (task := ask(port, "GET", path)[1][-1])["state"] == "running":
        assert set(task["progress"]) >= {"ledgersFound", "ledgersLeft", "waitsFor"}
    found: dict[str, Any] = task
    return found


def test_a_bookie_is_recovered_and_its_cookie_deleted_as_asked_over_http(
    zookeeper: Any, ledgers_root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    with (
        local_cluster(zookeeper.address, ledgers_root, 4, directory=tmp_path / "cluster", settings=STEADY) as cluster,
        connect(cluster.uri, with_long_timeouts()) as client,
    ):
        *_, lost = cluster.bookies
        members = [bookie.bookie_id for bookie in cluster.bookies[1:]]
        ids = []
        for _ in range(5):
            with client.create(ensemble=3, write_quorum=3, ack_quorum=2, password=b"p", bookies=members) as ledger:
                ledger.append_many([b"x"] * 10)
            ids.append(ledger.id)
        settings = {
            **STEADY,
            "httpServerEnabled": "true",
            "httpServerPort": str(port),
            "lostBookieRecoveryDelay": "3600",
        }
        with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, settings):
            assert ask(port, "GET", "bookie") == (200, [])
            assert ask(port, "GET", "troubles") == (200, [])
            assert ask(port, "GET", "status") == (200, {"enabled": True})
            body = {"bookie_src": [lost.bookie_id], "delete_cookie": True}
            assert ask(port, "PUT", "bookie", body)[0] == 200
            task = ended(port, "bookie")
            assert task["state"] == "failed"
            assert "is registered, so its cookie stays: stop it first" in task["said"]
            for ledger_id in ids:
                fragments = client.metadata(ledger_id).fragments
                assert all(lost.bookie_id not in fragment.ensemble for fragment in fragments)
            lost.kill()
            end_dead_session(cluster.uri, lost.bookie_id)
            await_unregistered(cluster.uri, lost.bookie_id)
            assert ask(port, "PUT", "bookie", body)[0] == 200
            task = ended(port, "bookie")
            assert (task["state"], task["said"].endswith(f"; cookie of {lost.bookie_id} deleted")) == ("done", True)
            status, said = ask(port, "GET", "bookie/state")
            assert (status, "no bookie runs in this process" in said["error"]) == (404, True)
        capsys.readouterr()
        assert main(["why", "ledger", str(ids[0]), "--uri", cluster.uri]) == 0
        assert "CLOSED at entry 9, 10 bytes; every copy is where it should be" in capsys.readouterr().out


def test_what_a_worker_beside_a_bookie_cannot_repair_is_shown_and_why_tells_it(
    zookeeper: Any, ledgers_root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both bookies of a ledger with two copies of each entry are gone: nobody has a good copy."""
    with (
        local_cluster(zookeeper.address, ledgers_root, 3, directory=tmp_path / "cluster", settings=STEADY) as cluster,
        connect(cluster.uri, with_long_timeouts()) as client,
    ):
        kept, *lost = cluster.bookies
        with client.create(
            ensemble=2, write_quorum=2, ack_quorum=2, password=b"p", bookies=[bookie.bookie_id for bookie in lost]
        ) as ledger:
            ledger.append_many([b"x"] * 10)
        assert kept.stop() == 0
        port = free_port()
        kept.settings |= {
            "httpServerEnabled": "true",
            "httpServerPort": str(port),
            "autoRecoveryDaemonEnabled": "true",
            "lostBookieRecoveryDelay": "0",
        }
        kept.start()
        for bookie in lost:
            bookie.kill()
            end_dead_session(cluster.uri, bookie.bookie_id)
            await_unregistered(cluster.uri, bookie.bookie_id)
        mark(cluster.uri, [ledger.id], [bookie.bookie_id for bookie in lost])
        trouble = until(lambda: ask(port, "GET", f"troubles?ledger_id={ledger.id}"), lambda found: bool(found[1]))[1][0]
        assert trouble["ledger"] == ledger.id
        assert trouble["failures"] >= 1
        capsys.readouterr()
        assert main(["why", "ledger", str(ledger.id), "--uri", cluster.uri, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert not said["healthy"]
        assert any(line.startswith(f"the worker of bookie {kept.bookie_id} failed") for line in said["error"]), said[
            "error"
        ]
        assert any("can be read from nobody now" in line for line in said["error"])
        for bookie in lost:
            bookie.start()


def until(ask_it: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
    while (found := ask_it())[0] != 200 or not fits(found):
        pass
    return found
