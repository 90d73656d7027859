"""A whole cluster on this machine, as processes: one ZooKeeper, N bookies, each with directories of its own.

Blocking: for command lines and tests, not for the reactor. Any thread may start it, and may end before it. Every child
dies with this process (PR_SET_PDEATHSIG) and has its own log file; an error names the child and shows the last lines of
that file.

    <directory>/zookeeper/       data and log of the embedded ZooKeeper
    <directory>/bookie-<n>/      journal/ ledgers/ bookie.conf bookie.log
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bookkeeper.embedded.process import free_port
from bookkeeper.embedded.server import LocalProcessFailed, LocalServer
from bookkeeper.embedded.zookeeper import HEAP_MIB, EmbeddedZooKeeper
from bookkeeper.errors import BookKeeperError

CONF_NAME = "bookie.conf"

__all__ = ["LocalBookie", "LocalCluster", "LocalProcessFailed", "free_port"]


class LocalBookie(LocalServer):
    """One bookie process. Restarting it keeps its port, its identity and its directories."""

    def __init__(self, number: int, directory: Path, uri: str, port: int, settings: Mapping[str, str]) -> None:
        self.number, self.uri, self.port = number, uri, port
        self.journal_directory, self.ledger_directory = directory / "journal", directory / "ledgers"
        super().__init__(
            f"bookie {number}",
            directory,
            conf_name=CONF_NAME,
            log_name="bookie.log",
            command=("bookkeeper.cli.main", "bookie"),
            environment_prefix="BK_",
            settings={
                "bookiePort": str(port),
                "metadataServiceUri": uri,
                "journalDirectories": str(self.journal_directory),
                "ledgerDirectories": str(self.ledger_directory),
                "allowLoopback": "true",
                "listeningInterface": "lo",
                **settings,
            },
        )

    @property
    def bookie_id(self) -> str:
        """The id under which the bookie registers."""
        return self.settings.get("bookieId", f"127.0.0.1:{self.port}")

    @property
    def address(self) -> str:
        """Its id, which clients find it by."""
        return self.bookie_id


def _earlier_port(directory: Path) -> int | None:
    """The port with which a bookie ran in this directory; None when none did."""
    with contextlib.suppress(FileNotFoundError):
        for line in (directory / CONF_NAME).read_text().splitlines():
            key, _, value = line.partition("=")
            if key == "bookiePort":
                return int(value)
    return None


def _stop_all(servers: Sequence[LocalServer]) -> list[BookKeeperError]:
    """Stop them side by side; what failed."""
    failures: list[BookKeeperError] = []
    for server in servers:
        server.terminate()
    for server in servers:
        try:
            server.wait()
        except LocalProcessFailed as failure:
            failures.append(failure)
    return failures


class LocalCluster:
    """A ZooKeeper (embedded, or one that runs already) and `bookie_count` bookies.

    directory: where everything lives; a temporary one when None. That is removed at the end, except after a process
        did not start, ended by itself or did not stop: its log says why. See `left_behind`.
    zookeeper: "host:port" of a running ZooKeeper to use instead of the embedded one.
    ports: of the bookies, in order. The rest keep the port of an earlier run in `directory` (a bookie's id contains
        it, and its cookie the id), or get a free one.
    settings: more keys for every bookie's conf file.
    zookeeper_heap_mib: of the embedded one; a hundred thousand topics need 1024.
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
        zookeeper_heap_mib: int = HEAP_MIB,
    ) -> None:
        self._temporary, self._heap_mib = directory is None, zookeeper_heap_mib
        # Cookies hold it: "../cluster" is the same as its path without "..", and a link stays the link that it was.
        self.directory = Path(os.path.abspath(directory)) if directory else Path(tempfile.mkdtemp(prefix="bookkeeper-"))
        self._external_zookeeper, self._zookeeper_port, self.root = zookeeper, zookeeper_port, root
        self._bookie_count, self._ports, self._settings = bookie_count, list(ports), dict(settings or {})
        self._did_not_start = False
        self.zookeeper: EmbeddedZooKeeper | None = None
        self.bookies: list[LocalBookie] = []
        self.others: list[LocalServer] = []

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
            self.zookeeper = EmbeddedZooKeeper(
                data_dir=self.directory / "zookeeper", port=self._zookeeper_port, heap_mib=self._heap_mib
            )
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

    def start_others(self, servers: Sequence[LocalServer]) -> None:
        """Start servers that use this cluster, side by side; from now on they are stopped with it.

        Raises LocalProcessFailed when one does not start.
        """
        self.others += servers
        try:
            for server in servers:
                server.start(wait=False)
            for server in servers:
                server.wait_ready()
        except LocalProcessFailed:
            self._did_not_start = True
            raise

    def stop(self) -> None:
        """Stop the other servers, then the bookies, each side by side, then ZooKeeper.

        Raises the first failure after everything was stopped.
        """
        failures: list[BookKeeperError] = []
        failed = self._did_not_start or any(server.ended_by_itself for server in (*self.others, *self.bookies))
        for servers in (self.others, self.bookies):
            failures += _stop_all(servers)
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
