"""The facts that Hadoop 2.7 checks in its TestBookKeeperJournalManager, checked here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, DeferredList

from bookkeeper.metadata.memory.session import Fault
from bookkeeper.model import DigestType
from journalmgr.errors import (
    JournalError,
    JournalUnavailable,
    SegmentAbsent,
    SegmentConflict,
    SegmentExists,
    SegmentUnreadable,
    StreamFailed,
    TxIdSeen,
)
from journalmgr.model import HADOOP_2_7, OPAQUE, UNKNOWN_LAYOUT, Segment, TxId
from journalmgr.replaying import replay
from journalmgr.verify import Problem, verify
from tests.simulation.journals import (
    NAMESPACE,
    ROOT,
    data_of,
    failure_of,
    journal_of,
    listed,
    new_journal,
    put,
    read_from,
    records,
    remove,
    version_of,
    write,
    write_segment,
)
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import SimulatedBookie, World
from tests.support.logged import logged


def test_a_start_leaves_the_znodes_that_hadoop_leaves() -> None:
    """The counters of a genuine run: the pointer's version rises by one per start and per finalise.

    Source: journalmgr/FORMATS.md 11.2.
    """
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> Any:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 9)
        writer = await journal.start_segment(TxId(10), HADOOP_2_7)
        return await world.clients[0].ledgers.metadata(writer.ledger_id)  # type: ignore[attr-defined]

    metadata = run(world, story())
    assert data_of(world, "/ledgers/inprogress_a") == b"dataLayoutVersion: -63\nledgerId: 1\nfirstTxId: 10\n"
    assert data_of(world, "/maxtxid") == b"txId: 10\n"
    assert data_of(world, "/CurrentInprogress") == (
        b'path: "/journal/ledgers/inprogress_a"\nhostname: "client1/127.0.0.1"\n'
    )
    assert (version_of(world, "/CurrentInprogress"), version_of(world, "/maxtxid")) == (3, 2)
    assert (version_of(world, "/ledgers/inprogress_a"), version_of(world, f"/ledgers/{listed(world)[0]}")) == (0, 0)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 2)
    assert (metadata.format_version, metadata.digest_type, metadata.password) == (2, DigestType.MAC, b"")


def test_a_gap_is_read_up_to_and_behind_it() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> list[int]:
        await journal.format(NAMESPACE)
        for first in (1, 101, 201):
            await write_segment(journal, first, first + 99)
        remove(world, "edits_000000000000000101_000000000000000200")
        return [len(await read_from(journal, first)) for first in (1, 101, 201)]

    assert run(world, story()) == [100, 0, 100]


def test_what_an_aborted_writer_flushed_is_read_in_progress() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> list[int]:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 100)
        writer = await journal.start_segment(TxId(101), OPAQUE)
        await write(writer, 101, 150)
        await writer.abort()
        return await read_from(journal, 1, in_progress_ok=True)

    assert run(world, story()) == list(range(1, 151))


def test_a_seen_txid_is_not_used_again_and_a_gap_is_allowed() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 100)
        for seen in (1, 100):
            error = await failure_of(journal.start_segment(TxId(seen), OPAQUE))
            assert isinstance(error, TxIdSeen)
            assert f"We've already seen {seen}" in str(error)
        await write_segment(journal, 101, 200)
        await write_segment(journal, 4000, 4001)

    run(world, story())
    assert len(listed(world)) == 3


def test_a_second_writer_is_refused_while_the_first_has_a_segment() -> None:
    world = started_world(3)
    first, second = new_journal(world), new_journal(world)

    async def story() -> None:
        await first.format(NAMESPACE)
        writer = await first.start_segment(TxId(1), OPAQUE)
        error = await failure_of(second.start_segment(TxId(1), OPAQUE))
        assert isinstance(error, TxIdSeen)
        error = await failure_of(second.start_segment(TxId(2), OPAQUE))
        assert isinstance(error, SegmentExists)
        assert "client1/127.0.0.1" in str(error)
        await write(writer, 1, 5)

    run(world, story())


@pytest.mark.parametrize("moment", range(12))
def test_of_two_starters_at_a_time_one_at_most_becomes_the_writer(moment: int) -> None:
    world = started_world(3)
    journals = [new_journal(world), new_journal(world)]

    async def start(journal: Any, delay_s: float) -> Any:
        await world.pause(delay_s)
        return await journal.start_segment(TxId(1), OPAQUE)

    async def story() -> list[bool]:
        await journals[0].format(NAMESPACE)
        starting = [
            Deferred.fromCoroutine(start(one, delay)) for one, delay in zip(journals, (0, 0.003 * moment), strict=True)
        ]
        return [started for started, _ in await DeferredList(starting, consumeErrors=True)]

    assert run(world, story()).count(True) == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"", "Invalid/Incomplete data in znode /journal/ledgers/inprogress_1"), (b"junk", "has no field named")],
)
def test_recovery_stops_at_a_damaged_record(data: bytes, says: str) -> None:
    world = started_world(3)
    first, second = new_journal(world), new_journal(world)

    async def story() -> None:
        await first.format(NAMESPACE)
        writer = await first.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 5)
        good = remove(world, "inprogress_1")
        put(world, "inprogress_1", data)
        error = await failure_of(second.recover_unfinalized())
        assert isinstance(error, SegmentUnreadable)
        assert says in str(error)
        assert await second.segments() == [Segment(TxId(1), None, UNKNOWN_LAYOUT, None, "inprogress_1")]
        remove(world, "inprogress_1")
        put(world, "inprogress_1", good)
        await second.recover_unfinalized()
        assert await read_from(second, 1) == [1, 2, 3, 4, 5]

    run(world, story())


BAD_RECORDS = (b"", b"junk", b"\xff\xfe\x00", b"ledgerId: 1", b'ledgerId: "x"', b"-64;1;x")
"""Empty, random bytes, truncated, of another type, with fields of another version."""


@pytest.mark.parametrize("data", BAD_RECORDS)
def test_an_unreadable_segment_record_affects_only_its_own_transactions(data: bytes) -> None:
    """The segment is listed by its name. A read returns the segments before it, then fails with the reason. Segments
    behind it are read, written, followed and purged. A stray, which is no segment, has no effect.
    """
    world = started_world(3)
    first, second = new_journal(world), new_journal(world)

    async def story() -> None:
        await first.format(NAMESPACE)
        for begin in (1, 11, 21, 31):
            await write_segment(first, begin, begin + 9)
        bad = "edits_000000000000000011_000000000000000020"
        good = remove(world, bad)
        put(world, bad, data)
        for stray in ("stray", "inprogress_zz", "edits_1"):
            put(world, stray, data)
        path = f"/journal/ledgers/{bad}"
        with logged() as lines:
            for _ in range(3):
                segments = await second.segments()
        assert [(each.first_txid, each.layout_version == UNKNOWN_LAYOUT) for each in segments] == [
            (1, False),
            (11, True),
            (21, False),
            (31, False),
        ]
        for name in (bad, "stray", "inprogress_zz", "edits_1"):
            assert sum(f"/journal/ledgers/{name}: " in line for line in lines) == 1
        assert await second.last_txid_seen() == 40
        found: list[int] = []

        async def read(from_txid: int) -> None:
            async for batch in replay(second, TxId(from_txid)):
                found.extend(record.txid for record in batch.records)

        error = await failure_of(read(1))
        assert isinstance(error, SegmentUnreadable)
        assert path in str(error)
        assert found == list(range(1, 11)), "segments before it are read"
        found.clear()
        await read(21)
        assert found == list(range(21, 41))
        report = await verify(second)
        assert [finding.segment for finding in report.findings if finding.problem is Problem.UNREADABLE] == [
            segments[1]
        ]
        tail = second.tail(TxId(21))
        assert (await tail.next()).records[0].txid == 21
        await tail.stop()
        assert isinstance(await failure_of(second.tail(TxId(15)).next()), SegmentUnreadable)
        await write_segment(second, 41, 45)
        error = await failure_of(second.purge_older_than(TxId(31)))
        assert path in str(error)
        assert [each.first_txid for each in await second.segments()] == [11, 31, 41], "the others are purged"
        remove(world, bad)
        put(world, bad, good)
        assert await read_from(second, 11) == list(range(11, 21))

    run(world, story())


def test_a_segment_with_an_unreadable_twin_in_progress_is_not_purged() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        for begin in (1, 11):
            await write_segment(journal, begin, begin + 9)
        put(world, "inprogress_1", b"junk")
        await failure_of(journal.purge_older_than(TxId(21)))
        assert listed(world) == ["edits_000000000000000001_000000000000000010", "inprogress_1"]

    run(world, story())


def test_an_empty_segment_goes_with_its_ledger_and_its_txid_comes_back() -> None:
    world = started_world(3)
    first, second = new_journal(world), new_journal(world)

    async def story() -> None:
        await first.format(NAMESPACE)
        await write_segment(first, 1, 100)
        writer = await first.start_segment(TxId(101), OPAQUE)
        await writer.close()
        await first.close()
        assert await second.recover_unfinalized() == []
        assert data_of(world, "/maxtxid") == b"txId: 100\n"
        assert data_of(world, "/CurrentInprogress") is None
        ids = [found async for batch in world.clients[1].ledgers.ids() for found in batch]
        assert len(ids) == 1
        await write_segment(second, 101, 110)

    run(world, story())


def test_recovery_of_a_segment_that_was_finalised_already_succeeds() -> None:
    """As a crash of Hadoop between its two steps leaves it."""
    world = started_world(3)
    journal, other = new_journal(world), new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 100)
        data = remove(world, "inprogress_1")
        put(world, "inprogress_1", data)
        await journal.finalize_segment(TxId(1), TxId(100))
        put(world, "inprogress_1", data)
        assert [segment.last_txid for segment in await other.segments()] == [100]
        assert await other.purge_older_than(TxId(200)) == []
        [segment] = await other.recover_unfinalized()
        assert segment.last_txid == 100

    run(world, story())
    assert listed(world) == ["edits_000000000000000001_000000000000000100"]


def test_another_record_of_the_same_name_is_a_conflict() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 9)
        put(
            world,
            "edits_000000000000000001_000000000000000009",
            b"dataLayoutVersion: 1\nledgerId: 77\nfirstTxId: 1\nlastTxId: 9",
        )
        error = await failure_of(journal.finalize_segment(TxId(1), TxId(9)))
        assert isinstance(error, SegmentConflict)
        assert "already exists but data doesn't match" in str(error)

    run(world, story())


def test_a_segment_whose_ledger_is_gone_is_unreadable_and_not_empty() -> None:
    world = started_world(3)
    journal, other = new_journal(world), new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 9)
        writer = await journal.start_segment(TxId(10), OPAQUE)
        await write(writer, 10, 12)
        for ledger_id in (0, 1):
            await world.clients[0].ledgers.delete(ledger_id)
        error = await failure_of(other.recover_unfinalized())
        assert isinstance(error, SegmentUnreadable)
        assert "Exception opening ledger for 10..in progress" in str(error)
        error = await failure_of(other.select_input_streams(TxId(1)))
        assert isinstance(error, SegmentUnreadable)
        assert "Could not open ledger for 1..9" in str(error)

    run(world, story())
    assert len(listed(world)) == 2


def test_a_record_that_vanishes_while_it_is_read_is_left_out() -> None:
    """HDFS-3441."""
    world = started_world(3)
    journal = new_journal(world)
    tree = world.clients[0].store.tree
    read = tree.read

    def read_late(path: str, *rest: Any) -> Any:
        if path.endswith("/inprogress_1"):
            remove(world, "inprogress_1")
            tree.read = read  # type: ignore[method-assign]
        return read(path, *rest)

    async def story() -> None:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 9)
        put(world, "inprogress_1", b"dataLayoutVersion: 1\nledgerId: 0\nfirstTxId: 1\n")
        tree.read = read_late  # type: ignore[method-assign,assignment]
        assert [segment.last_txid for segment in await journal.segments()] == [9]

    run(world, story())
    assert len(listed(world)) == 1


def _member(world: World, writer: Any) -> SimulatedBookie:
    ensemble = writer._handle.metadata.last_fragment.ensemble  # noqa: SLF001
    return next(bookie for bookie in world.bookies if bookie.bookie_id == ensemble[0])


def test_without_a_spare_bookie_a_flush_fails_for_good_and_recovery_goes_on() -> None:
    """All bookies are needed and one dies (I-82)."""
    world = started_world(4)
    journal, other = (new_journal(world, ensemble=4, write_quorum=4) for _ in range(2))

    async def story() -> None:
        await journal.format(NAMESPACE)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 10)
        _member(world, writer).cut_power()
        writer.write(records(11, 20))
        writer.set_ready_to_flush()
        error = await failure_of(writer.flush())
        assert isinstance(error, StreamFailed)
        assert "Failed to write to bookkeeper" in str(error)
        with pytest.raises(StreamFailed, match="Trying to write to an errored stream"):
            writer.write(records(21, 21))
        for later in (await failure_of(writer.flush()), await failure_of(writer.close())):
            assert isinstance(later, StreamFailed)
            assert later is not error
            assert str(later) == str(error)
        world.add_bookie()
        await world.pause(1.0)
        [segment] = await other.recover_unfinalized()
        assert segment.last_txid in (10, 20)
        await write_segment(other, segment.last_txid + 1, 30)
        assert await read_from(other, 1) == list(range(1, 31))

    run(world, story())


def test_with_a_spare_bookie_writing_goes_on() -> None:
    world = started_world(5)
    journal = new_journal(world, ensemble=4, write_quorum=4)

    async def story() -> list[int]:
        await journal.format(NAMESPACE)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 10)
        _member(world, writer).cut_power()
        await write(writer, 11, 20)
        await journal.finalize_segment(TxId(1), TxId(20))
        return await read_from(journal, 1)

    assert run(world, story()) == list(range(1, 21))


def _with_a_silent_bookie(add_timeout_s: float, ack_quorum: int) -> tuple[World, Any]:
    """Four bookies, one of which answers a minute late; a journal that wants its entries on all four."""
    world = started_world(4)
    world.settings = replace(world.settings, add_timeout_s=add_timeout_s)
    return world, new_journal(world, ensemble=4, write_quorum=4, ack_quorum=ack_quorum)


async def _write_beside_it(world: World, journal: Any) -> None:
    await journal.format(NAMESPACE)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    world.network.make_slow("client1", world.bookies[0].name, 60.0)
    await write(writer, 1, 100)
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(100))


def test_an_ack_quorum_below_the_write_quorum_bears_a_silent_bookie() -> None:
    world, journal = _with_a_silent_bookie(3600.0, ack_quorum=3)

    async def story() -> list[int]:
        await _write_beside_it(world, journal)
        return await read_from(journal, 1)

    assert run(world, story(), seconds=30.0) == list(range(1, 101))


def test_an_ack_quorum_of_all_does_not() -> None:
    world, journal = _with_a_silent_bookie(2.0, ack_quorum=4)

    async def story() -> BaseException:
        return await failure_of(_write_beside_it(world, journal))

    assert isinstance(run(world, story(), seconds=30.0), StreamFailed)


def test_of_many_formats_at_a_time_one_at_least_succeeds() -> None:
    world = started_world(3)
    journals = [new_journal(world) for _ in range(12)]

    async def story() -> None:
        await journals[0].format(NAMESPACE)
        for first in (1, 11, 21):
            await write_segment(journals[0], first, first + 9)
        formatting = [journal.format(NAMESPACE, force=True) for journal in journals]
        results = await DeferredList(formatting, consumeErrors=True)
        errors = [failure.value for done, failure in results if not done]
        assert len(errors) < len(journals)
        assert all(isinstance(error, JournalError) for error in errors), errors
        survivor = new_journal(world)
        await survivor.format(NAMESPACE, force=True)
        assert await survivor.segments() == []
        await write_segment(survivor, 1, 3)
        ids = [found async for batch in world.clients[0].ledgers.ids() for found in batch]
        assert len(ids) == 1

    run(world, story())


def test_finalising_what_holds_less_is_refused_and_recovery_finds_the_end() -> None:
    """I-83: by the writer, whose records were not flushed, and by somebody else."""
    world = started_world(3)
    journal, other = new_journal(world), new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 5)
        world.clients[0].crash()
        for last in (4, 6):
            error = await failure_of(other.finalize_segment(TxId(1), TxId(last)))
            assert isinstance(error, SegmentConflict)
            assert "ends with txid 5" in str(error)
        assert (await other.finalize_segment(TxId(1), TxId(5))).last_txid == 5
        assert isinstance(await failure_of(other.finalize_segment(TxId(6), TxId(9))), SegmentAbsent)

    run(world, story())


def test_a_close_error_ends_the_finalisation_and_repeating_it_fixes_the_end() -> None:
    """I-83."""
    world = started_world(3)
    journal = new_journal(world)
    client = world.clients[0]

    async def story() -> None:
        await journal.format(NAMESPACE)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 5)
        client.store.cut_connection(for_s=6.0)
        error = await failure_of(journal.finalize_segment(TxId(1), TxId(5)))
        assert isinstance(error, JournalUnavailable)
        assert listed(world) == ["inprogress_1"]
        await world.pause(8.0)
        assert (await journal.finalize_segment(TxId(1), TxId(5))).last_txid == 5
        assert await read_from(journal, 1) == [1, 2, 3, 4, 5]

    run(world, story())


@pytest.mark.parametrize(
    "fault", [Fault.REPLY_LOST, Fault.FAILED_BEFORE, Fault.SESSION_LOST], ids=lambda one: one.value
)
@pytest.mark.parametrize("operation", ["create", "write", "delete", "transact", "read", "sync"])
def test_a_lost_answer_or_session_costs_time_and_nothing_else(operation: str, fault: Fault) -> None:
    """I-16, at the first such call of each phase of a segment's life, and at every call on the journal's own znodes."""
    world = started_world(3)
    journal = new_journal(world)

    def force() -> None:
        for path_part in ("/maxtxid", "/CurrentInprogress", "/inprogress_", "/deleting", ""):
            world.metadata_faults.force(fault, operation, path_part)

    async def story() -> list[int]:
        await journal.format(NAMESPACE)
        force()
        await write_segment(journal, 1, 10)
        force()
        writer = await journal.start_segment(TxId(11), OPAQUE)
        await write(writer, 11, 20)
        force()
        other = new_journal(world)
        [segment] = await other.recover_unfinalized()
        assert segment.last_txid == 20
        force()
        assert len(await other.purge_older_than(TxId(11))) == 1
        return await read_from(other, 11)

    assert run(world, story(), seconds=120.0) == list(range(11, 21))
    assert world.metadata_faults.counts[fault.value] > 0
    assert listed(world) == ["edits_000000000000000011_000000000000000020"]
    assert not world.metadata.znodes.leader.children(f"{ROOT}/deleting", None)


def test_an_interrupted_purge_is_finished_by_the_next_and_a_strangers_ledger_is_left_alone() -> None:
    """I-86."""
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> None:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 9)
        await write_segment(journal, 10, 19)
        stranger = await world.clients[0].ledgers.create(password=b"")
        doomed = world.add_client()
        tree = doomed.store.tree
        delete = tree.delete

        def delete_and_die(path: str, version: int) -> Any:
            deleting = delete(path, version)
            deleting.addCallback(lambda _: doomed.crash())
            return deleting if not path.startswith(f"{ROOT}/ledgers") else Deferred()

        tree.delete = delete_and_die  # type: ignore[method-assign]
        journal_of(doomed).purge_older_than(TxId(10))
        await world.pause(1.0)
        assert listed(world) == ["edits_000000000000000010_000000000000000019"]
        assert 0 in await ids()
        assert await journal.purge_older_than(TxId(1)) == []
        assert await ids() == [1, stranger.ledger_id]
        assert not world.metadata.znodes.leader.children(f"{ROOT}/deleting", None)

    async def ids() -> list[int]:
        return [found async for batch in world.clients[0].ledgers.ids() for found in batch]

    run(world, story())


def test_an_upgrade_can_be_rolled_back_or_finalised() -> None:
    world = started_world(3)
    journal = new_journal(world)
    newer = type(NAMESPACE)(7, "CID-7", "BP-7", ctime=99, layout_version=-64)

    async def story() -> None:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 9)
        assert not await journal.can_roll_back()
        for unprepared in (journal.upgrade(newer), journal.roll_back()):
            assert isinstance(await failure_of(unprepared), JournalError)
        await journal.pre_upgrade()
        await journal.pre_upgrade()
        await journal.upgrade(newer)
        await journal.upgrade(newer)
        assert await journal.namespace() == newer
        await write_segment(journal, 10, 19)
        await journal.start_segment(TxId(20), OPAQUE)
        assert isinstance(await failure_of(journal.pre_upgrade()), SegmentExists)
        assert await journal.can_roll_back()
        await journal.roll_back()
        assert await journal.namespace() == NAMESPACE
        assert not await journal.can_roll_back()
        assert await read_from(journal, 1) == list(range(1, 10))
        await write_segment(journal, 10, 12)
        await journal.pre_upgrade()
        await journal.upgrade(newer)
        await journal.finalize_upgrade()
        await journal.finalize_upgrade()
        assert not await journal.can_roll_back()
        assert await journal.namespace() == newer
        assert await read_from(journal, 1) == list(range(1, 13))

    run(world, story())
    assert len(listed(world)) == 2
