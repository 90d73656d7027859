"""What a client reads in batches is what protobuf reads, frame by frame."""

import random

import pytest

from bookkeeper.errors import RemoteProtocolError
from hedwig.model import Event, LocalId, MessageId, Preferences, Status, SubscriberId, Topic
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import FrameDecoder
from hedwig.wire.messages import Message, Stamp, encode_message
from hedwig.wire.receiving import Batch, Deliveries, Published, Received, ResponseDecoder
from hedwig.wire.responses import (
    Answer,
    Delivery,
    DeliveryEncoder,
    decode_response,
    error_frame,
    event_frame,
    published_frames,
    subscribed_frame,
    success_frame,
)

TOPICS = [Topic(b"orders"), Topic(b"t" * 200), Topic("größe".encode())]
SUBSCRIBERS = [SubscriberId(b"billing"), SubscriberId(b"s" * 130)]


def frames_of(data: bytes) -> list[bytes]:
    return FrameDecoder(1 << 24).receive(data)


def delivery(topic: Topic, subscriber: SubscriberId, stored: bytes) -> bytes:
    return b"".join(DeliveryEncoder(topic, subscriber).parts([stored]))


def flat(batches: list[Batch]) -> list[object]:
    """One value per frame, comparable with `decode_response`."""
    found: list[object] = []
    for batch in batches:
        if isinstance(batch, Published):
            found += zip(batch.txn_ids, batch.ids, strict=True)
        elif isinstance(batch, Deliveries):
            found += [(batch.topic, batch.subscriber, *told_of(each)) for each in batch.messages]
        else:
            found.append(batch)
    return found


def told_of(message: Received) -> tuple[object, ...]:
    return (message.body, message.id, message.region, dict(message.properties), message.message_type)


def expected(frame: bytes) -> object:
    found = decode_response(frame)
    if isinstance(found, Answer) and found.status == Status.SUCCESS and found.published is not None:
        return (found.txn_id, found.published)
    if isinstance(found, Delivery):
        message = found.message
        message_id, region = message.id or MessageId(LocalId(0)), message.region or b""
        said = (message.body, message_id, region, dict(message.properties), message.message_type)
        return (found.topic, found.subscriber, *said)
    return found


def random_frame(rng: random.Random) -> bytes:
    local = LocalId(rng.choice([1, 5, 127, 128, 300, 1 << 20, 1 << 40]))
    topic, subscriber = rng.choice(TOPICS), rng.choice(SUBSCRIBERS)
    remote = ((b"r2", rng.randrange(1, 1000)),) if rng.random() < 0.2 else ()
    match rng.randrange(6):
        case 0 | 1:
            properties = {"a": b"1", "b": bytes(rng.randrange(200))} if rng.random() < 0.4 else {}
            body = rng.randbytes(rng.choice([0, 1, 10, 127, 128, 5000]))
            message = encode_message(Message(body, properties, rng.choice([None, "order"])))
            stamp = Stamp(rng.choice([b"standalone", b"standalone", b"r" * 150]))
            return delivery(topic, subscriber, stamp.any(message, MessageId(local, remote)))
        case 2 | 3:
            return published_frames([rng.choice([1, 200, 1 << 33])], local, remote)
        case 4:
            return rng.choice(
                [
                    success_frame(7),
                    error_frame(9, Status.SERVICE_DOWN, "no"),
                    error_frame(9, Status.NOT_RESPONSIBLE_FOR_TOPIC, ""),
                    subscribed_frame(3, Preferences(window_size=4)),
                ]
            )
        case _:
            return event_frame(topic, subscriber, rng.choice(list(Event)))


@pytest.mark.parametrize("seed", range(20))
def test_batches_say_what_protobuf_says(seed: int) -> None:
    rng = random.Random(seed)
    decoder = ResponseDecoder()
    for _ in range(20):
        frames = frames_of(b"".join(random_frame(rng) for _ in range(rng.randrange(1, 30))))
        assert flat(decoder.decode(frames)) == [expected(frame) for frame in frames]


def test_what_belongs_together_comes_together() -> None:
    stored = Stamp(b"standalone").plain([encode_message(Message(b"x")) for _ in range(50)], LocalId(1))
    data = b"".join(DeliveryEncoder(TOPICS[0], SUBSCRIBERS[0]).parts(stored)) + published_frames(
        list(range(9)), LocalId(4)
    )
    decoder = ResponseDecoder()
    decoder.decode(frames_of(data))
    delivered, published = decoder.decode(frames_of(data))
    assert isinstance(delivered, Deliveries)
    assert isinstance(published, Published)
    assert [each.local_id for each in delivered.messages] == list(range(1, 51))
    assert published.txn_ids == list(range(9))


@pytest.mark.parametrize("seed", range(20))
def test_damaged_frames_are_refused_or_read_as_protobuf_reads_them(seed: int) -> None:
    rng = random.Random(seed)
    decoder = ResponseDecoder()
    for _ in range(200):
        [frame] = frames_of(random_frame(rng))
        damaged = bytearray(frame)
        for _ in range(rng.randrange(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        cut = bytes(damaged[: rng.randrange(len(damaged) + 1)]) if rng.random() < 0.3 else bytes(damaged)
        try:
            wanted: object = expected(cut)
        except (RemoteProtocolError, ValueError):
            with pytest.raises((RemoteProtocolError, ValueError)):
                [told_of(m) for b in decoder.decode([cut]) if isinstance(b, Deliveries) for m in b.messages]
            continue
        assert flat(decoder.decode([cut])) == [wanted]


def test_answers_to_publishes_are_the_bytes_that_protobuf_makes() -> None:
    numbers = [1, 126, 127, 128, 16_383, 16_384, 1 << 21, 1 << 40, (1 << 63) - 20]
    for first in numbers:
        txn_ids = [number - 1 for number in numbers]
        for frame, txn_id, local in zip(
            frames_of(published_frames(txn_ids, LocalId(first))),
            txn_ids,
            range(first, first + len(txn_ids)),
            strict=True,
        ):
            body = pb.ResponseBody(
                publishResponse=pb.PublishResponse(publishedMsgId=pb.MessageSeqId(localComponent=local))
            )
            wanted = pb.PubSubResponse(
                protocolVersion=pb.VERSION_ONE, statusCode=pb.SUCCESS, txnId=txn_id, responseBody=body
            )
            assert frame == wanted.SerializeToString(), (txn_id, local)
