"""What commands write for options in errors is what they take."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

import pytest

from bookkeeper.cli.main import main
from bookkeeper.cli.spark import said_as
from bookkeeper.config import ClientSettings, keys_of
from bookkeeper.spark.audit.options import AuditOptions
from bookkeeper.spark.exports.options import ExportOptions, ImportOptions
from bookkeeper.spark.said_as import Words
from bookkeeper.spark.sink.options import LedgerSinkOptions
from hedwig.cli import spark_said_as as of_topics
from hedwig.client_config import HedwigClientSettings
from hedwig.spark.exports.options import TopicImportOptions
from hedwig.spark.region_options import REGION_ALIASES
from hedwig.spark.topic_options import TopicReadOptions

COMMANDS: list[tuple[str, Words, type[Any]]] = [
    ("bookkeeper.cli.spark.audit_words", said_as.AUDIT, AuditOptions),
    ("bookkeeper.cli.spark.export_words", said_as.EXPORT, ExportOptions),
    ("bookkeeper.cli.spark.import_words", said_as.IMPORT, ImportOptions),
    ("bookkeeper.cli.spark.sweep_words", said_as.SWEEP, LedgerSinkOptions),
    ("hedwig.cli.spark_topics_words", of_topics.TOPICS, TopicReadOptions),
    ("hedwig.cli.spark_export_topics_words", of_topics.EXPORT, TopicReadOptions),
    ("hedwig.cli.spark_import_topics_words", of_topics.IMPORT, TopicImportOptions),
]


@pytest.mark.parametrize(("module", "words", "table"), COMMANDS)
def test_each_word_is_a_flag_of_the_command_for_an_option_of_its_pipeline(
    module: str, words: Words, table: type[Any]
) -> None:
    parser = argparse.ArgumentParser()
    import_module(module).add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}  # noqa: SLF001 - no public list
    known = {name.lower() for each in (table, ClientSettings, HedwigClientSettings) for name in keys_of(each)}
    known |= {word.lower() for word in REGION_ALIASES}
    for meant, word in words.said:
        assert meant.partition("=")[0] in known
        assert word is None or word in flags


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nowhere", "argument --commit-path: 'nowhere': want the path of a znode"),
        ("/ledgers/x", "--commit-path /ledgers/x: the znodes of the cluster are at /ledgers"),
    ],
)
def test_a_sweep_of_no_place_for_commits_is_wrong_usage(
    path: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark", "sweep", "--uri", "zk://zk1:2181/ledgers", "--commit-path", path]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["audit", "--ledgers", "5-3"], "argument --ledgers: '5-3' ends before it begins"),
        (["export", "--ledgers", "x", "--output", "d"], "argument --ledgers: 'x' is no ledger id"),
        (["import", "d", "--job", "a b"], "argument --job: 'a b': want 1 to 200 letters"),
    ],
)
def test_what_cannot_be_is_told_before_spark_is_started(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark", *words]) == 2
    assert why in capsys.readouterr().err
