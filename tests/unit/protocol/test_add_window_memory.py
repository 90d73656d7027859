"""What an AddWindow costs: a process may hold tens of thousands of handles, most of them idle."""

from __future__ import annotations

import tracemalloc

from bookkeeper.model import BookieId
from bookkeeper.protocol.adds import AddWindow

ENSEMBLE = tuple(BookieId(f"bookie{number}:3181") for number in range(3))


def window() -> AddWindow:
    return AddWindow(
        ledger_id=1, ensemble=ENSEMBLE, write_quorum=2, ack_quorum=2, entries_max=10_000, bytes_max=64 << 20
    )


def test_an_idle_window_costs_a_few_kilobytes_whatever_its_bound_is() -> None:
    tracemalloc.start()
    try:
        windows = [window() for _ in range(200)]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / len(windows) < 8 * 1024


def test_a_window_grows_to_its_bound_and_forgets_nothing_on_the_way() -> None:
    adds = window()
    for first in range(0, 10_000, 100):
        assert adds.push([7] * 100, 0.0) == first
        assert adds.on_responses(first % 3, ENSEMBLE[first % 3], [first]) == range(0)
    assert adds.accepts([1]) == 0
    acknowledged = [adds.on_responses(index, ENSEMBLE[index], list(range(10_000))) for index in range(3)]
    assert sum(map(len, acknowledged)) == 10_000
    assert (adds.last_acknowledged, adds.acknowledged_length, adds.occupied_entries) == (9_999, 70_000, 0)
