"""Data source `bookkeeper.whatif`: what a situation means for the ledgers of each task. Made for `report`.

Each task reads the metadata of its ledgers, asks the bookies of open ones what is confirmed, and hands over rows

    ledger    of a fragment that is affected: `effects.LedgerEffect`; problem: why it cannot be done
    unknown   of a ledger of which nothing can be said; problem: why
    bookie    of all its ledgers together: `effects.BookieLoad`
    seen      how many ledgers of each ensemble size there are; null: not known
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config.keys import key, text
from bookkeeper.model import LedgerMetadata
from bookkeeper.spark.cluster.asking import rows_of
from bookkeeper.spark.cluster.extents import known_reach
from bookkeeper.spark.cluster.id_runs import ids_of
from bookkeeper.spark.cluster.ledgers import fragment_rows, shares
from bookkeeper.spark.cluster.source import ClusterSource
from bookkeeper.spark.cluster.table import ClusterTable, Column, ManyOptions, Of, Row
from bookkeeper.spark.whatif.effects import COUNTS, LOADS, Effects, FragmentRow
from bookkeeper.spark.whatif.situation import situation_from

LEDGER, UNKNOWN, BOOKIE, SEEN = "ledger", "unknown", "bookie", "seen"
"""Kinds of rows."""

WHERE = "bookkeeper.whatif"


@dataclass(frozen=True, slots=True)
class WhatIfOptions(ManyOptions):
    """Besides: the situation."""

    situation: str = key(
        "situation", text("JSON"), "", "What is asked", "As bookkeeper.spark.whatif.situation writes it.",
    )  # fmt: skip


_COLUMNS = (
    Column("kind", Of.TEXT, "ledger, unknown, bookie, seen", nullable=False),
    Column("ledger_id", Of.LONG, "the ledger; null: bookie, seen"),
    Column("bookie", Of.TEXT, "the bookie; null: ledger, unknown, seen"),
    Column("problem", Of.TEXT, "why it cannot be done, or told; null: it can"),
    Column("ensemble_size", Of.INT, "of ledgers seen"),
    Column("ledgers", Of.LONG, "how many were seen"),
    *(Column(name, Of.LONG, "see LedgerEffect; null: bookie, unknown, seen") for name in COUNTS),
    *(Column(name, Of.LONG, "see BookieLoad; null: ledger, unknown, seen") for name in LOADS),
)


def _row(kind: str, **values: object) -> Row:
    return (kind, *(values.get(column.name) for column in _COLUMNS[1:]))


def effect_rows(effects: Effects, ledger_id: int, metadata: LedgerMetadata, end: int, length: int) -> Iterator[Row]:
    """The rows of a ledger's fragments that are affected."""
    for _, _, first, last, _, ensemble, _ in fragment_rows(ledger_id, metadata):
        assert isinstance(first, int)
        assert isinstance(ensemble, list)
        fragment = FragmentRow(
            ledger_id=ledger_id,
            first_entry_id=first,
            last_entry_id=last if isinstance(last, int) else end,
            ensemble=tuple(ensemble),
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
            end=end,
            length=length,
        )
        effect = effects.of(fragment)
        if effect is not None:
            counts = {name: getattr(effect, name) for name in COUNTS}
            yield _row(LEDGER, ledger_id=ledger_id, problem=effect.impossible or None, **counts)


def _rows(client: BlockingBookKeeper, options: WhatIfOptions, share: array[int]) -> Iterator[Sequence[Row]]:
    effects, seen = Effects(situation_from(options.situation)), Counter[int | None]()

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        await ledgers.store.sync()

        async def ask(ledger_id: int) -> Sequence[Row]:
            reach = await known_reach(ledgers, ledger_id)
            if reach is None:
                return ()
            seen[None if reach.metadata is None else reach.metadata.ensemble_size] += 1
            if reach.metadata is None or reach.end is None or reach.length is None:
                return [_row(UNKNOWN, ledger_id=ledger_id, problem=reach.problem)]
            return list(effect_rows(effects, ledger_id, reach.metadata, reach.end, reach.length))

        async for piece in rows_of(ids_of(share), ask):
            yield piece

    yield from client.pieces(start)
    loads = [
        _row(BOOKIE, bookie=bookie_id, **{name: getattr(load, name) for name in LOADS})
        for bookie_id, load in effects.loads.items()
    ]
    yield [*loads, *(_row(SEEN, ensemble_size=size, ledgers=count) for size, count in seen.items())]


EFFECTS = ClusterTable("effects", "what a situation means", _COLUMNS, _rows, shares, WhatIfOptions)


class WhatIfSource(ClusterSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return WHERE

    def _table(self) -> ClusterTable:
        return EFFECTS
