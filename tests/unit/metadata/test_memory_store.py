"""What only the memory store has: determinism, staleness, crashes, and numbers near their end."""

import random
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import AlreadyRegistered, InvalidArgument, MetadataError, MetadataUnavailable, NoSuchLedger
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.ledgers.codec import format_ledger
from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.metadata.memory.store import MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.store import MetadataSettings, RegistrationEvent, StoreState
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.model import BookieId, BookieMode, LedgerId
from tests.support.metadata_contract import all_ids, ledger, service_info
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess

BOOKIE = BookieId("bookie-a:3181")


def now(deferred: Deferred[Any]) -> Any:
    """The result of a Deferred that has fired already, as those of a faultless store have."""
    outcome: list[Any] = []
    deferred.addBoth(outcome.append)
    assert outcome, "not fired"
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    return outcome[0]


def store_of(shared: MemoryMetadata, clock: SimulatedClock, **named: Any) -> MemoryMetadataStore:
    return MemoryMetadataStore(shared, clock, random.Random(1), **named)


def listed(store: MemoryMetadataStore) -> list[int]:
    ids: list[int] = now(Deferred.fromCoroutine(all_ids(store)))
    return ids


def test_importing_the_seams_loads_neither_kazoo_nor_a_reactor() -> None:
    code = (
        "import sys, bookkeeper.metadata.store, bookkeeper.metadata.memory.store;"
        "print([name for name in ('kazoo', 'twisted.internet.reactor') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_without_faults_everything_is_answered_inside_the_call() -> None:
    store = store_of(MemoryMetadata(), SimulatedClock())
    ledger_id, created = now(store.ledgers.create(ledger()))
    heard: list[object] = []
    store.ledgers.watch(ledger_id, heard.append)
    recovering = now(store.ledgers.write(ledger_id, created.value.in_recovery(), 0))
    assert heard == [created, recovering]


def run_to_end(clock: SimulatedClock, work: Coroutine[Any, Any, None]) -> None:
    """Let time pass until the work is done, which must not fail."""
    done: list[object] = []
    Deferred.fromCoroutine(work).addBoth(done.append)
    assert clock.run_until(lambda: bool(done), seconds=600.0), "nothing more happens"
    assert done == [None]


def trace(seed: int) -> list[object]:
    """What one client sees of ten creations, each read back, under all faults."""
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    faults = MemoryFaults(
        lag_max_s=0.1,
        failed_before_probability=0.1,
        reply_lost_probability=0.1,
        session_lost_probability=0.02,
        reconnect_max_s=1.0,
    )
    store = MemoryMetadataStore(shared, clock, random.Random(seed), faults)
    seen: list[object] = []
    store.watch_state(lambda state: seen.append((round(clock.seconds(), 6), state.value)))

    async def work() -> None:
        for _ in range(10):
            created = await store.ledgers.create(ledger())
            seen.append((round(clock.seconds(), 6), created[0], await store.ledgers.read(created[0]) == created[1]))

    run_to_end(clock, work())
    return [*seen, sorted(faults.counts.items())]


def test_one_seed_is_one_run() -> None:
    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


def test_every_kind_of_fault_happens() -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    faults = MemoryFaults(
        lag_max_s=0.1,
        failed_before_probability=0.05,
        reply_lost_probability=0.05,
        session_lost_probability=0.05,
        reconnect_max_s=0.1,
    )
    store = MemoryMetadataStore(shared, clock, random.Random(5), faults)
    writer = store_of(shared, clock)

    async def work() -> None:
        for number in range(60):
            await store.ledgers.create(ledger())
            # Somebody else's change, which the next read may not see yet.
            await writer.ledgers.create(ledger(), LedgerId(10_000 + number))
            await store.bookies.current()

    run_to_end(clock, work())
    for kind in ("failed before", "reply lost", "session lost", "session expired", "outcome open", "stale read"):
        assert faults.counts[kind] > 0, kind
    assert len(listed(writer)) == 120


def test_a_read_may_be_stale_until_a_sync() -> None:
    """I-19: the model serves old states, and sync ends that."""
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    faults = MemoryFaults(delay_max_s=0.001, lag_max_s=10.0)
    reader, writer = store_of(shared, clock, faults=faults), store_of(shared, clock)
    ledger_id, created = now(writer.ledgers.create(ledger()))
    seen: list[Any] = []

    async def look() -> None:
        seen.append((await reader.bookies.current()).writable)
        await reader.sync()
        seen.append((await reader.bookies.current()).writable)

    now(writer.registration.register(BOOKIE, service_info("a"), BookieMode.WRITABLE))
    Deferred.fromCoroutine(look())
    clock.run_until(lambda: len(seen) == 2, seconds=1.0)
    assert seen == [{}, {BOOKIE: service_info("a")}]
    assert faults.counts["stale read"] > 0
    # Absence is authoritative: it is never said without a sync.
    found: list[Any] = []
    reader.ledgers.read(ledger_id).addBoth(found.append)
    clock.run_until(lambda: bool(found), seconds=1.0)
    assert found == [created]


def test_a_crashed_process_is_registered_until_its_session_times_out() -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    process = SimulatedProcess("bookie", clock)
    faults = MemoryFaults()
    settings = MetadataSettings(session_timeout_s=10.0)
    bookie = MemoryMetadataStore(shared, process.clock, random.Random(1), faults, settings=settings)
    process.on_crash(bookie.crash)
    observer = store_of(shared, clock)
    registering: list[object] = []
    bookie.registration.register(BOOKIE, service_info("a"), BookieMode.WRITABLE).addBoth(registering.append)
    clock.run_until(lambda: bool(registering), seconds=5.0)
    crashed_s = clock.seconds()
    process.crash()
    assert BOOKIE in now(observer.bookies.current()).writable
    assert clock.run_until(lambda: BOOKIE not in now(observer.bookies.current()).writable, seconds=60.0)
    assert 9.0 <= clock.seconds() - crashed_s <= 11.0


def test_a_znode_says_when_it_was_made_and_when_it_was_last_written() -> None:
    clock = SimulatedClock()
    tree = store_of(MemoryMetadata(clock=clock), clock).tree
    clock.run_until(lambda: False, seconds=2.0)
    now(tree.create("/dated", b""))
    assert (now(tree.stat("/dated")).created_ms, now(tree.stat("/dated")).modified_ms) == (2000, 2000)
    clock.run_until(lambda: False, seconds=3.0)
    now(tree.create("/dated/below", b""))
    assert now(tree.stat("/dated")).modified_ms == 2000, "children are no part of the data"
    now(tree.write("/dated", b"1", 0))
    assert (now(tree.stat("/dated")).created_ms, now(tree.stat("/dated")).modified_ms) == (2000, 5000)


def test_a_session_does_not_outlive_a_long_outage() -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    store = store_of(shared, clock, settings=MetadataSettings(session_timeout_s=10.0))
    states: list[StoreState] = []
    store.watch_state(states.append)
    now(store.registration.register(BOOKIE, service_info("a"), BookieMode.WRITABLE))
    store.cut_connection(for_s=5.0)
    clock.run_until(lambda: store.state is StoreState.CONNECTED, seconds=60.0)
    assert states == [StoreState.SUSPENDED, StoreState.CONNECTED]
    store.cut_connection(for_s=15.0)
    observer = store_of(shared, clock)
    clock.run_until(lambda: BOOKIE not in now(observer.bookies.current()).writable, seconds=14.0)
    assert now(observer.bookies.current()).writable == {}
    clock.run_until(lambda: bool(now(observer.bookies.current()).writable), seconds=60.0)
    assert states[2:] == [StoreState.SUSPENDED, StoreState.LOST, StoreState.CONNECTED]


def test_a_closed_store_refuses_everything() -> None:
    store = store_of(MemoryMetadata(), SimulatedClock())
    now(store.close())
    now(store.close())
    with pytest.raises(MetadataUnavailable, match="closed"):
        now(store.ledgers.read(LedgerId(1)))


def test_ids_go_long_when_the_short_ones_are_used_up() -> None:
    shared = MemoryMetadata()
    clock = SimulatedClock()
    store = store_of(shared, clock)
    now(store.ledgers.create(ledger()))
    shared.set_sequence("/ledgers/idgen", 2147483646)
    made = [now(store.ledgers.create(ledger()))[0] for _ in range(3)]
    assert made == [2147483646, 1 << 32, (1 << 32) + 1]
    # Another client, which only meets negative numbers, goes over as well.
    assert now(store_of(shared, clock).ledgers.create(ledger()))[0] == (1 << 32) + 2
    assert listed(store) == [0, 2147483646, 1 << 32, (1 << 32) + 1, (1 << 32) + 2]


def test_a_full_high_order_directory_is_followed_by_the_next_and_three_are_kept() -> None:
    shared = MemoryMetadata(kind=LayoutKind.LONG_HIERARCHICAL)
    store = store_of(shared, SimulatedClock())
    for high_order in range(1, 6):
        assert now(store.ledgers.create(ledger()))[0] == high_order << 32
        shared.set_sequence(f"/ledgers/idgen-long/HOB-{high_order:010d}", 2147483647)
    kept = [name for name in range(1, 8) if shared.stored(f"/ledgers/idgen-long/HOB-{name:010d}") is not None]
    assert kept == [3, 4, 5]


@pytest.mark.parametrize("kind", [LayoutKind.FLAT, LayoutKind.LEGACY_HIERARCHICAL])
def test_a_layout_without_long_ids_says_when_they_are_used_up(kind: LayoutKind) -> None:
    shared = MemoryMetadata(kind=kind)
    store = store_of(shared, SimulatedClock())
    now(store.ledgers.create(ledger()))
    shared.set_sequence("/ledgers" if kind is LayoutKind.FLAT else "/ledgers/idgen", 2**31)
    with pytest.raises(MetadataError, match="used up"):
        now(store.ledgers.create(ledger()))


def test_twenty_thousand_watches_cost_no_timer_and_survive_an_outage() -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    store, writer = store_of(shared, clock), store_of(shared, clock)
    now(writer.ledgers.create(ledger(), LedgerId(777)))
    data = format_ledger(ledger())
    for ledger_id in range(20_000):
        path = f"/ledgers{hierarchical_path(ledger_id)}"
        if ledger_id % 10_000 == 0 and ledger_id > 0:
            shared.znodes.create(path.rpartition("/")[0], b"", NodeKind.PERSISTENT, session_id=0)
        if ledger_id != 777:
            shared.znodes.create(path, data, NodeKind.PERSISTENT, session_id=0)
    heard: list[Any] = []
    for ledger_id in range(20_000):
        store.ledgers.watch(LedgerId(ledger_id), heard.append, after_version=0)
    assert clock.steps == 0
    assert not clock.step(), "a watch must not need the clock"
    store.cut_connection(for_s=1.0)
    now(writer.ledgers.write(LedgerId(777), ledger().in_recovery(), 0))
    assert heard == []
    clock.run_until(lambda: bool(heard), seconds=10.0)
    assert [versioned.version for versioned in heard] == [1]


def test_a_ledger_that_vanishes_under_a_watch_ends_it() -> None:
    store = store_of(MemoryMetadata(), SimulatedClock())
    heard: list[Any] = []
    store.ledgers.watch(LedgerId(9), heard.append)
    assert heard == [None]
    now(store.ledgers.create(ledger(), LedgerId(9)))
    assert heard == [None]
    with pytest.raises(NoSuchLedger):
        now(store.ledgers.read(LedgerId(10)))


def test_a_listing_whose_connection_goes_in_its_middle_fails() -> None:
    """I-18: what was listed so far must not look like all there is."""
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    store = store_of(shared, clock, settings=MetadataSettings(operation_timeout_s=3.0))
    for path in ("/ledgers/00", "/ledgers/00/0000", "/ledgers/00/0001"):
        shared.znodes.create(path, b"", NodeKind.PERSISTENT, session_id=0)
    for ledger_id in (*range(1000), 10_000):
        shared.znodes.create(f"/ledgers{hierarchical_path(ledger_id)}", b"", NodeKind.PERSISTENT, session_id=0)
    seen: list[Any] = []

    async def walk() -> None:
        async for batch in store.ledgers.ids():
            seen.append(len(batch))
            store.cut_connection(for_s=60.0)

    done: list[Any] = []
    Deferred.fromCoroutine(walk()).addBoth(done.append)
    clock.run_until(lambda: bool(done), seconds=60.0)
    assert seen == [1000]
    assert isinstance(done[0].value, MetadataUnavailable)


@pytest.mark.parametrize("bookie_id", ["", "a/b", "readonly", "ReadOnly", "a b", "ü:1"])
def test_an_id_that_no_bookie_can_have_is_refused(bookie_id: str) -> None:
    store = store_of(MemoryMetadata(), SimulatedClock())
    with pytest.raises(InvalidArgument, match="bookie's id"):
        now(store.registration.register(BookieId(bookie_id), service_info("a"), BookieMode.WRITABLE))
    with pytest.raises(InvalidArgument, match="bookie's id"):
        now(store.cookies.write(BookieId(bookie_id), b"5\n", None))


def test_a_change_of_mode_during_session_loss_still_ends_in_a_renewal() -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    store = store_of(shared, clock, faults=MemoryFaults(delay_max_s=0.01))
    events: list[Any] = []
    store.registration.watch(lambda event, _error: events.append(event))
    done: list[Any] = []
    store.registration.register(BOOKIE, service_info("a"), BookieMode.WRITABLE).addBoth(done.append)
    clock.run_until(lambda: bool(done), seconds=5.0)
    store.registration.register(BOOKIE, service_info("a"), BookieMode.READ_ONLY).addBoth(done.append)
    store.expire_session(0.5)
    clock.run_until(lambda: RegistrationEvent.RENEWED in events, seconds=30.0)
    assert done == [None, None]
    assert events == [RegistrationEvent.LOST, RegistrationEvent.RENEWED]
    found = now(store_of(shared, clock).bookies.current())
    assert (found.writable, found.read_only) == ({}, {BOOKIE: service_info("a")})


def test_a_rival_that_takes_the_id_over_during_session_loss_ends_the_registration() -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    store, rival = store_of(shared, clock), store_of(shared, clock)
    events: list[Any] = []
    now(store.registration.register(BOOKIE, service_info("a"), BookieMode.WRITABLE))
    store.registration.watch(lambda event, error: events.append((event, type(error))))
    store.expire_session(0.5)
    now(rival.registration.register(BOOKIE, service_info("b"), BookieMode.WRITABLE))
    clock.run_until(lambda: len(events) == 2, seconds=60.0)
    assert events == [(RegistrationEvent.LOST, type(None)), (RegistrationEvent.FAILED, AlreadyRegistered)]
