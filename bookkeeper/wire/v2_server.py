"""Protocol v2, the bookie's side. Layouts are in `v2`.

What cannot be answered (no ids, unknown opcode) raises RemoteProtocolError and ends the connection. What can be
answered and must not be served becomes `Malformed`: negative ids among them, which ruin a genuine bookie that replays
our journal.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.model import ENTRY_HEADER_SIZE, MASTER_KEY_SIZE, Status
from bookkeeper.wire.framing import LENGTH, LENGTH_SIZE, SMALL_FRAME_MAX, bad_length
from bookkeeper.wire.messages import (
    REQUESTS_AT_ONCE,
    AddBatch,
    Auth,
    BatchRead,
    FenceRead,
    Malformed,
    Operation,
    ReadBatch,
    Request,
    append_request,
)
from bookkeeper.wire.packed_bodies import framed
from bookkeeper.wire.v2 import (
    ADD,
    ANSWER_SIZE,
    AUTH,
    BATCH_READ,
    BODY_OFFSET,
    CODE_OF_STATUS,
    FLAG_FENCE,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    HEADER_SIZE,
    IDS_SIZE,
    READ,
    READ_FRAME,
    READ_SIZE,
    VERSION,
    answer_header,
    decode_auth_message,
    encode_auth_message,
    unpack_header,
)

_ADD_SIZE_MIN = BODY_OFFSET + ENTRY_HEADER_SIZE
_BATCH_READ_SIZE = READ_SIZE + 20

_IDS = struct.Struct(">qq")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_BODY_HEAD = struct.Struct(">qqq")  # ledger, entry, LAC
_BATCH_READ_TAIL = struct.Struct(">qiq")  # request id, count, size
_ANSWER = struct.Struct(">i4siqq")  # frame length, header, code, ledger, entry

# What the add loop unpacks, from the frame's length field on.
_ADD_RUN = struct.Struct(">i32xqq")  # length, header + key + ledger, entry, LAC

# A whole add up to the LAC in its body, from the frame's length field on.
_PLAIN_ADD = struct.Struct(">i4s20sqqq")
_PLAIN_HEADER = bytes((VERSION, ADD, 0, 0))
_PLAIN_TOKEN = answer_header(VERSION, ADD)
_BODY_AT = LENGTH_SIZE + BODY_OFFSET


# --- requests -------------------------------------------------------------------------------------------------------


def decode_requests(data: bytes, position: int, size_max: int, requests: list[Request]) -> int:
    """Append the requests of whole frames from `position` on; return the start of the first undecoded frame.

    Stops at an incomplete frame, or at REQUESTS_AT_ONCE requests. A run of plain adds may exceed this number.
    Raises RemoteProtocolError at a frame that ends the connection; what came before it is in `requests`.
    """
    end = len(data)
    while end - position >= LENGTH_SIZE and len(requests) < REQUESTS_AT_ONCE:
        position = _plain_adds(data, position, size_max, requests)
        if end - position < LENGTH_SIZE:
            break
        length = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= size_max:
            raise bad_length(length, size_max)
        start = position + LENGTH_SIZE
        stop = start + length
        if stop > end:
            break
        request = decode_request(data, start, stop)
        append_request(requests, request)
        position = stop
        if type(request) is AddBatch:
            position = _add_run(data, start, position, size_max, requests[-1])
        elif type(request) is ReadBatch and request.entry_ids[0] >= 0:
            position = _read_run(data, start, position, requests[-1])
    return position


def _plain_adds(data: bytes, position: int, size_max: int, requests: list[Request]) -> int:
    """Append the batches of the frames from `position` on that are whole adds of version 2 without flags.

    The same as the slow path makes of them; tests hold the two together.
    """
    unpack, last = _PLAIN_ADD.unpack_from, len(data) - _PLAIN_ADD.size
    batch: Request | None = requests[-1] if requests else None
    while position <= last:
        length, header, key, ledger_id, entry_id, lac = unpack(data, position)
        stop = position + 4 + length
        if (
            header != _PLAIN_HEADER
            or not _ADD_SIZE_MIN <= length <= size_max
            or stop > len(data)
            or entry_id < 0
            or ledger_id < 0
        ):
            break
        body = data[position + _BODY_AT : stop]
        if type(batch) is AddBatch and batch.takes(ledger_id, key, _PLAIN_TOKEN):
            batch.entry_ids.append(entry_id)
            batch.bodies.append(body)
            if lac > batch.last_confirmed:
                batch.last_confirmed = lac
        else:
            batch = AddBatch(ledger_id, key, [entry_id], [body], max(-1, lac), False, False, False, _PLAIN_TOKEN)
            requests.append(batch)
        start, position = position + LENGTH_SIZE, stop
        if data.startswith(data[start : start + 32], position + LENGTH_SIZE):
            position = _add_run(data, start, position, size_max, batch)
    return position


def _add_run(data: bytes, start: int, position: int, size_max: int, batch: Request) -> int:
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
        if stop > end or not _ADD_SIZE_MIN <= length <= size_max or entry_id < 0:
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
    size = READ_FRAME.size
    if not data.startswith(fixed, position) or fixed[:LENGTH_SIZE] != b"\0\0\0\x14":
        return position
    count = (len(data) - position) // size
    entry_ids = batch.entry_ids
    before = len(entry_ids)
    for head, entry_id in READ_FRAME.iter_unpack(memoryview(data)[position : position + count * size]):
        if head != fixed or entry_id < 0:
            break
        entry_ids.append(entry_id)
    return position + (len(entry_ids) - before) * size


def decode_request(data: bytes, start: int, stop: int) -> Request:
    """The request in the frame data[start:stop]. Raises RemoteProtocolError when it cannot even be answered."""
    if stop - start < HEADER_SIZE:
        raise RemoteProtocolError(f"request of {stop - start} bytes has no packet header: not a BookKeeper client")
    version, opcode, flags = unpack_header(data, start)
    if opcode == ADD:
        return _decode_add(data, start, stop, version, flags)
    if opcode == READ:
        return _decode_read(data, start, stop, version, flags)
    if opcode == BATCH_READ:
        return _decode_batch_read(data, start, stop, version, flags)
    if opcode == AUTH:
        if stop - start > SMALL_FRAME_MAX:
            raise RemoteProtocolError(f"authentication of {stop - start} bytes is above {SMALL_FRAME_MAX}")
        plugin, payload = decode_auth_message(data[start + HEADER_SIZE : stop])
        return Auth(plugin, payload, bytes((VERSION, AUTH, 0, 0)))
    raise RemoteProtocolError(
        f"packet version {version} with opcode {opcode} is no request of protocol v2: not a BookKeeper client, or "
        "one of a release after 4.18"
    )


def _unserved(version: int) -> str:
    return f"packet version {version}, and 0 to {VERSION} are served: use a client of a release that speaks these"


def _decode_add(data: bytes, start: int, stop: int, version: int, flags: int) -> Request:
    body_start = start + BODY_OFFSET
    if stop - body_start < IDS_SIZE:
        raise RemoteProtocolError(f"add of {stop - start} bytes does not reach its entry id")
    token = answer_header(version, ADD)
    ledger_id, entry_id = _IDS.unpack_from(data, body_start)
    if version > VERSION:
        return Malformed(Operation.ADD, Status.BAD_VERSION, ledger_id, entry_id, _unserved(version), token)
    if stop - body_start < ENTRY_HEADER_SIZE:
        reason = f"body of {stop - body_start} bytes is below {ENTRY_HEADER_SIZE}"
        return Malformed(Operation.ADD, Status.BAD_REQUEST, ledger_id, entry_id, reason, token)
    if ledger_id < 0 or entry_id < 0:
        return Malformed(Operation.ADD, Status.BAD_REQUEST, ledger_id, entry_id, "negative id", token)
    return AddBatch(
        ledger_id,
        data[start + HEADER_SIZE : body_start],
        [entry_id],
        [data[body_start:stop]],
        max(-1, _BODY_HEAD.unpack_from(data, body_start)[2]),
        flags & FLAG_RECOVERY_ADD != 0,
        flags & FLAG_HIGH_PRIORITY != 0,
        False,  # deferred sync: v3 only
        token,
    )


def _decode_read(data: bytes, start: int, stop: int, version: int, flags: int) -> Request:
    if stop - start < READ_SIZE:
        raise RemoteProtocolError(f"read of {stop - start} bytes does not reach its entry id")
    token = answer_header(version, READ)
    ledger_id, entry_id = _IDS.unpack_from(data, start + HEADER_SIZE)
    if version > VERSION:
        return Malformed(Operation.READ, Status.BAD_VERSION, ledger_id, entry_id, _unserved(version), token)
    if ledger_id < 0 or entry_id < -1:
        return Malformed(Operation.READ, Status.BAD_REQUEST, ledger_id, entry_id, "negative id", token)
    if not flags & FLAG_FENCE:
        return ReadBatch(ledger_id, [entry_id], token)
    key = _fence_key(data, start + READ_SIZE, stop, version)
    return FenceRead(ledger_id, entry_id, key, flags & FLAG_HIGH_PRIORITY != 0, token)


def _decode_batch_read(data: bytes, start: int, stop: int, version: int, flags: int) -> Request:
    if stop - start < _BATCH_READ_SIZE:
        raise RemoteProtocolError(f"batch read of {stop - start} bytes is below {_BATCH_READ_SIZE}")
    ledger_id, entry_id = _IDS.unpack_from(data, start + HEADER_SIZE)
    request_id, count_max, size_max = _BATCH_READ_TAIL.unpack_from(data, start + READ_SIZE)
    token = answer_header(version, BATCH_READ) + _LONG.pack(request_id)
    operation = Operation.BATCH_READ
    if version > VERSION:
        return Malformed(operation, Status.BAD_VERSION, ledger_id, entry_id, _unserved(version), token)
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


# --- answers --------------------------------------------------------------------------------------------------------


def add_replies(batches: Sequence[AddBatch], status: Status) -> bytes:
    """The same answer to all adds of some batches, joined. They repeat the ids at the start of each body."""
    token = batches[0].token
    assert isinstance(token, bytes)
    if len({batch.token for batch in batches}) > 1:  # packet versions mixed on one connection
        return b"".join([add_replies((batch,), status) for batch in batches])
    fixed = LENGTH.pack(ANSWER_SIZE) + token + _INT.pack(CODE_OF_STATUS[status])
    return fixed + fixed.join([body[:16] for batch in batches for body in batch.bodies])


def read_replies(batch: ReadBatch, results: Sequence[bytes | Status]) -> list[bytes]:
    """The answers to a batch of reads as parts to send one after the other."""
    token = batch.token
    assert isinstance(token, bytes)
    ledger_id, pack, parts = batch.ledger_id, _ANSWER.pack, []
    for entry_id, result in zip(batch.entry_ids, results, strict=True):
        if isinstance(result, Status):
            parts.append(pack(ANSWER_SIZE, token, CODE_OF_STATUS[result], ledger_id, entry_id))
        else:
            parts.append(pack(ANSWER_SIZE + len(result), token, 0, ledger_id, entry_id))
            parts.append(result)
    return parts


def read_reply(request: FenceRead, status: Status, body: bytes | None) -> bytes:
    """Answer to a fencing read; the body goes with OK only."""
    return _answer(
        request.token, status, request.ledger_id, request.entry_id, (body or b"") if status is Status.OK else b""
    )


def batch_read_reply(request: BatchRead, status: Status, bodies: Sequence[bytes]) -> bytes:
    """Answer to a batch read: consecutive entries from the first one asked for, none unless OK."""
    token = request.token
    assert isinstance(token, bytes)
    if status is not Status.OK:
        bodies = ()
    parts = framed(bodies)
    size = ANSWER_SIZE + len(token) - HEADER_SIZE + sum(map(len, parts))
    code = CODE_OF_STATUS[status]
    head = _ANSWER.pack(size, token, code, request.ledger_id, request.first_entry_id)
    return b"".join((head, token[HEADER_SIZE:], *parts))


def auth_reply(status: Status, plugin: str, payload: bytes) -> bytes:
    """Answer to an authentication step. There is no way to say no in v2: b"", the bookie closes the connection."""
    if status is not Status.OK:
        return b""
    message = bytes((VERSION, AUTH, 0, 0)) + encode_auth_message(plugin, payload)
    return LENGTH.pack(len(message)) + message


def refusal(request: Malformed) -> bytes:
    """Answer to a request that is not served."""
    return _answer(request.token, request.status, request.ledger_id, request.entry_id, b"")


def _answer(token: object, status: Status, ledger_id: int, entry_id: int, rest: bytes) -> bytes:
    """token: packet header, and for a batch read the request id, which stands before everything else."""
    assert isinstance(token, bytes)
    rest = token[HEADER_SIZE:] + rest
    return _ANSWER.pack(ANSWER_SIZE + len(rest), token, CODE_OF_STATUS[status], ledger_id, entry_id) + rest
