"""Hadoop on this machine: its jars, fetched with Maven at first need, and our Java drivers compiled against them.

.cache/hadoop-<version>/jars             what Maven copied
.cache/tool-hadoop-<version>-<digest>/   the classes of tests/interop/java/hadoop
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.java_programs import (
    CACHE,
    Missing,
    compile_drivers,
    fetch_jars,
    find_java_executable,
    java_command,
)

HADOOP_VERSION = "2.7.7"
PACKAGE = "org.apache.hadoop.hdfs.server.namenode"
"""The package of our drivers: Hadoop's transactions are not public."""

_LOGGING = Path(__file__).parent.parent.parent / "interop" / "java"
_SOURCES = _LOGGING / "hadoop"


@dataclass(frozen=True, slots=True)
class Hadoop:
    """A directory of jars, and the Java to run them with."""

    jars: Path
    java: Path

    def command(self, main_class: str, *arguments: object, options: Sequence[str] = ()) -> list[str]:
        """The command line of a program of Hadoop's, or of a driver of ours by its whole name."""
        path = [self._driver_classes(), _LOGGING, self.jars / "*"]
        return java_command(self.java, path, main_class, *arguments, options=("-Xmx512m", *options))

    def _driver_classes(self) -> Path:
        name = f"Hadoop {HADOOP_VERSION}"
        try:
            return compile_drivers(
                self.java, self.jars, sorted(_SOURCES.glob("*.java")), f"hadoop-{HADOOP_VERSION}", name
            )
        except Missing as missing:
            pytest.skip(str(missing))


def find_hadoop() -> Hadoop:
    """Hadoop to test against; skips the test, saying why, where it cannot be had."""
    jars = CACHE / f"hadoop-{HADOOP_VERSION}" / "jars"
    try:
        java = find_java_executable()
        fetch_jars(jars, _SOURCES / "pom.xml", f"Hadoop {HADOOP_VERSION}", {"hadoop.version": HADOOP_VERSION})
    except Missing as missing:
        pytest.skip(str(missing))
    return Hadoop(jars, java)
