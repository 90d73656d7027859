"""Every metric, declared once; cells to count in; Prometheus' text format to show them.

Names are Apache's where it has the metric (release 4.18, its Prometheus provider), so that existing dashboards go on
working: bare counters, and summaries in milliseconds with a `success` label. The text is written here rather than by
prometheus_client because that library renames counters to `..._total`, which is another name to a dashboard. (Its price
would be small: 1.2 MiB resident and 7 ms, measured in a process that has Twisted and kazoo; alone 11 MiB.)

    metrics = Metrics()                          one registry per process or per simulated bookie, passed in
    added = metrics.counter("bookie_WRITE_BYTES")
    added.add(len(batch))                        once per batch, never once per entry
    metrics.text()                               the body of GET /metrics

Asking for a name twice gives two cells, and the text shows their sum: two journals, or a reactor and a journal thread,
each count in a cell of their own. Thread: a cell has one writer and needs no lock; `text` may run on any thread and
sees each cell at some recent moment. A metric that nobody asked for is not shown, nor is a gauge whose value is not
known (NaN): a zero is always a counted zero.
Labels never hold ledger ids, entry ids or addresses: their number is fixed here.
"""

from __future__ import annotations

import enum
import math
import resource
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RECENT_OBSERVATIONS_MAX = 1024
"""Observations of one cell that its quantiles are taken from: 8 KiB."""

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
"""Those of Apache's provider."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Kind(enum.Enum):
    """What a metric does over time."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric's name, kind, and its unit and meaning."""

    name: str
    kind: Kind
    help: str


def _counter(name: str, help_text: str) -> MetricSpec:
    return MetricSpec(name, Kind.COUNTER, help_text)


def _gauge(name: str, help_text: str) -> MetricSpec:
    return MetricSpec(name, Kind.GAUGE, help_text)


def _summary(name: str, help_text: str) -> MetricSpec:
    return MetricSpec(name, Kind.SUMMARY, help_text)


LONGEST_TURN = "process_longest_turn_seconds"

PROCESS_METRICS = (
    _counter("process_cpu_seconds_total", "Seconds of processor time, user and system."),
    _gauge("process_resident_memory_bytes", "Bytes of memory resident."),
    _gauge("process_open_fds", "Open file descriptors."),
    _gauge(
        LONGEST_TURN,
        "Longest reactor turn since the metrics were last read: time in which the server answered no other request.",
    ),
)
"""Usual Prometheus metrics of a process, except for the last one. Part of every table."""

_TABLE = (
    # --- requests, from their arrival to their answer
    _summary("bookkeeper_server_READ_ENTRY_FENCE_REQUEST", "Milliseconds from a fencing read's arrival to its answer."),
    _counter("bookkeeper_server_ADD_ENTRY_REJECTED", "Adds refused before they were tried: read-only, or too many."),
    _counter("bookkeeper_server_READ_ENTRY_REJECTED", "Reads refused before they were tried: too many."),
    _gauge("bookkeeper_server_LONG_POLLS_WAITING", "Reads that wait for their ledger's next entry (not in Apache)."),
    _counter("bookkeeper_server_LONG_POLLS_REJECTED", "Long polls refused: too many wait already (not in Apache)."),
    # --- connections (not in Apache)
    _gauge("bookkeeper_server_CONNECTIONS", "Client connections open now."),
    _counter("bookkeeper_server_REPLY_WRITES", "Writes to sockets; each carries the answers of a whole batch."),
    _counter("bookkeeper_server_REPLY_BYTES", "Bytes of answers written to sockets."),
    _counter("bookkeeper_server_PROTOCOL_ERRORS", "Connections closed because of what they sent."),
    _counter("bookkeeper_server_TLS_CONNECTIONS", "Connections that were secured with TLS."),
    _counter("bookkeeper_server_TLS_FAILURES", "TLS handshakes that failed, and connections that TLS ended."),
    _counter("bookkeeper_server_AUTH_FAILURES", "Credentials, or plug-ins, that were refused."),
    _counter("bookkeeper_server_UNAUTHORIZED_REQUESTS", "Requests refused before TLS or authentication."),
    _counter(
        "bookkeeper_server_CONNECTIONS_CLOSED_BY_BOUNDS",
        "Connections closed or refused by a bound on their number, silence or memory.",
    ),
    _counter("bookkeeper_server_READING_PAUSED", "Times a connection was read no further until something drained."),
    # --- bookie
    _gauge("bookie_SERVER_STATUS", "1 writable, 0 read-only, -1 not registered."),
    _summary("bookie_BOOKIE_ADD_ENTRY", "Milliseconds from an add to its durability, as the bookie sees it."),
    _summary("bookie_BOOKIE_RECOVERY_ADD_ENTRY", "Milliseconds from a recovery add to its durability."),
    _summary("bookie_BOOKIE_READ_ENTRY", "Milliseconds from a read to its bytes."),
    _summary("bookie_BOOKIE_FORCE_LEDGER", "Milliseconds from a force to the sync it waits for."),
    _counter("bookie_WRITE_BYTES", "Bytes of entries added."),
    _gauge("bookie_JOURNAL_DIRS", "Journal directories."),
    _gauge("bookie_ledger_num_dirs", "Ledger directories."),
    _gauge("bookie_ledger_writable_dirs", "Ledger directories that are not full."),
    # --- journal
    _summary("bookie_journal_JOURNAL_ADD_ENTRY", "Milliseconds from a record's queueing to its durability."),
    _summary("bookie_journal_JOURNAL_QUEUE_LATENCY", "Milliseconds a record waits for its group to be written."),
    _summary("bookie_journal_JOURNAL_SYNC", "Milliseconds of one fdatasync, one per group commit."),
    _summary("bookie_journal_JOURNAL_FLUSH_LATENCY", "Milliseconds of writing one group to the file, before its sync."),
    _summary("bookie_journal_JOURNAL_CREATION_LATENCY", "Milliseconds of making a new journal file."),
    _summary("bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES", "Records in one group commit."),
    _summary("bookie_journal_JOURNAL_FORCE_WRITE_BATCH_BYTES", "Bytes in one group commit."),
    _counter("bookie_journal_JOURNAL_WRITE_BYTES", "Bytes written to journal files."),
    _counter("bookie_journal_JOURNAL_SYNCED_RECORDS", "Records made durable (not in Apache)."),
    _gauge("bookie_journal_JOURNAL_QUEUE_SIZE", "Records waiting for a group commit."),
    _gauge("bookie_journal_JOURNAL_MEMORY_USED", "Bytes waiting for a group commit."),
    _gauge("bookie_journal_JOURNAL_MEMORY_MAX", "Bytes that may wait for a group commit (journalMaxMemorySizeMb)."),
    # --- storage
    _gauge("bookie_SKIP_LIST_BYTES", "Bytes in the write buffers, Python's overhead included (not in Apache)."),
    _gauge("bookie_WRITE_FILE_INFO_CACHE_SIZE", "Index files open now."),
    _counter("bookie_COLD_READS", "Entries read by the read worker rather than at once (not in Apache)."),
    # --- damage and the scrub
    _summary("scrubber_runTime", "Milliseconds of a round that read through everything stored."),
    _counter("scrubber_detectedScrubErrors", "Damages found, by the scrub or by reads."),
    _counter("bookie_SCRUBBED_BYTES", "Bytes that the scrub has read (not in Apache)."),
    _gauge(
        "bookie_SCRUB_ROUND_BYTES_DONE",
        "Bytes of entry logs that the round under way, else the last one, has read; index files come after them "
        "(not in Apache).",
    ),
    _gauge("bookie_SCRUB_ROUND_BYTES_LEFT", "Bytes of entry logs that the round under way has still to read."),
    _gauge("bookie_DAMAGED_RANGES", "Ranges of entries, or pages, known to be damaged or missing now (not in Apache)."),
    _counter(
        "bookie_DAMAGE_REPAIRED", "Damaged entries that were replaced, and pages that were mended (not in Apache)."
    ),
    # --- garbage collection
    _gauge("bookie_gc_ACTIVE_LEDGER_TOTAL", "Ledgers here at the last round."),
    _counter("bookie_gc_DELETED_LEDGER_TOTAL", "Ledgers deleted here, also those that belong to other bookies by now."),
    _gauge("bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES", "Bytes of records in closed entry logs after the last round."),
    _gauge("bookie_gc_LIVE_ENTRY_LOG_BYTES", "Of those, bytes of ledgers that are here (not in Apache)."),
    _gauge(
        "bookie_gc_WRITTEN_ENTRY_LOG_SPACE_BYTES",
        "Bytes of records in the log being written, at the last round (not in Apache).",
    ),
    _gauge("bookie_gc_WRITTEN_ENTRY_LOG_LIVE_BYTES", "Of those, bytes of ledgers that are here (not in Apache)."),
    _counter("bookie_gc_RECLAIMED_DELETION_SPACE_BYTES", "Bytes given back by removing entry logs without a ledger."),
    _counter("bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES", "Bytes given back by rewriting entry logs."),
    _counter("bookie_gc_MINOR_COMPACTION_TOTAL", "Minor compactions that ended."),
    _counter("bookie_gc_MAJOR_COMPACTION_TOTAL", "Major compactions that ended."),
    _counter("bookie_gc_COMPACTED_ENTRY_LOGS", "Entry logs rewritten (not in Apache)."),
    _counter("bookie_gc_COMPACTED_BYTES", "Bytes of live entries copied by that (not in Apache)."),
    _gauge("bookie_gc_QUARANTINED_ENTRY_LOGS", "Entry logs left alone: damaged, or in doubt (not in Apache)."),
    _counter("bookie_gc_ALARMS", "Rounds in which most ledgers were missing from the store (not in Apache)."),
    _gauge(
        "bookie_gc_BAD_RECORDS",
        "Znodes among the ledgers of the metadata store that are not ledgers, at the last listing (not in Apache).",
    ),
    _gauge("bookie_gc_METADATA_WENT_BACK", "1 while nothing is collected because the store went back (not in Apache)."),
    _gauge("bookie_gc_KEPT_LEDGERS", "Ledgers kept though the store lacks them, until discarded (not in Apache)."),
    # --- re-replication: the worker of an auto-recovery process, or of a bookie that has one
    _summary("replication_replication_worker_rereplicate", "Milliseconds of repairing one ledger."),
    _counter("replication_replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", "Ledgers that got copies."),
    _counter("replication_replication_worker_NUM_ENTRIES_READ", "Entries read to be copied."),
    _counter("replication_replication_worker_NUM_ENTRIES_WRITTEN", "Copies of entries made durable."),
    _summary("replication_replication_worker_NUM_BYTES_READ", "Bytes of one entry read to be copied."),
    _summary("replication_replication_worker_NUM_BYTES_WRITTEN", "Bytes of one copy written."),
    _summary("replication_replication_worker_READ_DATA_LATENCY", "Milliseconds of reading one batch of good copies."),
    _summary("replication_replication_worker_WRITE_DATA_LATENCY", "Milliseconds of writing one batch of copies."),
    _counter(
        "replication_replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION",
        "Batches with an entry of which no good copy could be read.",
    ),
    _counter(
        "replication_replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",
        "Ledgers kept locked for a while because their repair failed.",
    ),
    _counter("replication_replication_worker_exceptions", "Repairs and looks for work that ended with an error."),
    _counter("replication_replication_worker_FRAGMENTS_MOVED", "Fragments that got new members (not in Apache)."),
    _counter(
        "replication_replication_worker_COPIES_REWRITTEN",
        "Places of fragments whose copies were written anew on their own bookie (not in Apache).",
    ),
    _gauge("replication_replication_worker_LEDGERS_IN_HAND", "Ledgers being repaired now (not in Apache)."),
    _gauge("replication_replication_worker_LEDGERS_IN_TROUBLE", "Ledgers whose repair failed (not in Apache)."),
    _gauge(
        "replication_replication_worker_LEDGERS_UNREPAIRABLE",
        "Of these, ledgers with an entry that has no readable copy (not in Apache).",
    ),
    _gauge(
        "replication_replication_worker_BAD_RECORDS",
        "Znodes among marks and reports of bad copies that are neither, at the last listing (not in Apache).",
    ),
    # --- the auditor; names as in a bookie that has one (Apache's own process for it leaves out "replication_")
    _counter("replication_auditor_election_attempts", "Times this process began to stand for auditor."),
    _gauge(
        "replication_auditor_UNDERREPLICATED_LEDGERS_MARKED",
        "Ledgers marked under-replicated in the cluster at the auditor's last count; shown by the auditor alone "
        "(not in Apache).",
    ),
    _gauge(
        "replication_auditor_UNDERREPLICATED_LEDGERS_LOCKED",
        "Of these, ledgers that some worker was at (not in Apache).",
    ),
    _gauge(
        "replication_auditor_LEDGERS_WITH_REPORTED_DAMAGE",
        "Ledgers of which bookies have reported damaged copies that are not made good again, counted along with those "
        "marked (not in Apache).",
    ),
    _gauge("replication_auditor_UNDERREPLICATED_LEDGERS_AGE_SECONDS", "How old these counts are (not in Apache)."),
    _gauge(
        "replication_auditor_BAD_RECORDS",
        "Znodes among ledgers and marks that are neither, and marks that cannot be read, in the auditor's last run "
        "(not in Apache).",
    ),
    _gauge("replication_auditor_ELECTED", "1 while this process is the auditor, else 0 (not in Apache)."),
    _summary("replication_auditor_NUM_UNDER_REPLICATED_LEDGERS", "Ledgers that one audit of lost bookies marked."),
    _summary(
        "replication_auditor_URL_PUBLISH_TIME_FOR_LOST_BOOKIE", "Milliseconds of marking one ledger under-replicated."
    ),
    _summary("replication_auditor_AUDIT_BOOKIES_TIME", "Milliseconds of one look for ledgers on lost bookies."),
    _summary("replication_auditor_CHECK_ALL_LEDGERS_TIME", "Milliseconds of one check of all ledgers' copies."),
    _summary("replication_auditor_PLACEMENT_POLICY_CHECK_TIME", "Milliseconds of one look at all ledgers' racks."),
    _summary(
        "replication_auditor_REPLICAS_CHECK_TIME",
        "Milliseconds of comparing what all bookies hold with what they should.",
    ),
    _counter("replication_auditor_NUM_LEDGERS_CHECKED", "Ledgers whose copies were checked."),
    _counter(
        "replication_auditor_NUM_LEDGERS_UNDECIDED",
        "Ledgers that an audit or check could learn nothing of (not in Apache).",
    ),
    _summary("replication_auditor_NUM_FRAGMENTS_PER_LEDGER", "Fragments of a checked ledger."),
    _summary("replication_auditor_NUM_BOOKIES_PER_LEDGER", "Bookies of a checked ledger."),
    _counter("replication_auditor_NUM_BOOKIE_AUDITS_DELAYED", "Audits put off because a single bookie was gone."),
    _counter("replication_auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", "Those called off because it came back."),
    _counter("replication_auditor_NUM_SKIPPING_CHECK_TASK_TIMES", "Periodic audits skipped because one was put off."),
    _gauge(
        "replication_auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY",
        "Ledgers in too few racks, at the last look.",
    ),
    _gauge(
        "replication_auditor_NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY",
        "Ledgers in fewer racks than asked for, likewise.",
    ),
    _gauge(
        "replication_auditor_NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD",
        "Marked ledgers overdue, likewise.",
    ),
    _gauge(
        "replication_auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY",
        "Ledgers with an entry that nobody holds, likewise.",
    ),
    _gauge(
        "replication_auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY",
        "With fewer copies than the ack quorum.",
    ),
    _gauge(
        "replication_auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY",
        "With fewer copies than the write quorum.",
    ),
    # --- metadata service (not in Apache)
    _counter("bookie_METADATA_SESSIONS_LOST", "ZooKeeper sessions lost; each means a new registration."),
    *PROCESS_METRICS,
)

METRICS = {spec.name: spec for spec in _TABLE}
"""Name -> what it is."""


class Counter:
    """A sum that only grows; added to, or read from where it is counted when it is shown."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self._read = read

    def add(self, amount: float = 1) -> None:
        """Add `amount` >= 0. Once per batch."""
        self.value += amount

    def current(self) -> float:
        """The sum to show."""
        return self.value if self._read is None else self._read()


class Gauge:
    """A value that goes up and down; set, or read from where it lives when it is shown."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self._read = read

    def set(self, value: float) -> None:
        """Make `value` the current one."""
        self.value = value

    def current(self) -> float:
        """The value to show."""
        return self.value if self._read is None else self._read()


class Summary:
    """Count and sum of all observations, and the last RECENT_OBSERVATIONS_MAX of them for quantiles."""

    __slots__ = ("count", "failed_count", "failed_sum", "oldest", "recent", "sum")

    def __init__(self) -> None:
        self.count: int = 0
        self.sum: float = 0
        self.failed_count: int = 0
        self.failed_sum: float = 0
        self.recent = array("d")
        self.oldest = 0  # where in `recent` the next observation goes once it is full

    def observe(self, value: float, times: int = 1) -> None:
        """Note a success that stands for `times` of them: a batch is observed once, and counts all its entries."""
        recent = self.recent
        if len(recent) < RECENT_OBSERVATIONS_MAX:
            recent.append(value)
        else:
            recent[self.oldest] = value
            self.oldest = (self.oldest + 1) % RECENT_OBSERVATIONS_MAX
        self.count += times
        self.sum += value * times

    def observe_failure(self, value: float, times: int = 1) -> None:
        """Note a failure, likewise; failures have no quantiles."""
        self.failed_count += times
        self.failed_sum += value * times


class Metrics:
    """The cells of one process (or of one simulated bookie). Its size is bounded by its table and the cells asked for.

    table: what is declared, for programs that have a table of their own.
    """

    def __init__(self, table: Sequence[MetricSpec] = _TABLE) -> None:
        self._declared = {spec.name: spec for spec in table}
        if len(self._declared) != len(table):
            names = [spec.name for spec in table]
            raise ValueError(f"declared twice: {sorted({name for name in names if names.count(name) > 1})}")
        self._counters: dict[str, list[Counter]] = {}
        self._gauges: dict[str, list[Gauge]] = {}
        self._summaries: dict[str, list[Summary]] = {}

    def declare(self, spec: MetricSpec) -> None:
        """Add a metric whose name has a part out of the settings, as Apache's of directories. Few, and at the start.

        Raises ValueError for a name that is declared.
        """
        if spec.name in self._declared:
            raise ValueError(f"declared twice: {spec.name}")
        self._declared[spec.name] = spec

    def counter(self, name: str, read: Callable[[], float] | None = None) -> Counter:
        """Return a new cell of a declared counter. Raises KeyError for another name or kind. read: as for `gauge`."""
        cell = Counter(read)
        self._counters.setdefault(self._name(name, Kind.COUNTER), []).append(cell)
        return cell

    def gauge(self, name: str, read: Callable[[], float] | None = None) -> Gauge:
        """Return a new cell of a declared gauge. read: called when it is shown, instead of `set`."""
        cell = Gauge(read)
        self._gauges.setdefault(self._name(name, Kind.GAUGE), []).append(cell)
        return cell

    def summary(self, name: str) -> Summary:
        """Return a new cell of a declared summary."""
        cell = Summary()
        self._summaries.setdefault(self._name(name, Kind.SUMMARY), []).append(cell)
        return cell

    def value(self, name: str) -> float:
        """Return the current sum of a counter or gauge, or the count of a summary; 0 where nobody counts."""
        spec = self._declared[name]
        if spec.kind is Kind.COUNTER:
            return sum(cell.current() for cell in self._counters.get(name, ()))
        if spec.kind is Kind.GAUGE:
            return sum(cell.current() for cell in self._gauges.get(name, ()))
        return sum(cell.count + cell.failed_count for cell in self._summaries.get(name, ()))

    def text(self) -> bytes:
        """Return all metrics that have cells, and the process's own, in Prometheus' text format (CONTENT_TYPE)."""
        process = _process_values()
        lines: list[str] = []
        for spec in self._declared.values():
            if spec.name in process:
                lines += [*_head(spec), f"{spec.name} {_number(process[spec.name])}"]
            elif spec.name in self._summaries:
                lines += [*_head(spec), *_summary_lines(spec.name, self._summaries[spec.name])]
            elif spec.name in self._counters or spec.name in self._gauges:
                value = self.value(spec.name)
                if not math.isnan(value):
                    lines += [*_head(spec), f"{spec.name} {_number(value)}"]
        return ("\n".join(lines) + "\n").encode()

    def _name(self, name: str, kind: Kind) -> str:
        spec = self._declared.get(name)
        if spec is None or spec.kind is not kind:
            raise KeyError(f"no {kind.value} {name!r} is declared")
        return name


def _head(spec: MetricSpec) -> tuple[str, str]:
    return f"# HELP {spec.name} {spec.help}", f"# TYPE {spec.name} {spec.kind.value}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _summary_lines(name: str, cells: list[Summary]) -> Iterator[str]:
    recent = sorted(value for cell in cells for value in cell.recent)
    for quantile in QUANTILES:
        # The nearest rank; Prometheus writes NaN where there is nothing to take a quantile of.
        shown = _number(recent[math.ceil(quantile * len(recent)) - 1]) if recent else "NaN"
        yield f'{name}{{success="true",quantile="{quantile}"}} {shown}'
    yield f'{name}_count{{success="true"}} {_number(sum(cell.count for cell in cells))}'
    yield f'{name}_sum{{success="true"}} {_number(sum(cell.sum for cell in cells))}'
    yield f'{name}_count{{success="false"}} {_number(sum(cell.failed_count for cell in cells))}'
    yield f'{name}_sum{{success="false"}} {_number(sum(cell.failed_sum for cell in cells))}'


def _process_values() -> dict[str, float]:
    """What the system knows about this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    values = {"process_cpu_seconds_total": usage.ru_utime + usage.ru_stime}
    process = Path("/proc/self")
    if process.exists():  # Linux
        resident_pages = int((process / "statm").read_text().split()[1])
        values["process_resident_memory_bytes"] = float(resident_pages * resource.getpagesize())
        values["process_open_fds"] = float(sum(1 for _ in (process / "fd").iterdir()))
    return values
