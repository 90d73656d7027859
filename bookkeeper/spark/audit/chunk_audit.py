"""One chunk of a ledger audited: what was read in place, the rest through its bookies. Thread: reactor.

The bookies are asked at the same time, each for the entries of the chunk that it should have and of which nothing is
known yet. Where there is a finding the metadata are read once more: a ledger that is repaired meanwhile has other
bookies than a moment ago, and is judged by what they have (I-46). A bookie that was read in place, and runs by then, is
asked, too: it may have been mended since. What a ledger lacks that is being written may be on its way, since an entry
is confirmed when the ack quorum has it: the last two chunks are looked at once more ON_THE_WAY_S later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bookkeeper.client.metadata_update import pause
from bookkeeper.client.parallel import in_parallel
from bookkeeper.client.read import batch as batch_read
from bookkeeper.model import LedgerMetadata
from bookkeeper.protocol.schedule import held_entries
from bookkeeper.spark.audit.bookie_copies import BookiePaces, read_copies
from bookkeeper.spark.audit.evidence import BAD, UNKNOWN, Evidence, chunk_of
from bookkeeper.spark.audit.judgement import ChunkVerdict, FindingKind, judge, stretches_of
from bookkeeper.wire.digest import Digest, digest_of

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

BOOKIES_AT_ONCE = 16
LOOKS_MAX = 4
"""Times that a chunk is looked at while its ledger's bookies change."""

ON_THE_WAY_S = 5.0
"""The default time-out of an add: what has not arrived by then made its writer take another bookie, or was given up."""


async def audit_chunk(
    client: LedgerClient,
    ledger_id: int,
    end: int,
    chunk: int,
    *,
    paces: BookiePaces,
    stored: Mapping[str, Evidence] | None = None,
) -> ChunkVerdict:
    """Judge a chunk of a ledger that ends at `end`.

    stored: evidence from the directories of bookies; more is added to it.
    Raises NoSuchLedger for one that is gone, MetadataError.
    """
    look = _Look(client, ledger_id, end, chunk, paces, stored or {})
    metadata = await client.metadata(ledger_id)
    verdict = await look.judge(metadata)
    waited = False
    for _ in range(LOOKS_MAX - 1):
        if not verdict.findings:
            break
        await client.context.store.sync()
        now = await client.metadata(ledger_id)
        started = await look.ask_those_that_run()
        if not started and list(stretches_of(now, chunk, end)) == list(stretches_of(metadata, chunk, end)):
            if waited or not _may_be_on_the_way(metadata, end, chunk, verdict):
                break
            waited = True
            await pause(client.context.clock, ON_THE_WAY_S)
            now = await client.metadata(ledger_id)
        metadata = now
        verdict = await look.judge(metadata)
    return verdict


def _may_be_on_the_way(metadata: LedgerMetadata, end: int, chunk: int, verdict: ChunkVerdict) -> bool:
    """What is missing may have been sent by a writer a moment ago: it is near what was confirmed last."""
    missing = any(each.kind is FindingKind.MISSING for each in verdict.findings)
    return missing and not metadata.is_closed and chunk >= chunk_of(end) - 1


class _Look:
    """Asking, with what was read in place."""

    def __init__(
        self,
        client: LedgerClient,
        ledger_id: int,
        end: int,
        chunk: int,
        paces: BookiePaces,
        stored: Mapping[str, Evidence],
    ) -> None:
        self._client, self._ledger_id, self._end, self._chunk = client, ledger_id, end, chunk
        self._paces, self._stored = paces, stored
        self._running: set[str] = set()

    async def ask_those_that_run(self) -> bool:
        """From now on ask bookies that were read in place and run; whether there are more of them than before."""
        if not self._stored:
            return False
        available = await self._client.context.store.bookies.current()
        found = {each for each in (*available.writable, *available.read_only) if each in self._stored}
        more = not found <= self._running
        self._running |= found
        return more

    async def judge(self, metadata: LedgerMetadata) -> ChunkVerdict:
        """Ask the bookies that the metadata name, and judge."""
        context, digest = self._client.context, _digest(self._client, metadata)
        evidence: dict[str, Evidence] = {}
        wanted: dict[str, list[Sequence[int]]] = {}
        for stretch in stretches_of(metadata, self._chunk, self._end):
            for index, bookie in enumerate(stretch.ensemble):
                held = held_entries(index, stretch.first, stretch.last, metadata.ensemble_size, metadata.write_quorum)
                if held:
                    known = evidence.setdefault(
                        bookie, self._stored.get(bookie) or Evidence(self._ledger_id, self._chunk, bookie)
                    )
                    wanted.setdefault(bookie, []).append(self._not_known(known, held))

        async def ask(bookie: str) -> None:
            for entry_ids in filter(len, wanted[bookie]):
                batches = batch_read.useful(context, metadata, len(entry_ids))
                await read_copies(context, digest, evidence[bookie], entry_ids, batches=batches, paces=self._paces)

        await in_parallel((ask(bookie) for bookie in wanted), BOOKIES_AT_ONCE)
        return judge(self._ledger_id, metadata, self._end, self._chunk, evidence)

    def _not_known(self, evidence: Evidence, held: Sequence[int]) -> Sequence[int]:
        """Those of the entries that its bookie is to be asked for."""
        if evidence.bookie not in self._stored:
            return held
        known = BAD if evidence.bookie in self._running else UNKNOWN
        first, verdicts = evidence.first_entry_id, evidence.verdicts
        return [entry_id for entry_id in held if verdicts[entry_id - first] <= known]


def _digest(client: LedgerClient, metadata: LedgerMetadata) -> Digest:
    """As an administrator: with the password that the metadata name, or the client's for ledgers older than 4.2."""
    if metadata.digest_type is None or metadata.password is None:
        return digest_of(client.settings.digest_type, client.settings.password)
    return digest_of(metadata.digest_type, metadata.password)
