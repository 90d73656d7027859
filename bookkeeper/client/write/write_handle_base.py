"""What both kinds of write handle share: the window's room, the end of the handle, reading back what was written.

    open --append--> open --close()--> draining --all acknowledged--> closing --CAS--> closed
      |                                    |
      +------------- failure --------------+--> failed: pending adds fail, their outcome is open (I-41)

A failure other than fencing also closes the ledger at what was acknowledged, as Apache's writer does, so that readers
need not recover it. With deferred sync "acknowledged" is not "confirmed": the LAC, what may be read and the end of the
ledger follow the forces (`force`, `deferred_pipeline`), and `close` forces first. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.client.metadata_update import update_metadata
from bookkeeper.client.parallel import tell_all
from bookkeeper.client.read.read_handle import Entry, ReadHandle
from bookkeeper.client.read.view import LedgerView
from bookkeeper.client.write.deferred_pipeline import DeferredAddPipeline
from bookkeeper.client.write.explicit_lac import ExplicitLac
from bookkeeper.client.write.force import Forcing
from bookkeeper.client.write.pipeline import AddPipeline
from bookkeeper.errors import (
    BookKeeperError,
    ClientClosed,
    InvalidArgument,
    LedgerClosed,
    LedgerFencedOff,
    MetadataUnavailable,
    NotDurable,
    NotInProtocolVersion,
    WindowFull,
    again,
)
from bookkeeper.model import EntryId, LedgerId, LedgerMetadata, Versioned
from bookkeeper.protocol.forces import Forces
from bookkeeper.protocol.transitions import close_by_writer

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest

log = Logger()

BYTES = (bytes, bytearray, memoryview)
"""What an entry may be given as. It is copied at the end of the turn: do not change it before that."""

CALLBACK_FAILED = "a callback of a write handle failed"

EntryDone = Callable[[int, BookKeeperError | None], object]
"""Called once per entry id (or last id of a call): acknowledged, or why not."""


class LedgerWriting(OfOneProcess):
    """One ledger being written. Subclasses give entry ids and keep who waits for which.

    on_acknowledged: if set, called with every range of ids newly acknowledged. on_failed: if set, called once when the
    handle fails.
    deferred_sync: bookies may acknowledge before the entries are on disk; `force` confirms them.
    """

    __slots__ = (
        "__weakref__",
        "_aborted",
        "_accepting",
        "_close_result",
        "_close_started",
        "_close_waiters",
        "_context",
        "_digest",
        "_explicit_lac",
        "_failure",
        "_forcing",
        "_lost_adds",
        "_payload_size_max",
        "_pipeline",
        "_reading",
        "_ready",
        "_view",
        "_waits_for_channel",
        "_window",
        "_window_bytes_max",
        "_window_entries_max",
        "ledger_id",
        "on_acknowledged",
        "on_failed",
    )

    def __init__(
        self,
        context: ClientContext,
        ledger_id: LedgerId,
        metadata: Versioned[LedgerMetadata],
        digest: Digest,
        master_key: bytes,
        *,
        deferred_sync: bool = False,
    ) -> None:
        self.ledger_id = ledger_id
        self.on_acknowledged: Callable[[range], object] | None = None
        self.on_failed: Callable[[BookKeeperError], object] | None = None
        self._context, self._digest = context, digest
        self._window_entries_max = context.settings.window_entries_max
        self._window_bytes_max = context.settings.window_bytes_max
        self._payload_size_max = context.encoder.body_size_max - digest.overhead
        kind = DeferredAddPipeline if deferred_sync else AddPipeline
        self._pipeline: AddPipeline = kind(
            context,
            ledger_id,
            metadata,
            digest,
            master_key,
            on_acknowledged=self._acknowledged,
            on_failed=self._on_pipeline_failed,
            on_room=self._use_room,
        )
        self._window = self._pipeline.window
        self._forcing: Forcing | None = None  # made by the first force
        self._explicit_lac = ExplicitLac(context, ledger_id, digest, master_key, self._pipeline)
        self._view = LedgerView(ledger_id, metadata)
        self._reading: ReadHandle | None = None
        self._ready: list[Deferred[None]] = []
        self._waits_for_channel = False
        self._accepting = True
        self._aborted = False
        self._failure: BookKeeperError | None = None
        self._lost_adds = False  # adds whose callers were told of the failure
        self._close_started = False
        self._close_result: LedgerMetadata | Failure | None = None
        self._close_waiters: list[Deferred[LedgerMetadata]] = []
        context.written.add(ledger_id)
        context.on_close(self, self._on_client_closed)

    # --- what is known

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read or written by this handle."""
        if isinstance(self._close_result, LedgerMetadata):
            return self._close_result
        return self._pipeline.metadata.value

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry confirmed: acknowledged, and with deferred sync also forced."""
        return self._pipeline.lac

    @property
    def last_add_pushed(self) -> EntryId:
        """The greatest entry id given out."""
        return self._window.last_pushed

    @property
    def length(self) -> int:
        """Payload bytes up to the last add confirmed."""
        return self._pipeline.confirmed_length

    @property
    def closed(self) -> bool:
        """The handle takes no more entries."""
        return not self._accepting

    @property
    def error(self) -> BookKeeperError | None:
        """Why the handle failed; None while it works, and when it was closed in order."""
        return self._failure

    @property
    def window_free(self) -> int:
        """Entries that fit into the window now."""
        if self._pipeline.full_channel is not None:
            return 0
        return max(0, self._window_entries_max - self._occupied_entries)

    @property
    def _occupied_entries(self) -> int:
        return self._window.occupied_entries

    # --- room

    def ready(self) -> Deferred[None]:
        """Fires when the window has room for at least one entry; fails when the handle did."""
        if not self._accepting:
            return fail(self._why_not())
        if self._ready_now():
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._ready.remove)
        self._ready.append(waiting)
        self._pipeline.room_wanted = True
        return waiting

    def _ready_now(self) -> bool:
        raise AssertionError("each kind of handle says for itself")

    def _use_room(self) -> None:
        """Something was answered: whoever waits for room may go on. Subclasses say when nobody waits any more."""
        if self._ready and self._accepting and self._ready_now():
            ready, self._ready = self._ready, []
            for deferred in ready:
                deferred.callback(None)

    def _check(self, size: int) -> None:
        if not self._accepting:
            raise self._why_not()
        if size > self._payload_size_max:
            raise InvalidArgument(
                f"ledger {self.ledger_id}: an entry of {size} bytes is larger than {self._payload_size_max}, what"
                " fits into a frame; split it, or raise nettyMaxFrameSizeBytes on the client and all bookies"
            )

    def _why_not(self) -> BookKeeperError:
        if self._failure is not None:
            return again(self._failure)
        return LedgerClosed(f"ledger {self.ledger_id} is closed; write on in a new ledger", ledger_id=self.ledger_id)

    def _full(self) -> WindowFull:
        channel = self._pipeline.full_channel
        where = f"the connection to bookie {channel.bookie_id}" if channel is not None else "the window"
        return WindowFull(
            f"ledger {self.ledger_id}: {where} is full ({self._window.occupied_entries} entries, "
            f"{self._window.occupied_bytes} bytes unanswered); await ready() and try again",
            ledger_id=self.ledger_id,
        )

    def _connections_have_room(self) -> bool:
        channel = self._pipeline.full_channel
        if channel is None:
            return True
        if not self._waits_for_channel:
            self._waits_for_channel = True
            channel.on_room(self._on_channel_room)
        return False

    def _on_channel_room(self) -> None:
        self._waits_for_channel = False
        self._use_room()

    # --- acknowledgements and failure

    def _acknowledged(self, entry_ids: range) -> None:
        if self.on_acknowledged is not None:
            try:
                self.on_acknowledged(entry_ids)
            except Exception:  # noqa: BLE001 - as `call_guarded`
                log.failure(CALLBACK_FAILED)
        self._complete(entry_ids)
        if not self._explicit_lac.waiting:
            self._explicit_lac.on_acknowledged()

    def _complete(self, entry_ids: range) -> None:
        raise AssertionError("each kind of handle keeps its own waiters")

    def _has_unfinished(self) -> bool:
        """Something was appended and is not acknowledged."""
        return self.last_add_pushed > self._window.last_acknowledged

    def _drop_waiters(self) -> list[tuple[int, EntryDone]]:
        raise AssertionError("each kind of handle keeps its own waiters")

    def _on_pipeline_failed(self, error: BookKeeperError) -> None:
        """The end of all adds. Everybody who waits hears of it, once."""
        self._accepting = False
        self._explicit_lac.stop()
        if self._window.last_acknowledged >= 0:
            # A callback of this very acknowledgement may have ended the handle: the others get their good news first.
            self._complete(range(self._window.last_acknowledged + 1))
        closing = self._close_started and isinstance(error, LedgerClosed) and self._close_result is None
        failed_by_itself = not (closing or self._aborted)
        if failed_by_itself:
            self._failure = error
            self._lost_adds = self._has_unfinished()
        ready, self._ready = self._ready, []
        for entry_id, call in self._drop_waiters():
            call_guarded(call, entry_id, again(error))
        for deferred in ready:
            deferred.errback(again(error))
        if self._forcing is not None:
            self._forcing.fail(error)
        if not failed_by_itself:
            return
        if self.on_failed is not None:
            call_guarded(self.on_failed, error)
        if isinstance(error, LedgerFencedOff | LedgerClosed | ClientClosed):
            self._context.forget_close(self)  # nothing is left to be done for it
        elif not self._close_started:
            self.close_now().addErrback(
                lambda failure: log.info(
                    "closing ledger {ledger_id} after a failure: {error}", ledger_id=self.ledger_id, error=failure.value
                )
            )

    def _on_client_closed(self) -> None:
        self._pipeline.fail(ClientClosed(f"the client was closed while ledger {self.ledger_id} was being written"))

    # --- forcing

    def force(self) -> Deferred[EntryId]:
        """Fires with the LAC once everything that is acknowledged now is on the disks of its bookies.

        At once where that is so already. With deferred sync this is what confirms entries, and a failure ends the
        handle: NotDurable names what was acknowledged in vain. Without it the handle goes on and may force again.
        Fails with NotInProtocolVersion on a client set to protocol v2.
        """
        if not self._accepting:
            return fail(self._why_not())
        if self._context.settings.use_v2:
            return fail(
                NotInProtocolVersion(
                    f"ledger {self.ledger_id}: protocol v2, the default, has no force; connect with "
                    "ClientSettings(use_v2=False), or useV2WireProtocol=false where load_client reads it",
                    ledger_id=self.ledger_id,
                )
            )
        return self._force()

    def _force(self) -> Deferred[EntryId]:
        if self._forcing is None:
            pipeline = self._pipeline
            deferred = isinstance(pipeline, DeferredAddPipeline)
            self._forcing = Forcing(
                self._context,
                self.ledger_id,
                pipeline,
                pipeline.forces if isinstance(pipeline, DeferredAddPipeline) else Forces(len(self._window.ensemble)),
                on_durable=self._on_durable,
                on_failed=pipeline.fail if deferred else self._forget_forcing,
            )
        return self._forcing.force()

    def _on_durable(self) -> None:
        if isinstance(self._pipeline, DeferredAddPipeline):
            self._pipeline.on_durable()
            if not self._explicit_lac.waiting:
                self._explicit_lac.on_acknowledged()

    def _forget_forcing(self, error: NotDurable) -> None:
        """A round failed that confirmed nothing new: the next one starts afresh."""
        self._forcing = None

    # --- the end

    def flush(self) -> Deferred[EntryId]:
        """Fires once everything appended before this call is acknowledged, with the last such entry: the LAC, unless
        sync is deferred.
        """
        raise AssertionError("each kind of handle keeps its own waiters")

    def _drain(self) -> Deferred[EntryId]:
        """Fires once everything is acknowledged that can be without a further append."""
        return self.flush()

    def close(self) -> Deferred[LedgerMetadata]:
        """Wait until everything appended is acknowledged, then close the ledger; fires with its final metadata.

        Nothing new is taken from now on. With deferred sync everything is forced first. Fails with the handle's error
        when it failed (the ledger is then closed at what was confirmed, where that is possible), with NotDurable when
        entries that were acknowledged are not in it, with LedgerFencedOff or LedgerClosed when somebody else ended
        the ledger differently (I-12). Repeated calls give the same result; only after MetadataUnavailable a call tries
        again.

        Differs from Apache: its writer closes at the durable LAC without forcing, and says nothing of what that leaves
        out.
        """
        closed = self._close(self._drain_and_close())

        def but_it_failed(metadata: LedgerMetadata | Failure) -> LedgerMetadata | Failure:
            lost = self._pipeline.unforced
            if self._failure is not None and lost and isinstance(metadata, LedgerMetadata) and metadata.is_closed:
                raise NotDurable(
                    f"ledger {self.ledger_id} was closed at entry {metadata.last_entry_id}: entries "
                    f"{lost[0]}..{lost[-1]} were acknowledged but could not be forced and are not in it; write them "
                    "to a new ledger",
                    ledger_id=self.ledger_id,
                    entry_ids=lost,
                ) from self._failure
            if self._failure is not None and (self._lost_adds or isinstance(metadata, Failure)):
                raise again(self._failure)
            return metadata

        return closed.addBoth(but_it_failed)

    def close_now(self) -> Deferred[LedgerMetadata]:
        """Close the ledger at what is confirmed now; pending adds fail and are not in the ledger.

        Nor are, with deferred sync, entries that were acknowledged and not forced.
        """
        return self._close(self._close_ledger())

    def abort(self) -> None:
        """Drop the handle and leave the ledger as it is: its next reader recovers it. Pending adds fail."""
        self._accepting = False
        self._aborted = True
        self._context.forget_close(self)
        self._pipeline.fail(
            LedgerClosed(f"the handle of ledger {self.ledger_id} was dropped", ledger_id=self.ledger_id)
        )

    def _close(self, how: Coroutine[Any, Any, LedgerMetadata]) -> Deferred[LedgerMetadata]:
        if self._close_started:
            how.close()
        else:
            self._close_started = True
            Deferred.fromCoroutine(how).addBoth(self._on_closed)
        waiting: Deferred[LedgerMetadata] = Deferred(self._close_waiters.remove)
        self._close_waiters.append(waiting)
        if self._close_result is not None:
            self._tell_close_waiters(self._close_result)
        return waiting

    def _tell_close_waiters(self, result: LedgerMetadata | Failure) -> None:
        waiters, self._close_waiters = self._close_waiters, []
        tell_all(waiters, result)

    def _on_closed(self, result: LedgerMetadata | Failure) -> None:
        self._context.forget_close(self)
        if isinstance(result, Failure) and isinstance(result.value, MetadataUnavailable):
            self._close_started = False  # whether the ledger is closed is not known: the next call finds out
        else:
            self._close_result = result
        if isinstance(result, LedgerMetadata) and result.is_closed:
            self._context.written.discard(self.ledger_id)
        self._tell_close_waiters(result)

    async def _drain_and_close(self) -> LedgerMetadata:
        if not self._pipeline.failed:
            drained = self._drain()
            self._accepting = False
            try:
                await drained
                if self._pipeline.unforced:
                    await self._force()
            except BookKeeperError:
                if self._failure is None:
                    raise
        return await self._close_ledger()

    async def _close_ledger(self) -> LedgerMetadata:
        """Fail what is pending, then fix the end at the LAC (I-07, I-12). Unknown outcomes are looked up (I-16)."""
        self._accepting = False
        self._pipeline.fail(
            LedgerClosed(
                f"ledger {self.ledger_id}: closed at entry {self.last_add_confirmed}, before this add was acknowledged",
                ledger_id=self.ledger_id,
            )
        )
        if self._aborted:
            return self._pipeline.metadata.value
        if isinstance(self._failure, ClientClosed):
            raise ClientClosed(
                f"ledger {self.ledger_id} was not closed, its client was closed first; opening it with recovery does it"
            )
        last_entry_id, length = self._pipeline.lac, self._pipeline.confirmed_length
        closed = await update_metadata(
            self._context.store,
            self._context.clock,
            self.ledger_id,
            self._pipeline.metadata,
            lambda now: close_by_writer(now, ledger_id=self.ledger_id, last_entry_id=last_entry_id, length=length),
        )
        self._view.adopt(closed)
        return closed.value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        try:
            await self.close_now()
        except BookKeeperError as close_error:
            log.info("closing ledger {ledger_id}: {error}", ledger_id=self.ledger_id, error=close_error)

    # --- reading what was written

    @property
    def read_handle(self) -> ReadHandle:
        """Reads this ledger up to what is confirmed."""
        if self._reading is None:
            self._reading = ReadHandle(self._context, self._view, self._digest)
        self._view.adopt(self._pipeline.metadata)
        self._view.advance(self._pipeline.lac, self._pipeline.confirmed_length)
        return self._reading

    def read(self, first_entry_id: int, last_entry_id: int) -> Deferred[list[Entry]]:
        """Entries first..last, both included; they must be confirmed."""
        return self.read_handle.read(first_entry_id, last_entry_id)


def not_bytes(ledger_id: int, payloads: Sequence[object], cause: Exception | None = None) -> InvalidArgument:
    """The error for payloads among which is something else than bytes."""
    kinds = sorted({type(payload).__name__ for payload in payloads if not isinstance(payload, BYTES)})
    error = InvalidArgument(
        f"ledger {ledger_id}: entries are bytes, not {', '.join(kinds) or cause}; encode them before appending"
    )
    error.__cause__ = cause
    return error


def call_guarded(call: Callable[..., object], *args: object) -> None:
    """Run a caller's callback; its mistakes must not stop the others'."""
    try:
        call(*args)
    except Exception:  # noqa: BLE001 - whatever the application raises
        log.failure(CALLBACK_FAILED)
