"""The HTTP API of a bookie process, as an operator's curl finds it: Apache's paths and answers, clear refusals."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.admin.access.tokens import ENVIRONMENT
from bookkeeper.admin.questions import get_json
from bookkeeper.cli.perf.counters import read_metrics
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.faces.blocking import connect as connect_client
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster, free_port
from tests.support import prometheus_text
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.patience import until

pytestmark = pytest.mark.timeout(240)

API = "/api/v1"


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two bookies; the first one has an HTTP server."""
    root = f"/http-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("http")
    with local_cluster(zookeeper.address, root, 2, directory=directory, settings=STEADY) as cluster:
        bookie = cluster.bookies[0]
        assert bookie.stop() == 0
        bookie.settings |= {
            "httpServerEnabled": "true",
            "httpServerPort": str(free_port()),
            "httpServerLedgerContentEnabled": "true",
        }
        bookie.start()
        yield cluster


@pytest.fixture
def bookie(cluster: LocalCluster) -> LocalBookie:
    return cluster.bookies[0]


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    settings = ClientSettings(explicit_lac_interval_s=0.0)  # otherwise a writer that pauses confirms its last entry
    with connect_client(cluster.uri, with_long_timeouts(settings)) as client:
        yield client


class Answered:
    """One answer."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """What was refused, and nothing else."""
        (name, text), *rest = self.json.items()
        assert (name, rest) == ("error", [])
        return str(text)


def ask(bookie: LocalBookie, method: str, path: str, body: Any = None) -> Answered:
    connection = http.client.HTTPConnection("127.0.0.1", int(bookie.settings["httpServerPort"]), timeout=60)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, data)
        return Answered(connection.getresponse())
    finally:
        connection.close()


def get(bookie: LocalBookie, path: str) -> Answered:
    return ask(bookie, "GET", path)


def written(client: BlockingBookKeeper, payloads: list[bytes]) -> int:
    with client.create(ensemble=2, write_quorum=2, ack_quorum=2, password=b"secret") as ledger:
        ledger.append_many(payloads)
        return ledger.id


# --- what every server has


def test_heartbeat_metrics_and_the_list_of_paths(bookie: LocalBookie) -> None:
    assert get(bookie, "/heartbeat").body == b"OK\n"
    metrics = get(bookie, "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = prometheus_text.parse(metrics.body.decode())
    assert families["bookie_SERVER_STATUS"].samples == {("bookie_SERVER_STATUS", ()): 1}
    assert families["bookie_BOOKIE_ADD_ENTRY"].type == "summary"
    listed = get(bookie, "/").json["paths"]
    assert listed["/heartbeat"] == ["GET"]
    assert listed["/api/v1/ledger/delete"] == ["DELETE"]


def test_the_log_says_where_it_listens_and_that_is_loopback(bookie: LocalBookie) -> None:
    assert f"HTTP server on 127.0.0.1:{bookie.settings['httpServerPort']}" in bookie.log_path.read_text()


def test_the_effective_configuration_is_shown_and_cannot_be_changed(bookie: LocalBookie) -> None:
    shown = get(bookie, f"{API}/config/server_config").json
    assert shown["bookiePort"] == str(bookie.port)
    assert shown["diskUsageThreshold"] == "0.99"
    refused = ask(bookie, "PUT", f"{API}/config/server_config", {"bookiePort": "1"})
    assert refused.status == 405
    assert "restart" in refused.error


# --- refusals


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/nothing", None, 404, "there is no /nothing here"),
        ("GET", f"{API}/bookie/stat", None, 404, "did you mean /api/v1/bookie/state?"),
        ("DELETE", f"{API}/bookie/gc", None, 405, "it takes GET, PUT"),
        ("POST", f"{API}/bookie/gc", None, 403, "X-BookKeeper-Request: 1"),
        ("DELETE", "/heartbeat", None, 405, "/heartbeat does not take DELETE; it takes GET"),
        ("GET", f"{API}/ledger/metadata", None, 400, "ledger_id=NUMBER"),
        ("GET", f"{API}/ledger/metadata?ledger_id=x", None, 400, "ledger_id='x': it must be a whole number"),
        ("GET", f"{API}/ledger/metadata?ledger_id=-1", None, 400, "from 0 to 9223372036854775807"),
        ("GET", f"{API}/ledger/metadata?ledger_id=1&ledger_id=2", None, 400, "given 2 times"),
        ("GET", f"{API}/ledger/metadata?ledger_id=987654", None, 404, "987654"),
        ("DELETE", f"{API}/ledger/delete?ledger_id=987654", None, 404, "987654"),
        ("GET", f"{API}/ledger/list?print_metadata=perhaps", None, 400, "neither true nor false"),
        ("GET", f"{API}/bookie/list_bookies?type=all", None, 400, "neither rw"),
        ("GET", f"{API}/bookie/list_disk_file?file_type=rocks", None, 400, "journal, entrylog, index"),
        ("PUT", f"{API}/bookie/state/readonly", None, 400, "needs a JSON object"),
        ("PUT", f"{API}/bookie/state/readonly", b"{", 400, "is no JSON"),
        ("PUT", f"{API}/bookie/state/readonly", [], 400, "must be a JSON object"),
        ("PUT", f"{API}/bookie/state/readonly", {"readonly": True}, 400, "did you mean readOnly?"),
        ("PUT", f"{API}/bookie/state/readonly", {"readOnly": "maybe"}, 400, "'maybe' is neither true nor false"),
        ("PUT", f"{API}/bookie/entry_location_compact", {"entryLocationRocksDBCompact": True}, 404, "RocksDB"),
        ("GET", "/%ff", None, 400, "not UTF-8"),
        ("PUT", f"{API}/bookie/state/readonly", b" " * 70_000, 413, "at most 65536 bytes"),
    ],
)
def test_a_refusal_names_what_was_asked_and_why(
    bookie: LocalBookie, method: str, path: str, body: Any, status: int, said: str
) -> None:
    answer = ask(bookie, method, path, body)
    assert (answer.status, said in answer.error) == (status, True), answer.error


# --- ledgers


def test_ledgers_are_listed_shown_read_and_deleted(bookie: LocalBookie, client: BlockingBookKeeper) -> None:
    payloads = [b"entry-%d" % number for number in range(1500)]
    ledger_id = written(client, [*payloads, b"\xff\xfe"])
    assert get(bookie, f"{API}/ledger/list").json[str(ledger_id)] is None
    assert ledger_id in [int(each) for each in get(bookie, f"{API}/ledger/list/?page=1").json]
    (shown,) = get(bookie, f"{API}/ledger/metadata/?ledger_id={ledger_id}").json.values()
    assert shown["state"] == "CLOSED"
    assert shown["lastEntryId"] == 1500
    assert {each["id"] for each in shown["allEnsembles"]["0"]} >= {bookie.bookie_id}
    assert "password" not in json.dumps(shown).lower()
    assert get(bookie, f"{API}/ledger/list?print_metadata=true").json[str(ledger_id)] == shown
    read = get(bookie, f"{API}/ledger/read?ledger_id={ledger_id}").json
    assert read == {**{str(n): text.decode() for n, text in enumerate(payloads)}, "1500": "��"}
    some = get(bookie, f"{API}/ledger/read?ledger_id={ledger_id}&start_entry_id=7&end_entry_id=8").json
    assert some == {"7": "entry-7", "8": "entry-8"}
    second = get(bookie, f"{API}/ledger/read?ledger_id={ledger_id}&page=2").json
    assert second.pop("Entries for page: ") == "2"
    assert list(map(int, second)) == list(range(1000, 1501))
    deleted = ask(bookie, "DELETE", f"{API}/ledger/delete?ledger_id={ledger_id}")
    assert (deleted.status, deleted.json) == (200, f"Deleted ledger: {ledger_id}")
    assert str(ledger_id) not in get(bookie, f"{API}/ledger/list").json


def test_an_open_ledger_is_read_up_to_what_is_acknowledged_and_stays_open(
    bookie: LocalBookie, client: BlockingBookKeeper
) -> None:
    with client.create(ensemble=2, write_quorum=2, ack_quorum=2, password=b"secret") as ledger:
        for payload in (b"a", b"b", b"c"):
            ledger.append(payload)
        # That the last one is acknowledged the bookies learn from the next one.
        assert get(bookie, f"{API}/ledger/read?ledger_id={ledger.id}").json == {"0": "a", "1": "b"}
        ledger.append(b"d")  # nobody fenced it


# --- the cluster, and this bookie


def test_bookies_of_the_cluster_and_their_space(cluster: LocalCluster, bookie: LocalBookie) -> None:
    ids = {each.bookie_id for each in cluster.bookies[:2]}
    assert get(bookie, f"{API}/bookie/list_bookies?type=rw").json == dict.fromkeys(ids)
    assert get(bookie, f"{API}/bookie/list_bookies?print_hostnames=true").json == dict.fromkeys(ids, "127.0.0.1")
    assert get(bookie, f"{API}/bookie/list_bookies?type=ro").json == {}
    spaces = get(bookie, f"{API}/bookie/list_bookie_info").json
    assert set(spaces) == {*ids, "ClusterInfo: "}
    assert spaces[bookie.bookie_id].startswith(": {Free: ")


def test_any_bookie_tells_of_auto_recovery_in_its_cluster(cluster: LocalCluster, bookie: LocalBookie) -> None:
    info = get(bookie, f"{API}/bookie/cluster_info").json
    assert info == {
        "auditorElected": False,
        "auditorId": "",
        "clusterUnderReplicated": False,
        "ledgerReplicationEnabled": True,
        "totalBookiesCount": 2,
        "writableBookiesCount": 2,
        "readonlyBookiesCount": 0,
        "unavailableBookiesCount": 0,
    }
    assert ask(bookie, "PUT", f"{API}/autorecovery/status?enabled=false").json == {"enabled": False}
    assert get(bookie, f"{API}/bookie/cluster_info").json["ledgerReplicationEnabled"] is False
    assert ask(bookie, "PUT", f"{API}/autorecovery/status?enabled=true").json == {"enabled": True}
    assert get(bookie, f"{API}/autorecovery/list_under_replicated_ledger").status == 404
    refused = ask(bookie, "PUT", f"{API}/autorecovery/bookie", {"bookie_src": ["a:1"]})
    assert (refused.status, "this process recovers nobody" in refused.error) == (404, True)


def test_an_operators_order_makes_the_bookie_read_only_and_its_end_writable(
    cluster: LocalCluster, bookie: LocalBookie
) -> None:
    path = f"{API}/bookie/state/readonly"
    assert get(bookie, path).json == {"readOnly": False}
    assert ask(bookie, "PUT", path, {"readOnly": True}).json == {"readOnly": True}
    state = get(bookie, f"{API}/bookie/state").json
    assert state == {
        "running": True,
        "readOnly": True,
        "shuttingDown": False,
        "availableForHighPriorityWrites": True,
    }
    assert get(bookie, f"{API}/bookie/sanity").json == {"passed": False, "readOnly": True}
    assert ask(bookie, "PUT", path, {"readOnly": "false"}).json == {"readOnly": False}
    assert get(bookie, f"{API}/bookie/is_ready").body == b"OK"
    listed = f"{API}/bookie/list_bookies?type=rw"
    until(lambda: bookie.bookie_id in get(bookie, listed).json, "clients know that it is writable again")


def test_content_and_deletion_are_off_and_tokens_are_needed_where_they_are_named(
    cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("read 0123456789abcdef\noperate fedcba9876543210\n")
    tokens.chmod(0o600)
    ledger_id = written(client, [b"a"])
    bookie = cluster.add_bookie(start=False)
    bookie.settings |= {
        "httpServerEnabled": "true",
        "httpServerPort": str(free_port()),
        "httpServerTokenFile": str(tokens),
    }
    bookie.start()

    def asked(method: str, path: str, token: str = "") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", int(bookie.settings["httpServerPort"]), timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status

    read, operate = "0123456789abcdef", "fedcba9876543210"
    assert [asked("GET", "/heartbeat"), asked("GET", "/metrics"), asked("GET", "/metrics", read)] == [200, 401, 200]
    assert [asked("PUT", f"{API}/bookie/gc", read), asked("PUT", f"{API}/bookie/gc", operate)] == [403, 200]
    one = f"ledger_id={ledger_id}"
    assert asked("GET", f"{API}/ledger/metadata?{one}", read) == 200
    assert asked("GET", f"{API}/ledger/read?{one}", operate) == 403
    assert asked("DELETE", f"{API}/ledger/delete?{one}", operate) == 403
    assert asked("GET", f"{API}/ledger/metadata?{one}", read) == 200
    assert f"DELETE {API}/ledger/delete?{one} of 127.0.0.1, role operate: 403" in bookie.log_path.read_text()
    with pytest.raises(http.client.HTTPException, match=ENVIRONMENT):
        get_json(("127.0.0.1", int(bookie.settings["httpServerPort"])), f"{API}/bookie/state")
    monkeypatch.setenv(ENVIRONMENT, str(tokens))
    assert get_json(("127.0.0.1", int(bookie.settings["httpServerPort"])), f"{API}/bookie/state")["running"]
    assert bookie.metrics_url is not None
    assert read_metrics(bookie.metrics_url)["bookie_SERVER_STATUS"] == 1
    assert bookie.stop() == 0


def test_a_page_that_was_rebound_to_this_server_gets_nothing(bookie: LocalBookie) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(bookie.settings["httpServerPort"]), timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", f"{API}/ledger/list", headers={"Host": "evil.example"})
        refused = Answered(connection.getresponse())
    assert refused.status == 421
    assert "httpServerAllowedHosts" in refused.error


def test_what_is_read_only_for_another_reason_stays_so_and_says_why(cluster: LocalCluster) -> None:
    bookie = cluster.add_bookie(start=False)
    bookie.settings |= {
        "httpServerEnabled": "true",
        "httpServerPort": str(free_port()),
        "forceReadOnlyBookie": "true",
    }
    bookie.start()
    refused = ask(bookie, "PUT", f"{API}/bookie/state/readonly", {"readOnly": False})
    assert refused.status == 409
    assert "stays read-only: forced by the configuration" in refused.error
    assert bookie.stop() == 0


def test_collection_is_shown_forced_suspended_and_resumed(bookie: LocalBookie, client: BlockingBookKeeper) -> None:
    top = f"{API}/bookie"
    (details,) = get(bookie, f"{top}/gc_details").json
    assert details["majorCompacting"] is details["minorCompacting"] is False
    both = {"isMajorGcSuspended": "true", "isMinorGcSuspended": "true"}
    assert ask(bookie, "PUT", f"{top}/gc/suspend_compaction", {"suspendMajor": True, "suspendMinor": "true"}).json == (
        f"Suspend majorGC on BookieServer: {bookie.bookie_id}, Suspend minorGC on BookieServer: {bookie.bookie_id}"
    )
    assert get(bookie, f"{top}/gc/suspend_compaction").json == both
    assert ask(bookie, "PUT", f"{top}/gc/resume_compaction", {"resumeMajor": True}).status == 200
    assert get(bookie, f"{top}/gc/suspend_compaction").json == {**both, "isMajorGcSuspended": "false"}
    assert ask(bookie, "PUT", f"{top}/gc/resume_compaction", {"resumeMinor": True}).status == 200
    for body in ({}, {"suspendMajor": False}, {"suspend": True}):
        assert ask(bookie, "PUT", f"{top}/gc/suspend_compaction", body).status == 400
    assert ask(bookie, "PUT", f"{top}/gc", {"majorCompactionThreshold": 0.5}).status == 400
    client.delete(written(client, [b"x" * 1000]))
    assert bookie.metrics_url is not None
    shown, rounds = {"bookie_gc_DELETED_LEDGER_TOTAL": 0.0}, 0
    while shown["bookie_gc_DELETED_LEDGER_TOTAL"] < 1:  # a round skips a ledger that is being written
        assert ask(bookie, "PUT", f"{top}/gc").json == f"Triggered GC on BookieServer: {bookie.bookie_id}"
        while get(bookie, f"{top}/gc").json != {"is_in_force_gc": "false"}:
            pass
        shown, rounds = read_metrics(bookie.metrics_url), rounds + 1
    assert shown["bookie_gc_MAJOR_COMPACTION_TOTAL"] == rounds
    (details,) = get(bookie, f"{top}/gc_details").json
    assert details["majorCompactionCounter"] == rounds


def test_sanity_writes_to_this_bookie_and_reads_back(bookie: LocalBookie) -> None:
    before = get(bookie, f"{API}/ledger/list").json
    assert get(bookie, f"{API}/bookie/sanity").json == {"passed": True, "readOnly": False}
    assert get(bookie, f"{API}/ledger/list").json == before


def test_space_marks_files_and_directories_of_this_bookie(bookie: LocalBookie, client: BlockingBookKeeper) -> None:
    written(client, [b"x"])
    space = get(bookie, f"{API}/bookie/info").json
    assert 0 < space["freeSpace"] < space["totalSpace"]
    ((name, position),) = get(bookie, f"{API}/bookie/last_log_mark").json.items()
    journal_id = int(name.split()[4].partition("(")[0])
    assert name == f"LastLogMark: Journal Id - {journal_id}({journal_id:x}.txn)"
    assert position.startswith("Pos - ")
    files = get(bookie, f"{API}/bookie/list_disk_file").json
    assert set(files) == {"journal files", "entrylog files", "index files"}
    assert f"{journal_id:x}.txn" in files["journal files"].split("\t")
    assert get(bookie, f"{API}/bookie/list_disk_file?file_type=index").json.keys() == {"index files"}
    assert get(bookie, f"{API}/bookie/unmended_index_pages?ledger_id=7").json == []
    assert ask(bookie, "GET", f"{API}/bookie/unmended_index_pages?ledger_id=x").status == 400
    expanded = ask(bookie, "PUT", f"{API}/bookie/expand_storage")
    assert expanded.status == 200
    assert f"The cookie of {bookie.bookie_id} covers all its directories" in expanded.body.decode()
    assert get(bookie, f"{API}/bookie/entry_location_compact").json == {}
