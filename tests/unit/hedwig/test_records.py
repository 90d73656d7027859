"""What is in the metadata, against the hedwig/PROTOCOL.md 9.4; damage is never taken for absence."""

from __future__ import annotations

import pytest

from hedwig.errors import UnexpectedCondition
from hedwig.model import (
    Gone,
    HubAddress,
    HubInfo,
    LedgerRange,
    LocalId,
    MessageId,
    NamedKeep,
    Preferences,
    SharedSubscription,
    Subscription,
)
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.protocol.acknowledgements import Acknowledgements, Redelivery
from hedwig.wire import records

PATH = "/hedwig/standalone/x"


def an_id(local: int, *remote: tuple[bytes, int]) -> MessageId:
    return MessageId(LocalId(local), remote)


def test_hubs_are_written_as_the_genuine_ones() -> None:
    info = HubInfo(HubAddress("127.0.0.1", 14080, 19876), 27)
    data = b'hostname: "127.0.0.1:14080:19876"\nczxid: 27\n'
    assert records.encode_hub_info(info) == data
    assert records.decode_hub_info(data, PATH) == info
    assert records.encode_load(3) == b"numTopics: 3\n"
    assert records.decode_load(b"numTopics: 3\n", PATH) == 3
    layout = b'managerImpl: "org.apache.hedwig.server.meta.ZkMetadataManagerFactory"\nmanagerVersion: 1\n'
    assert records.encode_layout() == layout
    assert records.decode_layout(layout, PATH) == (records.ZOOKEEPER_MANAGER, 1)


def test_the_plain_forms_of_old_hubs_are_read() -> None:
    assert records.decode_hub_info(b"10.0.0.1:4080:9876", PATH) == HubInfo(HubAddress("10.0.0.1", 4080, 9876), 0)
    assert records.decode_hub_info(b"10.0.0.1:4080:-1", PATH) == HubInfo(HubAddress("10.0.0.1", 4080), 0)
    assert records.decode_load(b"17", PATH) == 17


def test_addresses() -> None:
    assert records.parse_address("hub:4080") == HubAddress("hub", 4080)
    assert str(HubAddress("hub", 4080)) == "hub:4080:-1"
    assert str(HubAddress("hub", 4080, 9876)) == "hub:4080:9876"
    for wrong in ("", "hub", ":4080", "hub:x", "hub:0", "hub:70000", "hub:1:2:3", "hub:1:0"):
        with pytest.raises(ValueError, match="no address of a hub"):
            records.parse_address(wrong)


@pytest.mark.parametrize(
    ("data", "ranges"),
    [
        ("0a0408031801", [LedgerRange(3, LocalId(1))]),
        ("0a08080f1202080318010a0408101804", [LedgerRange(15, LocalId(1), an_id(3)), LedgerRange(16, LocalId(4))]),
        (
            "0a100803120a080612060a0272311007180" + "10a0408051807",
            [LedgerRange(3, LocalId(1), an_id(6, (b"r1", 7))), LedgerRange(5, LocalId(7))],
        ),
        ("0a0608031202080c", [LedgerRange(3, None, an_id(12))]),
        ("", []),
    ],
)
def test_ranges(data: str, ranges: list[LedgerRange]) -> None:
    assert records.decode_ranges(bytes.fromhex(data), PATH) == ranges
    assert records.encode_ranges(ranges).hex() == data


@pytest.mark.parametrize(
    ("data", "subscription"),
    [
        ("0a040a0208021200", Subscription(an_id(2))),
        ("0a040a02080212022003", Subscription(an_id(2), Preferences(window_size=3))),
        ("0a040a0208001200", Subscription(an_id(0))),
        (
            "0a0c0a0a080512060a0272311007" + "12160a100a060a01611201310a060a016212013210052004",
            Subscription(an_id(5, (b"r1", 7)), Preferences(5, None, 4, {"a": b"1", "b": b"2"})),
        ),
    ],
)
def test_subscriptions(data: str, subscription: Subscription) -> None:
    assert records.decode_subscription(bytes.fromhex(data), PATH) == subscription
    assert records.encode_subscription(subscription).hex() == data


@pytest.mark.parametrize(
    ("value", "expected"), [(b"1-2", Gone(LocalId(1), LocalId(2))), (b"1-3", None), (b"x", None), (b"", None)]
)
def test_deleted_messages_are_an_option_that_no_program_sees(value: bytes, expected: Gone | None) -> None:
    """Apache's hubs keep the options of a subscription. A range beyond the position is not of this position."""
    preferences = Preferences(window_size=3, options={"a": b"1"})
    stored = Subscription(an_id(2), preferences.merged(Preferences(options={"hw.gone": value})))
    found = records.decode_subscription(records.encode_subscription(stored), PATH)
    assert found == Subscription(an_id(2), preferences, gone=expected)
    shared = SharedSubscription(
        an_id(2), preferences, Acknowledgements(LocalId(1), Redelivery()).encode(), gone=expected
    )
    data = records.encode_subscription(shared)
    assert records.decode_subscription(data, PATH) == shared
    assert (b"hw.gone" in data) == (expected is not None)


def test_what_is_acknowledged_one_by_one_is_stored_where_other_hubs_do_not_look() -> None:
    state = Acknowledgements(LocalId(2), Redelivery())
    for local_id in (3, 4, 5):
        state.on_delivered(LocalId(local_id), 0.0)
    state.acknowledge(LocalId(4), LocalId(4))
    shared = SharedSubscription(an_id(2), Preferences(window_size=3, options={"HA": b"HA\x01"}), state.encode())
    data = records.encode_subscription(shared)
    assert records.decode_subscription(data, PATH) == shared
    seen = pb.SubscriptionData.FromString(data)
    assert (seen.state.msgId.localComponent, seen.preferences.messageWindowSize) == (2, 3)
    # A hub that writes the record anew may keep the field in front, or drop it.
    plain = records.encode_subscription(Subscription(shared.consumed, shared.preferences))
    assert records.decode_subscription(data[len(plain) :] + plain, PATH) == shared
    assert records.decode_subscription(plain, PATH) == Subscription(shared.consumed, shared.preferences)
    assert records.encode_subscription(SharedSubscription(shared.consumed, shared.preferences)) == plain
    assert records.decode_subscription(plain + b"\x78\x05" + b"\x82\x01\x02HA", PATH) == Subscription(
        shared.consumed, shared.preferences
    ), "fields of a later format are not ours to guess"


def test_subscriptions_of_old_hubs_are_read() -> None:
    assert records.decode_subscription(bytes.fromhex("0a020802"), PATH) == Subscription(
        an_id(2), Preferences(message_bound=0)
    )
    assert records.decode_subscription(bytes.fromhex("0a0208021007"), PATH) == Subscription(
        an_id(2), Preferences(message_bound=7)
    )


def test_damage_is_told_with_the_znode() -> None:
    for decode, data in (
        (records.decode_hub_info, b"hostname: 12"),
        (records.decode_hub_info, b"nonsense"),
        (records.decode_hub_info, b'hostname: "hub:x"\nczxid: 1\n'),
        (records.decode_load, b"many"),
        (records.decode_layout, b"\xff\xfe"),
        (records.decode_ranges, b"\x0a\x02\x18\x01"),
        (records.decode_ranges, b"\xff"),
        (records.decode_subscription, b"\xff\xff"),
    ):
        with pytest.raises(UnexpectedCondition, match=PATH):
            decode(data, PATH)


def test_a_retention_is_one_field_a_line_and_anything_else_is_refused() -> None:
    for keep_ms in (0, 604_800_000, 2**62):
        for set_by in (LocalId(0), LocalId(17), LocalId(2**62)):
            named = NamedKeep(keep_ms, set_by)
            assert records.decode_retention(records.encode_retention(named), PATH) == named
    assert records.encode_retention(NamedKeep(5)) == b"keep_ms: 5\n"
    assert records.encode_retention(NamedKeep(5, LocalId(6))) == b"keep_ms: 5\nset_by: 6\n"
    refused = (b"", b"keep_ms: \n", b"keep_ms: -1\n", b"keep_ms: 5\nkeep_ms: 6\n", b"\xff" * 2000)
    for data in (*refused, b"keep_ms: 5set_by: 6\n", b"keep_ms: 5\nset_by: x\n", b"set_by: 6\n"):
        with pytest.raises(UnexpectedCondition, match=r"x cannot be read: want keep_ms: NUMBER"):
            records.decode_retention(data, PATH)
