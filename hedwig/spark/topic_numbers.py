"""Under which producer and number a row is published: what makes a repeat of it the same message. Pure.

    a stream      producer  s<id of the query>.<partition>     first number  batch id * ROWS_MAX + 1
    a batch       producer  b<id of the job>.<partition>       first number  1
    with a name   producer  j<digest of the name>.<partition>  first number  1
    ... and in foreachBatch of a stream
                  producer  f<digest of the query's id and the name>.<partition>
                                                               first number  batch id * ROWS_MAX + 1

The rows of a task that go to one topic are numbered from there, without gaps, in their order. So an attempt that is
made again, after a task died in the middle or with a query that was restarted from its checkpoint, gives the same row
the same number, and the hub stores it once (hedwig/protocol/producers.py). Numbers of later batches are greater.

A batch that its user gave a name (option job) is the same one whenever it is run again; else each run is another. In
foreachBatch it is one in each micro-batch of the query, and the same one when that is replayed.

Ids of queries and jobs are UUIDs. The name fits into what hubs take: 1 + 32 + 1 + 10 bytes at most.
"""

from __future__ import annotations

from hashlib import sha256

from bookkeeper.errors import InvalidArgument
from hedwig.protocol.options import NUMBER_MAX

ROWS_MAX = 2**31
"""Rows of one task and topic."""

BATCHES_MAX = (NUMBER_MAX - ROWS_MAX) // ROWS_MAX


def stream_producer(query_id: str, partition: int) -> bytes:
    """Of one partition of a query's micro-batches."""
    return _producer("s", query_id, partition)


def batch_producer(job_id: str, partition: int) -> bytes:
    """Of one partition of a job."""
    return _producer("b", job_id, partition)


def named_producer(name: str, partition: int) -> bytes:
    """Of one partition of a job that its user gave a name."""
    return _producer("j", sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32], partition)


def named_stream_producer(name: str, query_id: str, partition: int) -> bytes:
    """Of one partition of a job with a name that each micro-batch of a query runs in its foreachBatch."""
    return _producer("f", sha256(f"{query_id} {name}".encode("utf-8", "surrogatepass")).hexdigest()[:32], partition)


def _producer(kind: str, owner: str, partition: int) -> bytes:
    return f"{kind}{owner.replace('-', '')}.{partition}".encode()


def first_number(batch_id: int) -> int:
    """Of the first row of a micro-batch. Raises InvalidArgument."""
    if not 0 <= batch_id <= BATCHES_MAX:
        raise InvalidArgument(f"micro-batch {batch_id}: ids are from 0 to {BATCHES_MAX}; begin a new query")
    return batch_id * ROWS_MAX + 1
