"""The options of all formats as text for people."""

from __future__ import annotations

import pytest

import bookkeeper.spark
import hedwig.spark
import journalmgr.spark
from bookkeeper.config import keys_of
from bookkeeper.spark.audit.options import AuditOptions
from bookkeeper.spark.ledgers.options import LedgerReadOptions
from bookkeeper.spark.sink.options import LedgerSinkOptions
from hedwig.spark.topic_options import TopicReadOptions, TopicWriteOptions
from journalmgr.spark.edit_options import EditReadOptions


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        (bookkeeper.spark.options_help(), (LedgerReadOptions, LedgerSinkOptions, AuditOptions)),
        (hedwig.spark.options_help(), (TopicReadOptions, TopicWriteOptions)),
        (journalmgr.spark.options_help(), (EditReadOptions,)),
    ],
    ids=["bookkeeper", "hedwig", "editlog"],
)
def test_every_option_of_a_format_stands_in_its_help(text: str, tables: tuple[type, ...]) -> None:
    for name in [name for table in tables for name in keys_of(table)]:
        assert any(line.startswith(f"  {name}") or f" {name}" in line for line in text.splitlines()), name
    assert max(map(len, text.splitlines())) <= 120


def test_what_reading_and_writing_share_is_told_once_and_where_streams_begin_is_told() -> None:
    text = " ".join(bookkeeper.spark.options_help().partition("Options of format bookkeeper.audit")[0].split())
    assert text.count("Znode below which is kept") == 1
    assert "commitPath: as above" in text
    assert "job: Name of a batch write: all ledgers that it committed" in text
    assert "job: Name of a batch write, by which it is read and which is committed once only" in text
    assert "wrapped there with pyspark.inheritable_thread_target(session)" in text
    assert "A stream begins at the latest unless startingOffsets says otherwise" in text
    assert "uri for metadataServiceUri" in text
