"""Messages that were delivered and wait for their reader, or a reader that waits for messages; and which of those that
it took are over.

    put ---> ready ---> receive, next_now
               ^            |
               +- give_back -+      over: what `receive` gave, once it is called again; of an iteration the message
                                    before the current one, or what another thread says (`finished`)

Bounds: who puts looks at `is_full`, and stops until there `has_room` again. Thread: reactor; `finished` may be set by
another.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError
from hedwig.model import LocalId, MessageId
from hedwig.wire.receiving import Received

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

BUFFERED_MAX = 10_000
"""Messages that wait to be taken where there is no window; then the connection is not read."""

BUFFERED_BYTES_MAX = 64 * 1024 * 1024


class Taking:
    """Of one subscription."""

    def __init__(self, clock: Clock) -> None:
        self.finished: Received | None = None
        """Of an iteration: the last message whose turn is over. Looked at now and then; any thread may set it."""
        self.iterated = 0
        """Messages of an iteration since somebody last looked at `over`, and set this to 0."""
        self._clock = clock
        self._ready: deque[Received] = deque()
        self._bytes = 0
        self._waiting: Deferred[list[Received]] | None = None
        self._count_max, self._counts = 0, True
        self._given: tuple[LocalId, LocalId] | None = None  # first and last of what was given last
        self._taken: MessageId | None = None  # by `receive`; over with the next one
        self._over: MessageId | None = None
        self._current: Received | None = None  # of an iteration
        self._lent_id = LocalId(0)  # given to an iteration of another thread

    # --- what comes

    def put(self, messages: list[Received]) -> None:
        """They were delivered; whoever waits gets them."""
        self._ready.extend(messages)
        self._bytes += sum([len(each.body) for each in messages])
        waiting = self._waiting
        if waiting is not None and self._ready:
            self._waiting = None
            waiting.callback(self._take(self._count_max))

    @property
    def ready(self) -> deque[Received]:
        """What waits; not to be changed."""
        return self._ready

    @property
    def is_full(self) -> bool:
        """Too much waits."""
        return len(self._ready) > BUFFERED_MAX or self._bytes > BUFFERED_BYTES_MAX

    @property
    def has_room(self) -> bool:
        """Half of what is too much waits at most."""
        return len(self._ready) <= BUFFERED_MAX // 2 and self._bytes <= BUFFERED_BYTES_MAX // 2

    def let_go(self) -> None:
        """What waits is for nobody."""
        self._ready.clear()
        self._bytes = 0
        self._given = None

    def begin_anew(self) -> None:
        """Nothing waits, nothing was taken. A reader that waits goes on waiting."""
        self.let_go()
        self.finished = self._current = self._taken = self._over = None
        self._lent_id = LocalId(0)

    # --- what is taken

    @property
    def is_awaited(self) -> bool:
        """A reader waits."""
        return self._waiting is not None

    def ask(self, *, counts: bool) -> None:
        """The reader wants more: what it was given before is over. counts: False where `finished` says that."""
        if self._current is not None:
            self.finished, self._current = self._current, None
        self.note_taken()
        self._counts = counts

    def note_taken(self) -> None:
        """What `receive` gave is over."""
        if self._taken is not None:
            self._over, self._taken = self._taken, None

    def forget_taken(self) -> None:
        """It is not: it comes again some day."""
        self._taken = None

    def take(self, count_max: int) -> list[Received]:
        """What is here; nothing where nothing is."""
        return self._take(count_max) if self._ready else []

    def wait(self, count_max: int, timeout_s: float | None) -> Deferred[list[Received]]:
        """The next messages as soon as there is one; none after timeout_s. Fails as `end` says; may be cancelled."""
        self._count_max = count_max
        waiting = self._waiting = Deferred(self._not_waiting)
        if timeout_s is not None:
            timer = self._clock.callLater(timeout_s, self._nothing, waiting)
            waiting.addBoth(stop_timer, timer)
        return waiting

    def _not_waiting(self, waiting: Deferred[list[Received]]) -> None:
        if self._waiting is waiting:
            self._waiting = None

    def _nothing(self, waiting: Deferred[list[Received]]) -> None:
        if self._waiting is waiting:
            self._waiting = None
            waiting.callback([])

    def end(self, error: BookKeeperError) -> None:
        """Nothing more comes: whoever waits is told."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.errback(error)

    def _take(self, count_max: int) -> list[Received]:
        ready = self._ready
        if len(ready) <= count_max:
            taken = list(ready)
            ready.clear()
            self._bytes = 0
        else:
            taken = [ready.popleft() for _ in range(count_max)]
            self._bytes -= sum([len(each.body) for each in taken])
        self._given = (taken[0].local_id, taken[-1].local_id)
        if self._counts:
            self._taken = taken[-1].id
        else:
            self._lent_id = taken[-1].local_id
        return taken

    def give_back(self, messages: list[Received]) -> bool:
        """What was given last was not looked at, and comes first again; False where it is of before `begin_anew`."""
        if not messages or self._given != (messages[0].local_id, messages[-1].local_id):
            return False
        self._given, self._taken, self._lent_id = None, None, LocalId(0)
        self._ready.extendleft(reversed(messages))
        self._bytes += sum([len(each.body) for each in messages])
        return True

    # --- iterating

    def next_now(self) -> Received | None:
        """The next message of an iteration, if one is here; the one before is over."""
        if self._current is not None:
            self.finished = self._current
        if not self._ready:
            self._current = None
            return None
        self._current = message = self._ready.popleft()
        self._bytes -= len(message.body)
        self.iterated += 1
        return message

    def begin(self, message: Received) -> None:
        """This message of an iteration was received, and its turn is now."""
        self._current, self._lent_id = message, LocalId(0)

    # --- what is over

    @property
    def over(self) -> MessageId | None:
        """The last message whose turn is over."""
        finished, given = self.finished, self._over
        if finished is None or (given is not None and given.local > finished.local_id):
            return given
        return finished.id

    @property
    def is_lent(self) -> bool:
        """Another thread has messages, and will say when their turns are over."""
        finished = self.finished
        return self._lent_id > (0 if finished is None else finished.local_id)


def stop_timer(result: Any, timer: Any) -> Any:
    """In a chain of callbacks."""
    if timer.active():
        timer.cancel()
    return result
