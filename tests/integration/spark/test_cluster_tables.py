"""The format bookkeeper.cluster on a cluster with something of everything, beside what client and commands say.

bookie 1   writable, with HTTP            bookie 3   read-only, with HTTP
bookie 2   writable, without HTTP         bookie 4   killed, after it had copies of the ledger `moved`
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from kazoo.client import KazooClient
from twisted.internet.defer import Deferred

import bookkeeper.blocking
import bookkeeper.spark
import hedwig.blocking
from bookkeeper.admin.questions import get_json
from bookkeeper.cli.main import main as bookkeeper_command
from bookkeeper.cli.perf.counters import read_metrics
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.model import BookieId, EntryId, LedgerId
from bookkeeper.spark.cluster.catalogue import OWN
from bookkeeper.spark.cluster.entry_logs import NAMES_PATH, ask_logs, name_rows
from bookkeeper.spark.cluster.held_ledgers import ask_ledgers
from hedwig.cli.main import main as hedwig_command
from hedwig.embedded import LocalHub
from journalmgr.cli.main import main as journal_command
from journalmgr.config import variable_of
from tests.support.audit_faults import damage_metadata
from tests.support.cluster import (
    STEADY,
    STEADY_HUB,
    collected,
    local_cluster,
    when_gone,
    when_writable,
    with_long_timeouts,
)
from tests.support.edit_journals import remove_journal
from tests.support.in_process import run_here
from tests.support.journal_log import writing
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

LOCKING = ClientSettings(zk_session_timeout_s=30.0)
"""The tables show a lock of the client only until its session ends."""

HTTP = {"httpServerEnabled": "true", "httpServerPort": "0"}
MARKED_MS = 1_700_000_000_123
PASSWORD = b"not to be shown"


@dataclass
class World:
    """A cluster, its ledgers by what they are for, and views of its tables: cl_bookies ..."""

    spark: Any
    cluster: LocalCluster
    client: BlockingBookKeeper
    ids: list[str]
    moved: int
    open: int
    empty: int
    unreadable: int
    marked: int
    damaged: int

    def rows(self, query: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.spark.sql(query).collect()]

    def row(self, query: str) -> dict[str, Any]:
        [found] = self.rows(query)
        return found

    def shell(self, *words: str) -> list[dict[str, Any]]:
        """The JSON lines of a command."""
        shell = ["shell", "--uri", self.cluster.uri, *words]
        code, out, said = run_here(bookkeeper_command, shell, dict(os.environ))
        assert code == 0, said
        return [json.loads(line) for line in out.splitlines()]


@dataclass
class Beside:
    """What hubs and a metadata server have in the world's cluster: a topic, two subscriptions, a journal."""

    region_prefix: str
    hub: LocalHub
    journal: str
    options: dict[str, str]

    def hedwig(self, world: World, *words: str) -> list[dict[str, Any]]:
        """The JSON lines of a command."""
        where = {"HW_metadataServiceUri": world.cluster.uri, "HW_zk_prefix": self.region_prefix}
        code, out, said = run_here(hedwig_command, [*words, "--json"], {**os.environ, **where})
        assert code == 0, said
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def beside(world: World, zookeeper: Any) -> Iterator[Beside]:
    cluster = world.cluster
    region_prefix = f"{cluster.root}-hubs"
    settings = {"zk_prefix": region_prefix, "bk_ensemble_size": "2", "max_entries_per_ledger": "4"}
    hub = LocalHub.beside(cluster, 1, {**STEADY_HUB, **settings})
    cluster.start_others([hub])
    journal = f"bookkeeper://{zookeeper.address}{cluster.root}-journal"
    on_two = "dfs.namenode.bookkeeperjournal.ensemble-size"
    environment = {
        variable_of("dfs.namenode.bookkeeperjournal.zk.availablebookies"): f"{cluster.root}/available",
        variable_of(on_two): "2",
    }
    options = {"zk_prefix": region_prefix, "journal": journal}
    views = bookkeeper.spark.cluster_views(world.spark, uri=cluster.uri, prefix="be_", options=options)
    assert {"be_topics", "be_subscriptions", "be_hubs", "be_segments", "be_ledgers"} <= set(views)
    with mock.patch.dict(os.environ, environment), hedwig.blocking.connect([hub.address]) as client:
        with client.subscribe("news", "reader") as reader:
            client.subscribe("news", "lazy").close()
            client.publish_many("news", [b"0123456789"] * 10)
            for _ in range(7):
                reader.consume(next(reader))
        names = ("--cluster-id", "CID-1", "--namespace-id", "42", "--block-pool-id", "BP-1-10.0.0.1-1421135800377")
        code, _, said = run_here(journal_command, ["format", journal, *names], dict(os.environ))
        assert code == 0, said
        with writing(journal) as log:
            log.append(8)
            log.roll()
            log.append(3)
            yield Beside(region_prefix, hub, journal, options)
            log.close()
    remove_journal(zookeeper.address, f"{cluster.root}-journal")
    for view in views:
        world.spark.catalog.dropTempView(view)


@pytest.fixture(scope="module")
def world(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = f"/tables-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("tables")
    spark = spark_session()
    with (
        local_cluster(zookeeper.address, root, 0, directory=directory) as cluster,
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts(LOCKING)) as client,
    ):
        lasting = ({**STEADY, **HTTP}, STEADY, {**STEADY, **HTTP, "forceReadOnlyBookie": "true"})
        for number, settings in enumerate((*lasting, {}), 1):
            bookie = cluster.add_bookie(start=False)
            bookie.settings.update(settings)
            if "httpServerEnabled" in settings:
                bookie.settings["httpServerPort"] = str(free_port())
            bookie.start(wait=False)
            assert bookie.number == number
        for bookie in cluster.bookies:
            bookie.wait_ready()
        ids = [bookie.bookie_id for bookie in cluster.bookies]
        when_writable(client, ids[1])  # it will replace the last bookie
        custom = {"application": b"pulsar", "pulsar/managed-ledger": b"t/n/persistent/x", "raw": b"\xff"}
        with client.create(
            ensemble=2, write_quorum=2, bookies=[ids[0], ids[3]], custom=custom, password=PASSWORD
        ) as moved:
            moved.append_many([b"12345"] * 7)
            cluster.bookies[3].kill()
            moved.append_many([b"12345"] * 4)
        when_gone(client, ids[3])
        on_two = {"ensemble": 2, "write_quorum": 2, "bookies": ids[:2]}
        still_open = client.create(**on_two)  # type: ignore[arg-type]
        still_open.append(b"first")
        done = []
        for _ in range(4):
            with client.create(**on_two) as ledger:  # type: ignore[arg-type]
                done.append(ledger.id)
        empty, unreadable, marked, damaged = done
        damage_metadata(client, cluster.root, unreadable)
        tables = client.run(lambda ledgers: Deferred.fromCoroutine(_mark(ledgers, ids, marked, damaged)))
        assert tables is not None
        views = bookkeeper.spark.cluster_views(spark, uri=cluster.uri, prefix="cl_", only=[each.name for each in OWN])
        yield World(spark, cluster, client, ids, moved.id, still_open.id, empty, unreadable, marked, damaged)
        for view in views:
            spark.catalog.dropTempView(view)
        still_open.close()


async def _mark(ledgers: LedgerClient, ids: list[str], marked: int, damaged: int) -> Any:
    marks = ledgers.store.underreplication
    await marks.mark(LedgerId(marked), [BookieId(ids[3])], now_ms=MARKED_MS)
    ranges = [
        BadRange(BookieId(ids[0]), EntryId(3), EntryId(9), "checksum", MARKED_MS),
        BadRange(BookieId(ids[1]), EntryId(4), EntryId(4)),
    ]
    await marks.report_bad_copies(LedgerId(damaged), ranges)
    await marks.set_recovery_delay(77)
    return await marks.lock(LedgerId(marked), "some worker", lambda: None)


# --- bookies


def test_each_bookie_has_its_state_and_the_room_that_it_tells(world: World) -> None:
    found = {row["bookie"]: row for row in world.rows("SELECT * FROM cl_bookies")}
    assert sorted(found) == sorted(world.ids)
    b1, b2, b3, b4 = (found[each] for each in world.ids)
    assert [row["state"] for row in (b1, b2, b3, b4)] == ["writable", "writable", "read-only", "lost"]
    for row, bookie in zip((b1, b2, b3), world.cluster.bookies, strict=False):
        assert (row["host"], row["port"], row["problem"]) == ("127.0.0.1", bookie.port, None)
        assert row["total_bytes"] == world.client.bookie_info(bookie.bookie_id).total_bytes
        assert 0 < row["free_bytes"] <= row["total_bytes"]
    assert b1["http"] == f"127.0.0.1:{world.cluster.bookies[0].settings['httpServerPort']}"
    assert b2["http"] is None
    assert (b4["total_bytes"], b4["free_bytes"], b4["host"]) == (None, None, None)
    assert b4["problem"] == "it is not registered, so nobody can ask it"


def test_the_cookies_are_those_of_all_bookies_that_ever_were(world: World) -> None:
    found = {row["bookie"]: row for row in world.rows("SELECT * FROM cl_cookies")}
    instance = world.client.run(lambda ledgers: ledgers.store.admin.instance_id())
    for bookie in world.cluster.bookies:
        row = found.pop(bookie.bookie_id)
        assert (row["host"], row["instance_id"], row["problem"]) == (bookie.bookie_id, instance, None)
        assert row["ledger_directories"] == row["index_directories"] == [str(bookie.ledger_directory)]
    assert not found


# --- ledgers


def test_the_ledgers_are_what_their_metadata_says(world: World) -> None:
    found = {row["ledger_id"]: row for row in world.rows("SELECT * FROM cl_ledgers")}
    assert set(found) == {each for batch in world.client.ids() for each in batch}
    for ledger_id, row in found.items():
        if ledger_id == world.unreadable:
            continue
        metadata = world.client.metadata(ledger_id)
        assert (row["state"], row["last_entry_id"]) == (metadata.state.name, metadata.last_entry_id)
        assert (row["length"], row["fragments"]) == (metadata.length, len(metadata.fragments))
        assert (row["ensemble_size"], row["write_quorum"], row["ack_quorum"]) == (2, 2, 2)
        assert {name: bytes(value) for name, value in row["custom"].items()} == dict(metadata.custom)
        assert row["created"].timestamp() * 1000 == pytest.approx(metadata.created_ms, abs=1)
        assert row["problem"] is None
        assert PASSWORD.decode() not in repr(row)
    moved = found[world.moved]
    assert (moved["state"], moved["last_entry_id"], moved["length"], moved["fragments"]) == ("CLOSED", 10, 55, 2)
    assert (moved["application"], moved["owner"]) == ("pulsar", "t/n/persistent/x")
    assert (found[world.open]["state"], found[world.open]["last_entry_id"]) == ("OPEN", None)
    assert (found[world.empty]["last_entry_id"], found[world.empty]["length"]) == (-1, 0)


def test_metadata_that_cannot_be_read_is_a_row_with_its_reason(world: World) -> None:
    for table in ("cl_ledgers", "cl_fragments"):
        row = world.row(f"SELECT * FROM {table} WHERE ledger_id = {world.unreadable}")
        told = row.pop("problem")
        assert "nonsense" in told
        assert row.pop("ledger_id") == world.unreadable
        assert set(row.values()) == {None}


def test_znodes_that_can_be_no_row_are_named_beside_the_rest(world: World, zookeeper: Any) -> None:
    listed = [row["ledger_id"] for row in world.rows("SELECT ledger_id FROM cl_ledgers ORDER BY ledger_id")]
    root = world.cluster.root
    strays = {
        f"{root}/00/0000/notaledger": "ledger",
        f"{root}/underreplication/ledgers/x": "underreplicated",
        f"{root}/underreplication/badcopies/x": "damaged",
        f"{root}/underreplication/workers/x": "recovery_process",
    }
    assert world.rows("SELECT * FROM cl_unreadable") == []
    tree = KazooClient(zookeeper.address)
    tree.start()
    try:
        for path in strays:
            tree.create(path, b"\xff", makepath=True)
        found = world.rows("SELECT * FROM cl_unreadable")
        [view] = bookkeeper.spark.cluster_views(world.spark, uri=world.cluster.uri, prefix="st_", only=["ledgers"])
        assert [row["ledger_id"] for row in world.rows(f"SELECT ledger_id FROM {view} ORDER BY ledger_id")] == listed
        world.spark.catalog.dropTempView(view)
        for path in strays:
            tree.delete(path)
    finally:
        tree.stop()
        tree.close()
    assert {row["path"]: row["kind"] for row in found} == strays
    assert all(row["problem"] for row in found)


def test_the_fragments_say_which_bookies_have_which_entries(world: World) -> None:
    found = world.rows(f"SELECT * FROM cl_fragments WHERE ledger_id = {world.moved} ORDER BY index")
    metadata = world.client.metadata(world.moved)
    assert [(row["first_entry_id"], tuple(row["bookies"])) for row in found] == [
        (each.first_entry_id, each.ensemble) for each in metadata.fragments
    ]
    assert [(row["last_entry_id"], row["entries"]) for row in found] == [(6, 7), (10, 4)]
    row = world.row(f"SELECT * FROM cl_fragments WHERE ledger_id = {world.open}")
    assert (row["last_entry_id"], row["entries"], row["problem"]) == (None, None, None)


def test_a_table_is_read_by_as_many_tasks_as_wanted(world: World) -> None:
    frame = world.spark.read.format("bookkeeper.cluster").options(
        table="ledgers", uri=world.cluster.uri, maxLedgersPerPartition="2"
    )
    whole = frame.load()
    everything = [each for batch in world.client.ids() for each in batch]
    assert whole.rdd.getNumPartitions() == -(-len(everything) // 2)
    assert sorted(row.ledger_id for row in whole.collect()) == everything
    some = whole.where(f"ledger_id IN ({world.moved}, {world.open}, 999999)")
    assert sorted(row.ledger_id for row in some.collect()) == sorted((world.moved, world.open))
    assert whole.where("ledger_id > 900000").collect() == []


# --- entry logs


def test_entry_logs_are_as_their_bookie_tells_and_who_does_not_tell_is_named(world: World) -> None:
    bookie = world.cluster.bookies[0]
    collected(bookie)
    rows = world.rows("SELECT * FROM cl_entry_logs")
    silent = {row["bookie"]: row["problem"] for row in rows if row["log_id"] is None}
    assert set(silent) == {world.ids[1], world.ids[3]}
    assert "httpServerEnabled=true" in silent[world.ids[1]]
    assert silent[world.ids[3]] == "it is not registered, so nobody can ask it"
    found = {row["log_id"]: row for row in rows if row["bookie"] == bookie.bookie_id}
    files = {int(path.stem, 16): path for path in bookie.ledger_directory.rglob("*.log")}
    assert set(found) == set(files) != set()
    for log_id, row in found.items():
        assert (row["size_bytes"], row["problem"]) == (files[log_id].stat().st_size, None)
        assert 0 < row["live_bytes"] <= row["record_bytes"] <= row["size_bytes"]
        assert row["live_ratio"] == row["live_bytes"] / row["record_bytes"]
        assert row["as_of"] is not None
    assert bookie.metrics_url is not None
    shown = read_metrics(bookie.metrics_url)
    assert sum(row["live_bytes"] for row in found.values()) == (
        shown["bookie_gc_LIVE_ENTRY_LOG_BYTES"] + shown["bookie_gc_WRITTEN_ENTRY_LOG_LIVE_BYTES"]
    )


def test_held_ledgers_are_those_that_their_bookie_tells_of_and_who_does_not_tell_is_named(world: World) -> None:
    rows = world.rows("SELECT * FROM cl_held_ledgers")
    silent = {row["bookie"]: row["problem"] for row in rows if row["first_ledger_id"] is None}
    assert set(silent) == {world.ids[1], world.ids[3]}
    assert "httpServerEnabled=true" in silent[world.ids[1]]
    assert silent[world.ids[3]] == "it is not registered, so nobody can ask it"
    told = {
        ledger_id
        for row in rows
        if row["bookie"] == world.ids[0]
        for ledger_id in range(row["first_ledger_id"], row["last_ledger_id"] + 1)
    }
    assert told == {int(path.stem, 16) for path in world.cluster.bookies[0].directory.rglob("*.idx")} != set()
    port = int(world.cluster.bookies[0].settings["httpServerPort"])
    [[row]] = ask_ledgers("other:1", ("127.0.0.1", port))
    assert f"there is bookie {world.ids[0]}, and not other:1" in str(row[-1])
    [[row]] = ask_ledgers("b:1", ("127.0.0.1", free_port()))
    assert "did not tell" in str(row[-1])


def test_a_bookie_that_does_not_answer_has_a_row_that_says_so(world: World) -> None:
    [[row]] = ask_logs("b:1", ("127.0.0.1", free_port()))
    assert row[:2] == ("b:1", None)
    assert "did not tell" in str(row[-1])
    # As an older bookie, or Apache's: what it has under the path of names.
    port = int(world.cluster.bookies[0].settings["httpServerPort"])
    rows = name_rows("b:1", get_json(("127.0.0.1", port), NAMES_PATH, timeout_s=60.0))
    [told] = ask_logs("b:1", ("127.0.0.1", port))
    assert [row[1] for row in rows] == [row[1] for row in told]


# --- repairs


def test_marks_and_damage_are_what_the_commands_list(world: World) -> None:
    marks = world.shell("listunderreplicated", "-pmr", "-prw", "--json")
    rows = world.rows("SELECT *, unix_millis(since) AS since_ms FROM cl_underreplicated")
    assert [(row["ledger_id"], row["missing"], row["since_ms"], row["worker"]) for row in rows] == [
        (each["ledger_id"], each["missing"], each["marked_ms"], each["worker"]) for each in marks
    ]
    [row] = rows
    assert (row["ledger_id"], row["missing"], row["since_ms"]) == (world.marked, [world.ids[3]], MARKED_MS)
    assert (row["locked"], row["worker"], row["process"]) == (True, "some worker", None)
    assert row["locked_since"] is not None
    [reports] = world.shell("listunderreplicated", "-damaged", "--json")
    found = world.rows("SELECT *, unix_millis(reported) AS ms FROM cl_damaged ORDER BY bookie, first_entry_id")
    assert {row["ledger_id"] for row in found} == {reports["ledger_id"]} == {world.damaged}
    assert sorted((row["bookie"], row["first_entry_id"], row["last_entry_id"], row["ms"]) for row in found) == sorted(
        (each["bookie_id"], each["first_entry_id"], each["last_entry_id"], each["reported_ms"])
        for each in reports["reports"]
    )
    assert {row["reason"] for row in found} == {"checksum", None}


def test_auto_recovery_without_an_auditor(world: World) -> None:
    row = world.row("SELECT * FROM cl_auto_recovery")
    assert (row["enabled"], row["auditor"], row["lost_bookie_recovery_delay_s"]) == (True, None, 77)
    assert (row["locked"], row["ledgers_checked"], row["problem"]) == (1, None, None)
    assert world.rows("SELECT * FROM cl_recovery_processes") == []


# --- of hubs and metadata servers


def test_topics_are_what_the_command_lists(world: World, beside: Beside) -> None:
    [said] = beside.hedwig(world, "topics", "--long")
    row = world.row("SELECT * FROM be_topics")
    assert (row["topic"], row["owner"], row["last_id"]) == (said["topic"], said["owner"], said["last_id"])
    assert (row["ledgers"], row["subscriptions"]) == (said["ledgers"], said["subscriptions"])
    assert (row["topic"], row["last_id"], row["messages"], row["subscriptions"]) == ("news", 10, 10, 2)
    assert (row["owner"], row["ledgers"] > 1, row["first_id"], row["problem"]) == (beside.hub.address, True, 1, None)
    assert world.client.metadata(row["open_ledger_id"]).state.name == "OPEN"  # and its hub goes on
    assert row["ended_bytes"] > 10
    hub = world.row("SELECT hub, topics, problem FROM be_hubs")
    assert (hub["hub"], hub["problem"]) == (beside.hub.address, None)
    assert hub["topics"] in (0, 1)  # a hub notes its load from time to time


def test_subscriptions_have_the_backlog_that_the_command_lists(world: World, beside: Beside) -> None:
    rows = {row["subscriber"]: row for row in world.rows("SELECT * FROM be_subscriptions")}
    said = {each["subscriber"]: each for each in beside.hedwig(world, "subscriptions")}
    assert set(rows) == set(said) == {"reader", "lazy"}
    for name, row in rows.items():
        assert (row["topic"], row["owner"], row["last_id"]) == ("news", beside.hub.address, 10)
        assert row["backlog"] == row["last_id"] - row["consumed_id"]
        # Between the two questions the hub may have stored what was consumed.
        assert row["consumed_id"] <= said[name]["consumed_id"]
    assert rows["lazy"]["backlog"] == said["lazy"]["backlog"] == 10
    assert said["lazy"]["options"] == rows["lazy"]["options"]


def test_segments_are_what_the_command_lists(world: World, beside: Beside) -> None:
    code, out, said = run_here(journal_command, ["segments", beside.journal, "--json"], dict(os.environ))
    assert code == 0, said
    listed = json.loads(out)["segments"]
    rows = world.rows("SELECT * FROM be_segments ORDER BY first_txid")
    for row, each in zip(rows, listed, strict=True):
        assert (row["first_txid"], row["last_txid"], row["in_progress"]) == (
            each["first_txid"],
            each["last_txid"],
            each["in_progress"],
        )
        assert (row["ledger_id"], row["layout_version"]) == (each["ledger_id"], each["layout_version"])
        assert (row["journal"], row["name"], row["problem"]) == (beside.journal, each["name"], None)
    assert [(row["first_txid"], row["last_txid"], row["transactions"], row["is_current"]) for row in rows] == [
        (1, 10, 10, False),
        (11, None, None, True),
    ]


def test_a_ledger_is_joined_with_what_it_is_for(world: World, beside: Beside) -> None:
    query = """
        SELECT l.state, s.in_progress FROM be_ledgers l JOIN be_segments s USING (ledger_id) ORDER BY s.first_txid
    """
    assert world.rows(query) == [
        {"state": "CLOSED", "in_progress": False},
        {"state": "OPEN", "in_progress": True},
    ]
    assert world.row("SELECT l.state FROM be_topics t JOIN be_ledgers l ON l.ledger_id = t.open_ledger_id") == {
        "state": "OPEN"
    }


def test_a_region_or_journal_that_is_not_there_is_an_error(world: World, beside: Beside) -> None:
    def error(**options: str) -> str:
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            world.spark.read.format("bookkeeper.cluster").options(uri=world.cluster.uri, **options).load().collect()
        return str(caught.value)

    assert "there is no region 'standalon'" in error(table="topics", zk_prefix=beside.region_prefix, region="standalon")
    assert "was never formatted, or is called otherwise" in error(table="segments", journal="/nowhere")
    assert "is in another ZooKeeper" in error(table="segments", journal="bookkeeper://elsewhere/j")
    assert "option journal of format bookkeeper.cluster: is missing" in error(table="segments")


# --- all of it


def test_sql_joins_tables(world: World) -> None:
    query = """
        SELECT f.ledger_id, f.index, b.bookie, b.state
        FROM (SELECT *, explode(bookies) AS id FROM cl_fragments) f JOIN cl_bookies b ON b.bookie = f.id
        WHERE b.state <> 'writable'
    """
    assert world.rows(query) == [{"ledger_id": world.moved, "index": 0, "bookie": world.ids[3], "state": "lost"}]


@pytest.mark.parametrize("name", ["bookkeeper.cluster", "`bookkeeper.cluster`"])
def test_sql_makes_a_view_of_a_table(world: World, name: str) -> None:
    options = f"table 'Bookies', uri '{world.cluster.uri}'"
    world.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW by_hand USING {name} OPTIONS ({options})")
    assert world.row("SELECT count(*) AS n FROM by_hand") == {"n": 4}
    world.spark.catalog.dropTempView("by_hand")


def test_a_filter_of_one_query_is_not_that_of_the_next_nor_of_the_other_half(world: World) -> None:
    """Spark keeps what a source planned for pushed filters, for all queries on the same view."""

    def ids(query: str) -> list[int]:
        return sorted(row["ledger_id"] for row in world.rows(query))

    of = "SELECT ledger_id FROM cl_ledgers WHERE ledger_id ="
    assert ids(f"{of} {world.moved}") == [world.moved]
    assert {world.moved, world.open, world.empty} <= set(ids("SELECT ledger_id FROM cl_ledgers"))
    assert ids(f"{of} {world.moved} UNION ALL {of} {world.open}") == sorted([world.moved, world.open])


def test_a_view_that_is_made_again_has_what_is_new(world: World) -> None:
    with world.client.create(ensemble=2, write_quorum=2, bookies=world.ids[:2]) as ledger:
        bookkeeper.spark.cluster_views(world.spark, uri=world.cluster.uri, prefix="cl_", only=["ledgers"])
        assert world.row(f"SELECT state FROM cl_ledgers WHERE ledger_id = {ledger.id}") == {"state": "OPEN"}


def test_nothing_is_fenced(world: World) -> None:
    world.rows("SELECT * FROM cl_ledgers")
    assert world.client.metadata(world.open).state.name == "OPEN"


def test_a_wrong_word_is_answered_with_the_nearest(world: World) -> None:
    def error(**options: str) -> str:
        with pytest.raises(Exception, match="ConfigurationError") as caught:
            world.spark.read.format("bookkeeper.cluster").options(uri=world.cluster.uri, **options).load().collect()
        return str(caught.value)

    assert "no table 'legders'; did you mean ledgers?" in error(table="legders")
    assert "option table of format bookkeeper.cluster is missing" in error()
    assert "option minpartition of format bookkeeper.cluster: is unknown; did you mean minPartitions?" in error(
        table="ledgers", minPartition="2"
    )
    with pytest.raises(Exception, match="option minPartition is unknown to every table"):
        bookkeeper.spark.cluster_views(world.spark, uri=world.cluster.uri, options={"minPartition": "2"})
