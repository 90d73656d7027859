"""Filters by name: our own, those of others, and what happens to one that breaks."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from itertools import count

import pytest
from twisted.logger import ILogObserver, LogEvent, capturedLogs, formatEvent, globalLogPublisher
from zope.interface import implementer

import hedwig.filters as filters
from hedwig.errors import FilterTooCostly, InvalidFilter
from hedwig.filters import (
    DEFAULT_FILTERS,
    GROUP,
    HEADER_EXPRESSION,
    InstalledFilters,
    LogBound,
    expression_filter,
    guarded,
    with_expression,
)
from hedwig.hub.server import HubSettings
from hedwig.model import LocalId, Preferences, SubscriberId, Topic
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.protocol.conditions import STEPS_MAX, FilterableMessage
from hedwig.wire.messages import Message, encode_map
from hedwig.wire.receiving import Received

TOPIC, SUB = Topic(b"t"), SubscriberId(b"s")


def by_priority(preferences: Preferences) -> filters.Filter:
    """What another distribution could offer."""
    least = preferences.options.get("least")
    if least is None:
        raise InvalidFilter("needs the option 'least'")
    number = int(least)
    return lambda message: int(message.properties["priority"]) >= number


def test_the_expression_is_an_option() -> None:
    for name in (HEADER_EXPRESSION, "hedwig.filters.HeaderExpression"):
        wanted = DEFAULT_FILTERS[name](Preferences(options={"hw.expression": b"color = 'red'"}))
        assert wanted(Message(b"", {"color": b"red"}))
        assert not wanted(Message(b"", {"color": b"blue"}))
        assert not wanted(Message(b""))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs the option 'hw.expression'"),
        ({"hw.expression": b"\xff"}, "is not UTF-8"),
        ({"hw.expression": b"a"}, "at"),
    ],
)
def test_a_wrong_expression_is_refused(options: dict[str, bytes], text: str) -> None:
    with pytest.raises(InvalidFilter, match=text):
        DEFAULT_FILTERS[HEADER_EXPRESSION](Preferences(options=options))


def test_a_hub_has_them_unless_it_is_told_otherwise() -> None:
    assert HubSettings(metadata_uri="zk://127.0.0.1/ledgers", host="127.0.0.1").filters is DEFAULT_FILTERS


def test_a_client_asks_for_an_expression_and_keeps_its_other_preferences() -> None:
    asked = with_expression("größe > 3", Preferences(window_size=5, options={"a": b"1"}))
    assert asked == Preferences(None, HEADER_EXPRESSION, 5, {"a": b"1", "hw.expression": "größe > 3".encode()})
    assert DEFAULT_FILTERS[HEADER_EXPRESSION](asked)(Message(b"", {"größe": b"4"}))
    with pytest.raises(InvalidFilter):
        with_expression("a =")


def test_a_client_may_run_an_expression_itself() -> None:
    header = pb.MessageHeader(properties=encode_map({"color": b"red", "size": b"3"}), messageType="order")
    received = Received(b"body", LocalId(7), b"r1", header.SerializeToString())
    for text in ("color = 'red' AND size < 4", "$id = 7 AND $size = 4 AND $region = 'r1' AND $type = 'order'"):
        assert expression_filter(text)(received)
    assert not expression_filter("color = 'blue'")(received)
    assert not expression_filter("color <> 'blue'")(Received(b"", LocalId(1)))
    assert expression_filter("$region IS NULL AND $type IS NULL")(Received(b"", LocalId(1)))
    with pytest.raises(InvalidFilter):
        expression_filter("color")


def test_a_clients_expression_raises_for_a_message_that_takes_too_long() -> None:
    """The filter once rejected the message, since LIKE with _ was unknown for a long value."""
    header = pb.MessageHeader(properties=encode_map({"a": b"a" * STEPS_MAX}))
    received = Received(b"body", LocalId(7), b"r1", header.SerializeToString())
    with pytest.raises(FilterTooCostly, match=f"too long for message 7: .* exceeds the {STEPS_MAX:,} steps"):
        expression_filter("a LIKE '%_b%'")(received)
    assert expression_filter("a LIKE '%_b%' OR $id = 7")(Received(b"", LocalId(7)))


def test_a_message_whose_header_cannot_be_read_does_not_break_a_clients_expression() -> None:
    """It would come again first whenever the subscription is taken up."""
    header = pb.MessageHeader(properties=encode_map({"zz": b"red"})).SerializeToString().replace(b"zz", b"\xff\xfe")
    typed = pb.MessageHeader(messageType="zz").SerializeToString().replace(b"zz", b"\xff\xfe")
    with capturedLogs() as logged:  # bytes that are not UTF-8 are replaced, as in Java; an invalid header is logged
        for each in (header, typed, b"\xff" + header):
            assert not expression_filter("color = 'red' OR $type = 'order'")(Received(b"body", LocalId(7), b"r1", each))
    assert [event["log_level"].name for event in logged] == ["warn"]


def installed(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> InstalledFilters:
    def entry_points(*, group: str) -> EntryPoints:
        assert group == GROUP
        return EntryPoints([EntryPoint(name, value, group) for name, value in entries])

    monkeypatch.setattr(filters, "entry_points", entry_points)
    return InstalledFilters()


def test_filters_of_others_are_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    found = installed(monkeypatch, ("com.example.Priority", f"{__name__}:by_priority"))
    assert set(found) == {*filters.BUILT_IN, "com.example.Priority"}
    assert len(found) == 3
    wanted = found["com.example.Priority"](Preferences(options={"least": b"3"}))
    assert [wanted(Message(b"", {"priority": value})) for value in (b"2", b"3")] == [False, True]
    with pytest.raises(InvalidFilter, match="needs the option 'least'"):
        found["com.example.Priority"](Preferences())
    with pytest.raises(InvalidFilter, match=r"Priority, .*by_priority, broke: ValueError"):
        found["com.example.Priority"](Preferences(options={"least": b"x"}))
    assert found.get("other") is None


def test_a_filter_that_cannot_be_loaded_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    found = installed(monkeypatch, ("broken", "no.such.module:make"), ("good", f"{__name__}:by_priority"))
    wanted = found["good"](Preferences(options={"least": b"1"}))
    assert wanted(Message(b"", {"priority": b"1"}))
    with pytest.raises(InvalidFilter, match=r"broken, no.such.module:make, broke: ModuleNotFoundError"):
        found["broken"](Preferences())


def test_two_filters_of_one_name_are_refused_and_built_in_names_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = f"{__name__}:by_priority"
    found = installed(monkeypatch, ("same", mine), ("same", "other:make"), (HEADER_EXPRESSION, mine), ("twice", mine))
    with pytest.raises(InvalidFilter, match=r"more than one message filter has the name same: other:make and .*by_pri"):
        found["same"](Preferences())
    assert found[HEADER_EXPRESSION] is filters.header_expression
    assert list(found).count(HEADER_EXPRESSION) == 1


def test_entry_points_are_not_looked_for_where_a_built_in_name_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str) -> EntryPoints:
        raise AssertionError("slow")

    monkeypatch.setattr(filters, "entry_points", entry_points)
    assert InstalledFilters()[HEADER_EXPRESSION] is filters.header_expression


def test_a_filter_that_breaks_wants_nothing_and_is_logged_at_a_bounded_rate() -> None:
    def broken(message: FilterableMessage) -> bool:
        raise KeyError("x")

    events: list[LogEvent] = []

    @implementer(ILogObserver)
    def keep(event: LogEvent) -> None:
        if event["log_namespace"] == "hedwig.filters":
            events.append(event)

    now = count()
    asked = guarded(broken, TOPIC, SUB, lambda: float(next(now)), LogBound(3, 60.0))
    globalLogPublisher.addObserver(keep)
    try:
        answers = [asked(Message(b"")) for _ in range(100)]
    finally:
        globalLogPublisher.removeObserver(keep)
    assert not any(answers)
    lines = [formatEvent(event) for event in events]
    assert "raised KeyError('x')" in lines[0]
    assert f"topic {TOPIC.decode()!r} " in lines[0]
    assert [line.rpartition("(")[2] if line.endswith("logged)") else "" for line in lines] == [
        *("", "", "", "57 similar lines were not logged)", "", "")
    ]


def test_what_a_filter_says_is_taken_for_true_or_false() -> None:
    assert guarded(lambda message: 1, TOPIC, SUB, float)(Message(b"")) is True  # type: ignore[arg-type,return-value]


def test_a_clock_that_begins_anew_begins_a_period() -> None:
    bound = LogBound(1, 60.0)
    assert bound.admit(100.0) == 0
    assert bound.admit(101.0) is None
    assert bound.admit(5.0) == 1
