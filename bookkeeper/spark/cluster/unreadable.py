"""Table `unreadable`: records of the cluster that have no row in the table of their kind.

Each list passes over such a record and continues. What the record describes is unknown, so the other tables may lack
rows while this table has any. Unreadable metadata of a ledger, registrations, cookies, marks and notes of bad copies
have rows in their own tables, with the reason in `problem`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.spark.cluster.asking import ROWS
from bookkeeper.spark.cluster.table import ClusterTable, Column, Of, Row

NAMED_MAX = 100_000
"""Maximum number of bad records of each kind with a row; the others are counted in one row."""


async def _walk(ids: AsyncIterator[Sequence[int]]) -> None:
    async for _ in ids:
        pass


def _lists(store: MetadataStore) -> dict[str, Callable[[BadRecords], Awaitable[object]]]:
    """Return the function that lists each kind of record."""
    marks = store.underreplication
    return {
        "ledger": lambda found: _walk(store.ledgers.ids(found)),
        "underreplicated": lambda found: _walk(marks.ids(found)),
        "damaged": lambda found: _walk(marks.bad_copy_ids(found)),
        "recovery_process": marks.processes,
    }


async def unreadable_rows(store: MetadataStore) -> AsyncGenerator[list[Row]]:
    """Yield the rows, about ROWS at a time. Raises MetadataError."""
    await store.sync()
    for kind, list_all in _lists(store).items():
        found = BadRecords(NAMED_MAX)
        await list_all(found)
        rows: list[Row] = [(kind, each.path, each.problem) for each in found.named]
        if found.count > len(rows):
            rows.append((kind, None, f"{found.count - len(rows)} more are not named here"))
        for first in range(0, len(rows), ROWS):
            yield rows[first : first + ROWS]


def _rows(client: BlockingBookKeeper, options: Any, share: object) -> Iterator[Sequence[Row]]:
    del options, share

    def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        return unreadable_rows(ledgers.store)

    return client.pieces(start)


UNREADABLE = ClusterTable(
    "unreadable",
    "znodes that are no record of the kind expected there, and so have no row in another table",
    (
        Column(
            "kind",
            Of.TEXT,
            "ledger (of ledgers, fragments, extents), underreplicated, damaged or recovery_process",
            nullable=False,
        ),
        Column("path", Of.TEXT, "of the znode; null in a row that counts those which are not named"),
        Column("problem", Of.TEXT, "what is wrong with it", nullable=False),
    ),
    _rows,
)
