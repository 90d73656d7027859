"""The smallest micro-batch: one row, of a query that runs already."""

from __future__ import annotations

import tempfile
from statistics import median

import bookkeeper.blocking
from bookkeeper.console.output import CommandFailed
from tests.benchmarks.spark.ground import Ground


def smallest_trigger(ground: Ground, triggers: int) -> float:
    """Median seconds; the first quarter is thrown away."""
    with (
        bookkeeper.blocking.connect(ground.uri) as client,
        client.create() as ledger,
        tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint,
    ):
        frame = ground.in_ledgers(ground.spark.readStream, [ledger.id])
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
