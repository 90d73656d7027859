"""Slices of ledgers as Arrow batches: ids are counted, and rows that no filter asks for are left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.client.read.entries import PayloadBatch
from bookkeeper.errors import NoSuchLedger
from bookkeeper.spark.columns import COUNTED_TOGETHER, binary_column, counted, ledger_batch
from bookkeeper.spark.ledgers import slices as ledger_slices
from bookkeeper.spark.ledgers.plan import Slice
from bookkeeper.spark.ledgers.slices import read_slices
from bookkeeper.spark.options.bounds import Bounds
from tests.support.logged import logged


class FakeHandle:
    """A ledger whose entry n is `n`, read three at a time."""

    def __init__(self) -> None:
        self.confirmed = -1

    def note_confirmed(self, entry_id: int) -> None:
        self.confirmed = entry_id

    def payload_batches(self, first: int, last: int) -> Any:
        assert last <= self.confirmed
        for low in range(first, last + 1, 3):
            yield PayloadBatch(low, [b"%d" % each for each in range(low, min(low + 3, last + 1))])

    def __enter__(self) -> FakeHandle:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeClient:
    def open_without_recovery(self, ledger_id: int) -> FakeHandle:
        return FakeHandle()


class Options:
    as_administrator, fail_on_data_loss = False, True


def rows(entry_ids: Bounds) -> list[tuple[int, int, bytes]]:
    client, options = FakeClient(), Options()
    slices = [Slice(7, 10, 17, 8), Slice(9, 0, 1, 2)]
    batches = list(read_slices(client, options, slices, entry_ids))  # type: ignore[arg-type]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


class Gone:
    """A client of a cluster that has none of the ledgers."""

    def open_without_recovery(self, ledger_id: int) -> FakeHandle:
        raise NoSuchLedger(f"ledger {ledger_id} is not there")


class Borne:
    as_administrator, fail_on_data_loss = False, False


@pytest.mark.parametrize(("attempt", "told"), [(None, False), (0, False), (2, True)])
def test_a_task_that_is_tried_again_and_leaves_out_what_is_lost_says_that_its_rows_are_others(
    attempt: int | None, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = None if attempt is None else SimpleNamespace(attemptNumber=lambda: attempt, partitionId=lambda: 5)
    monkeypatch.setattr(ledger_slices, "TaskContext", SimpleNamespace(get=lambda: task))
    client, options = Gone(), Borne()
    with logged() as said:
        assert list(read_slices(client, options, [Slice(7, 0, 3, 4)], Bounds())) == []  # type: ignore[arg-type]
    assert said.pop(0).startswith("ledger 7 was deleted while entries 0 to 3")
    assert len(said) == told
    for line in said:
        assert line.startswith("attempt 2 of the task of partition 5 has other rows")
        assert line.endswith("do without option failOnDataLoss=false")


ALL = [*((7, each, b"%d" % each) for each in range(10, 18)), (9, 0, b"0"), (9, 1, b"1")]


@pytest.mark.parametrize(
    "entry_ids", [Bounds(), Bounds(low=11), Bounds(high=12), Bounds(only=frozenset({1, 12, 15})), Bounds(low=1, high=0)]
)
def test_all_rows_that_pass_and_no_other(entry_ids: Bounds) -> None:
    assert rows(entry_ids) == [row for row in ALL if row[1] in entry_ids]


@pytest.mark.parametrize("count", [0, 1, COUNTED_TOGETHER, COUNTED_TOGETHER + 1])
@pytest.mark.parametrize("first", [0, 2**62])
def test_ids_are_counted_in_any_number(first: int, count: int) -> None:
    assert counted(first, count).to_pylist() == list(range(first, first + count))


def test_a_batch_has_the_columns_of_the_format() -> None:
    batch = ledger_batch(7, 5, (b"a", b"", b"ccc"))
    assert batch.to_pydict() == {"ledger_id": [7] * 3, "entry_id": [5, 6, 7], "value": [b"a", b"", b"ccc"]}


@pytest.mark.parametrize(
    "payloads",
    [
        pytest.param([], id="none"),
        pytest.param([b""] * 3, id="empty"),
        pytest.param([b"ab"] * 3, id="one size"),
        pytest.param([b"a", b"", b"ccc"], id="many sizes"),
        pytest.param([b"x"] * (COUNTED_TOGETHER + 1), id="very many"),
        pytest.param([bytes(1 << 17)] * 2, id="large"),
    ],
)
def test_a_column_of_payloads_is_what_arrow_makes_of_them(payloads: list[bytes]) -> None:
    column = binary_column(payloads)
    column.validate(full=True)
    assert column.null_count == 0
    assert column == pa.array(payloads, pa.binary())
