"""All states of the stories, or every n-th, examined on all cores; failures by their ids.

A story is told once in each process that works on it; the states at its points share what they can.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

from twisted.logger import globalLogBeginner

from tests.crashpoints.enumeration import State, choices_at, points_of, state_at, states_at
from tests.crashpoints.examination import examine
from tests.crashpoints.failures import Call, calls_of, failed
from tests.crashpoints.oracle import Violation
from tests.crashpoints.stories import STORIES
from tests.crashpoints.story import Story

SHARDS = 16
"""Parts of a story that are given out to processes, each with every 16th of its operations."""

FAILURES_SHOWN_MAX = 40


@dataclass(slots=True)
class Tally:
    """What became of the states of a story. failures: ids and reasons."""

    story: str
    operations: int = 0
    states: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def take(self, other: Tally) -> None:
        """Add those of another part."""
        self.operations += other.operations
        self.states += other.states
        self.failures += other.failures
        self.seconds += other.seconds


@dataclass(frozen=True, slots=True)
class Part:
    """every: only each such state, from `offset` on."""

    story: str
    shard: int = 0
    shards: int = 1
    every: int = 1
    offset: int = 0


def story_named(name: str) -> Story:
    """Raises KeyError for an unknown one."""
    return {story.name: story for story in STORIES}[name]


def examine_part(part: Part) -> Tally:
    """One part of a story, in this process."""
    begun = time.monotonic()
    story = story_named(part.story)
    tally = Tally(part.story)
    for attempt in _attempts(story, part, tally):
        tally.states += 1
        reason = attempt.examine(story)
        if reason is not None:
            tally.failures.append((attempt.id, reason))
    tally.seconds = time.monotonic() - begun
    return tally


@dataclass(frozen=True, slots=True)
class Attempt:
    """Something to be examined: a state, or the failure of a call."""

    id: str
    state: State | None = None
    call: Call | None = None
    kind: str = ""

    def examine(self, story: Story) -> str | None:
        """Why it fails, None when it passes."""
        try:
            state = self.state
            if state is None:
                assert self.call is not None
                state = failed(story, self.call, self.kind)
            examine(story, state)
        except Violation as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the state's fault, and the others go on
            return f"{type(error).__name__}: {error}"
        return None


def _attempts(story: Story, part: Part, tally: Tally) -> Iterator[Attempt]:
    chosen = partial(next, cycle([False] * (part.every - 1) + [True]))
    for _ in range(part.offset % part.every):
        chosen()
    points, events = points_of(story)
    for point in points[part.shard :: part.shards]:
        tally.operations += 1
        if part.every == 1:
            yield from (Attempt(state.id, state) for state in states_at(story, point, events))
            continue
        for choice in choices_at(point):
            if chosen():
                state = state_at(story, point, events, choice)
                yield Attempt(state.id, state)
    for call in calls_of(story)[part.shard :: part.shards]:
        for kind in call.kinds:
            if chosen():
                yield Attempt(f"{story.name}:{call.name}:{kind}", call=call, kind=kind)


def examine_one(id: str) -> str | None:
    """A single state by its id; why it fails, None when it passes. Raises KeyError when no story has it."""
    story_name, _, rest = id.partition(":")
    name, _, choice = rest.rpartition(":")
    story = story_named(story_name)
    points, events = points_of(story)
    for point in points:
        if point.name == name and choice in choices_at(point):
            return Attempt(id, state_at(story, point, events, choice)).examine(story)
    for call in calls_of(story):
        if call.name == name and choice in call.kinds:
            return Attempt(id, call=call, kind=choice).examine(story)
    raise KeyError(id)


def sweep(names: Sequence[str], *, every: int, processes: int) -> Iterator[Tally]:
    """Every story as a whole, one after the other, as they get done."""
    with multiprocessing.get_context("spawn").Pool(processes, keep_quiet) as pool:
        running = [
            pool.map_async(examine_part, [Part(name, shard, SHARDS, every, shard) for shard in range(SHARDS)], 1)
            for name in names
        ]
        for name, parts in zip(names, running, strict=True):
            whole = Tally(name)
            for tally in parts.get():
                whole.take(tally)
            yield whole


def keep_quiet() -> None:
    """No log of what bookies say of their disks."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
