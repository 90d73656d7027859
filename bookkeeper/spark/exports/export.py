"""An export from beginning to end: ledgers to Parquet, verified, with a manifest.

    1  choose     which ledgers there are; tasks look at each          -> _plan/ledgers
    2  pack       the ledgers of each day into files                   -> _plan/pieces
    3  copy       a task for each file reads its pieces from bookies   -> entries/
    4  verify     entries, bytes and digests of what is in the files, beside what the metadata said
    5  describe   a line for each ledger and file                      -> ledgers/, files/, manifest/

What is in the files is what counts: digests are made of what is read back from them. Nothing is fenced or changed in
the cluster. An export that fails leaves a directory without a manifest; take another one for the next.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.client.faces.blocking import connect
from bookkeeper.clock import wall_ms
from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.arrow_map import map_in_arrow
from bookkeeper.spark.exports.checking import part_of
from bookkeeper.spark.exports.chosen import CHOSEN_SCHEMA, PIECE_SCHEMA, PLANNED, looking, packing
from bookkeeper.spark.exports.digests import RANGE_ENTRIES
from bookkeeper.spark.exports.entry_digests import ledger_digests, lines_digest
from bookkeeper.spark.exports.judging import judged_lines
from bookkeeper.spark.exports.manifest import (
    LEDGERS,
    Files,
    Manifest,
    Status,
    check_directory,
)
from bookkeeper.spark.exports.options import EXPORT, ExportOptions
from bookkeeper.spark.exports.reading import reading
from bookkeeper.spark.exports.stored import (
    ENTRIES,
    ENTRY_SCHEMA,
    FILES,
    PLAN,
    entries_of,
    file_lines,
    files_of,
    ledgers_of,
    lines_of,
    write_lines,
    write_manifest,
)
from bookkeeper.spark.ledgers.extents import chosen_ledgers
from bookkeeper.spark.ledgers.options import LedgerReadOptions
from bookkeeper.spark.ledgers.unconfirmed import Unconfirmed
from bookkeeper.spark.options.id_ranges import IdRanges
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.spark.outputs import OutputState, Stage, check_new
from bookkeeper.spark.pipeline import kept, told_by_spark
from bookkeeper.spark.process_client import instance_of
from bookkeeper.spark.said_as import LOSS_BORNE

LOOKS_EACH, LINES_EACH = 500, 50_000
"""Ledgers that one task looks at, and that one file of lines has."""

TOLD_MAX = 10
"""Ledgers named in an error."""

Say = Callable[[str], None]


class ExportFailed(BookKeeperError):
    """The export did not come to its end; why is in the text."""


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported. ledgers: the lines of the manifest's part as rows: ledger_id, status, entries, bytes."""

    directory: str
    manifest: Manifest
    ledgers: DataFrame


def export_ledgers(
    spark: SparkSession,
    uri: str,
    *,
    output: str,
    options: Mapping[str, object] | None = None,
    state: OutputState | None = None,
    say: Say = lambda _: None,
) -> Export:
    """Export ledgers of the cluster at `uri` to the directory `output`, which must not be there or be empty.

    output: any path that Spark can write to. options: `exports.options.ExportOptions`, and keys of the client.
    state: moved on as `output` is written; for who interrupts this. say: told in a line what begins. The export is
    there on return: its manifest is written last.
    Raises ConfigurationError, InvalidArgument for an `output` in which there is anything, ExportFailed, MetadataError.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    chosen = read_options(ExportOptions, given, where=EXPORT)
    directory = check_directory(output)
    try:
        check_new(spark, directory)
        return _Export(spark, directory, chosen, state or OutputState(), say).run()
    except PySparkException as error:
        raise ExportFailed(f"{directory}: {told_by_spark(error)}") from error


class _Export:
    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        options: SourceOptions[ExportOptions],
        state: OutputState,
        say: Say,
    ) -> None:
        self._spark, self._directory, self._options = spark, directory, options
        self._state, self._say = state, say

    def run(self) -> Export:
        """Every step."""
        created_ms, export_id = wall_ms(), uuid.uuid4().hex
        client_settings = self._options.client
        with connect(client_settings.metadata_service_uri, client_settings) as client:
            instance = instance_of(client)
            ids = chosen_ledgers(client, LedgerReadOptions(ledgers=self._options.own.ledgers))
        self._say(f"looking at {len(ids):,} ledgers")
        self._state.stage = Stage.BEGUN
        chosen = self._choose(ids)
        pieces = self._pack(chosen)
        count = self._copy(pieces)
        self._say("verifying what is in the files")
        entries = entries_of(self._spark, self._directory, any_files=count > 0)
        ledgers = self._describe(chosen, entries, len(ids))
        files = self._list(any_files=count > 0)
        part = part_of(ledgers, lines_digest(ledgers.select("line")))
        manifest = Manifest(export_id, created_ms, instance, RANGE_ENTRIES, part, files)
        self._state.stage = Stage.ENDING
        write_manifest(self._spark, self._directory, manifest)
        self._state.stage = Stage.COMPLETE
        return Export(self._directory, manifest, ledgers)

    def _choose(self, ids: list[int]) -> DataFrame:
        ranges = self._spark.createDataFrame(list(IdRanges.of(ids).ranges), "low LONG, high LONG")
        each = ranges.select(F.explode(F.sequence("low", "high")).alias("ledger_id"))
        spread = each.repartition(len(ids) // LOOKS_EACH + 1)
        chosen = self._kept(map_in_arrow(spread, looking(self._options), CHOSEN_SCHEMA), "ledgers")
        lost = chosen.where(F.col("status") == Status.LOST.value)
        if self._options.own.fail_on_data_loss:
            self._refuse(lost.select("ledger_id", "why"))
        if self._options.own.open_too:
            self._report_unconfirmed(chosen)
        return chosen

    def _report_unconfirmed(self, chosen: DataFrame) -> None:
        """Warn of entries that may be acknowledged and are left out, as the lines of their ledgers say."""
        unconfirmed = Unconfirmed("export")
        for row in chosen.where((F.col("status") == PLANNED) & (F.col("why") != "")).select("why").collect():
            unconfirmed.note(row.why)
        unconfirmed.warn()

    def _pack(self, chosen: DataFrame) -> DataFrame:
        planned = chosen.where(F.col("status") == PLANNED)
        days = planned.groupBy("date").agg(
            F.collect_list(F.struct("ledger_id", "last_entry_id", "size")).alias("ledgers")
        )
        return self._kept(map_in_arrow(days, packing(self._options.own.file_bytes_max), PIECE_SCHEMA), "pieces")

    def _copy(self, pieces: DataFrame) -> int:
        """Write the entries; how many files that is."""
        days = pieces.groupBy("date").agg(F.max("file").alias("last")).orderBy("date").collect()
        first_files, count = [], 0
        for day in days:
            first_files.append((day.date, count))
            count += day["last"] + 1
        if not count:
            return 0
        self._say(f"copying entries into {count:,} files")
        firsts = self._spark.createDataFrame(first_files, "date STRING, first LONG")
        numbered = pieces.join(F.broadcast(firsts), "date").withColumn("number", (F.col("first") + F.col("file")))
        files = (
            numbered.repartitionById(count, F.col("number").cast("int"))
            .sortWithinPartitions("ledger_id", "first_entry_id")
            .select(PIECE_SCHEMA.names)
        )
        entries = map_in_arrow(files, reading(self._options), ENTRY_SCHEMA)
        # As they are; said so that the writer, who wants each day's rows together, does not sort by the day alone.
        entries = entries.sortWithinPartitions("date", "ledger_id", "entry_id")
        entries.write.mode("error").partitionBy("date").parquet(f"{self._directory}/{ENTRIES}")
        return count

    def _describe(self, chosen: DataFrame, entries: DataFrame, count: int) -> DataFrame:
        """Write the lines of the ledgers; those lines as rows."""
        digests = ledger_digests(entries).withColumnRenamed("last_entry_id", "found_last")
        found = chosen.join(digests, "ledger_id", "left").repartitionByRange(count // LINES_EACH + 1, "ledger_id")
        lines = map_in_arrow(found.sortWithinPartitions("ledger_id"), judged_lines, "line STRING")
        write_lines(lines, self._directory, LEDGERS)
        ledgers = ledgers_of(lines_of(self._spark, self._directory, LEDGERS))
        if self._options.own.fail_on_data_loss:
            self._refuse(ledgers.where(F.col("status") == Status.INCOMPLETE.value))
        return ledgers

    def _list(self, *, any_files: bool) -> Files:
        """Write the lines of the files."""
        if any_files:
            write_lines(file_lines(self._spark, self._directory).orderBy("line").coalesce(1), self._directory, FILES)
        else:
            write_lines(self._spark.createDataFrame([], "line STRING").coalesce(1), self._directory, FILES)
        lines = lines_of(self._spark, self._directory, FILES)
        total = files_of(lines).agg(F.count("*").alias("files"), F.sum("bytes").alias("bytes")).collect()[0]
        return Files(total.files, total["bytes"] or 0, lines_digest(lines))

    def _kept(self, rows: DataFrame, name: str) -> DataFrame:
        """The same rows, once written down: asked again they might be others."""
        return kept(self._spark, rows, f"{self._directory}/{PLAN}/{name}")

    def _refuse(self, lost: DataFrame) -> None:
        """Raise ExportFailed if there is any, naming some."""
        some = lost.orderBy("ledger_id").limit(TOLD_MAX).collect()
        if some:
            told_ones = "; ".join(f"ledger {row.ledger_id}: {row.why}" for row in some)
            more = lost.count() - len(some)
            remedy = self._options.words.remedy("With {} the manifest says so, and the rest is exported", LOSS_BORNE)
            raise ExportFailed(
                f"{told_ones}{f'; and {more:,} more' if more else ''}{remedy}. {self._directory} is no "
                "export: it has no manifest"
            )
