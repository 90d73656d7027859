"""Reading slices of topics in a task: straight from the bookies, without fencing, read ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from bookkeeper.errors import NoSuchLedger
from bookkeeper.model import DigestType
from bookkeeper.spark.ledgers.slices import warn_of_other_rows
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.process_client import client_of
from hedwig.spark.topic_columns import topic_batch
from hedwig.spark.topic_extents import Options, data_loss
from hedwig.spark.topic_partition import TopicPartition
from hedwig.spark.topic_parts import loss_text


def read_topic_slices(options: Options, partition: TopicPartition) -> Iterator[Any]:
    """The messages of a partition that pass, in order, as Arrow batches.

    Raises LedgerError where one cannot be read from any copy, UnexpectedCondition where it was deleted since, or its
    ledger ends before it (data loss; a warning where that is to be borne).
    """
    own = options.own
    client = client_of(options.client)
    every = partition.offsets == Bounds()
    for piece in partition.slices:
        topic, base = partition.of[piece.ledger_id]
        first, last = piece.first_entry_id, piece.last_entry_id
        why = "was deleted"
        try:
            with client.open_without_recovery(piece.ledger_id, own.password, DigestType.CRC32) as handle:
                handle.note_confirmed(last)
                for batch in handle.batches(first, last):
                    payloads = [entry.payload for entry in batch]
                    rows = topic_batch(topic, piece.ledger_id, base, batch[0].entry_id, payloads, headers=own.headers)
                    first = batch[-1].entry_id + 1
                    if not every:
                        ids = [base + entry.entry_id in partition.offsets for entry in batch]
                        rows = rows.filter(pa.array(ids, pa.bool_()))
                    yield rows
            why = "ends before them"
        except NoSuchLedger:
            pass
        if first <= last:
            data_loss(options, f"{loss_text(topic, base + first, base + last)}: ledger {piece.ledger_id} {why}")
            warn_of_other_rows(options.words)
