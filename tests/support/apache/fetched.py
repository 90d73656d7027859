"""One release on this machine: its jars, fetched with Maven at first need, and our Java drivers compiled against them.

.cache/apache-<version>/jars        what Maven copied
.cache/tool-<version>-<digest>/     the classes of tests/interop/java
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.apache.releases import DEFAULT, RELEASES, Release
from tests.support.java_programs import (
    CACHE,
    Missing,
    compile_drivers,
    fetch_jars,
    find_java_executable,
    java_command,
)

_JAVA_SOURCES = Path(__file__).parent.parent.parent / "interop" / "java"


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
        path = [*([classes] if classes else []), _JAVA_SOURCES, self.jars / "*"]
        return java_command(self.java, path, main_class, *arguments, options=options)

    def tool_classes(self) -> Path:
        """The directory of our compiled drivers, LedgerTool among them."""
        sources = [_JAVA_SOURCES / name for name in self.release.java_sources]
        try:
            return compile_drivers(
                self.java, self.jars, sources, self.release.version, f"Apache {self.release.version}"
            )
        except Missing as missing:
            pytest.skip(str(missing))


def find_apache(apache_home: Path | None, version: str = DEFAULT.version) -> Apache:
    """A release to test against; skips the test, saying why, where it cannot be had.

    apache_home: jars of the default release, with those of others in directories named by their version below it, or
    each release in a directory of its version.
    """
    release = RELEASES[version]
    try:
        java = find_java_executable()
        if apache_home is None:
            jars = CACHE / f"apache-{version}" / "jars"
            what = f"Apache BookKeeper {version} (or give --apache-home)"
            fetch_jars(jars, _JAVA_SOURCES / "pom.xml", what, {"bookkeeper.version": version})
            return Apache(jars, java, release)
    except Missing as missing:
        pytest.skip(str(missing))
    jars = apache_home / version
    if not jars.is_dir():
        jars = apache_home
    if not any(jars.glob(f"*bookkeeper-server-{version}.jar")):
        pytest.skip(f"--apache-home {apache_home} has no Apache BookKeeper {version}")
    return Apache(jars, java, release)
