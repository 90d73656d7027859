"""autorecovery/* over the metadata store in memory, and operations that outlast their request."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from bookkeeper.admin.http.autorecovery import TOP
from bookkeeper.admin.http.routing import HttpRequest
from bookkeeper.admin.http.whole import Parts, router_of
from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.memory.store import MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.metadata.underreplication.format import mark_path
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.model import BookieId, LedgerId

A, B = BookieId("a:1"), BookieId("b:1")


class Recoverer:
    """Begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, ...]] = []
        self.outcome: Deferred[str] = Deferred()

    def recover(
        self, sources: Sequence[BookieId], *, delete_cookies: bool
    ) -> tuple[Deferred[str], Callable[[], object]]:
        self.begun.append((tuple(sources), delete_cookies))
        return self.outcome, lambda: {"ledgers": 3}

    def decommission(self, source: BookieId, *, delete_cookie: bool) -> tuple[Deferred[str], Callable[[], object]]:
        return self.recover([source], delete_cookies=delete_cookie)


class Process:
    """What a process with auto-recovery answers."""

    def __init__(self, recoverer: Recoverer | None = None) -> None:
        self.clock = Clock()
        self.shared = MemoryMetadata(clock=self.clock)
        self.store = MemoryMetadataStore(self.shared, self.clock, random.Random(1))
        self._recoverer = recoverer
        self.serve(self.store)

    def serve(self, store: MemoryMetadataStore) -> None:
        """Answer requests from this store."""
        self.router = router_of(Parts(lambda: b"", store=store, recovering=self._recoverer, now_ms=lambda: 5))

    def now(self, awaited: Any) -> Any:
        """The outcome of what needs no more than some turns of the clock."""
        found: list[Any] = []
        deferred = awaited if isinstance(awaited, Deferred) else Deferred.fromCoroutine(awaited)
        deferred.addBoth(found.append)
        for _ in range(50):
            if not found:
                self.clock.advance(0.1)
        return found[0]

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        answer = self.now(self.router.answer(HttpRequest(method, f"{TOP}/{path}", query, data)))

        async def whole() -> bytes:
            return b"".join([piece async for piece in answer.body])

        text = answer.body if isinstance(answer.body, bytes) else self.now(whole())
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode()


@pytest.fixture
def process() -> Process:
    return Process()


def test_auto_recovery_is_turned_off_and_on_by_query_or_body(process: Process) -> None:
    assert process.ask("GET", "status") == (200, {"enabled": True})
    assert process.ask("PUT", "status", enabled="false") == (200, {"enabled": False})
    assert process.ask("GET", "status") == (200, {"enabled": False})
    assert process.ask("PUT", "status", {"enabled": True}) == (200, {"enabled": True})
    assert process.ask("PUT", "status")[0] == 400
    assert process.ask("PUT", "status", enabled="perhaps")[0] == 400
    assert process.ask("GET", "status") == (200, {"enabled": True})


def test_marked_ledgers_are_listed_by_who_lacks_them(process: Process) -> None:
    path = "list_under_replicated_ledger"
    assert process.ask("GET", path)[0] == 404
    tree = process.store.underreplication
    for ledger_id, missing in ((7, [A]), (8, [A, B]), (9, [B])):
        process.now(tree.mark(LedgerId(ledger_id), missing, now_ms=5))
    assert process.ask("GET", path) == (200, [7, 8, 9])
    assert process.ask("GET", path, missingreplica=A) == (200, [7, 8])
    assert process.ask("GET", path, missingreplica=A, excludingmissingreplica=B) == (200, [7])
    assert process.ask("GET", path, printmissingreplica="") == (200, {"7": [A], "8": [A, B], "9": [B]})
    assert process.ask("GET", path, missingreplica="c:1")[0] == 404


def test_marked_ledgers_are_listed_from_a_store_that_answers_later() -> None:
    """The answers are tuples, and CPython spreads a tuple that is sent into `anext` with a default."""
    process, path = Process(), "list_under_replicated_ledger"
    for ledger_id in (7, 8):
        process.now(process.store.underreplication.mark(LedgerId(ledger_id), [A], now_ms=5))
    faults = MemoryFaults(delay_max_s=0.01)
    process.serve(MemoryMetadataStore(process.shared, process.clock, random.Random(2), faults))
    assert process.ask("GET", path) == (200, [7, 8])
    assert process.ask("GET", path, printmissingreplica="") == (200, {"7": [A], "8": [A]})


def test_bad_marks_are_named_beside_the_marked_ledgers(process: Process) -> None:
    path = "list_under_replicated_ledger"
    tree = process.store.underreplication
    marks, stray = "/ledgers/underreplication/ledgers", "/ledgers/underreplication/ledgers/stray"
    for ledger_id in (7, 8):
        process.now(tree.mark(LedgerId(ledger_id), [A], now_ms=5))
    process.now(process.store.tree.create(stray, b""))
    process.shared.damage(marks + mark_path(8), b"garbage")
    assert process.ask("GET", path) == (200, [7, 8])
    assert process.ask("GET", path, missingreplica=B) == (200, [8]), "whether ledger 8 lacks B is unknown"
    status, shown = process.ask("GET", path, printmissingreplica="")
    assert status == 200
    assert {each["path"] for each in shown.pop("unreadable")} == {stray, marks + mark_path(8)}
    assert shown == {"7": [A], "8": []}
    for ledger_id in (7, 8):
        process.shared.znodes.delete(marks + mark_path(ledger_id), ledger_id - 7)
    status, answer = process.ask("GET", path)
    assert (status, stray in str(answer)) == (404, True)


def test_the_delay_is_shown_once_it_is_stored_and_set_as_a_whole_number(process: Process) -> None:
    path = "lost_bookie_recovery_delay"
    assert process.ask("GET", path)[0] == 404
    assert process.ask("PUT", path, {"delay_seconds": 60})[0] == 200
    assert process.ask("GET", path) == (200, "lostBookieRecoveryDelay value: 60")
    for body in ({"delay_seconds": "60"}, {"delay_seconds": -1}, {"delay_seconds": True}, {"delay": 1}, {}):
        assert process.ask("PUT", path, body)[0] == 400
    assert process.ask("GET", path) == (200, "lostBookieRecoveryDelay value: 60")


def test_an_audit_is_asked_for_only_where_somebody_would_do_it(process: Process) -> None:
    assert process.ask("GET", "who_is_auditor")[0] == 404
    status, said = process.ask("PUT", "trigger_audit")
    assert (status, "no auditor is elected" in said["error"]) == (409, True)
    candidate = process.store.underreplication.candidate(
        A, on_elected=lambda: None, on_lost=lambda: None, on_failed=lambda error: None
    )
    candidate.join()
    process.clock.advance(5)
    assert process.ask("GET", "who_is_auditor") == (200, f"Auditor: {A}")
    assert process.ask("PUT", "trigger_audit")[0] == 200
    assert process.ask("GET", "lost_bookie_recovery_delay")[0] == 404, "no delay is stored"
    process.ask("PUT", "lost_bookie_recovery_delay", {"delay_seconds": 60})
    delays_s: list[int | None] = []
    process.store.underreplication.watch_recovery_delay(delays_s.append)
    process.clock.advance(1)
    assert process.ask("PUT", "trigger_audit")[0] == 200
    process.clock.advance(1)
    assert delays_s == [60, 60]
    process.ask("PUT", "status", enabled="false")
    status, said = process.ask("PUT", "trigger_audit")
    assert (status, "is disabled" in said["error"]) == (409, True)


def test_an_auditor_with_an_unreadable_vote_is_shown_by_its_process(process: Process) -> None:
    tree = process.store.underreplication
    process.now(tree.prepare())
    vote = "/ledgers/underreplication/auditorelection/V_0000000000"
    process.now(process.store.tree.create(vote.rpartition("/")[0], b""))
    process.now(process.store.tree.create(vote, b"\xff", NodeKind.EPHEMERAL))
    status, answer_text = process.ask("GET", "who_is_auditor")
    assert (status, answer_text.splitlines()[0]) == (200, "Auditor: unknown")
    assert answer_text.splitlines()[1].startswith(f"Unreadable: {vote}: ")
    assert process.ask("PUT", "trigger_audit")[0] == 200
    answer = process.now(process.router.answer(HttpRequest("GET", "/api/v1/bookie/cluster_info", {}, b"")))
    shown = json.loads(answer.body)
    assert (answer.status, shown["auditorElected"], shown["auditorId"]) == (200, True, "")
    assert [each["path"] for each in shown["unreadable"]] == [vote]
    tree.announce(RecoveryProcess("h", 7, 5, A, None, 0))
    process.clock.advance(5)
    assert process.ask("GET", "who_is_auditor")[1].splitlines()[0] == f"Auditor: {A}"


def test_a_process_that_recovers_nobody_says_who_does(process: Process) -> None:
    for path in ("bookie", "decommission", "troubles"):
        status, said = process.ask("GET", path)
        assert (status, "bookkeeper shell recover" in said["error"]) == (404, True)


def test_a_recovery_goes_on_after_its_answer_and_shows_how_it_ended() -> None:
    recoverer = Recoverer()
    process = Process(recoverer)
    body = {"bookie_src": [A, B, A], "delete_cookie": "true"}
    assert process.ask("PUT", "bookie", body)[0] == 200
    assert recoverer.begun == [((A, B), True)]
    (shown,) = process.ask("GET", "bookie")[1]
    assert (shown["state"], shown["progress"]) == ("running", {"ledgers": 3})
    assert process.ask("PUT", "bookie", body)[0] == 409
    process.clock.advance(3)
    recoverer.outcome.errback(MetadataUnavailable("the store is away"))
    (shown,) = process.ask("GET", "bookie")[1]
    assert (shown["state"], shown["said"], "progress" in shown) == ("failed", "the store is away", False)
    recoverer.outcome = succeed("3 ledgers moved")
    assert process.ask("PUT", "decommission", {"bookie_src": B})[0] == 200
    (shown,) = process.ask("GET", "decommission")[1]
    assert (shown["state"], shown["said"]) == ("done", "3 ledgers moved")
    assert len(recoverer.begun) == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("bookie", body) for body in ({}, {"bookie_src": []}, {"bookie_src": "a:1"}, {"bookie_src": [1]})),
        ("bookie", {"bookie_src": [A], "bookie_dest": [B]}),
        ("bookie", {"bookie_src": [A], "delete_cookies": True}),
        *(("decommission", body) for body in ({}, {"bookie_src": [A]}, {"bookie_src": " "})),
    ],
    ids=str,
)
def test_a_recovery_of_nobody_or_with_words_that_mean_nothing_is_not_begun(path: str, body: Any) -> None:
    recoverer = Recoverer()
    status, said = Process(recoverer).ask("PUT", path, body)
    assert (status, list(said), recoverer.begun) == (400, ["error"], [])


@pytest.mark.parametrize("recoverer", [None, Recoverer()])
def test_nothing_that_is_served_is_said_not_to_be_here(recoverer: Recoverer | None) -> None:
    router = Process(recoverer).router
    listed = json.loads(Process(recoverer).now(router.answer(HttpRequest("GET", "/"))).body)
    assert f"{TOP}/status" in listed["paths"]
    for absent in listed["not_here"]:
        assert not [path for path in listed["paths"] if path == absent or path.startswith(f"{absent}/")], absent
    assert (f"{TOP}/bookie" in listed["not_here"]) is (recoverer is None)


def test_an_order_without_its_body_is_told_what_to_send(process: Process) -> None:
    status, said = process.ask("PUT", "lost_bookie_recovery_delay")
    assert status == 400
    path = f"http://HOST:PORT{TOP}/lost_bookie_recovery_delay"
    assert f"""curl -X PUT -d '{{"delay_seconds": 60}}' {path}""" in said["error"]
