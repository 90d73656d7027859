"""Our recover and decommissionbookie beside the genuine ones: the same ledgers are found, and the others' are moved.

Ledgers of the genuine client and of ours on our bookies; a decommission of ours waits for Apache's auditor and worker.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.blocking import connect
from bookkeeper.cli.main import main
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheClient
from tests.support.apache_admin import ApacheAutoRecovery, ApacheShell, attributes
from tests.support.zookeeper_sessions import end_dead_session

COUNT = 40
PASSWORD = b"pass-word"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(4, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with connect(cluster.uri, ClientSettings(password=PASSWORD, read_timeout_base_s=REQUEST_TIMEOUT_S)) as client:
        yield client


def ours(client: BlockingBookKeeper, *members: str) -> int:
    with client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=list(members)) as ledger:
        ledger.append_many([b"entry-%d" % number for number in range(COUNT)])
    return int(ledger.id)


def theirs(apache_client: ApacheClient, client: BlockingBookKeeper, uri: str, bookie_id: str) -> int:
    """One on the bookie; where the genuine client puts it is chance."""
    for _ in range(20):
        ledger_id = int(apache_client.run("write", uri, 3, "CRC32", PASSWORD.decode(), 3, 2, 2, COUNT)[0])
        if bookie_id in client.metadata(ledger_id).last_fragment.ensemble:
            return ledger_id
    raise AssertionError(f"of 20 ledgers of the genuine client none is on {bookie_id}")


def shell(capture: pytest.CaptureFixture[str], uri: str, *words: object) -> tuple[str, str]:
    capture.readouterr()
    code = main(["shell", "--uri", uri, *map(str, words)])
    out, err = capture.readouterr()
    assert code == 0, err
    return out, err


def assert_moved(client: BlockingBookKeeper, ledger_ids: list[int], bookie_id: str) -> None:
    for ledger_id in ledger_ids:
        metadata = client.metadata(ledger_id)
        for fragment in metadata.fragments:
            assert bookie_id not in fragment.ensemble
            assert len(set(fragment.ensemble)) == metadata.ensemble_size


def assert_read_by_theirs(apache_client: ApacheClient, uri: str, ledgers: dict[int, str]) -> None:
    for ledger_id, digest in ledgers.items():
        lines = apache_client.run("read", uri, 3, digest, PASSWORD.decode(), ledger_id)
        assert lines == [f"entry-{number}" for number in range(COUNT)]


def test_recover_finds_what_the_genuine_one_finds_and_moves_both_kinds_of_ledgers(
    apache: Apache,
    apache_client: ApacheClient,
    cluster: LocalCluster,
    client: BlockingBookKeeper,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    dead, kept, *_ = (bookie.bookie_id for bookie in cluster.bookies)
    ledgers = {ours(client, dead, kept): "CRC32C", theirs(apache_client, client, cluster.uri, dead): "CRC32"}
    cluster.bookies[0].kill()
    end_dead_session(cluster.uri, dead)
    with ApacheShell(apache, tmp_path, cluster.uri) as genuine:
        query = genuine.run("recover", "-q", "-f", dead)
        found = set(map(int, attributes("key", [line for line in query if line.startswith("ledger ")])))
        out, _ = shell(capfd, cluster.uri, "recover", "-q", dead)
        assert {int(number) for number in re.findall(r"^ledger (\d+):", out, re.MULTILINE)} == found
        assert found >= ledgers.keys()
        shell(capfd, cluster.uri, "recover", "-f", "-d", dead)
        assert not attributes("ledgerId", genuine.run("listledgers", "-bookieid", dead))
        assert dead not in "".join(genuine.run("listbookies", "-a"))
    assert_moved(client, list(ledgers), dead)
    assert_read_by_theirs(apache_client, cluster.uri, ledgers)


def test_decommissionbookie_waits_for_apaches_auditor_and_worker(
    apache: Apache,
    apache_client: ApacheClient,
    cluster: LocalCluster,
    client: BlockingBookKeeper,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    dead, kept, *_ = (bookie.bookie_id for bookie in cluster.bookies)
    ledgers = {ours(client, dead, kept): "CRC32C", theirs(apache_client, client, cluster.uri, dead): "CRC32"}
    cluster.bookies[0].kill()
    end_dead_session(cluster.uri, dead)
    with ApacheAutoRecovery(apache, tmp_path, cluster.uri, "recovery"):
        _, err = shell(capfd, cluster.uri, "decommissionbookie", "-bookieid", dead)
    assert f"deleted the cookie of bookie {dead}" in err
    assert_moved(client, list(ledgers), dead)
    assert_read_by_theirs(apache_client, cluster.uri, ledgers)
