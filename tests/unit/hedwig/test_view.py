"""A view of a stored message says what the whole message says, or that it is none."""

from __future__ import annotations

import random

import pytest

from bookkeeper.errors import RemoteProtocolError
from hedwig.model import LocalId, MessageId
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire import view
from hedwig.wire.framing import varint
from hedwig.wire.messages import (
    HeaderTooLarge,
    Message,
    Stamp,
    decode_id,
    decode_message,
    encode_message,
    parsed_message,
)
from hedwig.wire.view import MessageView, header_part


def seen(data: bytes) -> Message | str:
    """Everything that a view says."""
    found = MessageView(data)
    try:
        assert found.body_size == len(found.body)
        return Message(found.body, dict(found.properties), found.message_type, found.id, found.region)
    except RemoteProtocolError:
        return "no message"


def whole(data: bytes) -> Message | str:
    try:
        found = decode_message(data)
    except (RemoteProtocolError, UnicodeDecodeError):
        return "no message"
    return Message(found.body, dict(found.properties), found.message_type, found.id, found.region)


def random_message(rng: random.Random) -> Message:
    def some(size_max: int) -> bytes:
        return rng.randbytes(rng.randrange(size_max))

    return Message(
        some(rng.choice([2, 40, 300])),
        {
            rng.choice(["a", "bb", "größe", "k" * 130, ""]): some(rng.choice([1, 9, 200]))
            for _ in range(rng.randrange(5))
        },
        rng.choice([None, "", "order", "t" * 200]),
        rng.choice(
            [None, MessageId(LocalId(rng.randrange(1 << 40))), MessageId(LocalId(3), ((b"r1", 4), (b"r2", 1 << 50)))]
        ),
        rng.choice([None, b"", b"region", b"r" * 150]),
    )


def test_a_view_says_what_the_whole_message_says(rng: random.Random) -> None:
    for _ in range(500):
        message = random_message(rng)
        data = encode_message(message)
        assert seen(data) == whole(data) == message
        # Fields twice, and in any order: what protobuf makes of it.
        both = data + encode_message(random_message(rng))
        assert seen(both) == whole(both)


def test_a_view_of_broken_bytes_is_what_protobuf_makes_of_them(rng: random.Random) -> None:
    outcomes = set()
    for _ in range(4000):
        data = bytearray(encode_message(random_message(rng)))
        for _ in range(rng.randint(1, 3)):
            if data and rng.random() < 0.7:
                data[rng.randrange(len(data))] = rng.randrange(256)
            else:
                del data[rng.randrange(len(data) + 1) :]
        found = seen(bytes(data))
        assert found == whole(bytes(data)), bytes(data).hex()
        outcomes.add(isinstance(found, str))
    assert outcomes == {True, False}


def test_a_view_keeps_the_first_value_of_a_key() -> None:
    data = encode_message(Message(b"x", {"a": b"1"})) + header_part({"a": b"2", "b": b"3"})
    assert MessageView(data).properties == {"a": b"1", "b": b"3"} == decode_message(data).properties


def test_properties_are_added_without_decoding_a_message(rng: random.Random) -> None:
    stamp = Stamp(b"r1")
    for _ in range(300):
        message = random_message(rng)
        stored = stamp.any(encode_message(message), MessageId(LocalId(5)))
        added = {"hw.time": b"1700000000000", "größe": rng.randbytes(rng.choice([0, 3, 200]))}
        found = decode_message(stored + header_part(added))
        assert found == Message(
            message.body, {**added, **message.properties}, message.message_type, MessageId(LocalId(5)), b"r1"
        )
        assert seen(stored + header_part(added)) == found
    assert header_part({}) == b""


def test_asking_for_the_header_does_not_touch_the_body() -> None:
    class Body(bytes):
        """Of a message, and says which bytes were copied."""

        copied: list[slice]

        def __getitem__(self, key: object) -> object:  # type: ignore[override]
            if isinstance(key, slice):
                self.copied.append(key)
            return super().__getitem__(key)  # type: ignore[call-overload]

    size = 1 << 20
    data = Body(encode_message(Message(bytes(size), {"color": b"red"}, "t", MessageId(LocalId(3)), b"r")))
    data.copied = []
    view = MessageView(data)
    assert view.properties == {"color": b"red"}
    assert (view.message_type, view.region, view.id, view.body_size) == ("t", b"r", MessageId(LocalId(3)), size)
    assert data.copied
    assert all(each.start >= size for each in data.copied)


@pytest.mark.parametrize("tail", [b"\x22", b"\x22\x05", b"\x22\x80", b"\x22\xff\xff\xff\xff\x0f", b"\x22\x02\x0a\x05"])
def test_a_header_that_ends_too_early_is_no_message(tail: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        _ = MessageView(b"\x0a" + varint(1) + b"x" + tail).properties


def test_more_properties_than_wanted_are_not_read_and_the_rest_is_there() -> None:
    message = Message(b"body", {f"{number}": b"" for number in range(20)}, "order", MessageId(LocalId(7)), b"r1")
    ordered = encode_message(message)
    split = encode_message(Message(b"body", {"0": b""}, None, message.id, b"r1"))
    split += b"".join(header_part({f"{number}": b""}) for number in range(1, 20))
    repeated = encode_message(Message(b"body", {"0": b""}, None, message.id, b"r1")) + 19 * header_part({"0": b""})
    unordered = header_part(message.properties) + encode_message(Message(b"body", {}, "order", message.id, b"r1"))
    for data in (ordered, split, repeated, unordered):
        found = MessageView(data, 19)
        assert (found.body_size, found.body, found.region, found.id) == (4, b"body", b"r1", message.id)
        for name in ("properties", "message_type"):
            with pytest.raises(HeaderTooLarge, match="more than 19 properties"):
                getattr(found, name)
        assert MessageView(data, 20).properties == MessageView(data).properties == decode_message(data).properties


def test_many_headers_or_parts_of_one_are_for_protobuf_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of all earlier properties for each header took minutes for a message of 1 MiB."""
    parsed: list[int] = []

    def counted(data: bytes) -> pb.Message:
        parsed.append(len(data))
        return parsed_message(data)

    monkeypatch.setattr(view, "parsed_message", counted)
    body = encode_message(Message(b"body"))
    some = [header_part({f"{number}": b""}) for number in range(9)]
    parts = b"".join(part[2:] for part in some)  # without tag and size of the header
    for tail in (b"".join(some), b"\x22" + varint(len(parts)) + parts, b"\x22" + varint(27) + 9 * b"\x12\x01t"):
        found = MessageView(body + tail)
        assert found.properties == decode_message(body + tail).properties
        assert parsed == [len(body + tail)]
        parsed.clear()
    assert len(MessageView(body + b"".join(some[:8])).properties) == 8
    assert not parsed


def test_an_id_is_decoded_once_however_often_a_filter_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`$id` may be in an expression hundreds of times, and an id may have 100 regions."""
    decoded: list[pb.MessageSeqId] = []

    def counted(encoded: pb.MessageSeqId) -> MessageId:
        decoded.append(encoded)
        return decode_id(encoded)

    monkeypatch.setattr(view, "decode_id", counted)
    message = Message(b"body", {}, None, MessageId(LocalId(7), tuple((b"r%d" % n, n) for n in range(100))), b"r1")
    found = MessageView(encode_message(message))
    assert [found.id, found.id, found.id] == [message.id] * 3
    assert len(decoded) == 1
