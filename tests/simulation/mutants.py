"""Bugs planted on purpose: each takes one guard out of the real code, and the campaign must notice.

A guard is only proven if the promise breaks without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from bookkeeper.bookie.gc.tombstone_file import TombstoneFile
from bookkeeper.bookie.journal.format import fence_record
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.bookie.requests.fence import LedgerAccess
from bookkeeper.protocol.reads import RangeRead
from tests.support.simulated_clock import SimulatedProcess

TIMERS = "timers follow the wall clock"


@contextmanager
def answer_before_the_sync() -> Iterator[None]:
    """I-47: the journal says "durable" as soon as a record is queued."""
    append = Journal.append

    def hasty(
        self: Journal,
        parts: Sequence[bytes],
        size: int,
        on_durable: Callable[[BaseException | None], None],
        record_count: int = 1,
        *,
        deferred: bool = False,
    ) -> None:
        append(self, parts, size, lambda _error: None, record_count, deferred=deferred)
        self._clock.callLater(0.0, on_durable, None)

    with mock.patch.object(Journal, "append", hasty):
        yield


@contextmanager
def recovery_ends_on_one_negative() -> Iterator[None]:
    """I-30: one bookie without the entry is enough for recovery to end the ledger before it."""
    init = RangeRead.__init__

    def credulous(self: RangeRead[Any], *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._negatives_needed = 1

    with mock.patch.object(RangeRead, "__init__", credulous):
        yield


@contextmanager
def fence_not_durable() -> Iterator[None]:
    """I-23: a fencing request is answered although the fence is only in memory, and it never reaches the journal."""
    from bookkeeper.bookie.requests import reads as module

    def unwritten(self: LedgerAccess, ledger_id: int, call: Callable[[], None]) -> None:
        call()

    def of_another_ledger(ledger_id: int) -> bytes:
        return fence_record(ledger_id + (1 << 40))

    with (
        mock.patch.object(LedgerAccess, "when_durable", unwritten),
        mock.patch.object(module, "fence_record", of_another_ledger),
    ):
        yield


@contextmanager
def no_tombstones() -> Iterator[None]:
    """I-04: a ledger that was fenced and deleted leaves nothing behind that would refuse its old writer."""
    with mock.patch.object(TombstoneFile, "get", return_value=None):
        yield


OUTSIDE = ("Simulated", "HostNetwork", "_Connection", "MemorySession")
"""Disks, links and the metadata store of the simulation: what they do is not timed by a reactor."""


@contextmanager
def timers_follow_the_wall_clock() -> Iterator[None]:
    """Timers are set by the wall clock, as Twisted's reactors set them: a step moves all that is scheduled."""
    step = SimulatedProcess.step_wall

    def stepped(self: SimulatedProcess, by_s: float) -> None:
        step(self, by_s)
        now_s = self.shared_clock.seconds()
        for timer in self.shared_clock.pending(self):
            if not timer.description.startswith(OUTSIDE):
                timer.reset(max(0.0, timer.due - now_s - by_s))

    with mock.patch.object(SimulatedProcess, "step_wall", stepped):
        yield


MUTANTS = {
    "answer before the sync": answer_before_the_sync,
    "recovery ends on one negative": recovery_ends_on_one_negative,
    "fence not durable": fence_not_durable,
    "no tombstones": no_tombstones,
    TIMERS: timers_follow_the_wall_clock,
}
