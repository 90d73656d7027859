"""What a table of the format bookkeeper.cluster is: its columns, its words, and who reads it. Pure.

    a package declares   TABLE = ClusterTable(name, meaning, columns, shares, rows, options)
    a planner calls      shares(client, options, bounds) -> what each task reads; whatever can be pickled
    each task calls      rows(client, options, share) -> lists of rows, a tuple a row, in the order of the columns

Tables of packages that this one does not know come in by entry point, group `bookkeeper.spark.tables`: the name is the
table's, the object a ClusterTable. They read only: nothing is fenced, marked or written.

Unknown is never "no": what could not be found out is null, and the column `problem` of that row says why. A thing that
vanished between listing and reading is no row.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bookkeeper.config.keys import integer, key, text
from bookkeeper.spark.options.bounds import Bounds

if TYPE_CHECKING:
    from bookkeeper.client.faces.blocking import BlockingBookKeeper

WHAT, PLANNING = "What is read", "Partitions"

Row = tuple[object, ...]

TIME_MAX_MS = 253_402_300_799_999
"""The end of the year 9999: a time beyond it is none that anybody meant, and is shown as unknown."""


class Of(enum.Enum):
    """What a column holds, as Spark calls it. TIME: milliseconds since 1970 in a row, a timestamp in the table."""

    LONG = "bigint"
    INT = "int"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TEXT = "string"
    TIME = "timestamp"
    TEXTS = "array<string>"
    TEXT_BY_TEXT = "map<string,string>"
    BYTES_BY_TEXT = "map<string,binary>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. meaning: with its unit, and when it is null."""

    name: str
    of: Of
    meaning: str
    nullable: bool = True


PROBLEM = Column("problem", Of.TEXT, "why columns of this row are null that should say something; null: none is")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The words of every table."""

    table: str = key("table", text("name"), "", WHAT, "Which table; see bookkeeper.spark.cluster_help().")

    def faults(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        return ()


@dataclass(frozen=True, slots=True)
class ManyOptions(ClusterOptions):
    """Besides: the words of a table with a row or more for each of many ledgers."""

    partitions_min: int = key(
        "minPartitions", integer("partitions", 1, 100_000), "1", PLANNING, "Read with at least so many tasks.",
    )  # fmt: skip
    partition_rows_max: int = key(
        "maxLedgersPerPartition", integer("ledgers", 1, 1_000_000), "5000", PLANNING,
        "How many ledgers one task asks about at most.",
    )  # fmt: skip


def one_share(client: BlockingBookKeeper, options: Any, bounds: Bounds) -> Sequence[object]:
    """Everything is one task's."""
    del client, options, bounds
    return [None]


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """See the module.

    needs: options without which it cannot be read, besides the address. The bounds that `shares` is given leave nothing
    out as long as the source takes no filters (see `source`).
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    rows: Callable[[BlockingBookKeeper, Any, Any], Iterator[Sequence[Row]]]
    shares: Callable[[BlockingBookKeeper, Any, Bounds], Sequence[object]] = one_share
    options: type[ClusterOptions] = ClusterOptions
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        assert len(set(names)) == len(names), f"table {self.name} has a column twice"


def time_or_none(milliseconds: int | None) -> int | None:
    """A time that a table can hold."""
    return milliseconds if milliseconds is not None and 0 <= milliseconds <= TIME_MAX_MS else None


def text_or_none(value: bytes | None) -> str | None:
    """Bytes that are UTF-8, as text."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def told(error: BaseException) -> str:
    """An error as the column `problem` has it."""
    return str(error) or type(error).__name__
