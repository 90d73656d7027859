"""What a bookie last said of itself: the values, and the JSON file that holds them. Pure.

    <first journal directory>/current/bookie.status      one JSON object, STATUS_SIZE_MAX bytes at most
    {"format": "bookkeeper bookie status", "version": 1, "written_ms": ..., "phase": "serving", "mode": {...}, ...}

Times are milliseconds since 1970 (_ms), durations seconds (_s), sizes bytes. null: not known, or not there. The file
helps people after a crash. A start reads only how the previous run ended, to report it. A newer writer may add fields,
which are passed over; another version means other meanings, and is refused.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from bookkeeper.errors import CorruptRecord, UnknownFormatVersion
from bookkeeper.texts import parse_json

T = TypeVar("T")

STATUS_FILE = "bookie.status"
FORMAT = "bookkeeper bookie status"
VERSION = 1
STATUS_SIZE_MAX = 64 * 1024
TEXT_MAX = 500
"""Characters of one message that are kept."""

LISTED_MAX = 16
"""Directories, journals or quarantined logs that are listed; their number is kept beside."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the bookie takes no new entries. name: of ReadOnlyReason."""

    name: str
    text: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class ModeStatus:
    """read_only is the sum of the reasons. priority_writes: recovery adds still pass."""

    read_only: bool
    priority_writes: bool
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class DirectoryStatus:
    """One directory's disk as it was measured last. since_ms: when its verdict (full, warn, neither) last changed."""

    path: str
    uses: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    full: bool
    warn: bool
    since_ms: int


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """Thresholds are used parts of a disk, 0..1."""

    checked_ms: int
    usage_threshold: float
    warn_threshold: float
    low_water_mark: float
    read_only_on_any_full: bool
    directory_count: int
    directories: tuple[DirectoryStatus, ...]


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The last one that ended well, and whether the disks have no room for the next."""

    last_ms: int | None
    duration_s: float | None
    short_of_room: bool


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """waiting_bytes: queued, not yet synced."""

    path: str
    waiting_bytes: int


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """subject: what was being done. fatal: it ended the process."""

    at_ms: int
    subject: str
    text: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class BadLog:
    """An entry log that compaction leaves alone."""

    log: str
    why: str


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """Garbage collection and compaction; sums since the start.

    doing: what is under way, in words. waiting_ledgers: not in the last listing, without proof yet. live_bytes,
    total_bytes: of closed entry logs after the last round; active_...: of the log being written, None: not told.
    worth_bytes: the dead ones of both that a forced round would give back, None: not told. compacting: the log in hand,
    "" none. forced: a round that was ordered is under way, or the next one. interrupted: "minor", "major": a compaction
    that was suspended on the way and begins anew when it is resumed. alarms: rounds in which most ledgers were missing
    from the store. bad_records: znodes among the ledgers that the last listing skipped; the first are named.
    last_error: of the last round, None when it went well. finding: why the metadata store seems to have gone back in
    time, so that nothing is collected; "" if it does not. kept_ledgers: count of those kept although the store lacks
    them.
    """

    doing: str
    rounds: int
    last_round_ms: int | None
    last_round_s: float | None
    next_round_ms: int | None
    ledgers_here: int
    waiting_ledgers: int
    deleted_ledgers: int
    removed_logs: int
    compacted_logs: int
    reclaimed_bytes: int
    live_bytes: int
    total_bytes: int
    compacting: str
    last_minor_ms: int | None
    last_major_ms: int | None
    minor_suspended: bool
    major_suspended: bool
    alarms: int
    quarantined_count: int
    quarantined: tuple[BadLog, ...] = ()
    last_error: ErrorStatus | None = None
    active_live_bytes: int | None = None
    active_total_bytes: int | None = None
    worth_bytes: int | None = None
    forced: bool = False
    interrupted: str = ""
    bad_records_count: int = 0
    bad_records: tuple[str, ...] = ()
    finding: str = ""
    kept_ledgers: int = 0


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Entries first..last of a ledger, inclusive, that cannot be read here. ledger: -1 where nobody knows whose.

    last: None where the whole ledger is concerned.
    """

    ledger: int
    first: int
    last: int | None
    path: str
    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class ScrubStatus:
    """The reading through of what is stored. damaged_ranges: known and not yet repaired; damaged: the first of them;
    gone_ranges: those whose file is missing or was cut short, not changed.

    last_mending_ms: when damaged index pages were made anew last, or that was tried.
    """

    doing: str
    last_round_ms: int | None
    next_round_ms: int | None
    checked_bytes: int
    damaged_ranges: int
    last_error: ErrorStatus | None = None
    damaged: tuple[DamagedRange, ...] = ()
    last_mending_ms: int | None = None
    gone_ranges: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """state: "registered", "lost", "lagging", "none". mode: last asked for."""

    state: str
    mode: str
    since_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """What the process before this one said last."""

    written_ms: int
    phase: str
    last_error: ErrorStatus | None = None


@dataclass(frozen=True, slots=True)
class BookieStatus:
    """Everything. process: pid and start time, which no other process has (see `status.process_identity`)."""

    written_ms: int
    bookie_id: str
    process: str
    started_ms: int
    phase: str
    phase_since_ms: int
    metadata_service_uri: str
    instance_id: str
    mode: ModeStatus
    registration: RegistrationStatus
    disks: DiskStatus | None = None
    checkpoint: CheckpointStatus | None = None
    journals: tuple[JournalStatus, ...] = ()
    collection: CollectionStatus | None = None
    scrub: ScrubStatus | None = None
    last_error: ErrorStatus | None = None
    errors_count: int = 0
    previous: PreviousRun | None = None


def shortened(text: str) -> str:
    """At most TEXT_MAX characters of it."""
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def format_status(status: BookieStatus) -> bytes:
    """The file's bytes."""
    value = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(status)}
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def parse_status(data: bytes, path: str) -> BookieStatus:
    """What the bytes of `path` say. Raises CorruptRecord, UnknownFormatVersion."""
    try:
        value = parse_json(data)
    except ValueError as error:
        raise CorruptRecord(path, getattr(error, "pos", 0), f"no JSON: {error}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise CorruptRecord(path, 0, f"does not say that its format is {FORMAT!r}")
    if value.get("version") != VERSION:
        raise UnknownFormatVersion(f"{path} has version {value.get('version')!r}; this release reads {VERSION}")
    try:
        return _built(BookieStatus, value)
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptRecord(path, 0, f"is no whole status: {error}") from error


def _built(cls: type[T], value: object) -> T:
    """A dataclass out of a JSON object. Raises TypeError, KeyError."""
    if not isinstance(value, dict):
        raise TypeError(f"{cls.__name__} is {value!r}")
    hints = typing.get_type_hints(cls)
    found: dict[str, Any] = {}
    for each in dataclasses.fields(cls):  # type: ignore[arg-type] # every caller has one
        if each.name in value:
            found[each.name] = _typed(hints[each.name], value[each.name], each.name)
    return cls(**found)


def _typed(hint: Any, value: object, name: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        inner = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return None if value is None else _typed(inner[0], value, name)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{name} is {value!r}, not a list")
        return tuple(_typed(typing.get_args(hint)[0], each, name) for each in value)
    if dataclasses.is_dataclass(hint):
        return _built(typing.cast("type[Any]", hint), value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise TypeError(f"{name} is {value!r}")
    return value
