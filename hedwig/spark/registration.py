"""Making the formats of this package known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bookkeeper.spark.registration import pushes_filters
from bookkeeper.spark.shipping import ship_own
from hedwig.spark.topic_source import PushdownTopicSource, TopicSource


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Register the format hedwig, for `spark.read.format(...)`, streams, and SQL.

    push_filters: let filters on offset choose what is read, where the session allows that
    (spark.sql.python.filterPushdown.enabled). Only where every DataFrame and view is used for one query: Spark 4.3
    keeps the reader of a query whose filters were pushed, and a later query over the same DataFrame that pushes none
    gets its rows, silently too few. Without it the range is chosen by options, and Spark filters the rows.
    """
    ship_own(spark)
    spark.dataSource.register(PushdownTopicSource if push_filters and pushes_filters(spark) else TopicSource)
