"""What is said of messages and transactions that are lost, to who reads them by a format, and by a command."""

from __future__ import annotations

import pytest

from bookkeeper.spark.said_as import LOSS_BORNE, OF_OPTIONS, SAID_AS, Words
from hedwig.cli.spark_said_as import EXPORT, TOPICS
from hedwig.errors import UnexpectedCondition
from hedwig.spark.region_options import TopicOptions, read_topic_options
from hedwig.spark.topic_extents import data_loss
from hedwig.spark.topic_options import TopicReadOptions
from hedwig.spark.topics.naming import publishing_words, words_of
from journalmgr.errors import SegmentUnreadable
from journalmgr.spark.edit_loss import Loss

GIVEN = {"uri": "zk://zk1:2181/ledgers", "subscribe": "news"}


def read(words: Words) -> TopicOptions[TopicReadOptions]:
    return read_topic_options(TopicReadOptions, GIVEN if words is OF_OPTIONS else {**GIVEN, SAID_AS: words.text})


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (OF_OPTIONS, ". With option failOnDataLoss=false they are left out with a warning"),
        (TOPICS, ". With -D failOnDataLoss=false they are left out with a warning"),
        (EXPORT.without(LOSS_BORNE), ". Begin behind them (-D startingOffsets)"),
        (EXPORT.without(LOSS_BORNE).without("startingOffsets"), ""),
    ],
)
def test_lost_messages(words: Words, remedy: str) -> None:
    with pytest.raises(UnexpectedCondition) as caught:
        data_loss(read(words), "messages 1 to 4 are gone")
    assert str(caught.value) == f"messages 1 to 4 are gone{remedy}"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (OF_OPTIONS, ". With option failOnDataLoss=false it is passed over with a warning"),
        (Words.of_command({}).without(LOSS_BORNE), ""),
    ],
)
def test_lost_transactions(words: Words, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SegmentUnreadable) as caught:
        Loss(True, words).bear(SegmentUnreadable("segment 1..4 is gone"))
    assert str(caught.value) == f"segment 1..4 is gone{remedy}"
    Loss(False).bear(SegmentUnreadable("segment 1..4 is gone"))
    assert "segment 1..4 is gone (passed over: option failOnDataLoss=false)" in capsys.readouterr().err


def test_the_words_go_along_where_a_pipeline_chooses_among_its_options() -> None:
    given = {**GIVEN, SAID_AS: TOPICS.text}
    for chosen in (words_of(given, TopicReadOptions), publishing_words(given)):
        assert chosen[SAID_AS] == TOPICS.text
