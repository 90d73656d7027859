"""Name node servers as processes on this machine, for measurements, the demo and tests. Blocking.

Every child dies with this process and has a log of its own; what fails says which one and shows its last lines.

    <directory>/server-<n>.log
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bookkeeper.embedded.cluster import LocalProcessFailed
from bookkeeper.embedded.process import dying_with_parent, ending, free_port, on_lasting_thread, report
from bookkeeper.errors import BookKeeperError
from journalmgr.namenode.fs_client import FileSystemClient

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
LOOK_INTERVAL_S = 0.005


class LocalServer:
    """One server. Restarting it keeps its port and its name. options: more words of its command line."""

    def __init__(self, number: int, directory: Path, journal: str, options: Sequence[str] = ()) -> None:
        self.number, self.journal = number, journal
        self.address = f"127.0.0.1:{free_port()}"
        self.log_path = directory / f"server-{number}.log"
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = False  # by SIGSTOP

    @property
    def pid(self) -> int:
        """Its process. Raises LocalProcessFailed where there is none."""
        if self._process is None:
            raise LocalProcessFailed(f"server {self.number} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Its process lives, stopped or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; `wait_for` waits for what it becomes."""
        if self.running:
            raise LocalProcessFailed(f"server {self.number} is running already, process {self.pid}")
        command = [sys.executable, "-m", "journalmgr.cli.main", "namenode", self.journal, "--http", self.address]
        command += ["--id", f"server-{self.number}", *self._options]
        with self.log_path.open("ab") as log:
            self._process = on_lasting_thread(
                lambda: subprocess.Popen(
                    dying_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            )
        self.stopped = False

    def status(self) -> dict[str, Any] | None:
        """What it says of itself; None where it cannot be asked now."""
        with FileSystemClient([self.address], timeout_s=2.0) as client:
            try:
                return client.server_status(self.address)
            except BookKeeperError:
                return None

    def wait_for(self, *roles: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """Return once it has one of these roles. Raises LocalProcessFailed where it ends first, or takes too long."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.status() if self.running and not self.stopped else None
            if found is not None and found["role"] in roles:
                return str(found["role"])
            code = None if self._process is None else self._process.poll()
            if code is not None:
                raise self._failed(ending(code))
            if time.monotonic() > deadline:
                role = "silent" if found is None else found["role"]
                raise self._failed(f"was {role} and not {' or '.join(roles)} within {timeout_s:g} s")
            time.sleep(LOOK_INTERVAL_S)

    def kill(self) -> None:
        """SIGKILL; returns once the process is gone."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()
        self.stopped = False

    def stop(self) -> None:
        """SIGSTOP: it does nothing until `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self.running:
            os.kill(self.pid, signal.SIGCONT)
        self.stopped = False

    def end(self) -> int:
        """SIGTERM and wait; the exit code. Raises LocalProcessFailed when it does not end in time."""
        if self._process is None:
            return 0
        if self.stopped:
            self.go_on()
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self._failed(f"did not stop within {STOP_TIMEOUT_S:.0f} s") from None

    def _failed(self, how: str) -> LocalProcessFailed:
        return LocalProcessFailed(report(f"server {self.number}", self.pid, how, self.log_path))


class LocalServers:
    """A group of servers on one journal, which is formatted already. A context manager that starts and ends them."""

    def __init__(self, count: int, directory: Path, journal: str, options: Sequence[str] = ()) -> None:
        self.servers = [LocalServer(number, directory, journal, options) for number in range(1, count + 1)]

    @property
    def addresses(self) -> list[str]:
        """Of all of them."""
        return [server.address for server in self.servers]

    def active(self, *, but: LocalServer | None = None, timeout_s: float = START_TIMEOUT_S) -> LocalServer:
        """The active one, once there is one. Raises LocalProcessFailed."""
        deadline = time.monotonic() + timeout_s
        while True:
            for server in self.servers:
                if server is not but and server.running and not server.stopped:
                    found = server.status()
                    if found is not None and found["role"] == "active":
                        return server
            if time.monotonic() > deadline:
                raise LocalProcessFailed(f"no server became the active one within {timeout_s:g} s")
            time.sleep(LOOK_INTERVAL_S)

    def __enter__(self) -> Self:
        for server in self.servers:
            server.start()
        try:
            for server in self.servers:
                server.wait_for("active", "standby")
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End them all, by force if need be."""
        for server in self.servers:
            try:
                server.end()
            except LocalProcessFailed:
                server.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
