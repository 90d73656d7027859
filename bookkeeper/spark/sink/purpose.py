"""What a ledger that a task of Spark wrote says of itself, and whether it is an orphan. Pure.

custom metadata      example
application          bookkeeper-spark
spark.job            NAME              one of these
spark.query          ID
spark.import         NAME              or this one, of `exports`; then `application` is what the exported ledger said
spark.write          id of the write: of one attempt at a batch
spark.batch          41                0 of a job outside of streams
spark.partition      3
spark.attempt        0
spark.head           4294967301        creation id of its owner's head, which was there before the ledger
spark.commits        /bookkeeper-spark where to look whether it was committed

Earlier releases write no `spark.head`, but `spark.created`: milliseconds since 1970 by the clock of the task's machine.

A ledger is deleted only where something that is there proves that no commit names it, nor ever will; `head` and
`record` are those of its owner and batch, read in this order, after the mark of the sweep:

    record            head                                             fate
    -                 of another cluster                               unknown
    names it          -                                                committed
    -                 none                                             unknown: whatever it said is gone
    -                 not the one that the ledger names                unknown: another one said whatever there was
    -                 names its write as given up                      orphan: aborted
    does not name it  -                                                orphan: superseded
    none              the ledger's batch is forgotten                  orphan: forgotten
    none              last batch is the ledger's, or behind it         unknown: there was a record, and it is gone
    none              last batch is before it, and the ledger names
                      no head                                          in flight; unknown once it is older than the mark
                      this head, and is not older than the mark        in flight
                      this head, and is older than the mark            orphan: too old

Why the orphans are certain:
  * aborted: `SinkCommits.give_up` wrote that down only after it had seen that the write was not committed, and a commit
    of what is named there is refused.
  * superseded: a record never changes, and names all that is ever committed as its batch.
  * forgotten: the head says so because somebody asked for it, before the record went, and batches rise.
  * too old: the head has been there since before the ledger was made and its batches rise, so the batch was not
    committed. Nor will it be: a commit goes only into the head that its ledgers name, in one transaction with a check
    of the mark, and is refused for ledgers that are older than the mark. One that is under way right now was therefore
    done before the mark was written, and then its record is seen, or it fails and finds the mark.

So a job whose first write died leaves a head, and can be cleaned up; where heads or records were removed, lost with
their directory, or are another cluster's, nothing is. Age is by the metadata store's clock alone: when it made the
ledger's znode, against when it wrote the mark; the clocks of tasks and of who sweeps decide nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.spark.sink.commit_format import Commit, Head, Kind, Owner

APPLICATION = b"bookkeeper-spark"

IMPORTED_FROM = "imported-from"
"""Name in the custom metadata of an imported ledger: the id of the export and that of the ledger, as `id/7`."""

_IMPORT = f"spark.{Kind.IMPORT.value}"
_EARLIER = "imported."


@dataclass(frozen=True, slots=True)
class Purpose:
    """What one ledger is for. head_id: None where an earlier release wrote it."""

    owner: Owner
    write: str
    batch: int
    partition: int
    attempt: int
    head_id: int | None
    commit_path: str

    def __str__(self) -> str:
        return f"{self.owner}, batch {self.batch}, partition {self.partition}, attempt {self.attempt}"

    def custom(self) -> dict[str, bytes]:
        """As custom metadata."""
        said: dict[str, object] = {
            f"spark.{self.owner.kind.value}": self.owner.name,
            "spark.write": self.write,
            "spark.batch": self.batch,
            "spark.partition": self.partition,
            "spark.attempt": self.attempt,
            "spark.commits": self.commit_path,
        }
        if self.head_id is not None:
            said["spark.head"] = self.head_id
        return {"application": APPLICATION, **{name: str(value).encode() for name, value in said.items()}}


def imported_custom(custom: Mapping[str, bytes], purpose: Purpose, imported_from: str) -> dict[str, bytes]:
    """Custom metadata of a ledger that is written anew: what it had, and what it is for.

    What it had says nothing about this cluster's commits: names that mean that are kept with `imported.` before them.
    """
    said = purpose.custom() | {IMPORTED_FROM: imported_from.encode()}
    taken = {*said, "spark.created", *(f"spark.{kind.value}" for kind in Kind)} - {"application"}
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
        batch, partition, attempt = (int(said[f"spark.{name}"]) for name in ("batch", "partition", "attempt"))
        head_id = int(said["spark.head"]) if "spark.head" in said else None
        if head_id is None:
            int(said["spark.created"])
        return Purpose(owner, said["spark.write"], batch, partition, attempt, head_id, said["spark.commits"])
    except (ValueError, KeyError):
        return None


class Fate(enum.Enum):
    """What the sweep does with a ledger."""

    COMMITTED = "committed"
    IN_FLIGHT = "may still be committed"
    SUPERSEDED = "another write of its batch was committed"
    ABORTED = "its write was given up"
    TOO_OLD = "was not committed in time"
    FORGOTTEN = "its batch was forgotten"
    UNREADABLE = "unknown: what it is for, or what was committed, cannot be read"
    OTHER_CLUSTER = "unknown: what its commit path says is another cluster's"
    NO_HEAD = "unknown: nothing is left of its job, query or import"
    OTHER_HEAD = "unknown: its job, query or import was removed, and begun anew"
    NO_RECORD = "unknown: the record of its batch is missing"
    EARLIER = "unknown: of an earlier release, and not committed so far"

    @property
    def is_orphan(self) -> bool:
        """Nothing names it, and nothing ever will."""
        return self in (Fate.SUPERSEDED, Fate.ABORTED, Fate.TOO_OLD, Fate.FORGOTTEN)

    @property
    def is_unknown(self) -> bool:
        """Nothing that is there proves that it is in a commit, or that it never will be."""
        return self in REMEDIES


_BY_HAND = "once you know that nobody needs them, delete them by hand (bookkeeper ledger delete ID)"

REMEDIES = {
    Fate.UNREADABLE: "see the log for what cannot be read; mend that, or use the release that wrote it",
    Fate.OTHER_CLUSTER: f"give each cluster a commitPath of its own; if this cluster was formatted since, {_BY_HAND}",
    Fate.NO_HEAD: "if its znodes were removed or lost, what was committed is among these ledgers: bring them back from "
    f"a backup, or, {_BY_HAND}. If a write of an earlier release is still under way, wait for it",
    Fate.OTHER_HEAD: f"what was committed before the removal is among these ledgers; {_BY_HAND}",
    Fate.NO_RECORD: "it was removed, and what it named is among these ledgers: bring it back from a "
    f"backup, or, {_BY_HAND}",
    Fate.EARLIER: "the next commit of this job, query or import decides it: run it again; if it never will be, "
    f"{_BY_HAND}",
}
"""What helps where a fate is unknown."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is there for an owner and a batch. head_id: creation id of the head."""

    instance: str
    swept_before_ms: int
    head: Head | None
    head_id: int | None
    record: Commit | None


def fate_of(ledger_id: int, stored_ms: int, purpose: Purpose, seen: Seen) -> Fate:
    """What becomes of a ledger; the module has the table. stored_ms: when the metadata store made its znode."""
    head, record = seen.head, seen.record
    if head is not None and head.instance != seen.instance:
        return Fate.OTHER_CLUSTER
    if record is not None and any(each.ledger_id == ledger_id for each in record.ledgers):
        return Fate.COMMITTED
    if head is None:
        return Fate.NO_HEAD
    if purpose.head_id not in (None, seen.head_id):
        return Fate.OTHER_HEAD
    if purpose.write in head.aborted:
        return Fate.ABORTED
    if record is not None:
        return Fate.SUPERSEDED
    if purpose.batch < head.forgotten and purpose.head_id is not None:
        return Fate.FORGOTTEN
    if purpose.batch <= head.last_batch:
        return Fate.NO_RECORD
    if stored_ms >= seen.swept_before_ms:
        return Fate.IN_FLIGHT
    return Fate.EARLIER if purpose.head_id is None else Fate.TOO_OLD
