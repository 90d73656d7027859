"""The servers of a run: one ZooKeeper, and three bookies of each kind, side by side below one directory.

    <directory>/zookeeper/
    <directory>/<cluster>-<stint>/bookie-<n>/   journal/ ledgers/ conf and log

A *stint* is the time between two renewals of the directories: our bookies do not collect garbage yet, and Apache's only
every 15 minutes, so disk space is won back by new clusters under new roots. Everything listens on 127.0.0.1 and ends
with the process that started it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pytest
from kazoo.client import KazooClient

from bookkeeper.embedded.cluster import LocalBookie
from bookkeeper.embedded.process import dying_with_parent, free_port
from tests.support.apache import find_apache
from tests.support.process_output import await_output

BOOKIES = 3
START_TIMEOUT_S = 60.0
JAVA_SOURCES = Path(__file__).parent / "java"
ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "bench-apache"

JVM_OPTIONS = (
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=2g",  # as bin/bookkeeper
    "-XX:+UseG1GC",
    "-Dio.netty.leakDetectionLevel=disabled",  # as bin/bookkeeper
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",  # listeningInterface=lo is ::1%lo otherwise, which its cookies refuse
    # What Netty and the checksums need on Java 17 to take their fast paths, as bin/bookkeeper.
    *("--add-opens", "java.base/java.io=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util.zip=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
)

DISK_SETTINGS = {
    # Of both kinds of bookies, for the disk's sake alone: full journals go at once, and a disk that other things fill
    # does not make a bookie read-only.
    "journalMaxBackups": "0",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
}
TUNED_SETTINGS = {"journalFlushWhenQueueEmpty": "true"}

_SERVES = re.compile(rb"Started component \{component=bookie-server\}")


class NoApache(Exception):
    """Apache's jars or a Java are missing; the message says which."""


class DidNotStart(Exception):
    """A process did not start; the message ends with its log."""


@dataclass(frozen=True, slots=True)
class Genuine:
    """Apache's jars, and our Java driver compiled for them."""

    java: Path
    jars: Path
    classes: Path

    def command(self, main_class: str, *arguments: object) -> list[str]:
        """A JVM with the options of a measurement."""
        path = os.pathsep.join((str(self.classes), str(JAVA_SOURCES), str(self.jars / "*")))
        return [str(self.java), *JVM_OPTIONS, "-cp", path, main_class, *map(str, arguments)]


def find_genuine() -> Genuine:
    """Find or fetch the jars and compile the driver. Raises NoApache."""
    try:
        apache = find_apache(None)
    except pytest.skip.Exception as error:
        raise NoApache(str(error)) from error
    source = JAVA_SOURCES / "BenchDriver.java"
    classes = CACHE / f"classes-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not classes.is_dir():
        beside = apache.java.resolve().with_name("javac")
        compiler = str(beside) if beside.exists() else shutil.which("javac")
        if compiler is None:
            raise NoApache("no javac beside the Java found: install a JDK, version 17 or newer")
        building = classes.with_name(f"{classes.name}.{os.getpid()}")
        building.mkdir(parents=True)
        command = [compiler, "-cp", str(apache.jars / "*"), "-d", str(building), str(source)]
        subprocess.run(command, check=True, timeout=120)
        building.rename(classes)
    return Genuine(apache.java, apache.jars, classes)


class Bookie(Protocol):
    """A bookie process of either kind."""

    @property
    def bookie_id(self) -> str:
        """Under which it registers."""

    @property
    def pid(self) -> int:
        """Process id."""

    def start(self, *, wait: bool = True) -> None:
        """Start it; with `wait`, return once it serves."""

    def wait_ready(self) -> None:
        """Return once it serves."""

    def kill(self) -> None:
        """SIGKILL, and wait."""


class ApacheBookie:
    """One genuine bookie with its defaults, its usual storage and a heap of 1 GiB."""

    def __init__(self, genuine: Genuine, directory: Path, uri: str, settings: Mapping[str, str]) -> None:
        port = free_port()
        self.bookie_id = f"127.0.0.1:{port}"
        self._genuine, self._directory = genuine, directory
        self._log_path = directory / "bookie.log"
        self._settings = {
            "bookiePort": str(port),
            "metadataServiceUri": uri,
            "journalDirectories": str(directory / "journal"),
            "ledgerDirectories": str(directory / "ledgers"),
            "allowLoopback": "true",
            "listeningInterface": "lo",
            "advertisedAddress": "127.0.0.1",
            **DISK_SETTINGS,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start the JVM."""
        self._directory.mkdir(parents=True)
        conf = self._directory / "bookie.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(self._genuine.command("org.apache.bookkeeper.server.Main", "--conf", conf)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,  # so that Ctrl-C reaches the one that measures and not the bookie
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Return once it serves. Raises DidNotStart."""
        assert self._process is not None
        why = await_output(self._process, self._log_path, _SERVES, timeout_s=START_TIMEOUT_S)
        if why is not None:
            tail = self._log_path.read_text(errors="replace").splitlines()[-20:]
            raise DidNotStart("\n".join([f"Apache's bookie: {why}; the end of its log:", *tail]))

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def make_bookie(kind: str, genuine: Genuine, directory: Path, uri: str) -> Bookie:
    """A bookie of a kind ("ours", "apache", "tuned") that does not run yet."""
    if kind == "ours":
        return LocalBookie(1, directory, uri, free_port(), DISK_SETTINGS)
    return ApacheBookie(genuine, directory, uri, TUNED_SETTINGS if kind == "tuned" else {})


class Cluster:
    """Three bookies of one kind with directories and a ledgers root of their own."""

    def __init__(self, kind: str, stint: int, genuine: Genuine, directory: Path, zookeeper: str) -> None:
        self.kind = kind
        self.directory = directory / f"{kind}-{stint}"
        self.uri = f"zk+hierarchical://{zookeeper}/{kind}-{stint}"
        self.entries = 0  # acknowledged since it started
        self.bookies: list[Bookie] = [
            make_bookie(kind, genuine, self.directory / f"bookie-{number}", self.uri)
            for number in range(1, BOOKIES + 1)
        ]

    @property
    def pids(self) -> list[int]:
        """Of its bookies."""
        return [bookie.pid for bookie in self.bookies]

    def start(self) -> None:
        """Make its metadata, start its bookies side by side, return once all serve."""
        initialise(self.uri)
        for bookie in self.bookies:
            bookie.start(wait=False)
        for bookie in self.bookies:
            bookie.wait_ready()

    def destroy(self) -> None:
        """Kill its bookies and remove what they wrote."""
        for bookie in self.bookies:
            bookie.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()


def initialise(uri: str) -> None:
    """Make a cluster's metadata, with our shell; Apache's bookies take it as theirs."""
    command = [sys.executable, "-m", "bookkeeper.cli.main", "shell", "--uri", uri, "initnewcluster"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise DidNotStart(f"the metadata of {uri} could not be made: {done.stderr.strip()}")


def seconds_to_register(bookie: Bookie, zookeeper: str, root: str) -> float:
    """Start a bookie; seconds from the start of its process to its registration, as a watch on ZooKeeper sees it.

    It serves when this returns, and is the caller's to end. Raises DidNotStart.
    """
    registered = threading.Event()
    client = KazooClient(hosts=zookeeper)
    client.start(timeout=START_TIMEOUT_S)
    try:
        client.ensure_path(f"{root}/available")

        @client.ChildrenWatch(f"{root}/available")  # type: ignore[untyped-decorator,unused-ignore]  # kazoo has no types
        def look(children: list[str]) -> None:
            if bookie.bookie_id in children:
                registered.set()

        began = time.perf_counter()
        bookie.start(wait=False)
        if not registered.wait(START_TIMEOUT_S):
            raise DidNotStart(f"bookie {bookie.bookie_id} did not register within {START_TIMEOUT_S:g} s")
        took = time.perf_counter() - began
        bookie.wait_ready()
        return took
    finally:
        client.stop()
        client.close()


def mount_of(path: Path) -> tuple[str, str]:
    """Device and type of the file system that holds `path`, which exists."""
    best = ("", "?", "?")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, point, kind = line.split()[:3]
        inside = path.resolve().is_relative_to(point)
        if inside and len(point) >= len(best[0]):
            best = (point, device, kind)
    return best[1], best[2]
