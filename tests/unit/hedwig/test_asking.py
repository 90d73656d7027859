"""Requests to hubs to release topics."""

from __future__ import annotations

import pytest

from hedwig.admin.asking import HttpPlaces, HubNotAsked, release_some
from hedwig.model import HubAddress
from tests.support.hostile_http import FakeTime, negative_chunk, serve_packets

PLACES = HttpPlaces(8080, {})
HUB = HubAddress("hub", 4080, 9876)


def test_a_released_count_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_packets(monkeypatch, FakeTime(), b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"released": 7}')
    assert release_some(PLACES, HUB, 10) == 7


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_packets(monkeypatch, FakeTime(), negative_chunk(200_000))
    monkeypatch.setattr("hedwig.admin.asking.ANSWER_MAX", 1000)
    with pytest.raises(HubNotAsked, match="too many bytes"):
        release_some(PLACES, HUB, 10)


def test_an_answer_of_one_byte_at_a_time_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(step_s=10.0)
    serve_packets(monkeypatch, clock, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", *[b" "] * 100)
    with pytest.raises(HubNotAsked, match="timed out"):
        release_some(PLACES, HUB, 10)
    assert clock.now_s <= 80.0
