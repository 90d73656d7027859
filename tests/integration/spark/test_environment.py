"""What Spark is started with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.embedded.java import Java, find_java
from bookkeeper.spark.environment import VECTOR_MODULE, adapted_home, has_vector_module, prepare_environment


def fake_java(directory: Path, modules: str) -> Java:
    """A runtime that knows its version, its modules, and says what it was started with."""
    (directory / "bin").mkdir(parents=True)
    (directory / "lib").mkdir()
    java = directory / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "-version) echo 'openjdk version \"21.0.1\"' >&2;;\n"
        f"--list-modules) echo '{modules}';;\n"
        '*) for each do echo "<$each>"; done;;\n'
        "esac\n"
    )
    java.chmod(0o755)
    return Java(java, 21, "PATH")


@pytest.mark.parametrize("modules", ["java.base@21.0.1", "java.base@21.0.1\n" + VECTOR_MODULE + "@21.0.1"])
def test_only_a_runtime_without_the_vector_module_is_wrapped(tmp_path: Path, modules: str) -> None:
    java = fake_java(tmp_path / "runtime", modules)
    environ = {"JAVA_HOME": str(tmp_path / "runtime"), "PATH": "/usr/bin:/bin"}
    prepare_environment(environ)
    home = Path(environ["JAVA_HOME"])
    assert (home == java.home) is (VECTOR_MODULE in modules)
    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    arguments = ["-cp", "a b", f"--add-modules={VECTOR_MODULE}", "Main", ""]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    left = arguments if VECTOR_MODULE in modules else [each for each in arguments if "add-modules" not in each]
    assert said.splitlines() == [f"<{each}>" for each in left]


def test_the_wrapped_home_has_the_rest_of_the_runtime(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "runtime", "java.base")
    home = adapted_home(java, tmp_path / "home")
    assert (home / "lib").resolve() == java.home / "lib"


def test_the_runtime_of_this_machine_starts_through_it(tmp_path: Path) -> None:
    java = find_java()
    home = adapted_home(java, tmp_path / "home")
    done = subprocess.run(
        [home / "bin" / "java", f"--add-modules={VECTOR_MODULE}", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert has_vector_module(java) in (True, False)
