"""What is said of a journal whose segment in progress is not to be read. Here its znodes are all there is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.config import ClientSettings
from journalmgr.model import HADOOP_2_7, Segment, TxId
from journalmgr.segment import finalised_name
from journalmgr.spark import edit_segments
from journalmgr.spark.edit_loss import Loss
from journalmgr.spark.edit_segments import JournalSegments, State


def finalised(first: int, last: int) -> Segment:
    return Segment(TxId(first), TxId(last), HADOOP_2_7, first, finalised_name(first, last))


def in_progress(first: int) -> Segment:
    return Segment(TxId(first), None, HADOOP_2_7, first, f"inprogress_{first}")


class Znodes:
    """The list of a journal's segments."""

    description, list_path = "zk1:2181", "/j/ledgers"

    def __init__(self, *segments: Segment) -> None:
        self._segments = {each.name: each for each in segments}

    async def sync(self) -> None:
        """Nothing to do."""

    async def children(self, path: str) -> list[str]:
        assert path == self.list_path
        return list(self._segments)

    async def read_segment(self, name: str) -> Any:
        return SimpleNamespace(segment=self._segments[name])


def looked(monkeypatch: pytest.MonkeyPatch, *segments: Segment, from_txid: int) -> State:
    monkeypatch.setattr(edit_segments, "JournalZnodes", lambda *_: Znodes(*segments))
    context = SimpleNamespace(store=SimpleNamespace(tree=None), clock=None)
    ledgers: Any = SimpleNamespace(context=context, settings=ClientSettings())
    found: list[State] = []
    Deferred.fromCoroutine(
        JournalSegments(ledgers, "/j", in_progress=False, loss=Loss(fails=True)).look(from_txid)
    ).addCallback(found.append)
    [state] = found
    return state


def test_a_segment_in_progress_that_is_left_out_may_reach_behind_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    state = looked(monkeypatch, finalised(1, 10), finalised(11, 20), in_progress(21), from_txid=26)
    assert (state.spans, state.last_txid, state.left_out_from) == ([], 20, 21)
    assert state.may_go_further
    alone = looked(monkeypatch, in_progress(1), from_txid=26)
    assert (alone.last_txid, alone.left_out_from) == (0, 1)


@pytest.mark.parametrize("from_txid", [15, 26])
def test_what_a_crash_left_of_a_finalised_segment_reaches_no_further_than_that(
    monkeypatch: pytest.MonkeyPatch, from_txid: int
) -> None:
    state = looked(monkeypatch, finalised(1, 10), finalised(11, 20), in_progress(11), from_txid=from_txid)
    assert (state.last_txid, state.left_out_from) == (20, None)
    assert not state.may_go_further
