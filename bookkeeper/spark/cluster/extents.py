"""Table `extents`: how far each ledger reaches, also those that are not closed. Bookies are asked; nothing is fenced.

Metadata say it of closed ledgers. Of the others it is what their bookies say is confirmed at that moment; where they do
not tell it stays null, and `problem` says why: unknown is not empty.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.errors import BookKeeperError, MetadataCorrupt, MetadataTooNew, NoSuchLedger
from bookkeeper.model import LedgerId, LedgerMetadata
from bookkeeper.spark.cluster.asking import rows_of
from bookkeeper.spark.cluster.id_runs import ids_of
from bookkeeper.spark.cluster.ledgers import LEDGERS, ledger_rows, shares
from bookkeeper.spark.cluster.table import ClusterTable, Column, ManyOptions, Of, Row, told
from bookkeeper.spark.ledgers.extents import reach_of


@dataclass(frozen=True, slots=True)
class Reach:
    """What is known of a ledger. end: its last entry, -1 for none; length: bytes of payload up to it; None: unknown."""

    metadata: LedgerMetadata | None
    end: int | None
    length: int | None
    problem: str | None


async def known_reach(ledgers: LedgerClient, ledger_id: int) -> Reach | None:
    """How far a ledger reaches as far as can be told; None for one that is deleted."""
    try:
        metadata = (await ledgers.store.ledgers.read(LedgerId(ledger_id))).value
    except NoSuchLedger:
        return None
    except (MetadataCorrupt, MetadataTooNew) as error:
        return Reach(None, None, None, told(error))
    if metadata.last_entry_id is not None and metadata.length is not None:
        return Reach(metadata, metadata.last_entry_id, metadata.length, None)
    try:
        end, length, metadata, _ = await reach_of(ledgers, ledger_id)
    except NoSuchLedger:
        return None
    except BookKeeperError as error:
        return Reach(metadata, None, None, f"what is confirmed of it is not known: {told(error)}")
    return Reach(metadata, end, length, None)


_NAMES = tuple(column.name for column in LEDGERS.columns)
_KNOWN_TO_BOOKIES = {
    "last_entry_id": Column(
        "last_entry_id", Of.LONG, "entry id, -1 for none; of a ledger not CLOSED what is confirmed"
    ),
    "length": Column("length", Of.LONG, "bytes of payload up to that entry, one copy"),
}
_COLUMNS = tuple(_KNOWN_TO_BOOKIES.get(each.name, each) for each in LEDGERS.columns if each.name != "custom")


def extent_row(ledger_id: int, reach: Reach) -> Row:
    """The row of `extents`."""
    row: dict[str, object] = dict.fromkeys(_NAMES)
    if reach.metadata is not None:
        [values] = ledger_rows(ledger_id, reach.metadata)
        row = dict(zip(_NAMES, values, strict=True))
    row |= {
        "ledger_id": ledger_id,
        "last_entry_id": reach.end,
        "length": reach.length,
        "problem": reach.problem,
    }
    return tuple(row[column.name] for column in _COLUMNS)


def _rows(client: BlockingBookKeeper, options: Any, share: array[int]) -> Iterator[Sequence[Row]]:
    del options

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        await ledgers.store.sync()

        async def ask(ledger_id: int) -> Sequence[Row]:
            reach = await known_reach(ledgers, ledger_id)
            return () if reach is None else [extent_row(ledger_id, reach)]

        async for piece in rows_of(ids_of(share), ask):
            yield piece

    return client.pieces(start)


EXTENTS = ClusterTable(
    "extents",
    "every ledger, and how far it reaches: of those that are not closed what their bookies say is confirmed",
    _COLUMNS,
    _rows,
    shares,
    ManyOptions,
)
