"""Metrics of bookies over HTTP."""

from __future__ import annotations

import pytest

from bookkeeper.admin.access.tokens import ENVIRONMENT
from bookkeeper.cli.perf.counters import METRICS_SIZE_MAX, ask_url, read_metrics
from tests.support.hostile_http import FakeTime, negative_chunk, serve_packets

URL = "http://bookie:8080/metrics"


def test_samples_of_a_metric_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'# TYPE a counter\na{x="1"} 2\na{x="2"} 3\nb 0.5\n'
    serve_packets(monkeypatch, FakeTime(), b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
    assert read_metrics(URL) == {"a": 5.0, "b": 0.5}


def test_metrics_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.cli.perf.counters.METRICS_SIZE_MAX", METRICS_SIZE_MAX // 1024)
    serve_packets(monkeypatch, FakeTime(), negative_chunk(200_000))
    with pytest.raises(OSError, match="too many bytes"):
        read_metrics(URL)


def test_a_refusal_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_packets(monkeypatch, FakeTime(), b"HTTP/1.1 401 x\r\nContent-Length: 2\r\n\r\nno")
    with pytest.raises(OSError, match=f"HTTP status 401: .*{ENVIRONMENT}.*: no"):
        ask_url(URL, "PUT", b"{}")


def test_a_url_without_a_port_number_is_an_error() -> None:
    with pytest.raises(OSError, match="Port"):
        ask_url("http://bookie:x/metrics")
