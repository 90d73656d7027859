"""What is measured: each cell is one load of one size, timed whole, on a session and a cluster that run already."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import bookkeeper.blocking
from bookkeeper.cli.output import CommandFailed

BATCH_ROWS = 10_000
TASKS = 2
PERF_SECONDS = 6
LEDGERS = 2
"""The rows of a size lie in so many ledgers; every entry on all three bookies, so that they are read in batches."""


@dataclass(frozen=True)
class Ground:
    """What the cells work on."""

    spark: Any
    uri: str
    directory: Path
    rows: Mapping[int, int]
    """Size of a value in bytes -> how many rows."""
    ledgers: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load. run: rows and seconds."""

    name: str
    run: Callable[[Ground, int], tuple[int, float]]


def fill(uri: str, rows: Mapping[int, int]) -> dict[int, list[int]]:
    """Write the ledgers that are read."""
    found: dict[int, list[int]] = {}
    with bookkeeper.blocking.connect(uri) as client:
        for size, count in rows.items():
            for part in range(LEDGERS):
                with client.create(ensemble=3, write_quorum=3, ack_quorum=2) as ledger:
                    left = count * (part + 1) // LEDGERS - count * part // LEDGERS
                    while left:
                        batch = min(left, BATCH_ROWS)
                        ledger.append_many([bytes(size)] * batch)
                        left -= batch
                found.setdefault(size, []).append(ledger.id)
    return found


def _to_nowhere(frame: Any, count: int) -> tuple[int, float]:
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return count, time.monotonic() - began


def _stream_to_nowhere(frame: Any, count: int) -> tuple[int, float]:
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint:
        began = time.monotonic()
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running = query.start()
        if not running.awaitTermination(600):
            running.stop()
            raise CommandFailed(f"the stream of {count} rows did not end within 600 s")
        seconds = time.monotonic() - began
    read = sum(progress["numInputRows"] for progress in running.recentProgress)
    if read != count:
        raise CommandFailed(f"the stream read {read} rows of {count}")
    return count, seconds


def _memory(ground: Ground, size: int, reader: Any) -> Any:
    options = {"rows": ground.rows[size], "size": size, "partitions": TASKS}
    return reader.format("memory-ceiling").options(**options).load()


def _ledgers(ground: Ground, size: int, reader: Any) -> Any:
    ids = ",".join(map(str, ground.ledgers[size]))
    return reader.format("bookkeeper").options(uri=ground.uri, ledgers=ids, minPartitions=TASKS).load()


def parquet_path(ground: Ground, size: int) -> str:
    """Where the rows of a size lie as Parquet."""
    return str(ground.directory / f"rows-{size}.parquet")


def write_parquet(ground: Ground) -> None:
    """The same rows as Parquet, uncompressed, in as many files as there are tasks."""
    for size in ground.rows:
        frame = _memory(ground, size, ground.spark.read)
        frame.write.mode("overwrite").option("compression", "none").parquet(parquet_path(ground, size))


def _parquet(ground: Ground, size: int) -> tuple[int, float]:
    return _to_nowhere(ground.spark.read.parquet(parquet_path(ground, size)), ground.rows[size])


def _perf(ground: Ground, size: int, *words: str) -> tuple[int, float]:
    command = [
        sys.executable,
        "-m",
        "bookkeeper.cli.main",
        "perf",
        words[0],
        "--uri",
        ground.uri,
        "--clients",
        str(TASKS),
    ]
    command += ["-time", str(PERF_SECONDS), "--json", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise CommandFailed(f"{' '.join(command[2:])} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return int(rate_of(json.loads(done.stdout))), 1.0


def rate_of(document: Any) -> float:
    """Entries a second in the JSON of `bookkeeper perf`."""
    return float(document[0]["operations_per_s"])


def _perf_read(ground: Ground, size: int) -> tuple[int, float]:
    return _perf(ground, size, "read", *(word for each in ground.ledgers[size] for word in ("-ledger", str(each))))


def _perf_write(ground: Ground, size: int) -> tuple[int, float]:
    return _perf(ground, size, "write", "-entrysize", str(size), "-ensemble", "3", "-quorum", "3", "-ackQuorum", "2")


READ_CELLS = (
    Cell(
        "memory source", lambda ground, size: _to_nowhere(_memory(ground, size, ground.spark.read), ground.rows[size])
    ),
    Cell("parquet", _parquet),
    Cell("ledgers", lambda ground, size: _to_nowhere(_ledgers(ground, size, ground.spark.read), ground.rows[size])),
    Cell(
        "memory stream",
        lambda ground, size: _stream_to_nowhere(_memory(ground, size, ground.spark.readStream), ground.rows[size]),
    ),
    Cell(
        "ledger stream",
        lambda ground, size: _stream_to_nowhere(
            _ledgers(ground, size, ground.spark.readStream.option("startingOffsets", "earliest")), ground.rows[size]
        ),
    ),
    Cell("perf read", _perf_read),
    Cell("perf write", _perf_write),
)


def smallest_trigger(ground: Ground, triggers: int = 12) -> float:
    """Median seconds of a micro-batch that holds one row, of a query that runs already."""
    with (
        bookkeeper.blocking.connect(ground.uri) as client,
        client.create() as ledger,
        tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint,
    ):
        frame = ground.spark.readStream.format("bookkeeper").options(uri=ground.uri, ledgers=ledger.id).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        running = query.trigger(processingTime="0 seconds").start()
        try:
            running.processAllAvailable()
            for _ in range(triggers):
                ledger.append(b"one")
                running.processAllAvailable()
        finally:
            running.stop()
        found = [
            progress["durationMs"]["triggerExecution"] / 1000
            for progress in running.recentProgress
            if progress["numInputRows"]
        ]
    if len(found) < triggers // 2:
        raise CommandFailed(f"only {len(found)} micro-batches of {triggers} had a row")
    return median(found[len(found) // 4 :])
