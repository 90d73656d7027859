"""Publishing once: which messages of which producers a topic has, so that a repeat is answered and not stored. Pure.

A producer gives itself a name and numbers its messages; both are header properties (`hw.pid`, `hw.seq`), so they are
stored with the message, and whoever takes the topic over knows them again.

    sequence                       verdict     what the hub does
    greater than all before        NEW         publish; `on_begun`, and then `on_durable` or `on_failed`
    ... but `hw.prev` is not the   EARLY       refuse: what was to come before it is not there (yet)
        greatest of them
    one that is being published    UNDER_WAY   wait: `wait`; the waiters come back from `on_durable` and `on_failed`
    one that is in the window      REPEAT      answer with its first id, store nothing
    between two of the window      SKIPPED     refuse: it was never published, and now others behind it were
    before the window              FORGOTTEN   refuse: whether it was published is not known any more

Numbers are from 1 and only go up. Gaps are allowed: a producer may give a number up, or count over several topics. An
answer to a repeat has the local part of the first id; what it said of other regions is in the stored message.

Who publishes several messages before the first is answered says in each but the first which one comes before it
(`hw.prev`). Of such a chain a hub never takes a message before the one before: when some of it was refused, or became
unknown with a lost hub, all that is not answered is published again in its order, and the topic has it once and in
order. Without `hw.prev` a message that overtakes another leaves that one SKIPPED for good.

The window is kept as runs: numbers that follow each other and got ids that follow each other. A producer alone with its
topic has one run, however long; among others, `runs_max` runs are at least as many messages. So whoever has at most
`runs_max` messages unanswered can publish any of them again.

Bounds: `runs_total_max` runs of all producers; beyond it, who published longest ago keeps the last one only.
`producers_max` in a topic; beyond it, who published longest ago is forgotten, with all its numbers, and its next
message is NEW whatever its number, or EARLY. So a repeat is stored twice only if so many others published in between.
Producers with something under way are never forgotten, and may be more.

Durable form: `encode` at some message, anywhere; then `decode`, and `on_stored` for each message behind it. Messages up
to `through` may be given again. Without a snapshot, give it the topic's tail: older numbers are FORGOTTEN then.
"""

from __future__ import annotations

import enum
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from hedwig.errors import MalformedRequest, PubSubError, StaleVersion, UnexpectedCondition
from hedwig.model import LocalId
from hedwig.protocol.options import NUMBER_MAX, PREVIOUS, PRODUCER, SEQUENCE, number_of
from hedwig.wire.framing import read_varint, varint

W = TypeVar("W")

PRODUCERS_MAX = 1000
RUNS_MAX = 1024
RUNS_TOTAL_MAX = 32 * 1024
_IS_FORGOTTEN = "is older than what is remembered of this producer"

NAME_SIZE_MAX = 64
"""Bytes of a producer's name: random ones (a UUID) are well below."""


class Origin(NamedTuple):
    """Who published a message, as its how manieth, and behind which of its own; None where it does not say."""

    producer: bytes
    sequence: int
    previous: int | None = None


def origin_of(properties: Mapping[str, bytes]) -> Origin | None:
    """From a message's header; None where it says nothing of it. Raises MalformedRequest."""
    producer, sequence, previous = properties.get(PRODUCER), properties.get(SEQUENCE), properties.get(PREVIOUS)
    if producer is None and sequence is None:
        if previous is not None:
            raise MalformedRequest(f"a message has the header property {PREVIOUS} without {PRODUCER} and {SEQUENCE}")
        return None
    if producer is None or sequence is None:
        raise MalformedRequest(f"a message has one of the header properties {PRODUCER} and {SEQUENCE}: want both")
    if not 0 < len(producer) <= NAME_SIZE_MAX:
        raise MalformedRequest(
            f"the header property {PRODUCER} has {len(producer)} bytes: want from 1 to {NAME_SIZE_MAX}"
        )
    number = number_of(sequence, f"the header property {SEQUENCE}", 1, NUMBER_MAX)
    if previous is None:
        return Origin(producer, number)
    return Origin(producer, number, number_of(previous, f"the header property {PREVIOUS}", 1, number - 1))


def is_forgotten(error: Exception) -> bool:
    """Whether a hub refused a message as FORGOTTEN: its number is below those that are remembered.

    The status of that is the one of every malformed request, so its text says it. Of a producer whose numbers have no
    gaps and were published in their order it means that the message is stored.
    """
    return isinstance(error, MalformedRequest) and _IS_FORGOTTEN in str(error)


def origin_properties(origin: Origin) -> dict[str, bytes]:
    """The same, as a producer puts it into a header."""
    found = {PRODUCER: origin.producer, SEQUENCE: b"%d" % origin.sequence}
    if origin.previous is not None:
        found[PREVIOUS] = b"%d" % origin.previous
    return found


class Verdict(enum.Enum):
    """What a message is; see the module."""

    NEW = "new"
    UNDER_WAY = "under way"
    EARLY = "early"
    REPEAT = "repeat"
    SKIPPED = "skipped"
    FORGOTTEN = "forgotten"


class Judged(NamedTuple):
    """local_id: of a REPEAT, where it is."""

    verdict: Verdict
    local_id: LocalId | None = None


_NEW, _UNDER_WAY = Judged(Verdict.NEW), Judged(Verdict.UNDER_WAY)
_EARLY = Judged(Verdict.EARLY)
_SKIPPED, _FORGOTTEN = Judged(Verdict.SKIPPED), Judged(Verdict.FORGOTTEN)


@dataclass(slots=True)
class _Run:
    """Messages sequence .. sequence + count - 1, which are local_id .. local_id + count - 1."""

    sequence: int
    local_id: int
    count: int

    @property
    def end(self) -> int:
        """Behind its last number."""
        return self.sequence + self.count


class _Producer(Generic[W]):
    """Runs in order of their numbers, oldest first; under_way: numbers above all of them, and who waits for each."""

    __slots__ = ("runs", "under_way")

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.under_way: dict[int, list[W]] = {}


class Producers(Generic[W]):
    """Of one topic. W: whatever the hub keeps of a publish that waits for an answer."""

    def __init__(
        self, producers_max: int = PRODUCERS_MAX, runs_max: int = RUNS_MAX, runs_total_max: int = RUNS_TOTAL_MAX
    ) -> None:
        if producers_max < 1 or runs_max < 1:
            raise ValueError(f"producers_max {producers_max} and runs_max {runs_max} must be at least 1")
        self._producers_max, self._runs_max, self._runs_total_max = producers_max, runs_max, runs_total_max
        self._run_count = 0
        # By the last message that is stored, the longest ago first.
        self._producers: OrderedDict[bytes, _Producer[W]] = OrderedDict()
        self.through = LocalId(0)

    def __len__(self) -> int:
        return len(self._producers)

    # --- publishing

    def judge(self, origin: Origin) -> Judged:
        """What to do with it. Changes nothing."""
        known = self._producers.get(origin.producer)
        sequence, previous = origin.sequence, origin.previous
        if known is None:
            return _NEW if previous is None else _EARLY
        if known.under_way:
            if sequence in known.under_way:
                return _UNDER_WAY
            highest = next(reversed(known.under_way))
            if sequence > highest:
                return _NEW if previous is None or previous == highest else _EARLY
        elif not known.runs:
            return _NEW if previous is None else _EARLY
        elif sequence >= known.runs[-1].end:
            return _NEW if previous is None or previous == known.runs[-1].end - 1 else _EARLY
        at = bisect_right(known.runs, sequence, key=lambda run: run.sequence) - 1
        if at < 0:
            # With nothing stored, all that is known is under way, and this is not: others overtook it.
            return _FORGOTTEN if known.runs else _SKIPPED
        run = known.runs[at]
        return (
            Judged(Verdict.REPEAT, LocalId(run.local_id + sequence - run.sequence)) if sequence < run.end else _SKIPPED
        )

    def on_begun(self, origin: Origin) -> None:
        """A NEW one is being published."""
        assert self.judge(origin).verdict is Verdict.NEW
        known = self._producers.get(origin.producer)
        if known is None:
            known = self._producers[origin.producer] = _Producer()
            self._forget_some()
        known.under_way[origin.sequence] = []

    def wait(self, origin: Origin, waiter: W) -> None:
        """A repeat of what is UNDER_WAY: to be answered when the first is."""
        self._producers[origin.producer].under_way[origin.sequence].append(waiter)

    def on_durable(self, origin: Origin, local_id: LocalId) -> list[W]:
        """It is stored; who waits for it. In the order of ids."""
        waiters = self._producers[origin.producer].under_way.pop(origin.sequence)
        self.on_stored(local_id, origin)
        return waiters

    def on_failed(self, origin: Origin) -> list[W]:
        """Whether it is stored is not known: who waits for it hears the same error. The topic has to be acquired anew,
        and this made again from what is stored.
        """
        return self._producers[origin.producer].under_way.pop(origin.sequence)

    # --- what is stored

    def on_stored(self, local_id: LocalId, origin: Origin | None) -> None:
        """A message of the topic, in order; origin: None for one that says nothing of it."""
        if local_id <= self.through:
            return
        self.through = local_id
        if origin is None:
            return
        known = self._producers.get(origin.producer)
        if known is None:
            known = self._producers[origin.producer] = _Producer()
        self._producers.move_to_end(origin.producer)
        runs = known.runs
        last = runs[-1] if runs else None
        if last is None or origin.sequence > last.end or (origin.sequence == last.end and not self._follows(last)):
            runs.append(_Run(origin.sequence, local_id, 1))
            self._run_count += 1
            if len(runs) > self._runs_max:
                del runs[0]
                self._run_count -= 1
            elif self._run_count > self._runs_total_max:
                self._shorten_some(known)
        elif origin.sequence == last.end:
            last.count += 1
        # Else a hub that knows nothing of producers stored a repeat: the first one counts.
        self._forget_some()

    def _follows(self, run: _Run) -> bool:
        return run.local_id + run.count == self.through

    def _forget_some(self) -> None:
        while len(self._producers) > self._producers_max:
            newest = next(reversed(self._producers))
            idle = (name for name, each in self._producers.items() if not each.under_way and name != newest)
            oldest = next(idle, None)
            if oldest is None:
                return
            self._run_count -= len(self._producers.pop(oldest).runs)

    def _shorten_some(self, newest: _Producer[W]) -> None:
        """A quarter goes, so that it is not looked for at every message."""
        for known in self._producers.values():
            if self._run_count <= self._runs_total_max - self._runs_total_max // 4:
                return
            if known is not newest and len(known.runs) > 1:
                self._run_count -= len(known.runs) - 1
                del known.runs[:-1]

    def refusal(self, origin: Origin, verdict: Verdict) -> PubSubError:
        """What a publisher is told of an EARLY one, which may come again, and of a SKIPPED or FORGOTTEN one."""
        if verdict is Verdict.EARLY:
            return StaleVersion(
                f"message {origin.sequence} of producer {origin.producer!r} is to come behind {origin.previous}, which "
                "is not the last one of it: publish what is missing first; or, if it was answered long ago and "
                "forgotten since, begin anew under another name"
            )
        known = self._producers[origin.producer]
        highest = next(reversed(known.under_way)) if known.under_way else known.runs[-1].end - 1
        if verdict is Verdict.SKIPPED:
            why = f"was not published before {highest} of the same producer, and would now come behind it"
            remedy = "publish in the order of numbers, or under another producer's name"
        else:
            why = f"{_IS_FORGOTTEN}, {known.runs[0].sequence} to {highest}"
            remedy = "whether it was published is to be seen in the topic"
        return MalformedRequest(f"message {origin.sequence} of producer {origin.producer!r} {why}: {remedy}")

    # --- durable form
    #
    # "HP" | format u8 | varints: through, count of producers, then for each, longest ago first:
    #     size of name | name | count of runs | runs: sequence and local id less the end of the run before, count

    def encode(self, runs_max: int | None = None) -> bytes:
        """What is stored up to `through`. runs_max: only the newest of each producer, for a smaller one."""
        stored = [(name, known.runs) for name, known in self._producers.items() if known.runs]
        out = [_HEADER, varint(self.through), varint(len(stored))]
        for name, runs in stored:
            if runs_max is not None:
                runs = runs[-runs_max:]
            out += [varint(len(name)), name, varint(len(runs))]
            sequence_end = local_end = 0
            for run in runs:
                out += [varint(run.sequence - sequence_end), varint(run.local_id - local_end), varint(run.count)]
                sequence_end, local_end = run.end, run.local_id + run.count
        return b"".join(out)

    @classmethod
    def decode(
        cls, data: bytes, producers_max: int = PRODUCERS_MAX, runs_max: int = RUNS_MAX, *, where: str = "a snapshot"
    ) -> Producers[W]:
        """Of the bounds that are given now. Raises UnexpectedCondition, naming `where` it was read."""
        found = cls(producers_max, runs_max)
        try:
            found._read(data)
        except (IndexError, ValueError) as error:
            raise UnexpectedCondition(f"{where} of producers cannot be read: {error}") from error
        return found

    def _read(self, data: bytes) -> None:
        if data[: len(_HEADER)] != _HEADER:
            raise ValueError(f"it begins with {data[: len(_HEADER)].hex()}, not {_HEADER.hex()}")
        position = len(_HEADER)
        through, position = read_varint(data, position)
        count, position = read_varint(data, position)
        for _ in range(count):
            size, position = read_varint(data, position)
            name, position = data[position : position + size], position + size
            run_count, position = read_varint(data, position)
            if not 0 < len(name) == size <= NAME_SIZE_MAX or name in self._producers or not run_count:
                raise ValueError(f"the name of a producer is wrong before byte {position}")
            known: _Producer[W] = _Producer()
            sequence = local_id = 0
            for _ in range(run_count):
                sequence_step, position = read_varint(data, position)
                local_step, position = read_varint(data, position)
                length, position = read_varint(data, position)
                known.runs.append(_Run(sequence + sequence_step, local_id + local_step, length))
                sequence, local_id = known.runs[-1].end, known.runs[-1].local_id + length
                if not length or not known.runs[-1].sequence or local_id > through + 1:
                    raise ValueError(f"a run of messages is wrong before byte {position}")
            del known.runs[: -self._runs_max]
            self._producers[name] = known
            self._run_count += len(known.runs)
        if position != len(data):
            raise ValueError(f"{len(data)} bytes, of which {position} mean something")
        self.through = LocalId(through)
        while len(self._producers) > self._producers_max:
            self._run_count -= len(self._producers.popitem(last=False)[1].runs)


_HEADER = struct.pack(">2sB", b"HP", 1)
