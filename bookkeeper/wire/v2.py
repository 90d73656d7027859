"""Protocol v2: binary packets. All integers big-endian; offsets after the frame length.

    header        u8 version | u8 opcode | u16 flags      version 0: three zero bytes | u8 opcode, no flags
    add           header | master key 20 | entry body (ledger id i64, entry id i64, LAC i64, length i64, ...)
    read          header | ledger id i64 | entry id i64 [| master key 20, with the fencing flag]
    batch read    header | ledger id | first entry id | request id i64 | count i32 | size i64 [| master key 20]
    auth          header | protobuf AuthMessage
    answers       header | code i32 | ledger id i64 | entry id i64 [| body]
                  batch read: ... | request id | (size i32 | body)*             auth: header | AuthMessage

Two ways through a chunk with one result. `decode_request` and `decode_response` read one frame and know everything.
After each add, read or acknowledgement a run loop takes the frames that repeat its fixed bytes (version, opcode, flags,
key, ledger) by comparing them as one slice, and stops at the first other frame. Tests hold both to the same messages.

Sources: Apache 4.18 BookieProtoEncoding, BookieProtocol; versions 0 and 1 as in 4.2.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bookkeeper.errors import LocalProtocolError, RemoteProtocolError
from bookkeeper.model import ENTRY_HEADER_SIZE, MASTER_KEY_SIZE, Status
from bookkeeper.wire.framing import LENGTH, LENGTH_SIZE, bad_length
from bookkeeper.wire.messages import (
    AddAcks,
    AddBatch,
    AddFailed,
    Auth,
    AuthReply,
    BatchRead,
    BatchReadReply,
    FenceRead,
    Malformed,
    Operation,
    ReadBatch,
    ReadBodies,
    ReadFailed,
    Request,
    Response,
    append_request,
    append_response,
)

VERSION = 2

ADD = 1
READ = 2
AUTH = 3
BATCH_READ = 7
_OPERATIONS = {ADD: Operation.ADD, READ: Operation.READ, AUTH: Operation.AUTH, BATCH_READ: Operation.BATCH_READ}

FLAG_FENCE = 0x1
FLAG_RECOVERY_ADD = 0x2
FLAG_HIGH_PRIORITY = 0x4

CODE_OF_STATUS = {
    Status.OK: 0,
    Status.NO_LEDGER: 1,
    Status.NO_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.UNAUTHORIZED: 102,
    Status.BAD_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.TOO_MANY_REQUESTS: 106,
    Status.UNKNOWN_LEDGER_STATE: 107,
}
_STATUS_OF_CODE = {code: status for status, code in CODE_OF_STATUS.items()}

_HEADER_SIZE = 4
_IDS_SIZE = 16
_BODY_OFFSET = _HEADER_SIZE + MASTER_KEY_SIZE  # of an add, in its frame
_ADD_SIZE_MIN = _BODY_OFFSET + ENTRY_HEADER_SIZE
_READ_SIZE = _HEADER_SIZE + _IDS_SIZE
_BATCH_READ_SIZE = _READ_SIZE + 20
_ANSWER_SIZE = _HEADER_SIZE + 4 + _IDS_SIZE
_BATCH_ANSWER_SIZE = _ANSWER_SIZE + 8

_ADD_OVERHEAD = LENGTH_SIZE + _BODY_OFFSET
"""Bytes of a framed add beyond its body. Apache's limit counts the length field too; a read answer needs no more."""

_IDS = struct.Struct(">qq")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_BODY_HEAD = struct.Struct(">qqq")  # ledger, entry, LAC
_BATCH_READ_TAIL = struct.Struct(">qiq")  # request id, count, size
_ANSWER = struct.Struct(">i4siqq")  # frame length, header, code, ledger, entry
_ANSWER_FIXED = struct.Struct(">iqq")  # code, ledger, entry

# What the run loops compare and unpack, from the frame's length field on.
_ADD_RUN = struct.Struct(">i32xqq")  # length, header + key + ledger, entry, LAC
_READ_RUN = struct.Struct(">16sq")  # length + header + ledger, entry: a whole frame
_ACK_RUN = struct.Struct(">20sq")  # length + header + code + ledger, entry: a whole frame
_BODIES_RUN = struct.Struct(">i16xq")  # length, header + code + ledger, entry


# --- server: requests -----------------------------------------------------------------------------------------------


def decode_requests(data: bytes, position: int, frame_size_max: int, requests: list[Request]) -> int:
    """Append the requests of all whole frames from `position` on; return where the first incomplete frame starts.

    Raises RemoteProtocolError at a frame that ends the connection; what came before it is in `requests`.
    """
    end = len(data)
    while end - position >= LENGTH_SIZE:
        length = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= frame_size_max:
            raise bad_length(length, frame_size_max)
        start = position + LENGTH_SIZE
        stop = start + length
        if stop > end:
            break
        request = decode_request(data, start, stop)
        append_request(requests, request)
        position = stop
        if type(request) is AddBatch:
            position = _add_run(data, start, position, frame_size_max, requests[-1])
        elif type(request) is ReadBatch and request.entry_ids[0] >= 0:
            position = _read_run(data, start, position, requests[-1])
    return position


def _add_run(data: bytes, start: int, position: int, frame_size_max: int, batch: Request) -> int:
    """Add to `batch` the frames at `position` that repeat header, key and ledger of the frame at `start` - 4."""
    assert isinstance(batch, AddBatch)
    fixed = data[start : start + 32]
    entry_ids, bodies, confirmed = batch.entry_ids, batch.bodies, batch.last_confirmed
    startswith, unpack = data.startswith, _ADD_RUN.unpack_from
    end = len(data)
    last = end - LENGTH_SIZE - _ADD_SIZE_MIN
    while position <= last and startswith(fixed, position + 4):
        length, entry_id, lac = unpack(data, position)
        stop = position + 4 + length
        if stop > end or not _ADD_SIZE_MIN <= length <= frame_size_max or entry_id < 0:
            break
        entry_ids.append(entry_id)
        bodies.append(data[position + 28 : stop])
        if lac > confirmed:
            confirmed = lac
        position = stop
    batch.last_confirmed = confirmed
    return position


def _read_run(data: bytes, start: int, position: int, batch: Request) -> int:
    """Add to `batch` the frames at `position` that repeat length, header and ledger of the frame at `start` - 4."""
    assert isinstance(batch, ReadBatch)
    fixed = data[start - LENGTH_SIZE : start + 12]
    size = _READ_RUN.size
    if not data.startswith(fixed, position) or fixed[:LENGTH_SIZE] != b"\0\0\0\x14":
        return position
    count = (len(data) - position) // size
    entry_ids = batch.entry_ids
    before = len(entry_ids)
    for head, entry_id in _READ_RUN.iter_unpack(memoryview(data)[position : position + count * size]):
        if head != fixed or entry_id < 0:
            break
        entry_ids.append(entry_id)
    return position + (len(entry_ids) - before) * size


def decode_request(data: bytes, start: int, stop: int) -> Request:
    """The request in the frame data[start:stop]. Raises RemoteProtocolError when it cannot even be answered."""
    if stop - start < _HEADER_SIZE:
        raise RemoteProtocolError(f"request of {stop - start} bytes has no packet header: not a BookKeeper client")
    version, opcode, flags = _header(data, start)
    if opcode == ADD:
        return _decode_add(data, start, stop, version, flags)
    if opcode == READ:
        return _decode_read(data, start, stop, version, flags)
    if opcode == BATCH_READ:
        return _decode_batch_read(data, start, stop, version, flags)
    if opcode == AUTH:
        plugin, payload = _decode_auth_message(data[start + _HEADER_SIZE : stop])
        return Auth(plugin, payload, bytes((VERSION, AUTH, 0, 0)))
    raise RemoteProtocolError(f"packet version {version} with opcode {opcode} is no request of protocol v2")


def _header(data: bytes, start: int) -> tuple[int, int, int]:
    """Version, opcode and flags of a packet."""
    version = data[start]
    if version == 0:
        return 0, data[start + 3], 0
    return version, data[start + 1], data[start + 2] << 8 | data[start + 3]


def _answer_header(version: int, opcode: int) -> bytes:
    return bytes((0, 0, 0, opcode)) if version == 0 else bytes((version, opcode, 0, 0))


def _decode_add(data: bytes, start: int, stop: int, version: int, flags: int) -> Request:
    body_start = start + _BODY_OFFSET
    if stop - body_start < _IDS_SIZE:
        raise RemoteProtocolError(f"add of {stop - start} bytes does not reach its entry id")
    token = _answer_header(version, ADD)
    ledger_id, entry_id = _IDS.unpack_from(data, body_start)
    if version > VERSION:
        return Malformed(Operation.ADD, Status.BAD_VERSION, ledger_id, entry_id, f"packet version {version}", token)
    if stop - body_start < ENTRY_HEADER_SIZE:
        reason = f"body of {stop - body_start} bytes is below {ENTRY_HEADER_SIZE}"
        return Malformed(Operation.ADD, Status.BAD_REQUEST, ledger_id, entry_id, reason, token)
    if ledger_id < 0 or entry_id < 0:
        return Malformed(Operation.ADD, Status.BAD_REQUEST, ledger_id, entry_id, "negative id", token)
    return AddBatch(
        ledger_id,
        data[start + _HEADER_SIZE : body_start],
        [entry_id],
        [data[body_start:stop]],
        max(-1, _BODY_HEAD.unpack_from(data, body_start)[2]),
        flags & FLAG_RECOVERY_ADD != 0,
        flags & FLAG_HIGH_PRIORITY != 0,
        False,  # deferred sync: v3 only
        token,
    )


def _decode_read(data: bytes, start: int, stop: int, version: int, flags: int) -> Request:
    if stop - start < _READ_SIZE:
        raise RemoteProtocolError(f"read of {stop - start} bytes does not reach its entry id")
    token = _answer_header(version, READ)
    ledger_id, entry_id = _IDS.unpack_from(data, start + _HEADER_SIZE)
    if version > VERSION:
        return Malformed(Operation.READ, Status.BAD_VERSION, ledger_id, entry_id, f"packet version {version}", token)
    if ledger_id < 0 or entry_id < -1:
        return Malformed(Operation.READ, Status.BAD_REQUEST, ledger_id, entry_id, "negative id", token)
    if not flags & FLAG_FENCE:
        return ReadBatch(ledger_id, [entry_id], token)
    key = _fence_key(data, start + _READ_SIZE, stop, version)
    return FenceRead(ledger_id, entry_id, key, flags & FLAG_HIGH_PRIORITY != 0, token)


def _decode_batch_read(data: bytes, start: int, stop: int, version: int, flags: int) -> Request:
    if stop - start < _BATCH_READ_SIZE:
        raise RemoteProtocolError(f"batch read of {stop - start} bytes is below {_BATCH_READ_SIZE}")
    ledger_id, entry_id = _IDS.unpack_from(data, start + _HEADER_SIZE)
    request_id, count_max, size_max = _BATCH_READ_TAIL.unpack_from(data, start + _READ_SIZE)
    token = _answer_header(version, BATCH_READ) + _LONG.pack(request_id)
    operation = Operation.BATCH_READ
    if version > VERSION:
        return Malformed(operation, Status.BAD_VERSION, ledger_id, entry_id, f"packet version {version}", token)
    if ledger_id < 0 or entry_id < -1:
        return Malformed(operation, Status.BAD_REQUEST, ledger_id, entry_id, "negative id", token)
    fence = flags & FLAG_FENCE != 0
    key = _fence_key(data, start + _BATCH_READ_SIZE, stop, version) if fence else None
    return BatchRead(ledger_id, entry_id, request_id, count_max, size_max, fence, key, token)


def _fence_key(data: bytes, key_start: int, stop: int, version: int) -> bytes | None:
    """The master key of a fencing read. Version 1 fenced without one, which nobody accepts any more."""
    if version < 2 or stop - key_start < MASTER_KEY_SIZE:
        return None
    return data[key_start : key_start + MASTER_KEY_SIZE]


def _decode_auth_message(data: bytes) -> tuple[str, bytes]:
    from bookkeeper.wire import v3  # protobuf only for the few who authenticate

    return v3.decode_auth_message(data)


def _encode_auth_message(plugin: str, payload: bytes) -> bytes:
    from bookkeeper.wire import v3

    return v3.encode_auth_message(plugin, payload)


# --- server: answers ------------------------------------------------------------------------------------------------


def add_replies(batch: AddBatch, status: Status) -> bytes:
    """All answers to a batch of adds, joined. They repeat the ids at the start of each body."""
    assert isinstance(batch.token, bytes)
    fixed = LENGTH.pack(_ANSWER_SIZE) + batch.token + _INT.pack(CODE_OF_STATUS[status])
    return fixed + fixed.join([body[:16] for body in batch.bodies])


def read_replies(batch: ReadBatch, results: Sequence[bytes | Status]) -> list[bytes]:
    """The answers to a batch of reads as parts to send one after the other."""
    token = batch.token
    assert isinstance(token, bytes)
    ledger_id, pack, parts = batch.ledger_id, _ANSWER.pack, []
    for entry_id, result in zip(batch.entry_ids, results, strict=True):
        if isinstance(result, Status):
            parts.append(pack(_ANSWER_SIZE, token, CODE_OF_STATUS[result], ledger_id, entry_id))
        else:
            parts.append(pack(_ANSWER_SIZE + len(result), token, 0, ledger_id, entry_id))
            parts.append(result)
    return parts


def read_reply(request: FenceRead, status: Status, body: bytes | None) -> bytes:
    """Answer to a fencing read; the body goes with OK only."""
    return _answer(
        request.token, status, request.ledger_id, request.entry_id, (body or b"") if status is Status.OK else b""
    )


def batch_read_reply(request: BatchRead, status: Status, bodies: Sequence[bytes]) -> bytes:
    """Answer to a batch read: consecutive entries from the first one asked for, none unless OK."""
    parts = []
    for body in bodies if status is Status.OK else ():
        parts.append(LENGTH.pack(len(body)))
        parts.append(body)
    return _answer(request.token, status, request.ledger_id, request.first_entry_id, b"".join(parts))


def auth_reply(status: Status, plugin: str, payload: bytes) -> bytes:
    """Answer to an authentication step. There is no way to say no in v2: b"", the bookie closes the connection."""
    if status is not Status.OK:
        return b""
    message = bytes((VERSION, AUTH, 0, 0)) + _encode_auth_message(plugin, payload)
    return LENGTH.pack(len(message)) + message


def refusal(request: Malformed) -> bytes:
    """Answer to a request that is not served."""
    return _answer(request.token, request.status, request.ledger_id, request.entry_id, b"")


def _answer(token: object, status: Status, ledger_id: int, entry_id: int, rest: bytes) -> bytes:
    """token: packet header, and for a batch read the request id, which stands before everything else."""
    assert isinstance(token, bytes)
    rest = token[_HEADER_SIZE:] + rest
    return _ANSWER.pack(_ANSWER_SIZE + len(rest), token, CODE_OF_STATUS[status], ledger_id, entry_id) + rest


# --- client: requests -----------------------------------------------------------------------------------------------


class RequestEncoder:
    """Requests of one client. Has no state: request ids are always 0 and answers carry none.

    body_size_max: largest entry body that fits a frame; longer ones raise LocalProtocolError.
    """

    version = VERSION

    def __init__(self, frame_size_max: int) -> None:
        self.body_size_max = frame_size_max - _ADD_OVERHEAD

    def encode_adds(
        self,
        ledger_id: int,
        master_key: bytes,
        entry_ids: Sequence[int],
        bodies: Sequence[bytes],
        *,
        recovery: bool = False,
        high_priority: bool = False,
    ) -> tuple[int, list[bytes]]:
        """One frame per entry; the same frame goes to every bookie of its write set.

        The ids that travel are those inside the bodies.
        """
        check_key(master_key)
        flags = (FLAG_RECOVERY_ADD if recovery else 0) | (FLAG_HIGH_PRIORITY if high_priority else 0)
        header = bytes((VERSION, ADD, 0, flags)) + master_key
        prefix, known_size, frames = b"", -1, []
        for body in bodies:
            size = len(body)
            if size != known_size:
                if size > self.body_size_max:
                    raise too_large(ledger_id, size, self.body_size_max)
                prefix = LENGTH.pack(_BODY_OFFSET + size) + header
                known_size = size
            frames.append(prefix + body)
        return 0, frames

    def encode_reads(
        self, ledger_id: int, entry_ids: Sequence[int], *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Plain reads, joined; entry -1 reads the last entry the bookie holds."""
        flags = FLAG_HIGH_PRIORITY if high_priority else 0
        fixed = LENGTH.pack(_READ_SIZE) + bytes((VERSION, READ, 0, flags)) + _LONG.pack(ledger_id)
        pack = _READ_RUN.pack
        return 0, b"".join([pack(fixed, entry_id) for entry_id in entry_ids])

    def encode_fence_reads(
        self, ledger_id: int, entry_ids: Sequence[int], master_key: bytes, *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Reads that fence the ledger first, joined."""
        check_key(master_key)
        flags = FLAG_FENCE | (FLAG_HIGH_PRIORITY if high_priority else 0)
        fixed = LENGTH.pack(_READ_SIZE + MASTER_KEY_SIZE) + bytes((VERSION, READ, 0, flags)) + _LONG.pack(ledger_id)
        pack = _READ_RUN.pack
        return 0, b"".join([pack(fixed, entry_id) + master_key for entry_id in entry_ids])

    def encode_auth(self, plugin: str, payload: bytes) -> tuple[int, bytes]:
        """One step of the authentication plugin's handshake."""
        message = bytes((VERSION, AUTH, 0, 0)) + _encode_auth_message(plugin, payload)
        return 0, LENGTH.pack(len(message)) + message


def check_key(master_key: bytes) -> None:
    """Raise LocalProtocolError unless the key has its 20 bytes."""
    if len(master_key) != MASTER_KEY_SIZE:
        raise LocalProtocolError(
            f"master key of {len(master_key)} bytes, it has {MASTER_KEY_SIZE}: use digest.master_key"
        )


def too_large(ledger_id: int, size: int, size_max: int) -> LocalProtocolError:
    """The error for an entry body that fits no frame."""
    return LocalProtocolError(
        f"entry body of {size} bytes for ledger {ledger_id} is above {size_max}: "
        "split it, or raise nettyMaxFrameSizeBytes on client and bookies"
    )


# --- client: answers ------------------------------------------------------------------------------------------------


def decode_responses(data: bytes, position: int, frame_size_max: int, responses: list[Response]) -> int:
    """Append the answers of all whole frames from `position` on; return where the first incomplete frame starts.

    Raises RemoteProtocolError at a frame that ends the connection; what came before it is in `responses`.
    """
    end = len(data)
    while end - position >= LENGTH_SIZE:
        length = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= frame_size_max:
            raise bad_length(length, frame_size_max)
        start = position + LENGTH_SIZE
        stop = start + length
        if stop > end:
            break
        response = decode_response(data, start, stop)
        append_response(responses, response)
        position = stop
        if type(response) is AddAcks:
            position = _ack_run(data, start, position, responses[-1])
        elif type(response) is ReadBodies:
            position = _bodies_run(data, start, position, frame_size_max, responses[-1])
    return position


def _ack_run(data: bytes, start: int, position: int, acks: Response) -> int:
    """Add to `acks` the frames at `position` that differ from the frame at `start` - 4 by the entry id only."""
    assert isinstance(acks, AddAcks)
    fixed = data[start - LENGTH_SIZE : start + 16]
    size = _ACK_RUN.size
    if not data.startswith(fixed, position) or fixed[:LENGTH_SIZE] != b"\0\0\0\x18":
        return position
    count = (len(data) - position) // size
    entry_ids = acks.entry_ids
    before = len(entry_ids)
    for head, entry_id in _ACK_RUN.iter_unpack(memoryview(data)[position : position + count * size]):
        if head != fixed:
            break
        entry_ids.append(entry_id)
    return position + (len(entry_ids) - before) * size


def _bodies_run(data: bytes, start: int, position: int, frame_size_max: int, reads: Response) -> int:
    """Add to `reads` the frames at `position` that repeat header, code and ledger of the frame at `start` - 4."""
    assert isinstance(reads, ReadBodies)
    fixed = data[start : start + 16]
    entry_ids, bodies = reads.entry_ids, reads.bodies
    startswith, unpack = data.startswith, _BODIES_RUN.unpack_from
    end = len(data)
    last = end - LENGTH_SIZE - _ANSWER_SIZE
    while position <= last and startswith(fixed, position + 4):
        length, entry_id = unpack(data, position)
        stop = position + 4 + length
        if stop > end or not _ANSWER_SIZE <= length <= frame_size_max:
            break
        entry_ids.append(entry_id)
        bodies.append(data[position + 28 : stop])
        position = stop
    return position


def decode_response(data: bytes, start: int, stop: int) -> Response:
    """The answer in the frame data[start:stop], of any packet version. Raises RemoteProtocolError when it is none.

    Bytes after the ids of a failed read are ignored: 4.2.3 repeats the ids there.
    """
    if stop - start < _HEADER_SIZE:
        raise RemoteProtocolError(f"answer of {stop - start} bytes has no packet header: not a bookie")
    version, opcode, _ = _header(data, start)
    if opcode == AUTH:
        plugin, payload = _decode_auth_message(data[start + _HEADER_SIZE : stop])
        return AuthReply(Status.OK, plugin, payload, None)
    if opcode not in _OPERATIONS:
        raise RemoteProtocolError(f"packet version {version} with opcode {opcode} is no answer of protocol v2")
    if stop - start < (_BATCH_ANSWER_SIZE if opcode == BATCH_READ else _ANSWER_SIZE):
        raise RemoteProtocolError(f"{_OPERATIONS[opcode].value} answer of {stop - start} bytes is cut short")
    code, ledger_id, entry_id = _ANSWER_FIXED.unpack_from(data, start + _HEADER_SIZE)
    status = _STATUS_OF_CODE.get(code, Status.IO_ERROR)  # an unknown code is no verdict
    if opcode == ADD:
        if status is Status.OK:
            return AddAcks(ledger_id, [entry_id], None)
        return AddFailed(ledger_id, entry_id, status, None)
    if opcode == READ:
        if status is Status.OK:
            return ReadBodies(ledger_id, [entry_id], [data[start + _ANSWER_SIZE : stop]], None, None)
        return ReadFailed(ledger_id, entry_id, status, None)
    request_id = _LONG.unpack_from(data, start + _ANSWER_SIZE)[0]
    bodies = _batch_bodies(data, start + _BATCH_ANSWER_SIZE, stop) if status is Status.OK else ()
    return BatchReadReply(ledger_id, entry_id, status, bodies, request_id)


def _batch_bodies(data: bytes, position: int, stop: int) -> tuple[bytes, ...]:
    bodies = []
    while position < stop:
        size = LENGTH.unpack_from(data, position)[0] if stop - position >= LENGTH_SIZE else -1
        position += LENGTH_SIZE
        if not 0 <= size <= stop - position:
            raise RemoteProtocolError("batch read answer: an entry's size points outside the frame")
        bodies.append(data[position : position + size])
        position += size
    return tuple(bodies)
