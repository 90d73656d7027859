"""The chunk codecs against their simple twins: random streams, random cuts, random damage.

The twin takes the stream apart frame by frame, sends each frame alone through the one-frame decoder, and knows no run
loop and no chunk. Whatever the cuts, both must see the same messages in the same order and stop at the same place.
Streams are made of runs of similar frames, so that the run loops have work, with strange frames in between.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.model import Status
from bookkeeper.wire import v2, v2_server, v3, v3_server
from bookkeeper.wire.codec import RequestEncoder, ServerCodec, request_encoder, response_decoder, v3_encoder
from bookkeeper.wire.framing import answer_size_max, request_size_max
from bookkeeper.wire.messages import (
    AddAcks,
    AddBatch,
    Malformed,
    MixedAddAcks,
    Operation,
    ReadBatch,
    ReadBodies,
    Request,
    Response,
    append_request,
    append_response,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb

LIMIT = 600
REQUEST_MAX = request_size_max(LIMIT)
ANSWER_MAX = answer_size_max(LIMIT)
KEYS = (bytes(range(20)), b"k" * 20)
EXAMPLES = settings(max_examples=150, deadline=None)

Message = TypeVar("Message")
Version = Literal[2, 3]

# Varints change their size at these, and runs cross the border.
EDGES = [0, 1, 120, 127, 128, 250, 16_370, 2**21 - 5, 2**35 - 3, 2**62]
ledger_ids = st.sampled_from([0, 1, 127, 128, 12345, 2**40])
edges = st.sampled_from(EDGES)


def body_of(ledger_id: int, entry_id: int, lac: int, rest: bytes) -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, lac, 0) + rest


def frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


# --- streams of requests --------------------------------------------------------------------------------------------


@st.composite
def runs(draw: st.DrawFn, encoder: RequestEncoder) -> bytes:
    """Adds, reads or fencing reads of one ledger, as our own encoder writes them."""
    ledger_id, first, count = draw(ledger_ids), draw(edges), draw(st.integers(1, 9))
    key, high_priority = draw(st.sampled_from(KEYS)), draw(st.booleans())
    step = draw(st.sampled_from([1, 1, 1, 2, -1]))
    entry_ids = [max(0, first + step * index) for index in range(count)]
    kind = draw(st.sampled_from(["adds", "adds", "adds", "reads", "reads", "fences"]))
    if kind == "adds":
        sizes = draw(st.sampled_from([[0], [5], [100], [0, 100], [60, 61]]))
        lacs = draw(st.sampled_from([[-1], [5, 3], [2**40]]))
        bodies = [
            body_of(ledger_id, entry_id, lacs[index % len(lacs)], bytes(sizes[index % len(sizes)]))
            for index, entry_id in enumerate(entry_ids)
        ]
        if draw(st.integers(0, 5)) == 0:  # one body of another entry, or without its ids
            victim = draw(st.integers(0, count - 1))
            strange = body_of(ledger_id, entry_ids[victim] + 1, -1, b"")
            bodies[victim] = draw(
                st.sampled_from([strange.ljust(len(bodies[victim]), b"."), b"short", bodies[victim][:20]])
            )
        recovery = draw(st.booleans()) and draw(st.booleans())
        frames = encoder.encode_adds(
            ledger_id, key, entry_ids, bodies, recovery=recovery, high_priority=high_priority and recovery
        )[1]
        if draw(st.integers(0, 7)) == 0:  # the length of the next frame is not what its bytes say
            wrong = struct.pack(">i", draw(st.sampled_from([-1, 0, 40, ANSWER_MAX + 1])))
            frames.append(wrong + frames[-1][4:] + bytes(LIMIT))
        return b"".join(frames)
    if kind == "reads":
        if draw(st.integers(0, 4)) == 0:
            entry_ids[draw(st.integers(0, count - 1))] = -1
        return encoder.encode_reads(ledger_id, entry_ids, high_priority=high_priority)[1]
    return encoder.encode_fence_reads(ledger_id, entry_ids[:2], key, high_priority=high_priority)[1]


STRANGE_V2 = [
    frame(b"\0\0\0\2" + struct.pack(">qq", 1, 2)),  # version 0
    frame(b"\1\1\0\0" + KEYS[0] + body_of(1, 1, 0, b"")),  # version 1
    frame(b"\2\1\0\0" + KEYS[0] + body_of(1, -1, 0, b"")),  # negative entry
    frame(b"\2\1\0\0" + KEYS[0] + body_of(-1, 1, 0, b"")),  # negative ledger
    frame(b"\2\1\0\0" + KEYS[0] + body_of(1, 1, 0, b"")[:20]),  # short body
    frame(b"\3\1\0\0" + KEYS[0] + body_of(1, 1, 0, b"")),  # version 3
    frame(b"\2\1\0\x08" + KEYS[0] + body_of(1, 1, 0, b"")),  # unknown flag
    frame(b"\2\2\0\0" + struct.pack(">qq", 1, 2) + KEYS[0]),  # key without fence
    frame(b"\2\2\0\1" + struct.pack(">qq", 1, 2)),  # fence without key
    frame(b"\2\7\0\0" + struct.pack(">qqqiq", 1, 2, 3, 4, 5)),  # batch read
    frame(b"\2\3\0\0" + v3.encode_auth_message("p", b"x")),
]
VIOLATIONS = [
    frame(b"\2\x63\0\0"),
    frame(b"\2\1\0\0short"),
    frame(b"\xff"),
    struct.pack(">i", 0),
    struct.pack(">i", -1),
    struct.pack(">i", ANSWER_MAX + 1),
]


def varint(value: int, padding: int = 0) -> bytes:
    """A varint of a number >= 0, with `padding` bytes more than it needs."""
    groups = []
    while True:
        groups.append(value & 0x7F)
        value >>= 7
        if not value:
            break
    groups += [0] * padding
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def by_hand(txn_id: int, entry_id: int, *, padding: int = 0, swapped: bool = False, extra: bytes = b"") -> bytes:
    """An add of ledger 1, legal protobuf, though not always what a serialiser would write."""
    body = body_of(1, entry_id, -1, b"r")
    header = b"\x08\x03\x10\x02\x18" + varint(txn_id, padding)
    add = b"\x08\x01\x10" + varint(entry_id) + b"\x1a\x14" + KEYS[0] + b"\x22" + varint(len(body)) + body + extra
    fields = [b"\x0a" + varint(len(header)) + header, b"\xaa\x06" + varint(len(add)) + add]
    return frame(b"".join(reversed(fields) if swapped else fields))


def _request(**fields: object) -> pb.Request:
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=pb.ADD_ENTRY, txnId=7)
    return pb.Request(header=header, **fields)  # type: ignore[arg-type]


def _strange_v3() -> list[bytes]:
    add = pb.AddRequest(ledgerId=1, entryId=2, masterKey=KEYS[0], body=body_of(1, 2, 0, b""))
    deferred = pb.AddRequest(ledgerId=1, entryId=2, masterKey=KEYS[0], body=body_of(1, 2, 0, b""), writeFlags=1)
    context = _request(addRequest=add)
    context.requestContext.add(key="k", value="v")
    encoder = v3_encoder()
    poll = pb.Request(readRequest=pb.ReadRequest(ledgerId=1, entryId=-1, previousLAC=3))
    poll.header.version, poll.header.operation, poll.header.txnId = pb.VERSION_THREE, pb.READ_ENTRY, 4
    piggyback = pb.Request(readRequest=pb.ReadRequest(ledgerId=1, entryId=5, flag=pb.ReadRequest.ENTRY_PIGGYBACK))
    piggyback.header.version, piggyback.header.operation = pb.VERSION_THREE, pb.READ_ENTRY
    with_key = pb.Request(readRequest=pb.ReadRequest(ledgerId=1, entryId=5, masterKey=KEYS[0]), header=piggyback.header)
    for message in (piggyback, with_key):
        message.header.txnId = 6
    return [
        *(frame(message.SerializeToString()) for message in (piggyback, with_key)),
        *(frame(message.SerializeToString()) for message in (_request(), _request(addRequest=deferred), context, poll)),
        frame(b"\x0a\x06\x08\x03\x10\x63\x18\x09"),
        frame(b"\x0a\x06\x08\x01\x10\x02\x18\x09"),
        encoder.encode_read_lac(1)[1],
        encoder.encode_write_lac(1, 5, KEYS[0], struct.pack(">qq", 1, 5))[1],
        encoder.encode_bookie_info()[1],
        encoder.encode_auth("p", b"x")[1],
        *(by_hand(txn_id, entry_id) for txn_id, entry_id in ((200, 300), (201, 301))),
        *(by_hand(txn_id, 300, padding=1) for txn_id in (1, 2, 200, 201)),
        *(by_hand(200, entry_id, swapped=True) for entry_id in (300, 301)),
        *(by_hand(200, entry_id, extra=b"\xa0\x06\x01") for entry_id in (300, 301)),  # recovery
        *(by_hand(200, entry_id, extra=b"\xf8\x07\x01") for entry_id in (300, 301)),  # a field we do not know
    ]


STRANGE_V3 = _strange_v3()


@st.composite
def request_streams(draw: st.DrawFn, version: Version) -> bytes:
    """Runs with strange frames between them; sometimes a violation, sometimes v2 after v3."""
    encoder = request_encoder(version)
    if version == 3:
        for _ in range(draw(st.sampled_from([0, 110, 120]))):
            encoder.encode_auth("", b"")  # move the request ids towards the next size of their varint
    strange = st.sampled_from(STRANGE_V2 if version == 2 else STRANGE_V3)
    repeated = st.tuples(strange, st.integers(1, 3)).map(lambda pair: pair[0] * pair[1])
    pieces = draw(st.lists(st.one_of(runs(encoder), st.lists(repeated, max_size=3).map(b"".join)), max_size=6))
    if draw(st.integers(0, 3)) == 0:
        pieces.insert(draw(st.integers(0, len(pieces))), draw(st.sampled_from(VIOLATIONS)))
    if version == 3 and draw(st.integers(0, 3)) == 0:
        pieces.append(draw(runs(request_encoder(2))))
    if draw(st.booleans()):
        pieces.append(draw(runs(encoder))[: draw(st.integers(0, 60))])
    return b"".join(pieces)


def cut(stream: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The stream in pieces that end at the given places."""
    places = sorted({place for place in cuts if place < len(stream)} | {0, len(stream)})
    return [stream[start:stop] for start, stop in itertools.pairwise(places)]


def frames_of(stream: bytes, size_max: int) -> tuple[list[bytes], bool]:
    """The twin's framing: whole frames up to the first bad length, and whether there was one."""
    frames: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        (length,) = struct.unpack_from(">i", stream, position)
        if not 0 < length <= size_max:
            return frames, True
        if position + 4 + length > len(stream):
            break
        frames.append(stream[position + 4 : position + 4 + length])
        position += 4 + length
    return frames, False


def twin_requests(stream: bytes) -> tuple[list[Request], bool]:
    """Every request alone, in order, and whether the connection must end."""
    frames, bad_length = frames_of(stream, REQUEST_MAX)
    requests: list[Request] = []
    is_v3 = True
    for message in frames:
        request = v3_server.decode_request(message) if is_v3 else None
        is_v3 = request is not None
        if request is None:
            try:
                request = v2_server.decode_request(message, 0, len(message))
            except RemoteProtocolError:
                return requests, True
        requests.append(request)
    return requests, bad_length


def separate(request: Request) -> list[Request]:
    """A batch as batches of one."""
    if isinstance(request, AddBatch):
        tokens = request.token if isinstance(request.token, list) else [request.token] * len(request.entry_ids)
        alone = [
            dataclasses.replace(
                request,
                entry_ids=[entry_id],
                bodies=[body],
                token=[token] if isinstance(request.token, list) else token,
                last_confirmed=max(-1, struct.unpack_from(">q", body, 16)[0]),
            )
            for entry_id, body, token in zip(request.entry_ids, request.bodies, tokens, strict=True)
        ]
        assert request.last_confirmed == max(batch.last_confirmed for batch in alone)
        return list(alone)
    if isinstance(request, ReadBatch):
        tokens = request.token if isinstance(request.token, list) else [request.token] * len(request.entry_ids)
        return [
            ReadBatch(request.ledger_id, [entry_id], [token] if isinstance(request.token, list) else token)
            for entry_id, token in zip(request.entry_ids, tokens, strict=True)
        ]
    return [request]


def check_requests(stream: bytes, cuts: Iterable[int]) -> None:
    expected, ends = twin_requests(stream)
    codec = ServerCodec(LIMIT)
    received: list[Request] = []
    for chunk in cut(stream, cuts):
        received += codec.receive(chunk)
        assert codec.buffered <= REQUEST_MAX + 4
    assert [one for request in received for one in separate(request)] == expected
    assert (codec.error is not None) == ends


def check_batches(stream: bytes) -> None:
    """In one chunk, the run loops join exactly what joining one by one would."""
    joined: list[Request] = []
    for request in twin_requests(stream)[0]:
        append_request(joined, request)
    assert ServerCodec(LIMIT).receive(stream) == joined


cuts_of = st.lists(st.integers(0, 2000), max_size=12)


@EXAMPLES
@given(request_streams(2), cuts_of)
def test_v2_requests_do_not_depend_on_chunks(stream: bytes, cuts: list[int]) -> None:
    check_requests(stream, cuts)
    check_batches(stream)


@EXAMPLES
@given(request_streams(3), cuts_of)
def test_v3_requests_do_not_depend_on_chunks(stream: bytes, cuts: list[int]) -> None:
    check_requests(stream, cuts)
    check_batches(stream)


@settings(max_examples=20, deadline=None)
@given(st.one_of(request_streams(2), request_streams(3)))
def test_requests_survive_single_bytes(stream: bytes) -> None:
    check_requests(stream, range(len(stream)))


flips = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 7)), min_size=1, max_size=4)


def flip(stream: bytes, places: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(stream)
    for place, bit in places:
        if damaged:
            damaged[place % len(damaged)] ^= 1 << bit
    return bytes(damaged)


@EXAMPLES
@given(st.one_of(request_streams(2), request_streams(3)), flips, cuts_of)
def test_damaged_requests_are_decoded_alike_or_end_the_connection(
    stream: bytes, places: list[tuple[int, int]], cuts: list[int]
) -> None:
    check_requests(flip(stream, places), cuts)


@EXAMPLES
@given(st.binary(max_size=300), st.booleans(), cuts_of)
def test_garbage_is_never_more_than_an_error(garbage: bytes, has_length: bool, cuts: list[int]) -> None:
    stream = frame(garbage) * 2 if has_length and garbage else garbage
    check_requests(stream, cuts)
    check_responses(stream, cuts, 2)
    check_responses(stream, cuts, 3)


@EXAMPLES
@given(st.one_of(request_streams(2), request_streams(3)))
def test_whatever_was_asked_can_be_answered(stream: bytes) -> None:
    """The client of its version understands the answer to every request that a client of ours could send."""
    codec = ServerCodec(LIMIT)
    for request in codec.receive(stream):
        if isinstance(request, Malformed) and request.operation is Operation.UNKNOWN:
            continue
        status = request.status if isinstance(request, Malformed) else Status.BAD_REQUEST
        answer = codec.reply(request, status)
        is_v2 = isinstance(request.token, bytes)
        decoder = response_decoder(2 if is_v2 else 3, LIMIT)
        decoder.receive(answer)
        assert decoder.error is None
        assert decoder.buffered == 0


# --- answers --------------------------------------------------------------------------------------------------------


STRANGE_ANSWERS_V2 = [
    frame(b"\0\0\0\1" + struct.pack(">iqq", 0, 1, 2)),  # version 0
    frame(b"\2\1\0\0" + struct.pack(">iqq", 0, 1, 2) + b"tail"),
    frame(b"\2\1\0\0" + struct.pack(">iqq", 104, 1, 2)),
    frame(b"\2\2\0\0" + struct.pack(">iqqqq", 2, 1, 2, 1, 2)),  # as 4.2.3
    frame(b"\2\2\0\0" + struct.pack(">iqq", 0, 1, -1)),  # no body
    frame(b"\2\7\0\0" + struct.pack(">iqqqi", 0, 1, 2, 3, 4) + b"body"),
    frame(b"\2\3\0\0" + v3.encode_auth_message("p", b"x")),
]


def _strange_answers_v3() -> list[bytes]:
    denied = pb.Response(status=pb.EUA)
    denied.header.version, denied.header.operation, denied.header.txnId = pb.VERSION_THREE, pb.READ_ENTRY, 4
    prioritised = pb.Response.FromString(v3.add_answer_frame(200, pb.EOK, 1, 300)[4:])
    prioritised.header.priority = 100
    # Request id 1 in two bytes, which no serialiser writes, then what looks like its successor.
    padded = [
        b"\x0a\x07\x08\x03\x10\x02\x18" + varint(txn_id, 1) + b"\x10\x00\xaa\x06\x06\x08\x00\x10\x01\x18\x05"
        for txn_id in (1, 2)
    ]
    late = pb.Response.FromString(v3.read_answer_frame(200, pb.EOK, 1, 5, b"body", None)[4:])
    late.readResponse.lacUpdateTimestamp = 77
    return [
        frame(denied.SerializeToString()),
        frame(late.SerializeToString()),
        frame(prioritised.SerializeToString()),
        *map(frame, padded),
        v3.add_answer_frame(200, pb.EFENCED, 1, 300),
        v3.read_answer_frame(200, pb.ENOENTRY, 1, 300, None, None),
        v3.read_answer_frame(200, pb.EOK, 1, -1, b"body", -1),
        v3.read_answer_frame(200, pb.EOK, 1, 300, None, 7),
        v3.read_answer_frame(200, pb.EOK, 1, -1, None, None),
    ]


STRANGE_ANSWERS_V3 = _strange_answers_v3()


@st.composite
def answer_streams(draw: st.DrawFn, version: Version) -> bytes:
    """Answers to runs of adds and reads, as our own bookie writes them, with strange ones between."""
    encoder, codec = request_encoder(version), ServerCodec()
    if version == 3:
        for _ in range(draw(st.sampled_from([0, 110, 120]))):
            encoder.encode_auth("", b"")
    pieces = []
    for _ in range(draw(st.integers(0, 5))):
        for request in codec.receive(draw(runs(encoder))):
            status = draw(st.sampled_from([Status.OK, Status.OK, Status.OK, Status.FENCED, Status.IO_ERROR]))
            if isinstance(request, ReadBatch):
                found: list[bytes | Status] = [b"", b"body", b"body", b"x" * 130, Status.NO_ENTRY]
                results = [draw(st.sampled_from(found)) for _ in request.entry_ids]
                max_lac = draw(st.sampled_from([None, -1, 5, 300]))
                pieces += codec.read_replies(request, results, max_lac)
            else:
                pieces.append(codec.reply(request, status, body=b"body"))
        strange = STRANGE_ANSWERS_V2 if version == 2 else STRANGE_ANSWERS_V3
        for odd in draw(st.lists(st.sampled_from(strange), max_size=3)):
            pieces += [odd] * draw(st.integers(1, 3))
    if draw(st.integers(0, 3)) == 0:
        pieces.insert(draw(st.integers(0, len(pieces))), draw(st.sampled_from(VIOLATIONS)))
    return b"".join(pieces)


def twin_responses(stream: bytes, version: int) -> tuple[list[Response], bool]:
    """Every answer alone, in order, and whether the connection must end."""
    frames, bad_length = frames_of(stream, ANSWER_MAX)
    decode: Callable[[bytes], Response]
    decode = v3.decode_response if version == 3 else lambda message: v2.decode_response(message, 0, len(message))
    responses = []
    for message in frames:
        try:
            responses.append(decode(message))
        except RemoteProtocolError:
            return responses, True
    return responses, bad_length


def separate_response(response: Response) -> list[Response]:
    """A batch as batches of one, without the LAC, which a batch keeps only the greatest of."""
    if isinstance(response, MixedAddAcks):
        return [AddAcks(ledger_id, [entry_id], None) for ledger_id, entry_id in response.pairs]
    if isinstance(response, AddAcks):
        ids = [None] * len(response.entry_ids) if response.request_ids is None else [[i] for i in response.request_ids]
        return [
            AddAcks(response.ledger_id, [entry_id], request_ids)
            for entry_id, request_ids in zip(response.entry_ids, ids, strict=True)
        ]
    if isinstance(response, ReadBodies):
        ids = [None] * len(response.entry_ids) if response.request_ids is None else [[i] for i in response.request_ids]
        return [
            ReadBodies(response.ledger_id, [entry_id], [body], None, request_ids)
            for entry_id, body, request_ids in zip(response.entry_ids, response.bodies, ids, strict=True)
        ]
    return [response]


def check_responses(stream: bytes, cuts: Iterable[int], version: Version) -> None:
    expected, ends = twin_responses(stream, version)
    decoder = response_decoder(version, LIMIT)
    received: list[Response] = []
    for chunk in cut(stream, cuts):
        received += decoder.receive(chunk)
        assert decoder.buffered <= ANSWER_MAX + 4
    alone = [one for response in received for one in separate_response(response)]
    assert alone == [one for response in expected for one in separate_response(response)]
    assert (decoder.error is not None) == ends
    joined: list[Response] = []
    for response in twin_responses(stream, version)[0]:
        append_response(joined, response)
    whole: list[Response] = []
    for response in response_decoder(version, LIMIT).receive(stream):
        for part in separate_response(response) if isinstance(response, MixedAddAcks) else [response]:
            append_response(whole, part)
    assert whole == joined


@EXAMPLES
@given(answer_streams(2), cuts_of)
def test_v2_answers_do_not_depend_on_chunks(stream: bytes, cuts: list[int]) -> None:
    check_responses(stream, cuts, 2)


@EXAMPLES
@given(answer_streams(3), cuts_of)
def test_v3_answers_do_not_depend_on_chunks(stream: bytes, cuts: list[int]) -> None:
    check_responses(stream, cuts, 3)


@settings(max_examples=20, deadline=None)
@given(answer_streams(2), answer_streams(3))
def test_answers_survive_single_bytes(stream_v2: bytes, stream_v3: bytes) -> None:
    check_responses(stream_v2, range(len(stream_v2)), 2)
    check_responses(stream_v3, range(len(stream_v3)), 3)


@EXAMPLES
@given(answer_streams(2), answer_streams(3), flips, cuts_of)
def test_damaged_answers_are_decoded_alike_or_end_the_connection(
    stream_v2: bytes, stream_v3: bytes, places: list[tuple[int, int]], cuts: list[int]
) -> None:
    check_responses(flip(stream_v2, places), cuts, 2)
    check_responses(flip(stream_v3, places), cuts, 3)


# --- every single bit -----------------------------------------------------------------------------------------------


def every_flip(stream: bytes, first: int, last: int) -> Iterator[bytes]:
    """The stream with one bit flipped, for each bit of the bytes first..last - 1."""
    for place in range(first, last):
        for bit in range(8):
            yield flip(stream, [(place, bit)])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("first", [5, 200])
def test_one_flipped_bit_inside_a_run_of_requests_is_decoded_alike(version: Version, first: int) -> None:
    """A frame that differs from its run in any one bit, be it a length, a tag or a varint, is no part of the run."""
    encoder = request_encoder(version)
    for _ in range(5 if first == 5 else 200):
        encoder.encode_auth("", b"")
    entry_ids = [first, first + 1, first + 2]
    bodies = [body_of(300, entry_id, -1, b"rest") for entry_id in entry_ids]
    adds = encoder.encode_adds(300, KEYS[0], entry_ids, bodies)[1]
    reads = encoder.encode_reads(300, entry_ids)[1]
    read_size = len(reads) // 3
    for stream in every_flip(b"".join(adds), len(adds[0]), 2 * len(adds[0])):
        check_requests(stream, [])
    for stream in every_flip(reads, read_size, 2 * read_size):
        check_requests(stream, [])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("first", [5, 200])
def test_one_flipped_bit_inside_a_run_of_answers_is_decoded_alike(version: Version, first: int) -> None:
    encoder, codec = request_encoder(version), ServerCodec()
    for _ in range(5 if first == 5 else 200):
        encoder.encode_auth("", b"")
    entry_ids = [first, first + 1, first + 2]
    bodies = [body_of(300, entry_id, -1, b"rest") for entry_id in entry_ids]
    add, read = codec.receive(
        b"".join(encoder.encode_adds(300, KEYS[0], entry_ids, bodies)[1]) + encoder.encode_reads(300, entry_ids)[1]
    )
    assert isinstance(read, ReadBatch)
    for stream in (codec.reply(add, Status.OK), b"".join(codec.read_replies(read, bodies, 300))):
        size = len(stream) // 3
        for damaged in every_flip(stream, size, 2 * size):
            check_responses(damaged, [], version)


# --- what runs write is what protobuf writes -----------------------------------------------------------------------


@EXAMPLES
@given(ledger_ids, edges, st.integers(1, 300), st.integers(1, 12), st.booleans(), st.booleans(), st.data())
def test_v3_encoders_write_what_protobuf_writes(
    ledger_id: int, first: int, first_request_id: int, count: int, recovery: bool, high: bool, data: st.DataObject
) -> None:
    encoder = request_encoder(3)
    for _ in range(first_request_id - 1):
        encoder.encode_auth("", b"")
    entry_ids = list(range(first, first + count))
    size = data.draw(st.sampled_from([0, 90, 95, 16_360]))
    bodies = [body_of(ledger_id, entry_id, -1, bytes(size)) for entry_id in entry_ids]
    request_id, frames = encoder.encode_adds(
        ledger_id, KEYS[0], entry_ids, bodies, recovery=recovery, high_priority=high
    )
    assert request_id == first_request_id
    ids = list(range(request_id, request_id + count))
    assert frames == [
        v3.add_frame(i, ledger_id, entry_id, KEYS[0], body, recovery=recovery, high_priority=high)
        for i, entry_id, body in zip(ids, entry_ids, bodies, strict=True)
    ]
    request_id, reads = encoder.encode_reads(ledger_id, [*entry_ids, -1, -1], high_priority=high)
    assert reads == b"".join(
        v3.read_frame(request_id + i, ledger_id, entry_id, high_priority=high)
        for i, entry_id in enumerate([*entry_ids, -1, -1])
    )
    request_id, fences = encoder.encode_fence_reads(ledger_id, entry_ids, KEYS[1], high_priority=high)
    assert fences == b"".join(
        v3.read_frame(request_id + i, ledger_id, entry_id, KEYS[1], high_priority=high)
        for i, entry_id in enumerate(entry_ids)
    )


@EXAMPLES
@given(
    ledger_ids, edges, edges, st.integers(1, 12), st.sampled_from(list(Status)), st.sampled_from([None, -1, 5, 2**40])
)
def test_v3_answers_are_what_protobuf_writes(
    ledger_id: int, first: int, request_id: int, count: int, status: Status, max_lac: int | None
) -> None:
    codec = ServerCodec()
    entry_ids, ids = list(range(first, first + count)), list(range(request_id, request_id + count))
    adds = AddBatch(ledger_id, KEYS[0], entry_ids, [b""] * count, -1, False, False, False, ids)
    code = v3.CODE_OF_STATUS[status]
    assert codec.add_replies([adds], status) == b"".join(
        v3.add_answer_frame(i, code, ledger_id, entry_id) for i, entry_id in zip(ids, entry_ids, strict=True)
    )
    bodies = [bytes(100 + index // 4) for index in range(count)]
    reads = ReadBatch(ledger_id, entry_ids, ids)
    assert b"".join(codec.read_replies(reads, bodies, max_lac)) == b"".join(
        v3.read_answer_frame(i, pb.EOK, ledger_id, entry_id, body, max_lac)
        for i, entry_id, body in zip(ids, entry_ids, bodies, strict=True)
    )
