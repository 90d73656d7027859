"""A wall clock that a test sets forward and back in one child process, and nowhere else on the machine.

    wall = SteppedWall(tmp_path)
    monkeypatch... wall.around(monkeypatch): start_the_child()     children started within have this clock
    wall.step(-7200.0)

A `sitecustomize` on PYTHONPATH adds the number in a file to `time.time` and `time.time_ns`, before any other code of
the child takes a reference to them. Steps go in both directions, any number of times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SITECUSTOMIZE = """\
import os, time

_path, _time, _time_ns = os.environ["WALL_STEP_FILE"], time.time, time.time_ns


def _ahead_s():
    file = os.open(_path, os.O_RDONLY)
    try:
        return int(os.read(file, 64))
    finally:
        os.close(file)


def time_():
    return _time() + _ahead_s()


def time_ns():
    return _time_ns() + _ahead_s() * 1_000_000_000


time.time, time.time_ns = time_, time_ns
"""


class SteppedWall:
    """The wall clock of one child."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "ahead"
        self._ahead_s = 0
        directory.mkdir(parents=True)
        (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE)
        self.step(0)

    def environment(self) -> dict[str, str]:
        """Return the variables of a child with this clock."""
        paths = [str(self._directory), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(paths), "WALL_STEP_FILE": str(self._path)}

    @contextmanager
    def around(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Give this clock to children that start within the context."""
        with monkeypatch.context() as patch:
            for name, value in self.environment().items():
                patch.setenv(name, value)
            yield

    def step(self, by_s: int) -> None:
        """Set the clock forward, or back with a negative number."""
        self._ahead_s += by_s
        new = self._path.with_suffix(".new")
        new.write_text(str(self._ahead_s))
        new.replace(self._path)
