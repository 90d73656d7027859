"""Table `entry_logs`: what is in the entry logs of each bookie, as far as its HTTP server says.

A bookie's registration says where its HTTP server is (httpServerEnabled, and httpServerHost within reach of the tasks).
A bookie that cannot be asked has one row, without a log and with the reason: the sums of a column leave it out, and
`WHERE log_id IS NULL` names it. Apache's bookies tell the names of their logs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bookkeeper.admin.questions import ERRORS, Address, get_json
from bookkeeper.bookie.storage.entry_log.format import parse_log_name
from bookkeeper.spark.cluster.http_bookies import TIMEOUT_S, did_not_tell, rows_of_bookies, shares_of_bookies
from bookkeeper.spark.cluster.table import PROBLEM, ClusterTable, Column, Of, Row, time_or_none, told

PATH = "/api/v1/bookie/entry_logs"
NAMES_PATH = "/api/v1/bookie/list_disk_file?file_type=entrylog"
NAMES = "entrylog files"

ANSWER_MAX = 16 * 1024 * 1024
"""Bytes of one answer: some 90,000 logs."""

NO_HTTP = "it serves no HTTP: httpServerEnabled=true there would show its logs"
NAMES_ALONE = "this bookie tells the names of its logs alone"
NOT_SWEPT = "not looked at since the bookie started, or since the log was closed: its next round of collection does"


def log_rows(bookie_id: str, answer: Any) -> list[Row]:
    """The rows of a bookie that tells what is in its logs. Raises ValueError for an answer of another shape."""
    try:
        swept_ms = time_or_none(answer["swept"])
        return [_log_row(bookie_id, each, swept_ms) for each in answer["entryLogs"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"its answer is of another shape ({error!r})") from error


def _log_row(bookie_id: str, each: Mapping[str, Any], swept_ms: int | None) -> Row:
    records, live = each["recordBytes"], each["liveBytes"]
    problem = each["leftAlone"] or (NOT_SWEPT if records is None else None)
    share = None if records is None or live is None else live / records if records else 0.0
    as_of = None if records is None else swept_ms
    written = each["written"]
    return bookie_id, each["id"], each["size"], records, live, share, each["liveLedgers"], written, as_of, problem


def name_rows(bookie_id: str, answer: Any) -> list[Row]:
    """The rows of a bookie that tells names alone. Raises ValueError for an answer of another shape."""
    names = answer.get(NAMES) if isinstance(answer, dict) else None
    if not isinstance(names, str):
        raise ValueError("its answer is of another shape")
    ids = sorted(log_id for name in names.split() if (log_id := parse_log_name(name)) is not None)
    return [(bookie_id, log_id, *(None,) * 7, NAMES_ALONE) for log_id in ids]


def _no_log(bookie_id: str, problem: str) -> Row:
    return (bookie_id, *(None,) * 8, problem)


def ask_logs(bookie_id: str, address: Address) -> Iterator[list[Row]]:
    """The rows of a bookie with HTTP there; none of one that has just started, and says it has no log. Blocks."""
    try:
        answer = get_json(address, PATH, size_max=ANSWER_MAX, timeout_s=TIMEOUT_S)
        if answer is not None:
            yield log_rows(bookie_id, answer)
        else:
            names = get_json(address, NAMES_PATH, size_max=ANSWER_MAX, timeout_s=TIMEOUT_S)
            yield name_rows(bookie_id, names)
    except ERRORS as error:
        yield [_no_log(bookie_id, did_not_tell(address, told(error)))]


ENTRY_LOGS = ClusterTable(
    "entry_logs",
    "every entry log of each bookie that tells, and what of it is garbage",
    (
        Column("bookie", Of.TEXT, "whose", nullable=False),
        Column("log_id", Of.LONG, "its number; the file is called by it in hexadecimal; null: the bookie did not tell"),
        Column("size_bytes", Of.LONG, "bytes of the file, as it is now"),
        Column("record_bytes", Of.LONG, "bytes of all records in it, at the time as_of"),
        Column("live_bytes", Of.LONG, "bytes of the records of ledgers that the bookie has still, likewise"),
        Column(
            "live_ratio",
            Of.DOUBLE,
            "live_bytes / record_bytes, 0 to 1; compaction rewrites the lowest",
        ),
        Column("live_ledgers", Of.LONG, "how many ledgers these are"),
        Column("is_written", Of.BOOLEAN, "whether it is the log that is being written"),
        Column("as_of", Of.TIME, "when the bookie last looked what is in it"),
        PROBLEM,
    ),
    rows_of_bookies(ask_logs, _no_log),
    shares_of_bookies(NO_HTTP),
)
