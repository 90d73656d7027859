"""The newest messages of a topic, as stored, in memory: what nearly every delivery is served from. Pure.

One copy of each message, however many subscribers; the oldest go when there are too many bytes. All topics of a hub
share one budget; the topic that stored something last pays first, for an idle one would otherwise keep its messages for
ever: it is asked to let go of them when it was not read for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from hedwig.model import LocalId

MESSAGE_OVERHEAD = 80
"""Bytes that a message takes in memory beside its own."""


class RecentBudget:
    """Bytes of recent messages of one hub. size_max: of all its topics together."""

    __slots__ = ("size", "size_max")

    def __init__(self, size_max: int) -> None:
        self.size, self.size_max = 0, size_max

    @property
    def exceeded(self) -> bool:
        """Somebody must let go of something."""
        return self.size > self.size_max


class RecentMessages:
    """Messages first..last without a gap; empty in the beginning."""

    __slots__ = ("_budget", "_messages", "_size", "first")

    def __init__(self, budget: RecentBudget, next_id: LocalId) -> None:
        self._budget = budget
        self._messages: deque[bytes] = deque()
        self._size = 0
        self.first = next_id

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def next_id(self) -> LocalId:
        """Behind the last one."""
        return LocalId(self.first + len(self._messages))

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    def add(self, messages: Sequence[bytes]) -> None:
        """The next ones. Lets go of the oldest while the budget is exceeded, of these too if need be."""
        size = sum(map(len, messages)) + MESSAGE_OVERHEAD * len(messages)
        self._messages.extend(messages)
        self._size += size
        self._budget.size += size
        while self._budget.exceeded and self._messages:
            self._drop_first()

    def _drop_first(self) -> None:
        size = len(self._messages.popleft()) + MESSAGE_OVERHEAD
        self._size -= size
        self._budget.size -= size
        self.first = LocalId(self.first + 1)

    def forget_before(self, kept: LocalId) -> None:
        """Let go of what is below this id."""
        while self._messages and self.first < kept:
            self._drop_first()

    def clear(self) -> None:
        """Let go of all."""
        self._budget.size -= self._size
        self.first = self.next_id
        self._messages.clear()
        self._size = 0

    def get(self, first: LocalId, count: int) -> list[bytes] | None:
        """At most so many from this id on; None where it is older than what is kept. Empty behind the last."""
        start = first - self.first
        if start < 0:
            return None
        return list(islice(self._messages, start, start + count))
