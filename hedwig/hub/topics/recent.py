"""The newest messages of topics, as stored, in memory: what nearly every delivery is served from. Pure.

One copy of each message, however many subscribers. All topics of a hub share one budget; when there are too many bytes
the topic that stored nothing for the longest time lets go first, of its oldest messages, so that what is published now
finds room whatever lay there before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from hedwig.model import LocalId

MESSAGE_OVERHEAD = 80
"""Bytes that a message takes in memory beside its own."""

_COMPACTED_FROM = 64


class RecentBudget:
    """Bytes of recent messages of one hub. size_max: of all its topics together."""

    __slots__ = ("_topics", "size", "size_max")

    def __init__(self, size_max: int) -> None:
        self.size, self.size_max = 0, size_max
        self._topics: OrderedDict[RecentMessages, None] = OrderedDict()  # with messages; who stored last is last

    def stored(self, topic: RecentMessages, size: int) -> None:
        """So many bytes came; somebody may have to let go of as many."""
        self.size += size
        self._topics[topic] = None
        self._topics.move_to_end(topic)
        while self.size > self.size_max:
            oldest = next(iter(self._topics))
            if not oldest.let_go(self.size - self.size_max):
                self._topics.pop(oldest, None)

    def freed(self, topic: RecentMessages, size: int, *, empty: bool) -> None:
        """So many bytes went."""
        self.size -= size
        if empty:
            self._topics.pop(topic, None)


class RecentMessages:
    """Messages first..last without a gap; empty in the beginning."""

    __slots__ = ("_budget", "_gone", "_messages", "first", "size")

    def __init__(self, budget: RecentBudget, next_id: LocalId) -> None:
        self._budget = budget
        self._messages: list[bytes] = []
        self._gone = 0  # places at the front that hold nothing any more
        self.size = 0  # bytes
        self.first = next_id

    def __len__(self) -> int:
        return len(self._messages) - self._gone

    @property
    def next_id(self) -> LocalId:
        """Behind the last one."""
        return LocalId(self.first + len(self))

    def add(self, messages: Sequence[bytes]) -> None:
        """The next ones. While the budget is exceeded somebody lets go of the oldest, perhaps of these too."""
        size = sum(map(len, messages)) + MESSAGE_OVERHEAD * len(messages)
        self._messages.extend(messages)
        self.size += size
        self._budget.stored(self, size)

    def let_go(self, size: int) -> bool:
        """Let go of so many bytes, or somewhat more, of the oldest; False once nothing is left."""
        end, freed = self._gone, 0
        while freed < size and end < len(self._messages):
            freed += len(self._messages[end]) + MESSAGE_OVERHEAD
            end += 1
        self._drop_to(end, freed)
        return len(self) > 0

    def _drop_to(self, end: int, freed: int) -> None:
        if end == self._gone:
            return
        self.first = LocalId(self.first + end - self._gone)
        self.size -= freed
        if (end > _COMPACTED_FROM and end * 2 > len(self._messages)) or end == len(self._messages):
            del self._messages[:end]
            end = 0
        else:
            self._messages[self._gone : end] = [b""] * (end - self._gone)
        self._gone = end
        self._budget.freed(self, freed, empty=not len(self))

    def clear(self) -> None:
        """Let go of all."""
        self._drop_to(len(self._messages), self.size)

    def get(self, first: LocalId, count: int) -> list[bytes] | None:
        """At most so many from this id on; None where it is older than what is kept. Empty behind the last."""
        start = first - self.first
        if start < 0:
            return None
        start += self._gone
        return self._messages[start : start + count]
