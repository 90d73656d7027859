"""The fold of the pipeline `namespace` beside genuine Hadoop 2.7.7: its image of the same edits, and what it serves.

A NameNode loads edits, goes on with its own, and saves an image; Hadoop's image viewer says what is in it, inode by
inode. The fold takes the records of the same edits.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from journalmgr.edits.file import EditsFileName
from journalmgr.edits.ops import CreateSnapshot, Op
from journalmgr.model import HADOOP_2_7, TxId
from journalmgr.namenode.namespace import tree as inodes
from journalmgr.spark.namespaces.fold import Fold, TreeLoading
from journalmgr.spark.namespaces.inode_rows import COLUMNS, inode_of
from tests.support.hadoop import HadoopTool
from tests.support.hadoop.edits import our_reading
from tests.support.hadoop.script import ODD, busy_script, names_of, put
from tests.support.hadoop.served import SHOWN, shown

pytestmark = pytest.mark.timeout(240)

ROOT = inodes.ROOT_INODE_ID
LIMITLESS = (1 << 63) - 1
"""What HDFS says of the root's names where it has no quota."""


def records_of(paths: Iterable[Path]) -> list[bytes]:
    """The whole records of files of edits."""
    found = []
    for path in paths:
        data = path.read_bytes()
        reading = our_reading(data, path.name)
        assert reading.error is None
        found += [data[record.offset : record.offset + record.size] for record in reading.records]
    return found


def fold(records: Iterable[bytes], into: Fold | None = None) -> Fold:
    folding = Fold() if into is None else into
    for record in records:
        folding.take(record, HADOOP_2_7)
    return folding


def rows_of(folding: Fold) -> dict[int, dict[str, Any]]:
    names = [each.name for each in COLUMNS]
    return {row[0]: dict(zip(names, row, strict=True)) for row in folding.rows()}


def text(inode: ElementTree.Element, *names: str) -> str | None:
    """What an element says whose name has had several spellings."""
    return next((found for name in names if (found := inode.findtext(name)) is not None), None)


def number(inode: ElementTree.Element, *names: str) -> int | None:
    found = text(inode, *names)
    return None if found is None else int(found)


def mode_of(permission: str) -> int:
    """Of `rwxr-xr-t` as Hadoop prints it."""
    if permission.isdigit():
        return int(permission, 8)
    mode = sum(1 << 8 - at for at, letter in enumerate(permission[:9]) if letter not in "-T")
    return mode | (0o1000 if permission[8] in "tT" else 0)


def quota_of(inode: ElementTree.Element, *names: str) -> int | None:
    found = number(inode, *names)
    return None if found in (-1, LIMITLESS) else found


def inodes_of_image(xml: str) -> tuple[int, dict[int, dict[str, Any]]]:
    """The greatest inode id that was given, and every inode as a row of ours has it, as far as the viewer tells."""
    image = ElementTree.fromstring(xml)
    parents = {
        int(child.text or ""): number(directory, "parent")
        for directory in image.iterfind("INodeDirectorySection/directory")
        for child in directory
        if child.tag in ("inode", "child")
    }
    found = {}
    for inode in image.iterfind("INodeSection/inode"):
        inode_id = number(inode, "id")
        assert inode_id is not None
        owner, group, mode = (inode.findtext("permission") or "").rsplit(":", 2)
        kind = (inode.findtext("type") or "").lower()
        told: dict[str, Any] = {
            "inode_id": inode_id,
            "parent_id": parents.get(inode_id),
            "kind": kind,
            "name": inode.findtext("name") or "",
            "owner": owner,
            "group": group,
            "mode": mode_of(mode),
            "mtime": number(inode, "mtime"),
        }
        if kind == "file":
            writes = inode.find("file-under-construction")
            told["client"] = None if writes is None else writes.findtext("clientName")
            told["replication"] = number(inode, "replication")
            told["atime"] = number(inode, "atime")
            told["block_size"] = number(inode, "preferredBlockSize", "perferredBlockSize")
            told["blocks"] = [
                (number(block, "id"), number(block, "numBytes"), number(block, "genstamp"))
                for block in inode.iterfind("blocks/block")
            ]
        elif kind == "directory":
            told["quotas"] = (quota_of(inode, "nsquota"), quota_of(inode, "dsquota"))
        else:
            told["target"] = inode.findtext("target")
        found[inode_id] = told
    last = number(image, "INodeSection/lastInodeId")
    assert last is not None
    return last, found


def as_in_image(row: dict[str, Any]) -> dict[str, Any]:
    told = {name: row[name] for name in ("inode_id", "parent_id", "kind", "name", "owner", "group")}
    told |= {"mode": int(row["permission"], 8), "mtime": row["mtime"] // 1000}
    if row["kind"] == "file":
        told |= {
            "client": row["client_name"],
            "replication": row["replication"],
            "atime": row["atime"] // 1000,
            "block_size": row["block_size"],
            "blocks": [tuple(block) for block in row["blocks"]],
        }
    elif row["kind"] == "directory":
        told["quotas"] = (row["names_quota"], row["space_quota"])
    else:
        told["target"] = row["target"]
    return told


def reloaded(folding: Fold) -> Fold:
    """A fold that goes on from the rows of another."""
    loading = TreeLoading(folding.last_txid, folding.tree.last_inode_id)
    for row in rows_of(folding).values():
        blocks = [dict(zip(("id", "num_bytes", "generation_stamp"), block, strict=True)) for block in row["blocks"]]
        loading.add(inode_of({**row, "blocks": blocks}))
    return Fold(loading.finish())


def test_the_fold_of_edits_is_the_image_that_a_namenode_saves_of_them(
    hadoop: HadoopTool, name_directory: Path, tmp_path: Path
) -> None:
    put(name_directory, busy_script().ended(), 1)
    hadoop.start(name_directory)
    hadoop.fs("mkdir", f"/c/{ODD}/deep")
    hadoop.fs("mkdir", f"/d/{ODD}/inherits")
    for name in ("file", "file-2", "file-3"):
        hadoop.fs("create", f"/c/{name}")
    hadoop.fs("rename", "/c/file", f"/c/{ODD}")
    hadoop.fs("replace", "/c/file-2", f"/c/{ODD}/file")
    hadoop.fs("rename", "/c", "/d/c")
    hadoop.fs("chmod", f"/d/c/{ODD}", "1751")
    hadoop.fs("chown", f"/d/c/{ODD}", "carol", "some")
    hadoop.fs("xattr", f"/d/c/{ODD}", "user.kind", "value")
    hadoop.fs("delete", "/d/c/file-3")
    hadoop.fs("chown", "/", "hdfs", "hadoop")
    hadoop.fs("save")
    image = max(path for path in (name_directory / "current").glob("fsimage_*") if not path.suffix)
    txid = int(image.name.partition("_")[2])
    files = [name for name in names_of(name_directory) if "inprogress" not in name]
    records = records_of(name_directory / "current" / name for name in files)
    last_inode_id, theirs = inodes_of_image(hadoop.view_image(image, tmp_path / "image.xml"))

    folding = fold(records)
    assert folding.last_txid == txid == len(records)
    assert {inode_id: as_in_image(row) for inode_id, row in rows_of(folding).items()} == theirs
    assert len(theirs) == 14
    assert any(each.get("client") for each in theirs.values())
    assert folding.tree.last_inode_id == last_inode_id

    half = len(records) // 2
    again = fold(records[half:], reloaded(fold(records[:half])))
    assert rows_of(again) == rows_of(folding)


def test_edits_of_a_genuine_cluster_fold_into_what_a_namenode_makes_of_them(
    hadoop: HadoopTool, name_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those of Hadoop's own test of its viewer, clients and a DataNode at work: more than 40 kinds of operations."""
    edits = hadoop.cluster_edits(tmp_path_factory.mktemp("cluster"))
    data = edits.read_bytes()
    reading = our_reading(data, edits.name)
    last_txid = TxId(reading.records[-1].txid)
    folding = fold(records_of([edits]))
    assert sum(folding.counts.values()) == last_txid
    assert len(folding.counts) > 40

    (name_directory / "current" / str(EditsFileName(TxId(1), last_txid))).write_bytes(data)
    assert hadoop.start(name_directory) == last_txid
    theirs = {path: {name: told[name] for name in told if name in SHOWN} for path, told in hadoop.tree().items()}
    ours = {inodes.path_of(inode): shown(inode) for inode in inodes.subtree(folding.tree.root)}
    for op in reading.ops:
        assert isinstance(op, Op)
        if isinstance(op, CreateSnapshot):  # the time that its directory gets then is that of the replay
            for tree in (ours, theirs):
                tree.get(op.root, {}).pop("mtime", None)
    # Whose the root is the journal does not say; the NameNode takes who runs it.
    assert (ours["/"].pop("owner"), ours["/"].pop("group")) == ("", "")
    theirs["/"] = {name: value for name, value in theirs["/"].items() if name not in ("owner", "group")}
    assert ours == theirs
    assert len(ours) > 5
