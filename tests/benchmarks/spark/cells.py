"""All that is measured: each cell is one load of one size, timed whole, on a session and a cluster that run already."""

from __future__ import annotations

from tests.benchmarks.spark.audits import AUDITS
from tests.benchmarks.spark.beside import PERF
from tests.benchmarks.spark.ground import Cell
from tests.benchmarks.spark.reads import READS
from tests.benchmarks.spark.sinks import SINKS

CELLS: tuple[Cell, ...] = (*READS, *SINKS, *AUDITS, *PERF)


def chosen(words: str | None) -> tuple[Cell, ...]:
    """The cells whose names begin with one of the words, comma-separated; None: all. Raises ValueError."""
    if words is None:
        return CELLS
    wanted = [word.strip() for word in words.split(",")]
    unknown = [word for word in wanted if not any(cell.name.startswith(word) for cell in CELLS)]
    if unknown:
        raise ValueError(f"no cell {', '.join(unknown)}; there are {'; '.join(cell.name for cell in CELLS)}")
    return tuple(cell for cell in CELLS if any(cell.name.startswith(word) for word in wanted))
