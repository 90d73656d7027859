"""The garbage collector as operators see it: in the status file, and over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bookkeeper.bookie.gc.candidates import CompactionKind
from bookkeeper.bookie.gc.status import GarbageStage, GarbageStatus
from bookkeeper.bookie.process.status_format import LISTED_MAX, BadLog, CollectionStatus, ErrorStatus, shortened

if TYPE_CHECKING:
    from bookkeeper.admin.http.garbage import CollectionState, HistoryState, LedgersState, LogsState
    from bookkeeper.bookie.gc.collector import GarbageCollector


def collection_status(status: GarbageStatus) -> CollectionStatus:
    """What the status file says of it."""
    error = None
    if status.last_error:
        error = ErrorStatus(_ms(status.last_error_s) or 0, "garbage collection", shortened(status.last_error))
    bad = sorted(status.quarantined.items())[:LISTED_MAX]
    return CollectionStatus(
        doing=status.stage.value,
        rounds=status.rounds,
        last_round_ms=_ms(status.last_round_s),
        last_round_s=status.last_round_took_s if status.rounds else None,
        next_round_ms=_ms(status.next_round_s) if status.stage is GarbageStage.IDLE else None,
        ledgers_here=status.ledgers_local,
        waiting_ledgers=status.suspects,
        deleted_ledgers=status.ledgers_deleted + status.ledgers_moved,
        removed_logs=status.logs_removed,
        compacted_logs=status.logs_compacted,
        reclaimed_bytes=status.bytes_removed + status.bytes_compacted,
        live_bytes=status.live_bytes,
        total_bytes=status.total_bytes,
        compacting=status.compacting,
        last_minor_ms=_ms(status.last_minor_s),
        last_major_ms=_ms(status.last_major_s),
        minor_suspended=status.minor_suspended,
        major_suspended=status.major_suspended,
        alarms=status.alarms,
        quarantined_count=len(status.quarantined),
        quarantined=tuple(BadLog(path, shortened(why)) for path, why in bad),
        last_error=error,
        active_live_bytes=status.active_live_bytes,
        active_total_bytes=status.active_total_bytes,
        worth_bytes=status.worth_bytes,
        forced=status.forced,
        interrupted=status.interrupted,
        bad_records_count=status.bad_records.count,
        bad_records=tuple(shortened(str(record)) for record in status.bad_records.named[:LISTED_MAX]),
        finding=shortened(status.finding),
        kept_ledgers=status.kept_count,
    )


def _ms(at_s: float) -> int | None:
    return round(at_s * 1000) if at_s else None


class CollectorView:
    """The collector as `admin.http.garbage.Collecting`. on_change: an operator changed something."""

    def __init__(self, collector: GarbageCollector, on_change: Callable[[], None]) -> None:
        self._collector, self._on_change = collector, on_change

    def state(self) -> CollectionState:
        """See Collecting."""
        from bookkeeper.admin.http.garbage import CollectionState

        status = self._collector.status
        kind = self._collector.compacting_kind
        return CollectionState(
            force_running=status.forced,
            major_running=kind is CompactionKind.MAJOR,
            minor_running=kind is CompactionKind.MINOR,
            last_major_ms=_ms(status.last_major_s) or 0,
            last_minor_ms=_ms(status.last_minor_s) or 0,
            major_count=status.major_compactions,
            minor_count=status.minor_compactions,
            major_suspended=status.major_suspended,
            minor_suspended=status.minor_suspended,
        )

    def history(self) -> HistoryState:
        """See Collecting."""
        from bookkeeper.admin.http.garbage import HistoryState

        return HistoryState(self._collector.status.finding, self._collector.status.kept_count)

    async def logs(self) -> LogsState:
        """See Collecting."""
        from bookkeeper.admin.http.garbage import LogsState, LogState

        known = await self._collector.known_logs()
        return LogsState(
            swept_ms=_ms(self._collector.status.swept_s) or 0,
            logs=[
                LogState(
                    each.log_id,
                    each.size,
                    None if each.usage is None else each.usage.total_bytes,
                    None if each.usage is None else each.usage.live_bytes,
                    None if each.usage is None else each.usage.live_ledger_count,
                    each.is_written,
                    each.left_alone,
                )
                for each in known
            ],
        )

    async def ledgers(self, after: int, ranges_max: int) -> LedgersState:
        """See Collecting."""
        from bookkeeper.admin.http.garbage import LedgersState

        found = await self._collector.known_ledgers(after, ranges_max + 1)
        return LedgersState(found[:ranges_max], more=len(found) > ranges_max)

    def force(self, *, major: bool, minor: bool) -> None:
        """See Collecting. A major compaction does what a minor one does."""
        self._collector.force(CompactionKind.MAJOR if major else CompactionKind.MINOR if minor else None)
        self._on_change()

    def suspend(self, *, major: bool = False, minor: bool = False) -> None:
        """See Collecting."""
        self._collector.suspend(minor=minor, major=major)
        self._on_change()

    def resume(self, *, major: bool = False, minor: bool = False) -> None:
        """See Collecting."""
        self._collector.resume(minor=minor, major=major)
        self._on_change()
