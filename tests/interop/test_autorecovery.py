"""Apache's auditor and replication worker on a cluster of four bookies of ours.

They need of our bookies: reads, adds with the recovery flag, fencing, lists of entries; of our metadata: fragments they
can replace. What they copied is read back, by both clients, with nobody left but the bookie that got the copies.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.errors import LedgerFencedOff
from bookkeeper.model import DigestType, LedgerMetadata
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.digest import master_key
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheClient, ApacheError
from tests.support.apache_admin import ApacheAutoRecovery, ApacheShell, attributes
from tests.support.bookie_fakes import body_of
from tests.support.cluster import RawClient
from tests.support.zookeeper_sessions import end_dead_session

PASSWORD = b"pass-word"
COUNT = 120
REPAIR_TIMEOUT_S = 60.0
CODE_FENCED = -101
CLIENT = ClientSettings(password=PASSWORD, read_timeout_base_s=REQUEST_TIMEOUT_S)


def entries(count: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(count)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(4, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with connect(cluster.uri, CLIENT) as client:
        yield client


class UnderReplication:
    """What stands in the under-replication tree."""

    def __init__(self, cluster: LocalCluster) -> None:
        assert cluster.zookeeper is not None
        self._zookeeper = KazooClient(cluster.zookeeper.address)
        self._root = f"{cluster.root}/underreplication"
        self._zookeeper.start()

    def is_empty(self) -> bool:
        """True when no ledger waits for its repair, and none is being repaired."""
        return not self._children("ledgers") and not self._children("locks")

    def _children(self, name: str) -> Sequence[str]:
        try:
            return list(self._zookeeper.get_children(f"{self._root}/{name}"))
        except NoNodeError:
            return []

    def close(self) -> None:
        self._zookeeper.stop()
        self._zookeeper.close()


@pytest.fixture
def tree(cluster: LocalCluster) -> Iterator[UnderReplication]:
    tree = UnderReplication(cluster)
    yield tree
    tree.close()


def names(metadata: LedgerMetadata, bookie: LocalBookie) -> bool:
    return any(bookie.bookie_id in fragment.ensemble for fragment in metadata.fragments)


def test_what_a_killed_bookie_held_is_copied_to_the_one_that_is_left(
    apache: Apache,
    apache_client: ApacheClient,
    cluster: LocalCluster,
    client: BlockingBookKeeper,
    tree: UnderReplication,
    tmp_path: Path,
) -> None:
    """Kill the spare and a bookie that ledgers are on; the spare comes back, and takes the place of the other."""
    *kept, dead, spare = cluster.bookies
    first_three = [bookie.bookie_id for bookie in (dead, *kept)]
    everywhere = client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=first_three)
    everywhere.append_many(entries(COUNT))
    everywhere.close()
    striped = client.create(
        ensemble=3, write_quorum=2, ack_quorum=2, bookies=first_three, metadata_version=2, digest=DigestType.MAC
    )
    striped.append_many(entries(COUNT))
    striped.close()
    still_open = client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=[*first_three[1:], first_three[0]])
    still_open.append_many(entries(COUNT))
    empty = client.create(ensemble=3, write_quorum=2, ack_quorum=2, bookies=first_three)
    spare.kill()
    end_dead_session(cluster.uri, spare.bookie_id)
    # With three bookies left the genuine client has no choice either.
    theirs = int(apache_client.run("write", cluster.uri, 3, "CRC32", PASSWORD.decode(), 3, 3, 2, COUNT)[0])
    theirs_open = int(apache_client.run("begin", cluster.uri, 3, "CRC32C", PASSWORD.decode(), 3, 3, 2, COUNT)[0])
    ids = [everywhere.id, striped.id, still_open.id, empty.id, theirs, theirs_open]
    assert all(names(client.metadata(ledger_id), dead) for ledger_id in ids)

    dead.kill()
    end_dead_session(cluster.uri, dead.bookie_id)
    with (
        ApacheAutoRecovery(apache, tmp_path, cluster.uri, "autorecovery") as recovery,
        ApacheShell(apache, tmp_path, cluster.uri) as shell,
    ):

        def listed() -> bool:
            return set(attributes("ledgerId", shell.run("listunderreplicated"))) == set(map(str, ids))

        recovery.await_condition(listed, f"the auditor lists {ids}", timeout_s=REPAIR_TIMEOUT_S)
        missing = attributes("missingReplica", shell.run("listunderreplicated", "-pmr"))
        assert missing == [dead.bookie_id] * len(ids)
        assert attributes("count", shell.run("listunderreplicated", "-mr", spare.bookie_id)) == ["0"]
        assert recovery.bookie_id in "".join(shell.run("whoisauditor"))
        spare.start()
        recovery.await_condition(
            lambda: tree.is_empty() and not any(names(client.metadata(ledger_id), dead) for ledger_id in ids),
            "everything is copied to the spare",
            timeout_s=REPAIR_TIMEOUT_S,
        )
    with pytest.raises(LedgerFencedOff):
        still_open.append(b"too late")
    with pytest.raises(ApacheError) as refused:
        apache_client.run("append", theirs_open, 1)
    assert refused.value.code == CODE_FENCED
    for bookie in kept:
        bookie.kill()
    for ledger_id in ids:
        metadata = client.metadata(ledger_id)
        assert all(spare.bookie_id in fragment.ensemble for fragment in metadata.fragments)
        assert metadata.last_entry_id == (COUNT - 1 if ledger_id != empty.id else -1)
    with connect(cluster.uri, CLIENT) as reader:
        for ledger_id in (everywhere.id, still_open.id, theirs, theirs_open):
            with reader.open(ledger_id) as ledger:
                assert [entry.payload for entry in ledger.entries()] == entries(COUNT)
        place = striped.metadata.last_fragment.ensemble.index(dead.bookie_id)  # as it was when it was written
        with reader.open(striped.id) as ledger:
            copied = [number for number in range(COUNT) if place in (number % 3, (number + 1) % 3)]
            assert [ledger.read(number, number)[0].payload for number in copied] == [
                entries(COUNT)[number] for number in copied
            ]
    for ledger_id, digest in ((everywhere.id, "CRC32C"), (still_open.id, "CRC32C"), (theirs, "CRC32")):
        lines = apache_client.run("read", cluster.uri, 3, digest, PASSWORD.decode(), ledger_id)
        assert [line.encode() for line in lines] == entries(COUNT)


def erase(*directories: Path, pattern: str) -> None:
    """Remove the files of a bookie that does not run; its cookie stays."""
    for directory in directories:
        for path in (directory / "current").rglob(pattern):
            if path.is_file() and path.name != "VERSION":
                path.unlink()


def test_the_auditors_check_finds_and_repairs_what_our_bookies_lost(
    apache: Apache,
    apache_client: ApacheClient,
    cluster: LocalCluster,
    client: BlockingBookKeeper,
    tree: UnderReplication,
    tmp_path: Path,
) -> None:
    """One bookie comes back with nothing but its cookie, then another without the entry logs its index points to."""
    emptied, damaged, kept, spare = cluster.bookies
    members = [bookie.bookie_id for bookie in (emptied, damaged, kept)]
    digests: dict[int, DigestType] = {}
    for digest in DigestType:
        with client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=members, digest=digest) as ledger:
            ledger.append_many(entries(COUNT))
        digests[ledger.id] = digest

    # Nothing but reading every ledger finds this: all bookies are there.
    settings = {"auditorPeriodicCheckInterval": "1", "auditorPeriodicBookieCheckInterval": "600"}
    with ApacheAutoRecovery(apache, tmp_path, cluster.uri, "autorecovery", settings) as recovery:

        def await_repair(lost: LocalBookie) -> None:
            recovery.await_condition(
                lambda: tree.is_empty() and not any(names(client.metadata(each), lost) for each in digests),
                f"everything that was on bookie {lost.number} is on another",
                timeout_s=REPAIR_TIMEOUT_S,
            )

        emptied.stop()
        erase(emptied.journal_directory, emptied.ledger_directory, pattern="*")
        emptied.start()
        await_repair(emptied)
        damaged.stop()
        erase(damaged.ledger_directory, pattern="*.log")
        damaged.start()
        await_repair(damaged)
    damaged.kill()
    kept.kill()
    # First from the bookie that took the place of the emptied one, then from that, which took the damaged one's.
    for alone, gone in ((spare, emptied), (emptied, spare)):
        gone.kill()
        if not alone.running:
            alone.start()
        with connect(cluster.uri, CLIENT) as reader:
            for ledger_id, digest in digests.items():
                with reader.open(ledger_id) as copy:
                    assert [entry.payload for entry in copy.entries()] == entries(COUNT)
                lines = apache_client.run("read", cluster.uri, 3, digest.name, PASSWORD.decode(), ledger_id)
                assert [line.encode() for line in lines] == entries(COUNT)


CHECK = re.compile(r"Starting ReplicasCheck .*?Completed ReplicasCheck ", re.DOTALL)
MISSING = re.compile(r"following entries \[([\d, ]+)\] are missing in bookie: (\S+?)[,}].*ledgerId=(\d+)")


def next_check(recovery: ApacheAutoRecovery) -> str:
    """What the auditor says during a check of replicas that begins after this call."""
    start = recovery.log_path.stat().st_size

    def found() -> re.Match[str] | None:
        return CHECK.search(recovery.log_path.read_bytes()[start:].decode())

    recovery.await_condition(lambda: found() is not None, "a check of replicas", timeout_s=REPAIR_TIMEOUT_S)
    match = found()
    assert match is not None
    return match[0]


def test_the_replicas_check_is_told_exactly_what_our_bookies_hold(
    apache: Apache, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    """The auditor asks each bookie for the list of its entries, and names those that are missing.

    An emptied bookie gets some entries back by recovery adds: the rest is missing there and nothing is anywhere else.
    """
    emptied, *others = cluster.bookies
    members = [bookie.bookie_id for bookie in cluster.bookies]
    striped = client.create(ensemble=4, write_quorum=3, ack_quorum=2, bookies=members)
    whole = client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=members[:3])
    elsewhere = client.create(ensemble=3, write_quorum=2, ack_quorum=2, bookies=[other.bookie_id for other in others])
    for ledger in (striped, whole, elsewhere):
        ledger.append_many(entries(COUNT))
        ledger.close()
    expected = {
        striped.id: {number for number in range(COUNT) if number % 4 != 1},  # the bookie at 0 is not in 1, 2, 3
        whole.id: set(range(COUNT)),
    }
    settings = {
        "auditorReplicasCheckInterval": "1",
        "auditorPeriodicBookieCheckInterval": "600",
        "lostBookieRecoveryDelay": "600",  # a bookie that goes and comes is not lost
    }
    with ApacheAutoRecovery(apache, tmp_path, cluster.uri, "autorecovery", settings) as recovery:
        said = next_check(recovery)
        assert "missing" not in said
        assert "navailable" not in said
        assert "Unable" not in said
        emptied.stop()
        erase(emptied.journal_directory, emptied.ledger_directory, pattern="*")
        emptied.start()
        # Holes of one entry only: behind a longer one (but for the first) a genuine auditor calls everything missing,
        # whatever the bookie holds and of whichever kind it is (getUnavailableEntries stops looking).
        back = {
            striped.id: [number for number in range(50) if number % 4 != 1],
            whole.id: [*range(7, 90), *range(91, 99)],
        }
        with RawClient(emptied.port) as raw:
            for ledger_id, entry_ids in back.items():
                bodies = [body_of(ledger_id, number, b"entry-%d" % number) for number in entry_ids]
                key = master_key(PASSWORD)
                raw.send(b"".join(request_encoder(2).encode_adds(ledger_id, key, entry_ids, bodies, recovery=True)[1]))
                assert raw.acknowledged(len(entry_ids)) == entry_ids
        said = next_check(recovery)
    found = {
        int(match[3]): (match[2], {int(number) for number in match[1].split(",")}) for match in MISSING.finditer(said)
    }
    assert found == {
        ledger_id: (emptied.bookie_id, numbers - set(back[ledger_id])) for ledger_id, numbers in expected.items()
    }
