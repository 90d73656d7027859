"""Rows of topics, subscriptions and hubs out of what is recorded."""

from __future__ import annotations

from typing import Any

from bookkeeper.config import keys_of
from bookkeeper.spark.cluster.table import ClusterTable, Row
from hedwig.admin.region import LedgerPart, Subscribed
from hedwig.config.hub import HubConfig
from hedwig.model import HubAddress, LocalId, MessageId, Preferences, SubscriberId, Subscription, Topic
from hedwig.spark import region_tables
from hedwig.spark.region_tables import (
    HUBS,
    SUBSCRIPTIONS,
    TOPICS,
    RegionOptions,
    hub_row,
    subscription_row,
    topic_row,
)

NEWS, ME = Topic(b"news"), SubscriberId(b"me")
HUB = HubAddress("h", 4080)


def named(table: ClusterTable, row: Row) -> dict[str, Any]:
    return dict(zip((column.name for column in table.columns), row, strict=True))


def part(ledger_id: int, first: int, last: int | None, **more: Any) -> LedgerPart:
    end = None if last is None else LocalId(last)
    return LedgerPart(ledger_id, LocalId(first), end, more.pop("is_open", False), **more)


def test_a_topic_is_the_sum_of_its_ledgers() -> None:
    parts = [part(3, 11, 20, size=100), part(5, 21, 30, size=50), part(8, 31, 33, is_open=True, confirmed_size=7)]
    found = named(TOPICS, topic_row(NEWS, HUB, parts, 2))
    assert (found["topic"], found["owner"], found["ledgers"]) == ("news", "h:4080:-1", 3)
    assert (found["first_id"], found["last_id"], found["messages"]) == (11, 33, 23)
    assert (found["open_ledger_id"], found["ended_bytes"], found["open_bytes"], found["problem"]) == (8, 150, 7, None)


def test_what_a_ledger_does_not_tell_is_unknown_and_not_nothing() -> None:
    parts = [part(3, 1, 20, problem="gone"), part(8, 21, None, is_open=True, problem="no answer")]
    found = named(TOPICS, topic_row(NEWS, None, parts, 0))
    assert (found["last_id"], found["messages"], found["ended_bytes"]) == (None, None, None)
    assert found["open_bytes"] is None
    assert found["problem"] == "ledger 3: gone; ledger 8: no answer"
    assert found["owner"] is None


def test_a_topic_without_ledgers_has_no_messages() -> None:
    found = named(TOPICS, topic_row(NEWS, HUB, [], 0))
    assert (found["first_id"], found["last_id"], found["messages"], found["ended_bytes"]) == (None, 0, 0, 0)
    empty = named(TOPICS, topic_row(NEWS, HUB, [part(4, 7, 6, is_open=True)], 0))
    assert (empty["first_id"], empty["last_id"], empty["messages"]) == (7, 6, 0)


def test_a_backlog_is_unknown_where_the_end_of_the_topic_is() -> None:
    record = Subscription(MessageId(LocalId(4)), Preferences(window_size=7, options={"a": b"\xff"}))
    found = named(SUBSCRIPTIONS, subscription_row(Subscribed(NEWS, ME, record, LocalId(9)), HUB))
    assert (found["consumed_id"], found["last_id"], found["backlog"], found["window"]) == (4, 9, 5, 7)
    assert (found["options"], found["bound"]) == ([("a", "\\xff")], None)
    found = named(SUBSCRIPTIONS, subscription_row(Subscribed(NEWS, ME, record, None, "no answer"), None))
    assert (found["consumed_id"], found["last_id"], found["backlog"]) == (4, None, None)
    assert (found["problem"], found["owner"]) == ("no answer", None)


def test_an_unreadable_record_says_nothing_of_its_subscription() -> None:
    record = Subscription(MessageId(LocalId(0)))
    found = named(
        SUBSCRIPTIONS, subscription_row(Subscribed(NEWS, ME, record, LocalId(9), "torn", is_readable=False), HUB)
    )
    assert (found["consumed_id"], found["backlog"], found["options"], found["problem"]) == (None, None, None, "torn")


def test_a_hub_whose_record_cannot_be_read_is_told() -> None:
    assert named(HUBS, hub_row("h:4080:-1", (HUB, 3)))["topics"] == 3
    found = named(HUBS, hub_row("h:4080:-1", None))
    assert (found["hub"], found["topics"]) == ("h:4080:-1", None)
    assert "cannot be read" in found["problem"]


def test_options_have_the_defaults_of_hubs() -> None:
    hubs, ours = keys_of(HubConfig), keys_of(RegionOptions)
    for name in ("zk_prefix", "region", "passwd"):
        assert ours[name].default == hubs[name].default
        assert ours[name].secret == hubs[name].secret


def test_the_module_lists_the_columns_of_each_table_as_they_are() -> None:
    listed = " ".join(str(region_tables.__doc__).split())
    for table in (TOPICS, SUBSCRIPTIONS, HUBS):
        assert f"{table.name} {', '.join(column.name for column in table.columns)}" in listed
