"""Reasons against writing add up; the mode follows their sum."""

from __future__ import annotations

from bookkeeper.bookie.process.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.model import BookieMode


def test_the_mode_changes_once_per_change_and_only_when_the_last_reason_is_gone() -> None:
    told: list[BookieMode] = []
    switch = ModeSwitch(told.append)
    switch.allow(ReadOnlyReason.DISK_FULL)
    switch.forbid(ReadOnlyReason.DISK_FULL)
    switch.forbid(ReadOnlyReason.DISK_FULL)
    switch.forbid(ReadOnlyReason.OPERATOR)
    switch.allow(ReadOnlyReason.DISK_FULL)
    assert switch.read_only
    assert switch.reasons == {ReadOnlyReason.OPERATOR}
    assert told == [BookieMode.READ_ONLY]
    switch.allow(ReadOnlyReason.OPERATOR)
    assert not switch.read_only
    assert told == [BookieMode.READ_ONLY, BookieMode.WRITABLE]
