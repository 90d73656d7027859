"""What one micro-batch may hold: Spark's limit and the options together."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from bookkeeper.spark.ledgers.options import WHERE, LedgerReadOptions
from bookkeeper.spark.options.limits import Limits
from bookkeeper.spark.options.stream_limits import default_limit, limits_of
from bookkeeper.spark.options.tables import read_options


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (Limits(), ReadAllAvailable()),
        (Limits(entries=10), ReadMaxRows(10)),
        (Limits(size=500), ReadMaxBytes(500)),
        (Limits(entries=10, size=500), ReadMaxRows(10)),
    ],
)
def test_a_micro_batch_that_spark_does_not_limit_otherwise_obeys_all_that_the_options_say(
    own: Limits, told: ReadLimit
) -> None:
    assert default_limit(own) == told
    assert limits_of(default_limit(own), own) == own


def test_a_batch_for_which_spark_wants_all_has_all() -> None:
    assert limits_of(ReadAllAvailable(), Limits(entries=10, size=500)) == Limits()


def test_what_spark_asks_for_goes_before_the_option() -> None:
    assert limits_of(ReadMaxRows(3), Limits(entries=10, size=500)) == Limits(3, 500)
    assert limits_of(ReadMaxBytes(70), Limits(entries=10, size=500)) == Limits(10, 70)


def test_a_limit_of_rows_has_two_names() -> None:
    for word in ("maxOffsetsPerTrigger", "maxEntriesPerTrigger"):
        given = {"metadataServiceUri": "zk://127.0.0.1:2181/ledgers", "ledgers": "all", word: "9"}
        assert read_options(LedgerReadOptions, given, where=WHERE).own.per_trigger == Limits(entries=9)
