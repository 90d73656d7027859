"""Who verifies which unit of a bookie, on one machine."""

from __future__ import annotations

import os
import time
from array import array
from pathlib import Path

import pytest

from bookkeeper.model import LogMark
from bookkeeper.spark.audit.unit_queue import FILES_AGE_S, UnitQueue, remove_files
from bookkeeper.spark.stored_copies import JournalUnit, Plan

TOKEN, BOOKIE = "0123", "bk1:3181"


def plan(units: int) -> Plan:
    unit = JournalUnit(0, LogMark(1, 512), 0, 1, 10, array("q"), {}, {}, 7)
    return Plan(BOOKIE, None, (unit,) * units, array("q"), {}, (), ())


def no_plan() -> Plan:
    raise AssertionError("the plan is there")


def queue(directory: Path, units: int = 3, token: str = TOKEN) -> UnitQueue:
    return UnitQueue(token, BOOKIE, lambda: plan(units), directory=str(directory))


def test_each_unit_is_given_out_once_whoever_asks(tmp_path: Path) -> None:
    one = queue(tmp_path)
    other = UnitQueue(TOKEN, BOOKIE, no_plan, directory=str(tmp_path))
    assert (one.first, other.first) == (True, False)
    assert other.plan == one.plan
    first, second = one.units(), other.units()
    assert [next(first), next(second), next(first)] == [0, 1, 2]
    assert list(first) == list(second) == []


def test_another_pass_and_another_bookie_have_queues_of_their_own(tmp_path: Path) -> None:
    assert list(queue(tmp_path).units()) == [0, 1, 2]
    assert list(queue(tmp_path, token="4567").units()) == [0, 1, 2]
    assert list(UnitQueue(TOKEN, "bk2:3181", lambda: plan(2), directory=str(tmp_path)).units()) == [0, 1]


def test_who_died_while_it_planned_was_not_the_first(tmp_path: Path) -> None:
    def dies() -> Plan:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        UnitQueue(TOKEN, BOOKIE, dies, directory=str(tmp_path))
    after = queue(tmp_path)
    assert (after.first, list(after.units())) == (True, [0, 1, 2])


def test_a_plan_without_units_gives_none(tmp_path: Path) -> None:
    assert list(queue(tmp_path, units=0).units()) == []


def test_the_files_are_for_their_owner_only_and_go_with_the_audit(tmp_path: Path) -> None:
    list(queue(tmp_path).units())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    list(queue(tmp_path, token="4567").units())
    remove_files(TOKEN, str(tmp_path))
    assert {path.name.split("-")[2] for path in tmp_path.iterdir()} == {"4567"}


class _Foreign:
    """os.fstat on a machine on which another user made one of the files."""

    def __init__(self, name: str) -> None:
        self._name, self._fstat = name, os.fstat

    def __call__(self, file: int) -> os.stat_result:
        found = self._fstat(file)
        if not os.readlink(f"/proc/self/fd/{file}").endswith(self._name):
            return found
        fields = list(found)
        fields[4] = os.geteuid() + 1
        return os.stat_result(fields)


@pytest.mark.parametrize("name", [".next", ".plan"])
def test_a_file_of_another_user_is_not_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue(tmp_path)
    monkeypatch.setattr(os, "fstat", _Foreign(name))
    with pytest.raises(PermissionError, match=rf"{name} belongs to another user: remove it"):
        UnitQueue(TOKEN, BOOKIE, no_plan, directory=str(tmp_path))


@pytest.mark.parametrize("name", [".next", ".plan"])
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_other_users_can_write_is_not_read(tmp_path: Path, name: str, mode: int) -> None:
    queue(tmp_path)
    [path] = tmp_path.glob(f"*{name}")
    path.chmod(mode)
    with pytest.raises(PermissionError, match=rf"{name} can be written by other users: remove it"):
        UnitQueue(TOKEN, BOOKIE, no_plan, directory=str(tmp_path))


def test_a_link_in_the_place_of_the_plan_is_not_followed(tmp_path: Path) -> None:
    queue(tmp_path)
    [path] = tmp_path.glob("*.plan")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        UnitQueue(TOKEN, BOOKIE, no_plan, directory=str(tmp_path))


def test_files_of_an_audit_that_died_are_removed_by_a_later_one_and_those_of_one_that_runs_are_not(
    tmp_path: Path,
) -> None:
    old = time.time() - FILES_AGE_S - 60
    list(queue(tmp_path, token="dead").units())
    list(queue(tmp_path, token="slow").units())
    for path in tmp_path.iterdir():
        if "dead" in path.name or path.name.endswith(".plan"):  # the slow one has taken a unit since
            os.utime(path, (old, old))
    queue(tmp_path, token="new")
    assert {path.name.split("-")[2] for path in tmp_path.iterdir()} == {"slow", "new"}
