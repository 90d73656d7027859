"""Znodes of random bytes in a real cluster: repair and garbage collection continue, and lists name the bad records."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.console.output import EXIT_PARTIAL
from bookkeeper.console.reactor import with_store
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster, free_port
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.metadata.tree import NodeAbsent
from bookkeeper.metadata.underreplication.format import leaf_name, mark_path
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess, format_process, node_name
from bookkeeper.model import BookieId
from tests.support.auto_recovery import LocalAutoRecovery, await_unregistered, mark, names
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.command_line import CommandLine
from tests.support.patience import until
from tests.support.zookeeper_sessions import end_dead_session

pytestmark = pytest.mark.timeout(300)

GARBAGE = b"\xff\xff\xff"
STRAYS = {
    "x": GARBAGE,
    "00/00zz": GARBAGE,
    "00/0000/notaledger": GARBAGE,
    "underreplication/ledgers/x": GARBAGE,
    "underreplication/badcopies/x": GARBAGE,
}
OTHERS = {
    "available/garbage:1": GARBAGE,
    "cookies/nobody:1": GARBAGE,
    "underreplication/locks/x": GARBAGE,
    "underreplication/auditorelection/V_-2147483648": GARBAGE,
    "underreplication/workers/x": GARBAGE,
    "underreplication/lostBookieRecoveryDelay": GARBAGE,
}
"""Below the ledgers root."""


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """Four bookies; the first serves HTTP."""
    settings = {**STEADY, "gcWaitTime": "1000"}
    with local_cluster(
        zookeeper.address, ledgers_root, 4, directory=tmp_path / "cluster", settings=settings
    ) as cluster:
        first = cluster.bookies[0]
        assert first.stop() == 0
        first.settings |= {"httpServerEnabled": "true", "httpServerPort": str(free_port())}
        first.start()
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with connect(cluster.uri, with_long_timeouts()) as client:
        yield client


@pytest.fixture
def command_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch)


def put(uri: str, root: str, znodes: Mapping[str, bytes]) -> None:
    """Write znodes below the root, past the programs that own them; create missing parents."""

    async def use(store: MetadataStore) -> None:
        for name, data in znodes.items():
            parts = name.split("/")
            for depth in range(1, len(parts)):
                above = f"{root}/{'/'.join(parts[:depth])}"
                if await store.tree.stat(above) is None:
                    await store.tree.create(above, b"")
            path = f"{root}/{name}"
            try:
                _, stat = await store.tree.read(path)
            except NodeAbsent:
                await store.tree.create(path, data)
            else:
                await store.tree.write(path, data, stat.version)

    with_store(ClientSettings(metadata_service_uri=uri), use)


def ask(bookie: LocalBookie, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", int(bookie.settings["httpServerPort"]), timeout=30)
    try:
        connection.request("GET", f"/api/v1/{path}")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def write(client: BlockingBookKeeper, bookies: list[LocalBookie]) -> int:
    members = [bookie.bookie_id for bookie in bookies]
    with client.create(ensemble=len(members), write_quorum=2, ack_quorum=2, password=b"p", bookies=members) as ledger:
        ledger.append_many([b"x"] * 10)
    return ledger.id


def test_repair_and_collection_continue_beside_bad_records(
    cluster: LocalCluster, client: BlockingBookKeeper, ledgers_root: str, tmp_path: Path
) -> None:
    first, *others = cluster.bookies
    lost = others[0]
    ids = [write(client, others) for _ in range(3)]
    gone, unreadable = write(client, cluster.bookies[:3]), write(client, others)

    def holds(bookie: LocalBookie, ledger_id: int) -> bool:
        return any(int(path.stem, 16) == ledger_id for path in bookie.directory.rglob("*.idx"))

    while not (holds(first, gone) and holds(others[1], unreadable)):  # index files come with a checkpoint
        pass
    lock = f"underreplication/locks/{leaf_name(ids[0])}"
    put(cluster.uri, ledgers_root, {**STRAYS, **OTHERS, hierarchical_path(unreadable)[1:]: GARBAGE, lock: GARBAGE})
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, STEADY) as recovery:
        lost.kill()
        end_dead_session(cluster.uri, lost.bookie_id)
        await_unregistered(cluster.uri, lost.bookie_id)
        while any(names(client.metadata(ledger_id), lost.bookie_id) for ledger_id in ids):
            pass
        expected = [f"{ledgers_root}/{stray}: is neither" for stray in ("x", "00/00zz", "00/0000/notaledger")]
        # The audit logs strays at its end, perhaps after its marks were repaired.
        until(lambda: all(each in recovery.log_path.read_text() for each in expected), "the audit has named the strays")
        logged = recovery.log_path.read_text()
        assert [logged.count(each) for each in expected] == [1, 1, 1]
        assert "V_-2147483648: belongs to no session" in logged
        assert f"{ledgers_root}/{lock}: belongs to no session" in logged
    for ledger_id in ids:
        with client.open(ledger_id, password=b"p") as handle:
            assert [entry.payload for entry in handle.read(0, 9)] == [b"x"] * 10
    client.delete(gone)

    while holds(first, gone):
        pass
    assert holds(others[1], unreadable), "a ledger with an unreadable record exists"


def test_an_auditor_whose_vote_cannot_be_read_is_named_by_its_session(
    cluster: LocalCluster, zookeeper: Any, ledgers_root: str, command_line: CommandLine
) -> None:
    shell = ("shell", "--uri", cluster.uri)
    session = KazooClient(zookeeper.address)
    session.start()
    try:
        tree = f"{ledgers_root}/underreplication"
        vote = session.create(f"{tree}/auditorelection/V_", GARBAGE, makepath=True, ephemeral=True, sequence=True)
        found = command_line(*shell, "whoisauditor", code=EXIT_PARTIAL)
        assert found.out == "unknown\n"
        assert f"passed over: {vote}: " in found.err
        command_line(*shell, "triggeraudit", code=EXIT_PARTIAL)
        found = command_line(*shell, "--json", "clusterinfo", code=EXIT_PARTIAL)
        assert (json.loads(found.out)["auditorElected"], json.loads(found.out)["auditorId"]) == (True, "")
        found = command_line(*shell, "queryautorecoverystatus", code=EXIT_PARTIAL)
        assert found.lines[0].endswith("auditor: unknown")
        process = RecoveryProcess("h", 7, 5, BookieId("a:1"), None)
        said = f"{tree}/workers/{node_name(process)}"
        session.create(said, format_process(process), makepath=True, ephemeral=True)
        found = command_line(*shell, "--json", "whoisauditor", code=EXIT_PARTIAL)
        shown = json.loads(found.out)
        assert (shown["auditor"], shown["process"]["pid"]) == ("a:1", 7)
        assert [each["path"] for each in shown["unreadable"]] == [vote]
    finally:
        session.stop()
        session.close()


def test_lists_show_readable_records_and_name_the_others(
    cluster: LocalCluster, client: BlockingBookKeeper, ledgers_root: str, command_line: CommandLine
) -> None:
    good, bad = (write(client, cluster.bookies[:3]) for _ in range(2))
    mark(cluster.uri, [good, bad], ["lost:1"])
    put(
        cluster.uri,
        ledgers_root,
        {
            **STRAYS,
            **OTHERS,
            hierarchical_path(bad)[1:]: GARBAGE,
            f"underreplication/ledgers{mark_path(bad)}": GARBAGE,
            f"underreplication/locks/{leaf_name(good)}": GARBAGE,
        },
    )
    bad_path = ledgers_root + hierarchical_path(bad)
    bad_mark = f"{ledgers_root}/underreplication/ledgers{mark_path(bad)}"
    strays = [f"{ledgers_root}/{name}" for name in ("x", "00/00zz", "00/0000/notaledger")]
    uri = ("--uri", cluster.uri)

    found = command_line("ledger", "list", *uri, code=EXIT_PARTIAL)
    assert found.lines == [str(good), str(bad)]
    assert all(f"passed over: {path}: " in found.err for path in strays)
    found = command_line("ledger", "list", "--long", "--json", *uri, code=EXIT_PARTIAL)
    rows = [json.loads(line) for line in found.lines]
    assert [row["state"] for row in rows if "unreadable" not in row] == ["CLOSED"]
    assert {(row["ledger_id"], row["path"]) for row in rows if "unreadable" in row} == {
        (bad, bad_path),
        *((None, path) for path in strays),
    }
    for command in (("listledgers", "-meta"), ("listledgers", "-bookieid", cluster.bookies[0].bookie_id)):
        found = command_line("shell", *uri, *command, code=EXIT_PARTIAL)
        assert str(good) in found.out
        assert f"passed over: {bad_path}: " in found.err
    found = command_line("shell", *uri, "listunderreplicated", "-pmr", "-prw", code=EXIT_PARTIAL)
    assert [line.partition(" ")[0] for line in found.lines] == [str(good)]
    assert found.out.rstrip().endswith("nobody is at work on it")
    assert f"passed over: {bad_mark}: " in found.err
    assert f"passed over: {ledgers_root}/underreplication/locks/{leaf_name(good)}: " in found.err
    found = command_line("shell", *uri, "--json", "listunderreplicated", "-c", "-mr", "lost:1", code=EXIT_PARTIAL)
    assert json.loads(found.out)["count"] == 1
    assert bad_mark in {each["path"] for each in json.loads(found.out)["unreadable"]}
    command_line("shell", *uri, "listunderreplicated", "-damaged", code=EXIT_PARTIAL)
    found = command_line("shell", *uri, "--json", "queryautorecoverystatus", code=EXIT_PARTIAL)
    assert json.loads(found.out)["underreplicated"] == 2
    announced = f"{ledgers_root}/underreplication/workers/x"
    assert announced in {each["path"] for each in json.loads(found.out)["unreadable"]}
    assert json.loads(found.out)["working"] == []
    found = command_line("shell", *uri, "--json", "listbookies", "-a", code=EXIT_PARTIAL)
    problems = {row["bookie_id"]: row.get("problem") for row in json.loads(found.out)}
    assert {bookie_id for bookie_id, problem in problems.items() if problem} == {"garbage:1", "nobody:1"}
    assert f"passed over: {ledgers_root}/available/garbage:1: " in found.err
    found = command_line("shell", *uri, "listbookies", "-a", code=EXIT_PARTIAL)
    states = {line.split()[0]: line.split()[1:-1] for line in found.lines[1:]}
    assert {bookie_id for bookie_id, state in states.items() if state[-1] == "unreadable"} == {"garbage:1", "nobody:1"}
    found = command_line("shell", *uri, "clusterinfo", code=EXIT_PARTIAL)
    assert f"passed over: {ledgers_root}/available/garbage:1: " in found.err
    found = command_line("shell", *uri, "lostbookierecoverydelay", "-g", code=1)
    assert "lostbookierecoverydelay -set" in found.err
    command_line("shell", *uri, "lostbookierecoverydelay", "-set", 0)

    first = cluster.bookies[0]
    status, listed = ask(first, "ledger/list")
    assert (status, {each["path"] for each in listed.pop("unreadable")}) == (200, set(strays))
    assert listed == {str(good): None, str(bad): None}
    status, listed = ask(first, "ledger/list?print_metadata=true")
    assert (status, {each["path"] for each in listed.pop("unreadable")}) == (200, {bad_path, *strays})
    assert (listed[str(good)]["state"], listed[str(bad)]) == ("CLOSED", None)
    assert ask(first, "autorecovery/list_under_replicated_ledger") == (200, [good, bad])
    status, listed = ask(first, "autorecovery/list_under_replicated_ledger?printmissingreplica=true")
    assert bad_mark in {each["path"] for each in listed.pop("unreadable")}
    assert (status, listed) == (200, {str(good): ["lost:1"], str(bad): []})


def test_new_ledgers_are_never_placed_on_an_unreadable_registration(cluster: LocalCluster, ledgers_root: str) -> None:
    put(cluster.uri, ledgers_root, {f"available/garbage{number}:1": GARBAGE for number in range(20)})
    with connect(cluster.uri, with_long_timeouts()) as client:
        for _ in range(10):
            with client.create(ensemble=3, write_quorum=3, ack_quorum=2, password=b"p") as ledger:
                ledger.append(b"x")
            (fragment,) = client.metadata(ledger.id).fragments
            assert not [bookie_id for bookie_id in fragment.ensemble if bookie_id.startswith("garbage")]
        strays = BadRecords()
        assert [ledger_id for batch in client.ids(strays) for ledger_id in batch]
        assert not strays
