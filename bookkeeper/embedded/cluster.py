"""A whole cluster on this machine, as processes: one ZooKeeper, N bookies, each with directories of its own.

Blocking: for command lines and tests, not for the reactor. Every child dies with this process (PR_SET_PDEATHSIG) and
has a log file of its own; what fails says which one and shows its last lines.

    <directory>/zookeeper/       data and log of the embedded ZooKeeper
    <directory>/bookie-<n>/      journal/ ledgers/ bookie.conf bookie.log
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from bookkeeper.errors import BookKeeperError

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1


class LocalProcessFailed(BookKeeperError):
    """A process of the local cluster did not start, or ended by itself. The message holds the end of its log."""


_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """For `preexec_fn`: SIGTERM to this child when the thread that started it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class LocalBookie:
    """One bookie process. Restarting it keeps its port, its identity and its directories."""

    def __init__(self, number: int, directory: Path, uri: str, port: int, settings: Mapping[str, str]) -> None:
        self.number, self.directory, self.uri, self.port = number, directory, uri, port
        self.journal_directory, self.ledger_directory = directory / "journal", directory / "ledgers"
        self.conf_path, self.log_path = directory / "bookie.conf", directory / "bookie.log"
        self.settings = {
            "bookiePort": str(port),
            "metadataServiceUri": uri,
            "journalDirectories": str(self.journal_directory),
            "ledgerDirectories": str(self.ledger_directory),
            "allowLoopback": "true",
            "listeningInterface": "lo",
            **settings,
        }
        if settings.get("httpServerEnabled") == "true" and settings.get("httpServerPort", "0") == "0":
            self.settings["httpServerPort"] = str(free_port())
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bookie_id(self) -> str:
        """The id under which the bookie registers."""
        return self.settings.get("bookieId", f"127.0.0.1:{self.port}")

    @property
    def metrics_url(self) -> str | None:
        """Where its metrics are, when its HTTP server is on."""
        if self.settings.get("httpServerEnabled") != "true":
            return None
        return f"http://127.0.0.1:{self.settings['httpServerPort']}/metrics"

    @property
    def pid(self) -> int:
        """Process id. Raises LocalProcessFailed when the bookie does not run."""
        if self._process is None:
            raise LocalProcessFailed(f"bookie {self.number} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> None:
        """Start the process; with `wait`, return once it is registered and serving (READY=1)."""
        if self.running:
            raise LocalProcessFailed(f"bookie {self.number} is running already, process {self.pid}")
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in self.settings.items()]
        self.conf_path.write_text("".join(lines))
        ready_path = self.directory / "ready.sock"
        ready_path.unlink(missing_ok=True)
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ready.bind(_short(ready_path))
        environment = {**os.environ, "NOTIFY_SOCKET": str(ready_path)}
        command = [sys.executable, "-m", "bookkeeper.cli.main", "bookie", "--conf", str(self.conf_path)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, its library is loaded before the fork
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Return once the bookie serves. Raises LocalProcessFailed when it ends first or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        process = self._process
        assert process is not None
        try:
            while True:
                readable, _, _ = select.select([self._ready], [], [], 0.05)
                if readable and b"READY=1" in self._ready.recv(4096):
                    return
                code = process.poll()
                if code is not None:
                    raise LocalProcessFailed(f"bookie {self.number} ended with code {code}:\n{tail_of(self.log_path)}")
                if time.monotonic() > deadline:
                    raise LocalProcessFailed(
                        f"bookie {self.number} was not ready within {START_TIMEOUT_S:.0f} s:\n{tail_of(self.log_path)}"
                    )
        finally:
            self._ready.close()

    def kill(self) -> None:
        """SIGKILL; returns once the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit code. Killed when it does not end in time, which is an error."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise LocalProcessFailed(
                f"bookie {self.number} did not stop within {STOP_TIMEOUT_S:.0f} s:\n{tail_of(self.log_path)}"
            ) from None


def _short(path: Path) -> str:
    """A Unix socket's path may be at most 107 bytes: use the one relative to the working directory if that helps."""
    absolute = str(path)
    return absolute if len(absolute) < 100 else os.path.relpath(absolute)


def tail_of(path: Path) -> str:
    """The last lines of a log, indented."""
    with contextlib.suppress(FileNotFoundError):
        lines = path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(f"    {line}" for line in lines)
    return "    (no log)"


class LocalCluster:
    """A ZooKeeper (embedded, or one that runs already) and `bookie_count` bookies.

    directory: where everything lives; a temporary one, removed at the end, when None.
    zookeeper: "host:port" of a running ZooKeeper to use instead of the embedded one.
    ports: of the bookies, in order; free ones are picked for the rest.
    settings: more keys for every bookie's conf file.
    """

    def __init__(
        self,
        bookie_count: int = 3,
        *,
        directory: Path | None = None,
        zookeeper: str | None = None,
        zookeeper_port: int = 0,
        root: str = "/ledgers",
        ports: Sequence[int] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="bookkeeper-"))
        self._external_zookeeper, self._zookeeper_port, self.root = zookeeper, zookeeper_port, root
        self._bookie_count, self._ports, self._settings = bookie_count, list(ports), dict(settings or {})
        self.zookeeper: EmbeddedZooKeeper | None = None
        self.bookies: list[LocalBookie] = []

    @property
    def uri(self) -> str:
        """The metadata service URI that clients use."""
        address = self._external_zookeeper or (self.zookeeper.address if self.zookeeper else "127.0.0.1:2181")
        return f"zk+hierarchical://{address.replace(',', ';')}{self.root}"

    def start(self) -> None:
        """Start ZooKeeper, make the cluster's metadata if it has none, start all bookies side by side."""
        if self._external_zookeeper is None:
            self.zookeeper = EmbeddedZooKeeper(data_dir=self.directory / "zookeeper", port=self._zookeeper_port)
            self.zookeeper.start()
        self._initialise()
        for _ in range(self._bookie_count):
            self.add_bookie(start=False)
        for bookie in self.bookies:
            bookie.start(wait=False)
        for bookie in self.bookies:
            bookie.wait_ready()

    def _initialise(self) -> None:
        command = [sys.executable, "-m", "bookkeeper.cli.main", "shell", "--uri", self.uri, "initnewcluster"]
        done = subprocess.run([*command, "--if-absent"], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise LocalProcessFailed(f"the cluster's metadata could not be made:\n    {done.stderr.strip()}")

    def add_bookie(self, *, start: bool = True) -> LocalBookie:
        """One more bookie."""
        number = len(self.bookies) + 1
        port = self._ports[number - 1] if number <= len(self._ports) else free_port()
        bookie = LocalBookie(number, self.directory / f"bookie-{number}", self.uri, port, self._settings)
        self.bookies.append(bookie)
        if start:
            bookie.start()
        return bookie

    def stop(self) -> None:
        """Stop the bookies side by side, then ZooKeeper. Raises the first failure after everything was stopped."""
        failures: list[BookKeeperError] = []
        for bookie in self.bookies:
            if bookie.running:
                os.kill(bookie.pid, signal.SIGTERM)
        for bookie in self.bookies:
            if bookie.running:
                try:
                    bookie.stop()
                except LocalProcessFailed as failure:
                    failures.append(failure)
        if self.zookeeper is not None:
            self.zookeeper.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        if failures:
            raise failures[0]

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            with contextlib.suppress(LocalProcessFailed):
                self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
