"""Files that servers write are accessible only to their user, with any umask, unless a setting says otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.client.faces.blocking import connect
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from journalmgr.cli.main import main
from tests.support.cluster import local_cluster
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Set a umask that removes no rights."""
    before = os.umask(0)
    yield
    os.umask(before)


def wider(directory: Path) -> dict[str, str]:
    """Return files and directories, including the directory itself, that other users can access."""
    found = {str(path): path.stat().st_mode & 0o777 for path in (directory, *directory.rglob("*"))}
    assert len(found) > 3, directory
    return {path: oct(mode) for path, mode in found.items() if mode & 0o077}


def write(cluster: LocalCluster) -> None:
    with (
        connect(cluster.uri) as client,
        client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=b"p") as ledger,
    ):
        ledger.append_many([b"x"] * 100)


def test_a_bookie_writes_nothing_that_others_can_read(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> None:
    settings = {"zkDigestAuth": "joe:secret"}
    with local_cluster(
        zookeeper.address, ledgers_root, 1, directory=tmp_path / "cluster", settings=settings
    ) as cluster:
        write(cluster)
        (bookie,) = cluster.bookies
        assert bookie.stop() == 0  # the index and the marks are written
        assert list(bookie.directory.rglob("*.idx"))
        assert list(bookie.directory.rglob("lastMark"))
        log = Path(bookie.log_path)
        assert "joe:secret" in bookie.conf_path.read_text()
        assert {path for path in wider(bookie.directory) if path != str(log)} == set()
        assert "Other users" not in log.read_text()


def test_the_setting_leaves_modes_to_the_umask(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> None:
    settings = {"privateFiles": "false"}
    with local_cluster(
        zookeeper.address, ledgers_root, 1, directory=tmp_path / "cluster", settings=settings
    ) as cluster:
        write(cluster)
        (bookie,) = cluster.bookies
        assert bookie.stop() == 0
        files = [path for path in bookie.directory.rglob("current/*") if path.is_file()]
        assert files
        assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {path.name: "0o666" for path in files}


def test_directories_with_wider_modes_are_served_and_named_once(
    zookeeper: Any, ledgers_root: str, tmp_path: Path
) -> None:
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path / "cluster") as cluster:
        (bookie,) = cluster.bookies
        assert bookie.stop() == 0
        for path in (bookie.directory, *bookie.directory.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        bookie.start()
        write(cluster)
        text = Path(bookie.log_path).read_text()
        assert text.count("run chmod -R go= on each, or set privateFiles=false") == 1
        for path in (bookie.directory, *bookie.directory.rglob("*")):
            path.chmod(path.stat().st_mode & 0o700)
        assert bookie.stop() == 0
        bookie.start()
        assert Path(bookie.log_path).read_text().count("Other users can reach") == 1


def test_the_embedded_zookeeper_writes_nothing_that_others_can_read(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(data_dir=tmp_path / "data") as server:
        assert {path for path in wider(server.data_dir) if path != str(server.log_path)} == set()


def test_a_journal_of_files_is_for_its_user_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command_line = CommandLine(capfd, monkeypatch, main)
    where = tmp_path / "edits"
    where.mkdir(0o700)
    command_line("format", f"file://{where}")
    assert wider(where) == {}
    open_one = tmp_path / "open"
    command_line("format", f"file://{open_one}", "-D", "journalmgr.files.private=false")
    assert (open_one / "current" / "VERSION").stat().st_mode & 0o777 == 0o666
