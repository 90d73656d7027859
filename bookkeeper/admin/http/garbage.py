"""bookie/gc*: garbage collection and compaction of the bookie in this process.

    GET      /api/v1/bookie/gc                       {"is_in_force_gc" : "false"}
    PUT      /api/v1/bookie/gc                       {"forceMajor": true, "forceMinor": true}, or no body
    GET      /api/v1/bookie/gc_details               [{...}]
    GET PUT  /api/v1/bookie/gc/suspend_compaction    {"suspendMajor": true, "suspendMinor": true}, or no body: both
    PUT      /api/v1/bookie/gc/resume_compaction     {"resumeMajor": true, "resumeMinor": true}, or no body: both
    GET      /api/v1/bookie/entry_logs               {"swept": 1700000000000, "entryLogs": [{"id", "size", ...}]}
    GET      /api/v1/bookie/ledgers?after=ID         {"bookie": "bk1:3181", "ledgers": [[0, 41], [43, 43]], "more": ...}
    GET      /api/v1/bookie/metadata_history         {"bookie": "bk1:3181", "finding": "", "kept": 0}

A collection that is asked for begins at once or after the one under way; the answer does not wait for it. Words of the
GETs are text, as Apache's. entry_logs and ledgers are not Apache's: what is in each log, as the last round's sweep
found it; and the ledgers that the collector compares with those of the metadata store, as ranges of ids, both ends
included, RANGES_MAX at a time: where there are `more`, they come `after` the last id of the answer. metadata_history
is not Apache's either. finding: why nothing is collected, if the metadata store may have gone back in time. kept:
number of ledgers that the store lacks and that are kept for an operator.

Differs from Apache: thresholds and times are settings, so a body that has them is refused rather than ignored; and an
order to suspend or resume without a body, which is refused there, is about both kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bookkeeper.admin.http.routing import (
    Answer,
    HttpRequest,
    Route,
    bad_request,
    flag_of,
    json_answer,
    only_known,
)
from bookkeeper.model import BookieId

RANGES_MAX = 50_000
"""Ranges of ledgers in one answer: some 2 MB."""


@dataclass(frozen=True, slots=True)
class CollectionState:
    """Times in milliseconds since 1970, 0: never since the start; counts since the start."""

    force_running: bool
    major_running: bool
    minor_running: bool
    last_major_ms: int
    last_minor_ms: int
    major_count: int
    minor_count: int
    major_suspended: bool
    minor_suspended: bool


@dataclass(frozen=True, slots=True)
class LogState:
    """One entry log, sizes in bytes. record_bytes, live_bytes, live_ledgers: None where the sweep did not look at it.

    record_bytes: of all records; live_bytes: of those of ledgers that are here. left_alone: why it is, "" where it is
    not.
    """

    log_id: int
    size: int
    record_bytes: int | None
    live_bytes: int | None
    live_ledgers: int | None
    is_written: bool
    left_alone: str


@dataclass(frozen=True, slots=True)
class LogsState:
    """swept_ms: since 1970; 0: no sweep since the start, so nothing is known but sizes."""

    swept_ms: int
    logs: Sequence[LogState]


@dataclass(frozen=True, slots=True)
class LedgersState:
    """Ledgers that are here, and those that are to be deleted among them. ranges: first and last id of each, ascending.

    more: there are ledgers above them.
    """

    ranges: Sequence[tuple[int, int]]
    more: bool


@dataclass(frozen=True, slots=True)
class HistoryState:
    """The garbage collector's finding about the metadata store.

    finding: evidence that the store went back in time, or "". kept: number of ledgers kept that the store lacks.
    """

    finding: str
    kept: int


class Collecting(Protocol):
    """The garbage collector of this process, as HTTP needs it. Thread: reactor; only `logs` and `ledgers` wait."""

    def state(self) -> CollectionState:
        """Now."""

    def history(self) -> HistoryState:
        """Return the finding as of the last read of the metadata store."""

    async def logs(self) -> LogsState:
        """All entry logs, ascending. Raises OSError."""

    async def ledgers(self, after: int, ranges_max: int) -> LedgersState:
        """The ledgers here with ids above `after`, so many ranges of them at most. Raises OSError."""

    def force(self, *, major: bool, minor: bool) -> None:
        """Collect soon, and compact with these thresholds."""

    def suspend(self, *, major: bool = False, minor: bool = False) -> None:
        """No compaction of this kind from now on; one under way ends after the log it is at."""

    def resume(self, *, major: bool = False, minor: bool = False) -> None:
        """The end of that."""


class Garbage:
    """gc of one bookie."""

    def __init__(self, bookie_id: BookieId, collecting: Collecting) -> None:
        self._bookie_id, self._collecting = bookie_id, collecting

    def routes(self) -> list[Route]:
        """bookie/gc*"""
        top = "/api/v1/bookie"
        return [
            Route("GET", f"{top}/gc", self._is_forced),
            Route("PUT", f"{top}/gc", self._force),
            Route("GET", f"{top}/gc_details", self._details),
            Route("GET", f"{top}/gc/suspend_compaction", self._suspended),
            Route("PUT", f"{top}/gc/suspend_compaction", self._suspend),
            Route("PUT", f"{top}/gc/resume_compaction", self._resume),
            Route("GET", f"{top}/entry_logs", self._logs),
            Route("GET", f"{top}/ledgers", self._ledgers),
            Route("GET", f"{top}/metadata_history", self._history),
        ]

    async def _is_forced(self, _: HttpRequest) -> Answer:
        return json_answer({"is_in_force_gc": _word(self._collecting.state().force_running)})

    async def _force(self, request: HttpRequest) -> Answer:
        state = self._collecting.state()
        body = request.object() if request.body.strip() else {}
        only_known(body, ("forceMajor", "forceMinor"), request.path)
        self._collecting.force(
            major=flag_of("forceMajor", body.get("forceMajor", not state.major_suspended)),
            minor=flag_of("forceMinor", body.get("forceMinor", not state.minor_suspended)),
        )
        return json_answer(f"Triggered GC on BookieServer: {self._bookie_id}")

    async def _details(self, _: HttpRequest) -> Answer:
        state = self._collecting.state()
        return json_answer(
            [
                {
                    "forceCompacting": state.force_running,
                    "majorCompacting": state.major_running,
                    "minorCompacting": state.minor_running,
                    "lastMajorCompactionTime": state.last_major_ms,
                    "lastMinorCompactionTime": state.last_minor_ms,
                    "majorCompactionCounter": state.major_count,
                    "minorCompactionCounter": state.minor_count,
                }
            ]
        )

    async def _logs(self, _: HttpRequest) -> Answer:
        found = await self._collecting.logs()
        return json_answer(
            {
                "swept": found.swept_ms or None,
                "entryLogs": [
                    {
                        "id": each.log_id,
                        "size": each.size,
                        "recordBytes": each.record_bytes,
                        "liveBytes": each.live_bytes,
                        "liveLedgers": each.live_ledgers,
                        "written": each.is_written,
                        "leftAlone": each.left_alone,
                    }
                    for each in found.logs
                ],
            }
        )

    async def _ledgers(self, request: HttpRequest) -> Answer:
        after = request.whole_number("after", -1, minimum=-1)
        found = await self._collecting.ledgers(after, RANGES_MAX)
        return json_answer({"bookie": self._bookie_id, "ledgers": found.ranges, "more": found.more})

    async def _history(self, _: HttpRequest) -> Answer:
        found = self._collecting.history()
        return json_answer({"bookie": self._bookie_id, "finding": found.finding, "kept": found.kept})

    async def _suspended(self, _: HttpRequest) -> Answer:
        state = self._collecting.state()
        return json_answer(
            {"isMajorGcSuspended": _word(state.major_suspended), "isMinorGcSuspended": _word(state.minor_suspended)}
        )

    async def _suspend(self, request: HttpRequest) -> Answer:
        major, minor = _kinds(request, "suspendMajor", "suspendMinor")
        self._collecting.suspend(major=major, minor=minor)
        return json_answer(self._said("Suspend", major=major, minor=minor))

    async def _resume(self, request: HttpRequest) -> Answer:
        major, minor = _kinds(request, "resumeMajor", "resumeMinor")
        self._collecting.resume(major=major, minor=minor)
        return json_answer(self._said("Resume", major=major, minor=minor))

    def _said(self, what: str, *, major: bool, minor: bool) -> str:
        kinds = [name for name, wanted in (("majorGC", major), ("minorGC", minor)) if wanted]
        return ", ".join(f"{what} {kind} on BookieServer: {self._bookie_id}" for kind in kinds)


def _kinds(request: HttpRequest, major_name: str, minor_name: str) -> tuple[bool, bool]:
    if not request.body.strip():
        return True, True
    body = request.object()
    only_known(body, (major_name, minor_name), request.path)
    major = flag_of(major_name, body.get(major_name, False))
    minor = flag_of(minor_name, body.get(minor_name, False))
    if not (major or minor):
        raise bad_request(
            f'{request.path} needs {{"{major_name}": true}}, {{"{minor_name}": true}}, or both; no body means both'
        )
    return major, minor


def _word(flag: bool) -> str:
    return "true" if flag else "false"
