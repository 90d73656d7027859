"""Is a journal whole? Every segment is read to its end, and what is wrong comes out as values.

    chain of segments     no gap, no overlap, only the last one in progress          findings_of_chain, pure
    each segment          every checksum, every txid, the recorded end               the segment's own reader
    its container         what the medium knows besides, as a ledger's state         SegmentAccess.check

Nothing is changed, nobody is fenced. A journal that is written meanwhile is judged fairly: a segment that was purged or
finalised while it was read is looked at again as it is listed then. "Could not be asked" is a finding of its own, never
taken for health or for damage.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bookkeeper.errors import BookKeeperError
from journalmgr.contract import JournalManager, SegmentReader
from journalmgr.errors import (
    EditsCorrupt,
    GapInTransactions,
    JournalClosed,
    NotFormatted,
    SegmentConflict,
    SegmentUnreadable,
    UnknownOp,
)
from journalmgr.model import Segment, TxId


class Problem(enum.Enum):
    """What kind of thing is wrong."""

    LIST = "list unreadable"
    GAP = "gap"
    OVERLAP = "overlap"
    LEFT_OPEN = "left in progress"
    DAMAGED = "damaged"
    ENDS_ELSEWHERE = "ends elsewhere"
    UNREADABLE = "unreadable"
    LEDGER_OPEN = "ledger not closed"
    ORPHAN = "orphan ledger"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. text: what, and what to do."""

    problem: Problem
    text: str
    segment: Segment | None = None
    ledger_id: int | None = None


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found.

    last_txid: the last transaction read, those of a segment in progress as far as they are confirmed. in_progress: the
    last segment, if it is.
    """

    segments: int = 0
    transactions: int = 0
    size: int = 0
    first_txid: TxId | None = None
    last_txid: TxId | None = None
    in_progress: Segment | None = None
    findings: list[Finding] = field(default_factory=list)


class SegmentAccess(Protocol):
    """How single segments are looked at, without changing anything."""

    async def open(self, segment: Segment) -> SegmentReader | None:
        """From its first transaction on; None for one in progress of which nothing is confirmed yet."""

    async def check(self, segment: Segment) -> list[Finding]:
        """What is wrong besides what its reader tells."""


class StreamAccess:
    """Segments by the streams that a journal gives out: for every kind of journal, and the only one for most."""

    def __init__(self, journal: JournalManager) -> None:
        self._journal = journal
        self._readers: dict[Segment, SegmentReader] = {}

    async def open(self, segment: Segment) -> SegmentReader | None:
        """See SegmentAccess. A journal opens all streams to its end at once; those are kept for the next calls."""
        if segment not in self._readers:
            await self.close()
            readers = await self._journal.select_input_streams(segment.first_txid, in_progress_ok=True)
            self._readers = {reader.segment: reader for reader in readers}
        return self._readers.pop(segment, None)

    async def check(self, segment: Segment) -> list[Finding]:
        """See SegmentAccess."""
        return []

    async def close(self) -> None:
        """Let go of streams that were not asked for."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            await reader.close()


async def verify(
    journal: JournalManager,
    access: SegmentAccess | None = None,
    *,
    on_progress: Callable[[int], object] | None = None,
) -> Report:
    """Read everything. on_progress: called with the transactions read so far. Raises NotFormatted, JournalClosed."""
    report = Report()
    try:
        segments = await journal.segments()
    except (NotFormatted, JournalClosed):
        raise
    except BookKeeperError as error:
        problem = Problem.NOT_CHECKED if error.retriable else Problem.LIST
        report.findings.append(Finding(problem, f"the list of segments cannot be read: {error}"))
        return report
    streams = StreamAccess(journal)
    checking = _Checking(journal, access or streams, report, on_progress)
    seen: list[Segment] = []
    try:
        for segment in segments:
            current = await checking.check(segment)
            if current is not None:
                seen.append(current)
    finally:
        await streams.close()
    report.segments = len(seen)
    report.findings += findings_of_chain(seen)
    if seen:
        report.first_txid = seen[0].first_txid
        report.in_progress = seen[-1] if seen[-1].in_progress else None
    return report


def findings_of_chain(segments: Sequence[Segment]) -> list[Finding]:
    """What is wrong with the list itself: txids are consecutive over all segments (I-81). Pure."""
    findings = []
    for before, after in itertools.pairwise(segments):
        if before.last_txid is None:
            findings.append(
                Finding(
                    Problem.LEFT_OPEN,
                    f"segment {before} is in progress, and segment {after} begins behind it: its writer died; recovery "
                    "finalises it",
                    before,
                )
            )
        elif after.first_txid > before.last_txid + 1:
            findings.append(
                Finding(
                    Problem.GAP,
                    f"txids {before.last_txid + 1}..{after.first_txid - 1} are in no segment: they lie between "
                    f"{before} and {after}; look for them in another copy of the journal",
                    after,
                )
            )
        elif after.first_txid <= before.last_txid:
            findings.append(
                Finding(
                    Problem.OVERLAP,
                    f"segment {after} begins within segment {before}: find out which of them has the right "
                    "transactions before anything is removed",
                    after,
                )
            )
    return findings


class _Checking:
    """One run over the segments."""

    def __init__(
        self,
        journal: JournalManager,
        access: SegmentAccess,
        report: Report,
        on_progress: Callable[[int], object] | None,
    ) -> None:
        self._journal, self._access, self._report = journal, access, report
        self._on_progress = on_progress or (lambda _: None)

    async def check(self, segment: Segment) -> Segment | None:
        """Look at one; the segment as it is listed in the end, or None where it was removed meanwhile."""
        read = self._report.transactions
        size = self._report.size
        findings = await self._findings(segment)
        if findings or (segment.in_progress and self._report.transactions == read):
            now = await self._listed_now(segment)
            if now != segment:
                self._report.transactions, self._report.size = read, size
                if now is None:
                    return None
                segment, findings = now, await self._findings(now)
        self._report.findings += findings
        return segment

    async def _listed_now(self, segment: Segment) -> Segment | None:
        try:
            listed = await self._journal.segments()
        except BookKeeperError:
            return segment  # the finding that led here says enough
        return next((each for each in listed if each.first_txid == segment.first_txid), None)

    async def _findings(self, segment: Segment) -> list[Finding]:
        findings: list[Finding] = []
        try:
            findings += await self._access.check(segment)
            reader = await self._access.open(segment)
            if reader is None:
                if not segment.in_progress:
                    findings.append(Finding(Problem.UNREADABLE, f"segment {segment} cannot be opened", segment))
                return findings
            try:
                await self._read(segment, reader)
            finally:
                await reader.close()
        except JournalClosed:
            raise
        except BookKeeperError as error:
            findings.append(Finding(_problem_of(error), f"segment {segment}: {error}", segment, segment.ledger_id))
        return findings

    async def _read(self, segment: Segment, reader: SegmentReader) -> None:
        expected: int = segment.first_txid
        while (batch := await reader.next()) is not None:
            records = batch.records
            if records[0].txid != expected:
                raise GapInTransactions(
                    f"expected txid {expected}, but got {records[0].txid}", expected=expected, found=records[0].txid
                )
            expected = records[-1].txid + 1
            self._report.transactions += len(records)
            self._report.size += sum([record.size for record in records])
            self._report.last_txid = TxId(expected - 1)
            self._on_progress(self._report.transactions)
        if segment.last_txid is not None and expected != segment.last_txid + 1:
            raise SegmentConflict(f"it ends with txid {expected - 1}, and is recorded to end with {segment.last_txid}")


def _problem_of(error: BookKeeperError) -> Problem:
    if isinstance(error, EditsCorrupt | UnknownOp):
        return Problem.DAMAGED
    if isinstance(error, GapInTransactions):
        return Problem.ENDS_ELSEWHERE if error.found is None else Problem.GAP
    if isinstance(error, SegmentConflict):
        return Problem.ENDS_ELSEWHERE
    if isinstance(error, SegmentUnreadable):
        return Problem.UNREADABLE
    return Problem.NOT_CHECKED if error.retriable else Problem.UNREADABLE
