"""Watched ledgers: what a watch tells, across sessions and unreadable records."""

from __future__ import annotations

from bookkeeper.errors import (
    MetadataCorrupt,
)
from bookkeeper.metadata.ledgers.codec import format_ledger
from bookkeeper.metadata.store import StoreState
from bookkeeper.model import (
    EntryId,
    LedgerId,
    Versioned,
)
from tests.support.metadata_contract.world import (
    Heard,
    World,
    cluster,
    fact,
    ledger,
)


@fact
async def a_ledger_watch_tells_rising_versions_and_the_end(world: World) -> None:
    store, writer = await cluster(world), await world.connect()
    ledger_id, created = await writer.ledgers.create(ledger())
    heard = Heard(world.clock)
    store.ledgers.watch(ledger_id, heard)
    await heard.until(lambda calls: created in calls, "the first version")
    recovering = await writer.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the second version")
    closed = await writer.ledgers.write(ledger_id, recovering.value.closed(EntryId(1), 2), 1)
    await heard.until(lambda calls: closed in calls, "the third version")
    await writer.ledgers.delete(ledger_id, 2)
    await heard.until(lambda calls: calls[-1] is None, "the end")
    versions = [call.version for call in heard.calls[:-1]]
    assert versions == sorted(set(versions))


@fact
async def a_ledger_watch_tells_only_what_is_newer_than_known(world: World) -> None:
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    heard = Heard(world.clock)
    store.ledgers.watch(ledger_id, heard, after_version=created.version)
    recovering = await store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the second version")
    assert created not in heard.calls


@fact
async def a_cancelled_ledger_watch_is_silent(world: World) -> None:
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger())
    cancelled, heard = Heard(world.clock), Heard(world.clock)
    watch = store.ledgers.watch(ledger_id, cancelled, after_version=0)
    store.ledgers.watch(ledger_id, heard, after_version=0)
    watch.cancel()
    watch.cancel()
    recovering = await store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the change")
    assert cancelled.calls == []


@fact
async def a_ledger_watch_survives_the_session(world: World) -> None:
    store, writer = await cluster(world), await world.connect()
    ledger_id, created = await writer.ledgers.create(ledger())
    heard, states = Heard(world.clock), Heard(world.clock)
    store.ledgers.watch(ledger_id, heard)
    await heard.until(lambda calls: created in calls, "the first version")
    store.watch_state(states)
    await world.expire(store)
    recovering = await writer.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await heard.until(lambda calls: recovering in calls, "the change")
    assert StoreState.LOST in states.calls


@fact
async def a_watched_ledger_that_becomes_unreadable_is_an_error_not_an_end(world: World) -> None:
    """I-18."""
    store = await cluster(world)
    ledger_id, created = await store.ledgers.create(ledger(), LedgerId(7))
    heard, errors = Heard(world.clock), Heard(world.clock)
    store.ledgers.watch(ledger_id, heard, on_error=errors)
    await heard.until(lambda calls: created in calls, "the first version")
    await world.put("/00/0000/L0007", b"garbage")
    await errors.until(len, "the error")
    assert isinstance(errors.calls[0], MetadataCorrupt)
    assert None not in heard.calls
    await world.put("/00/0000/L0007", format_ledger(created.value))
    await heard.until(lambda calls: calls[-1] == Versioned(created.value, 2), "the repaired record")
