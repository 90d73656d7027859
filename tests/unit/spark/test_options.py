"""Options of the sources."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import pytest

from bookkeeper.config import ClientSettings, keys_of
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.audit.options import AuditOptions
from bookkeeper.spark.exports.options import ExportOptions, ImportOptions
from bookkeeper.spark.ledgers.options import LedgerChoice, LedgerReadOptions, Positions, parse_ledgers, parse_positions
from bookkeeper.spark.options.tables import HIDDEN_NAMES, hidden_names, read_options, read_tables, words
from bookkeeper.spark.sink.options import LedgerSinkOptions
from hedwig.spark.exports.options import TopicImportOptions
from hedwig.spark.region_options import RegionOptions
from hedwig.spark.region_tables import TopicOptions
from hedwig.spark.topic_options import TopicReadOptions, TopicWriteOptions
from journalmgr.spark.edit_options import EditReadOptions

URI = "zk://zk1:2181/ledgers"


def test_words_of_the_source_and_keys_of_the_client_are_read_without_regard_to_case() -> None:
    found = read_options(
        LedgerReadOptions, {"LEDGERS": "3, 7", "minpartitions": "4", "readTimeout": "9", "URI": URI}, where="bookkeeper"
    )
    assert found.own.ledgers == LedgerChoice(((3, 3), (7, 7)))
    assert found.own.partitions_min == 4
    assert (found.client.read_timeout_s, found.client.metadata_service_uri) == (9.0, URI)
    assert pickle.loads(pickle.dumps(found)) == found


def test_one_error_names_every_fault_with_the_nearest_word() -> None:
    with pytest.raises(ConfigurationError) as error:
        read_options(
            LedgerReadOptions, {"ledger": "3", "minPartitions": "many", "readTimeout": "-1"}, where="bookkeeper"
        )
    text = str(error.value)
    for part in (
        "option ledger of format bookkeeper: is unknown; did you mean ledgers?",
        "metadataServiceUri",
        "minPartitions=many",
        "readTimeout=-1",
    ):
        assert part in text


def test_the_environment_and_the_words_of_spark_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BK_readTimeout", "77")
    given = {"ledgers": "all", "path": URI, "checkpointLocation": "/checkpoints"}
    assert read_options(LedgerReadOptions, given, where="bookkeeper").client.read_timeout_s != 77


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("all", None),
        ("ALL", None),
        ("5", ((5, 5),)),
        ("10-20, 3 ,7", ((3, 3), (7, 7), (10, 20))),
        ("3-7,5-9,9", ((3, 9),)),
    ],
)
def test_ledgers_are_ids_and_ranges(text: str, ranges: tuple[tuple[int, int], ...] | None) -> None:
    assert parse_ledgers(text) == LedgerChoice(ranges)


@pytest.mark.parametrize("text", ["", "x", "-5", "5-", "7-5", "1,,2", "1-2-3", "1.5"])
def test_what_is_no_id_and_no_range_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"no ledger id and no range|ends before it begins"):
        parse_ledgers(text)


def test_only_ids_that_were_named_by_themselves_must_be_there() -> None:
    assert parse_ledgers("3,7-9,12").single == (3, 12)


def test_positions_are_words_or_json_as_kafkas() -> None:
    assert [parse_positions(word).of(7, 100) for word in ("earliest", "latest")] == [0, 100]
    given = parse_positions('{"7": 5, "8": -1, "9": -2}')
    assert given == Positions(-2, {7: 5, 8: -1, 9: -2})
    assert [given.of(ledger_id, 100) for ledger_id in (7, 8, 9, 10)] == [5, 100, 0, 0]


@pytest.mark.parametrize("text", ["first", "[1]", '{"x": 1}', '{"7": "5"}', '{"7": -3}', '{"7": 1.5}', '{"-7": 1}'])
def test_other_positions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="earliest"):
        parse_positions(text)


def test_each_word_says_its_unit_default_and_meaning() -> None:
    assert "minPartitions: Read with at least so many tasks. (partitions, 1..100000; default 1)" in [
        *words(LedgerReadOptions)
    ]


@pytest.mark.parametrize("more", [{}, {"option.uri": "zk://x/ledgers", "uri": "zk://x/ledgers"}])
def test_a_table_of_the_catalog_is_refused_with_the_view_that_does_it(more: dict[str, str]) -> None:
    made_by_spark = {"provider": "bookkeeper", "owner": "root", **more}
    with pytest.raises(ConfigurationError, match=r"CREATE TEMPORARY VIEW name USING `bookkeeper` OPTIONS"):
        read_options(LedgerReadOptions, made_by_spark, where="bookkeeper")
    with pytest.raises(ConfigurationError, match=r"CREATE TEMPORARY VIEW name USING `hedwig` OPTIONS"):
        read_tables([LedgerReadOptions], made_by_spark, where="hedwig", needed={})


@pytest.mark.parametrize("word", ["startingOffsets", "endingOffsets"])
def test_a_position_of_a_ledger_that_is_not_read_is_refused(word: str) -> None:
    def read(ledgers: str, *positions: int) -> None:
        given = {"ledgers": ledgers, word: json.dumps({str(ledger_id): -2 for ledger_id in positions})}
        read_options(LedgerReadOptions, {"uri": "zk://zk1/ledgers", **given}, where="bookkeeper")

    for ledgers, unread in (("12,13", "21"), ("1-20,22", "21"), ("5", "12, 21")):
        with pytest.raises(ConfigurationError, match=f"{word} of format bookkeeper: names .*not read.*: {unread}$"):
            read(ledgers, 21, 12)
    for ledgers in ("all", "12,21", "0-30"):
        read(ledgers, 21, 12)
    with pytest.raises(ConfigurationError, match=r": 100, 101, .*, 109 and 5 more$"):
        read("12", *range(100, 115))


SECRETS = {"passwd": "password", "zkDigestAuth": "zkDigestAuthPassword"}


@pytest.mark.parametrize(("shown", "hidden"), SECRETS.items())
@pytest.mark.parametrize("spelling", [str, str.lower, str.upper])
def test_a_secret_is_refused_by_a_name_whose_value_spark_shows(
    shown: str, hidden: str, spelling: Callable[[str], str]
) -> None:
    def read(word: str) -> tuple[ClientSettings, ...]:
        given = {"uri": URI, "ledgers": "1", word: "joe:s3cret"}
        one = read_options(LedgerReadOptions, given, where="bookkeeper").client
        several = read_tables([LedgerReadOptions, ClientSettings], given, where="bookkeeper", needed={})
        return one, several[1]

    for client in read(spelling(hidden)):
        assert "joe:s3cret" in (client.zk_digest_auth, client.password.decode())
    with pytest.raises(ConfigurationError) as caught:
        read(spelling(shown))
    assert f"name the option {hidden}, whose value Spark hides" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_every_secret_of_every_format_has_a_name_that_spark_hides() -> None:
    tables: list[type] = [
        *(ClientSettings, LedgerReadOptions, LedgerSinkOptions, AuditOptions, ExportOptions, ImportOptions),
        *(RegionOptions, TopicReadOptions, TopicWriteOptions, TopicImportOptions, TopicOptions, EditReadOptions),
    ]
    secrets = {name for table in tables for name, key in keys_of(table).items() if key.secret}
    assert secrets == set(HIDDEN_NAMES)
    assert all("password" in name.lower() for name in HIDDEN_NAMES.values())
    assert hidden_names({"passwd": "a", "zkDigestAuth": "b", "region": "c"}) == {
        "password": "a",
        "zkDigestAuthPassword": "b",
        "region": "c",
    }
