"""One module of one release of Hedwig on this machine: its jars, and our Java driver compiled against them.

.cache/hedwig-client-<version>/jars      what Maven copied
.cache/hedwig-server-<version>/jars
.cache/tool-hedwig-<version>-<digest>/   the classes of tests/interop/java/hedwig
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

CLIENT_VERSIONS = ("4.2.2", "4.3.2")
HUB_VERSIONS = ("4.2.0", "4.3.2")

_JAVA = Path(__file__).parent.parent.parent / "interop" / "java"
_SOURCES = (_JAVA / "hedwig" / "HedwigTool.java", _JAVA / "LedgerTool.java")


@dataclass(frozen=True, slots=True)
class HedwigJars:
    """A directory of jars of one module and release, and the Java to run them with."""

    jars: Path
    java: Path
    version: str

    def command(self, main_class: str, *arguments: object, classes: Sequence[Path] = ()) -> list[str]:
        """The command line of a Java program on these jars."""
        return java_command(self.java, [*classes, _JAVA, self.jars / "*"], main_class, *arguments)

    def tool_classes(self) -> Path:
        """The directory of our compiled driver."""
        name = f"hedwig-{self.version}"
        try:
            return compile_drivers(self.java, self.jars, _SOURCES, name, f"Apache Hedwig {self.version}")
        except Missing as missing:
            pytest.skip(str(missing))


def find_hedwig(module: str, version: str) -> HedwigJars:
    """A module (client, server) of a release; skips the test, saying why, where it cannot be had."""
    artifact = f"hedwig-{module}"
    jars = CACHE / f"{artifact}-{version}" / "jars"
    properties = {"hedwig.artifact": artifact, "hedwig.version": version}
    try:
        java = find_java_executable()
        fetch_jars(jars, _JAVA / "hedwig" / "pom.xml", f"Apache {artifact} {version}", properties)
    except Missing as missing:
        pytest.skip(str(missing))
    return HedwigJars(jars, java, version)
