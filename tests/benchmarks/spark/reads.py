"""Rows into nowhere: out of memory, Parquet and ledgers, as batches and as streams, with more and more partitions."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from bookkeeper.cli.output import CommandFailed
from tests.benchmarks.spark.ground import FRAGMENTED_SHARE, FRAGMENTS, TASKS, Cell, Ground

STREAM_TIMEOUT_S = 600
ONE_TASK_BYTES = 64 << 30
"""As large as the option maxPartitionBytes goes: only minPartitions divides."""


def _to_nowhere(frame: Any, count: int) -> tuple[int, float]:
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return count, time.monotonic() - began


def _stream_to_nowhere(frame: Any, count: int) -> tuple[int, float]:
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint:
        began = time.monotonic()
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running = query.start()
        if not running.awaitTermination(STREAM_TIMEOUT_S):
            running.stop()
            raise CommandFailed(f"the stream of {count} rows did not end within {STREAM_TIMEOUT_S} s")
        seconds = time.monotonic() - began
    read = sum(progress["numInputRows"] for progress in running.recentProgress)
    if read != count:
        raise CommandFailed(f"the stream read {read} rows of {count}")
    return count, seconds


def _memory(ground: Ground, size: int) -> tuple[int, float]:
    return _to_nowhere(ground.in_memory(ground.spark.read, size), ground.rows[size])


def _parquet(ground: Ground, size: int) -> tuple[int, float]:
    return _to_nowhere(ground.spark.read.parquet(ground.parquet_path(size)), ground.rows[size])


def _ledgers(ground: Ground, size: int) -> tuple[int, float]:
    frame = ground.in_ledgers(ground.spark.read, ground.ledgers[size], minPartitions=TASKS)
    return _to_nowhere(frame, ground.rows[size])


def _memory_stream(ground: Ground, size: int) -> tuple[int, float]:
    return _stream_to_nowhere(ground.in_memory(ground.spark.readStream, size), ground.rows[size])


def _ledger_stream(ground: Ground, size: int) -> tuple[int, float]:
    reader = ground.spark.readStream.option("startingOffsets", "earliest")
    frame = ground.in_ledgers(reader, ground.ledgers[size], minPartitions=TASKS)
    return _stream_to_nowhere(frame, ground.rows[size])


def _partitions(count: int) -> Cell:
    def run(ground: Ground, size: int) -> tuple[int, float]:
        options = {"minPartitions": count, "maxPartitionBytes": ONE_TASK_BYTES}
        frame = ground.in_ledgers(ground.spark.read, [ground.fragmented[size]], **options)
        if (found := frame.rdd.getNumPartitions()) != count:
            raise CommandFailed(f"{found} partitions where {count} were to be")
        return _to_nowhere(frame, max(FRAGMENTS, ground.rows[size] // FRAGMENTED_SHARE))

    return Cell(f"ledger {count} {'task' if count == 1 else 'tasks'}", run)


READS = (
    Cell("memory source", _memory),
    Cell("parquet", _parquet),
    Cell("ledgers", _ledgers),
    Cell("memory stream", _memory_stream),
    Cell("ledger stream", _ledger_stream),
    *(_partitions(count) for count in (1, 2, 4)),
)
