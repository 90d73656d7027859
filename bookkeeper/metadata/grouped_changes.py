"""Many small transactions as few large ones: what a request to the store costs is then paid once for many ledgers.

    transact() --> waiting --> one group on its way --> done: every member of it is
                      ^             |-- refused, of one member: the refusal is that member's own
                      |             |-- refused, of several: both halves, each by itself, before anything else
                      |             `-- answer lost, or not sent: so it is of every member
                      `-- who comes while a group is on its way waits, and goes with the next

Each member is done as a whole or not at all, and its outcome is one that it could have had alone: a group that is done
is its members in the order of the calls, and a group that is refused did nothing. A member goes out only in the session
in which it was given (afterwards it certainly did not happen: NotAttempted, I-77), and only while what it rests on
still holds (`still`; afterwards: NodeChanged): to wait for one's turn makes nothing less safe.

After a refusal groups are half as large, and grow by one with each that is done: where many members are refused, as
locks are that others hold, a group would only cost more.

Bounds: MEMBERS_MAX members and BYTES_MAX bytes a group (ZooKeeper ends a connection that sends more than 1 MiB);
WAITING_MAX members that wait.

Thread: reactor.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataError, MetadataUnavailable
from bookkeeper.metadata.tree import Create, NodeChanged, NotAttempted, Step, Write

if TYPE_CHECKING:
    from bookkeeper.metadata.tree import Tree

MEMBERS_MAX = 64
BYTES_MAX = 256 * 1024
WAITING_MAX = 10_000

_STEP_BYTES = 64
"""More than a step takes in a request beside its path and data."""


class _Member:
    __slots__ = ("done", "session_id", "size", "steps", "still")

    def __init__(self, steps: tuple[Step, ...], session_id: int, still: Callable[[], bool]) -> None:
        self.steps = steps
        self.session_id = session_id
        self.still = still
        self.size = sum(
            _STEP_BYTES + len(step.path) + (len(step.data) if isinstance(step, Create | Write) else 0) for step in steps
        )
        self.done: Deferred[None] = Deferred()

    def hindrance(self, session_id: int) -> MetadataError | None:
        """Why it is not to be sent any more."""
        path = self.steps[0].path
        if self.session_id != session_id:
            return NotAttempted(f"a change of {path}: the session ended before it was sent")
        if not self.still():
            return NodeChanged(f"a change of {path}: what it rests on changed before it was sent")
        return None


class GroupedChanges:
    """Transactions of one kind, of one Tree. Whoever is refused often should have one of its own."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._waiting: deque[_Member] = deque()
        self._halves: deque[list[_Member]] = deque()  # of refused groups
        self._members_max = MEMBERS_MAX
        self._on_its_way = False
        self._sending = False

    def transact(self, steps: Sequence[Step], still: Callable[[], bool] = lambda: True) -> Deferred[None]:
        """As `Tree.transact`. still: asked each time before it is sent. See the module."""
        if len(self._waiting) >= WAITING_MAX:
            return defer.fail(
                MetadataUnavailable(
                    f"{WAITING_MAX} changes wait for {self._tree.description} already; wait for some of them before "
                    "asking for more"
                )
            )
        member = _Member(tuple(steps), self._tree.session_id, still)
        self._waiting.append(member)
        self._send()
        return member.done

    def _send(self) -> None:
        """Send the next group, unless one is on its way."""
        if self._sending:
            return  # by the loop below: an answer can be there at once
        self._sending = True
        try:
            while not self._on_its_way and (group := self._next_group()):
                self._on_its_way = True
                sent = defer.maybeDeferred(self._tree.transact, [step for member in group for step in member.steps])
                sent.addCallbacks(self._on_done, self._on_failed, callbackArgs=(group,), errbackArgs=(group,))
        finally:
            self._sending = False

    def _next_group(self) -> list[_Member]:
        """Members that are sent together; none where nothing is left."""
        while self._halves or self._waiting:
            group = self._halves.popleft() if self._halves else self._take_waiting()
            left = []
            for member in group:
                if member.done.called:
                    continue  # cancelled
                hindrance = member.hindrance(self._tree.session_id)
                if hindrance is None:
                    left.append(member)
                else:
                    member.done.errback(hindrance)
            if left:
                return left
        return []

    def _take_waiting(self) -> list[_Member]:
        group = [self._waiting.popleft()]
        size = group[0].size
        while self._waiting and len(group) < self._members_max and size + self._waiting[0].size <= BYTES_MAX:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    def _on_done(self, _: None, group: list[_Member]) -> None:
        self._members_max = min(MEMBERS_MAX, self._members_max + 1)
        for member in group:
            if not member.done.called:
                member.done.callback(None)
        # Only now: what the members go on to do goes out together.
        self._on_its_way = False
        self._send()

    def _on_failed(self, failure: Failure, group: list[_Member]) -> None:
        error = failure.value
        assert error is not None
        if len(group) > 1 and not isinstance(error, MetadataUnavailable):
            self._members_max = max(1, self._members_max // 2)
            middle = len(group) // 2
            self._halves.extendleft((group[middle:], group[:middle]))
        else:
            for member in group:
                if not member.done.called:
                    member.done.errback(_own(error))
        self._on_its_way = False
        self._send()


def _own(error: BaseException) -> BaseException:
    """The error for one of several who get it: each adds its own way to the traceback."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own
