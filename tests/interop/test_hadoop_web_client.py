"""Hadoop's WebHDFS client writes and reads files of our name node, and our client reads them."""

from __future__ import annotations

from journalmgr.namenode.fs_client import FileSystemClient
from tests.support.hadoop import HadoopTool


def test_the_web_client_of_hadoop_writes_and_reads(hadoop: HadoopTool, name_node: str) -> None:
    snapshot = "CREATESNAPSHOT: this name node has no snapshots; copy the files to keep with OPEN and CREATE"
    seen = hadoop.use_web(name_node)
    assert snapshot in seen.pop("snapshot")
    assert seen == {
        "mkdirs": True,
        "whole": "hello world",
        "rest": "world",
        "status": [11, 0o640, True],
        "changed": [0o660, "ann", "staff", 1_500_000_000_000, 3],
        "attribute": "n",
        "acl": "ann",
        "names": ["a", "sub"],
        "summary": [1, 2, 11],
        "renamed": True,
        "missing": "/hadoop/a does not exist",
        "not empty": "PathIsNotEmptyDirectoryException",
        "deleted": True,
        "deleted again": False,
    }
    with FileSystemClient([name_node]) as files:
        assert files.read("/hadoop/sub/b") == b"hello world"
        assert [entry["pathSuffix"] for entry in files.list_status("/hadoop")] == ["sub"]
