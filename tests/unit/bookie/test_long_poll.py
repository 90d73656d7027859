"""Long polls: what wakes them, what they answer, who is bounded, and that nothing is left behind."""

from __future__ import annotations

import pytest

from bookkeeper.bookie.bookie import BookieBounds
from bookkeeper.bookie.requests.long_poll import TIMEOUT_S_MAX, WOKEN_PER_TURN_MAX
from bookkeeper.model import Status
from tests.support.bookie_fakes import KEY, BookieBench, Seat, body_of, lac_packet
from tests.support.simulated_clock import WALL_MS

BENCH_S = 1000.0


def bench_with_ledger(*, bounds: BookieBounds | None = None) -> BookieBench:
    """Ledger 7 with entries 0 to 4, the LAC known to be 3."""
    bench = BookieBench(bounds=bounds)
    bench.clock.advance(BENCH_S)
    bench.add([0, 1, 2, 3, 4], lac=3)
    bench.settle()
    return bench


def watches_of(bench: BookieBench) -> int:
    """Long polls that wait, and timers for them."""
    timers = len(bench.clock.getDelayedCalls())
    assert timers == bench.bookie.in_flight
    return timers


# --- at once


def test_a_lac_that_is_higher_already_is_answered_at_once_with_the_next_entry() -> None:
    bench = bench_with_ledger()
    assert bench.long_poll(1) == [(Status.OK, body_of(7, 2, lac=3), 3, None)]
    assert watches_of(bench) == 0


@pytest.mark.parametrize("timeout_ms", [None, 0, -5])
def test_without_a_timeout_nothing_new_is_an_answer_too(timeout_ms: int | None) -> None:
    assert bench_with_ledger().long_poll(3, timeout_ms) == [(Status.OK, None, 3, None)]


def test_a_confirmed_entry_that_another_bookie_has_is_told_by_the_lac_alone() -> None:
    """Striping."""
    bench = bench_with_ledger()
    bench.add([9], lac=8)
    bench.settle()
    assert bench.long_poll(4) == [(Status.OK, None, 8, None)]


def test_an_unknown_ledger_is_told_at_once() -> None:
    bench = BookieBench()
    assert bench.long_poll(-1) == [(Status.NO_LEDGER, None, None, None)]
    assert bench.bookie.in_flight == 0


def test_a_piggybacked_entry_that_is_named_is_a_bad_request() -> None:
    assert bench_with_ledger().long_poll(1, entry_id=2) == [(Status.BAD_REQUEST, None, None, None)]


@pytest.mark.parametrize("previous_lac", [-2, -3, -(1 << 63)])
def test_a_previous_lac_below_every_lac_brings_the_lac_and_no_entry(previous_lac: int) -> None:
    """The entry behind -2 would be -1, which means the last one elsewhere."""
    assert bench_with_ledger().long_poll(previous_lac) == [(Status.OK, None, 3, None)]


def test_without_piggyback_it_is_a_read_with_the_lac() -> None:
    bench = bench_with_ledger()
    assert bench.long_poll(1, entry_id=0, piggyback=False) == [(Status.OK, body_of(7, 0, lac=3), 3, None)]
    assert bench.long_poll(1, entry_id=9, piggyback=False) == [(Status.NO_ENTRY, None, None, None)]


# --- waiting


def test_an_add_with_a_higher_lac_wakes_and_brings_the_entry_and_the_time() -> None:
    bench = bench_with_ledger()
    answers = bench.long_poll(3)
    bench.add([5], lac=3)
    bench.clock.advance(0.25)
    assert answers == []
    bench.add([6], lac=4)
    assert answers == []  # not inside the add
    bench.clock.advance(0)
    assert answers == [(Status.OK, body_of(7, 4, lac=3), 4, WALL_MS + int((BENCH_S + 0.25) * 1000))]
    bench.settle()
    assert watches_of(bench) == 0


def test_an_add_that_needs_a_decision_wakes_as_well() -> None:
    """Recovery adds and deferred ones take another way through the bookie."""
    for flags in ({"recovery": True}, {"deferred": True}):
        bench = bench_with_ledger()
        answers = bench.long_poll(3)
        bench.add([5], lac=4, **flags)  # type: ignore[arg-type]
        bench.clock.advance(0)
        assert [answer[2] for answer in answers] == [4]


def test_adds_of_other_ledgers_wake_nobody() -> None:
    bench = bench_with_ledger()
    answers = bench.long_poll(3)
    bench.add([5], ledger_id=8, lac=4)
    bench.clock.advance(0)
    assert answers == []


def test_an_explicit_lac_wakes_once_it_is_durable() -> None:
    """I-07."""
    bench = bench_with_ledger()
    answers = bench.long_poll(3)
    bench.write_lac(4)
    bench.clock.advance(0)
    assert answers == []
    bench.settle()
    bench.clock.advance(0)
    assert answers == [(Status.OK, body_of(7, 4, lac=3), 4, WALL_MS + int(BENCH_S * 1000))]


def test_a_fence_wakes_without_a_time() -> None:
    bench = bench_with_ledger()
    answers = bench.long_poll(3)
    bench.fence()
    bench.clock.advance(0)
    assert answers == [(Status.OK, None, 3, None)]
    again = bench.long_poll(3, 500)
    assert again == []  # a fenced ledger may still be recovered: it is waited for
    bench.settle()
    bench.clock.advance(0.5)
    assert again == [(Status.OK, None, 3, None)]


def test_the_time_is_over_at_the_time_asked_for_and_never_later_than_the_bound() -> None:
    bench = bench_with_ledger()
    short, endless = bench.long_poll(3, 200), bench.long_poll(3, 1 << 62)
    bench.clock.advance(0.19)
    assert short == []
    bench.clock.advance(0.01)
    assert short == [(Status.OK, None, 3, None)]
    bench.clock.advance(TIMEOUT_S_MAX - 0.25)
    assert endless == []
    bench.clock.advance(0.05)
    assert endless == [(Status.OK, None, 3, None)]
    assert watches_of(bench) == 0


def test_only_those_wake_whose_lac_is_passed() -> None:
    bench = bench_with_ledger()
    polls = {previous: bench.long_poll(previous) for previous in (3, 4, 5, 6)}
    bench.add([6], lac=5)
    bench.clock.advance(0)
    assert [previous for previous, answers in polls.items() if answers] == [3, 4]
    bench.add([8], lac=7)
    bench.clock.advance(0)
    assert all(polls.values())


def test_very_many_that_wake_are_answered_in_several_turns() -> None:
    bench = bench_with_ledger()
    polls = [bench.long_poll(3) for _ in range(WOKEN_PER_TURN_MAX + 10)]
    bench.add([5], lac=4)
    calls = [call for call in bench.clock.getDelayedCalls() if call.getTime() <= bench.clock.seconds()]
    assert len(calls) == 1
    calls[0].func()
    assert sum(map(bool, polls)) == WOKEN_PER_TURN_MAX
    bench.clock.advance(0)
    assert all(polls)


def test_a_lac_that_arrives_while_the_old_one_is_read_from_the_disk_is_not_missed() -> None:
    """The known LAC was forgotten; it is found in the last entry, which is no longer the last when the disk answers."""
    bench = BookieBench()
    bench.storage.entries[7] = {5: body_of(7, 5, lac=4)}
    bench.storage.keys[7] = KEY
    bench.storage.cold_entries.add((7, 5))
    answers = bench.long_poll(4)
    found = bench.worker.run_work()
    bench.add([6], lac=5)
    found()
    bench.worker.run_all()
    assert answers == [(Status.OK, body_of(7, 5, lac=4), 5, None)]
    assert bench.read(6, with_lac=True)[0][1] == 5


def test_the_explicit_lac_counts_when_the_known_one_is_found_again() -> None:
    bench = BookieBench()
    bench.storage.keys[7] = KEY
    bench.storage.lacs[7] = lac_packet(7, 9)
    assert bench.long_poll(8) == [(Status.OK, None, 9, None)]


def test_a_lac_that_cannot_be_read_is_an_io_error() -> None:
    """I-31: not "nothing new"."""
    bench = BookieBench()
    bench.storage.entries[7] = {5: body_of(7, 5, lac=4)}
    bench.storage.keys[7] = KEY
    bench.storage.cold_entries.add((7, 5))
    bench.storage.cold_error = OSError(5, "Input/output error")
    answers = bench.long_poll(4)
    bench.worker.run_all()
    assert answers == [(Status.IO_ERROR, None, None, None)]
    bench.storage.cold_ledgers.add(8)
    other = bench.long_poll(4, ledger_id=8)
    bench.worker.run_all()
    assert other == [(Status.IO_ERROR, None, None, None)]
    assert bench.bookie.in_flight == 0


# --- bounds and ends


def test_too_many_that_wait_are_refused_and_those_that_need_not_wait_are_not() -> None:
    bench = bench_with_ledger(bounds=BookieBounds(long_polls_max=2))
    first, second, third = bench.long_poll(3), bench.long_poll(3), bench.long_poll(3)
    assert (first, second, third) == ([], [], [(Status.TOO_MANY_REQUESTS, None, None, None)])
    assert (bench.bookie.waiting_polls, bench.metrics.value("bookkeeper_server_LONG_POLLS_REJECTED")) == (2, 1)
    assert bench.long_poll(2) == [(Status.OK, body_of(7, 3, lac=3), 3, None)]
    bench.clock.advance(1.0)
    assert len(first) == len(second) == 1
    assert bench.bookie.waiting_polls == 0
    assert bench.long_poll(3) == []


def test_too_many_of_one_connection_are_refused() -> None:
    bench = bench_with_ledger()
    assert bench.long_poll(3, seat=Seat(taken=True)) == [(Status.TOO_MANY_REQUESTS, None, None, None)]


def test_without_room_the_lac_comes_alone() -> None:
    bench = bench_with_ledger()
    answers = bench.long_poll(3, seat=Seat(room=False))
    entry = bench.long_poll(3, entry_id=0, piggyback=False, seat=Seat(room=False))
    bench.add([5], lac=4)
    bench.clock.advance(0)
    assert answers == [(Status.OK, None, 4, None)]
    assert entry == [(Status.TOO_MANY_REQUESTS, None, None, None)]


def test_a_poll_of_a_closed_connection_is_dropped_with_its_timer() -> None:
    bench = bench_with_ledger()
    waiting, woken = Seat(), Seat()
    answers = [bench.long_poll(5, seat=waiting), bench.long_poll(3, seat=woken)]
    assert waiting.waiting
    bench.add([5], lac=4)
    waiting.cancel()
    woken.cancel()
    woken.cancel()
    bench.clock.advance(5)
    bench.settle()
    assert answers == [[], []]
    assert watches_of(bench) == 0


def test_a_stop_answers_all_that_wait_and_the_bookie_is_idle() -> None:
    bench = bench_with_ledger()
    waiting, woken = bench.long_poll(5), bench.long_poll(3)
    bench.add([5], lac=4)
    bench.settle()
    idle: list[bool] = []
    bench.bookie.on_idle = lambda: idle.append(True)
    bench.bookie.stop()
    assert waiting == woken == [(Status.OK, None, 4, None)]
    assert idle == [True]
    assert bench.long_poll(3) == []  # no more is taken
    bench.clock.advance(100)
    assert idle == [True]


def test_a_poll_whose_ledger_is_being_loaded_at_the_stop_is_answered_too() -> None:
    bench = bench_with_ledger()
    bench.storage.cold_ledgers.add(7)
    answers = bench.long_poll(3)
    idle: list[bool] = []
    bench.bookie.on_idle = lambda: idle.append(True)
    bench.bookie.stop()
    assert (answers, idle) == ([], [])
    bench.worker.run_all()
    assert answers == [(Status.OK, None, 3, None)]
    assert idle == [True]


def test_after_a_failure_nobody_is_answered() -> None:
    """I-48."""
    bench = bench_with_ledger()
    waiting, woken = bench.long_poll(5), bench.long_poll(3)
    bench.add([5], lac=4)
    bench.journal.fail(OSError(5, "Input/output error"))
    turn = 1  # in which nobody is told
    assert len(bench.clock.getDelayedCalls()) == turn
    bench.clock.advance(100)
    assert waiting == woken == []
    assert [timer for timer in bench.clock.getDelayedCalls() if timer.active()] == []
