"""Making the formats known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bookkeeper.spark.audit.source import AuditSource
from bookkeeper.spark.cluster.source import ClusterSource
from bookkeeper.spark.ledgers.source import LedgerSource, PushdownLedgerSource
from bookkeeper.spark.shipping import ship_own

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def pushes_filters(spark: SparkSession) -> bool:
    """Switch on that filters are pushed to Python data sources, unless the session says no; whether they are."""
    if spark.conf.get(PUSHDOWN, None) is None:
        spark.conf.set(PUSHDOWN, "true")
    return str(spark.conf.get(PUSHDOWN)).lower() == "true"


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Register the formats of this package, for `spark.read.format(...)` and for SQL.

    They are bookkeeper, bookkeeper.cluster and bookkeeper.audit.

    push_filters: let filters on ledger_id and entry_id choose what the format bookkeeper reads, where the session
    allows that (spark.sql.python.filterPushdown.enabled). Only where every DataFrame and view is used for one query:
    Spark 4.3 keeps the reader of a query whose filters were pushed, and a later query over the same DataFrame that
    pushes none gets its rows, silently too few. Without it options choose what is read, and Spark filters the rows.
    """
    ship_own(spark)
    spark.dataSource.register(PushdownLedgerSource if push_filters and pushes_filters(spark) else LedgerSource)
    spark.dataSource.register(ClusterSource)
    spark.dataSource.register(AuditSource)
