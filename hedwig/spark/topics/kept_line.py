"""One line of text in a directory that Spark can write to: what a query remembers of itself. Thread: the caller's."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession


def read_line(spark: SparkSession, path: str) -> str | None:
    """The line that is kept there; None where there is no such path, or nothing in it. Raises what Spark raises."""
    try:
        rows = spark.read.text(path).limit(1).collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return rows[0].value if rows else None


def write_line(spark: SparkSession, path: str, line: str) -> None:
    """Keep it there, in the place of what there is."""
    spark.createDataFrame([(line,)], "line STRING").coalesce(1).write.mode("overwrite").text(path)
