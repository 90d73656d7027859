"""Reading an edit log as a stream: a micro-batch is a range of transactions.

    offset      {"txid": the next transaction, "namespace_id": of the journal's namespace}: of this form for ever;
                besides how the micro-batch that ends there is divided among tasks, and in the first two where the query
                began (`stream_offsets` of bookkeeper): Spark asks for it again
    new data    what is confirmed; nothing is fenced, and a segment that ends and the next one are one sequence

Txids are given once and never change, so a range that was logged gives the same rows when it is read again, in the same
partitions, also when the segment in progress has grown, been finalised or recovered meanwhile and the options are
others. What is logged was confirmed before, and stays.
Nothing is kept between calls but the target of a query that is to end (availableNow).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bookkeeper.spark.ledgers.stream_offsets import Offset, initial_offset, next_offset, planned, position_of
from bookkeeper.spark.options.stream_limits import default_limit, limits_of
from bookkeeper.spark.process_client import client_of
from journalmgr.errors import JournalError
from journalmgr.spark.edit_options import EARLIEST, LATEST, WHERE
from journalmgr.spark.edit_plan import end_by_bytes, look, namespace_id, plan_range
from journalmgr.spark.edit_source import EditPartition, Options, read_partition

if TYPE_CHECKING:
    from bookkeeper.client.faces.blocking import BlockingBookKeeper
    from journalmgr.spark.edit_segments import State

TXID, NAMESPACE = "txid", "namespace_id"


class EditLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream read; in the process that plans, and in those that read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: int | None = None
        self._latest: int | None = None
        self._namespace_id: int | None = None

    # --- offsets

    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        start = LATEST if self._options.own.start is None else self._options.own.start
        if start == LATEST:
            start = self._end()
        elif start == EARLIEST:
            state = self._look(1)
            start = state.spans[0].first_txid if state.spans else state.last_txid + 1
        return initial_offset(self._offset(start))

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Offset:
        """One past the last transaction that the next micro-batch may have; `start` where it has none yet.

        So too where the query has read a part of a segment in progress and is not to read such any more: it waits
        until that is finalised. Raises JournalError where the query cannot have come to `start` in this journal.
        """
        begin = self._txid(start)
        state = self._look(begin)
        self._latest = end = state.last_txid + 1
        if end < begin and not state.may_go_further:
            raise JournalError(
                f"format {WHERE}: journal {self._options.own.root} ends at txid {state.last_txid}, and the query is at "
                f"{begin}: the checkpoint is of another journal, this one was formatted anew, or the query began "
                "behind its end; begin with a new checkpoint"
            )
        if self._target is not None:
            end = min(end, self._target)
        end = max(begin, end)
        own = self._options.own
        limits = limits_of(limit, own.per_trigger)
        if limits.entries is not None:
            end = min(end, begin + limits.entries)
        if limits.size is not None and end > begin:
            end = min(end, max(begin + 1, end_by_bytes(self._client, own, state, begin, limits.size)))
        return next_offset(start, self._offset(end), own.division)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        return default_limit(self._options.own.per_trigger)

    def reportLatestOffset(self) -> Offset | None:
        """The end of the journal when it was looked at last, for the status of the query."""
        return None if self._latest is None else self._offset(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that is written from now on is read."""
        self._target = self._end(is_last=True)

    def _offset(self, txid: int) -> dict[str, int]:
        if self._namespace_id is None:
            self._namespace_id = namespace_id(self._client, self._options.own)
        return {TXID: txid, NAMESPACE: self._namespace_id}

    def _txid(self, offset: Mapping[str, Any]) -> int:
        """Raises JournalError for the offset of another source or journal."""
        position = position_of(offset)
        txid, namespace = position.get(TXID), position.get(NAMESPACE)
        if type(txid) is not int or type(namespace) is not int:
            raise JournalError(
                f"format {WHERE}: {position} is no offset of an edit log: the checkpoint is of another query"
            )
        ours = self._offset(txid)[NAMESPACE]
        if namespace != ours:
            raise JournalError(
                f"format {WHERE}: the checkpoint is of a journal of namespace id {namespace}, and journal "
                f"{self._options.own.root} belongs to {ours}: begin with a new checkpoint"
            )
        return txid

    # --- reading

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Who reads what of a micro-batch; the same whenever it is asked for; see `plan_range`."""
        own = self._options.own
        plan = planned(start, end, own.division)
        first, beyond = self._txid(plan.start), self._txid(plan.end)
        if first >= beyond:
            return []
        return [EditPartition(slices) for slices in plan_range(self._client, own, first, beyond, plan.division)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition as Arrow batches."""
        return read_partition(self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing is kept: Spark's checkpoint has the offset."""

    @property
    def _client(self) -> BlockingBookKeeper:
        return client_of(self._options.client)

    def _end(self, *, is_last: bool = False) -> int:
        """One past the last transaction; where that is, all finalised segments' names say. is_last: see `look`."""
        return self._look(2**63 - 1, is_last=is_last).last_txid + 1

    def _look(self, from_txid: int, *, is_last: bool = False) -> State:
        return look(self._client, self._options.own, from_txid, is_last=is_last)
