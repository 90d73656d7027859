"""What hubs keep in the metadata, as bytes: owners, loads and the layout as protobuf text, the rest in binary.

    hosts/<hub>                numTopics: 3
    topics/<topic>/hub         hostname: "10.0.0.1:4080:9876"  czxid: 27          one field a line
    topics/<topic>/ledgers     LedgerRanges
    topics/<topic>/subscribers/<subscriber>   SubscriptionData
    topics/<topic>/hw.retention   keep_ms: 604800000  set_by: 17   one field a line; not of Apache's
    managers/METADATA/LAYOUT   managerImpl: "..."  managerVersion: 1

Also read: the plain forms of hubs of 4.0 and 4.1. Every function raises UnexpectedCondition, naming the znode, for what
cannot be read: that is never taken for absent. Source: hedwig/PROTOCOL.md 2.14, 4, 9.4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.textproto import parse_text
from hedwig.errors import UnexpectedCondition
from hedwig.model import (
    FIRST_ID,
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
from hedwig.wire.framing import read_varint, varint
from hedwig.wire.messages import decode_id, id_message
from hedwig.wire.requests import decode_preferences, encode_preferences

M = TypeVar("M", bound=Message)

ZOOKEEPER_MANAGER = "org.apache.hedwig.server.meta.ZkMetadataManagerFactory"
"""What the layout says where the metadata is in ZooKeeper as drawn above."""

MANAGER_VERSION = 1


def _unreadable(path: str, why: object) -> UnexpectedCondition:
    return UnexpectedCondition(f"{path} cannot be read: {why}; restore it, or remove the znode if it may go")


def _text(message: Message) -> bytes:
    return text_format.MessageToString(message).encode()


def _from_text(data: bytes, message: M, path: str) -> M:
    try:
        return parse_text(data, message, path)
    except MetadataCorrupt as error:
        raise _unreadable(path, str(error).removeprefix(f"{path}: ")) from error


def _from_binary(data: bytes, message: M, path: str) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _unreadable(path, error) from error
    if not message.IsInitialized():
        raise _unreadable(path, f"{message.DESCRIPTOR.name} lacks a required field")
    return message


# --- hubs


def parse_address(text: str) -> HubAddress:
    """host:port or host:port:sslport. Raises ValueError."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not parts[0]:
        raise ValueError(f"{text!r} is no address of a hub: want host:port or host:port:sslport")
    try:
        port, ssl_port = int(parts[1]), int(parts[2]) if len(parts) == 3 else -1
    except ValueError:
        raise ValueError(f"{text!r} is no address of a hub: its ports are not numbers") from None
    if not 0 < port < 65536 or not (ssl_port == -1 or 0 < ssl_port < 65536):
        raise ValueError(f"{text!r} is no address of a hub: ports are from 1 to 65535")
    return HubAddress(parts[0], port, None if ssl_port == -1 else ssl_port)


def encode_hub_info(info: HubInfo) -> bytes:
    """Who owns a topic."""
    return _text(pb.HubInfoData(hostname=str(info.address), czxid=info.creation_id))


def decode_hub_info(data: bytes, path: str) -> HubInfo:
    """From text, or the plain address of an old hub, whose creation id is 0."""
    try:
        if not data.startswith(b"hostname"):
            return HubInfo(parse_address(data.decode().strip()), 0)
        found = _from_text(data, pb.HubInfoData(), path)
        return HubInfo(parse_address(found.hostname), found.czxid)
    except ValueError as error:
        raise _unreadable(path, error) from error


_PLAIN_LOAD = re.compile(rb"\s*[0-9]{1,19}\s*")


def encode_load(topic_count: int) -> bytes:
    """How many topics a hub serves."""
    return _text(pb.HubLoadData(numTopics=topic_count))


def decode_load(data: bytes, path: str) -> int:
    """From text, or the plain number of an old hub."""
    if _PLAIN_LOAD.fullmatch(data) is not None:
        return int(data)
    return _from_text(data, pb.HubLoadData(), path).numTopics


def encode_layout(manager: str = ZOOKEEPER_MANAGER, version: int = MANAGER_VERSION) -> bytes:
    """Which kind of metadata there is."""
    return _text(pb.ManagerMeta(managerImpl=manager, managerVersion=version))


def decode_layout(data: bytes, path: str) -> tuple[str, int]:
    """The manager and its version."""
    found = _from_text(data, pb.ManagerMeta(), path)
    return found.managerImpl, found.managerVersion


# --- topics


def encode_ranges(ranges: Sequence[LedgerRange]) -> bytes:
    """The ledgers of a topic, in order."""
    found = pb.LedgerRanges()
    for each in ranges:
        one = found.ranges.add(ledgerId=each.ledger_id)
        if each.last is not None:
            one.endSeqIdIncluded.CopyFrom(id_message(each.last))
        if each.first is not None:
            one.startSeqIdIncluded = each.first
    return found.SerializeToString()


def decode_ranges(data: bytes, path: str) -> list[LedgerRange]:
    """From binary; what it says of their order is for the topic to judge."""
    return [
        LedgerRange(
            each.ledgerId,
            LocalId(each.startSeqIdIncluded) if each.HasField("startSeqIdIncluded") else None,
            decode_id(each.endSeqIdIncluded) if each.HasField("endSeqIdIncluded") else None,
        )
        for each in _from_binary(data, pb.LedgerRanges(), path).ranges
    ]


def encode_retention(named: NamedKeep) -> bytes:
    """Encode the retention of a topic, which is not None."""
    assert named.keep_ms is not None
    set_by = b"set_by: %d\n" % named.set_by if named.set_by else b""
    return b"keep_ms: %d\n%b" % (named.keep_ms, set_by)


def decode_retention(data: bytes, path: str) -> NamedKeep:
    """Decode the retention of a topic."""
    found = _RETENTION.fullmatch(data)
    if found is None:
        raise _unreadable(path, f"want keep_ms: NUMBER, found {data[:40]!r}")
    return NamedKeep(int(found[1]), LocalId(int(found[2] or 0)))


_RETENTION = re.compile(rb"keep_ms: ([0-9]{1,19})(?:\n(?:set_by: ([0-9]{1,19})\n)?)?")


# --- subscriptions


GONE = "hw.gone"
"""Option of a subscription: deleted messages, as `encode_gone` writes them (hedwig/protocol/options.py)."""

_ID_MAX = 2**63 - 1


def encode_gone(gone: Gone) -> bytes:
    """As text: both ids in decimal, with a hyphen."""
    return b"%d-%d" % gone[:2]


def decode_gone(value: bytes | None) -> Gone | None:
    """None where it is absent, or of another program, with another meaning."""
    first, _, last = (value or b"").partition(b"-")
    if not (first.isdigit() and last.isdigit() and len(first) < 20 and len(last) < 20):
        return None
    found = Gone(LocalId(int(first)), LocalId(int(last)))
    return found if FIRST_ID <= found.first <= found.last <= _ID_MAX else None


def encode_subscription(subscription: Subscription) -> bytes:
    """State and preferences, both always there; and what is acknowledged one by one, if something is.

    Deleted messages are an option, since Apache's hubs keep all options.
    """
    found = pb.SubscriptionData()
    found.state.msgId.CopyFrom(id_message(subscription.consumed))
    preferences = subscription.preferences
    if subscription.gone is not None:
        preferences = preferences.merged(Preferences(options={GONE: encode_gone(subscription.gone)}))
    found.preferences.CopyFrom(encode_preferences(preferences))
    data = found.SerializeToString()
    if isinstance(subscription, SharedSubscription) and subscription.acknowledged:
        data += b"%b%b%b" % (_ACKNOWLEDGED_TAG, varint(len(subscription.acknowledged)), subscription.acknowledged)
    return data


# A field that Apache's SubscriptionData does not have: its hubs skip it, and what they do with the position is right
# all the same. It is of one write with the position.
_ACKNOWLEDGED_TAG = b"\x7a"
_ACKNOWLEDGED_HEAD = b"HA"


def _acknowledged(data: bytes) -> bytes:
    """The snapshot in a whole SubscriptionData; empty where there is none."""
    if _ACKNOWLEDGED_HEAD not in data:
        return b""
    position, end = 0, len(data)
    while position < end:
        tag = data[position : position + 1]
        if data[position] & 7 != 2 or data[position] >= 0x80:
            return b""  # a field of a later format: what is behind it is not ours to guess
        size, position = read_varint(data, position + 1)
        if tag == _ACKNOWLEDGED_TAG:
            return data[position : position + size]
        position += size
    return b""


def decode_subscription(data: bytes, path: str) -> Subscription:
    """From binary, or the bare state of a hub of 4.0 or 4.1, which has a bound in it or none (0)."""
    found = pb.SubscriptionData()
    try:
        found.ParseFromString(data)
        whole = found.IsInitialized() and found.HasField("state")
    except DecodeError:
        whole = False
    if whole:
        try:
            consumed, preferences = decode_id(found.state.msgId), decode_preferences(found.preferences)
        except UnicodeDecodeError as error:
            raise _unreadable(path, f"its preferences have a text that is not UTF-8: {error}") from error
        gone = None
        if GONE in preferences.options:
            options = {name: value for name, value in preferences.options.items() if name != GONE}
            gone = decode_gone(preferences.options[GONE])
            preferences = replace(preferences, options=options)
            if gone is not None and gone.last > consumed.local:
                gone = None  # the position was moved back by another program
        acknowledged = _acknowledged(data)
        return (
            SharedSubscription(consumed, preferences, acknowledged, gone=gone)
            if acknowledged
            else Subscription(consumed, preferences, gone=gone)
        )
    if not data:
        return Subscription(MessageId(LocalId(0)), Preferences(message_bound=0))
    old = _from_binary(data, pb.SubscriptionState(), path)
    return Subscription(decode_id(old.msgId), Preferences(message_bound=old.messageBound))
