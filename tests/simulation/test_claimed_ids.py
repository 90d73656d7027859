"""Clients, hubs and journals continue when strangers claim ledger ids before or just after these are given out."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.client.recovery import LedgerRecovery
from bookkeeper.errors import LedgerIdOccupied, NoSuchLedger
from bookkeeper.model import DigestType, LedgerState, Status
from bookkeeper.wire.digest import digest_of, master_key
from hedwig.hub.topics.log import CLAIMED_IN_A_ROW_MAX, LogState
from hedwig.hub.topics.log_settings import PASSWORD
from tests.simulation.journals import NAMESPACE, new_journal, read_from, write_segment
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.test_topic_log import Hub, stored
from tests.simulation.world import World
from tests.support.stranger import INVENTED_KEY, claim


async def claim_all(world: World, ledger_ids: range, key: bytes = INVENTED_KEY) -> None:
    stranger = world.add_client()
    bookies = [bookie.bookie_id for bookie in world.bookies]
    answers = await claim(stranger.ledgers.context, bookies, ledger_ids, key)
    assert set(answers) <= {Status.NO_ENTRY}, answers
    await stranger.ledgers.close()


@pytest.mark.parametrize("known", [False, True], ids=["invented key", "the key of the default password"])
def test_a_client_takes_an_id_that_was_not_claimed(known: bool) -> None:
    world = started_world(3)

    async def story() -> None:
        await claim_all(world, range(60), master_key(b"") if known else INVENTED_KEY)
        client = world.add_client()
        handle = await client.ledgers.create(ensemble=3, write_quorum=3, ack_quorum=2)
        assert handle.ledger_id >= 60
        await handle.append(b"x")
        assert (await handle.close()).last_entry_id == 0
        with pytest.raises(LedgerIdOccupied, match="another key claimed this id"):
            await client.ledgers.create(ensemble=3, write_quorum=3, ack_quorum=2, ledger_id=7)

    run(world, story())


def test_a_claim_survives_a_restart_of_the_bookies() -> None:
    world = started_world(3)

    async def story() -> None:
        await claim_all(world, range(5))
        for bookie in world.bookies:
            bookie.kill()
            bookie.ensure_running()
        await world.pause(5.0)
        client = world.add_client()
        handle = await client.ledgers.create(ensemble=3, write_quorum=3, ack_quorum=2)
        assert handle.ledger_id >= 5
        await handle.append(b"x")

    run(world, story())


def test_a_hub_and_a_journal_take_ids_that_were_not_claimed() -> None:
    world = started_world(3)

    async def story() -> None:
        await claim_all(world, range(30))
        hub = await Hub(world).acquired()
        hub.publish(b"one", b"two")
        await hub.settled()
        assert [body for _, body in hub.acknowledged] == [b"one", b"two"]
        await hub.log.release()
        assert await stored(world) == [(1, b"one"), (2, b"two")]
        last = max([ledger_id async for batch in hub.client.ledgers.ids() for ledger_id in batch])
        await claim_all(world, range(last + 1, last + 31))
        journal = new_journal(world)
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 10)
        assert await read_from(journal, 1) == list(range(1, 11))

    run(world, story())


def claim_after_create(world: World, hub: Hub, times: int, key: bytes = INVENTED_KEY) -> list[int]:
    """Claim the next `times` ledgers of a hub between creation and first message; return the list of their ids."""
    claimed: list[int] = []
    client: Any = hub.client.ledgers
    create = client.create

    async def create_and_claim(**options: Any) -> Any:
        handle = await create(**options)
        if len(claimed) < times:
            claimed.append(handle.ledger_id)
            await claim_all(world, range(handle.ledger_id, handle.ledger_id + 1), key)
        return handle

    client.create = create_and_claim
    return claimed


@pytest.mark.parametrize("key", [INVENTED_KEY, master_key(PASSWORD)], ids=["invented key", "the topics' key"])
@pytest.mark.parametrize("before", [0, 3])
def test_a_hub_whose_new_ledger_is_claimed_sends_its_messages_to_another(before: int, key: bytes) -> None:
    """I-12: the claimed ledger is closed as empty first. The messages keep their ids (I-89)."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=3).acquired()
        bodies = [b"message %d" % number for number in range(before + 2)]
        if before:
            hub.publish(*bodies[:before])  # fills the first ledger
            await hub.settled()
        claimed = claim_after_create(world, hub, 2, key)
        hub.publish(*bodies[before:])
        await hub.settled()
        assert hub.failed == []
        assert len(claimed) == 2
        assert hub.acknowledged == [(number + 1, body) for number, body in enumerate(bodies)]
        hub.publish(b"later")
        await hub.settled()
        await world.pause(1.0)
        for ledger_id in claimed:
            with pytest.raises(NoSuchLedger):
                await hub.client.ledgers.metadata(ledger_id)
        await hub.log.release()
        assert [body for _, body in await stored(world)] == [*bodies, b"later"]

    run(world, story())


def test_a_hub_gives_a_topic_up_after_too_many_claims_and_the_next_hub_serves_it() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()
        claimed = claim_after_create(world, hub, CLAIMED_IN_A_ROW_MAX + 1)
        hub.publish(b"lost")
        await hub.settled()
        await world.pause(1.0)
        assert hub.log.state is LogState.LOST
        assert len(hub.failed) == 1
        metadata = await hub.client.ledgers.metadata(claimed[-1])
        assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, -1)
        successor = await Hub(world).acquired()
        successor.publish(b"kept")
        await successor.settled()
        assert [body for _, body in successor.acknowledged] == [b"kept"]

    run(world, story())


def test_a_takeover_before_the_first_message_is_not_taken_for_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookies answer FENCED in both cases; the version of the list of ledgers differs (I-90)."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()
        write = hub.metadata.write_ranges
        successors: list[Hub] = []

        async def write_then_lose(*arguments: Any) -> Any:
            version = await write(*arguments)
            successors.append(await Hub(world).acquired())
            return version

        monkeypatch.setattr(hub.metadata, "write_ranges", write_then_lose)
        hub.publish(b"too late")
        await hub.settled()
        await world.pause(1.0)
        assert hub.log.state is LogState.LOST
        assert hub.acknowledged == []
        successors[0].publish(b"of the new owner")
        await successors[0].settled()
        await successors[0].log.release()
        assert await stored(world) == [(1, b"of the new owner")]

    run(world, story())


@pytest.mark.parametrize("count", [1, 2])
def test_one_claimed_member_does_not_stop_a_recovery(count: int) -> None:
    """Two of three bookies must be fenced. A refusal of a claimed bookie is unknown, never "empty"."""
    world = started_world(3)

    async def story() -> None:
        writer = world.add_client()
        handle = await writer.ledgers.create(ensemble=3, write_quorum=3, ack_quorum=2, password=b"secret")
        stranger = world.add_client()
        members = handle.metadata.last_fragment.ensemble
        await claim(stranger.ledgers.context, members[:count], [handle.ledger_id])
        reader = world.add_client()
        if count == 1:
            opened = await reader.ledgers.open(handle.ledger_id, b"secret")
            assert (opened.closed, opened.last_add_confirmed) == (True, -1)
        else:
            with pytest.raises(LedgerIdOccupied, match="another client claimed the ledger's id"):
                await reader.ledgers.open(handle.ledger_id, b"secret")
            metadata = await reader.ledgers.metadata(handle.ledger_id)
            assert metadata.state is LedgerState.IN_RECOVERY

    run(world, story())


def test_a_refused_recovery_of_a_ledger_with_entries_does_not_recommend_to_close_it_empty() -> None:
    world = started_world(3)

    async def story() -> None:
        writer = world.add_client()
        handle = await writer.ledgers.create(ensemble=3, write_quorum=3, ack_quorum=2, password=b"secret")
        await handle.append(b"acknowledged")
        recovery = LedgerRecovery(
            world.add_client().ledgers.context,
            handle.ledger_id,
            await writer.ledgers.store.ledgers.read(handle.ledger_id),
            digest_of(handle.metadata.digest_type or DigestType.CRC32C, b"secret"),
            master_key(b"another"),
        )
        with pytest.raises(LedgerIdOccupied, match="It has entries") as failure:
            await recovery.start()
        assert "close-empty" not in str(failure.value)
        assert "holds entries of this ledger, up to entry 0" in str(failure.value)

    run(world, story())
