"""Options of the format editlog."""

from __future__ import annotations

import pickle

import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.options.tables import words
from journalmgr.spark.edit_options import EARLIEST, LATEST, EditReadOptions, parse_position, read_edit_options

URI = "bookkeeper://zk1:2181;zk2/hdfsjournal"


@pytest.mark.parametrize("word", ["journal", "uri", "PATH", "dfs.namenode.shared.edits.dir"])
def test_the_journals_uri_says_where_its_ledgers_are(word: str) -> None:
    found = read_edit_options({word: URI, "zkledgersrootpath": "/bk"})
    assert found.client.metadata_service_uri == "zk+null://zk1:2181;zk2/bk"
    assert (found.own.root, found.own.raw) == ("/hdfsjournal", False)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_password_by_the_word_of_hadoop_is_refused_since_spark_shows_it() -> None:
    assert read_edit_options({"journal": URI, "password": "p"}).client.password == b"p"
    for word in ("passwd", "digestPw", "dfs.namenode.bookkeeperjournal.digestPw"):
        with pytest.raises(ConfigurationError, match=f"{word}.*name the option password, whose value Spark hides"):
            read_edit_options({"journal": URI, word: "p"})


def test_words_of_the_client_and_an_address_on_the_same_servers_are_taken() -> None:
    found = read_edit_options(
        {"journal": URI, "metadataServiceUri": "zk://zk2:2181;zk1:2181/other", "readEntryTimeoutSec": "9"}
    )
    assert found.client.metadata_service_uri == "zk://zk2:2181;zk1:2181/other"
    assert found.client.read_timeout_s == 9.0
    with pytest.raises(ConfigurationError, match="same ZooKeeper"):
        read_edit_options({"journal": URI, "metadataServiceUri": "zk://elsewhere:2181/ledgers"})


def test_one_error_names_every_fault_with_the_nearest_word() -> None:
    with pytest.raises(ConfigurationError) as error:
        read_edit_options({"journl": URI, "startingTxid": "0", "decode": "hex", "includeInProgres": "true"})
    text = str(error.value)
    for part in (
        "option journl of format editlog: is unknown; did you mean journal?",
        "did you mean includeInProgress?",
        "startingTxid=0",
        "decode=hex: unknown value (want columns, raw)",
    ):
        assert part in text


def test_a_journal_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match="option journal of format editlog: is missing"):
        read_edit_options({})


@pytest.mark.parametrize(
    "uri", ["zk://zk1:2181/ledgers", "file:///edits", "bookkeeper:///x", "bookkeeper://zk1:2181/", "bookkeeper://z:x/j"]
)
def test_what_is_no_journal_on_ledgers_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="option journal of format editlog"):
        read_edit_options({"journal": uri})


@pytest.mark.parametrize(
    ("text", "position"),
    [("earliest", EARLIEST), ("LATEST", LATEST), ("17", 17), ("-1", LATEST), ('{"txid": 17, "namespace_id": 5}', 17)],
)
def test_positions_are_words_txids_or_what_a_checkpoint_has(text: str, position: int) -> None:
    assert parse_position(text) == position
    assert read_edit_options({"journal": URI, "startingOffsets": text}).own.start == position


@pytest.mark.parametrize("text", ["first", "0", "-3", "1.5", "[1]", '{"tx": 1}', '{"txid": true}', str(2**63)])
def test_other_positions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="earliest"):
        parse_position(text)


def test_the_last_txid_is_read_and_the_last_offset_is_not() -> None:
    assert read_edit_options({"journal": URI, "startingTxid": "3", "endingTxid": "9"}).own.end == 10
    assert read_edit_options({"journal": URI, "endingOffsets": "9"}).own.end == 9


@pytest.mark.parametrize(
    "given",
    [
        {"startingTxid": "3", "startingOffsets": "3"},
        {"endingTxid": "3", "endingOffsets": "latest"},
        {"startingTxid": "9", "endingTxid": "7"},
    ],
)
def test_words_that_contradict_each_other_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"give one of them|ends before"):
        read_edit_options({"journal": URI, **given})


def test_a_stream_has_no_end_and_a_batch_no_triggers() -> None:
    given = {"endingTxid": "9", "maxBytesPerTrigger": "9"}
    own = read_edit_options({"journal": URI, **given}).own
    with pytest.raises(ConfigurationError, match="endingTxid belongs to a batch read"):
        own.check_use(stream=True)
    with pytest.raises(ConfigurationError, match="maxBytesPerTrigger belongs to a stream"):
        own.check_use(stream=False)


def test_an_empty_range_is_a_range() -> None:
    assert read_edit_options({"journal": URI, "startingTxid": "9", "endingTxid": "8"}).own.end == 9


def test_each_word_says_its_unit_default_and_meaning() -> None:
    assert "startingTxid: First transaction. (txid, 1..4611686018427387904; not set)" in [*words(EditReadOptions)]


def test_limits_of_a_micro_batch_have_kafkas_words() -> None:
    for word in ("maxOffsetsPerTrigger", "maxEntriesPerTrigger"):
        assert read_edit_options({"journal": URI, word: "5", "maxBytesPerTrigger": "9"}).own.offsets_max == 5
