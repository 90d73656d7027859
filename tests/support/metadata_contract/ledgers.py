"""Ledgers: ids, versions, formats, paths and listings."""

from __future__ import annotations

import dataclasses

from twisted.internet.defer import gatherResults

from bookkeeper.errors import (
    InvalidMetadata,
    LedgerExists,
    MetadataCorrupt,
    MetadataTooNew,
    NoSuchLedger,
    VersionConflict,
)
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.ledgers.codec import format_ledger
from bookkeeper.model import (
    EntryId,
    LedgerId,
    LedgerState,
)
from tests.support.metadata_contract.world import (
    World,
    all_ids,
    cluster,
    fact,
    ledger,
    raises,
)


@fact
async def a_created_ledger_is_read_back_by_everybody(world: World) -> None:
    store, other = await cluster(world), await world.connect()
    ledger_id, created = await store.ledgers.create(ledger())
    assert created.version == 0
    assert created.value.creator_token is not None
    assert dataclasses.replace(created.value, creator_token=None) == ledger()
    await other.sync()
    assert await other.ledgers.read(ledger_id) == created


@fact
async def a_ledger_that_does_not_say_when_it_was_made_is_known_by_the_store_to_be(world: World) -> None:
    store = await cluster(world)
    early, created = await store.ledgers.create(dataclasses.replace(ledger(), ctime_ms=None, format_version=2))
    late, _ = await store.ledgers.create(dataclasses.replace(ledger(), ctime_ms=None, format_version=2))
    noted, _ = await store.ledgers.create(dataclasses.replace(ledger(), ctime_ms=17))
    found = (await store.ledgers.read(early)).value
    assert found.ctime_ms is None
    assert found.stored_ms is not None
    assert found.created_ms == found.stored_ms
    ended = dataclasses.replace(found, state=LedgerState.CLOSED, last_entry_id=EntryId(4), length=9)
    written = await store.ledgers.write(early, ended, created.version)
    again = await store.ledgers.read(early)
    assert (again, again.value.ctime_ms) == (written, None), "it is no part of the record"
    assert again.value.created_ms == found.created_ms
    assert ((await store.ledgers.read(late)).value.created_ms or 0) >= found.stored_ms
    assert (await store.ledgers.read(noted)).value.created_ms == 17


@fact
async def generated_ids_are_never_given_twice(world: World) -> None:
    """I-04: not to two clients at once either, and not again after deletion."""
    store, other = await cluster(world), await world.connect()
    created = await gatherResults([side.ledgers.create(ledger()) for side in (store, other) for _ in range(10)])
    ids = [ledger_id for ledger_id, _ in created]
    assert len(set(ids)) == 20
    for ledger_id, versioned in created:
        await store.ledgers.delete(ledger_id, versioned.version)
    again, _ = await store.ledgers.create(ledger())
    assert again not in ids


@fact
async def ids_are_taken_by_the_stride_and_stored_once(world: World) -> None:
    for kind in LayoutKind:
        store = await world.connect(kind)
        await store.admin.format()
        first = await store.ledgers.new_id()
        far = await store.ledgers.new_id(20)
        assert far >= first + 20, kind
        taken, created = await store.ledgers.create(ledger(), far, generated=True)
        assert (taken, await store.ledgers.read(far)) == (far, created)
        await raises(LedgerExists, store.ledgers.create(ledger(), far, generated=True))
        assert await store.ledgers.new_id() > far


@fact
async def a_chosen_id_is_taken_once(world: World) -> None:
    store = await cluster(world)
    chosen = LedgerId(12345)
    assert (await store.ledgers.create(ledger(), chosen))[0] == chosen
    error = await raises(LedgerExists, store.ledgers.create(ledger(), chosen))
    assert "12345" in str(error)


@fact
async def a_generated_id_that_somebody_chose_is_passed_over(world: World) -> None:
    store = await cluster(world)
    first, _ = await store.ledgers.create(ledger())
    for chosen in range(first + 1, first + 4):
        await store.ledgers.create(ledger(), LedgerId(chosen))
    assert (await store.ledgers.create(ledger()))[0] > first + 3


@fact
async def every_format_version_is_kept_on_rewrite(world: World) -> None:
    store = await cluster(world)
    for version in (1, 2, 3):
        ledger_id, created = await store.ledgers.create(ledger(version=version))
        written = await store.ledgers.write(ledger_id, created.value.in_recovery(), created.version)
        assert written.version == 1
        found = await store.ledgers.read(ledger_id)
        assert found == written
        assert found.value.format_version == version
        assert found.value.state is LedgerState.IN_RECOVERY
        assert (found.value.creator_token is not None) == (version == 3)


@fact
async def version_1_refuses_what_it_cannot_hold(world: World) -> None:
    store = await cluster(world)
    metadata = dataclasses.replace(ledger(version=1), ack_quorum=2)
    error = await raises(InvalidMetadata, store.ledgers.create(metadata))
    assert "ack quorum" in str(error)
    assert await all_ids(store) == []


@fact
async def a_write_at_an_old_version_changes_nothing(world: World) -> None:
    """I-15."""
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    closed = await store.ledgers.write(ledger_id, created.value.closed(EntryId(4), 40), created.version)
    await raises(VersionConflict, store.ledgers.write(ledger_id, created.value.in_recovery(), created.version))
    await raises(VersionConflict, store.ledgers.delete(ledger_id, created.version))
    assert await store.ledgers.read(ledger_id) == closed


@fact
async def an_absent_ledger_is_no_such_ledger(world: World) -> None:
    """I-18."""
    store = await cluster(world)
    await raises(NoSuchLedger, store.ledgers.read(LedgerId(7)))
    await raises(NoSuchLedger, store.ledgers.write(LedgerId(7), ledger(), 0))


@fact
async def deleting_a_deleted_ledger_succeeds(world: World) -> None:
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    await store.ledgers.delete(ledger_id, created.version)
    await store.ledgers.delete(ledger_id, created.version)
    await raises(NoSuchLedger, store.ledgers.read(ledger_id))


@fact
async def empty_directories_go_with_their_last_ledger(world: World) -> None:
    store = await cluster(world)
    for chosen in (5, 6, 123456789012):
        await store.ledgers.create(ledger(), LedgerId(chosen))
    await store.ledgers.delete(LedgerId(5), 0)
    assert await world.get("/00/0000") is not None
    await store.ledgers.delete(LedgerId(6), 0)
    await store.ledgers.delete(LedgerId(123456789012), 0)
    for path in ("/00/0000", "/00", "/000/0000/0123/4567", "/000/0000", "/000"):
        assert await world.get(path) is None, path
    await store.ledgers.create(ledger(), LedgerId(5))


@fact
async def an_unreadable_ledger_is_neither_absent_nor_overwritten(world: World) -> None:
    """I-18: the error names the path; deleting and writing by a wrong version stay impossible."""
    store = await cluster(world)
    for data in (b"", b"garbage"):
        await world.put("/00/0000/L0007", data)
        await store.sync()
        error = await raises(MetadataCorrupt, store.ledgers.read(LedgerId(7)))
        assert f"{world.root}/00/0000/L0007" in str(error)
        await raises(LedgerExists, store.ledgers.create(ledger(), LedgerId(7)))
    newer = format_ledger(ledger()).replace(b"Version\t3", b"Version\t4")
    await world.put("/00/0000/L0007", newer)
    await store.sync()
    await raises(MetadataTooNew, store.ledgers.read(LedgerId(7)))


@fact
async def ledgers_have_apaches_paths_in_every_layout(world: World) -> None:
    places = {
        LayoutKind.FLAT: "/L0000012345",
        LayoutKind.HIERARCHICAL: "/00/0001/L2345",
        LayoutKind.LEGACY_HIERARCHICAL: "/00/0001/L2345",
        LayoutKind.LONG_HIERARCHICAL: "/000/0000/0000/0001/L2345",
    }
    for kind, path in places.items():
        store = await world.connect(kind)
        await store.admin.format()
        _, created = await store.ledgers.create(ledger(), LedgerId(12345))
        assert await world.get(path) == format_ledger(created.value), kind
        generated, _ = await store.ledgers.create(ledger())
        assert await all_ids(store) == sorted([12345, generated]), kind


@fact
async def a_listing_is_complete_ascending_and_in_batches(world: World) -> None:
    store = await cluster(world)
    ids = [0, 1, 9_999, 10_000, 123_456_789, 2147483646, 2147483647, 2**32, 2**62 + 5]
    ids += range(20_000, 20_040)
    await gatherResults([store.ledgers.create(ledger(), LedgerId(ledger_id)) for ledger_id in ids])
    assert await all_ids(store) == sorted(ids)


@fact
async def a_listing_that_meets_a_stranger_fails(world: World) -> None:
    """I-18: a listing that may be short must not look complete."""
    store = await cluster(world)
    await store.ledgers.create(ledger(), LedgerId(1))
    await world.put("/00/0000/stranger", b"")
    await store.sync()
    error = await raises(MetadataCorrupt, all_ids(store))
    assert "/00/0000/stranger" in str(error)


@fact
async def ids_go_long_once_the_long_scheme_has_begun(world: World) -> None:
    store = await cluster(world)
    short, _ = await store.ledgers.create(ledger())
    await world.put("/idgen-long", b"")
    other = await world.connect()
    await other.sync()
    first, _ = await other.ledgers.create(ledger())
    second, _ = await other.ledgers.create(ledger())
    assert short < 2147483647
    assert 1 << 32 <= first < second < 2 << 32
    assert await world.get(f"/000/0000/0042/9496/L{first % 10_000:04d}") is not None
    assert await all_ids(other) == [short, first, second]


@fact
async def old_high_order_directories_are_removed(world: World) -> None:
    store = await cluster(world, LayoutKind.LONG_HIERARCHICAL)
    for number in (1, 2, 3, 4):
        await world.put(f"/idgen-long/HOB-{number:010d}", b"")
    for stray in ("HOB-9999999999", "HOB-5", "stray", "ID-x"):
        await world.put(f"/idgen-long/{stray}", b"")
    await store.sync()
    ledger_id, _ = await store.ledgers.create(ledger())
    assert ledger_id >> 32 == 4, "a stray directory was taken for the newest"
