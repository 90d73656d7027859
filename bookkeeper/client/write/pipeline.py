"""Entries of one ledger on their way to the bookies: packaged, encoded and sent in batches, acknowledged as ranges.

Drives `protocol.adds.AddWindow`: turns its decisions into frames, timers and ensemble changes, and the bookies' answers
into its events. One encoded frame serves all replicas of an entry. Nothing is allocated per entry but its body and
frame.

Thread: reactor. Kept for a resend: the frames of entries of which a copy is owed, acknowledged or not, bounded by the
window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from bookkeeper.client.bookies.access_errors import Refusal, refusal_of
from bookkeeper.client.write.ensemble_change import commit_new_ensemble
from bookkeeper.client.write.overload_retry import RefusedAdds
from bookkeeper.errors import (
    AddFailed,
    AddQuorumTimedOut,
    BookieUnavailable,
    BookKeeperError,
    LedgerIdOccupied,
    NotDurable,
)
from bookkeeper.model import BookieId, EntryId, LedgerId, LedgerMetadata, Status, Versioned
from bookkeeper.protocol.add_decisions import Decision
from bookkeeper.protocol.adds import AddWindow

if TYPE_CHECKING:
    from bookkeeper.client.bookies.connection import BookieChannel
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest


class AddPipeline:
    """The unacknowledged adds of one write handle.

    on_acknowledged: entry ids, ascending, once each (I-06). on_failed: the end; nothing is acknowledged after it
    (I-08).
    on_room: something was answered while `room_wanted`, which the owner sets: there may be room again.
    frozen_lac: of the window. replaces: a bookie that fails is replaced; if not, it ends the handle.
    """

    __slots__ = (
        "_context",
        "_deadlines",
        "_digest",
        "_encoder",
        "_failed",
        "_former",
        "_frames",
        "_frames_from",
        "_full_channels",
        "_ledger_id",
        "_master_key",
        "_on_acknowledged",
        "_on_failed",
        "_on_room",
        "_refused",
        "_routes",
        "_seconds",
        "_shunned",
        "_watched",
        "_write_quorum",
        "answers",
        "metadata",
        "room_wanted",
        "stamped_lac",
        "stamped_s",
        "window",
    )

    def __init__(
        self,
        context: ClientContext,
        ledger_id: LedgerId,
        metadata: Versioned[LedgerMetadata],
        digest: Digest,
        master_key: bytes,
        *,
        on_acknowledged: Callable[[range], None],
        on_failed: Callable[[BookKeeperError], None],
        on_room: Callable[[], None],
        frozen_lac: int | None = None,
        replaces: bool = True,
    ) -> None:
        settings = context.settings
        self.metadata = metadata
        self.answers: dict[str, object] = {}  # the last bad answer of each bookie, for messages
        self.stamped_lac = -1  # the LAC in the last entries sent
        self.stamped_s = 0.0  # when they were sent
        self._context, self._ledger_id, self._digest, self._master_key = context, ledger_id, digest, master_key
        self._on_acknowledged, self._on_failed, self._on_room = on_acknowledged, on_failed, on_room
        self._seconds, self._encoder, self._deadlines = context.clock.seconds, context.encoder, context.deadlines
        self._full_channels = context.channels.full
        self.room_wanted = False
        self.window = AddWindow(
            ledger_id=ledger_id,
            ensemble=metadata.value.last_fragment.ensemble,
            write_quorum=metadata.value.write_quorum,
            ack_quorum=metadata.value.ack_quorum,
            entries_max=settings.window_entries_max,
            bytes_max=settings.window_bytes_max,
            delay_ensemble_change=settings.delay_ensemble_change and replaces,
            response_timeout_s=settings.add_timeout_s if settings.add_timeout_s > 0 else None,
            quorum_timeout_s=settings.add_quorum_timeout_s if settings.add_quorum_timeout_s > 0 else None,
            frozen_lac=frozen_lac,
            changes_max=settings.ensemble_changes_max if replaces else 0,
        )
        self._write_quorum = metadata.value.write_quorum
        self._frames: list[tuple[int, Sequence[int], Sequence[bytes]] | tuple[int, bytes]] = []  # kept; oldest first
        # Failed, and until when they are not taken back; with their registration and our LAC at that moment.
        self._shunned: dict[BookieId, tuple[float, int | None, int]] = {}
        self._former: frozenset[BookieId] = frozenset()  # members of this writer's earlier ensembles
        self._frames_from = 0  # the frames of entries below this are gone
        self._refused: RefusedAdds | None = None  # made when it is needed: there may be very many handles
        self._watched = False  # by the client's DeadlineWatch
        self._failed = False
        self._routes = context.routes.to(self.window.ensemble, self._write_quorum)

    @property
    def full_channel(self) -> BookieChannel | None:
        """A member's connection that takes nothing new for now."""
        if self._full_channels:
            for channel in self._routes.channels:
                if channel.full:
                    return channel
        return None

    # --- what is confirmed

    @property
    def lac(self) -> EntryId:
        """The last add confirmed: what readers may see, and where the ledger would be closed now."""
        return self.window.last_acknowledged

    @property
    def confirmed_length(self) -> int:
        """Payload bytes up to the LAC."""
        return self.window.acknowledged_length

    @property
    def unforced(self) -> range:
        """Entries acknowledged and not confirmed: none without deferred sync."""
        return range(0)

    def not_durable(self, why: str) -> NotDurable:
        """The error for a force that failed."""
        return NotDurable(
            f"ledger {self._ledger_id}: {why}; what was acknowledged stays in the ledger, force again",
            ledger_id=self._ledger_id,
            entry_ids=self.unforced,
            answers=self.answers,
        )

    # --- out

    def send(self, payloads: Sequence[bytes]) -> None:
        """Give the next entry ids to these payloads, as many as the window accepts, and send them."""
        window = self.window
        length_before, lac = window.pushed_length, window.lac
        self.stamped_s = now = self._seconds()
        first = window.push(list(map(len, payloads)), now)
        bodies, _ = self._digest.package(self._ledger_id, first, lac, length_before, payloads)
        self._send_bodies(range(first, first + len(bodies)), bodies, lac)

    def send_one(self, payload: bytes) -> None:
        """The same for one small payload: most of what is sent when very many ledgers are written a little each."""
        window, ledger_id = self.window, self._ledger_id
        self.stamped_s = now = self._seconds()
        entry_id, lac, length = window.push_one(len(payload), now)
        body = self._digest.package_entry(ledger_id, entry_id, lac, length, payload)
        frame = self._encoder.encode_add(ledger_id, self._master_key, entry_id, body)
        self.stamped_lac = lac
        self._frames.append((entry_id, frame))
        write_sets = self._routes.write_sets
        all_work = not window.has_failed_member
        for index, channel in write_sets[entry_id % len(write_sets)]:
            if all_work or index not in window.failed:
                channel.send_add(self, ledger_id, frame)
        if not self._watched:
            self._watch_deadlines()

    def send_ids(self, entry_ids: Sequence[int], payloads: Sequence[bytes]) -> None:
        """The same with ids the caller chose. Raises DuplicateEntry; nothing was taken then."""
        window = self.window
        length, lac = window.pushed_length, window.lac
        self.stamped_s = now = self._seconds()
        window.push_ids(entry_ids, list(map(len, payloads)), now)
        lengths = []
        for payload in payloads:
            length += len(payload)
            lengths.append(length)
        bodies = self._digest.package_entries(self._ledger_id, entry_ids, lac, lengths, payloads)
        self._send_bodies(entry_ids, bodies, lac)

    def _send_bodies(self, entry_ids: Sequence[int], bodies: list[bytes], lac: int) -> None:
        frames = self._encode(entry_ids, bodies)
        self.stamped_lac = lac
        self._frames.append((entry_ids[-1] if isinstance(entry_ids, range) else max(entry_ids), entry_ids, frames))
        failed, routes = self.window.failed, self._routes
        size = sum(map(len, frames))
        for index, channel in enumerate(routes.channels):
            if index in failed:
                continue  # its replacement gets them when the ensemble change ends
            if routes.striped:
                mine = routes.frames_of(index, entry_ids, frames)
                if mine:
                    channel.send_adds(self, self._ledger_id, mine, sum(map(len, mine)))
            else:
                channel.send_adds(self, self._ledger_id, frames, size)
        if not self._watched:
            self._watch_deadlines()

    def _encode(self, entry_ids: Sequence[int], bodies: list[bytes]) -> list[bytes]:
        return self._encoder.encode_adds(self._ledger_id, self._master_key, entry_ids, bodies)[1]

    # --- answers

    def on_add_ack(self, bookie_id: BookieId, entry_id: int) -> None:
        """The bookie stored this entry."""
        acknowledged = self.window.on_response(bookie_id, entry_id)
        if acknowledged is not None:
            self._complete(acknowledged)
        if self.room_wanted:
            self._on_room()

    def on_add_acks(self, bookie_id: BookieId, entry_ids: list[int]) -> None:
        """The bookie stored these entries."""
        index = self._routes.index_of.get(bookie_id)
        if index is None:
            return
        acknowledged = self.window.on_responses(index, bookie_id, entry_ids)
        if acknowledged:
            self._complete(acknowledged)
        if self.room_wanted:
            self._on_room()

    def on_add_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """The bookie refused an entry."""
        self.answers[bookie_id] = status.value
        if status is Status.TOO_MANY_REQUESTS and self._offers_again(bookie_id, entry_id):
            return
        if status not in (Status.FENCED, Status.UNAUTHORIZED):
            self._context.directory.quarantine(bookie_id)
        self._on_failure(bookie_id, status, [entry_id])

    def _offers_again(self, bookie_id: BookieId, entry_id: int) -> bool:
        """Put a refused entry off; False where its frame is gone, though nothing should be owed of it."""
        index = self._routes.index_of.get(bookie_id)
        if self._failed or index is None or index in self.window.failed:
            return True  # whoever replaces the bookie gets the entry
        if entry_id < self._frames_from:
            return False
        if self._refused is None:
            self._refused = RefusedAdds(self._context.clock, self._offer_again)
        self._refused.add(bookie_id, entry_id)
        return True

    def _offer_again(self, bookie_id: BookieId, entry_ids: list[int]) -> None:
        index = self._routes.index_of.get(bookie_id)
        if not self._failed and index is not None and index not in self.window.failed:
            self._resend(index, entry_ids)

    def on_bookie_lost(self, bookie_id: BookieId, error: BookieUnavailable) -> None:
        """Nothing is known of the adds the bookie has not answered."""
        index = self._routes.index_of.get(bookie_id)
        if index is not None and self.window.expects(index):
            self.answers[bookie_id] = error
            self._on_failure(bookie_id, None, None)

    def _on_failure(self, bookie_id: BookieId, status: Status | None, entry_ids: Sequence[int] | None) -> None:
        index = self._routes.index_of.get(bookie_id)
        if index is None or self._failed:
            return
        until = self._seconds() + self._context.settings.quarantine_s
        epoch = self._context.directory.epoch(bookie_id)
        self._shunned[bookie_id] = (until, epoch, self.window.last_acknowledged)
        decision = self.window.on_failure(index, bookie_id, status, entry_ids)
        if decision is Decision.CHANGE:
            self._context.spawn(self._change_or_fail(), f"ensemble change of ledger {self._ledger_id}")
        elif decision is Decision.FATAL and self.window.error is not None:
            self._give_up(bookie_id, self._claimed(bookie_id) if self._is_claimed(status) else self._fatal())
        self._on_room()

    def _fatal(self) -> BookKeeperError:
        assert self.window.error is not None
        return self._context.with_hint(self.window.error)

    def _is_claimed(self, status: Status | None) -> bool:
        """Return whether another key claimed the id at a bookie after the create and before the first entry."""
        return status is Status.UNAUTHORIZED and self.window.last_acknowledged < 0

    def _claimed(self, bookie_id: BookieId) -> LedgerIdOccupied:
        hint = self._context.security_hint
        return LedgerIdOccupied(
            f"ledger {self._ledger_id}: bookie {bookie_id} refuses the first add: another key claimed this id there "
            "after the ledger was created; write to a new ledger"
            + (f" (or the bookie was restarted with other settings since: {hint})" if hint else ""),
            ledger_id=self._ledger_id,
            answers=self.answers,
        )

    def _give_up(self, bookie_id: BookieId, error: BookKeeperError) -> None:
        self.fail(error)

    def _failed_lately(self) -> frozenset[BookieId]:
        """Bookies that failed this ledger: taking them back at once would go in circles (L-9).

        One may come back after a quarantine, but not before something was acknowledged since it failed: so the changes
        without any progress are bounded by the number of bookies. One that registered anew since then has been
        restarted, and may come back at once.
        """
        now, epoch_of = self._seconds(), self._context.directory.epoch
        acknowledged = self.window.last_acknowledged
        self._shunned = {
            bookie_id: (until, epoch, lac)
            for bookie_id, (until, epoch, lac) in self._shunned.items()
            if (until > now or lac == acknowledged) and epoch_of(bookie_id) in (epoch, None)
        }
        return frozenset(self._shunned)

    def _complete(self, acknowledged: range) -> None:
        frames, stop = self._frames, min(acknowledged.stop, self.window.oldest_owed)
        done = 0
        for batch in frames:
            if batch[0] >= stop:
                break
            done += 1
        if done:
            self._frames_from = frames[done - 1][0] + 1
            del frames[:done]
        self._on_acknowledged(acknowledged)

    # --- ensemble change

    async def _change_or_fail(self) -> None:
        try:
            await self._change_ensemble()
        except BookKeeperError as error:
            self.fail(error)
        except Exception as error:  # a mistake of ours must not leave the pending adds waiting for ever
            self.fail(AddFailed(f"ledger {self._ledger_id}: {error!r}", ledger_id=self._ledger_id))
            raise

    async def _change_ensemble(self) -> None:
        """Replace failed members until none is left; acknowledgements are held meanwhile (I-09)."""
        request = self.window.begin_change()
        while True:
            self._former |= frozenset(self.window.ensemble)
            await self._context.directory.ready()
            committed = await commit_new_ensemble(
                self._context,
                self._ledger_id,
                self.metadata,
                first_entry_id=request.first_entry_id,
                failed=lambda: self.window.failed,
                avoid=self._failed_lately,
                own=self._former,
                digest=self._digest,
                answers=self.answers,
            )
            if self._failed:
                return
            self.metadata = committed
            result = self.window.end_change(committed.value.last_fragment.ensemble, self._seconds())
            self._routes = self._context.routes.to(self.window.ensemble, self._write_quorum)
            for index, entry_ids in result.resend.items():
                self._resend(index, entry_ids)
            self._watch_anew()
            if result.acknowledged:
                self._complete(result.acknowledged)
            self._on_room()
            if self.window.error is not None:
                self.fail(self.window.error)
            # The callbacks above, or a refusal on the way out, may have ended the window or begun the next change.
            if self.failed or self.window.changing or not self.window.failed:
                return
            request = self.window.begin_change()

    def _resend(self, index: int, entry_ids: list[int]) -> None:
        wanted = set(entry_ids)
        frames = []
        for batch in self._frames:
            if len(batch) == 2:
                pairs: Iterable[tuple[int, bytes]] = [batch]
            else:
                pairs = zip(batch[1], batch[2], strict=True)
            frames += [frame for entry_id, frame in pairs if entry_id in wanted]
        if frames:
            self._routes.channels[index].send_adds(self, self._ledger_id, frames, sum(map(len, frames)))

    # --- time

    def _watch_deadlines(self) -> None:
        deadline = self.next_deadline()
        if deadline is not None:
            self._watched = True
            self._deadlines.watch(self, deadline)

    def _watch_anew(self) -> None:
        """What was sent again has deadlines that may come before the one this handle was noted under, if any (L-2)."""
        self._deadlines.drop(self)
        self._watched = False
        self._watch_deadlines()

    def next_deadline(self) -> float | None:
        """When something may be overdue; asked by the client's DeadlineWatch, which lets go when there is nothing."""
        deadline = None if self._failed else self.window.next_deadline()
        self._watched = self._watched and deadline is not None
        return deadline

    def on_deadline(self) -> None:
        """Something is overdue."""
        self._watched = False
        now, add_timeout_s = self._seconds(), self._context.settings.add_timeout_s
        for late in self.window.overdue(now):
            refused = self._refused is not None and self._refused.holds(late.bookie_id)
            self.answers[late.bookie_id] = (
                f"too many requests, for {add_timeout_s:g} s" if refused else f"no answer within {add_timeout_s:g} s"
            )
            self._context.directory.quarantine(late.bookie_id)
            self._on_failure(late.bookie_id, None, late.entry_ids)
            self._context.channel(late.bookie_id).check_silence(add_timeout_s)
        entry_id = self.window.quorum_overdue(now)
        if entry_id is not None and not self._failed:
            self.fail(
                AddQuorumTimedOut(
                    f"ledger {self._ledger_id} entry {entry_id}: fewer than {self.metadata.value.ack_quorum} bookies "
                    f"stored it within {self._context.settings.add_quorum_timeout_s:g} s; whether it is in the ledger "
                    "is decided when the ledger is recovered",
                    ledger_id=self._ledger_id,
                    entry_id=entry_id,
                    answers=self.answers,
                )
            )
        if not self._watched:
            self._watch_deadlines()

    def _refusal(self) -> BookKeeperError | None:
        """What ended the handle when nothing but TLS or credentials ever kept a bookie from storing its entries."""
        refusals = {bookie_id: why for bookie_id, why in self.answers.items() if isinstance(why, Refusal)}
        if not refusals or len(refusals) < len(self.answers):
            return None
        return refusal_of(f"ledger {self._ledger_id} cannot be written", refusals, self.answers)

    # --- the end

    @property
    def failed(self) -> bool:
        """Nothing is sent or acknowledged any more."""
        return self._failed

    def fail(self, error: BookKeeperError) -> None:
        """End for good: pending adds fail with `error`, their outcome is open (I-08, I-41). Later calls do nothing."""
        if self._failed:
            return
        self._failed = True
        if isinstance(error, AddFailed):
            error = self._refusal() or error
        self.window.fail(error)
        self._frames.clear()
        if self._refused is not None:
            self._refused.clear()
        self._deadlines.drop(self)
        self._context.channels.forget_writer(self._ledger_id, self)
        self._on_failed(error)
