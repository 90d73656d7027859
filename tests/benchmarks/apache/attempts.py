"""One attempt at a round: its sides in their order, a line for each, until one fails."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.benchmarks.apache.records import Named, Record, Records, Round, next_attempt

AnySide = TypeVar("AnySide", bound=Named)


class AttemptFailed(Exception):
    """The message says why. side: whose fault it is, where that is not the one that was measured."""

    def __init__(self, why: str, side: Named | None = None) -> None:
        super().__init__(why)
        self.side = side


def carry_out(
    records: Records, each: Round, sides: Sequence[AnySide], seconds: float, measure: Callable[[AnySide], Record]
) -> list[Record]:
    """The lines of the next attempt at a round, none if it needs no more; they are in the records too.

    sides: those of the round. measure: the figures of one; raises AttemptFailed.
    """
    attempt = next_attempt(records.all, each)
    if attempt is None:
        return []
    lines: list[Record] = []
    for order, side in enumerate(sides):
        line: Record = {
            "cell": each.cell.name,
            "side": side.name,
            "repetition": each.repetition,
            "attempt": attempt,
            "order": order,
            "seconds": seconds,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        try:
            line |= {"kind": "measured", **measure(side)}
        except AttemptFailed as failure:
            line |= {"kind": "failed", "side": (failure.side or side).name, "error": str(failure)}
        records.add(line)
        lines.append(line)
        if line["kind"] == "failed":
            break
    return lines
