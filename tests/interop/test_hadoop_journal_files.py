"""Our journal on files in the name directory of a genuine NameNode: both write it in turn, and never at once."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor

from journalmgr.contract import JournalManager
from journalmgr.edits.codec import decode, encode
from journalmgr.edits.fields import Permission
from journalmgr.edits.ops import AnyOp, EndLogSegment, Mkdir, RenameOld, StartLogSegment
from journalmgr.errors import JournalUnavailable
from journalmgr.files.opening import open_journal
from journalmgr.model import FIRST_TXID, HADOOP_2_7, TxId
from tests.support.hadoop import HadoopTool
from tests.support.java_programs import CommandFailed

OpenJournal = Callable[[Path], Awaitable[JournalManager]]

OWNER = Permission("us", "all", 0o755)
INODE_ID = 16500
"""Above those that the NameNode gave away in a test."""


@pytest_twisted.async_yield_fixture
async def opened() -> AsyncIterator[OpenJournal]:
    """Opens our journal on a directory; it is closed at the end."""
    journals: list[JournalManager] = []

    async def open_on(directory: Path) -> JournalManager:
        journals.append(await open_journal(directory.as_uri(), reactor, None, {}))
        return journals[-1]

    yield open_on
    for journal in journals:
        await journal.close()


async def all_ops(journal: JournalManager, *, in_progress_ok: bool = False) -> list[AnyOp]:
    ops: list[AnyOp] = []
    for reader in await journal.select_input_streams(FIRST_TXID, in_progress_ok=in_progress_ok):
        while (batch := await reader.next()) is not None:
            ops += [decode(record, batch.segment.layout_version) for record in batch.records]
        await reader.close()
    assert [op.txid for op in ops] == list(range(1, len(ops) + 1))
    return ops


async def write_segment(journal: JournalManager, first_txid: int, *ops: AnyOp) -> None:
    """A finalised segment."""
    writer = await journal.start_segment(TxId(first_txid), HADOOP_2_7)
    for txid, op in enumerate(ops, first_txid):
        op.txid = txid
    writer.write([encode(op, HADOOP_2_7) for op in ops])
    writer.set_ready_to_flush()
    last_txid = await writer.flush()
    await journal.finalize_segment(TxId(first_txid), last_txid)


@pytest_twisted.ensureDeferred
async def test_our_journal_takes_over_from_a_namenode_that_died_and_gives_back(
    hadoop: HadoopTool, name_directory: Path, tmp_path: Path, opened: OpenJournal
) -> None:
    """The copy of the directory is what a NameNode that is killed at this moment leaves behind."""
    hadoop.start(name_directory)
    hadoop.fs("mkdir", "/theirs")
    hadoop.fs("roll")
    hadoop.fs("create", "/theirs/file")
    died = tmp_path / "died"
    shutil.copytree(name_directory, died)
    hadoop.stop()

    journal = await opened(died)
    assert (await journal.namespace()).layout_version == HADOOP_2_7
    left = await all_ops(journal, in_progress_ok=True)
    (recovered,) = await journal.recover_unfinalized()
    assert recovered.last_txid == left[-1].txid
    assert await all_ops(journal) == left
    await write_segment(
        journal,
        left[-1].txid + 1,
        StartLogSegment(),
        Mkdir(INODE_ID, "/ours", 1, 1, OWNER),
        RenameOld("/theirs/file", "/ours/file", 2),
        EndLogSegment(),
    )
    await journal.close()

    assert hadoop.start(died) == left[-1].txid + 4
    assert sorted(hadoop.tree()) == ["/", "/ours", "/ours/file", "/theirs"]
    hadoop.fs("mkdir", "/theirs/again")
    hadoop.stop()
    again = await all_ops(await opened(died))
    assert isinstance(again[-2], Mkdir)
    assert again[-2].path == "/theirs/again"


@pytest_twisted.ensureDeferred
async def test_our_journal_refuses_to_write_where_a_namenode_runs(
    hadoop: HadoopTool, name_directory: Path, opened: OpenJournal
) -> None:
    hadoop.start(name_directory)
    journal = await opened(name_directory)
    with pytest.raises(JournalUnavailable, match="in use by process"):
        await journal.recover_unfinalized()
    hadoop.fs("mkdir", "/still-served")
    assert "/still-served" in hadoop.tree()


@pytest_twisted.ensureDeferred
async def test_a_namenode_refuses_to_start_where_our_journal_writes(
    hadoop: HadoopTool, name_directory: Path, opened: OpenJournal
) -> None:
    journal = await opened(name_directory)
    await journal.recover_unfinalized()
    with pytest.raises(CommandFailed, match="already locked"):
        hadoop.start(name_directory)
    await journal.close()
    assert hadoop.start(name_directory) == 0


@pytest_twisted.ensureDeferred
async def test_our_tail_follows_a_namenode_that_writes(
    hadoop: HadoopTool, name_directory: Path, opened: OpenJournal
) -> None:
    hadoop.start(name_directory)
    tail = (await opened(name_directory)).tail(FIRST_TXID)
    seen: list[AnyOp] = []

    async def until(path: str) -> None:
        while not (seen and isinstance(seen[-1], Mkdir) and seen[-1].path == path):
            batch = await tail.next()
            seen.extend(decode(record, batch.segment.layout_version) for record in batch.records)

    for number in range(3):
        hadoop.fs("mkdir", f"/a{number}")
        hadoop.fs("mkdir", f"/b{number}")
        await until(f"/b{number}")
        hadoop.fs("roll")
    assert [op.txid for op in seen] == list(range(1, len(seen) + 1))
