"""Somebody whose publishes and deliveries are measured: servers that are started on a directory, and a client program.

What is missing on this machine is told by `Missing` in one line, and its side is skipped. Everything listens on
127.0.0.1, has a log file in its directory and is killed at the end.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bookkeeper.embedded.process import dying_with_parent
from tests.benchmarks.apache.processes import ROOT
from tests.benchmarks.hubs.loads.load import Load
from tests.benchmarks.journals.clients import Failed
from tests.support.java_programs import Missing
from tests.support.process_output import await_output, tail

CACHE = ROOT / ".cache" / "bench-hubs"
START_TIMEOUT_S = 60.0
FETCH_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Serving:
    """Servers that run. command: of a client process for one measurement, see loads/load.py.

    hub_pids: those that clients talk to; store_pids: those behind them. hub_start_s: from the start of the process
    that clients talk to until it serves; None where there is no such single one.
    """

    command: Callable[[Load], Sequence[str]]
    hub_pids: tuple[int, ...]
    store_pids: tuple[int, ...] = ()
    hub_start_s: float | None = None


class Peer(Protocol):
    """One that can be had on this machine."""

    @property
    def durability(self) -> str:
        """What holds when a publish is answered, in words; and the versions."""

    def serve(self, directory: Path) -> AbstractContextManager[Serving]:
        """Start all servers on a directory that does not exist; they are gone behind it. Raises Failed."""


def start(
    what: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Path]:
    """A server whose output goes to a log; and the log."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / f"{what.replace(' ', '-')}.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            dying_with_parent(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # so that Ctrl-C reaches the one that measures
        )
    return process, log_path


class Servers:
    """Some server processes. A context manager that kills them, those started last first."""

    def __init__(self) -> None:
        self._started: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def start(
        self, what: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> int:
        """Does not wait; the process id."""
        process, log_path = start(what, command, directory, environment)
        self._started.append((what, process, log_path))
        return process.pid

    def wait_ready(self, serves: re.Pattern[bytes]) -> None:
        """Until all those that were started have this in their logs. Raises Failed."""
        for what, process, log_path in self._started:
            why = await_output(process, log_path, serves, timeout_s=START_TIMEOUT_S)
            if why is not None:
                raise Failed(f"{what} did not start: {why}\n{tail(log_path)}")

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *error: object) -> None:
        for _, process, _ in reversed(self._started):
            process.kill()
            process.wait()


@contextmanager
def arriving(place: Path) -> Iterator[Path]:
    """A directory to fetch into, which is in its place if all went well."""
    making = place.with_name(f"{place.name}.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        yield making
        making.rename(place)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def fetch(what: str, command: Sequence[object], directory: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run the client of a package registry. Raises Missing with the last line it said."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=directory,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise Missing(f"{what}: there is no {command[0]}") from None
    except subprocess.TimeoutExpired:
        raise Missing(f"{what}: {command[0]} took longer than {FETCH_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
        raise Missing(f"{what}: {command[0]} could not fetch it: {said[-1]}")


def python_with(package: str, *requirements: str) -> Path:
    """An interpreter that has a peer's client, in an environment of its own. Raises Missing."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = "-".join(re.sub(r"\W+", "-", each) for each in requirements)
    place = CACHE / f"python{version}-{names}"
    if not place.is_dir():
        # An environment knows where it lives, so it is made where it stays; the stamp is its last file.
        with arriving(place) as making:
            fetch(package, [sys.executable, "-m", "venv", "env"], making)
            fetch(package, [making / "env" / "bin" / "python", "-m", "pip", "install", "-q", *requirements], making)
    return place / "env" / "bin" / "python"


def module_command(python: Path | str, module: str, target: str) -> Callable[[Load], list[str]]:
    """The client program of a Python module in loads/."""
    return lambda load: [str(python), "-m", f"tests.benchmarks.hubs.loads.{module}", target, *load.words()]
