"""Digests of messages by SQL, spread over the cluster; `contents` says what they are, and is the plain twin."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bookkeeper.spark.exports.entry_digests import numbered_digests
from hedwig.spark.exports.contents import GIVEN
from hedwig.spark.exports.manifest import RANGE_MESSAGES


def topic_digests(messages: DataFrame, range_messages: int = RANGE_MESSAGES) -> DataFrame:
    """Of rows topic, seq, value, headers: a row for each topic that has any.

    topic; messages: how many; bytes: of bodies; first_seq, last_seq; digest.
    """
    each = messages.select(
        "topic",
        F.col("seq").alias("number"),
        F.octet_length("value").cast("long").alias("size"),
        _message_digest().alias("digest"),
    )
    return numbered_digests(each, "topic", range_messages).withColumnsRenamed(
        {"count": "messages", "first": "first_seq", "last": "last_seq"}
    )


def _message_digest() -> Column:
    own = F.filter("headers", lambda each: ~each["key"].isin(*GIVEN))
    lines = F.array_sort(
        F.transform(
            own, lambda each: F.concat(_sha(each["key"].cast("binary")), F.lit(" "), _sha(each["value"]), F.lit("\n"))
        )
    )
    text = F.concat(_sha(F.col("value")), F.lit("\n"), F.array_join(lines, ""))
    return _sha(text.cast("binary"))


def _sha(column: Column) -> Column:
    return F.sha2(column, 256)
