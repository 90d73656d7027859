"""Writers that die, are fenced or lose a bookie while they write: both clients agree on what the ledger holds.

On bookies of both kinds. A ledger that our client writes holds `payload_of` its ids, one of theirs entries made from
SEED. What a writer got acknowledged must be there; of what was on its way any part may be, the same for both readers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bookkeeper import BookKeeper
from bookkeeper.errors import LedgerFencedOff
from bookkeeper.model import LedgerState
from tests.interop.ground import PASSWORD, REQUEST_TIMEOUT_S, Ground
from tests.support.apache import Apache, ApacheClient
from tests.support.apache.content import fingerprints, payload
from tests.support.doomed_writer import write_and_kill
from tests.support.ledger_load import Load, payload_of

SEED, SIZE_MAX = 7, 400
BATCH, WINDOW = 16, 64
ENOUGH = 60
CODE_FENCED = -101
CODE_CLOSED = -11
RACES = 10
VERSIONS = (2, 3)


@dataclass(frozen=True, slots=True)
class Written:
    """A ledger that is not written any more. acknowledged: how many entries its writer knows to be there."""

    ledger_id: int
    acknowledged: int
    ours: bool

    def payload(self, entry_id: int) -> bytes:
        """What its writer wrote there."""
        return payload_of(self.ledger_id, entry_id) if self.ours else payload(SEED, entry_id, SIZE_MAX)


def check_agreed(ground: Ground, apache_client: ApacheClient, version: int, written: Written) -> int:
    """Both clients read the same, and nothing acknowledged is missing. How many entries there are."""
    with ground.client(version).open(written.ledger_id) as reader:
        found = [entry.payload for entry in reader.entries()]
        assert reader.metadata.state is LedgerState.CLOSED
        assert reader.metadata.last_entry_id == len(found) - 1
        # Apache's recovery may close at the length that a later entry says, of those that are not part of the ledger.
        assert (reader.metadata.length or 0) >= sum(map(len, found))
    assert len(found) >= written.acknowledged
    assert found == [written.payload(entry_id) for entry_id in range(len(found))]
    assert apache_client.run("hashes", *ground.where(version, written.ledger_id)) == fingerprints(found)
    return len(found)


def run(ground: Ground, version: int, scenario: Callable[[BookKeeper], Awaitable[None]]) -> None:
    """With an asynchronous client of ours, which writes while the genuine one does something."""

    async def main() -> None:
        settings = replace(ground.settings(version), window_entries_max=WINDOW)
        async with await BookKeeper.connect(ground.uri, settings) as bk:
            await scenario(bk)

    asyncio.run(main())


def await_progress(client: ApacheClient, ledger: str, count: int) -> int:
    """Return once their writer has at least so many entries acknowledged; how many."""
    while True:
        acknowledged = int(client.run("progress", ledger)[0]) + 1
        if acknowledged >= count:
            return acknowledged


def test_the_ledgers_of_their_killed_process_are_recovered_by_either(
    ground: Ground, apache: Apache, apache_client: ApacheClient, tmp_path: Path
) -> None:
    begun: list[tuple[int, Written]] = []
    with ApacheClient(apache, tmp_path / "killed.log") as doomed:
        ledgers = [(version, doomed.run("begin", *ground.where(version), 3, 3, 2, 0)[0]) for version in VERSIONS * 2]
        for _, ledger in ledgers:
            doomed.spawn("load", ledger, SEED, SIZE_MAX)
        for version, ledger in ledgers:
            begun.append((version, Written(int(ledger), await_progress(doomed, ledger, ENOUGH), ours=False)))
        doomed.close()  # SIGKILL, with adds on their way
    for first, (version, written) in enumerate(begun):
        if first < len(VERSIONS):  # they recover it, else we do
            apache_client.run("hashes", *ground.where(version, written.ledger_id))
            assert ground.client(version).metadata(written.ledger_id).state is LedgerState.CLOSED
        check_agreed(ground, apache_client, version, written)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ledgers_that_our_client_dropped_are_recovered_by_either(
    ground: Ground, apache_client: ApacheClient, version: int
) -> None:
    dropped: list[Written] = []

    async def scenario(bk: BookKeeper) -> None:
        loads = [Load(await bk.create(ensemble=3, write_quorum=3, ack_quorum=2), BATCH) for _ in range(2)]
        for load in loads:
            await load.reached(ENOUGH)
        for load in loads:
            await load.abandon()
            dropped.append(Written(load.ledger.id, load.acknowledged, ours=True))

    run(ground, version, scenario)
    apache_client.run("hashes", *ground.where(version, dropped[0].ledger_id))
    assert ground.client(version).metadata(dropped[0].ledger_id).state is LedgerState.CLOSED
    for written in dropped:
        check_agreed(ground, apache_client, version, written)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ledgers_of_our_killed_process_are_recovered_by_either(
    ground: Ground, apache_client: ApacheClient, version: int
) -> None:
    settings = {
        "use_v2": version == 2,
        "password": PASSWORD,
        "explicit_lac_interval_s": 0,
        "read_timeout_base_s": REQUEST_TIMEOUT_S,
    }
    acknowledged = write_and_kill(ground.uri, settings, ledgers=2, enough=ENOUGH)
    begun = [Written(ledger_id, count, ours=True) for ledger_id, count in acknowledged.items()]
    apache_client.run("hashes", *ground.where(version, begun[0].ledger_id))
    assert ground.client(version).metadata(begun[0].ledger_id).state is LedgerState.CLOSED
    for written in begun:
        check_agreed(ground, apache_client, version, written)


@pytest.mark.parametrize("version", VERSIONS)
def test_bookies_that_refuse_more_than_they_can_take_stay_in_the_ledgers(ground: Ground, version: int) -> None:
    """A genuine bookie refuses adds beyond 10,000 that wait (maxPendingAddRequestsPerThread); the spare would too."""
    settings = {
        "use_v2": version == 2,
        "password": PASSWORD,
        "read_timeout_base_s": REQUEST_TIMEOUT_S,
        "window_entries_max": 20_000,
        "connection_entries_max": 1_000_000,
        "connection_bytes_max": 1 << 30,
    }
    for ledger_id, acknowledged in write_and_kill(ground.uri, settings, ledgers=4, enough=60_000).items():
        with ground.client(version).open(ledger_id) as reader:
            assert reader.last_add_confirmed + 1 >= acknowledged
            assert len(reader.metadata.fragments) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_either_recovery_fences_the_others_busy_writer(
    ground: Ground, apache_client: ApacheClient, version: int
) -> None:
    written: list[Written] = []

    async def scenario(bk: BookKeeper) -> None:
        load = Load(await bk.create(ensemble=3, write_quorum=2, ack_quorum=2), BATCH)
        await load.reached(ENOUGH)
        await asyncio.to_thread(apache_client.run, "hashes", *ground.where(version, load.ledger.id))
        assert isinstance(await load.failed(), LedgerFencedOff)
        await load.stop()
        written.append(Written(load.ledger.id, load.acknowledged, ours=True))

    run(ground, version, scenario)
    (theirs,) = apache_client.run("begin", *ground.where(version), 3, 2, 2, 0)
    loading = apache_client.spawn("load", theirs, SEED, SIZE_MAX)
    await_progress(apache_client, theirs, ENOUGH)
    ground.client(version).open(int(theirs)).close()
    last_acknowledged, code = map(int, apache_client.wait(loading)[0].split())
    assert code == CODE_FENCED
    written.append(Written(int(theirs), last_acknowledged + 1, ours=False))
    for ledger in written:
        check_agreed(ground, apache_client, version, ledger)


def test_recoverers_of_both_kinds_at_once_agree_whoever_still_writes(
    ground: Ground, apache_client: ApacheClient
) -> None:
    """Each time a writer of either kind goes on until it is fenced, so that both recoveries find a moving end."""

    async def both_recover(bk: BookKeeper, version: int, ledger_id: int) -> None:
        recovering = apache_client.spawn("hashes", *ground.where(version, ledger_id, client="r"))
        async with await bk.open(ledger_id) as reader:
            found = [entry.payload async for entry in reader.entries()]
        assert await asyncio.to_thread(apache_client.wait, recovering) == fingerprints(found)

    async def race_with_us(bk: BookKeeper, version: int) -> Written:
        load = Load(await bk.create(ensemble=3, write_quorum=3, ack_quorum=2), BATCH)
        await load.reached(ENOUGH)
        await both_recover(bk, version, load.ledger.id)
        assert isinstance(await load.failed(), LedgerFencedOff)
        await load.stop()
        return Written(load.ledger.id, load.acknowledged, ours=True)

    async def race_with_them(bk: BookKeeper, version: int) -> Written:
        (theirs,) = apache_client.run("begin", *ground.where(version), 3, 3, 2, 0)
        loading = apache_client.spawn("load", theirs, SEED, SIZE_MAX)
        await_progress(apache_client, theirs, ENOUGH)
        await both_recover(bk, version, int(theirs))
        last_acknowledged, code = map(int, apache_client.wait(loading)[0].split())
        # A fence heard first for an entry that the two others have acknowledged makes Apache's client change the
        # ensemble (PendingAddOp.writeComplete), and it finds the ledger closed by then.
        assert code in (CODE_FENCED, CODE_CLOSED)
        return Written(int(theirs), last_acknowledged + 1, ours=False)

    for version in VERSIONS:
        written: list[Written] = []

        async def scenario(bk: BookKeeper, version: int = version, written: list[Written] = written) -> None:
            for _ in range(RACES // 2):
                written += [await race_with_us(bk, version), await race_with_them(bk, version)]

        run(ground, version, scenario)
        for ledger in written:
            check_agreed(ground, apache_client, version, ledger)


def test_each_writer_goes_on_without_a_bookie_that_is_killed(ground: Ground, apache_client: ApacheClient) -> None:
    """Four ledgers on the same three bookies, of each client and each version; the fourth bookie takes over."""
    theirs = [(version, apache_client.run("begin", *ground.where(version), 3, 2, 2, 0)[0]) for version in VERSIONS]
    client = ground.client(3)
    common = set.intersection(*(set(client.metadata(int(ledger)).last_fragment.ensemble) for _, ledger in theirs))
    victim = ground.bookie(min(common))
    others = [bookie.bookie_id for bookie in ground.bookies if bookie is not victim]
    loading = [apache_client.spawn("load", ledger, SEED, SIZE_MAX) for _, ledger in theirs]
    written: list[tuple[int, Written]] = []

    async def write(version: int, killed: asyncio.Event, alive: asyncio.Semaphore) -> None:
        settings = replace(ground.settings(version), window_entries_max=WINDOW)
        async with await BookKeeper.connect(ground.uri, settings) as bk:
            ensemble = [victim.bookie_id, *others[:2]]
            load = Load(await bk.create(ensemble=3, write_quorum=2, ack_quorum=2, bookies=ensemble), BATCH)
            await load.reached(ENOUGH)
            alive.release()
            await killed.wait()
            await load.reached(load.acknowledged + WINDOW + ENOUGH)  # more than was on its way
            await load.stop()
            await load.ledger.close()
            assert load.ledger.last_add_confirmed >= load.acknowledged - 1
            written.append((version, Written(load.ledger.id, load.acknowledged, ours=True)))

    async def scenario() -> None:
        killed, alive = asyncio.Event(), asyncio.Semaphore(0)
        writing = [asyncio.ensure_future(write(version, killed, alive)) for version in VERSIONS]
        for _ in writing:
            await alive.acquire()
        for _, ledger in theirs:
            await asyncio.to_thread(await_progress, apache_client, ledger, ENOUGH)
        victim.kill()
        killed.set()
        for _, ledger in theirs:
            done = int(apache_client.run("progress", ledger)[0]) + 1
            await asyncio.to_thread(await_progress, apache_client, ledger, done + ENOUGH)
        await asyncio.gather(*writing)

    try:
        asyncio.run(scenario())
        for (version, ledger), number in zip(theirs, loading, strict=True):
            apache_client.run("stop", ledger)
            last_acknowledged, code = map(int, apache_client.wait(number)[0].split())
            assert code == 0
            apache_client.run("close", ledger)
            written.append((version, Written(int(ledger), last_acknowledged + 1, ours=False)))
        for version, ended in written:
            assert check_agreed(ground, apache_client, version, ended) == ended.acknowledged
            first, *_, last = client.metadata(ended.ledger_id).fragments
            assert victim.bookie_id in first.ensemble
            assert victim.bookie_id not in last.ensemble
    finally:
        victim.start()
        ground.when_whole(apache_client)
