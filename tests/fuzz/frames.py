"""Decoders of data from peers: bookies, hubs and the clients of both; entries and lists of entries."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.model import DigestType, Status
from bookkeeper.wire.availability import decode_availability, encode_availability
from bookkeeper.wire.codec import ServerCodec, response_decoder, v2_encoder, v3_encoder
from bookkeeper.wire.digest import digest_of, master_key
from bookkeeper.wire.messages import AddBatch, ReadBatch, Request
from hedwig.errors import MalformedRequest
from hedwig.model import Event, LocalId, MessageId, Preferences, SubscribeMode, SubscriberId, Topic
from hedwig.model import Status as HubStatus
from hedwig.protocol.options import PREVIOUS, PRODUCER, SEQUENCE, acknowledgement, check_options, granted
from hedwig.protocol.producers import origin_of
from hedwig.protocol.publish_time import TIME, time_of
from hedwig.wire import receiving, requests, responses
from hedwig.wire.framing import FrameDecoder
from hedwig.wire.messages import Message, decode_message, encode_message, header_at, header_properties
from hedwig.wire.view import MessageView
from tests.fuzz.decoder import Decoder

FRAME_SIZE_MAX = 32 * 1024
KEY = master_key(b"secret")
DIGEST = digest_of(DigestType.CRC32C, b"secret")
TOPIC, SUBSCRIBER = Topic(b"news/today"), SubscriberId(b"reader-1")
PREFERENCES = Preferences(7, "a = 'b'", 3, {"hw.ack": b"individual", "k": b"v"})


# --- bookies and their clients


def _bodies(count: int) -> list[bytes]:
    return [DIGEST.package_entry(5, number, number - 1, 9, b"payload %d" % number) for number in range(count)]


def _v2_requests() -> Sequence[bytes]:
    encoder, bodies = v2_encoder(FRAME_SIZE_MAX), _bodies(3)
    adds = encoder.encode_adds(5, KEY, [0, 1, 2], bodies)[1]
    return (
        b"".join(adds),
        encoder.encode_adds(5, KEY, [0], bodies[:1], recovery=True)[1][0],
        encoder.encode_reads(5, [0, 1, 2])[1],
        encoder.encode_fence_reads(5, [-1], KEY)[1],
        encoder.encode_batch_read(5, 0, 10, 1000)[1],
        encoder.encode_auth("plugin", b"payload")[1],
    )


def _v3_requests() -> Sequence[bytes]:
    encoder, bodies = v3_encoder(FRAME_SIZE_MAX), _bodies(3)
    return (
        b"".join(encoder.encode_adds(5, KEY, [0, 1, 2], bodies)[1]),
        encoder.encode_adds(5, KEY, [0], bodies[:1], recovery=True, high_priority=True)[1][0],
        encoder.encode_reads(5, [0, 1, 2])[1],
        encoder.encode_fence_reads(5, [-1], KEY)[1],
        encoder.encode_auth("plugin", b"payload")[1],
        encoder.encode_read_lac(5)[1],
        encoder.encode_long_poll(5, 3, 1000)[1],
        encoder.encode_force(5)[1],
        encoder.encode_list_entries(5)[1],
        encoder.encode_start_tls()[1],
        encoder.encode_write_lac(5, 3, KEY, DIGEST.package_lac(5, 3))[1],
        encoder.encode_bookie_info()[1],
    )


def _server_requests(data: bytes) -> list[Request]:
    codec = ServerCodec(FRAME_SIZE_MAX)
    cut = len(data) * 2 // 3
    found = codec.receive(data[:cut]) + codec.receive(data[cut:])
    while codec.pending:
        found += codec.receive(b"")
    if codec.error is not None:
        raise codec.error
    assert codec.buffered <= FRAME_SIZE_MAX + (1 << 16), "more is held than a frame"
    return found


def _replies(requests_of: Sequence[bytes]) -> list[bytes]:
    """Return the answers of a bookie to these requests, refusals included."""
    found = []
    for data in requests_of:
        codec = ServerCodec(FRAME_SIZE_MAX)
        for request in codec.receive(data):
            if isinstance(request, AddBatch):
                found.append(codec.add_replies([request], Status.OK))
            elif isinstance(request, ReadBatch):
                bodies = _bodies(len(request.entry_ids))
                found.append(b"".join(codec.read_replies(request, bodies, 1)))
            else:
                found.append(
                    codec.reply(
                        request,
                        Status.OK,
                        body=b"b" * 60,
                        max_lac=3,
                        explicit_lac=b"l" * 20,
                        last_entry=b"e" * 60,
                        total_bytes=9,
                        free_bytes=8,
                        plugin="plugin",
                        payload=b"p",
                        bodies=_bodies(2),
                        availability=encode_availability([range(5), range(7, 9)]),
                    )
                )
            found.append(codec.reply(request, Status.NO_LEDGER))
    return [each for each in found if each]


def _client_responses(version: int) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        decoder = response_decoder(2 if version == 2 else 3, FRAME_SIZE_MAX)
        cut = len(data) * 2 // 3
        found = decoder.receive(data[:cut]) + decoder.receive(data[cut:])
        if decoder.error is not None:
            raise decoder.error
        return found

    return decode


# --- hubs and their clients


def _hub_requests() -> Sequence[bytes]:
    plain = encode_message(Message(b"hello"))
    headed = encode_message(Message(b"hello", {PRODUCER: b"p", SEQUENCE: b"7", PREVIOUS: b"6", TIME: b"17"}, "type"))
    mode = SubscribeMode.CREATE_OR_ATTACH
    return (
        b"".join(requests.PublishEncoder(TOPIC).frames(1, [plain, headed, plain])),
        requests.publish_frame(2, TOPIC, headed, tried=[b"127.0.0.1:4080"], should_claim=True),
        requests.subscribe_frame(3, TOPIC, SUBSCRIBER, mode, PREFERENCES, force=True),
        requests.subscribe_frame(3, TOPIC, SUBSCRIBER, mode, Preferences(), reads_gone=True),
        requests.subscribe_frame(3, TOPIC, SUBSCRIBER, mode, Preferences(), window_if_none=1000),
        requests.consume_frame(4, TOPIC, SUBSCRIBER, MessageId(LocalId(300), ((b"hw.from", 7), (b"region", 9)))),
        requests.unsubscribe_frame(5, TOPIC, SUBSCRIBER),
        requests.close_subscription_frame(6, TOPIC, SUBSCRIBER),
        requests.heartbeat_frame(7),
    )


def _hub_decode(data: bytes) -> object:
    decoder = FrameDecoder(FRAME_SIZE_MAX)
    cut = len(data) * 2 // 3
    frames = decoder.receive(data[:cut]) + decoder.receive(data[cut:])
    if decoder.error is not None:
        raise decoder.error
    found = requests.decode_requests(frames)
    for each in found:
        match each:
            case requests.Publishes():
                for message in each.messages:
                    view = MessageView(message)
                    origin_of(view.properties), time_of(view.properties)
            case requests.Subscribe(preferences=Preferences() as preferences):
                check_options(preferences)
            case requests.Consume():
                acknowledgement(each.up_to)
    return found


def _stored() -> list[bytes]:
    message_id = MessageId(LocalId(200), ((b"r1", 7),))
    return [
        encode_message(Message(b"hello", {}, None, MessageId(LocalId(1)), b"region")),
        encode_message(Message(b"hello", {"k": b"v", "k2": b""}, "type", message_id, b"region")),
        encode_message(Message(b"hello")),
    ]


def _hub_responses() -> Sequence[bytes]:
    long = encode_message(Message(bytes(40_000), {"k": b"v"}, None, MessageId(LocalId(3)), b"other"))
    deliveries = responses.DeliveryEncoder(TOPIC, SUBSCRIBER).parts(_stored()[:2] * 2)
    return (
        responses.published_frames([1, 2, 3], LocalId(1)),
        responses.published_frames([9], LocalId(200), ((b"r1", 7),)),
        b"".join(deliveries),
        responses.subscribed_frame(2, PREFERENCES),
        responses.success_frame(7),
        responses.error_frame(1, HubStatus.NOT_RESPONSIBLE_FOR_TOPIC, "127.0.0.1:14081:19877"),
        responses.event_frame(TOPIC, SUBSCRIBER, Event.TOPIC_MOVED),
        b"".join(responses.DeliveryEncoder(TOPIC, SUBSCRIBER).parts([long])),
    )


def _hub_client_decode(data: bytes) -> object:
    frames = FrameDecoder(FRAME_SIZE_MAX, receiving.DELIVERY_HEAD)
    decoder = receiving.ResponseDecoder()
    cut = len(data) * 2 // 3
    found: list[object] = []
    for part in (data[:cut], data[cut:]):
        batches = decoder.decode(frames.receive(part))
        if frames.error is not None:
            raise frames.error
        for batch in batches:
            found.append(batch)
            if isinstance(batch, receiving.Deliveries):
                found += [
                    Message(each.body, each.properties, each.message_type, each.id, each.region)
                    for each in batch.messages
                ]
            elif isinstance(batch, responses.Answer) and batch.preferences is not None:
                found.append(granted(batch.preferences))
    return found


def _hub_message(data: bytes) -> object:
    """Check that both readers of a message return equal values, or that both refuse it."""
    at = header_at(data)
    if at is not None and at < len(data):
        header_properties(data, at)
    found = decode_message(data)
    view = MessageView(data)
    same = Message(view.body, view.properties, view.message_type, view.id, view.region)
    assert found == same, f"{found} and {same}"
    assert view.body_size == found.body_size
    return found


# --- entries


def _entry(kind: DigestType) -> Callable[[bytes], object]:
    digest = digest_of(kind, b"secret")

    def decode(data: bytes) -> object:
        return digest.verify(5, [0, 1], [data, data]), digest.verify_last(5, data), digest.verify_lac(5, data)

    return decode


TABLE = (
    Decoder(
        name="bookie-requests-v2",
        covers=(
            "bookkeeper.wire.codec:ServerCodec.receive",
            "bookkeeper.wire.v2_server:decode_requests",
            "bookkeeper.wire.v2_server:decode_request",
            "bookkeeper.wire.v2:decode_auth_message",
            "bookkeeper.wire.v3:decode_auth_message",
        ),
        decode=_server_requests,
        seeds=_v2_requests,
        refusals=(RemoteProtocolError,),
    ),
    Decoder(
        name="bookie-requests-v3",
        covers=("bookkeeper.wire.v3_server:decode_requests", "bookkeeper.wire.v3_server:decode_request"),
        decode=_server_requests,
        seeds=_v3_requests,
        refusals=(RemoteProtocolError,),
    ),
    Decoder(
        name="bookie-answers-v2",
        covers=("bookkeeper.wire.v2:decode_responses", "bookkeeper.wire.v2:decode_response"),
        decode=_client_responses(2),
        seeds=lambda: _replies(_v2_requests()),
        refusals=(RemoteProtocolError,),
    ),
    Decoder(
        name="bookie-answers-v3",
        covers=("bookkeeper.wire.v3:decode_responses", "bookkeeper.wire.v3:decode_response"),
        decode=_client_responses(3),
        seeds=lambda: _replies(_v3_requests()),
        refusals=(RemoteProtocolError,),
    ),
    Decoder(
        name="hub-requests",
        covers=(
            "hedwig.wire.framing:FrameDecoder.receive",
            "hedwig.wire.requests:decode_requests",
            "hedwig.wire.requests:decode_request",
            "hedwig.wire.requests:decode_preferences",
            "hedwig.wire.messages:decode_map",
            "hedwig.wire.messages:decode_id",
            "hedwig.protocol.publish_time:decode_time",
        ),
        decode=_hub_decode,
        seeds=_hub_requests,
        refusals=(RemoteProtocolError, MalformedRequest),
    ),
    Decoder(
        name="hub-answers",
        covers=("hedwig.wire.receiving:ResponseDecoder.decode", "hedwig.wire.responses:decode_response"),
        decode=_hub_client_decode,
        seeds=_hub_responses,
        refusals=(RemoteProtocolError,),
    ),
    Decoder(
        name="hub-messages",
        covers=("hedwig.wire.messages:decode_message", "hedwig.wire.messages:header_properties"),
        decode=_hub_message,
        seeds=lambda: [*_stored(), encode_message(Message(b"hello", {"k": b"v"}))],
        refusals=(RemoteProtocolError,),
    ),
    Decoder(
        name="availability",
        covers=("bookkeeper.wire.availability:decode_availability",),
        decode=decode_availability,
        seeds=lambda: [
            encode_availability([range(5), range(7, 9)]),
            struct.pack(">ii56x", 0, 2) + struct.pack(">qqiiqqii", 0, 40, 2, 4, 100, 100, 7, 0),
        ],
        refusals=(RemoteProtocolError,),
    ),
    *(
        Decoder(
            name=f"entries-{kind.name.lower()}",
            covers=("bookkeeper.wire.digest:Digest.verify_lac", "bookkeeper.wire.digest:Digest.verify_last"),
            decode=_entry(kind),
            seeds=lambda kind=kind: [  # type: ignore[misc]
                digest_of(kind, b"secret").package_entry(5, 0, -1, 7, b"payload"),
                digest_of(kind, b"secret").package_lac(5, 3),
            ],
            refusals=(),
        )
        for kind in DigestType
    ),
)
