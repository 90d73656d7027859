"""Shell commands on auto-recovery, the cluster at a glance, and what an entry log still holds."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.console.output import EXIT_FAILURE, EXIT_USAGE
from bookkeeper.console.reactor import with_store
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LedgerId
from tests.support.cluster import STEADY, local_cluster
from tests.support.command_line import CommandLine, Outcome

LOST, OTHER = BookieId("10.0.0.1:3181"), BookieId("10.0.0.2:3181")
MARKED_MS = 1_700_000_000_000


@pytest.fixture
def command_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch)


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster


class Shell:
    """`bookkeeper shell --uri URI ...`."""

    def __init__(self, command_line: CommandLine, uri: str) -> None:
        self._command_line, self._uri = command_line, uri

    def __call__(self, *words: object, code: int = 0) -> Outcome:
        return self._command_line("shell", "--uri", self._uri, *words, code=code)

    def lines(self, *words: object) -> list[Any]:
        return [json.loads(line) for line in self("--json", *words).lines]


@pytest.fixture
def shell(cluster: LocalCluster, command_line: CommandLine) -> Shell:
    return Shell(command_line, cluster.uri)


def mark(uri: str, marks: dict[int, tuple[BookieId, ...]]) -> None:
    """What an auditor publishes."""

    async def use(store: MetadataStore) -> None:
        for ledger_id, missing in marks.items():
            await store.underreplication.mark(LedgerId(ledger_id), missing, now_ms=MARKED_MS)

    with_store(ClientSettings(metadata_service_uri=uri), use)


def test_marked_ledgers_are_listed_filtered_and_counted(cluster: LocalCluster, shell: Shell) -> None:
    assert shell("listunderreplicated").out == ""
    assert shell("listunderreplicated", "-c").out == "0\n"
    mark(cluster.uri, {7: (LOST,), 8: (OTHER,), 1 << 40: (LOST, OTHER)})
    assert shell("listunderreplicated").lines == ["7", "8", str(1 << 40)]
    assert shell("listunderreplicated", "-missingreplica", LOST).lines == ["7", str(1 << 40)]
    assert shell("listunderreplicated", "-emr", LOST).lines == ["8"]
    assert shell("listunderreplicated", "-mr", LOST, "-emr", OTHER).lines == ["7"]
    assert shell("listunderreplicated", "-mr", LOST, "-c").out == "2\n"
    assert shell("listunderreplicated", "-mr", LOST, "-emr", OTHER, "-pmr", "-prw").out == (
        f"7  lacks copies of {LOST}  since 2023-11-14 22:13:20Z  nobody is at work on it\n"
    )
    assert shell.lines("listunderreplicated", "-emr", LOST, "-prw") == [
        {
            "ledger_id": 8,
            "missing": [OTHER],
            "marked_ms": MARKED_MS,
            "worker": None,
            "says": "nobody is at work on it",
        }
    ]


def test_auto_recovery_is_turned_off_and_on(shell: Shell) -> None:
    assert "is off" in shell("autorecovery", "-disable").err
    assert "was already off" in shell("autorecovery", "-d").err
    assert shell("autorecovery").out == "Autorecovery is disabled.\n"
    assert shell("queryautorecoverystatus").lines[0] == "auto-recovery: off, auditor: nobody"
    assert "the audit waits until" in shell("triggeraudit").err
    assert "is on" in shell("autorecovery", "-enable").err
    assert "was already on" in shell("autorecovery", "-e").err
    assert shell("autorecovery").out == "Autorecovery is enabled.\n"
    assert json.loads(shell("autorecovery", "--json").out) == {"enabled": True}
    shell("autorecovery", "-e", "-d", code=EXIT_USAGE)


def test_the_recovery_delay_is_set_and_told(shell: Shell) -> None:
    assert "none is stored" in shell("lostbookierecoverydelay", "-get").err
    shell("lostbookierecoverydelay", "-set", 60)
    assert shell("lostbookierecoverydelay", "-g").out == "60\n"
    assert shell("lostbookierecoverydelay").out == "60\n"
    shell("triggeraudit")
    assert shell("lostbookierecoverydelay", "-g").out == "60\n"
    shell("lostbookierecoverydelay", "-s", -1, code=EXIT_USAGE)


def test_without_an_auditor_that_is_said(shell: Shell) -> None:
    assert "neither `bookkeeper autorecovery` nor a bookie" in shell("whoisauditor", code=EXIT_FAILURE).err
    assert "there is no auditor now" in shell("triggeraudit").err


def test_clusterinfo_has_apaches_facts_and_whose_cluster_it_is(cluster: LocalCluster, shell: Shell) -> None:
    instance_id = shell("whatisinstanceid").out.strip()
    expected = {
        "metadataServiceUri": cluster.uri,
        "instanceId": instance_id,
        "ledgerLayout": "hierarchical",
        "auditorElected": False,
        "auditorId": "",
        "clusterUnderReplicated": False,
        "ledgerReplicationEnabled": True,
        "totalBookiesCount": 1,
        "writableBookiesCount": 1,
        "readonlyBookiesCount": 0,
        "unavailableBookiesCount": 0,
    }
    assert json.loads(shell("clusterinfo", "--json").out) == expected
    mark(cluster.uri, {7: (LOST,)})
    cluster.bookies[0].stop()
    rows = {line.split()[0]: line.split()[1] for line in shell("clusterinfo").lines}
    assert (rows["clusterUnderReplicated"], rows["unavailableBookiesCount"], rows["auditorId"]) == ("yes", "1", "-")


def test_activeledgers_tells_which_of_a_logs_ledgers_are_alive(
    cluster: LocalCluster, command_line: CommandLine
) -> None:
    (bookie,) = cluster.bookies
    with connect(cluster.uri) as client:
        ledgers = []
        for _ in range(3):
            with client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
                ledger.append(b"x" * 1000)
            ledgers.append(ledger.id)
        client.delete(ledgers[1])
    bookie.stop()
    (log,) = [path for path in (bookie.ledger_directory / "current").glob("*.log") if path.stat().st_size > 1024]
    words = ("shell", "--conf", bookie.conf_path, "activeledgers", "-l", int(log.stem, 16))
    found = json.loads(command_line(*words, "--json").out)
    assert sorted(map(int, found["active"])) == [ledgers[0], ledgers[2]]
    assert found["deleted"] == [ledgers[1]]
    outcome = command_line(*words)
    assert [line.split()[0] for line in outcome.lines[1:]] == [str(ledgers[0]), str(ledgers[2])]
    assert "2 active ledgers of 3, 66.7% of its bytes" in outcome.err
    missing = command_line(*words[:-1], 999, code=EXIT_FAILURE)
    assert "no entry log 999 (3e7.log) in " in missing.err
