"""What a client may ask for in old fields, and what it is told when it asks wrong."""

from __future__ import annotations

import pytest

from hedwig.errors import MalformedRequest
from hedwig.model import Gone, LocalId, MessageId, Preferences, Topic
from hedwig.protocol.options import (
    OUTSTANDING_MAX,
    Acknowledge,
    AckOptions,
    GiveBack,
    Granted,
    Replay,
    ack_options,
    acknowledgement,
    answered,
    check_options,
    check_size,
    check_wanted,
    consumed,
    granted,
    replay_of,
    replay_wanted,
)


def asked(**options: bytes) -> Preferences:
    """Dots and dashes of names are written __ and _."""
    return Preferences(
        options={f"hw.{name.replace('__', '.').replace('_', '-')}": each for name, each in options.items()}
    )


def test_without_options_everything_is_as_it_always_was() -> None:
    for nothing in (Preferences(), Preferences(options={"MOD": b"3"}), asked(ack=b""), asked(ack=b"cumulative")):
        check_options(nothing)
        assert ack_options(nothing) is None


def test_acknowledgement_is_asked_for_by_options() -> None:
    assert ack_options(asked(ack=b"individual")) == AckOptions()
    assert ack_options(asked(shared=b"true", ack=b"cumulative")) == AckOptions(shared=True)
    everything = asked(
        ack=b"individual",
        ack__timeout=b"1500",
        ack__attempts=b"3",
        ack__outstanding=b"7",
        shared__in_flight=b"2",
        dead_letter=b"graves",
    )
    check_options(everything)
    assert ack_options(everything) == AckOptions(
        timeout_ms=1500, attempts_max=3, outstanding_max=7, in_flight_max=2, dead_letter=b"graves"
    )


def test_more_outstanding_messages_than_hubs_allow_are_no_error() -> None:
    """Stored subscriptions may contain such numbers."""
    for value in (b"9999", b"10000", b"50000"):
        found = ack_options(asked(ack=b"individual", ack__outstanding=value, shared__in_flight=value))
        assert found is not None
        assert found.outstanding_max == min(int(value), OUTSTANDING_MAX)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ack", b"maybe", "'maybe', and must be one of: cumulative, individual"),
        ("shared", b"yes", "must be one of: false, true"),
        ("ack__timeout", b"0", "a decimal number from 1 to"),
        ("ack__timeout", b"-5", "a decimal number"),
        ("ack__outstanding", b"9" * 60, r"'9{40}\.\.\.', and must be a decimal number"),
        ("replay", b"yesterday", "write id:NUMBER"),
        ("replay", b"id:", "a decimal number from 1"),
        ("replay", b"time:1e3", "a decimal number from 0"),
        ("replay", b"first:1", "write id:NUMBER"),
        ("unheard", b"1", "there is no option 'hw.unheard'; known are: hw.ack, "),
    ],
)
def test_a_wrong_option_is_refused(name: str, value: bytes, text: str) -> None:
    with pytest.raises(MalformedRequest, match=text):
        check_options(asked(**{name: value}))


def test_replay_is_asked_for_once() -> None:
    """A client that reconnects says all its options again, and goes on where it was."""
    assert replay_of(None) is replay_of(b"") is None
    assert replay_of(b"first") == Replay()
    assert replay_of(b"id:17") == Replay(LocalId(17))
    assert replay_of(b"time:1700000000000;again") == Replay(time_ms=1_700_000_000_000)
    stored = asked(replay=b"id:17")
    assert replay_wanted(None, stored) == Replay(LocalId(17))
    assert replay_wanted(stored, stored) is None
    assert replay_wanted(stored, Preferences()) is None
    assert replay_wanted(stored, None) is None
    assert replay_wanted(stored, asked(replay=b"id:17;2")) == Replay(LocalId(17))
    assert replay_wanted(asked(replay=b"id:17;2"), stored) == Replay(LocalId(17))
    assert replay_wanted(Preferences(), asked(replay=b"")) is None


def test_a_consume_may_be_of_one_of_several_or_give_one_back() -> None:
    for said in (
        Acknowledge(LocalId(5), LocalId(5)),
        Acknowledge(LocalId(2), LocalId(5)),
        GiveBack(LocalId(5), 0),
        GiveBack(LocalId(5), 250),
    ):
        assert acknowledgement(consumed(said)) == said
    assert acknowledgement(MessageId(LocalId(5), ((b"region", 3),))) == Acknowledge(LocalId(5), LocalId(5))
    for wrong in (((b"hw.from", 6),), ((b"hw.from", 0),), ((b"hw.from", 1), (b"hw.nack", 1))):
        with pytest.raises(MalformedRequest):
            acknowledgement(MessageId(LocalId(5), wrong))


def wanted(**options: bytes) -> AckOptions | None:
    return check_wanted(asked(**options), asked(**options), Topic(b"orders"))


def test_what_would_be_stored_and_never_heeded_is_refused() -> None:
    with pytest.raises(MalformedRequest, match=r"hw\.ack\.timeout: heeded with individual acknowledgement alone"):
        wanted(ack__timeout=b"5")
    with pytest.raises(MalformedRequest, match=r"without hw\.ack\.attempts no message ever becomes"):
        wanted(ack=b"individual", dead_letter=b"graves")
    with pytest.raises(MalformedRequest, match="names the topic itself"):
        wanted(ack=b"individual", ack__attempts=b"2", dead_letter=b"orders")
    with pytest.raises(MalformedRequest, match="the part '' between slashes"):
        wanted(ack=b"individual", ack__attempts=b"2", dead_letter=b"a//b")
    assert wanted(shared=b"true", ack__attempts=b"2", dead_letter=b"graves") is not None


def test_preferences_that_do_not_fit_into_a_record_are_refused() -> None:
    check_size(Preferences(message_filter="x", options={"color": bytes(60_000)}))
    for much in (Preferences(message_filter="\xe4" * 33_000), Preferences(options={"n": b"", "x" * 66_000: b""})):
        with pytest.raises(MalformedRequest, match="at most 65536 can be stored"):
            check_size(much)


def test_stored_options_are_in_nobodys_way_once_they_are_of_no_use() -> None:
    """None can be taken back: a subscription that is cumulative again keeps its timeout."""
    stored = asked(ack=b"cumulative", ack__timeout=b"5")
    assert check_wanted(asked(ack=b"cumulative"), stored, Topic(b"orders")) is None
    assert check_wanted(None, asked(nonsense=b"x"), Topic(b"orders")) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"1-123", (1, 123)),
        (b"7-7", (7, 7)),
        (b"8-7", None),
        (b"0-7", None),
        (b"7", None),
        (b"a-b", None),
        (b"", None),
        (b"1-99999999999999999999", None),
    ],
)
def test_deleted_messages_in_an_answer_are_not_part_of_the_preferences(
    value: bytes, expected: tuple[int, int] | None
) -> None:
    preferences = Preferences(options={"MOD": b"3", "hw.gone": value})
    assert granted(preferences) == Granted(
        Preferences(options={"MOD": b"3"}), False, expected and Gone(*map(LocalId, expected))
    )


def test_an_answer_is_unchanged_unless_messages_are_deleted() -> None:
    preferences = Preferences(window_size=3, options={"MOD": b"3"})
    assert answered(preferences) is preferences
    gone = Gone(LocalId(1), LocalId(9))
    assert granted(answered(preferences, gone)) == Granted(preferences, False, gone)
    timed = asked(replay=b"time:5")
    assert granted(answered(timed, gone)) == Granted(timed, True, gone._replace(maybe=True))
    later = Gone(LocalId(2), LocalId(9))
    assert granted(answered(timed, later)).gone == later, "the first message was consumed"
    replayed = asked(replay=b"first")
    assert granted(answered(replayed, gone)) == Granted(replayed, True, gone)
