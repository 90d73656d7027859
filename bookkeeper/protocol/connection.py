"""One connection from a client to a bookie: who waits for which answer. Pure.

Protocol v2 names an answer only by ledger and entry id. So at most one read of a key (ledger, entry) is on its way at a
time, whatever kind it is: a later one waits ("parked") until the first is answered. A read that timed out keeps its key
until its answer arrives or the connection ends; otherwise the late answer of a plain read could pass for the answer
of a fencing read, and recovery would count an unfenced bookie as fenced (I-29). v3 follows the same rule: it costs
nothing.

    submit -> in flight -> answered            delivered to its owner
                  |-> overdue -> answered      dropped; the key is free again
    submit -> parked ---------> in flight      `take_released` says what to send now

Owners are opaque here: whoever asked. Answers come and go in batches; nothing is allocated per entry but one dictionary
slot per outstanding read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from bookkeeper.errors import LocalProtocolError
from bookkeeper.model import LAST_ENTRY

O = TypeVar("O")  # noqa: E741 - an owner


@dataclass(slots=True, eq=False)
class PendingRead(Generic[O]):
    """Entries of one ledger asked for at once. `left` counts the ids neither answered nor dropped.

    fence_key: the master key of fencing reads, None for plain ones.
    """

    owner: O
    ledger_id: int
    entry_ids: Sequence[int]
    fence_key: bytes | None
    high_priority: bool
    deadline: float
    left: int = 0
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class Delivery(Generic[O]):
    """Answers for one owner, in the order they arrived."""

    read: PendingRead[O]
    entry_ids: list[int]
    bodies: list[bytes]


class ReadsInFlight(Generic[O]):
    """Outstanding reads of one connection by (ledger, entry).

    entries_max: entries asked for and parked together; beyond it `room` is 0 and nothing more may be submitted.
    """

    def __init__(self, *, entries_max: int) -> None:
        self._entries_max = entries_max
        self._by_ledger: dict[int, dict[int, PendingRead[O]]] = {}
        self._parked: dict[tuple[int, int], deque[PendingRead[O]]] = {}
        self._released: list[tuple[PendingRead[O], int]] = []
        self._order: deque[PendingRead[O]] = (
            deque()
        )  # by deadline: all reads of a connection have the same time to live
        self.count = 0  # in flight + parked + overdue; 0 <= count <= entries_max
        self.blocked = False  # a read's time ran out while it was parked: only a new connection frees its key

    @property
    def room(self) -> int:
        """Entries that may still be asked for."""
        return self._entries_max - self.count

    def submit(self, read: PendingRead[O]) -> Sequence[int]:
        """Note the request and return the ids to send now; the others wait for their key."""
        entry_ids = read.entry_ids
        if len(entry_ids) > self.room:
            raise LocalProtocolError(f"{len(entry_ids)} reads where {self.room} fit")
        table = self._by_ledger.setdefault(read.ledger_id, {})
        read.left = len(entry_ids)
        self.count += len(entry_ids)
        self._order.append(read)
        if table.keys().isdisjoint(entry_ids):
            table.update(dict.fromkeys(entry_ids, read))
            return entry_ids
        sendable = []
        for entry_id in entry_ids:
            if entry_id in table:
                self._parked.setdefault((read.ledger_id, entry_id), deque()).append(read)
            else:
                table[entry_id] = read
                sendable.append(entry_id)
        return sendable

    def on_bodies(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> list[Delivery[O]]:
        """Entries arrived. Answers that nobody waits for are dropped."""
        table = self._by_ledger.get(ledger_id)
        if table is None:
            return []
        reads = [table.pop(entry_id, None) for entry_id in entry_ids]
        first = reads[0]
        if first is not None and reads.count(first) == len(reads):
            self._settle(first, entry_ids)
            deliveries = [] if first.overdue else [Delivery(first, entry_ids, bodies)]
        else:
            deliveries = self._sort_out(table, reads, entry_ids, bodies)
        if not table:
            del self._by_ledger[ledger_id]
        return deliveries

    def on_failed(self, ledger_id: int, entry_id: int) -> tuple[PendingRead[O], int] | None:
        """One read failed: whose it was and the id as it was asked for; None when nobody waits for it any more."""
        table = self._by_ledger.get(ledger_id)
        if table is None:
            return None
        key, read = self._take(table, entry_id)
        if read is None:
            return None
        self._settle(read, [key])
        if not table:
            del self._by_ledger[ledger_id]
        return None if read.overdue else (read, key)

    def take_released(self) -> list[tuple[PendingRead[O], int]]:
        """Parked reads whose key has become free: send these now."""
        released, self._released = self._released, []
        return released

    @property
    def next_deadline(self) -> float | None:
        """When `overdue` has something to say, or None; may be early."""
        while self._order and not self._order[0].left:
            self._order.popleft()
        return self._order[0].deadline if self._order else None

    def overdue(self, now: float) -> list[tuple[PendingRead[O], list[int]]]:
        """Reads whose time is over, each told once, with the ids not answered. Their keys stay taken."""
        late = []
        while self._order and (self._order[0].deadline <= now or not self._order[0].left):
            read = self._order.popleft()
            if not read.left:
                continue
            read.overdue = True
            entry_ids = self._unanswered(read)
            self._unpark(read, entry_ids)
            late.append((read, entry_ids))
        return late

    def on_ended(self) -> list[tuple[PendingRead[O], list[int]]]:
        """The connection is gone: everything outstanding, without what was told overdue."""
        lost = [(read, self._unanswered(read)) for read in self._order if read.left]
        self._by_ledger.clear()
        self._parked.clear()
        self._released.clear()
        self._order.clear()
        self.count = 0
        return lost

    def _sort_out(
        self,
        table: dict[int, PendingRead[O]],
        reads: list[PendingRead[O] | None],
        entry_ids: list[int],
        bodies: list[bytes],
    ) -> list[Delivery[O]]:
        """Answers of several requests mixed, or unexpected ones."""
        deliveries: dict[int, Delivery[O]] = {}
        start, count = 0, len(reads)
        while start < count:
            read, stop = reads[start], start + 1
            if read is None:
                key, read = self._take(table, entry_ids[start])
                keys = [key]
            else:
                while stop < count and reads[stop] is read:
                    stop += 1
                keys = entry_ids[start:stop]
            if read is not None:
                self._settle(read, keys)
                if not read.overdue:
                    delivery = deliveries.setdefault(id(read), Delivery(read, [], []))
                    delivery.entry_ids.extend(keys)
                    delivery.bodies.extend(bodies[start:stop])
            start = stop
        return list(deliveries.values())

    @staticmethod
    def _take(table: dict[int, PendingRead[O]], entry_id: int) -> tuple[int, PendingRead[O] | None]:
        """Free the key an answer belongs to.

        4.2.3 answers a read of the last entry under its real id (bookkeeper/wire/FORMATS.md 1.8).
        """
        read = table.pop(entry_id, None)
        if read is None and entry_id >= 0:
            return LAST_ENTRY, table.pop(LAST_ENTRY, None)
        return entry_id, read

    def _settle(self, read: PendingRead[O], entry_ids: list[int]) -> None:
        read.left -= len(entry_ids)
        self.count -= len(entry_ids)
        if self._parked:
            for entry_id in entry_ids:
                self._release(read.ledger_id, entry_id)

    def _release(self, ledger_id: int, entry_id: int) -> None:
        """The key is free: the next one that waits for it goes."""
        waiting = self._parked.get((ledger_id, entry_id))
        if waiting is None:
            return
        read = waiting.popleft()
        if not waiting:
            del self._parked[(ledger_id, entry_id)]
        self._by_ledger.setdefault(ledger_id, {})[entry_id] = read
        self._released.append((read, entry_id))

    def _unanswered(self, read: PendingRead[O]) -> list[int]:
        table = self._by_ledger.get(read.ledger_id, {})
        return [
            entry_id
            for entry_id in read.entry_ids
            if table.get(entry_id) is read or read in self._parked.get((read.ledger_id, entry_id), ())
        ]

    def _unpark(self, read: PendingRead[O], entry_ids: list[int]) -> None:
        """An overdue read no longer wants what was not even sent."""
        for entry_id in entry_ids:
            key = (read.ledger_id, entry_id)
            waiting = self._parked.get(key)
            if waiting is not None and read in waiting:
                waiting.remove(read)
                self.blocked = True
                read.left -= 1
                self.count -= 1
                if not waiting:
                    del self._parked[key]


class AddsInFlight(Generic[O]):
    """Adds sent and not answered: which handles to tell when the connection ends, and how many bytes wait.

    The bytes are released in the order of sending as answers are counted: a bookie answers nearly in order, and for a
    bound on memory that is near enough.

    count, bytes: of those that wait. answered_count: answers since the beginning.
    """

    def __init__(self) -> None:
        self.owners: dict[int, O] = {}  # who writes a ledger
        self._sent: deque[tuple[int, int]] = deque()  # entries, bytes of each batch, oldest first
        self._answered_of_oldest = 0
        self.count = 0
        self.bytes = 0
        self.answered_count = 0

    def owner_of(self, ledger_id: int) -> O | None:
        """Who writes the ledger."""
        return self.owners.get(ledger_id)

    def on_sent(self, ledger_id: int, owner: O, *, count: int, size: int) -> None:
        """`count` adds of `size` bytes together are on their way."""
        self.owners[ledger_id] = owner
        self.on_sent_mixed(count=count, size=size)

    def on_sent_mixed(self, *, count: int, size: int) -> None:
        """The same for adds of several ledgers, whose owners the caller noted in `owners`."""
        self._sent.append((count, size))
        self.count += count
        self.bytes += size

    def on_answered(self, count: int) -> None:
        """`count` more answers, good or bad. Surplus answers (a bookie that answers twice) are ignored."""
        count = min(count, self.count)
        self.count -= count
        self.answered_count += count
        answered = self._answered_of_oldest + count
        while self._sent and answered >= self._sent[0][0]:
            entries, size = self._sent.popleft()
            answered -= entries
            self.bytes -= size
        self._answered_of_oldest = answered

    def forget(self, ledger_id: int, owner: O) -> None:
        """The owner is finished and wants no more answers; another one of the same ledger still does."""
        if self.owners.get(ledger_id) is owner:
            del self.owners[ledger_id]

    def on_ended(self) -> list[O]:
        """The connection is gone: everyone who wrote through it."""
        owners = list(self.owners.values())
        self.owners.clear()
        self._sent.clear()
        self._answered_of_oldest = self.count = self.bytes = 0
        return owners


@dataclass(slots=True, eq=False)
class PendingCall:
    """A request answered by its request id (v3). `on_reply` takes the reply message."""

    on_reply: Callable[[object], None]
    on_unknown: Callable[[Exception], None]
    deadline: float


class CallsInFlight:
    """Requests that are answered by id: LAC reads and writes, batch reads. Bounded by `calls_max`."""

    def __init__(self, *, calls_max: int) -> None:
        self._calls: dict[int, PendingCall] = {}
        self._calls_max = calls_max

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def room(self) -> int:
        """Calls that may still be made."""
        return self._calls_max - len(self._calls)

    def submit(self, request_id: int, call: PendingCall) -> None:
        """Note the call."""
        if self.room <= 0:
            raise LocalProtocolError(f"more than {self._calls_max} calls outstanding")
        self._calls[request_id] = call

    def on_reply(self, request_id: int | None) -> PendingCall | None:
        """Whose answer this is; None when nobody waits (any more)."""
        return None if request_id is None else self._calls.pop(request_id, None)

    @property
    def next_deadline(self) -> float | None:
        """When `overdue` has something to say."""
        return min((call.deadline for call in self._calls.values()), default=None)

    def overdue(self, now: float) -> list[PendingCall]:
        """Calls whose time is over, each told once; their late answers are dropped."""
        late = [request_id for request_id, call in self._calls.items() if call.deadline <= now]
        return [self._calls.pop(request_id) for request_id in late]

    def on_ended(self) -> list[PendingCall]:
        """The connection is gone: every call outstanding."""
        calls = list(self._calls.values())
        self._calls.clear()
        return calls


class PollsInFlight(CallsInFlight):
    """Long polls: their answers are those of reads, and only the request id tells them apart.

    So a poll that timed out keeps its id until its answer arrives or the connection ends: taken for the answer of a
    fencing read of the same entry, it would count an unfenced bookie as fenced (I-29). Late ones count for the bound.
    """

    def __init__(self, *, calls_max: int) -> None:
        super().__init__(calls_max=calls_max)
        self._late: set[int] = set()

    @property
    def room(self) -> int:
        """Polls that may still be made."""
        return super().room - len(self._late)

    @property
    def any(self) -> bool:
        """An answer may come, wanted or not."""
        return bool(self._calls or self._late)

    def __contains__(self, request_id: int | None) -> bool:
        return request_id in self._calls or request_id in self._late

    def on_reply(self, request_id: int | None) -> PendingCall | None:
        """Whose answer this is; None when nobody waits any more."""
        if request_id is not None:
            self._late.discard(request_id)
        return super().on_reply(request_id)

    def overdue(self, now: float) -> list[PendingCall]:
        """Polls whose time is over, each told once."""
        self._late.update(request_id for request_id, call in self._calls.items() if call.deadline <= now)
        return super().overdue(now)

    def on_ended(self) -> list[PendingCall]:
        """The connection is gone: every poll somebody waits for."""
        self._late.clear()
        return super().on_ended()
