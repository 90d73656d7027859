"""A session with the simulated ZooKeeper: delays, faults, expiry.

With faults: a call travels to the server (a random delay), takes effect, and its answer travels back (another one);
calls keep their order, and so do answers and watch events. A fault is a cut connection, as it is in life: the calls
under way fail together, some of the changes among them having happened, the watches are lost, the session is suspended
until it connects again or the server gives up on it. Reads come from a follower of the session's own, which lags.

Without faults: every call takes effect and is answered at once, and watches fire inside the call that makes the change.

Thread: the simulation's only one.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataError, MetadataUnavailable
from bookkeeper.metadata.memory.tree import TreeCopy, Znodes
from bookkeeper.metadata.store import MetadataSettings, StoreState, Watch
from bookkeeper.metadata.tree import (
    Access,
    NodeKind,
    NotAttempted,
    OutcomeOpen,
    Stat,
    Step,
    WatchListener,
    largest_path,
    operation_size,
    too_large,
    transaction_size,
)
from bookkeeper.metadata.watches import Listeners, WatchBook, WatchKind

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.ports import Clock, Timer

T = TypeVar("T")


ORDER_S = 1e-6
"""Between two things that keep their order, so that no clock can swap them."""


class Fault(enum.Enum):
    """What can happen to a call."""

    FAILED_BEFORE = "failed before"  # the connection went before the call took effect
    REPLY_LOST = "reply lost"  # the connection went after it took effect
    SESSION_LOST = "session lost"  # the server ended the session before the call took effect


@dataclass(slots=True, kw_only=True)
class MemoryFaults:
    """How badly the simulated store behaves; may be changed at any time, and set to 0 to let the faults stop.

    *_probability: per call. delay_max_s: of each direction. lag_max_s: how long a change takes to reach a session's
    server; 0 reads from the leader (only the value at the session's start decides that). reconnect_max_s: how long a
    cut connection stays cut. counts: what happened so far; "stale read" counts reads served by a lagging server.
    """

    delay_max_s: float = 0.01
    lag_max_s: float = 0.0
    reconnect_max_s: float = 0.5
    failed_before_probability: float = 0.0
    reply_lost_probability: float = 0.0
    session_lost_probability: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    _forced: list[tuple[str, str, Fault]] = field(default_factory=list)

    def force(self, fault: Fault, operation: str, path_part: str = "") -> None:
        """Let `fault` befall the next call of `operation` (create, read, write ...) on a path with `path_part`."""
        self._forced.append((operation, path_part, fault))

    def decide(self, random: Random, operation: str, path: str) -> Fault | None:
        """What befalls this call."""
        for index, (forced_operation, path_part, fault) in enumerate(self._forced):
            if operation == forced_operation and path_part in path:
                del self._forced[index]
                return fault
        chances = self.failed_before_probability + self.reply_lost_probability + self.session_lost_probability
        if not chances:
            return None
        drawn = random.random()
        if drawn < self.failed_before_probability:
            return Fault.FAILED_BEFORE
        if drawn < self.failed_before_probability + self.reply_lost_probability:
            return Fault.REPLY_LOST
        return Fault.SESSION_LOST if drawn < chances else None


class SharedZnodes(Znodes):
    """The simulated ZooKeeper that all sessions talk to.

    clock: the servers' own, which goes on when a process dies; None uses the clock of each session's process.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self.clock = clock
        self.now_ms = lambda: 0 if self.clock is None else int(self.clock.seconds() * 1000)
        self.last_session_id = 0

    def new_session_id(self) -> int:
        """A session id that was never used."""
        self.last_session_id += 1
        return self.last_session_id


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    operation: str
    path: str
    is_change: bool
    run: Callable[[], T]
    done: Deferred[T]
    fault: Fault | None
    generation: int
    ran: bool = False


@dataclass(frozen=True, slots=True)
class _SetWatch:
    """A watch on a server; equal ones are one."""

    session: MemorySession
    generation: int
    kind: WatchKind
    path: str

    def __call__(self) -> None:
        self.session.on_watch_fired(self)


class MemorySession:
    """A Tree. See the module."""

    def __init__(
        self,
        shared: SharedZnodes,
        clock: Clock,
        random: Random,
        faults: MemoryFaults | None,
        settings: MetadataSettings,
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._server_clock = shared.clock or clock
        self._random = random
        self._faults = faults
        self._settings = settings
        self._states: Listeners[[StoreState]] = Listeners()
        self._book = WatchBook()
        self._calls: deque[_Call[object]] = deque()
        self._generation = 0  # of the connection
        self._arrival_s = 0.0  # no call arrives before this: calls keep their order
        self._answer_s = 0.0  # nor does an answer or an event
        self._expiry: Timer | None = None
        self._reconnection: Timer | None = None
        self._crashed = False
        self._expired = False
        self.state = StoreState.CONNECTED
        self.sessions_refused = 0
        self.session_id = shared.new_session_id()
        self._server = shared.leader
        if faults is not None and faults.lag_max_s > 0:
            self._server = shared.add_follower()
            shared.on_change.append(self._on_leader_change)

    @property
    def description(self) -> str:
        """The servers, for messages."""
        return "the simulated ZooKeeper"

    def watch_state(self, on_change: Callable[[StoreState], object]) -> Watch:
        """Hear of every change of `state`."""
        return self._states.add(on_change)

    # --- operations ------------------------------------------------------------------------------------------------

    def create(
        self, path: str, data: bytes | None, kind: NodeKind = NodeKind.PERSISTENT, access: Access = Access.DEFAULT
    ) -> Deferred[str]:
        """Make a node; its path."""
        return self._change(
            "create",
            path,
            lambda: self._shared.create(path, data, kind, self.session_id),
            size=operation_size(path, data),
        )

    def read(self, path: str, watch: WatchListener | None = None) -> Deferred[tuple[bytes, Stat]]:
        """Data and stat."""
        return self._watched("read", path, WatchKind.NODE, watch, lambda server, fired: server.read(path, fired))

    def stat(self, path: str, watch: WatchListener | None = None) -> Deferred[Stat | None]:
        """Stat, or None."""
        return self._watched("stat", path, WatchKind.NODE, watch, lambda server, fired: server.stat(path, fired))

    def children(self, path: str, watch: WatchListener | None = None) -> Deferred[list[str]]:
        """Names of the children."""
        return self._watched(
            "children", path, WatchKind.CHILDREN, watch, lambda server, fired: server.children(path, fired)
        )

    def write(self, path: str, data: bytes | None, version: int) -> Deferred[Stat]:
        """Replace the data that has `version`."""
        return self._change(
            "write", path, lambda: self._shared.write(path, data, version), size=operation_size(path, data)
        )

    def delete(self, path: str, version: int) -> Deferred[None]:
        """Remove the node that has `version`."""
        return self._change("delete", path, lambda: self._shared.delete(path, version))

    def transact(self, steps: Sequence[Step]) -> Deferred[None]:
        """All steps or none."""
        size = transaction_size(steps)
        if size > self._settings.request_size_max:
            return defer.fail(too_large("transaction on", largest_path(steps), size, self._settings.request_size_max))
        paths = " ".join(step.path for step in steps)  # a fault may be asked for at any of them
        return self._change("transact", paths, lambda: self._shared.transact(steps, self.session_id))

    def sync(self) -> Deferred[None]:
        """Later reads see everything written before."""
        return self._submit("sync", "/", self._catch_up, is_change=False)

    def forget(self, path: str, watch: WatchListener) -> None:
        """Do not fire this watch."""
        self._book.forget(path, watch)

    def close(self) -> Deferred[None]:
        """End the session."""
        if self.state is not StoreState.CLOSED:
            self._leave()
            self._fail_calls()
            self._shared.end_session(self.session_id)
            self._states.tell(StoreState.CLOSED)
        return defer.succeed(None)

    # --- faults ----------------------------------------------------------------------------------------------------

    def cut_connection(self, for_s: float) -> None:
        """The connection goes now and comes back after `for_s` seconds, which the session may not outlive."""
        if self.state is StoreState.CLOSED:
            return
        if self.state is StoreState.CONNECTED:
            self._disconnect(StoreState.SUSPENDED)
            self._expiry = self._server_clock.callLater(self._settings.session_timeout_s, self._server_gives_up)
        self._reconnect_in(for_s)

    def expire_session(self, reconnect_s: float = 0.0) -> None:
        """The server ends the session now; a new one begins after `reconnect_s` seconds."""
        if self.state is StoreState.CLOSED:
            return
        self._server_gives_up()
        self._reconnect_in(reconnect_s)

    def crash(self) -> None:
        """The process is gone: nothing is answered any more; the server notices after the session timeout."""
        if self.state is not StoreState.CLOSED:
            self._leave()
            self._crashed = True
            self._run_what_arrived(list(self._calls))
            self._calls.clear()
            if not self._expired:
                session_id = self.session_id
                self._server_clock.callLater(
                    self._settings.session_timeout_s, lambda: self._shared.end_session(session_id)
                )

    def _disconnect(self, state: StoreState) -> None:
        self._generation += 1
        self.state = state
        self._fail_calls()
        self._states.tell(state)
        self._book.lose_all()

    def _run_what_arrived(self, calls: list[_Call[object]]) -> None:
        """The connection goes: what had left may have reached the server in part, in order."""
        waiting = [call for call in calls if not call.ran]
        if self._faults is None or self._expired:
            return
        for call in waiting[: self._random.randint(0, len(waiting))]:
            if call.fault is not None:
                break
            try:
                call.run()
            except MetadataError:
                continue  # its answer is lost like any other

    def _fail_calls(self) -> None:
        calls = list(self._calls)
        self._calls.clear()
        self._run_what_arrived(calls)
        for call in calls:
            if not call.done.called:
                self._count("outcome open" if call.is_change else "read cut")
                call.done.errback(
                    OutcomeOpen(f"{call.operation} {call.path}: connection lost")
                    if call.is_change
                    else NotAttempted(f"{call.operation} {call.path}: connection lost")
                )

    def _server_gives_up(self) -> None:
        self._stop_timer("_expiry")
        ended = not self._expired
        self._expired = True
        # The connection goes first: a session that is over hears of nothing, not even of its own nodes' end.
        if self.state is StoreState.CONNECTED:
            self._disconnect(StoreState.LOST)
        if ended:
            self._count("session expired")
            self._shared.end_session(self.session_id)

    def _reconnect_in(self, delay_s: float) -> None:
        self._stop_timer("_reconnection")
        if self._faults is None and delay_s == 0.0:
            self._reconnect()
        else:
            self._reconnection = self._clock.callLater(delay_s, self._reconnect)

    def _reconnect(self) -> None:
        self._reconnection = None
        self._stop_timer("_expiry")
        if self._expired:
            if self.state is not StoreState.LOST:
                self.state = StoreState.LOST
                self._states.tell(StoreState.LOST)
            self._expired = False
            self.session_id = self._shared.new_session_id()
        self.state = StoreState.CONNECTED
        self._states.tell(StoreState.CONNECTED)

    def _leave(self) -> None:
        self.state = StoreState.CLOSED
        self._generation += 1
        self._stop_timer("_expiry")
        self._stop_timer("_reconnection")
        self._book.clear()
        if self._server is not self._shared.leader:
            self._shared.remove_follower(self._server)
            self._shared.on_change.remove(self._on_leader_change)

    def _stop_timer(self, name: str) -> None:
        timer: Timer | None = getattr(self, name)
        if timer is not None and timer.active():
            timer.cancel()
        setattr(self, name, None)

    # --- the way there and back ------------------------------------------------------------------------------------

    def _change(self, operation: str, path: str, run: Callable[[], T], *, size: int = 0) -> Deferred[T]:
        if size > self._settings.request_size_max:
            return defer.fail(too_large(operation, path, size, self._settings.request_size_max))

        def run_and_see() -> T:
            try:
                return run()
            finally:
                # A server answers a change once it has applied it itself.
                self._catch_up()

        return self._submit(operation, path, run_and_see, is_change=True)

    def _watched(
        self,
        operation: str,
        path: str,
        kind: WatchKind,
        watch: WatchListener | None,
        run: Callable[[TreeCopy, _SetWatch | None], T],
    ) -> Deferred[T]:
        def run_and_arm() -> T:
            if self._server.behind:
                self._count("stale read")
            return run(self._server, None if watch is None else _SetWatch(self, self._generation, kind, path))

        if watch is None:
            return self._submit(operation, path, run_and_arm, is_change=False)
        self._book.add(kind, path, watch)
        reading = self._submit(operation, path, run_and_arm, is_change=False)

        def failed(failure: Failure) -> Failure:
            self._book.forget(path, watch)
            return failure

        return reading.addErrback(failed)

    def _submit(self, operation: str, path: str, run: Callable[[], T], *, is_change: bool) -> Deferred[T]:
        if self._crashed:
            return Deferred()
        if self.state is StoreState.CLOSED:
            return defer.fail(
                MetadataUnavailable(f"{operation} {path}: the connection to the metadata store is closed")
            )
        if self.state is not StoreState.CONNECTED:
            return defer.fail(NotAttempted(f"{operation} {path}: not connected"))
        if self._faults is None:
            return defer.execute(run)
        fault = self._faults.decide(self._random, operation, path)
        call = _Call(operation, path, is_change, run, Deferred(), fault, self._generation)
        self._calls.append(call)  # type: ignore[arg-type]
        self._arrival_s = max(self._arrival_s + ORDER_S, self._clock.seconds() + self._delay_s())
        self._server_clock.callLater(self._arrival_s - self._clock.seconds(), self._arrive, call)
        return call.done

    def _arrive(self, call: _Call[T]) -> None:
        if call.generation != self._generation:
            return
        if call.fault is not None:
            self._count(call.fault.value)
        if call.fault is Fault.SESSION_LOST:
            self.expire_session(self._outage_s())
            return
        if call.fault is Fault.FAILED_BEFORE:
            self.cut_connection(self._outage_s())
            return
        call.ran = True
        try:
            answer: T | MetadataError = call.run()
        except MetadataError as error:
            answer = error
        if call.fault is Fault.REPLY_LOST:
            self.cut_connection(self._outage_s())
            return
        self._answer(self._deliver, call, answer)

    def _deliver(self, call: _Call[T], answer: T | MetadataError) -> None:
        if call.generation != self._generation:
            return
        self._calls.remove(call)  # type: ignore[arg-type]
        if isinstance(answer, MetadataError):
            call.done.errback(answer)
        elif not call.done.called:
            call.done.callback(answer)

    def on_watch_fired(self, watch: _SetWatch) -> None:
        """A server-side watch of this session fired."""
        if watch.generation != self._generation:
            return
        if self._faults is None:
            self._book.fire(watch.kind, watch.path)
        else:
            self._answer(self._deliver_event, watch)

    def _deliver_event(self, watch: _SetWatch) -> None:
        if watch.generation == self._generation:
            self._book.fire(watch.kind, watch.path)

    def _answer(self, deliver: Callable[..., None], *args: object) -> None:
        now_s = self._clock.seconds()
        self._answer_s = max(self._answer_s + ORDER_S, now_s + self._delay_s())
        self._clock.callLater(self._answer_s - now_s, deliver, *args)

    def _on_leader_change(self) -> None:
        assert self._faults is not None
        lag_s = self._random.uniform(0.0, self._faults.lag_max_s)
        self._server_clock.callLater(lag_s, self._shared.catch_up, self._server, self._shared.leader.applied)

    def _catch_up(self) -> None:
        self._shared.catch_up(self._server, self._shared.leader.applied)

    def _delay_s(self) -> float:
        return self._random.uniform(0.0, self._faults.delay_max_s) if self._faults is not None else 0.0

    def _outage_s(self) -> float:
        return self._random.uniform(0.0, self._faults.reconnect_max_s) if self._faults is not None else 0.0

    def _count(self, what: str) -> None:
        if self._faults is not None:
            self._faults.counts[what] += 1
