"""Table `held_ledgers`: which ledgers each bookie has, as far as its HTTP server says.

What a bookie has is what its garbage collector compares with the metadata store, so ledgers that are deleted, and wait
for the collector, are among them. A bookie that cannot be asked has one row, without ledgers and with the reason; one
that was interrupted in telling has such a row besides. Apache's bookies do not tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bookkeeper.admin.questions import ERRORS, Address, get_json
from bookkeeper.spark.cluster.http_bookies import TIMEOUT_S, did_not_tell, rows_of_bookies, shares_of_bookies
from bookkeeper.spark.cluster.table import PROBLEM, ClusterTable, Column, Of, Row, told

PATH = "/api/v1/bookie/ledgers"

ANSWER_MAX = 4 * 1024 * 1024
"""Bytes of one answer: 50,000 ranges are at most half of it."""

NO_HTTP = "it serves no HTTP: httpServerEnabled=true there would show its ledgers"
NOT_KNOWN = "its HTTP server tells no ledgers: it is Apache's, or older than this"


def ask_ledgers(bookie_id: str, address: Address) -> Iterator[list[Row]]:
    """The rows of a bookie with HTTP there, an answer at a time; none of one that says it has no ledger. Blocks."""
    after = -1
    try:
        while True:
            answer = get_json(address, f"{PATH}?after={after}", size_max=ANSWER_MAX, timeout_s=TIMEOUT_S)
            if answer is None:
                yield [_nothing(bookie_id, NOT_KNOWN)]
                return
            ranges, more = ranges_in(answer, bookie_id, after)
            if ranges:
                yield [(bookie_id, first, last, last - first + 1, None) for first, last in ranges]
            if not more:
                return
            after = ranges[-1][1]
    except ERRORS as error:
        yield [_nothing(bookie_id, did_not_tell(address, told(error)))]


def ranges_in(answer: Any, bookie_id: str, after: int) -> tuple[list[tuple[int, int]], bool]:
    """The ranges of an answer, and whether there are more. Raises ValueError for one of another shape or bookie."""
    try:
        whose, more = answer["bookie"], answer["more"]
        ranges = [(first, last) for first, last in answer["ledgers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its answer is of another shape ({error!r})") from error
    if whose != bookie_id:
        raise ValueError(f"there is bookie {whose}, and not {bookie_id}: is its httpServerPort another one's?")
    ends = [after, *(each for pair in ranges for each in pair)]
    if not all(type(each) is int for each in ends) or not all(map(_ascends, ends[1::2], ends[::2], ends[2::2])):
        raise ValueError("its ranges do not ascend")
    if more and not ranges:
        raise ValueError("it says that there are more ledgers, and tells none")
    return ranges, bool(more)


def _ascends(first: int, before: int, last: int) -> bool:
    return before < first <= last


def _nothing(bookie_id: str, problem: str) -> Row:
    return bookie_id, None, None, None, problem


HELD_LEDGERS = ClusterTable(
    "held_ledgers",
    "which ledgers each bookie has, as it tells; also deleted ones that wait for its garbage collector",
    (
        Column("bookie", Of.TEXT, "whose", nullable=False),
        Column("first_ledger_id", Of.LONG, "first ledger of a range of ids; null: the bookie did not tell"),
        Column("last_ledger_id", Of.LONG, "last ledger of it, inclusive"),
        Column("ledgers", Of.LONG, "how many these are: it has each of them"),
        PROBLEM,
    ),
    rows_of_bookies(ask_ledgers, _nothing),
    shares_of_bookies(NO_HTTP),
)
