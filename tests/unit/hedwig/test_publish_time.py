"""Publish times: text that anybody can read, and never back."""

from __future__ import annotations

import random

import pytest
from twisted.internet.defer import Deferred

from hedwig.hub.subscriptions.replay import published_ms
from hedwig.model import LocalId
from hedwig.protocol.expressions import parse_expression
from hedwig.protocol.options import TIME
from hedwig.protocol.publish_time import PublishClock, decode_time, encode_time, time_of
from hedwig.wire.messages import PROPERTIES_MAX, Message, encode_message
from hedwig.wire.view import MessageView, header_part


def test_a_time_is_decimal_text() -> None:
    assert encode_time(1_700_000_000_000) == b"1700000000000"
    for time_ms in (0, 1, 1_700_000_000_000, 2**63 - 1):
        assert decode_time(encode_time(time_ms)) == time_ms
    for wrong in (-1, 2**63):
        with pytest.raises(ValueError, match="no time"):
            encode_time(wrong)


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"1.5", b" 1", b"9223372036854775808", b"1" * 5000])
def test_what_is_no_time_says_nothing(value: bytes) -> None:
    assert decode_time(value) is None
    assert time_of({"hw.time": value}) is None


def test_a_hub_adds_the_time_to_a_stored_message_and_filters_see_it() -> None:
    for message in (Message(b"body"), Message(b"body", {"color": b"red"}, "order")):
        timed = MessageView(encode_message(message) + header_part({"hw.time": encode_time(1_700_000_000_000)}))
        assert time_of(timed.properties) == 1_700_000_000_000
        assert parse_expression("hw.time >= 1700000000000").matches(timed)
    assert time_of({}) is None


def test_times_never_go_back_whatever_the_clock_says(rng: random.Random) -> None:
    clock, before = PublishClock(), 0
    for _ in range(1000):
        now_ms = rng.randrange(1000)
        if rng.random() < 0.1:
            clock = PublishClock(before)  # another hub, which reads the newest message
        stamped = clock.stamp(now_ms)
        assert stamped == max(before, now_ms)
        assert clock.ahead_ms(now_ms) == stamped - now_ms
        before = stamped


def test_a_message_with_very_many_properties_counts_as_one_without_a_time() -> None:
    """A replay reads a few messages of each ledger, and each of them may have 200,000 properties."""

    def said(count: int) -> int | None:
        properties = {f"{number}": b"" for number in range(count - 1)}
        stored = encode_message(Message(b"body", {**properties, TIME: b"17"}))

        class Reader:
            async def read(self, first: LocalId, count: int) -> list[bytes]:
                return [stored]

        found: int | None = Deferred.fromCoroutine(published_ms(LocalId(1), Reader())).result  # type: ignore[arg-type]
        return found

    assert said(PROPERTIES_MAX) == 17
    assert said(PROPERTIES_MAX + 1) is None
