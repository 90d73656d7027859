"""`bookkeeper why` on staged troubles: what it says is true, names numbers and ids, and what it advises works."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookkeeper.bookie.process.exit_codes import ExitCode
from bookkeeper.cli.main import main
from bookkeeper.cli.why.menders_facts import find_menders
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.faces.blocking import connect as connect_client
from bookkeeper.config import ClientSettings
from bookkeeper.console.reactor import with_store
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster, free_port
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from bookkeeper.model import BookieId, LedgerId
from tests.support.auto_recovery import LocalAutoRecovery, await_no_marks
from tests.support.cluster import STEADY, local_cluster, wait_for_exit, with_long_timeouts
from tests.support.zookeeper_sessions import end_dead_session

pytestmark = pytest.mark.timeout(300)

PASSWORD = b"why"
WHEN = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \([^)]*\)"


class Said:
    """What one run said, as text and as JSON."""

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        self.text, self.json = text, value
        self.state, self.healthy, self.facts = value["state"], value["healthy"], value["facts"]

    def part(self, name: str) -> str:
        return "\n".join(self.json[name])


@pytest.fixture
def why(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Ask in this process, once for text and once for JSON."""

    def ask(*words: str) -> Said:
        outputs = []
        capsys.readouterr()
        for more in ((), ("--json",)):
            code = main(["why", *words, *more])
            captured = capsys.readouterr()
            assert code == 0, captured.err
            outputs.append(captured.out)
        found = Said(outputs[0], json.loads(outputs[1]))
        assert found.text.startswith(f"{found.json['subject']}: ")
        return found

    return ask


def of(bookie: LocalBookie) -> tuple[str, str]:
    return "--conf", str(bookie.conf_path)


def with_http(bookie: LocalBookie) -> None:
    bookie.settings |= {"httpServerEnabled": "true", "httpServerPort": str(free_port())}


def ask_http(bookie: LocalBookie, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", int(bookie.settings["httpServerPort"]), timeout=60)
    try:
        connection.request(method, f"/api/v1/bookie/{path}", None if body is None else json.dumps(body))
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert answer.status == 200, said
        return said
    finally:
        connection.close()


def restart(bookie: LocalBookie, **settings: str) -> None:
    assert bookie.stop() == 0
    bookie.settings |= settings
    bookie.start()


@pytest.fixture
def one(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalBookie]:
    """The bookie of a cluster of its own."""
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster.bookies[0]


# --- a bookie's host


def test_a_bookie_that_is_well_is_said_to_be_so(one: LocalBookie, why: Callable[..., Said]) -> None:
    for about in ("readonly", "disk", "space"):
        said = wait_for(lambda about=about: why(about, *of(one)), lambda said: said.healthy)
        assert re.search(rf"it runs as process {one.pid} since {WHEN}", said.part("working"))
    wait_for(lambda: why("readonly", *of(one)), lambda said: said.state == "is writable")


def test_a_full_disk_by_its_threshold(one: LocalBookie, why: Callable[..., Said]) -> None:
    restart(one, diskUsageThreshold="0.02", diskUsageWarnThreshold="0.02", diskCheckInterval="100")
    known = "registered as read-only: clients know"
    said = wait_for(
        lambda: why("readonly", *of(one)),
        lambda said: bool(said.facts["reasons"]) and serves(said) and known in said.part("holds"),
    )
    directory = re.escape(str(one.ledger_directory))
    assert re.search(
        rf"^read-only since {WHEN}: {directory} is [\d.]+ % full, .* are free \(threshold 2 %: diskUsageThreshold, ",
        said.state,
    ), said.state
    assert re.search(
        rf"turns writable when [\d.]+ GiB are free on the disk of {directory} \(no more than 1 % used\)",
        said.part("next"),
    )
    assert re.search(rf"free [\d.]+ GiB on the disk of {directory}", said.part("do"))
    assert [reason["name"] for reason in said.facts["reasons"]] == ["DISK_FULL"]
    disk = why("disk", *of(one))
    assert re.search(rf"it takes no new files, since {WHEN}", disk.state)
    assert "are not this bookie's" in disk.part("holds")
    # What it advises works.
    restart(one, diskUsageThreshold="0.99", diskUsageWarnThreshold="0.98")
    wait_for(lambda: why("readonly", *of(one)), lambda said: said.state == "is writable")


def test_read_only_by_the_configuration_and_by_an_operator(one: LocalBookie, why: Callable[..., Said]) -> None:
    with_http(one)
    restart(one, forceReadOnlyBookie="true")
    said = wait_for(lambda: why("readonly", *of(one)), serves)
    line = rf"{re.escape(str(one.conf_path))}:\d+"
    assert re.search(rf"^read-only since {WHEN}: forceReadOnlyBookie=true \({line}\)$", said.state), said.state
    restart(one, forceReadOnlyBookie="false")
    ask_http(one, "PUT", "state/readonly", {"readOnly": True})
    said = wait_for(lambda: why("readonly", *of(one)), lambda said: not said.healthy and serves(said))
    assert re.search(rf"^read-only since {WHEN}: an operator ordered it over HTTP$", said.state), said.state
    (command,) = [line for line in said.json["do"] if line.startswith("curl")]
    words = shlex.split(command)
    assert words[:4] == ["curl", "-X", "PUT", "-d"]
    assert ask_http(one, "PUT", words[5].rpartition("/api/v1/bookie/")[2], json.loads(words[4])) == {"readOnly": False}
    wait_for(lambda: why("readonly", *of(one)), lambda said: said.state == "is writable")


def test_a_killed_bookie_and_one_that_was_stopped_have_a_last_known_state(
    one: LocalBookie, why: Callable[..., Said]
) -> None:
    restart(one, forceReadOnlyBookie="true")
    wait_for(lambda: why("readonly", *of(one)), serves)
    one.kill()
    said = why("readonly", *of(one))
    assert re.search(rf"^does not run, and did not say that it ended; last known state of {WHEN}: serving$", said.state)
    assert "it was read-only then: forced by the configuration" in said.part("holds")
    assert why("space", *of(one)).facts["running"] is False
    one.start()
    assert one.stop() == 0
    assert re.search(rf"^does not run: it was stopped {WHEN}$", why("disk", *of(one)).state)
    one.start()


def test_a_disk_of_another_cluster(zookeeper: Any, one: LocalBookie, why: Callable[..., Said]) -> None:
    root = f"/other-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 0) as other:
        own = why("readonly", *of(one)).facts
        assert own["refusal"] == ""
        assert one.stop() == 0
        uri = one.settings["metadataServiceUri"]
        one.settings["metadataServiceUri"] = other.uri
        wait_for_exit(one)
        for about in ("readonly", "disk", "space"):
            said = why(about, *of(one))
            assert said.state.startswith("would be refused at its start: "), said.text
            assert str(one.journal_directory) in said.state
        one.settings["metadataServiceUri"] = uri
        one.start()
        wait_for(lambda: why("readonly", *of(one)), lambda said: said.state == "is writable")


def test_a_directory_that_is_not_mounted(one: LocalBookie, why: Callable[..., Said]) -> None:
    assert one.stop() == 0
    away = one.ledger_directory.with_name("away")
    one.ledger_directory.rename(away)
    said = why("disk", *of(one))
    assert not said.healthy
    assert f"{one.ledger_directory} (ledgerDirectories, indexDirectories) is not there: not mounted" in said.text
    assert "what it acknowledged may be missing" in said.text
    away.rename(one.ledger_directory)
    one.start()


def test_a_disk_that_went_away_ends_the_bookie_which_says_so(one: LocalBookie, why: Callable[..., Said]) -> None:
    restart(one, diskCheckInterval="100")
    away = one.ledger_directory.with_name("away")
    one.ledger_directory.rename(away)
    assert one.wait() == ExitCode.BOOKIE_ERROR
    said = why("disk", *of(one))
    assert re.search(rf"does not run: it failed {WHEN}", said.text), said.text
    assert re.search(rf"{WHEN}, storage: .*No such file or directory: '{one.ledger_directory}'", said.part("error"))
    assert f"{one.ledger_directory} (ledgerDirectories, indexDirectories) is not there" in said.part("holds")
    away.rename(one.ledger_directory)
    one.start()
    said = wait_for(lambda: why("readonly", *of(one)), lambda said: said.state == "is writable")
    assert re.search(rf"the run before this one said last, {WHEN}: failed \(storage: ", said.part("working")), said.text


def test_compaction_that_an_operator_suspended(one: LocalBookie, why: Callable[..., Said]) -> None:
    with_http(one)
    restart(one)
    ask_http(one, "PUT", "gc/suspend_compaction", {"suspendMajor": True})
    said = wait_for(lambda: why("space", *of(one)), lambda said: not said.healthy and serves(said))
    assert said.state == "major compaction is suspended by an operator"
    assert "minor compaction every 60 min rewrites logs of which less than 20 % is live" in said.part("working")
    assert "it is resumed, or a restart" in said.part("next")
    (command,) = [line for line in said.json["do"] if "resume_compaction" in line]
    words = shlex.split(command)
    ask_http(one, "PUT", "gc/resume_compaction", json.loads(words[words.index("-d") + 1]))
    assert wait_for(lambda: why("space", *of(one)), lambda said: said.healthy).state.startswith("garbage is collected")


def test_a_damaged_entry_log_is_left_alone(one: LocalBookie, why: Callable[..., Said]) -> None:
    with_http(one)
    restart(one)
    with connect_client(one.uri) as client:
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=PASSWORD) as ledger:
            ledger.append_many([b"x" * 1000] * 100)
    restart(one)  # the log is closed now
    (path,) = sorted((one.ledger_directory / "current").glob("*.log"))[:1]
    with path.open("r+b") as log:
        log.write(b"\0" * 5000)  # its header, which says where the map is, and entries that the index has
    ask_http(one, "PUT", "gc")
    said = wait_for(lambda: why("space", *of(one)), lambda said: bool(said.facts.get("quarantined")))
    assert said.state.startswith("1 entry log is left alone, so its space does not come back"), said.text
    assert str(path) in said.part("holds")
    assert [each["log"] for each in said.facts["quarantined"]] == [str(path)]
    assert "localconsistencycheck" in said.part("do")


def test_garbage_that_waits_because_the_metadata_store_is_away(tmp_path: Path, why: Callable[..., Said]) -> None:
    with EmbeddedZooKeeper(data_dir=tmp_path / "zookeeper") as zookeeper:
        with local_cluster(zookeeper.address, "/ledgers", 1, directory=tmp_path / "bookies") as cluster:
            (bookie,) = cluster.bookies
            with_http(bookie)
            restart(bookie)
            with connect_client(cluster.uri) as client:
                with client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=PASSWORD) as ledger:
                    ledger.append(b"x")
                client.delete(ledger.id)
            zookeeper.stop()
            ask_http(bookie, "PUT", "gc")
            said = wait_for(lambda: why("space", *of(bookie)), lambda said: said.facts.get("last_error") is not None)
            assert said.state.startswith("the metadata store cannot be asked: "), said.text
            assert "the last round of garbage collection did not get through: " in said.part("holds")
            assert "no ledger was deleted without proof" in said.part("holds")
            assert "every round tries again" in said.part("next")
            assert said.facts["running"] is True
            zookeeper.start()


def wait_for(ask: Callable[[], Said], fits: Callable[[Said], bool]) -> Said:
    """Ask until the answer fits; each question takes a while, and the test's time is bounded."""
    while not fits(said := ask()):
        pass
    return said


def serves(said: Said) -> bool:
    return bool(said.facts["phase"] == "serving" and said.facts["running"])


# --- ledgers


@pytest.fixture(scope="module")
def three(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of three bookies."""
    root = f"/why-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("why")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def client(three: LocalCluster) -> Iterator[BlockingBookKeeper]:
    settings = ClientSettings(explicit_lac_interval_s=0.0)  # otherwise a writer that pauses confirms its last entry
    with connect_client(three.uri, with_long_timeouts(settings)) as client:
        yield client


def written(client: BlockingBookKeeper, bookies: list[LocalBookie], count: int = 100) -> int:
    size = len(bookies)
    ids = [bookie.bookie_id for bookie in bookies]
    with client.create(ensemble=size, write_quorum=2, ack_quorum=2, password=PASSWORD, bookies=ids) as ledger:
        ledger.append_many([b"x" * 10] * count)
        return ledger.id


def on_store(cluster: LocalCluster, use: Callable[[Any], Any]) -> Any:
    return with_store(ClientSettings(metadata_service_uri=cluster.uri), use)


def test_a_whole_ledger_and_one_that_does_not_exist(
    three: LocalCluster, client: BlockingBookKeeper, why: Callable[..., Said]
) -> None:
    ledger_id = written(client, three.bookies)
    said = why("ledger", str(ledger_id), "--uri", three.uri)
    assert said.healthy
    assert said.state == "CLOSED at entry 99, 1,000 bytes; every copy is where it should be"
    for place in said.facts["places"]:
        assert (place["standing"], place["missing"]) == ("GOOD", 0)
    assert sum(place["expected"] for place in said.facts["places"]) == 200
    client.delete(ledger_id)
    said = why("ledger", str(ledger_id), "--uri", three.uri)
    assert "does not exist" in said.state
    for bookie in three.bookies:
        assert re.search(rf"{bookie.bookie_id} still holds 6[67] entries of it: ", said.part("holds"))
    assert "two rounds of garbage collection" in said.part("next")


def test_a_ledger_that_lost_a_bookie(
    zookeeper: Any, three: LocalCluster, client: BlockingBookKeeper, why: Callable[..., Said]
) -> None:
    ledger_id = written(client, three.bookies[:2])
    lost = three.bookies[1]
    lost.kill()
    end_dead_session(three.uri, lost.bookie_id)
    said = why("ledger", str(ledger_id), "--uri", three.uri)
    assert not said.healthy
    assert said.state == f"CLOSED at entry 99, 1,000 bytes, and lacks copies: {lost.bookie_id} is not registered"
    assert f"entries 0..99: {lost.bookie_id} is not registered; it should hold 100 of them" in said.part("holds")
    assert f"entries 0..99: {three.bookies[0].bookie_id} holds all 100 it should" in said.part("holds")
    assert "not marked for repair: no auditor has reported it yet" in said.part("working")
    assert "no auditor is elected" in said.part("working")
    assert "without an auditor the ledger is not marked" in said.part("next")
    assert f"start {lost.bookie_id} again" in said.part("do")

    async def marked(store: Any) -> None:
        tree = store.underreplication
        await tree.mark(LedgerId(ledger_id), [BookieId(lost.bookie_id)], now_ms=1_700_000_000_000)
        await tree.disable()

    on_store(three, marked)
    said = why("ledger", str(ledger_id), "--uri", three.uri)
    assert "marked for repair 2023-11-14 22:13:20 UTC" in said.part("working")
    assert f"for the copies of {lost.bookie_id}" in said.part("working")
    assert "not locked: no worker has it in hand" in said.part("working")
    assert "auto-recovery is disabled in this cluster" in said.part("working")
    assert "bookkeeper shell autorecovery -enable" in said.part("do")
    assert said.facts["marked_for"] == [lost.bookie_id]

    async def enabled(store: Any) -> None:
        await store.underreplication.enable()

    on_store(three, enabled)
    worker = KazooClient(zookeeper.address)  # as Apache's
    worker.start()
    worker.create(f"{three.root}/underreplication/locks/urL{ledger_id:010}", b'bookieId: "host7"\n', ephemeral=True)
    said = why("ledger", str(ledger_id), "--uri", three.uri)
    worker.stop()
    worker.close()
    assert re.search(rf"locked by host7 since {WHEN}: whether it works or waits is unknown", said.part("working"))
    assert "the worker copies what is missing to another bookie" in said.part("next")
    lost.start()
    said = why("ledger", str(ledger_id), "--uri", three.uri)
    assert said.state == "is marked as under-replicated, though every copy that could be asked about is there"


def test_what_auditor_and_worker_say_where_they_can_be_asked(
    three: LocalCluster,
    client: BlockingBookKeeper,
    tmp_path: Path,
    why: Callable[..., Said],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody is left to take the copies, so that the worker fails, and says why."""
    ledger_id = written(client, three.bookies)
    lost = three.bookies[2]
    lost.kill()
    end_dead_session(three.uri, lost.bookie_id)
    port = free_port()
    settings = {
        **STEADY,
        "httpServerEnabled": "true",
        "httpServerPort": str(port),
        "auditorPeriodicBookieCheckInterval": "5",
    }
    words = ("ledger", str(ledger_id), "--uri", three.uri)
    with LocalAutoRecovery(tmp_path / "recovery", three.uri, settings) as recovery:
        own = f"process {recovery.pid} of {socket.gethostname()}"
        said = wait_for(lambda: why(*words), lambda said: "the worker of" in said.part("error"))
        assert re.search(
            rf"the worker of {own} failed \d+ times?: .*no bookie is left to take the copies", said.part("error")
        )
        assert re.search(rf"the auditor is \S+ \({own}\)", said.part("working"))
        assert "the auditor says: look for ledgers on lost bookies: " in said.part("working")
        assert said.facts["auditor_said"]["elected"] is True
        waits = rf"locked by {own} since {WHEN}: it waits: .*; next try "  # between two tries
        said = wait_for(lambda: why(*words), lambda said: re.search(waits, said.part("working")) is not None)
        none_left = (
            "no bookie is left to take 1 copy of the fragment at entry 0: 2 bookies writable, all of them hold it"
        )
        assert none_left in said.part("error")
        assert "nothing, until more bookies are writable" in said.part("next")
        assert "start more bookies" in said.part("do")
        named = why(*words, "--ask", f"127.0.0.1:{port}")
        assert f"the worker of 127.0.0.1:{port} failed" in named.part("error")
        assert list(named.facts["processes_asked"]) == [f"127.0.0.1:{port}"]
        shell = ("shell", "--uri", three.uri)

        def printed(command: str, *more: str) -> str:
            capsys.readouterr()
            assert main([*shell, command, *more]) == 0
            return capsys.readouterr().out

        while not re.search(
            rf"{ledger_id}  {own} waits: .*no bookie is left .*; next try ", printed("listunderreplicated", "-prw")
        ):
            pass
        while not re.search(
            rf"^ledger {ledger_id}: {own} waits: ", out := printed("queryautorecoverystatus"), re.MULTILINE
        ):
            pass
        assert re.search(rf"^{own}, votes as \S+, HTTP at 127\.0\.0\.1:{port}$", out, re.MULTILINE), out
        assert main([*shell, "whoisauditor"]) == 0
        assert own in capsys.readouterr().err
        # The back-off may be minutes by now: the bookie that comes back ends it.
        lost.start()
        await_no_marks(three.uri)

    async def announced(store: Any) -> Any:
        return await store.underreplication.processes()

    assert on_store(three, announced) == ()


def test_a_worker_without_http_is_said_to_be_one(
    three: LocalCluster, client: BlockingBookKeeper, tmp_path: Path, why: Callable[..., Said]
) -> None:
    ledger_id = written(client, three.bookies)
    lost = three.bookies[2]
    lost.kill()
    end_dead_session(three.uri, lost.bookie_id)
    settings = {**STEADY, "httpServerEnabled": "false", "auditorPeriodicBookieCheckInterval": "5"}
    words = ("ledger", str(ledger_id), "--uri", three.uri)
    with LocalAutoRecovery(tmp_path / "recovery", three.uri, settings) as recovery:
        own = f"process {recovery.pid} of {socket.gethostname()}"
        said = wait_for(lambda: why(*words), lambda said: f"locked by {own}" in said.part("working"))
        assert "whether it works or waits is unknown: it serves no HTTP: httpServerEnabled=true" in said.part("working")
        lost.start()
        await_no_marks(three.uri)


def test_who_mends_what_is_reported(three: LocalCluster, tmp_path: Path) -> None:
    """As an audit that queued repairs asks; with HTTP off, what a process announces is enough."""
    settings = ClientSettings(metadata_service_uri=three.uri)
    nobody = find_menders(three.uri, settings)
    assert nobody.why_nobody.startswith("no process with auto-recovery runs that mends reported copies")
    with LocalAutoRecovery(tmp_path / "recovery", three.uri, {**STEADY, "httpServerEnabled": "false"}):
        while not (found := find_menders(three.uri, settings)).announced:
            pass
        assert (found.enabled, found.announced, list(found.said())) == (True, 1, [])
        on_store(three, lambda store: store.underreplication.disable())
        disabled = find_menders(three.uri, settings)
        on_store(three, lambda store: store.underreplication.enable())
        assert disabled.why_nobody == "auto-recovery is disabled"


def test_a_ledger_that_is_being_written_is_well(
    three: LocalCluster, client: BlockingBookKeeper, why: Callable[..., Said]
) -> None:
    """The writer writes all the time, so that some copy is on its way whenever the bookies are asked."""
    writer = client.create(ensemble=3, write_quorum=2, ack_quorum=2, password=PASSWORD)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            writer.append_many([b"x" * 10] * 200)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        risen = 0
        while risen < 3:
            said = why("ledger", str(writer.id), "--uri", three.uri, "--observe", "0.3")
            assert said.healthy is True, said.text
            found = re.search(
                r"^OPEN, every copy up to entry \d+ is there; "
                r"(its writer is alive: its last confirmed entry rose by [\d,]+ in 300 ms"
                r"|not written to in the 300 ms it was watched)$",  # if a disk or a process paused
                said.state,
            )
            assert found is not None, said.state
            risen += found[1].startswith("its writer is alive")
            assert {place["missing"] for place in said.facts["places"]} == {0}
    finally:
        stop.set()
        writing.join()
    writer.close()


def test_what_a_damaged_index_hides_is_unknown_and_what_is_advised_works(
    three: LocalCluster, client: BlockingBookKeeper, why: Callable[..., Said]
) -> None:
    ledger_id = written(client, three.bookies)
    bookie = three.bookies[0]
    assert bookie.stop() == 0
    (path,) = bookie.ledger_directory.rglob(f"{ledger_id:x}.idx")
    index = bytearray(path.read_bytes())
    index[1024 + 8] ^= 1  # behind the header: where an entry is
    path.write_bytes(index)
    bookie.start()
    words = ("ledger", str(ledger_id), "--uri", three.uri)
    said = why(*words)
    assert said.healthy is None, said.text
    assert said.state.endswith(f"; whether every copy is there is unknown: {bookie.bookie_id} did not tell")
    (command,) = re.findall(r"bookkeeper (shell --conf FILE regenerate-\S+ -ledgerIds \d+);", said.part("do"))
    assert bookie.stop() == 0
    assert main(command.replace("FILE", str(bookie.conf_path)).split()) == 0
    bookie.start()
    assert why(*words).healthy is True


def test_an_open_ledger_whose_writer_is_gone(
    three: LocalCluster, client: BlockingBookKeeper, why: Callable[..., Said]
) -> None:
    writer = client.create(ensemble=3, write_quorum=2, ack_quorum=2, password=PASSWORD)
    for _ in range(10):
        writer.append(b"x")
    writer.abort()
    words = ("ledger", str(writer.id), "--uri", three.uri, "--observe", "0.1")
    said = why(*words)
    assert re.search(
        r"^OPEN, every copy up to entry 8 is there; not written to in the 100 ms it was watched$", said.state
    ), said.state
    assert "acknowledged up to entry 8, as the bookies know; the highest stored is 9" in said.part("holds")
    assert "no progress in 100 ms: its writer is idle, or gone" in said.part("working")
    assert "it stays open until its writer closes it" in said.part("next")
    (command,) = re.findall(r"bookkeeper shell (readledger -l \d+ -r)", said.part("do"))
    assert main(["shell", "--uri", three.uri, *command.split()]) == 0
    assert why(*words).state == "CLOSED at entry 9, 10 bytes; every copy is where it should be"


def test_copies_that_a_bookie_never_got(
    three: LocalCluster, client: BlockingBookKeeper, why: Callable[..., Said]
) -> None:
    """The metadata names a bookie that was never sent an entry."""
    ledger_id = written(client, three.bookies[:2])
    first, second, third = (BookieId(bookie.bookie_id) for bookie in three.bookies)

    async def misled(store: Any) -> None:
        known = await store.ledgers.read(LedgerId(ledger_id))
        fragments = (replace(known.value.fragments[0], ensemble=(first, third)),)
        await store.ledgers.write(LedgerId(ledger_id), replace(known.value, fragments=fragments), known.version)

    on_store(three, misled)
    said = why("ledger", str(ledger_id), "--uri", three.uri)
    assert said.state == f"CLOSED at entry 99, 1,000 bytes, and lacks copies: {third} lacks entries"
    assert f"entries 0..99: {third} lacks 100 of the 100 it should hold, the first is entry 0" in said.part("holds")
    assert second not in said.part("holds")


# --- usage


def test_it_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "disk"]) == 2
    assert "which bookie? Give its conf file: bookkeeper why disk --conf FILE" in capsys.readouterr().err
    assert main(["why", "ledger"]) == 2
    capsys.readouterr()
    assert main(["why", "--help"]) == 0
    shown = capsys.readouterr().out
    for example in ("why ledger 7", "why readonly --conf", "why disk --conf", "why space --conf"):
        assert example in shown
