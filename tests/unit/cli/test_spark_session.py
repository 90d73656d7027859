"""The session of a command on Spark: what is said where an interrupt or an error of Spark ends it."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

import bookkeeper.spark
from bookkeeper.cli.spark import exports, space, whatif
from bookkeeper.cli.spark.session import spark_session, unfinished, unfinished_export
from bookkeeper.console.output import CommandFailed
from bookkeeper.spark.outputs import OutputState, Stage
from hedwig.cli import spark_exports as topic_exports
from journalmgr.cli import spark_namespace

pytestmark = pytest.mark.usefixtures("no_log")

ARGS = argparse.Namespace(master=None, py_files=())


class FakeSpark:
    """Notes that it was stopped."""

    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture(autouse=True)
def _kept_as_it_is() -> Iterator[None]:
    handler, filters = signal.getsignal(signal.SIGINT), list(logging.getLogger().filters)
    level = logging.getLogger("py4j").level
    yield
    logging.getLogger("py4j").setLevel(level)
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


@pytest.mark.parametrize(
    ("stage", "rows", "export"),
    [
        (Stage.NOTHING, "nothing was written", "nothing was written"),
        (Stage.BEGUN, "/d is not complete: remove it", "/d has no manifest and is no export: remove it"),
        (
            Stage.ENDING,
            "/d is not complete: remove it",
            "the manifest of /d was being written: an import",
        ),
        (Stage.COMPLETE, "/d is complete", "the export in /d is complete"),
    ],
)
def test_only_what_a_run_has_begun_and_not_ended_is_to_be_removed(stage: Stage, rows: str, export: str) -> None:
    assert unfinished("/d", OutputState(stage)).startswith(rows)
    assert unfinished_export("/d", OutputState(stage)).startswith(export)
    assert unfinished(None, OutputState(stage)) == ""


def written_by(module: Any) -> tuple[Callable[[Any], object], str, dict[str, Any]]:
    """A command that writes to /d: what runs it, its pipeline, and its own words."""
    common = {**vars(ARGS), "output": "/d", "conf": None, "uri": "zk://a/ledgers", "defines": [], "json": False}
    own: dict[Any, tuple[Callable[[Any], object], str, dict[str, Any]]] = {
        exports: (exports.run_export, "export_ledgers", dict.fromkeys(("owner", "application"), "")
                  | {"ledgers": "all", "open": False, "as_administrator": False, "allow_loss": False,
                     "file_bytes": 1 << 20}),
        topic_exports: (topic_exports.run_export, "export_topics",
                        {"topics": "t", "prefix": "", "file_bytes": 1 << 20, "region": None, "zk_prefix": None}),
        space: (space.run_space, "space", {"plot": None, "by": "owner"}),
        whatif: (whatif.run_whatif, "whatif", {"plot": None, "lose": (), "lose_rack": (), "add": 1, "ensemble": None,
                                               "write_quorum": None, "ack_quorum": None}),
        spark_namespace: (spark_namespace.run_namespace, "namespace",
                          {"plot": None, "journal": "bookkeeper://a/j", "base": None, "at_txid": None, "depth": 1,
                           "by": "day", "skip_unknown": False}),
    }  # fmt: skip
    run, name, words = own[module]
    return run, name, {**common, **words}


@pytest.mark.parametrize("module", [exports, topic_exports, space, whatif, spark_namespace])
@pytest.mark.parametrize(("stage", "removes"), [(Stage.NOTHING, False), (Stage.BEGUN, True), (Stage.COMPLETE, False)])
def test_a_command_that_is_interrupted_says_remove_it_of_its_own_work_alone(
    module: Any, stage: Stage, removes: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bookkeeper.spark, "local_session", lambda *_, **__: FakeSpark(), raising=False)
    run, pipeline, words = written_by(module)

    def interrupted(*_: object, state: OutputState, **__: object) -> None:
        state.stage = stage
        raise KeyboardInterrupt

    monkeypatch.setattr(module, pipeline, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(argparse.Namespace(**words))
    said = capsys.readouterr().err
    assert said.startswith("interrupted; ")
    assert ("remove it" in said) == removes


def test_from_an_interrupt_on_py4j_shows_no_stacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark is stopped then, and calls in the middle fail: their stacks say nothing to who pressed Ctrl-C."""
    monkeypatch.setattr(bookkeeper.spark, "local_session", lambda *_, **__: FakeSpark(), raising=False)

    def failed_call(text: str) -> None:
        code = compile(f"import logging\nlogging.exception({text!r})", "/site-packages/py4j/java_gateway.py", "exec")
        exec(code)  # py4j logs on the logger of all, and on loggers of its own
        logging.getLogger("py4j.clientserver").error("%s, too", text)

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
    assert [record.getMessage() for record in caplog.records] == ["before", "before, too", "of somebody else"]
