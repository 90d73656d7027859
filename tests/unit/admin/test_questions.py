"""Requests to hostile HTTP servers: the bytes and the time of an answer are bounded."""

from __future__ import annotations

from http.client import HTTPException, IncompleteRead

import pytest

from bookkeeper.admin import questions
from bookkeeper.admin.questions import ANSWER_RATE_MIN, ERRORS, TIMEOUT_S, ask, get_json
from tests.support.hostile_http import FakeTime, negative_chunk, serve_packets

ADDRESS = ("bookie", 8080)
SIZE_MAX = 1000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        negative_chunk(200_000),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 8000,
        CHUNKED + b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * 25_000,
        CHUNKED + b"1\r\nx\r\n" * 30_000,
    ],
    ids=["a chunk of size -1", "status 100", "trailer", "small chunks"],
)
def test_an_answer_without_end_is_an_error(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_packets(monkeypatch, FakeTime(), answer)
    with pytest.raises(HTTPException, match=r"too many bytes|more than 1000 bytes"):
        get_json(ADDRESS, "/", size_max=SIZE_MAX)


@pytest.mark.parametrize("answer", [HEAD % 1001 + b" " * 1001, CHUNKED + b"3e9\r\n" + b" " * 1001 + b"\r\n0\r\n\r\n"])
def test_an_answer_above_its_size_is_an_error(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_packets(monkeypatch, FakeTime(), answer)
    with pytest.raises(HTTPException, match="more than 1000 bytes for /x"):
        get_json(ADDRESS, "/x", size_max=SIZE_MAX)


@pytest.mark.parametrize("size", [b"-2", b"-" + b"f" * 30, b"f" * 30, b"z"])
def test_a_strange_size_of_a_chunk_is_one_of_the_documented_errors(
    size: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_packets(monkeypatch, FakeTime(), CHUNKED + size + b"\r\n1", end=True)
    with pytest.raises(ERRORS):
        get_json(ADDRESS, "/")


def test_an_answer_that_is_cut_short_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_packets(monkeypatch, FakeTime(), HEAD % 100 + b"[1]", end=True)
    with pytest.raises(IncompleteRead):
        ask(ADDRESS, "GET", "/")


def test_bytes_that_arrive_one_by_one_do_not_extend_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(step_s=0.5)
    timeouts_s = serve_packets(monkeypatch, clock, HEAD % 100, *[b"x"] * 100)
    with pytest.raises(TimeoutError):
        ask(ADDRESS, "GET", "/")
    assert clock.now_s <= TIMEOUT_S + 1.0
    assert timeouts_s == sorted(timeouts_s, reverse=True)


def test_an_answer_at_the_required_rate_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(step_s=1.0)
    parts = [b"x" * ANSWER_RATE_MIN] * 3
    timeouts_s = serve_packets(monkeypatch, clock, HEAD % (3 * ANSWER_RATE_MIN), *parts)
    assert ask(ADDRESS, "GET", "/", timeout_s=2.5).body == b"".join(parts)
    assert clock.now_s > 4.0
    assert max(timeouts_s) <= 2.5


def test_bytes_that_arrive_early_do_not_extend_the_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts_s = serve_packets(monkeypatch, FakeTime(), HEAD % (4 * ANSWER_RATE_MIN), *[b"x" * ANSWER_RATE_MIN] * 3)
    with pytest.raises(TimeoutError):
        ask(ADDRESS, "GET", "/")
    assert set(timeouts_s) == {TIMEOUT_S}


def test_a_connection_serves_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = HEAD % 2 + b"ok"
    serve_packets(monkeypatch, FakeTime(), answer, answer)
    connection = questions.BoundedConnection("bookie", 8080)
    assert [connection.ask("GET", "/").body for _ in range(2)] == [b"ok", b"ok"]
    connection.close()


def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_packets(monkeypatch, FakeTime(), b"HTTP/1.1 302 x\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(HTTPException, match="HTTP status 302 for /"):
        get_json(ADDRESS, "/")


def test_a_name_that_no_dns_server_has_is_one_of_the_documented_errors() -> None:
    with pytest.raises(HTTPException, match="label"):
        ask(("a" * 64, 80), "GET", "/")
