"""Protocol v3: one protobuf Request or Response per frame; the numbers for both sides, and the client's side.

Loading this module loads protobuf (about 25 ms and 5 MB), so `codec` does it at the first v3 frame. Single frames go
through protobuf; runs of adds, reads and their answers repeat a pattern of bytes that protobuf wrote (see `runs`).

Source: bookkeeper/wire/FORMATS.md 2.1 to 2.4; Apache 4.18 PerChannelBookieClient and *Completion for what answers mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError, Message

from bookkeeper.errors import OtherProtocol, RemoteProtocolError
from bookkeeper.model import LAST_ENTRY, MASTER_KEY_SIZE, Status
from bookkeeper.texts import proto_text
from bookkeeper.wire.entry_size import entry_body_size_max, v3_copy_size_max
from bookkeeper.wire.framing import LENGTH, LENGTH_SIZE, bad_length
from bookkeeper.wire.messages import (
    AddAcks,
    AddFailed,
    AuthReply,
    BookieInfoReply,
    ForceReply,
    GenericFailure,
    ListEntriesReply,
    LongPollReply,
    Operation,
    ReadBodies,
    ReadFailed,
    ReadLacReply,
    Response,
    StartTlsReply,
    WriteLacReply,
    append_response,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb
from bookkeeper.wire.runs import FramePattern, same_head, varint_size
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
STATUS_OF_CODE = {code: status for status, code in CODE_OF_STATUS.items()}

OPERATIONS = {
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

HIGH_PRIORITY = 100
"""What a high-priority request puts into its header; above 0 is high."""

_ADD_FLAG_SIZE = 3
"""Bytes of AddRequest.flag: a two-byte tag and a number."""

_WRITE_FLAGS_SIZE = 2
"""Bytes of AddRequest.writeFlags, which comes before the flag: tag and number."""

DEFERRED_SYNC = 0x1
"""Bit of AddRequest.writeFlags: acknowledge once written, before the sync."""

_FENCE_TAIL_SIZE = 2 + MASTER_KEY_SIZE + 3
"""Bytes after the entry id of a fencing read: tag, size and bytes of the key, flag."""


def framed(message: pb.Request | pb.Response) -> bytes:
    """The frame of a message, with what it holds of unknown fields."""
    data = message.SerializePartialToString()
    return LENGTH.pack(len(data)) + data


def _request(operation: pb.OperationType, request_id: int, *, high_priority: bool = False) -> pb.Request:
    message = pb.Request()
    header = message.header
    header.version, header.operation, header.txnId = pb.VERSION_THREE, operation, request_id
    if high_priority:
        header.priority = HIGH_PRIORITY
    return message


def _response(operation: pb.OperationType, request_id: int, code: pb.StatusCode) -> pb.Response:
    message = pb.Response(status=code)
    header = message.header
    header.version, header.operation, header.txnId = pb.VERSION_THREE, operation, request_id
    return message


def add_frame(
    request_id: int,
    ledger_id: int,
    entry_id: int,
    master_key: bytes,
    body: bytes,
    *,
    recovery: bool = False,
    high_priority: bool = False,
    deferred_sync: bool = False,
) -> bytes:
    """The frame of one add."""
    message = _request(pb.ADD_ENTRY, request_id, high_priority=high_priority)
    add = message.addRequest
    add.ledgerId, add.entryId, add.masterKey, add.body = ledger_id, entry_id, master_key, body
    if deferred_sync:
        add.writeFlags = DEFERRED_SYNC
    if recovery:
        add.flag = pb.AddRequest.RECOVERY_ADD
    return framed(message)


def add_tail_size(body_size: int) -> int:
    """Bytes between entry id and body of an add: tag, size and bytes of the key, tag and size of the body."""
    return 2 + MASTER_KEY_SIZE + 1 + varint_size(body_size)


def read_frame(
    request_id: int, ledger_id: int, entry_id: int, fence_key: bytes | None = None, *, high_priority: bool = False
) -> bytes:
    """The frame of one read; it fences when a key is given."""
    message = _request(pb.READ_ENTRY, request_id, high_priority=high_priority)
    read = message.readRequest
    read.ledgerId, read.entryId = ledger_id, entry_id
    if fence_key is not None:
        read.masterKey, read.flag = fence_key, pb.ReadRequest.FENCE_LEDGER
    return framed(message)


def add_answer_frame(request_id: int, code: pb.StatusCode, ledger_id: int, entry_id: int) -> bytes:
    """The frame of the answer to one add."""
    message = _response(pb.ADD_ENTRY, request_id, code)
    add = message.addResponse
    add.status, add.ledgerId, add.entryId = code, ledger_id, entry_id
    return framed(message)


def read_answer_frame(
    request_id: int, code: pb.StatusCode, ledger_id: int, entry_id: int, body: bytes | None, max_lac: int | None
) -> bytes:
    """The frame of the answer to one read."""
    message = _response(pb.READ_ENTRY, request_id, code)
    read = message.readResponse
    read.status, read.ledgerId, read.entryId = code, ledger_id, entry_id
    if body is not None:
        read.body = body
    if max_lac is not None:
        read.maxLAC = max_lac
    return framed(message)


def read_answer_pattern(
    frame: bytes, request_id: int, entry_id: int, body_size: int, max_lac: int | None
) -> FramePattern:
    """The pattern of `read_answer_frame` with a body."""
    return FramePattern(
        frame,
        request_id,
        entry_id,
        tail_size=1 + varint_size(body_size),  # tag and size of the body
        body_size=body_size,
        end_size=0 if max_lac is None else 1 + varint_size(max_lac),
    )


def missing_fields(message: Message) -> list[str]:
    """Paths of the required fields that are not set, or whose enum number is unknown."""
    missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]  # the stub lacks it
    return missing


def decode_auth_message(data: bytes) -> tuple[str, bytes]:
    """Plugin name and payload of an AuthMessage. Raises RemoteProtocolError when it is none."""
    try:
        message = pb.AuthMessage.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"authentication message of {len(data)} bytes does not parse") from error
    if not message.IsInitialized():
        raise RemoteProtocolError("authentication message without plugin name or payload")
    return plugin_of(message), message.payload


def plugin_of(message: pb.AuthMessage) -> str:
    """Return the name of the plugin. Raises RemoteProtocolError if it is not UTF-8."""
    try:
        return proto_text(message.authPluginName)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"authentication message whose plugin name is not UTF-8: {error}") from error


def encode_auth_message(plugin: str, payload: bytes) -> bytes:
    """An AuthMessage."""
    return pb.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()


# --- client: requests -----------------------------------------------------------------------------------------------


class RequestEncoder:
    """Requests of one client. Counts request ids from 1 on; one id per entry serves all its replicas.

    body_size_max, copy_size_max: largest body of a new entry, and in a recovery add; longer ones raise
    LocalProtocolError.
    """

    version = VERSION

    def __init__(self, frame_size_max: int) -> None:
        self.body_size_max = entry_body_size_max(frame_size_max)
        self.copy_size_max = v3_copy_size_max(frame_size_max)
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
        deferred_sync: bool = False,
    ) -> tuple[int, list[bytes]]:
        """One frame per entry; the same frame goes to every bookie of its write set.

        deferred_sync: the bookie may acknowledge what a force has yet to make durable.
        """
        check_key(master_key)
        end_size = (_ADD_FLAG_SIZE if recovery else 0) + (_WRITE_FLAGS_SIZE if deferred_sync else 0)
        size_max = self.copy_size_max if recovery else self.body_size_max
        first = self._take(len(entry_ids))
        run: FramePattern | None = None
        frames = []
        for request_id, (entry_id, body) in enumerate(zip(entry_ids, bodies, strict=True), first):
            size = len(body)
            if run is None or not run.fits(request_id, entry_id, size):
                if size > size_max:
                    raise too_large(ledger_id, size, size_max)
                frame = add_frame(
                    request_id,
                    ledger_id,
                    entry_id,
                    master_key,
                    body,
                    recovery=recovery,
                    high_priority=high_priority,
                    deferred_sync=deferred_sync,
                )
                run = FramePattern(
                    frame,
                    request_id,
                    entry_id,
                    tail_size=add_tail_size(size),
                    body_size=size,
                    end_size=end_size,
                )
            frames.append(run.before_body(request_id, entry_id) + body + run.end)
        return first, frames

    def encode_add(self, ledger_id: int, master_key: bytes, entry_id: int, body: bytes) -> bytes:
        """The frame of one plain add."""
        check_key(master_key)
        if len(body) > self.body_size_max:
            raise too_large(ledger_id, len(body), self.body_size_max)
        return add_frame(self._take(), ledger_id, entry_id, master_key, body)

    def encode_reads(
        self, ledger_id: int, entry_ids: Sequence[int], *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Plain reads, joined; entry -1 reads the last entry the bookie holds."""
        return self._encode_reads(ledger_id, entry_ids, None, high_priority=high_priority)

    def encode_fence_reads(
        self, ledger_id: int, entry_ids: Sequence[int], master_key: bytes, *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Reads that fence the ledger first, joined."""
        check_key(master_key)
        return self._encode_reads(ledger_id, entry_ids, master_key, high_priority=high_priority)

    def _encode_reads(
        self, ledger_id: int, entry_ids: Sequence[int], fence_key: bytes | None, *, high_priority: bool
    ) -> tuple[int, bytes]:
        first = self._take(len(entry_ids))
        tail_size = 0 if fence_key is None else _FENCE_TAIL_SIZE
        run: FramePattern | None = None
        frames = []
        for request_id, entry_id in enumerate(entry_ids, first):
            if run is None or not run.fits(request_id, entry_id, 0):
                frame = read_frame(request_id, ledger_id, entry_id, fence_key, high_priority=high_priority)
                run = FramePattern(frame, request_id, entry_id, tail_size=tail_size)
            frames.append(run.before_body(request_id, entry_id))
        return first, b"".join(frames)

    def encode_auth(self, plugin: str, payload: bytes) -> tuple[int, bytes]:
        """One step of the authentication plugin's handshake."""
        message = _request(pb.AUTH, self._take())
        message.authRequest.authPluginName, message.authRequest.payload = plugin, payload
        return message.header.txnId, framed(message)

    def encode_read_lac(self, ledger_id: int) -> tuple[int, bytes]:
        """Ask for the explicit LAC and the last entry."""
        message = _request(pb.READ_LAC, self._take())
        message.readLacRequest.ledgerId = ledger_id
        return message.header.txnId, framed(message)

    def encode_long_poll(self, ledger_id: int, previous_lac: int, timeout_ms: int) -> tuple[int, bytes]:
        """Wait at the bookie, at most `timeout_ms`, until its LAC passes `previous_lac`; brings the entry after it."""
        message = _request(pb.READ_ENTRY, self._take())
        read = message.readRequest
        read.ledgerId, read.entryId, read.previousLAC, read.timeOut = ledger_id, LAST_ENTRY, previous_lac, timeout_ms
        read.flag = pb.ReadRequest.ENTRY_PIGGYBACK
        return message.header.txnId, framed(message)

    def encode_force(self, ledger_id: int) -> tuple[int, bytes]:
        """Ask for everything appended before to be on disk."""
        message = _request(pb.FORCE_LEDGER, self._take())
        message.forceLedgerRequest.ledgerId = ledger_id
        return message.header.txnId, framed(message)

    def encode_list_entries(self, ledger_id: int) -> tuple[int, bytes]:
        """Ask which entries of a ledger the bookie holds."""
        message = _request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, self._take())
        message.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
        return message.header.txnId, framed(message)

    def encode_start_tls(self) -> tuple[int, bytes]:
        """Ask to turn the connection into TLS."""
        message = _request(pb.START_TLS, self._take())
        message.startTLSRequest.SetInParent()
        return message.header.txnId, framed(message)

    def encode_write_lac(self, ledger_id: int, lac: int, master_key: bytes, body: bytes) -> tuple[int, bytes]:
        """Store an explicit LAC; body: the packet of `Digest.package_lac`."""
        check_key(master_key)
        message = _request(pb.WRITE_LAC, self._take())
        write = message.writeLacRequest
        write.ledgerId, write.lac, write.masterKey, write.body = ledger_id, lac, master_key, body
        return message.header.txnId, framed(message)

    def encode_bookie_info(self, *, free: bool = True, total: bool = True) -> tuple[int, bytes]:
        """Ask for disk space in bytes."""
        flags = pb.GetBookieInfoRequest
        message = _request(pb.GET_BOOKIE_INFO, self._take())
        message.getBookieInfoRequest.requested = (flags.FREE_DISK_SPACE if free else 0) | (
            flags.TOTAL_DISK_CAPACITY if total else 0
        )
        return message.header.txnId, framed(message)


# --- client: answers ------------------------------------------------------------------------------------------------


def decode_responses(data: bytes, position: int, size_max: int, responses: list[Response]) -> int:
    """Append the answers of all whole frames from `position` on; return where the first incomplete frame starts.

    Raises RemoteProtocolError at a frame that ends the connection; what came before it is in `responses`.
    """
    end = len(data)
    while end - position >= LENGTH_SIZE:
        length = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= size_max:
            raise bad_length(length, size_max)
        stop = position + LENGTH_SIZE + length
        if stop > end:
            break
        response = decode_response(data[position + LENGTH_SIZE : stop])
        run = _run_after(data, position, stop, response)
        append_response(responses, response)
        position = stop
        if run is not None:
            position += _read_run(data, position, run, responses[-1])
    return position


def _run_after(data: bytes, start: int, stop: int, response: Response) -> FramePattern | None:
    """The pattern of the frame data[start:stop] when it is a success and the next frame seems to repeat it.

    The proof that the frame is what protobuf writes comes last, because it costs as much as decoding.
    """
    if not same_head(data, start, stop) or type(response) not in (AddAcks, ReadBodies):
        return None
    assert isinstance(response, AddAcks | ReadBodies)
    assert response.request_ids is not None
    frame, ledger_id = data[start:stop], response.ledger_id
    request_id, entry_id = response.request_ids[0], response.entry_ids[0]
    if isinstance(response, AddAcks):
        run = FramePattern(frame, request_id, entry_id)
        if not run.continues(data, stop):
            return None
        expected = add_answer_frame(request_id, pb.EOK, ledger_id, entry_id)
    else:
        body, max_lac = response.bodies[0], response.max_lac
        run = read_answer_pattern(frame, request_id, entry_id, len(body), max_lac)
        if not run.continues(data, stop):
            return None
        expected = read_answer_frame(request_id, pb.EOK, ledger_id, entry_id, body, max_lac)
    return run if frame == expected else None


def _read_run(data: bytes, position: int, run: FramePattern, batch: Response) -> int:
    """Add to `batch` the frames at `position` that repeat the pattern; return their bytes."""
    assert isinstance(batch, AddAcks | ReadBodies)
    assert batch.request_ids is not None
    request_ids, entry_ids, bodies = run.read(data, position)
    batch.request_ids += request_ids
    batch.entry_ids += entry_ids
    if isinstance(batch, ReadBodies):
        batch.bodies += bodies
    return len(entry_ids) * run.size


def decode_response(frame: bytes) -> Response:
    """Return the answer in a frame. Raises OtherProtocol if it is none, RemoteProtocolError if nothing asks for it."""
    try:
        message = pb.Response.FromString(frame)
    except DecodeError as error:
        raise OtherProtocol(
            f"answer of {len(frame)} bytes is no v3 response: bookies before 4.3 speak v2 alone, set "
            "useV2WireProtocol=true for them (ClientSettings(use_v2=True))"
        ) from error
    missing = [] if message.IsInitialized() else missing_fields(message)
    if any(name.rpartition(".")[2] != "status" for name in missing):
        raise RemoteProtocolError(f"v3 response lacks {', '.join(missing)}")
    if missing and (message.status == pb.EOK or not message.HasField("status")):
        message.status = pb.EIO  # a status number we do not know is no verdict
    header = message.header
    operation, txn_id = OPERATIONS.get(header.operation, Operation.UNKNOWN), header.txnId
    outer = STATUS_OF_CODE[message.status]
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
        case Operation.FORCE if message.HasField("forceLedgerResponse"):
            forced = message.forceLedgerResponse
            return ForceReply(forced.ledgerId, _status(outer, forced.status), txn_id)
        case Operation.LIST_ENTRIES if message.HasField("getListOfEntriesOfLedgerResponse"):
            return _decode_list_response(message.getListOfEntriesOfLedgerResponse, outer, txn_id)
        case Operation.START_TLS if message.HasField("startTLSResponse") or outer is not Status.OK:
            return StartTlsReply(outer, txn_id)
        case Operation.AUTH if message.HasField("authResponse"):
            return AuthReply(outer, plugin_of(message.authResponse), message.authResponse.payload, txn_id)
        case _ if outer is not Status.OK:
            return GenericFailure(operation, outer, txn_id)
    raise RemoteProtocolError(f"v3 response to {operation.value} says OK without an answer we asked for")


def _status(outer: Status, inner: pb.StatusCode) -> Status:
    """The inner status counts only when the outer one is OK."""
    return STATUS_OF_CODE[inner] if outer is Status.OK else outer


def _decode_read_response(read: pb.ReadResponse, outer: Status, txn_id: int) -> Response:
    status = _status(outer, read.status)
    if status is not Status.OK:
        return ReadFailed(read.ledgerId, read.entryId, status, txn_id)
    max_lac = read.maxLAC if read.HasField("maxLAC") else None
    if not read.HasField("body"):  # an entry is never empty: this is a long poll without one
        return LongPollReply(read.ledgerId, read.entryId, None, max_lac, txn_id)
    return ReadBodies(read.ledgerId, [read.entryId], [read.body], max_lac, [txn_id])


def _decode_list_response(entries: pb.GetListOfEntriesOfLedgerResponse, outer: Status, txn_id: int) -> Response:
    status = _status(outer, entries.status)
    told = status is Status.OK and entries.HasField("availabilityOfEntriesOfLedger")
    availability = entries.availabilityOfEntriesOfLedger if told else None
    return ListEntriesReply(entries.ledgerId, status, availability, txn_id)
