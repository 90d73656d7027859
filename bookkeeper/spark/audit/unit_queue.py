"""The work on one bookie's directories, shared out among the tasks of an audit that run on the machine they are on.

    <temporary directory>/bookkeeper-audit-<token>-<bookie>.next     how many units were taken; locked by who takes one
                                                     .plan     the plan, by the task that came first; never in part

A unit is given out once: where its task fails, nobody else takes it, its row is missing, and the audit runs another
pass, with another token, for what is missing. The files are small and accessible only to their owner, which is checked
before a read. Files of audits that died are removed by later audits after FILES_AGE_S.

Blocking; one thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bookkeeper.clock import wall_s
from bookkeeper.spark.stored_copies import Plan

PREFIX = "bookkeeper-audit-"
FILES_AGE_S = 24 * 3600.0
"""Since the last unit was taken. A unit takes seconds, so a clock set forward by hours removes no file in use."""

_COUNT = struct.Struct(">q")


class UnitQueue:
    """Units of one bookie's plan. make_plan: called in the process that comes first; the others wait for it."""

    def __init__(
        self, token: str, bookie_id: str, make_plan: Callable[[], Plan], *, directory: str | None = None
    ) -> None:
        directory = directory or tempfile.gettempdir()
        name = hashlib.sha256(bookie_id.encode()).hexdigest()[:16]
        base = os.path.join(directory, f"{PREFIX}{token}-{name}")
        self._plan_path, self._next_path = f"{base}.plan", f"{base}.next"
        _remove_old(directory)
        with self._locked() as file:
            self.first = not os.pread(file, _COUNT.size, 0)
            """Whether this process made the plan: what it says belongs to what this process answers."""
            if self.first:
                self.plan: Plan = make_plan()
                self._write_plan()
                os.pwrite(file, _COUNT.pack(0), 0)  # last: one that died before was not the first
            else:
                with open(self._plan_path, "rb", opener=_own) as kept:
                    self.plan = pickle.load(kept)

    def units(self) -> Iterator[int]:
        """The number of a unit that nobody has taken, each time it is asked for one, until there is none."""
        while (unit := self._take()) < len(self.plan.units):
            yield unit

    def _take(self) -> int:
        with self._locked() as file:
            (unit,) = _COUNT.unpack(os.pread(file, _COUNT.size, 0))
            os.pwrite(file, _COUNT.pack(unit + 1), 0)
        return int(unit)

    def _write_plan(self) -> None:
        path = f"{self._plan_path}.new"
        with suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "xb", opener=_own) as file:
            pickle.dump(self.plan, file, pickle.HIGHEST_PROTOCOL)
        os.replace(path, self._plan_path)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        file = _own(self._next_path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def remove_files(token: str, directory: str | None = None) -> None:
    """Remove the files of an audit on this machine, when it has ended."""
    directory = directory or tempfile.gettempdir()
    for name in os.listdir(directory):
        if name.startswith(f"{PREFIX}{token}-"):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))


def _remove_old(directory: str) -> None:
    limit = wall_s() - FILES_AGE_S
    for name in os.listdir(directory):
        if name.startswith(PREFIX):
            path = os.path.join(directory, name)
            taken = os.path.join(directory, f"{name.partition('.')[0]}.next")
            with suppress(FileNotFoundError, PermissionError):
                if os.stat(taken if os.path.exists(taken) else path).st_mtime < limit:
                    os.unlink(path)


def _own(path: str, flags: int) -> int:
    """Open a file that belongs to this user and that no other user can write. Raises PermissionError for other files.

    All users share the directory, and unpickling the plan runs code from the file.
    """
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    found = os.fstat(file)
    if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return file
    os.close(file)
    why = "can be written by other users" if found.st_uid == os.geteuid() else "belongs to another user"
    raise PermissionError(f"{path} {why}: remove it")
