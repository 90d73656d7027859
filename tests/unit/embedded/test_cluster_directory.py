"""Where a local cluster is: the same directory has one name, which cookies hold."""

from pathlib import Path

import pytest

from bookkeeper.embedded.cluster import LocalCluster


def test_a_directory_has_one_name_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for written in (Path("../cluster"), Path("../elsewhere/../cluster/"), tmp_path / "x/.." / "cluster"):
        assert LocalCluster(directory=written).directory == tmp_path / "cluster"


def test_a_link_keeps_its_name(tmp_path: Path) -> None:
    """Cookies that were made with it hold it."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert LocalCluster(directory=tmp_path / "link").directory == tmp_path / "link"
