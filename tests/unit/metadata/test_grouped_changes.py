"""Transactions that go out together: each has the outcome that it would have had alone."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.grouped_changes import BYTES_MAX, MEMBERS_MAX, WAITING_MAX, GroupedChanges
from bookkeeper.metadata.memory_tree import Znodes
from bookkeeper.metadata.tree import (
    Check,
    Create,
    Delete,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeNotEmpty,
    NotAttempted,
    OutcomeOpen,
    Step,
    Tree,
    Write,
)


class Server:
    """A Tree of transactions only. answers: what each one is answered with, `sent` ones by the test if None."""

    description = "the server"

    def __init__(self, *refused: str) -> None:
        self.session_id = 1
        self.refused = set(refused)
        self.sent: list[list[str]] = []
        self.waiting: list[Deferred[None]] = []

    def transact(self, steps: Sequence[Step]) -> Deferred[None]:
        self.sent.append([step.path for step in steps])
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def answer(self, error: Exception | None = None) -> None:
        """Answer the last one: with the error, or as `refused` says."""
        bad = [path for path in self.sent[-1] if path in self.refused]
        answer = self.waiting.pop()
        if error is None and bad:
            error = NodeExists(bad[0])
        if error is not None:
            answer.errback(error)
        else:
            answer.callback(None)

    def answer_all(self) -> None:
        """Until nothing is on its way."""
        while self.waiting:
            self.answer()


class Given:
    """Transactions of one step each, by path, and what became of them ("done", or the error)."""

    def __init__(self, server: Server) -> None:
        self.changes = GroupedChanges(cast(Tree, server))
        self.became: dict[str, object] = {}

    def give(self, *paths: str, data: bytes = b"") -> list[Deferred[None]]:
        given = []
        for path in paths:
            done = self.changes.transact([Create(path, data)])
            done.addCallbacks(
                lambda _, path=path: self.became.setdefault(path, "done"),
                lambda failure, path=path: self.became.setdefault(path, failure.value),
            )
            given.append(done)
        return given


def paths(count: int) -> list[str]:
    return [f"/n{number}" for number in range(count)]


def test_who_comes_while_a_group_is_on_its_way_goes_with_the_next() -> None:
    server = Server()
    given = Given(server)
    given.give("/a", "/b", "/c")
    assert server.sent == [["/a"]]
    assert given.became == {}
    server.answer()
    assert server.sent == [["/a"], ["/b", "/c"]]
    assert given.became == {"/a": "done"}
    server.answer()
    assert given.became == dict.fromkeys(("/a", "/b", "/c"), "done")
    given.give("/d")
    assert server.sent[-1] == ["/d"]


def test_what_the_members_of_a_group_go_on_to_do_goes_out_together() -> None:
    """Mutant: send from within the first member's answer."""
    server = Server()
    given = Given(server)
    for done in given.give("/a", "/b", "/c", "/d"):
        done.addCallback(lambda _: given.give(f"/again{len(given.became)}"))
    server.answer()
    assert server.sent[1:] == [["/b", "/c", "/d", "/again1"]]
    server.answer()
    assert server.sent[2:] == [["/again2", "/again3", "/again4"]]


def test_a_group_is_bounded_by_members_and_bytes() -> None:
    server = Server()
    given = Given(server)
    given.give("/first", *paths(2 * MEMBERS_MAX + 1))
    server.answer_all()
    assert [len(group) for group in server.sent] == [1, MEMBERS_MAX, MEMBERS_MAX, 1]
    server.sent.clear()
    given.give("/second", "/x", "/y", data=bytes(BYTES_MAX // 2))
    given.give("/huge", data=bytes(2 * BYTES_MAX))
    given.give("/small")
    server.answer_all()
    assert server.sent == [["/second"], ["/x"], ["/y"], ["/huge"], ["/small"]]


@pytest.mark.parametrize("refused", [["/n5"], ["/n0", "/n1", "/n30"], paths(32), ["/n31"]], ids=len)
def test_a_refusal_is_that_of_the_refused_member_alone(refused: list[str]) -> None:
    server = Server(*refused)
    given = Given(server)
    given.give("/first", *paths(32))
    server.answer_all()
    assert {path for path, end in given.became.items() if end == "done"} == {"/first", *paths(32)} - set(refused)
    assert all(isinstance(given.became[path], NodeExists) and str(given.became[path]) == path for path in refused)
    assert len(server.sent) <= 2 + 2 * 5 * len(refused)  # halves: 2 log2(32) requests for one refused member


def test_where_members_are_refused_groups_shrink_and_grow_again_by_one() -> None:
    """Locks that others hold. Mutant: always the largest group."""
    server = Server("/n3")
    given = Given(server)
    given.give("/first", *paths(MEMBERS_MAX))
    given.give(*(f"/later{number}" for number in range(3 * MEMBERS_MAX)))
    server.answer_all()
    sizes = [len(group) for group in server.sent]
    assert sizes[1] == MEMBERS_MAX
    later = [len(group) for group in server.sent if group[0].startswith("/later")]
    assert later[0] < MEMBERS_MAX / 4
    assert [after - before for before, after in pairwise(later[:-1])] == [1] * (len(later) - 2)
    assert list(given.became.values()).count("done") == 4 * MEMBERS_MAX


@pytest.mark.parametrize(
    "error", [OutcomeOpen("lost"), NotAttempted("not sent"), MetadataUnavailable("closed")], ids=repr
)
def test_what_is_not_known_of_a_group_is_not_known_of_any_member(error: Exception) -> None:
    """I-16: each finds out for itself. Mutant: try the halves, which may do twice what was done."""
    server = Server()
    given = Given(server)
    given.give("/first", "/a", "/b")
    server.answer()
    server.answer(error)
    assert server.sent == [["/first"], ["/a", "/b"]]
    assert [type(given.became[path]) for path in ("/a", "/b")] == [type(error)] * 2
    assert given.became["/a"] is not given.became["/b"]
    assert str(given.became["/b"]) == str(error)


def test_nothing_is_sent_in_another_session_than_it_was_given_in() -> None:
    """I-77. Mutant: look at the session when it is given only."""
    server = Server()
    given = Given(server)
    given.give("/first", "/a", "/b")
    server.session_id = 2
    given.give("/new")
    server.answer(OutcomeOpen("lost"))
    assert server.sent[1:] == [["/new"]]
    assert [type(given.became[path]) for path in ("/first", "/a", "/b")] == [OutcomeOpen, NotAttempted, NotAttempted]


def test_nothing_is_sent_that_rests_on_what_changed_while_it_waited() -> None:
    """I-76: also before it is tried again in a half. Mutants: ask when it is given; ask once."""
    server = Server("/c")
    given = Given(server)
    holds = {"/a": True, "/b": True}
    given.give("/first")
    outcomes: dict[str, object] = {}
    for path in holds:
        done = given.changes.transact([Delete(path, 0)], still=lambda path=path: holds[path])  # type: ignore[misc]
        done.addBoth(lambda result, path=path: outcomes.setdefault(path, result))
    given.give("/c")
    holds["/a"] = False
    server.answer()
    assert server.sent[-1] == ["/b", "/c"]
    holds["/b"] = False
    server.answer()
    assert server.sent[-1] == ["/c"]
    assert all(isinstance(found, Failure) and found.check(NodeChanged) for found in outcomes.values())


def test_a_member_that_is_cancelled_is_not_sent_and_one_on_its_way_is_let_be() -> None:
    server = Server()
    given = Given(server)
    first, waiting, _ = given.give("/first", "/a", "/b")
    waiting.cancel()
    first.cancel()
    server.answer_all()
    assert server.sent == [["/first"], ["/b"]]
    assert given.became["/b"] == "done"


def test_only_so_many_wait() -> None:
    server = Server()
    given = Given(server)
    given.give(*paths(WAITING_MAX + 1))
    assert given.became == {}
    given.give("/more")
    assert isinstance(given.became["/more"], MetadataUnavailable)
    server.answer_all()
    assert list(given.became.values()).count("done") == WAITING_MAX + 1


def test_an_answer_that_is_there_at_once_needs_no_depth() -> None:
    """Mutant: send the next one from within the answer."""

    class Down(Server):
        """Not connected."""

        def transact(self, steps: Sequence[Step]) -> Deferred[None]:
            super().transact(steps).errback(NotAttempted("not connected"))
            return self.waiting.pop()

    server = Server()
    given = Given(server)
    given.give(*paths(WAITING_MAX))
    server.transact = Down.transact.__get__(Down())  # type: ignore[method-assign]
    server.answer()
    assert [type(end) for end in given.became.values()].count(NotAttempted) == WAITING_MAX - 1


class ZnodeServer(Server):
    """A server of znodes that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.znodes = Znodes()

    def transact(self, steps: Sequence[Step]) -> Deferred[None]:
        self.steps = steps
        return super().transact(steps)

    def answer(self, error: Exception | None = None) -> None:
        try:
            self.znodes.transact(self.steps, self.session_id)
        except (NodeAbsent, NodeChanged, NodeExists, NodeNotEmpty) as refusal:
            error = refusal
        super().answer(error)


@pytest.mark.parametrize("seed", range(20))
def test_all_is_as_if_each_had_gone_alone_in_the_order_of_the_calls(seed: int) -> None:
    """Creates, writes, checks and removals of a few nodes, many of which are refused, some for what others of the same
    group did. Mutant: the halves in the wrong order, or behind those that wait."""
    rng = random.Random(seed)
    names = ["/a", "/a/b", "/a/b/c", "/d", "/e", "/e/f"]

    def some_step() -> Step:
        path = rng.choice(names)
        return rng.choice(
            (Create(path), Write(path, b"x", rng.randrange(3)), Delete(path, rng.randrange(2)), Check(path, 0))
        )

    members = [[some_step() for _ in range(rng.choice((1, 1, 2)))] for _ in range(300)]
    alone, together = ZnodeServer(), ZnodeServer()
    expected: list[object] = []
    for steps in members:
        try:
            alone.znodes.transact(steps, 1)
            expected.append("done")
        except Exception as error:  # noqa: BLE001 - compared
            expected.append(type(error))
    changes = GroupedChanges(cast(Tree, together))
    found: dict[int, object] = {}
    left = list(enumerate(members))
    while left or together.waiting:
        for number, steps in [left.pop(0) for _ in range(min(len(left), rng.randrange(40)))]:
            done = changes.transact(steps)
            done.addCallbacks(
                lambda _, number=number: found.setdefault(number, "done"),  # type: ignore[misc]
                lambda failure, number=number: found.setdefault(number, type(failure.value)),  # type: ignore[misc]
            )
        if together.waiting:
            together.answer()
    assert [found[number] for number in range(len(members))] == expected
    nodes = {path: (node.data, node.version) for path, node in together.znodes.leader.nodes.items()}
    assert nodes == {path: (node.data, node.version) for path, node in alone.znodes.leader.nodes.items()}
    assert 20 < expected.count("done") < 280
    assert len(together.sent) < len(members) * 1.6
