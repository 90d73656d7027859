"""What the actions of `bookkeeper spark` share: the cluster's settings, as options for tasks."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bookkeeper.cli.spark.words import add_common, task_options
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.ledgers.options import LedgerReadOptions
from bookkeeper.spark.options.tables import read_options

URI = "zk://zk1:2181/ledgers"


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_common(parser)
    return parser.parse_args(list(words))


def conf_of(directory: Path, text: str) -> str:
    path = directory / "client.conf"
    path.write_text(text)
    return str(path)


def test_tasks_are_told_what_file_environment_and_command_line_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BK_readTimeout", "7")
    conf = conf_of(tmp_path, f"metadataServiceUri={URI}\npasswd=secret\nreadTimeout=3\nbatchReadEnabled=false\n")
    given = task_options(parsed("--conf", conf, "-D", "clientTcpNoDelay=false"))
    assert given == {"readTimeout": "7", "password": "secret", "batchReadEnabled": "false", "clientTcpNoDelay": "false"}
    found = read_options(LedgerReadOptions, {"uri": URI, "ledgers": "1", **given}, where="bookkeeper").client
    assert (found.password, found.read_timeout_s, found.batch_read, found.tcp_no_delay) == (b"secret", 7, False, False)


def test_keys_of_bookies_in_a_file_for_both_are_left_out(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, "zkServers=zk1:2181\nzkLedgersRootPath=/ledgers\nbookiePort=3181\njournalDirectories=/j\n")
    assert task_options(parsed("--conf", conf)) == {}


def test_the_racks_of_a_file_of_the_driver_are_told_without_it(tmp_path: Path) -> None:
    racks = tmp_path / "racks"
    racks.write_text("# of the cluster\nbk1 /eu/r1\n10.0.0.2:3181 /eu/r2\n")
    given = task_options(parsed("-D", f"networkTopologyFile={racks}"))
    assert given == {"networkTopology": "bk1 /eu/r1, 10.0.0.2:3181 /eu/r2"}
    with pytest.raises(ConfigurationError, match=r"network topology file .*nowhere"):
        task_options(parsed("-D", "networkTopologyFile=nowhere"))


def test_packages_for_tasks_have_commas_between_them() -> None:
    assert parsed().py_files == ()
    assert parsed("--py-files", "a.whl, b.zip").py_files == ("a.whl", "b.zip")
