"""Adds of many ledgers decided together: the same outcome as one by one, in one journal append and one answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bookkeeper.bookie.process.mode import ReadOnlyReason
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import StorageError
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch
from tests.support.bookie_fakes import KEY, OTHER_KEY, TOKEN, BookieBench, FakeStorage, body_of, ids_of
from tests.support.logged import logged
from tests.support.stored_ledgers import StoredLedgers

Replies = list[tuple[list[int], Status]]


def batch(ledger_id: int, *entry_ids: int, key: bytes = KEY, recovery: bool = False, payload: bytes = b"p") -> AddBatch:
    bodies = [body_of(ledger_id, entry_id, payload) for entry_id in entry_ids]
    return AddBatch(ledger_id, key, list(entry_ids), bodies, -1, recovery, False, False, TOKEN)


def add(bench: BookieBench, *batches: AddBatch) -> Replies:
    """Add them together; what comes back: the ledgers answered together, and how."""
    replies: Replies = []
    bench.bookie.add_many(batches, lambda some, status: replies.append(([one.ledger_id for one in some], status)))
    return replies


def bench_with(ledger_ids: range, *, journal_count: int = 1) -> BookieBench:
    """Ledgers that hold entry 0, synced."""
    bench = BookieBench(journal_count=journal_count)
    for ledger_id in ledger_ids:
        bench.add(0, ledger_id=ledger_id)
    bench.settle()
    return bench


def test_many_ledgers_share_one_append_and_one_answer_after_its_sync() -> None:
    bench = bench_with(range(20))
    replies = add(bench, *[batch(ledger_id, 1) for ledger_id in range(20)])
    assert replies == []  # I-47
    assert bench.bookie.in_flight == 1
    assert ids_of(bench.journal.queued) == [(ledger_id, 1) for ledger_id in range(20)]
    assert bench.read(1, ledger_id=19) == [([body_of(19, 1, b"p")], None)]
    bench.journal.sync()
    assert replies == [(list(range(20)), Status.OK)]
    assert bench.bookie.in_flight == 0
    assert bench.metrics.value("bookie_BOOKIE_ADD_ENTRY") == 40


def test_what_needs_a_decision_is_decided_alone_and_the_rest_goes_on() -> None:
    bench = bench_with(range(1, 7))
    bench.fence(ledger_id=2)
    bench.settle()
    bench.storage.cold_ledgers.add(5)
    replies = add(
        bench,
        batch(1, 1),
        batch(2, 1),  # fenced
        batch(3, 1, key=OTHER_KEY),
        batch(4, 0, payload=b"another"),  # held with other contents (I-69)
        batch(5, 1),  # cold
        batch(9, 0),  # new
        batch(6, 1, 2),
    )
    assert replies == [([2], Status.FENCED), ([3], Status.UNAUTHORIZED), ([4], Status.BAD_REQUEST)]
    del replies[:]
    bench.settle()
    assert sorted(replies) == [([1], Status.OK), ([5], Status.OK), ([6], Status.OK), ([9], Status.OK)]
    assert set(ids_of(bench.journal.durable)) >= {(1, 1), (5, 1), (6, 1), (6, 2), (9, 0)}
    assert not set(ids_of(bench.journal.durable)) & {(2, 1), (3, 1)}
    assert bench.bookie.in_flight == 0


def test_a_client_that_repeats_a_refused_add_does_not_fill_the_log() -> None:
    bench = bench_with(range(2))
    with logged() as lines:
        for _ in range(100):
            replies = add(bench, batch(0, 0, payload=b"another"), batch(1, 0, payload=b"another"))
            assert replies == [([0], Status.BAD_REQUEST), ([1], Status.BAD_REQUEST)]
        assert [line for line in lines if "Refused an add" in line] == lines
        assert len(lines) == 2
        bench.clock.advance(10.0)
    assert lines[2:] == [
        "Similar lines about requests that were left out: 99 x refused add to ledger 0, 99 x refused add to ledger 1"
    ]


def test_adds_of_one_ledger_keep_their_order_around_one_that_waits() -> None:
    bench = bench_with(range(1, 3))
    bench.storage.cold_ledgers.add(1)
    replies = add(bench, batch(1, 1), batch(2, 1), batch(1, 2))
    bench.journal.sync()
    assert replies == [([2], Status.OK)]
    bench.settle()
    assert replies == [([2], Status.OK), ([1], Status.OK), ([1], Status.OK)]
    assert [entry for ledger, entry in ids_of(bench.journal.durable) if ledger == 1 and entry > 0] == [1, 2]


def test_each_journal_answers_for_its_own_ledgers() -> None:
    bench = bench_with(range(4), journal_count=2)
    replies = add(bench, *[batch(ledger_id, 1) for ledger_id in range(4)])
    bench.journals[1].sync()
    assert replies == [([1, 3], Status.OK)]
    bench.journals[0].sync()
    assert replies[1:] == [([0, 2], Status.OK)]


def test_a_full_journal_refuses_them_all_and_a_resend_is_journaled() -> None:
    bench = bench_with(range(3))
    bench.journal.full = True
    assert add(bench, batch(0, 1), batch(1, 1)) == [([0, 1], Status.TOO_MANY_REQUESTS)]
    assert bench.metrics.value("bookkeeper_server_ADD_ENTRY_REJECTED") == 2
    bench.journal.full = False
    replies = add(bench, batch(0, 1), batch(1, 1))
    bench.settle()
    assert replies == [([0], Status.OK), ([1], Status.OK)]
    assert {(0, 1), (1, 1)} <= set(ids_of(bench.journal.durable))


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        (lambda bench: bench.mode.forbid(ReadOnlyReason.CONFIGURED), Status.READ_ONLY),
        (lambda bench: setattr(bench.storage, "is_full", True), Status.TOO_MANY_REQUESTS),
        (lambda bench: setattr(bench.storage, "error", StorageError("broken")), Status.IO_ERROR),
    ],
)
def test_a_bookie_that_takes_nothing_says_so_for_every_ledger(
    spoil: Callable[[BookieBench], None], status: Status
) -> None:
    bench = bench_with(range(3))
    spoil(bench)
    assert add(bench, *[batch(ledger_id, 1) for ledger_id in range(3)]) == [([n], status) for n in range(3)]
    assert bench.journal.queued == []


def test_a_failed_sync_answers_none_of_them() -> None:
    bench = bench_with(range(3))
    replies = add(bench, *[batch(ledger_id, 1) for ledger_id in range(3)])
    bench.journal.fail(OSError("gone"))
    assert replies == []  # I-48
    assert len(bench.exits) == 1


# --- what the storage calls plain ---------------------------------------------------------------------------------


def plain_storage() -> StoredLedgers:
    """Ledger 7 with entries 0 to 4, its key journaled."""
    stored = StoredLedgers()
    stored.key(7)
    stored.add(7, 0, 5)
    stored.storage.key_journaled(7)
    return stored


def test_ascending_new_entries_of_a_known_ledger_are_plain() -> None:
    stored = plain_storage()
    key = stored.storage.master_key(7)
    assert key is not None
    assert stored.storage.add_plain([batch(7, 5, key=key), batch(7, 6, 9, key=key)], 0, ()) == 2
    assert stored.storage.last_entry_id(7) == 9
    assert stored.storage.read(7, [5, 9]) == [body_of(7, 5, b"p"), body_of(7, 9, b"p")]


@pytest.mark.parametrize(
    ("ids", "changes"),
    [
        ((4,), {}),  # held
        ((3, 5), {}),
        ((6, 5), {}),  # out of order
        ((5, 5), {}),
        ((5, 1 << 40), {}),  # beyond the highest id
        ((5,), {"key": OTHER_KEY}),
        ((5,), {"key": b""}),
        ((5,), {"recovery": True}),
        ((5,), {"ledger": 8}),  # never seen
        ((5,), {"fenced": True}),
        ((5,), {"forgotten": True}),  # no key record by this process
        ((5,), {"failed": True}),
        ((5,), {"shut": True}),  # its gate
    ],
)
def test_what_is_not_plain_stays_out(ids: tuple[int, ...], changes: dict[str, object]) -> None:
    stored = plain_storage()
    key = stored.storage.master_key(7)
    assert key is not None
    if changes.get("fenced"):
        stored.storage.set_fenced(7)
    if changes.get("forgotten"):
        stored.checkpoint()
        stored.storage.close()
        stored.start()
        stored.storage.replay_finished()
        assert stored.storage.exists(7)
    if changes.get("failed"):
        stored.storage.failure = OSError("sync failed")
    ledger_id = changes.get("ledger", 7)
    assert isinstance(ledger_id, int)
    wanted = changes.get("key", key)
    assert isinstance(wanted, bytes)
    one = batch(ledger_id, *ids, key=wanted, recovery=bool(changes.get("recovery")))
    before = stored.storage.added_bytes
    assert stored.storage.add_plain([one], 0, {7} if changes.get("shut") else ()) == 0
    assert stored.storage.added_bytes == before


def test_states_are_evicted_while_all_adds_are_plain() -> None:
    """Readers go through old ledgers meanwhile: each cold read leaves a state behind."""
    stored = StoredLedgers(settings=StorageSettings(ledger_states_max=10))
    for ledger_id in range(100):
        stored.add(ledger_id, 0, 1)
    stored.checkpoint()
    stored.storage.load_cold(0)
    stored.key(0)
    stored.storage.key_journaled(0)
    key = stored.storage.master_key(0)
    assert key is not None
    for ledger_id in range(1, 100):
        stored.storage.read_cold(ledger_id, [0])
        assert stored.storage.add_plain([batch(0, ledger_id, key=key)], 0, ()) == 1
    assert stored.storage.ledger_state_count <= 12


def test_states_are_evicted_while_nothing_is_added() -> None:
    stored = StoredLedgers(settings=StorageSettings(ledger_states_max=10))
    for ledger_id in range(100):
        stored.add(ledger_id, 0, 1)
    stored.checkpoint()
    for ledger_id in range(100):
        stored.read(ledger_id, [0])
    assert stored.storage.ledger_state_count <= 12


@pytest.mark.parametrize("seed", range(20))
def test_the_fake_agrees_with_the_storage_on_what_is_plain(seed: int) -> None:
    """The bookie's tests run on the fake; this holds it to the real one."""
    rng = random.Random(seed)
    stored, fake = StoredLedgers(), FakeStorage()
    for _ in range(60):
        ledger_id, first = rng.randrange(4), rng.randrange(12)
        ids = [first] if rng.random() < 0.6 else rng.sample(range(first, first + 4), 2)
        one = batch(ledger_id, *ids, key=rng.choice([KEY, KEY, KEY, OTHER_KEY]), recovery=rng.random() < 0.1)
        known, shut = stored.storage.is_loaded(ledger_id), rng.choice([(), (), {ledger_id}])
        assert stored.storage.add_plain([one], 0, shut) == fake.add_plain([one], 0, shut)
        stored.storage.load_cold(ledger_id)
        if not known or rng.random() < 0.2:
            for storage in (stored.storage, fake):
                if storage.master_key(ledger_id) is None:
                    storage.set_master_key(ledger_id, KEY)
                storage.key_journaled(ledger_id)
        if rng.random() < 0.03:
            stored.storage.set_fenced(ledger_id)
            fake.set_fenced(ledger_id)
        assert stored.storage.last_entry_id(ledger_id) == fake.last_entry_id(ledger_id)
