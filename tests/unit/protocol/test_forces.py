"""Forces: an entry counts as durable only where its acknowledgement and a later force share a living connection."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.model import BookieId, EntryId
from bookkeeper.protocol.adds import AddWindow
from bookkeeper.protocol.forces import ForceOutcome, Forces
from bookkeeper.protocol.schedule import write_set


def forced_by_all(forces: Forces, connections: list[int]) -> ForceOutcome:
    return [forces.on_forced(index, connection) for index, connection in enumerate(connections)][-1]


def test_a_force_makes_durable_what_was_acknowledged_when_it_began_and_no_more() -> None:
    forces = Forces(2)
    for index in (0, 1):
        assert forces.on_acks(index, 1, 4)
    assert forces.begin(EntryId(4), 50)
    for index in (0, 1):
        assert forces.on_acks(index, 1, 9)
    assert forces.on_forced(0, 1) is ForceOutcome.WAITING
    assert (forces.durable, forces.length, forces.running) == (-1, 0, True)
    assert forces.on_forced(1, 1) is ForceOutcome.DURABLE
    assert (forces.durable, forces.length, forces.running) == (4, 50, False)
    assert forces.owes(0)


def test_nothing_acknowledged_needs_no_round() -> None:
    forces = Forces(3)
    assert not forces.begin(EntryId(-1), 0)
    assert not forces.running


def test_one_bookie_that_does_not_answer_keeps_the_durable_end_where_it_is() -> None:
    """All members are asked, and one of them may hold the only copy that counts."""
    forces = Forces(3)
    assert forces.on_acks(0, 1, 0)
    assert forces.on_acks(1, 1, 0)
    forces.begin(EntryId(0), 1)
    assert forces.on_forced(0, 1) is ForceOutcome.WAITING
    assert forces.on_forced(0, 1) is ForceOutcome.WAITING  # twice is once
    assert forces.on_forced(1, 1) is ForceOutcome.WAITING
    assert forces.durable == -1


def test_an_ok_over_another_connection_proves_nothing_even_if_nobody_told_of_the_loss() -> None:
    forces = Forces(2)
    assert forces.on_acks(0, 1, 0)
    assert forces.on_acks(1, 1, 0)
    forces.begin(EntryId(0), 1)
    assert forces.on_forced(0, 1) is ForceOutcome.WAITING
    assert forces.on_forced(1, 2) is ForceOutcome.UNPROVED
    assert forces.durable == -1


def test_acknowledgements_over_two_connections_cannot_be_proved_by_either() -> None:
    forces = Forces(1)
    assert forces.on_acks(0, 1, 0)
    assert not forces.on_acks(0, 2, 1)
    forces.begin(EntryId(1), 2)
    assert forces.on_forced(0, 2) is ForceOutcome.UNPROVED
    assert forces.on_forced(0, 1) is ForceOutcome.UNPROVED


def test_a_lower_entry_id_acknowledged_after_the_force_left_is_not_proved_by_it() -> None:
    """Entry ids may be chosen: 3 can come after 9, and the force in between speaks only of 9."""
    forces = Forces(1)
    assert forces.on_acks(0, 1, 9)
    assert forces.on_acks(0, 1, 0)
    forces.begin(EntryId(0), 1)
    assert forces.on_acks(0, 1, 3)
    assert forces.on_forced(0, 1) is ForceOutcome.DURABLE
    assert forces.owes(0)


def test_the_highest_of_the_entries_acknowledged_since_counts_in_whatever_order_they_came() -> None:
    forces = Forces(1)
    assert forces.on_acks(0, 1, 5)
    forces.begin(EntryId(5), 1)
    assert forces.on_acks(0, 1, 9)
    assert forces.on_acks(0, 1, 6)
    assert forces.on_acks(0, 1, 4)
    assert forces.on_forced(0, 1) is ForceOutcome.DURABLE
    assert forces.owes(0)


def test_acknowledgements_over_a_new_connection_while_a_force_is_unanswered_end_the_proof() -> None:
    forces = Forces(1)
    assert forces.on_acks(0, 1, 0)
    forces.begin(EntryId(0), 1)
    assert not forces.on_acks(0, 2, 1)


def test_a_bookie_that_has_proved_everything_may_come_back_over_a_new_connection() -> None:
    forces = Forces(2)
    for index in (0, 1):
        assert forces.on_acks(index, 1, 0)
    forces.begin(EntryId(0), 1)
    assert forces.on_forced(0, 1) is ForceOutcome.WAITING
    assert not forces.owes(0)
    assert forces.owes(1)  # it has not answered
    other = Forces(2)
    for index in (0, 1):
        assert other.on_acks(index, 1, 0)
    other.begin(EntryId(0), 1)
    assert forced_by_all(other, [1, 1]) is ForceOutcome.DURABLE
    assert not other.owes(0)
    assert other.on_acks(0, 2, 1)
    assert other.on_acks(1, 1, 1)
    other.begin(EntryId(1), 2)
    assert forced_by_all(other, [2, 1]) is ForceOutcome.DURABLE
    assert other.durable == 1


def test_a_late_copy_of_what_is_durable_already_is_owed_by_nobody() -> None:
    forces = Forces(1)
    assert forces.on_acks(0, 1, 5)
    forces.begin(EntryId(5), 1)
    assert forces.on_acks(0, 1, 4)
    assert forces.on_forced(0, 1) is ForceOutcome.DURABLE
    assert forces.on_acks(0, 1, 5)
    assert not forces.owes(0)


# --- against a model with disks


@dataclass
class Bookie:
    """A bookie with a disk cache, and its one connection. `crash`: power fails, and it is back at once."""

    connection: int = 1
    written: set[int] = field(default_factory=set)
    on_disk: set[int] = field(default_factory=set)
    arriving: list[tuple[str, int]] = field(default_factory=list)  # requests, then answers, in order
    answers: list[tuple[str, int]] = field(default_factory=list)

    def serve(self) -> None:
        if self.arriving:
            kind, value = self.arriving.pop(0)
            if kind == "add":
                self.written.add(value)
            else:
                self.on_disk |= self.written
            self.answers.append((kind, value))

    def end_connection(self) -> None:
        self.connection += 1
        self.arriving.clear()
        self.answers.clear()


class World:
    """One writer over such bookies. `proved` and `acked` are the simple twin of what `Forces` remembers."""

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        self.size, self.write_quorum, self.ack_quorum = ensemble_size, write_quorum, ack_quorum
        self.names = [BookieId(f"b{index}") for index in range(ensemble_size)]
        self.bookies = [Bookie() for _ in self.names]
        self.window = AddWindow(
            ledger_id=1,
            ensemble=self.names,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            entries_max=64,
            bytes_max=1000,
        )
        self.forces = Forces(ensemble_size)
        self.ended = False
        self.rounds = 0
        self.acked: list[set[int]] = [set() for _ in self.names]
        self.proved: list[set[int]] = [set() for _ in self.names]
        self.asked: list[set[int]] = [set() for _ in self.names]

    def owes(self, index: int) -> bool:
        return any(entry_id > self.forces.durable for entry_id in self.acked[index] - self.proved[index])

    def step(self, event: str, index: int) -> None:
        bookie = self.bookies[index]
        if event == "push":
            if self.window.accepts([1]):
                entry_id = self.window.push([1], 0.0)
                for member in write_set(entry_id, self.size, self.write_quorum):
                    self.bookies[member].arriving.append(("add", entry_id))
        elif event == "serve":
            bookie.serve()
        elif event == "answer" and bookie.answers:
            self.deliver(index, *bookie.answers.pop(0))
        elif event == "force" and not self.forces.running:
            if self.forces.begin(self.window.last_acknowledged, self.window.acknowledged_length):
                self.rounds += 1
                for member, asked in enumerate(self.bookies):
                    asked.arriving.append(("force", self.rounds))
                    self.asked[member] = set(self.acked[member])
        elif event in ("power", "cut", "untold"):
            self.lose(index, event)

    def deliver(self, index: int, kind: str, value: int) -> None:
        connection = self.bookies[index].connection
        if kind == "add":
            self.ended |= not self.forces.on_acks(index, connection, value)
            self.acked[index].add(value)
            self.window.on_responses(index, self.names[index], [value])
        elif value == self.rounds:
            outcome = self.forces.on_forced(index, connection)
            self.ended |= outcome is ForceOutcome.UNPROVED
            self.proved[index] |= self.asked[index]

    def lose(self, index: int, event: str) -> None:
        bookie = self.bookies[index]
        unanswered = any(
            index in write_set(entry_id, self.size, self.write_quorum) and entry_id not in self.acked[index]
            for entry_id in range(self.window.next_entry_id)
        )
        asked = any(kind == "force" for kind, _ in bookie.arriving + bookie.answers)
        if event != "cut":
            bookie.written = set(bookie.on_disk)
        bookie.end_connection()
        if event != "untold":
            owed = self.owes(index)
            assert self.forces.owes(index) is owed
            self.ended |= owed
            self.ended |= unanswered or asked  # the driver is told of these by the channel

    def check(self) -> None:
        forces, window = self.forces, self.window
        assert -1 <= forces.durable <= forces.target <= window.last_acknowledged
        assert forces.length == forces.durable + 1
        for entry_id in range(forces.durable + 1):
            members = write_set(entry_id, self.size, self.write_quorum)
            held = sum(entry_id in self.bookies[member].on_disk for member in members)
            assert held >= self.ack_quorum, f"entry {entry_id} is confirmed and on {held} disks"


EVENTS = ("push", "serve", "answer", "force", "power", "cut", "untold")
STEPS = st.lists(
    st.tuples(st.sampled_from(("push", "serve", "serve", "answer", "answer", "force", *EVENTS)), st.integers(0, 2)),
    max_size=120,
)


@settings(max_examples=300, deadline=None)
@given(shape=st.sampled_from([(1, 1, 1), (2, 2, 1), (3, 2, 2), (3, 3, 2), (3, 2, 1)]), steps=STEPS)
def test_what_is_confirmed_is_on_enough_disks_whatever_fails(
    shape: tuple[int, int, int], steps: list[tuple[str, int]]
) -> None:
    """Power failures between any two messages; the loss of a connection may even go untold."""
    world = World(*shape)
    untold = False
    for event, index in steps:
        untold |= event == "untold"
        world.step(event, index % world.size)
        world.check()
        if not untold and not world.ended:
            assert [world.forces.owes(at) for at in range(world.size)] == [world.owes(at) for at in range(world.size)]
        if world.ended:
            return


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(EVENTS[:4]), st.integers(0, 2)), max_size=80))
def test_without_failures_every_force_ends_and_confirms_what_it_began_with(steps: list[tuple[str, int]]) -> None:
    world = World(3, 2, 2)
    for event, index in steps:
        world.step(event, index)
    for _ in range(2):
        for index in range(3):
            while world.bookies[index].arriving:
                world.step("serve", index)
            while world.bookies[index].answers:
                world.step("answer", index)
        world.step("force", 0)
    assert not world.ended
    for index in range(3):
        world.step("serve", index)
        world.step("answer", index)
    assert world.forces.durable == world.window.last_pushed
