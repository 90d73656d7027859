"""Copies are made anew: the restorer over fake bookies, the real metadata store in memory, simulated time."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import pytest
from twisted.internet.defer import Deferred, fail

from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    BookKeeperError,
    EntryCorrupt,
    EntryMissing,
    EntryUnreadable,
    MetadataOutcomeUnknown,
    NoSuchLedger,
    NotEnoughBookies,
    ReplicationFailed,
)
from bookkeeper.model import DigestType, EntryId, LedgerId, LedgerMetadata, Status
from bookkeeper.replication.copies.fragments import fragments_of
from bookkeeper.replication.repair.locked_ledgers import WorkEnded
from bookkeeper.wire import messages
from bookkeeper.wire.digest import digest_of, lac_of, length_of
from tests.support.damaged_ledgers import Repairs, holders_missing, payloads, write_ledger
from tests.support.fake_bookie import HOLD, SILENCE, FakeBookie, FakeCluster

BOTH = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
PASSWORD = b"secret"


def repairs_of(cluster: FakeCluster, *, use_v2: bool = True, **flow: Any) -> Repairs:
    return Repairs(
        cluster, cluster.client(ClientSettings(use_v2=use_v2, add_timeout_s=2.0, read_timeout_s=2.0)), **flow
    )


def is_add(request: Any) -> bool:
    return isinstance(request, messages.AddBatch)


def read_all(cluster: FakeCluster, ledger_id: int, password: bytes = PASSWORD) -> list[bytes]:
    async def scenario() -> list[bytes]:
        async with cluster.client() as client:
            handle = await client.open(ledger_id, password)
            return [entry.payload async for entry in handle.entries()]

    result: list[bytes] = cluster.wait(scenario())
    return result


@BOTH
@pytest.mark.parametrize("write_quorum", [1, 2, 3])
@pytest.mark.parametrize("digest", list(DigestType))
def test_the_new_member_gets_what_its_place_stores_and_the_metadata_names_it(
    use_v2: bool, write_quorum: int, digest: DigestType
) -> None:
    cluster = FakeCluster(4)
    first, second, lost, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster, use_v2=use_v2)

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(
            writer, [first, second, lost], 1300, write_quorum=write_quorum, digest=digest, password=PASSWORD
        )
        held = dict(lost.entries[ledger.id])
        if write_quorum > 1:
            lost.leave()
        metadata = await repairs.restore(ledger.id, lost)
        copies = spare.entries[ledger.id]
        assert sorted(copies) == sorted(held)
        # Packaged anew: payload and length as they were, the LAC of a closed ledger, a digest of its own.
        codec = digest_of(digest, PASSWORD)
        for entry_id, body in copies.items():
            assert codec.verify(ledger.id, [entry_id], [body]) == codec.verify(ledger.id, [entry_id], [held[entry_id]])
            assert (length_of(body), lac_of(body)) == (length_of(held[entry_id]), 1299)
        return metadata

    metadata = cluster.wait(scenario())
    assert [fragment.ensemble for fragment in metadata.fragments] == [
        (first.bookie_id, second.bookie_id, spare.bookie_id)
    ]
    assert (metadata.is_closed, metadata.last_entry_id) == (True, 1299)
    assert holders_missing(cluster, 0, metadata) == []
    assert read_all(cluster, 0) == payloads(1300)


def test_every_copy_is_written_with_the_recovery_flag() -> None:
    """I-27. A fenced ledger takes nothing else. Mutant: recovery=False."""
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, members, 10)
        for bookie in cluster.bookies:
            bookie.fenced.add(ledger.id)
        members[0].leave()
        await repairs.restore(ledger.id, members[0])
        assert all(request.recovery for request in spare.requests if is_add(request))
        assert len(spare.entries[ledger.id]) == 10

    cluster.wait(scenario())


def test_two_lost_members_are_replaced_by_two_others_in_one_change() -> None:
    cluster = FakeCluster(6)
    kept, one, other, *spares = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(writer, [one, kept, other], 100, write_quorum=2)
        one.leave()
        return await repairs.restore(ledger.id, one)

    metadata = cluster.wait(scenario())
    ensemble = metadata.last_fragment.ensemble
    assert ensemble[1:] == (kept.bookie_id, other.bookie_id)
    assert ensemble[0] in {spare.bookie_id for spare in spares}

    async def both() -> tuple[LedgerMetadata, int]:
        ledger = await write_ledger(writer, [other, kept, spares[0]], 100)
        before = (await repairs.client.store.ledgers.read(ledger.id)).version
        other.leave()
        spares[0].leave()
        metadata = await repairs.restore(ledger.id, other, spares[0])
        assert (await repairs.client.store.ledgers.read(ledger.id)).version == before + 1
        return metadata, ledger.id

    metadata, ledger_id = cluster.wait(both())
    assert set(metadata.last_fragment.ensemble) == {b.bookie_id for b in (kept, spares[1], spares[2])}
    assert holders_missing(cluster, ledger_id, metadata) == []


def test_the_metadata_changes_only_after_every_entry_is_acknowledged() -> None:
    """I-75. Mutant: commit before the writes are done."""
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)
    ledger = cluster.wait(write_ledger(writer, members, 1200))
    members[1].leave()
    answered = 0

    def rule(request: Any) -> object:
        return HOLD if is_add(request) else None

    spare.rule = rule
    outcome: list[Any] = []
    Deferred.fromCoroutine(repairs.restore(ledger.id, members[1])).addBoth(outcome.append)
    while not outcome:
        assert cluster.clock.run_until(lambda: bool(spare.held) or bool(outcome), seconds=60)
        now = cluster.wait(repairs.client.store.ledgers.read(LedgerId(ledger.id)))
        if answered < 1200:
            assert members[1].bookie_id in now.value.last_fragment.ensemble
        answered += sum(len(request.entry_ids) for _, request in spare.held)
        spare.release()
    assert answered == 1200
    assert spare.bookie_id in outcome[0].last_fragment.ensemble


def test_a_fragment_without_entries_changes_its_members_and_nothing_is_written() -> None:
    """I-75: an empty fragment is neither left for ever nor read."""
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(writer, members, 0)
        members[2].leave()
        return await repairs.restore(ledger.id, members[2])

    metadata = cluster.wait(scenario())
    assert metadata.last_fragment.ensemble == (members[0].bookie_id, members[1].bookie_id, spare.bookie_id)
    assert not spare.entries


def test_a_place_that_stores_nothing_of_a_short_fragment_only_gets_a_new_name() -> None:
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(writer, members, 1, write_quorum=1)
        members[2].leave()
        return await repairs.restore(ledger.id, members[2])

    assert cluster.wait(scenario()).last_fragment.ensemble[2] == spare.bookie_id
    assert not spare.entries


def test_a_damaged_copy_is_never_copied() -> None:
    """I-67. The first replica asked has flipped a bit of every entry."""
    cluster = FakeCluster(4)
    good, damaged, lost, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, [good, damaged, lost], 60)
        for entry_id, body in damaged.entries[ledger.id].items():
            damaged.entries[ledger.id][entry_id] = body[:-1] + bytes([body[-1] ^ 1])
        lost.leave()
        await repairs.restore(ledger.id, lost)
        digest = digest_of(DigestType.CRC32C, PASSWORD)
        held = spare.entries[ledger.id]
        assert digest.verify(ledger.id, list(held), list(held.values())) == [payloads(60)[each] for each in held]
        assert len(held) == 60

    cluster.wait(scenario())


@pytest.mark.parametrize(
    ("what", "error"),
    [("denied", EntryMissing), ("damaged", EntryCorrupt), ("silent", EntryUnreadable), ("refused", EntryUnreadable)],
)
def test_an_entry_without_a_good_copy_leaves_the_fragment_as_it_is_and_says_why(
    what: str, error: type[BookKeeperError]
) -> None:
    """I-75, I-79."""
    cluster = FakeCluster(4)
    one, two, lost, _spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    def rule(request: Any) -> object:
        if isinstance(request, messages.ReadBatch | messages.BatchRead):
            return {"silent": SILENCE, "refused": Status.IO_ERROR}.get(what)
        return None

    async def scenario() -> None:
        ledger = await write_ledger(writer, [one, two, lost], 20)
        before = await repairs.client.store.ledgers.read(ledger.id)
        if what in ("silent", "refused"):
            lost.leave()
        for bookie in (one, two, lost):
            held = bookie.entries[ledger.id]
            if what == "denied":
                del held[7]
            elif what == "damaged":
                held[7] = held[7][:-1]
            bookie.rule = rule
        with pytest.raises(error, match=r"ledger 0, entry \d+") as raised:
            await repairs.restore(ledger.id, lost)
        assert str(one.bookie_id) in str(raised.value)
        assert await repairs.client.store.ledgers.read(ledger.id) == before
        assert repairs.tally.entries_unreadable >= 1

    cluster.wait(scenario())


def test_a_target_that_refuses_is_given_up_for_another() -> None:
    cluster = FakeCluster(6)
    *members, bad, worse, good = cluster.bookies
    bad.rule = lambda request: Status.READ_ONLY if is_add(request) else None
    worse.rule = lambda request: SILENCE if is_add(request) else None
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(writer, members, 30)
        members[0].leave()
        return await repairs.restore(ledger.id, members[0])

    metadata = cluster.wait(scenario())
    assert metadata.last_fragment.ensemble[0] == good.bookie_id
    assert holders_missing(cluster, 0, metadata) == []


def test_without_another_bookie_a_member_that_lost_its_copies_gets_them_back_in_place() -> None:
    cluster = FakeCluster(3)
    writer, repairs = cluster.client(), repairs_of(cluster)
    emptied = cluster.bookies[1]

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(writer, list(cluster.bookies), 30)
        emptied.entries[ledger.id].clear()
        return await repairs.restore(ledger.id, emptied)

    metadata = cluster.wait(scenario())
    assert metadata.last_fragment.ensemble[1] == emptied.bookie_id
    assert holders_missing(cluster, 0, metadata) == []


def test_nobody_left_to_take_the_copies_is_told_with_names() -> None:
    cluster = FakeCluster(3)
    writer, repairs = cluster.client(), repairs_of(cluster)
    lost = cluster.bookies[1]

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 30)
        lost.leave()
        with pytest.raises(NotEnoughBookies, match=f"no bookie is left.*{lost.bookie_id}.*start more bookies"):
            await repairs.restore(ledger.id, lost)

    cluster.wait(scenario())


def test_a_bookie_that_did_not_take_its_own_copies_is_named_and_no_new_one_is_demanded() -> None:
    """While a bookie finds out what it lost it may refuse; a moment later it takes them."""
    cluster = FakeCluster(2)
    writer, repairs = cluster.client(), repairs_of(cluster)
    lost = cluster.bookies[1]

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 30)
        lost.entries.clear()
        lost.rule = lambda request: Status.IO_ERROR if is_add(request) else None
        with pytest.raises(
            NotEnoughBookies, match=f"{lost.bookie_id} did not take its copies anew this time"
        ) as raised:
            await repairs.restore(ledger.id, lost)
        assert "start more bookies" not in str(raised.value)
        lost.rule = lambda request: None
        await repairs.restore(ledger.id, lost)
        assert lost.payload_count(ledger.id) == 30

    cluster.wait(scenario())


def test_no_replacement_is_a_member_already() -> None:
    """I-10: the chosen bookie becomes a member by another hand while it gets its copies."""
    cluster = FakeCluster(5)
    *members, spare, other = cluster.bookies
    other.rule = lambda request: Status.READ_ONLY if is_add(request) else None
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, members, 10)
        members[0].leave()
        access, current = await repairs.look(ledger.id)
        fragment = fragments_of(current.value)[0]
        there = dataclasses.replace(
            current.value.fragments[0],
            ensemble=(members[0].bookie_id, members[1].bookie_id, spare.bookie_id),
        )
        await repairs.client.store.ledgers.write(
            ledger.id, dataclasses.replace(current.value, fragments=(there,)), current.version
        )
        with pytest.raises(ReplicationFailed, match="became a member by another hand"):
            await repairs.restorer.restore(access, current, fragment, {0: members[0].bookie_id})

    cluster.wait(scenario())


def test_a_place_that_another_worker_restored_is_left_alone() -> None:
    """I-75: the change is decided anew on what the store has."""
    cluster = FakeCluster(6)
    *members, one, two, three = cluster.bookies
    writer = cluster.client()
    ours, theirs = repairs_of(cluster), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, members, 10)
        members[0].leave()
        access, current = await ours.look(ledger.id)
        fragment = fragments_of(current.value)[0]
        done = await theirs.restore(ledger.id, members[0])
        after = await ours.restorer.restore(access, current, fragment, {0: members[0].bookie_id})
        assert after.value == done
        assert done.last_fragment.ensemble[0] in {b.bookie_id for b in (one, two, three)}

    cluster.wait(scenario())


def test_closed_fragments_of_an_open_ledger_are_restored_and_its_writer_goes_on() -> None:
    """I-74, I-11: the writer meets the change at its next one, and keeps it."""
    cluster = FakeCluster(6)
    one, two, lost, *spares = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, [one, two, lost], 40, close=False)
        lost.leave()
        await ledger.append_many(payloads(40))
        assert len(ledger.metadata.fragments) == 2
        metadata = await repairs.restore(ledger.id, lost)
        assert not metadata.is_closed
        assert all(lost.bookie_id not in fragment.ensemble for fragment in metadata.fragments)
        first = fragments_of(metadata)[0]
        copies = cluster.by_id(first.ensemble[2]).entries[ledger.id]
        # Nothing above the end of the fragment is known to be confirmed by whoever reads these copies (I-07).
        assert {lac_of(copies[entry_id]) for entry_id in range(first.last_entry_id + 1)} == {first.last_entry_id}
        assert ledger.id not in one.fenced
        two.leave()
        await ledger.append_many(payloads(20))
        await ledger.close()
        final = await repairs.client.metadata(ledger.id)
        assert final.last_entry_id == 99
        assert final.fragments[0].ensemble == first.ensemble
        assert len(spares) == 3

    cluster.wait(scenario())


def test_the_last_fragment_of_an_open_ledger_is_never_copied() -> None:
    """I-74. Mutant: agreed=True."""
    cluster = FakeCluster(4)
    *members, _spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, members, 10, close=False)
        access, current = await repairs.look(ledger.id)
        fragment = fragments_of(current.value, 9)[0]
        with pytest.raises(AssertionError, match="I-74"):
            await repairs.restorer.restore(access, current, fragment, {0: members[0].bookie_id})

    cluster.wait(scenario())


def test_a_ledger_deleted_while_it_is_copied_ends_the_work_quietly() -> None:
    """I-78."""
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, members, 10)
        members[0].leave()

        def rule(request: Any) -> object:
            if is_add(request):
                writer.delete(ledger.id)
            return None

        spare.rule = rule
        with pytest.raises(NoSuchLedger):
            await repairs.restore(ledger.id, members[0])

    cluster.wait(scenario())


def test_a_ledger_of_an_old_format_is_copied_with_the_configured_password() -> None:
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    settings = ClientSettings(password=b"configured", digest_type=DigestType.MAC)
    writer, repairs = cluster.client(settings), Repairs(cluster, cluster.client(settings))

    async def scenario() -> None:
        ledger = await write_ledger(
            writer, members, 10, digest=DigestType.MAC, password=b"configured", metadata_version=1
        )
        assert (await repairs.look(ledger.id))[1].value.password is None
        members[0].leave()
        await repairs.restore(ledger.id, members[0])
        assert spare.keys[ledger.id] == members[1].keys[ledger.id]
        codec = digest_of(DigestType.MAC, b"configured")
        assert None not in codec.verify(ledger.id, list(spare.entries[0]), list(spare.entries[0].values()))

    cluster.wait(scenario())


def test_entries_and_bytes_in_flight_stay_within_their_bounds_over_many_ledgers() -> None:
    """I-14, and many ledgers go at once."""
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    writer = cluster.client()
    repairs = repairs_of(cluster, entries_max=100, bytes_max=8000)
    seen: list[tuple[int, int]] = []

    def rule(request: Any) -> object:
        seen.append((repairs.flow.entries, repairs.flow.bytes))
        return None

    async def scenario() -> None:
        ids = [(await write_ledger(writer, members, 25)).id for _ in range(40)]
        members[0].leave()
        spare.rule = rule
        works = [Deferred.fromCoroutine(repairs.restore(ledger_id, members[0])) for ledger_id in ids]
        for work in works:
            await work

    cluster.wait(scenario())
    assert max(entries for entries, _ in seen) > 25  # of more than one ledger
    assert max(entries for entries, _ in seen) <= 100
    assert max(size for _, size in seen) <= 8000
    assert (repairs.flow.entries, repairs.flow.bytes) == (0, 0)
    assert repairs.tally.entries_written == 40 * 25


def test_a_rate_in_bytes_is_kept() -> None:
    """replicationRateByBytes, with what may go at once at the beginning."""
    cluster = FakeCluster(4)
    *members, _spare = cluster.bookies
    writer = cluster.client()
    repairs = repairs_of(cluster, bytes_per_s=1000)

    async def scenario() -> tuple[float, int]:
        ledger = await write_ledger(writer, members, 300)
        members[0].leave()
        began = cluster.clock.seconds()
        await repairs.restore(ledger.id, members[0])
        return cluster.clock.seconds() - began, repairs.tally.bytes_written

    took, size = cluster.wait(scenario())
    assert took >= size / 1000 - 0.6


def test_a_lost_member_that_serves_all_the_same_is_the_last_that_is_asked() -> None:
    cluster = FakeCluster(4)
    one, two, doubtful, _spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, [one, two, doubtful], 20)
        for bookie in (one, two):
            del bookie.entries[ledger.id][EntryId(5)]
        doubtful.requests.clear()
        await repairs.restore(ledger.id, doubtful)
        asked = [request for request in doubtful.requests if isinstance(request, messages.ReadBatch)]
        assert [list(request.entry_ids) for request in asked] == [[5]]

    cluster.wait(scenario())


def held_by(bookie: FakeBookie, ledger_id: int) -> list[int]:
    return sorted(bookie.entries.get(ledger_id, {}))


def test_copies_of_some_ranges_are_written_anew_in_place() -> None:
    cluster = FakeCluster(3)
    writer, repairs = cluster.client(), repairs_of(cluster)
    bad = cluster.bookies[2]

    async def scenario() -> None:
        ledger = await write_ledger(writer, list(cluster.bookies), 30, write_quorum=2)
        stored = held_by(bad, ledger.id)
        for entry_id in stored:
            if 4 <= entry_id <= 9 or entry_id >= 25:
                bad.entries[ledger.id][entry_id] = b"damage"
        access, current = await repairs.look(ledger.id)
        fragment = fragments_of(current.value)[0]
        bad.requests.clear()
        await repairs.restorer.rewrite(access, current.value, fragment, 2, ((4, 9), (25, 99)))
        written = sorted(entry_id for request in bad.requests if is_add(request) for entry_id in request.entry_ids)
        assert written == [entry_id for entry_id in stored if 4 <= entry_id <= 9 or entry_id >= 25]
        digest = digest_of(DigestType.CRC32C, PASSWORD)
        held = bad.entries[ledger.id]
        assert None not in digest.verify(ledger.id, list(held), list(held.values()))

    cluster.wait(scenario())


def test_the_metadata_is_not_changed_any_more_once_the_work_is_to_end() -> None:
    """I-66, I-77: between two tries the lock may be lost, and the new copies be collected as too many.

    Mutant: ask only before the first try.
    """
    cluster = FakeCluster(4)
    *members, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)
    ledgers = repairs.client.store.ledgers
    write = ledgers.write
    tries: list[int] = []

    def lost_once(*arguments: Any) -> Deferred[Any]:
        tries.append(1)
        return fail(MetadataOutcomeUnknown("no answer")) if len(tries) == 1 else write(*arguments)

    def go_on() -> None:
        if tries:
            raise WorkEnded("the session is over")

    async def scenario() -> None:
        ledger = await write_ledger(writer, members, 20)
        members[1].leave()
        access, current = await repairs.look(ledger.id)
        [fragment] = fragments_of(current.value)
        with mock.patch.object(ledgers, "write", lost_once), pytest.raises(WorkEnded):
            await repairs.restorer.restore(access, current, fragment, {1: members[1].bookie_id}, go_on)
        assert len(spare.entries[ledger.id]) == 20
        assert (await writer.metadata(ledger.id)) == current.value

    cluster.wait(scenario())
    assert tries == [1]


# --- a target that holds entries of another ledger of the id --------------------------------------------------------


def _leave_entries(cluster: FakeCluster, stale: FakeBookie, ledger_id: int, count: int, password: bytes) -> None:
    """Store entries of an earlier ledger with this id on the bookie."""
    codec = digest_of(DigestType.CRC32C, password)
    bodies = codec.package_entries(
        ledger_id, range(count), -1, [10 * (each + 1) for each in range(count)], [b"other %d" % e for e in range(count)]
    )
    stale.entries[ledger_id] = dict(enumerate(bodies))


@pytest.mark.parametrize(("count", "password"), [(5, PASSWORD), (10, PASSWORD), (5, b"another")])
def test_a_bookie_with_entries_of_another_ledger_gets_no_copies(count: int, password: bytes) -> None:
    """Metadata was restored from an older copy, and the id was given out twice. Another bookie takes the copies."""
    cluster = FakeCluster(7)
    first, second, lost, *stale, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(writer, [first, second, lost], 10, password=PASSWORD)
        for bookie in stale:
            _leave_entries(cluster, bookie, ledger.id, count, password)
        before = [dict(bookie.entries[ledger.id]) for bookie in stale]
        lost.leave()
        metadata = await repairs.restore(ledger.id, lost)
        assert [bookie.entries[ledger.id] for bookie in stale] == before
        assert not any(is_add(request) for bookie in stale for request in bookie.requests)
        return metadata

    metadata = cluster.wait(scenario())
    assert metadata.last_fragment.ensemble == (first.bookie_id, second.bookie_id, spare.bookie_id)
    assert read_all(cluster, 0) == payloads(10)
    assert any(bookie.requests for bookie in stale), "none of them was ever chosen"


def test_without_another_bookie_the_error_names_the_occupied_bookie() -> None:
    cluster = FakeCluster(4)
    first, second, lost, stale = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> None:
        ledger = await write_ledger(writer, [first, second, lost], 10, password=PASSWORD)
        _leave_entries(cluster, stale, ledger.id, 5, PASSWORD)
        lost.leave()
        await repairs.restore(ledger.id, lost)

    with pytest.raises(NotEnoughBookies) as raised:
        cluster.wait(scenario())
    assert f"{stale.bookie_id} holds other entries under this id: `bookkeeper shell readledger -b" in str(raised.value)


def test_a_target_that_does_not_answer_is_not_asked_for_each_ledger() -> None:
    """Each repair would wait for it again."""
    cluster = FakeCluster(6)
    first, second, lost, *silent, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)
    for bookie in silent:
        bookie.rule = lambda request: SILENCE

    async def scenario() -> None:
        ledgers = [await write_ledger(writer, [first, second, lost], 10) for _ in range(5)]
        lost.leave()
        for ledger in ledgers:
            metadata = await repairs.restore(ledger.id, lost)
            assert spare.bookie_id in metadata.last_fragment.ensemble

    cluster.wait(scenario())
    assert any(bookie.requests for bookie in silent), "none of them was ever chosen"
    assert all(len(bookie.requests) <= 1 for bookie in silent)


def test_copies_of_the_ledger_itself_on_a_bookie_are_no_conflict() -> None:
    """An earlier repair was interrupted, or the bookie was a member once."""
    cluster = FakeCluster(4)
    first, second, lost, spare = cluster.bookies
    writer, repairs = cluster.client(), repairs_of(cluster)

    async def scenario() -> LedgerMetadata:
        ledger = await write_ledger(writer, [first, second, lost], 10, password=PASSWORD)
        spare.entries[ledger.id] = {each: first.entries[ledger.id][each] for each in range(4)}
        lost.leave()
        return await repairs.restore(ledger.id, lost)

    metadata = cluster.wait(scenario())
    assert spare.bookie_id in metadata.last_fragment.ensemble
    assert holders_missing(cluster, 0, metadata) == []
    assert read_all(cluster, 0) == payloads(10)
