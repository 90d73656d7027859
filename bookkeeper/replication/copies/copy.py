"""Copying entries: read good copies, package them anew, write them to whoever lacks them.

    plan --batches--> read from the members that have them  --> digest good --> re-packaged --> recovery adds -->
    durable
                      (the next one where a copy is damaged,     (LAC agreed, length kept, new digest)
                       missing or silent)

What is written to a bookie had a good digest (I-67), is flagged as a recovery add, so that the fence of the ledger
lets it pass (I-27), and carries a LAC that every reader may know already (`fragments.agreed_lac`). `copy` returns only
when every entry of the plan is acknowledged, and so durable, at its target: only then may the metadata name the target
(I-75).

Differs from Apache: a target gets the entries that its place in the ensemble stores, not all of the fragment; batches
are on their way together, not one after the other.

Thread: reactor. Bounds: BATCHES_AT_ONCE per plan, and the entries and bytes of the `CopyFlow`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.bookies.access_errors import explained
from bookkeeper.client.parallel import in_parallel
from bookkeeper.client.read import batch as batch_read
from bookkeeper.errors import (
    BookieError,
    BookieUnavailable,
    BookKeeperError,
    ClientClosed,
    EntryCorrupt,
    EntryMissing,
    EntryUnreadable,
    LedgerError,
    PortableError,
    RequestNotSent,
)
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, LedgerId, LedgerMetadata, Status
from bookkeeper.protocol.unreadable import why_unreadable
from bookkeeper.replication.copies.fragments import CopyBatch, CopyPlan, FragmentRange, agreed_lac
from bookkeeper.replication.copies.gather import DAMAGED, Gather, UnreadableEntry
from bookkeeper.replication.copies.ledger_adds import LedgerAdds
from bookkeeper.wire.digest import length_of

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.protocol.reads import ReadRequest
    from bookkeeper.replication.copies.access import LedgerAccess
    from bookkeeper.replication.copies.flow import CopyFlow
    from bookkeeper.replication.copies.tally import CopyTally

log = Logger()

BATCH_ENTRIES_MAX = 500
"""Entries of one batch, unless told otherwise."""

BATCH_BYTES = 1024 * 1024
"""What a batch should have at most, by the mean size of the ledger's entries; at least one entry goes in each."""

BATCHES_AT_ONCE = 8
"""Batches of one plan on their way together."""

UNKNOWN_ENTRY_SIZE = 16 * 1024
"""Taken for the size of an entry where the ledger does not tell: its length is known once it is closed."""


class TargetFailed(PortableError):
    """A bookie did not take a copy: another one may."""

    def __init__(self, bookie_id: BookieId, error: BookKeeperError) -> None:
        super().__init__(f"bookie {bookie_id} took no copy: {error}")
        self.bookie_id, self.error = bookie_id, error


@dataclass(frozen=True, slots=True)
class _Copy:
    payload: bytes
    length: int  # of the ledger up to and including this entry


def mean_entry_size(metadata: LedgerMetadata) -> int:
    """Bytes of an entry on average, as far as the metadata tells."""
    if metadata.length is None or metadata.last_entry_id is None or metadata.last_entry_id < 0:
        return UNKNOWN_ENTRY_SIZE
    return metadata.length // (metadata.last_entry_id + 1) + 1


class LedgerCopying:
    """Copies entries of one ledger. `close` it at the end.

    metadata: as it was when the plans were made. avoid: members whose copies are in doubt: asked last. go_on: called
    before each batch; what it raises ends the copying.
    """

    def __init__(
        self,
        context: ClientContext,
        flow: CopyFlow,
        tally: CopyTally,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        avoid: frozenset[BookieId] = frozenset(),
        batch_entries_max: int = BATCH_ENTRIES_MAX,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._batch_entries_max = batch_entries_max
        self._go_on = go_on
        self._context, self._flow, self._tally, self._access = context, flow, tally, access
        self._metadata, self._avoid = metadata, avoid
        self._adds = LedgerAdds(context, access.ledger_id)
        self._lac = agreed_lac(metadata)
        self._turn = 0

    def close(self) -> None:
        """Want no more answers."""
        self._adds.close()

    async def copy(self, plan: CopyPlan) -> None:
        """Make every copy of the plan; on return they are durable at their targets.

        Raises TargetFailed, EntryMissing, EntryCorrupt or EntryUnreadable, or the TlsFailed, AuthenticationRefused or
        UnauthorizedAccess that keeps us from all copies of an entry; copies made before that stay.
        """
        assert plan.fragment.agreed, "a fragment that may still be written is never copied (I-74)"
        size = mean_entry_size(self._metadata)
        entries_max = max(1, min(self._batch_entries_max, BATCH_BYTES // size))
        batches = _few(plan, entries_max)
        if len(batches) == 1:
            await self._copy_batch(plan.fragment, batches[0], size)
        elif batches:
            works = (self._copy_batch(plan.fragment, batch, size) for batch in plan.batches(entries_max))
            await in_parallel(works, BATCHES_AT_ONCE)

    async def payload_of(self, fragment: FragmentRange, entry_id: int) -> bytes:
        """Read the payload of one entry of an agreed fragment from a member. Raises as `copy` does."""
        (copy,) = await self._read(fragment, (entry_id,))
        return copy.payload

    async def _copy_batch(self, fragment: FragmentRange, batch: CopyBatch, entry_size: int) -> None:
        flow, tally, clock = self._flow, self._tally, self._context.clock
        count, size = len(batch.entry_ids), len(batch.entry_ids) * entry_size
        await flow.enter(count, size)
        try:
            self._go_on()
            due = flow.entries_due(count)
            if due is not None:
                await due
            began = clock.seconds()
            copies = await self._read(fragment, batch.entry_ids)
            actual = sum(len(copy.payload) for copy in copies)
            flow.correct(size, actual)
            size = actual
            tally.on_read(count, actual, clock.seconds() - began)
            due = flow.bytes_due(actual)
            if due is not None:
                await due
            began = clock.seconds()
            await self._write(batch, copies, recovery=True)
            tally.on_written(sum(map(len, batch.wanted.values())), actual * len(batch.wanted), clock.seconds() - began)
        finally:
            flow.leave(count, size)

    # --- reading

    async def _read(self, fragment: FragmentRange, entry_ids: Sequence[int]) -> list[_Copy]:
        reading = _GoodCopies(self._context, self._access, self._metadata, self._order(fragment))
        try:
            return await reading.start(entry_ids)
        except LedgerError as error:
            self._tally.on_unreadable()
            raise explained(error) from error

    def _order(self, fragment: FragmentRange) -> list[Sequence[BookieId]]:
        """Whom to ask for entry e, at e % E: its write set; in doubt, failed lately or not registered: last."""
        directory, ensemble = self._context.directory, fragment.ensemble
        quarantined = directory.quarantined

        def doubt(bookie_id: BookieId) -> tuple[bool, bool, bool]:
            return not directory.is_registered(bookie_id), bookie_id in self._avoid, bookie_id in quarantined

        size = len(ensemble)
        self._turn += 1
        # Where every member has every entry a batch is asked of one of them, so that one answer can hold it all.
        starts = [self._turn] * size if size == fragment.write_quorum else range(size)
        return [
            sorted((ensemble[(start + i) % size] for i in range(fragment.write_quorum)), key=doubt) for start in starts
        ]

    # --- writing

    async def _write(self, batch: CopyBatch, copies: Sequence[_Copy], *, recovery: bool) -> None:
        access, entry_ids = self._access, batch.entry_ids
        bodies = access.digest.package_entries(
            access.ledger_id, entry_ids, self._lac, [copy.length for copy in copies], [copy.payload for copy in copies]
        )
        # Priority is normal, as Apache's: the ledger's own clients come first.
        encoder = self._context.copy_encoder(bodies)
        _, frames = encoder.encode_adds(
            access.ledger_id, access.master_key, entry_ids, bodies, recovery=recovery, high_priority=False
        )
        writes: list[tuple[BookieId, Deferred[None]]] = []
        for bookie_id, wanted in batch.wanted.items():
            mine: Sequence[bytes] = frames
            if len(wanted) != len(entry_ids):
                frame_of = dict(zip(entry_ids, frames, strict=True))
                mine = [frame_of[entry_id] for entry_id in wanted]
            writes.append((bookie_id, self._adds.write(bookie_id, wanted, mine, sum(map(len, mine)), encoder.version)))
        failed: TargetFailed | None = None
        for bookie_id, done in writes:
            try:
                await done
            except (BookieError, BookieUnavailable) as error:
                failed = failed or TargetFailed(bookie_id, error)
        if failed is not None:
            self._context.check_open()
            raise failed


def _few(plan: CopyPlan, entries_max: int) -> list[CopyBatch]:
    """The first two batches: whether there is more than one."""
    few: list[CopyBatch] = []
    for batch in plan.batches(entries_max):
        few.append(batch)
        if len(few) == 2:
            break
    return few


class _GoodCopies:
    """One read of some entries from whichever members have good copies. Fires with them all, or fails."""

    def __init__(
        self,
        context: ClientContext,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        order: Sequence[Sequence[BookieId]],
    ) -> None:
        self._context, self._access, self._metadata, self._order = context, access, metadata, order
        self._result: Deferred[list[_Copy]] = Deferred(self._cancelled)
        self.over = False

    def start(self, entry_ids: Sequence[int]) -> Deferred[list[_Copy]]:
        size, order = len(self._order), self._order
        self._gather: Gather[_Copy] = Gather(entry_ids, lambda entry_id: order[entry_id % size])
        self._batches = batch_read.useful(self._context, self._metadata, len(entry_ids))
        self._go_on(self._gather.start())
        return self._result

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """Entries as the bookie holds them."""
        if self.over:
            return
        access = self._access
        payloads = access.digest.verify(access.ledger_id, entry_ids, bodies)
        copies = [
            None if payload is None else _Copy(payload, length_of(body))
            for payload, body in zip(payloads, bodies, strict=True)
        ]
        if None in payloads:
            log.warn(
                "bookie {bookie_id} sent damaged copies of ledger {ledger_id}",
                bookie_id=bookie_id,
                ledger_id=access.ledger_id,
            )
        self._go_on(self._gather.on_bodies(bookie_id, entry_ids, copies))

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """A verdict on one entry."""
        self.on_verdict(bookie_id, [entry_id], status)

    def on_verdict(self, bookie_id: BookieId, entry_ids: list[int], status: Status) -> None:
        """A verdict on several."""
        if self.over:
            return
        why: object = status
        if status not in EXPLICIT_NEGATIVES:
            why = self._context.error_of(
                status, bookie_id=bookie_id, ledger_id=self._access.ledger_id, entry_id=entry_ids[0]
            )
        self._go_on(self._gather.on_failed(bookie_id, entry_ids, why))

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """No verdict."""
        if self.over:
            return
        if self._context.closed:
            self._end()
            self._result.errback(ClientClosed("the client was closed while entries were being copied"))
            return
        if not isinstance(error, RequestNotSent):
            self._context.directory.quarantine(bookie_id)
        self._go_on(self._gather.on_failed(bookie_id, entry_ids, error))

    def _go_on(self, requests: Sequence[ReadRequest]) -> None:
        ledger_id = self._access.ledger_id
        for request in requests:
            if self._batches:
                batch_read.ask(self._context, self, ledger_id, request.bookie_id, request.entry_ids, BATCH_BYTES)
            else:
                self._context.channel(request.bookie_id).read(self, ledger_id, request.entry_ids)
        if not self.over and self._gather.done:
            self._end()
            unreadable = self._gather.unreadable
            if unreadable is not None:
                self._result.errback(unreadable_error(ledger_id, unreadable))
            else:
                self._result.callback(self._gather.take())

    def _end(self) -> None:
        self.over = True

    def _cancelled(self, _: object) -> None:
        self._end()


def unreadable_error(ledger_id: LedgerId, entry: UnreadableEntry) -> LedgerError:
    """Why an entry cannot be copied: the same three reasons as for a reader, with every member's answer."""
    answers: Mapping[str, object] = {str(bookie): answer for bookie, answer in entry.answers.items()}
    denials = {status.value for status in EXPLICIT_NEGATIVES}
    said = set(map(str, answers.values()))
    kind: type[LedgerError] = EntryUnreadable
    what = " " + why_unreadable(
        answers,
        ledger_id=ledger_id,
        damaged={DAMAGED},
        then="its copies are made",
        remedy="a bookie or disk that has a good copy must come back",
    )
    if said <= denials:
        kind, what = EntryMissing, ": every member denies having it: its copies are lost, or it was never written"
    elif said <= denials | {DAMAGED}:
        kind, what = EntryCorrupt, ": every copy is damaged, or digest type or password are not the writer's"
    return kind(
        f"ledger {ledger_id}, entry {entry.entry_id}{what}",
        ledger_id=ledger_id,
        entry_id=entry.entry_id,
        answers=answers,
    )
