"""The genuine Apache BookKeeper, fetched with Maven when a test asks for it.

The jars land in `.cache/apache-<version>` of the checkout, or come from `--apache-home`. Nothing of them is committed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.embedded.java import find_java

VERSION = "4.18.0"
FETCH_TIMEOUT_S = 600
RUN_TIMEOUT_S = 90

_HERE = Path(__file__).parent
_JAVA_SOURCES = _HERE.parent / "interop" / "java"
_CACHE = _HERE.parent.parent / ".cache"


@dataclass(frozen=True, slots=True)
class Apache:
    """A directory of jars and the Java to run them with."""

    jars: Path
    java: str

    @property
    def class_path(self) -> str:
        """All jars."""
        return str(self.jars / "*")

    def run_tool(self, *arguments: object, timeout_s: float = RUN_TIMEOUT_S) -> list[str]:
        """Run LedgerTool and return the lines it printed. Fails the test with its error output."""
        command = [self.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self._tool_class_path()]
        command += ["-Dlog4j2.level=warn", "LedgerTool", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            pytest.fail(f"LedgerTool {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout.splitlines()

    def _tool_class_path(self) -> str:
        source = _JAVA_SOURCES / "LedgerTool.java"
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
        classes = self.jars.parent / f"tool-{digest}"
        if not classes.is_dir():
            building = self.jars.parent / f"tool-{digest}.{os.getpid()}"
            javac = Path(self.java).with_name("javac")
            compiler = str(javac) if javac.exists() else shutil.which("javac")
            if compiler is None:
                pytest.skip("no javac beside the Java found: install a JDK, version 17 or newer")
            subprocess.run(
                [compiler, "-cp", self.class_path, "-d", str(building), str(source)], check=True, timeout=120
            )
            building.rename(classes)
        return f"{classes}{os.pathsep}{self.class_path}"


def find_apache(apache_home: Path | None) -> Apache:
    """The Apache release to test against; skips the test, saying why, where it cannot be had."""
    java = find_java()
    if apache_home is not None:
        return Apache(apache_home, str(java.executable))
    jars = _CACHE / f"apache-{VERSION}" / "jars"
    if not jars.is_dir():
        _fetch(jars)
    return Apache(jars, str(java.executable))


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
