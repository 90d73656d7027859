"""Lines of the log about repairs: one a wave, at most one every ten seconds, none without a repair."""

from __future__ import annotations

from bookkeeper.model import LedgerId
from bookkeeper.replication.repair.repair_log import QUIET_S, TOLD_EVERY_S, RepairsTold


def test_a_wave_is_told_when_it_is_quiet_and_a_long_one_every_ten_seconds() -> None:
    told = RepairsTold()
    assert told.due_s is None
    assert told.take(0, 0) is None
    told.on_repaired(LedgerId(7), 99.0, 100.0)
    assert told.due_s == 100.0 + QUIET_S
    for number in range(1, 12):
        told.on_repaired(LedgerId(7 + number), 98.5 + number, 100.0 + number)
        assert told.due_s == min(100.0 + TOLD_EVERY_S, 100.0 + number + QUIET_S)
    line = "12 ledgers were repaired within 12.0 s, ledger 7 first: 40 entries, 4000 bytes copied"
    assert str(told.take(40, 4000)) == line
    assert told.due_s is None
    told.on_repaired(LedgerId(3), 119.5, 120.0)
    assert str(told.take(45, 4500)) == "Ledger 3 was repaired within 0.5 s: 5 entries, 500 bytes copied"
