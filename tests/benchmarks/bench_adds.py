"""Cost of the window of pending adds, per entry: push, Qw answers, acknowledgement. Prints figures, asserts nothing.

    python tests/benchmarks/bench_adds.py [outstanding]

Entries go in batches of a quarter of the window; each bookie answers a batch at once, as one chunk of a socket would.
"""

from __future__ import annotations

import sys
import time

from bookkeeper.model import BookieId
from bookkeeper.protocol.adds import AddWindow
from bookkeeper.protocol.schedule import spread

ROUNDS = 200


def measure(ensemble_size: int, write_quorum: int, ack_quorum: int, outstanding: int) -> tuple[float, float]:
    """Microseconds per entry: of the answers alone, and of everything."""
    ensemble = [BookieId(f"b{index}") for index in range(ensemble_size)]
    window = AddWindow(
        ledger_id=1,
        ensemble=ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        entries_max=outstanding,
        bytes_max=1 << 40,
        response_timeout_s=5.0,
    )
    batch = max(outstanding // 4, 1)
    sizes = [128] * batch
    acknowledged = 0
    answering = 0.0
    started = time.perf_counter()
    waiting = []
    for turn in range(ROUNDS):
        first = window.push(sizes, float(turn))
        waiting.append([list(ids) for ids in spread(first, first + batch - 1, ensemble_size, write_quorum)])
        if len(waiting) < outstanding // batch:
            continue
        held = waiting.pop(0)
        before = time.perf_counter()
        for index, entry_ids in enumerate(held):
            acknowledged += len(window.on_responses(index, ensemble[index], entry_ids))
        answering += time.perf_counter() - before
    total = time.perf_counter() - started
    return answering / acknowledged * 1e6, total / acknowledged * 1e6


def main() -> None:
    outstanding = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"Python {sys.version.split()[0]}, {outstanding} outstanding, microseconds per entry (best of 5)")
    print("  E Qw Qa   answers   with push and spread")
    for shape in ((3, 2, 2), (3, 3, 2), (2, 2, 2), (3, 3, 3), (5, 3, 2)):
        runs = [measure(*shape, outstanding) for _ in range(5)]
        answers, total = (min(figures) for figures in zip(*runs, strict=True))
        print(f"  {shape[0]} {shape[1]:2} {shape[2]:2}   {answers:7.3f}   {total:7.3f}")


if __name__ == "__main__":
    main()
