"""Recovering a ledger: drives `protocol.recovery` over the channels and the metadata store.

Fence, read the tail with fencing reads, write it back with recovery adds, close (I-21 to I-40). All
decisions are the core's; this file turns its actions into requests and the answers into its events.

Thread: reactor. Bounds: those of the core (entries read and written back at a time).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from bookkeeper.client.bookies.access_errors import explained
from bookkeeper.client.metadata_update import update_metadata
from bookkeeper.client.write.ensemble_change import choose_replacements
from bookkeeper.client.write.occupancy import Occupancy, ask_occupancy
from bookkeeper.errors import (
    BookieUnavailable,
    BookKeeperError,
    ClientClosed,
    LedgerIdOccupied,
    RecoveryFailed,
    WrongPassword,
)
from bookkeeper.model import EXPLICIT_NEGATIVES, LAST_ENTRY, BookieId, LedgerId, LedgerMetadata, Status, Versioned
from bookkeeper.protocol.recovery import (
    Aborted,
    Action,
    Close,
    Fence,
    Finished,
    MarkInRecovery,
    Read,
    Recovered,
    Recovery,
    ReplaceBookies,
    WriteBack,
)
from bookkeeper.protocol.transitions import Change, close_by_recovery, start_recovery
from bookkeeper.wire.digest import lac_of, length_of

if TYPE_CHECKING:
    from bookkeeper.client.bookies.connection import BookieChannel
    from bookkeeper.client.context import ClientContext
    from bookkeeper.ports import Timer
    from bookkeeper.wire.digest import Digest

log = Logger()


class LedgerRecovery:
    """One recovery of one ledger. `result` fires with the final metadata, or fails with RecoveryFailed and the like."""

    def __init__(
        self,
        context: ClientContext,
        ledger_id: LedgerId,
        metadata: Versioned[LedgerMetadata],
        digest: Digest,
        master_key: bytes,
    ) -> None:
        settings = context.settings
        self.result: Deferred[Versioned[LedgerMetadata]] = Deferred(lambda _: self._abort_soon())
        self._context, self._ledger_id, self._metadata = context, ledger_id, metadata
        self._digest, self._master_key = digest, master_key
        self._core = Recovery(
            ledger_id,
            read_batch_max=settings.recovery_read_batch,
            bytes_max=settings.window_bytes_max,
            speculation=context.speculation,
            prefer=context.reading_order,
            response_timeout_s=settings.add_timeout_s if settings.add_timeout_s > 0 else None,
        )
        self._fences = _FenceAnswers(self)
        self._reads = _ReadAnswers(self)
        self._adds = _AddAnswers(self)
        self._actions: deque[Action] = deque()
        self._acting = False
        self._over = False
        self._failed_bookies: set[BookieId] = set()
        self._timer: Timer | None = None
        context.on_close(self, lambda: self._abort(ClientClosed("the client was closed")))

    def start(self) -> Deferred[Versioned[LedgerMetadata]]:
        """Begin."""
        self.event(self._core.start)
        return self.result

    def channel(self, bookie_id: BookieId) -> BookieChannel:
        """Its own connection when this client also wrote the ledger: v2 could not tell their answers apart."""
        return self._context.recovery_channel(bookie_id, self._ledger_id)

    def now(self) -> float:
        """The clock's time."""
        return self._context.clock.seconds()

    def error_of(self, status: Status, bookie_id: BookieId, entry_id: int) -> BookKeeperError:
        """A bookie's verdict that leaves open whether there is an entry."""
        return self._context.error_of(status, bookie_id=bookie_id, ledger_id=self._ledger_id, entry_id=entry_id)

    # --- events and actions

    def event(self, happen: Callable[[], Sequence[Action]]) -> None:
        """Tell the core; perform what it answers, in order, also when that leads to further events at once."""
        if self._over:
            return
        self._actions.extend(happen())
        if self._acting:
            return
        self._acting = True
        try:
            while self._actions and not self._over:
                self._perform(self._actions.popleft())
        finally:
            self._acting = False
        if not self._over:
            self._watch_deadline()

    def _perform(self, action: Action) -> None:
        match action:
            case MarkInRecovery():
                self._spawn(self._mark())
            case Fence():
                for bookie_id in action.bookies:
                    self.channel(bookie_id).read(
                        self._fences, self._ledger_id, (LAST_ENTRY,), fence_key=self._master_key, high_priority=True
                    )
            case Read():
                for request in action.requests:
                    self.channel(request.bookie_id).read(
                        self._reads,
                        self._ledger_id,
                        request.entry_ids,
                        fence_key=self._master_key,  # every recovery read fences too (I-29)
                        high_priority=True,
                    )
            case WriteBack():
                self._write_back(action)
            case ReplaceBookies():
                self._spawn(self._replace(action))
            case Close():
                self._spawn(self._close(action))
            case Finished():
                self._finish(action.metadata)
            case Aborted():
                self._fail(action.error)

    def _write_back(self, action: WriteBack) -> None:
        entries = action.entries
        entry_ids = [entry.entry_id for entry in entries]
        bodies = self._digest.package_entries(
            self._ledger_id,
            entry_ids,
            action.lac,
            [entry.length for entry in entries],
            [entry.payload for entry in entries],
        )
        encoder = self._context.copy_encoder(bodies)
        _, frames = encoder.encode_adds(
            self._ledger_id, self._master_key, entry_ids, bodies, recovery=True, high_priority=True
        )
        frame_of = dict(zip(entry_ids, frames, strict=True))
        for index, wanted in action.targets.items():
            if wanted:
                bookie_id = action.ensemble[index]
                self._adds.expect(index, bookie_id, wanted)
                mine = [frame_of[entry_id] for entry_id in wanted]
                channel = self._context.recovery_channel(bookie_id, self._ledger_id, encoder.version)
                channel.send_adds(self._adds, self._ledger_id, mine, sum(map(len, mine)))

    # --- the metadata store

    async def _mark(self) -> None:
        await self._context.directory.ready()
        marked = await self._update(start_recovery)
        self.event(lambda: self._core.on_marked(marked.value, self.now()))

    async def _replace(self, action: ReplaceBookies) -> None:
        await self._context.directory.ready()
        # A bookie that failed once is out for the rest of this recovery, or two dead ones could take turns (L-9).
        self._failed_bookies.update(action.failed.values())
        chosen = choose_replacements(
            self._context,
            action.ensemble,
            self._metadata.value.write_quorum,
            action.failed,
            frozenset(self._failed_bookies),
        )
        self.event(lambda: self._core.on_replaced(chosen, self.now()))

    async def _close(self, action: Close) -> None:
        closed = await self._update(
            lambda current: close_by_recovery(
                current,
                ledger_id=self._ledger_id,
                last_entry_id=action.last_entry_id,
                length=action.length,
                fragments=action.fragments,
            )
        )
        self.event(lambda: self._core.on_closed(closed.value))

    async def _update(self, decide: Callable[[LedgerMetadata], Change]) -> Versioned[LedgerMetadata]:
        context = self._context
        self._metadata = await update_metadata(context.store, context.clock, self._ledger_id, self._metadata, decide)
        return self._metadata

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except BookKeeperError as error:
                self._abort(error)
            except CancelledError:
                self._abort_soon()
            except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the caller waiting for ever
                log.failure("recovery of ledger {ledger_id}", ledger_id=self._ledger_id)
                self._abort(RecoveryFailed(f"ledger {self._ledger_id}: {error!r}", ledger_id=self._ledger_id))

        self._context.spawn(guarded(), f"recovery of ledger {self._ledger_id}")

    def _abort(self, error: BookKeeperError) -> None:
        self.event(lambda: self._core.abort(error))

    # --- time

    def _watch_deadline(self) -> None:
        if self._timer is None:
            deadline = self._core.next_deadline()
            if deadline is not None:
                self._timer = self._context.clock.callLater(max(0.0, deadline - self.now()), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.event(lambda: self._core.on_time(self.now()))

    # --- the end

    def _abort_soon(self) -> None:
        self._abort(ClientClosed("the caller gave the recovery up"))

    def _end(self) -> None:
        self._over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self._context.forget_close(self)
        self._context.channels.forget_writer(self._ledger_id, self._adds)

    def _finish(self, metadata: LedgerMetadata) -> None:
        self._end()
        # The version is that of the last compare-and-set or re-read, which is where this value comes from.
        self.result.callback(Versioned(metadata, self._metadata.version))

    def _fail(self, error: BookKeeperError) -> None:
        self._end()
        if isinstance(error, WrongPassword) and self._metadata.value.password is not None:
            self._context.spawn(self._fail_refused(error), f"recovery of ledger {self._ledger_id}")
            return
        self._end_failed(self._context.with_hint(error))

    async def _fail_refused(self, error: WrongPassword) -> None:
        """Fail after a refusal of the metadata's own password: ask what the bookies hold, and name it in the error."""
        members = self._metadata.value.last_fragment.ensemble
        try:
            findings = await ask_occupancy(self._context, self._ledger_id, members)
        except CancelledError:
            self._end_failed(ClientClosed("the caller gave the recovery up"))
            return
        answers: dict[str, object] = {}
        advice = (
            "A refusal does not show that the ledger is empty; if none of its entries is needed, close it by: "
            f"bookkeeper ledger close-empty {self._ledger_id}"
        )
        for bookie_id, found in findings.items():
            if found.occupancy is Occupancy.ENTRIES and self._digest.verify_last(self._ledger_id, found.body):
                answers[bookie_id] = f"holds entries of this ledger, up to entry {found.last_entry_id}"
                advice = f"It has entries; `bookkeeper why ledger {self._ledger_id}` shows what each bookie holds"
            elif found.occupancy is not Occupancy.UNKNOWN:
                answers[bookie_id] = str(found)
        if not answers:
            self._end_failed(self._context.with_hint(error))
            return
        self._end_failed(
            LedgerIdOccupied(
                f"{error}. Yet it is the password in the metadata, so another client claimed the ledger's id at "
                f"bookies before its first entry. {advice}",
                ledger_id=self._ledger_id,
                answers=answers,
            )
        )

    def _end_failed(self, error: BookKeeperError) -> None:
        if not self.result.called:
            self.result.errback(explained(error))

    @property
    def core(self) -> Recovery:
        """The machine."""
        return self._core

    @property
    def ledger_id(self) -> LedgerId:
        """What is recovered."""
        return self._ledger_id

    @property
    def digest(self) -> Digest:
        """Of its entries."""
        return self._digest


class _FenceAnswers:
    """Answers to the fencing reads of the last entry."""

    def __init__(self, recovery: LedgerRecovery) -> None:
        self._recovery = recovery

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        recovery, body = self._recovery, bodies[0]
        core, now = recovery.core, recovery.now()
        found = recovery.digest.verify_last(recovery.ledger_id, body)
        if found is None:
            recovery.event(lambda: core.on_fence_corrupt(bookie_id, now))
        else:
            recovery.event(
                lambda: core.on_fence_body(
                    bookie_id, entry_id=found[0], lac=lac_of(body), length=length_of(body), now=now
                )
            )

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        core, now = self._recovery.core, self._recovery.now()
        if status in EXPLICIT_NEGATIVES:
            self._recovery.event(lambda: core.on_fence_negative(bookie_id, now))
        else:
            self._recovery.event(lambda: core.on_fence_unknown(bookie_id, status, now))

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        core, now = self._recovery.core, self._recovery.now()
        self._recovery.event(lambda: core.on_fence_unknown(bookie_id, error, now))


class _ReadAnswers:
    """Answers to the fencing reads of the tail."""

    def __init__(self, recovery: LedgerRecovery) -> None:
        self._recovery = recovery

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        recovery = self._recovery
        payloads = recovery.digest.verify(recovery.ledger_id, entry_ids, bodies)
        values = [
            None if payload is None else Recovered(entry_id, payload, length_of(body))
            for entry_id, payload, body in zip(entry_ids, payloads, bodies, strict=True)
        ]
        recovery.event(lambda: recovery.core.on_bodies(bookie_id, entry_ids, values, recovery.now()))

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        core, now = self._recovery.core, self._recovery.now()
        if status in EXPLICIT_NEGATIVES:
            self._recovery.event(lambda: core.on_negative(bookie_id, [entry_id], status, now))
        else:
            why = self._recovery.error_of(status, bookie_id, entry_id)
            self._recovery.event(lambda: core.on_unknown(bookie_id, [entry_id], why, now))

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        core, now = self._recovery.core, self._recovery.now()
        self._recovery.event(lambda: core.on_unknown(bookie_id, entry_ids, error, now))


class _AddAnswers:
    """Answers to the recovery adds."""

    def __init__(self, recovery: LedgerRecovery) -> None:
        self._recovery = recovery
        self._index_of: dict[BookieId, int] = {}
        self._outstanding: dict[BookieId, set[int]] = {}

    def expect(self, index: int, bookie_id: BookieId, entry_ids: Sequence[int]) -> None:
        """These were sent."""
        self._index_of[bookie_id] = index
        self._outstanding.setdefault(bookie_id, set()).update(entry_ids)

    def on_add_ack(self, bookie_id: BookieId, entry_id: int) -> None:
        self.on_add_acks(bookie_id, [entry_id])

    def on_add_acks(self, bookie_id: BookieId, entry_ids: list[int]) -> None:
        core, now = self._recovery.core, self._recovery.now()
        self._outstanding[bookie_id].difference_update(entry_ids)
        self._recovery.event(lambda: core.on_added(self._index_of[bookie_id], bookie_id, entry_ids, now))

    def on_add_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        core, now = self._recovery.core, self._recovery.now()
        self._outstanding[bookie_id].discard(entry_id)
        self._recovery.event(lambda: core.on_add_failed(self._index_of[bookie_id], bookie_id, status, [entry_id], now))

    def on_bookie_lost(self, bookie_id: BookieId, error: BookieUnavailable) -> None:
        core, now = self._recovery.core, self._recovery.now()
        if self._outstanding.pop(bookie_id, None):
            self._recovery.event(lambda: core.on_add_failed(self._index_of[bookie_id], bookie_id, None, None, now))
        self._outstanding[bookie_id] = set()
