"""Requests that wait for the disk: order, bounds, and what a failure does to them."""

from __future__ import annotations

import pytest

from bookkeeper.bookie.requests.ledger_gates import LedgerGates, Waiting
from bookkeeper.model import Status
from tests.support.bookie_fakes import ManualWorker


class Requests:
    """Notes what ran and what was refused, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __call__(self, name: str, size: int = 0) -> Waiting:
        return Waiting(lambda: self.log.append(name), lambda status: self.log.append(f"{name}: {status.value}"), size)


@pytest.fixture
def worker() -> ManualWorker:
    return ManualWorker()


def gates_over(worker: ManualWorker, *, requests_max: int = 100, bytes_max: int = 1000) -> LedgerGates:
    return LedgerGates(worker, requests_max=requests_max, bytes_max=bytes_max)


def test_requests_run_in_order_once_the_state_is_loaded(worker: ManualWorker) -> None:
    gates, requests, loads = gates_over(worker), Requests(), []
    for name in "abc":
        gates.queue(7, lambda: loads.append(7), requests(name))
    assert (requests.log, len(worker.queue), gates.is_shut(7), gates.is_shut(8)) == ([], 1, True, False)
    worker.run_next()
    assert (requests.log, loads, gates.is_shut(7), gates.waiting_count) == (["a", "b", "c"], [7], False, 0)


def test_a_fetch_in_the_middle_of_a_queue_holds_the_rest_back(worker: ManualWorker) -> None:
    gates, requests = gates_over(worker), Requests()

    def fetch() -> None:
        gates.fetch(7, lambda: "found", lambda result: requests.log.append(f"resumed: {result}"), requests("b"))

    gates.queue(7, lambda: None, requests("a"))
    gates.queue(7, lambda: None, Waiting(fetch, lambda status: None, 0))
    gates.queue(7, lambda: None, requests("c"))
    worker.run_next()
    assert requests.log == ["a"]
    gates.queue(7, lambda: None, requests("d"))
    worker.run_next()
    assert requests.log == ["a", "resumed: found", "c", "d"]
    assert not gates.is_shut(7)


def test_a_request_made_while_the_gate_opens_goes_to_the_end(worker: ManualWorker) -> None:
    gates, requests = gates_over(worker), Requests()
    gates.queue(7, lambda: None, Waiting(lambda: gates.queue(7, lambda: None, requests("late")), lambda _: None, 0))
    gates.queue(7, lambda: None, requests("early"))
    worker.run_next()
    assert requests.log == ["early", "late"]


def test_a_failed_fetch_refuses_all_that_waits_and_the_next_request_tries_again(worker: ManualWorker) -> None:
    gates, requests = gates_over(worker), Requests()

    def broken() -> None:
        raise OSError(5, "Input/output error")

    gates.queue(7, broken, requests("a", 400))
    gates.queue(7, broken, requests("b", 400))
    worker.run_next()
    assert requests.log == [f"a: {Status.IO_ERROR.value}", f"b: {Status.IO_ERROR.value}"]
    gates.queue(7, lambda: None, requests("c", 900))  # the bytes were given back
    worker.run_next()
    assert requests.log[-1] == "c"


def test_requests_and_bytes_are_bounded_over_all_ledgers(worker: ManualWorker) -> None:
    gates, requests = gates_over(worker, requests_max=2, bytes_max=100), Requests()
    gates.queue(1, lambda: None, requests("a", 60))
    gates.queue(2, lambda: None, requests("b", 60))
    gates.queue(2, lambda: None, requests("c", 40))
    gates.queue(3, lambda: None, requests("d"))
    gates.fetch(4, lambda: None, lambda _: requests.log.append("no"), requests("e"))
    refused = Status.TOO_MANY_REQUESTS.value
    assert requests.log == [f"b: {refused}", f"d: {refused}", f"e: {refused}"]
    worker.run_all()
    assert requests.log[3:] == ["a", "c"]
    assert gates.waiting_count == 0
