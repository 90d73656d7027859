"""One release on this machine: its jars, fetched with Maven at first need, and our Java drivers compiled against them.

.cache/apache-<version>/jars        what Maven copied
.cache/tool-<version>-<digest>/     the classes of tests/interop/java
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.embedded.java import JavaNotFoundError, find_java
from tests.support.apache.releases import DEFAULT, RELEASES, Release

FETCH_TIMEOUT_S = 600
COMPILE_TIMEOUT_S = 120

_TESTS = Path(__file__).parent.parent.parent
_JAVA_SOURCES = _TESTS / "interop" / "java"
_CACHE = _TESTS.parent / ".cache"
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


@dataclass(frozen=True, slots=True)
class Apache:
    """A directory of jars of one release and the Java to run them with."""

    jars: Path
    java: Path
    release: Release = DEFAULT

    def command(
        self, main_class: str, *arguments: object, classes: Path | None = None, options: Sequence[str] = ()
    ) -> list[str]:
        """The command line of a Java program on these jars. options: more of the Java machine's, which win."""
        path = [*([str(classes)] if classes else []), str(_JAVA_SOURCES), str(self.jars / "*")]
        java = [str(self.java), *_OPTIONS, f"-Djdk.net.hosts.file={_hosts()}", *options]
        return [*java, "-cp", os.pathsep.join(path), main_class, *map(str, arguments)]

    def tool_classes(self) -> Path:
        """The directory of our compiled drivers, LedgerTool among them."""
        sources = [_JAVA_SOURCES / name for name in self.release.java_sources]
        digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
        classes = _CACHE / f"tool-{self.release.version}-{digest}"
        if not classes.is_dir():
            beside = self.java.resolve().with_name("javac")
            compiler = str(beside) if beside.exists() else shutil.which("javac")
            if compiler is None:
                pytest.skip("no javac beside the Java found: install a JDK, version 17 or newer")
            building = classes.with_name(f"{classes.name}.{os.getpid()}")
            command = [compiler, "-nowarn", "-cp", str(self.jars / "*"), "-d", str(building), *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
            if done.returncode != 0:
                pytest.fail(f"our drivers do not compile against Apache {self.release.version}:\n{done.stderr}")
            _put_in_place(building, classes)
        return classes


def find_apache(apache_home: Path | None, version: str = DEFAULT.version) -> Apache:
    """A release to test against; skips the test, saying why, where it cannot be had.

    apache_home: jars of the default release, with those of others in directories named by their version below it, or
    each release in a directory of its version.
    """
    release = RELEASES[version]
    java = _java()
    if isinstance(java, str):
        pytest.skip(java)
    if apache_home is not None:
        jars = apache_home / version
        if not jars.is_dir():
            jars = apache_home
        if not any(jars.glob(f"*bookkeeper-server-{version}.jar")):
            pytest.skip(f"--apache-home {apache_home} has no Apache BookKeeper {version}")
        return Apache(jars, java, release)
    jars = _CACHE / f"apache-{version}" / "jars"
    if not jars.is_dir():
        if not _why_not:
            _why_not.extend(_fetch(version, jars))
        if _why_not:
            pytest.skip(_why_not[0])
    return Apache(jars, java, release)


@functools.cache
def _java() -> Path | str:
    """The Java to run programs with, or why there is none. Asking each candidate for its version takes a while."""
    try:
        return find_java().executable
    except JavaNotFoundError as error:
        return str(error)


_why_not: list[str] = []
"""Why the first release that could not be fetched in this run could not; no other is tried then. One line for all."""


def _fetch(version: str, jars: Path) -> list[str]:
    """Have Maven fetch a release. Returns why there is none, if so."""
    maven = shutil.which("mvn")
    if maven is None:
        return ["Apache BookKeeper is fetched with Maven, and there is no mvn (or give --apache-home)"]
    arriving = jars.with_name(f"jars.{os.getpid()}")
    command = [maven, "-q", "-B", "-f", str(_JAVA_SOURCES / "pom.xml"), f"-Dbookkeeper.version={version}"]
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
        return [f"Maven could not fetch Apache BookKeeper {version}: {why}"]
    _put_in_place(arriving, jars)
    return []


def _first_error(output: str) -> str:
    errors = [line for line in output.splitlines() if line.startswith("[ERROR]")]
    return (errors or output.strip().splitlines() or ["it says nothing"])[0]


def _put_in_place(made: Path, place: Path) -> None:
    """Rename a finished directory to its place, unless another run was faster."""
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        shutil.rmtree(made)


def _hosts() -> Path:
    """All the names that Apache's programs may look up: this machine is 127.0.0.1, and no name server is asked.

    4.2.3 has no other way to make its bookie's id an address on the loopback interface.
    """
    path = _CACHE / "hosts"
    text = f"127.0.0.1 localhost {socket.gethostname()}\n"
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        writing = path.with_name(f"hosts.{os.getpid()}")
        writing.write_text(text)
        writing.replace(path)
    return path
