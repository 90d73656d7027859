"""The pipelines `space` and `whatif` on a cluster with something of everything, beside twins that look one by one.

bookie 1   HTTP, rack 1, collected   bookie 3   HTTP, rack 2          bookie 5   killed; had an open ledger alone
bookie 2   HTTP, rack 2              bookie 4   without HTTP, rack 1
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.bookie.gc.candidates import LogUsage, worth_compacting
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.errors import ConfigurationError, InvalidArgument
from bookkeeper.protocol.schedule import write_set
from bookkeeper.spark.outputs import OutputState, Stage
from bookkeeper.spark.space.grouping import THRESHOLDS, GroupSums
from bookkeeper.spark.space.report import space
from bookkeeper.spark.whatif.question import Question, Quorums
from bookkeeper.spark.whatif.report import WhatIf, whatif
from tests.support.cluster import SESSION_TIMEOUT_MS, STEADY, collected, local_cluster, when_gone, with_long_timeouts
from tests.support.patience import until
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

SETTINGS = {
    **STEADY,
    "logSizeLimit": "1048576",
    "skipListSizeLimit": "300000",
    "nettyMaxFrameSizeBytes": "200000",
    "flushInterval": "200",
    "gcWaitTime": "3600000",
    "minorCompactionThreshold": "0",
    "majorCompactionThreshold": "0",
}
PAGE = b"x" * 4000
ROUNDS_MAX = 5


@dataclass
class World:
    """A cluster and its ledgers; striped: E=3, Qw=2 over bookies 1, 2, 3; paired: on 1 and 4; mixed: on 1 and 2."""

    spark: Any
    cluster: LocalCluster
    client: BlockingBookKeeper
    ids: list[str]
    striped: int
    paired: int
    mixed: int
    open: int
    silent: int
    racks: Path

    def ends(self) -> dict[int, int]:
        """The last entry of each ledger of which it is known; of the open one what a reader is told."""
        found = {each: self.client.metadata(each).last_entry_id for each in (self.striped, self.paired, self.mixed)}
        with self.client.open_without_recovery(self.open) as reader:
            return {
                **{each: end for each, end in found.items() if end is not None},
                self.open: reader.last_add_confirmed,
            }

    def ask(self, question: Question, **options: object) -> WhatIf:
        return whatif(self.spark, self.cluster.uri, question, options=options)


@pytest.fixture(scope="module")
def world(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = f"/capacity-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("capacity")
    with (
        local_cluster(zookeeper.address, root, 0, directory=directory, settings=SETTINGS) as cluster,
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as client,
    ):
        for number in range(1, 6):
            bookie = cluster.add_bookie(start=False)
            if number <= 3:
                bookie.settings |= {"httpServerEnabled": "true", "httpServerPort": str(free_port())}
            if number == 5:
                bookie.settings["zkTimeout"] = str(SESSION_TIMEOUT_MS)  # its session must end after a kill
            bookie.start(wait=False)
        for bookie in cluster.bookies:
            bookie.wait_ready()
        ids = [bookie.bookie_id for bookie in cluster.bookies]
        b1, b2, b3, b4, b5 = ids
        alice, bob = {"owner": b"alice", "application": b"shop"}, {"owner": b"bob"}
        with client.create(ensemble=3, write_quorum=2, bookies=[b1, b2, b3], custom=alice) as striped:
            striped.append_many([b"0123456789"] * 300)
        with client.create(ensemble=2, write_quorum=2, bookies=[b1, b4], custom=bob) as paired:
            paired.append_many([b"01234567890123456789"] * 100)
        two: dict[str, Any] = {"ensemble": 2, "write_quorum": 2, "bookies": [b1, b2]}
        with client.create(**two, custom=bob) as mixed, client.create(**two) as doomed:
            for _ in range(30):
                doomed.append_many([PAGE] * 25)
                mixed.append(PAGE)
        still_open = client.create(**two, custom=alice)
        for _ in range(20):
            still_open.append(b"0123456789")
        silent = client.create(ensemble=1, write_quorum=1, ack_quorum=1, bookies=[b5])
        silent.append(b"nobody will tell")
        cluster.bookies[4].kill()
        when_gone(client, b5)
        client.delete(doomed.id)
        for _ in range(ROUNDS_MAX):  # a round leaves a ledger alone that is loaded just then
            collected(cluster.bookies[0])
        with client.open_without_recovery(still_open.id) as reader:  # all tests must see the same last entry
            until(lambda: reader.read_last_confirmed() == 19, "the last entry is confirmed while the writer pauses")
        racks = directory / "racks"
        racks.write_text(f"{b1} /r1\n{b2} /r2\n{b3} /r2\n{b4} /r1\n{b5} /r3\n")
        yield World(
            spark_session(), cluster, client, ids, striped.id, paired.id, mixed.id, still_open.id, silent.id, racks
        )
        still_open.close()


# --- space


def test_space_is_told_by_owner_and_what_cannot_be_asked_is_unknown(world: World, tmp_path: Path) -> None:
    state = OutputState()
    found = space(world.spark, world.cluster.uri, output=str(tmp_path / "space"), state=state)
    assert state.stage is Stage.COMPLETE
    confirmed = world.ends()[world.open] + 1
    assert confirmed == 20
    groups = {row.group_name: row.asDict() for row in found.groups.collect()}
    assert set(groups) == {"alice", "bob", None}
    assert groups["alice"] == {
        "group_name": "alice",
        "is_readable": True,
        "ledgers": 2,
        "open_ledgers": 1,
        "unknown_ledgers": 0,
        "entries": 300 + confirmed,
        "payload_bytes": 3000 + 10 * confirmed,
        "stored_bytes": 6000 + 20 * confirmed,
    }
    assert (groups["bob"]["entries"], groups["bob"]["stored_bytes"]) == (130, 2 * (2000 + 30 * len(PAGE)))
    known = [row for row in groups.values() if row["stored_bytes"] is not None]
    sums = [sum(row[name] for row in known) for name in ("payload_bytes", "stored_bytes")]
    assert found.group_sums() == GroupSums(3, 2, 5, *sums)
    nobody = groups[None]
    assert (nobody["ledgers"], nobody["open_ledgers"], nobody["unknown_ledgers"]) == (1, 1, 1)
    assert (nobody["entries"], nobody["payload_bytes"], nobody["stored_bytes"]) == (None, None, None)
    [row] = found.ledgers.where("stored_bytes IS NULL").collect()
    assert (row.ledger_id, row.length) == (world.silent, None)
    assert "is not known" in row.problem

    bookies = {row.bookie: row for row in found.bookies.collect()}
    assert set(bookies) == set(world.ids)
    for silent, why in ((world.ids[3], "httpServerEnabled=true"), (world.ids[4], "not registered")):
        assert (bookies[silent].logs, bookies[silent].live_bytes, bookies[silent].garbage_bytes) == (None, None, None)
        assert why in bookies[silent].problem
    assert (found.unknown_ledgers, found.unknown_bookies) == (1, 2)
    assert not found.is_complete
    first = bookies[world.ids[0]]
    assert first.garbage_bytes >= 750 * len(PAGE)
    assert first.logs > 2
    assert first.live_bytes + first.garbage_bytes == first.record_bytes <= first.log_bytes

    # Each threshold, beside the rule of the bookie itself.
    logs = [
        row for row in found.logs.where("NOT is_written AND problem IS NULL").collect() if row.bookie == first.bookie
    ]
    usages = [LogUsage(row.log_id, row.record_bytes, row.live_bytes, row.live_ledgers) for row in logs]
    assert usages
    assert first.dead_bytes == sum(usage.total_bytes for usage in usages if usage.dead)
    told = {row.threshold: row for row in found.thresholds.where(f"bookie = '{first.bookie}'").collect()}
    assert set(told) == set(THRESHOLDS)
    for threshold, row in told.items():
        worth = worth_compacting(usages, threshold)
        copied = sum(usage.live_bytes for usage in worth)
        assert (row.logs, row.copied_bytes) == (len(worth), copied)
        assert row.reclaimed_bytes == sum(usage.total_bytes for usage in worth) - copied
    assert told[0.9].reclaimed_bytes > 0

    kept = world.spark.read.parquet(str(tmp_path / "space" / "ledgers"))
    assert kept.count() == 5
    with pytest.raises(InvalidArgument, match="space exists: name a directory that does not"):
        space(world.spark, world.cluster.uri, output=str(tmp_path / "space"))


def test_space_by_another_word(world: World) -> None:
    found = space(world.spark, world.cluster.uri, by="quorum")
    counts = {row.group_name: row.ledgers for row in found.groups.collect()}
    assert counts == {"3/2/2": 1, "2/2/2": 3, "1/1/1": 1}
    with pytest.raises(ConfigurationError, match="there are owner, application"):
        space(world.spark, world.cluster.uri, by="colour")


# --- what if


def lost_one_by_one(world: World, lost: set[str]) -> tuple[Counter[str], Counter[str]]:
    """Copies of each bookie before, and what is left of the entries that lose a copy: every entry looked at."""
    before, left = Counter[str](), Counter[str]()
    for ledger_id, end in world.ends().items():
        metadata = world.client.metadata(ledger_id)
        [fragment] = metadata.fragments
        for entry_id in range(end + 1):
            members = {
                fragment.ensemble[index] for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
            }
            before.update(members)
            if members & lost:
                left["affected"] += 1
                left["lost_copies"] += len(members & lost)
                left["no_copy"] += not members - lost
                left["one_copy"] += len(members - lost) == 1
                left["below_ack_quorum"] += len(members - lost) < metadata.ack_quorum
    return before, left


@pytest.mark.parametrize("numbers", [(2,), (1, 4), (2, 3)])
def test_a_loss_is_what_every_entry_loses(world: World, numbers: tuple[int, ...]) -> None:
    lost = {world.ids[number - 1] for number in numbers}
    found = world.ask(Question(lose=tuple(lost)))
    before, left = lost_one_by_one(world, lost)
    totals = found.totals
    for name in ("affected", "lost_copies", "no_copy", "one_copy", "below_ack_quorum"):
        assert getattr(totals, name) == left[name], name
    assert totals.written_copies + totals.unplaced_copies == left["lost_copies"] - 2 * left["no_copy"]
    bookies = {row.bookie: row for row in found.bookies.collect()}
    assert {name: row.before_copies for name, row in bookies.items() if row.before_copies} == before
    for name, row in bookies.items():
        assert row.is_lost == (name in lost)
        assert row.after_copies == (0 if name in lost else row.before_copies + row.received_copies)
        assert not (name in lost and row.given_bytes)
    assert sum(row.received_bytes for row in bookies.values()) == totals.written_bytes
    assert sum(row.given_bytes for row in bookies.values()) == totals.read_bytes
    assert found.hours(3600) == totals.written_bytes / 3600 / 3600
    assert [row.ledger_id for row in found.unknown.collect()] == [world.silent]
    assert (found.all_ledgers, found.unknown_ledgers, found.takers) == (5, 1, 4 - len(lost))


def test_too_few_bookies_are_said_and_more_bookies_help(world: World) -> None:
    lost = tuple(world.ids[1:3])
    found = world.ask(Question(lose=lost))
    assert found.too_wide == {3: 1}
    assert found.totals.impossible_ledgers == 1
    [row] = found.ledgers.where("impossible IS NOT NULL").collect()
    assert (row.ledger_id, row.unplaced_copies > 0) == (world.striped, True)
    assert "too few bookies: 2 are writable" in row.impossible
    helped = world.ask(Question(lose=lost, add=2))
    assert (helped.totals.unplaced_copies, helped.totals.impossible_ledgers, dict(helped.too_wide)) == (0, 0, {})
    assert helped.totals.written_copies > found.totals.written_copies
    added = {row.bookie: row for row in helped.bookies.where("state = 'added'").collect()}
    assert set(added) == {"new-1", "new-2"}
    assert sum(row.received_copies for row in added.values()) > 0


def test_a_rack_is_lost_as_the_bookies_in_it_are(world: World) -> None:
    """The rack as networkTopologyFile has it; a bookie that is not registered is lost with it, all the same."""
    rack = world.ask(Question(lose_racks=("/r1",)), networkTopologyFile=world.racks)
    assert rack.totals.no_copy == 100
    assert rack.totals.no_copy_ledgers == 1
    both = world.ask(Question(lose=(world.ids[0], world.ids[3])))
    assert (rack.totals.lost_copies, rack.totals.one_copy) == (both.totals.lost_copies, both.totals.one_copy)
    assert {row.bookie: row.rack for row in rack.bookies.collect()}[world.ids[1]] == "/r2"
    with pytest.raises(
        ConfigurationError, match=r"rack /r9: .*; racks and their bookies: /r1 \(2\), /r2 \(2\), /r3 \(1\)"
    ):
        world.ask(Question(lose_racks=("/r9",)), networkTopologyFile=world.racks)
    with pytest.raises(ConfigurationError, match="nobody of this name"):
        world.ask(Question(lose=("127.0.0.1:1",)))


def test_bookies_that_are_added_get_nothing_by_themselves_and_levelling_is_told(world: World) -> None:
    found = world.ask(Question(add=3))
    totals = found.totals
    assert (totals.affected, totals.read_bytes, totals.written_bytes) == (0, 0, 0)
    assert found.takers == 7
    loads = [row.after_bytes for row in found.bookies.where("state <> 'lost'").collect()]
    assert len(loads) == 7
    assert found.levelling_bytes == sum(max(0, load - sum(loads) // 7) for load in loads) > 0


def test_other_quorums_are_told_as_what_writing_anew_takes(world: World) -> None:
    found = world.ask(Question(quorums=Quorums(3, 3, 2)))
    entries = sum(end + 1 for end in world.ends().values())
    assert (found.totals.affected, found.totals.written_copies) == (entries, 3 * entries)
    assert found.totals.written_bytes == 3 * found.totals.read_bytes
    bookies = found.bookies.collect()
    assert sum(row.after_copies for row in bookies) == 3 * entries
    assert sum(row.before_copies for row in bookies) == 2 * entries
    wide = world.ask(Question(quorums=Quorums(ensemble=6)))
    assert (wide.totals.written_copies, wide.totals.impossible_ledgers) == (0, 4)


# --- commands


def command(*words: str) -> tuple[int, Any, str]:
    """Exit code, JSON and notes of `bookkeeper spark`."""
    run = [sys.executable, "-m", "bookkeeper.cli.main", "spark", words[0], "--json", "--master", "local[2]", *words[1:]]
    done = subprocess.run(run, capture_output=True, text=True, timeout=280, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_the_command_space_tells_draws_and_names_what_is_unknown(world: World, tmp_path: Path) -> None:
    picture = tmp_path / "space.png"
    code, told, notes = command("space", "--uri", world.cluster.uri, "--by", "application", "--plot", str(picture))
    assert code == 3, notes
    assert {row["group_name"]: row["ledgers"] for row in told["groups"]} == {"shop": 2, None: 3}
    assert (told["unknown_ledgers"], told["unknown_bookies"]) == (1, 2)
    assert [row["threshold"] for row in told["thresholds"]] == list(THRESHOLDS)
    assert f"ledger {world.silent}: what is confirmed of it is not known" in notes
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, told, notes = command("space", "--uri", world.cluster.uri, "--by", "application", "--groups", "1")
    assert code == 3, notes
    assert (len(told["groups"]), told["more_groups"]["groups"]) == (1, 1)
    assert told["groups"][0]["ledgers"] + told["more_groups"]["ledgers"] == 5
    assert "1 group more, with" in notes


def test_the_command_whatif_tells_what_would_be_lost(world: World) -> None:
    lost = f"{world.ids[0]},{world.ids[3]}"
    code, told, notes = command("whatif", "--uri", world.cluster.uri, "--lose", lost, "--rate", "1000")
    assert code == 4, notes
    assert (told["no_copy"], told["no_copy_ledgers"], told["unknown_ledgers"]) == (100, 1, 1)
    assert told["ledgers_at_risk"][0]["ledger_id"] == world.paired
    assert told["hours"] == told["written_bytes"] / 1000 / 3600
    code, _, notes = command("whatif", "--uri", world.cluster.uri, "--lose", lost, "--write-quorum", "3")
    assert code == 2
    assert "exclude each other" in notes
