"""Making the format known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bookkeeper.spark.registration import pushes_filters
from journalmgr.spark.edit_source import EditLogSource, PushdownEditLogSource


def register(spark: SparkSession) -> None:
    """Register the formats of this package, for `spark.read.format(...)` and for SQL: editlog.

    Filters on ids are pushed down where the session allows it; see `bookkeeper.spark.register`.
    """
    spark.dataSource.register(PushdownEditLogSource if pushes_filters(spark) else EditLogSource)
