"""Rows out of memory into ledgers, committed together, exactly once."""

from __future__ import annotations

import time
import uuid

from bookkeeper.console.output import CommandFailed
from bookkeeper.spark.sink.history import commit_of_job
from tests.benchmarks.spark.ground import WRITTEN_SHARE, Cell, Ground, Load

REPLICATION = {"ensembleSize": 3, "writeQuorumSize": 3, "ackQuorumSize": 2}
"""As of the ledgers that `perf write` writes."""


def _ledger_sink(ground: Ground, size: int) -> Load:
    count = max(1, ground.rows[size] // WRITTEN_SHARE)
    job = f"bench-{uuid.uuid4().hex}"
    frame = ground.in_memory(ground.spark.read, size, count).select("value")
    began = time.monotonic()
    frame.write.format("bookkeeper").options(uri=ground.uri, job=job, **REPLICATION).mode("append").save()
    seconds = time.monotonic() - began
    written = commit_of_job(ground.uri, job).entries
    if written != count:
        raise CommandFailed(f"{written} rows of {count} were committed")
    return Load(count, seconds)


SINKS = (Cell("ledger sink", _ledger_sink),)
