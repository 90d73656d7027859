"""`readledger -b`: what one bookie's copy has, what it lacks, and what was never its own."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest

from bookkeeper.cli.shell import onecopy
from bookkeeper.cli.shell.onecopy import belongs, read_copy
from bookkeeper.console.output import CommandFailed
from bookkeeper.model import BookieId, DigestType, EntryId, Fragment, LedgerId, LedgerMetadata, LedgerState, Status
from bookkeeper.wire.digest import digest_of

LEDGER = LedgerId(7)
A, B, C, D = (BookieId(f"{name}:3181") for name in "abcd")
OPEN = LedgerMetadata(3, 2, 2, (Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(4), (A, B, D))))


def closed(last: int) -> LedgerMetadata:
    return LedgerMetadata(
        3, 2, 2, OPEN.fragments, state=LedgerState.CLOSED, last_entry_id=EntryId(last), length=last + 1
    )


class Copy:
    """A bookie with these answers; every other entry is one it never had."""

    def __init__(self, found: dict[int, bytes | Status], last: bytes | Status = Status.NO_ENTRY) -> None:
        self._found, self._last = found, last

    def last(self, _: int) -> bytes | Status:
        return self._last

    def read(self, _: int, first: int, last: int) -> Iterator[tuple[int, bytes | Status]]:
        return ((number, self._found.get(number, Status.NO_ENTRY)) for number in range(first, last + 1))

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def body(entry_id: int) -> bytes:
    return digest_of(DigestType.CRC32C, b"").package_entry(LEDGER, entry_id, -1, entry_id + 1, b"x")


def read(monkeypatch: pytest.MonkeyPatch, copy: Copy, metadata: LedgerMetadata, first: int = 0, last: int = -1) -> str:
    def connected(*_: object) -> Copy:
        return copy

    class Client:
        def metadata(self, _: int) -> LedgerMetadata:
            return metadata

    client: Any = Client()
    monkeypatch.setattr(onecopy, "_connected", connected)
    args = argparse.Namespace(recover=False, ledger_id=LEDGER, bookie=A, firstentryid=first, lastentryid=last)
    return read_copy(args, client, lambda *_: None)


def test_an_entry_belongs_to_the_write_set_of_its_fragment() -> None:
    assert [belongs(OPEN, A, number) for number in range(6)] == [True, False, True, True, False, True]
    assert [belongs(OPEN, C, number) for number in (1, 2, 4)] == [True, True, False]
    assert [belongs(OPEN, D, number) for number in (1, 4, 5)] == [False, True, True]


def test_a_whole_copy_is_read_and_what_is_not_its_own_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Copy({number: body(number) for number in (0, 2, 3, 5)})
    assert read(monkeypatch, copy, closed(5)) == "4 entries; 2 entries not this bookie's"
    assert read(monkeypatch, copy, closed(5), last=9) == "4 entries; 6 entries not this bookie's"


@pytest.mark.parametrize("answer", [Status.IO_ERROR, Status.NO_ENTRY, Status.NO_LEDGER, b"\0" * 60])
def test_what_its_copy_lacks_is_a_failure_with_a_last_line_that_counts(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | Status
) -> None:
    copy = Copy({0: body(0), 2: answer, 3: body(3), 5: body(5)})
    with pytest.raises(CommandFailed, match="3 entries; 1 entry could not be read: 2; 2 entries not this bookie's"):
        read(monkeypatch, copy, closed(5))


def test_a_copy_with_nothing_is_a_failure_unless_the_ledger_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="has nothing of what was asked for of ledger 7"):
        read(monkeypatch, Copy({}), OPEN)
    assert read(monkeypatch, Copy({}), closed(-1)) == "0 entries"


def test_an_open_ledger_ends_where_the_bookie_says_and_not_where_it_cannot_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = Copy({0: body(0)}, last=body(0))
    assert read(monkeypatch, copy, OPEN) == "1 entry"
    with pytest.raises(CommandFailed, match=r"does not tell the last entry .*I/O error; -le asks for a range"):
        read(monkeypatch, Copy({}, last=Status.IO_ERROR), OPEN)
