"""The genuine Apache BookKeeper, fetched with Maven at first need: its client as a tool, its bookie as a process.

The jars land in `.cache/apache-<version>` of the checkout, or come from `--apache-home`. Nothing of them is committed.
Needs a JDK (javac) of version 17 or newer and mvn; where one is missing the test is skipped and says which.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bookkeeper.embedded.java import JavaNotFoundError, find_java
from bookkeeper.embedded.process import dying_with_parent
from tests.support.process_output import await_output

VERSION = "4.18.0"
FETCH_TIMEOUT_S = 600
ANSWER_TIMEOUT_S = 60
START_TIMEOUT_S = 40

_HERE = Path(__file__).parent
_JAVA_SOURCES = _HERE.parent / "interop" / "java"
_CACHE = _HERE.parent.parent / ".cache"
_SERVES = re.compile(rb"Started component \{component=bookie-server\}")
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ApacheError(Exception):
    """The genuine client failed; `code` is BKException's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Apache:
    """A directory of jars and the Java to run them with."""

    jars: Path
    java: Path

    def command(self, main_class: str, *arguments: object, classes: Path | None = None) -> list[str]:
        """The command line of a Java program on these jars."""
        path = [*([str(classes)] if classes else []), str(_JAVA_SOURCES), str(self.jars / "*")]
        return [str(self.java), *_OPTIONS, "-cp", os.pathsep.join(path), main_class, *map(str, arguments)]

    def tool_classes(self) -> Path:
        """The directory of the compiled LedgerTool."""
        source = _JAVA_SOURCES / "LedgerTool.java"
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
        classes = _CACHE / f"tool-{VERSION}-{digest}"
        if not classes.is_dir():
            beside = self.java.resolve().with_name("javac")
            compiler = str(beside) if beside.exists() else shutil.which("javac")
            if compiler is None:
                pytest.skip("no javac beside the Java found: install a JDK, version 17 or newer")
            building = classes.with_name(f"{classes.name}.{os.getpid()}")
            subprocess.run(
                [compiler, "-cp", str(self.jars / "*"), "-d", str(building), str(source)], check=True, timeout=120
            )
            building.rename(classes)
        return classes


def find_apache(apache_home: Path | None) -> Apache:
    """The Apache release to test against; skips the test, saying why, where it cannot be had."""
    try:
        java = find_java().executable
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    if apache_home is not None:
        return Apache(apache_home, java)
    jars = _CACHE / f"apache-{VERSION}" / "jars"
    if not jars.is_dir():
        _fetch(jars)
    return Apache(jars, java)


def _fetch(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"Apache BookKeeper {VERSION} is fetched with Maven, and there is no mvn (or give --apache-home)")
    arriving = jars.with_name(f"jars.{os.getpid()}")
    command = [maven, "-q", "-B", "-f", str(_JAVA_SOURCES / "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={arriving}"],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"Maven could not fetch Apache BookKeeper {VERSION}: {done.stdout.strip().splitlines()[-1:]}")
    arriving.rename(jars)


class ApacheClient:
    """The genuine client in one Java process, for as many commands as a run has. See LedgerTool.java."""

    def __init__(self, apache: Apache, log_path: Path) -> None:
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(apache.command("LedgerTool", classes=apache.tool_classes())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._rest = b""

    def run(self, *words: object) -> list[str]:
        """Give one command; the lines of its answer. Raises ApacheError; fails the test when no answer comes."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()
        lines: list[str] = []
        while True:
            line = self._line(words)
            if line == "= ok":
                return lines
            if line.startswith("= "):
                code, _, message = line[2:].partition(" ")
                raise ApacheError(int(code), message)
            lines.append(line)

    def _line(self, words: tuple[object, ...]) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._process.stdout.fileno(), 65536) if readable else b""
            if not data:
                why = "ended" if readable else f"gave no answer within {ANSWER_TIMEOUT_S} s"
                pytest.fail(f"Apache's client {why} on {words}; its log:\n{_tail(self._log_path)}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ApacheBookie:
    """A genuine bookie process on directories of its own, or on those of one of ours that does not run.

    Differs from a default one only in small buffers, short sessions and being allowed on the loopback interface.
    """

    def __init__(self, apache: Apache, directory: Path, uri: str, port: int) -> None:
        """Prepare. The directories are `journal` and `ledgers` below `directory`, as those of a LocalBookie."""
        self._apache, self._directory = apache, directory
        self.bookie_id = f"127.0.0.1:{port}"
        self._settings = {
            "bookiePort": str(port),
            "metadataServiceUri": uri,
            "journalDirectories": str(directory / "journal"),
            "ledgerDirectories": str(directory / "ledgers"),
            "allowLoopback": "true",
            "advertisedAddress": "127.0.0.1",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
            "zkTimeout": "2000",
            "journalPreAllocSizeMB": "1",
            "skipListSizeLimit": str(8 << 20),
        }
        self.conf_path, self.log_path = directory / "apache.conf", directory / "apache-bookie.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self, *, wait: bool = True) -> None:
        """Start; with `wait`, return once it serves."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.conf_path.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                dying_with_parent(self._apache.command("org.apache.bookkeeper.server.Main", "--conf", self.conf_path)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it serves. Fails the test with the end of its log when it does not."""
        assert self._process is not None
        # It listens, and resets connections, before it has replayed its journal: only its log tells when it serves.
        why = await_output(self._process, self.log_path, _SERVES, timeout_s=START_TIMEOUT_S, start=self._log_start)
        if why is not None:
            self.kill()
            pytest.fail(f"Apache's bookie did not start: {why}\n{_tail(self.log_path)}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(START_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL; does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-40:])
