"""Checkpoints in ledgers, on the simulated cluster: what is listed is whole, and nothing else stays for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, LedgerFencedOff, MetadataUnavailable, NoSuchLedger
from bookkeeper.metadata.memory.session import Fault
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.metadata.uri import DEFAULT_ROOT
from bookkeeper.model import DigestType
from journalmgr.errors import JournalUnavailable, SegmentUnreadable
from journalmgr.ledger.images import OWNER_KEY
from journalmgr.namenode.images.checkpoints import Checkpoint
from journalmgr.namenode.images.ledger_checkpoints import LedgerCheckpoints
from journalmgr.namenode.machine import CheckpointGivenUp
from tests.simulation.journals import NAMESPACE, ROOT, journal_of
from tests.simulation.world import METADATA_SETTINGS, SimulatedClient, World
from tests.support.stranger import claim

PIECES = [b"first", b"second" * 1000, b"third"]


async def unchecked(checkpoint: Checkpoint, pieces: AsyncIterator[bytes]) -> None:
    """What is written need not be an image."""
    async for _ in pieces:
        pass


class Cluster:
    """Three bookies and a formatted journal."""

    def __init__(self) -> None:
        self.world = World(1)
        for _ in range(3):
            self.world.add_bookie()
        assert self.world.run_until(lambda: all(bookie.serves for bookie in self.world.bookies), seconds=20)
        self.client = self.world.add_client()
        self.now(journal_of(self.client).format(NAMESPACE))
        self.store = self.new_store(self.client)
        self.handles: list[Any] = []
        create: Any = self.client.ledgers.create

        def keep(handle: Any) -> Any:
            self.handles.append(handle)
            return handle

        def creating(**named: Any) -> Any:
            return create(**named).addCallback(keep)

        self.client.ledgers.create = creating  # type: ignore[method-assign]

    def new_store(self, client: SimulatedClient) -> LedgerCheckpoints:
        return LedgerCheckpoints(
            client.ledgers,
            client.store.tree,
            client.process.clock,
            METADATA_SETTINGS,
            ROOT,
            DEFAULT_ROOT,
        )

    def now(self, deferred: Deferred[Any]) -> Any:
        outcome: list[Any] = []
        deferred.addBoth(outcome.append)
        assert self.world.run_until(lambda: bool(outcome), seconds=60)
        if isinstance(outcome[0], Failure):
            raise outcome[0].value
        return outcome[0]

    def read(self, checkpoint: Checkpoint) -> bytes:
        async def read() -> bytes:
            return b"".join([piece async for piece in self.store.read(checkpoint)])

        data: bytes = self.now(Deferred.fromCoroutine(read()))
        return data

    def ledgers(self) -> list[int]:
        async def ids() -> list[int]:
            return [ledger_id async for some in self.client.ledgers.ids() for ledger_id in some]

        found: list[int] = self.now(Deferred.fromCoroutine(ids()))
        return found

    def notes(self) -> list[str]:
        """Names of the notes that are there."""
        return sorted(self.world.metadata.znodes.leader.children(f"{ROOT}/images/notes", None))


def test_an_image_is_read_as_it_was_written_and_removed_with_its_ledger() -> None:
    cluster = Cluster()
    written = cluster.now(cluster.store.write(7, iter(PIECES), unchecked))
    assert cluster.now(cluster.store.all()) == [written]
    assert cluster.read(written) == b"".join(PIECES)
    assert cluster.now(cluster.store.write(7, iter([b"other"]), unchecked)) == written
    cluster.now(cluster.store.remove(written))
    assert cluster.now(cluster.store.all()) == []
    assert (cluster.ledgers(), cluster.notes()) == ([], [])


@pytest.mark.parametrize("error", [CheckpointGivenUp("more urgent"), ValueError("a fault of ours")])
def test_what_is_given_up_leaves_no_ledger_no_znode_and_no_open_writer(error: Exception) -> None:
    cluster = Cluster()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        raise error

    with pytest.raises(type(error)):
        cluster.now(cluster.store.write(7, pieces(), unchecked))
    assert cluster.now(cluster.store.all()) == []
    assert (cluster.ledgers(), cluster.notes()) == ([], [])
    assert [handle.closed for handle in cluster.handles] == [True]


def test_an_image_passes_over_ids_that_bookies_know_already() -> None:
    cluster = Cluster()
    bookies = [bookie.bookie_id for bookie in cluster.world.bookies]
    context = cluster.world.add_client().ledgers.context
    cluster.now(Deferred.fromCoroutine(claim(context, bookies, range(60))))
    image = cluster.now(cluster.store.write(7, iter(PIECES), unchecked))
    assert image.ledger_id >= 60
    assert cluster.read(image) == b"".join(PIECES)
    assert (cluster.ledgers(), cluster.notes()) == ([image.ledger_id], [])
    assert 1 <= cluster.client.ledgers.context.ids_passed_over <= 20


def test_a_ledger_that_was_fenced_under_an_image_is_no_image() -> None:
    cluster = Cluster()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        other = cluster.world.add_client()
        opening = other.ledgers.open(cluster.handles[0].ledger_id, b"", DigestType.CRC32C)
        done: list[object] = []
        opening.addBoth(done.append)
        assert cluster.world.run_until(lambda: bool(done), seconds=30)
        yield b"second"

    with pytest.raises(LedgerFencedOff):
        cluster.now(cluster.store.write(7, pieces(), unchecked))
    assert cluster.now(cluster.store.all()) == []
    assert (cluster.ledgers(), cluster.notes()) == ([], [])


def test_two_that_save_the_same_state_leave_one_image_and_one_ledger() -> None:
    cluster = Cluster()
    other = cluster.new_store(cluster.world.add_client())
    first, second = cluster.store.write(7, iter(PIECES), unchecked), other.write(7, iter(PIECES), unchecked)
    images = [cluster.now(first), cluster.now(second)]
    assert images[0] == images[1]
    assert cluster.now(cluster.store.all()) == images[:1]
    assert cluster.ledgers() == [images[0].ledger_id]
    assert cluster.notes() == []


@pytest.mark.parametrize("seed", range(12))
def test_of_a_writer_that_dies_at_any_moment_the_next_one_leaves_nothing(seed: int) -> None:
    """I-86: no ledger that no image names, no image without its ledger, whatever the moment."""
    cluster = Cluster()
    listed = cluster.now(cluster.store.write(7, iter(PIECES), unchecked))
    strangers = cluster.now(cluster.client.ledgers.create(ensemble=3, write_quorum=2, ack_quorum=2, password=b""))
    dead = cluster.world.add_client()
    writing = cluster.new_store(dead).write(9, iter(PIECES), unchecked)
    writing.addErrback(lambda _: None)
    steps = 12 * seed + 5
    for _ in range(steps):
        cluster.world.clock.step()
    dead.crash()
    # Its session ends, and with it the sign that it lives.
    cluster.world.run_until(lambda: False, seconds=3 * METADATA_SETTINGS.session_timeout_s)
    cluster.now(cluster.store.write(11, iter(PIECES), unchecked))
    images = cluster.now(cluster.store.all())
    assert {7, 11} <= {image.txid for image in images} <= {7, 9, 11}
    assert cluster.ledgers() == sorted([strangers.ledger_id, *(image.ledger_id for image in images)])
    assert cluster.notes() == []
    assert [cluster.read(image) for image in images] == [b"".join(PIECES)] * len(images)
    assert listed in images


def test_a_writer_that_lives_is_not_disturbed() -> None:
    """However long it takes: who saves meanwhile sees that it lives."""
    cluster = Cluster()
    other = cluster.new_store(cluster.world.add_client())

    def slow() -> Iterator[bytes]:
        yield from PIECES
        done: list[object] = []
        other.write(9, iter([b"other"]), unchecked).addBoth(done.append)
        assert cluster.world.run_until(lambda: bool(done), seconds=30)

    written = cluster.now(cluster.store.write(7, slow(), unchecked))
    assert [image.txid for image in cluster.now(cluster.store.all())] == [7, 9]
    assert cluster.read(written) == b"".join(PIECES)
    assert cluster.notes() == []


def test_an_image_whose_session_ended_is_not_listed_whatever_became_of_its_ledger() -> None:
    """Somebody may have deleted it, or be about to; nothing is purged for what may not be there."""
    cluster = Cluster()
    other = cluster.new_store(cluster.world.add_client())
    sweeps = iter([False, True])

    def asleep() -> Iterator[bytes]:
        yield from PIECES
        cluster.client.store.expire_session()
        if next(sweeps):
            done: list[object] = []
            other.write(9, iter([b"other"]), unchecked).addBoth(done.append)
            assert cluster.world.run_until(lambda: bool(done), seconds=30)

    for _ in range(2):
        with pytest.raises(BookKeeperError):
            cluster.now(cluster.store.write(7, asleep(), unchecked))
    assert [image.txid for image in cluster.now(cluster.store.all())] == [9]
    cluster.now(other.write(11, iter(PIECES), unchecked))
    assert cluster.ledgers() == sorted(image.ledger_id for image in cluster.now(cluster.store.all()))
    assert cluster.notes() == []


@pytest.mark.parametrize("deletions_failed", [0, 1])
def test_a_writer_that_was_swept_before_its_ledger_was_there_leaves_none(deletions_failed: int) -> None:
    """It slept between the note and the ledger. It writes nothing, and what it cannot delete is noted again."""
    cluster = Cluster()
    other = cluster.new_store(cluster.world.add_client())
    ledgers: Any = cluster.client.ledgers
    create, delete, deletions = ledgers.create, ledgers.delete, iter([MetadataUnavailable("away")] * deletions_failed)

    def creating(**named: Any) -> Any:
        cluster.client.store.expire_session()
        cluster.now(other.write(9, iter(PIECES), unchecked))
        return create(**named)

    def deleting(ledger_id: int) -> Any:
        error = next(deletions, None)
        return delete(ledger_id) if error is None else fail(error)

    def unwanted() -> Iterator[bytes]:
        raise AssertionError("nothing is to be written")
        yield b""

    ledgers.create, ledgers.delete = creating, deleting
    with pytest.raises(JournalUnavailable, match="ended before"):
        cluster.now(cluster.store.write(7, unwanted(), unchecked))
    assert len(cluster.notes()) == deletions_failed
    kept = [*cluster.now(cluster.store.all()), cluster.now(other.write(11, iter(PIECES), unchecked))]
    assert cluster.ledgers() == [image.ledger_id for image in kept]
    assert cluster.notes() == []


@pytest.mark.parametrize("operation", ["create", "transact", "delete"])
@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.FAILED_BEFORE, Fault.SESSION_LOST])
def test_answers_that_are_lost_leave_the_image_whole_or_not_there(operation: str, fault: Fault) -> None:
    cluster = Cluster()
    older = cluster.now(cluster.store.write(5, iter(PIECES), unchecked))
    cluster.world.metadata_faults.force(fault, operation, "/images/")
    outcome: list[object] = []
    cluster.store.write(7, iter(PIECES), unchecked).addBoth(outcome.append)
    assert cluster.world.run_until(lambda: bool(outcome), seconds=120)
    cluster.world.metadata_faults.force(fault, "transact", "/images/")
    outcome.clear()
    cluster.store.remove(older).addBoth(outcome.append)
    assert cluster.world.run_until(lambda: bool(outcome), seconds=120)
    cluster.client.store.expire_session()
    cluster.now(cluster.store.write(9, iter(PIECES), unchecked))
    images = cluster.now(cluster.store.all())
    assert {9} <= {image.txid for image in images} <= {7, 9}
    assert [cluster.read(image) for image in images] == [b"".join(PIECES)] * len(images)
    assert cluster.ledgers() == sorted(image.ledger_id for image in images)
    assert cluster.notes() == []


def test_a_removal_that_was_cut_short_is_finished_by_the_next_one_who_saves() -> None:
    cluster = Cluster()
    dead = cluster.world.add_client()
    written = cluster.now(cluster.store.write(7, iter(PIECES), unchecked))
    delete = dead.ledgers.delete

    def dying(ledger_id: int) -> Deferred[None]:
        dead.crash()
        return delete(ledger_id)

    dead.ledgers.delete = dying  # type: ignore[method-assign]
    cluster.new_store(dead).remove(written)
    assert cluster.world.run_until(lambda: not dead.process.alive, seconds=30)
    assert cluster.now(cluster.store.all()) == []
    assert cluster.ledgers() == [written.ledger_id]
    kept = cluster.now(cluster.store.write(9, iter(PIECES), unchecked))
    assert cluster.ledgers() == [kept.ledger_id]
    assert cluster.notes() == []


def test_a_ledger_that_is_not_an_image_of_this_journal_is_never_deleted() -> None:
    """I-86: an id that was noted may turn out to be somebody else's."""
    cluster = Cluster()
    cluster.now(cluster.store.write(7, iter(PIECES), unchecked))
    strangers = []
    for custom in ({}, {OWNER_KEY: b"/another"}):
        creating = cluster.client.ledgers.create(
            ensemble=3, write_quorum=2, ack_quorum=2, password=b"", custom=custom, metadata_version=3
        )
        strangers.append(cluster.now(creating).ledger_id)
    for kind, ledger_id in zip(("writing", "deleting"), strangers, strict=True):
        cluster.world.metadata.znodes.create(f"{ROOT}/images/notes/{kind}_{ledger_id}", b"", NodeKind.PERSISTENT, 0)
    cluster.now(cluster.store.write(9, iter(PIECES), unchecked))
    assert set(strangers) <= set(cluster.ledgers())
    assert cluster.notes() == []


def test_an_image_is_read_back_before_it_is_listed() -> None:
    cluster = Cluster()
    seen: list[object] = []

    async def check(checkpoint: Checkpoint, pieces: AsyncIterator[bytes]) -> None:
        seen.append(b"".join([piece async for piece in pieces]))
        seen.append(await cluster.store.all())
        raise SegmentUnreadable("not what was written")

    with pytest.raises(SegmentUnreadable, match="not what"):
        cluster.now(cluster.store.write(7, iter(PIECES), check))
    assert seen == [b"".join(PIECES), []]
    assert cluster.now(cluster.store.all()) == []
    assert (cluster.ledgers(), cluster.notes()) == ([], [])


def test_the_image_of_another_server_that_was_faster_has_to_pass_the_check_too() -> None:
    """What this server takes for its checkpoint is what it goes by when it purges."""
    cluster = Cluster()
    other = cluster.new_store(cluster.world.add_client())

    def overtaken() -> Iterator[bytes]:
        yield from PIECES
        done: list[object] = []
        other.write(7, iter([b"something else"]), unchecked).addBoth(done.append)
        assert cluster.world.run_until(lambda: bool(done), seconds=30)

    async def check(checkpoint: Checkpoint, pieces: AsyncIterator[bytes]) -> None:
        if b"".join([piece async for piece in pieces]) != b"".join(PIECES):
            raise SegmentUnreadable("not what was written")

    with pytest.raises(JournalUnavailable, match="damaged"):
        cluster.now(cluster.store.write(7, overtaken(), check))
    again = cluster.now(cluster.store.write(7, iter(PIECES), check))
    assert cluster.read(again) == b"".join(PIECES)
    assert cluster.ledgers() == [again.ledger_id]
    assert cluster.notes() == []


def test_an_image_that_was_removed_is_not_in_the_list_of_who_lags() -> None:
    """Or a loader would take it for damaged, and load an older one whose edits are purged."""
    cluster = Cluster()
    written = cluster.now(cluster.store.write(7, iter(PIECES), unchecked))
    cluster.world.metadata_faults.lag_max_s = 50.0
    late = cluster.world.add_client()
    store = cluster.new_store(late)
    assert cluster.now(store.all()) == [written]
    cluster.now(cluster.store.remove(written))
    assert cluster.now(store.all()) == []


@pytest.mark.parametrize("what", ["the record", "the ledger"])
def test_an_image_that_lost_its_ledger_or_record_is_unreadable_and_makes_room(what: str) -> None:
    """The others are listed and read as ever."""
    cluster = Cluster()
    older = cluster.now(cluster.store.write(5, iter(PIECES), unchecked))
    written = cluster.now(cluster.store.write(7, iter(PIECES), unchecked))
    if what == "the record":
        cluster.world.metadata.damage(f"{ROOT}/images/{written.name}", b"{}")
    cluster.now(cluster.client.ledgers.delete(written.ledger_id))
    images = cluster.now(cluster.store.all())
    assert [image.txid for image in images] == [5, 7]
    assert cluster.read(older) == b"".join(PIECES)
    with pytest.raises(SegmentUnreadable, match=written.name):
        cluster.read(images[1])
    again = cluster.now(cluster.store.write(7, iter([b"again"]), unchecked))
    assert cluster.read(again) == b"again"
    assert cluster.notes() == []
    cluster.now(cluster.store.remove(images[1]))  # of who saw the old list
    assert cluster.now(cluster.store.all()) == [older, again]


def test_images_go_with_their_journal_when_it_is_formatted() -> None:
    """What another journal's znode names, or nobody's, stays."""
    cluster = Cluster()
    cluster.now(cluster.store.write(9, iter(PIECES), unchecked))
    cluster.now(cluster.store.write(20, iter(PIECES), unchecked))
    others = cluster.now(
        cluster.client.ledgers.create(
            ensemble=3, write_quorum=2, ack_quorum=2, digest=DigestType.CRC32C, password=b"", metadata_version=3
        )
    ).ledger_id
    tree = cluster.client.store.tree
    cluster.now(tree.create(f"{ROOT}/images/image_{30:019d}", b'{"ledgerId": %d}' % others))
    ledgers = [checkpoint.ledger_id for checkpoint in cluster.now(cluster.store.all())]
    assert len(ledgers) == 3
    cluster.now(journal_of(cluster.client).format(NAMESPACE, force=True))
    assert cluster.now(cluster.store.all()) == []
    for ledger_id in ledgers:
        error = cluster.now(cluster.client.ledgers.metadata(ledger_id).addErrback(lambda failure: failure.value))
        assert isinstance(error, NoSuchLedger) == (ledger_id != others)
