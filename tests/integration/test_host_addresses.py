"""Bookies and hubs on hosts with unusual names and addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import namespaces

pytestmark = pytest.mark.skipif(not namespaces.allowed(), reason="this machine allows no network namespaces")

PROGRAM = """
import sys
from pathlib import Path

from bookkeeper.blocking import connect
from bookkeeper.embedded.cluster import LocalCluster
from hedwig import blocking as hedwig
from hedwig.embedded import LocalHub

directory, host, *given = sys.argv[1:]
settings = dict(each.split("=", 1) for each in given)
with LocalCluster(1, directory=Path(directory), settings=settings) as cluster:
    hub = LocalHub.beside(cluster, 1, settings)
    hub.start()
    try:
        with connect(cluster.uri) as client:
            with client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
                ledger.append(b"entry")
            print(*client.metadata(ledger.id).last_fragment.ensemble)
            with client.open(ledger.id) as reader:
                assert [entry.payload for entry in reader.entries()] == [b"entry"]
        with hedwig.connect(f"{host}:{hub.port}") as client:
            client.publish("topic", b"message")
        print("published")
    finally:
        hub.stop()
"""


def run(directory: Path, hub: str, *settings: str, name: str, hosts: str, commands: list[str]) -> list[str]:
    """Run the program on a host of its own. hub: host at which its client connects to the hub."""
    program = directory / "program.py"
    program.write_text(PROGRAM)
    arguments = (str(directory / "cluster"), hub, *settings)
    return namespaces.run_on_host(program, *arguments, name=name, hosts=hosts, commands=commands).split()


def test_a_host_name_without_address_is_not_looked_up(tmp_path: Path) -> None:
    settings = ("advertisedAddress=127.0.0.1", "listeningInterface=")
    printed = run(tmp_path, "127.0.0.1", *settings, name="nameless", hosts="127.0.0.1 localhost\n", commands=[])
    assert [printed[0].rpartition(":")[0], *printed[1:]] == ["127.0.0.1", "published"]


def test_a_host_with_ipv6_alone_needs_no_settings(tmp_path: Path) -> None:
    settings = ("listeningInterface=", "allowLoopback=false")
    commands = ["address add fd00::5/64 dev lo nodad"]
    hosts = "127.0.0.1 localhost\nfd00::5 six\n"
    printed = run(tmp_path, "six", *settings, name="six", hosts=hosts, commands=commands)
    assert [printed[0].rpartition(":")[0], *printed[1:]] == ["fd00::5", "published"]


def test_an_interface_with_ipv6_alone_is_taken_by_name(tmp_path: Path) -> None:
    commands = ["address add fd00::5/64 dev lo nodad", "address del ::1/128 dev lo", "address del 127.0.0.1/8 dev lo"]
    program = tmp_path / "program.py"
    program.write_text("from bookkeeper.system.addresses import listen_host\nprint(listen_host('lo', 'six'))")
    printed = namespaces.run_on_host(program, name="six", hosts="fd00::5 six\n", commands=commands)
    assert printed == "fd00::5\n"


def test_a_local_cluster_without_ipv4_reports_that(tmp_path: Path) -> None:
    """Earlier versions reported that the port was taken."""
    program = tmp_path / "program.py"
    words = ["localbookie", "1", "--port", "18181", "--zookeeper-port", "18182"]
    program.write_text(f"from bookkeeper.cli.main import main\nassert main({words}) == 1")
    commands = ["address del 127.0.0.1/8 dev lo"]
    printed = namespaces.run_on_host(program, name="six", hosts="::1 six\n", commands=commands)
    assert "cannot listen on 127.0.0.1:18182: Cannot assign requested address; add the address" in printed
