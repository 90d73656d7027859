"""Shell commands on who a bookie is: its cookies, and its id in ledgers."""

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.bookie.process.exit_codes import ExitCode
from bookkeeper.console.output import EXIT_FAILURE, EXIT_USAGE
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.errors import EntryUnreadable
from tests.support.cluster import STEADY, local_cluster, wait_for_exit, with_long_timeouts
from tests.support.command_line import CommandLine, Outcome
from tests.support.patience import until

COUNT = 20


@pytest.fixture
def command_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch)


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 2, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster


class Shell:
    """`bookkeeper shell` for one bookie's conf file."""

    def __init__(self, command_line: CommandLine, conf: Path) -> None:
        self._command_line, self._conf = command_line, conf

    def __call__(self, *words: object, code: int = 0) -> Outcome:
        return self._command_line("shell", "--conf", self._conf, *words, code=code)


@pytest.fixture
def bookie(cluster: LocalCluster) -> LocalBookie:
    return cluster.bookies[0]


@pytest.fixture
def shell(bookie: LocalBookie, command_line: CommandLine) -> Shell:
    return Shell(command_line, bookie.conf_path)


def version_file(bookie: LocalBookie) -> Path:
    return bookie.ledger_directory / "current" / "VERSION"


# --- cookie_*


def test_a_cookie_is_deleted_and_restored_from_a_directory(bookie: LocalBookie, shell: Shell) -> None:
    text = version_file(bookie).read_text()
    assert shell("cookie_get", bookie.bookie_id).out == text
    described = json.loads(shell("cookie_get", bookie.bookie_id, "--json").out)
    assert described["journal_dirs"] == [str(bookie.journal_directory)]
    assert (
        "cookie_update replaces it" in shell("cookie_create", "-cf", version_file(bookie), bookie.bookie_id, code=1).err
    )
    running = shell("cookie_delete", bookie.bookie_id)
    assert f"bookie {bookie.bookie_id} is running" in running.err
    copy = bookie.journal_directory / "current" / "VERSION"
    assert f"cookie_create -cookie-file {copy} {bookie.bookie_id}" in running.err
    cluster_id = described["instance_id"]
    missing = shell("cookie_get", bookie.bookie_id, code=EXIT_FAILURE)
    assert f"bookie {bookie.bookie_id} has no cookie in cluster {cluster_id} (" in missing.err
    shell("cookie_delete", bookie.bookie_id, code=EXIT_FAILURE)
    shell("cookie_update", "-cf", version_file(bookie), bookie.bookie_id, code=EXIT_FAILURE)
    bookie.stop()
    assert wait_for_exit(bookie) != 0  # it has data, and the store does not know it (I-70)
    assert f"of cluster {cluster_id}" in bookie.log_path.read_text()
    shell("cookie_create", "-cookie-file", version_file(bookie), bookie.bookie_id)
    bookie.start()
    shell("cookie_update", "-cf", version_file(bookie), bookie.bookie_id)
    assert shell("cookie_get", bookie.bookie_id).out == text


def test_a_cookie_of_another_bookie_or_cluster_is_not_stored(
    cluster: LocalCluster, bookie: LocalBookie, shell: Shell, tmp_path: Path
) -> None:
    other = cluster.bookies[1]
    refused = shell("cookie_update", "-cf", version_file(bookie), other.bookie_id, code=EXIT_FAILURE)
    assert f"is the cookie of bookie {bookie.bookie_id} of cluster " in refused.err
    assert f"not of bookie {other.bookie_id} of cluster " in refused.err
    foreign = tmp_path / "foreign"
    foreign.write_text(re.sub("instanceId: .*", 'instanceId: "elsewhere"', version_file(bookie).read_text()))
    refused = shell("cookie_update", "-cf", foreign, bookie.bookie_id, code=EXIT_FAILURE)
    assert f"of bookie {bookie.bookie_id} of cluster elsewhere, not of" in refused.err.replace("cookie of", "of", 1)
    (tmp_path / "garbage").write_text("none")
    assert "garbage: not a cookie" in shell("cookie_create", "-cf", tmp_path / "garbage", "b:1", code=EXIT_FAILURE).err


def test_a_generated_cookie_is_the_one_that_a_bookie_writes(bookie: LocalBookie, shell: Shell, tmp_path: Path) -> None:
    directories = ("-j", bookie.journal_directory, "-l", bookie.ledger_directory)
    target = tmp_path / "cookie"
    shell("cookie_generate", *directories, "-o", target, bookie.bookie_id)
    assert target.read_text() == version_file(bookie).read_text()
    assert shell("cookie_generate", *directories, bookie.bookie_id).out == target.read_text()
    elsewhere = shell("cookie_generate", *directories, "-i", "elsewhere", "-ix", "/i1,/i2", bookie.bookie_id).out
    assert 'instanceId: "elsewhere"' in elsewhere
    assert 'indexDirs: "2\\t/i1\\t/i2"' in elsewhere


# --- updatecookie


def test_updatecookie_lists_and_deletes_what_there_is(bookie: LocalBookie, shell: Shell) -> None:
    listed = json.loads(shell("updatecookie", "-list", "--json").out)
    places = [row["place"] for row in listed]
    assert places == [
        str(bookie.journal_directory / "current" / "VERSION"),
        str(version_file(bookie)),
        bookie.uri,
    ]
    assert {row["owner"].partition(" of cluster")[0] for row in listed} == {f"bookie {bookie.bookie_id}"}
    for row in listed:
        assert row["journal_dirs"] == [str(bookie.journal_directory)]
        assert row["ledger_dirs"] == row["index_dirs"] == [str(bookie.ledger_directory)]
    assert str(bookie.ledger_directory) in shell("updatecookie", "-list").out.splitlines()[-1]
    assert "Stop the bookie first" in shell("updatecookie", "-delete", "-force", code=EXIT_FAILURE).err
    bookie.stop()
    assert "needs --force" in shell("updatecookie", "-delete", code=EXIT_USAGE).err
    shell("updatecookie", "-delete", "force")
    after = shell("updatecookie", "-l")
    assert f"no directory of bookie {bookie.bookie_id} has a cookie" in after.err
    assert f"bookie {bookie.bookie_id} has no cookie in the metadata store" in after.err


def test_a_bookie_grows_by_expandstorage_and_by_its_setting(
    cluster: LocalCluster, bookie: LocalBookie, shell: Shell, tmp_path: Path
) -> None:
    """I-70: only on purpose, only by empty directories; every entry stays readable, and the new disk is used."""
    with connect(cluster.uri, with_long_timeouts()) as client:
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, bookies=[bookie.bookie_id]) as ledger:
            ledger.append_many([b"%d" % number for number in range(COUNT)])
        bookie.stop()
        second = tmp_path / "second"
        bookie.settings["ledgerDirectories"] = f"{bookie.ledger_directory},{second}"
        assert wait_for_exit(bookie) != 0
        said = bookie.log_path.read_text()
        assert "append empty ones and set allowStorageExpansion=true" in said
        assert not (second / "current").exists()
        (second / "current").mkdir(parents=True)
        (second / "current" / "0.log").touch()
        assert f"{second} has data but no cookie" in shell("updatecookie", "-expandstorage", code=EXIT_FAILURE).err
        (second / "current" / "0.log").unlink()
        grown = shell("updatecookie", "-expandstorage")
        assert f"names {bookie.journal_directory}, {bookie.ledger_directory}, {second} now" in grown.err
        assert "names all of them already" in shell("updatecookie", "-e").err
        bookie.start()
        bookie.stop()
        third = tmp_path / "third"
        bookie.settings["ledgerDirectories"] += f",{third}"
        bookie.settings["allowStorageExpansion"] = "true"
        bookie.start()
        assert f"{third}" in json.loads(shell("cookie_get", bookie.bookie_id, "--json").out)["ledger_dirs"]
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, bookies=[bookie.bookie_id]) as later:
            later.append_many([b"%d" % number for number in range(COUNT)])
        for written in (ledger, later):
            with client.open(written.id) as opened:
                assert [entry.payload for entry in opened.entries()] == [b"%d" % number for number in range(COUNT)]
        bookie.stop()
        assert list(third.rglob("*.log")) + list(second.rglob("*.log"))
        assert "no fault" in shell("localconsistencycheck").err
        bookie.start()


def test_a_bookie_whose_directories_were_moved_goes_on_where_they_are(
    cluster: LocalCluster, bookie: LocalBookie, shell: Shell, tmp_path: Path
) -> None:
    """I-70, I-71: one command, which the refusal names; it believes no directory that is not proven to be its own."""
    payloads = [b"%d" % number for number in range(COUNT)]
    with connect(cluster.uri, with_long_timeouts()) as client:
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, bookies=[bookie.bookie_id]) as ledger:
            ledger.append_many(payloads)
        assert "Stop the bookie first" in shell("updatecookie", "-moved", code=EXIT_FAILURE).err
        bookie.stop()
        journal, ledgers = tmp_path / "moved journal", tmp_path / "moved ledgers"
        bookie.settings |= {"journalDirectories": str(journal), "ledgerDirectories": str(ledgers)}
        assert wait_for_exit(bookie) != 0
        assert "updatecookie -moved" in bookie.log_path.read_text()
        assert not journal.exists()
        assert "was never used" in shell("updatecookie", "-moved", code=EXIT_FAILURE).err
        shutil.copytree(bookie.ledger_directory, ledgers)
        bookie.journal_directory.rename(journal)
        copied = shell("updatecookie", "-moved", code=EXIT_FAILURE)
        assert f"{bookie.ledger_directory} still has the cookie of bookie {bookie.bookie_id}" in copied.err
        shutil.rmtree(bookie.ledger_directory)
        assert f"its cookie names {journal}, {ledgers} now" in shell("updatecookie", "-moved").err
        assert "already" in shell("updatecookie", "-m").err
        bookie.start()
        with client.open(ledger.id) as opened:
            assert [entry.payload for entry in opened.entries()] == payloads
        bookie.stop()
        assert "no fault" in shell("localconsistencycheck").err
        bookie.start()


def test_a_bookie_that_is_not_known_does_not_grow(bookie: LocalBookie, shell: Shell) -> None:
    bookie.stop()
    shell("updatecookie", "-delete", "force")
    assert "only a known bookie can grow" in shell("updatecookie", "-e", code=EXIT_FAILURE).err


def test_a_bookie_goes_on_under_its_host_name_and_its_ledgers_name_it(
    cluster: LocalCluster, bookie: LocalBookie, shell: Shell
) -> None:
    old_id, new_id = bookie.bookie_id, f"{socket.getfqdn()}:{bookie.port}"
    with (
        connect(cluster.uri) as client,
        client.create(
            ensemble=2, write_quorum=2, ack_quorum=2, bookies=[each.bookie_id for each in cluster.bookies]
        ) as ledger,
    ):
        ledger.append_many([b"%d" % number for number in range(COUNT)])
    needs = shell("updatecookie", "-bookieId", "hostname", code=EXIT_USAGE)
    assert "fixes this bookie's id" in needs.err or "useHostNameAsBookieID=true" in needs.err
    bookie.stop()
    bookie.settings.pop("advertisedAddress", None)
    bookie.settings.pop("bookieId", None)
    bookie.settings |= {"useHostNameAsBookieID": "true", "listeningInterface": "lo", "allowLoopback": "true"}
    assert wait_for_exit(bookie) != 0
    assert f"knows it as {old_id}" in bookie.log_path.read_text()
    renamed = shell("updatecookie", "-bookieId", "hostname")
    assert f"bookie {old_id} is {new_id} now" in renamed.err
    assert "already" in shell("updatecookie", "-b", "hostname").err
    updated = json.loads(shell("updateledgers", "-bookieId", "hostname", "-s", 100, "--json").out)
    assert (updated["changed"], updated["failures"]) == (1, {})
    assert json.loads(shell("updateledgers", "-b", "hostname", "--json").out)["changed"] == 0
    with connect(cluster.uri, with_long_timeouts()) as client:
        assert set(client.metadata(ledger.id).last_fragment.ensemble) == {new_id, cluster.bookies[1].bookie_id}
    bookie.start()
    cluster.bookies[1].stop()
    with connect(cluster.uri, with_long_timeouts()) as client, client.open_without_recovery(ledger.id) as opened:
        assert [entry.payload for entry in opened.entries()] == [b"%d" % number for number in range(COUNT)]


def test_update_bookie_in_ledger_refuses_what_is_no_move(cluster: LocalCluster, shell: Shell) -> None:
    one, other = (bookie.bookie_id for bookie in cluster.bookies)
    assert "are both" in shell("updateBookieInLedger", "-sb", one, "-db", one, code=EXIT_USAGE).err
    assert "is registered" in shell("updateBookieInLedger", "-sb", one, "-db", other, code=EXIT_FAILURE).err
    refused = shell("updateBookieInLedger", "-sb", "10.0.0.9:1", "-db", "10.0.0.9:2", code=EXIT_FAILURE)
    assert "bookie 10.0.0.9:2 has no cookie" in refused.err


def test_two_bookies_of_one_fragment_are_not_made_one(cluster: LocalCluster, shell: Shell) -> None:
    one, other = cluster.bookies
    with connect(cluster.uri, with_long_timeouts()) as client:
        with client.create(ensemble=2, write_quorum=2, ack_quorum=2) as ledger:
            ledger.append(b"x")
        one.stop()
        failed = shell("updateBookieInLedger", "-sb", one.bookie_id, "-db", other.bookie_id, code=EXIT_FAILURE)
        assert f"ledger {ledger.id}: not changed: " in failed.err
        assert set(client.metadata(ledger.id).last_fragment.ensemble) == {one.bookie_id, other.bookie_id}


# --- an id apart from the address


def test_a_bookie_with_an_id_of_its_own_is_found_at_another_address(
    zookeeper: Any, ledgers_root: str, tmp_path: Path
) -> None:
    """The id is in cookies and ledgers, the address in the registration only: moving needs no other change."""
    settings = {**STEADY, "bookieId": "disk-of-rack-7"}
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=settings) as cluster:
        (bookie,) = cluster.bookies
        with connect(cluster.uri, with_long_timeouts()) as client:
            ledger = client.create(ensemble=1, write_quorum=1, ack_quorum=1)
            assert ledger.metadata.last_fragment.ensemble == ("disk-of-rack-7",)
            ledger.append_many([b"%d" % number for number in range(COUNT)])
            bookie.stop()
            moved_from, bookie.port = bookie.port, free_port()
            bookie.settings["bookiePort"] = str(bookie.port)
            assert bookie.port != moved_from
            bookie.start()
            with connect(cluster.uri) as other, other.open(ledger.id) as opened:
                assert [entry.payload for entry in opened.entries()] == [b"%d" % number for number in range(COUNT)]

            def is_read() -> bool:
                try:
                    with client.open_without_recovery(ledger.id) as opened:
                        assert opened.last_add_confirmed == COUNT - 1
                        assert [entry.entry_id for entry in opened.entries()] == list(range(COUNT))
                except EntryUnreadable:
                    return False
                return True

            # So does the client that was connected to the old address; it may hear of the new one a little later.
            until(is_read, "the client has found the bookie at its new address")


def test_a_disk_of_another_cluster_is_named_at_start(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> None:
    """I-70: both clusters and both bookies are in the message."""
    with (
        local_cluster(zookeeper.address, f"{ledgers_root}-a", 1, directory=tmp_path / "a") as one,
        local_cluster(zookeeper.address, f"{ledgers_root}-b", 1, directory=tmp_path / "b") as other,
    ):
        ours, theirs = one.bookies[0], other.bookies[0]
        cookies = [version_file(bookie).read_text() for bookie in (ours, theirs)]
        instances = [re.search('instanceId: "(.*)"', text)[1] for text in cookies]  # type: ignore[index]
        ours.stop()
        theirs.stop()
        ours.settings["ledgerDirectories"] = str(theirs.ledger_directory)
        ours.settings["allowStorageExpansion"] = "true"
        assert wait_for_exit(ours) in (ExitCode.BOOKIE_ERROR, ExitCode.SERVER_ERROR, ExitCode.BAD_CONFIGURATION)
        said = ours.log_path.read_text()
        assert f"this is bookie {ours.bookie_id} of cluster {instances[0]} ({one.uri})" in said
        ours.settings["ledgerDirectories"] = f"{ours.ledger_directory},{theirs.ledger_directory}"
        assert wait_for_exit(ours) != 0
        said = ours.log_path.read_text()
        assert f"that of bookie {theirs.bookie_id} of cluster {instances[1]}; this is bookie" in said
