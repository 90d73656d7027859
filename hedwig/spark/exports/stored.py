"""The tables of an export of topics, read and written by Spark: any path that it can use. `manifest` draws them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from bookkeeper.spark.pipeline import day_of
from hedwig.spark.topic_columns import HEADERS

MESSAGES = "messages"

PATH = "topic=[^/]+/date=[^/]+/[^/]+$"
"""What is told of the path of a file."""

UNKNOWN_DATE = "unknown"

MESSAGE_SCHEMA = StructType(
    [
        StructField("seq", LongType(), nullable=False),
        StructField("timestamp", TimestampType()),
        StructField("value", BinaryType(), nullable=False),
        StructField("headers", HEADERS, nullable=False),
        StructField("topic", StringType(), nullable=False),
        StructField("date", StringType(), nullable=False),
    ]
)

TOPIC_COLUMNS = "topic STRING, first_seq LONG, last_seq LONG, messages LONG, bytes LONG, digest STRING"


def messages_of(spark: SparkSession, directory: str, *, any_files: bool) -> DataFrame:
    """The messages of an export; any_files: whether it has files at all."""
    if not any_files:
        return spark.createDataFrame([], MESSAGE_SCHEMA)
    return spark.read.schema(MESSAGE_SCHEMA).parquet(f"{directory}/{MESSAGES}")


def write_messages(rows: DataFrame, directory: str) -> None:
    """Write rows of the format hedwig, with headers: each task its own files, in order. Raises what Spark does."""
    day = F.coalesce(day_of(F.col("timestamp")).cast("string"), F.lit(UNKNOWN_DATE))
    messages = rows.select(F.col("offset").alias("seq"), "timestamp", "value", "headers", "topic", day.alias("date"))
    ordered = messages.sortWithinPartitions("topic", "date", "seq")
    ordered.write.mode("error").partitionBy("topic", "date").parquet(f"{directory}/{MESSAGES}")


def topics_of(lines: DataFrame) -> DataFrame:
    """Lines of topics as rows, with the line."""
    return lines.select(F.from_json("line", TOPIC_COLUMNS).alias("topic"), "line").select("topic.*", "line")
