"""Rows into nowhere: out of memory, Parquet and ledgers, as batches and as streams, with more and more partitions."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from bookkeeper.console.output import CommandFailed
from tests.benchmarks.spark.ground import FRAGMENTED_SHARE, FRAGMENTS, TASKS, Cell, Ground, Load

STREAM_TIMEOUT_S = 600
TRIGGERS = "from the first trigger on"
"""A stream without what its query takes to start: processes of its own, checkpoint, log of offsets."""

ONE_TASK_BYTES = 64 << 30
"""As large as the option maxPartitionBytes goes: only minPartitions divides."""


def _to_nowhere(frame: Any, count: int) -> Load:
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return Load(count, time.monotonic() - began)


def _stream_to_nowhere(frame: Any, count: int) -> Load:
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint:
        began = time.monotonic()
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running = query.start()
        if not running.awaitTermination(STREAM_TIMEOUT_S):
            running.stop()
            raise CommandFailed(f"the stream of {count} rows did not end within {STREAM_TIMEOUT_S} s")
        seconds = time.monotonic() - began
    progress = running.recentProgress
    read = sum(each["numInputRows"] for each in progress)
    if read != count:
        raise CommandFailed(f"the stream read {read} rows of {count}")
    triggers_s = sum(each["durationMs"]["triggerExecution"] for each in progress) / 1000
    return Load(count, seconds, {TRIGGERS: triggers_s})


def _memory(ground: Ground, size: int) -> Load:
    return _to_nowhere(ground.in_memory(ground.spark.read, size), ground.rows[size])


def _parquet(ground: Ground, size: int) -> Load:
    return _to_nowhere(ground.spark.read.parquet(ground.parquet_path(size)), ground.rows[size])


def _ledgers(ground: Ground, size: int) -> Load:
    frame = ground.in_ledgers(ground.spark.read, ground.ledgers[size], minPartitions=TASKS)
    return _to_nowhere(frame, ground.rows[size])


def _memory_stream(ground: Ground, size: int) -> Load:
    return _stream_to_nowhere(ground.in_memory(ground.spark.readStream, size), ground.rows[size])


def _ledger_stream(ground: Ground, size: int) -> Load:
    reader = ground.spark.readStream.option("startingOffsets", "earliest")
    frame = ground.in_ledgers(reader, ground.ledgers[size], minPartitions=TASKS)
    return _stream_to_nowhere(frame, ground.rows[size])


def _partitions(count: int) -> Cell:
    def run(ground: Ground, size: int) -> Load:
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
    Cell("memory stream", _memory_stream, parts=(TRIGGERS,)),
    Cell("ledger stream", _ledger_stream, parts=(TRIGGERS,)),
    *(_partitions(count) for count in (1, 2, 4)),
)
