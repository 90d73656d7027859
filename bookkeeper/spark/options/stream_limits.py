"""The limits of a micro-batch, between Spark's words for them and the options of a stream.

Spark knows one limit of a source, in rows or in bytes. Where options give both, both are obeyed: Spark is told of the
rows, and the bytes are applied besides.
"""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from bookkeeper.spark.options.limits import Limits


def default_limit(own: Limits) -> ReadLimit:
    """What Spark is told, of what the options say."""
    if own.entries is not None:
        return ReadMaxRows(own.entries)
    return ReadAllAvailable() if own.size is None else ReadMaxBytes(own.size)


def limits_of(limit: ReadLimit, own: Limits) -> Limits:
    """What one micro-batch may hold, by what Spark asks for and by what the options say."""
    if isinstance(limit, ReadAllAvailable):  # of a query without limits, and of one that is run once, whatever they are
        return Limits()
    return Limits(
        limit.max_rows if isinstance(limit, ReadMaxRows) else own.entries,
        limit.max_bytes if isinstance(limit, ReadMaxBytes) else own.size,
    )
