"""Where the demo's data comes from, on machines that have less and less of it."""

import gzip
from pathlib import Path

import pytest

from bookkeeper.cli.demo import history
from bookkeeper.cli.demo.history import PACKAGES_MIN, Stream, machine_history
from bookkeeper.cli.main import main
from bookkeeper.console.output import EXIT_USAGE

CHANGELOG = b"""tool (2.0-1) unstable; urgency=medium

  * Second release (a line that only looks like a heading is none).

 -- A Person <a@example.org>  Mon, 02 Jan 2023 00:00:00 +0000

tool (1.0-1) unstable; urgency=low

  * First release.

 -- A Person <a@example.org>  Sun, 01 Jan 2023 00:00:00 +0000
"""

DPKG_LOG = b"""2023-01-01 10:00:00 startup archives unpack
2023-01-01 10:00:01 install tool:amd64 <none> 1.0-1
2023-01-01 10:00:01 status half-installed tool:amd64 1.0-1
2023-01-01 10:00:02 status installed libx1:amd64 3
2023-01-02 10:00:01 upgrade tool:amd64 1.0-1 2.0-1
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without documentation and without dpkg."""
    monkeypatch.setattr(history, "DOCUMENTATION", tmp_path / "doc")
    monkeypatch.setattr(history, "DPKG_LOG", tmp_path / "dpkg.log")
    return tmp_path


def write_changelog(machine: Path, package: str, text: bytes, name: str = "changelog.Debian.gz") -> None:
    path = machine / "doc" / package / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text))


def test_changelogs_give_a_stream_a_package_and_an_entry_a_release_oldest_first(machine: Path) -> None:
    for number in range(PACKAGES_MIN):
        write_changelog(machine, f"tool-{number}", CHANGELOG)
    what, streams = machine_history(limit=3)
    taken = list(streams)
    assert what == "Debian changelogs"
    assert [stream.package for stream in taken] == ["tool-0", "tool-1", "tool-2"]
    for stream in taken:
        assert [entry.split(b" (")[1][:5] for entry in stream.entries] == [b"1.0-1", b"2.0-1"]
        assert b"".join(reversed(stream.entries)).count(b"release") == 2


def test_a_package_with_two_changelogs_is_one_stream(machine: Path) -> None:
    for number in range(PACKAGES_MIN):
        write_changelog(machine, f"tool-{number}", CHANGELOG)
    write_changelog(machine, "tool-0", CHANGELOG.replace(b"tool", b"upstream"), "changelog.gz")
    _, streams = machine_history(limit=1)
    assert len(next(streams).entries) == 4


def test_a_package_without_releases_has_no_stream(machine: Path) -> None:
    for number in range(PACKAGES_MIN):
        write_changelog(machine, f"tool-{number}", b"\n" if number else CHANGELOG)
    _, streams = machine_history(limit=100)
    assert [stream.package for stream in streams] == ["tool-0"]


def test_where_documentation_is_stripped_the_log_of_dpkg_is_taken(machine: Path) -> None:
    write_changelog(machine, "the-only-one", CHANGELOG)
    (machine / "dpkg.log").write_bytes(DPKG_LOG)
    what, streams = machine_history(limit=10)
    lines = DPKG_LOG.splitlines()
    assert what == "dpkg's log"
    assert list(streams) == [
        Stream("tool", [lines[1], lines[2], lines[4]]),
        Stream("libx1", [lines[3]]),
    ]


@pytest.mark.parametrize("log", [None, b""])
def test_without_dpkg_the_sources_of_python_are_taken(machine: Path, log: bytes | None) -> None:
    if log is not None:
        (machine / "dpkg.log").write_bytes(log)
    what, streams = machine_history(limit=4)
    taken = list(streams)
    assert what == "Python's standard library sources"
    assert 1 <= len(taken) <= 4
    assert all(entry for stream in taken for entry in stream.entries)


def test_an_unknown_part_of_the_demo_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "nonsense"]) == EXIT_USAGE
    assert "no demo part 'nonsense'; there are: ledgers" in capsys.readouterr().err
