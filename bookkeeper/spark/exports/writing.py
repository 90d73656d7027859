"""Exported ledgers written anew by tasks, each by one task in order. Thread: a task's.

    a task's rows, sorted     position  entry_id  value
                              0         -1        the line of the ledger in the export     -> a new ledger
                              0         0         the payload of its first entry           -> appended
                              0         1         ...
                              1         -1        the line of the next                     -> the one before is closed

Every attempt makes ledgers of its own. Those of an attempt that fails are deleted where that can be done; whatever is
left is for the sweep (`sink.sweep`), since no commit will name it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import DigestType
from bookkeeper.spark.arrow_map import ArrowMap
from bookkeeper.spark.columns import arrow_schema
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import ExportedLedger, parse_ledger
from bookkeeper.spark.exports.options import ImportOptions
from bookkeeper.spark.options.tables import SourceOptions
from bookkeeper.spark.process_client import client_of
from bookkeeper.spark.sink.commit_format import Owner
from bookkeeper.spark.sink.purpose import Purpose, imported_custom
from bookkeeper.spark.sink.task_ledger import NewLedger, TaskLedger, data_of, pieces_of

LINE = -1
"""Stands for an entry id where the value is the line of the ledger."""

WRITTEN_SCHEMA = StructType(
    [
        StructField("position", IntegerType(), nullable=False),
        StructField("exported_id", LongType(), nullable=False),
        StructField("ledger_id", LongType(), nullable=False),
        StructField("entries", LongType(), nullable=False),
        StructField("bytes", LongType(), nullable=False),
        StructField("crc", LongType(), nullable=False),
        StructField("attempt", IntegerType(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class ImportWrite:
    """One attempt at a batch of an import. head_id: what its ledgers name as the head of the import."""

    owner: Owner
    export_id: str
    write: str
    batch: int
    head_id: int


def writing(options: SourceOptions[ImportOptions], this: ImportWrite) -> ArrowMap:
    """For `map_in_arrow` on rows position, entry_id, value: a row of WRITTEN_SCHEMA for each ledger.

    When a row is handed over all entries of its ledger are durable (acknowledged by the ack quorum) and it is closed.
    Raises NotAnExport for rows that are not as drawn, LedgerError, MetadataError.
    """

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        task = TaskCopies(options.own, this, context.attemptNumber(), lambda: client_of(options.client))
        try:
            for batch in batches:
                yield from task.take(batch)
            yield from task.close()
        except GeneratorExit:  # perhaps in the garbage collector, which must not wait: left for the sweep
            raise
        except BaseException:
            task.discard()
            raise

    return write


class TaskCopies:
    """The ledgers of one task attempt, one after the other. connected: gives the client, when it is needed."""

    def __init__(
        self, options: ImportOptions, this: ImportWrite, attempt: int, connected: Callable[[], BlockingBookKeeper]
    ) -> None:
        self._own, self._this, self._attempt, self._connected = options, this, attempt, connected
        self._current: _Copy | None = None
        self._made: list[int] = []

    def take(self, batch: Any) -> Iterator[Any]:
        """Write rows; the results of ledgers that came to their end."""
        positions, entry_ids, values = (batch.column(index) for index in range(3))
        lines = pc.indices_nonzero(pc.equal(entry_ids, LINE)).to_pylist()
        first = lines[0] if lines else batch.num_rows
        if first:  # the rest of the ledger that an earlier batch began
            self._append(entry_ids[0].as_py(), values.slice(0, first))
        for line, after in zip(lines, [*lines, batch.num_rows][1:], strict=True):
            yield from self.close()
            self._begin(positions[line].as_py(), parse_ledger(values[line].as_py().decode()))
            if after > line + 1:
                self._append(entry_ids[line + 1].as_py(), values.slice(line + 1, after - line - 1))

    def close(self) -> Iterator[Any]:
        """The result of the ledger that is being written, closed."""
        current = self._current
        if current is not None:
            current.close()
            self._current = None
            self._made.append(current.ledger.ledger_id)
            yield pa.RecordBatch.from_pylist([current.result(self._attempt)], schema=arrow_schema(WRITTEN_SCHEMA))

    def discard(self) -> None:
        """Delete what was made: nothing will ever name it."""
        if self._current is not None:
            self._current.ledger.discard()
        for ledger_id in self._made:
            with suppress(BookKeeperError):  # left for the sweep
                self._connected().delete(ledger_id)

    def _begin(self, position: int, exported: ExportedLedger) -> None:
        this = self._this
        purpose = Purpose(
            this.owner, this.write, this.batch, position, self._attempt, this.head_id, self._own.commit_path
        )
        new = NewLedger(
            self._own.ensemble or exported.ensemble_size or 0,
            self._own.write_quorum or exported.write_quorum or 0,
            self._own.ack_quorum or exported.ack_quorum or 0,
            imported_custom(exported.custom, purpose, f"{this.export_id}/{exported.ledger_id}"),
            None if exported.digest_type is None else DigestType[exported.digest_type],
        )
        self._current = _Copy(TaskLedger(self._connected(), new), exported, position)

    def _append(self, first_entry_id: int, values: Any) -> None:
        if self._current is None:
            raise NotAnExport(f"entry {first_entry_id} of a ledger that has no line")
        self._current.append(first_entry_id, values)


class _Copy:
    """One exported ledger and the new one."""

    def __init__(self, ledger: TaskLedger, exported: ExportedLedger, position: int) -> None:
        self.ledger = ledger
        self._exported, self._position = exported, position
        self._entries = self._size = self._crc = 0

    def append(self, first_entry_id: int, values: Any) -> None:
        """Add entries that follow."""
        if first_entry_id != self._entries:
            raise NotAnExport(
                f"ledger {self._exported.ledger_id}: entry {first_entry_id} where {self._entries} should be"
            )
        data = data_of(values)
        self._crc = zlib.crc32(data, self._crc)
        for piece in pieces_of(values, len(data)):
            self.ledger.append(piece)
        self._entries, self._size = self._entries + len(values), self._size + len(data)

    def close(self) -> None:
        """Wait for the last entry, and close. Raises NotAnExport where it is not as large as exported."""
        found, said = (self._entries, self._size), (self._exported.entries, self._exported.size)
        if found != said:
            raise NotAnExport(
                f"ledger {self._exported.ledger_id}: {found[0]:,} entries of {found[1]:,} bytes, exported were "
                f"{said[0]} of {said[1]}"
            )
        self.ledger.close()

    def result(self, attempt: int) -> dict[str, int]:
        """A row of WRITTEN_SCHEMA."""
        return {
            "position": self._position,
            "exported_id": self._exported.ledger_id,
            "ledger_id": self.ledger.ledger_id,
            "entries": self._entries,
            "bytes": self._size,
            "crc": self._crc,
            "attempt": attempt,
        }
