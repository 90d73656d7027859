"""When the adds of a window are late: one record per batch sent, none per entry. Pure.

    sent      batches by time of sending, until nobody owes an answer for them     response timeout, per bookie
    pushed    batches by time of sending, until they are acknowledged              quorum timeout, whole entries

A batch leaves when nothing of it is wanted any more, so the window's ring bounds their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from bookkeeper.model import EntryId

ALL_INDEXES = -1
"""Every ensemble index, as bits: who is not in the write set of an entry is not expected to answer anyway."""

Batch: TypeAlias = tuple[int, int, float, int]
"""Entries first..last, sent at one moment to the ensemble indexes in a set of bits."""


class AddDeadlines:
    """The moments of sending. A timeout of None times nothing.

    `tail` and `head` are the window's: below `tail` nobody owes an answer, below `head` all is acknowledged.
    """

    __slots__ = ("_pushed", "_quorum_timeout_s", "_response_timeout_s", "_sent", "timed")

    def __init__(self, response_timeout_s: float | None, quorum_timeout_s: float | None) -> None:
        self._response_timeout_s = response_timeout_s
        self._quorum_timeout_s = quorum_timeout_s
        self.timed = response_timeout_s is not None or quorum_timeout_s is not None
        self._sent: list[Batch] = []
        self._pushed: list[Batch] = []

    def on_sent(self, first: int, last: int, now: float, indexes: int) -> None:
        """Entries first..last leave now for these indexes (bits)."""
        if self._response_timeout_s is not None:
            self._sent.append((first, last, now, indexes))
        if self._quorum_timeout_s is not None:
            self._pushed.append((first, last, now, indexes))

    def on_pushed(self, entry_id: int, now: float, tail: int, head: int) -> None:
        """`forget`, and then `on_sent` of one entry that goes to its whole write set."""
        sent, pushed = self._sent, self._pushed
        if self._response_timeout_s is not None:
            if sent and sent[0][1] < tail:
                _drop_below(sent, tail)
            sent.append((entry_id, entry_id, now, ALL_INDEXES))
        if self._quorum_timeout_s is not None:
            if pushed and pushed[0][1] < head:
                _drop_below(pushed, head)
            pushed.append((entry_id, entry_id, now, ALL_INDEXES))

    def on_sent_again(self, runs: Iterable[tuple[int, int]], now: float, indexes: int) -> None:
        """Everything unacknowledged, as runs of ids, goes to new bookies at these indexes: their time starts anew."""
        self._sent = [(first, last, sent_at, old & ~indexes) for first, last, sent_at, old in self._sent]
        for first, last in runs:
            self.on_sent(first, last, now, indexes)

    def forget(self, tail: int, head: int) -> None:
        """Drop the batches that are settled."""
        _drop_below(self._sent, tail)
        _drop_below(self._pushed, head)

    def clear(self) -> None:
        """Nothing is timed any more."""
        self._sent.clear()
        self._pushed.clear()

    @property
    def next(self) -> float | None:
        """The next moment at which something may be late; None while nothing is timed."""
        deadlines = []
        if self._sent and self._response_timeout_s is not None:
            deadlines.append(self._sent[0][2] + self._response_timeout_s)
        if self._pushed and self._quorum_timeout_s is not None:
            deadlines.append(self._pushed[0][2] + self._quorum_timeout_s)
        return min(deadlines, default=None)

    def overdue(self, now: float, tail: int, expected: Callable[[int], int]) -> dict[int, list[int]]:
        """Per index, ascending, the entries it did not answer in time; each is told once.

        expected: the indexes (bits) whose answer for an entry is still waited for.
        """
        late: dict[int, list[int]] = {}
        if self._response_timeout_s is None:
            return late
        told = 0
        for first, last, sent_at, indexes in self._sent:
            if sent_at + self._response_timeout_s > now:
                break
            told += 1
            for entry_id in range(max(first, tail), last + 1):
                for index in indexes_of(expected(entry_id) & indexes):
                    late.setdefault(index, []).append(entry_id)
        del self._sent[:told]
        return {index: sorted(late[index]) for index in sorted(late)}

    def quorum_overdue(self, now: float, head: int, incomplete: Callable[[int], bool]) -> EntryId | None:
        """The entry pushed longest ago that is not complete although its time is over; None if there is none."""
        if self._quorum_timeout_s is None:
            return None
        while self._pushed and self._pushed[0][2] + self._quorum_timeout_s <= now:
            first, last, _, _ = self._pushed[0]
            for entry_id in range(max(first, head), last + 1):
                if incomplete(entry_id):
                    return EntryId(entry_id)
            del self._pushed[0]
        return None


def _drop_below(batches: list[Batch], entry_id: int) -> None:
    """Drop the leading batches that end below the entry."""
    settled = 0
    for batch in batches:
        if batch[1] >= entry_id:
            break
        settled += 1
    del batches[:settled]


def indexes_of(bits: int) -> list[int]:
    """The positions of the set bits, ascending."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
