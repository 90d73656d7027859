"""Formatting a journal on a simulated cluster: what it never removes, and whom it stops first."""

from __future__ import annotations

import pytest

from journalmgr.errors import JournalError
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.model import OPAQUE, TxId
from tests.simulation.journals import NAMESPACE, failure_of, new_journal, records, write
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import METADATA_SETTINGS


@pytest.mark.parametrize("root", ["/ledgers", "/ledgers/journal", "/hadoop-ha", "/words/sub", "/a"])
def test_what_is_not_a_journal_is_never_formatted_however_it_is_forced(root: str) -> None:
    """I-87: the metadata of the ledgers, an election's znode, a place in another journal, a znode above another one."""
    world = started_world(3)

    async def story() -> list[str]:
        client = world.add_client()

        def at(path: str) -> LedgerJournal:
            return LedgerJournal(
                client.ledgers, client.store.tree, client.process.clock, METADATA_SETTINGS, path, NAMESPACE
            )

        await at("/words").format(NAMESPACE)
        await at("/a/b").format(NAMESPACE) if root == "/a" else None
        await client.store.tree.create("/hadoop-ha", b"")
        await client.store.tree.create("/hadoop-ha/words", b"")
        error = await failure_of(at(root).format(NAMESPACE, force=True))
        assert isinstance(error, JournalError)
        assert root in str(error)
        await at("/words").namespace()
        names: list[str] = await client.store.tree.children("/ledgers")
        return names

    assert "available" in run(world, story())


def test_whoever_writes_is_stopped_before_his_journal_is_formatted() -> None:
    """I-80: nothing is acknowledged any more that nobody will read."""
    world = started_world(3)

    async def story() -> str:
        journal = new_journal(world)
        await journal.format(NAMESPACE)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 3)
        await new_journal(world).format(NAMESPACE, force=True)
        writer.write(records(4, 4))
        writer.set_ready_to_flush()
        return type(await failure_of(writer.flush())).__name__

    assert run(world, story()) in ("WriterReplaced", "StreamFailed")
