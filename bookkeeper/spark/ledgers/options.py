"""The words of the format bookkeeper. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from bookkeeper.config.keys import GIB, KIB, Kind, boolean, integer, key
from bookkeeper.spark.ledgers.stream_offsets import Division
from bookkeeper.spark.options.kinds import check_use, or_none
from bookkeeper.spark.options.limits import Limits
from bookkeeper.spark.sink.commit_format import Kind as OwnerKind
from bookkeeper.spark.sink.commit_format import Owner
from bookkeeper.spark.sink.options import COMMIT_PATH, COMMIT_PATH_MEANING, commit_path, name_of_write
from bookkeeper.texts import parse_json

WHERE = "bookkeeper"
EVERY = "all"

TOLD_MAX = 10

EARLIEST, LATEST = -2, -1
"""What these words mean as a position, as in Kafka's JSON."""

READING, PLANNING, STREAMING = "What is read", "Partitions", "Streams"


@dataclass(frozen=True, slots=True)
class LedgerChoice:
    """Ids and ranges of ids, ascending and disjoint; None stands for every ledger of the cluster."""

    ranges: tuple[tuple[int, int], ...] | None

    @property
    def single(self) -> tuple[int, ...]:
        """Those that were named one by one: each must be there."""
        return tuple(low for low, high in self.ranges or () if low == high)

    def __contains__(self, ledger_id: int) -> bool:
        if self.ranges is None:
            return True
        at = bisect_right(self.ranges, ledger_id, key=itemgetter(0)) - 1
        return at >= 0 and ledger_id <= self.ranges[at][1]


def parse_ledgers(value: str) -> LedgerChoice:
    """`all`, or ids and ranges such as `3, 7, 10-20`. Raises ValueError."""
    if value.strip().lower() == EVERY:
        return LedgerChoice(None)
    found: list[tuple[int, int]] = []
    for part in value.split(","):
        ends = [each.strip() for each in part.split("-")]
        if not 1 <= len(ends) <= 2 or not all(each.isascii() and each.isdigit() for each in ends):
            raise ValueError(f"{part.strip()!r} is no ledger id and no range of ids (want all, or e.g. 3,7,10-20)")
        low, high = int(ends[0]), int(ends[-1])
        if low > high:
            raise ValueError(f"{part.strip()!r} ends before it begins")
        found.append((low, high))
    merged: list[tuple[int, int]] = []
    for low, high in sorted(set(found)):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return LedgerChoice(tuple(merged))


@dataclass(frozen=True, slots=True)
class Positions:
    """Where to begin or end: a position for all, or one for each ledger named (others: `rest`)."""

    rest: int
    by_ledger: Mapping[int, int]

    def of(self, ledger_id: int, end: int) -> int:
        """An entry id, `end` (one past the last entry) standing for the latest."""
        position = self.by_ledger.get(ledger_id, self.rest)
        return 0 if position == EARLIEST else end if position == LATEST else position


def parse_positions(value: str) -> Positions:
    """earliest, latest, or {"ledger id": entry id, ...} in which -2 is earliest and -1 latest. Raises ValueError."""
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return Positions(EARLIEST if word == "earliest" else LATEST, {})
    try:
        given = parse_json(value)
        positions = {int(name): position for name, position in given.items()}
    except (ValueError, AttributeError):
        raise ValueError('want earliest, latest, or JSON such as {"12": 500, "13": -2}') from None
    wrong = [name for name, position in positions.items() if type(position) is not int or position < EARLIEST]
    if wrong or any(name < 0 for name in positions):
        raise ValueError("positions are entry ids, -2 for the earliest, -1 for the latest; ledger ids are not negative")
    return Positions(EARLIEST, positions)


def unread(positions: Positions | None, ledgers: LedgerChoice | frozenset[int]) -> str:
    """The ledgers that positions name and that are not read, as text; "" where there are none."""
    found = sorted(each for each in (positions.by_ledger if positions is not None else ()) if each not in ledgers)
    more = f" and {len(found) - TOLD_MAX} more" if len(found) > TOLD_MAX else ""
    return ", ".join(map(str, found[:TOLD_MAX])) + more


_LEDGERS = or_none(Kind("all, or ids and ranges: 3,7,10-20", parse_ledgers))
_POSITIONS = or_none(Kind('earliest, latest, or JSON such as {"12": 500}', parse_positions))


_COUNT = or_none(integer("", 1, 2**62), "1 or more; not set: no limit")


@dataclass(frozen=True, slots=True)
class LedgerReadOptions:
    """How ledgers are read."""

    ledgers: LedgerChoice | None = key(
        "ledgers", _LEDGERS, "", READING, "Ledgers to read; of a range those that there are.",
    )  # fmt: skip
    query: str = key(
        "query", name_of_write(), "", READING, "Id of a stream: all ledgers that it has committed, in that order.",
    )  # fmt: skip
    job: str = key(
        "job", name_of_write(), "", READING, "Name of a batch write: all ledgers that it committed, by partition.",
    )  # fmt: skip
    commit_path: str = key("commitPath", commit_path(), COMMIT_PATH, READING, COMMIT_PATH_MEANING)
    start: Positions | None = key(
        "startingOffsets", _POSITIONS, "", READING,
        "First entry of each ledger; in JSON, which names none but ledgers that are read, -2 is the earliest, -1 the "
        "latest. Not set: earliest; of a new stream latest.",
    )  # fmt: skip
    end: Positions | None = key(
        "endingOffsets", _POSITIONS, "", READING,
        "One past the last entry of each ledger, so not included; batch only. Not set: latest.",
    )  # fmt: skip
    fail_on_data_loss: bool = key(
        "failOnDataLoss", boolean(), "true", READING,
        "Fail where a ledger that was to be read is gone; false: warn and go on.",
    )  # fmt: skip
    as_administrator: bool = key(
        "asAdministrator", boolean(), "false", READING,
        "Read each ledger with the password that its metadata names, not with the option password.",
    )  # fmt: skip
    partitions_min: int = key(
        "minPartitions", integer("partitions", 1, 100_000), "1", PLANNING, "Read with at least so many tasks.",
    )  # fmt: skip
    partition_bytes_max: int = key(
        "maxPartitionBytes", integer("bytes", 64 * KIB, 64 * GIB), "67108864", PLANNING,
        "About how much one task reads at most.",
    )  # fmt: skip

    entries_max: int | None = key(
        "maxOffsetsPerTrigger", _COUNT, "", STREAMING, "Entries of one micro-batch at most; streams only.",
    )  # fmt: skip
    entries_max_alias: int | None = key(
        "maxEntriesPerTrigger", _COUNT, "", STREAMING, "The same by another name.",
    )  # fmt: skip
    bytes_max: int | None = key(
        "maxBytesPerTrigger", _COUNT, "", STREAMING,
        "About how many bytes one micro-batch holds at most; one entry always passes. Streams only.",
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        given = [word for word, value in (("query", self.query), ("job", self.job)) if value]
        if self.ledgers is None and not given:
            yield ("ledgers",), "is missing: which to read, e.g. all, or 3,7,10-20; or query, or job"
        if len(given) + (self.ledgers is not None) > 1:
            yield ("ledgers", "query", "job"), "ledgers, query and job exclude each other: give one of them"
        if self.ledgers is not None:
            for word, positions in (("startingOffsets", self.start), ("endingOffsets", self.end)):
                if unknown := unread(positions, self.ledgers):
                    yield (word,), f"names ledgers that are not read, as option ledgers leaves them out: {unknown}"
        if self.entries_max is not None and self.entries_max_alias not in (None, self.entries_max):
            yield (
                ("maxOffsetsPerTrigger", "maxEntriesPerTrigger"),
                "maxOffsetsPerTrigger and maxEntriesPerTrigger are one limit by two names: give one of them",
            )

    @property
    def committed(self) -> Owner | None:
        """Whose ledgers are read; None where they are chosen by id."""
        if self.query:
            return Owner(OwnerKind.QUERY, self.query)
        return Owner(OwnerKind.JOB, self.job) if self.job else None

    def check_use(self, *, stream: bool) -> None:
        """Raise ConfigurationError for words that have no meaning in a stream, or none but in a stream."""
        check_use(
            stream=stream,
            of_batches={"endingOffsets": self.end, "query": self.query, "job": self.job},
            of_streams={
                "maxOffsetsPerTrigger": self.entries_max,
                "maxEntriesPerTrigger": self.entries_max_alias,
                "maxBytesPerTrigger": self.bytes_max,
            },
        )

    @property
    def per_trigger(self) -> Limits:
        """What one micro-batch holds at most."""
        return Limits(self.entries_max_alias if self.entries_max is None else self.entries_max, self.bytes_max)

    @property
    def division(self) -> Division:
        """How a read, or a micro-batch from now on, is divided among tasks."""
        return Division(self.partitions_min, self.partition_bytes_max)
