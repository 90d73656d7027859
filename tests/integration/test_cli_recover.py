"""`bookkeeper shell recover` and `decommissionbookie`: a bookie's ledgers move to others, and it is forgotten."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.console.output import EXIT_FAILURE, EXIT_USAGE
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import LedgerClosed, LedgerFencedOff
from tests.support.auto_recovery import LocalAutoRecovery, await_no_marks, await_unregistered, mark, marked
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.command_line import CommandLine, Outcome, start
from tests.support.patience import until
from tests.support.zookeeper_sessions import end_dead_session

pytestmark = pytest.mark.timeout(300)

COUNT = 30
ANSWER_TIMEOUT_S = 180


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 4, directory=tmp_path / "cluster", settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with connect(cluster.uri, with_long_timeouts()) as client:
        yield client


class Shell:
    """`bookkeeper shell --uri URI ...`."""

    def __init__(self, command_line: CommandLine, uri: str) -> None:
        self._command_line, self._uri = command_line, uri

    def __call__(self, *words: object, code: int = 0) -> Outcome:
        return self._command_line("shell", "--uri", self._uri, *words, code=code)


@pytest.fixture
def shell(cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(CommandLine(capfd, monkeypatch), cluster.uri)


def payloads() -> list[bytes]:
    return [b"entry-%d" % number for number in range(COUNT)]


def write(client: BlockingBookKeeper, *members: str) -> int:
    """A closed ledger with a copy of every entry on each."""
    size = len(members)
    with client.create(ensemble=size, write_quorum=size, ack_quorum=size, bookies=list(members)) as ledger:
        ledger.append_many(payloads())
    return int(ledger.id)


def names(client: BlockingBookKeeper, ledger_id: int, bookie_id: str) -> bool:
    return any(bookie_id in fragment.ensemble for fragment in client.metadata(ledger_id).fragments)


def read_back(uri: str, ledger_id: int) -> None:
    with connect(uri) as reader, reader.open(ledger_id) as ledger:
        assert [entry.payload for entry in ledger.entries()] == payloads()


def test_everything_of_a_dead_bookie_moves_and_its_cookie_goes(
    cluster: LocalCluster, client: BlockingBookKeeper, shell: Shell
) -> None:
    dead, kept, *others = (bookie.bookie_id for bookie in cluster.bookies)
    ids = [write(client, dead, kept) for _ in range(5)]
    elsewhere = write(client, *others)
    still_open = client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=[dead, kept])
    still_open.append_many(payloads())
    cluster.bookies[0].kill()
    end_dead_session(cluster.uri, dead)
    await_unregistered(cluster.uri, dead)

    queried = shell("recover", "-q", dead)
    assert {line for line in queried.lines if line.startswith("ledger ")} == {
        *(f"ledger {ledger_id}: CLOSED" for ledger_id in ids),
        f"ledger {still_open.id}: OPEN",
    }
    assert f"  from entry 0: {dead}*, {kept}" in queried.lines
    listed = [json.loads(line) for line in shell("--json", "recover", "-query", dead).lines]
    assert {each["ledger_id"] for each in listed} == {*ids, still_open.id}

    dry = shell("recover", "-dryrun", dead)
    assert f"6 ledgers would be moved off {dead}; nothing was done" in dry.err
    assert all(names(client, ledger_id, dead) for ledger_id in ids)
    assert "needs --force" in shell("recover", dead, code=EXIT_USAGE).err

    done = shell("recover", "-f", "-d", dead)
    assert f"6 ledgers moved off {dead}; {5 * COUNT} entries, " in done.err  # the open one's by its recovery
    assert f"deleted the cookie of bookie {dead}" in done.err
    assert dead not in shell("listbookies", "-a").out
    for ledger_id in (*ids, still_open.id):
        assert not names(client, ledger_id, dead)
    with pytest.raises((LedgerFencedOff, LedgerClosed)):
        still_open.append(b"late")
    cluster.bookies[1].kill()
    for ledger_id in (*ids, elsewhere, still_open.id):
        read_back(cluster.uri, ledger_id)


def test_a_living_bookie_is_emptied_ledger_by_ledger_and_open_ones_are_left_alone(
    cluster: LocalCluster, client: BlockingBookKeeper, shell: Shell
) -> None:
    source, kept, *_ = (bookie.bookie_id for bookie in cluster.bookies)
    first, second = write(client, source, kept), write(client, source, kept)
    with client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=[source, kept]) as still_open:
        still_open.append_many(payloads())
        shell("recover", "-f", "-l", first, source)
        assert [names(client, ledger_id, source) for ledger_id in (first, second)] == [False, True]
        outcome = shell("recover", "-f", "-sk", "-d", "-rate", 10_000_000, "--json", source)
        done = json.loads(outcome.out)
        assert (done["ledgers_found"], done["ledgers_moved"], done["ledgers_skipped"]) == (2, 1, 1)
        assert (done["entries_copied"], done["failures"]) == (COUNT, {})
        assert f"no cookie is deleted: 1 ledger may still name {source}" in outcome.err
        assert source in shell("listbookies", "-a").out
        still_open.append(b"its writer goes on")
        assert "there is no ledger 999" in shell("recover", "-f", "-l", 999, source, code=EXIT_FAILURE).err
        said = shell("recover", "-f", "-l", first, source).err
        assert f"ledger {first} does not name {source}: there is nothing to move" in said
        assert "0 ledgers moved" in said
    assert "-deleteCookie is for when" in shell("recover", "-f", "-d", "-l", first, source, code=EXIT_USAGE).err
    read_back(cluster.uri, second)


@pytest.mark.parametrize("command", [("recover", "-f", "-d"), ("decommissionbookie", "-bookieid")], ids=lambda c: c[0])
def test_a_mistyped_bookie_is_no_bookie_that_has_nothing_left(
    cluster: LocalCluster, shell: Shell, command: tuple[str, ...]
) -> None:
    known = cluster.bookies[0].bookie_id
    failed = shell(*command, f"{known}0", code=EXIT_FAILURE)
    assert (
        f"there is no bookie {known}0: not registered, no cookie, and no ledger names it; did you mean 1" in failed.err
    )


def test_a_ledger_without_a_readable_copy_is_told_and_skipped_only_on_purpose(
    cluster: LocalCluster, client: BlockingBookKeeper, shell: Shell
) -> None:
    lost, kept, *_ = (bookie.bookie_id for bookie in cluster.bookies)
    alone, fine = write(client, lost), write(client, lost, kept)
    cluster.bookies[0].kill()
    end_dead_session(cluster.uri, lost)
    await_unregistered(cluster.uri, lost)
    failed = shell("recover", "-f", "-d", lost, code=EXIT_FAILURE)
    assert f"ledger {alone}: not moved: " in failed.err
    assert "1 ledger not moved; run it again" in failed.err
    assert names(client, alone, lost)
    assert not names(client, fine, lost)
    assert lost in shell("listbookies", "-a").out
    skipped = shell("recover", "-f", "-sku", lost)
    assert "1 ledger skipped, as ordered" in skipped.err


def test_a_recovery_says_that_nobody_is_left_also_while_a_worker_keeps_the_ledger_locked_for_that(
    cluster: LocalCluster, client: BlockingBookKeeper, shell: Shell, tmp_path: Path
) -> None:
    """It said that somebody was at work, and waited: the worker keeps the lock until more bookies come."""
    dead, *others = (bookie.bookie_id for bookie in cluster.bookies)
    ledger_id = write(client, dead, *others)
    cluster.bookies[0].kill()
    end_dead_session(cluster.uri, dead)
    await_unregistered(cluster.uri, dead)
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, STEADY):
        mark(cluster.uri, [ledger_id], [dead])
        while f"{ledger_id}  locked by process" not in shell("listunderreplicated", "-prw").out:
            pass
        failed = shell("recover", "-f", dead, code=EXIT_FAILURE).err
    assert f"ledger {ledger_id}: not moved: " in failed
    assert f"no bookie is left to take the copies of {dead}; members: " in failed
    assert "start more bookies" in failed
    assert names(client, ledger_id, dead)


def test_a_bookie_that_is_down_is_decommissioned_by_the_workers_of_the_cluster(
    cluster: LocalCluster, client: BlockingBookKeeper, shell: Shell, tmp_path: Path
) -> None:
    dead, kept, *_ = (bookie.bookie_id for bookie in cluster.bookies)
    ids = [write(client, dead, kept) for _ in range(3)]
    assert "is registered: stop it" in shell("decommissionbookie", "-bookieid", dead, code=EXIT_FAILURE).err
    cluster.bookies[0].stop()
    shell("autorecovery", "-disable")
    assert "auto-recovery is disabled" in shell("decommissionbookie", "-bookieid", dead, code=EXIT_FAILURE).err
    shell("autorecovery", "-enable")
    process = start(
        "shell", "--uri", cluster.uri, "decommissionbookie", "-bookieid", dead, "--json", stdout=-1, stderr=-1
    )
    assert process.stderr is not None
    told = process.stderr.readline()
    assert told.startswith("3 ledgers of ")
    mark(cluster.uri, ids, [dead])
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, STEADY):
        out, err = process.communicate(timeout=ANSWER_TIMEOUT_S)
    assert process.returncode == 0, err
    done = json.loads(out)
    assert (done["ledgers_found"], done["ledgers_moved"]) == (3, 3)
    assert f"deleted the cookie of bookie {dead}" in err
    assert f"3 ledgers moved off {dead}, and none names it any more; the replication workers copied, in " in err
    assert "0 entries" not in err.splitlines()[-1]
    assert not any(names(client, ledger_id, dead) for ledger_id in ids)
    assert dead not in shell("listbookies", "-a").out


def test_a_decommission_has_our_auditor_look_at_once(
    cluster: LocalCluster, client: BlockingBookKeeper, shell: Shell, tmp_path: Path
) -> None:
    """Nobody marks a ledger by hand, and left alone the auditor would wait for an hour: the order is all it gets."""
    dead, kept, *_ = (bookie.bookie_id for bookie in cluster.bookies)
    ids = [write(client, dead, kept) for _ in range(3)]
    fine = write(client, kept)
    settings = {**STEADY, "lostBookieRecoveryDelay": "3600", "auditorPeriodicBookieCheckInterval": "86400"}
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, settings) as recovery:
        cluster.bookies[0].kill()
        end_dead_session(cluster.uri, dead)
        await_unregistered(cluster.uri, dead)
        # From here on the auditor receives the order. An auditor that is elected later does not see it.
        until(lambda: "its ledgers are looked for in" in recovery.log_path.read_text(), "the auditor waits")
        assert marked(cluster.uri) == []
        done = json.loads(shell("decommissionbookie", "-bookieid", dead, "--json").out)
        assert (done["ledgers_found"], done["ledgers_moved"]) == (3, 3)
        await_no_marks(cluster.uri)
    assert not any(names(client, ledger_id, dead) for ledger_id in ids)
    for ledger_id in (*ids, fine):
        read_back(cluster.uri, ledger_id)
    assert dead not in shell("listbookies", "-a").out
