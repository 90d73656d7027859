"""Individual acknowledgement: which messages of a subscription are done, and when the others come again. Pure.

    never delivered --on_delivered--> out --acknowledge--> done
                                      |^                    ^
                     timeout, give_back||on_delivered       |acknowledge: late ones count
                                      v|                    |
                                    waiting ----------------+
                                      |
                                      attempts used up: dead --acknowledge, once the dead letter is stored--> done

    floor    every id up to it is done or deleted; it is the subscription's consumed id
    done     ids as ranges
    next_id  the first that was never delivered; every id between the floor and it is done, out, waiting or dead
    deleted  every id up to it is deleted. Those that are out may still be acknowledged; others are never delivered.
             `gone` are those that are not done, until they are reported to the subscriber (`on_reported`)

Redelivery is by id, lowest first, as soon as a message is due. Nothing is lost by a restart: what was out is delivered
again, with its attempts counted on, if the snapshot has them; attempts since the last snapshot are not counted.

Bounds: at most `outstanding_max` ids are out, waiting or dead, so there are no more ranges than that, and one more; a
snapshot has a few bytes for each. Times are of any clock that never goes back; the timeout is one for all, so deadlines
come in the order of deliveries.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

from sortedcontainers import SortedSet

from hedwig.errors import UnexpectedCondition
from hedwig.model import Gone, LocalId, SubscriberId, Topic
from hedwig.protocol.options import DEAD_ATTEMPTS, DEAD_ID, DEAD_SUBSCRIBER, DEAD_TOPIC
from hedwig.wire.framing import read_varint, varint


class DoneIds:
    """Ids that are done: all up to a floor, and ranges above it."""

    __slots__ = ("_firsts", "_lasts", "floor")

    # floor + 1 < firsts[0] <= lasts[0];  lasts[i] + 1 < firsts[i + 1]

    def __init__(self, floor: int = 0) -> None:
        self.floor = LocalId(floor)
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __contains__(self, local_id: int) -> bool:
        if local_id <= self.floor:
            return True
        at = bisect_right(self._firsts, local_id) - 1
        return at >= 0 and local_id <= self._lasts[at]

    def add(self, first: int, last: int) -> None:
        """All of these, both inclusive, done before or not."""
        if last <= self.floor:
            return
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        if first <= self.floor + 1:
            self.floor = LocalId(last)
            del self._firsts[:high], self._lasts[:high]
        else:
            self._firsts[low:high], self._lasts[low:high] = [first], [last]

    def first_missing(self, start: int) -> LocalId:
        """The first id from `start` on that is not done."""
        start = max(start, self.floor + 1)
        at = bisect_right(self._firsts, start) - 1
        return LocalId(self._lasts[at] + 1 if at >= 0 and start <= self._lasts[at] else start)

    def last_missing(self, end: int) -> LocalId:
        """The last id up to `end` that is not done; at most the floor if all are."""
        at = bisect_right(self._firsts, end) - 1
        return LocalId(self._firsts[at] - 1 if at >= 0 and end <= self._lasts[at] else end)

    def forget_between(self, first: int, last: int) -> None:
        """Count none between these two as done; both are not done."""
        low, high = bisect_left(self._firsts, first), bisect_right(self._lasts, last)
        del self._firsts[low:high], self._lasts[low:high]

    def missing(self, first: int, last: int) -> list[LocalId]:
        """Return the ids of first..last that are not done, in order."""
        found: list[int] = []
        start: int = self.first_missing(first)
        at = bisect_right(self._firsts, start)
        while start <= last:
            end = self._firsts[at] - 1 if at < len(self._firsts) else last
            found += range(start, min(end, last) + 1)
            start = self._lasts[at] + 1 if end < last else last + 1
            at += 1
        return cast("list[LocalId]", found)

    @property
    def count(self) -> int:
        """Number of ranges."""
        return len(self._firsts)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Above the floor, both inclusive, in order."""
        return list(zip(self._firsts, self._lasts, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Redelivery:
    """timeout_s: for an acknowledgement. attempts_max: deliveries of a message before it is dead; 0: no end.
    outstanding_max: see the module.
    """

    timeout_s: float = 60.0
    attempts_max: int = 0
    outstanding_max: int = 10_000


class Dead(NamedTuple):
    """A message that was delivered too often, and is to be stored as a dead letter, then acknowledged."""

    local_id: LocalId
    attempts: int


class Acknowledgements:
    """The acknowledgements of one subscription; see the module. settings: may be replaced. Messages that are out keep
    their deadlines, and a shorter timeout takes effect after these deadlines. new_max: outstanding messages at which no
    new message is delivered, in addition to `outstanding_max`; None: no such bound.
    """

    def __init__(self, floor: LocalId, settings: Redelivery) -> None:
        self.settings = settings
        self.new_max: int | None = None
        self._done = DoneIds(floor)
        self._deleted = LocalId(0)
        self._next = floor + 1
        self._out: dict[LocalId, float] = {}  # deadlines, which are in order
        self._due = SortedSet()  # waiting, and may be delivered
        self._delayed = SortedSet()  # waiting: (when, id)
        self._delayed_until: dict[LocalId, float] = {}
        self._dead: set[LocalId] = set()
        self._new_dead: list[LocalId] = []
        self._attempts: dict[LocalId, int] = {}

    @property
    def floor(self) -> LocalId:
        """Every id up to it is done or deleted."""
        return LocalId(self._done.first_missing(self._deleted + 1) - 1)

    @property
    def next_id(self) -> LocalId:
        """The first that was never delivered, and is not done or deleted."""
        return self._done.first_missing(self._next)

    @property
    def deleted(self) -> LocalId:
        """All ids up to it are deleted; 0 if unknown."""
        return self._deleted

    @property
    def last_done(self) -> LocalId:
        """The greatest id that is done."""
        ranges = self._done.ranges
        return LocalId(ranges[-1][1]) if ranges else self._done.floor

    @property
    def outstanding(self) -> int:
        """How many are out, waiting or dead."""
        return len(self._out) + len(self._due) + len(self._delayed_until) + len(self._dead)

    @property
    def kept_count(self) -> int:
        """Number of ids and ranges in memory: ids with attempts, and ranges that are done."""
        return len(self._attempts) + self._done.count

    def is_out(self, local_id: LocalId) -> bool:
        """Delivered, and not acknowledged."""
        return local_id in self._out

    def is_dead(self, local_id: LocalId) -> bool:
        """Return whether it is to be stored as a dead letter."""
        return local_id in self._dead

    def attempts(self, local_id: LocalId) -> int:
        """How often it was delivered."""
        return self._attempts.get(local_id, 0)

    # --- delivering

    def take(self, durable: LocalId) -> LocalId | None:
        """What to deliver next: what waits and is due, lowest first, else a new one up to `durable`. None: nothing now.

        It stays so until `on_delivered` or `advance`.
        """
        if self._due:
            found: LocalId = self._due[0]
            return found
        new = self.next_id
        count_max = self.settings.outstanding_max
        if self.new_max is not None:
            count_max = min(count_max, self.new_max)
        return new if new <= durable and self.outstanding < count_max else None

    def on_delivered(self, local_id: LocalId, now_s: float) -> int:
        """What `take` said is on its way; which attempt it is, from 1."""
        if local_id in self._due:
            self._due.remove(local_id)
        else:
            assert local_id == self.next_id
            self._next = local_id + 1
        self._out[local_id] = now_s + self.settings.timeout_s
        attempt = self._attempts[local_id] = self._attempts.get(local_id, 0) + 1
        return attempt

    def advance(self, now_s: float) -> list[LocalId]:
        """The time is now; whose timeout ended. They wait, or are dead."""
        ended = []
        for local_id, deadline_s in self._out.items():
            if deadline_s > now_s:
                break
            ended.append(local_id)
        self._put_back(ended, now_s, now_s)
        if self._delayed and self._delayed[0][0] <= now_s:
            count = self._delayed.bisect_right((now_s, math.inf))
            due = [local_id for _, local_id in self._delayed[:count]]
            del self._delayed[:count]
            for local_id in due:
                del self._delayed_until[local_id]
            self._due.update(due)
        return ended

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do."""
        times = [next(iter(self._out.values()))] if self._out else []
        if self._delayed:
            times.append(self._delayed[0][0])
        return min(times, default=None)

    def give_back(self, local_id: LocalId, now_s: float, delay_s: float = 0.0) -> bool:
        """The consumer does not want it now; False where it is not out (any more)."""
        if local_id not in self._out:
            return False
        self._put_back([local_id], now_s, now_s + delay_s)
        return True

    def cancel(self, *local_ids: LocalId) -> None:
        """Put messages back that were out and that no consumer looked at; the attempt does not count."""
        self._forget([each for each in local_ids if each <= self._deleted])
        waiting = [each for each in local_ids if each > self._deleted]
        for local_id in waiting:
            del self._out[local_id]
            self._attempts[local_id] -= 1
        self._due.update(waiting)

    def _put_back(self, local_ids: Iterable[LocalId], now_s: float, when_s: float) -> None:
        gone, due = [], []
        for local_id in local_ids:
            if local_id <= self._deleted:
                gone.append(local_id)
                continue
            del self._out[local_id]
            if self.settings.attempts_max and self._attempts[local_id] >= self.settings.attempts_max:
                self._dead.add(local_id)
                self._new_dead.append(local_id)
            elif when_s > now_s:
                self._delayed.add((when_s, local_id))
                self._delayed_until[local_id] = when_s
            else:
                due.append(local_id)
        self._forget(gone)
        self._due.update(due)

    def take_dead(self) -> list[Dead]:
        """Messages that died since the last call; each is acknowledged once its dead letter is stored."""
        found = [Dead(each, self._attempts[each]) for each in self._new_dead if each in self._dead]
        self._new_dead.clear()
        return found

    def on_dead_letter_failed(self, local_id: LocalId) -> None:
        """It could not be stored: `take_dead` says it again."""
        if local_id in self._dead:
            self._new_dead.append(local_id)

    # --- done

    def acknowledge(self, first: LocalId, last: LocalId) -> list[LocalId]:
        """These are done, both inclusive, as far as they were delivered; which were not before, in order.

        Of deleted ones: the first, and those that were out.
        """
        last = LocalId(min(last, self._next - 1))
        news = self._done.missing(max(first, self._deleted + 1), last)
        if first <= self._deleted:
            lost = self._done.first_missing(first)
            if lost <= min(last, self._deleted):
                news = sorted({lost, *self._known(first, min(last, self._deleted)), *news})
        self._forget(news)
        if news:
            self._done.add(first, last)
        return news

    def pass_over(self, first: LocalId, last: LocalId) -> list[LocalId]:
        """These are not for this subscription, by filter or bound; which of them had been delivered."""
        known = self._known(first, last)
        self._forget(known)
        self._done.add(first, last)
        return known

    def _known(self, first: int, last: int) -> list[LocalId]:
        # Whatever was delivered and is not done has attempts.
        few = range(first, last + 1) if last - first < len(self._attempts) else self._attempts
        return [LocalId(each) for each in few if first <= each <= last and each in self._attempts]

    # --- deleted

    def on_deleted(self, last: LocalId) -> None:
        """Note that all messages up to this id are deleted. What is out stays with its consumer."""
        self._forget([each for each in self._known(self._done.floor + 1, last) if each not in self._out])
        self._deleted = max(self._deleted, last)
        self._next = max(self._next, self._deleted + 1)
        lost = self.lost if len(self._done.ranges) > self.settings.outstanding_max else None
        if lost is not None:  # they are reported as one range, done or not
            self._done.forget_between(lost.first, lost.last)

    def on_reported(self) -> None:
        """The subscriber knows of the deleted messages that no consumer has: they count as done."""
        begin = 1
        for local_id in sorted(self._known(self._done.floor + 1, self._deleted)):  # these are out
            if begin < local_id:
                self._done.add(begin, local_id - 1)
            begin = local_id + 1
        if begin <= self._deleted:
            self._done.add(begin, self._deleted)

    @property
    def gone(self) -> Gone | None:
        """The deleted messages that are not done, from the first to the last."""
        return self._gone(self._done.first_missing(1), self._done.last_missing(self._deleted))

    @property
    def lost(self) -> Gone | None:
        """Of `gone`, from the first to the last that is not out: no consumer has them."""
        first, last = self._done.first_missing(1), self._done.last_missing(self._deleted)
        while first <= last and first in self._out:
            first = self._done.first_missing(first + 1)
        while first < last and last in self._out:
            last = self._done.last_missing(last - 1)
        return self._gone(first, last)

    def _gone(self, first: LocalId, last: LocalId) -> Gone | None:
        return Gone(first, last) if first <= last else None

    def _forget(self, local_ids: Iterable[LocalId]) -> None:
        # Together: to remove ids from a sorted set one by one takes 2 us each, or 20 ms for 10,000 ids.
        delayed, due = [], []
        for local_id in local_ids:
            self._attempts.pop(local_id, None)
            if self._out.pop(local_id, None) is not None:
                continue
            when_s = self._delayed_until.pop(local_id, None)
            if when_s is not None:
                delayed.append((when_s, local_id))
            elif local_id in self._dead:
                self._dead.remove(local_id)
            else:
                due.append(local_id)
        if delayed:
            self._delayed.difference_update(delayed)
        if due:
            self._due.difference_update(due)

    # --- durable form
    #
    # "HA" | format u8 | varints: floor, count of ranges, then for each: ids between it and the end of the one before
    #     (the floor), ids in it; count of ids with attempts, then for each: distance from the one before, attempts

    def encode(self) -> bytes:
        """What is done, and the attempts of what is not."""
        ranges = self._done.ranges
        floor = int(self._done.floor)
        out = [_HEADER, varint(floor), varint(len(ranges))]
        end = floor
        for first, last in ranges:
            out += [varint(first - end - 1), varint(last - first + 1)]
            end = last
        attempts = sorted((local_id, count) for local_id, count in self._attempts.items() if count)
        out.append(varint(len(attempts)))
        end = floor
        for local_id, count in attempts:
            out += [varint(local_id - end), varint(count)]
            end = local_id
        return b"".join(out)

    @classmethod
    def decode(cls, data: bytes, settings: Redelivery, *, where: str = "a snapshot") -> Acknowledgements:
        """Nothing is out. Raises UnexpectedCondition, naming `where` it was read."""
        try:
            return cls._decoded(data, settings)
        except (IndexError, ValueError) as error:
            raise UnexpectedCondition(f"{where} of acknowledgements cannot be read: {error}") from error

    @classmethod
    def _decoded(cls, data: bytes, settings: Redelivery) -> Acknowledgements:
        if data[: len(_HEADER)] != _HEADER:
            raise ValueError(f"it begins with {data[: len(_HEADER)].hex()}, not {_HEADER.hex()}")
        floor, position = read_varint(data, len(_HEADER))
        found = cls(LocalId(floor), settings)
        count, position = read_varint(data, position)
        end = floor
        for _ in range(count):
            gap, position = read_varint(data, position)
            size, position = read_varint(data, position)
            if not gap or not size:
                raise ValueError(f"a range is wrong before byte {position}")
            found._done.add(end + gap + 1, end + gap + size)
            end += gap + size
        count, position = read_varint(data, position)
        end = floor
        for _ in range(count):
            step, position = read_varint(data, position)
            attempts, position = read_varint(data, position)
            end += step
            if not step or not attempts or end in found._done:
                raise ValueError(f"attempts are wrong before byte {position}")
            found._attempts[LocalId(end)] = attempts
        if position != len(data):
            raise ValueError(f"{len(data)} bytes, of which {position} mean something")
        return found


_HEADER = b"HA\x01"


def dead_letter_properties(
    topic: Topic, subscriber: SubscriberId, dead: Dead, taken: Iterable[str] = ()
) -> dict[str, bytes]:
    """What the header of a dead letter says besides what the message said. taken: keys that the message has; a letter
    that dies again keeps its first address.
    """
    said = {
        DEAD_TOPIC: bytes(topic),
        DEAD_SUBSCRIBER: bytes(subscriber),
        DEAD_ID: b"%d" % dead.local_id,
        DEAD_ATTEMPTS: b"%d" % dead.attempts,
    }
    return {} if DEAD_TOPIC in taken else said
