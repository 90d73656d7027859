"""How much of the machine went to other work, out of /proc."""

from collections.abc import Mapping

from tests.benchmarks.apache.quiet import (
    TICKS_PER_S,
    CpuTimes,
    ProcessTimes,
    descendants,
    others_share,
    parse_busy_ticks,
    parse_flushes,
    parse_process,
)

ROOT = 100
STAT = "cpu  1000 10 200 9000 300 7 20 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"


def process_stat(name: str, parent: int, user: int, system: int) -> str:
    return f"77 ({name}) S {parent} 1 1 0 -1 4194304 1 1 1 1 {user} {system} 900 99 20 0 1 0 1 1 1"


def times(seconds: float, busy: int, processes: Mapping[int, tuple[int, ...]]) -> CpuTimes:
    return CpuTimes(seconds, busy, {pid: ProcessTimes(*each) for pid, each in processes.items()})


def test_busy_is_everything_but_idle_and_waiting_for_disks() -> None:
    assert parse_busy_ticks(STAT) == 1000 + 10 + 200 + 7 + 20 + 4


def test_a_process_name_may_hold_blanks_and_parentheses() -> None:
    assert parse_process(process_stat("a) R (b 1 2", 42, 30, 5)) == ProcessTimes(42, 35, 999)


def test_descendants_are_found_at_any_depth() -> None:
    processes = {1: (0, 0), 2: (0, 0), 10: (1, 0), 100: (10, 0), 101: (100, 0), 102: (101, 0), 103: (10, 0)}
    assert descendants(times(0, 0, processes).processes, ROOT) == {100, 101, 102}


def test_our_own_work_is_no_disturbance() -> None:
    before = times(0, 0, {ROOT: (1, 50), 101: (ROOT, 10)})
    after = times(1, 2 * TICKS_PER_S, {ROOT: (1, 50 + TICKS_PER_S), 101: (ROOT, 10 + TICKS_PER_S)})
    assert others_share(before, after, ROOT, cores=2) == 0.0


def test_other_work_counts_even_when_its_process_is_gone() -> None:
    before = times(0, 0, {ROOT: (1, 0), 500: (1, 0)})
    after = times(1, TICKS_PER_S, {ROOT: (1, TICKS_PER_S // 2)})
    assert others_share(before, after, ROOT, cores=2) == 0.25


def test_the_kernels_own_threads_are_not_other_work() -> None:
    before = times(0, 0, {ROOT: (1, 0), 2: (0, 0), 30: (2, 5)})
    after = times(1, TICKS_PER_S, {ROOT: (1, 0), 2: (0, 0), 30: (2, 5 + TICKS_PER_S)})
    assert others_share(before, after, ROOT, cores=1) == 0.0


def test_a_process_of_ours_that_started_in_between_is_counted_whole() -> None:
    before = times(0, 0, {ROOT: (1, 0)})
    after = times(1, TICKS_PER_S, {ROOT: (1, 0), 101: (ROOT, TICKS_PER_S)})
    assert others_share(before, after, ROOT, cores=1) == 0.0


def test_rounding_of_ticks_never_gives_a_share_below_none() -> None:
    before, after = times(0, 0, {ROOT: (1, 0)}), times(1, 3, {ROOT: (1, 9)})
    assert others_share(before, after, ROOT, cores=1) == 0.0


def test_cpu_of_processes_that_are_gone_is_none() -> None:
    assert times(0, 0, {5: (1, 3 * TICKS_PER_S)}).cpu_s([5, 6]) == 3.0


def test_flushes_are_the_sixteenth_counter_where_there_is_one() -> None:
    assert parse_flushes(" ".join(map(str, range(1, 18)))) == 16
    assert parse_flushes(" ".join(map(str, range(1, 12)))) is None


def test_children_that_came_and_went_are_our_own_work() -> None:
    before = times(0, 0, {ROOT: (1, 0)})
    after = times(1, TICKS_PER_S, {ROOT: (1, 0)})
    assert others_share(before, after, ROOT, cores=1) == 1.0
    after = times(1, TICKS_PER_S, {ROOT: (1, 0, TICKS_PER_S * 3 // 4)})
    assert others_share(before, after, ROOT, cores=1) == 0.25


def test_a_client_whose_readers_end_with_the_measurement_did_that_work() -> None:
    """They were there at its beginning, and are gone at its end: into the client's time, and not by this much only."""
    before = times(0, 0, {ROOT: (1, 0), 101: (ROOT, 10), 102: (101, 40)})
    after = times(1, TICKS_PER_S, {ROOT: (1, 0), 101: (ROOT, 20, 40 + TICKS_PER_S // 2)})
    assert others_share(before, after, ROOT, cores=1) == 0.5 - 10 / TICKS_PER_S
