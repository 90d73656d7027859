"""Pure: the measurements of `hedwig perf`, by name, and what a row of their figures says.

publish:TOPICSxOUTSTANDING              answers to publishes a second
deliver:TOPICSxSUBSCRIBERSxOUTSTANDING  deliveries a second while so many publishes are outstanding
paced:PER_S                             deliveries of one topic at a rate, one subscriber
drain:TOPICS                            a backlog, by one subscriber of each topic
acquire                                 new topics with a subscription
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bookkeeper.errors import InvalidArgument

DRAINED = 20_000
ACQUIRED_AT_ONCE = 100
PACE = 12_000


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement."""

    kind: str
    topics: int = 1
    outstanding: int = 1
    subscribers: int = 1
    per_s: int = 0

    @property
    def name(self) -> str:
        """As `parse_cell` takes it."""
        match self.kind:
            case "publish":
                return f"publish:{self.topics}x{self.outstanding}"
            case "deliver":
                return f"deliver:{self.topics}x{self.subscribers}x{self.outstanding}"
            case "paced":
                return f"paced:{self.per_s}"
            case "drain":
                return f"drain:{self.topics}"
        return self.kind


def parse_cell(text: str) -> Cell:
    """The inverse of its name. Raises InvalidArgument."""
    kind, _, shape = text.partition(":")
    try:
        numbers = [int(part) for part in shape.split("x")] if shape else []
    except ValueError:
        numbers = [0]
    if all(number > 0 for number in numbers):
        match kind, numbers:
            case "publish", [topics, outstanding]:
                return Cell(kind, topics, outstanding)
            case "deliver", [topics, subscribers, outstanding]:
                return Cell(kind, topics, outstanding, subscribers)
            case "paced", [per_s]:
                return Cell(kind, per_s=per_s)
            case "drain", [topics]:
                return Cell(kind, topics)
            case "acquire", []:
                return Cell(kind, outstanding=ACQUIRED_AT_ONCE)
    raise InvalidArgument(
        f"{text!r} is no measurement: want publish:TOPICSxOUTSTANDING, deliver:TOPICSxSUBSCRIBERSxOUTSTANDING, "
        "paced:PER_S, drain:TOPICS or acquire"
    )


def cells(topics: Sequence[int], subscribers: Sequence[int], outstanding: Sequence[int]) -> list[Cell]:
    """The usual ones."""
    return [
        *(Cell("publish", count, window) for count in topics for window in outstanding),
        *(Cell("deliver", count, window, each) for count in topics for each in subscribers for window in outstanding),
        Cell("paced", per_s=PACE),
        *(Cell("drain", count) for count in topics if count <= DRAINED),
        Cell("acquire", outstanding=ACQUIRED_AT_ONCE),
    ]
