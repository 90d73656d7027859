"""What is asked of topics: which windows, by which clock, and when they are told. Pure.

A window is [start, start + length), in whole seconds, aligned to 1970-01-01 00:00 UTC. Its messages are told by one of
two clocks, which the column `clock` names:

    published   the time that the hub wrote into the message when it stored it (`hw.time`); in a topic it never goes
                back
    read        the time of the micro-batch that read the message: of one that says no time (stored by a hub of another
                make), or of all, if that is asked for. Such a window says when this query read, and no more

When windows are told:

    final       each once, when it is certain that nothing more comes: the newest message of all topics is `delay_s`
                later than its end. What comes later still is left out, and counted
    changed     whenever they have changed, with what they have so far; the row of the last micro-batch counts

What is remembered of windows is as much as `delay_s` and one window: not more with the time.

A checkpoint keeps the question, beside what Spark keeps there, so that another one is not mixed into its windows:

    {"clock":"published","emit":"final","format":1,"id":"32 hexadecimal digits","length_s":60}
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bookkeeper.errors import ConfigurationError
from bookkeeper.texts import parse_json

FORMAT = 1

LENGTH_MAX_S = 366 * 86400
"""Of a window, and of the delay."""


class Clock(enum.Enum):
    """By which time messages are put into windows."""

    PUBLISHED = "published"
    READ = "read"


class Emit(enum.Enum):
    """When windows are told."""

    FINAL = "final"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Windows:
    """The question. Raises ConfigurationError for what no window can be."""

    length_s: int = 60
    delay_s: int = 60
    clock: Clock = Clock.PUBLISHED
    emit: Emit = Emit.FINAL

    def __post_init__(self) -> None:
        if not 1 <= self.length_s <= LENGTH_MAX_S:
            raise ConfigurationError(f"a window of {self.length_s} s: want 1 to {LENGTH_MAX_S}")
        if not 0 <= self.delay_s <= LENGTH_MAX_S:
            raise ConfigurationError(f"a delay of {self.delay_s} s: want 0 to {LENGTH_MAX_S}")


def format_question(windows: Windows, query_id: str) -> str:
    """As a checkpoint keeps it."""
    fields = {
        "clock": windows.clock.value,
        "emit": windows.emit.value,
        "format": FORMAT,
        "id": query_id,
        "length_s": windows.length_s,
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def query_of(text: str, windows: Windows, checkpoint: str) -> str:
    """The id of the query that a checkpoint belongs to.

    Raises ConfigurationError where the text is none of ours, or what was asked then is not what is asked now.
    """
    try:
        found = parse_json(text)
        version, query_id = found["format"], found["id"]
    except (ValueError, KeyError, TypeError):
        found, version, query_id = {}, None, None
    if version != FORMAT or not isinstance(query_id, str):
        raise ConfigurationError(
            f"checkpoint {checkpoint} says {text:.100}, which this release cannot read: it is of another release, or "
            "of another query; use another checkpoint"
        )
    now: dict[str, Any] = parse_json(format_question(windows, query_id))
    other = [f"{name} {found.get(name)} (now {now[name]})" for name in sorted(now) if found.get(name) != now[name]]
    if other:
        raise ConfigurationError(
            f"checkpoint {checkpoint} belongs to another query: {', '.join(other)}. Ask the same, or use another "
            "checkpoint and another output"
        )
    return query_id


def nameable(topics: Iterable[str]) -> tuple[list[str], list[str]]:
    """Which topics can be named in a list with commas, ascending; and which cannot."""
    fit: list[str] = []
    others: list[str] = []
    for topic in sorted(topics):
        (others if "," in topic or topic != topic.strip() else fit).append(topic)
    return fit, others


class Totals:
    """What a query has done so far, from what Spark tells of its micro-batches; told again, one counts once.

    messages: read. late: parts of windows that came when their window had been told, and are in none.
    """

    def __init__(self) -> None:
        self.messages = self.late = 0
        self._last: tuple[object, ...] | None = None

    def note(self, told: Iterable[Mapping[str, Any]]) -> None:
        """What Spark remembers of the newest micro-batches, in their order."""
        told = list(told)
        known = [(each["runId"], each["batchId"], each["timestamp"]) for each in told]
        after = known.index(self._last) + 1 if self._last in known else 0
        for each in told[after:]:
            self.messages += each.get("numInputRows") or 0
            self.late += sum(state.get("numRowsDroppedByWatermark") or 0 for state in each.get("stateOperators") or ())
        if known:
            self._last = known[-1]
