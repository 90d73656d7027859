"""Batch reads, lists of entries, disk space: each client asks bookies of both kinds, and ours those of old releases."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.client.connecting import connect_to
from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingWriteHandle, connect
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.errors import BookKeeperError, NotSupportedByBookie
from bookkeeper.model import DigestType
from tests.conftest import ZooKeeperServer
from tests.interop.ground import THEIRS, Ground, ground_of
from tests.support.apache import CLASSIC, MIDDLE, ApacheClient, ApacheError, Release, find_apache
from tests.support.apache.content import fingerprints, payload, payloads

COUNT, SIZE_MAX = 60, 20_000
EACH = 100
"""Bytes of an entry where batches are counted."""
OVERHEAD = 100
"""More than one entry takes in an answer beside its payload."""


@contextmanager
def counting(ground: Ground) -> Iterator[tuple[BlockingBookKeeper, Callable[[], int]]]:
    """A client of ours for v2, and how many entries came to it in batches."""
    crossing = ReactorThread()
    settings = replace(ground.settings(2), speculative_read_delay_s=0)  # a slow read is not repeated
    ledger_client = crossing.run(
        lambda: Deferred.fromCoroutine(connect_to(ground.uri, crossing.reactor, settings, resolve=crossing.resolve))
    )
    with BlockingBookKeeper(ledger_client, crossing) as client:
        yield client, lambda: crossing.call(lambda: ledger_client.entries_in_batches)


def test_their_batch_reads_bring_many_entries_of_our_ledger(ground: Ground, apache_client: ApacheClient) -> None:
    # Acknowledged by all three: a bookie that has yet to store some answers with a shorter batch.
    with ground.client(2).create(ensemble=3, write_quorum=3, ack_quorum=3) as ours:
        ours.append_many(payloads(0, COUNT, SIZE_MAX))
    where = ground.where(2, ours.id)
    assert apache_client.run("batch", *where, 25, 1 << 20) == fingerprints(payloads(0, COUNT, SIZE_MAX))
    # The count ends a batch, and the size does: it would not if their client had gone back to single reads.
    assert apache_client.run("batches", *where, 25, 1 << 20) == ["25", "25", "10"]
    with ground.client(2).create(ensemble=3, write_quorum=3, ack_quorum=3) as small:
        small.append_many([bytes(EACH)] * COUNT)
    by_size = [int(line) for line in apache_client.run("batches", *ground.where(2, small.id), COUNT, EACH * 20)]
    assert [count for count in by_size[:-1] if not 20 * EACH // (EACH + OVERHEAD) <= count <= 20] == [], by_size
    assert sum(by_size) == COUNT


def test_our_batch_reads_bring_many_entries_of_their_ledger(ground: Ground, apache_client: ApacheClient) -> None:
    (theirs,) = apache_client.run("begin", *ground.where(2), 3, 3, 2, 0)
    apache_client.run("fill", theirs, COUNT, 1, SIZE_MAX)
    apache_client.run("close", theirs)
    written = payloads(1, COUNT, SIZE_MAX)
    with counting(ground) as (client, in_batches), client.open(int(theirs)) as reader:
        # The first at each bookie goes entry by entry too, beside the trial whether it knows batches.
        for _ in range(4):
            assert [entry.payload for entry in reader.read(0, COUNT - 1)] == written
        before = in_batches()
        assert before >= COUNT
        assert [entry.payload for entry in reader.read_batch(0, 25)] == written[:25]
        assert [entry.payload for entry in reader.read_batch(25, 0)] == written[25:]
        assert in_batches() == before + COUNT
        limited = reader.read_batch(2, 0, 3 * SIZE_MAX)
        assert 1 < len(limited) < COUNT - 2
        assert sum(len(entry.payload) for entry in limited) <= 3 * SIZE_MAX
        assert [entry.payload for entry in limited] == written[2 : 2 + len(limited)]


def test_each_client_lists_the_entries_that_a_bookie_holds(ground: Ground, apache_client: ApacheClient) -> None:
    client = ground.client(3)
    (theirs,) = apache_client.run("begin", *ground.where(3), 3, 2, 2, COUNT)
    apache_client.run("close", theirs)
    with client.create(ensemble=3, write_quorum=2, ack_quorum=2) as ours:
        ours.append_many(payloads(2, COUNT, SIZE_MAX))
    for ledger_id in (int(theirs), ours.id):
        for place, bookie_id in enumerate(client.metadata(ledger_id).last_fragment.ensemble):
            expected = [entry_id for entry_id in range(COUNT) if (place - entry_id) % 3 < 2]
            assert [number for run in client.list_entries(ledger_id, bookie_id) for number in run] == expected
            told = apache_client.run("holds", ground.uri, 3, ledger_id, bookie_id, COUNT + 10)
            assert told == [" ".join(map(str, expected))]


def test_a_bookie_that_holds_nothing_says_so_to_each(ground: Ground, apache_client: ApacheClient) -> None:
    bookie_id = ground.bookies[0].bookie_id
    with pytest.raises(BookKeeperError) as ours:
        ground.client(3).list_entries(987_654_321, bookie_id)
    assert ours.value.code == -7
    with pytest.raises(ApacheError) as theirs:
        apache_client.run("holds", ground.uri, 3, 987_654_321, bookie_id, 10)
    assert theirs.value.code == -7


def test_both_clients_are_told_the_same_disk_space(ground: Ground, apache_client: ApacheClient) -> None:
    lines = [line.split() for line in apache_client.run("info", ground.uri, 3)]
    assert {bookie_id for bookie_id, _, _ in lines} == {bookie.bookie_id for bookie in ground.bookies}
    for bookie_id, free, total in lines:
        info = ground.client(3).bookie_info(bookie_id)
        assert int(total) == info.total_bytes
        assert 0 < int(free) < info.total_bytes
        assert 0 < info.free_bytes < info.total_bytes


@pytest.mark.parametrize("version", [2, 3])
def test_what_one_deleted_is_gone_for_the_other_that_reads_it(
    ground: Ground, apache_client: ApacheClient, version: int
) -> None:
    client = ground.client(version)
    with client.create(ensemble=3, write_quorum=2, ack_quorum=2) as ours:
        ours.append_many(payloads(3, 5, SIZE_MAX))
    (theirs,) = apache_client.run("write", *ground.where(version), 3, 2, 2, 5)
    with client.open(int(theirs)) as reader:
        assert len(list(reader.entries())) == 5
        apache_client.run("delete", ground.uri, version, theirs)
        client.delete(ours.id)
        left = {int(line) for line in apache_client.run("list", ground.uri, version)}
        assert not left & {ours.id, int(theirs)}
        assert left == {ledger_id for batch in client.ids() for ledger_id in batch}


# --- older bookies ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[MIDDLE, CLASSIC], ids=lambda release: release.version)
def older(
    request: pytest.FixtureRequest,
    apache_home: Path | None,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Release, Ground]]:
    """Two bookies of an older release."""
    release: Release = request.param
    apache = find_apache(apache_home, release.version)
    with ExitStack() as running:
        directory = tmp_path_factory.mktemp("older")
        yield release, ground_of(THEIRS, apache, zookeeper.address, directory, running, count=2)


@dataclass(frozen=True, slots=True)
class Begun:
    """An open ledger that a client of an older release writes on its own bookies."""

    ledger_id: int
    writer: ApacheClient

    def fill(self, count: int) -> None:
        """More entries."""
        self.writer.run("fill", self.ledger_id, count, 4, SIZE_MAX)


@pytest.fixture
def begun(older: tuple[Release, Ground], apache_clients: Callable[[str], ApacheClient]) -> Begun:
    release, ground = older
    writer = apache_clients(release.version)
    return Begun(int(writer.run("begin", *ground.where(2, digest="CRC32"), 2, 2, 2, 0)[0]), writer)


def test_our_batch_reads_go_back_to_single_ones_where_bookies_have_none(
    older: tuple[Release, Ground], begun: Begun
) -> None:
    release, ground = older
    assert not release.has_batch_read
    begun.fill(COUNT)
    begun.writer.run("close", begun.ledger_id)
    written = payloads(4, COUNT, SIZE_MAX)
    with counting(ground) as (client, in_batches):
        for _ in range(3):
            with client.open(begun.ledger_id) as reader:
                assert [entry.payload for entry in reader.entries()] == written
                some = reader.read_batch(10, 25)
                assert [entry.payload for entry in some] == written[10 : 10 + len(some)]
        assert in_batches() == 0


def test_our_tail_follows_older_writers_on_older_bookies(older: tuple[Release, Ground], begun: Begun) -> None:
    """4.14.7 has long polls: there a tail that asks again only after ten minutes hears of all. 4.2.3 is asked."""
    release, ground = older
    begun.fill(1)
    begun.fill(1)
    pause_s = 600.0 if release.has_long_poll else 0.01
    settings = replace(ground.settings(2), tail_poll_min_s=pause_s, tail_poll_max_s=pause_s)
    with connect(ground.uri, settings) as client, client.open_without_recovery(begun.ledger_id) as reader:
        tail = (entry.payload for batch in reader.tail() for entry in batch)
        for entry_id in range(10):
            assert next(tail) == payload(4, entry_id, SIZE_MAX)
            begun.fill(1)
        begun.writer.run("close", begun.ledger_id)
        assert list(tail) == [payload(4, entry_id, SIZE_MAX) for entry_id in (10, 11)]


def test_lists_of_entries_and_disk_space_come_from_bookies_that_know_them(
    older: tuple[Release, Ground], begun: Begun
) -> None:
    release, ground = older
    begun.fill(COUNT)
    with connect(ground.uri, ground.settings(2)) as client:
        for bookie in ground.bookies:
            if 3 in release.protocols:
                assert client.list_entries(begun.ledger_id, bookie.bookie_id) == [range(COUNT)]
                assert client.bookie_info(bookie.bookie_id).total_bytes > 0
                continue
            with pytest.raises(NotSupportedByBookie, match="protocol v3"):
                client.list_entries(begun.ledger_id, bookie.bookie_id)
            with pytest.raises(NotSupportedByBookie, match="protocol v3"):
                client.bookie_info(bookie.bookie_id)
        # Refusals cost nobody anything: the same client goes on reading and writing.
        with client.create(
            ensemble=2, write_quorum=2, ack_quorum=2, digest=DigestType.CRC32, metadata_version=2
        ) as ledger:
            ledger.append_many(payloads(5, 10, SIZE_MAX))
    begun.writer.run("close", begun.ledger_id)
    found = begun.writer.run("hashes", *ground.where(2, ledger.id, digest="CRC32"))
    assert found == fingerprints(payloads(5, 10, SIZE_MAX))


def test_deferred_sync_needs_bookies_that_speak_v3(older: tuple[Release, Ground]) -> None:
    release, ground = older

    def create(client: BlockingBookKeeper) -> BlockingWriteHandle:
        return client.create(
            ensemble=2,
            write_quorum=2,
            ack_quorum=2,
            digest=DigestType.CRC32,
            metadata_version=2,
            deferred_sync=True,
        )

    with connect(ground.uri, ground.settings(3)) as client:
        if 3 not in release.protocols:
            with pytest.raises(BookKeeperError, match=r"bookies before 4\.3 speak v2 alone"):
                create(client)
            return
        ledger = create(client)
        ledger.append_many(payloads(6, 10, SIZE_MAX))
        assert ledger.force() == 9
        ledger.close()
