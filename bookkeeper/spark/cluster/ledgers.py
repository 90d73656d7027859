"""Tables `ledgers` and `fragments`: what the metadata store says of each ledger. No bookie is asked."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.errors import MetadataCorrupt, MetadataTooNew, NoSuchLedger
from bookkeeper.model import LedgerId, LedgerMetadata
from bookkeeper.spark.cluster.asking import rows_of, shares_of_ids
from bookkeeper.spark.cluster.id_runs import ids_of
from bookkeeper.spark.cluster.table import (
    PROBLEM,
    ClusterTable,
    Column,
    ManyOptions,
    Of,
    Row,
    text_or_none,
    time_or_none,
    told,
)
from bookkeeper.spark.options.bounds import Bounds

OWNERS = (
    "owner",
    "pulsar/managed-ledger",
    "pulsar/compactedTopic",
    "pulsar/schemaId",
    "journalmgr.image",
    "spark.query",
    "spark.job",
)
"""Keys of custom metadata that name whom a ledger belongs to: the first that is there counts. Pulsar's, and ours."""

Rows = Callable[[int, LedgerMetadata], Sequence[Row]]


def ledger_rows(ledger_id: int, metadata: LedgerMetadata) -> Sequence[Row]:
    """The row of `ledgers`."""
    custom = metadata.custom
    return [
        (
            ledger_id,
            metadata.state.name,
            metadata.ensemble_size,
            metadata.write_quorum,
            metadata.ack_quorum,
            metadata.last_entry_id,
            metadata.length,
            len(metadata.fragments),
            None if metadata.digest_type is None else metadata.digest_type.name,
            metadata.format_version,
            time_or_none(metadata.created_ms),
            text_or_none(custom.get("application")),
            text_or_none(custom.get("component")),
            owner_of(custom),
            sorted(custom.items()),
            None,
        )
    ]


def owner_of(custom: Mapping[str, bytes]) -> str | None:
    """Whom a ledger belongs to, as its custom metadata says; None where it does not."""
    return next((text_or_none(custom[name]) for name in OWNERS if name in custom), None)


def fragment_rows(ledger_id: int, metadata: LedgerMetadata) -> Sequence[Row]:
    """The rows of `fragments`."""
    fragments = metadata.fragments
    rows: list[Row] = []
    for index, fragment in enumerate(fragments):
        after = fragments[index + 1].first_entry_id - 1 if index + 1 < len(fragments) else metadata.last_entry_id
        count = None if after is None else max(0, after - fragment.first_entry_id + 1)
        rows.append((ledger_id, index, fragment.first_entry_id, after, count, list(fragment.ensemble), None))
    return rows


def _table(name: str, meaning: str, columns: tuple[Column, ...], rows_from: Rows) -> ClusterTable:
    unknown = (None,) * (len(columns) - 2)

    def rows(client: BlockingBookKeeper, options: Any, share: array[int]) -> Iterator[Sequence[Row]]:
        del options

        def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
            async def ask(ledger_id: int) -> Sequence[Row]:
                try:
                    found = await ledgers.store.ledgers.read(LedgerId(ledger_id))
                except NoSuchLedger:
                    return ()  # deleted since it was listed
                except (MetadataCorrupt, MetadataTooNew) as error:
                    return [(ledger_id, *unknown, told(error))]
                return rows_from(ledger_id, found.value)

            return _synced(ledgers, rows_of(ids_of(share), ask))

        return client.pieces(start)

    return ClusterTable(name, meaning, columns, rows, shares, ManyOptions)


async def _synced(ledgers: LedgerClient, rows: AsyncGenerator[list[Row]]) -> AsyncGenerator[list[Row]]:
    await ledgers.store.sync()
    async for piece in rows:
        yield piece


def shares(client: BlockingBookKeeper, options: ManyOptions, bounds: Bounds) -> Sequence[object]:
    """Ledger ids, cut into shares."""
    return shares_of_ids(client, options, bounds, lambda ledgers, strays: ledgers.ids(strays))


_LEDGER_ID = Column("ledger_id", Of.LONG, "the ledger", nullable=False)

LEDGERS = _table(
    "ledgers",
    "every ledger, as its metadata says",
    (
        _LEDGER_ID,
        Column("state", Of.TEXT, "OPEN, IN_RECOVERY or CLOSED"),
        Column("ensemble_size", Of.INT, "bookies of a fragment (E)"),
        Column("write_quorum", Of.INT, "copies of an entry (Qw)"),
        Column("ack_quorum", Of.INT, "copies before an entry is acknowledged (Qa)"),
        Column("last_entry_id", Of.LONG, "entry id, -1 for an empty ledger; null while it is not CLOSED"),
        Column("length", Of.LONG, "bytes of payload, one copy; null while it is not CLOSED"),
        Column("fragments", Of.INT, "how many"),
        Column("digest_type", Of.TEXT, "CRC32, CRC32C, MAC or DUMMY; null in ledgers older than 4.2"),
        Column("metadata_version", Of.INT, "of the metadata's format, 1 to 3"),
        Column("created", Of.TIME, "when, as its creator noted or the metadata store did; null where neither is known"),
        Column("application", Of.TEXT, "custom metadata `application`; null where there is none, or it is no text"),
        Column("component", Of.TEXT, "custom metadata `component`, likewise"),
        Column("owner", Of.TEXT, f"the first of {', '.join(OWNERS)} in the custom metadata, likewise"),
        Column("custom", Of.BYTES_BY_TEXT, "custom metadata, as it is"),
        PROBLEM,
    ),
    ledger_rows,
)

FRAGMENTS = _table(
    "fragments",
    "every fragment of every ledger: which bookies have which entries",
    (
        _LEDGER_ID,
        Column("index", Of.INT, "number of the fragment in its ledger, from 0"),
        Column("first_entry_id", Of.LONG, "entry id, inclusive"),
        Column("last_entry_id", Of.LONG, "entry id, inclusive; below the first: no entry; null where it is still open"),
        Column("entries", Of.LONG, "how many; null where it is still open"),
        Column("bookies", Of.TEXTS, "its ensemble, in order"),
        PROBLEM,
    ),
    fragment_rows,
)
