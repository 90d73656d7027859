"""The manifest of an export: what is exported, and how to tell that it is still that. Pure.

    DIR/
      entries/date=2026-11-23/*.parquet    rows ledger_id, entry_id, value; the day (UTC) on which the ledger was made,
              date=unknown/*.parquet       or unknown where neither its creator nor the metadata store noted that
      ledgers/*.txt                        a line for each ledger that was chosen, below
      files/*.txt                          a line for each file: {"bytes": 3171, "path": "date=.../part-....parquet"};
                                           path below entries/
      manifest/*.txt                       one line, below; written last: without it DIR is no export
      _plan/                               what was planned; nothing reads it any more

The line of a ledger, a JSON object without spaces, its keys ascending:

    ack_quorum, ensemble_size, write_quorum    Qa, E, Qw; null where it is lost
    bytes, entries     payload bytes and entries that are exported; null where none were to be
    created_ms         when it was made, milliseconds since 1970; null where nobody noted that
    custom             custom metadata: name -> value in base64
    date               as above
    digest             over all its entries in their order, `exports.digests`; null where none were to be
    digest_type        CRC32, MAC, CRC32C, DUMMY; null in ledgers older than 4.2
    expected_bytes     payload bytes as its metadata says; null where it was open
    expected_entries   entries 0 and following that were to be exported
    ledger_id
    state              CLOSED, OPEN, IN_RECOVERY when it was looked at; null where it is lost
    status             complete     all its entries are exported; of one that was not closed, those up to the last one
                                    known to be acknowledged
                       incomplete   some are lost, see `why`; only with failOnDataLoss=false
                       lost         it is gone, or its metadata cannot be read; only with failOnDataLoss=false
                       open         it was not closed, and is left out
    why                what is wrong; of a ledger that was not closed, which later entries may be acknowledged too; ""
                       where there is nothing to say

The manifest, likewise (here with spaces):

    {"contents": [{"bytes": 3171, "count": 2, "digest": "...", "entries": 500, "kind": "ledgers",
                   "status": {"complete": 1, "incomplete": 0, "lost": 0, "open": 1}}],
     "created_ms": 1700000000000, "export": "32 hexadecimal digits",
     "files": {"bytes": 4242, "count": 1, "digest": "..."},
     "format": 1, "instance": "instance id of the cluster", "range_entries": 10000}

The directory of a part of `contents` is named as its kind; its `digest`, and that of `files`, is over the set of its
lines. A kind that is added later is one more part: a reader refuses a kind that it does not know. Topics have
exports of their own (hedwig.spark.exports). No password is in an export, nor anything that is made of one.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from bookkeeper.errors import InvalidArgument
from bookkeeper.model import DigestType, check_quorum
from bookkeeper.spark.exports.lines import FORMAT, Fields, NotAnExport, check_kind, json_line

LEDGERS = "ledgers"
UNKNOWN_DATE = "unknown"


class Status(enum.Enum):
    """What became of a ledger that was chosen."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    LOST = "lost"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class ExportedLedger:
    """The line of a ledger; what its fields mean is drawn above."""

    ledger_id: int
    status: Status
    why: str = ""
    date: str = UNKNOWN_DATE
    state: str | None = None
    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    digest_type: str | None = None
    created_ms: int | None = None
    custom: Mapping[str, bytes] = field(default_factory=dict)
    expected_entries: int | None = None
    expected_bytes: int | None = None
    entries: int | None = None
    size: int | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of one kind: how many, their digest, and the payload they stand for."""

    count: int
    digest: str
    entries: int
    size: int
    status: Mapping[Status, int]


@dataclass(frozen=True, slots=True)
class Files:
    """The files of entries: how many, of how many bytes as they are stored, and the digest of their lines."""

    count: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an export is."""

    export_id: str
    created_ms: int
    instance: str
    range_entries: int
    ledgers: Part
    files: Files


def format_ledger(ledger: ExportedLedger) -> str:
    """Its line, without an end of line."""
    return json_line(
        {
            "ack_quorum": ledger.ack_quorum,
            "bytes": ledger.size,
            "created_ms": ledger.created_ms,
            "custom": {name: base64.b64encode(value).decode() for name, value in ledger.custom.items()},
            "date": ledger.date,
            "digest": ledger.digest,
            "digest_type": ledger.digest_type,
            "ensemble_size": ledger.ensemble_size,
            "entries": ledger.entries,
            "expected_bytes": ledger.expected_bytes,
            "expected_entries": ledger.expected_entries,
            "ledger_id": ledger.ledger_id,
            "state": ledger.state,
            "status": ledger.status.value,
            "why": ledger.why,
            "write_quorum": ledger.write_quorum,
        }
    )


def parse_ledger(line: str) -> ExportedLedger:
    """The inverse. Raises NotAnExport; also for a complete ledger that does not say how to write it anew."""
    fields = Fields(line, "a line of ledgers/")
    ledger_id = fields.whole("ledger_id")
    try:
        status = Status(fields.text("status"))
        custom = {name: base64.b64decode(value, validate=True) for name, value in fields.value("custom", dict).items()}
        digest_type = fields.text_or_none("digest_type")
        if digest_type is not None:
            DigestType[digest_type]
        whole = {
            name: fields.whole_or_none(name)
            for name in (
                *("ensemble_size", "write_quorum", "ack_quorum", "created_ms"),
                *("expected_entries", "expected_bytes", "entries"),
            )
        }
        found = ExportedLedger(
            ledger_id=ledger_id,
            status=status,
            why=fields.text("why"),
            date=fields.text("date"),
            state=fields.text_or_none("state"),
            digest_type=digest_type,
            custom=custom,
            size=fields.whole_or_none("bytes"),
            digest=fields.text_or_none("digest"),
            **whole,
        )
        if status is Status.COMPLETE:
            if found.entries is None or found.size is None or found.digest is None:
                raise ValueError("complete, but without its entries, bytes or digest")
            check_quorum(found.ensemble_size or 0, found.write_quorum or 0, found.ack_quorum or 0)
    except (ValueError, KeyError, TypeError) as error:
        raise NotAnExport(f"the line of ledger {ledger_id}: {error}") from error
    return found


def format_manifest(manifest: Manifest) -> str:
    """Its line."""
    ledgers = manifest.ledgers
    return json_line(
        {
            "contents": [
                {
                    "bytes": ledgers.size,
                    "count": ledgers.count,
                    "digest": ledgers.digest,
                    "entries": ledgers.entries,
                    "kind": LEDGERS,
                    "status": {status.value: ledgers.status.get(status, 0) for status in Status},
                }
            ],
            "created_ms": manifest.created_ms,
            "export": manifest.export_id,
            "files": {
                "bytes": manifest.files.size,
                "count": manifest.files.count,
                "digest": manifest.files.digest,
            },
            "format": FORMAT,
            "instance": manifest.instance,
            "range_entries": manifest.range_entries,
        }
    )


def parse_manifest(line: str) -> Manifest:
    """The inverse. Raises NotAnExport, also for a version and for kinds of contents that this release does not know."""
    fields = Fields(line, "manifest")
    part = check_kind(fields, LEDGERS)
    status = Fields.of(part.value("status", dict), "manifest, status")
    files = Fields.of(fields.value("files", dict), "manifest, files")
    range_entries = fields.whole("range_entries")
    if range_entries < 1:
        raise fields.wrong("range_entries")
    return Manifest(
        export_id=fields.text("export"),
        created_ms=fields.whole("created_ms"),
        instance=fields.text("instance"),
        range_entries=range_entries,
        ledgers=Part(
            part.whole("count"),
            part.text("digest"),
            part.whole("entries"),
            part.whole("bytes"),
            {each: status.whole(each.value) for each in Status},
        ),
        files=Files(files.whole("count"), files.whole("bytes"), files.text("digest")),
    )


def check_directory(directory: str) -> str:
    """A directory's name without a slash at its end. Raises InvalidArgument for none."""
    if not directory.strip("/"):
        raise InvalidArgument(f"directory {directory!r}: want that of an export, any path that Spark can use")
    return directory.rstrip("/")
