"""Forcing a ledger: everything acknowledged so far is on the disks of its bookies when the call returns.

    force() --> FORCE_LEDGER to all members of the last fragment --all OK, over the connections they acknowledged on-->
    durable: the LAC moves (deferred sync), the callers are told; those that came meanwhile start the next round

One round runs at a time, so any number of calls costs two rounds at most. Any member that refuses, does not answer in
time or has a new connection fails the round; with deferred sync that is the end of the handle.

On a ledger without deferred sync everything acknowledged is durable already, where bookies sync their journals; the
bookies are asked all the same, as Apache's client does. Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

from bookkeeper.errors import (
    AuthenticationRefused,
    BookKeeperError,
    NotDurable,
    RequestNotSent,
    TlsFailed,
    UnsupportedVersion,
    again,
)
from bookkeeper.model import BookieId, EntryId, LedgerId, Status
from bookkeeper.protocol.forces import ForceOutcome, Forces
from bookkeeper.wire.messages import ForceReply

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.client.write.pipeline import AddPipeline
    from bookkeeper.ports import Timer

NOT_SENT_PAUSE_S = 0.01
"""Before a force is offered again to a connection that has too many calls outstanding already."""


class _Round:
    """One force of all members. `over`: its answers count no more."""

    __slots__ = ("deadline", "over", "request")

    def __init__(self, request: tuple[int, bytes], deadline: float) -> None:
        self.request, self.deadline, self.over = request, deadline, False


class Forcing:
    """The forces of one write handle.

    on_durable: the durable end has moved. on_failed: a round has failed, before those who wait for it are told.
    """

    __slots__ = (
        "_context",
        "_ledger_id",
        "_on_durable",
        "_on_failed",
        "_pipeline",
        "_round",
        "_timers",
        "_waiting",
        "forces",
    )

    def __init__(
        self,
        context: ClientContext,
        ledger_id: LedgerId,
        pipeline: AddPipeline,
        forces: Forces,
        *,
        on_durable: Callable[[], None],
        on_failed: Callable[[NotDurable], None],
    ) -> None:
        self.forces = forces
        self._context, self._ledger_id, self._pipeline = context, ledger_id, pipeline
        self._on_durable, self._on_failed = on_durable, on_failed
        self._waiting: deque[tuple[EntryId, Deferred[EntryId]]] = deque()  # by what they wait for, ascending
        self._round: _Round | None = None
        self._timers: set[Timer] = set()

    def force(self) -> Deferred[EntryId]:
        """Fires with the LAC once everything acknowledged now is durable."""
        target = self._pipeline.window.last_acknowledged
        if target <= self.forces.durable:
            return succeed(self._pipeline.lac)
        forced: Deferred[EntryId] = Deferred()
        self._waiting.append((target, forced))
        self._go_on()
        return forced

    def fail(self, error: BookKeeperError) -> None:
        """The handle has ended: nothing is forced any more."""
        self._end_round()
        waiting, self._waiting = self._waiting, deque()
        for _, forced in waiting:
            forced.errback(again(error))

    # --- one round

    def _go_on(self) -> None:
        """Begin a round if somebody waits and none runs."""
        window, context = self._pipeline.window, self._context
        if not self._waiting or self._round is not None:
            return
        begun = self.forces.begin(window.last_acknowledged, window.acknowledged_length)
        assert begun, "somebody waits for what is durable already"
        request = context.v3_encoder.encode_force(self._ledger_id)
        this = self._round = _Round(request, context.clock.seconds() + context.settings.add_timeout_s)
        for index, bookie_id in enumerate(window.ensemble):
            self._ask(this, index, bookie_id)

    def _ask(self, this: _Round, index: int, bookie_id: BookieId) -> None:
        if this.over:
            return
        self._context.v3_channel(bookie_id).call(
            this.request,
            max(0.0, this.deadline - self._context.clock.seconds()),
            partial(self._on_reply, this, index, bookie_id),
            partial(self._on_unknown, this, index, bookie_id),
        )

    def _on_reply(self, this: _Round, index: int, bookie_id: BookieId, reply: object) -> None:
        if this.over:
            return
        # An OK to something else, or about another ledger, proves nothing.
        meant = isinstance(reply, ForceReply) and reply.ledger_id == self._ledger_id
        status = getattr(reply, "status", None)
        if not meant or status is not Status.OK:
            answer: object = status.value if isinstance(status, Status) and status is not Status.OK else reply
            if status is Status.UNAUTHORIZED:
                answer = self._context.unauthorized(bookie_id, self._ledger_id)
            self._fail_round(bookie_id, answer, f"bookie {bookie_id} refused to force")
            return
        # Calls end with their connection, so this answer came over the one on which it was asked: the present one.
        outcome = self.forces.on_forced(index, self._context.v3_channel(bookie_id).connect_count)
        if outcome is ForceOutcome.UNPROVED:
            why = f"the connection to bookie {bookie_id} is not the one on which it acknowledged them"
            self._fail_round(bookie_id, "forced, over a new connection", why)
        elif outcome is ForceOutcome.DURABLE:
            self._end_round()
            self._on_durable()
            durable: list[Deferred[EntryId]] = []
            while self._waiting and self._waiting[0][0] <= self.forces.durable:
                durable.append(self._waiting.popleft()[1])
            self._go_on()
            for forced in durable:
                forced.callback(self._pipeline.lac)

    def _on_unknown(self, this: _Round, index: int, bookie_id: BookieId, error: Exception) -> None:
        if this.over:
            return
        clock = self._context.clock
        if not isinstance(error, RequestNotSent) or clock.seconds() >= this.deadline:
            refused = isinstance(error, TlsFailed | AuthenticationRefused | UnsupportedVersion)
            self._fail_round(bookie_id, error, str(error) if refused else f"bookie {bookie_id} did not answer a force")
            return

        def ask_again() -> None:
            self._timers.discard(timer)
            self._ask(this, index, bookie_id)

        timer = clock.callLater(NOT_SENT_PAUSE_S, ask_again)
        self._timers.add(timer)

    def _end_round(self) -> None:
        if self._round is not None:
            self._round.over = True
            self._round = None
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _fail_round(self, bookie_id: BookieId, answer: object, why: str) -> None:
        self._end_round()
        self._pipeline.answers[bookie_id] = answer
        error = self._pipeline.not_durable(why)
        self._on_failed(error)
        self.fail(error)
