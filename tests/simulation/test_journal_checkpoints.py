"""Checkpoints in ledgers, on the simulated cluster: what is listed is whole, and nothing else stays for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import LedgerFencedOff
from bookkeeper.model import DigestType
from journalmgr.namenode.checkpoints import Checkpoint
from journalmgr.namenode.ledger_checkpoints import OWNER_KEY, LedgerCheckpoints
from journalmgr.namenode.machine import CheckpointGivenUp
from tests.simulation.journals import NAMESPACE, ROOT, journal_of
from tests.simulation.world import METADATA_SETTINGS, SimulatedClient, World

PIECES = [b"first", b"second" * 1000, b"third"]


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
            now_ms=lambda: int(self.world.clock.seconds() * 1000),
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

    def sweep(self, older_than_ms: int) -> list[int]:
        removed: list[int] = self.now(Deferred.fromCoroutine(self.store.sweep(older_than_ms)))
        return removed


def test_an_image_is_read_as_it_was_written_and_removed_with_its_ledger() -> None:
    cluster = Cluster()
    written = cluster.now(cluster.store.write(7, iter(PIECES)))
    assert cluster.now(cluster.store.all()) == [written]
    assert cluster.read(written) == b"".join(PIECES)
    assert cluster.now(cluster.store.write(7, iter([b"other"]))) == written
    cluster.now(cluster.store.remove(written))
    assert cluster.now(cluster.store.all()) == []
    assert cluster.ledgers() == []


@pytest.mark.parametrize("error", [CheckpointGivenUp("more urgent"), ValueError("a fault of ours")])
def test_what_is_given_up_leaves_no_ledger_no_znode_and_no_open_writer(error: Exception) -> None:
    cluster = Cluster()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        raise error

    with pytest.raises(type(error)):
        cluster.now(cluster.store.write(7, pieces()))
    assert cluster.now(cluster.store.all()) == []
    assert cluster.ledgers() == []
    assert [handle.closed for handle in cluster.handles] == [True]


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
        cluster.now(cluster.store.write(7, pieces()))
    assert cluster.now(cluster.store.all()) == []
    assert cluster.ledgers() == []


def test_two_that_save_the_same_state_leave_one_image_and_one_ledger() -> None:
    cluster = Cluster()
    other = cluster.new_store(cluster.world.add_client())
    first, second = cluster.store.write(7, iter(PIECES)), other.write(7, iter(PIECES))
    images = [cluster.now(first), cluster.now(second)]
    assert images[0] == images[1]
    assert cluster.now(cluster.store.all()) == images[:1]
    assert cluster.ledgers() == [images[0].ledger_id]


def test_only_what_a_dead_writer_of_this_journal_left_is_swept_and_only_once_it_is_old() -> None:
    """I-86: by owner tag and age, never by guess."""
    cluster = Cluster()
    listed = cluster.now(cluster.store.write(7, iter(PIECES)))
    strangers = [cluster.now(cluster.client.ledgers.create(ensemble=3, write_quorum=2, ack_quorum=2, password=b""))]
    strangers += [
        cluster.now(
            cluster.client.ledgers.create(
                ensemble=3,
                write_quorum=2,
                ack_quorum=2,
                password=b"",
                custom={OWNER_KEY: b"/another"},
                metadata_version=3,
            )
        )
    ]
    dead = cluster.world.add_client()
    orphan: list[int] = []

    def pieces() -> Iterator[bytes]:
        yield b"first"
        orphan.extend(set(cluster.ledgers()) - {listed.ledger_id, *(handle.ledger_id for handle in strangers)})
        dead.crash()
        yield b"second"

    begun_ms = int(cluster.world.clock.seconds() * 1000)
    cluster.new_store(dead).write(9, pieces())
    cluster.world.run_until(lambda: False, seconds=5)
    assert len(orphan) == 1
    assert cluster.sweep(begun_ms - 1000) == []
    assert cluster.sweep(begun_ms + 1000) == orphan
    assert cluster.ledgers() == sorted([listed.ledger_id, *(handle.ledger_id for handle in strangers)])
    assert cluster.read(listed) == b"".join(PIECES)
