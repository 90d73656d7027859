"""Chosen ledger and entry ids, and deferred sync, by each client on bookies of both kinds."""

import asyncio
import random
from itertools import accumulate

import pytest

from bookkeeper import BookKeeper
from bookkeeper.errors import DuplicateEntry, LedgerExists
from bookkeeper.model import LedgerState
from tests.interop.ground import Ground
from tests.support.apache import ApacheClient, ApacheError
from tests.support.apache.content import fingerprints, payload, payloads

COUNT, SIZE_MAX = 40, 3000
VERSIONS = (2, 3)
CODE_LEDGER_EXISTS = -20
CODE_DUPLICATE = -22


@pytest.mark.parametrize("version", VERSIONS)
def test_entries_that_one_adds_in_any_order_under_chosen_ids_are_what_the_other_reads(
    ground: Ground, apache_client: ApacheClient, version: int, rng: random.Random
) -> None:
    client = ground.client(version)
    mine, theirs = (1_000_000 * version + number for number in (1, 2))
    order = rng.sample(range(COUNT), COUNT)

    # Theirs: nothing is acknowledged before all that come before it are.
    apache_client.run("chosen", *ground.where(version, 3), 2, 2, theirs)
    with pytest.raises(LedgerExists):
        client.create(ledger_id=theirs)
    assert apache_client.run("put", theirs, 0, SIZE_MAX, *order) == [f"{COUNT - 1}"]
    with pytest.raises(ApacheError) as refused:
        apache_client.run("put", theirs, 0, SIZE_MAX, 3)
    assert refused.value.code == CODE_DUPLICATE
    with client.open(theirs) as reader:
        entries = list(reader.entries())
    assert [entry.payload for entry in entries] == payloads(0, COUNT, SIZE_MAX)
    # The length of an entry includes the entries that were added earlier, in any order of ids.
    lengths = dict(zip(order, accumulate(len(payload(0, number, SIZE_MAX)) for number in order), strict=True))
    assert [entry.length for entry in entries] == [lengths[number] for number in range(COUNT)]
    assert apache_client.run("lengths", *ground.where(version, theirs)) == [f"{entry.length}" for entry in entries]

    async def write() -> None:
        async with await BookKeeper.connect(ground.uri, ground.settings(version)) as bk:
            ledger = await bk.create_advanced(ledger_id=mine)
            adding = [asyncio.ensure_future(ledger.append(number, payload(1, number, SIZE_MAX))) for number in order]
            assert await asyncio.gather(*adding) == order
            with pytest.raises(DuplicateEntry):
                await ledger.append(3, b"again")
            assert ledger.last_add_confirmed == COUNT - 1

    asyncio.run(write())
    with pytest.raises(ApacheError) as exists:
        apache_client.run("chosen", *ground.where(version, 3), 2, 2, mine)
    assert exists.value.code == CODE_LEDGER_EXISTS
    assert apache_client.run("hashes", *ground.where(version, mine)) == fingerprints(payloads(1, COUNT, SIZE_MAX))
    with client.open(mine) as reader:
        found = [f"{entry.length}" for entry in reader.entries()]
    assert apache_client.run("lengths", *ground.where(version, mine)) == found
    assert client.metadata(mine).state is LedgerState.CLOSED


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gap_in_chosen_ids_ends_the_ledger_for_both(
    ground: Ground, apache_client: ApacheClient, version: int
) -> None:
    """Entries 0..4 and 6: nobody acknowledges 6, and the ledger ends at 4, whoever recovers it."""
    client = ground.client(version)

    async def write() -> int:
        async with await BookKeeper.connect(ground.uri, ground.settings(version)) as bk:
            ledger = await bk.create_advanced()
            beyond = asyncio.ensure_future(ledger.append(6, payload(2, 6, SIZE_MAX)))
            await asyncio.gather(*[ledger.append(number, payload(2, number, SIZE_MAX)) for number in range(5)])
            assert not beyond.done()
            ledger.abort()
            await asyncio.gather(beyond, return_exceptions=True)
            assert beyond.exception() is not None
            return ledger.id

    ours = asyncio.run(write())
    (theirs,) = apache_client.run("chosen", *ground.where(version, 3), 2, 2, -1)
    apache_client.run("put", theirs, 2, SIZE_MAX, 4, 3, 2, 1, 0)
    apache_client.spawn("put", theirs, 2, SIZE_MAX, 6)
    expected = payloads(2, 5, SIZE_MAX)
    assert apache_client.run("hashes", *ground.where(version, ours)) == fingerprints(expected)
    with client.open(int(theirs)) as reader:
        assert [entry.payload for entry in reader.entries()] == expected
    assert apache_client.run("peek", *ground.where(version, theirs)) == fingerprints(expected)
    assert client.metadata(ours).last_entry_id == client.metadata(int(theirs)).last_entry_id == 4


def test_what_they_forced_with_deferred_sync_outlives_kills(ground: Ground, apache_client: ApacheClient) -> None:
    client = ground.client(3)
    (theirs,) = apache_client.run("deferred", *ground.where(3, 2), 2, 2)
    apache_client.run("fill", theirs, COUNT, 3, SIZE_MAX)
    with client.open_without_recovery(int(theirs)) as reader:
        assert reader.read_last_confirmed() == -1  # acknowledged, and confirmed to nobody
    assert apache_client.run("force", theirs) == [f"{COUNT - 1}"]
    apache_client.run("fill", theirs, 1, 3, SIZE_MAX)  # tells where the last force ended
    with client.open_without_recovery(int(theirs)) as reader:
        assert reader.read_last_confirmed() == COUNT - 1
    apache_client.run("abandon", theirs)
    kill_all_of(ground, int(theirs), apache_client)
    check_recovered(ground, apache_client, int(theirs), seed=3, ours_first=True)


def test_what_we_forced_with_deferred_sync_outlives_kills(ground: Ground, apache_client: ApacheClient) -> None:
    ledger = ground.client(3).create(ensemble=2, write_quorum=2, ack_quorum=2, deferred_sync=True)
    ledger.append_many(payloads(4, COUNT, SIZE_MAX))
    assert ledger.last_add_confirmed == -1
    apache_client.run("watch", *ground.where(3, ledger.id))
    assert apache_client.run("lac", ledger.id) == ["-1"]
    assert ledger.force() == COUNT - 1
    ledger.append(payload(4, COUNT, SIZE_MAX))
    assert apache_client.run("lac", ledger.id) == [f"{COUNT - 1}"]
    ledger.abort()
    kill_all_of(ground, ledger.id, apache_client)
    check_recovered(ground, apache_client, ledger.id, seed=4, ours_first=False)


@pytest.mark.parametrize("forced", [True, False])
def test_a_closed_ledger_of_deferred_sync_ends_at_its_last_force(
    ground: Ground, apache_client: ApacheClient, forced: bool
) -> None:
    end = COUNT - 1 if forced else -1
    (theirs,) = apache_client.run("deferred", *ground.where(3, 2), 2, 2)
    apache_client.run("fill", theirs, COUNT, 5, SIZE_MAX)
    if forced:
        apache_client.run("force", theirs)
    apache_client.run("fill", theirs, 2, 5, SIZE_MAX)
    assert apache_client.run("close", theirs)[0].split()[0] == f"{end}"
    with ground.client(3).open(int(theirs)) as reader:
        assert [entry.payload for entry in reader.entries()] == payloads(5, end + 1, SIZE_MAX)
        assert reader.closed


def kill_all_of(ground: Ground, ledger_id: int, apache_client: ApacheClient) -> None:
    """kill -9 each bookie of the ledger, then start them again."""
    members = [ground.bookie(one) for one in ground.client(3).metadata(ledger_id).last_fragment.ensemble]
    for bookie in members:
        bookie.kill()
    for bookie in members:
        bookie.start()
    ground.when_whole(apache_client)


def check_recovered(
    ground: Ground, apache_client: ApacheClient, ledger_id: int, seed: int, *, ours_first: bool
) -> None:
    """Both find what was forced, and agree on the one entry after it, which may be there."""
    if not ours_first:
        apache_client.run("hashes", *ground.where(3, ledger_id))
    with ground.client(3).open(ledger_id) as reader:
        found = [entry.payload for entry in reader.entries()]
    assert len(found) in (COUNT, COUNT + 1)
    assert found == payloads(seed, len(found), SIZE_MAX)
    assert apache_client.run("hashes", *ground.where(3, ledger_id)) == fingerprints(found)
