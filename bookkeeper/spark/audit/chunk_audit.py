"""One chunk of a ledger audited through its bookies. Thread: reactor.

The bookies are asked at the same time, each for all entries of the chunk that it should have. Where there is a finding
the metadata are read once more: a ledger that is repaired meanwhile has other bookies than a moment ago, and is judged
by what they have (I-46).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bookkeeper.client import batch_read
from bookkeeper.client.parallel import in_parallel
from bookkeeper.model import LedgerMetadata
from bookkeeper.protocol.schedule import held_entries
from bookkeeper.spark.audit.bookie_copies import read_copies
from bookkeeper.spark.audit.evidence import Evidence
from bookkeeper.spark.audit.judgement import ChunkVerdict, judge, stretches_of
from bookkeeper.wire.digest import Digest, digest_of

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

BOOKIES_AT_ONCE = 16
LOOKS_MAX = 4
"""Times that a chunk is looked at while its ledger's bookies change."""


async def audit_chunk(client: LedgerClient, ledger_id: int, end: int, chunk: int) -> tuple[ChunkVerdict, int]:
    """Judge a chunk of a ledger that ends at `end`; and the payload bytes that were read of all copies.

    Raises NoSuchLedger for one that is gone, MetadataError.
    """
    metadata = await client.metadata(ledger_id)
    verdict, size = await _look(client, ledger_id, metadata, end, chunk)
    for _ in range(LOOKS_MAX - 1):
        if not verdict.findings:
            break
        await client.context.store.sync()
        now = await client.metadata(ledger_id)
        if list(stretches_of(now, chunk, end)) == list(stretches_of(metadata, chunk, end)):
            break
        metadata = now
        verdict, more = await _look(client, ledger_id, metadata, end, chunk)
        size += more
    return verdict, size


async def _look(
    client: LedgerClient, ledger_id: int, metadata: LedgerMetadata, end: int, chunk: int
) -> tuple[ChunkVerdict, int]:
    digest = _digest(client, metadata)
    evidence: dict[str, Evidence] = {}
    wanted: dict[str, list[Sequence[int]]] = {}
    for stretch in stretches_of(metadata, chunk, end):
        for index, bookie in enumerate(stretch.ensemble):
            held = held_entries(index, stretch.first, stretch.last, metadata.ensemble_size, metadata.write_quorum)
            if held:
                evidence.setdefault(bookie, Evidence(ledger_id, chunk, bookie))
                wanted.setdefault(bookie, []).append(held)
    sizes: list[int] = []

    async def ask(bookie: str) -> None:
        for held in wanted[bookie]:
            batches = batch_read.useful(client.context, metadata, len(held))
            sizes.append(await read_copies(client.context, digest, evidence[bookie], held, batches=batches))

    await in_parallel((ask(bookie) for bookie in evidence), BOOKIES_AT_ONCE)
    return judge(ledger_id, metadata, end, chunk, evidence), sum(sizes)


def _digest(client: LedgerClient, metadata: LedgerMetadata) -> Digest:
    """As an administrator: with the password that the metadata name, or the client's for ledgers older than 4.2."""
    if metadata.digest_type is None or metadata.password is None:
        return digest_of(client.settings.digest_type, client.settings.password)
    return digest_of(metadata.digest_type, metadata.password)
