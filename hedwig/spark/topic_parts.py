"""Which ledgers hold which messages of a topic, as data frames see it. Pure.

    ledgers    [ 1 .. 1000 ] [ 1001 .. 2300 ] [ 2301 ..          the last one still written, known to a confirmed end
    asked for        [ 700 ..................... 2350 )
    parts            [700..1000] [1001..2300] [2301..2349]        entry = id - id of the ledger's first message

Ids of messages are the offsets of data frames: 1 is a topic's first. Ranges asked for end before their second number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bookkeeper.errors import InvalidArgument
from hedwig.errors import UnexpectedCondition
from hedwig.model import FIRST_ID, LedgerRange


@dataclass(frozen=True, slots=True)
class TopicPart:
    """Messages first..last of a topic, both included, in one ledger. base: the id of the message in its entry 0."""

    topic: str
    ledger_id: int
    base: int
    first: int
    last: int

    @property
    def first_entry_id(self) -> int:
        """Where the first of them is."""
        return self.first - self.base

    @property
    def last_entry_id(self) -> int:
        """Where the last of them is."""
        return self.last - self.base


@dataclass(frozen=True, slots=True)
class Kept:
    """What is there of a topic. ranges: its ledgers, in order, each with its first id. end: one past the last message
    that may be read. final: the last ledger is ended, so a later look sees no less. lost_from: the newest ledger is
    gone, which is borne: messages from there on are lost, and nobody knows how many there were. unconfirmed: text
    that names messages from `end` on that may be acknowledged; None if there are none, or if they were not looked for.
    """

    topic: str
    ranges: tuple[LedgerRange, ...]
    end: int
    final: bool
    lost_from: int | None = None
    unconfirmed: str | None = None

    @property
    def first(self) -> int:
        """Of the oldest message that is kept, or will be."""
        return (self.ranges[0].first or FIRST_ID) if self.ranges else self.end

    def check_reached(self, position: int) -> None:
        """Raise InvalidArgument where a query cannot have come to `position`: it is another topic of this name.

        While a ledger is written an older look may show less than was seen before; then nothing is said. Nor where the
        newest ledger is gone: it may have had the messages before the position.
        """
        if position > self.end and self.lost_from is None and (self.final or not self.ranges):
            raise self.is_another(position)

    def is_another(self, position: int) -> InvalidArgument:
        """It is not the topic in which a query came to `position`, which is behind its end."""
        return _made_anew(f"topic {self.topic!r} ends with message {self.end - 1}, and the query is at {position}")


def _made_anew(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"{what}: the topic was deleted and made anew, or the checkpoint is of another cluster; begin with a new "
        "checkpoint"
    )


def parts_of(kept: Kept, start: int, stop: int) -> list[TopicPart]:
    """Who holds messages start..stop - 1, of those that are kept. Raises InvalidArgument where that is beyond the end.

    An open ledger is taken to hold what is asked for: whoever asks has seen it confirmed. So is a newest one that is
    gone, whose messages are lost.
    """
    found: list[TopicPart] = []
    for each in kept.ranges:
        base = each.first or FIRST_ID
        last = stop - 1 if each.last is None else min(stop - 1, each.last.local)
        first = max(start, base)
        if first <= last:
            found.append(TopicPart(kept.topic, each.ledger_id, base, first, last))
    reached = kept.end
    if kept.ranges:
        end = kept.ranges[-1].last
        reached = stop if end is None else end.local + 1
    if max(start, reached) < stop and kept.lost_from is None:
        raise InvalidArgument(
            f"topic {kept.topic!r} was to be read up to message {stop - 1} and ends with {reached - 1}: "
            "is the checkpoint, or the position, of another topic or cluster?"
        )
    return found


def lost_of(kept: Kept, start: int, stop: int) -> list[tuple[int, int]]:
    """Which of messages start..stop - 1 no ledger has, first and last of each run.

    They were trimmed, or are missing between two ledgers, or went with the newest one.
    """
    found: list[tuple[int, int]] = []
    wanted = max(start, FIRST_ID)
    for each in kept.ranges:
        last = min(stop, each.first or FIRST_ID) - 1
        if wanted <= last:
            found.append((wanted, last))
        wanted = max(wanted, stop if each.last is None else each.last.local + 1)
    end = stop
    if kept.lost_from is None:
        end = wanted if kept.ranges else min(stop, kept.end)
    if wanted < end:
        found.append((wanted, end - 1))
    return found


def check_chain(topic: str, ranges: Sequence[LedgerRange]) -> None:
    """Raise UnexpectedCondition where two ledgers claim the same messages: which of them is read is not ours to guess.

    The hub refuses to serve such a topic, too; it also refuses gaps (I-91), which here are data loss.
    """
    for before, after in pairwise(ranges):
        first = after.first or FIRST_ID
        if before.last is None or first <= before.last.local:
            end = "has no end" if before.last is None else f"ends with {before.last.local}"
            raise UnexpectedCondition(
                f"topic {topic!r}: ledger {after.ledger_id} begins at message {first}, and the one before, "
                f"{before.ledger_id}, {end}: messages would be there twice; restore the topic's list of ledgers"
            )


def check_same(topic: str, ranges: Sequence[LedgerRange], message_id: int, ledger_id: int) -> None:
    """Raise InvalidArgument unless a message is in the ledger in which it was seen before, or was deleted since.

    A message stays in its ledger: where another one has it, it is another message.
    """
    holder = next((each for each in reversed(ranges) if (each.first or FIRST_ID) <= message_id), None)
    is_trimmed = holder is None and bool(ranges)
    if not is_trimmed and (holder is None or holder.ledger_id != ledger_id):
        now = "is not there any more" if holder is None else f"would now be in ledger {holder.ledger_id}"
        raise _made_anew(f"topic {topic!r}: message {message_id} was seen in ledger {ledger_id}, and {now}")


def loss_text(topic: str, first: int, last: int) -> str:
    """What is said of them."""
    return f"messages {first} to {last} of topic {topic!r} were to be read and are not kept any more"


@dataclass(slots=True)
class Search:
    """Where messages begin that say a time at or after one: those below low are older, those from high on are not.

    Who searches counts what says no time as older: an end in time leaves nothing out that may be before it.
    """

    low: int
    high: int

    @property
    def ask(self) -> int | None:
        """The next message to look at; None: `low` is the first that is not older."""
        return (self.low + self.high) // 2 if self.low < self.high else None

    def tell(self, *, is_older: bool) -> None:
        """What was found of `ask`."""
        middle = (self.low + self.high) // 2
        if is_older:
            self.low = middle + 1
        else:
            self.high = middle
