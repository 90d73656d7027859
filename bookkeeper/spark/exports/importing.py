"""An import from beginning to end: the ledgers of an export written anew, verified, committed.

    1  check      all of the export (`checking`), and whether this cluster can have its ledgers; until then no write
    2  batches    BATCH_LEDGERS ledgers of the export at a time, by their ids: at each repetition the same
       write      a task for some of them writes each anew (`writing`)
       verify     the new ledgers are read back, and their digests compared with the manifest's
       commit     as batch of this import (`sink.commits`): from then on they are what the exported ones were
    3  tell       exported id -> new id, from the commits

What a batch has committed is never written again: who runs an import of this name again gets the same new ids, and
goes on behind the last batch that was committed. A name belongs to one export: the id of each write begins with the
export's.
Ledgers of attempts that came to nothing are in no commit; the sweep deletes them (`bookkeeper.spark.sweep`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import BookKeeperError, NoSuchLedger
from bookkeeper.spark.arrow_map import map_in_arrow
from bookkeeper.spark.exports import writing as task_writing
from bookkeeper.spark.exports.checking import Checked, checked
from bookkeeper.spark.exports.digests import NOTHING
from bookkeeper.spark.exports.entry_digests import ledger_digests
from bookkeeper.spark.exports.manifest import Manifest, Status, check_directory
from bookkeeper.spark.exports.options import IMPORT, ImportOptions
from bookkeeper.spark.exports.writing import LINE, WRITTEN_SCHEMA, ImportWrite
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.spark.pipeline import told_by_spark
from bookkeeper.spark.said_as import LOSS_BORNE, SAID_AS
from bookkeeper.spark.sink.commit_format import Commit, CommitRefused, Kind, Owner, WrittenLedger
from bookkeeper.spark.sink.commits import SinkCommits, begin, commits_at, oldest_of
from bookkeeper.spark.sink.options import check_commit_path

BATCH_LEDGERS = 1000
"""Ledgers of the export that are committed together. Never another number: it says which ledger is in which batch."""

DELETES_AT_ONCE, TOLD_MAX = 16, 10

QUORUMS = ("ensembleSize", "writeQuorumSize", "ackQuorumSize")
OWN_WORDS = ("job", "commitPath", *QUORUMS, "failOnDataLoss")

Say = Callable[[str], None]


class ImportFailed(BookKeeperError):
    """The import did not come to its end; why is in the text. What was committed stays, and is not written again."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One ledger. is_new: this run wrote it; false: an earlier one of the same name did."""

    exported_id: int
    ledger_id: int
    entries: int
    size: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Import:
    """What was imported, or is to be (dry run).

    ledgers: those that are committed, by their ids in the export. left_out: ledgers of the export that are not
    imported, because they were open, or something of them is lost, by their status. to_write: ledgers that are not
    written yet; none but in a dry run.
    """

    manifest: Manifest
    ledgers: tuple[Imported, ...]
    left_out: Mapping[Status, int]
    to_write: int


@dataclass(frozen=True, slots=True)
class _Member:
    """A ledger of the export. position: in its batch."""

    position: int
    ledger_id: int
    is_complete: bool
    entries: int
    size: int
    digest: str


def import_ledgers(
    spark: SparkSession,
    uri: str,
    directory: str,
    *,
    output: str | None = None,
    options: Mapping[str, object] | None = None,
    dry_run: bool = False,
    say: Say = lambda _: None,
) -> Import:
    """Write the ledgers of the export in `directory` anew to the cluster at `uri`; repeatable by its option `job`.

    output: a directory that must not exist, for rows exported_id, ledger_id, entries, bytes as Parquet. options:
    `exports.options.ImportOptions`, and keys of the client; `password` is the password of the new ledgers.
    dry_run: check everything, write nothing. say: told in a line what begins.
    On return all is durable, verified and committed. Raises ConfigurationError, NotAnExport (nothing was written),
    ImportFailed, CommitRefused, MetadataError.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    chosen = read_options(ImportOptions, given, where=IMPORT)
    check_commit_path(chosen.own.commit_path, chosen.client.metadata_service_uri, chosen.words)
    found = checked(spark, check_directory(directory))
    shared = {name: value for name, value in given.items() if name.lower() not in {w.lower() for w in OWN_WORDS}}
    shared[SAID_AS] = chosen.words.without(LOSS_BORNE).text  # new ledgers are all read back
    with connect(chosen.client.metadata_service_uri, chosen.client) as client:
        this = _Import(spark, client, chosen, shared, found, say)
        try:
            done = this.run(dry_run=dry_run)
            if output is not None and not dry_run:
                _table(spark, done.ledgers).write.mode("error").parquet(output)
        except PySparkException as error:
            raise ImportFailed(
                f"import {chosen.own.job}: {told_by_spark(error)}. What is committed stays; run it again to go on"
            ) from error
    return done


def _table(spark: SparkSession, ledgers: Iterable[Imported]) -> DataFrame:
    rows = [(each.exported_id, each.ledger_id, each.entries, each.size) for each in ledgers]
    return spark.createDataFrame(rows, "exported_id LONG, ledger_id LONG, entries LONG, bytes LONG")


class _Import:
    def __init__(
        self,
        spark: SparkSession,
        client: BlockingBookKeeper,
        options: SourceOptions[ImportOptions],
        shared: Mapping[str, str],
        export: Checked,
        say: Say,
    ) -> None:
        self._spark, self._client, self._options, self._shared = spark, client, options, shared
        self._export, self._say = export, say
        self._owner = Owner(Kind.IMPORT, options.own.job)

    def run(self, *, dry_run: bool) -> Import:
        """Every step behind the check of the export."""
        manifest = self._export.manifest
        left_out: dict[Status, int] = {
            status: count for status, count in manifest.ledgers.status.items() if count and status != Status.COMPLETE
        }
        self._check(left_out)
        ledgers: list[Imported] = []
        to_write = 0
        for number, members in enumerate(self._batches()):
            complete = [member for member in members if member.is_complete]
            record = self._record(number)
            if record is None and complete and dry_run:
                to_write += len(complete)
            elif record is None and complete:
                self._say(f"writing ledgers {members[0].ledger_id} to {members[-1].ledger_id} of the export")
                record = self._write(number, complete)
                ledgers += self._imported(number, record, complete, is_new=True)
            elif record is not None:
                ledgers += self._imported(number, record, complete, is_new=False)
        return Import(manifest, tuple(ledgers), left_out, to_write)

    # --- before anything is written

    def _check(self, left_out: Mapping[Status, int]) -> None:
        own, words, directory = self._options.own, self._options.words, self._export.directory
        lost = left_out.get(Status.LOST, 0) + left_out.get(Status.INCOMPLETE, 0)
        if lost and own.fail_on_data_loss:
            raise ImportFailed(
                f"{directory}: {lost:,} ledgers are not complete, and would be missing; nothing was written"
                + words.remedy("With {} the others are imported", LOSS_BORNE)
            )
        complete = self._export.ledgers.where(F.col("status") == Status.COMPLETE.value)
        quorums = complete.select(
            *(
                (F.lit(given) if given else F.col(name)).alias(name)
                for name, given in (
                    ("ensemble_size", own.ensemble),
                    ("write_quorum", own.write_quorum),
                    ("ack_quorum", own.ack_quorum),
                )
            )
        ).distinct()
        bookies = len(self._client.available_bookies().writable)
        for row in quorums.limit(TOLD_MAX * 100).collect():
            if not row.ensemble_size >= row.write_quorum >= row.ack_quorum:
                raise ImportFailed(
                    f"a ledger would have ensemble {row.ensemble_size}, write quorum {row.write_quorum}, ack quorum "
                    f"{row.ack_quorum}: none may be larger than the one before it; nothing was written"
                    + words.remedy("Give {}, {} and {} together", *QUORUMS)
                )
            if row.ensemble_size > bookies:
                raise ImportFailed(
                    f"a ledger wants {row.ensemble_size} bookies, and {bookies} are writable: start more, or have "
                    "fewer copies; nothing was written" + words.remedy("{}, {} and {} say how many", *QUORUMS)
                )

    def _batches(self) -> Iterator[list[_Member]]:
        """All ledgers of the export, complete or not, by their ids: a ledger is always in the same batch and place."""
        batch: list[_Member] = []
        for row in self._export.ledgers.orderBy("ledger_id").toLocalIterator():
            is_complete = row.status == Status.COMPLETE.value
            member = _Member(
                len(batch), row.ledger_id, is_complete, row.entries or 0, row["bytes"] or 0, row.digest or NOTHING
            )
            batch.append(member)
            if len(batch) == BATCH_LEDGERS:
                yield batch
                batch = []
        if batch:
            yield batch

    # --- a batch

    def _write(self, number: int, members: Sequence[_Member]) -> Commit:
        """Write, verify and commit a batch; what is committed as it, by whomever."""
        export_id = self._export.manifest.export_id
        head_id = begin(self._client, self._options.own.commit_path, self._owner)
        this = ImportWrite(self._owner, export_id, f"{export_id}.{uuid.uuid4().hex}", number, head_id)
        try:
            rows = map_in_arrow(
                self._rows(members), task_writing.writing(self._options, this), WRITTEN_SCHEMA
            ).collect()
            written = sorted(rows, key=lambda row: row.position)
            self._verify(written, members)
        except BaseException:
            self._give_up(this)
            raise
        ledgers = tuple(
            WrittenLedger(row.ledger_id, row.entries, row["bytes"], row.crc, row.position, row.attempt)
            for row in written
        )
        new = Commit(number, this.write, ledgers)
        ids = [ledger.ledger_id for ledger in ledgers]
        oldest_ms = self._client.run(lambda client: Deferred.fromCoroutine(oldest_of(client, ids)))
        committed: Commit = self._ask(lambda commits: commits.commit(self._owner, new, oldest_ms, head_id))
        if committed.write != new.write:  # another run of this import was faster
            self._delete(ids)
            self._check_export(number, committed)
        return committed

    def _rows(self, members: Sequence[_Member]) -> DataFrame:
        """The lines and entries of a batch's ledgers, as `writing` wants them."""
        low, high = members[0].ledger_id, members[-1].ledger_id
        positions = self._spark.createDataFrame(
            [(member.ledger_id, member.position) for member in members], "ledger_id LONG, position INT"
        )
        lines = self._export.ledgers.where(F.col("ledger_id").between(low, high)).select(
            "ledger_id", F.lit(LINE).cast("long").alias("entry_id"), F.col("line").cast("binary").alias("value")
        )
        entries = self._export.entries.where(F.col("ledger_id").between(low, high))
        rows = entries.select("ledger_id", "entry_id", "value").unionByName(lines)
        tasks = min(len(members), int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1))
        return (
            rows.join(F.broadcast(positions), "ledger_id")
            .repartitionById(tasks, "position")
            .sortWithinPartitions("position", "entry_id")
            .select("position", "entry_id", "value")
        )

    def _verify(self, written: Sequence[Any], members: Sequence[_Member]) -> None:
        """Raise ImportFailed unless the new ledgers have what the exported ones had."""
        ids = {row.position: row.ledger_id for row in written}
        wrong = [member for member in members if member.position not in ids]
        if len(written) != len(members) or wrong:
            raise ImportFailed(f"{len(written)} ledgers were written, {len(members)} were to be")
        found: dict[int, tuple[int, int, str]] = {}
        chosen = ",".join(map(str, sorted(ids.values())))
        entries = self._spark.read.format("bookkeeper").options(**self._shared, ledgers=chosen).load()
        for row in ledger_digests(entries, self._export.manifest.range_entries).collect():
            found[row.ledger_id] = (row.entries, row["bytes"], row.digest)
        for member in members:
            there = found.get(ids[member.position], (0, 0, NOTHING))
            if there != (member.entries, member.size, member.digest):
                raise ImportFailed(
                    f"ledger {member.ledger_id} of the export was written as {ids[member.position]}, and that is not "
                    f"the same: {there[0]:,} entries, {there[1]:,} bytes, digest {there[2]}; exported were "
                    f"{member.entries:,}, {member.size:,}, {member.digest}"
                )

    def _imported(self, number: int, record: Commit, members: Sequence[_Member], *, is_new: bool) -> Iterator[Imported]:
        self._check_export(number, record)
        exported = {member.position: member.ledger_id for member in members}
        for ledger in record.ledgers:
            if ledger.partition not in exported:
                raise ImportFailed(
                    f"batch {number} of {self._owner} has a ledger at place {ledger.partition}, where this export has "
                    "none that is complete"
                )
            yield Imported(exported[ledger.partition], ledger.ledger_id, ledger.entries, ledger.size, is_new)

    def _check_export(self, number: int, record: Commit) -> None:
        before = record.write.partition(".")[0]
        if before != self._export.manifest.export_id:
            raise CommitRefused(
                f"batch {number} of {self._owner} was committed from export {before}; {self._export.directory} is "
                f"export {self._export.manifest.export_id}"
                + self._options.words.remedy("Give this import another name ({})", "job")
            )

    # --- commits

    def _record(self, number: int) -> Commit | None:
        found: Commit | None = self._ask(lambda commits: commits.record(self._owner, number))
        return found

    def _give_up(self, this: ImportWrite) -> None:
        """Make sure that it is never committed, so that the sweep need not wait for its ledgers to grow old."""
        try:
            self._ask(lambda commits: commits.give_up(this.owner, this.batch, this.write, this.head_id))
        except BookKeeperError as error:
            self._say(f"its ledgers stay until the sweep finds them too old: {error}")

    def _ask(self, ask: Callable[[SinkCommits], Any]) -> Any:
        async def asked(client: LedgerClient) -> Any:
            return await ask(await commits_at(client, self._options.own.commit_path))

        return self._client.run(lambda client: Deferred.fromCoroutine(asked(client)))

    def _delete(self, ledger_ids: Sequence[int]) -> None:
        async def delete(client: LedgerClient, ledger_id: int) -> None:
            try:
                await client.delete(ledger_id)
            except NoSuchLedger:
                pass
            except BookKeeperError as error:
                self._say(f"ledger {ledger_id} is in no commit, and is left for the sweep: {error}")

        async def all_of_them(client: LedgerClient) -> None:
            await in_parallel((delete(client, ledger_id) for ledger_id in ledger_ids), DELETES_AT_ONCE)

        self._client.run(lambda client: Deferred.fromCoroutine(all_of_them(client)))
