"""The store's history: a bookie's note, the id generators, an operator's decision."""

from __future__ import annotations

from bookkeeper.errors import MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.cluster.history_format import Decision, GeneratedIds, Raise, Report, Verdict
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists
from bookkeeper.model import LedgerId
from tests.support.metadata_contract.world import BOOKIE, World, cluster, fact, ledger, raises


@fact
async def the_generators_show_the_ids_that_were_given_out(world: World) -> None:
    """Reading them takes no id; ids that callers choose are not counted."""
    store = await cluster(world)
    assert await store.history.generated_ids() == GeneratedIds(0, 0)
    for count in range(1, 4):
        ledger_id, stored = await store.ledgers.create(ledger())
        assert ledger_id == count - 1
        await store.ledgers.create(ledger(), LedgerId(100 + count))
        assert await store.history.generated_ids() == GeneratedIds(count, 0)
        await store.ledgers.delete(ledger_id, stored.version)
        assert await store.history.generated_ids() == GeneratedIds(count, 0)


@fact
async def the_long_generator_shows_its_newest_directory(world: World) -> None:
    store = await cluster(world)
    await store.ledgers.create(ledger())
    await world.put("/idgen-long", b"")
    assert await store.history.generated_ids() == GeneratedIds(2**31 - 1, 0)
    other = await world.connect()
    ledger_id, _ = await other.ledgers.create(ledger())
    assert ledger_id == 1 << 32
    assert await store.history.generated_ids() == GeneratedIds(2**31 - 1, ledger_id + 1)


@fact
async def the_flat_generator_counts_all_that_was_made_below_the_root(world: World) -> None:
    store = await cluster(world, LayoutKind.FLAT)
    for _ in range(3):
        ledger_id, _ = await store.ledgers.create(ledger())
        assert ledger_id in await store.history.generated_ids()
        assert ledger_id + 2 not in await store.history.generated_ids()  # the ledger's node was counted, too


@fact
async def a_bookies_note_is_replaced_only_in_the_version_that_was_read(world: World) -> None:
    """I-15."""
    store = await cluster(world)
    assert (await store.history.look(BOOKIE)).note is None
    assert await store.history.bookies() == []
    report = Report(5, "why", GeneratedIds(7, 1 << 32), 3, 9, 2, ((1, 1), (4, 9)), 1, ((4, 4),))
    written = await store.history.write(BOOKIE, 1, report, None)
    seen = (await store.history.look(BOOKIE)).note
    assert seen == written
    await raises(NodeExists, store.history.write(BOOKIE, 1, report, None))
    await store.history.write(BOOKIE, 2, Report(), seen)
    await raises(NodeChanged, store.history.write(BOOKIE, 3, report, seen))
    seen = (await store.history.look(BOOKIE)).note
    assert seen is not None
    assert (seen.counter, seen.report) == (2, Report())
    assert await store.history.bookies() == [BOOKIE]


@fact
async def a_decision_waits_until_the_bookie_has_applied_it(world: World) -> None:
    store = await cluster(world)
    decision = Decision(Verdict.DISCARD, ((3, 5), (9, 9)))
    await raises(NodeAbsent, store.history.decide(BOOKIE, decision))
    await store.history.write(BOOKIE, 1, Report(), None)
    assert await store.history.decide(BOOKIE, decision) is False
    seen = (await store.history.look(BOOKIE)).decision
    assert seen is not None
    assert (seen.verdict, seen.ledgers) == (decision.verdict, decision.ledgers)
    await store.history.decision_applied(BOOKIE, seen)
    assert (await store.history.look(BOOKIE)).decision is None
    for replaced in (False, True):
        seen = (await store.history.look(BOOKIE)).decision or seen
        assert await store.history.decide(BOOKIE, Decision(Verdict.KEEP)) is replaced
        await store.history.decision_applied(BOOKIE, seen)
        assert (await store.history.look(BOOKIE)).decision is not None  # a later decision


@fact
async def an_unreadable_note_is_not_taken_for_an_absent_one(world: World) -> None:
    """I-18."""
    store = await cluster(world)
    for data in (b"", b"[]", b'{"format":"bookkeeper history","version":1}', b"\xff"):
        await world.put(f"/underreplication/history/{BOOKIE}", data)
        error = await raises(MetadataCorrupt, store.history.look(BOOKIE))
        assert f"/underreplication/history/{BOOKIE}" in str(error)
        assert "remove that znode" in str(error)


@fact
async def raises_that_cannot_be_read_count_as_none_and_are_written_again(world: World) -> None:
    """The new numbers continue above the lost ones: by them a bookie recognises the raises that it has seen."""
    store = await cluster(world)
    for _ in range(3):
        await store.history.raise_ids(GeneratedIds())
    await world.put("/underreplication/history", b"garbage")
    assert (await store.history.look(BOOKIE)).raises == ()
    await store.history.raise_ids(GeneratedIds())
    assert (await store.history.look(BOOKIE)).raises[-1].number > 3


@fact
async def raises_of_a_later_release_are_not_taken_for_none(world: World) -> None:
    store = await cluster(world)
    await world.put("/underreplication/history", b'{"format":"bookkeeper id generators","version":2,"raises":[]}')
    await raises(MetadataTooNew, store.history.look(BOOKIE))
    await raises(MetadataTooNew, store.history.raise_ids(GeneratedIds()))


@fact
async def formatting_a_cluster_removes_the_notes(world: World) -> None:
    store = await cluster(world)
    await store.history.write(BOOKIE, 1, Report(), None)
    await store.admin.format()
    assert (await store.history.look(BOOKIE)).note is None


@fact
async def raised_generators_give_out_no_id_below(world: World) -> None:
    """The values before a raise are noted for bookies that look later; a generator is never lowered."""
    store = await cluster(world)
    await store.ledgers.create(ledger())
    assert await store.history.raise_ids(GeneratedIds(1203, 0)) == GeneratedIds(1203, 0)
    assert (await store.ledgers.create(ledger()))[0] == 1203
    assert await store.history.raise_ids(GeneratedIds(700, 0)) == GeneratedIds(1204, 0)
    assert (await store.history.look(BOOKIE)).raises == (Raise(1, GeneratedIds(1, 0)), Raise(2, GeneratedIds(1204, 0)))
    await store.history.raise_ids(GeneratedIds(1300, 0))
    assert (await store.history.look(BOOKIE)).raises[2:] == (Raise(3, GeneratedIds(1204, 0)),)
    assert await store.history.bookies() == []


@fact
async def the_long_generator_is_raised_in_its_directory_or_by_a_newer_one(world: World) -> None:
    store = await cluster(world)
    await store.ledgers.create(ledger())
    past = GeneratedIds(2**31 - 1, (2 << 32) + 7)
    await world.put("/idgen-long/HOB-0000000001", b"")
    assert await store.history.raise_ids(past) == past
    other = await world.connect()
    assert (await other.ledgers.create(ledger()))[0] == past.long


@fact
async def the_flat_generator_is_raised(world: World) -> None:
    store = await cluster(world, LayoutKind.FLAT)
    await store.history.raise_ids(GeneratedIds(900, 0))
    assert (await store.ledgers.create(ledger()))[0] >= 900
