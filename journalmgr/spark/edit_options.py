"""The words of the format editlog."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bookkeeper.config import ClientSettings
from bookkeeper.config.keys import GIB, INT32_MAX, KIB, Kind, boolean, choice, integer, key, text
from bookkeeper.errors import BookKeeperError, ConfigurationError, InvalidArgument
from bookkeeper.metadata.uri import parse_uri as parse_metadata_uri
from bookkeeper.spark.ledgers.stream_offsets import Division
from bookkeeper.spark.options.kinds import check_use, or_none
from bookkeeper.spark.options.limits import Limits
from bookkeeper.spark.options.tables import ALIASES as COMMON_ALIASES
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.texts import parse_json
from journalmgr.ledger.connecting import check_root
from journalmgr.uri import JournalUri, parse_uri

WHERE = "editlog"
JOURNAL = "journal"


class Decode(enum.Enum):
    """How much of a record is taken apart."""

    COLUMNS = "columns"
    RAW = "raw"


EARLIEST, LATEST = -2, -1
"""What these words mean as a position, as in Kafka's JSON."""

READING, PLANNING, STREAMING = "What is read", "Partitions", "Streams"

ALIASES = {
    **COMMON_ALIASES,
    "uri": JOURNAL,
    "path": JOURNAL,
    "dfs.namenode.shared.edits.dir": JOURNAL,
    "format": "decode",
    "maxEntriesPerTrigger": "maxOffsetsPerTrigger",
    "digestPw": "passwd",
    "dfs.namenode.bookkeeperjournal.digestPw": "passwd",
}
"""Other words for a key. `path` is what `load(...)` is given; those of journalmgr mean here what they mean there."""

SCHEME = "bookkeeper"
_TXID_MAX = 2**62


def _journal(uri: str) -> str:
    if not uri:
        return uri
    try:
        parsed = parse_uri(uri)
        if parsed.scheme != SCHEME or not parsed.servers:
            raise ValueError(f"{uri!r} is no journal on ledgers: want bookkeeper://zk1:2181;zk2:2181/journal")
        check_root(parsed.path.rstrip("/") or "/")
        parse_metadata_uri(f"zk://{';'.join(parsed.servers)}/x")
    except InvalidArgument as error:
        raise ValueError(str(error)) from error
    except BookKeeperError as error:
        raise ValueError(str(error).partition(": ")[2].partition("; the form is")[0]) from error
    return uri


def parse_position(value: str) -> int:
    """earliest, latest, a txid, or {"txid": n} as a checkpoint has it; EARLIEST and LATEST for the words.

    Raises ValueError.
    """
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    try:
        found = parse_json(word)
    except ValueError:
        found = None
    if isinstance(found, dict):
        found = found.get("txid")
    if type(found) is not int or not (found in (EARLIEST, LATEST) or 1 <= found <= _TXID_MAX):
        raise ValueError('want earliest, latest, a txid (from 1 on), or {"txid": n}')
    return found


_POSITION = or_none(Kind('earliest, latest, a txid, or JSON such as {"txid": 500}', parse_position))


@dataclass(frozen=True, slots=True)
class EditReadOptions:
    """How an edit log is read."""

    journal: str = key(
        JOURNAL, text("URI", _journal), "", READING,
        "bookkeeper://<ZooKeeper servers separated by ;>/<znode of the journal>. Its ledgers' metadata is at "
        "zkLedgersRootPath on the same servers; their password is the option password.",
    )  # fmt: skip
    decode: Decode = key(
        "decode", choice({each.value: each for each in Decode}, "columns, raw"), "columns", READING,
        "columns: each operation taken apart; raw: txid, opcode and the bytes of the record.",
    )  # fmt: skip
    starting_txid: int | None = key(
        "startingTxid", or_none(integer("txid", 1, _TXID_MAX)), "", READING, "First transaction.",
    )  # fmt: skip
    ending_txid: int | None = key(
        "endingTxid", or_none(integer("txid", 1, _TXID_MAX)), "", READING,
        "Last transaction, read as well; batch only.",
    )  # fmt: skip
    starting_offset: int | None = key(
        "startingOffsets", _POSITION, "", READING,
        "First transaction, as startingTxid. Not set: earliest; of a new stream latest.",
    )  # fmt: skip
    ending_offset: int | None = key(
        "endingOffsets", _POSITION, "", READING,
        "One past the last transaction; batch only. Not set: latest.",
    )  # fmt: skip
    include_in_progress: bool = key(
        "includeInProgress", boolean(), "true", READING,
        "Read the segment that is being written too, as far as it is confirmed; its writer is not disturbed.",
    )  # fmt: skip
    fail_on_data_loss: bool = key(
        "failOnDataLoss", boolean(), "true", READING,
        "Fail where transactions that were to be read are gone or damaged; false: warn and go on behind them.",
    )  # fmt: skip
    partitions_min: int = key(
        "minPartitions", integer("partitions", 1, 100_000), "1", PLANNING, "Read with at least so many tasks.",
    )  # fmt: skip
    partition_bytes_max: int = key(
        "maxPartitionBytes", integer("bytes", 64 * KIB, 64 * GIB), "16777216", PLANNING,
        "About how many bytes of records one task reads at most.",
    )  # fmt: skip
    offsets_max: int | None = key(
        "maxOffsetsPerTrigger", or_none(integer("transactions", 1, _TXID_MAX)), "", STREAMING,
        "Transactions of one micro-batch, at most.",
    )  # fmt: skip
    bytes_max: int | None = key(
        "maxBytesPerTrigger", or_none(integer("bytes", 1, INT32_MAX * GIB)), "", STREAMING,
        "Bytes of records of one micro-batch, about; at least one transaction.",
    )  # fmt: skip

    @property
    def raw(self) -> bool:
        """Rows are whole records."""
        return self.decode is Decode.RAW

    @property
    def uri(self) -> JournalUri:
        """The journal's URI, taken apart."""
        return parse_uri(self.journal)

    @property
    def root(self) -> str:
        """The journal's znode."""
        return self.uri.path.rstrip("/")

    @property
    def start(self) -> int | None:
        """Position of the first transaction; None where nothing is said."""
        return self.starting_offset if self.starting_txid is None else self.starting_txid

    @property
    def end(self) -> int | None:
        """Position one past the last transaction; None where nothing is said."""
        return self.ending_offset if self.ending_txid is None else self.ending_txid + 1

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        if not self.journal:
            yield (JOURNAL,), "is missing: which to read, e.g. bookkeeper://zk1:2181;zk2:2181/hdfsjournal"
        for one, other, values in (
            ("startingTxid", "startingOffsets", (self.starting_txid, self.starting_offset)),
            ("endingTxid", "endingOffsets", (self.ending_txid, self.ending_offset)),
        ):
            if None not in values:
                yield (one, other), f"{one} and {other} say the same: give one of them"
        if self.start is not None and self.end is not None and 0 < self.end < self.start:
            yield ("endingTxid", "endingOffsets"), f"the range ends before txid {self.end}, and begins at {self.start}"

    def check_use(self, *, stream: bool) -> None:
        """Raise ConfigurationError for words that have no meaning in a stream, or none but in a stream."""
        check_use(
            stream=stream,
            of_batches={"endingTxid": self.ending_txid, "endingOffsets": self.ending_offset},
            of_streams={"maxOffsetsPerTrigger": self.offsets_max, "maxBytesPerTrigger": self.bytes_max},
            where=WHERE,
        )

    @property
    def per_trigger(self) -> Limits:
        """What one micro-batch holds at most, in transactions and in bytes."""
        return Limits(self.offsets_max, self.bytes_max)

    @property
    def division(self) -> Division:
        """How a read, or a micro-batch from now on, is divided among tasks."""
        return Division(self.partitions_min, self.partition_bytes_max)


def read_edit_options(options: Mapping[str, str]) -> SourceOptions[EditReadOptions]:
    """The options of the format. Raises ConfigurationError, which lists every fault."""
    found = read_options(EditReadOptions, options, where=WHERE, aliases=ALIASES, implied=_implied)
    _check_servers(found.own, found.client)
    return found


def _implied(options: EditReadOptions) -> Mapping[str, str]:
    return {"zkServers": ",".join(options.uri.servers)}


def _check_servers(options: EditReadOptions, client: ClientSettings) -> None:
    ledgers = parse_metadata_uri(client.metadata_service_uri).servers
    journal = parse_metadata_uri(f"zk://{';'.join(options.uri.servers)}/x").servers
    if set(ledgers) != set(journal):
        raise ConfigurationError(
            f"format {WHERE}: the journal is at {';'.join(journal)} and its ledgers' metadata at {';'.join(ledgers)}: "
            "both are on the same ZooKeeper; leave metadataServiceUri and zkServers out"
        )
