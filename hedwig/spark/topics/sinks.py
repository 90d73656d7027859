"""Where the rows of a micro-batch go. Each may be given a batch again, after something failed: what then?

    files       DIR/windows, DIR/lags, DIR/sizes, each partitioned by date and batch: what a batch wrote before is
                replaced. One file for each date of a batch. Windows are the same when they are made again, so each is
                there once; lags and sizes are measured again, and stand beside the first ones if midnight lay between.
                DIR/query says whose files they are: the batches of another query have the same numbers, and would
                take the place of these
    a topic     messages of JSON, key: the topic that they are about. A row has its number in its batch, by which the
                hub knows it again: of a query each kind is one producer (see hedwig.spark.topic_sink)
    a function  called again

Thread: that of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.errors import ConfigurationError
from hedwig.spark.region_options import WHERE
from hedwig.spark.topics.kept_line import read_line, write_line
from hedwig.spark.topics.naming import publishing_words
from hedwig.spark.topics.windows import BATCH, DATE

WINDOWS, LAGS, SIZES = "windows", "lags", "sizes"

FORMS = ("parquet", "json")

QUERY = "query"
"""What of a directory says whose files they are."""

ROWS_SHOWN_MAX = 10_000


class Sink(Protocol):
    """Takes the rows of a kind. query_id: the same for all runs from one checkpoint."""

    def take(self, kind: str, query_id: str, batch_id: int, rows: DataFrame) -> None:
        """What it does is done on return. Raises what Spark and the place raise: the batch comes again then."""


class FileSink:
    """Files below a directory that Spark can write to, of one query. form: of FORMS."""

    def __init__(self, directory: str, form: str = FORMS[0]) -> None:
        if form not in FORMS:
            raise ConfigurationError(f"files of the form {form!r}: want {' or '.join(FORMS)}")
        self._directory, self._form = directory.rstrip("/"), form
        self._query_id: str | None = None

    def take(self, kind: str, query_id: str, batch_id: int, rows: DataFrame) -> None:
        """See Sink. Raises ConfigurationError where the directory has the files of another query."""
        if self._query_id != query_id:
            self._claim(rows.sparkSession, query_id)
        one = rows.repartition(1).sortWithinPartitions(DATE, "topic")
        writer = one.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("timeZone", "UTC")
        writer.format(self._form).partitionBy(DATE, BATCH).save(f"{self._directory}/{kind}")

    def _claim(self, spark: SparkSession, query_id: str) -> None:
        path = f"{self._directory}/{QUERY}"
        found = read_line(spark, path)
        if found is None:
            write_line(spark, path, query_id)
        elif found != query_id:
            raise ConfigurationError(
                f"{self._directory} has the files of another query ({found}; this is {query_id}), which these would "
                "replace in part: go on with that one's checkpoint, or use another directory"
            )
        self._query_id = query_id


class TopicSink:
    """A topic, through the hubs. given: options of the format hedwig."""

    def __init__(self, topic: str, given: Mapping[str, str]) -> None:
        self._topic, self._words = topic, publishing_words(given)

    def take(self, kind: str, query_id: str, batch_id: int, rows: DataFrame) -> None:
        """See Sink. On the thread of foreachBatch: by it the micro-batches under one name are told apart."""
        line = F.to_json(F.struct(F.lit(kind).alias("kind"), *rows.columns), {"timeZone": "UTC"})
        messages = rows.select(F.col("topic").alias("key"), line.alias("value")).repartition(1)
        job = f"{query_id} {kind}"
        writer = messages.write.format(WHERE).mode("append")
        writer.options(**self._words, topic=self._topic, job=job, rowOrder="content").save()


class FunctionSink:
    """Calls see(kind, batch id, rows as dicts, how many there are): of those rows at most `rows_max`."""

    def __init__(
        self, see: Callable[[str, int, Sequence[dict[str, Any]], int], None], rows_max: int = ROWS_SHOWN_MAX
    ) -> None:
        self._see, self._rows_max = see, rows_max

    def take(self, kind: str, query_id: str, batch_id: int, rows: DataFrame) -> None:
        """See Sink."""
        order = ("window_start", "topic", "clock") if kind == WINDOWS else ("topic",)
        some = [row.asDict() for row in rows.orderBy(*order).limit(self._rows_max + 1).collect()]
        count = len(some) if len(some) <= self._rows_max else rows.count()
        self._see(kind, batch_id, some[: self._rows_max], count)
