"""What one measurement is, in the words of a command line, and how its client process counts and answers.

    TARGET KIND TOPICS OUTSTANDING READERS PER_S MESSAGES WARMING_SECONDS SECONDS TAG

Every client process of this benchmark, HubLoad.java too, takes these words, prints {"mark": "start"} and
{"mark": "end"} around what it counts, then one line of figures, and ends. The programs of the peers run in an
environment of their own: nothing here needs more than the standard library and `Latencies`.

    publish   messages on the topics in turn, `outstanding` without an answer; counted: answers
    deliver   the same with `readers` of every topic; counted: deliveries, latency from handing over to delivery
    paced     as deliver with `per_s` publishes a second; latency from the moment when a message was due
    drain     `messages` in all that wait for a reader who subscribed before; counted: all of them, from its attaching
    acquire   new topics with a subscription, `outstanding` at a time; counted: those that are there
"""

from __future__ import annotations

import json
import multiprocessing
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from bookkeeper.cli.perf.latency import Latencies

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BODY_SIZE = 1024
READY_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 60.0
WARMING_SHARE = 0.1
"""Of the messages of a drain: another backlog of so many is drained first."""

_STAMP = struct.Struct(">d")
_FILL = os.urandom(BODY_SIZE - _STAMP.size)


class LoadFailed(Exception):
    """A measurement came to nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """One measurement. tag: in the names of its topics, which nobody used before."""

    kind: str
    topics: int
    outstanding: int
    readers: int
    per_s: float
    messages: int
    warming_s: float
    seconds: float
    tag: str

    def words(self) -> list[str]:
        """As `parsed` takes them."""
        return [str(value) for value in astuple(self)]

    @property
    def names(self) -> list[str]:
        """Of its topics."""
        return [f"{self.tag}-{number}" for number in range(self.topics)]


def parsed(words: Sequence[str]) -> Load:
    """The inverse of `words`. Raises ValueError."""
    kind, topics, outstanding, readers, per_s, messages, warming_s, seconds, tag = words
    counts = int(topics), int(outstanding), int(readers)
    return Load(kind, *counts, float(per_s), int(messages), float(warming_s), float(seconds), tag)


def body(at: float) -> bytes:
    """A message that was handed over at this time of `time.monotonic`, which is one for all processes."""
    return _STAMP.pack(at) + _FILL


def handed_over(message: bytes) -> float:
    """When, by the body."""
    stamp: float = _STAMP.unpack_from(message)[0]
    return stamp


def say(line: dict[str, object]) -> None:
    """One line to the one who measures."""
    print(json.dumps(line), flush=True)


@dataclass(slots=True)
class Meter:
    """Counts what completes from `start` until `end`, of `time.monotonic`. `tick` or `done` must be called often.

    mark: is called with "start" and "end", once each.
    """

    start: float
    end: float
    mark: Callable[[str], None]
    count: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    _marked: int = 0

    def tick(self, now: float) -> bool:
        """Whether it goes on."""
        if self._marked == 0 and now >= self.start:
            self._marked = 1
            self.mark("start")
        if self._marked == 1 and now >= self.end:
            self._marked = 2
            self.mark("end")
        return now < self.end

    def done(self, began: float, now: float, count: int = 1) -> None:
        """So many have just been completed."""
        if self.start <= now < self.end:
            self.count += count
            self.latencies.add(now - began, count)

    def figures(self) -> dict[str, object]:
        """The line that is told."""
        return told(self.count, self.end - self.start, self.latencies)


def told(operations: int, seconds: float, latencies: Latencies | None = None) -> dict[str, object]:
    """The line of figures. latencies: None where only the rate says something."""
    line: dict[str, object] = {"operations": operations, "seconds": seconds}
    return line if latencies is None else line | {"latencies": [latencies.to_json()]}


def mark(name: str) -> None:
    """To the one who measures."""
    say({"mark": name})


def meter_of(load: Load, mark: Callable[[str], None] = mark) -> Meter:
    """Which begins to count when the warming up that begins now is over."""
    start = time.monotonic() + load.warming_s
    return Meter(start, start + load.seconds, mark)


class Readers:
    """The process that reads, beside the one that publishes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _answer(self, timeout_s: float, what: str) -> Any:
        if not self._connection.poll(timeout_s):
            raise LoadFailed(f"the readers {what} not within {timeout_s:g} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise LoadFailed("the readers ended by themselves") from None
        if isinstance(answer, str):
            raise LoadFailed(f"the readers: {answer}")
        return answer

    def begin(self, load: Load) -> Meter:
        """Once they are subscribed the warming up begins; they count by the same clock."""
        self._answer(READY_TIMEOUT_S, "were ready")
        meter = meter_of(load)
        self._connection.send((meter.start, meter.end))
        return meter

    def figures(self) -> dict[str, object]:
        """What they counted, behind the end."""
        figures: dict[str, object] = self._answer(READY_TIMEOUT_S, "answered")
        return figures


class Reading:
    """What the reading process is handed: `ready` once, then `done` for every message, until `over`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._meter: Meter | None = None

    def ready(self) -> None:
        """All readers would get what is published from now on. Waits for the clock."""
        self._connection.send(True)
        start, end = self._connection.recv()
        self._meter = Meter(start, end, lambda name: None)

    def left_s(self) -> float:
        """Until nothing counts any more; not below 0. Only behind `ready`."""
        assert self._meter is not None
        return max(0.0, self._meter.end - time.monotonic())

    def over(self) -> bool:
        """Nothing counts any more."""
        return self._meter is not None and self.left_s() == 0.0

    def done(self, messages: Sequence[bytes]) -> None:
        """They have just arrived."""
        meter, now = self._meter, time.monotonic()
        if meter is not None:
            for message in messages:
                meter.done(handed_over(message), now)

    def tell(self) -> None:
        """The figures, at the end."""
        assert self._meter is not None
        self._connection.send(self._meter.figures())


def _read(connection: Connection, read: Callable[[Reading], None]) -> None:
    reading = Reading(connection)
    try:
        read(reading)
        reading.tell()
    except Exception as error:  # whatever it is, the one who waits is told
        connection.send(f"{type(error).__name__}: {error}")
        raise


@contextmanager
def reading_beside(read: Callable[[Reading], None]) -> Iterator[Readers]:
    """`read` in a process of its own, which is gone at the end. Call it before there are threads or connections."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_read, args=(theirs, read), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Readers(ours)
    finally:
        process.kill()
        process.join()


Measure = Callable[[str, Load], dict[str, object]]


def main(measure: Measure, arguments: Sequence[str]) -> None:
    """A client process. measure: is given the target and the load; its figures are told."""
    try:
        say(measure(arguments[0], parsed(arguments[1:])))
    except LoadFailed as failure:
        sys.exit(str(failure))
