"""Messages put into windows: rows of the format hedwig -> rows of `windows`, as `question` says."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bookkeeper.spark.pipeline import day_of
from hedwig.spark.topics.question import Clock, Windows

DATE, BATCH = "date", "batch"
"""What files are partitioned by."""


def windowed(messages: DataFrame, windows: Windows) -> DataFrame:
    """The aggregate of a stream, or of a batch; as yet without date and batch."""
    read = F.current_timestamp()  # of a stream that of the micro-batch, and the same when that is repeated
    says = F.col("timestamp").isNotNull() if windows.clock is Clock.PUBLISHED else F.lit(False)
    timed = messages.select(
        "topic",
        "offset",
        F.octet_length("value").cast("long").alias("size"),
        F.when(says, F.lit(Clock.PUBLISHED.value)).otherwise(Clock.READ.value).alias("clock"),
        F.when(says, F.col("timestamp")).otherwise(read).alias("time"),
    )
    counted = (
        timed.withWatermark("time", f"{windows.delay_s} seconds")
        .groupBy("topic", "clock", F.window("time", f"{windows.length_s} seconds").alias("window"))
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("offset").alias("first_seq"),
            F.max("offset").alias("last_seq"),
        )
    )
    return counted.select(
        "topic",
        "clock",
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "messages",
        "bytes",
        (F.col("messages") / windows.length_s).alias("messages_per_s"),
        (F.col("bytes") / windows.length_s).alias("bytes_per_s"),
        "first_seq",
        "last_seq",
    )


def of_batch(rows: DataFrame, batch_id: int, time: str) -> DataFrame:
    """With the day (UTC) of the column `time`, and the number of the micro-batch."""
    return rows.withColumn(DATE, day_of(F.col(time))).withColumn(BATCH, F.lit(batch_id).cast("long"))
