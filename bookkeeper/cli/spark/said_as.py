"""What each pipeline of this package writes for the options that its errors may name."""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.spark.said_as import AS_ADMINISTRATOR, LOSS_BORNE, SAID_AS, Words

AUDIT = Words.of_command({"ledgers": "--ledgers", "bytesPerSecond": "--bytes-per-second"})

EXPORT = Words.of_command(
    {
        "ledgers": "--ledgers",
        "owner": "--owner",
        "application": "--application",
        "open": "--open",
        AS_ADMINISTRATOR: "--as-administrator",
        LOSS_BORNE: "--allow-loss",
        "maxFileBytes": "--file-bytes",
    }
)

IMPORT = Words.of_command(
    {
        "job": "--job",
        "commitPath": "--commit-path",
        "ensembleSize": "--ensemble",
        "writeQuorumSize": "--write-quorum",
        "ackQuorumSize": "--ack-quorum",
        LOSS_BORNE: "--allow-loss",
    }
)

SWEEP = Words.of_command({"commitPath": "--commit-path"})

CLUSTER = Words.of_command({})
"""Of a pipeline over the tables of the cluster, which takes settings of the client alone."""


def said_as(words: Words) -> Mapping[str, str]:
    """An option more, for those of a pipeline."""
    return {SAID_AS: words.text}
