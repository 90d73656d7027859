"""What strace saw of a bookie: journal writes, syncs, and the bytes that left on client connections, in order.

    <pid> pwrite64(12</x/journal/current/1a.txn>, "\\x00...", 512, 4096) = 512        began and returned at this point
    <pid> fdatasync(12</x/journal/current/1a.txn> <unfinished ...>                   began; another thread went on
    <pid> <... fdatasync resumed>) = 0                                               returned

A call's begin and return are events of their own. strace stops a thread before a call begins and after it returned, so
whatever a thread causes after its call returned comes later in the file.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SYSCALLS = "pwrite64,pwritev,pwritev2,write,writev,fdatasync,fsync,sendto,sendmsg"
SYNCS = frozenset({"fdatasync", "fsync"})
WRITES = frozenset({"pwrite64", "pwritev", "pwritev2", "write", "writev", "sendto", "sendmsg"})

_BEGAN = re.compile(r"^(?:\[pid +)?(\d+)\]? +(\w+)\((\d+)<(.*?)>(?=[,) ])(.*)$")
_RESUMED = re.compile(r"^(?:\[pid +)?(\d+)\]? +<\.\.\. (\w+) resumed>(.*)$")
_RESULT = re.compile(r"\) += (-?\d+)[^\"]*$")
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Moment(enum.Enum):
    """Which end of a call."""

    BEGAN = enum.auto()
    RETURNED = enum.auto()


@dataclass(frozen=True, slots=True)
class Event:
    """One end of one call. target: the file's path, or a socket's addresses. data: the bytes it was given."""

    moment: Moment
    thread: int
    call: str
    target: str
    data: bytes
    result: int | None


def events_of(lines: Iterable[str]) -> Iterator[Event]:
    """The calls that concern descriptors, in order. Needs strace -f -yy -xx and strings that were not cut."""
    open_calls: dict[int, Event] = {}
    for line in lines:
        if resumed := _RESUMED.match(line):
            began = open_calls.pop(int(resumed[1]), None)
            if began is not None and began.call == resumed[2]:
                yield from _returned(began, resumed[3])
            continue
        found = _BEGAN.match(line)
        if found is None:
            continue
        rest = found[5]
        assert '"...' not in rest, "strace cut a string: raise -s"
        data = b"".join(bytes.fromhex(text.replace("\\x", "")) for text in _BYTES.findall(rest))
        target = bytes.fromhex(found[4].replace("\\x", "")).decode() if found[4].startswith("\\x") else found[4]
        began = Event(Moment.BEGAN, int(found[1]), found[2], target, data, None)
        yield began
        if rest.endswith("<unfinished ...>"):
            open_calls[began.thread] = began
        else:
            yield from _returned(began, rest)


def _returned(began: Event, rest: str) -> Iterator[Event]:
    """Nothing for a call without a result, under way when the trace (`<detached ...>`) or the process (`= ?`) ended."""
    result = _RESULT.search(rest)
    if result:
        yield Event(Moment.RETURNED, began.thread, began.call, began.target, began.data, int(result[1]))


class Durability:
    """Which of the records looked for are known to be synced; files are told apart by their path."""

    def __init__(self, is_journal: re.Pattern[str]) -> None:
        self._is_journal = is_journal
        self._written: dict[str, list[bytes]] = {}
        self._covered: dict[int, tuple[str, int]] = {}
        self._synced: list[bytes] = []
        self.syncs = 0

    def observe(self, event: Event) -> None:
        """Take one event. A write counts when it returned; a sync covers the writes that returned before it began."""
        path = event.target
        if not self._is_journal.search(path):
            return
        written = self._written.setdefault(path, [])
        if event.call in WRITES and event.moment is Moment.RETURNED:
            assert event.result == len(event.data), f"a short write to {path}: {event.result} of {len(event.data)}"
            written.append(event.data)
        elif event.call in SYNCS and event.moment is Moment.BEGAN:
            self._covered[event.thread] = (path, len(written))
        elif event.call in SYNCS:
            synced_path, count = self._covered.pop(event.thread)
            assert event.result == 0, f"a sync of {synced_path} failed: {event.result}"
            self._synced += self._written[synced_path][:count]
            del self._written[synced_path][:count]
            self.syncs += 1

    def is_synced(self, record: bytes) -> bool:
        """The record is, as a whole, in one write that a completed sync covers."""
        return any(record in data for data in self._synced)
