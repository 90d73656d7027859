"""Transactions that go out together: each has the outcome that it would have had alone."""

import random
from collections import deque
from collections.abc import Sequence
from typing import cast

import pytest
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataError, MetadataTooLarge, MetadataUnavailable
from bookkeeper.metadata.grouped_changes import ALONE_MIN, BYTES_MAX, MEMBERS_MAX, WAITING_MAX, GroupedChanges
from bookkeeper.metadata.memory.tree import Znodes
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
    """A Tree of transactions only, which are answered when the test says so. refused: paths of steps that are."""

    description = "the server"

    def __init__(self, *refused: str) -> None:
        self.session_id = 1
        self.refused = set(refused)
        self.sent: list[list[str]] = []
        self.unanswered: deque[tuple[Sequence[Step], Deferred[None]]] = deque()
        self.round_trips = 0

    def transact(self, steps: Sequence[Step]) -> Deferred[None]:
        self.sent.append([step.path for step in steps])
        done: Deferred[None] = Deferred()
        self.unanswered.append((steps, done))
        return done

    def refusal(self, steps: Sequence[Step]) -> Exception | None:
        """What a real one would say."""
        return next((NodeExists(step.path) for step in steps if step.path in self.refused), None)

    def answer(self, error: Exception | None = None) -> None:
        """Answer the oldest one: with the error, or as `refused` says."""
        steps, done = self.unanswered.popleft()
        error = error or self.refusal(steps)
        if error is not None:
            done.errback(error)
        else:
            done.callback(None)

    def answer_all(self) -> None:
        """Until nothing is on its way, all that is on its way at a time."""
        while self.unanswered:
            self.round_trips += 1
            for _ in range(len(self.unanswered)):
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


class NotCopied(Exception):
    """An error that copy.copy fails for."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")


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
    assert len(server.sent) == 1 + 1 + 32
    assert server.round_trips == 3  # each of them alone, all at once. Mutant: one after the other


def test_after_a_refusal_many_go_alone_and_after_the_next_twice_as_many() -> None:
    """Locks that others hold: a group only costs more, and a round trip. Mutants: groups at once again; never again."""
    server = Server("/n3", "/later64")
    given = Given(server)
    given.give("/first", *paths(MEMBERS_MAX))
    server.answer()
    given.give(*(f"/later{number}" for number in range(8 * MEMBERS_MAX)))
    server.answer_all()
    sizes = [len(group) for group in server.sent]
    alone, again = [1] * ALONE_MIN, [1] * (2 * ALONE_MIN)
    whole = [MEMBERS_MAX] * 4
    assert sizes == [1, MEMBERS_MAX, *[1] * MEMBERS_MAX, *alone, MEMBERS_MAX, *[1] * MEMBERS_MAX, *again, *whole]
    assert server.round_trips == 6
    assert list(given.became.values()).count("done") == 9 * MEMBERS_MAX - 1
    server.sent.clear()
    server.refused.add("/last")  # groups were done since: as the first time
    given.give("/one", "/two", "/last")
    given.give(*(f"/more{number}" for number in range(3 * ALONE_MIN)))
    server.answer_all()
    assert [len(group) for group in server.sent] == [1, MEMBERS_MAX, *[1] * MEMBERS_MAX, *alone, MEMBERS_MAX, 2]


def test_where_all_are_refused_it_costs_hardly_more_than_without_groups() -> None:
    """Ledgers that another worker has locked, or that are marked already."""
    server = Server(*paths(5000))
    given = Given(server)
    given.give(*paths(5000))
    server.answer_all()
    assert len(server.sent) < 5020
    assert server.round_trips < 20
    assert {type(end) for end in given.became.values()} == {NodeExists}


@pytest.mark.parametrize(
    "error",
    [OutcomeOpen("lost"), NotAttempted("not sent"), MetadataUnavailable("closed"), MetadataError("?"), NotCopied(1, 2)],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_known_of_a_group_is_not_known_of_any_member(error: Exception) -> None:
    """I-16: each finds out for itself. Mutant: try each alone, which may do twice what was done."""
    server = Server()
    given = Given(server)
    given.give("/first", "/a", "/b")
    server.answer()
    server.answer(error)
    assert server.sent == [["/first"], ["/a", "/b"]]
    given.give("/next", "/over")
    assert server.sent[2:] == [["/next"], ["/over"]]  # alone: perhaps the group was more than the server takes
    assert [type(given.became[path]) for path in ("/a", "/b")] == [type(error)] * 2
    assert (given.became["/a"] is given.became["/b"]) == isinstance(error, NotCopied)
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
    """I-76: also before it is tried again alone. Mutants: ask when it is given; ask once."""
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


def test_a_look_that_fails_and_one_that_cancels_another_leave_the_rest_alone() -> None:
    server = Server()
    given = Given(server)
    given.give("/first")

    def fail() -> bool:
        raise ZeroDivisionError

    outcomes: list[object] = []
    cancelled = given.give("/cancelled")[0]
    failing = given.changes.transact([Delete("/failing", 0)], still=fail)
    failing.addErrback(lambda failure: (cancelled.cancel(), outcomes.append(failure.value)))
    given.give("/a")
    server.answer_all()
    assert server.sent == [["/first"], ["/a"]]
    assert [type(error) for error in outcomes] == [ZeroDivisionError]
    assert given.became["/a"] == "done"


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

    server = Server()
    given = Given(server)
    given.give(*paths(WAITING_MAX))
    server.transact = lambda _: defer.fail(NotAttempted("not connected"))  # type: ignore[method-assign]
    server.answer()
    assert [type(end) for end in given.became.values()].count(NotAttempted) == WAITING_MAX - 1


class ZnodeServer(Server):
    """A server of znodes."""

    def __init__(self) -> None:
        super().__init__()
        self.znodes = Znodes()

    def refusal(self, steps: Sequence[Step]) -> Exception | None:
        try:
            self.znodes.transact(steps, self.session_id)
        except (NodeAbsent, NodeChanged, NodeExists, NodeNotEmpty) as refusal:
            return refusal
        return None


@pytest.mark.parametrize("seed", range(20))
def test_all_is_as_if_each_had_gone_alone_in_the_order_of_the_calls(seed: int) -> None:
    """Creates, writes, checks and removals of a few nodes, many of which are refused, some for what others of the same
    group did. Mutant: those of a refused group behind those that wait."""
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
    while left or together.unanswered:
        for number, steps in [left.pop(0) for _ in range(min(len(left), rng.randrange(40)))]:
            done = changes.transact(steps)
            done.addCallbacks(
                lambda _, number=number: found.setdefault(number, "done"),  # type: ignore[misc]
                lambda failure, number=number: found.setdefault(number, type(failure.value)),  # type: ignore[misc]
            )
        for _ in range(min(len(together.unanswered), rng.randrange(20))):
            together.answer()
    assert [found[number] for number in range(len(members))] == expected
    nodes = {path: (node.data, node.version) for path, node in together.znodes.leader.nodes.items()}
    assert nodes == {path: (node.data, node.version) for path, node in alone.znodes.leader.nodes.items()}
    assert 20 < expected.count("done") < 280
    assert len(together.sent) < len(members) * 1.2


def test_a_group_that_is_too_large_goes_one_by_one() -> None:
    server = Server()
    given = Given(server)
    given.give("/first", "/a", "/b")
    server.answer()
    server.answer(MetadataTooLarge("no", path="/a", size=2, limit=1))
    server.answer_all()
    assert server.sent == [["/first"], ["/a", "/b"], ["/a"], ["/b"]]
    assert given.became == {"/first": "done", "/a": "done", "/b": "done"}
