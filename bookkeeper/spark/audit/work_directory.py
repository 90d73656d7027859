"""The directory of an audit: what it found, and what it needs to go on where it ended. Any path that Spark can use.

    DIR/
      round=N/            rows of the audit, in one file: of the parts of a round; of the last one, about whole ledgers
      _audit/begun        a line: of which cluster, and what was asked for; what stands below without it is none, and
                          is written anew, this directory included
      _audit/plan         what is audited: pieces, with part and round
      _audit/unknown      ledgers that are not, since nobody can say how far they reach, and why
      _audit/suspects     which ledgers there were when it began (of no bookie), which others bookies had, as ranges of
                          ids, and bookies that did not tell (`orphans`)
      _audit/in_place/pass=N/round=M/    rows of what was read in place
      _audit/passes       a line for each such pass that came to its end
      _audit/progress     a line for each round that is done
      _audit/summary      a line: what was audited and found; written last

`spark.read.parquet(DIR)` gives the rows. A round that was interrupted has no line of progress, and is done again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.audit.division import Piece
from bookkeeper.spark.audit.orphans import RANGE_COLUMNS, Held, held_in
from bookkeeper.spark.audit.rows import AUDIT_SCHEMA
from bookkeeper.spark.audit.stored_evidence import COLUMNS
from bookkeeper.spark.options.id_ranges import IdRanges
from bookkeeper.texts import parse_json

VERSION = 2

PIECE_COLUMNS = (
    "part INT, ledger_id LONG, first_chunk LONG, last_chunk LONG, last_entry_id LONG, size LONG, length LONG, round INT"
)

UNKNOWN_COLUMNS = "ledger_id LONG, detail STRING"

SUSPECT_COLUMNS = f"{RANGE_COLUMNS}, problem STRING"

_NAMES = ("begun", "plan", "unknown", "suspects", "in_place", "passes", "progress", "summary")
BEGUN, PLAN, UNKNOWN, SUSPECTS, IN_PLACE, PASSES, PROGRESS, SUMMARY = (f"_audit/{name}" for name in _NAMES)


class AuditFailed(BookKeeperError):
    """The audit did not come to its end; why is in the text."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What an audit is of. ledgers: as they were asked for."""

    instance: str
    ledgers: str
    places: tuple[str, ...]
    rounds: int
    parts_per_round: int
    started_ms: int


@dataclass(frozen=True, slots=True)
class RoundDone:
    """What was audited in a round. size: about, of all copies, as planned."""

    number: int
    chunks: int
    findings: int
    size: int
    seconds: float


class WorkDirectory:
    """See the module."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self.path = spark, path.rstrip("/") or "/"

    def begun(self) -> Begun | None:
        """What was begun here; None where nothing was. Raises AuditFailed for what is no audit."""
        line = self._line(BEGUN)
        if line is None:
            return None
        told = parse_json(line)
        if told.pop("version", None) != VERSION:
            raise AuditFailed(f"{self.path} is of another version of this program; give another directory")
        return Begun(**{**told, "places": tuple(told["places"])})

    def is_empty(self) -> bool:
        """Whether nothing is there, or a directory without files."""
        try:
            found = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(self.path)
            return found.select("path").limit(1).count() == 0 and self._line(BEGUN) is None
        except AnalysisException as error:
            _only_missing(error)
            return True

    def begin(self, begun: Begun, pieces: Iterable[tuple[Piece, int]], unknown: Mapping[int, str]) -> None:
        """Keep what is to be done. pieces: each with its round. unknown: ledgers that are not audited, and why.

        What an attempt left that was interrupted before it was begun is replaced. Raises AuditFailed where another one
        was begun meanwhile.
        """
        if self._line(BEGUN) is not None:
            raise AuditFailed(f"another audit was begun in {self.path} meanwhile; give another directory")
        rows = [(*piece_values(piece), number) for piece, number in pieces]
        plan = self._spark.createDataFrame(rows, PIECE_COLUMNS)
        plan.coalesce(1).write.mode("overwrite").parquet(f"{self.path}/{PLAN}")
        rows_of_unknown = self._spark.createDataFrame(list(unknown.items()), UNKNOWN_COLUMNS)
        rows_of_unknown.coalesce(1).write.mode("overwrite").parquet(f"{self.path}/{UNKNOWN}")
        self._write_line(BEGUN, {"version": VERSION, **asdict(begun)}, mode="overwrite")

    def keep_suspects(self, there: IdRanges, suspects: Held) -> None:
        """Keep what the search for orphans began with; before `begin`."""
        rows: list[tuple[str, int | None, int | None, str | None]]
        rows = [("", low, high, None) for low, high in there.ranges]
        rows += [(*each, None) for each in suspects.rows()]
        rows += [(bookie, None, None, why) for bookie, why in suspects.untold.items()]
        kept = self._spark.createDataFrame(rows, SUSPECT_COLUMNS)
        kept.coalesce(1).write.mode("overwrite").parquet(f"{self.path}/{SUSPECTS}")

    def suspects(self) -> tuple[IdRanges, Held]:
        """The same."""
        rows = self._spark.read.schema(SUSPECT_COLUMNS).parquet(f"{self.path}/{SUSPECTS}").orderBy("bookie", "low")
        kept = held_in((row.bookie, row.low, row.high, row.problem) for row in rows.toLocalIterator())
        return kept.ledgers.get("", IdRanges()), kept.of(bool)

    def plan(self) -> DataFrame:
        """The pieces, with `round`."""
        return self._spark.read.schema(PIECE_COLUMNS).parquet(f"{self.path}/{PLAN}")

    def unknown(self) -> dict[int, str]:
        """Ledgers that are not audited, and why."""
        try:
            rows = self._spark.read.schema(UNKNOWN_COLUMNS).parquet(f"{self.path}/{UNKNOWN}").toLocalIterator()
            return {row.ledger_id: row.detail for row in rows}
        except AnalysisException as error:
            _only_missing(error)
            return {}

    # --- what was read in place

    def keep_pass(self, rows: DataFrame) -> None:
        """Keep the rows of a pass, by round. Of an attempt that was interrupted nothing counts."""
        number = self.passes()
        rows.write.mode("overwrite").partitionBy("round").parquet(f"{self.path}/{IN_PLACE}/pass={number}")
        self._write_line(PASSES, {"pass": number}, mode="append")

    def passes(self) -> int:
        """How many are kept."""
        return len(self._lines(PASSES))

    def in_place(self) -> DataFrame | None:
        """The rows of all passes, with `round`; None where there was none."""
        paths = [f"{self.path}/{IN_PLACE}/pass={number}" for number in range(self.passes())]
        if not paths:
            return None
        made = [self._spark.read.schema(f"{COLUMNS}, round INT").parquet(path) for path in paths]
        return reduce(DataFrame.unionByName, made)

    # --- rounds

    def done(self) -> dict[int, RoundDone]:
        """The rounds that are done."""
        return {each["number"]: RoundDone(**each) for each in map(json.loads, self._lines(PROGRESS))}

    def keep_round(self, number: int, rows: DataFrame) -> None:
        """Keep the rows of a round, instead of what an interrupted attempt left."""
        rows.repartition(1).write.mode("overwrite").parquet(f"{self.path}/round={number}")

    def round_rows(self, number: int) -> DataFrame:
        """The rows of a round."""
        return self._spark.read.schema(AUDIT_SCHEMA).parquet(f"{self.path}/round={number}")

    def note_done(self, done: RoundDone) -> None:
        """A round's rows are there."""
        self._write_line(PROGRESS, asdict(done), mode="append")

    def rows(self, rounds: Sequence[int]) -> DataFrame:
        """The rows of some rounds; an empty table of none."""
        if not rounds:
            return self._spark.createDataFrame([], AUDIT_SCHEMA)
        paths = [f"{self.path}/round={number}" for number in rounds]
        return self._spark.read.schema(AUDIT_SCHEMA).parquet(*paths)

    def summary(self) -> dict[str, Any] | None:
        """What was kept when the audit came to its end; None where it has not."""
        line = self._line(SUMMARY)
        return None if line is None else dict(parse_json(line))

    def complete(self, summary: Mapping[str, object]) -> None:
        """It has come to its end. An attempt that was interrupted in saying so left no line, but its directory."""
        self._write_line(SUMMARY, summary, mode="overwrite")

    # --- lines

    def _line(self, table: str) -> str | None:
        lines = self._lines(table)
        if len(lines) > 1:
            raise AuditFailed(f"{self.path}/{table} has {len(lines)} lines instead of one; give another directory")
        return lines[0] if lines else None

    def _lines(self, table: str) -> list[str]:
        try:
            return [row.value for row in self._spark.read.text(f"{self.path}/{table}").collect()]
        except AnalysisException as error:
            _only_missing(error)
            return []

    def _write_line(self, table: str, told: Mapping[str, Any], mode: str) -> None:
        line = self._spark.createDataFrame([(json.dumps(told),)], "value STRING")
        line.coalesce(1).select(F.col("value")).write.mode(mode).text(f"{self.path}/{table}")


def piece_values(piece: Piece) -> tuple[int | None, ...]:
    """A piece as a row of PIECE_COLUMNS, without its round."""
    first, last = piece.first_chunk, piece.last_chunk
    return piece.part, piece.ledger_id, first, last, piece.last_entry_id, piece.size, piece.length


def _only_missing(error: AnalysisException) -> None:
    if error.getCondition() != "PATH_NOT_FOUND":
        raise error
