"""Synced edits are measured even if the journal stalls for the whole measurement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from journalmgr.cli import measure
from journalmgr.cli.measure import SyncResult, measure_sync
from tests.support.stalled_log import StalledLog


def test_a_stalled_measurement_counts_one_late_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: now_s))
    log = StalledLog()
    found: list[SyncResult] = []
    Deferred.fromCoroutine(measure_sync(cast(Any, log), 1, 64, 1.0)).addCallback(found.append)
    now_s = 5.0
    log.acknowledge()  # this append began in the first quarter
    now_s = 5.5
    log.acknowledge()
    assert (found[0].edits, found[0].flushes) == (1, 1)
    assert not log.pending
