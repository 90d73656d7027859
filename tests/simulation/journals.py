"""Journals on the simulated cluster: one per client process, with what tests do to them again and again."""

from __future__ import annotations

from typing import Any

from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.tree import Tree
from journalmgr.contract import JournalManager, SegmentWriter
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.ledger.settings import LedgerJournalSettings
from journalmgr.model import OPAQUE, NamespaceInfo, Segment, TxId
from tests.simulation.world import METADATA_SETTINGS, SimulatedClient, World

ROOT = "/journal"
NAMESPACE = NamespaceInfo(7, "CID-7", "BP-7")


def record(txid: int) -> bytes:
    """A transaction that says which one it is."""
    return encode_record(OpCode.OPAQUE, txid, b"transaction %d" % txid)


def records(first: int, last: int) -> list[bytes]:
    """Transactions first..last."""
    return [record(txid) for txid in range(first, last + 1)]


def journal_of(
    client: SimulatedClient, tree: Tree | None = None, namespace: NamespaceInfo | None = NAMESPACE, **settings: Any
) -> LedgerJournal:
    """A journal in a client's process."""
    return LedgerJournal(
        client.ledgers,
        tree if tree is not None else client.store.tree,
        client.process.clock,
        METADATA_SETTINGS,
        ROOT,
        namespace,
        LedgerJournalSettings(**settings),
        hostname=f"{client.name}/127.0.0.1",
    )


def new_journal(world: World, **options: Any) -> LedgerJournal:
    """A journal in a process of its own."""
    return journal_of(world.add_client(), **options)


def data_of(world: World, path: str) -> bytes | None:
    """What is stored below the journal's root; None for null data. The znode must be there."""
    assert world.metadata.exists(ROOT + path), f"no {ROOT}{path}"
    return world.metadata.stored(ROOT + path)


def version_of(world: World, path: str) -> int:
    """How often a znode was changed."""
    return world.metadata.znodes.leader.nodes[ROOT + path].version


def listed(world: World) -> list[str]:
    """Names of the segments' znodes."""
    return sorted(world.metadata.znodes.leader.children(f"{ROOT}/ledgers", None))


def put(world: World, name: str, data: bytes) -> None:
    """Make a segment's znode behind everybody's back."""
    from bookkeeper.metadata.tree import NodeKind

    world.metadata.znodes.create(f"{ROOT}/ledgers/{name}", data, NodeKind.PERSISTENT, 0)


def remove(world: World, name: str) -> bytes:
    """Remove a segment's znode behind everybody's back; its data."""
    node = world.metadata.znodes.leader.nodes[f"{ROOT}/ledgers/{name}"]
    world.metadata.znodes.delete(f"{ROOT}/ledgers/{name}", node.version)
    assert node.data is not None
    return node.data


async def write(writer: SegmentWriter, first: int, last: int) -> None:
    """Write and flush transactions first..last."""
    writer.write(records(first, last))
    writer.set_ready_to_flush()
    assert await writer.flush() == last


async def write_segment(journal: JournalManager, first: int, last: int) -> Segment:
    """A finalised segment."""
    writer = await journal.start_segment(TxId(first), OPAQUE)
    await write(writer, first, last)
    await writer.close()
    return await journal.finalize_segment(TxId(first), TxId(last))


async def read_from(journal: JournalManager, first: int, *, in_progress_ok: bool = False) -> list[int]:
    """The txids of all that can be read from there on."""
    txids: list[int] = []
    for reader in await journal.select_input_streams(TxId(first), in_progress_ok=in_progress_ok):
        while (batch := await reader.next()) is not None:
            for found in batch.records:
                assert found.body == b"transaction %d" % found.txid
                txids.append(found.txid)
        await reader.close()
    return txids


async def failure_of(awaitable: Any) -> BookKeeperError:
    """The error that it fails with."""
    try:
        await awaitable
    except BookKeeperError as error:
        return error
    raise AssertionError("it did not fail")
