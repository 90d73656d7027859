"""What is written to the metadata store when writes of Spark are committed: znodes below `commitPath`. Pure.

    /bookkeeper-spark                     mark   {"format": 1, "swept_before_ms": 1700000000000}
      jobs/NAME                           head   {"aborted": [], "format": 1, "instance": "...", "last_batch": 0}
        0000000000/0000000000000          record of the only batch of a job; of one that foreachBatch of a query runs, a
                                          record of each micro-batch, and the head says "query" and "last_write", too
      queries/ID                          head   "last_batch": 41, say
        0000000000/                       batches 0 to 999; no data
          0000000000040                   record of batch 40
          0000000000041
      imports/NAME                        as a query; the id of each write begins with the export's and a point
        0000000000/0000000000000          the first ledgers of the export: `partition` counts them in their order

    record   {"batch": 41, "bytes": 2048, "entries": 20, "format": 1, "ledgers": 2, "write": "ID OF THE WRITE"}
             7 12 1228 9ab0c1d2 0 0       a line for each ledger: id, entries, bytes, CRC-32 of all payloads as one,
             8 8 820 00c1d29a 1 0         partition, attempt

What is true of them at all times:
  * The record of a batch and the head with that `last_batch` are made in one transaction: a batch is committed exactly
    when its record is there. Records never change. The batches of a head rise; not every number needs to occur.
  * A head is there before any ledger that is to be committed into it: `last_batch` is -1 until one is. Heads are never
    removed. Records are where the head says "forgotten": batches before that number count as never read again, their
    ledgers and records go, or will (`retention`). The last batch is never forgotten.
  * `aborted` names writes that are never committed: the last ABORTED_MAX of them.
  * A job with a "query" is that query's alone, and has the query's batches. The id of each of its writes begins with
    that of the run of the query and a point; "last_write" is the last one that was committed, or found that its batch
    was: a second write of one batch in one run is another write by the same name, and no replay.
  * A write with a ledger that was made before `swept_before_ms` is never committed: both by the clock of the metadata
    store, the latter the time of its mark or earlier. The mark only rises.
  * `instance` is the cluster's: ledger ids mean nothing in another cluster, or after this one was formatted.

Cost: of a commit the same however many there were before: it looks at mark, head and its own record. A list of all
that a query committed is a read for each batch, and there is a znode for each until it is forgotten.

Bounds: a record names LEDGERS_MAX ledgers at most, which is less than RECORD_BYTES_MAX and so than the 1 MiB that
ZooKeeper takes; a znode has 1000 records at most.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bookkeeper.errors import MetadataCorrupt, MetadataError, MetadataTooNew
from bookkeeper.texts import parse_json

FORMAT = 1
LEDGERS_MAX = 10_000
RECORD_BYTES_MAX = 900_000
"""More than LEDGERS_MAX lines of 20 + 20 + 20 + 9 + 11 + 6 characters, and the first."""
ABORTED_MAX = 16
BATCHES_PER_GROUP = 1000


class CommitRefused(MetadataError):
    """The write was not committed and never will be; why is in the text."""


class Kind(enum.Enum):
    """What wrote."""

    JOB = "job"
    QUERY = "query"
    IMPORT = "import"


_THREADS = (
    "If foreachBatch of a stream makes it on another thread, that one does not know the batch: write on the thread of "
    "foreachBatch, or wrap the function there with pyspark.inheritable_thread_target(session)"
)

_DIRECTORY = {Kind.JOB: "jobs", Kind.QUERY: "queries", Kind.IMPORT: "imports"}


@dataclass(frozen=True, slots=True)
class Owner:
    """A batch job, whose only batch is 0 unless foreachBatch runs it, a streaming query, or an import of ledgers."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


@dataclass(frozen=True, slots=True)
class WrittenLedger:
    """What one task wrote. crc: CRC-32 of its payloads, one after the other."""

    ledger_id: int
    entries: int
    size: int
    crc: int
    partition: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One batch. write: id of the write that was committed as this batch; ledgers: by partition."""

    batch: int
    write: str
    ledgers: tuple[WrittenLedger, ...]

    @property
    def entries(self) -> int:
        """Of all its ledgers."""
        return sum(ledger.entries for ledger in self.ledgers)

    @property
    def size(self) -> int:
        """Payload bytes of all its ledgers."""
        return sum(ledger.size for ledger in self.ledgers)

    def is_as_large_as(self, other: Commit) -> bool:
        """Whether it has as many entries and bytes. How they are divided among ledgers may differ at a repetition."""
        return (self.entries, self.size) == (other.entries, other.size)


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a job or query. last_batch: -1 before the first.

    query, last_write: of a job that a query runs in foreachBatch, else "": whose batches it has, and the last write
    that was committed or found that its batch was. forgotten: batches before it are.
    """

    instance: str
    last_batch: int = -1
    aborted: tuple[str, ...] = ()
    query: str = ""
    last_write: str = ""
    forgotten: int = 0

    def with_batch(self, batch: int, query: str = "", write: str = "") -> Head:
        """After a commit. query, write: of a job of a query."""
        return replace(self, last_batch=batch, query=query, last_write=write)

    def with_repeat(self, write: str) -> Head:
        """After a write of a job of a query found that its batch was committed before."""
        return replace(self, last_write=write)

    def with_forgotten(self, batch: int) -> Head:
        """After batches before that one were forgotten; never fewer than before, nor the last one."""
        return replace(self, forgotten=max(self.forgotten, min(batch, self.last_batch)))

    def with_aborted(self, write: str) -> Head:
        """After an abort."""
        return replace(self, aborted=(*self.aborted, write)[-ABORTED_MAX:])


class Verdict(enum.Enum):
    """What a commit is to do."""

    COMMIT = "commit"
    DONE = "done"  # by this very write, earlier
    REPEATED = "repeated"  # by another write of the same batch


def judge(
    owner: Owner,
    head: Head | None,
    record: Commit | None,
    new: Commit,
    instance: str,
    query: str = "",
    *,
    accept_repeat: bool = False,
) -> Verdict:
    """What becomes of `new`, `record` being what is committed as its batch.

    query: of a job that a query runs in foreachBatch, its id. accept_repeat: a repeat may have other rows than are
    committed, which are left out. That rows are the same is told by how many entries and bytes there are, no more.

        head                         record        verdict
        none                         -             commit
        of another cluster           -             refused
        of a job of another query,   -             refused, its name is taken
          or of none, and committed
        -                            of this write done
        -                            of another    of a job: refused, its name is taken
                                                   of a job of this query, and the last write was of the same run of
                                                   the query: refused, the name is used twice
                                                   of an import from another export: repeated, and its to refuse
                                                   with other rows, and that is not accepted: refused
                                                   else repeated
        names this write as aborted  none          refused
        last batch is before it      none          commit
        last batch is behind it      none          refused: the batches of a query rise

    Raises CommitRefused.
    """
    if head is None:
        return Verdict.COMMIT
    check_instance(owner, head, instance)
    if head.last_batch >= 0 and head.query != query:
        raise CommitRefused(
            f"{owner} was committed before, {_by_whom(head.query)}, and this write is {_by_whom(query)}: give it "
            f"another name (option job){'' if query else f'. {_THREADS}'}"
        )
    if record is not None:
        if record.write == new.write:
            return Verdict.DONE
        if query:
            is_replay = head.last_write == new.write or _run(head.last_write) != _run(new.write)
            if head.last_batch == new.batch and not is_replay:
                raise CommitRefused(
                    f"{owner} was written before in this run of batch {new.batch} of query {query}, and stays as it "
                    f"is: {len(record.ledgers)} ledgers, {record.entries} entries. Give each write of a batch a name "
                    "of its own (option job)"
                )
        elif owner.kind is Kind.JOB:
            raise CommitRefused(
                f"{owner} was committed before, by another write, and stays as it is: {len(record.ledgers)} ledgers, "
                f"{record.entries} entries. Give this write another name (option job), or none. {_THREADS}"
            )
        is_other = not new.is_as_large_as(record)
        if owner.kind is Kind.IMPORT:
            is_other = is_other and _run(record.write) == _run(new.write)
        if is_other and not accept_repeat:
            raise CommitRefused(_other_rows(owner, record, new, query))
        return Verdict.REPEATED
    if new.write in head.aborted:
        raise CommitRefused(f"batch {new.batch} of {owner}: this write of it was given up before; run it again")
    if new.batch <= head.last_batch:
        raise CommitRefused(
            f"batch {new.batch} of {owner} was not committed, and {head.last_batch} was: the batches of a query rise. "
            "Its checkpoint is an old copy, or another query runs with a copy of it; restart with the newest "
            "checkpoint, or with a new one"
        )
    return Verdict.COMMIT


def write_in_run(run: str, write: str) -> str:
    """Id of a write of a job that a run of a query makes."""
    return f"{run}.{write}"


def _run(write: str) -> str:
    return write.partition(".")[0]


def _other_rows(owner: Owner, record: Commit, new: Commit, query: str) -> str:
    """Why a repeat is refused that would leave rows out, and what helps."""
    what = (
        f"batch {new.batch} of {owner} was committed before with {record.entries} entries of {record.size} bytes, and "
        f"this write of it has {new.entries} entries of {new.size} bytes. They are not the same rows: the batch stays "
        "as it is, and these are not committed."
    )
    if owner.kind is Kind.IMPORT:
        return f"{what} The export was changed since; import the export as it was, or by another name (option job)"
    whose = f"query {query}" if query else "the query"
    anew = "with a new one and another name (option job)" if query else "with a new one"
    return (
        f"{what} The checkpoint of {whose} is an old copy or has lost its newest files, or the query was changed, or "
        f"is not deterministic. Restart with the newest checkpoint, or {anew}; or keep what was committed and leave "
        "out what this write has, by option acceptRepeat=true"
    )


def _by_whom(query: str) -> str:
    return f"by query {query} in foreachBatch" if query else "by a batch write outside of streams"


def check_instance(owner: Owner, head: Head, instance: str) -> None:
    """Raise CommitRefused where the ledgers of `head` are those of another cluster."""
    if head.instance != instance:
        raise CommitRefused(
            f"{owner} was written to the cluster with instance id {head.instance}; this one is {instance}: another, or "
            "formatted since. Start a new query or job, or use another commitPath"
        )


# --- paths


def owners_path(base: str, kind: Kind) -> str:
    """The directory of all jobs, or queries."""
    return f"{base}/{_DIRECTORY[kind]}"


def head_path(base: str, owner: Owner) -> str:
    """The znode of a job or query."""
    return f"{owners_path(base, owner.kind)}/{owner.name}"


def group_path(base: str, owner: Owner, batch: int) -> str:
    """The directory of a record."""
    return f"{head_path(base, owner)}/{batch // BATCHES_PER_GROUP:010}"


def record_path(base: str, owner: Owner, batch: int) -> str:
    """The znode of a batch."""
    return f"{group_path(base, owner, batch)}/{batch:013}"


# --- data


def format_mark(swept_before_ms: int) -> bytes:
    """The data of `commitPath`."""
    return _json({"format": FORMAT, "swept_before_ms": swept_before_ms})


def parse_mark(data: bytes, path: str) -> int:
    """Its swept_before_ms; 0 for a znode without data. Raises MetadataCorrupt."""
    return _Fields(data, path).whole("swept_before_ms") if data else 0


def format_head(head: Head) -> bytes:
    """The data of a job or query."""
    fields: dict[str, object] = {
        "aborted": list(head.aborted),
        "format": FORMAT,
        "instance": head.instance,
        "last_batch": head.last_batch,
    }
    if head.query:
        fields |= {"query": head.query, "last_write": head.last_write}
    if head.forgotten:
        fields["forgotten"] = head.forgotten
    return _json(fields)


def parse_head(data: bytes, path: str) -> Head:
    """The inverse. Raises MetadataCorrupt."""
    fields = _Fields(data, path)
    aborted = fields.value("aborted", list)
    if not all(isinstance(each, str) for each in aborted):
        raise fields.wrong("aborted")
    query, last_write = (fields.text_or_none(name) for name in ("query", "last_write"))
    forgotten = fields.whole("forgotten") if "forgotten" in fields else 0
    last_batch = fields.whole("last_batch", -1)
    return Head(fields.value("instance", str), last_batch, tuple(aborted), query, last_write, forgotten)


def format_record(commit: Commit) -> bytes:
    """The data of a batch. Raises CommitRefused for more than LEDGERS_MAX ledgers."""
    if len(commit.ledgers) > LEDGERS_MAX:
        raise CommitRefused(
            f"batch {commit.batch} has {len(commit.ledgers)} ledgers, one for each task with rows; {LEDGERS_MAX} can "
            "be committed as one. Write with fewer partitions (coalesce)"
        )
    first = {
        "batch": commit.batch,
        "bytes": commit.size,
        "entries": commit.entries,
        "format": FORMAT,
        "ledgers": len(commit.ledgers),
        "write": commit.write,
    }
    lines = [
        b"%d %d %d %08x %d %d" % (each.ledger_id, each.entries, each.size, each.crc, each.partition, each.attempt)
        for each in commit.ledgers
    ]
    data = b"\n".join([_json(first), *lines])
    assert len(data) <= RECORD_BYTES_MAX, f"{len(data)} bytes of {len(lines)} ledgers"
    return data


def parse_record(data: bytes, path: str) -> Commit:
    """The inverse. Raises MetadataCorrupt."""
    first, *lines = data.split(b"\n")
    fields = _Fields(first, path)
    try:
        ledgers = tuple(_ledger(line) for line in lines)
    except ValueError as error:
        raise MetadataCorrupt(f"{path}: a line is no ledger: {error}") from error
    commit = Commit(fields.whole("batch"), fields.value("write", str), ledgers)
    for name, found in (("ledgers", len(ledgers)), ("entries", commit.entries), ("bytes", commit.size)):
        if fields.whole(name) != found:
            raise MetadataCorrupt(f"{path}: says {name} {fields.whole(name)}, and its lines make {found}")
    return commit


def _ledger(line: bytes) -> WrittenLedger:
    ledger_id, entries, size, crc, partition, attempt = line.split(b" ")
    return WrittenLedger(int(ledger_id), int(entries), int(size), int(crc, 16), int(partition), int(attempt))


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, sort_keys=True).encode()


class _Fields:
    """The fields of a JSON object of our format."""

    def __init__(self, data: bytes, path: str) -> None:
        self._path = path
        try:
            found = parse_json(data)
        except ValueError as error:
            raise MetadataCorrupt(f"{path}: no JSON: {error}") from error
        if not isinstance(found, dict):
            raise MetadataCorrupt(f"{path}: no JSON object")
        self._found: dict[str, Any] = found
        if self.whole("format") > FORMAT:
            raise MetadataTooNew(f"{path}: format {self.whole('format')}; this release knows {FORMAT}. Use a newer one")

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def value(self, name: str, kind: type) -> Any:
        found = self._found.get(name)
        if type(found) is not kind:
            raise self.wrong(name)
        return found

    def text_or_none(self, name: str) -> str:
        """ "" where there is none."""
        found: str = self.value(name, str) if name in self else ""
        return found

    def whole(self, name: str, low: int = 0) -> int:
        found: int = self.value(name, int)
        if found < low:
            raise self.wrong(name)
        return found

    def wrong(self, name: str) -> MetadataCorrupt:
        return MetadataCorrupt(f"{self._path}: {name} is {self._found.get(name)!r:.100}")


def by_partition(ledgers: Sequence[WrittenLedger]) -> tuple[WrittenLedger, ...]:
    """In the order in which they are read."""
    return tuple(sorted(ledgers, key=lambda ledger: (ledger.partition, ledger.ledger_id)))
