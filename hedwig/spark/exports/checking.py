"""Whether a directory is an export of topics, and still the one that was exported: all of it.

manifest     there, of a version and kind that is known
topics/      its lines are those that the manifest has the digest of, and add up to what it says; files/ likewise
messages/    the files that were exported, each as large as then, and no other
             messages, ids and digest of each topic as its line says
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.spark.exports.checking import check_files, check_sums, lines_as_exported, refuse_changed
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.stored import manifest_line
from bookkeeper.spark.pipeline import told_by_spark
from hedwig.spark.exports.manifest import TOPICS, TopicManifest, parse_manifest
from hedwig.spark.exports.message_digests import topic_digests
from hedwig.spark.exports.stored import MESSAGES, PATH, messages_of, topics_of

SAID = ("messages", "bytes", "first_seq", "last_seq", "digest")
"""What a line says of messages, and their digests too."""


@dataclass(frozen=True, slots=True)
class CheckedTopics:
    """An export. topics: rows of `topics_of`; messages: of MESSAGE_SCHEMA."""

    directory: str
    manifest: TopicManifest
    topics: DataFrame
    messages: DataFrame


def checked_topics(spark: SparkSession, directory: str) -> CheckedTopics:
    """The export in a directory; reads all of it. Raises NotAnExport, which names what is missing or another."""
    try:
        manifest = parse_manifest(manifest_line(spark, directory))
        topics = topics_of(lines_as_exported(spark, directory, TOPICS, manifest.count, manifest.digest))
        sums = topics.agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")).collect()[0]
        said, names = {"messages": manifest.messages, "bytes": manifest.size}, ("messages", "bytes")
        check_sums(directory, TOPICS, said, {name: sums[name] or 0 for name in names})
        check_files(spark, directory, manifest.files, MESSAGES, PATH)
        messages = messages_of(spark, directory, any_files=manifest.files.count > 0)
        refuse_changed(directory, differing(topics, topic_digests(messages, manifest.range_messages)))
    except PySparkException as error:
        raise NotAnExport(f"{directory} cannot be read as what was exported: {told_by_spark(error)}") from error
    return CheckedTopics(directory, manifest, topics, messages)


def differing(topics: DataFrame, found: DataFrame) -> DataFrame:
    """Rows (name, why) for topics whose messages are not as their lines say. found: rows of `topic_digests`."""
    there = found.select("topic", F.struct(*SAID).alias("found"))
    said = topics.where("messages > 0").select("topic", F.struct(*SAID).alias("said"))
    wrong = said.join(there, "topic", "full").where("found IS NULL OR said IS NULL OR found <> said")
    return wrong.select(
        F.format_string("topic '%s'", "topic").alias("name"),
        F.expr(
            "format_string('%d messages, %d bytes, exported were %d and %d%s', "
            "coalesce(found.messages, 0), coalesce(found.bytes, 0), coalesce(said.messages, 0), "
            "coalesce(said.bytes, 0), if(found.digest = said.digest, '', '; the digest is another'))"
        ).alias("why"),
    )
