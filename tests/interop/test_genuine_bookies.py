"""Our client on genuine bookies, and ensembles of genuine bookies and ours, written and read by either client.

One cluster for the module: two bookies of ours, two genuine ones. The last test kills one of each.
"""

from collections.abc import Iterator

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.client.write.occupancy import Occupancy, ask_occupancy
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.errors import LedgerFencedOff, LedgerIdOccupied
from bookkeeper.model import BookieId, DigestType, LedgerId
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie, ApacheClient
from tests.support.cluster import when_gone, when_writable
from tests.support.stranger import claim
from tests.support.zookeeper_sessions import end_dead_session

PASSWORD = "pass-word"
COUNT = 300


def entries(first: int, end: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(first, end)]


@pytest.fixture(scope="module")
def mixed(
    apache: Apache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalCluster, list[ApacheBookie]]]:
    directory = tmp_path_factory.mktemp("mixed")
    with LocalCluster(2, directory=directory, settings=SESSION_TIMEOUT) as cluster:
        genuine = [ApacheBookie(apache, directory / f"genuine-{n}", cluster.uri, free_port()) for n in (1, 2)]
        try:
            for bookie in genuine:
                bookie.start(wait=False)
            for bookie in genuine:
                bookie.wait_ready()
            yield cluster, genuine
        finally:
            for bookie in genuine:
                bookie.kill()


@pytest.fixture(scope="module", params=(2, 3), ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


@pytest.fixture(scope="module")
def client(mixed: tuple[LocalCluster, list[ApacheBookie]], version: int) -> Iterator[BlockingBookKeeper]:
    settings = ClientSettings(
        use_v2=version == 2,
        password=PASSWORD.encode(),
        explicit_lac_interval_s=0.05,
        read_timeout_base_s=REQUEST_TIMEOUT_S,
        info_timeout_s=REQUEST_TIMEOUT_S,
    )
    with connect(mixed[0].uri, settings) as client:
        yield client


@pytest.fixture
def genuine(mixed: tuple[LocalCluster, list[ApacheBookie]]) -> list[str]:
    """The ids of the genuine bookies."""
    return [bookie.bookie_id for bookie in mixed[1]]


def test_ids_that_genuine_bookies_know_are_passed_over_or_refused(
    client: BlockingBookKeeper, genuine: list[str]
) -> None:
    """A genuine bookie answers a read of the last entry: without the ledger, with a stranger's fence, with entries."""
    members = [BookieId(bookie_id) for bookie_id in genuine]
    with client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=genuine) as ledger:
        ledger.append_many(entries(0, 10))
    first = ledger.ledger_id + 1

    def occupancies(ledger_id: int) -> list[Occupancy]:
        found = client.run(lambda each: ask_occupancy(each.context, LedgerId(ledger_id), members))
        return [found[bookie_id].occupancy for bookie_id in members]

    assert occupancies(first) == [Occupancy.FREE] * 2
    assert occupancies(ledger.ledger_id) == [Occupancy.ENTRIES] * 2
    claimed = range(first, first + 20)
    client.run(lambda each: Deferred.fromCoroutine(claim(each.context, members, claimed)))
    assert occupancies(first) == [Occupancy.CLAIMED] * 2
    after = client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=genuine)
    assert after.ledger_id >= claimed.stop
    assert after.append(b"x") == 0
    after.close()
    with pytest.raises(LedgerIdOccupied, match="another key claimed this id"):
        client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=genuine, ledger_id=first + 1)


@pytest.mark.parametrize("digest", list(DigestType), ids=lambda digest: digest.name)
def test_our_client_writes_and_reads_on_genuine_bookies(
    client: BlockingBookKeeper, genuine: list[str], digest: DigestType
) -> None:
    with client.create(ensemble=2, write_quorum=2, ack_quorum=2, digest=digest, bookies=genuine) as ledger:
        ledger.append_many(entries(0, COUNT))
        assert [entry.payload for entry in ledger.read(0, COUNT - 1)] == entries(0, COUNT)
    with client.open(ledger.id) as closed:
        assert [entry.payload for entry in closed.entries()] == entries(0, COUNT)


def test_our_recovery_fences_genuine_bookies(
    mixed: tuple[LocalCluster, list[ApacheBookie]], client: BlockingBookKeeper, genuine: list[str], version: int
) -> None:
    ledger = client.create(ensemble=2, write_quorum=2, ack_quorum=1, bookies=genuine)
    ledger.append_many(entries(0, COUNT))
    settings = ClientSettings(use_v2=version == 2, password=PASSWORD.encode(), read_timeout_base_s=REQUEST_TIMEOUT_S)
    with connect(mixed[0].uri, settings) as other:
        with other.open(ledger.id) as recovered:
            assert [entry.payload for entry in recovered.entries()] == entries(0, COUNT)
    with pytest.raises(LedgerFencedOff):
        ledger.append(b"too late")


def test_our_explicit_lac_is_told_by_genuine_bookies(client: BlockingBookKeeper, genuine: list[str]) -> None:
    ledger = client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=genuine)
    ledger.append_many(entries(0, 10))
    with client.open_without_recovery(ledger.id) as tail:
        assert next(tail.tail(9))[-1].entry_id == 9
    ledger.close()


def test_our_client_asks_a_genuine_bookie_for_its_disk_space(client: BlockingBookKeeper, genuine: list[str]) -> None:
    for bookie_id in genuine:
        info = client.bookie_info(bookie_id)
        assert 0 < info.free_bytes < info.total_bytes


def test_both_clients_write_and_read_on_a_mixed_ensemble(
    mixed: tuple[LocalCluster, list[ApacheBookie]],
    client: BlockingBookKeeper,
    apache_client: ApacheClient,
    version: int,
) -> None:
    uri = mixed[0].uri
    with client.create(ensemble=4, write_quorum=3, ack_quorum=2) as ours:
        ours.append_many(entries(0, COUNT))
    (theirs,) = apache_client.run("write", uri, version, "CRC32C", PASSWORD, 4, 3, 2, 60)
    with client.open(int(theirs)) as ledger:
        assert [entry.payload for entry in ledger.entries()] == entries(0, 60)
        assert set(ledger.metadata.last_fragment.ensemble) == set(client.available_bookies().writable)
    lines = apache_client.run("read", uri, version, "CRC32C", PASSWORD, ours.id)
    assert [line.encode() for line in lines] == entries(0, COUNT)


def test_either_writer_replaces_a_killed_bookie_of_either_kind(
    mixed: tuple[LocalCluster, list[ApacheBookie]], apache_client: ApacheClient
) -> None:
    cluster, genuine = mixed
    settings = ClientSettings(password=PASSWORD.encode(), read_timeout_base_s=REQUEST_TIMEOUT_S)
    dead = genuine[0].bookie_id
    (theirs,) = apache_client.run("begin", cluster.uri, 3, "CRC32C", PASSWORD, 3, 2, 2, 30)
    with connect(cluster.uri, settings) as client:
        ours = client.create(ensemble=3, write_quorum=2, ack_quorum=2)
        ours.append_many(entries(0, 30))
        genuine[0].kill()
        ours.append_many(entries(30, 60))
        assert apache_client.run("append", theirs, 30) == ["59"]
        # The next kill leaves no other spare bookie, so both clients must have seen that this one is registered again.
        end_dead_session(cluster.uri, dead)
        when_gone(client, dead)
        apache_client.when_writable(cluster.uri, 3, 3)
        genuine[0].start()
        when_writable(client, dead)
        apache_client.when_writable(cluster.uri, 3, 4)
        cluster.bookies[0].kill()
        ours.append_many(entries(60, 90))
        assert apache_client.run("append", theirs, 30) == ["89"]
        ours.close()
        with client.open(int(theirs)) as ledger:
            assert [entry.payload for entry in ledger.entries()] == entries(0, 90)
            fragments = len(ledger.metadata.fragments)
    lines = apache_client.run("read", cluster.uri, 3, "CRC32C", PASSWORD, ours.id)
    assert [line.encode() for line in lines] == entries(0, 90)
    # Of four bookies a ledger used three: two deaths hit each ledger at least once.
    assert fragments > 1
    assert len(ours.metadata.fragments) > 1
