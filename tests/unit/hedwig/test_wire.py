"""Frames against the hedwig/PROTOCOL.md 9.1-9.4, and the two ways through a publish against each other."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from bookkeeper.errors import RemoteProtocolError
from hedwig.model import (
    Event,
    LocalId,
    MessageId,
    Preferences,
    Status,
    SubscribeMode,
    SubscriberId,
    Topic,
)
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.protocol.options import TIME
from hedwig.wire import framing, receiving, requests
from hedwig.wire.framing import FrameDecoder, framed, read_varint, varint
from hedwig.wire.messages import Message, Stamp, decode_message, encode_message, header_at, is_plain, remote_of
from hedwig.wire.receiving import DELIVERY_HEAD, Deliveries, ResponseDecoder, TooLarge
from hedwig.wire.requests import (
    CloseSubscription,
    Consume,
    Malformed,
    PublishEncoder,
    Publishes,
    Request,
    Subscribe,
    Unsubscribe,
    close_subscription_frame,
    consume_frame,
    decode_request,
    decode_requests,
    publish_frame,
    subscribe_frame,
    unsubscribe_frame,
)
from hedwig.wire.responses import (
    Answer,
    Delivery,
    DeliveryEncoder,
    Told,
    decode_response,
    error_frame,
    event_frame,
    published_frames,
    subscribed_frame,
    success_frame,
)

TOPIC, SUB = Topic(b"topic1"), SubscriberId(b"sub1")
HELLO = encode_message(Message(b"hello"))
STORED = bytes.fromhex("0a0568656c6c6f120a7374616e64616c6f6e651a020801")


def payload(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    return frame[4:]


def payload_hex(frame: bytes) -> str:
    return payload(frame).hex()


# --- hedwig/PROTOCOL.md 9


def test_a_publish_is_the_genuine_clients() -> None:
    expected = "080110002001280032" + "06746f70696331" + "a20309" + "1207" + "0a0568656c6c6f"
    (frame,) = PublishEncoder(TOPIC).frames(1, [HELLO])
    assert payload_hex(frame) == expected
    assert publish_frame(1, TOPIC, HELLO) == frame
    redirected = publish_frame(2, TOPIC, HELLO, tried=[b"127.0.0.1:4080"], should_claim=True)
    assert payload_hex(redirected) == (
        "080110001a0e3132372e302e302e313a34303830200228013206746f70696331a2030912070a0568656c6c6f"
    )


def test_requests_of_subscribers_are_the_genuine_clients() -> None:
    mode = SubscribeMode.CREATE_OR_ATTACH
    assert payload_hex(subscribe_frame(1, TOPIC, SUB, mode, Preferences())) == (
        "08011001200128003206746f70696331aa030e1204737562311802200132003800"
    )
    preferences = Preferences(message_bound=7, window_size=3, options={"k": b"v"})
    frame = subscribe_frame(1, Topic(b"tfsimple"), SubscriberId(b"fs"), mode, preferences)
    assert payload_hex(frame) == (
        "08011001200128003208746673696d706c65aa031c12026673180220012807320e0a080a060a016b120176100720033800"
    )
    assert payload_hex(consume_frame(3, TOPIC, SUB, MessageId(LocalId(1)))) == (
        "0801100220033206746f70696331b2030a1204737562311a020801"
    )
    assert payload_hex(unsubscribe_frame(7, TOPIC, SUB)) == "08011003200728003206746f70696331ba0306120473756231"
    assert payload_hex(close_subscription_frame(6, TOPIC, SUB)) == "08011006200628003206746f70696331d20306120473756231"


def test_responses_are_the_genuine_hubs() -> None:
    assert payload_hex(published_frames([1], LocalId(1))) == "080110001801420" + "60a040a020801"
    assert payload_hex(subscribed_frame(1, Preferences())) == "080110001801420412021200"
    preferences = Preferences(message_bound=7, window_size=3, options={"k": b"v"})
    assert payload_hex(subscribed_frame(1, preferences)) == "08011000180142121210120e0a080a060a016b12017610072003"
    assert payload_hex(success_frame(7)) == "080110001807"
    redirect = error_frame(1, Status.NOT_RESPONSIBLE_FOR_TOPIC, "127.0.0.1:14081:19877")
    assert payload_hex(redirect) == "080110f503180122153132372e302e302e313a31343038313a3139383737"
    assert payload_hex(error_frame(8, Status.CLIENT_NOT_SUBSCRIBED, "")) == "080110940318082200"
    assert payload_hex(error_frame(1, Status.MALFORMED_REQUEST, "Missing publish request data")) == (
        "08011091031801221c4d697373696e67207075626c69736820726571756573742064617461"
    )
    moved = event_frame(TOPIC, SUB, Event.TOPIC_MOVED)
    assert payload_hex(moved) == "0801100018003206746f706963313a047375623142041a020801"
    forced = event_frame(TOPIC, SUB, Event.SUBSCRIPTION_FORCED_CLOSED)
    assert payload_hex(forced) == "0801100018003206746f706963313a047375623142041a020802"


def test_a_message_is_stored_and_delivered_as_by_the_genuine_hub() -> None:
    stamp = Stamp(b"standalone")
    assert stamp.plain([HELLO], LocalId(1)) == [STORED]
    assert stamp.any(HELLO, MessageId(LocalId(1))) == STORED
    frame = b"".join(DeliveryEncoder(TOPIC, SUB).parts([STORED]))
    assert payload_hex(frame) == (
        "0801100018002a170a0568656c6c6f120a7374616e64616c6f6e651a0208013206746f706963313a0473756231"
    )


# --- there and back


def test_requests_are_read_as_they_were_written() -> None:
    preferences = Preferences(5, "a.Filter", 4, {"a": b"1"})
    frames = [
        payload(subscribe_frame(3, TOPIC, SUB, SubscribeMode.ATTACH, preferences, force=True, should_claim=True)),
        payload(subscribe_frame(3, TOPIC, SUB, SubscribeMode.CREATE, Preferences(), reads_gone=True)),
        payload(subscribe_frame(3, TOPIC, SUB, SubscribeMode.CREATE_OR_ATTACH, Preferences(5), window_if_none=9)),
        payload(subscribe_frame(3, TOPIC, SUB, SubscribeMode.ATTACH, Preferences(), window_if_none=0)),
        payload(consume_frame(4, TOPIC, SUB, MessageId(LocalId(300), ((b"r1", 7),)))),
        payload(unsubscribe_frame(5, TOPIC, SUB)),
        payload(close_subscription_frame(6, TOPIC, SUB)),
    ]
    assert decode_requests(frames) == [
        Subscribe(3, TOPIC, True, SUB, SubscribeMode.ATTACH, True, preferences, 5, True),
        Subscribe(3, TOPIC, False, SUB, SubscribeMode.CREATE, True, Preferences(), None, False, True),
        Subscribe(3, TOPIC, False, SUB, SubscribeMode.CREATE_OR_ATTACH, True, Preferences(5), 5, False, False, 9),
        Subscribe(3, TOPIC, False, SUB, SubscribeMode.ATTACH, True, Preferences(), None, False, False, 0),
        Consume(4, TOPIC, SUB, MessageId(LocalId(300), ((b"r1", 7),))),
        Unsubscribe(5, TOPIC, False, SUB),
        CloseSubscription(6, TOPIC, False, SUB),
    ]


@pytest.mark.parametrize("mode", SubscribeMode)
def test_hubs_that_skip_the_clients_window_find_it_where_a_subscription_may_be_made(mode: SubscribeMode) -> None:
    frame = payload(subscribe_frame(3, TOPIC, SUB, mode, Preferences(5), window_if_none=9))
    found = pb.PubSubRequest.FromString(frame).subscribeRequest
    assert found.preferences.messageBound == 5
    if mode is SubscribeMode.ATTACH:
        assert not found.preferences.HasField("messageWindowSize")
    else:
        assert found.preferences.messageWindowSize == 9
    assert found.windowIfNone == 9


def test_responses_are_read_as_they_were_written() -> None:
    message_id = MessageId(LocalId(200), ((b"r1", 7),))
    assert decode_response(payload(published_frames([9], LocalId(200), ((b"r1", 7),)))) == Answer(
        9, Status.SUCCESS, "", message_id
    )
    assert decode_response(payload(subscribed_frame(2, Preferences(window_size=0)))) == Answer(
        2, Status.SUCCESS, "", None, Preferences(window_size=0)
    )
    assert decode_response(payload(error_frame(2, Status.TOPIC_BUSY, "why"))) == Answer(2, Status.TOPIC_BUSY, "why")
    assert decode_response(payload(event_frame(TOPIC, SUB, Event.TOPIC_MOVED))) == Told(TOPIC, SUB, Event.TOPIC_MOVED)
    message = Message(b"body", {"k": b"v"}, "kind", message_id, b"standalone")
    frame = b"".join(DeliveryEncoder(TOPIC, SUB).parts([encode_message(message)]))
    assert decode_response(payload(frame)) == Delivery(TOPIC, SUB, message)


def test_what_names_too_much_is_malformed_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    preferences = Preferences(options={f"{number}": b"" for number in range(60_000)})
    message_id = MessageId(LocalId(1), tuple((b"%d" % number, 1) for number in range(60_000)))
    subscribe = subscribe_frame(1, TOPIC, SUB, SubscribeMode.ATTACH, preferences)
    consume = consume_frame(2, TOPIC, SUB, message_id)
    monkeypatch.setattr(requests, "decode_preferences", None)
    monkeypatch.setattr(requests, "decode_id", None)
    found = decode_requests([payload(subscribe), payload(consume)])
    texts = [each.text for each in found if isinstance(each, Malformed)]
    assert [text.partition(",")[0] for text in texts] == ["the subscribe has 60", "the id of a consume has 60"]


def test_what_lacks_its_part_or_has_no_such_type_is_malformed_in_javas_words() -> None:
    for kind, text in (
        (pb.PUBLISH, "Missing publish request data"),
        (pb.SUBSCRIBE, "Missing subscribe request data"),
        (pb.CONSUME, "Missing consume request data"),
        (pb.UNSUBSCRIBE, "Missing unsubscribe request data"),
        (pb.CLOSESUBSCRIPTION, "Missing closesubscription request data"),
        (pb.START_DELIVERY, "Request type 4 unknown"),
        (pb.STOP_DELIVERY, "Request type 5 unknown"),
    ):
        found = pb.PubSubRequest(protocolVersion=pb.VERSION_ONE, type=kind, txnId=8, topic=b"t")
        assert decode_request(found.SerializeToString()) == Malformed(8, Topic(b"t"), False, text)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xff\xff", bytes.fromhex("0801"), bytes.fromhex("080110632001320174"), bytes.fromhex("080210002001320174")],
    ids=["empty", "no protobuf", "fields missing", "unknown type", "unknown version"],
)
def test_what_is_no_request_ends_the_connection(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_requests([frame])


# --- publishes: the short way and protobuf's


def random_message(rng: random.Random) -> bytes:
    message = pb.Message(body=rng.randbytes(rng.choice((0, 1, 5, 127, 128, 300))))
    if rng.random() < 0.3:
        message.header.properties.entries.add(key="k", value=b"v")
    if rng.random() < 0.2:
        message.msgId.localComponent = rng.randrange(1 << 40)
    if rng.random() < 0.1:
        message.srcRegion = b"elsewhere"
    return message.SerializeToString()


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_publishes_are_what_protobuf_reads_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    frames, expected = [], []
    for _ in range(40):
        message = random_message(rng)
        topic, claim = Topic(rng.choice((b"a", b"b" * 130))), rng.random() < 0.3
        txn_id = rng.choice((1, 127, 128, 1 << 40))
        tried = [b"h:1"] if rng.random() < 0.2 else []
        if rng.random() < 0.5 and not tried:
            (frame,) = PublishEncoder(topic).frames(txn_id, [message], should_claim=claim)
        else:
            frame = publish_frame(txn_id, topic, message, tried=tried, should_claim=claim)
        frames.append(payload(frame))
        expected.append((topic, claim, txn_id, message))
    found = []
    for request in decode_requests(frames):
        assert isinstance(request, Publishes)
        assert request.plain == all(is_plain(message) for message in request.messages)
        found += [
            (request.topic, txn_id, message) for txn_id, message in zip(request.txn_ids, request.messages, strict=True)
        ]
    topics = list(dict.fromkeys(topic for topic, *_ in expected))
    sent = [(topic, txn_id, message) for topic, _, txn_id, message in expected]
    assert found == sorted(sent, key=lambda each: topics.index(each[0])), "each topic's in their order, together"
    for frame, (topic, claim, txn_id, message) in zip(frames, expected, strict=True):
        plain = is_plain(message)
        assert decode_request(frame) == Publishes(topic, claim, plain, [txn_id], [message])
        assert decode_requests([frame]) == [Publishes(topic, claim, plain, [txn_id], [message])]


def test_publishes_do_not_pass_other_requests() -> None:
    first, second = ([payload(each) for each in PublishEncoder(TOPIC).frames(10 * at, [HELLO] * 2)] for at in (1, 2))
    between = payload(subscribe_frame(5, TOPIC, SUB, SubscribeMode.CREATE, Preferences()))
    found = decode_requests([*first, between, *second])
    assert [request.txn_ids if isinstance(request, Publishes) else request.txn_id for request in found] == [
        [10, 11],
        5,
        [20, 21],
    ]


def test_a_frame_cut_anywhere_or_with_a_changed_byte_is_never_read_in_two_ways() -> None:
    (frame,) = PublishEncoder(TOPIC).frames(300, [HELLO], should_claim=True)
    whole = payload(frame)
    rng = random.Random(1)
    variants = [whole[:cut] for cut in range(len(whole))]
    variants += [
        whole[:at] + bytes([rng.randrange(256)]) + whole[at + 1 :] for at in range(len(whole)) for _ in range(20)
    ]
    for variant in variants:
        outcomes: list[list[Request] | None] = []
        for in_a_run in (True, False):
            try:
                outcomes.append(decode_requests([variant]) if in_a_run else [decode_request(variant)])
            except RemoteProtocolError:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1], variant.hex()


def test_a_header_that_is_none_ends_the_connection_and_is_never_stored() -> None:
    message = encode_message(Message(b"x", {"k": b"value"}))
    assert header_at(message) == 3
    (frame,) = PublishEncoder(TOPIC).frames(1, [message])
    (found,) = decode_requests([payload(frame)])
    assert found == decode_request(payload(frame)) == Publishes(TOPIC, False, False, [1], [message])
    for at in range(3, len(message)):
        for changed in range(0, 256, 3):
            broken = message[:at] + bytes([changed]) + message[at + 1 :]
            (frame,) = PublishEncoder(TOPIC).frames(1, [broken])
            both: list[object] = []
            for decode in (lambda data: decode_requests([data])[0], decode_request):
                try:
                    request = decode(payload(frame))
                    assert isinstance(request, Publishes)
                    both.append([pb.Message.FromString(each) for each in request.messages])
                except RemoteProtocolError:
                    both.append(None)
            assert both[0] == both[1], broken.hex()


# --- stamps


@pytest.mark.parametrize("seed", range(10))
def test_the_short_stamp_is_protobufs(seed: int) -> None:
    rng = random.Random(seed)
    stamp = Stamp(b"region-1")
    bodies = [rng.randbytes(rng.choice((0, 1, 127, 128, 20000))) for _ in range(5)]
    first = LocalId(rng.choice((1, 126, 16383, 1 << 40)))
    messages = [encode_message(Message(body)) for body in bodies]
    assert all(map(is_plain, messages))
    assert stamp.plain(messages, first) == [
        stamp.any(message, MessageId(LocalId(first + index))) for index, message in enumerate(messages)
    ]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("time_ms", [None, 1_700_000_000_000])
def test_a_message_with_a_header_is_stamped_as_protobuf_would(
    seed: int, time_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ways to a stored form say the same, a header is one field, and what a publisher says of the time is gone."""
    rng = random.Random(seed)
    stamp = Stamp(b"region-1")
    for _ in range(20):
        properties = {f"k{n}": rng.randbytes(rng.choice((0, 1, 100, 200))) for n in range(rng.randrange(4))}
        if rng.random() < 0.2 and time_ms is not None:
            properties["hw.time"] = b"1"
        kind = rng.choice((None, None, "kind"))
        published = Message(rng.randbytes(rng.choice((0, 1, 127, 128, 20000))), properties, kind)
        data = encode_message(published)
        local = LocalId(rng.choice((1, 126, 16383, 1 << 40)))
        at = header_at(data)
        assert at is not None
        remote = tuple((b"r%d" % n, rng.choice((1, 1 << 40))) for n in range(rng.choice((0, 1, 30))))
        for message_id in (MessageId(local, remote), MessageId(local, remote[:1]), MessageId(local)):
            found = stamp.headed(data, at, message_id, time_ms)
            told = properties if time_ms is None else {**properties, TIME: b"1700000000000"}
            expected = Message(published.body, told, kind, message_id, b"region-1")
            assert decode_message(found) == expected == decode_message(stamp.any(data, message_id, time_ms))
            if is_plain(data):
                assert found == stamp.plain([data], local, time_ms, message_id.remote)[0]
            frame = payload(b"".join(DeliveryEncoder(TOPIC, SUB).parts([found])))
            decoder = ResponseDecoder()
            decoder.decode([frame] * 2)  # it learns the region and the subscription from them
            with monkeypatch.context() as patched:
                if len(message_id.remote) < 2:
                    patched.setattr(receiving, "_slow", lambda _: pytest.fail("a stored message is read the long way"))
                (batch,) = decoder.decode([frame])
            assert isinstance(batch, receiving.Deliveries)
            [message] = batch.messages
            assert (message.body, dict(message.properties), message.id) == (published.body, told, message_id)


def test_where_a_header_begins_is_said_of_usual_messages_alone() -> None:
    assert header_at(HELLO) == len(HELLO)
    for unusual in (b"", b"\x0a", STORED, HELLO[:-1], HELLO + b"\x22\x05a", b"\x22\x00" + HELLO):
        assert header_at(unusual) is None


def test_a_stamp_replaces_region_and_id_and_keeps_header_and_remote_regions_apart() -> None:
    published = Message(b"x", {"k": b"v"}, "kind", MessageId(LocalId(99), ((b"r1", 7),)), b"forged")
    data = encode_message(published)
    assert remote_of(data, 1) == ((b"r1", 7),)
    with pytest.raises(RemoteProtocolError, match="has 1 other regions; at most 0 are allowed"):
        remote_of(data, 0)
    message_id = MessageId(LocalId(3), ((b"r1", 7), (b"r2", 1)))
    stored = decode_message(Stamp(b"here").any(data, message_id))
    assert stored == Message(b"x", {"k": b"v"}, "kind", message_id, b"here")


@pytest.mark.parametrize("time_ms", [None, 1_700_000_000_000])
def test_a_message_of_another_region_keeps_its_region_and_its_number_there_is_noted(time_ms: int | None) -> None:
    there = Message(b"x", {"k": b"v"}, "kind", MessageId(LocalId(9), ((b"third", 5), (b"here", 3))), b"there")
    last = MessageId(LocalId(41), ((b"third", 2),))
    stored, message_id = Stamp(b"here").foreign(encode_message(there), last, time_ms)
    told = {"k": b"v"} if time_ms is None else {"k": b"v", TIME: b"1700000000000"}
    assert decode_message(stored) == Message(b"x", told, "kind", message_id, b"there")
    assert (message_id.local, dict(message_id.remote)) == (42, {b"third": 2, b"there": 9}), (
        "not what is there of others"
    )
    again, next_id = Stamp(b"here").foreign(stored, message_id, time_ms)
    assert dict(next_id.remote) == {b"third": 2, b"there": 42}
    assert dict(decode_message(again).properties) == told, "one time"


@pytest.mark.parametrize("remote", [(), ((b"r1", 7), (b"r2", 1 << 40))])
@pytest.mark.parametrize("properties", [{}, {"k": b"v" * 200}])
def test_a_received_message_has_the_form_that_was_stored(
    properties: dict[str, bytes], remote: tuple[tuple[bytes, int], ...]
) -> None:
    message = Message(b"b" * 300, properties, "kind" if properties else None, MessageId(LocalId(300), remote), b"here")
    stored = encode_message(message)
    frame = payload(b"".join(DeliveryEncoder(TOPIC, SUB).parts([stored])))
    decoder = ResponseDecoder()
    batches = [batch for _ in range(2) for batch in decoder.decode([frame, frame])]
    messages = [each for batch in batches if isinstance(batch, receiving.Deliveries) for each in batch.messages]
    assert [each.stored_form() for each in messages] == [stored] * 4


def test_remote_regions_are_merged_by_the_greater_number() -> None:
    message_id = MessageId(LocalId(3), ((b"r1", 7), (b"r2", 1)))
    assert message_id.merged(()) == message_id
    merged = message_id.merged(((b"r2", 5), (b"r3", 2), (b"r1", 6)))
    assert dict(merged.remote) == {b"r1": 7, b"r2": 5, b"r3": 2}
    assert str(message_id) == "local:3;r1:7;r2:1"


# --- frames


@pytest.mark.parametrize("seed", range(10))
def test_frames_come_out_however_the_bytes_arrive(seed: int) -> None:
    rng = random.Random(seed)
    frames = [rng.randbytes(rng.choice((0, 1, 3, 100, 5000))) for _ in range(30)]
    data = b"".join(map(framed, frames))
    decoder = FrameDecoder(6000)
    found: list[bytes] = []
    position = 0
    while position < len(data):
        size = rng.choice((1, 2, 3, 4, 5, 70, 4000))
        found += decoder.receive(data[position : position + size])
        position += size
    assert found == frames
    assert decoder.buffered == 0


def test_the_bound_counts_the_length_and_is_told_before_the_frame_arrives() -> None:
    decoder = FrameDecoder(104)
    assert decoder.receive(framed(bytes(100))) == [bytes(100)]
    assert decoder.receive(framed(b"good") + (101).to_bytes(4)) == [b"good"]
    assert "a frame of 101 bytes" in str(decoder.error)
    assert decoder.receive(framed(b"late")) == []
    unsigned = FrameDecoder(104)
    assert unsigned.receive(b"\xff\xff\xff\xff") == []
    assert unsigned.error is not None


def delivered(body: bytes, header: dict[str, bytes] | None = None) -> bytes:
    stored = Stamp(b"here").plain([encode_message(Message(body, header or {}))], LocalId(17))
    return b"".join(DeliveryEncoder(Topic(b"orders"), SubscriberId(b"billing")).parts(stored))


@pytest.mark.parametrize("chunk", [1, 7, 4096, 1 << 20])
def test_a_delivery_that_is_too_long_is_passed_over_and_known_by_its_ends(chunk: int) -> None:
    large = delivered(bytes(60_000))
    data = delivered(b"before") + large + delivered(b"behind") + large
    frames, found = FrameDecoder(1000, passed_over=DELIVERY_HEAD), list[object]()
    decoder = ResponseDecoder()
    for position in range(0, len(data), chunk):
        for batch in decoder.decode(frames.receive(data[position : position + chunk])):
            found += [each.body for each in batch.messages] if isinstance(batch, Deliveries) else [batch]
        assert frames.buffered <= 1000
    assert frames.error is None
    told = TooLarge(Topic(b"orders"), SubscriberId(b"billing"), len(large), LocalId(17))
    assert found == [b"before", told, b"behind", told]


def test_very_many_that_are_too_long_may_come_at_once() -> None:
    frames = FrameDecoder(100, passed_over=DELIVERY_HEAD)
    found = frames.receive(delivered(bytes(100)) * 3000 + delivered(b"x"))
    assert [len(each) for each in found[:3000]] == [64] * 3000
    assert [each.body for batch in ResponseDecoder().decode(found[3000:]) for each in batch.messages] == [b"x"]  # type: ignore[union-attr]


def test_of_a_passed_over_delivery_with_long_properties_the_id_is_not_known_and_its_owner_is() -> None:
    large = delivered(b"x", {"long": bytes(60_000)})
    [told] = ResponseDecoder().decode(FrameDecoder(1000, passed_over=DELIVERY_HEAD).receive(large))
    assert told == TooLarge(Topic(b"orders"), SubscriberId(b"billing"), len(large), None)


def test_what_is_passed_over_takes_no_memory() -> None:
    frames = FrameDecoder(1000, passed_over=DELIVERY_HEAD)
    chunk = bytes(1 << 16)
    tracemalloc.start()
    try:
        assert frames.receive((1 << 30).to_bytes(4) + DELIVERY_HEAD) == []
        for _ in range(200):
            assert frames.receive(chunk) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_in_small_pieces_takes_little_more_memory_than_its_bytes() -> None:
    frames = FrameDecoder(1 << 20)
    tracemalloc.start()
    try:
        assert frames.receive((1_000_000).to_bytes(4)) == []
        for number in range(50_000):
            assert frames.receive(bytes([number & 255, 0])) == []
        assert frames.buffered == 100_004
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("piece", [100, 20_000])
def test_a_large_frame_in_many_pieces_is_joined_once(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    class Length:
        @staticmethod
        def unpack_from(data: bytes, position: int) -> tuple[int]:
            looks.append(len(data))
            return (int.from_bytes(data[position : position + 4]),)

    monkeypatch.setattr(framing, "LENGTH", Length)
    message = random.Random(piece).randbytes(1_000_000)
    frames, data = FrameDecoder(1 << 20), len(message).to_bytes(4) + message
    found = [each for at in range(0, len(data), piece) for each in frames.receive(data[at : at + piece])]
    assert (found, looks) == ([message], [piece, len(data)])


@pytest.mark.parametrize("begins", [b"HTTP", b"\x00\x0f\x42\x40abcdefgh", b"\xff\xff\xff\xff" + DELIVERY_HEAD])
def test_what_is_too_long_and_no_delivery_ends_the_connection(begins: bytes) -> None:
    frames = FrameDecoder(1000, passed_over=DELIVERY_HEAD)
    assert [frames.receive(begins[at : at + 1]) for at in range(len(begins))] == [[]] * len(begins)
    frames.receive(b"/1.1 400")
    assert frames.error is not None


@pytest.mark.parametrize("behind", [b"\xff" * 10, bytes(9000)])
def test_a_passed_over_delivery_of_nobody_is_refused(behind: bytes) -> None:
    message = encode_message(Message(bytes(5000)))
    frame = framed(DELIVERY_HEAD + varint(len(message)) + message + behind)
    with pytest.raises(RemoteProtocolError, match="whose it is"):
        ResponseDecoder().decode(FrameDecoder(1000, passed_over=DELIVERY_HEAD).receive(frame))


def test_varints_are_protobufs() -> None:
    for value in (0, 1, 127, 128, 300, 1 << 35, (1 << 63) - 1):
        encoded = pb.LedgerRange(ledgerId=value).SerializePartialToString()[1:]
        assert varint(value) == encoded
        assert read_varint(encoded + b"x", 0) == (value, len(encoded))
