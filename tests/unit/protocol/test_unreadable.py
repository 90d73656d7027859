"""Why an entry cannot be read: bookies that answer are not said to be away, and the remedy fits (I-30)."""

from __future__ import annotations

import pytest

from bookkeeper.errors import BookieIOError, BookieUnavailable, TooManyRequests
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState, Status
from bookkeeper.protocol.reads import DIGEST_MISMATCH, RangeRead
from bookkeeper.protocol.unreadable import why_unreadable

IO = BookieIOError("I/O error")
AWAY = BookieUnavailable("gave no answer in time")
DENIED = Status.NO_ENTRY.value
WHICH = "(a copy or its index is damaged, or a disk fails; its log says which)"
REGENERATE = (
    "where it is the index, `bookkeeper shell --conf FILE regenerate-interleaved-storage-index-file -ledgerIds 7` on "
    "the stopped bookie brings the copies back"
)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"a": AWAY, "b": AWAY}, "cannot be read now; again when its bookies are back"),
        ({"a": AWAY, "b": DENIED}, "cannot be read now; again when its bookies are back"),
        (
            {"a": IO, "b": IO},
            f"can be read from none of its bookies: a and b answered, and cannot read their copies {WHICH}; "
            f"waiting does not help: {REGENERATE}; else bring one back",
        ),
        (
            {"a": IO, "b": "bad digest", "c": IO},
            f"can be read from none of its bookies: b sent its copy, damaged; a and c answered, and cannot read their "
            f"copies {WHICH}; waiting does not help: {REGENERATE}; else bring one back",
        ),
        (
            {"a": IO, "b": DENIED},
            f"can be read from none of its bookies: a answered, and cannot read its copy {WHICH}; b denies having it; "
            f"waiting does not help: {REGENERATE}; else bring one back",
        ),
        (
            {"a": "bad digest", "b": DENIED},
            "can be read from none of its bookies: a sent its copy, damaged; b denies having it; waiting does not "
            "help: bring one back",
        ),
        (
            {"a": IO, "b": AWAY},
            f"cannot be read now: a answered, and cannot read its copy {WHICH}; b gave no answer; again when b is back",
        ),
        (
            {"a": IO, "b": TooManyRequests("too many requests")},
            f"cannot be read now: a answered, and cannot read its copy {WHICH}; the others' answers say what they want",
        ),
    ],
)
def test_who_answered_is_told_from_who_is_away(answers: dict[str, object], said: str) -> None:
    assert why_unreadable(answers, ledger_id=7, damaged={"bad digest"}, then="again", remedy="bring one back") == said


def test_a_reader_is_not_sent_to_wait_for_bookies_that_answered() -> None:
    bookies = (BookieId("a:1"), BookieId("b:1"))
    metadata = LedgerMetadata(2, 2, 2, (Fragment(EntryId(0), bookies),), LedgerState.CLOSED, EntryId(9), 100)
    reading: RangeRead[bytes] = RangeRead(metadata, 4, 4, ledger_id=7)
    reading.start(0.0)
    for bookie in bookies:
        reading.on_unknown(bookie, [4], IO)
    message = str(reading.error())
    assert message.startswith("ledger 7, entry 4 can be read from none of its bookies: a:1 and b:1 answered"), message
    assert "`bookkeeper why ledger 7`" in message
    assert message.endswith("[a:1: I/O error, b:1: I/O error]")
    mixed: RangeRead[bytes] = RangeRead(metadata, 4, 4, ledger_id=7)
    mixed.start(0.0)
    mixed.on_bodies(bookies[0], [4], [None])
    mixed.on_unknown(bookies[1], [4], IO)
    assert DIGEST_MISMATCH in str(mixed.error())
    assert "a:1 sent its copy, damaged; b:1 answered, and cannot read its copy" in str(mixed.error())
