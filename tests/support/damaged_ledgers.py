"""Ledgers on fake bookies that lack copies, and a look at who holds what."""

from __future__ import annotations

from typing import Any

from bookkeeper.client.client import LedgerClient
from bookkeeper.model import BookieId, DigestType, EntryId, LedgerId, LedgerMetadata, Versioned
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.copies.access import LedgerAccess, access_of
from bookkeeper.replication.copies.flow import CopyFlow
from bookkeeper.replication.copies.fragment_check import LedgerChecker
from bookkeeper.replication.copies.fragments import fragments_of
from bookkeeper.replication.copies.move import FragmentRestorer
from bookkeeper.replication.copies.tally import CopyTally
from tests.support.fake_bookie import FakeBookie, FakeCluster

FLOW = {"entries_max": 1000, "bytes_max": 1 << 20}


class Repairs:
    """A client with all that repairs ledgers through it."""

    def __init__(self, cluster: FakeCluster, client: LedgerClient, **flow: Any) -> None:
        self.cluster, self.client = cluster, client
        self.tally = CopyTally()
        self.flow = CopyFlow(cluster.clock, **(FLOW | flow))
        self.restorer = FragmentRestorer(client.context, self.flow, self.tally)
        self.checker = LedgerChecker(client.context, entries_max=1000)

    async def look(self, ledger_id: int) -> tuple[LedgerAccess, Versioned[LedgerMetadata]]:
        """What a repair begins with."""
        await self.client.context.directory.ready()
        current = await self.client.store.ledgers.read(LedgerId(ledger_id))
        return access_of(self.client.settings, LedgerId(ledger_id), current.value), current

    async def restore(self, ledger_id: int, *lost: FakeBookie) -> LedgerMetadata:
        """Restore what these bookies had of every fragment, as the metadata says."""
        access, current = await self.look(ledger_id)
        bookies = frozenset(bookie.bookie_id for bookie in lost)
        for fragment in fragments_of(current.value):
            if fragment.agreed:
                current = await self.restorer.restore(access, current, fragment, fragment.indexes_of(bookies))
        return current.value


def payloads(count: int) -> list[bytes]:
    """Different ones, of different sizes."""
    return [b"entry %d " % number + b"x" * (number % 50) for number in range(count)]


async def write_ledger(
    client: LedgerClient,
    members: list[FakeBookie],
    count: int,
    *,
    write_quorum: int | None = None,
    digest: DigestType = DigestType.CRC32C,
    password: bytes = b"secret",
    close: bool = True,
    **options: Any,
) -> Any:
    """A ledger of `count` entries on these bookies; its handle."""
    quorum = write_quorum or len(members)
    ledger = await client.create(
        ensemble=len(members),
        write_quorum=quorum,
        ack_quorum=quorum,
        bookies=[member.bookie_id for member in members],
        digest=digest,
        password=password,
        **options,
    )
    if count:
        await ledger.append_many(payloads(count))
    if close:
        await ledger.close()
    return ledger


def holders_missing(cluster: FakeCluster, ledger_id: int, metadata: LedgerMetadata) -> list[tuple[EntryId, BookieId]]:
    """Entries that a bookie does not hold although the metadata lists it for them."""
    missing = []
    for fragment in fragments_of(metadata):
        for entry_id in range(fragment.first_entry_id, fragment.last_entry_id + 1):
            for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum):
                bookie_id = fragment.ensemble[index]
                if entry_id not in cluster.by_id(bookie_id).entries.get(ledger_id, {}):
                    missing.append((EntryId(entry_id), bookie_id))
    return missing
