"""Java programs of others beside ours: jars fetched with Maven at first need, our drivers compiled against them, and a
driver as one process that takes commands.

Nothing of others is committed. A JDK (javac) of version 17 or newer and mvn are needed; where one of them or Maven's
repository is missing, `Missing` says which in one line.

    .cache/<name>/jars                 what Maven copied
    .cache/tool-<name>-<digest>/       classes of our drivers
"""

from __future__ import annotations

import functools
import hashlib
import os
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bookkeeper.embedded.java import JavaNotFoundError, find_java
from bookkeeper.embedded.process import dying_with_parent
from tests.support.process_output import tail

FETCH_TIMEOUT_S = 600
COMPILE_TIMEOUT_S = 120
ANSWER_TIMEOUT_S = 100
LINE_BYTES_MAX = 1 << 16

CACHE = Path(__file__).parent.parent.parent / ".cache"
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


class Missing(Exception):
    """What a program needs and this machine does not have, in one line."""


@functools.cache
def _java() -> Path | str:
    """The Java to run programs with, or why there is none. Asking each candidate for its version takes a while."""
    try:
        return find_java().executable
    except JavaNotFoundError as error:
        return str(error)


def find_java_executable() -> Path:
    """The Java to run programs with. Raises Missing."""
    java = _java()
    if isinstance(java, str):
        raise Missing(java)
    return java


def java_command(
    java: Path, class_path: Sequence[object], main_class: str, *arguments: object, options: Sequence[str] = ()
) -> list[str]:
    """The command line of a program. options: more of the Java machine's, which win."""
    path = os.pathsep.join(map(str, class_path))
    machine = [str(java), *_OPTIONS, f"-Djdk.net.hosts.file={_hosts()}", *options]
    return [*machine, "-cp", path, main_class, *map(str, arguments)]


_why_not: list[str] = []
"""Why the first jars that could not be fetched in this run could not; no others are tried then. One line for all."""


def fetch_jars(jars: Path, pom: Path, what: str, properties: Mapping[str, str]) -> None:
    """Have Maven put what a POM names into the directory `jars`, unless it is there. Raises Missing."""
    if not jars.is_dir() and not _why_not:
        _why_not.extend(_fetch(jars, pom, what, properties))
    if not jars.is_dir():
        raise Missing(_why_not[0])


def _fetch(jars: Path, pom: Path, what: str, properties: Mapping[str, str]) -> list[str]:
    """Returns why there is none, if so."""
    maven = shutil.which("mvn")
    if maven is None:
        return [f"{what} is fetched with Maven, and there is no mvn"]
    arriving = jars.with_name(f"jars.{os.getpid()}")
    command = [maven, "-q", "-B", "-f", str(pom), *(f"-D{key}={value}" for key, value in properties.items())]
    try:
        done = subprocess.run(
            [*command, "dependency:copy-dependencies", f"-DoutputDirectory={arriving}"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        why = "" if done.returncode == 0 else _first_error(done.stdout)
    except subprocess.TimeoutExpired:
        why = f"it took longer than {FETCH_TIMEOUT_S} s"
    if why:
        shutil.rmtree(arriving, ignore_errors=True)  # or the next run takes a part for the whole
        return [f"Maven could not fetch {what}: {why}"]
    _put_in_place(arriving, jars)
    return []


def _first_error(output: str) -> str:
    errors = [line for line in output.splitlines() if line.startswith("[ERROR]")]
    return (errors or output.strip().splitlines() or ["it says nothing"])[0]


def compile_drivers(java: Path, jars: Path, sources: Sequence[Path], name: str, what: str) -> Path:
    """The directory of our compiled drivers. Raises Missing; fails the test when they do not compile."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = CACHE / f"tool-{name}-{digest}"
    if not classes.is_dir():
        beside = java.resolve().with_name("javac")
        compiler = str(beside) if beside.exists() else shutil.which("javac")
        if compiler is None:
            raise Missing("no javac beside the Java found: install a JDK, version 17 or newer")
        building = classes.with_name(f"{classes.name}.{os.getpid()}")
        command = [compiler, "-nowarn", "-cp", str(jars / "*"), "-d", str(building), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode != 0:
            pytest.fail(f"our drivers do not compile against {what}:\n{done.stderr}")
        _put_in_place(building, classes)
    return classes


def _put_in_place(made: Path, place: Path) -> None:
    """Rename a finished directory to its place, unless another run was faster."""
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        shutil.rmtree(made)


def _hosts() -> Path:
    """All the names that the programs may look up: this machine is 127.0.0.1, and no name server is asked.

    BookKeeper 4.2.3 has no other way to make its bookie's id an address on the loopback interface.
    """
    path = CACHE / "hosts"
    text = f"127.0.0.1 localhost {socket.gethostname()}\n"
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        writing = path.with_name(f"hosts.{os.getpid()}")
        writing.write_text(text)
        writing.replace(path)
    return path


class CommandFailed(Exception):
    """A driver answered that a command failed."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message


class Driver:
    """One Java process of one of our drivers: a command a line in, lines out, the last of which begins with "= ".

    A context manager; the process dies with this one.
    """

    failure: type[CommandFailed] = CommandFailed
    """What `run` raises."""

    def __init__(self, command: Sequence[str], log_path: Path, what: str) -> None:
        """Start it. log_path: where its standard error goes. what: for messages."""
        self.log_path, self._what = log_path, what
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self._rest = b""

    def run(self, *words: object) -> list[str]:
        """Give one command; the lines of its answer. Raises `failure`; fails the test when no answer comes."""
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
                raise self.failure(int(code), message)
            lines.append(line)

    def _line(self, words: tuple[object, ...]) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._process.stdout.fileno(), LINE_BYTES_MAX) if readable else b""
            if not data:
                why = "ended" if readable else f"gave no answer within {ANSWER_TIMEOUT_S} s"
                pytest.fail(f"{self._what} {why} on {words}; its log:\n{tail(self.log_path)}")
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
