"""The words of the format bookkeeper when it is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bookkeeper.config.keys import Kind, boolean, integer, key, text
from bookkeeper.errors import ConfigurationError
from bookkeeper.metadata.uri import parse_uri
from bookkeeper.spark.options.kinds import BOOKIES_MAX, quorum
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.spark.said_as import OF_OPTIONS, Words

WHERE = "bookkeeper"

COMMIT_PATH = "/bookkeeper-spark"
COMMIT_PATH_BYTES_MAX = 512
COMMIT_PATH_MEANING = (
    "Znode below which is kept what was committed. Not below the cluster's own root, where Apache's listing of ledgers "
    "would stumble over it."
)

LEDGERS, COMMITS = "New ledgers", "Commits"
QUORUM = 2
"""Copies, and copies to wait for, where the ensemble has room for them."""

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}", re.ASCII)
_ZNODE = re.compile(r"[0-9A-Za-z._-]+", re.ASCII)


def _check_name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise ValueError("want 1 to 200 letters, digits, '.', '_' and '-', the first a letter or digit")
    return value


def _check_path(value: str) -> str:
    first, *names = value.split("/")
    if first or not names or not all(_ZNODE.fullmatch(name) and name not in (".", "..") for name in names):
        raise ValueError("want the path of a znode, e.g. /bookkeeper-spark")
    if len(value) > COMMIT_PATH_BYTES_MAX:
        raise ValueError(f"longer than {COMMIT_PATH_BYTES_MAX} bytes")
    return value


def name_of_write() -> Kind[str]:
    """The name of a job or the id of a query; "" where none is given."""
    return text("a name", _check_name)


def commit_path() -> Kind[str]:
    """The znode of the commits."""
    return text("a znode's path", _check_path)


@dataclass(frozen=True, slots=True)
class LedgerSinkOptions:
    """How ledgers are written."""

    ensemble: int = key("ensembleSize", integer("bookies", 1, BOOKIES_MAX), "3", LEDGERS, "Bookies of a ledger.")
    write_quorum_given: int = key(
        "writeQuorumSize", quorum(), "", LEDGERS,
        f"Copies of each entry. Not set: {QUORUM}, or fewer in a smaller ensemble.",
    )  # fmt: skip
    ack_quorum_given: int = key(
        "ackQuorumSize", quorum(), "", LEDGERS,
        f"Copies to wait for. Not set: {QUORUM}, or fewer where there are fewer copies.",
    )  # fmt: skip
    commit_path: str = key("commitPath", commit_path(), COMMIT_PATH, COMMITS, COMMIT_PATH_MEANING)
    job: str = key(
        "job", name_of_write(), "", COMMITS,
        "Name of a batch write, by which it is read and which is committed once only; in foreachBatch of a stream once "
        "for each batch, under the same name in all: written on the thread of foreachBatch, or by a function that is "
        "wrapped there with pyspark.inheritable_thread_target(session), as other threads do not know the batch. Not "
        "set: a new id.",
    )  # fmt: skip
    accept_repeat: bool = key(
        "acceptRepeat", boolean(), "false", COMMITS,
        "What becomes of a batch of a stream that was committed before, and comes again with other rows, as from an "
        "old copy of the checkpoint. false: it is refused; true: what was committed stays, those rows are left out.",
    )  # fmt: skip

    @property
    def write_quorum(self) -> int:
        """Copies of each entry."""
        return self.write_quorum_given or min(QUORUM, self.ensemble)

    @property
    def ack_quorum(self) -> int:
        """Copies to wait for."""
        return self.ack_quorum_given or min(QUORUM, self.write_quorum)

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        if not self.ensemble >= self.write_quorum >= self.ack_quorum:
            yield (
                ("ensembleSize", "writeQuorumSize", "ackQuorumSize"),
                f"ensemble {self.ensemble}, write quorum {self.write_quorum}, ack quorum {self.ack_quorum}: "
                "none may be larger than the one before it",
            )


SinkOptions = SourceOptions[LedgerSinkOptions]


def read_sink_options(options: Mapping[str, str], *, stream: bool = False) -> SinkOptions:
    """The options of a write. Raises ConfigurationError, as `read_options`; also for `job` of a stream."""
    found = read_options(LedgerSinkOptions, options, where=WHERE)
    if stream and found.own.job:
        raise ConfigurationError(
            f"option job={found.own.job} of format {WHERE} belongs to a batch write; leave it out of a stream, which "
            "is committed, and read with option query, by the id that its checkpoint gives it"
        )
    check_commit_path(found.own.commit_path, found.client.metadata_service_uri)
    return found


def check_commit_path(path: str, metadata_service_uri: str, words: Words = OF_OPTIONS) -> None:
    """Raise ConfigurationError for a place of commits that is the cluster's own, or above it."""
    root = parse_uri(metadata_service_uri).root
    if f"{path}/".startswith(f"{root}/") or f"{root}/".startswith(f"{path}/"):
        raise ConfigurationError(
            f"{words.word(f'commitPath={path}', WHERE)}: the znodes of the cluster are at {root}, and what Spark "
            f"commits must be apart from them; choose another place, e.g. {COMMIT_PATH}"
        )
