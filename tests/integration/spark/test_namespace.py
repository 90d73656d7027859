"""The pipeline `namespace`: journals on a real cluster, folded by Spark, beside what a fold in this process gives."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import journalmgr.spark
from bookkeeper.errors import InvalidArgument
from journalmgr.edits import ops as o
from journalmgr.edits.fields import Block, Permission
from journalmgr.edits.frame import encode_record
from journalmgr.errors import NotFormatted
from journalmgr.model import HADOOP_2_7
from journalmgr.namenode.namespace.tree import path_of, subtree
from journalmgr.spark.namespaces.fold import Fold
from journalmgr.spark.namespaces.report import NamespaceReport
from journalmgr.spark.namespaces.txids import BaseMisfit, NamespaceFailed, NoBeginning
from tests.support.edit_journals import EditJournal, encoded, mkdirs
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAY_1 = 1_699_920_000_000
"""The beginning of a day of UTC."""

DAY_2, DAY_3 = DAY_1 + DAY_MS, DAY_1 + 2 * DAY_MS
OWNERS = ("alice", "bob")


def owned(user: str, mode: int = 0o644) -> Permission:
    return Permission(user, "staff", mode)


def made(path: str, user: str, size: int, number: int, mtime: int) -> list[o.Op]:
    """A closed file of one block."""
    values: dict[str, Any] = {"replication": 2, "mtime": mtime, "atime": mtime, "block_size": 1 << 27}
    return [
        o.Add(path=path, permission=owned(user), client_name="c", client_machine="m", **values),
        o.AddBlock(path, (Block(number, 0, 1000),)),
        o.Close(path=path, permission=owned(user), blocks=(Block(number, size, 1000),), **values),
    ]


def directory(path: str, user: str, mtime: int) -> o.Mkdir:
    return o.Mkdir(path=path, mtime=mtime, atime=mtime, permission=owned(user, 0o755))


def first_day() -> list[o.Op]:
    ops: list[o.Op] = [o.StartLogSegment(), directory("/user", "hdfs", DAY_1)]
    for user in OWNERS:
        ops += [directory(f"/user/{user}", user, DAY_1 + 1), directory(f"/user/{user}/data", user, DAY_1 + 2)]
    for at in range(30):
        user = OWNERS[at % 2]
        ops += made(f"/user/{user}/data/part-{at:02}.csv", user, 100 + at, at + 1, DAY_1 + at * HOUR_MS // 2)
    return [*ops, o.EndLogSegment()]


def second_day() -> list[o.Op]:
    return [
        o.StartLogSegment(),
        o.SetQuota("/user/alice", 1000, 1 << 40),
        o.Rename("/user/bob/data", "/user/alice/taken", DAY_2),
        o.Delete("/user/alice/data/part-00.csv", DAY_2 + HOUR_MS),
        *made("/user/alice/Readme", "alice", 7, 100, DAY_2 + HOUR_MS),
        o.AllowSnapshot("/user"),
        o.EndLogSegment(),
    ]


def third_day() -> list[o.Op]:
    values: dict[str, Any] = {"replication": 3, "mtime": DAY_3, "atime": DAY_3, "block_size": 1 << 27}
    return [
        o.StartLogSegment(),
        o.SetOwner("/user/alice/taken", "carol", ""),
        o.Symlink(path="/user/link", target="/user/alice", mtime=DAY_3, permission=owned("bob", 0o777)),
        o.Add(path="/user/bob/log.TXT", permission=owned("bob"), client_name="w", client_machine="m", **values),
        o.AddBlock("/user/bob/log.TXT", (Block(200, 0, 1000),)),
        o.UpdateBlocks("/user/bob/log.TXT", (Block(200, 50, 1000),)),
    ]


def closing() -> list[o.Op]:
    values: dict[str, Any] = {"replication": 3, "mtime": DAY_3 + DAY_MS, "atime": DAY_3, "block_size": 1 << 27}
    return [o.Close(path="/user/bob/log.TXT", permission=owned("bob"), blocks=(Block(200, 50, 1000),), **values)]


STORY = [first_day(), second_day(), third_day()]
LAST_TXID = sum(map(len, STORY))
ENDS = [len(STORY[0]), len(STORY[0]) + len(STORY[1]), LAST_TXID]


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def write_story(journal: EditJournal) -> Any:
    """Two finalised segments and one in progress; the writer of the last."""
    first, writer = 1, None
    for at, ops in enumerate(STORY):
        records = encoded(ops, first)
        if at < len(STORY) - 1:
            journal.finalised(first, records)
        else:
            writer = journal.begun(first, records)
            journal.write(writer, encoded([o.StartLogSegment()], LAST_TXID + 1))  # confirms what is before it
        first += len(ops)
    return writer


def folded(last_txid: int) -> Fold:
    """The same in this process."""
    fold = Fold()
    for record in encoded([op for ops in STORY for op in ops], 1)[:last_txid]:
        fold.take(record, HADOOP_2_7)
    return fold


def run(spark: Any, journal: EditJournal, **words: Any) -> NamespaceReport:
    options = {"zkLedgersRootPath": journal.ledgers_root, **words.pop("options", {})}
    return journalmgr.spark.namespace(spark, journal.uri, options=options, **words)


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def inode_rows(found: NamespaceReport) -> list[Any]:
    """All of every inode, by id."""
    return sorted(map(str, rows(found.inodes)))


def test_a_journal_becomes_its_namespace_and_usage(spark: Any, journal: EditJournal, tmp_path: Path) -> None:
    write_story(journal)
    said: list[str] = []
    output = str(tmp_path / "whole")
    found = run(
        spark, journal, at_txid=LAST_TXID, depth=3, output=output, say=said.append, options={"minPartitions": 3}
    )

    expected = folded(LAST_TXID)
    by_path = {row["path"]: row for row in rows(found.inodes)}
    tree = {path_of(inode): inode for inode in subtree(expected.tree.root)}
    assert set(by_path) == set(tree)
    for path, inode in tree.items():
        row = by_path[path]
        notes = expected.tree.notes_of(inode)
        assert (row["inode_id"], row["name"], row["depth"]) == (inode.id, inode.name, path.rstrip("/").count("/"))
        assert (row["made_txid"], row["changed_txid"]) == (notes.made_txid, notes.changed_txid)
        assert row["parent_id"] == (inode.parent.id if inode.parent else None)
    readme = by_path["/user/alice/Readme"]
    assert (readme["length"], readme["stored_bytes"], readme["block_count"], readme["permission"]) == (7, 14, 1, "644")
    assert readme["mtime"].astimezone(datetime.UTC).timestamp() * 1000 == DAY_2 + HOUR_MS
    assert by_path["/user/bob/log.TXT"]["under_construction"]
    assert (by_path["/user/link"]["kind"], by_path["/user/link"]["target"]) == ("symlink", "/user/alice")
    assert by_path["/user/alice"]["names_quota"] == 1000

    sizes = {at: 100 + at for at in range(1, 30)}
    total = sum(sizes.values()) + 7 + 50
    assert (found.txid, found.transactions, found.namespace_id) == (
        LAST_TXID,
        LAST_TXID,
        journal.namespace.namespace_id,
    )
    assert (found.file_count, found.directory_count, found.symlink_count, found.size) == (31, 6, 1, total)
    assert (found.passed_over, found.unknown) == (6, 0)
    assert said[0] == f"folding {LAST_TXID:,} transactions, 1 to {LAST_TXID:,}"

    owners = {row["owner"]: row for row in rows(found.owners)}
    assert owners["alice"]["bytes"] == sum(size for at, size in sizes.items() if at % 2 == 0) + 7
    assert owners["bob"]["stored_bytes"] == 2 * sum(size for at, size in sizes.items() if at % 2) + 3 * 50
    assert (owners["bob"]["open_files"], owners["carol"]["directories"], owners[None]["directories"]) == (1, 1, 1)

    usage = {row["path"]: row for row in rows(found.directories)}
    assert set(usage) == {"/", "/user", "/user/alice", "/user/bob", "/user/alice/data", "/user/alice/taken"}
    taken = [size for at, size in sizes.items() if at % 2]
    assert (usage["/user/alice/taken"]["files"], usage["/user/alice/taken"]["bytes"]) == (15, sum(taken))
    assert (usage["/user/alice"]["files"], usage["/user/alice"]["directories"]) == (30, 2)
    assert (usage["/"]["files"], usage["/"]["directories"], usage["/"]["bytes"]) == (31, 5, total)
    assert usage["/user/alice"]["space_quota"] == 1 << 40

    assert {row["extension"]: row["files"] for row in rows(found.extensions)} == {"csv": 29, None: 1, "txt": 1}
    assert {row["replication"]: row["files"] for row in rows(found.storage)} == {2: 30, 3: 1}

    growth = [
        (*(row[name] for name in ("ms", "files_made", "files_deleted", "bytes_added", "bytes_removed", "bytes")),)
        for row in rows(found.growth.selectExpr("unix_millis(time) AS ms", "*"))
    ]
    closed = sum(sizes.values()) + 100
    assert growth == [
        (DAY_1, 30, 0, closed, 0, closed),
        (DAY_2, 1, 1, 7, 100, closed - 93),
        (DAY_3, 1, 0, 0, 0, closed - 93),
        (None, 0, 0, 50, 0, total),  # of a file that nobody has closed
    ]
    counted = {(row["op"], row["outcome"]): row["count"] for row in rows(found.operations)}
    assert counted["OP_ADD", "folded"] == 32
    assert counted["OP_START_LOG_SEGMENT", "passed over"] == 3
    assert len(list((tmp_path / "whole" / "inodes").glob("*.parquet"))) == 1

    with pytest.raises(InvalidArgument, match="exists: name a directory that does not"):
        run(spark, journal, output=output)


def test_going_on_from_a_snapshot_gives_what_folding_everything_gives(
    spark: Any, journal: EditJournal, tmp_path: Path
) -> None:
    writer = write_story(journal)
    whole = run(spark, journal, at_txid=LAST_TXID, by="hour")
    base = str(tmp_path / "day-1")
    first = run(spark, journal, at_txid=ENDS[0], output=base)
    assert (first.txid, first.file_count) == (ENDS[0], 30)

    segments = journal.segments()
    journal.remove_record(segments[0])  # purged: the base has what it made
    second = str(tmp_path / "day-2")
    assert run(spark, journal, base=base, at_txid=ENDS[1], output=second).transactions == len(STORY[1])
    last = str(tmp_path / "day-3")
    third = run(spark, journal, base=second, at_txid=LAST_TXID, by="hour", output=last)
    assert third.transactions == len(STORY[2])
    assert inode_rows(third) == inode_rows(whole)
    assert rows(third.growth) == rows(whole.growth)
    assert rows(third.owners) == rows(whole.owners)

    # The file that was open is closed in a fourth run: its bytes count for that day then, and not without a time.
    journal.write(writer, encoded([*closing()], LAST_TXID + 2))
    journal.write(writer, encoded([o.StartLogSegment()], LAST_TXID + 3))
    closed = run(spark, journal, base=last, at_txid=LAST_TXID + 2)
    times = [(row["ms"], row["bytes_added"]) for row in rows(closed.growth.selectExpr("unix_millis(time) AS ms", "*"))]
    assert times[-2:] == [(DAY_3, 0), (DAY_3 + DAY_MS, 50)]

    # Nothing came behind it: the same again.
    again = run(spark, journal, base=second, at_txid=ENDS[1])
    assert (again.transactions, again.txid) == (0, ENDS[1])

    with pytest.raises(NoBeginning, match=rf"begins with txid {ENDS[0] + 1}: transactions 1 to {ENDS[0]} .*Give base"):
        run(spark, journal)
    with pytest.raises(InvalidArgument, match=f"at_txid={ENDS[0]}: base .* is of txid {ENDS[1]} already"):
        run(spark, journal, base=second, at_txid=ENDS[0])


def test_a_base_that_does_not_fit_is_named(spark: Any, journal: EditJournal, zookeeper: Any, tmp_path: Path) -> None:
    journal.finalised(1, encoded([o.StartLogSegment(), directory("/a", "x", DAY_1), o.EndLogSegment()], 1))
    base = str(tmp_path / "base")
    run(spark, journal, output=base)
    with pytest.raises(BaseMisfit, match="has no table snapshot: it is no snapshot"):
        run(spark, journal, base=str(tmp_path / "nowhere"))
    with EditJournal(zookeeper.address, journal.ledgers_root) as other:
        other.finalised(1, encoded([o.StartLogSegment(), o.EndLogSegment()], 1))
        with pytest.raises(BaseMisfit, match=f"namespace id {journal.namespace.namespace_id} .* belongs to"):
            run(spark, other, base=base)

    ahead = tmp_path / "ahead"
    spark.read.parquet(f"{base}/snapshot").selectExpr(
        "namespace_id", "journal", "txid + 5 AS txid", "inodes", "last_inode_id", "unknown", "format"
    ).write.parquet(f"{ahead}/snapshot")
    with pytest.raises(BaseMisfit, match=r"is of txid 8, and .* ends at txid 3"):
        run(spark, journal, base=str(ahead))

    changed = tmp_path / "changed"
    spark.read.parquet(f"{base}/snapshot").write.parquet(f"{changed}/snapshot")
    spark.read.parquet(f"{base}/inodes").drop("owner").selectExpr(
        "*", "CAST(inode_id AS STRING) AS other"
    ).withColumnRenamed("kind", "sort").write.parquet(f"{changed}/inodes")
    with pytest.raises(BaseMisfit, match=r"inodes has other columns .*kind is missing, not string; owner is missing"):
        run(spark, journal, base=str(changed))

    part = tmp_path / "part"
    for table in ("snapshot", "growth"):
        spark.read.parquet(f"{base}/{table}").write.parquet(f"{part}/{table}")
    spark.read.parquet(f"{base}/inodes").where("path = '/'").write.parquet(f"{part}/inodes")
    with pytest.raises(NamespaceFailed, match="it has 1 inodes, and says that it has 2"):
        run(spark, journal, base=str(part))


def test_what_is_missing_damaged_or_unknown_fails_with_its_place(
    spark: Any, journal: EditJournal, tmp_path: Path
) -> None:
    with pytest.raises(NotFormatted, match="-nowhere"):
        journalmgr.spark.namespace(spark, f"{journal.uri}-nowhere", options={"zkLedgersRootPath": journal.ledgers_root})
    empty = run(spark, journal)
    assert (empty.txid, empty.directory_count, empty.file_count) == (0, 1, 0)

    start = [o.StartLogSegment(), directory("/d", "x", DAY_1)]
    unknown = encode_record(77, 3, b"?")
    journal.planted(1, 4, [b"".join([*encoded(start, 1), unknown, *encoded([o.EndLogSegment()], 4)])])
    with pytest.raises(NamespaceFailed, match=r"txid 3: opcode 77 is no operation.*--skip-unknown"):
        run(spark, journal)
    base = str(tmp_path / "doubtful")
    skipping = run(spark, journal, skip_unknown=True, output=base)
    assert (skipping.unknown, skipping.txid) == (1, 4)
    assert Counter(row["outcome"] for row in rows(skipping.operations))["unknown"] == 1

    journal.finalised(5, mkdirs(5, 7))
    journal.finalised(8, [*encoded([o.Delete("/d/nothing", DAY_2)], 8)])
    with pytest.raises(NamespaceFailed, match="txid 8, OP_DELETE of /d/nothing: there is nothing at this path"):
        run(spark, journal, skip_unknown=True)
    onto = run(spark, journal, base=base, at_txid=7)
    assert (onto.transactions, onto.directory_count, onto.unknown) == (3, 5, 1)  # the base stays doubtful
    with pytest.raises(InvalidArgument, match=r"at_txid=9: .* ends at txid 8"):
        run(spark, journal, at_txid=9)
    [_, middle, _] = journal.segments()
    journal.remove_record(middle)
    with pytest.raises(NamespaceFailed, match="transactions 5 to 7 were purged or are lost"):
        run(spark, journal, skip_unknown=True)


def command(*words: object) -> subprocess.CompletedProcess[str]:
    """`bookkeeper spark namespace` as a process of its own."""
    run = [sys.executable, "-m", "bookkeeper.cli.main", "spark", "namespace", *map(str, words), "--master", "local[1]"]
    return subprocess.run(run, capture_output=True, text=True, timeout=280, check=False)


def test_the_command_tells_and_draws(journal: EditJournal, tmp_path: Path) -> None:
    write_story(journal)
    plot = tmp_path / "growth.png"
    available = f"dfs.namenode.bookkeeperjournal.zk.availablebookies={journal.ledgers_root}/available"
    done = command(journal.uri, "-D", available, "--at-txid", LAST_TXID, "--depth", 1, "--plot", plot, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["txid"], told["files"], told["directories"]) == (LAST_TXID, 31, 6)
    assert [row["path"] for row in told["usage"]] == ["/", "/user"]
    assert [row["time"] for row in told["growth"]] == ["2023-11-14", "2023-11-15", "2023-11-16", "(no time)"]
    assert f"folding {LAST_TXID:,} transactions" in done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")

    wrong = command(journal.uri, "-D", available, "-D", "startingTxid=5")
    assert wrong.returncode == 2
    assert "-D startingTxid: the pipeline sets startingTxid itself; leave it out, or give --base" in wrong.stderr
