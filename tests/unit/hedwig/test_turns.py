"""Time that deliveries share: a slice of each reactor turn, first come, first served."""

from __future__ import annotations

from hedwig.hub.turns import FILTERED_READS_MAX, SLICE_S, DeliveryTurns
from tests.support.simulated_clock import SimulatedClock


def test_there_is_time_for_a_slice_and_again_in_the_next_turn() -> None:
    clock = SimulatedClock()
    turns = DeliveryTurns(clock)
    assert turns.has_time()
    clock.spend(SLICE_S / 2)
    assert turns.has_time()
    clock.spend(SLICE_S / 2)
    assert not turns.has_time()
    assert clock.step()
    assert turns.has_time()
    clock.step()
    assert not clock.step(), "a hub at rest has no timer of it"


def test_calls_that_wait_are_made_in_order_and_before_others() -> None:
    clock = SimulatedClock()
    turns = DeliveryTurns(clock)
    made: list[int] = []

    def work(number: int) -> None:
        assert turns.has_time()
        made.append(number)
        clock.spend(SLICE_S / 2)
        if number == 1:
            turns.later(lambda: work(4))

    for number in (1, 2, 3):
        turns.later(lambda number=number: work(number))  # type: ignore[misc]
    assert not turns.has_time(), "others wait"
    assert clock.step()
    assert made == [1, 2], "as many as fit into a slice"
    assert not turns.has_time()
    assert clock.step()
    assert made == [1, 2, 3, 4]


def test_a_call_that_breaks_does_not_keep_the_others_back() -> None:
    clock = SimulatedClock()
    turns = DeliveryTurns(clock)
    made: list[str] = []
    turns.later(lambda: 1 // 0)
    turns.later(lambda: made.append("second"))
    clock.step()
    assert made == ["second"]


def test_a_reader_that_does_not_read_any_more_lets_the_next_one() -> None:
    clock = SimulatedClock()
    turns = DeliveryTurns(clock)
    began: list[int] = []

    def ask(number: int) -> None:
        if turns.begin_reading(lambda: None if number == FILTERED_READS_MAX else ask(number)):
            began.append(number)

    for number in range(FILTERED_READS_MAX + 3):
        ask(number)
    assert began == list(range(FILTERED_READS_MAX))
    turns.end_reading()
    clock.step()
    assert began[FILTERED_READS_MAX:] == [FILTERED_READS_MAX + 1]
    turns.end_reading()
    clock.step()
    assert began[FILTERED_READS_MAX + 1 :] == [FILTERED_READS_MAX + 2]
