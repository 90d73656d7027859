"""Which words of a pipeline over topics go to what it is made of."""

from __future__ import annotations

import argparse
from pathlib import Path

from hedwig.cli.spark_topics_words import add_arguments
from hedwig.cli.spark_words import region_words, topics_of
from hedwig.spark.region_options import RegionOptions
from hedwig.spark.region_tables import TopicOptions
from hedwig.spark.topics.naming import publishing_words, words_of

GIVEN = {
    "uri": "zk://zk1:2181/ledgers", "zk_prefix": "/x", "readTimeout": "3", "startingOffsets": "earliest",
    "subscribe": "a", "hubs": "h:4080", "password": "p",
}  # fmt: skip


def test_a_table_and_a_sink_get_the_words_that_they_know() -> None:
    assert set(words_of(GIVEN, RegionOptions)) == {"uri", "zk_prefix", "readTimeout", "password"}
    assert set(words_of(GIVEN, TopicOptions)) == {"uri", "zk_prefix", "readTimeout", "password"}
    assert set(publishing_words(GIVEN)) == {"uri", "zk_prefix", "readTimeout", "password", "hubs"}


def test_a_command_line_gives_the_client_and_the_format_their_settings() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(
        ["--uri", "zk://zk1:2181/ledgers", "--topics", "a,b", "--zk-prefix", "/x", "-D", "maxOffsetsPerTrigger=5"]
    )
    assert topics_of(args) == ("a", "b")
    assert region_words(args) == ("zk://zk1:2181/ledgers", {"zk_prefix": "/x", "maxOffsetsPerTrigger": "5"})
    assert topics_of(parser.parse_args([])) is None


def test_a_file_tells_of_the_client_but_not_the_password_of_topics(tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("metadataServiceUri=zk://zk1:2181/ledgers\nreadTimeout=7\npasswd=of-other-ledgers\n")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = ["--conf", str(conf), "-D", "clientTcpNoDelay=false"]
    told = {"readTimeout": "7", "clientTcpNoDelay": "false"}
    assert region_words(parser.parse_args(words)) == ("zk://zk1:2181/ledgers", told)
    with_password = region_words(parser.parse_args([*words, "-D", "passwd=of-topics"]))[1]
    assert with_password == {**told, "password": "of-topics"}
