"""The under-replication tree: marks, locks, switches, times, the auditor's election, bad copies."""

from __future__ import annotations

import dataclasses
import random

from twisted.internet.defer import gatherResults

from bookkeeper.errors import (
    LayoutMismatch,
    MetadataCorrupt,
    MetadataUnavailable,
    NoSuchLedger,
    NotInitialised,
    VersionConflict,
)
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.metadata.underreplication.format import CheckKind
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.model import BookieId, EntryId, LedgerId
from tests.support.logged import logged
from tests.support.metadata_contract.world import (
    Heard,
    World,
    cluster,
    fact,
    ledger,
    raises,
)

A, B, C = (BookieId(f"10.0.0.{number}:3181") for number in (1, 2, 3))
LEDGER = LedgerId(12345)
MARK = "/underreplication/ledgers/0000/0000/0000/3039/urL0000012345"
LOCK = "/underreplication/locks/urL0000012345"


async def marked(store: MetadataStore) -> list[int]:
    return [ledger_id async for batch in store.underreplication.ids() for ledger_id in batch]


async def candidates(store: MetadataStore, seed: int) -> list[int]:
    walk = store.underreplication.candidates(random.Random(seed))
    return [ledger_id async for batch in walk for ledger_id in batch]


async def bad(store: MetadataStore) -> list[int]:
    return [ledger_id async for batch in store.underreplication.bad_copy_ids() for ledger_id in batch]


async def votes(world: World, count: int) -> None:
    """Return once so many candidates have voted."""
    for _ in range(200):
        found = [await world.get(f"/underreplication/auditorelection/V_{number:010d}") for number in range(20)]
        if sum(vote is not None for vote in found) == count:
            return
        await pause(world.clock, 0.1)
    raise AssertionError(f"there are not {count} votes: {found}")


def nothing() -> None:
    """A callback for what need not be heard."""


# --- marks ---------------------------------------------------------------------------------------------------------


@fact
async def a_mark_has_apaches_path_and_text(world: World) -> None:
    store = await cluster(world)
    await store.underreplication.mark(LEDGER, [A], now_ms=1700000000000)
    assert await world.get("/underreplication/LAYOUT") == b'type: "BASIC"\nversion: 1\n'
    assert await world.get(MARK) == b'replica: "10.0.0.1:3181"\nctime: 1700000000000\n'
    await store.underreplication.mark(LedgerId(4294967296), [A, B], now_ms=None)
    far = "/underreplication/ledgers/0000/0001/0000/0000/urL4294967296"
    assert await world.get(far) == b'replica: "10.0.0.1:3181"\nreplica: "10.0.0.2:3181"\n'
    assert await world.get("/underreplication/locks") == b""


@fact
async def a_mark_gains_bookies_and_loses_none(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    await store.underreplication.mark(LEDGER, [B], now_ms=10)
    await other.underreplication.mark(LEDGER, [A, B], now_ms=20)
    await other.underreplication.mark(LEDGER, [C], now_ms=None)
    await store.sync()
    found = await store.underreplication.read(LEDGER)
    assert found is not None
    assert (found.missing, found.marked_ms) == ((B, A, C), 20)


@fact
async def marking_again_what_is_noted_changes_nothing_while_nobody_repairs(world: World) -> None:
    """Workers that failed would else start over with every audit."""
    store = await cluster(world)
    await store.underreplication.mark(LEDGER, [A, B], now_ms=10)
    found = await store.underreplication.read(LEDGER)
    await store.underreplication.mark(LEDGER, [A], now_ms=20)
    assert await world.get(MARK) == b'replica: "10.0.0.1:3181"\nreplica: "10.0.0.2:3181"\nctime: 10\n'
    assert await store.underreplication.read(LEDGER) == found


@fact
async def a_loss_reported_during_a_repair_outlives_the_repair(world: World) -> None:
    """I-76: of another bookie, and of the same bookie once more."""
    auditor, worker = await cluster(world), await world.connect()
    for again in ([B], [A]):
        await auditor.underreplication.mark(LEDGER, [A], now_ms=10)
        lock = await worker.underreplication.lock(LEDGER, "worker", nothing)
        assert lock is not None
        seen = await worker.underreplication.read(LEDGER)
        assert seen is not None
        await auditor.underreplication.mark(LEDGER, again, now_ms=20)
        await raises(VersionConflict, worker.underreplication.remove(seen, lock))
        await worker.sync()
        newer = await worker.underreplication.read(LEDGER)
        assert newer is not None
        assert set(newer.missing) == {A, *again}
        await worker.underreplication.remove(newer, lock)
        await worker.underreplication.remove(newer, lock)
        await lock.release()
        assert await marked(worker) == []


@fact
async def a_mark_made_anew_is_not_removed_for_the_old_one(world: World) -> None:
    """I-76: both have version 0."""
    store, other = await cluster(world), await world.connect()
    await store.underreplication.mark(LEDGER, [A], now_ms=10)
    seen = await store.underreplication.read(LEDGER)
    assert seen is not None
    await store.underreplication.remove(seen)
    await other.underreplication.mark(LEDGER, [A], now_ms=10)
    await store.sync()
    await raises(VersionConflict, store.underreplication.remove(seen))
    assert await marked(store) == [LEDGER]


@fact
async def a_repair_ends_with_its_mark_and_its_lock(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    for _ in range(2):
        await store.underreplication.mark(LEDGER, [A], now_ms=None)
        lock = await store.underreplication.lock(LEDGER, "worker", nothing)
        seen = await store.underreplication.read(LEDGER)
        assert lock is not None
        assert seen is not None
        await store.underreplication.finish(seen, lock)
        assert not lock.held
        assert await world.get(MARK) is None
        assert await world.get(LOCK) is None
        assert await world.get("/underreplication/ledgers/0000") is None
        await lock.release()
    await other.sync()
    theirs = await other.underreplication.lock(LEDGER, "worker-2", nothing)
    assert theirs is not None


@fact
async def a_repair_does_not_end_with_a_mark_that_changed(world: World) -> None:
    """I-76: a loss reported meanwhile, and a mark made anew; the lock stays for who starts over."""
    store, other = await cluster(world), await world.connect()
    await store.underreplication.mark(LEDGER, [A], now_ms=10)
    lock = await store.underreplication.lock(LEDGER, "worker", nothing)
    seen = await store.underreplication.read(LEDGER)
    assert lock is not None
    assert seen is not None
    await other.underreplication.mark(LEDGER, [B], now_ms=20)
    await store.sync()
    await raises(VersionConflict, store.underreplication.finish(seen, lock))
    newer = await store.underreplication.read(LEDGER)
    assert newer is not None
    await other.sync()
    await other.underreplication.remove(newer)
    await other.underreplication.mark(LEDGER, [A], now_ms=10)
    await store.sync()
    await raises(VersionConflict, store.underreplication.finish(seen, lock))
    assert lock.held
    assert await marked(store) == [LEDGER]
    again = await store.underreplication.read(LEDGER)
    assert again is not None
    await store.underreplication.finish(again, lock)
    assert await marked(store) == []


@fact
async def the_last_change_of_a_repair_takes_mark_and_lock_with_it(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    ledger_id, created = await store.ledgers.create(ledger())
    for version in range(2):
        await other.underreplication.mark(ledger_id, [A], now_ms=None)
        lock = await store.underreplication.lock(ledger_id, "worker", nothing)
        assert lock is not None
        await store.sync()
        seen = await store.underreplication.read(ledger_id, lock)
        assert seen is not None
        changed = dataclasses.replace(created.value, ctime_ms=version)
        written = await store.ledgers.write(ledger_id, changed, version, lock=lock, ends=seen)
        assert (lock.mark_removed, lock.held) == (True, False)
        assert await store.ledgers.read(ledger_id) == written
        await store.underreplication.finish(seen, lock)
        assert await world.get("/underreplication/ledgers/0000") is None
        await other.sync()
        assert await other.underreplication.lock_holder(ledger_id) is None
    await raises(MetadataUnavailable, store.ledgers.write(ledger_id, changed, 2, lock=lock))
    assert (await store.ledgers.read(ledger_id)).version == 2


@fact
async def a_mark_that_changed_outlives_the_last_change_of_a_repair(world: World) -> None:
    """I-76: a loss reported meanwhile, and a mark made anew. The copies are there all the same: it says so."""
    store, other = await cluster(world), await world.connect()
    ledger_id, created = await store.ledgers.create(ledger())
    await store.underreplication.mark(ledger_id, [A], now_ms=10)
    lock = await store.underreplication.lock(ledger_id, "worker", nothing)
    assert lock is not None
    for version, again in enumerate((True, False)):
        seen = await store.underreplication.read(ledger_id, lock)
        assert seen is not None
        await other.sync()
        if again:
            await other.underreplication.remove(seen)
        await other.underreplication.mark(ledger_id, [A if again else B], now_ms=20)
        await store.sync()
        changed = dataclasses.replace(created.value, ctime_ms=version)
        written = await store.ledgers.write(ledger_id, changed, version, lock=lock, ends=seen)
        assert (lock.mark_removed, lock.held) == (False, True)
        assert await store.ledgers.read(ledger_id) == written
        await raises(VersionConflict, store.underreplication.finish(seen, lock))
        assert await marked(store) == [ledger_id]


@fact
async def under_a_lock_that_is_lost_no_metadata_changes(world: World) -> None:
    """I-77: the look at the lock and the change are one step; which metadata is the newest decides as ever (I-15)."""
    store, other = await cluster(world), await world.connect()
    ledger_id, created = await store.ledgers.create(ledger())
    lock = await store.underreplication.lock(ledger_id, "worker", nothing)
    assert lock is not None
    await raises(VersionConflict, store.ledgers.write(ledger_id, created.value, 7, lock=lock))
    await raises(NoSuchLedger, store.ledgers.write(LedgerId(ledger_id + 1), created.value, 0, lock=lock))
    assert (await store.ledgers.write(ledger_id, created.value, 0, lock=lock)).version == 1
    await world.expire(store)
    await raises(MetadataUnavailable, store.ledgers.write(ledger_id, created.value, 1, lock=lock))
    await other.sync()
    assert (await other.ledgers.read(ledger_id)).version == 1


@fact
async def many_ledgers_at_once_are_marked_locked_and_finished_as_if_one_by_one(world: World) -> None:
    """Their transactions go out together: one that is refused keeps none of the others from what it does."""
    store, other = await cluster(world), await world.connect()
    created = await gatherResults([store.ledgers.create(ledger()) for _ in range(100)])
    ids = [ledger_id for ledger_id, _ in created]
    twice = ids[::7]  # another one marks them at the same time
    await gatherResults(
        [store.underreplication.mark(ledger_id, [A], now_ms=10) for ledger_id in ids]
        + [other.underreplication.mark(ledger_id, [B], now_ms=10) for ledger_id in twice]
    )
    await store.sync()
    marks = dict(zip(ids, await gatherResults(list(map(store.underreplication.read, ids))), strict=True))
    assert {ledger_id: set(mark.missing) for ledger_id, mark in marks.items() if mark is not None} == {
        ledger_id: {A, B} if ledger_id in twice else {A} for ledger_id in ids
    }
    taken = await gatherResults(
        [side.underreplication.lock(ledger_id, "worker", nothing) for ledger_id in ids for side in (store, other)]
    )
    ours, theirs = taken[::2], taken[1::2]
    assert [mine is None for mine in ours] == [each is not None for each in theirs]
    await gatherResults([lock.release() for lock in theirs if lock is not None])
    await store.sync()
    again = [ledger_id for ledger_id, lock in zip(ids, ours, strict=True) if lock is None]
    retaken = await gatherResults([store.underreplication.lock(each, "worker", nothing) for each in again])
    locks = {
        ledger_id: lock for ledger_id, lock in zip([*ids, *again], [*ours, *retaken], strict=True) if lock is not None
    }
    assert len(locks) == len(ids)
    read = await gatherResults([store.underreplication.read(each, locks[each]) for each in ids])
    changed = ids[3::10]
    for ledger_id in changed:
        await other.underreplication.mark(ledger_id, [C], now_ms=20)
    await store.sync()
    written = await gatherResults(
        [
            store.ledgers.write(
                ledger_id, dataclasses.replace(metadata.value, ctime_ms=1), 0, lock=locks[ledger_id], ends=seen
            )
            for (ledger_id, metadata), seen in zip(created, read, strict=True)
        ]
    )
    assert [each.version for each in written] == [1] * len(ids)
    assert await gatherResults(list(map(store.ledgers.read, ids))) == written
    left = {ledger_id: seen for ledger_id, seen in zip(ids, read, strict=True) if not locks[ledger_id].mark_removed}
    assert set(changed) <= set(left)  # and those whose watch on the mark was lost with a connection
    assert sorted(await marked(store)) == sorted(left)
    for ledger_id, seen in left.items():
        finishing = store.underreplication.finish(seen, locks[ledger_id])
        await (raises(VersionConflict, finishing) if ledger_id in changed else finishing)
    assert sorted(await marked(store)) == sorted(changed)


@fact
async def a_directory_that_lost_its_mark_is_passed_over(world: World) -> None:
    """What a crash between the making of the two leaves. It stays as long as somebody may be about to fill it."""
    store = await cluster(world)
    await world.put("/underreplication/ledgers/0000/0000/0000/3039", b"")
    await store.sync()
    assert await candidates(store, 1) == [LEDGER]
    lock = await store.underreplication.lock(LEDGER, "worker", nothing)
    assert lock is not None
    assert await store.underreplication.read(LEDGER, lock) is None
    await lock.release()
    assert await world.get("/underreplication/ledgers/0000/0000/0000/3039") is not None
    await store.underreplication.mark(LEDGER, [A], now_ms=None)
    assert await marked(store) == [LEDGER]


@fact
async def empty_directories_go_with_the_last_mark(world: World) -> None:
    store = await cluster(world)
    for ledger_id in (LEDGER, LedgerId(12346), LedgerId(2**40)):
        await store.underreplication.mark(ledger_id, [A], now_ms=None)
    for ledger_id, left in ((LEDGER, b""), (LedgerId(2**40), b""), (LedgerId(12346), None)):
        seen = await store.underreplication.read(ledger_id)
        assert seen is not None
        await store.underreplication.remove(seen)
        assert await world.get("/underreplication/ledgers/0000") == left
    assert await world.get("/underreplication/ledgers") == b""
    await store.underreplication.mark(LEDGER, [A], now_ms=None)
    assert await marked(store) == [LEDGER]


@fact
async def a_walk_finds_every_mark_in_order_and_in_any_order(world: World) -> None:
    store = await cluster(world)
    assert await marked(store) == []
    ids = [0, 1, 2, 65_535, 65_536, 2**32, 10**10, 10**10 + 1, 2**63 - 1]
    for ledger_id in reversed(ids):
        await store.underreplication.mark(LedgerId(ledger_id), [A], now_ms=None)
    assert await marked(store) == ids
    orders = {tuple(await candidates(store, seed)) for seed in range(5)}
    assert all(sorted(order) == ids for order in orders)
    assert len(orders) > 1


@fact
async def strays_among_the_marks_are_named_beside_all_marks(world: World) -> None:
    """I-18: a listing that may be short must not look complete."""
    store = await cluster(world)
    tree = store.underreplication
    await tree.mark(LEDGER, [A], now_ms=None)
    strays = (
        *("/stranger", "/0000/stranger", "/0000/0000/0000/urL0000012345"),
        *("/0000/0000/0000/3039/urL0000012346", "/0000/0000/0000/3039/urL12345"),
    )
    for number, stray in enumerate(strays, 1):
        await world.put(f"/underreplication/ledgers{stray}", b"")
        await store.sync()
        error = await raises(MetadataCorrupt, marked(store))
        assert "/underreplication/ledgers/" in str(error)
        found = BadRecords()
        assert [ledger_id async for batch in tree.ids(found) for ledger_id in batch] == [LEDGER]
        assert {each.path for each in found.named} == {
            f"{world.root}/underreplication/ledgers{each}" for each in strays[:number]
        }
        found = BadRecords()
        walk = tree.candidates(random.Random(1), found)
        assert [ledger_id async for batch in walk for ledger_id in batch] == [LEDGER]
        assert found.count == min(number, 3), "a worker lists no directory of marks"


@fact
async def strays_among_the_reports_of_bad_copies_are_named_beside_all_reports(world: World) -> None:
    store = await cluster(world)
    await store.underreplication.report_bad_copies(LEDGER, [BadRange(A, EntryId(0), EntryId(1))])
    await world.put("/underreplication/badcopies/stranger", b"")
    await store.sync()
    await raises(MetadataCorrupt, bad(store))
    found = BadRecords()
    walk = store.underreplication.bad_copy_ids(found)
    assert [ledger_id async for batch in walk for ledger_id in batch] == [LEDGER]
    assert [each.path for each in found.named] == [f"{world.root}/underreplication/badcopies/stranger"]


@fact
async def an_unreadable_mark_is_neither_absent_nor_overwritten(world: World) -> None:
    """I-18."""
    store = await cluster(world)
    await world.put(MARK, b"garbage")
    await store.sync()
    error = await raises(MetadataCorrupt, store.underreplication.read(LEDGER))
    assert MARK in str(error)
    await raises(MetadataCorrupt, store.underreplication.mark(LEDGER, [A], now_ms=None))
    assert await world.get(MARK) == b"garbage"


@fact
async def an_unknown_tree_is_not_touched(world: World) -> None:
    store = await cluster(world)
    await world.put("/underreplication/LAYOUT", b'type: "OTHER"\nversion: 1\n')
    await store.sync()
    await raises(LayoutMismatch, store.underreplication.prepare())
    await raises(LayoutMismatch, store.underreplication.mark(LEDGER, [A], now_ms=None))
    await raises(LayoutMismatch, store.underreplication.read(LEDGER))
    await raises(LayoutMismatch, marked(store))
    assert await world.get("/underreplication/ledgers") is None


@fact
async def without_a_cluster_nothing_can_be_marked(world: World) -> None:
    store = await world.connect()
    error = await raises(NotInitialised, store.underreplication.mark(LEDGER, [A], now_ms=None))
    assert world.root in str(error)


@fact
async def who_waits_for_work_hears_of_new_marks(world: World) -> None:
    store, auditor = await cluster(world), await world.connect()
    heard = Heard(world.clock)
    watch = store.underreplication.watch_work(lambda: heard(None))
    await heard.until(len, "that it listens")
    for ledger_id in (LEDGER, LedgerId(12346), LedgerId(2**50)):
        before = len(heard.calls)
        await auditor.underreplication.mark(ledger_id, [A], now_ms=None)
        await heard.until(lambda calls, before=before: len(calls) > before, f"of ledger {ledger_id}")
    await world.expire(store)
    before = len(heard.calls)
    await auditor.underreplication.mark(LedgerId(12347), [A], now_ms=None)
    await heard.until(lambda calls: len(calls) > before, "of one after the session")
    watch.cancel()


@fact
async def who_waits_for_work_hears_of_ledgers_with_bad_copies(world: World) -> None:
    """The first one makes the directory of all."""
    store, bookie = await cluster(world), await world.connect()
    heard = Heard(world.clock)
    watch = store.underreplication.watch_work(lambda: heard(None))
    await heard.until(len, "that it listens")
    for ledger_id in (LEDGER, LedgerId(12346)):
        before = len(heard.calls)
        await bookie.underreplication.report_bad_copies(ledger_id, [bad_range(A, 3, 9)])
        await heard.until(lambda calls, before=before: len(calls) > before, f"of ledger {ledger_id}")
    await world.expire(store)
    before = len(heard.calls)
    await bookie.underreplication.report_bad_copies(LedgerId(12347), [bad_range(A, 3, 9)])
    await heard.until(lambda calls: len(calls) > before, "of one after the session")
    watch.cancel()


# --- locks ---------------------------------------------------------------------------------------------------------


@fact
async def a_lock_has_one_holder(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    assert await other.underreplication.lock_holder(LEDGER) is None
    lock = await store.underreplication.lock(LEDGER, "host-a", nothing)
    assert lock is not None
    assert lock.held
    assert await world.get(LOCK) == b'bookieId: "host-a"\n'
    assert await store.underreplication.lock(LEDGER, "host-a", nothing) is None
    assert await other.underreplication.lock(LEDGER, "host-b", nothing) is None
    assert await other.underreplication.lock_holder(LEDGER) == "host-a"
    await lock.release()
    await lock.release()
    assert not lock.held
    assert await world.get(LOCK) is None
    theirs = await other.underreplication.lock(LEDGER, "host-b", nothing)
    assert theirs is not None
    await lock.release()
    assert await world.get(LOCK) == b'bookieId: "host-b"\n'


@fact
async def a_lock_that_belongs_to_no_session_is_removed_by_the_next_holder(world: World) -> None:
    """No worker holds it, and it never goes: the repair of its ledger would wait for ever."""
    store, other = await cluster(world), await world.connect()
    await store.underreplication.prepare()
    for data in (b"", b"\x00\xff", b'bookieId: "host-a"\n'):
        await world.put(LOCK, data)
        await other.sync()
        error = await raises(MetadataCorrupt, other.underreplication.lock_holder(LEDGER))
        assert str(error).startswith(f"{world.root}{LOCK}: belongs to no session")
        assert await other.underreplication.lock_session(LEDGER) is None
        assert await other.underreplication.locked_ms(LEDGER) is None
        with logged() as lines:
            lock = await store.underreplication.lock(LEDGER, "host-b", nothing)
        assert lock is not None
        assert sum("urL0000012345: belongs to no session" in line for line in lines) == 1
        await other.sync()
        assert await other.underreplication.lock_holder(LEDGER) == "host-b"
        assert await other.underreplication.lock(LEDGER, "host-c", nothing) is None
        await lock.release()
        assert await world.get(LOCK) is None


@fact
async def an_unreadable_lock_of_a_session_is_held(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    assert await other.underreplication.lock(LEDGER, "host-b", nothing) is not None
    await world.put(LOCK, b"\x00\xff")
    await store.sync()
    assert await store.underreplication.lock(LEDGER, "host-a", nothing) is None
    error = await raises(MetadataCorrupt, store.underreplication.lock_holder(LEDGER))
    assert str(error).startswith(f"{world.root}{LOCK}: ")
    assert await store.underreplication.lock_session(LEDGER) is not None
    assert await world.get(LOCK) == b"\x00\xff"
    await world.expire(other)
    await store.sync()
    assert await store.underreplication.lock(LEDGER, "host-a", nothing) is not None


@fact
async def a_stray_with_children_in_place_of_a_lock_is_named(world: World) -> None:
    store = await cluster(world)
    await store.underreplication.prepare()
    await world.put(LOCK, b"")
    await world.put(f"{LOCK}/child", b"")
    await store.sync()
    error = await raises(MetadataCorrupt, store.underreplication.lock(LEDGER, "host-a", nothing))
    assert str(error).startswith(f"{world.root}{LOCK}: ")
    assert await store.underreplication.lock(LedgerId(12346), "host-a", nothing) is not None


@fact
async def a_lock_ends_with_its_session_and_its_holder_is_told(world: World) -> None:
    """I-77: what was begun under it removes no mark any more."""
    store, other = await cluster(world), await world.connect()
    await store.underreplication.mark(LEDGER, [A], now_ms=None)
    lost = Heard(world.clock)
    lock = await store.underreplication.lock(LEDGER, "host-a", lambda: lost(None))
    seen = await store.underreplication.read(LEDGER)
    assert lock is not None
    assert seen is not None
    await world.expire(store)
    await lost.until(len, "the end of the lock")
    assert not lock.held
    await store.sync()  # in the next session, in which the removal would be possible
    await raises(MetadataUnavailable, store.underreplication.remove(seen, lock))
    await other.sync()
    theirs = await other.underreplication.lock(LEDGER, "host-b", nothing)
    assert theirs is not None
    await lock.release()
    assert await world.get(LOCK) == b'bookieId: "host-b"\n'
    await other.sync()
    assert await marked(other) == [LEDGER]


# --- switches and times --------------------------------------------------------------------------------------------


@fact
async def auto_recovery_is_turned_off_and_on_for_all(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    heard = Heard(world.clock)
    watch = other.underreplication.watch_enabled(heard)
    await heard.until(lambda calls: calls == [True], "that it is on")
    assert await store.underreplication.is_enabled()
    assert not await store.underreplication.enable()
    assert await store.underreplication.disable()
    assert not await store.underreplication.disable()
    assert await world.get("/underreplication/disable") == b""
    await heard.until(lambda calls: calls == [True, False], "that it is off")
    assert not await other.underreplication.is_enabled()
    await world.expire(other)
    assert await store.underreplication.enable()
    await heard.until(lambda calls: calls == [True, False, True], "that it is on again")
    watch.cancel()
    await store.underreplication.disable()
    assert heard.calls == [True, False, True]


@fact
async def the_recovery_delay_is_the_clusters(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    assert await store.underreplication.recovery_delay_s() is None
    heard = Heard(world.clock)
    watch = other.underreplication.watch_recovery_delay(heard)
    await heard.until(lambda calls: calls == [None], "that there is none")
    assert await store.underreplication.initialise_recovery_delay(30)
    assert not await other.underreplication.initialise_recovery_delay(40)
    assert await world.get("/underreplication/lostBookieRecoveryDelay") == b"30"
    await heard.until(lambda calls: calls[-1] == 30, "the first")
    await store.underreplication.set_recovery_delay(0)
    await heard.until(lambda calls: calls[-1] == 0, "the second")
    before = len(heard.calls)
    await store.underreplication.set_recovery_delay(0)
    await heard.until(lambda calls: len(calls) > before, "the same once more: it asks for an audit")
    assert await other.underreplication.recovery_delay_s() == 0
    await world.put("/underreplication/lostBookieRecoveryDelay", b"soon")
    await raises(MetadataCorrupt, other.underreplication.recovery_delay_s())
    watch.cancel()


@fact
async def the_times_of_the_checks_are_binary(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    for kind in CheckKind:
        assert await store.underreplication.check_time_ms(kind) is None
        await store.underreplication.set_check_time(kind, 300)
        await other.underreplication.set_check_time(kind, 200)
        assert await world.get(f"/underreplication/{kind.value}") == b"\x08\xc8\x01"
        assert await store.underreplication.check_time_ms(kind) == 200
        await world.put(f"/underreplication/{kind.value}", b"\xff")
        await raises(MetadataCorrupt, store.underreplication.check_time_ms(kind))


# --- the auditor ---------------------------------------------------------------------------------------------------


@fact
async def the_auditor_is_the_lowest_vote_and_the_next_one_follows(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    told = {name: Heard(world.clock) for name in "ab"}
    assert await store.underreplication.current_auditor() is None
    first, second = [
        each.underreplication.candidate(
            bookie_id,
            on_elected=lambda name=name: told[name]("elected"),
            on_lost=lambda name=name: told[name]("lost"),
            on_failed=lambda error, name=name: told[name](error),
        )
        for each, bookie_id, name in ((store, A, "a"), (other, B, "b"))
    ]
    first.join()
    await told["a"].until(len, "the election of a")
    second.join()
    await votes(world, 2)
    assert await other.underreplication.current_auditor() == A
    assert await world.get("/underreplication/auditorelection") == b'bookieId: "10.0.0.1:3181"\n'
    await world.expire(store)
    await told["a"].until(lambda calls: calls[-1] == "lost", "the end of a's turn")
    await told["b"].until(len, "the election of b")
    await votes(world, 2)
    assert second.elected
    assert await other.underreplication.current_auditor() == B
    assert await world.get("/underreplication/auditorelection") == b'bookieId: "10.0.0.2:3181"\n'
    await second.leave()
    assert told["b"].calls == ["elected", "lost"]
    await told["a"].until(lambda calls: calls == ["elected", "lost", "elected"], "a once more")
    await first.leave()
    assert await store.underreplication.current_auditor() is None


@fact
async def apaches_votes_count_in_the_election(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    await world.put("/underreplication/auditorelection/stranger", b"")
    vote = f"{world.root}/underreplication/auditorelection/V_0000000000"
    await other.tree.create(vote, b'bookieId: "10.0.0.9:3181"\n', NodeKind.EPHEMERAL)
    told = Heard(world.clock)
    candidate = store.underreplication.candidate(
        A, on_elected=lambda: told("elected"), on_lost=lambda: told("lost"), on_failed=told
    )
    candidate.join()
    await store.sync()
    assert await store.underreplication.current_auditor() == "10.0.0.9:3181"
    assert not candidate.elected
    await candidate.leave()
    assert told.calls == []


@fact
async def a_vote_without_a_session_is_passed_over(world: World) -> None:
    """No candidate owns it and it never goes away: auto-recovery of the cluster would wait for ever."""
    store = await cluster(world)
    for number, data in enumerate((b"", b"\x00\xff", b'bookieId: "10.0.0.9:3181"\n', b"a: 1")):
        await world.put(f"/underreplication/auditorelection/V_{number:010d}", data)
    heard = Heard(world.clock)
    candidate = store.underreplication.candidate(
        A, on_elected=lambda: heard("elected"), on_lost=lambda: heard("lost"), on_failed=heard
    )
    with logged() as lines:
        candidate.join()
        await heard.until(lambda calls: calls == ["elected"], "its election")
    assert sum("V_0000000002: belongs to no session" in line for line in lines) == 1
    assert await store.underreplication.current_auditor() == A
    assert await store.underreplication.auditor_session() is not None
    await candidate.leave()


# --- bad copies ----------------------------------------------------------------------------------------------------


def bad_range(bookie_id: BookieId, first: int, last: int, reason: str = "", at_ms: int | None = None) -> BadRange:
    return BadRange(bookie_id, EntryId(first), EntryId(last), reason, at_ms)


@fact
async def bad_copies_are_noted_until_they_are_taken_out(world: World) -> None:
    bookie, worker = await cluster(world), await world.connect()
    assert await worker.underreplication.bad_copies(LEDGER) is None
    assert await bad(worker) == []
    await bookie.underreplication.report_bad_copies(LEDGER, [bad_range(A, 3, 9, "checksum", 10)])
    assert await world.get("/underreplication/badcopies/urL0000012345") == (
        b'range {\n  bookieId: "10.0.0.1:3181"\n  firstEntryId: 3\n  lastEntryId: 9\n'
        b'  reason: "checksum"\n  ctime: 10\n}\n'
    )
    await bookie.underreplication.report_bad_copies(LEDGER, [bad_range(A, 10, 12, "disk", 20), bad_range(B, 0, 0)])
    await worker.sync()
    assert await bad(worker) == [LEDGER]
    seen = await worker.underreplication.bad_copies(LEDGER)
    assert seen is not None
    assert seen.ranges == (bad_range(A, 3, 12, "disk", 20), bad_range(B, 0, 0))
    await worker.underreplication.remove_bad_copies(seen, [bad_range(A, 4, 12)])
    await raises(VersionConflict, worker.underreplication.remove_bad_copies(seen, [bad_range(A, 4, 12)]))
    seen = await worker.underreplication.bad_copies(LEDGER)
    assert seen is not None
    assert seen.ranges == (bad_range(A, 3, 3, "disk", 20), bad_range(B, 0, 0))
    await bookie.underreplication.report_bad_copies(LEDGER, [bad_range(B, 0, 0)])
    await raises(VersionConflict, worker.underreplication.remove_bad_copies(seen, seen.ranges))
    await worker.sync()
    seen = await worker.underreplication.bad_copies(LEDGER)
    assert seen is not None
    await worker.underreplication.remove_bad_copies(seen, seen.ranges)
    await worker.underreplication.remove_bad_copies(seen, seen.ranges)
    await worker.sync()
    assert await bad(worker) == []


# --- who audits and repairs ----------------------------------------------------------------------------------------


def process(pid: int) -> RecoveryProcess:
    return RecoveryProcess("host-a", pid, 1700000000000, A, ("10.0.0.1", 8001))


async def announced(world: World, store: MetadataStore, count: int) -> tuple[RecoveryProcess, ...]:
    """Return once so many processes are announced."""
    for _ in range(200):
        found = await store.underreplication.processes()
        if len(found) == count:
            return found
        await pause(world.clock, 0.1)
    raise AssertionError(f"there are not {count}: {found}")


@fact
async def a_process_is_told_apart_by_the_session_of_its_vote_and_locks(world: World) -> None:
    """Two under one name, as two on one host are."""
    store, other = await cluster(world), await world.connect()
    assert await store.underreplication.processes() == ()
    store.underreplication.announce(process(7))
    said = other.underreplication.announce(process(8))
    first, second = await announced(world, store, 2)
    assert (first.pid, second.pid) == (7, 8)
    assert first.session_id != second.session_id
    assert dataclasses.replace(first, session_id=0) == process(7)
    assert await world.get("/underreplication/workers/host-a-7-18bcfe56800") == (
        b'{"bookie": "10.0.0.1:3181", "host": "host-a", "http": "10.0.0.1:8001", "pid": 7, "since": 1700000000000}'
    )
    assert await other.underreplication.lock(LEDGER, "host-a", nothing) is not None
    await store.sync()
    assert await store.underreplication.lock_session(LEDGER) == second.session_id
    assert await store.underreplication.lock_session(LedgerId(1)) is None
    assert await store.underreplication.auditor_session() is None
    candidate = other.underreplication.candidate(A, on_elected=nothing, on_lost=nothing, on_failed=lambda _: None)
    candidate.join()
    await votes(world, 1)
    assert await store.underreplication.auditor_session() == second.session_id
    await candidate.leave()
    await said.withdraw()
    await said.withdraw()
    assert await store.underreplication.processes() == (first,)


@fact
async def an_announcement_outlives_its_session_and_strangers_are_passed_over(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    store.underreplication.announce(process(7))
    (before,) = await announced(world, other, 1)
    await world.put("/underreplication/workers/stranger", b"who?")
    await world.expire(store)
    for _ in range(200):
        (after,) = await announced(world, other, 1)
        if after.session_id != before.session_id:
            return
        await pause(world.clock, 0.1)
    raise AssertionError(f"not announced anew: {after}")


@fact
async def formatting_removes_all_repair_work(world: World) -> None:
    store = await cluster(world)
    await store.underreplication.mark(LEDGER, [A], now_ms=None)
    await store.underreplication.report_bad_copies(LEDGER, [bad_range(A, 3, 9)])
    await store.admin.format()
    for path in ("ledgers", "locks", "badcopies"):
        assert await world.get(f"/underreplication/{path}") is None, path
    assert await marked(store) == await bad(store) == []
    await store.underreplication.mark(LEDGER, [A], now_ms=None)
    assert await store.underreplication.lock(LEDGER, "host-a", nothing) is not None
    await store.admin.nuke(await store.admin.instance_id())
    await store.admin.initialise()
    await store.underreplication.mark(LEDGER, [A], now_ms=None)
    assert await world.get("/underreplication/LAYOUT") is not None
