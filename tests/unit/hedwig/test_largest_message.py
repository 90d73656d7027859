"""The largest message that a hub accepts can be received in every form in which hubs send it."""

from __future__ import annotations

from unittest import mock

import pytest
from twisted.internet.task import Clock

from bookkeeper.ports import Network
from bookkeeper.wire.entry_size import payload_size_max
from hedwig.hub.regions.sources import client_of
from hedwig.hub.subscriptions.dead_letters import letter_of
from hedwig.hub.topics.log import _REGION_SIZE, _STAMP_SIZE_MAX
from hedwig.model import HubAddress, LocalId, MessageId, SubscriberId, Topic
from hedwig.names import NAME_SIZE_MAX
from hedwig.protocol.acknowledgements import Dead
from hedwig.protocol.options import ATTEMPT, DEAD_TOPIC
from hedwig.protocol.subscription import REMOTE_SIZE_MAX
from hedwig.wire.framing import FRAME_ALLOWANCE, FRAME_SIZE_MAX_CLIENT, FrameDecoder
from hedwig.wire.messages import Message, Stamp, encode_message
from hedwig.wire.receiving import DELIVERY_HEAD
from hedwig.wire.requests import PublishEncoder
from hedwig.wire.responses import DeliveryEncoder
from hedwig.wire.view import header_part

LIMIT = 100_000
TOPIC, TARGET = Topic(b"t" * NAME_SIZE_MAX), Topic(b"d" * NAME_SIZE_MAX)
SUBSCRIBER = SubscriberId(b"s" * NAME_SIZE_MAX)
REGION = b"r" * NAME_SIZE_MAX
LAST = LocalId(2**63 - 1)
TIME_MS = 10**14
REMOTE = tuple((b"%0*d" % (REMOTE_SIZE_MAX // 16 - _REGION_SIZE, number), 2**63 - 1) for number in range(16))
HEADER = {"color": b"green"}


def published(topic: Topic, message: bytes) -> bytes:
    return b"".join(PublishEncoder(topic).frames(2**62, [message], should_claim=True))


def largest(properties: dict[str, bytes]) -> bytes:
    """Return the largest message that a hub accepts."""
    around = len(published(TOPIC, encode_message(Message(bytes(LIMIT), properties)))) - LIMIT
    message = encode_message(Message(bytes(LIMIT - around), properties))
    assert LIMIT - 2 <= len(published(TOPIC, message)) <= LIMIT
    return message


def stored_forms(message: bytes) -> list[bytes]:
    """Return a message as hubs store it: published here, from another region, with an attempt in its header."""
    stamp = Stamp(REGION)
    one = stamp.any(message, MessageId(LAST, REMOTE), TIME_MS)
    foreign, _ = stamp.foreign(one, MessageId(LocalId(LAST - 1), REMOTE[1:]), TIME_MS)
    return [one, foreign, one + header_part({ATTEMPT: b"%d" % 2**62})]


def received_by_a_client(stored: bytes) -> bool:
    decoder = FrameDecoder(LIMIT + FRAME_ALLOWANCE, passed_over=DELIVERY_HEAD)
    (frame,) = decoder.receive(b"".join(DeliveryEncoder(TOPIC, SUBSCRIBER).parts([stored])))
    return stored in frame


@pytest.mark.parametrize("properties", [{}, HEADER])
def test_every_delivery_of_the_largest_message_is_received_whole(properties: dict[str, bytes]) -> None:
    message = largest(properties)
    for stored in stored_forms(message):
        assert received_by_a_client(stored)
    plain = Stamp(REGION).plain([largest({})], LAST, TIME_MS, REMOTE)
    assert received_by_a_client(plain[0])
    added = _STAMP_SIZE_MAX + len(REGION) + sum(len(region) + _REGION_SIZE for region, _ in REMOTE)
    assert len(plain[0]) <= len(largest({})) + added
    assert len(stored_forms(message)[0]) <= len(message) + added
    assert added < FRAME_ALLOWANCE


@pytest.mark.parametrize("properties", [{}, HEADER])
def test_a_dead_letter_of_the_largest_message_is_accepted_and_delivered(properties: dict[str, bytes]) -> None:
    stored = stored_forms(largest(properties))[0]
    letter = letter_of(stored, TOPIC, SUBSCRIBER, Dead(LAST, 2**31))
    frame = published(TARGET, letter)
    assert len(frame) > LIMIT
    hub = FrameDecoder(LIMIT, longer=DEAD_TOPIC.encode())
    assert [len(each) for each in hub.receive(frame + frame)] == [len(frame) - 4] * 2
    assert hub.error is None
    for again in stored_forms(letter):
        assert received_by_a_client(again)
    of_a_letter = letter_of(stored_forms(letter)[0], TARGET, SUBSCRIBER, Dead(LAST, 2**31))
    assert len(of_a_letter) <= len(letter), "a letter of a letter keeps the first address, so it does not grow"


@pytest.mark.parametrize("chunk", [1 << 20, 1000])
def test_a_hub_accepts_only_dead_letters_above_its_limit(chunk: int) -> None:
    message = largest({})
    for data, error in (
        (published(TOPIC, message + b"\x22\x00xx"), "a frame of 100000 bytes; at most 99996 are accepted"),
        (published(TOPIC, encode_message(Message(bytes(LIMIT + FRAME_ALLOWANCE), {DEAD_TOPIC: b"t"}))), "a frame of"),
    ):
        hub = FrameDecoder(LIMIT, longer=DEAD_TOPIC.encode())
        good = published(TOPIC, message)
        whole = good + data
        found = [each for at in range(0, len(whole), chunk) for each in hub.receive(whole[at : at + chunk])]
        assert found == [good[4:]]
        assert error in str(hub.error)
        assert hub.buffered == 0


def test_a_hub_receives_nothing_from_another_region_that_it_could_not_store() -> None:
    """Such a message would fail the topic here, and be delivered again."""
    network: Network = mock.create_autospec(Network, instance=True)
    stored_size_max = payload_size_max(1 << 20)
    client = client_of(Clock(), network, HubAddress("h", 1), tls=False, stored_size_max=stored_size_max)
    received = client.settings.frame_size_max + FRAME_ALLOWANCE
    assert received + FRAME_ALLOWANCE <= stored_size_max
    usual = client_of(Clock(), network, HubAddress("h", 1), tls=False, stored_size_max=payload_size_max(5 << 20))
    assert usual.settings.frame_size_max == FRAME_SIZE_MAX_CLIENT
