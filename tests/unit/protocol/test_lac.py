"""LAC reads: maximum over coverage, and the first news."""

from __future__ import annotations

from bookkeeper.errors import EntryUnreadable
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, Status
from bookkeeper.protocol.lac import LacRead, TryLacRead

A, B, C, D = (BookieId(name) for name in "abcd")
METADATA = LedgerMetadata(4, 2, 2, (Fragment(EntryId(0), (A, B, C, D)),))


def test_the_result_is_the_maximum_once_every_write_set_has_answered() -> None:
    """I-02: E=4 Qw=2 Qa=2 needs every other bookie. Mutant: the last answer wins."""
    read = LacRead(METADATA, ledger_id=7)
    assert read.bookies == (A, B, C, D)
    assert not read.on_lac(A, 9)
    assert not read.on_lac(B, 5)
    assert read.error() is None
    assert read.on_lac(C, 7)
    assert read.lac == 9
    assert read.error() is None


def test_a_bookie_that_holds_nothing_counts_and_one_that_fails_does_not() -> None:
    read = LacRead(METADATA, ledger_id=7)
    assert not read.on_negative(A, Status.NO_LEDGER)
    assert not read.on_unknown(C, "digest mismatch")
    assert not read.on_lac(B, 3)
    assert read.on_lac(D, 4)
    assert read.lac == 4


def test_two_neighbours_in_doubt_make_the_read_fail_with_every_answer() -> None:
    read = LacRead(METADATA, ledger_id=7)
    read.on_lac(A, 3)
    read.on_unknown(B, Status.IO_ERROR)
    assert read.on_unknown(C, TimeoutError("no answer"))
    error = read.error()
    assert isinstance(error, EntryUnreadable)
    assert error.answers == {"a": "LAC 3", "b": "I/O error", "c": "no answer"}


def test_nothing_below_the_last_fragment_is_in_doubt() -> None:
    """I-09: the fragment could only start when all before it was acknowledged. Mutant: start at -1."""
    metadata = METADATA.with_fragment(EntryId(12), (A, B, C, BookieId("e")))
    read = LacRead(metadata, ledger_id=7)
    read.on_negative(A, Status.NO_LEDGER)
    assert read.on_negative(C, Status.NO_LEDGER)
    assert read.lac == 11


def test_try_read_ends_at_the_first_news() -> None:
    read = TryLacRead(METADATA, 5, ledger_id=7)
    assert not read.on_lac(A, 5)
    assert read.on_lac(B, 6)
    assert read.lac == 6
    assert read.error() is None


def test_try_read_without_news_waits_for_everyone_and_keeps_what_was_known() -> None:
    """I-07: a lower LAC told never lowers the one known."""
    read = TryLacRead(METADATA, 5, ledger_id=7)
    assert not read.on_lac(A, 2)
    assert not read.on_unknown(B, "lost")
    assert not read.on_negative(C, Status.NO_ENTRY)
    assert read.on_unknown(D, "lost")
    assert read.lac == 5
    assert read.error() is None


def test_try_read_fails_when_nobody_answered() -> None:
    read = TryLacRead(METADATA, 5, ledger_id=7)
    for bookie_id in (A, B, C):
        assert not read.on_unknown(bookie_id, "lost")
    assert read.error() is None
    assert read.on_unknown(D, "lost")
    assert isinstance(read.error(), EntryUnreadable)
