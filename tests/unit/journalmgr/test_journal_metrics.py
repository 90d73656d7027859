"""What a name node shows of itself."""

from __future__ import annotations

import pytest

from journalmgr.metrics import ROLE_NUMBERS, TABLE, NameNodeMetrics
from journalmgr.namenode.http.api import HttpApi
from journalmgr.namenode.http.messages import Answer, HttpRequest
from journalmgr.replica import Role
from tests.support.name_service import Group
from tests.support.simulated_clock import SimulatedClock


def test_a_server_shows_its_place_and_its_state() -> None:
    group = Group("a:1", "b:2", clock=SimulatedClock())
    metrics = NameNodeMetrics()
    metrics.watch(group.services[0])
    metrics.watch_newest(lambda: 10)
    assert metrics.value("namenode_ROLE") == ROLE_NUMBERS[Role.ACTIVE] == 3
    assert metrics.value("namenode_FAILOVERS") == 1
    api = HttpApi(lambda: 0, lambda: 0.0, metrics_text=metrics.text, counts=metrics)
    api.serve(group.services[0])
    answers: list[Answer] = []
    headers = {"x-request-id": f"{'ab' * 16}:1"}
    for method, target in (("PUT", "/x?op=CREATE"), ("GET", "/none?op=OPEN")):
        api.answer(HttpRequest(method, f"/webhdfs/v1{target}", headers, b"")).addCallback(answers.append)
    assert [answer.status for answer in answers] == [201, 404]
    assert metrics.value("namenode_INODES") == 2
    assert metrics.value("namenode_REMEMBERED_CALLS") == 1
    assert metrics.value("namenode_APPLIED_TXID") == 3
    assert metrics.value("namenode_TAIL_LAG_TXIDS") == 7
    assert metrics.value("namenode_HTTP_REQUEST") == 2
    assert metrics.value("namenode_HTTP_REFUSED") == 1
    api.answer(HttpRequest("GET", "/metrics")).addCallback(answers.append)
    assert b"\nnamenode_APPLIED_TXID 3\n" in answers[-1].body
    group.elect(None)
    assert metrics.value("namenode_ROLE") < 3


def test_a_flush_counts_once_with_all_that_it_carried() -> None:
    metrics = NameNodeMetrics()
    metrics.on_flush(100, 5000, 0.002)
    metrics.on_flush(300, 7000, 0.004)
    metrics.on_flush_failed(1.0)
    assert (metrics.value("namenode_TRANSACTIONS"), metrics.value("namenode_TRANSACTION_BYTES")) == (400, 12000)
    lines = metrics.text().decode().splitlines()
    assert 'namenode_FLUSH_count{success="true"} 2' in lines
    assert 'namenode_FLUSH_sum{success="true"} 6' in lines
    assert 'namenode_FLUSH_count{success="false"} 1' in lines
    assert 'namenode_FLUSH_TRANSACTIONS{success="true",quantile="1.0"} 300' in lines


@pytest.mark.parametrize(("status", "good", "refused"), [(200, 1, 0), (307, 1, 0), (404, 1, 1), (503, 0, 0)])
def test_requests_count_by_what_became_of_them(status: int, good: int, refused: int) -> None:
    metrics = NameNodeMetrics()
    metrics.on_request(status, 0.001)
    assert f'namenode_HTTP_REQUEST_count{{success="true"}} {good}' in metrics.text().decode().splitlines()
    assert metrics.value("namenode_HTTP_REFUSED") == refused


def test_every_metric_is_declared_once_and_every_role_has_a_number() -> None:
    names = [spec.name for spec in TABLE]
    assert len(names) == len(set(names))
    assert set(ROLE_NUMBERS) == set(Role)
