"""From Arrow batches to the entries of one ledger."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import InvalidArgument, NotEnoughBookies, WindowFull
from bookkeeper.spark.sink.commit_format import Kind, Owner, WrittenLedger
from bookkeeper.spark.sink.options import LedgerSinkOptions
from bookkeeper.spark.sink.purpose import Purpose
from bookkeeper.spark.sink.task_ledger import PIECE_ENTRIES_MAX, write_ledger

PURPOSE = Purpose(Owner(Kind.JOB, "j"), "w", 0, 3, 1, 1000, "/c")
OPTIONS = LedgerSinkOptions(4, 3, 2, "/c", "j")


class FakeLedger:
    """A write handle with a window of so many entries, whose bookies answer whenever somebody waits."""

    ledger_id = 7

    def __init__(self, window: int, fails_after: int | None) -> None:
        self.window, self.fails_after = window, fails_after
        self.payloads: list[bytes] = []
        self.pieces: list[int] = []
        self.acknowledged = 0
        self.ended = ""
        self.on_acknowledged: Callable[[range], object] = lambda _: None
        self.on_failed: Callable[[Exception], object] = lambda _: None

    @property
    def last_add_pushed(self) -> int:
        return len(self.payloads) - 1

    def append_batch_nowait(self, payloads: Sequence[bytes]) -> None:
        if self.ended:
            raise NotEnoughBookies(self.ended)
        if len(self.payloads) - self.acknowledged + len(payloads) > self.window:
            raise WindowFull("full")
        self.payloads += payloads
        self.pieces.append(len(payloads))

    def answer(self) -> None:
        """A bookie's answer: for one entry, or that there will be none."""
        if self.fails_after is not None and self.acknowledged >= self.fails_after:
            self.ended = "the bookies are gone"
            self.on_failed(NotEnoughBookies(self.ended))
        else:
            self.acknowledged += 1
            self.on_acknowledged(range(self.acknowledged - 1, self.acknowledged))

    def close(self) -> Deferred[Any]:
        self.ended = "closed"

        class Metadata:
            last_entry_id = len(self.payloads) - 1
            length = sum(map(len, self.payloads))

        return succeed(Metadata())

    def abort(self) -> None:
        self.ended = "aborted"


class FakeClient:
    """A blocking client of one ledger."""

    def __init__(self, window: int = 5000, fails_after: int | None = None) -> None:
        self.ledger = FakeLedger(window, fails_after)
        self.created: list[dict[str, Any]] = []
        self.deleted: list[int] = []

    def create(self, **how: Any) -> Deferred[FakeLedger]:
        self.created.append(how)
        return succeed(self.ledger)

    def delete(self, ledger_id: int) -> Deferred[None]:
        self.deleted.append(ledger_id)
        return succeed(None)

    def run(self, start: Callable[[Any], Deferred[Any]]) -> Any:
        """Begin, and let bookies answer until it is over."""
        outcome: list[Any] = []
        start(self).addBoth(outcome.append)
        while not outcome:
            self.ledger.answer()
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]


def batch_of(values: Any) -> Any:
    return pa.record_batch([values], names=["value"])


def written(client: Any, *batches: Any) -> WrittenLedger | None:
    return write_ledger(client, OPTIONS, PURPOSE, batches)


PAYLOADS = [b"a", b"", b"ccc"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_binary_and_strings_are_entries_byte_for_byte(kind: Any) -> None:
    client = FakeClient()
    values = pa.array(["before", *(each.decode() for each in PAYLOADS), "behind"], pa.string()).cast(kind)
    found = written(client, batch_of(values[1:4]), batch_of(values[:0]), batch_of(values[4:]))
    assert client.ledger.payloads == [*PAYLOADS, b"behind"]
    assert found == WrittenLedger(7, 4, 10, zlib.crc32(b"acccbehind"), 3, 1)
    [how] = client.created
    assert how == {"ensemble": 4, "write_quorum": 3, "ack_quorum": 2, "digest": None, "custom": PURPOSE.custom()}
    assert (client.ledger.ended, client.deleted) == ("closed", [])


def test_without_rows_there_is_no_ledger() -> None:
    client = FakeClient()
    assert written(client) is None
    assert written(client, batch_of(pa.array([], pa.binary()))) is None
    assert client.created == []


def test_a_null_is_told_with_its_place_and_the_ledger_goes() -> None:
    client = FakeClient()
    with pytest.raises(InvalidArgument, match=r"row 4 \(from 0\) of partition 3 has a null.*coalesce"):
        written(client, batch_of(pa.array(PAYLOADS)), batch_of(pa.array([b"x", None, None], pa.binary())))
    assert (client.ledger.ended, client.deleted) == ("aborted", [7])


def test_a_source_that_fails_leaves_no_ledger() -> None:
    client = FakeClient()

    def batches() -> Iterator[Any]:
        yield batch_of(pa.array(PAYLOADS))
        raise OSError("the source")

    with pytest.raises(OSError, match="the source"):
        write_ledger(client, OPTIONS, PURPOSE, batches())  # type: ignore[arg-type]
    assert client.deleted == [7]


def test_pieces_are_bounded_and_wait_for_the_window() -> None:
    payloads = [b"%d" % number for number in range(2 * PIECE_ENTRIES_MAX + 500)]
    for window, largest in ((5000, PIECE_ENTRIES_MAX), (1500, PIECE_ENTRIES_MAX), (300, 250), (1, 1)):
        client = FakeClient(window)
        written(client, batch_of(pa.array(payloads)))
        assert client.ledger.payloads == payloads
        assert max(client.ledger.pieces) == largest


def test_large_entries_make_small_pieces() -> None:
    client = FakeClient()
    written(client, batch_of(pa.array([bytes(300_000)] * 10)))
    assert client.ledger.pieces == [3, 3, 3, 1]


def test_a_ledger_that_fails_while_its_task_waits_fails_the_task() -> None:
    client = FakeClient(window=10, fails_after=25)
    with pytest.raises(NotEnoughBookies, match="gone"):
        written(client, batch_of(pa.array([b"x"] * 100)))
    assert client.deleted == [7]
