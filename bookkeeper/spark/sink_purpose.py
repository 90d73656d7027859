"""What a ledger that a task of Spark wrote says of itself, and whether it is an orphan. Pure.

custom metadata      example
application          bookkeeper-spark
spark.job            NAME              one of these
spark.query          ID
spark.import         NAME              or this one, of `exports`; then `application` is what the exported ledger said
spark.write          id of the write: of one attempt at a batch
spark.batch          41                0 of a job
spark.partition      3
spark.attempt        0
spark.created        1700000000000     by the clock of the task's machine, in milliseconds since 1970
spark.commits        /bookkeeper-spark where to look whether it was committed
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.spark.sink_commit_format import Commit, Head, Kind, Owner

APPLICATION = b"bookkeeper-spark"

IMPORTED_FROM = "imported-from"
"""Name in the custom metadata of an imported ledger: the id of the export and that of the ledger, as `id/7`."""

_IMPORT = f"spark.{Kind.IMPORT.value}"
_EARLIER = "imported."


@dataclass(frozen=True, slots=True)
class Purpose:
    """What one ledger is for."""

    owner: Owner
    write: str
    batch: int
    partition: int
    attempt: int
    created_ms: int
    commit_path: str

    def __str__(self) -> str:
        return f"{self.owner}, batch {self.batch}, partition {self.partition}, attempt {self.attempt}"

    def custom(self) -> dict[str, bytes]:
        """As custom metadata."""
        said = {
            f"spark.{self.owner.kind.value}": self.owner.name,
            "spark.write": self.write,
            "spark.batch": self.batch,
            "spark.partition": self.partition,
            "spark.attempt": self.attempt,
            "spark.created": self.created_ms,
            "spark.commits": self.commit_path,
        }
        return {"application": APPLICATION, **{name: str(value).encode() for name, value in said.items()}}


def imported_custom(custom: Mapping[str, bytes], purpose: Purpose, imported_from: str) -> dict[str, bytes]:
    """Custom metadata of a ledger that is written anew: what it had, and what it is for.

    What it had says nothing about this cluster's commits: names that mean that are kept with `imported.` before them.
    """
    said = purpose.custom() | {IMPORTED_FROM: imported_from.encode()}
    taken = {*said, *(f"spark.{kind.value}" for kind in Kind)} - {"application"}
    kept = {f"{_EARLIER}{name}" if name in taken else name: value for name, value in custom.items()}
    return said | kept


def is_ours(custom: Mapping[str, bytes]) -> bool:
    """Whether a task of Spark wrote it."""
    return custom.get("application") == APPLICATION or _IMPORT in custom


def parse_purpose(custom: Mapping[str, bytes]) -> Purpose | None:
    """The purpose of a ledger that is ours; None where it does not say all of it."""
    try:
        said = {name: value.decode("ascii") for name, value in custom.items() if name.startswith("spark.")}
        [owner] = [Owner(kind, said[f"spark.{kind.value}"]) for kind in Kind if f"spark.{kind.value}" in said]
        batch, partition, attempt, created_ms = (
            int(said[f"spark.{name}"]) for name in ("batch", "partition", "attempt", "created")
        )
        return Purpose(owner, said["spark.write"], batch, partition, attempt, created_ms, said["spark.commits"])
    except (ValueError, KeyError):
        return None


class Fate(enum.Enum):
    """What the sweep does with a ledger."""

    COMMITTED = "committed"
    IN_FLIGHT = "may still be committed"
    UNKNOWN = "cannot be judged"
    SUPERSEDED = "another write of its batch was committed, or a later batch"
    ABORTED = "its write was given up"
    TOO_OLD = "was not committed in time"

    @property
    def is_orphan(self) -> bool:
        """Nothing names it, and nothing ever will."""
        return self in (Fate.SUPERSEDED, Fate.ABORTED, Fate.TOO_OLD)


def fate_of(
    ledger_id: int, purpose: Purpose, head: Head | None, record: Commit | None, *, instance: str, swept_before_ms: int
) -> Fate:
    """What becomes of a ledger.

    head, record: of its owner and batch, both read after `swept_before_ms` was written down: from then on no commit can
    name a ledger that is older.

        record               head                       fate
        names it             -                          committed
        -                    of another cluster         unknown
        does not             last batch is not before   superseded
                             names its write as aborted aborted
                             else, or none              too old or in flight, by its age
    """
    if head is not None and head.instance != instance:
        return Fate.UNKNOWN
    if record is not None and any(each.ledger_id == ledger_id for each in record.ledgers):
        return Fate.COMMITTED
    if head is not None and purpose.batch <= head.last_batch:
        return Fate.SUPERSEDED
    if head is not None and purpose.write in head.aborted:
        return Fate.ABORTED
    return Fate.TOO_OLD if purpose.created_ms < swept_before_ms else Fate.IN_FLIGHT
