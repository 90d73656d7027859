"""The file in which a bookie's processes note their metadata sessions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.bookie.identity.sessions import FORMAT, SESSIONS_FILE, SESSIONS_MAX, SessionFile
from bookkeeper.filesystem import create_durable
from tests.support.faulty_filesystem import FaultyFileSystem


class Now:
    """A worker that works at once."""

    def submit(
        self, work: Callable[[], Any], on_done: Callable[[Any], object], on_error: Callable[[BaseException], object]
    ) -> None:
        try:
            result = work()
        except OSError as error:
            on_error(error)
        else:
            on_done(result)

    def stop(self) -> Deferred[None]:
        raise AssertionError("not stopped here")


@pytest.fixture
def fs() -> FaultyFileSystem:
    system = FaultyFileSystem()
    system.make_dirs("/journal/current")
    return system


def opened(fs: FaultyFileSystem) -> SessionFile:
    return SessionFile(fs, "/journal/current", Now())


def test_a_noted_session_survives_a_power_cut(fs: FaultyFileSystem) -> None:
    noted = opened(fs).add(-0x1234567890ABCDEF)
    assert noted.called
    fs.crash(random.Random(1))
    assert opened(fs).known() == {-0x1234567890ABCDEF}


def test_the_newest_sessions_are_kept(fs: FaultyFileSystem) -> None:
    record = opened(fs)
    for session_id in [*range(1, SESSIONS_MAX + 3), 4]:
        record.add(session_id)
    assert record.known() == opened(fs).known() == set(range(3, SESSIONS_MAX + 3))


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"other 1\n12\n", f"{FORMAT}\nxyz\n".encode(), f"{FORMAT}\n".encode() + b"1\n" * 5000]
)
def test_an_unreadable_file_names_no_session(fs: FaultyFileSystem, data: bytes) -> None:
    """I-18: unknown is never taken for "dead"."""
    create_durable(fs, f"/journal/current/{SESSIONS_FILE}", data)
    record = opened(fs)
    assert record.known() == frozenset()
    record.add(7)
    assert opened(fs).known() == {7}


def test_a_file_that_cannot_be_written_delays_nobody(fs: FaultyFileSystem) -> None:
    record = opened(fs)
    fs.make_dirs(f"/journal/current/{SESSIONS_FILE}")  # a directory is in its way
    noted = record.add(7)
    assert noted.called
