"""What is recorded of one measurement."""

from typing import Any

import pytest

from bookkeeper.cli.perf.latency import Latencies
from tests.benchmarks.apache.measure import NothingCompleted, Snapshot, command_words, figures
from tests.benchmarks.apache.plan import Cell, chosen_cells
from tests.benchmarks.apache.quiet import TICKS_PER_S, CpuTimes, ProcessTimes

ROOT, CLIENT, BOOKIES, IDLE = 100, 101, (102, 103, 104), 105


def snapshot(seconds: float, busy_s: float, cpu_s: dict[int, float], flushes: int | None) -> Snapshot:
    processes = {pid: ProcessTimes(ROOT, round(used * TICKS_PER_S)) for pid, used in cpu_s.items()}
    processes[ROOT] = ProcessTimes(1, 0)
    return Snapshot(CpuTimes(seconds, round(busy_s * TICKS_PER_S), processes), flushes)


def answer(operations: int) -> dict[str, Any]:
    latencies = Latencies()
    latencies.add(0.002, 99)
    latencies.add(0.5, 1)
    return {"operations": operations, "seconds": 2.0, "latencies": [latencies.to_json()]}


def marks(busy_s: float) -> dict[str, Snapshot]:
    nothing = dict.fromkeys((CLIENT, *BOOKIES, IDLE), 0.0)
    used = {CLIENT: 1.0, 102: 0.5, 103: 0.5, 104: 0.25, IDLE: 0.2}
    return {"start": snapshot(10, 0, nothing, 7), "end": snapshot(12, busy_s, used, 27)}


def measured(operations: int, busy_s: float = 2.45) -> dict[str, Any]:
    return figures(answer(operations), marks(busy_s), root=ROOT, client=CLIENT, bookies=BOOKIES, cores=2)


def test_cpu_is_per_operation_and_of_all_bookies_together() -> None:
    found = measured(1000)
    assert found["client_cpu_us"] == pytest.approx(1000)
    assert found["bookie_cpu_us"] == pytest.approx(1250)
    assert found["per_s"] == 500
    assert found["flushes"] == 20
    assert found["bystanders"] == pytest.approx(0.05)


def test_percentiles_are_of_single_operations() -> None:
    found = measured(1000)
    assert found["p50_ms"] == pytest.approx(2, rel=0.02)
    assert found["p99_ms"] == pytest.approx(2, rel=0.02)
    assert found["max_ms"] == pytest.approx(500)


def test_a_tenth_of_the_machine_for_others_is_the_limit() -> None:
    assert measured(1000, 2.45 + 0.39)["quiet"]
    assert not measured(1000, 2.45 + 0.41)["quiet"]


def test_nothing_completed_is_no_measurement() -> None:
    with pytest.raises(NothingCompleted):
        measured(0)


def test_commands_say_what_the_cell_says() -> None:
    [write] = chosen_cells("write:1024x100:v3")
    assert command_words(write, "URI", 4.0, None) == ["write", "URI", 3, 3, 2, 2, 1024, "100", 4.0]
    assert command_words(Cell("read", 128, "single", 2), "URI", 1.0, 9) == ["read", "URI", 2, 9, 1, 1, 1.0]
    assert command_words(Cell("read", 128, "batch-10x100", 2), "U", 1.0, 9) == ["batch", "U", 2, 9, 10, 100, 1.0]
