"""A change whose answer is lost, or that never arrived, for every kind of change (I-16); and what nobody can decide."""

import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bookkeeper.errors import (
    LedgerExists,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    NoSuchLedger,
    VersionConflict,
)
from bookkeeper.metadata.memory.store import Fault, MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.outcome import Errand, within
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import Check, Create, Delete, NodeAbsent, NodeChanged, NodeKind, Stat, Write
from bookkeeper.model import BookieId, BookieMode, EntryId, LedgerId, Versioned
from tests.support.metadata_contract import all_ids, ledger, service_info
from tests.support.simulated_clock import SimulatedClock

BOOKIE = BookieId("bookie-a:3181")


class Bench:
    """One faulty store under test and one that shows what is really stored."""

    def __init__(self, settings: MetadataSettings | None = None, outage_s: float = 0.2) -> None:
        self.clock = SimulatedClock()
        self.shared = MemoryMetadata(clock=self.clock)
        self.faults = MemoryFaults(reconnect_max_s=outage_s)
        self.store = MemoryMetadataStore(
            self.shared, self.clock, random.Random(7), self.faults, settings=settings or MetadataSettings()
        )
        self.truth = MemoryMetadataStore(self.shared, self.clock, random.Random(8))

    def with_directories(self) -> "Bench":
        """Directories for small ids, so that the first attempt at a ledger finds its place."""
        for path in ("/ledgers/00", "/ledgers/00/0000"):
            self.shared.znodes.create(path, b"", NodeKind.PERSISTENT, session_id=0)
        return self

    def run(self, awaitable: Awaitable[object]) -> object:
        """The result; raises what the awaitable raises."""
        outcome: list[object] = []

        async def wait() -> object:
            return await awaitable

        Deferred.fromCoroutine(wait()).addBoth(outcome.append)  # type: ignore[arg-type]
        assert self.clock.run_until(lambda: bool(outcome), seconds=600.0), "nothing more happens"
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]

    def until(self, fault: Fault) -> None:
        """Let time pass until the fault has happened."""
        assert self.clock.run_until(lambda: bool(self.faults.counts[fault.value]), seconds=5.0), f"no {fault.value}"


FAULTS = pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)


@FAULTS
def test_create_happens_exactly_once(fault: Fault) -> None:
    for path_part, chosen in (("/L", None), ("/L", LedgerId(7)), ("/idgen/ID-", None), ("/00/0000", None)):
        bench = Bench() if path_part == "/00/0000" else Bench().with_directories()
        bench.faults.force(fault, "create", path_part)
        ledger_id, created = bench.run(bench.store.ledgers.create(ledger(), chosen))
        assert bench.run(all_ids(bench.truth)) == [ledger_id]
        assert bench.run(bench.truth.ledgers.read(ledger_id)) == created
        assert bench.faults.counts[fault.value] == 1


@FAULTS
def test_create_of_a_taken_id_is_refused_whatever_happens_to_the_first_attempt(fault: Fault) -> None:
    """Somebody else's ledger is not taken for ours, though it looks the same but for the creator token."""
    bench = Bench()
    theirs = bench.run(bench.truth.ledgers.create(ledger(), LedgerId(7)))
    bench.faults.force(fault, "create", "L0007")
    with pytest.raises(LedgerExists):
        bench.run(bench.store.ledgers.create(ledger(), LedgerId(7)))
    assert bench.run(bench.truth.ledgers.read(LedgerId(7))) == theirs[1]


def test_before_version_3_a_generated_ledger_is_known_by_its_content() -> None:
    bench = Bench().with_directories()
    bench.faults.force(Fault.REPLY_LOST, "create", "/L")
    ledger_id, _ = bench.run(bench.store.ledgers.create(ledger(version=2)))
    assert bench.run(all_ids(bench.truth)) == [ledger_id]


def test_before_version_3_a_chosen_ledger_whose_creator_is_open_is_an_unknown_outcome() -> None:
    bench = Bench().with_directories()
    bench.faults.force(Fault.REPLY_LOST, "create", "/L")
    with pytest.raises(MetadataOutcomeUnknown, match="who created it"):
        bench.run(bench.store.ledgers.create(ledger(version=2), LedgerId(7)))


@FAULTS
def test_write_happens_exactly_once(fault: Fault) -> None:
    bench = Bench()
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger()))
    bench.faults.force(fault, "write")
    written = bench.run(bench.store.ledgers.write(ledger_id, created.value.closed(EntryId(3), 9), 0))
    assert written.version == 1
    assert bench.run(bench.truth.ledgers.read(ledger_id)) == written


@FAULTS
def test_write_at_an_old_version_stays_a_conflict(fault: Fault) -> None:
    bench = Bench()
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger()))
    theirs = bench.run(bench.truth.ledgers.write(ledger_id, created.value.in_recovery(), 0))
    bench.faults.force(fault, "write")
    with pytest.raises(VersionConflict):
        bench.run(bench.store.ledgers.write(ledger_id, created.value.closed(EntryId(3), 9), 0))
    assert bench.run(bench.truth.ledgers.read(ledger_id)) == theirs


def test_write_that_was_overwritten_before_it_could_be_looked_up_is_an_unknown_outcome() -> None:
    """Ours may have been the version in between: neither "done" nor "conflict" would be true for certain."""
    bench = Bench()
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger()))
    bench.faults.force(Fault.REPLY_LOST, "write")
    writing = bench.store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    bench.until(Fault.REPLY_LOST)
    bench.run(bench.truth.ledgers.write(ledger_id, created.value.closed(EntryId(3), 9), 1))
    with pytest.raises(MetadataOutcomeUnknown, match="version 2"):
        bench.run(writing)


def test_write_to_a_ledger_that_was_deleted_meanwhile_is_no_such_ledger() -> None:
    bench = Bench()
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger()))
    bench.faults.force(Fault.REPLY_LOST, "write")
    writing = bench.store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    bench.until(Fault.REPLY_LOST)
    bench.run(bench.truth.ledgers.delete(ledger_id, 1))
    with pytest.raises(NoSuchLedger):
        bench.run(writing)


@FAULTS
def test_delete_happens(fault: Fault) -> None:
    bench = Bench()
    ledger_id, _ = bench.run(bench.truth.ledgers.create(ledger()))
    bench.faults.force(fault, "delete", "/L")
    bench.run(bench.store.ledgers.delete(ledger_id, 0))
    assert bench.run(all_ids(bench.truth)) == []


@FAULTS
def test_delete_at_an_old_version_stays_a_conflict(fault: Fault) -> None:
    bench = Bench()
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger()))
    bench.run(bench.truth.ledgers.write(ledger_id, created.value.in_recovery(), 0))
    bench.faults.force(fault, "delete", "/L")
    with pytest.raises(VersionConflict):
        bench.run(bench.store.ledgers.delete(ledger_id, 0))
    assert bench.run(all_ids(bench.truth)) == [ledger_id]


def test_delete_does_not_take_a_cookie_made_anew_for_the_old_one() -> None:
    bench = Bench()
    bench.run(bench.truth.cookies.write(BOOKIE, b"old", None))
    bench.faults.force(Fault.REPLY_LOST, "delete", "cookies")
    deleting = bench.store.cookies.delete(BOOKIE, 0)
    bench.until(Fault.REPLY_LOST)
    bench.run(bench.truth.cookies.write(BOOKIE, b"new", None))
    with pytest.raises(VersionConflict):
        bench.run(deleting)
    assert bench.run(bench.truth.cookies.read(BOOKIE)) == Versioned(b"new", 0)


@FAULTS
@pytest.mark.parametrize("step", ["create", "delete"])
def test_registration_and_change_of_mode_happen(fault: Fault, step: str) -> None:
    bench = Bench()
    info = service_info("bookie-a")
    if step == "create":
        bench.faults.force(fault, "create", BOOKIE)
        bench.run(bench.store.registration.register(BOOKIE, info, BookieMode.WRITABLE))
    else:
        bench.run(bench.store.registration.register(BOOKIE, info, BookieMode.WRITABLE))
        bench.faults.force(fault, "delete", BOOKIE)
        bench.run(bench.store.registration.register(BOOKIE, info, BookieMode.READ_ONLY))
    found = bench.run(bench.truth.bookies.current())
    expected = ({BOOKIE: info}, {}) if step == "create" else ({}, {BOOKIE: info})
    assert (found.writable, found.read_only) == expected
    assert bench.faults.counts[fault.value] == 1


@FAULTS
def test_cookie_is_written_once(fault: Fault) -> None:
    bench = Bench()
    bench.faults.force(fault, "create", BOOKIE)
    assert bench.run(bench.store.cookies.write(BOOKIE, b"one", None)) == Versioned(b"one", 0)
    bench.faults.force(fault, "write", BOOKIE)
    assert bench.run(bench.store.cookies.write(BOOKIE, b"two", 0)) == Versioned(b"two", 1)
    bench.faults.force(fault, "delete", BOOKIE)
    bench.run(bench.store.cookies.delete(BOOKIE, 1))
    assert bench.run(bench.truth.cookies.read(BOOKIE)) is None


@FAULTS
def test_cluster_is_initialised_once(fault: Fault) -> None:
    bench = Bench()
    bench.run(bench.truth.admin.nuke(bench.run(bench.truth.admin.instance_id())))
    bench.faults.force(fault, "transact")
    instance_id = bench.run(bench.store.admin.initialise())
    assert bench.run(bench.truth.admin.instance_id()) == instance_id


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(Fault.FAILED_BEFORE, MetadataOutcomeUnknown), (Fault.REPLY_LOST, MetadataOutcomeUnknown)],
    ids=lambda value: getattr(value, "value", None),
)
def test_change_that_cannot_be_looked_up_in_time_is_an_unknown_outcome(fault: Fault, expected: type[Exception]) -> None:
    """The client cannot tell the two faults apart, and says so."""
    bench = Bench(MetadataSettings(operation_timeout_s=3.0))
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger()))
    bench.run(bench.store.ledgers.read(ledger_id))
    bench.faults.force(fault, "write")
    writing = bench.store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    bench.until(fault)
    bench.store.cut_connection(for_s=30.0)
    with pytest.raises(expected, match="simulated ZooKeeper"):
        bench.run(writing)


def test_what_was_never_sent_is_unavailable_and_not_unknown() -> None:
    bench = Bench(MetadataSettings(operation_timeout_s=3.0))
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger()))
    bench.run(bench.store.ledgers.read(ledger_id))
    bench.store.cut_connection(for_s=30.0)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bench.store.ledgers.read(ledger_id),
        lambda: bench.store.ledgers.write(ledger_id, created.value.in_recovery(), 0),
        lambda: bench.store.ledgers.delete(ledger_id, 0),
        bench.store.bookies.current,
        lambda: all_ids(bench.store),
    ]
    for call in calls:
        with pytest.raises(MetadataUnavailable, match="did not answer within 3 s") as raised:
            bench.run(call())
        assert type(raised.value) is MetadataUnavailable
    assert bench.run(bench.truth.ledgers.read(ledger_id)) == created


@FAULTS
@pytest.mark.parametrize("operation", ["create", "write"])
def test_null_data_is_written_once_and_read_as_nothing(operation: str, fault: Fault) -> None:
    """Java programs tell null from empty, so null it must be; to whoever reads here both are b""."""
    bench = Bench()
    errand = Errand(bench.store.tree, bench.clock, MetadataSettings(), "test")
    if operation == "write":
        bench.shared.znodes.create("/note", b"text", NodeKind.PERSISTENT, session_id=0)
        bench.faults.force(fault, operation, "/note")
        assert cast(Stat, bench.run(errand.write("/note", None, 0))).version == 1
    else:
        bench.faults.force(fault, operation, "/note")
        bench.run(errand.create("/note", None, lambda data, _stat: data == b""))
    assert bench.shared.exists("/note")
    assert bench.shared.stored("/note") is None
    data, _ = cast(tuple[bytes, Stat], bench.run(errand.read("/note")))
    assert data == b""
    assert bench.faults.counts[fault.value] == 1


def test_a_transaction_happens_only_while_what_it_checks_is_unchanged() -> None:
    bench = Bench()
    for path in ("/checked", "/old", "/kept"):
        bench.shared.znodes.create(path, b"", NodeKind.PERSISTENT, session_id=0)
    steps = [Check("/checked", 0), Write("/kept", b"new", 0), Create("/new", b"data"), Delete("/old", 0)]
    bench.shared.damage("/checked", b"changed")
    with pytest.raises(NodeChanged):
        bench.run(bench.store.tree.transact(steps))
    with pytest.raises(NodeAbsent):
        bench.run(bench.store.tree.transact([Check("/absent", 0), *steps[1:]]))
    assert bench.shared.exists("/old")
    assert not bench.shared.exists("/new")
    bench.run(bench.store.tree.transact([Check("/checked", 1), *steps[1:]]))
    assert bench.shared.stored("/new") == b"data"
    assert bench.shared.stored("/kept") == b"new"
    assert not bench.shared.exists("/old")
    with pytest.raises(NodeChanged):
        bench.run(bench.store.tree.transact([Check("/checked", 1), Write("/kept", b"again", 0)]))
    assert bench.shared.stored("/kept") == b"new"


@pytest.mark.parametrize("answered_s", [1.0, None])
def test_work_that_takes_too_long_is_cancelled_and_leaves_no_timer(answered_s: float | None) -> None:
    clock = Clock()
    work: Deferred[str] = Deferred()
    if answered_s is not None:
        clock.callLater(answered_s, work.callback, "done")
    ended: list[object] = []
    waiting = Deferred.fromCoroutine(within(clock, 2.0, work))
    waiting.addCallbacks(ended.append, lambda failure: ended.append(failure.type))
    clock.advance(1.0)
    assert ended == (["done"] if answered_s else [])
    clock.advance(1.0)
    assert ended == (["done"] if answered_s else [CancelledError])
    assert not clock.getDelayedCalls()
