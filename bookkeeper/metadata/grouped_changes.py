"""Many small transactions as few large ones: what a request to the store costs is then paid once for many ledgers.

    transact() --> waiting --> one group on its way --> done: every member of it is
                      ^             |-- refused: nothing was done; each member alone, all of them at once, and so are
                      |             |   those that come next
                      |             `-- answer lost, or not sent: so it is of every member
                      `-- who comes while a group is on its way waits, and goes with the next

Each member is done as a whole or not at all, and its outcome is one that it could have had alone: all is sent in the
order of the calls, and nothing is sent behind a group that may still be refused. A member goes out only in the session
in which it was given (afterwards it certainly did not happen: NotAttempted, I-77), and only while what it rests on
still holds (`still`; afterwards: NodeChanged): to wait for one's turn makes nothing less safe.

Where many are refused, as locks are that others hold, a group only costs more. So after a refusal ALONE_MIN members go
alone, as if there were no groups, and twice as many after each further one, until a group of several is done.

Bounds: MEMBERS_MAX members and BYTES_MAX bytes per group (the smallest zkMaxRequestSizeBytes), and WAITING_MAX waiting
members. The Tree bounds requests that are sent alone.

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

from bookkeeper.errors import AccessDenied, MetadataCorrupt, MetadataTooLarge, MetadataUnavailable, again
from bookkeeper.metadata.tree import (
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeNotEmpty,
    NotAttempted,
    Step,
    transaction_size,
)

if TYPE_CHECKING:
    from bookkeeper.metadata.tree import Tree

MEMBERS_MAX = 64
BYTES_MAX = 256 * 1024
WAITING_MAX = 65_536
ALONE_MIN = 64
ALONE_MAX = 4096

_REFUSALS = (NodeAbsent, NodeChanged, NodeExists, NodeNotEmpty, AccessDenied, MetadataCorrupt, MetadataTooLarge)
"""What says for certain that nothing was done. Whatever else goes wrong is not known of any member."""


class _Member:
    __slots__ = ("done", "session_id", "size", "steps", "still")

    def __init__(self, steps: tuple[Step, ...], session_id: int, still: Callable[[], bool]) -> None:
        self.steps = steps
        self.session_id = session_id
        self.still = still
        self.size = transaction_size(steps)
        self.done: Deferred[None] = Deferred()

    def hindrance(self, session_id: int) -> Exception | None:
        """Why it is not to be sent any more."""
        path = self.steps[0].path
        if self.session_id != session_id:
            return NotAttempted(f"a change of {path}: the session ended before it was sent")
        try:
            holds = self.still()
        except Exception as error:  # noqa: BLE001 - its asker hears of it; the others of the group are not to
            return error
        return None if holds else NodeChanged(f"a change of {path}: what it rests on changed before it was sent")

    def end(self, error: Exception | None) -> None:
        """Tell what became of it, unless it was cancelled."""
        if self.done.called:
            return
        if error is None:
            self.done.callback(None)
        else:
            self.done.errback(again(error))


class GroupedChanges:
    """Transactions of one kind, of one Tree. Whoever is refused often should have one of its own."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._waiting: deque[_Member] = deque()
        self._on_its_way = False  # a group of several
        self._alone = 0  # so many of the next members go alone
        self._alone_next = ALONE_MIN
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
        """Send what may go now."""
        if self._sending:
            return  # by the loop below: an answer can be there at once
        self._sending = True
        try:
            while self._waiting and not self._on_its_way:
                if self._alone:
                    self._alone -= 1
                    self._send_alone([self._waiting.popleft()])
                else:
                    self._send_group(self._take_group())
        finally:
            self._sending = False

    def _take_group(self) -> list[_Member]:
        group = [self._waiting.popleft()]
        size = group[0].size
        while self._waiting and len(group) < MEMBERS_MAX and size + self._waiting[0].size <= BYTES_MAX:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    def _send_group(self, members: list[_Member]) -> None:
        group = self._unhindered(members)
        if group:
            # Also one: those that come before its answer are the next group.
            self._on_its_way = True
            sent = defer.maybeDeferred(self._tree.transact, [step for member in group for step in member.steps])
            sent.addCallbacks(self._on_done, self._on_failed, callbackArgs=(group,), errbackArgs=(group,))

    def _send_alone(self, members: list[_Member]) -> None:
        for member in self._unhindered(members):
            sent = defer.maybeDeferred(self._tree.transact, member.steps)
            sent.addCallbacks(
                lambda _, member=member: member.end(None), lambda failure, member=member: member.end(failure.value)
            )

    def _unhindered(self, members: list[_Member]) -> list[_Member]:
        """Those that may be sent; the others are told why not."""
        alive = [member for member in members if not member.done.called]
        hindrances = [(member, member.hindrance(self._tree.session_id)) for member in alive]
        for member, hindrance in hindrances:
            if hindrance is not None:
                member.end(hindrance)
        # Who is told may cancel others.
        return [member for member, hindrance in hindrances if hindrance is None and not member.done.called]

    def _on_done(self, _: None, group: list[_Member]) -> None:
        if len(group) > 1:
            self._alone_next = ALONE_MIN
        for member in group:
            member.end(None)
        # Only now: what the members go on to do goes out together.
        self._go_on()

    def _on_failed(self, failure: Failure, group: list[_Member]) -> None:
        error = failure.value
        assert isinstance(error, Exception)
        if len(group) > 1:
            # Also after an answer that was lost: perhaps the group was more than the server takes.
            self._alone = self._alone_next
            self._alone_next = min(ALONE_MAX, 2 * self._alone_next)
        if len(group) > 1 and isinstance(error, _REFUSALS):
            self._send_alone(group)
        else:
            for member in group:
                member.end(_own(error))
        self._go_on()

    def _go_on(self) -> None:
        self._on_its_way = False
        self._send()


def _own(error: Exception) -> Exception:
    """The error for one of several who get it: each adds its own way to the traceback."""
    try:
        own = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error that cannot be copied is told all the same
        return error
    own.__cause__ = error.__cause__
    return own
