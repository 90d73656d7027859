"""The session of a command on Spark: what is said where an interrupt or an error of Spark ends it."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException

import bookkeeper.spark
from bookkeeper.cli.output import CommandFailed
from bookkeeper.cli.spark.session import spark_session

ARGS = argparse.Namespace(master=None, py_files=())


class FakeSpark:
    """Notes that it was stopped."""

    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture(autouse=True)
def _kept_as_it_is() -> Iterator[None]:
    handler, filters = signal.getsignal(signal.SIGINT), list(logging.getLogger().filters)
    yield
    signal.signal(signal.SIGINT, handler)
    logging.getLogger().filters[:] = filters


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (None, None, ""),
        (KeyboardInterrupt(), KeyboardInterrupt, "interrupted; the same command goes on\n"),
        (PySparkException("[X] it is so\n\tat a.b.C"), CommandFailed, ""),
    ],
)
def test_an_interrupt_says_how_to_go_on_and_nothing_else_does(
    error: BaseException | None,
    raised: type[BaseException] | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spark = FakeSpark()
    monkeypatch.setattr(bookkeeper.spark, "local_session", lambda *_, **__: spark, raising=False)
    caught: BaseException | None = None
    try:
        with spark_session(ARGS, interrupted="the same command goes on") as found:
            assert found is spark
            if error is not None:
                raise error
    except (KeyboardInterrupt, CommandFailed) as other:
        caught = other
    assert type(caught) is (raised or type(None))
    assert capsys.readouterr().err == said
    assert spark.is_stopped


def test_from_an_interrupt_on_py4j_shows_no_stacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark is stopped then, and calls in the middle fail: their stacks say nothing to who pressed Ctrl-C."""
    monkeypatch.setattr(bookkeeper.spark, "local_session", lambda *_, **__: FakeSpark(), raising=False)

    def failed_call(text: str) -> None:
        code = compile(f"import logging\nlogging.exception({text!r})", "/site-packages/py4j/java_gateway.py", "exec")
        exec(code)  # py4j logs on the logger of all

    def interrupted_command() -> None:
        with spark_session(ARGS):
            failed_call("before")
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                failed_call("after")
                logging.getLogger().warning("of somebody else")

    with pytest.raises(KeyboardInterrupt):
        interrupted_command()
    assert [record.getMessage() for record in caplog.records] == ["before", "of somebody else"]
