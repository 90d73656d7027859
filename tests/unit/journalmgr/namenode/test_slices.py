"""Long walks in slices: time of a turn, order, bound, and what they answer with in a namespace that changes."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from journalmgr.namenode.http.messages import Overloaded
from journalmgr.namenode.images.format import fingerprint
from journalmgr.namenode.namespace import slices
from journalmgr.namenode.namespace.slices import SLICE_S, WALKS_MAX, Slices
from journalmgr.namenode.service import FINGERPRINT_S
from tests.support.simulated_clock import SimulatedClock
from tests.unit.journalmgr.namenode.test_http_api import Front, error_of

STEP_S = 0.001


class Walks:
    """Walks of steps that take STEP_S each."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.slices = Slices(self.clock)
        self.steps: list[str] = []
        self.ended: list[Any] = []

    def walk(self, name: str, count: int) -> Generator[None, None, str]:
        for _ in range(count - 1):
            self._step(name)
            yield
        self._step(name)
        return name

    def broken(self) -> Generator[None, None, str]:
        yield
        raise ZeroDivisionError

    def _step(self, name: str) -> None:
        self.clock.spend(STEP_S)
        self.steps.append(name)

    def run(self, steps: Generator[None, None, str]) -> None:
        done: Deferred[Any] = self.slices.run(steps)
        done.addErrback(lambda failure: failure.type).addCallback(self.ended.append)


def test_walks_share_the_time_of_a_turn_and_take_turns() -> None:
    walks = Walks()
    walks.run(walks.walk("a", 100))
    walks.run(walks.walk("b", 6))
    walks.run(walks.walk("short", 1))
    assert walks.ended == ["short"]
    turns = 0
    while walks.clock.step():
        turns += 1
        assert len(walks.steps) <= 3 + turns * (round(SLICE_S / STEP_S) + 1)
    assert walks.ended == ["short", "b", "a"]
    assert turns >= 15
    assert walks.steps[:9] == ["a", "b", "short", *"ababab"]


def test_a_walk_that_breaks_ends_alone() -> None:
    walks = Walks()
    walks.run(walks.broken())
    walks.run(walks.walk("a", 3))
    while walks.clock.step():
        pass
    assert walks.ended == [ZeroDivisionError, "a"]


def test_so_many_walks_wait_and_no_more() -> None:
    walks = Walks()
    for _ in range(WALKS_MAX):
        walks.run(walks.walk("a", 3))
    with pytest.raises(Overloaded, match=f"{WALKS_MAX} long looks"):
        walks.run(walks.walk("b", 3))
    walks.run(walks.walk("short", 1))
    while walks.clock.step():
        pass
    assert walks.ended == ["short", *["a"] * WALKS_MAX]
    walks.run(walks.walk("b", 3))
    while walks.clock.step():
        pass
    assert walks.ended[-1] == "b"


# --- in a name node


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Front:
    """Some thousand directories; each turn has time for one step."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    front = Front()
    front.fill(3000)
    return front


FINGERPRINT = "/api/v1/fingerprint"


def finish(front: Front, answers: list[Any]) -> int:
    """Turns until there is an answer."""
    turns = 0
    while not answers:
        assert front.clock.step()
        turns += 1
    return turns


def test_a_fingerprint_of_a_large_state_is_computed_in_slices_and_once(large: Front) -> None:
    answers = large.start("GET", FINGERPRINT)
    assert answers == []
    assert large.send("GET", "/heartbeat").status == 200
    assert finish(large, answers) >= 5
    found = {"txid": large.namespace.last_txid, "fingerprint": fingerprint(large.namespace)}
    assert json.loads(answers[0].body) == found
    assert json.loads(large.send("GET", FINGERPRINT).body) == found
    large.put("/new", "MKDIRS")
    assert large.start("GET", FINGERPRINT) == []


def test_a_fingerprint_is_that_of_one_state(large: Front) -> None:
    answers = large.start("GET", FINGERPRINT)
    large.clock.step()
    large.put("/big/00007/new", "MKDIRS")
    finish(large, answers)
    assert json.loads(answers[0].body) == {
        "txid": large.namespace.last_txid,
        "fingerprint": fingerprint(large.namespace),
    }


def test_a_fingerprint_of_a_large_state_that_never_rests_is_refused(large: Front) -> None:
    answers = large.start("GET", FINGERPRINT)
    number = 0
    while not answers:
        number += 1
        large.put(f"/{number}", "MKDIRS")
        large.clock.spend(0.5)
        assert large.clock.step()
    assert large.clock.seconds() >= FINGERPRINT_S
    assert error_of(answers[0])[:2] == (503, "RetriableException")
    assert "changes" in error_of(answers[0])[2]


def test_a_summary_of_a_large_tree_is_counted_in_slices(large: Front) -> None:
    answers = large.start("GET", "/webhdfs/v1/?op=GETCONTENTSUMMARY")
    assert answers == []
    large.put("/big/02000/new", "MKDIRS")
    large.send("DELETE", "/webhdfs/v1/big/02999?op=DELETE&recursive=true")
    assert finish(large, answers) >= 5
    assert json.loads(answers[0].body)["ContentSummary"]["directoryCount"] == 1 + 1 + 3000 + 1
