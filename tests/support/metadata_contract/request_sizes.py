"""Requests that are larger than the store accepts, and records that grow towards the limit."""

from __future__ import annotations

import dataclasses

from bookkeeper.errors import MetadataTooLarge
from bookkeeper.metadata.ledgers.codec import format_ledger
from bookkeeper.metadata.ledgers.store import UNCLOSED_SHARE
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import Create, NodeAbsent, Write, operation_size
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata
from tests.support.metadata_contract.world import World, cluster, fact, ledger, raises

LIMIT = 4096
SMALL = MetadataSettings(request_size_max=LIMIT)


def nothing(*_: object) -> bool:
    return False


def with_another_fragment(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return the metadata after one more change of a member."""
    _, *others = metadata.last_fragment.ensemble
    number = len(metadata.fragments)
    ensemble = (BookieId(f"bookie-{number}:3181"), *others)
    return dataclasses.replace(metadata, fragments=(*metadata.fragments, Fragment(EntryId(number), ensemble)))


@fact
async def a_request_that_is_too_large_changes_nothing_and_names_path_size_and_limit(world: World) -> None:
    await cluster(world)
    tree = (await world.connect(settings=SMALL)).tree
    errand = Errand(tree, world.clock, dataclasses.replace(SMALL, operation_timeout_s=300.0), "grow a record")
    path, other = f"{world.root}/record", f"{world.root}/others"
    largest = b"x" * (LIMIT - operation_size(path))
    await errand.create(path, largest, lambda found, _: found == largest)

    async def not_done() -> bool:
        return False

    for attempt in (
        errand.write(path, largest + b"x", 0),
        errand.create(other, largest + b"x", nothing),
        errand.transact([Write(path, b"", 0), Create(other, largest)], not_done),
        errand.write_with(Write(path, b"", 0), [Create(other, largest)]),
    ):
        error = await raises(MetadataTooLarge, attempt)
        assert error.limit == LIMIT
        assert error.size > LIMIT
        assert error.path in (path, other)
        assert f" {error.path}: the request has {error.size} bytes, more than the {LIMIT} of " in str(error)
        assert "jute.maxbuffer" in str(error)
        assert not error.retriable
    assert error.path == other, "of a transaction, the largest step"
    data, stat = await errand.read(path)
    assert (data, stat.version) == (largest, 0)
    await raises(NodeAbsent, errand.read(other))


@fact
async def metadata_of_a_ledger_to_be_closed_leaves_room_for_its_end(world: World) -> None:
    await cluster(world)
    store = await world.connect(settings=SMALL)
    ledger_id, current = await store.ledgers.create(ledger())
    while True:
        grown = with_another_fragment(current.value)
        if len(grown.fragments) > 100:
            raise AssertionError("it grows without end")
        try:
            current = await store.ledgers.write(ledger_id, grown, current.version)
        except MetadataTooLarge as error:
            refusal = error
            break
    assert int(LIMIT * UNCLOSED_SHARE) == refusal.limit < refusal.size < LIMIT
    which = f"ledger {ledger_id}: its metadata at {refusal.path} would have {len(grown.fragments)} fragments"
    assert which in str(refusal)
    assert "zkMaxRequestSizeBytes" in str(refusal)
    assert await store.ledgers.read(ledger_id) == current
    # A recovery marks the ledger even if a repair wrote the record. A repair must leave the room that the close needs.
    current = await store.ledgers.write(ledger_id, grown.in_recovery(), current.version)
    await store.underreplication.mark(ledger_id, [BookieId("bookie-a:3181")], now_ms=10)
    lock = await store.underreplication.lock(ledger_id, "worker", nothing)
    assert lock is not None
    await raises(MetadataTooLarge, store.ledgers.check_room(ledger_id, current.value, lock=lock))
    await raises(MetadataTooLarge, store.ledgers.write(ledger_id, current.value, current.version, lock=lock))
    await lock.release()
    closed = await store.ledgers.write(ledger_id, current.value.closed(EntryId(2**60), 2**62), current.version)
    assert len(format_ledger(closed.value)) > LIMIT * UNCLOSED_SHARE - 200
    await store.ledgers.check_room(ledger_id, closed.value, lock=lock)
    many = closed.value
    while len(format_ledger(many)) <= LIMIT:
        many = with_another_fragment(many)
    error = await raises(MetadataTooLarge, store.ledgers.write(ledger_id, many, closed.version))
    assert error.limit == LIMIT
    assert await store.ledgers.read(ledger_id) == closed


@fact
async def a_ledger_whose_custom_metadata_is_too_large_is_not_created(world: World) -> None:
    await cluster(world)
    store = await world.connect(settings=SMALL)
    error = await raises(
        MetadataTooLarge, store.ledgers.create(dataclasses.replace(ledger(), custom={"note": b"x" * LIMIT}))
    )
    assert f"{LIMIT + 4} bytes of custom metadata" in str(error)
    assert await store.ledgers.create(ledger())
