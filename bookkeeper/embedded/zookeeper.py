"""A real ZooKeeper server as a child process, run from the jars that the pyspark package carries.

Blocking, for command lines and tests: never call it on the reactor thread. The server listens on the loopback
interface only, dies with the thread that started it (see process.py) and writes its output to a file.

    <data_dir>/version-2/      ZooKeeper's own log and snapshots
    <data_dir>/zoo.cfg         written at each start
    <data_dir>/zookeeper.log   standard output and error, appended

States: stopped -> (start) -> running -> (stop, kill) -> stopped. A restart keeps port and data, so clients see an
outage and then the same tree; after `kill` the same holds, because ZooKeeper syncs its log before it answers.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from bookkeeper.embedded.java import JavaNotFoundError, find_java
from bookkeeper.embedded.process import dying_with_parent, free_port, on_lasting_thread, why_not_free, write_private
from bookkeeper.errors import BookKeeperError

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.02
PROBE_TIMEOUT_S = 2.0
PORT_ATTEMPTS_MAX = 3
LOG_TAIL_BYTES = 2000

# Without snappy-java the server listens, never serves, and says nothing. The last three are for its log.
_JARS_NEEDED = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
_JARS_WANTED = ("log4j-slf4j2-impl", "log4j-api", "log4j-core")

HEAP_MIB = 256
"""Enough for some 100 000 znodes of this project."""

JUTE_MAX_BUFFER_MIB = 16
"""The server's own default, 1 MiB, is less than what ends a session with some 10 000 ephemeral znodes: such a record is
written, and then it cannot be read when the server starts again."""

_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dlog4j2.level=warn",
)

# A tick of 500 ms: sessions of killed processes end at whole ticks, and their locks and nodes with them. The longest
# session is what a tick of 2 s, ZooKeeper's usual one, would give.
_CONFIGURATION = """\
dataDir={data_dir}
clientPort={port}
clientPortAddress={host}
tickTime=500
minSessionTimeout=500
maxSessionTimeout=40000
maxClientCnxns=0
admin.enableServer=false
autopurge.purgeInterval=1
4lw.commands.whitelist=srvr,ruok,mntr
"""


class ZooKeeperUnavailable(BookKeeperError):
    """The embedded ZooKeeper cannot run here, did not start, or ended by itself; the message names the remedy."""


def find_jars() -> list[Path]:
    """Return the jars of a ZooKeeper server. Looks for the pyspark package without importing it.

    Raises ZooKeeperUnavailable naming the extra to install, or the jars that are missing.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperUnavailable(
            "The embedded ZooKeeper runs from the jars inside the pyspark package, which is not installed: "
            "pip install 'pybookkeeper[spark]', or give the address of a ZooKeeper that runs already."
        )
    directory = Path(spec.origin).parent / "jars"
    found: dict[str, Path] = {}
    for path in sorted(directory.glob("*.jar")):
        # zookeeper-3.9.5.jar, metrics-core-4.2.37.jar: the name ends where the version begins.
        named = re.fullmatch(r"(.+?)-\d[\w.\-]*\.jar", path.name)
        if named is not None and named[1] in _JARS_NEEDED + _JARS_WANTED:
            found[named[1]] = path
    missing = [name for name in _JARS_NEEDED if name not in found]
    if missing:
        raise ZooKeeperUnavailable(
            f"{directory} lacks {', '.join(name + '-*.jar' for name in missing)}: another release of pyspark? "
            "Reinstall it (pip install --force-reinstall 'pybookkeeper[spark]'), or use a ZooKeeper that runs already."
        )
    return list(found.values())


def four_letter_word(host: str, port: int, word: str, timeout_s: float = PROBE_TIMEOUT_S) -> str:
    """Return a ZooKeeper's answer to an administrative command such as "srvr"; "" while it does not serve yet.

    Raises OSError (ConnectionRefusedError, TimeoutError) when nobody answers.
    """
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(word.encode("ascii"))
        parts: list[bytes] = []
        while part := connection.recv(4096):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


class EmbeddedZooKeeper:
    """One ZooKeeper server; a context manager that starts and stops it."""

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int = 0,
        *,
        heap_mib: int = HEAP_MIB,
        jute_max_buffer_mib: int = JUTE_MAX_BUFFER_MIB,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Prepare; nothing runs yet.

        data_dir: kept after `stop`, made if absent. None: a temporary one, removed by `stop` unless the server ended
            by itself: its log says why.
        port: 0 picks a free one at the first start and keeps it from then on.
        heap_mib: Java's heap, which holds all znodes. jute_max_buffer_mib: largest record, of a request and on disk.
        """
        self._memory_options = (f"-Xmx{heap_mib}m", f"-Djute.maxbuffer={jute_max_buffer_mib << 20}")
        self._temporary = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="zookeeper-")) if data_dir is None else data_dir.absolute()
        self.port = port
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port, as in a connect string. Raises RuntimeError before the first start if no port was given."""
        if not self.port:
            raise RuntimeError("the port is chosen when the server starts")
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id. Raises RuntimeError while it does not run."""
        if self._process is None:
            raise RuntimeError("the embedded ZooKeeper does not run")
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """File with the server's output."""
        return self.data_dir / "zookeeper.log"

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def ended_by_itself(self) -> bool:
        """True when the process has ended although neither `stop` nor `kill` was called."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> Self:
        """Start the server and return once it serves requests. Does nothing if it runs already.

        Raises ZooKeeperUnavailable if there is no Java or no jars, the port is taken, the server ends by itself or
        does not serve within `start_timeout_s`; nothing is left running then.
        """
        if self.running:
            return self
        jars = find_jars()
        try:
            java = find_java()
        except JavaNotFoundError as error:
            raise ZooKeeperUnavailable(f"The embedded ZooKeeper needs Java. {error}") from error
        chosen = self.port
        for attempts_left in reversed(range(PORT_ATTEMPTS_MAX)):
            self.port = chosen or free_port(HOST)
            failure = self._try_to_start(java.executable, jars)
            if failure is None:
                return self
            # A port that was free a moment ago may be gone; only one of our own choosing is worth another try.
            if chosen or not attempts_left or "Address already in use" not in failure:
                self.port = chosen
                raise ZooKeeperUnavailable(f"The embedded ZooKeeper did not start: {failure}")
        raise AssertionError("the last attempt returns or raises")

    def _try_to_start(self, java: Path, jars: list[Path]) -> str | None:
        """Return None if the server runs, or the reason why it does not. After a failure no process is left."""
        # Another ZooKeeper on the port would answer the readiness probe instead of this one.
        if (reason := why_not_free(HOST, self.port, "choose another port")) is not None:
            return reason
        self._launch(java, jars)
        return self._await_serving()

    def _launch(self, java: Path, jars: list[Path]) -> None:
        self.data_dir.mkdir(0o700, parents=True, exist_ok=True)
        configuration = self.data_dir / "zoo.cfg"
        write_private(configuration, _CONFIGURATION.format(data_dir=self.data_dir, port=self.port, host=HOST))
        class_path = os.pathsep.join(map(str, jars))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = [str(java), *self._memory_options, *_JAVA_OPTIONS, "-cp", class_path, main, str(configuration)]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = on_lasting_thread(
                lambda: subprocess.Popen(
                    dying_with_parent(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.data_dir,
                    start_new_session=True,  # so that Ctrl-C reaches the supervisor and not the server
                    umask=0o077,  # its logs and snapshots contain passwords
                )
            )

    def _await_serving(self) -> str | None:
        """Return None once the server serves, or what went wrong; then it has been killed."""
        deadline = time.monotonic() + self._start_timeout_s
        while self.running and time.monotonic() < deadline:
            try:
                if four_letter_word(HOST, self.port, "srvr").startswith("Zookeeper version"):
                    return None
            except OSError:
                pass  # not listening yet; the deadline and the process's end bound the wait
            time.sleep(POLL_INTERVAL_S)
        ended = not self.running
        code = self._process.returncode if self._process else None
        self.kill()
        what = f"it ended with code {code}" if ended else f"it did not serve within {self._start_timeout_s:g} s"
        return f"{what}; the end of {self.log_path}:\n{self._log_tail()}"

    def _log_tail(self) -> str:
        with self.log_path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - LOG_TAIL_BYTES))
            return log.read(LOG_TAIL_BYTES).decode(errors="replace").strip()

    def kill(self) -> None:
        """Kill the server at once (SIGKILL) and keep its data: an outage. Does nothing if it does not run."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same port and data."""
        self._end(signal.SIGTERM)
        self.start()

    def stop(self) -> None:
        """Stop the server (SIGTERM; SIGKILL after STOP_TIMEOUT_S) and remove its data if they were temporary."""
        ended = self.ended_by_itself
        self._end(signal.SIGTERM)
        if self._temporary and not ended:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _end(self, sign: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(sign)  # does nothing if the process was reaped
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
