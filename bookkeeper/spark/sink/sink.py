"""Writing to the format bookkeeper: one ledger for each task with rows, committed together, exactly once.

    planner      checks options and columns; a new writer, with an id of this write, for every batch
    tasks        each attempt writes a ledger of its own and says what it wrote
    committer    commits the ledgers of those attempts that Spark chose (`commits`), or gives the write up

Who reads by the options `query` or `job` sees what is committed, and nothing else; who reads ledgers by their ids reads
any. What tasks and processes that died have left behind is what the sweep deletes (`sweep`).

A batch of a query is committed once, whatever is repeated: where it is found committed already, by an earlier attempt
whose answer was lost or before a restart, the ledgers that were written again are deleted. Where they have other rows
than were committed (as many entries and bytes: the same), that is refused, unless option acceptRepeat leaves them out.
Spark calls abort after a commit that failed, with the same messages: nothing is deleted before it is certain that the
commit had no effect and never will have.

A job with a name that a query writes in foreachBatch is committed once for each batch of the query, too, under the same
name in all of them. Within one batch each write needs a name of its own; a second one by the same name is refused.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import BookKeeperError, InvalidArgument, NoSuchLedger
from bookkeeper.spark.process_client import client_of
from bookkeeper.spark.sink.commit_format import (
    LEDGERS_MAX,
    Commit,
    CommitRefused,
    Kind,
    Owner,
    WrittenLedger,
    by_partition,
    write_in_run,
)
from bookkeeper.spark.sink.commits import begin, commits_at, oldest_of
from bookkeeper.spark.sink.options import WHERE, SinkOptions
from bookkeeper.spark.sink.purpose import Purpose
from bookkeeper.spark.sink.task_ledger import VALUE, write_ledger

log = Logger()

DELETES_AT_ONCE = 16

_NEVER_COMMITTED_MS = -1
"""When ledgers were made that are gone: before any mark of the sweep, so that no commit takes them."""

QUERY_ID, BATCH_ID, JOB_GROUP = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""What a task of a stream knows of it. The job group is the id of the run of the query."""

_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class LedgerWritten(WriterCommitMessage):
    """What one task attempt did: the ledger it closed, None where it had no rows.

    head_id: what the ledger names as the head into which it is to be committed. query: of a job that a query runs in
    foreachBatch.
    """

    owner: Owner
    write: str
    batch: int
    partition: int
    head_id: int | None
    ledger: WrittenLedger | None
    query: str = ""


Messages = Sequence[WriterCommitMessage | None]


def check_rows(schema: StructType, *, overwrite: bool) -> None:
    """Raise InvalidArgument for rows that are no entries, or a mode that ledgers do not have."""
    if overwrite:
        raise InvalidArgument(
            f'format {WHERE}: a ledger cannot be overwritten; use .mode("append"), in a stream .outputMode("append"). '
            "What an aggregate has so far (complete, update) is written batch by batch, by foreachBatch"
        )
    others = [each.name for each in schema.fields if each.name.lower() != VALUE]
    values = [each.dataType for each in schema.fields if each.name.lower() == VALUE]
    if others or len(values) != 1:
        found = f"and not {', '.join(others)}" if others else f"and there are {len(values)} of them"
        raise InvalidArgument(
            f"format {WHERE}: an entry is one column, {VALUE} (binary or string), {found}. Put what is to be written "
            f'into one, e.g. .selectExpr("to_json(struct(*)) AS {VALUE}")'
        )
    if not isinstance(values[0], BinaryType | StringType):
        raise InvalidArgument(
            f"format {WHERE}: column {VALUE} is {values[0].simpleString()}; an entry is binary or string. Cast it, "
            f'e.g. .selectExpr("CAST({VALUE} AS STRING) AS {VALUE}")'
        )


class _Writing:
    """What both writers share. Pickled to tasks and to the committer."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write = uuid.uuid4().hex

    def _written(self, owner: Owner, batch: int, batches: Iterable[Any], in_stream: _InStream | None) -> LedgerWritten:
        """In a task: write its rows. in_stream: of a job."""
        context = _task()
        partition = context.partitionId()
        if partition >= LEDGERS_MAX:
            raise InvalidArgument(
                f"format {WHERE}: this write has more than {LEDGERS_MAX} partitions; so many ledgers can be committed "
                "as one. Write with fewer (coalesce)"
            )
        own, client = self._options.own, self._options.client
        write, query = self._write, ""
        if in_stream is not None:
            write, query = write_in_run(in_stream.run, write), in_stream.query
        rows = _first_rows(iter(batches))  # without any there is no need of a connection
        if rows is None:
            return LedgerWritten(owner, write, batch, partition, None, None, query)
        connected = client_of(client)
        head_id = begin(connected, own.commit_path, owner)
        purpose = Purpose(owner, write, batch, partition, context.attemptNumber(), head_id, own.commit_path)
        ledger = write_ledger(connected, own, purpose, rows)
        return LedgerWritten(owner, write, batch, partition, head_id, ledger, query)

    def _commit(self, messages: Messages) -> None:
        """On the driver: commit what the tasks wrote."""
        found = [message for message in messages if isinstance(message, LedgerWritten)]
        if len(found) < len(messages):
            raise InvalidArgument(f"format {WHERE}: {len(messages) - len(found)} of {len(messages)} tasks said nothing")
        if found:
            client_of(self._options.client).run(lambda client: Deferred.fromCoroutine(self._commit_all(client, found)))

    async def _commit_all(self, client: LedgerClient, messages: Sequence[LedgerWritten]) -> None:
        owner, write, batch = _one_write(messages)
        ledgers = by_partition([message.ledger for message in messages if message.ledger is not None])
        commits = await commits_at(client, self._options.own.commit_path)
        try:
            oldest_ms = await oldest_of(client, [ledger.ledger_id for ledger in ledgers])
        except CommitRefused:
            # Of a batch that is committed the sweep takes other ledgers at any age, and then they are not needed.
            if await commits.record(owner, batch) is None:
                raise
            oldest_ms = _NEVER_COMMITTED_MS
        new, query = Commit(batch, write, ledgers), messages[0].query
        committed = await commits.commit(
            owner, new, oldest_ms, _head_id(messages), query, accept_repeat=self._options.own.accept_repeat
        )
        if not new.is_as_large_as(committed):
            log.warn(
                "batch {batch} of {owner} was committed before with {entries} entries of {size} bytes, which stay; "
                "this write of it has {new_entries} of {new_size} bytes, which are left out (acceptRepeat=true)",
                batch=batch,
                owner=str(owner),
                entries=committed.entries,
                size=committed.size,
                new_entries=new.entries,
                new_size=new.size,
            )
        named = {ledger.ledger_id for ledger in committed.ledgers}
        again = [ledger.ledger_id for ledger in ledgers if ledger.ledger_id not in named]
        if again:
            log.info(
                "batch {batch} of {owner} was committed before; {count} ledgers that were written again are deleted",
                batch=batch,
                owner=str(owner),
                count=len(again),
            )
            await _delete(client, again)

    def _abort(self, messages: Messages) -> None:
        """On the driver: give the write up, unless it was committed."""
        found = [message for message in messages if isinstance(message, LedgerWritten)]
        if not any(message.ledger for message in found):
            return
        try:
            client_of(self._options.client).run(lambda client: Deferred.fromCoroutine(self._give_up(client, found)))
        except BookKeeperError as error:
            log.warn(
                "it is not known whether {owner} was committed, so its ledgers stay; the sweep will tell: {error}",
                owner=str(found[0].owner),
                error=error,
            )

    async def _give_up(self, client: LedgerClient, messages: Sequence[LedgerWritten]) -> None:
        owner, write, batch = _one_write(messages)
        commits = await commits_at(client, self._options.own.commit_path)
        if not await commits.give_up(owner, batch, write, _head_id(messages)):
            log.info("batch {batch} of {owner} was committed all the same; its ledgers stay", batch=batch, owner=owner)
            return
        await _delete(client, [message.ledger.ledger_id for message in messages if message.ledger is not None])


class LedgerBatchWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("bookkeeper")`: a job, by its name or a new id."""

    def write(self, iterator: Iterator[Any]) -> LedgerWritten:
        """In a task: write its rows to a ledger."""
        name = self._options.own.job
        if not name:
            return self._written(Owner(Kind.JOB, self._write), 0, iterator, None)
        in_stream = _in_stream(name, _task())
        return self._written(Owner(Kind.JOB, name), in_stream.batch if in_stream else 0, iterator, in_stream)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the job. Raises CommitRefused, MetadataError."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what tasks wrote, unless the job was committed."""
        self._abort(messages)


class LedgerStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("bookkeeper")`: one batch of a query."""

    def write(self, iterator: Iterator[Any]) -> LedgerWritten:
        """In a task: write its rows to a ledger."""
        context = _task()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if not query or batch is None:
            raise InvalidArgument(
                f"format {WHERE}: this task knows no query and batch; streams are written in micro-batches, "
                "without .trigger(continuous=...)"
            )
        return self._written(Owner(Kind.QUERY, query), int(batch), iterator, None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch. Raises CommitRefused, MetadataError."""
        del batchId  # the messages say it, and are what is committed
        try:
            self._commit(messages)
        except Exception:
            log.failure("a batch was not committed")  # Spark tells its users only that it failed
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what tasks wrote, unless the batch was committed."""
        del batchId
        self._abort(messages)


@dataclass(frozen=True, slots=True)
class _InStream:
    """The batch of a query whose foreachBatch runs a job, and the id of this run of the query."""

    query: str
    batch: int
    run: str


def _in_stream(job: str, context: TaskContext) -> _InStream | None:
    """Where a job is run; None outside of streams. Raises InvalidArgument where that cannot be told."""
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if not query or batch is None:
        return None
    run = context.getLocalProperty(JOB_GROUP) or ""
    if _RUN_ID.fullmatch(run) is None:
        raise InvalidArgument(
            f"format {WHERE}: job {job} is written in batch {batch} of query {query}, and its job group is {run!r}: "
            "want the id of the query's run, by which a batch that is replayed is told from a second write by that "
            "name. Leave the job group as it is in foreachBatch (SparkContext.setJobGroup)"
        )
    return _InStream(query, int(batch), run)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "runs in a task"
    return context


def _first_rows(batches: Iterator[Any]) -> Iterator[Any] | None:
    """The batches from the first with rows on; None where there is none."""
    for batch in batches:
        if batch.num_rows:
            return _with_first(batch, batches)
    return None


def _with_first(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _one_write(messages: Sequence[LedgerWritten]) -> tuple[Owner, str, int]:
    found = {(message.owner, message.write, message.batch) for message in messages}
    if len(found) != 1:
        raise InvalidArgument(f"format {WHERE}: tasks of different writes in one commit: {sorted(map(str, found))}")
    return found.pop()


def _head_id(messages: Sequence[LedgerWritten]) -> int | None:
    """The head that their ledgers name; None without any ledger. Raises CommitRefused where it changed meanwhile."""
    found = {message.head_id for message in messages if message.ledger is not None}
    if len(found) > 1:
        raise CommitRefused(f"{messages[0].owner} was removed and begun anew while it was written; write it again")
    return found.pop() if found else None


async def _delete(client: LedgerClient, ledger_ids: Sequence[int]) -> None:
    """Delete ledgers that nothing names; those that cannot be are left for the sweep."""

    async def delete(ledger_id: int) -> None:
        try:
            await client.delete(ledger_id)
        except NoSuchLedger:
            pass
        except BookKeeperError as error:
            log.warn(
                "ledger {ledger_id} is not committed and could not be deleted; it is left for the sweep: {error}",
                ledger_id=ledger_id,
                error=error,
            )

    await in_parallel((delete(ledger_id) for ledger_id in ledger_ids), DELETES_AT_ONCE)
