"""Several journals as one: some required, of the others a minimum.

    member                       failed                                            comes back
    required (shared ones are)   the set fails                                     never: the server must stop
    optional                     disabled and told; too few left: the set fails    at the next segment start

Safety, besides what each member promises:
- what a member that is not shared has of the segment being written, every shared one has durably: it gets a transaction
  only then. Without a shared member the same holds of the optional ones and the required ones. So after a takeover no
  member knows more than those that must be asked, whichever server it belongs to;
- a member that says WriterReplaced fails the set: somebody else writes, wherever else we still could (I-80);
- one that belongs to another namespace is no member that is ill: the set is refused (I-87);
- without a required member a takeover needs so many members that any `minimum` of the old writer's are among them.

Limit: without a required member a takeover reads, and serves, what perhaps only one member has of the last segment; it
is not copied to the others. Should that member be lost before a checkpoint covers it, a gap is found there.

Reading is in journalmgr.merged_reading. Thread: reactor. Source: Hadoop's JournalSet (journalmgr/FORMATS.md 9.3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from twisted.internet.defer import Deferred, DeferredLock, fail, gatherResults, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.clock import clock_of
from bookkeeper.errors import BookKeeperError, InvalidArgument, again
from bookkeeper.ports import Clock
from journalmgr.contract import EditsTail, JournalManager, SegmentReader, SegmentWriter
from journalmgr.edits.frame import txid_of
from journalmgr.errors import (
    GapInTransactions,
    HasData,
    JournalClosed,
    JournalUnavailable,
    NamespaceMismatch,
    SegmentExists,
    StreamFailed,
    TransactionTooLarge,
    TxIdSeen,
    WriterReplaced,
)
from journalmgr.merged_reading import Copy, MergedLog, MergedTail, merged_readers
from journalmgr.model import NamespaceInfo, Segment, TxId

log = Logger()

T = TypeVar("T")

TAIL_PATIENCE_S = 10.0

FATAL = (WriterReplaced, NamespaceMismatch)
"""What no member may say, required or not."""

OnDisabled = Callable[[JournalManager, BookKeeperError], object]


@dataclass(frozen=True, slots=True)
class Member:
    """A journal's part in a set. shared: between servers; such a journal is required too, and comes first."""

    journal: JournalManager
    required: bool = False
    shared: bool = False


class _Seat:
    """A member, and whether it takes part until the next segment start."""

    def __init__(self, member: Member) -> None:
        self.journal = member.journal
        self.required = member.required or member.shared
        self.shared = member.shared
        self.disabled: BookKeeperError | None = None


class JournalSet(OfOneProcess):
    """See JournalManager. Owns its members, which `close` closes.

    clock: for example a reactor. minimum: how many optional members must stay healthy, if there are any.
    on_disabled: called when one is given up.
    """

    instead = "pass the journal's URI and its options instead, and open the journal where they arrive"

    def __init__(
        self, members: Sequence[Member], clock: Clock, *, minimum: int = 1, on_disabled: OnDisabled | None = None
    ) -> None:
        seats = [_Seat(member) for member in members]
        self._seats = sorted(seats, key=lambda seat: (not seat.shared, not seat.required))
        self._clock = clock_of(clock)
        self._minimum = minimum
        self._on_disabled = on_disabled
        self._writer: SetWriter | None = None
        self._change = DeferredLock()  # of recovery, starts and ends of segments: one at a time
        self._closed = False
        self._recovered_txid = TxId(0)  # where the log ended at the last recovery
        optional = sum(not seat.required for seat in seats)
        if not seats:
            raise InvalidArgument("a set of journals needs at least one")
        if optional and not 1 <= minimum <= optional:
            raise InvalidArgument(
                f"a minimum of {minimum} healthy journals, and {optional} of the set are not required: want 1 to "
                f"{optional}"
            )
        self.description = ", ".join(seat.journal.description for seat in self._seats)

    # --- who takes part

    def _active(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.disabled is None]

    def _disable(self, seat: _Seat, what: str, error: BookKeeperError) -> None:
        seat.disabled = error
        log.error(
            "{what} failed for journal {journal}, which is not used until the next segment starts: {error}",
            what=what,
            journal=seat.journal.description,
            error=str(error),
        )
        if self._on_disabled is not None:
            self._on_disabled(seat.journal, error)

    def _too_few(self, optional_count: int, needed: int | None = None) -> bool:
        """Whether so many healthy optional members are not enough."""
        if all(seat.required for seat in self._seats):
            return False
        return optional_count < (self._minimum if needed is None else needed)

    async def _each(
        self, what: str, seats: Iterable[_Seat], do: Callable[[_Seat], Awaitable[T]], *, needed: int | None = None
    ) -> list[tuple[_Seat, T]]:
        """Do it for one after the other; gives up optional members that fail.

        Raises what is FATAL, and as the first required member does.

        Where all fail for the same reason that is raised, and none is given up.
        """
        results: list[tuple[_Seat, T]] = []
        failed: list[tuple[_Seat, BookKeeperError]] = []
        for seat in seats:
            try:
                results.append((seat, await do(seat)))
            except BookKeeperError as error:
                if seat.required or isinstance(error, FATAL):
                    log.error(
                        "{what} failed for good, because of journal {journal}: {error}",
                        what=what,
                        journal=seat.journal.description,
                        error=str(error),
                    )
                    raise
                failed.append((seat, error))
        if not results and len({type(error) for _, error in failed}) == 1:
            raise failed[0][1]  # it is what was asked that cannot be done, and nobody is at fault
        for seat, reason in failed:
            self._disable(seat, what, reason)
        if self._too_few(sum(not seat.required for seat, _ in results), needed):
            raise self._too_many(what, [reason for _, reason in failed])
        return results

    def _too_many(self, what: str, errors: Sequence[BookKeeperError]) -> JournalUnavailable:
        error = JournalUnavailable(
            f"{what} failed for too many journals of {self.description}; {self._minimum} of those that are not "
            "required must work" + (f": {'; '.join(map(str, errors))}" if errors else "")
        )
        if errors:
            error.__cause__ = errors[0]
        return error

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed(f"{self.description} were closed")

    # --- format

    def has_data(self) -> Deferred[bool]:
        """See JournalManager: whether any of them has."""
        return Deferred.fromCoroutine(self._has_data())

    async def _has_data(self) -> bool:
        self._check_open()
        for seat in self._seats:
            if await seat.journal.has_data():
                return True
        return False

    def format(self, namespace: NamespaceInfo, *, force: bool = False) -> Deferred[None]:
        """See JournalManager: all of them, or (HasData) none. Fails as the first of them does."""
        return Deferred.fromCoroutine(self._format(namespace, force))

    async def _format(self, namespace: NamespaceInfo, force: bool) -> None:
        self._check_open()
        if not force:
            for seat in self._seats:
                if await seat.journal.has_data():
                    raise HasData(f"{seat.journal.description} holds data; format destroys that: confirm it")
        for seat in self._seats:
            await seat.journal.format(namespace, force=force)
        self._recovered_txid = TxId(0)

    def namespace(self) -> Deferred[NamespaceInfo]:
        """See JournalManager. Fails with NamespaceMismatch where they differ; one that cannot say is passed over."""
        return Deferred.fromCoroutine(self._namespace())

    async def _namespace(self) -> NamespaceInfo:
        found = await self._ask("read the namespace", lambda seat: seat.journal.namespace())
        first_seat, first = found[0]
        for seat, other in found:
            if not first.is_same(other):
                raise NamespaceMismatch(
                    f"{first_seat.journal.description} belongs to {first}, and {seat.journal.description} to {other}"
                )
        return first

    # --- writing

    def recover_unfinalized(self) -> Deferred[list[Segment]]:
        """See JournalManager. Optional members that fail are given up; see the module for how many must not."""
        return self._change.run(lambda: Deferred.fromCoroutine(self._recover()))

    async def _recover(self) -> list[Segment]:
        self._check_open()
        if self._writer is not None:
            await self._writer.abort()
        for seat in self._seats:
            seat.disabled = None
        needed = self._minimum
        if not any(seat.required for seat in self._seats):
            needed = max(needed, len(self._seats) - self._minimum + 1)

        async def recover(seat: _Seat) -> tuple[list[Segment], list[Segment]]:
            return await seat.journal.recover_unfinalized(), await seat.journal.segments()

        found = await self._each("recovery", self._seats, recover, needed=needed)
        self._writer = None
        held = MergedLog([Copy(seat.journal, segment) for seat, (_, all_) in found for segment in all_]).segments()
        self._recovered_txid = TxId(max((segment.last_txid or 0 for segment in held), default=0))
        return MergedLog([Copy(seat.journal, segment) for seat, (done, _) in found for segment in done]).segments()

    def start_segment(self, first_txid: TxId, layout_version: int) -> Deferred[SegmentWriter]:
        """See JournalManager. Members that were given up get another chance."""
        return self._change.run(lambda: Deferred.fromCoroutine(self._start(first_txid, layout_version)))

    async def _start(self, first_txid: TxId, layout_version: int) -> SegmentWriter:
        self._check_open()
        if self._writer is not None and not self._writer.finished:
            raise SegmentExists(f"{self.description}: segment {self._writer.first_txid} is being written")
        if first_txid <= self._recovered_txid:
            # Whoever asks has not read that far: perhaps the one member that has it could not be read since.
            raise TxIdSeen(
                f"{self.description}: a segment cannot begin at txid {first_txid}: recovery found up to "
                f"{self._recovered_txid}; read that first"
            )
        streams: list[_Stream] = []

        async def start(seat: _Seat) -> None:
            if seat.disabled is not None:
                await seat.journal.recover_unfinalized()  # it still has the segment in which it failed
            writer = await seat.journal.start_segment(first_txid, layout_version)
            seat.disabled = None
            streams.append(_Stream(seat, writer))

        try:
            await self._each(f"starting segment {first_txid}", self._seats, start)
        except BaseException:
            for stream in streams:
                await _abort(stream)
            raise
        self._writer = SetWriter(self, first_txid, streams)
        return self._writer

    def finalize_segment(self, first_txid: TxId, last_txid: TxId) -> Deferred[Segment]:
        """See JournalManager."""
        return self._change.run(lambda: Deferred.fromCoroutine(self._finalise(first_txid, last_txid)))

    async def _finalise(self, first_txid: TxId, last_txid: TxId) -> Segment:
        self._check_open()
        if self._writer is not None and self._writer.first_txid == first_txid:
            await self._writer.close()
        done = await self._each(
            f"finalising segment {first_txid}..{last_txid}",
            self._active(),
            lambda seat: seat.journal.finalize_segment(first_txid, last_txid),
        )
        return done[0][1]

    # --- reading

    async def _ask(self, what: str, ask: Callable[[_Seat], Awaitable[T]]) -> list[tuple[_Seat, T]]:
        """Ask all; those that cannot answer are passed over, unless all are."""
        self._check_open()
        found: list[tuple[_Seat, T]] = []
        errors: list[BookKeeperError] = []
        for seat in self._seats:
            try:
                found.append((seat, await ask(seat)))
            except BookKeeperError as error:
                errors.append(error)
                log.warn(
                    "cannot {what} of journal {journal}, which is passed over: {error}",
                    what=what,
                    journal=seat.journal.description,
                    error=str(error),
                )
        if not found:
            raise errors[0]
        return found

    async def _copies(self) -> list[Copy]:
        """What a member has in progress that was given up counts no more: the log has ended elsewhere, or goes on."""
        found = await self._ask("list the segments", lambda seat: seat.journal.segments())
        return [
            Copy(seat.journal, segment)
            for seat, segments in found
            for segment in segments
            if seat.disabled is None or not segment.in_progress
        ]

    def segments(self) -> Deferred[list[Segment]]:
        """See JournalManager: as they are read, from the best copy of each."""
        return Deferred.fromCoroutine(self._segments())

    async def _segments(self) -> list[Segment]:
        return MergedLog(await self._copies()).segments()

    def last_txid_seen(self) -> Deferred[TxId]:
        """See JournalManager: the greatest that one of them has seen."""
        return Deferred.fromCoroutine(self._last_txid_seen())

    async def _last_txid_seen(self) -> TxId:
        found = await self._ask("read the last txid", lambda seat: seat.journal.last_txid_seen())
        return max(txid for _, txid in found)

    def select_input_streams(self, from_txid: TxId, *, in_progress_ok: bool = False) -> Deferred[list[SegmentReader]]:
        """See JournalManager. A reader goes over to another member's copy where one fails."""
        return Deferred.fromCoroutine(self._select(from_txid, in_progress_ok))

    async def _select(self, from_txid: TxId, in_progress_ok: bool) -> list[SegmentReader]:
        return merged_readers(await self._copies(), from_txid, in_progress_ok=in_progress_ok)

    def tail(self, from_txid: TxId) -> EditsTail:
        """See JournalManager. Follows one member, the shared or required ones first, and goes over where it fails.

        Any but the first of those is left when it has nothing new for TAIL_PATIENCE_S: its writer may have given it up.
        Of a set without a required member it may show what is not durable on `minimum` of them yet.
        """
        return MergedTail(
            [seat.journal for seat in self._seats],
            from_txid,
            self.description,
            self._clock,
            leading=sum(seat.shared for seat in self._seats) or sum(seat.required for seat in self._seats),
            patience_s=TAIL_PATIENCE_S,
        )

    # --- trimming

    def purge_older_than(self, min_txid_to_keep: TxId) -> Deferred[list[Segment]]:
        """See JournalManager. Optional members that cannot are told in the log only."""
        return Deferred.fromCoroutine(
            self._trim("purge", lambda seat: seat.journal.purge_older_than(min_txid_to_keep), optional_may_fail=True)
        )

    def discard_from(self, first_txid: TxId) -> Deferred[list[Segment]]:
        """See JournalManager. All must do it, for what one keeps would be read again."""
        return Deferred.fromCoroutine(self._discard(first_txid))

    async def _discard(self, first_txid: TxId) -> list[Segment]:
        gone = await self._trim("discard", lambda seat: seat.journal.discard_from(first_txid), optional_may_fail=False)
        self._recovered_txid = min(self._recovered_txid, TxId(first_txid - 1))
        return gone

    async def _trim(
        self, what: str, trim: Callable[[_Seat], Awaitable[list[Segment]]], *, optional_may_fail: bool
    ) -> list[Segment]:
        self._check_open()
        gone: list[Copy] = []
        errors: list[BookKeeperError] = []
        fatal: BookKeeperError | None = None
        for seat in self._seats:
            try:
                gone += [Copy(seat.journal, segment) for segment in await trim(seat)]
            except BookKeeperError as error:
                log.warn(
                    "cannot {what} journal {journal}: {error}",
                    what=what,
                    journal=seat.journal.description,
                    error=str(error),
                )
                errors.append(error)
                if seat.required or not optional_may_fail:
                    fatal = fatal or error
        if fatal is not None or len(errors) == len(self._seats):
            raise fatal or errors[0]
        return MergedLog(gone).segments()

    def close(self) -> Deferred[None]:
        """See JournalManager. Closes all; fails as the first of them that fails."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            await self._writer.abort()
        fatal: BookKeeperError | None = None
        for seat in self._seats:
            try:
                await seat.journal.close()
            except BookKeeperError as error:
                fatal = fatal or error
        if fatal is not None:
            raise fatal

    # --- what its writer tells

    def member_failed(self, seat: _Seat, what: str, error: BookKeeperError, healthy: int) -> BookKeeperError | None:
        """A stream failed; the error that the set's writer fails with, if it does. healthy: optional streams left."""
        if seat.required or isinstance(error, FATAL):
            return error
        self._disable(seat, what, error)
        return self._too_many(what, [error]) if self._too_few(healthy) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Stream:
    seat: _Seat
    writer: SegmentWriter


class SetWriter:
    """See SegmentWriter. Shared members get the transactions at once, the others when those have them durably.

    Without a shared member the required ones are the first.
    """

    def __init__(self, owner: JournalSet, first_txid: TxId, streams: list[_Stream]) -> None:
        self.first_txid = first_txid
        self.last_txid = self.durable_txid = TxId(first_txid - 1)
        self.error: BookKeeperError | None = None
        self.finished = False
        self._owner = owner
        shared = [stream for stream in streams if stream.seat.shared]
        required = [stream for stream in streams if stream.seat.required]
        # Without a shared or required member all are in the first stage.
        self._first = shared or required or list(streams)
        self._second = [stream for stream in streams if stream not in self._first]
        self._waiting: list[bytes] = []  # for the second stage, not ready to flush
        self._ready: list[bytes] = []  # for the second stage
        self._ready_txid = self.last_txid
        self._turn = DeferredLock()

    @property
    def record_size_max(self) -> int:
        """See SegmentWriter: what all of them take."""
        return min((stream.writer.record_size_max for stream in (*self._first, *self._second)), default=0)

    def write(self, records: Sequence[bytes]) -> None:
        """See SegmentWriter."""
        self._check_open()
        if not records:
            return
        first, last = txid_of(records[0]), txid_of(records[-1])
        expected, end = self.last_txid + 1, TxId(self.last_txid + len(records))
        if first != expected or last != end:
            raise GapInTransactions(
                f"{self._owner.description}: {len(records)} records of txid {first} to {last}; next are {expected} to "
                f"{end}",
                expected=expected,
                found=first,
            )
        size, size_max = max(map(len, records)), self.record_size_max
        if size > size_max:
            raise TransactionTooLarge(
                f"a record of {size} bytes; the journals take at most {size_max}", source=self._owner.description
            )
        for stream in list(self._first):
            try:
                stream.writer.write(records)
            except BookKeeperError as error:
                self._lost(stream, "write", error)
        if self.error is not None:
            raise again(self.error)
        if self._second:
            self._waiting += records
        self.last_txid = end

    def set_ready_to_flush(self) -> None:
        """See SegmentWriter."""
        self._check_open()
        self._make_ready()

    def _make_ready(self) -> None:
        for stream in list(self._first):
            try:
                stream.writer.set_ready_to_flush()
            except BookKeeperError as error:
                self._lost(stream, "flush", error)
        self._ready += self._waiting
        self._waiting = []
        self._ready_txid = self.last_txid

    def flush(self) -> Deferred[TxId]:
        """See SegmentWriter."""
        if self.error is not None:
            return fail(again(self.error))
        return self._turn.run(lambda: Deferred.fromCoroutine(self._flush()))

    async def _flush(self) -> TxId:
        records, self._ready = self._ready, []
        txid = self._ready_txid
        await self._all("flush", self._first, lambda writer: writer.flush())

        def flush(writer: SegmentWriter) -> Deferred[TxId]:
            writer.write(records)
            writer.set_ready_to_flush()
            return writer.flush()

        if records:
            await self._all("flush", self._second, flush)
        self.durable_txid = max(self.durable_txid, txid)
        return txid

    async def _all(self, what: str, streams: list[_Stream], do: Callable[[SegmentWriter], Deferred[T]]) -> None:
        """Do it for all of a stage at once; raises when the set has failed then."""

        def of(stream: _Stream) -> Deferred[None]:
            try:
                doing = do(stream.writer)
            except BookKeeperError as error:
                doing = fail(error)
            return doing.addCallbacks(lambda _: None, self._stream_failed, errbackArgs=(stream, what))

        await gatherResults([of(stream) for stream in list(streams)], consumeErrors=True)
        if self.error is not None:
            raise again(self.error)

    def _stream_failed(self, failure: Failure, stream: _Stream, what: str) -> None:
        error = failure.value
        if isinstance(error, BookKeeperError):
            self._lost(stream, what, error)
        elif self.error is None:
            log.failure("{what} broke journal {journal}", failure, what=what, journal=stream.seat.journal.description)
            self._fail(StreamFailed(f"{self._owner.description}: {what}: {error!r}"))

    def _lost(self, stream: _Stream, what: str, error: BookKeeperError) -> None:
        """Go on without a stream, or fail."""
        for stage in (self._first, self._second):
            if stream in stage:
                stage.remove(stream)
        _abort(stream)
        if self.error is not None:
            return
        healthy = sum(not other.seat.required for other in (*self._first, *self._second))
        fatal = self._owner.member_failed(stream.seat, what, error, healthy)
        if fatal is not None:
            self._fail(fatal)

    def _fail(self, error: BookKeeperError) -> None:
        if isinstance(error, WriterReplaced | StreamFailed):
            self.error = error
        else:
            self.error = StreamFailed(f"{self._owner.description}: {error}")
            self.error.__cause__ = error
        self._waiting, self._ready = [], []
        for stream in (*self._first, *self._second):
            _abort(stream)
        self._first, self._second = [], []

    def close(self) -> Deferred[None]:
        """See SegmentWriter."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self.finished:
            return
        self.finished = True
        if self.error is None:
            self._make_ready()
        await self.flush()
        await self._all("close", self._first, lambda writer: writer.close())
        await self._all("close", self._second, lambda writer: writer.close())

    def abort(self) -> Deferred[None]:
        """See SegmentWriter."""
        if self.finished:
            return succeed(None)
        self.finished = True
        streams = [*self._first, *self._second]
        if self.error is None:
            self.error = JournalClosed(f"{self._owner.description}: the segment was given up by its writer")
        self._first, self._second, self._waiting, self._ready = [], [], [], []
        return gatherResults([_abort(stream) for stream in streams]).addCallback(lambda _: None)

    def _check_open(self) -> None:
        if self.error is not None:
            raise again(self.error)
        if self.finished:
            raise JournalClosed(f"{self._owner.description}: the segment was closed by its writer")


def _abort(stream: _Stream) -> Deferred[None]:
    return stream.writer.abort().addErrback(
        lambda failure: log.warn(
            "cannot abort the stream into {journal}: {error}",
            journal=stream.seat.journal.description,
            error=failure.getErrorMessage(),
        )
    )
