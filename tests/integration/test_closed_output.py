"""A command ends with 141 and prints nothing when its output is no longer read: `bookkeeper ledger read 7 | head`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.blocking import connect
from bookkeeper.console.output import EXIT_BROKEN_PIPE, EXIT_OK
from bookkeeper.embedded.cluster import LocalCluster
from hedwig import blocking as hedwig
from hedwig.embedded import LocalHub
from journalmgr.cli.main import main as journalmgr
from journalmgr.config import variable_of
from tests.conftest import ZooKeeperServer
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster
from tests.support.journal_log import writing

NAMES = ("--cluster-id", "CID-1", "--namespace-id", "42", "--block-pool-id", "BP-1-10.0.0.1-1421135800377")

pytestmark = pytest.mark.timeout(180)

ENTRY = b"x" * 199
COUNT = 20_000
"""Entries of the ledger, the topic and the journal: many times the capacity of pipes and read-ahead."""

LONG = {
    "bookkeeper": [
        "ledger read LEDGER",
        "ledger read LEDGER --json",
        "ledger tail LEDGER -o 0",
        "ledger tail LEDGER -o 0 -e",
        "shell readledger -l LEDGER -m",
        "shell readledger -l LEDGER",
        "shell CONF readjournal -m JOURNAL",
        "shell CONF readlog -m LOG",
    ],
    "hedwig": [
        "readtopic news",
        "readtopic news --json",
        "sub news --from first",
        "sub news --from first --one-by-one",
    ],
    "journalmgr": [
        "dump JOURNALURI",
        "dump JOURNALURI --format xml",
        "dump FILE",
        "dump FILES",
        "tail JOURNALURI",
        "tail JOURNALURI -e",
        "tail FILES",
    ],
}
"""Commands with more output than a pipe holds. The reader ends after the first bytes."""

SHORT = {
    "bookkeeper": [
        "--help",
        "ledger list",
        "ledger list --long --json",
        "ledger show LEDGER",
        "shell listledgers",
        "shell listbookies -rw",
        "shell bookieinfo",
        "shell clusterinfo",
        "shell whatisinstanceid",
        "shell ledgermetadata -l LEDGER",
        "shell queryautorecoverystatus",
        "shell CONF lastmark",
        "shell CONF listfilesondisc",
        "shell CONF readlogmetadata LOG",
        "shell CONF cookie_get BOOKIE",
        "metadata check",
        "why ledger LEDGER",
        "why topic news",
        "config show",
    ],
    "hedwig": ["topics", "topics --json", "subscriptions", "describe news", "hubs", "config show"],
    "journalmgr": ["segments JOURNALURI", "segments FILES --json", "config show"],
}
"""Commands with less output. The reader ends before they start."""


@dataclass(frozen=True)
class Place:
    """The ledger, topic and journal that the commands name. words: by placeholder."""

    words: dict[str, list[str]]
    environment: dict[str, str]

    def command(self, program: str, line: str) -> list[str]:
        words = [word for each in line.split() for word in self.words.get(each, [each])]
        return [sys.executable, "-m", f"{program}.cli.main", *words]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[Place]:
    directory, root = tmp_path_factory.mktemp("closed"), f"/closed-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 1, directory=directory / "cluster", settings=STEADY) as cluster:
        hub = LocalHub.beside(cluster, 1, {**STEADY_HUB, "zk_prefix": f"{cluster.root}-hubs"})
        hub.start()
        try:
            yield _filled(cluster, hub, directory, f"{zookeeper.address}/journal-{os.urandom(3).hex()}")
        finally:
            hub.stop()


def _filled(cluster: LocalCluster, hub: LocalHub, directory: Path, journal: str) -> Place:
    bookie = cluster.bookies[0]
    variables = {
        "BK_metadataServiceUri": cluster.uri,
        "HW_metadataServiceUri": cluster.uri,
        "HW_default_server_host": hub.address,
        "HW_zk_prefix": f"{cluster.root}-hubs",
        variable_of("dfs.namenode.bookkeeperjournal.zk.availablebookies"): f"{cluster.root}/available",
        **{
            variable_of(f"dfs.namenode.bookkeeperjournal.{name}"): "1"
            for name in ("ensemble-size", "quorum-size", "ack.quorum-size")
        },
    }
    with connect(cluster.uri) as client, client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
        ledger.append_many([ENTRY] * COUNT)
    with hedwig.connect([hub.address]) as hubs:
        hubs.publish_many("news", [ENTRY] * COUNT)
    uris = {"JOURNALURI": f"bookkeeper://{journal}", "FILES": f"file://{directory}/edits"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        for uri in uris.values():
            assert journalmgr(["format", uri, *NAMES]) == EXIT_OK
            with writing(uri) as log:
                log.append_together(COUNT)
                log.close()
    (file,) = (directory / "edits" / "current").glob("edits_0*")
    bookie.stop()  # flushes
    journals = sorted((bookie.journal_directory / "current").glob("*.txn"))
    logs = sorted((bookie.ledger_directory / "current").glob("*.log"))
    bookie.start()
    largest = max(journals, key=lambda path: path.stat().st_size)
    words = {
        "LEDGER": [str(ledger.id)],
        "BOOKIE": [bookie.bookie_id],
        "CONF": ["--conf", str(bookie.conf_path)],
        "JOURNAL": [largest.name],
        "LOG": [str(max(logs, key=lambda path: path.stat().st_size).stem)],
        "FILE": [str(file)],
        **{name: [uri] for name, uri in uris.items()},
    }
    return Place(words, {**os.environ, **variables, "PYTHONUNBUFFERED": ""})


def lines(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(program, line) for program, each in table.items() for line in each]


@pytest.mark.parametrize(
    ("program", "line", "unbuffered"),
    [
        *((*each, "") for each in lines(LONG)),
        ("journalmgr", "dump FILE", "1"),
        ("bookkeeper", "shell CONF readlog LOG", "1"),
    ],
)
def test_a_reader_that_goes_ends_a_command_without_a_word(
    place: Place, program: str, line: str, unbuffered: str
) -> None:
    """unbuffered: PYTHONUNBUFFERED. If it is set, a large write that stops in the middle raises no error."""
    environment = {**place.environment, "PYTHONUNBUFFERED": unbuffered}
    command = place.command(program, line)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        said = process.stderr.read().decode()
    assert (bool(first), process.returncode, said) == (True, EXIT_BROKEN_PIPE, "")


@pytest.mark.parametrize(("program", "line"), lines(SHORT))
def test_a_command_that_has_no_reader_ends_without_a_stack_trace(place: Place, program: str, line: str) -> None:
    """With little output, a note may come before the command notices that the output has no reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            place.command(program, line), stdout=writer, stderr=subprocess.PIPE, env=place.environment, check=False
        )
    finally:
        os.close(writer)
    said = done.stderr.decode()
    assert done.returncode == EXIT_BROKEN_PIPE, said
    assert "Traceback" not in said
    assert "Unhandled" not in said
