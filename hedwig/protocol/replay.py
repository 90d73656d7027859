"""Where to begin again: at a message, or at a time. Pure: whoever asks reads the messages that are asked for.

By time: the first message that was published at the time or later. None of those is left out; but more comes than was
asked for, where messages do not say when they were published (stored by hubs that know nothing of it). With only such
messages, it is the whole ledger that was being written at that time, by the clocks of the hubs.

Creation times of ledgers are of those clocks, so otherwise they only say where to look first: what counts are the times
in the messages, which never go back in a topic (publish_time.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hedwig.model import LocalId
from hedwig.protocol.retention import LedgerFacts

Plan: TypeAlias = Generator[LocalId, int | None, LocalId]
"""Yields a message's id, wants to be sent its publish time (None where it does not say), and returns a position."""


@dataclass(frozen=True, slots=True)
class Begin:
    """next_id: the first to be delivered. lost: how many that were asked for are not kept any more."""

    next_id: LocalId
    lost: int = 0


def at_id(wanted: LocalId, first: LocalId, durable: LocalId) -> Begin:
    """At a message; one in the future means: what comes next. first: the oldest that is kept."""
    next_id = LocalId(min(max(wanted, first), durable + 1))
    return Begin(next_id, max(0, next_id - wanted))


def at_time(ledgers: Sequence[LedgerFacts], durable: LocalId, time_ms: int) -> Plan:
    """At a time; behind the last message if all are older. ledgers: those that are kept, in order.

    Reads about two messages of each ledger it looks at, which is one where clocks agree, and the logarithm of its
    length. Where no ledger says when it was made, also the logarithm of their number.
    """
    spans = [
        (each.range.first, LocalId(min(durable, durable if each.range.last is None else each.range.last.local)))
        for each in ledgers
    ]
    found = [(first, last, each) for (first, last), each in zip(spans, ledgers, strict=True) if first and first <= last]
    if not found:
        return LocalId(durable + 1)
    if any(each.created_ms is not None for _, _, each in found):
        at = _created_before([each.created_ms for _, _, each in found], time_ms)
    else:
        at = yield from _begun_before([first for first, _, _ in found], time_ms)
    # Back, where the ledger begins at or after the time, by its own messages: a hub's clock was behind. All that is in
    # it is asked for then, and what is before it may be.
    while at > 0:
        said = yield found[at][0]
        if said is not None and said < time_ms:
            break
        if said is None and _is_before(found[at][2].created_ms, time_ms):
            break  # what is before was published before it was made, or in the same millisecond
        at -= 1
    while at < len(found):
        first, last, _ = found[at]
        position = yield from _in_ledger(first, last, time_ms)
        if position <= last:
            return position
        at += 1  # all of it is older
    return LocalId(found[-1][1] + 1)


def _is_before(created_ms: int | None, time_ms: int) -> bool:
    return created_ms is not None and created_ms < time_ms


def _created_before(created_ms: Sequence[int | None], time_ms: int) -> int:
    """The last ledger that was made before the time; 0 if none was, or nothing is known."""
    return max((index for index, each in enumerate(created_ms) if _is_before(each, time_ms)), default=0)


def _begun_before(firsts: Sequence[LocalId], time_ms: int) -> Generator[LocalId, int | None, int]:
    """The last ledger whose first message is known to be older; 0 if none is. All before it is older too."""
    low, high = 0, len(firsts)
    while low < high:
        middle = (low + high) // 2
        said = yield firsts[middle]
        if said is not None and said < time_ms:
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


def _in_ledger(first: LocalId, last: LocalId, time_ms: int) -> Plan:
    """The first of first..last that is not known to be older; last + 1 if all are.

    A message that says nothing may be later; one that says an older time has only older ones before it.
    """
    low, high = first, LocalId(last + 1)
    while low < high:
        middle = LocalId((low + high) // 2)
        said = yield middle
        if said is not None and said < time_ms:
            low = LocalId(middle + 1)
        else:
            high = middle
    return low


def run_plan(plan: Plan, read: Callable[[LocalId], int | None]) -> LocalId:
    """For readers that answer at once."""
    try:
        wanted = next(plan)
        while True:
            wanted = plan.send(read(wanted))
    except StopIteration as stop:
        position: LocalId = stop.value
        return position
