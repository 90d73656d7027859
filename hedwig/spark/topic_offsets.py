"""How far a stream over topics has come, and how much further one micro-batch takes it. Pure.

    {"news": 501, "sport": 77}     of each topic the id of the next message

Ids only grow, so from two such positions follows which messages lie between, whatever happened since. A topic that
stands nowhere (option subscribe names it since) gets a number, that of the oldest message that is kept, and is read
from the next micro-batch on; one that is not read any more keeps its number. Spark compares positions as text: the same
one is always the same dict in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.options.limits import Limits, within
from hedwig.model import FIRST_ID

Offset = dict[str, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """Messages first..end - 1 of a topic may be read now. mean_size: bytes of one, on average; 0.0: not known."""

    first: int
    end: int
    mean_size: float


def offset_of(positions: Mapping[str, int]) -> Offset:
    """As Spark keeps it."""
    return {topic: positions[topic] for topic in sorted(positions)}


def read_offset(offset: object, topics: Iterable[str]) -> Offset:
    """Read it back. Raises InvalidArgument for what is no such position, or one of other topics alone."""
    wrong = None
    if not isinstance(offset, Mapping) or not all(_is_position(*each) for each in offset.items()):
        wrong = "is no position of a stream over topics"
    elif offset and not set(offset) & set(topics):
        wrong = f"names none of the topics {', '.join(topics)}"
    if wrong is not None:
        raise InvalidArgument(
            f"the checkpoint holds {offset!r}, which {wrong}; it belongs to another query: use another "
            "checkpointLocation"
        )
    assert isinstance(offset, Mapping)
    return offset_of(offset)


def _is_position(topic: object, position: object) -> bool:
    return isinstance(topic, str) and type(position) is int and position >= FIRST_ID


def advance(start: Mapping[str, int], seen: Mapping[str, Seen], limits: Limits) -> Offset:
    """How far the next micro-batch goes: to what is seen, within the limits, never back.

    Topics share a limit in proportion to what each has left. One that `start` does not know gets its place only: what
    a micro-batch holds must not depend on what was kept when it was planned.
    """
    begin = {topic: max(start[topic], now.first) for topic, now in seen.items() if topic in start}
    left = {topic: seen[topic].end - at for topic, at in begin.items() if seen[topic].end > at}
    counts = within(left, {topic: seen[topic].mean_size for topic in left}, limits)
    reached = {topic: begin[topic] + count for topic, count in counts.items() if count}
    return offset_of({**{topic: now.first for topic, now in seen.items()}, **start, **reached})


def between(start: Mapping[str, int], end: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """What lies between two positions: of each topic the first message, and one past the last.

    Raises InvalidArgument where `end` is before `start`.
    """
    found: dict[str, tuple[int, int]] = {}
    for topic, stop in end.items():
        first = start.get(topic, stop)
        if stop < first:
            raise InvalidArgument(
                f"topic {topic!r} was read up to message {first - 1} and the next position is {stop}: the checkpoint "
                "of this query was changed, or is another's"
            )
        if first < stop:
            found[topic] = (first, stop)
    return found
