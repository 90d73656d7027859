"""What the pipelines over topics write for the options that their errors may name."""

from __future__ import annotations

from bookkeeper.spark.said_as import Words

_REGION = {"region": "--region", "zk_prefix": "--zk-prefix"}

TOPICS = Words.of_command({"subscribe": "--topics", **_REGION})

EXPORT = Words.of_command({"subscribe": "--topics", "maxPartitionBytes": "--file-bytes", **_REGION})

IMPORT = Words.of_command(
    {"job": "--job", "prefix": "--into", "subscription": "--subscription", "hubs": "--hubs", **_REGION}
)
