"""The worker over fake bookies and the metadata store in memory: marks, locks, open ledgers, trouble, sessions."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.config import ClientSettings
from bookkeeper.errors import LedgerClosed, LedgerFencedOff
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.memory.store import Fault, MemoryFaults, MemoryMetadataStore
from bookkeeper.metadata.tree import operation_size
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.metrics import Metrics
from bookkeeper.model import BookieId, DigestType, EntryId, LedgerId, LedgerMetadata, Status
from bookkeeper.replication.copies.fragments import fragments_of
from bookkeeper.replication.repair.failed_repairs import TroubleState
from bookkeeper.replication.repair.settings import WorkerSettings
from bookkeeper.replication.repair.worker import IDLE_S, ReplicationWorker
from bookkeeper.wire import messages
from bookkeeper.wire.digest import digest_of
from tests.support.damaged_ledgers import holders_missing, payloads, write_ledger
from tests.support.fake_bookie import HOLD, SILENCE, FakeBookie, FakeCluster
from tests.support.simulated_clock import SimulatedProcess

GRACE_S = 30.0
CLIENT = ClientSettings(add_timeout_s=2.0, read_timeout_s=2.0, explicit_lac_interval_s=0.0)


class Scene:
    """A cluster, a writer, a store of the test's own, and workers."""

    def __init__(self, bookie_count: int) -> None:
        self.cluster = FakeCluster(bookie_count)
        self.writer = self.cluster.client()
        process = SimulatedProcess("test", self.cluster.clock)
        self.store = MemoryMetadataStore(self.cluster.metadata, process.clock, random.Random("test"))
        self.tree = self.store.underreplication
        self.metrics = Metrics()

    def worker(self, *, faults: MemoryFaults | None = None, **settings: Any) -> ReplicationWorker:
        client = self.cluster.client(CLIENT, faults=faults)
        worker = ReplicationWorker(client, WorkerSettings(**settings), "test-host", self.metrics)
        worker.start()
        return worker

    async def mark(self, ledger_ids: Iterable[int], *missing: FakeBookie) -> None:
        for ledger_id in ledger_ids:
            await self.tree.mark(LedgerId(ledger_id), [bookie.bookie_id for bookie in missing], now_ms=1)

    async def marks(self) -> list[LedgerId]:
        return [ledger_id async for batch in self.tree.ids(BadRecords()) for ledger_id in batch]

    def marked(self) -> list[LedgerId]:
        marks: list[LedgerId] = self.cluster.wait(self.marks())
        return marks

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        metadata: LedgerMetadata = self.cluster.wait(self.writer.metadata(ledger_id))
        return metadata

    def await_no_marks(self, seconds: float = 120.0) -> None:
        for _ in range(int(seconds)):
            if not self.marked():
                return
            self.cluster.run(1.0)
        raise AssertionError(f"still marked: {self.marked()}")

    def lose_second_copy(self, members: list[FakeBookie], entry_count: int) -> int:
        """A ledger on `members`, the second of which leaves; it is marked."""

        async def damage() -> int:
            ledger = await write_ledger(self.writer, members, entry_count)
            members[1].leave()
            await self.mark([ledger.id], members[1])
            return int(ledger.id)

        ledger_id: int = self.cluster.wait(damage())
        return ledger_id

    def locked(self, ledger_id: int) -> bool:
        return self.cluster.wait(self.tree.lock_holder(LedgerId(ledger_id))) is not None


def is_add(request: Any) -> bool:
    return isinstance(request, messages.AddBatch)


def test_strays_among_marks_and_reports_are_passed_over_and_named_once() -> None:
    scene = Scene(4)
    *members, _ = scene.cluster.bookies
    strays = [f"/ledgers/underreplication/{each}" for each in ("ledgers/x", "ledgers/0000/zz", "badcopies/x")]

    async def damage() -> tuple[int, int]:
        lost = (await write_ledger(scene.writer, members, 20, write_quorum=2)).id
        bad = (await write_ledger(scene.writer, members, 20, write_quorum=2)).id
        members[1].leave()
        await scene.mark([lost], members[1])
        reported = BadRange(members[0].bookie_id, EntryId(0), EntryId(1))
        await scene.tree.report_bad_copies(bad, [reported])
        for path in strays:
            await scene.store.tree.create(path, b"")
        return lost, bad

    lost, bad = scene.cluster.wait(damage())
    with capturedLogs() as events:
        worker = scene.worker()
        scene.await_no_marks(20)
        scene.cluster.run(3 * IDLE_S)
    assert scene.cluster.wait(scene.tree.bad_copies(bad)) is None
    assert holders_missing(scene.cluster, lost, scene.metadata(lost)) == []
    assert sorted(each.path for each in worker.bad_records.named) == sorted(strays)
    assert scene.metrics.value("replication_replication_worker_BAD_RECORDS") == len(strays)
    logged = [formatEvent(event) for event in events if event["log_level"].name == "error"]
    assert sorted(line.partition(": ")[0] for line in logged) == sorted(strays)


def test_marked_ledgers_are_repaired_and_their_marks_and_locks_go() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def damage() -> list[int]:
        ids = [(await write_ledger(scene.writer, members, 20, write_quorum=2)).id for _ in range(30)]
        members[1].leave()
        await scene.mark(ids, members[1])
        return ids

    ids = scene.cluster.wait(damage())
    worker = scene.worker()
    scene.await_no_marks(20)
    for ledger_id in ids:
        metadata = scene.metadata(ledger_id)
        assert metadata.last_fragment.ensemble[1] == spare.bookie_id
        assert holders_missing(scene.cluster, ledger_id, metadata) == []
        assert not scene.locked(ledger_id)
    assert worker.ledgers_repaired == 30
    assert scene.metrics.value("replication_replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED") == 30
    assert scene.metrics.value("replication_replication_worker_NUM_ENTRIES_WRITTEN") == worker.tally.entries_written


def told(events: list[Any]) -> list[str]:
    return [formatEvent(event) for event in events if event["log_level"].name != "debug"]


def test_repairs_that_go_well_are_a_line_each_wave_and_one_more_when_the_worker_stops() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def write() -> list[int]:
        ids = [(await write_ledger(scene.writer, members, 20, write_quorum=2)).id for _ in range(31)]
        members[1].leave()
        await scene.mark(ids[:30], members[1])
        return ids

    with capturedLogs() as events:
        ids = scene.cluster.wait(write())
        worker = scene.worker()
        scene.await_no_marks(20)
        scene.cluster.run(5.0)
        (line,) = [each for each in told(list(events)) if "repaired" in each]
        assert re.fullmatch(
            r"30 ledgers were repaired within \d+\.\d s, ledger \d+ first: 4\d\d entries, \d+ bytes copied", line
        )
        scene.cluster.wait(scene.mark(ids[30:], members[1]))
        scene.await_no_marks(70)
        scene.cluster.wait(worker.stop())
    last = [each for each in told(list(events)) if "repaired" in each][-1]
    assert re.match(rf"Ledger {ids[30]} was repaired within \d\.\d s: 1\d entries, ", last), last
    assert spare.entries


def test_a_small_ledger_costs_the_metadata_service_two_requests_and_a_share_of_two() -> None:
    """To read its mark, to read its metadata. Together with others: its lock; its new member, and mark and lock go."""
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies
    count = 40

    async def write() -> list[int]:
        return [(await write_ledger(scene.writer, members, 5, write_quorum=2)).id for _ in range(count + 1)]

    first, *ids = scene.cluster.wait(write())
    members[1].leave()
    asked: Counter[str] = Counter()

    class CountedRequests(MemoryFaults):
        """No faults; it hears of every request."""

        def decide(self, random: random.Random, operation: str, path: str) -> Fault | None:
            asked[f"{operation} {re.sub(r'L[0-9]+|[0-9a-f]{4}(?=/)', 'N', path)}"] += 1
            return super().decide(random, operation, path)

    scene.worker(faults=CountedRequests(delay_max_s=0.001))
    for marked in ([first], ids):  # the first one finds the tree and the layout
        asked.clear()
        scene.cluster.wait(scene.mark(marked, members[1]))
        scene.await_no_marks(20)
    lock, mark = "/ledgers/underreplication/locks/urN", "/ledgers/underreplication/ledgers/N/N/N/N/urN"
    ledger = "/ledgers/00/N/N"
    each = {f"read {mark}", f"read {ledger}"}
    assert {request: times for request, times in asked.items() if times >= count / 2} == dict.fromkeys(each, count)
    for first in (lock, ledger):
        groups = sum(times for request, times in asked.items() if request.startswith(f"transact {first}"))
        assert 1 <= groups <= count / 4
    assert asked.total() < 2.5 * count + 60, asked


def test_marks_that_come_while_others_are_repaired_are_found_at_once() -> None:
    """News of marks come every 2 s at most; a worker that is done meanwhile looks by itself. Mutant: wait for news."""
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies

    async def write() -> list[int]:
        return [(await write_ledger(scene.writer, members, 5, write_quorum=2)).id for _ in range(5)]

    ids = scene.cluster.wait(write())
    members[1].leave()
    scene.worker(faults=MemoryFaults(delay_max_s=0.001))
    scene.cluster.run(5.0)
    began = scene.cluster.clock.seconds()
    scene.cluster.wait(scene.mark(ids[:1], members[1]))
    while scene.marked():
        scene.cluster.run(0.05)
    for ledger_id in ids[1:]:
        scene.cluster.wait(scene.mark([ledger_id], members[1]))
        while scene.marked():
            scene.cluster.run(0.05)
    assert scene.cluster.clock.seconds() - began < 5.0


def test_a_mark_that_comes_later_is_seen() -> None:
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies
    scene.worker()
    scene.cluster.run(5.0)

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        members[1].leave()
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    scene.cluster.wait(damage())
    scene.await_no_marks(10)


def test_a_mark_without_a_loss_is_taken_away_and_nothing_is_copied() -> None:
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    before = scene.metadata(ledger_id)
    worker = scene.worker()
    scene.await_no_marks(10)
    assert scene.metadata(ledger_id) == before
    assert worker.tally.entries_written == 0


def test_of_a_bookie_that_is_said_to_lack_entries_all_are_looked_for() -> None:
    """Neither its first entry nor its last is missing. Mutant: trust the sample."""
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 40)
        del members[1].entries[ledger.id][17]
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    scene.worker()
    scene.await_no_marks(10)
    assert holders_missing(scene.cluster, ledger_id, scene.metadata(ledger_id)) == []


def test_a_mark_that_changed_during_the_repair_stays_and_the_second_loss_is_repaired_too() -> None:
    """I-76: report a second loss during the repair. Mutant: remove without the version."""
    scene = Scene(6)
    one, two, three, *spares = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, [one, two, three], 30)
        one.leave()
        await scene.mark([ledger.id], one)
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    for spare in spares:
        spare.rule = lambda request: HOLD if is_add(request) else None
    scene.worker()
    assert scene.cluster.clock.run_until(lambda: any(spare.held for spare in spares), seconds=30)

    async def second() -> None:
        del two.entries[ledger_id][3]
        await scene.mark([ledger_id], two)

    scene.cluster.wait(second())
    for spare in spares:
        spare.rule = lambda request: None
        spare.release()
    scene.await_no_marks(30)
    metadata = scene.metadata(ledger_id)
    assert one.bookie_id not in metadata.last_fragment.ensemble
    assert holders_missing(scene.cluster, ledger_id, metadata) == []


def test_a_locked_ledger_is_left_to_who_locked_it() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def damage() -> Any:
        ledger = await write_ledger(scene.writer, members, 20)
        members[1].leave()
        lock = await scene.tree.lock(ledger.id, "somebody", lambda: None)
        await scene.mark([ledger.id], members[1])
        return lock

    lock = scene.cluster.wait(damage())
    scene.worker()
    scene.cluster.run(30.0)
    assert not spare.entries
    scene.cluster.wait(lock.release())
    scene.await_no_marks(90)


def test_an_open_ledger_is_not_fenced_before_its_grace_period_is_over() -> None:
    """I-74: its bookie was lost for less than that; the writer goes on."""
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies

    async def damage() -> Any:
        ledger = await write_ledger(scene.writer, members, 20, close=False)
        members[1].leave()
        await scene.mark([ledger.id], members[1])
        return ledger

    ledger = scene.cluster.wait(damage())
    scene.worker(open_ledger_grace_s=GRACE_S)
    scene.cluster.run(GRACE_S - 5)
    assert scene.locked(ledger.id)
    members[1].start()
    scene.await_no_marks(30)
    assert not any(bookie.fenced for bookie in scene.cluster.bookies)
    assert scene.cluster.wait(ledger.append(b"goes on")) == 20


def test_an_open_ledger_is_recovered_and_copied_once_its_grace_period_is_over() -> None:
    """I-74: the writer is fenced, what was acknowledged is all there."""
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def damage() -> Any:
        ledger = await write_ledger(scene.writer, members, 20, close=False)
        members[1].leave()
        await scene.mark([ledger.id], members[1])
        return ledger

    ledger = scene.cluster.wait(damage())
    with capturedLogs() as events:
        scene.worker(open_ledger_grace_s=GRACE_S)
        scene.cluster.run(GRACE_S - 5)
        assert not any(bookie.fenced for bookie in scene.cluster.bookies)
        scene.await_no_marks(30)
        said = told(list(events))
    assert f"Ledger {ledger.id} was recovered: it is closed, its last entry is 19" in said
    assert not any("no entries" in line for line in said), "nobody looked yet, so nobody knows"
    metadata = scene.metadata(ledger.id)
    assert (metadata.is_closed, metadata.last_entry_id) == (True, 19)
    assert metadata.last_fragment.ensemble[1] == spare.bookie_id
    assert holders_missing(scene.cluster, ledger.id, metadata) == []
    with pytest.raises((LedgerFencedOff, LedgerClosed)):
        scene.cluster.wait(ledger.append(b"too late"))


def test_closed_fragments_of_an_open_ledger_are_copied_at_once_and_the_rest_needs_no_recovery() -> None:
    scene = Scene(5)
    *members, _one, _two = scene.cluster.bookies

    async def damage() -> Any:
        ledger = await write_ledger(scene.writer, members, 20, close=False)
        members[1].leave()
        await ledger.append_many(payloads(10))
        await scene.mark([ledger.id], members[1])
        return ledger

    ledger = scene.cluster.wait(damage())
    scene.worker(open_ledger_grace_s=GRACE_S)
    scene.await_no_marks(10)
    metadata = scene.metadata(ledger.id)
    assert not metadata.is_closed
    assert all(members[1].bookie_id not in fragment.ensemble for fragment in metadata.fragments)
    assert scene.cluster.wait(ledger.append(b"goes on")) == 30


@pytest.mark.parametrize("at", range(12))
def test_a_ledger_deleted_at_any_step_ends_quietly(at: int) -> None:
    """I-78: after the n-th request of the repair. The mark goes, nothing is in trouble."""
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies
    ledger_id = scene.lose_second_copy(members, 20)
    seen = 0

    def rule(request: Any) -> object:
        nonlocal seen
        if seen == at:
            scene.writer.delete(ledger_id).addErrback(lambda _: None)
        seen += 1
        return None

    for bookie in scene.cluster.bookies:
        bookie.rule = rule
    worker = scene.worker()
    scene.await_no_marks(30)
    assert list(worker.troubles) == []
    assert not scene.locked(ledger_id)


def test_a_ledger_without_a_readable_copy_is_unrepairable_kept_and_retried_ever_more_slowly() -> None:
    """I-79: all holders lost. Requests stay bounded, the reason is there to be seen, and it is told once."""
    scene = Scene(5)
    *members, spare, _other = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        for bookie in members:
            bookie.entries[ledger.id].pop(7)
        members[0].leave()
        await scene.mark([ledger.id], members[0])
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    before = scene.metadata(ledger_id)
    worker = scene.worker(failed_ledger_grace_s=32.0)
    scene.cluster.run(200.0)
    (trouble,) = worker.troubles
    assert trouble.state is TroubleState.UNREPAIRABLE
    assert "entry 7" in trouble.reason
    assert worker.troubles.unrepairable == 1
    assert scene.metrics.value("replication_replication_worker_LEDGERS_UNREPAIRABLE") == 1
    assert scene.marked() == [ledger_id]
    assert scene.metadata(ledger_id) == before
    requests = len(members[1].requests)
    scene.cluster.run(320.0)
    assert len(members[1].requests) - requests <= 10 * 8
    # A holder comes back with the entry: repaired after all.
    members[0].start()
    body = members[1].entries[ledger_id][8]
    digest = digest_of(DigestType.CRC32C, b"secret")
    members[0].entries[ledger_id][7] = digest.package_entry(ledger_id, 7, 6, len(body), payloads(20)[7])
    scene.await_no_marks(100)
    assert len(worker.troubles) == 0
    assert worker.troubles.unrepairable == 0
    assert spare is not None


def test_without_room_for_the_copies_the_lock_is_kept_for_the_back_off() -> None:
    scene = Scene(3)
    lost = scene.cluster.bookies[1]

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, list(scene.cluster.bookies), 20)
        lost.leave()
        await scene.mark([ledger.id], lost)
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    worker = scene.worker(failed_ledger_grace_s=320.0)
    scene.cluster.run(5.0)
    (trouble,) = worker.troubles
    assert trouble.state is TroubleState.WAITING
    assert "start more bookies" in trouble.reason
    assert scene.locked(ledger_id)
    scene.cluster.bookies.append(FakeBookie(scene.cluster, "b9"))
    scene.await_no_marks(120)
    assert not scene.locked(ledger_id)


def nobody_left(scene: Scene) -> tuple[ReplicationWorker, FakeBookie]:
    """A ledger whose copies nobody can take; its worker waits for 100 s. The lost bookie."""
    lost = scene.cluster.bookies[1]
    scene.lose_second_copy(list(scene.cluster.bookies), 20)
    worker = scene.worker(failed_ledger_grace_s=3200.0)
    scene.cluster.run(5.0)
    assert [trouble.failures for trouble in worker.troubles] == [1]
    return worker, lost


@pytest.mark.parametrize("back", [True, False])
def test_a_bookie_that_comes_ends_the_wait_of_ledgers_in_trouble(back: bool) -> None:
    """I-79: the one that was lost, or a new one. Mutant: do not watch the bookies."""
    scene = Scene(3)
    worker, lost = nobody_left(scene)
    if back:
        lost.start()
    else:
        scene.cluster.bookies.append(FakeBookie(scene.cluster, "b9"))
    scene.cluster.run(4.0)
    assert scene.marked() == []
    assert not list(worker.troubles)


def test_bookies_that_come_together_wake_everybody_once_and_one_that_goes_nobody() -> None:
    scene = Scene(3)
    worker, _ = nobody_left(scene)
    tries = "replication_replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER"
    before = scene.metrics.value(tries)
    newcomers = [FakeBookie(scene.cluster, name) for name in ("b8", "b9")]
    for bookie in newcomers:
        bookie.rule = lambda request: SILENCE
        scene.cluster.run(0.2)
    scene.cluster.run(30.0)
    assert scene.metrics.value(tries) == before + 1
    newcomers[0].leave()
    scene.cluster.run(10.0)
    assert scene.metrics.value(tries) == before + 1
    assert [trouble.failures for trouble in worker.troubles] == [2]


def test_a_bookie_that_gives_no_answer_is_waited_for_and_then_replaced() -> None:
    """I-77: a passing trouble is not a loss; one that stays is."""
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    members[1].rule = lambda request: SILENCE
    worker = scene.worker(failed_ledger_grace_s=64.0)
    scene.cluster.run(3.0)
    assert [trouble.failures for trouble in worker.troubles] == [1]
    assert not spare.entries
    scene.await_no_marks(200)
    assert spare.bookie_id in scene.metadata(ledger_id).last_fragment.ensemble


def test_a_repair_is_not_done_while_a_bookie_cannot_list_what_it_holds() -> None:
    """Its samples are good, and a damaged index page may hide that others are not. It lists them: then it is done."""
    scene = Scene(3)
    members = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    members[1].rule = lambda request: Status.IO_ERROR if isinstance(request, messages.ListEntries) else None
    worker = scene.worker(failed_ledger_grace_s=64.0)
    scene.cluster.run(1.0)
    (trouble,) = worker.troubles
    assert f"{members[1].bookie_id}: no verdict (it cannot list its entries: " in trouble.reason
    assert scene.marked() == [ledger_id]
    members[1].rule = lambda request: None
    scene.await_no_marks(20)
    assert not len(worker.troubles)


def test_a_bookie_that_never_lists_gets_its_copies_anew() -> None:
    scene = Scene(3)
    members = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    scene.cluster.wait(damage())
    added: list[Any] = []

    def rule(request: Any) -> Any:
        if is_add(request):
            added.extend(request.entry_ids)
        return Status.IO_ERROR if isinstance(request, messages.ListEntries) else None

    members[1].rule = rule
    scene.worker(failed_ledger_grace_s=64.0)
    scene.await_no_marks(60)
    assert sorted(added) == list(range(20))


def test_nothing_is_begun_while_auto_recovery_is_disabled_and_it_goes_on_when_enabled() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        members[1].leave()
        await scene.tree.disable()
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    scene.cluster.wait(damage())
    worker = scene.worker()
    scene.cluster.run(100.0)
    assert not worker.enabled
    assert not spare.entries
    scene.cluster.wait(scene.tree.enable())
    scene.await_no_marks(10)


def test_work_in_hand_ends_at_its_next_step_when_auto_recovery_is_disabled() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies
    ledger_id = scene.lose_second_copy(members, 20)
    before = scene.metadata(ledger_id)
    spare.rule = lambda request: HOLD if is_add(request) else None
    worker = scene.worker()
    assert scene.cluster.clock.run_until(lambda: bool(spare.held), seconds=30)
    scene.cluster.wait(scene.tree.disable())
    scene.cluster.run(0.5)
    spare.release()
    scene.cluster.run(5.0)
    assert scene.metadata(ledger_id) == before
    assert not scene.locked(ledger_id)
    assert list(worker.troubles) == []
    spare.rule = lambda request: None
    scene.cluster.wait(scene.tree.enable())
    scene.await_no_marks(10)


def test_a_long_fragment_is_left_in_the_middle_when_auto_recovery_is_disabled() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies
    ledger_id = scene.lose_second_copy(members, 400)
    before = scene.metadata(ledger_id)
    worker = scene.worker(batch_entries_max=10, entries_per_s=40)
    assert scene.cluster.clock.run_until(lambda: spare.payload_count(ledger_id) >= 40, seconds=30)
    scene.cluster.wait(scene.tree.disable())
    scene.cluster.run(20.0)
    assert spare.payload_count(ledger_id) < 200
    assert not worker.in_hand
    assert scene.metadata(ledger_id) == before
    scene.cluster.wait(scene.tree.enable())
    scene.await_no_marks(60)
    assert holders_missing(scene.cluster, ledger_id, scene.metadata(ledger_id)) == []


def test_a_worker_that_stops_unlocks_what_it_holds() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def damage() -> list[int]:
        closed = await write_ledger(scene.writer, members, 20)
        still_open = await write_ledger(scene.writer, members, 20, close=False)
        members[1].leave()
        await scene.mark([closed.id, still_open.id], members[1])
        return [closed.id, still_open.id]

    ids = scene.cluster.wait(damage())
    spare.rule = lambda request: SILENCE if is_add(request) else None
    worker = scene.worker()
    scene.cluster.run(1.0)
    assert all(scene.locked(ledger_id) for ledger_id in ids)
    scene.cluster.wait(worker.stop())
    scene.cluster.run(1.0)
    assert not any(scene.locked(ledger_id) for ledger_id in ids)
    assert scene.marked() == ids


def test_two_workers_share_the_work() -> None:
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies

    async def damage() -> list[int]:
        ids = [(await write_ledger(scene.writer, members, 20)).id for _ in range(40)]
        members[1].leave()
        await scene.mark(ids, members[1])
        return ids

    ids = scene.cluster.wait(damage())
    one, two = scene.worker(ledgers_at_once=2), scene.worker(ledgers_at_once=2)
    scene.await_no_marks(60)
    assert one.ledgers_repaired + two.ledgers_repaired == 40
    assert min(one.ledgers_repaired, two.ledgers_repaired) > 5
    assert all(holders_missing(scene.cluster, each, scene.metadata(each)) == [] for each in ids)


def damaged(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def bad(bookie: FakeBookie, first: int, last: int) -> BadRange:
    return BadRange(bookie.bookie_id, EntryId(first), EntryId(last), "checksum")


def test_bad_copies_that_a_bookie_reported_are_written_anew_in_place() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies
    broken = members[2]

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 50)
        for entry_id in (3, 4, 40):
            broken.entries[ledger.id][entry_id] = damaged(broken.entries[ledger.id][entry_id])
        await scene.tree.report_bad_copies(ledger.id, [bad(broken, 3, 4), bad(broken, 40, 40)])
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    before = scene.metadata(ledger_id)
    with capturedLogs() as events:
        worker = scene.worker()
        scene.cluster.run(20.0)
    assert scene.cluster.wait(scene.tree.bad_copies(LedgerId(ledger_id))) is None
    assert scene.metadata(ledger_id) == before
    assert not spare.entries
    digest = digest_of(DigestType.CRC32C, b"secret")
    held = broken.entries[ledger_id]
    assert None not in digest.verify(ledger_id, list(held), list(held.values()))
    assert worker.tally.entries_written == 3
    assert [each for each in told(events) if "was repaired" in each] == [
        f"Ledger {ledger_id} was repaired within 0.0 s: 3 entries, 72 bytes copied"
    ]


def test_a_worker_that_idles_hears_of_bad_copies() -> None:
    """What is damaged has a copy less: it does not wait for the minute that an idle worker may take."""
    scene = Scene(3)
    broken = scene.cluster.bookies[2]

    async def damage() -> LedgerId:
        ledger = await write_ledger(scene.writer, scene.cluster.bookies, 50)
        broken.entries[ledger.id][3] = damaged(broken.entries[ledger.id][3])
        await scene.tree.report_bad_copies(ledger.id, [bad(broken, 3, 3)])
        return ledger.id

    scene.worker()
    for idle_s in (0.0, 200.0, 210.0):  # the first one makes the directories of marks, too
        scene.cluster.run(idle_s)
        ledger_id = scene.cluster.wait(damage())
        scene.cluster.run(5.0)
        assert scene.cluster.wait(scene.tree.bad_copies(ledger_id)) is None, f"after {idle_s} s"


def test_bad_copies_that_cannot_be_written_anew_in_place_go_to_another_bookie() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies
    broken = members[2]

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 50)
        broken.rule = lambda request: Status.IO_ERROR if is_add(request) else None
        await scene.tree.report_bad_copies(ledger.id, [bad(broken, 3, 4)])
        return int(ledger.id)

    ledger_id = scene.cluster.wait(damage())
    scene.worker()
    scene.cluster.run(20.0)
    assert scene.cluster.wait(scene.tree.bad_copies(LedgerId(ledger_id))) is None
    metadata = scene.metadata(ledger_id)
    assert metadata.last_fragment.ensemble[2] == spare.bookie_id
    assert holders_missing(scene.cluster, ledger_id, metadata) == []


def test_an_entry_that_all_reported_bad_is_one_reason_and_many_are_cut() -> None:
    """Each of two bookies reports the same six entries."""
    scene = Scene(2)
    members = scene.cluster.bookies

    async def damage() -> None:
        ledger = await write_ledger(scene.writer, members, 20)
        for bookie in members:
            for entry_id in range(0, 12, 2):
                bookie.entries[ledger.id].pop(entry_id)
            ranges = [bad(bookie, entry_id, entry_id) for entry_id in range(0, 12, 2)]
            await scene.tree.report_bad_copies(ledger.id, ranges)

    scene.cluster.wait(damage())
    worker = scene.worker()
    scene.cluster.run(20.0)
    (trouble,) = worker.troubles
    assert [trouble.reason.count(f"entry {entry_id}:") for entry_id in range(0, 12, 2)] == [1, 1, 1, 0, 0, 0]
    assert trouble.reason.endswith("; and 3 more such")


def test_bad_copies_of_a_ledger_that_is_gone_or_that_moved_are_forgotten() -> None:
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def damage() -> list[LedgerId]:
        gone = await write_ledger(scene.writer, members, 5)
        await scene.tree.report_bad_copies(gone.id, [bad(members[0], 0, 4)])
        await scene.writer.delete(gone.id)
        moved = await write_ledger(scene.writer, members, 5)
        await scene.tree.report_bad_copies(moved.id, [bad(spare, 0, 4)])
        return [gone.id, moved.id]

    ids = scene.cluster.wait(damage())
    scene.worker()
    scene.cluster.run(20.0)
    assert [scene.cluster.wait(scene.tree.bad_copies(each)) for each in ids] == [None, None]


def test_bad_copies_at_the_open_end_wait_until_it_is_agreed() -> None:
    """I-74."""
    scene = Scene(3)
    broken = scene.cluster.bookies[0]

    async def damage() -> Any:
        ledger = await write_ledger(scene.writer, list(scene.cluster.bookies), 20, close=False)
        broken.entries[ledger.id][3] = damaged(broken.entries[ledger.id][3])
        await scene.tree.report_bad_copies(ledger.id, [bad(broken, 3, 3)])
        return ledger

    ledger = scene.cluster.wait(damage())
    worker = scene.worker(failed_ledger_grace_s=32.0)
    scene.cluster.run(10.0)
    assert worker.tally.entries_written == 0
    scene.cluster.wait(ledger.close())
    scene.cluster.run(150.0)
    assert scene.cluster.wait(scene.tree.bad_copies(ledger.id)) is None
    assert digest_of(DigestType.CRC32C, b"secret").verify(ledger.id, [3], [broken.entries[ledger.id][3]]) != [None]


def test_members_of_all_fragments_are_there_at_the_end_whatever_was_lost() -> None:
    """Random losses of one bookie at a time over striped ledgers of several fragments."""
    rng = random.Random(11)
    scene = Scene(7)

    async def write() -> list[int]:
        ids = []
        for _ in range(12):
            members = rng.sample(scene.cluster.bookies, 4)
            ids.append((await write_ledger(scene.writer, members, rng.randrange(60), write_quorum=3)).id)
        return ids

    ids = scene.cluster.wait(write())
    scene.worker()
    for lost in rng.sample(scene.cluster.bookies, 2):
        lost.leave()
        lost.entries.clear()

        async def mark(lost: BookieId = lost.bookie_id) -> None:
            for ledger_id in ids:
                metadata = await scene.writer.metadata(ledger_id)
                if any(lost in fragment.ensemble for fragment in fragments_of(metadata)):
                    await scene.tree.mark(LedgerId(ledger_id), [lost], now_ms=None)

        scene.cluster.wait(mark())
        scene.await_no_marks(60)
        for ledger_id in ids:
            metadata = scene.metadata(ledger_id)
            assert lost.bookie_id not in metadata.last_fragment.ensemble
            assert holders_missing(scene.cluster, ledger_id, metadata) == []


def test_a_mistake_in_finding_work_does_not_end_the_worker() -> None:
    """I-77: repair that silently stops is data loss with delay."""
    scene = Scene(4)
    *members, _spare = scene.cluster.bookies

    async def damage() -> int:
        ledger = await write_ledger(scene.writer, members, 20)
        members[1].leave()
        await scene.mark([ledger.id], members[1])
        return int(ledger.id)

    scene.cluster.wait(damage())
    with mock.patch.object(ReplicationWorker, "_may_begin", side_effect=ValueError("a mistake")):
        scene.worker()
        scene.cluster.run(12.0)
    assert 2 <= scene.metrics.value("replication_replication_worker_exceptions") <= 4
    assert scene.marked()
    scene.await_no_marks(30)


def test_a_bookie_that_is_only_behind_a_busy_writer_does_not_get_it_fenced() -> None:
    """I-74: it lacks an entry at every look, but never the same. Mutant: recover whatever lacks copies twice."""
    scene = Scene(5)
    *members, _one, _two = scene.cluster.bookies
    behind = members[2]

    async def append(ledger: Any) -> None:
        await ledger.append_many(payloads(9))
        await ledger.append(b"so that bookies hear that the others are confirmed")

    async def damage() -> Any:
        ledger = await write_ledger(scene.writer, members, 20, write_quorum=3, close=False)
        members[1].leave()
        await append(ledger)
        await scene.mark([ledger.id], members[1])
        return ledger

    ledger = scene.cluster.wait(damage())
    kept = behind.entries[ledger.id]

    def fall_behind() -> dict[int, bytes]:
        last = max(kept)  # kept itself: it tells what is confirmed
        return {entry_id: kept.pop(entry_id) for entry_id in range(last - 5, last)}

    late = fall_behind()
    scene.worker(open_ledger_grace_s=GRACE_S)
    scene.cluster.run(2)
    for _ in range(3):  # just before each look
        scene.cluster.run(GRACE_S - 4)
        kept.update(late)
        scene.cluster.wait(append(ledger))
        late = fall_behind()
        scene.cluster.run(4)
    assert not any(bookie.fenced for bookie in scene.cluster.bookies)
    assert scene.marked()
    kept.update(late)
    scene.await_no_marks(int(2 * GRACE_S))
    assert not scene.metadata(ledger.id).is_closed
    assert scene.cluster.wait(ledger.append(b"goes on")) == 60


def test_a_fragment_that_cannot_be_restored_does_not_keep_the_open_end_from_being_recovered() -> None:
    """L-4: the writer is gone, its last fragment lacks copies, and an earlier fragment has lost an entry."""
    scene = Scene(6)
    *members, _one, _two, _three = scene.cluster.bookies

    async def damage() -> Any:
        ledger = await write_ledger(scene.writer, members, 20, close=False)
        members[1].leave()
        await ledger.append_many(payloads(10))
        for bookie in members:
            bookie.entries[ledger.id].pop(7, None)
        members[2].leave()
        await scene.mark([ledger.id], members[1], members[2])
        return ledger

    ledger = scene.cluster.wait(damage())
    scene.worker(open_ledger_grace_s=GRACE_S)
    scene.cluster.run(4 * GRACE_S)
    metadata = scene.metadata(ledger.id)
    assert (metadata.is_closed, metadata.last_entry_id) == (True, 29)
    assert members[2].bookie_id not in metadata.last_fragment.ensemble
    assert scene.marked() == [ledger.id]


def test_a_repair_that_would_make_the_metadata_too_large_copies_nothing_and_says_why() -> None:
    """Mutant: check the size only when the metadata is written, after all copies were made."""
    scene = Scene(3)
    members = list(scene.cluster.bookies)
    spare = FakeBookie(scene.cluster, "b" * 200)
    scene.cluster.bookies.append(spare)
    ledger_id = scene.lose_second_copy(members, 20)
    path = f"{scene.cluster.metadata.root}/00/0000/L{ledger_id:04d}"
    size = operation_size(path, scene.cluster.metadata.stored(path))
    client = scene.cluster.client(replace(CLIENT, zk_request_size_max=size + 100))
    worker = ReplicationWorker(client, WorkerSettings(failed_ledger_grace_s=320.0), "test-host", scene.metrics)
    worker.start()
    scene.cluster.run(5.0)
    (trouble,) = worker.troubles
    assert f"its metadata at {path} would have 1 fragments" in trouble.reason
    assert f"at most {size + 100} fit" in trouble.reason
    assert trouble.next_try_s - scene.cluster.clock.seconds() > 1.0
    assert not spare.entries.get(ledger_id)
    assert scene.marked() == [ledger_id]
    scene.cluster.wait(worker.stop())
    scene.worker()
    scene.await_no_marks(60)
    assert holders_missing(scene.cluster, ledger_id, scene.metadata(ledger_id)) == []
