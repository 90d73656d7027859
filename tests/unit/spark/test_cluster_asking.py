"""Asking about many things: some at a time, answers in the order of the things, pieces of a bounded size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataUnavailable
from bookkeeper.spark.cluster.asking import ROWS, rows_of
from bookkeeper.spark.cluster.table import Row


class Asked:
    """Questions, answered when a test says so."""

    def __init__(self) -> None:
        self.waiting: dict[int, Deferred[Sequence[Row]]] = {}
        self.most = 0

    def ask(self, item: int) -> Deferred[Sequence[Row]]:
        answer: Deferred[Sequence[Row]] = Deferred()
        self.waiting[item] = answer
        self.most = max(self.most, len(self.waiting))
        return answer

    def answer(self, item: int, rows: Sequence[Row]) -> None:
        self.waiting.pop(item).callback(rows)


def collected(items: range, asked: Asked, at_once: int) -> tuple[list[list[Row]], list[BaseException]]:
    pieces: list[list[Row]] = []
    failed: list[BaseException] = []

    async def run() -> None:
        try:
            async for piece in rows_of(items, asked.ask, at_once):
                pieces.append(piece)  # noqa: PERF401 - what came before a failure counts
        except MetadataUnavailable as error:
            failed.append(error)

    Deferred.fromCoroutine(run())
    return pieces, failed


def test_rows_come_in_the_order_of_the_items_however_the_answers_come() -> None:
    asked = Asked()
    pieces, _ = collected(range(10), asked, 4)
    while asked.waiting:
        last = max(asked.waiting)
        asked.answer(last, [(last,)] * (last % 3))
    assert asked.most == 4
    assert [row[0] for piece in pieces for row in piece] == [item for item in range(10) for _ in range(item % 3)]


def test_a_piece_is_handed_over_once_it_is_large_enough_and_not_much_later() -> None:
    asked = Asked()
    pieces, _ = collected(range(5 * ROWS), asked, 64)
    while asked.waiting:
        item = min(asked.waiting)
        asked.answer(item, [(item,)])
    assert [len(piece) for piece in pieces[:-1]] == [1024] * (len(pieces) - 1)
    assert sum(map(len, pieces)) == 5 * ROWS


@pytest.mark.parametrize("failing", [0, 3])
def test_an_answer_that_fails_ends_the_list_as_a_failure(failing: int) -> None:
    asked = Asked()
    pieces, failed = collected(range(100), asked, 4)
    asked.waiting.pop(failing).errback(MetadataUnavailable("no server"))
    while asked.waiting:
        asked.answer(min(asked.waiting), [])
    assert [str(error) for error in failed] == ["no server"]
    assert not pieces
    assert asked.most == 4
