"""A whole cluster on this machine, as processes: one ZooKeeper, N bookies, each with directories of its own.

Blocking: for command lines and tests, not for the reactor. Every child dies with this process (PR_SET_PDEATHSIG) and
has a log file of its own; what fails says which one and shows its last lines.

    <directory>/zookeeper/       data and log of the embedded ZooKeeper
    <directory>/bookie-<n>/      journal/ ledgers/ bookie.conf bookie.log
"""

from __future__ import annotations

import contextlib
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

from bookkeeper.embedded.process import dying_with_parent, ending, free_port, report
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from bookkeeper.errors import BookKeeperError

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
CONF_NAME = "bookie.conf"


class LocalProcessFailed(BookKeeperError):
    """A process of the local cluster did not start, or ended by itself. The message holds the end of its log."""


class LocalBookie:
    """One bookie process. Restarting it keeps its port, its identity and its directories."""

    def __init__(self, number: int, directory: Path, uri: str, port: int, settings: Mapping[str, str]) -> None:
        self.number, self.directory, self.uri, self.port = number, directory, uri, port
        self.journal_directory, self.ledger_directory = directory / "journal", directory / "ledgers"
        self.conf_path, self.log_path = directory / CONF_NAME, directory / "bookie.log"
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
        self._ready: socket.socket | None = None
        self._told_to_end = False

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

    @property
    def ended_by_itself(self) -> bool:
        """True when the process was started and has ended although nobody asked it to here."""
        return self._process is not None and self._process.poll() is not None and not self._told_to_end

    def start(self, *, wait: bool = True) -> None:
        """Start the process; with `wait`, return once it is registered and serving (READY=1)."""
        if self.running:
            raise LocalProcessFailed(f"bookie {self.number} is running already, process {self.pid}")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.conf_path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        self._close_ready()
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ready.bind("")  # an abstract name of the kernel's choosing: no file, no limit on a directory's length
        name = self._ready.getsockname()[1:].decode("ascii")
        # What this bookie must have is not for BK_<key> of the environment to change; other keys may come from there.
        environment = {key: value for key, value in os.environ.items() if key.removeprefix("BK_") not in self.settings}
        command = [sys.executable, "-m", "bookkeeper.cli.main", "bookie", "--conf", str(self.conf_path)]
        self._told_to_end = False
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "NOTIFY_SOCKET": f"@{name}"},
                start_new_session=True,  # so that Ctrl-C reaches the supervisor and not the bookie
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Return once the bookie serves. Raises LocalProcessFailed when it ends first or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        process, ready = self._process, self._ready
        if process is None or ready is None:
            raise LocalProcessFailed(f"bookie {self.number} was not started")
        try:
            while True:
                readable, _, _ = select.select([ready], [], [], 0.05)
                if readable and b"READY=1" in ready.recv(4096):
                    return
                code = process.poll()
                if code is not None:
                    raise self._failed(f"{ending(code)} before it served")
                if time.monotonic() > deadline:
                    raise self._failed(f"was not ready within {START_TIMEOUT_S:.0f} s")
        finally:
            self._close_ready()

    def _failed(self, how: str) -> LocalProcessFailed:
        return LocalProcessFailed(report(f"bookie {self.number}", self.pid, how, self.log_path))

    def _close_ready(self) -> None:
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def kill(self) -> None:
        """SIGKILL; returns once the process is gone."""
        self._end(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit code. Killed when it does not end in time, which is an error."""
        self.terminate()
        return self.wait()

    def terminate(self) -> None:
        """SIGTERM; does not wait."""
        self._end(signal.SIGTERM)

    def _end(self, sign: signal.Signals) -> None:
        self._close_ready()
        if self._process is not None and self.running:
            self._told_to_end = True
            self._process.send_signal(sign)

    def wait(self) -> int:
        """Wait for the end and return the exit code; 0 when it never ran. Errors as `stop`."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self._failed(f"did not stop within {STOP_TIMEOUT_S:.0f} s") from None


def _earlier_port(directory: Path) -> int | None:
    """The port with which a bookie ran in this directory; None when none did."""
    with contextlib.suppress(FileNotFoundError):
        for line in (directory / CONF_NAME).read_text().splitlines():
            key, _, value = line.partition("=")
            if key == "bookiePort":
                return int(value)
    return None


class LocalCluster:
    """A ZooKeeper (embedded, or one that runs already) and `bookie_count` bookies.

    directory: where everything lives; a temporary one when None. That is removed at the end, except after a process
        did not start, ended by itself or did not stop: its log says why. See `left_behind`.
    zookeeper: "host:port" of a running ZooKeeper to use instead of the embedded one.
    ports: of the bookies, in order. The rest keep the port of an earlier run in `directory` (a bookie's id contains
        it, and its cookie the id), or get a free one.
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
        # Cookies hold it: "../cluster" is the same as its path without "..", and a link stays the link that it was.
        self.directory = Path(os.path.abspath(directory)) if directory else Path(tempfile.mkdtemp(prefix="bookkeeper-"))
        self._external_zookeeper, self._zookeeper_port, self.root = zookeeper, zookeeper_port, root
        self._bookie_count, self._ports, self._settings = bookie_count, list(ports), dict(settings or {})
        self._did_not_start = False
        self.zookeeper: EmbeddedZooKeeper | None = None
        self.bookies: list[LocalBookie] = []

    @property
    def uri(self) -> str:
        """The metadata service URI that clients use."""
        address = self._external_zookeeper or (self.zookeeper.address if self.zookeeper else "127.0.0.1:2181")
        return f"zk+hierarchical://{address.replace(',', ';')}{self.root}"

    @property
    def left_behind(self) -> Path | None:
        """Once it was stopped: the temporary directory, if it was kept because something failed."""
        return self.directory if self._temporary and self.directory.exists() else None

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
            why = done.stderr.strip().removeprefix("bookkeeper: ")
            raise LocalProcessFailed(f"the cluster's metadata could not be made: {why}")

    def add_bookie(self, *, start: bool = True) -> LocalBookie:
        """One more bookie."""
        number = len(self.bookies) + 1
        directory = self.directory / f"bookie-{number}"
        port = self._ports[number - 1] if number <= len(self._ports) else _earlier_port(directory) or free_port()
        bookie = LocalBookie(number, directory, self.uri, port, self._settings)
        self.bookies.append(bookie)
        if start:
            bookie.start()
        return bookie

    def stop(self) -> None:
        """Stop the bookies side by side, then ZooKeeper. Raises the first failure after everything was stopped."""
        failures: list[BookKeeperError] = []
        failed = self._did_not_start or any(bookie.ended_by_itself for bookie in self.bookies)
        for bookie in self.bookies:
            bookie.terminate()
        for bookie in self.bookies:
            try:
                bookie.wait()
            except LocalProcessFailed as failure:
                failures.append(failure)
        if self.zookeeper is not None:
            failed |= self.zookeeper.ended_by_itself
            self.zookeeper.stop()
        nothing_to_see = not failed and not failures
        if self._temporary and (nothing_to_see or not any(self.directory.iterdir())):
            shutil.rmtree(self.directory, ignore_errors=True)
        if failures:
            raise failures[0]

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException as error:
            self._did_not_start = isinstance(error, Exception)  # and not because somebody wants to stop
            with contextlib.suppress(LocalProcessFailed):
                self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
