"""From rows of an export to new ledgers, however the rows come in batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import NotEnoughBookies
from bookkeeper.model import DigestType
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import ExportedLedger, Status, format_ledger
from bookkeeper.spark.exports.options import ImportOptions
from bookkeeper.spark.exports.writing import ImportWrite, TaskCopies
from bookkeeper.spark.sink.commit_format import Kind, Owner

THIS = ImportWrite(Owner(Kind.IMPORT, "j"), "e", "e.w", 3, 1000)
OPTIONS = ImportOptions(job="j", commit_path="/c")


class FakeLedger:
    """A write handle whose bookies acknowledge at once."""

    def __init__(self, ledger_id: int, how: dict[str, Any]) -> None:
        self.ledger_id, self.how = ledger_id, how
        self.payloads: list[bytes] = []
        self.ended = ""
        self.fails = False
        self.on_acknowledged: Callable[[range], object] = lambda _: None
        self.on_failed: Callable[[Exception], object] = lambda _: None

    def append_batch_nowait(self, payloads: Sequence[bytes]) -> None:
        if self.fails:
            raise NotEnoughBookies("gone")
        self.payloads += payloads

    def close(self) -> Deferred[None]:
        self.ended = "closed"
        return succeed(None)

    def abort(self) -> None:
        self.ended = "aborted"


class FakeClient:
    """A blocking client whose ledgers are 100 and following; the one with id `fails` takes nothing."""

    def __init__(self, fails: int = -1) -> None:
        self.ledgers: list[FakeLedger] = []
        self.deleted: list[int] = []
        self._fails = fails

    def create(self, **how: Any) -> Deferred[FakeLedger]:
        ledger = FakeLedger(100 + len(self.ledgers), how)
        ledger.fails = ledger.ledger_id == self._fails
        self.ledgers.append(ledger)
        return succeed(ledger)

    def delete(self, ledger_id: int) -> Deferred[None]:
        self.deleted.append(ledger_id)
        return succeed(None)

    def run(self, start: Callable[[Any], Deferred[Any]]) -> Any:
        outcome: list[Any] = []
        start(self).addBoth(outcome.append)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]


def exported(ledger_id: int, payloads: list[bytes]) -> ExportedLedger:
    return ExportedLedger(
        ledger_id=ledger_id,
        status=Status.COMPLETE,
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=1,
        digest_type="MAC",
        custom={"a": b"\xff"},
        entries=len(payloads),
        size=sum(map(len, payloads)),
        digest="d",
    )


LEDGERS = {5: [b"a", b"", b"ccc"], 6: [], 9: [b"d"]}
Rows = list[tuple[int, int, bytes]]


def rows_of(ledgers: dict[int, list[bytes]]) -> Rows:
    rows: Rows = []
    for position, (ledger_id, payloads) in enumerate(ledgers.items()):
        rows.append((position, -1, format_ledger(exported(ledger_id, payloads)).encode()))
        rows += [(position, entry_id, payload) for entry_id, payload in enumerate(payloads)]
    return rows


def batch_of(rows: Rows) -> Any:
    positions, entry_ids, values = ([row[column] for row in rows] for column in range(3))
    arrays = [pa.array(positions, pa.int32()), pa.array(entry_ids, pa.int64()), pa.array(values, pa.binary())]
    return pa.record_batch(arrays, names=["position", "entry_id", "value"])


def written(client: FakeClient, *batches: Rows, options: ImportOptions = OPTIONS) -> list[dict[str, Any]]:
    task = TaskCopies(options, THIS, 1, lambda: client)  # type: ignore[arg-type, return-value]
    found: list[dict[str, Any]] = []
    try:
        for batch in batches:
            for result in task.take(batch_of(batch)):
                found += result.to_pylist()
        for result in task.close():
            found += result.to_pylist()
    except BaseException:
        task.discard()
        raise
    return found


def test_each_ledger_is_written_in_order_however_its_rows_are_split() -> None:
    rows = rows_of(LEDGERS)
    for first in range(len(rows) + 1):
        for second in range(first, len(rows) + 1):
            client = FakeClient()
            found = written(client, rows[:first], rows[first:second], rows[second:])
            assert [ledger.payloads for ledger in client.ledgers] == list(LEDGERS.values()), (first, second)
            assert [(row["position"], row["exported_id"], row["ledger_id"], row["entries"]) for row in found] == [
                (0, 5, 100, 3),
                (1, 6, 101, 0),
                (2, 9, 102, 1),
            ]
            assert {ledger.ended for ledger in client.ledgers} == {"closed"}
            assert client.deleted == []


def test_a_ledger_is_made_as_it_was_and_says_what_it_is_for() -> None:
    client = FakeClient()
    written(client, rows_of(LEDGERS))
    how = client.ledgers[0].how
    custom = how.pop("custom")
    assert how == {"ensemble": 3, "write_quorum": 2, "ack_quorum": 1, "digest": DigestType.MAC}
    assert (custom["a"], custom["imported-from"], custom["spark.import"]) == (b"\xff", b"e/5", b"j")
    assert (custom["spark.batch"], custom["spark.write"], custom["spark.attempt"]) == (b"3", b"e.w", b"1")
    client = FakeClient()
    written(client, rows_of(LEDGERS), options=dataclasses.replace(OPTIONS, ensemble=5, write_quorum=4, ack_quorum=3))
    how = client.ledgers[0].how
    assert (how["ensemble"], how["write_quorum"], how["ack_quorum"]) == (5, 4, 3)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (rows_of(LEDGERS)[1:], "entry 0 of a ledger that has no line"),
        (rows_of(LEDGERS)[:3] + rows_of(LEDGERS)[4:], "ledger 5: 2 entries of 1 bytes, exported were 3 of 4"),
        (rows_of(LEDGERS)[:1] + rows_of(LEDGERS)[2:], "ledger 5: entry 1 where 0 should be"),
        ([(0, -1, b"x")], "no JSON"),
    ],
)
def test_rows_that_are_not_those_of_the_export_are_refused_and_nothing_is_left(rows: Rows, why: str) -> None:
    client = FakeClient()
    with pytest.raises(NotAnExport, match=why):
        written(client, rows)
    assert sorted(client.deleted) == [ledger.ledger_id for ledger in client.ledgers]


def test_an_attempt_that_fails_deletes_what_it_wrote_before() -> None:
    client = FakeClient(fails=102)
    with pytest.raises(NotEnoughBookies):
        written(client, rows_of(LEDGERS))
    assert sorted(client.deleted) == [100, 101, 102]
    assert client.ledgers[2].ended == "aborted"


def test_without_rows_there_is_no_need_of_a_connection() -> None:
    assert written(FakeClient(), []) == []
