"""What tests of the command line share."""

from collections.abc import Callable

import pytest


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stop `time.perf_counter` at 100 s; the call moves it on."""
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


@pytest.fixture
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a command on Spark from starting the log, which would be this process's from then on."""
    monkeypatch.setattr("bookkeeper.spark.process_client.show_warnings", lambda: None)
