"""Protocol v3, the bookie's side: protobuf Requests in, Responses out. Numbers and the client's side are in `v3`.

Source: bookkeeper/wire/FORMATS.md 2.1 to 2.4; Apache 4.18 *ProcessorV3 for the shape of answers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.model import ENTRY_HEADER_SIZE, MASTER_KEY_SIZE, Status
from bookkeeper.wire.digest import LAC_HEADER_SIZE, ids_of, lac_of
from bookkeeper.wire.framing import LENGTH, LENGTH_SIZE, SMALL_FRAME_MAX, bad_length
from bookkeeper.wire.messages import (
    REQUESTS_AT_ONCE,
    AddBatch,
    Auth,
    BookieInfo,
    FenceRead,
    ForceLedger,
    ListEntries,
    LongPollRead,
    Malformed,
    Operation,
    ReadBatch,
    ReadLac,
    Request,
    StartTls,
    WriteLac,
    append_request,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb
from bookkeeper.wire.runs import FramePattern, same_head
from bookkeeper.wire.v2 import VERSION as VERSION_2
from bookkeeper.wire.v3 import (
    CODE_OF_STATUS,
    OPERATIONS,
    add_answer_frame,
    add_frame,
    add_tail_size,
    framed,
    plugin_of,
    read_answer_frame,
    read_answer_pattern,
    read_frame,
)

# The inner message that each operation needs.
_REQUEST_FIELDS = {
    Operation.ADD: "addRequest",
    Operation.READ: "readRequest",
    Operation.AUTH: "authRequest",
    Operation.READ_LAC: "readLacRequest",
    Operation.WRITE_LAC: "writeLacRequest",
    Operation.BOOKIE_INFO: "getBookieInfoRequest",
    Operation.START_TLS: "startTLSRequest",
    Operation.FORCE: "forceLedgerRequest",
    Operation.LIST_ENTRIES: "getListOfEntriesOfLedgerRequest",
}

_DEFERRED_SYNC = 0x1

_BODY_HEAD = struct.Struct(">qqq")  # ledger, entry, LAC

_VARINT = rb"([\x80-\xff]{0,9}[\x00-\x7f])"

_HEADER_NUMBERS = re.compile(rb"\x0a[\x00-\x7f]\x08" + _VARINT + rb"\x10" + _VARINT)
"""The beginning of a request as every protobuf runtime writes it: version and operation."""

_ADD_UP_TO_BODY = re.compile(rb"\xaa\x06%b\x08%b\x10%b\x1a\x14.{20}\x22%b" % ((_VARINT,) * 4), re.DOTALL)
"""An AddRequest up to the size of its body, which is the last group. Ids and a master key precede the size."""


class ReplyHeader(NamedTuple):
    """The token of a single request: numbers only, since a protobuf message keeps all bytes of its frame in memory.

    version, operation: None if the number is unknown. unknown: encoded fields with unknown numbers. has_ids: whether
    the answer to a malformed request contains ids.
    """

    version: pb.ProtocolVersion | None
    operation: pb.OperationType | None
    txn_id: int
    priority: int
    unknown: bytes = b""
    has_ids: bool = False

    def copy_to(self, header: pb.BKPacketHeader) -> None:
        """Set the fields of an answer's header, unknown numbers included."""
        header.txnId = self.txn_id
        if self.version is not None:
            header.version = self.version
        if self.operation is not None:
            header.operation = self.operation
        if self.priority:
            header.priority = self.priority
        if self.unknown:
            header.MergeFromString(self.unknown)


# --- requests -------------------------------------------------------------------------------------------------------


def decode_requests(data: bytes, position: int, size_max: int, requests: list[Request]) -> tuple[int, bool]:
    """Append the requests of all whole frames from `position` on.

    Returns the start of the first undecoded frame. False: the frame is no v3 request. True: the frame is incomplete, or
    REQUESTS_AT_ONCE requests are decoded.
    Raises RemoteProtocolError at a frame that ends the connection; what came before it is in `requests`.
    """
    end = len(data)
    while end - position >= LENGTH_SIZE and len(requests) < REQUESTS_AT_ONCE:
        length = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= size_max:
            raise bad_length(length, size_max)
        stop = position + LENGTH_SIZE + length
        if stop > end:
            break
        request = decode_request(data[position + LENGTH_SIZE : stop])
        if request is None:
            return position, False
        run = _run_after(data, position, stop, request)
        append_request(requests, request)
        position = stop
        if run is not None:
            position += _read_run(data, position, run, requests[-1])
    return position, True


def _run_after(data: bytes, start: int, stop: int, request: Request) -> FramePattern | None:
    """The pattern of the frame data[start:stop] when it is a plain add or read and the next frame seems to repeat it.

    The proof that the frame is what protobuf writes comes last, because it costs as much as decoding.
    """
    if not same_head(data, start, stop):
        return None
    if type(request) is AddBatch and not (request.recovery or request.high_priority or request.deferred_sync):
        request_id, entry_id, body = _first(request.token), request.entry_ids[0], request.bodies[0]
        size = len(body)
        if not data.startswith(body[:8], 2 * stop - start - size):  # another ledger
            return None
        frame = data[start:stop]
        run = FramePattern(frame, request_id, entry_id, tail_size=add_tail_size(size), body_size=size)
        expected = add_frame(request_id, request.ledger_id, entry_id, request.master_key, body)
    elif type(request) is ReadBatch and request.entry_ids[0] >= 0:
        request_id, entry_id = _first(request.token), request.entry_ids[0]
        frame = data[start:stop]
        run = FramePattern(frame, request_id, entry_id)
        if not run.continues(data, stop):
            return None
        expected = read_frame(request_id, request.ledger_id, entry_id)
    else:
        return None
    return run if frame == expected else None


def _first(token: object) -> int:
    assert isinstance(token, list)
    request_id: int = token[0]
    return request_id


def _read_run(data: bytes, position: int, run: FramePattern, batch: Request) -> int:
    """Add to `batch` the frames at `position` that repeat the pattern; return their bytes.

    Stops at an add whose body is of another ledger or entry than it says: decode_request refuses it.
    """
    assert isinstance(batch, AddBatch | ReadBatch)
    assert isinstance(batch.token, list)
    request_ids, entry_ids, bodies = run.read(data, position)
    if isinstance(batch, AddBatch):
        heads = [_BODY_HEAD.unpack_from(body) for body in bodies]
        for index, (ledger_id, entry_id, _) in enumerate(heads):
            if entry_id != entry_ids[index] or ledger_id != batch.ledger_id:
                del request_ids[index:], entry_ids[index:], bodies[index:], heads[index:]
                break
        batch.last_confirmed = max([batch.last_confirmed, *[lac for _, _, lac in heads]])
        batch.bodies += bodies
    batch.entry_ids += entry_ids
    batch.token += request_ids
    return len(entry_ids) * run.size


def decode_request(frame: bytes) -> Request | None:
    """Return the request in a frame, or None if it is not a v3 request at all.

    Raises RemoteProtocolError for a large frame that is no add.
    """
    if len(frame) > SMALL_FRAME_MAX and frame[0] > VERSION_2:
        _check_large(frame)
    try:
        message = pb.Request.FromString(frame)
    except DecodeError:
        return None
    if not message.IsInitialized():
        return _refuse_unknown_numbers(frame, message)
    header = message.header
    operation = OPERATIONS.get(header.operation, Operation.UNKNOWN)
    if header.version != pb.VERSION_THREE:
        return _refusal(message, operation, Status.BAD_VERSION, _unserved(header.version))
    field = _REQUEST_FIELDS.get(operation)
    if field is None:
        return _refusal(message, operation, Status.BAD_REQUEST, f"operation {header.operation} is not served on v3")
    if not message.HasField(field):
        return _refusal(message, operation, Status.BAD_REQUEST, f"{operation.value} without its {field}")
    match operation:
        case Operation.ADD:
            return _decode_add(message)
        case Operation.READ:
            return _decode_read(message)
        case Operation.WRITE_LAC:
            return _decode_write_lac(message)
        case Operation.AUTH:
            return Auth(plugin_of(message.authRequest), message.authRequest.payload, _token(header))
        case Operation.START_TLS:
            return StartTls(_token(header))
        case Operation.BOOKIE_INFO:
            wanted = message.getBookieInfoRequest.requested
            flags = pb.GetBookieInfoRequest
            free, total = wanted & flags.FREE_DISK_SPACE != 0, wanted & flags.TOTAL_DISK_CAPACITY != 0
            return BookieInfo(free, total, _token(header))
        case _:
            return _decode_ledger_request(message, operation)


def _check_large(frame: bytes) -> None:
    """Raise RemoteProtocolError unless the frame is an add that is small without its body.

    Clients send no other large requests. Protobuf takes 0.2 s, and up to 100 MB of memory, for 5 MB of small fields.
    """
    add = _ADD_UP_TO_BODY.match(frame, 2 + frame[1])  # after the header, which has fewer than 128 bytes
    if add is None or len(frame) - _number(add[4]) > SMALL_FRAME_MAX:
        raise RemoteProtocolError(
            f"v3 request of {len(frame)} bytes is no add, and only adds may be larger than {SMALL_FRAME_MAX}: not a "
            "BookKeeper client, or one of a release after 4.18"
        )


def _number(varint: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint))


def _token(header: pb.BKPacketHeader) -> ReplyHeader:
    return ReplyHeader(header.version, header.operation, header.txnId, header.priority)


def _decode_add(message: pb.Request) -> Request:
    add, header = message.addRequest, message.header
    ledger_id, entry_id, body = add.ledgerId, add.entryId, add.body
    if len(body) < ENTRY_HEADER_SIZE:
        return _refusal(message, Operation.ADD, Status.BAD_REQUEST, f"body of {len(body)} bytes is below 32")
    if ledger_id < 0 or entry_id < 0:
        return _refusal(message, Operation.ADD, Status.BAD_REQUEST, "negative id")
    if ids_of(body) != (ledger_id, entry_id):
        found = "ledger {} entry {}".format(*ids_of(body))
        return _refusal(message, Operation.ADD, Status.BAD_REQUEST, f"the body is of {found}")
    if len(add.masterKey) != MASTER_KEY_SIZE:
        return _refusal(message, Operation.ADD, Status.BAD_REQUEST, f"master key of {len(add.masterKey)} bytes")
    return AddBatch(
        ledger_id,
        add.masterKey,
        [entry_id],
        [body],
        max(-1, lac_of(body)),
        add.flag == pb.AddRequest.RECOVERY_ADD and add.HasField("flag"),
        header.priority > 0,
        add.writeFlags & _DEFERRED_SYNC != 0,
        [header.txnId],
    )


def _decode_read(message: pb.Request) -> Request:
    read, header = message.readRequest, message.header
    ledger_id, entry_id = read.ledgerId, read.entryId
    if ledger_id < 0 or entry_id < -1:
        return _refusal(message, Operation.READ, Status.BAD_REQUEST, "negative id")
    flag = read.flag if read.HasField("flag") else 0
    if flag == pb.ReadRequest.FENCE_LEDGER:
        key = read.masterKey if len(read.masterKey) == MASTER_KEY_SIZE else None
        return FenceRead(ledger_id, entry_id, key, header.priority > 0, _token(header))
    if read.HasField("previousLAC"):
        timeout_ms = read.timeOut if read.HasField("timeOut") else None
        piggyback = flag == pb.ReadRequest.ENTRY_PIGGYBACK
        return LongPollRead(ledger_id, entry_id, read.previousLAC, timeout_ms, piggyback, _token(header))
    return ReadBatch(ledger_id, [entry_id], [header.txnId])


def _decode_write_lac(message: pb.Request) -> Request:
    """Use the LAC in the signed packet and ignore the field `lac`, as Apache's WriteLacProcessorV3 does.

    Apache's client sets the field when its timer fires, and packages the LAC later in another thread. During writes the
    packet is therefore ahead of the field.
    """
    write = message.writeLacRequest
    ledger_id, body = write.ledgerId, write.body
    problem = ""
    if ledger_id < 0:
        problem = "negative id"
    elif len(body) < LAC_HEADER_SIZE:
        problem = f"packet of {len(body)} bytes is below {LAC_HEADER_SIZE}"
    elif ids_of(body)[0] != ledger_id:
        problem = f"the packet is of ledger {ids_of(body)[0]}"
    elif len(write.masterKey) != MASTER_KEY_SIZE:
        problem = f"master key of {len(write.masterKey)} bytes"
    if problem:
        return _refusal(message, Operation.WRITE_LAC, Status.BAD_REQUEST, problem)
    return WriteLac(ledger_id, write.masterKey, body, _token(message.header))


def _decode_ledger_request(message: pb.Request, operation: Operation) -> Request:
    """The requests that carry a ledger id and nothing else."""
    ledger_id: int = getattr(message, _REQUEST_FIELDS[operation]).ledgerId
    if ledger_id < 0:
        return _refusal(message, operation, Status.BAD_REQUEST, "negative id")
    if operation is Operation.READ_LAC:
        return ReadLac(ledger_id, _token(message.header))
    if operation is Operation.FORCE:
        return ForceLedger(ledger_id, _token(message.header))
    return ListEntries(ledger_id, _token(message.header))


def _refuse_unknown_numbers(frame: bytes, message: pb.Request) -> Malformed | None:
    """A request that lacks nothing but a version or operation whose number we do not know; None for anything else."""
    found = _HEADER_NUMBERS.match(frame)
    if found is None:
        return None
    header, unknown = message.header, b""
    version = operation = None
    if header.HasField("version"):
        version = header.version
    else:
        unknown += b"\x08" + found[1]
        header.version = pb.VERSION_THREE
    if header.HasField("operation"):
        operation = header.operation
    else:
        unknown += b"\x10" + found[2]
        header.operation = pb.READ_ENTRY
    if not message.IsInitialized():  # other fields are missing too
        return None
    token = ReplyHeader(version, operation, header.txnId, header.priority, unknown)
    if version is None:
        status, reason = Status.BAD_VERSION, _unserved(_number(found[1]))
    else:
        status = Status.BAD_REQUEST
        number = _number(found[2])
        reason = f"operation number {number} is unknown: the client is of a release after 4.18; use one up to that"
    return Malformed(Operation.UNKNOWN, status, -1, -1, reason, token)


def _unserved(version: int) -> str:
    return f"protocol version {version} in a v3 header, and only 3 is served: use a client of a release that speaks it"


def _refusal(message: pb.Request, operation: Operation, status: Status, reason: str) -> Malformed:
    """Return a malformed request. Its answer has the header of the request, and the ids if it has fields for ids."""
    ledger_id = entry_id = -1
    has_ids = False
    if operation is Operation.ADD and message.HasField("addRequest"):
        ledger_id, entry_id, has_ids = message.addRequest.ledgerId, message.addRequest.entryId, True
    elif operation is Operation.READ and message.HasField("readRequest"):
        ledger_id, entry_id, has_ids = message.readRequest.ledgerId, message.readRequest.entryId, True
    elif operation is Operation.WRITE_LAC and message.HasField("writeLacRequest"):
        ledger_id, has_ids = message.writeLacRequest.ledgerId, True
    elif operation is Operation.READ_LAC and message.HasField("readLacRequest"):
        ledger_id, has_ids = message.readLacRequest.ledgerId, True
    token = _token(message.header)._replace(has_ids=has_ids)
    return Malformed(operation, status, ledger_id, entry_id, reason, token)


# --- answers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer may carry beside its status."""

    body: bytes | None = None
    max_lac: int | None = None
    lac_update_ms: int | None = None
    explicit_lac: bytes | None = None
    last_entry: bytes | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    plugin: str = ""
    payload: bytes = b""
    availability: bytes | None = None


def add_replies(batch: AddBatch, status: Status) -> bytes:
    """All answers to a batch of adds, joined."""
    assert isinstance(batch.token, list)
    code = CODE_OF_STATUS[status]
    run: FramePattern | None = None
    frames = []
    for request_id, entry_id in zip(batch.token, batch.entry_ids, strict=True):
        if run is None or not run.fits(request_id, entry_id, 0):
            run = FramePattern(add_answer_frame(request_id, code, batch.ledger_id, entry_id), request_id, entry_id)
        frames.append(run.before_body(request_id, entry_id))
    return b"".join(frames)


def read_replies(batch: ReadBatch, results: Sequence[bytes | Status], max_lac: int | None) -> list[bytes]:
    """The answers to a batch of reads as parts to send one after the other."""
    assert isinstance(batch.token, list)
    run: FramePattern | None = None
    parts = []
    for request_id, entry_id, result in zip(batch.token, batch.entry_ids, results, strict=True):
        if isinstance(result, Status):
            code = CODE_OF_STATUS[result]
            parts.append(read_answer_frame(request_id, code, batch.ledger_id, entry_id, None, None))
            continue
        size = len(result)
        if run is None or not run.fits(request_id, entry_id, size):
            frame = read_answer_frame(request_id, pb.EOK, batch.ledger_id, entry_id, result, max_lac)
            run = read_answer_pattern(frame, request_id, entry_id, size, max_lac)
        parts.append(run.before_body(request_id, entry_id))
        parts.append(result)
        if run.end:
            parts.append(run.end)
    return parts


def reply(request: Request, status: Status, answer: Answer) -> bytes:
    """The answer to any request but the two batches."""
    header = request.token
    assert isinstance(header, ReplyHeader)
    if isinstance(request, Malformed):
        status = request.status
    code = CODE_OF_STATUS[status]
    response = pb.Response(status=code)
    if isinstance(request, Auth | Malformed):
        header.copy_to(response.header)
    else:
        assert header.operation is not None
        response.header.version, response.header.operation = pb.VERSION_THREE, header.operation
        response.header.txnId = header.txn_id
    _fill(response, request, code, answer)
    return framed(response)


def bare_replies(request: Request, status: Status) -> bytes:
    """Return answers of only header and status to each request of `request`, as before authentication.

    Source: bookkeeper/wire/FORMATS.md 2.7.
    """
    code = CODE_OF_STATUS[status]
    token = request.token
    if isinstance(token, ReplyHeader):
        response = pb.Response(status=code)
        token.copy_to(response.header)
        return framed(response)
    assert isinstance(token, list)
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, txnId=0)
    header.operation = pb.ADD_ENTRY if isinstance(request, AddBatch) else pb.READ_ENTRY
    frames = []
    for request_id in token:
        header.txnId = request_id
        frames.append(framed(pb.Response(header=header, status=code)))
    return b"".join(frames)


def _fill(response: pb.Response, request: Request, code: pb.StatusCode, answer: Answer) -> None:
    """Set the inner message of `response`."""
    match request:
        case FenceRead() | LongPollRead():
            read = response.readResponse
            read.status, read.ledgerId, read.entryId = code, request.ledger_id, request.entry_id
            if isinstance(request, LongPollRead) and request.piggyback and answer.body is not None:
                read.entryId = request.previous_lac + 1
            if code == pb.EOK:
                _set(read, body=answer.body, maxLAC=answer.max_lac, lacUpdateTimestamp=answer.lac_update_ms)
        case ReadLac():
            lac = response.readLacResponse
            lac.status, lac.ledgerId = code, request.ledger_id
            _set(lac, lacBody=answer.explicit_lac, lastEntryBody=answer.last_entry)
        case WriteLac():
            response.writeLacResponse.status, response.writeLacResponse.ledgerId = code, request.ledger_id
        case ForceLedger():
            response.forceLedgerResponse.status, response.forceLedgerResponse.ledgerId = code, request.ledger_id
        case BookieInfo():
            info = response.getBookieInfoResponse
            info.status = code
            _set(info, totalDiskCapacity=answer.total_bytes, freeDiskSpace=answer.free_bytes)
        case ListEntries():
            entries = response.getListOfEntriesOfLedgerResponse
            entries.status, entries.ledgerId = code, request.ledger_id
            _set(entries, availabilityOfEntriesOfLedger=answer.availability)
        case Malformed(token=ReplyHeader(has_ids=True)):
            _fill_refusal(response, request, code)
        case Auth() if code == pb.EOK:
            response.authResponse.authPluginName, response.authResponse.payload = answer.plugin, answer.payload
        case StartTls() if code == pb.EOK:
            response.startTLSResponse.SetInParent()
        case _:
            pass  # a refused handshake has no inner message


def _fill_refusal(response: pb.Response, request: Malformed, code: pb.StatusCode) -> None:
    if request.operation is Operation.ADD:
        add = response.addResponse
        add.status, add.ledgerId, add.entryId = code, request.ledger_id, request.entry_id
    elif request.operation is Operation.READ:
        read = response.readResponse
        read.status, read.ledgerId, read.entryId = code, request.ledger_id, request.entry_id
    elif request.operation is Operation.WRITE_LAC:
        response.writeLacResponse.status, response.writeLacResponse.ledgerId = code, request.ledger_id
    else:
        response.readLacResponse.status, response.readLacResponse.ledgerId = code, request.ledger_id


def _set(message: object, **fields: bytes | int | None) -> None:
    """Set the fields that are known."""
    for name, value in fields.items():
        if value is not None:
            setattr(message, name, value)
