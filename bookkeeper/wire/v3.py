"""Protocol v3: one protobuf Request or Response per frame. The only importer of BookkeeperProtocol_pb2.

Loading this module loads protobuf (about 25 ms and 5 MB), so `codec` does it at the first v3 frame.

Sources: field tables of the reference, 2; Apache 4.18 *ProcessorV3 for the shape of answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.model import ENTRY_HEADER_SIZE, MASTER_KEY_SIZE, Status
from bookkeeper.wire.digest import LAC_HEADER_SIZE, ids_of, lac_of
from bookkeeper.wire.framing import LENGTH, LENGTH_SIZE, bad_length
from bookkeeper.wire.messages import (
    AddAcks,
    AddBatch,
    AddFailed,
    Auth,
    AuthReply,
    BookieInfo,
    BookieInfoReply,
    FenceRead,
    ForceLedger,
    GenericFailure,
    ListEntries,
    LongPollRead,
    Malformed,
    Operation,
    ReadBatch,
    ReadBodies,
    ReadFailed,
    ReadLac,
    ReadLacReply,
    Request,
    Response,
    StartTls,
    WriteLac,
    WriteLacReply,
    append_request,
    append_response,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb
from bookkeeper.wire.v2 import check_key, too_large

VERSION = 3

CODE_OF_STATUS = {
    Status.OK: pb.EOK,
    Status.NO_LEDGER: pb.ENOLEDGER,
    Status.NO_ENTRY: pb.ENOENTRY,
    Status.BAD_REQUEST: pb.EBADREQ,
    Status.IO_ERROR: pb.EIO,
    Status.UNAUTHORIZED: pb.EUA,
    Status.BAD_VERSION: pb.EBADVERSION,
    Status.FENCED: pb.EFENCED,
    Status.READ_ONLY: pb.EREADONLY,
    Status.TOO_MANY_REQUESTS: pb.ETOOMANYREQUESTS,
    Status.UNKNOWN_LEDGER_STATE: pb.EUNKNOWNLEDGERSTATE,
}
_STATUS_OF_CODE = {code: status for status, code in CODE_OF_STATUS.items()}

_OPERATIONS = {
    pb.ADD_ENTRY: Operation.ADD,
    pb.READ_ENTRY: Operation.READ,
    pb.AUTH: Operation.AUTH,
    pb.READ_LAC: Operation.READ_LAC,
    pb.WRITE_LAC: Operation.WRITE_LAC,
    pb.GET_BOOKIE_INFO: Operation.BOOKIE_INFO,
    pb.START_TLS: Operation.START_TLS,
    pb.FORCE_LEDGER: Operation.FORCE,
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: Operation.LIST_ENTRIES,
    pb.BATCH_READ_ENTRY: Operation.BATCH_READ,
}

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

HIGH_PRIORITY = 100
"""What a high-priority request puts into its header; above 0 is high."""

_DEFERRED_SYNC = 0x1

_ADD_OVERHEAD = 128
"""Bound of what a framed add has beyond its body: lengths, header, three ids, key, flags (at most 96)."""


# --- server: requests -----------------------------------------------------------------------------------------------


def decode_requests(data: bytes, position: int, frame_size_max: int, requests: list[Request]) -> tuple[int, bool]:
    """Append the requests of all whole frames from `position` on.

    Returns where the first frame starts that is incomplete (True) or no v3 request (False).
    Raises RemoteProtocolError at a length out of bounds; what came before it is in `requests`.
    """
    end = len(data)
    while end - position >= LENGTH_SIZE:
        length = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= frame_size_max:
            raise bad_length(length, frame_size_max)
        stop = position + LENGTH_SIZE + length
        if stop > end:
            break
        request = decode_request(data[position + LENGTH_SIZE : stop])
        if request is None:
            return position, False
        append_request(requests, request)
        position = stop
    return position, True


def decode_request(frame: bytes) -> Request | None:
    """The request in a frame; None when it is not a v3 request at all."""
    try:
        message = pb.Request.FromString(frame)
    except DecodeError:
        return None
    if not message.IsInitialized():
        return _refuse_unknown_numbers(message)
    header = message.header
    operation = _OPERATIONS.get(header.operation, Operation.UNKNOWN)
    if header.version != pb.VERSION_THREE:
        return _refusal(message, operation, Status.BAD_VERSION, f"protocol version {header.version} in a v3 header")
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
            return Auth(message.authRequest.authPluginName, message.authRequest.payload, header)
        case Operation.START_TLS:
            return StartTls(header)
        case Operation.BOOKIE_INFO:
            wanted = message.getBookieInfoRequest.requested
            flags = pb.GetBookieInfoRequest
            return BookieInfo(wanted & flags.FREE_DISK_SPACE != 0, wanted & flags.TOTAL_DISK_CAPACITY != 0, header)
        case _:
            return _decode_ledger_request(message, operation)


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
        return FenceRead(ledger_id, entry_id, key, header.priority > 0, header)
    if read.HasField("previousLAC"):
        timeout_ms = read.timeOut if read.HasField("timeOut") else None
        piggyback = flag == pb.ReadRequest.ENTRY_PIGGYBACK
        return LongPollRead(ledger_id, entry_id, read.previousLAC, timeout_ms, piggyback, header)
    return ReadBatch(ledger_id, [entry_id], [header.txnId])


def _decode_write_lac(message: pb.Request) -> Request:
    write = message.writeLacRequest
    ledger_id, lac, body = write.ledgerId, write.lac, write.body
    problem = ""
    if ledger_id < 0:
        problem = "negative id"
    elif len(body) < LAC_HEADER_SIZE:
        problem = f"packet of {len(body)} bytes is below {LAC_HEADER_SIZE}"
    elif ids_of(body) != (ledger_id, lac):
        problem = "the packet is of ledger {} LAC {}".format(*ids_of(body))
    elif len(write.masterKey) != MASTER_KEY_SIZE:
        problem = f"master key of {len(write.masterKey)} bytes"
    if problem:
        return _refusal(message, Operation.WRITE_LAC, Status.BAD_REQUEST, problem)
    return WriteLac(ledger_id, lac, write.masterKey, body, message.header)


def _decode_ledger_request(message: pb.Request, operation: Operation) -> Request:
    """The requests that carry a ledger id and nothing else."""
    ledger_id: int = getattr(message, _REQUEST_FIELDS[operation]).ledgerId
    if ledger_id < 0:
        return _refusal(message, operation, Status.BAD_REQUEST, "negative id")
    if operation is Operation.READ_LAC:
        return ReadLac(ledger_id, message.header)
    if operation is Operation.FORCE:
        return ForceLedger(ledger_id, message.header)
    return ListEntries(ledger_id, message.header)


def _refuse_unknown_numbers(message: pb.Request) -> Malformed | None:
    """A request that lacks nothing but a version or operation whose number we do not know; None for anything else."""
    missing = set(_missing(message))
    numbers = {"header.version": 1, "header.operation": 2}
    if not missing <= set(numbers):
        return None
    unknown: Iterable[Any] = UnknownFieldSet(message.header)  # type: ignore[assignment]  # the stub lacks __iter__
    present = {field.field_number: field.data for field in unknown}
    if not all(numbers[name] in present for name in missing):
        return None
    if "header.version" in missing:
        return _refusal(message, Operation.UNKNOWN, Status.BAD_VERSION, f"protocol version {present[1]} in a v3 header")
    return _refusal(message, Operation.UNKNOWN, Status.BAD_REQUEST, f"operation number {present[2]} is unknown")


def _missing(message: Message) -> list[str]:
    """Paths of the required fields that are not set, or whose enum number is unknown."""
    missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]  # the stub lacks it
    return missing


def _refusal(message: pb.Request, operation: Operation, status: Status, reason: str) -> Malformed:
    """The token is the whole answer: header copied, with the ids where the answer has a place for them."""
    code = CODE_OF_STATUS[status]
    answer = pb.Response(status=code)
    answer.header.CopyFrom(message.header)
    ledger_id = entry_id = -1
    if operation is Operation.ADD and message.HasField("addRequest"):
        ledger_id, entry_id = message.addRequest.ledgerId, message.addRequest.entryId
        add = answer.addResponse
        add.status, add.ledgerId, add.entryId = code, ledger_id, entry_id
    elif operation is Operation.READ and message.HasField("readRequest"):
        ledger_id, entry_id = message.readRequest.ledgerId, message.readRequest.entryId
        read = answer.readResponse
        read.status, read.ledgerId, read.entryId = code, ledger_id, entry_id
    elif operation is Operation.WRITE_LAC and message.HasField("writeLacRequest"):
        ledger_id = message.writeLacRequest.ledgerId
        answer.writeLacResponse.status, answer.writeLacResponse.ledgerId = code, ledger_id
    elif operation is Operation.READ_LAC and message.HasField("readLacRequest"):
        ledger_id = message.readLacRequest.ledgerId
        answer.readLacResponse.status, answer.readLacResponse.ledgerId = code, ledger_id
    return Malformed(operation, status, ledger_id, entry_id, reason, answer)


def decode_auth_message(data: bytes) -> tuple[str, bytes]:
    """Plugin name and payload of an AuthMessage. Raises RemoteProtocolError when it is none."""
    try:
        message = pb.AuthMessage.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"authentication message of {len(data)} bytes does not parse") from error
    if not message.IsInitialized():
        raise RemoteProtocolError("authentication message without plugin name or payload")
    return message.authPluginName, message.payload


def encode_auth_message(plugin: str, payload: bytes) -> bytes:
    """An AuthMessage."""
    return pb.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()


# --- server: answers ------------------------------------------------------------------------------------------------


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


def _framed(message: pb.Request | pb.Response) -> bytes:
    data = message.SerializePartialToString()
    return LENGTH.pack(len(data)) + data


def add_replies(batch: AddBatch, status: Status) -> bytes:
    """All answers to a batch of adds, joined."""
    assert isinstance(batch.token, list)
    code = CODE_OF_STATUS[status]
    answer = pb.Response(status=code)
    answer.header.version, answer.header.operation = pb.VERSION_THREE, pb.ADD_ENTRY
    answer.addResponse.status, answer.addResponse.ledgerId = code, batch.ledger_id
    parts = []
    for txn_id, entry_id in zip(batch.token, batch.entry_ids, strict=True):
        answer.header.txnId = txn_id
        answer.addResponse.entryId = entry_id
        data = answer.SerializeToString()
        parts.append(LENGTH.pack(len(data)))
        parts.append(data)
    return b"".join(parts)


def read_replies(batch: ReadBatch, results: Sequence[bytes | Status], max_lac: int | None) -> list[bytes]:
    """The answers to a batch of reads as parts to send one after the other."""
    assert isinstance(batch.token, list)
    parts = []
    for txn_id, entry_id, result in zip(batch.token, batch.entry_ids, results, strict=True):
        answer = pb.Response()
        answer.header.version, answer.header.operation, answer.header.txnId = pb.VERSION_THREE, pb.READ_ENTRY, txn_id
        read = answer.readResponse
        read.ledgerId, read.entryId = batch.ledger_id, entry_id
        if isinstance(result, Status):
            answer.status = read.status = CODE_OF_STATUS[result]
        else:
            answer.status = read.status = pb.EOK
            read.body = result
            if max_lac is not None:
                read.maxLAC = max_lac
        parts.append(_framed(answer))
    return parts


def reply(request: Request, status: Status, answer: Answer) -> bytes:
    """The answer to any request but the two batches."""
    if isinstance(request, Malformed):
        assert isinstance(request.token, pb.Response)
        return _framed(request.token)
    header = request.token
    assert isinstance(header, pb.BKPacketHeader)
    code = CODE_OF_STATUS[status]
    response = pb.Response(status=code)
    if isinstance(request, Auth):
        response.header.CopyFrom(header)
    else:
        response.header.version, response.header.operation = pb.VERSION_THREE, header.operation
        response.header.txnId = header.txnId
    _fill(response, request, code, answer)
    return _framed(response)


def _fill(response: pb.Response, request: Request, code: pb.StatusCode, answer: Answer) -> None:
    """Set the inner message of `response`."""
    match request:
        case FenceRead() | LongPollRead():
            read = response.readResponse
            read.status, read.ledgerId, read.entryId = code, request.ledger_id, request.entry_id
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
        case Auth() if code == pb.EOK:
            response.authResponse.authPluginName, response.authResponse.payload = answer.plugin, answer.payload
        case StartTls() if code == pb.EOK:
            response.startTLSResponse.SetInParent()
        case _:
            pass  # a refused handshake has no inner message


def _set(message: object, **fields: bytes | int | None) -> None:
    """Set the fields that are known."""
    for name, value in fields.items():
        if value is not None:
            setattr(message, name, value)


# --- client: requests -----------------------------------------------------------------------------------------------


class RequestEncoder:
    """Requests of one client. Counts request ids from 1 on; one id per entry serves all its replicas.

    body_size_max: largest entry body that fits a frame; longer ones raise LocalProtocolError.
    """

    version = VERSION

    def __init__(self, frame_size_max: int) -> None:
        self.body_size_max = frame_size_max - _ADD_OVERHEAD
        self._next_txn_id = 1

    def _take(self, count: int = 1) -> int:
        first = self._next_txn_id
        self._next_txn_id += count
        return first

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
        """One frame per entry; the same frame goes to every bookie of its write set."""
        check_key(master_key)
        first = self._take(len(entry_ids))
        message = _request(pb.ADD_ENTRY, high_priority)
        header, add = message.header, message.addRequest
        add.ledgerId, add.masterKey = ledger_id, master_key
        if recovery:
            add.flag = pb.AddRequest.RECOVERY_ADD
        frames = []
        for txn_id, (entry_id, body) in enumerate(zip(entry_ids, bodies, strict=True), first):
            if len(body) > self.body_size_max:
                raise too_large(ledger_id, len(body), self.body_size_max)
            header.txnId = txn_id
            add.entryId = entry_id
            add.body = body
            data = message.SerializeToString()
            frames.append(LENGTH.pack(len(data)) + data)
        return first, frames

    def encode_reads(
        self, ledger_id: int, entry_ids: Sequence[int], *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Plain reads, joined; entry -1 reads the last entry the bookie holds."""
        return self._encode_reads(_request(pb.READ_ENTRY, high_priority), ledger_id, entry_ids)

    def encode_fence_reads(
        self, ledger_id: int, entry_ids: Sequence[int], master_key: bytes, *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Reads that fence the ledger first, joined."""
        check_key(master_key)
        message = _request(pb.READ_ENTRY, high_priority)
        message.readRequest.masterKey = master_key
        message.readRequest.flag = pb.ReadRequest.FENCE_LEDGER
        return self._encode_reads(message, ledger_id, entry_ids)

    def _encode_reads(self, message: pb.Request, ledger_id: int, entry_ids: Sequence[int]) -> tuple[int, bytes]:
        first = self._take(len(entry_ids))
        header, read = message.header, message.readRequest
        read.ledgerId = ledger_id
        parts = []
        for txn_id, entry_id in enumerate(entry_ids, first):
            header.txnId = txn_id
            read.entryId = entry_id
            data = message.SerializeToString()
            parts.append(LENGTH.pack(len(data)))
            parts.append(data)
        return first, b"".join(parts)

    def encode_auth(self, plugin: str, payload: bytes) -> tuple[int, bytes]:
        """One step of the authentication plugin's handshake."""
        message = _request(pb.AUTH)
        message.authRequest.authPluginName, message.authRequest.payload = plugin, payload
        return self._single(message)

    def encode_read_lac(self, ledger_id: int) -> tuple[int, bytes]:
        """Ask for the explicit LAC and the last entry."""
        message = _request(pb.READ_LAC)
        message.readLacRequest.ledgerId = ledger_id
        return self._single(message)

    def encode_write_lac(self, ledger_id: int, lac: int, master_key: bytes, body: bytes) -> tuple[int, bytes]:
        """Store an explicit LAC; body: the packet of `Digest.package_lac`."""
        check_key(master_key)
        message = _request(pb.WRITE_LAC)
        write = message.writeLacRequest
        write.ledgerId, write.lac, write.masterKey, write.body = ledger_id, lac, master_key, body
        return self._single(message)

    def encode_bookie_info(self, *, free: bool = True, total: bool = True) -> tuple[int, bytes]:
        """Ask for disk space in bytes."""
        flags = pb.GetBookieInfoRequest
        message = _request(pb.GET_BOOKIE_INFO)
        message.getBookieInfoRequest.requested = (flags.FREE_DISK_SPACE if free else 0) | (
            flags.TOTAL_DISK_CAPACITY if total else 0
        )
        return self._single(message)

    def _single(self, message: pb.Request) -> tuple[int, bytes]:
        txn_id = self._take()
        message.header.txnId = txn_id
        return txn_id, _framed(message)


def _request(operation: pb.OperationType, high_priority: bool = False) -> pb.Request:
    message = pb.Request()
    message.header.version, message.header.operation = pb.VERSION_THREE, operation
    if high_priority:
        message.header.priority = HIGH_PRIORITY
    return message


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
        stop = position + LENGTH_SIZE + length
        if stop > end:
            break
        append_response(responses, decode_response(data[position + LENGTH_SIZE : stop]))
        position = stop
    return position


def decode_response(frame: bytes) -> Response:
    """The answer in a frame. Raises RemoteProtocolError when it is none, or one to a request we never send."""
    try:
        message = pb.Response.FromString(frame)
    except DecodeError as error:
        raise RemoteProtocolError(
            f"answer of {len(frame)} bytes is no v3 response: not a bookie that speaks v3"
        ) from error
    if not message.IsInitialized():
        if _missing(message) != ["status"]:
            raise RemoteProtocolError(f"v3 response lacks {', '.join(_missing(message))}")
        message.status = pb.EIO  # a status number we do not know is no verdict
    header = message.header
    operation, txn_id = _OPERATIONS.get(header.operation, Operation.UNKNOWN), header.txnId
    outer = _STATUS_OF_CODE[message.status]
    match operation:
        case Operation.ADD if message.HasField("addResponse"):
            add = message.addResponse
            status = _status(outer, add.status)
            if status is Status.OK:
                return AddAcks(add.ledgerId, [add.entryId], [txn_id])
            return AddFailed(add.ledgerId, add.entryId, status, txn_id)
        case Operation.READ if message.HasField("readResponse"):
            return _decode_read_response(message.readResponse, outer, txn_id)
        case Operation.READ_LAC if message.HasField("readLacResponse"):
            lac = message.readLacResponse
            explicit = lac.lacBody if lac.HasField("lacBody") else None
            last = lac.lastEntryBody if lac.HasField("lastEntryBody") else None
            return ReadLacReply(lac.ledgerId, _status(outer, lac.status), explicit, last, txn_id)
        case Operation.WRITE_LAC if message.HasField("writeLacResponse"):
            written = message.writeLacResponse
            return WriteLacReply(written.ledgerId, _status(outer, written.status), txn_id)
        case Operation.BOOKIE_INFO if message.HasField("getBookieInfoResponse"):
            info = message.getBookieInfoResponse
            total = info.totalDiskCapacity if info.HasField("totalDiskCapacity") else None
            free = info.freeDiskSpace if info.HasField("freeDiskSpace") else None
            return BookieInfoReply(_status(outer, info.status), total, free, txn_id)
        case Operation.AUTH if message.HasField("authResponse"):
            return AuthReply(outer, message.authResponse.authPluginName, message.authResponse.payload, txn_id)
        case _ if outer is not Status.OK:
            return GenericFailure(operation, outer, txn_id)
    raise RemoteProtocolError(f"v3 response to {operation.value} says OK without an answer we asked for")


def _status(outer: Status, inner: pb.StatusCode) -> Status:
    """The inner status counts only when the outer one is OK."""
    return _STATUS_OF_CODE[inner] if outer is Status.OK else outer


def _decode_read_response(read: pb.ReadResponse, outer: Status, txn_id: int) -> Response:
    status = _status(outer, read.status)
    if status is not Status.OK:
        return ReadFailed(read.ledgerId, read.entryId, status, txn_id)
    max_lac = read.maxLAC if read.HasField("maxLAC") else None
    return ReadBodies(read.ledgerId, [read.entryId], [read.body], max_lac, [txn_id])
