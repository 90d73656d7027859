"""Making the formats known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bookkeeper.spark.cluster.source import ClusterSource
from bookkeeper.spark.ledger_source import LedgerSource, PushdownLedgerSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def pushes_filters(spark: SparkSession) -> bool:
    """Switch on that filters are pushed to Python data sources, unless the session says no; whether they are."""
    if spark.conf.get(PUSHDOWN, None) is None:
        spark.conf.set(PUSHDOWN, "true")
    return str(spark.conf.get(PUSHDOWN)).lower() == "true"


def register(spark: SparkSession) -> None:
    """Register the formats of this package, for `spark.read.format(...)` and for SQL: bookkeeper, bookkeeper.cluster.

    Filters on ids are pushed down where the session allows it. Where it has no word on that, it is switched on
    (spark.sql.python.filterPushdown.enabled); set it to false before to keep it off. Set it differently afterwards, and
    register again.
    """
    pushes = pushes_filters(spark)
    spark.dataSource.register(PushdownLedgerSource if pushes else LedgerSource)
    spark.dataSource.register(ClusterSource)
