"""An audit from beginning to end: planned, read in place where that is asked for, judged round by round, counted.

    suspects    which ledgers bookies have that the cluster has not (`orphans`)
    plan        which chunks of which ledgers, divided into parts and rounds (`division`)
    in place    passes over the directories of bookies that do not run, until nothing is missing (`in_place`)
    rounds      a job each: chunks beside what was read in place; the rest is asked of the bookies (`judging`)
    ledgers     what is about ledgers as a whole (`whole_ledgers`)

With a directory everything is kept there (`work_directory`), an audit that was interrupted goes on after the last round
that was done, and one that is complete is read again. Without one all parts are one round, and its rows are in Spark's
cache.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.clock import wall_ms
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.arrow_map import map_in_arrow
from bookkeeper.spark.audit.division import Division
from bookkeeper.spark.audit.in_place import Place
from bookkeeper.spark.audit.in_place_passes import NOTHING, InPlace, Passes, Say
from bookkeeper.spark.audit.judgement import FindingKind
from bookkeeper.spark.audit.judging import JudgeWork, judging
from bookkeeper.spark.audit.ledger_ends import ids_there
from bookkeeper.spark.audit.options import WHERE, AuditOptions
from bookkeeper.spark.audit.orphans import (
    RANGE_COLUMNS,
    Held,
    find_orphans,
    held_in_place,
    held_now,
    sizes_in_place,
)
from bookkeeper.spark.audit.rows import AUDIT_SCHEMA, CHUNK
from bookkeeper.spark.audit.source import AuditPlan, planned
from bookkeeper.spark.audit.stored_evidence import PLAN
from bookkeeper.spark.audit.whole_ledgers import ORPHAN, of_the_client, orphan_rows, unknown_rows, whole_ledgers
from bookkeeper.spark.audit.work_directory import (
    PIECE_COLUMNS,
    UNKNOWN_COLUMNS,
    AuditFailed,
    Begun,
    RoundDone,
    WorkDirectory,
    piece_values,
)
from bookkeeper.spark.cluster.id_runs import IdRuns
from bookkeeper.spark.options.id_ranges import IdRanges
from bookkeeper.spark.options.tables import read_options
from bookkeeper.spark.pipeline import told_by_spark
from bookkeeper.spark.process_client import instance_of

__all__ = ["Audit", "AuditFailed", "audit"]


@dataclass(frozen=True, slots=True)
class Audit:
    """What was audited and found. rows: as `rows` says; from files, or from Spark's cache.

    in_place: bookies whose directories were read, and whether all of it was. in_place_unread: why others were not.
    held_unknown: bookies that could not tell which ledgers they have, and why: of these no orphan is found.
    """

    rows: DataFrame
    ledgers: int
    entries: int
    copies: int
    found: Mapping[str, int]
    """Findings by kind."""
    unknown_copies: int
    """Copies, of `copies`, whose bookies could not be asked or could not tell."""
    in_place: Mapping[str, bool]
    in_place_unread: Sequence[str]
    held_unknown: Mapping[str, str]

    @classmethod
    def kept(cls, rows: DataFrame, summary: Mapping[str, Any]) -> Audit:
        """What it was when its `summary` was kept."""
        return cls(rows, **{**summary, "in_place_unread": tuple(summary["in_place_unread"])})

    @property
    def summary(self) -> dict[str, Any]:
        """All but the rows, for JSON."""
        return {
            "ledgers": self.ledgers,
            "entries": self.entries,
            "copies": self.copies,
            "found": dict(self.found),
            "unknown_copies": self.unknown_copies,
            "in_place": dict(self.in_place),
            "in_place_unread": list(self.in_place_unread),
            "held_unknown": dict(self.held_unknown),
        }

    @property
    def findings(self) -> DataFrame:
        """The rows that are findings."""
        return self.rows.where(F.col("kind") != CHUNK)

    @property
    def is_clean(self) -> bool:
        """Every copy is good. Orphans are garbage, and no fault of a copy."""
        return not set(self.found) - {ORPHAN}

    @property
    def only_unknown(self) -> bool:
        """Nothing is wrong as far as could be asked, but some could not."""
        return set(self.found) - {ORPHAN} == {"unknown"}


def audit(
    spark: SparkSession,
    uri: str,
    *,
    output: str | None = None,
    options: Mapping[str, object] | None = None,
    bookie_directories: Sequence[str] = (),
    resume: bool = False,
    say: Say = lambda _: None,
    on_begun: Callable[[], None] = lambda: None,
) -> Audit:
    """Audit the cluster at `uri`; every task of it runs before this returns.

    output: a directory that must not exist, for the rows as Parquet, any path that Spark and its tasks can write to.
    options: of the format `bookkeeper.audit`, and keys of the client. bookie_directories: a ledger directory of each
    bookie that does not run and whose copies are to be read in place, by the tasks that find it on their machine (or
    LEDGER_DIRS|JOURNAL_DIRS|INDEX_DIRS where they are not where its cookie says); copies of all others are read through
    their bookies. resume: go on with the audit in `output`; its plan counts, and where it is complete, what it found.
    say: told in a line how far it is. on_begun: called when `output` has all that `resume` needs.
    Raises ConfigurationError, AuditFailed, MetadataError, NoSuchLedger for one that was named by itself.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    places = tuple(Place.parse(each) for each in bookie_directories)
    run = _Run(spark, given, places, say, on_begun)
    try:
        return run.run(output, resume=resume)
    except PySparkException as error:
        raise AuditFailed(told_by_spark(error)) from error
    finally:
        run.clean_up()


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        given: Mapping[str, str],
        places: Sequence[Place],
        say: Say,
        on_begun: Callable[[], None],
    ) -> None:
        self._spark, self._given, self._places, self._say = spark, given, tuple(places), say
        self._on_begun = on_begun
        self._options = read_options(AuditOptions, given, where=WHERE)
        self._argument = self._options.words.argument
        self._tasks = max(1, int(spark.sparkContext.defaultParallelism))
        self._passes: list[Passes] = []
        self._scratch: str | None = None

    def run(self, output: str | None, *, resume: bool) -> Audit:
        """All of it."""
        client_settings = self._options.client
        with connect(client_settings.metadata_service_uri, client_settings) as client:
            if output is None:
                if resume:
                    raise ConfigurationError(
                        f"to go on with an audit its directory is needed: {self._argument('output')}"
                    )
                return self._in_memory(client)
            directory = WorkDirectory(self._spark, output)
            begun = self._resumed(client, directory) if resume else self._begin(client, directory)
            self._on_begun()
            if (summary := directory.summary()) is not None:
                at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(begun.started_ms / 1000))
                self._say(f"the audit in {directory.path}, begun {at} UTC, is complete: told is what it found then")
                return Audit.kept(directory.rows(range(begun.rounds + 1)), summary)
            division = Division(self._starts(directory), begun.parts_per_round)
            in_place = self._read_in_place(directory, division)
            self._rounds(directory, begun, in_place)
            return self._whole(client, directory, begun, in_place)

    def clean_up(self) -> None:
        """Remove what only this run needed."""
        for passes in self._passes:
            passes.clean_up()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    # --- without a directory

    def _in_memory(self, client: BlockingBookKeeper) -> Audit:
        listed, suspects = self._suspects(client)
        plan = self._planned(client, listed)
        division = Division.of(plan.pieces, tasks=self._tasks, one_round=True)
        in_place = self._read_in_place(self._scratch_directory(), division) if self._places else NOTHING
        pieces = self._spark.createDataFrame([(*piece_values(piece), 0) for piece in plan.pieces], PIECE_COLUMNS)
        rows = self._judged(pieces, division.parts_of(0), in_place, 0).cache()
        rows.count()  # audited now, before it is asked again who has what
        orphans = self._orphans(client, IdRanges(tuple(listed.runs())), suspects, in_place)
        whole = self._about_ledgers(rows, pieces, plan.unknown, orphans, in_place)
        whole = whole.coalesce(1).cache()
        whole.count()  # before what it is made of is removed
        return self._counted(rows.unionByName(whole), in_place, orphans.untold)

    def _scratch_directory(self) -> WorkDirectory:
        if (self._spark.sparkContext.master or "").partition("[")[0] != "local":
            raise ConfigurationError(
                "reading bookies in place on several machines needs a directory that all of them can write to: "
                + self._argument("output")
            )
        self._scratch = tempfile.mkdtemp(prefix="bookkeeper-audit.")
        return WorkDirectory(self._spark, self._scratch)

    # --- with a directory

    def _begin(self, client: BlockingBookKeeper, directory: WorkDirectory) -> Begun:
        if not directory.is_empty():
            raise AuditFailed(
                f"{directory.path} already exists: give a directory that does not, or go on with the audit in it "
                f"({self._argument('resume')})"
            )
        listed, suspects = self._suspects(client)
        directory.keep_suspects(IdRanges(tuple(listed.runs())), suspects)
        plan = self._planned(client, listed)
        division = Division.of(plan.pieces, tasks=self._tasks)
        begun = Begun(
            instance_of(client), self._given.get("ledgers", "all"), tuple(map(str, self._places)), division.rounds,
            division.parts_per_round, wall_ms(),
        )  # fmt: skip
        directory.begin(begun, ((piece, division.round_of(piece.part)) for piece in plan.pieces), plan.unknown)
        return begun

    def _resumed(self, client: BlockingBookKeeper, directory: WorkDirectory) -> Begun:
        begun = directory.begun()
        if begun is None:
            begin = f": without {self._argument('resume')} one is begun there" if directory.is_empty() else ""
            raise AuditFailed(f"{directory.path} is no audit that was begun, nothing to go on with{begin}")
        asked = (instance_of(client), self._given.get("ledgers", "all"), ", ".join(map(str, self._places)))
        there = (begun.instance, begun.ledgers, ", ".join(begun.places))
        for name, wanted, found in zip(("cluster", "ledgers", "bookie directories"), asked, there, strict=True):
            if wanted != found:
                raise AuditFailed(
                    f"the audit in {directory.path} is of {name} {found or 'none'}, and not {wanted or 'none'}: "
                    "go on with the same, or begin another one in another directory"
                )
        return begun

    def _starts(self, directory: WorkDirectory) -> tuple[tuple[int, int], ...]:
        least = F.min(F.struct("ledger_id", "first_chunk")).alias("least")
        rows = directory.plan().groupBy("part").agg(least).orderBy("part").collect()
        return tuple((row.least.ledger_id, row.least.first_chunk) for row in rows)

    def _rounds(self, directory: WorkDirectory, begun: Begun, in_place: InPlace) -> None:
        done = directory.done()
        sizes = {
            row["round"]: row["size"]
            for row in directory.plan().groupBy("round").agg(F.sum("size").alias("size")).collect()
        }
        total = sum(sizes.values()) or 1
        if done:
            self._say(f"going on: {len(done):,} of {begun.rounds:,} rounds are done")
        for number in range(begun.rounds):
            if number in done:
                continue
            start = time.monotonic()
            plan = directory.plan().where(F.col("round") == number)
            first = number * begun.parts_per_round
            parts = range(first, first + begun.parts_per_round)
            directory.keep_round(number, self._judged(plan, parts, in_place, number))
            kinds = {row.kind: row["count"] for row in directory.round_rows(number).groupBy("kind").count().collect()}
            chunks = kinds.pop(CHUNK, 0)
            done[number] = RoundDone(
                number, chunks, sum(kinds.values()), sizes.get(number, 0), time.monotonic() - start
            )
            directory.note_done(done[number])
            if begun.rounds > 1:
                self._say(_progress(done.values(), begun.rounds, total))

    def _whole(self, client: BlockingBookKeeper, directory: WorkDirectory, begun: Begun, in_place: InPlace) -> Audit:
        rows = directory.rows(range(begun.rounds))
        orphans = self._orphans(client, *directory.suspects(), in_place)
        whole = self._about_ledgers(rows, directory.plan(), directory.unknown(), orphans, in_place)
        directory.keep_round(begun.rounds, whole)
        found = self._counted(directory.rows(range(begun.rounds + 1)), in_place, orphans.untold)
        directory.complete(found.summary)
        return found

    # --- steps of both

    def _suspects(self, client: BlockingBookKeeper) -> tuple[IdRuns, Held]:
        """The ledgers of the cluster, and which others bookies have, who were asked before."""
        told = held_now(self._spark, of_the_client(self._given))
        listed = ids_there(client)
        return listed, told.without(IdRanges(tuple(listed.runs())))

    def _orphans(self, client: BlockingBookKeeper, there: IdRanges, suspects: Held, in_place: InPlace) -> Held:
        """Orphans by bookie, and the bookies that did not tell which ledgers they have."""
        in_directories = frozenset(name for (name, _), units in in_place.done.items() if PLAN in units)
        running = suspects.of(lambda name: name not in in_directories)
        stored = Held() if in_place.rows is None else held_in_place(in_place.rows).without(there)

        def held_again() -> Held:
            return held_now(self._spark, of_the_client(self._given)).of(lambda name: name not in in_directories)

        return find_orphans(running, stored, client, self._options.own.ledgers.__contains__, held_again)

    def _about_ledgers(
        self, rows: DataFrame, plan: DataFrame, unknown: Mapping[int, str], orphans: Held, in_place: InPlace
    ) -> DataFrame:
        """Findings about ledgers as a whole, all of them."""
        whole = whole_ledgers(rows, plan, self._options.client)
        if unknown:
            not_audited = self._spark.createDataFrame(list(unknown.items()), UNKNOWN_COLUMNS)
            whole = whole.unionByName(unknown_rows(not_audited))
        if orphans.ledgers:
            ranges = self._spark.createDataFrame(orphans.rows(), RANGE_COLUMNS)
            found = ranges.select("bookie", F.explode(F.sequence("low", "high")).alias("ledger_id"))
            whole = whole.unionByName(
                orphan_rows(found, None if in_place.rows is None else sizes_in_place(in_place.rows))
            )
        return whole

    def _planned(self, client: BlockingBookKeeper, listed: IdRuns) -> AuditPlan:
        return planned(client, self._options.own, tasks=self._tasks, there=listed, say=self._say)

    def _read_in_place(self, directory: WorkDirectory, division: Division) -> InPlace:
        if not self._places:
            return NOTHING
        passes = Passes(self._spark, directory, self._options, self._places, self._tasks, self._say)
        self._passes.append(passes)
        return passes.run(division)

    def _judged(self, plan: DataFrame, parts: range, in_place: InPlace, number: int) -> DataFrame:
        """The rows of the chunks of a round."""
        wanted = plan.select(
            F.lit(CHUNK).alias("kind"), "ledger_id", "part", "last_entry_id",
            F.explode(F.sequence("first_chunk", "last_chunk")).alias("chunk"),
        )  # fmt: skip
        if in_place.rows is not None:
            of_chunks = in_place.rows.where((F.col("round") == number) & F.col("chunk").isNotNull())
            owners = F.broadcast(plan.select("part", "ledger_id", "first_chunk", "last_chunk"))
            placed = of_chunks.join(owners, "ledger_id").where("chunk BETWEEN first_chunk AND last_chunk")
            wanted = wanted.unionByName(placed.drop("first_chunk", "last_chunk", "round"), allowMissingColumns=True)
        spread = wanted.repartitionById(max(1, len(parts)), F.col("part") - parts.start)
        work = JudgeWork(self._options.client, self._share(), in_place.bookies)
        return map_in_arrow(spread.sortWithinPartitions("ledger_id", "chunk", "kind"), judging(work), AUDIT_SCHEMA)

    def _share(self) -> float:
        """Of what each bookie is read at most in a second, the part of a task."""
        return self._options.own.bytes_per_s / self._tasks

    def _counted(self, rows: DataFrame, in_place: InPlace, held_unknown: Mapping[str, str]) -> Audit:
        findings = rows.where(F.col("kind") != CHUNK)
        kinds = (
            findings.groupBy("kind").agg(F.count("*").alias("findings"), F.sum("entries").alias("entries")).collect()
        )
        found = {row.kind: row.findings for row in kinds}
        unknown = sum(row.entries or 0 for row in kinds if row.kind == FindingKind.UNKNOWN.value)
        chunks = rows.where(F.col("kind") == CHUNK)
        total = chunks.agg(F.countDistinct("ledger_id"), F.sum("entries"), F.sum("copies")).first()
        assert total is not None
        whole = {name: bookie.whole for name, bookie in in_place.bookies.items()}
        return Audit(
            rows, int(total[0]), int(total[1] or 0), int(total[2] or 0), found, unknown, whole, tuple(in_place.unread),
            held_unknown,
        )  # fmt: skip


def _progress(done: Any, rounds: int, total: int) -> str:
    rounds_done = list(done)
    size = sum(each.size for each in rounds_done)
    seconds = sum(each.seconds for each in rounds_done)
    findings = sum(each.findings for each in rounds_done)
    left_s = seconds * (total - size) / size if size else 0.0
    left = (
        f"{left_s / 3600:.1f} h" if left_s >= 3600 else f"{left_s / 60:.0f} min" if left_s >= 60 else f"{left_s:.0f} s"
    )
    return (
        f"{len(rounds_done):,} of {rounds:,} rounds, {100 * size // total} %, findings so far: {findings:,}; "
        f"about {left} left"
    )
