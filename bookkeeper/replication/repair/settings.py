"""Bounds, rates and times of a replication worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Rates: 0 or less for no limit.

    ledgers_at_once: costs a lock and a few kilobytes each; what their entries take is bounded by entries_in_flight_max
    and bytes_in_flight_max, whatever their number.
    """

    ledgers_at_once: int = 256
    batch_entries_max: int = 500
    entries_in_flight_max: int = 20_000
    checks_in_flight_max: int = 20_000
    bytes_in_flight_max: int = 64 * 1024 * 1024
    bytes_per_s: float = 0
    entries_per_s: float = 0
    verified_percentage: float = 0
    open_ledger_grace_s: float = 30.0
    failed_ledger_grace_s: float = 300.0
    error_backoff_s: float = 5.0
