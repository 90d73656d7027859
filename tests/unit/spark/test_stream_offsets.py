"""What the offsets of a stream carry besides its position."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.ledgers.stream_offsets import (
    NOTE,
    Division,
    check_cluster,
    initial_offset,
    next_offset,
    planned,
    position_of,
    start_of,
)

THEN, NOW = Division(2, 1000), Division(7, 5000)


def test_offsets_have_these_words() -> None:
    start = initial_offset({"news": 5}, "c")
    assert start == {"news": 5, "/stream": {"first": True, "cluster": "c"}}
    end = next_offset(start, {"news": 9}, THEN, "c")
    assert end == {
        "news": 9,
        "/stream": {"minPartitions": 2, "maxPartitionBytes": 1000, "from": {"news": 5}, "cluster": "c"},
    }
    after = next_offset(end, {"news": 12}, NOW, "c")
    assert after == {"news": 12, "/stream": {"minPartitions": 7, "maxPartitionBytes": 5000, "cluster": "c"}}
    assert [position_of(each) for each in (start, end, after)] == [{"news": 5}, {"news": 9}, {"news": 12}]


def test_what_is_no_further_is_the_same_text() -> None:
    """Spark compares offsets as text: another one is another micro-batch."""
    end = next_offset(initial_offset({"news": 5}, "c"), {"news": 9}, THEN, "c")
    assert list(next_offset(end, {"news": 9}, NOW, "c").items()) == list(end.items())
    earlier = {"news": 9}
    assert next_offset(earlier, {"news": 9}, NOW, "c") == earlier


def test_a_micro_batch_begins_where_the_one_before_ended_and_the_first_where_it_is_said_to() -> None:
    start = initial_offset({"news": 5}, "c")
    end = next_offset(start, {"news": 9}, THEN, "c")
    elsewhere = initial_offset({"news": 7}, "c")
    assert planned(elsewhere, end, NOW).start == {"news": 5}
    assert planned(elsewhere, start, NOW).start == planned(elsewhere, start, NOW).end == {"news": 5}
    assert planned(end, end, NOW).start == {"news": 9}, "nothing is between an offset and itself"
    assert planned(end, next_offset(end, {"news": 12}, NOW, "c"), NOW).start == {"news": 9}
    assert start_of(elsewhere, next_offset(initial_offset({"txid": 3}), {"txid": 8}, NOW)) == {"txid": 3}


def test_a_division_is_that_of_the_checkpoint_and_where_it_says_none_that_of_the_options() -> None:
    end = next_offset({"news": 5}, {"news": 9}, THEN, "c")
    assert planned({"news": 5}, end, NOW).division == THEN
    assert planned({"news": 5}, {"news": 9}, NOW).division == NOW


@pytest.mark.parametrize("note", [5, {"minPartitions": 0}, {"minPartitions": "2"}, {"maxPartitionBytes": True}])
def test_a_note_that_was_changed_is_told(note: Any) -> None:
    with pytest.raises(InvalidArgument, match="it was changed: use another checkpointLocation"):
        planned({"news": 5}, {"news": 9, NOTE: note}, NOW)


def test_an_offset_belongs_to_one_cluster() -> None:
    offset = initial_offset({"news": 5}, "c")
    check_cluster(offset, "c")
    check_cluster({"news": 5}, "d")
    with pytest.raises(InvalidArgument, match="instance id c; this one is d"):
        check_cluster(offset, "d")


@pytest.mark.parametrize("offset", [None, 7, "x", [1]])
def test_what_is_no_offset_is_left_to_the_source_to_judge(offset: Any) -> None:
    assert position_of(offset) is offset
    assert planned(offset, offset, NOW).start is offset
