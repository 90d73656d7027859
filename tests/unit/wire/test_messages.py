"""Batches: what joins, what stays apart, and splitting."""

from __future__ import annotations

import dataclasses

import pytest

from bookkeeper.model import Status
from bookkeeper.wire.messages import (
    AddAcks,
    AddBatch,
    AddFailed,
    ReadBatch,
    ReadBodies,
    Request,
    Response,
    append_request,
    append_response,
)


def add(entry_id: int, token: object) -> AddBatch:
    return AddBatch(1, b"k", [entry_id], [b"body"], entry_id - 1, False, False, False, token)


def test_adds_of_one_ledger_become_one_batch() -> None:
    requests: list[Request] = []
    append_request(requests, add(5, b"v2"))
    append_request(requests, add(4, b"v2"))
    assert requests == [AddBatch(1, b"k", [5, 4], [b"body"] * 2, 4, False, False, False, b"v2")]


def test_request_ids_of_v3_are_collected() -> None:
    batch = add(5, [10])
    assert batch.absorb(add(6, [13]))
    assert batch.token == [10, 13]


@pytest.mark.parametrize(
    "change",
    [
        {"ledger_id": 2},
        {"master_key": b"other"},
        {"recovery": True},
        {"high_priority": True},
        {"deferred_sync": True},
        {"token": b"v1"},
        {"token": [1]},
    ],
)
def test_adds_that_differ_stay_apart(change: dict[str, object]) -> None:
    batch, other = add(5, b"v2"), dataclasses.replace(add(6, b"v2"), **change)  # type: ignore[arg-type]
    assert not batch.absorb(other)
    assert batch == add(5, b"v2")


def test_a_read_of_the_last_entry_stays_alone() -> None:
    requests: list[Request] = []
    for entry_id in (1, 2, -1, -1, 3):
        append_request(requests, ReadBatch(1, [entry_id], b"v2"))
    assert [r.entry_ids for r in requests if isinstance(r, ReadBatch)] == [[1, 2], [-1], [-1], [3]]


def test_a_read_batch_splits_with_its_tokens() -> None:
    batch = ReadBatch(1, [4, 5, 6], [10, 11, 12])
    assert batch.take(2) == ReadBatch(1, [4, 5], [10, 11])
    assert batch == ReadBatch(1, [6], [12])
    batch = ReadBatch(1, [4, 5, 6], b"v2")
    assert batch.take(1) == ReadBatch(1, [4], b"v2")
    assert batch == ReadBatch(1, [5, 6], b"v2")


def test_successes_join_and_failures_do_not() -> None:
    responses: list[Response] = []
    for response in (
        AddAcks(1, [1], [7]),
        AddAcks(1, [2], [8]),
        AddFailed(1, 3, Status.FENCED, 9),
        AddAcks(1, [4], [10]),
        AddAcks(2, [4], [11]),
        ReadBodies(1, [1], [b"a"], None, None),
        ReadBodies(1, [2], [b"b"], 5, None),
        ReadBodies(1, [3], [b"c"], 4, None),
    ):
        append_response(responses, response)
    assert responses == [
        AddAcks(1, [1, 2], [7, 8]),
        AddFailed(1, 3, Status.FENCED, 9),
        AddAcks(1, [4], [10]),
        AddAcks(2, [4], [11]),
        ReadBodies(1, [1, 2, 3], [b"a", b"b", b"c"], 5, None),
    ]
