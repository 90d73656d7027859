"""`bookkeeper shell`: Apache's administration commands, against a real cluster and on its files."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.console.output import EXIT_FAILURE, EXIT_USAGE, readable_size
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from tests.support.cluster import STEADY, local_cluster
from tests.support.command_line import CommandLine, Outcome

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
COUNT = 50


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/cli-shell-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("cluster")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def command_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch)


class Shell:
    """`bookkeeper shell --uri URI ...`."""

    def __init__(self, command_line: CommandLine, uri: str) -> None:
        self._command_line, self._uri = command_line, uri

    def __call__(self, *words: object, code: int = 0) -> Outcome:
        return self._command_line("shell", "--uri", self._uri, *words, code=code)

    def json(self, *words: object) -> Any:
        return json.loads(self("--json", *words).out)


@pytest.fixture
def shell(cluster: LocalCluster, command_line: CommandLine) -> Shell:
    return Shell(command_line, cluster.uri)


@pytest.fixture(scope="module")
def ledger_id(cluster: LocalCluster) -> int:
    """A closed ledger of COUNT entries, each on two of the three bookies."""
    with connect(cluster.uri) as client, client.create(password=b"secret") as ledger:
        ledger.append_many([b"entry-%d" % number for number in range(COUNT)])
        return ledger.id


# --- checks


def test_simpletest_writes_reads_back_and_leaves_nothing(shell: Shell) -> None:
    before = shell("listledgers").lines
    outcome = shell("simpletest", "-e", 3, "-w", 2, "-a", 2, "-n", 100)
    assert re.match(r"100 entries written to ledger \d+ and read back in [\d.]+ s\n", outcome.out)
    assert shell("listledgers").lines == before


def test_simpletest_on_one_bookie_needs_no_other_option(shell: Shell) -> None:
    assert shell("simpletest", "-e", 1, "-n", 1).out.startswith("1 entry written to ledger ")


def test_bookiesanity_tests_the_bookie_it_is_told(cluster: LocalCluster, shell: Shell) -> None:
    for bookie in cluster.bookies:
        assert shell("bookiesanity", "-b", bookie.bookie_id, "-e", 5).out == (
            f"bookie {bookie.bookie_id} wrote and returned 5 entries\n"
        )


def test_bookiesanity_takes_the_bookie_of_the_conf_file(cluster: LocalCluster, command_line: CommandLine) -> None:
    bookie = cluster.bookies[1]
    outcome = command_line("shell", "--conf", bookie.conf_path, "bookiesanity")
    assert outcome.out == f"bookie {bookie.bookie_id} wrote and returned 10 entries\n"


def test_bookiesanity_names_a_bookie_that_is_not_there(shell: Shell) -> None:
    failed = shell("bookiesanity", "-b", "127.0.0.1:4", code=EXIT_FAILURE)
    assert "bookie 127.0.0.1:4 is not registered as writable" in failed.err
    neither = shell("bookiesanity", code=EXIT_USAGE).err
    assert "give its conf file (--conf FILE); or after it, its id (-b HOST:PORT)" in neither


# --- cluster


def test_listbookies_by_mode_and_by_cookie(cluster: LocalCluster, shell: Shell) -> None:
    ids = sorted(bookie.bookie_id for bookie in cluster.bookies)
    expected = [{"bookie_id": id_, "state": "read-write", "address": id_, "problem": ""} for id_ in ids]
    assert shell.json("listbookies") == expected
    assert shell.json("listbookies", "-rw") == expected
    assert shell.json("listbookies", "-a") == expected
    assert shell.json("listbookies", "-ro") == []
    assert shell("listbookies", "-h").lines[0].split() == ["bookie", "state", "address", "hostname"]


def test_bookieinfo_has_the_disk_space_of_each(cluster: LocalCluster, shell: Shell) -> None:
    rows = shell.json("bookieinfo")
    assert [row["bookie_id"] for row in rows] == sorted(bookie.bookie_id for bookie in cluster.bookies)
    assert all(0 < row["free_bytes"] < row["total_bytes"] and not row["error"] for row in rows)


def test_bookieinfo_is_readable_and_sums_up_the_cluster(cluster: LocalCluster, shell: Shell) -> None:
    header, *bookies, cluster_wide = [line.split() for line in shell("bookieinfo").lines]
    assert header == ["bookie", "free", "bytes", "total", "bytes", "error"]
    assert [line[0] for line in bookies] == sorted(bookie.bookie_id for bookie in cluster.bookies)
    sums = [0, 0]
    for _, free, readable_free, total, readable_total in bookies:
        assert (readable_size(int(free)), readable_size(int(total))) == (readable_free, readable_total)
        sums = [sums[0] + int(free), sums[1] + int(total)]
    assert cluster_wide[:3] == ["in", "the", "cluster"]
    assert [cluster_wide[3], cluster_wide[5]] == [str(size) for size in sums]


def test_bookieinfo_of_a_bookie_that_is_not_there_is_an_error_beside_the_others(
    zookeeper: Any, ledgers_root: str, tmp_path: Path, command_line: CommandLine
) -> None:
    with local_cluster(zookeeper.address, ledgers_root, 2, directory=tmp_path, settings=STEADY) as cluster:
        gone, there = cluster.bookies
        gone.kill()
        outcome = Shell(command_line, cluster.uri)("bookieinfo", code=EXIT_FAILURE)
        rows = {line.split()[0]: line for line in outcome.lines}
        assert "refused" in rows[gone.bookie_id]
        assert rows["in"].split()[3] == rows[there.bookie_id].split()[1], "the sum of those that told"


def test_whatisinstanceid_prints_the_id_of_the_cookies(cluster: LocalCluster, shell: Shell) -> None:
    instance_id = shell("whatisinstanceid").out.strip()
    assert re.fullmatch(UUID, instance_id)
    assert instance_id in (cluster.bookies[0].ledger_directory / "current" / "VERSION").read_text()


def test_a_cluster_is_made_once_and_formatted_only_on_purpose(
    zookeeper: Any, ledgers_root: str, command_line: CommandLine
) -> None:
    shell = Shell(command_line, f"zk+hierarchical://{zookeeper.address}{ledgers_root}")
    assert ledgers_root in shell("whatisinstanceid", code=EXIT_FAILURE).err
    shell("initnewcluster")
    first = shell("whatisinstanceid").out
    assert "exist" in shell("initnewcluster", code=EXIT_FAILURE).err
    shell("initnewcluster", "--if-absent")
    assert "needs -force" in shell("metaformat", "-nonInteractive", code=EXIT_FAILURE).err
    assert "--force" in shell("metaformat", code=EXIT_USAGE).err
    assert shell("whatisinstanceid").out == first
    shell("metaformat", "-nonInteractive", "-force")
    assert shell("whatisinstanceid").out != first


@pytest.mark.parametrize(
    "words",
    [
        *(["listbookies", *which] for which in ([], ["-rw"], ["-ro"], ["-a"])),
        ["whatisinstanceid"],
        ["clusterinfo"],
        ["bookieinfo"],
        ["cookie_get", "127.0.0.1:3181"],
        ["listunderreplicated"],
        ["whoisauditor"],
        ["triggeraudit"],
        ["autorecovery", "-disable"],
        ["lostbookierecoverydelay", "-get"],
        ["simpletest"],
        ["bookiesanity", "-b", "127.0.0.1:3181"],
        ["listledgers"],
        *([name, "-l", "0"] for name in ("ledgermetadata", "readledger", "deleteledger")),
    ],
    ids=" ".join,
)
def test_where_there_is_no_cluster_every_command_says_so(
    words: list[str], zookeeper: Any, command_line: CommandLine
) -> None:
    root = f"/nope-{os.urandom(3).hex()}"
    failed = command_line("shell", "--uri", f"zk://{zookeeper.address}{root}", *words, code=EXIT_FAILURE)
    assert f"there is no cluster under {root} " in failed.err
    assert failed.out == ""


# --- ledgers


def test_listledgers_of_all_bookies_or_of_one(cluster: LocalCluster, shell: Shell, ledger_id: int) -> None:
    assert str(ledger_id) in shell("listledgers").lines
    on_one = shell("listledgers", "-bookieid", cluster.bookies[0].bookie_id).lines
    assert str(ledger_id) in on_one
    assert shell("listledgers", "-bookieid", "127.0.0.1:4").lines == []
    assert f"ledger {ledger_id}: CLOSED, last entry {COUNT - 1}" in shell("listledgers", "-m").out
    described = [json.loads(line) for line in shell("listledgers", "-m", "--json").lines]
    assert {item["ledger_id"]: item["last_entry_id"] for item in described}[ledger_id] == COUNT - 1
    assert {"ledger_id": ledger_id} in map(json.loads, shell("listledgers", "--json").lines)


def test_ledgermetadata_is_printed_dumped_and_restored(shell: Shell, ledger_id: int, tmp_path: Path) -> None:
    described = shell.json("ledgermetadata", "-l", ledger_id)
    assert (described["state"], described["last_entry_id"]) == ("CLOSED", COUNT - 1)
    assert "secret" not in shell("ledgermetadata", "-l", ledger_id).out
    dump = tmp_path / "metadata"
    shell("ledgermetadata", "-l", ledger_id, "-dumptofile", dump)
    assert dump.read_bytes().startswith(b"BookieMetadataFormatVersion\t3\n")
    assert f"ledger {ledger_id}" in shell("ledgermetadata", "-l", ledger_id, "-restorefromfile", dump, code=1).err
    shell("ledgermetadata", "-l", ledger_id, "-restorefromfile", dump, "-update")
    shell("deleteledger", "-l", ledger_id, "-f")
    shell("ledgermetadata", "-l", ledger_id, "-restorefromfile", dump)
    restored = shell.json("ledgermetadata", "-l", ledger_id)
    assert {**restored, "version": None} == {**described, "version": None}


def test_restoring_a_file_that_is_no_metadata_names_it(shell: Shell, ledger_id: int, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"something else")
    failed = shell("ledgermetadata", "-l", ledger_id, "-restorefromfile", garbage, "-update", code=EXIT_FAILURE)
    assert f"{garbage}: not ledger metadata" in failed.err


def test_readledger_needs_no_password_and_reads_a_range(shell: Shell, ledger_id: int) -> None:
    outcome = shell("readledger", "-l", ledger_id, "-fe", 3, "-le", 4, "-m")
    assert outcome.lines == [
        f"--------- Lid={ledger_id}, Eid=3, EntrySize=7 ---------",
        "entry-3",
        f"--------- Lid={ledger_id}, Eid=4, EntrySize=7 ---------",
        "entry-4",
    ]
    assert len(shell("readledger", "-l", ledger_id).lines) == COUNT


def test_readledger_beyond_the_end_is_told(shell: Shell, ledger_id: int) -> None:
    failed = shell("readledger", "-l", ledger_id, "-fe", COUNT + 1, code=EXIT_FAILURE)
    assert f"there is no entry {COUNT + 1}: ledger {ledger_id} ends at entry {COUNT - 1}" in failed.err
    beyond = shell("readledger", "-l", ledger_id, "-le", COUNT)
    assert len(beyond.lines) == COUNT
    assert f"ledger {ledger_id} ends at entry {COUNT - 1}, before -le {COUNT}\n" in beyond.err


def test_readledger_from_one_bookie_shows_what_that_one_has(
    cluster: LocalCluster, shell: Shell, ledger_id: int
) -> None:
    copies = 0
    for bookie in cluster.bookies:
        outcome = shell("readledger", "-l", ledger_id, "-b", bookie.bookie_id, "-le", COUNT - 1)
        missing = re.findall(r"^entry \d+: no such entry$", outcome.err, re.MULTILINE)
        assert len(outcome.lines) + len(missing) == COUNT
        copies += len(outcome.lines)
        assert outcome.err.endswith(f"{len(outcome.lines)} entries; {len(missing)} entries not this bookie's\n")
    assert copies == 2 * COUNT


def test_readledger_of_a_bookie_that_has_nothing_of_the_ledger_fails(cluster: LocalCluster, shell: Shell) -> None:
    with connect(cluster.uri) as client, client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
        ledger.append_many([b"one", b"two"])
    (holder,) = ledger.metadata.last_fragment.ensemble
    other = next(bookie.bookie_id for bookie in cluster.bookies if bookie.bookie_id != holder)
    failed = shell("readledger", "-l", ledger.id, "-b", other, code=EXIT_FAILURE)
    assert f"bookie {other} has nothing of what was asked for of ledger {ledger.id}\n" in failed.err
    assert shell("readledger", "-l", ledger.id, "-b", holder).err.endswith("2 entries\n")


def test_readledger_from_a_bookie_that_does_not_answer_names_it(shell: Shell, ledger_id: int) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    failed = shell("readledger", "-l", ledger_id, "-b", nobody, code=EXIT_FAILURE)
    assert f"bookie {nobody}: Connection refused; it is not registered and has no cookie" in failed.err
    assert "it is not registered and has no cookie: no such bookie is known; did you mean 127.0.0.1:" in failed.err
    assert "is not registered" in shell("readledger", "-l", ledger_id, "-b", "name", code=EXIT_FAILURE).err
    assert "-r recovers" in shell("readledger", "-l", ledger_id, "-b", nobody, "-r", code=EXIT_USAGE).err


def test_readledger_recovers_only_when_told(cluster: LocalCluster, shell: Shell) -> None:
    with connect(cluster.uri) as client:
        ledger = client.create()
        ledger.append_many([b"a", b"b"])
        shell("readledger", "-l", ledger.id)
        assert not client.metadata(ledger.id).is_closed
        assert len(shell("readledger", "-l", ledger.id, "-force-recovery").lines) == 2
        assert client.metadata(ledger.id).is_closed


def test_deleteledger_asks_unless_forced(cluster: LocalCluster, shell: Shell) -> None:
    with connect(cluster.uri) as client, client.create() as ledger:
        ledger.append(b"x")
    assert "--force" in shell("deleteledger", "-l", ledger.id, code=EXIT_USAGE).err
    assert str(ledger.id) in shell("listledgers").lines
    shell("deleteledger", "-l", ledger.id, "-force")
    assert str(ledger.id) not in shell("listledgers").lines
    assert str(ledger.id) in shell("deleteledger", "-l", ledger.id, "-f", code=EXIT_FAILURE).err


# --- a bookie's own files


class Offline:
    """Commands on the files of one bookie that does not run."""

    def __init__(self, command_line: CommandLine, conf: Path) -> None:
        self._command_line, self._conf = command_line, conf

    def __call__(self, *words: object, code: int = 0) -> Outcome:
        return self._command_line("shell", "--conf", self._conf, *words, code=code)


@pytest.fixture
def offline(zookeeper: Any, ledgers_root: str, tmp_path: Path, command_line: CommandLine) -> Offline:
    """One bookie with a closed and a fenced ledger (0 and 1), stopped."""
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path) as cluster:
        with connect(cluster.uri) as client:
            with client.create(ensemble=1, write_quorum=1, ack_quorum=1) as closed:
                closed.append_many([b"entry-%d" % number for number in range(COUNT)])
            fenced = client.create(ensemble=1, write_quorum=1, ack_quorum=1)
            fenced.append(b"one")
            with connect(cluster.uri) as other:
                other.open(fenced.id).close()
        return Offline(command_line, cluster.bookies[0].conf_path)


def test_offline_readers_show_what_a_bookie_left(offline: Offline, tmp_path: Path) -> None:
    directory = tmp_path / "bookie-1"
    journal = offline("readjournal")
    assert journal.out.count("entry: ledger 0 entry ") == COUNT
    assert "fence: ledger 1\n" in journal.out
    assert "master key: ledger 0 key (-m shows it)\n" in journal.out
    assert re.search(r"format 6, group commits with checksums, \d+ records", journal.err)

    (row,) = offline("lastmark").lines[1:]
    assert row.split()[0] == str(directory / "journal")
    assert (directory / "journal" / "current" / row.split()[2]).exists()

    listed = {line.split()[-1]: line.split("  ")[0] for line in offline("listfilesondisc").lines}
    assert {path for path in listed if listed[path] == "journal"} == {
        str(path) for path in (directory / "journal" / "current").glob("*.txn")
    }
    (log,) = [path for path in listed if path.endswith(".log") and os.path.getsize(path) > 1024]
    assert str(directory / "ledgers" / "current" / "0" / "0" / "0.idx") in listed

    assert offline("readlog", log).out.count(" ledger 0 entry ") == COUNT
    (line,) = offline("readlog", "-l", 0, "-e", 7, "-m", log).out.split("\n  ")[:1]
    assert " ledger 0 entry 7 lac " in line
    assert b"entry-7".hex() in offline("readlog", "-l", 0, "-e", 7, "-m", log).out
    ledgers = json.loads(offline("--json", "readlogmetadata", log).out)["ledgers"]
    assert ledgers.keys() == {"0", "1"}

    index = offline("ledger", 0)
    assert "version 1, fenced no, explicit lac " in index.lines[0]
    assert [line.split(":")[0] for line in index.lines[1:]] == [f"entry {number}" for number in range(COUNT)]
    assert "fenced yes" in offline("ledger", "-m", 1).out
    assert "ledger 77 has no index file" in offline("ledger", 77, code=EXIT_FAILURE).err


def test_a_damaged_journal_is_named_with_its_offset(offline: Offline, tmp_path: Path) -> None:
    (path,) = (tmp_path / "bookie-1" / "journal" / "current").glob("*.txn")
    with path.open("r+b") as file:
        file.seek(1024 + 40)
        file.write(b"\xff" * 8)
    failed = offline("readjournal", code=EXIT_FAILURE)
    assert re.search(rf"{re.escape(str(path))} is damaged at offset \d+", failed.err)


def test_a_file_that_is_not_there_is_named(offline: Offline) -> None:
    assert "no entry log 77 (4d.log) in " in offline("readlog", "77", code=EXIT_FAILURE).err
    assert "no entry log 119 (77.log) in " in offline("readlogmetadata", "77.log", code=EXIT_FAILURE).err
    assert "there is no journal file" in offline("readjournal", "77", code=EXIT_FAILURE).err
    assert "77.txn" in offline("readjournal", "77", code=EXIT_FAILURE).err
    assert "no journal file name" in offline("readjournal", "nonsense", code=EXIT_USAGE).err


def test_bookieformat_empties_the_directories_and_forgets_the_cookie(offline: Offline, tmp_path: Path) -> None:
    directories = [tmp_path / "bookie-1" / name for name in ("journal", "ledgers")]
    assert "needs -force" in offline("bookieformat", "-nonInteractive", code=EXIT_FAILURE).err
    assert "--force" in offline("bookieformat", code=EXIT_USAGE).err
    assert all((directory / "current").is_dir() for directory in directories)
    refused = offline("bookieformat", "-force", code=EXIT_FAILURE).err
    lost = re.search(r"\d+ ledgers? names? 127\.0\.0\.1:\d+ as a holder of copies, and would lose what it has", refused)
    assert lost is not None, refused
    assert "Move its copies first (`bookkeeper shell decommissionbookie" in refused
    assert all((directory / "current").is_dir() for directory in directories)
    done = offline("bookieformat", "-nonInteractive", "-force", "-deleteCookie").err
    assert done.startswith(f"WARNING: {lost[0]}")
    assert "deleted the cookie" in done
    assert not any((directory / "current").exists() for directory in directories)
    assert "had no cookie" in offline("bookieformat", "-force", "-d").err


def test_bookieformat_loses_copies_when_told_so(offline: Offline, tmp_path: Path) -> None:
    assert "WARNING: 2 ledgers name " in offline("bookieformat", "-force", "-lose").err
    assert not (tmp_path / "bookie-1" / "ledgers" / "current").exists()


def test_bookieformat_of_a_bookie_that_no_ledger_names_needs_no_more_than_force(
    offline: Offline, tmp_path: Path, command_line: CommandLine
) -> None:
    uri = next(
        line.partition("=")[2]
        for line in (tmp_path / "bookie-1" / "bookie.conf").read_text().splitlines()
        if line.startswith("metadataServiceUri=")
    )
    for ledger_id in (0, 1):
        command_line("shell", "--uri", uri, "deleteledger", "-l", ledger_id, "-force")
    assert "WARNING" not in offline("bookieformat", "-force").err
    assert not (tmp_path / "bookie-1" / "ledgers" / "current").exists()


def test_bookieformat_finds_no_cookie_where_there_is_no_cluster(offline: Offline, zookeeper: Any) -> None:
    elsewhere = f"metadataServiceUri=zk://{zookeeper.address}/nope-{os.urandom(3).hex()}"
    assert "there is no cluster under /nope-" in offline("-D", elsewhere, "bookieformat", "-f", "-d", code=1).err


def test_bookieformat_refuses_while_the_bookie_runs(cluster: LocalCluster, command_line: CommandLine) -> None:
    bookie = cluster.bookies[2]
    failed = command_line("shell", "--conf", bookie.conf_path, "bookieformat", "-force", code=EXIT_FAILURE)
    assert str(bookie.directory) in failed.err
    assert bookie.running
    assert (bookie.ledger_directory / "current" / "VERSION").exists()
