"""Apache's own admin shell on our cluster: it prints what our client knows, and our client sees what it changes.

Five bookies of ours, one of them read-only, and one Java process for all commands of the module. Tests add ledgers and
find their own; the last ones take bookies away.
"""

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bookkeeper.bookie.process.exit_codes import ExitCode
from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import LedgerFencedOff, NoSuchLedger
from bookkeeper.model import DigestType
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheClient
from tests.support.apache_admin import ANSWER_TIMEOUT_S, ApacheShell, ShellFailed, attributes
from tests.support.cluster import wait_for_exit
from tests.support.zookeeper_sessions import end_dead_session

PASSWORD = b"pass-word"
COUNT = 40


def entries(count: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(count)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four writable bookies and a read-only one, the last."""
    with LocalCluster(5, directory=tmp_path_factory.mktemp("admin"), settings=SESSION_TIMEOUT) as cluster:
        read_only = cluster.bookies[-1]
        read_only.stop()
        read_only.settings["forceReadOnlyBookie"] = "true"
        read_only.start()
        yield cluster


@pytest.fixture(scope="module")
def shell(apache: Apache, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheShell]:
    with ApacheShell(apache, tmp_path_factory.mktemp("shell"), cluster.uri) as shell:
        yield shell


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    settings = ClientSettings(
        password=PASSWORD, read_timeout_base_s=REQUEST_TIMEOUT_S, info_timeout_s=REQUEST_TIMEOUT_S
    )
    with connect(cluster.uri, settings) as client:
        yield client


def printed_bookies(lines: list[str]) -> set[str]:
    return {value.removeprefix("BookieID:") for value in attributes("bookieAddr", lines)}


def closed_ledger(client: BlockingBookKeeper) -> int:
    with client.create(digest=DigestType.CRC32C) as ledger:
        ledger.append_many(entries(COUNT))
    return ledger.id


def test_listbookies_prints_writable_and_read_only_bookies(cluster: LocalCluster, shell: ApacheShell) -> None:
    ids = [bookie.bookie_id for bookie in cluster.bookies]
    assert printed_bookies(shell.run("listbookies", "-rw")) == set(ids[:-1])
    assert printed_bookies(shell.run("listbookies", "-ro")) == {ids[-1]}
    # From our cookies, and with the addresses that our registrations tell.
    everyone = shell.run("listbookies", "-a")
    assert printed_bookies(everyone) == set(ids)
    assert all(f"IP:127.0.0.1, Port:{bookie.port}, " in "".join(everyone) for bookie in cluster.bookies)


def test_listledgers_and_ledgermetadata_print_our_metadata(shell: ApacheShell, client: BlockingBookKeeper) -> None:
    closed_id = closed_ledger(client)
    still_open = client.create(
        ensemble=3, write_quorum=3, ack_quorum=2, digest=DigestType.MAC, custom={"application": b"shell"}
    )
    still_open.append(b"entry-0")
    every_id = sorted(ledger_id for ids in client.ids() for ledger_id in ids)
    assert sorted(map(int, attributes("ledgerId", shell.run("listledgers")))) == every_id
    listed = shell.run("listledgers", "-meta")
    assert sorted(map(int, attributes("ledgerId", listed))) == every_id
    for ledger_id in (closed_id, still_open.id):
        metadata = client.metadata(ledger_id)
        ensemble = ", ".join(metadata.last_fragment.ensemble)
        (line,) = (line for line in listed if f"ledgerId={ledger_id}," in line)
        for text in (line, "".join(shell.run("ledgermetadata", "-l", ledger_id))):
            sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
            assert "ensembleSize={}, writeQuorumSize={}, ackQuorumSize={}".format(*sizes) in text
            assert f"ensembles={{0=[{ensemble}]}}" in text
            if ledger_id == closed_id:
                length = sum(map(len, entries(COUNT)))
                assert f"state=CLOSED, length={length}, lastEntryId={COUNT - 1}, digestType=CRC32C" in text
            else:
                assert "state=OPEN, digestType=MAC" in text
                assert "customMetadata={application=base64:c2hlbGw=}" in text
    still_open.close()


def test_listledgers_prints_what_a_bookie_is_named_for(
    cluster: LocalCluster, shell: ApacheShell, client: BlockingBookKeeper
) -> None:
    closed_ledger(client)
    metadata = {ledger_id: client.metadata(ledger_id) for ids in client.ids() for ledger_id in ids}
    named = {bookie.bookie_id: set[int]() for bookie in cluster.bookies}
    for ledger_id, value in metadata.items():
        for fragment in value.fragments:
            for bookie_id in fragment.ensemble:
                named[bookie_id].add(ledger_id)
    assert any(named.values())
    for member, ledger_ids in named.items():
        lines = shell.run("listledgers", "-bookieid", member)
        assert set(map(int, attributes("ledgerId", lines))) == ledger_ids


def test_ledgermetadata_of_a_ledger_that_is_not_there_says_so(shell: ApacheShell) -> None:
    with pytest.raises(ShellFailed, match="No such ledger exists"):
        shell.run("ledgermetadata", "-l", 987654321)


def test_a_ledgers_metadata_is_dumped_and_restored(
    shell: ApacheShell, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    ledger_id = closed_ledger(client)
    before = client.metadata(ledger_id)
    shell.run("ledgermetadata", "-l", ledger_id, "-dumptofile", tmp_path / "dump")
    shell.run("deleteledger", "-l", ledger_id, "-f")
    with pytest.raises(NoSuchLedger):
        client.metadata(ledger_id)
    shell.run("ledgermetadata", "-l", ledger_id, "-restorefromfile", tmp_path / "dump")
    restored = client.metadata(ledger_id)
    assert restored.creator_token != before.creator_token  # it is created anew, by another creator
    assert replace(restored, creator_token=None) == replace(before, creator_token=None)
    with client.open(ledger_id) as ledger:
        assert [entry.payload for entry in ledger.entries()] == entries(COUNT)


def test_readledger_prints_entries_and_closes_only_when_told(shell: ApacheShell, client: BlockingBookKeeper) -> None:
    ledger = client.create(digest=DigestType.MAC)
    for payload in entries(COUNT):
        ledger.append(payload)  # so that every entry but the last is confirmed by the next
    # The password it takes from our metadata.
    lines = shell.run("readledger", "-l", ledger.id, "-fe", 0, "-le", COUNT - 2, "-m")
    assert [line for line in lines if line.startswith("entry-")] == [text.decode() for text in entries(COUNT - 1)]
    assert attributes("entryId", lines) == [str(number) for number in range(COUNT - 1)]
    ledger.append(b"after")
    lines = shell.run("readledger", "-l", ledger.id, "-fe", COUNT - 1, "-le", COUNT, "-m", "-r")
    assert [line for line in lines if not line.startswith("Entry ")] == [f"entry-{COUNT - 1}", "after"]
    assert client.metadata(ledger.id).last_entry_id == COUNT
    with pytest.raises(LedgerFencedOff):
        ledger.append(b"too late")


def test_readledger_reads_every_copy_from_the_bookie_that_has_it(
    shell: ApacheShell, client: BlockingBookKeeper
) -> None:
    with client.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
        ledger.append_many(entries(6))
    copies = []
    for place, bookie_id in enumerate(ledger.metadata.last_fragment.ensemble):
        lines = shell.run("readledger", "-l", ledger.id, "-fe", 0, "-le", 6, "-m", "-b", bookie_id)  # to 5
        found = [int(text) for text in re.findall(r"entry-(\d)", "".join(lines))]
        # Entry e is on the bookies at e and e + 1, modulo 3.
        assert found == [number for number in range(6) if place in (number % 3, (number + 1) % 3)]
        copies += found
    assert sorted(copies) == sorted([*range(6), *range(6)])


def test_simpletest_writes_compares_and_deletes_a_ledger(shell: ApacheShell, client: BlockingBookKeeper) -> None:
    lines = shell.run("simpletest", "-e", 4, "-w", 3, "-a", 2, "-n", 150)
    lines = [line for line in lines if not re.match(r"\d+ entries written\b(?! to ledger)", line)]  # once a second
    (ledger_id,) = (int(value) for value in attributes("ledgerId", lines))
    # Nothing of a failure, which its exit code does not tell.
    written = f"150 entries written to ledger {ledger_id} (lastEntryId 149) {{}}"
    assert lines == [f"Ledger ID {{ledgerId={ledger_id}}}", written]
    with pytest.raises(NoSuchLedger):
        client.metadata(ledger_id)


def _is_gone(client: BlockingBookKeeper, ledger_id: int) -> bool:
    try:
        client.metadata(ledger_id)
    except NoSuchLedger:
        return True
    return False


def test_bookiesanity_writes_and_reads_on_the_bookie_of_this_machine(
    cluster: LocalCluster, shell: ApacheShell, client: BlockingBookKeeper
) -> None:
    for bookie in cluster.bookies[:2]:
        # It allows a second for its requests unless told.
        lines = shell.run("bookiesanity", "-e", 7, "-t", 20, bookie_port=bookie.port)
        assert "Bookie sanity test succeeded {}" in lines
        (ledger_id,) = (int(value) for value in attributes("ledgerId", lines))
        # It deletes what it wrote, without waiting for that before it ends.
        gone = partial(_is_gone, client, ledger_id)
        shell.await_condition(gone, f"ledger {ledger_id} deleted", timeout_s=ANSWER_TIMEOUT_S)


def test_bookieinfo_prints_the_disk_space_our_bookies_tell(
    cluster: LocalCluster, shell: ApacheShell, client: BlockingBookKeeper
) -> None:
    lines = [line for line in shell.run("bookieinfo") if "bookie=" in line]
    assert {value.removeprefix("BookieID:") for value in attributes("bookie", lines)} == {
        bookie.bookie_id for bookie in cluster.bookies
    }
    for line in lines:
        bookie_id = attributes("bookie", [line])[0].removeprefix("BookieID:")
        (total,) = attributes("total", [line])
        (free,) = attributes("free", [line])
        assert int(total.split("(")[0]) == client.bookie_info(bookie_id).total_bytes
        assert 0 < int(free.split("(")[0]) < int(total.split("(")[0])


def test_clusterinfo_counts_our_bookies(shell: ApacheShell) -> None:
    text = "".join(shell.run("clusterinfo"))
    for fact in ('"totalBookiesCount" : 5', '"writableBookiesCount" : 4', '"readonlyBookiesCount" : 1'):
        assert fact in text
    assert '"unavailableBookiesCount" : 0' in text


def test_whatisinstanceid_prints_the_id_that_stands_in_our_cookies(cluster: LocalCluster, shell: ApacheShell) -> None:
    (instance_id,) = attributes("readInstanceId", shell.run("whatisinstanceid"))
    assert str(uuid.UUID(instance_id)) == instance_id
    for bookie in cluster.bookies:
        cookie = "\n".join(shell.run("cookie_get", bookie.bookie_id))
        assert f'instanceId: "{instance_id}"' in cookie
        assert f'journalDir: "{bookie.journal_directory}"' in cookie
        assert f'ledgerDirs: "1\\t{bookie.ledger_directory}"' in cookie


def test_endpointinfo_prints_our_registration(cluster: LocalCluster, shell: ApacheShell) -> None:
    for bookie in (cluster.bookies[0], cluster.bookies[-1]):
        lines = shell.run("endpointinfo", "-b", bookie.bookie_id)
        assert "Protocol {protocol=bookie-rpc}" in lines
        assert f"Address {{host=127.0.0.1, port={bookie.port}}}" in lines


def test_deleteledger_deletes_our_ledger(shell: ApacheShell, client: BlockingBookKeeper) -> None:
    ledger_id = closed_ledger(client)
    shell.run("deleteledger", "-l", ledger_id, "-f")
    with pytest.raises(NoSuchLedger):
        client.metadata(ledger_id)


def test_autorecovery_is_switched_off_and_on(shell: ApacheShell) -> None:
    shell.run("autorecovery", "-disable")
    assert '"ledgerReplicationEnabled" : false' in "".join(shell.run("clusterinfo"))
    assert "Autorecovery already disabled" in "".join(shell.run("autorecovery", "-disable"))
    shell.run("autorecovery", "-enable")
    assert '"ledgerReplicationEnabled" : true' in "".join(shell.run("clusterinfo"))
    assert attributes("count", shell.run("listunderreplicated")) == ["0"]


def test_lostbookierecoverydelay_is_set_and_told(shell: ApacheShell) -> None:
    for delay in ("17", "1"):  # the genuine command takes 0 for "not given"
        shell.run("lostbookierecoverydelay", "-s", delay)
        assert attributes("delay", shell.run("lostbookierecoverydelay", "-g")) == [delay]


def their_ledger(apache_client: ApacheClient, client: BlockingBookKeeper, uri: str, bookie_id: str) -> int:
    """A ledger of the genuine client on three bookies of four, this one among them (which it leaves to chance)."""
    for _ in range(20):
        ledger_id = int(apache_client.run("write", uri, 3, "CRC32", PASSWORD.decode(), 3, 2, 2, COUNT)[0])
        if bookie_id in client.metadata(ledger_id).last_fragment.ensemble:
            return ledger_id
    raise AssertionError(f"of 20 ledgers of the genuine client none is on {bookie_id}")


def test_recover_copies_everything_from_a_dead_bookie_of_ours(
    cluster: LocalCluster,
    shell: ApacheShell,
    client: BlockingBookKeeper,
    apache_client: ApacheClient,
) -> None:
    dead = cluster.bookies[0]
    others = [bookie.bookie_id for bookie in cluster.bookies[1:3]]
    with client.create(
        ensemble=3, write_quorum=2, ack_quorum=2, bookies=[dead.bookie_id, *others], metadata_version=2
    ) as ours:
        ours.append_many(entries(COUNT))
    still_open = client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=[others[0], dead.bookie_id, others[1]])
    still_open.append_many(entries(COUNT))
    theirs = their_ledger(apache_client, client, cluster.uri, dead.bookie_id)
    dead.kill()
    end_dead_session(cluster.uri, dead.bookie_id)
    query = shell.run("recover", "-q", "-f", dead.bookie_id)
    found = attributes("key", [line for line in query if line.startswith("ledger ")])
    assert {str(ours.id), str(theirs), str(still_open.id)} <= set(found)
    lines = shell.run("recover", "-f", "-d", dead.bookie_id)
    assert "Recover bookie operation completed {codeLogger=OK: No problem}" in lines
    assert not attributes("ledgerId", shell.run("listledgers", "-bookieid", dead.bookie_id))
    for ledger_id in (ours.id, still_open.id, theirs):
        metadata = client.metadata(ledger_id)
        assert metadata.last_entry_id == COUNT - 1
        for fragment in metadata.fragments:
            assert len(set(fragment.ensemble)) == metadata.ensemble_size
            assert dead.bookie_id not in fragment.ensemble
        with client.open(ledger_id) as ledger:
            assert [entry.payload for entry in ledger.entries()] == entries(COUNT)
    digests = {ours.id: "CRC32C", still_open.id: "CRC32C", theirs: "CRC32"}
    for ledger_id, digest in digests.items():
        lines = apache_client.run("read", cluster.uri, 3, digest, PASSWORD.decode(), ledger_id)
        assert [line.encode() for line in lines] == entries(COUNT)
    with pytest.raises(LedgerFencedOff):
        still_open.append(b"too late")
    with pytest.raises(ShellFailed, match="CookieNotFound"):
        shell.run("cookie_get", dead.bookie_id)
    # What it has on its disks is now somebody else's to serve.
    assert wait_for_exit(dead) == ExitCode.BOOKIE_ERROR
