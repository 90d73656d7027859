"""Protocol v2: binary packets; the layout for both sides, and the client's side.

    header        u8 version | u8 opcode | u16 flags      version 0: three zero bytes | u8 opcode, no flags
    add           header | master key 20 | entry body (ledger id i64, entry id i64, LAC i64, length i64, ...)
    read          header | ledger id i64 | entry id i64 [| master key 20, with the fencing flag]
    batch read    header | ledger id | first entry id | request id i64 | count i32 | size i64 [| master key 20]
    auth          header | protobuf AuthMessage
    answers       header | code i32 | ledger id i64 | entry id i64 [| body]
                  batch read: ... | request id | (size i32 | body)*             auth: header | AuthMessage

All integers are big-endian; each packet is one frame.

Two ways through a chunk with one result. `decode_response` (and `v2_server.decode_request`) reads one frame and knows
everything. After each acknowledgement, body, add or read a run loop takes the frames that repeat its fixed bytes
(version, opcode, flags or code, key, ledger) by comparing them as one slice, and stops at the first other frame.
Acknowledgements whose ledger changes from one to the next are taken as pairs of ids. Tests hold all of it to the same
messages.

Sources: Apache 4.18 BookieProtoEncoding, BookieProtocol; versions 0 and 1 as in 4.2.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bookkeeper.errors import LocalProtocolError, RemoteProtocolError
from bookkeeper.model import MASTER_KEY_SIZE, Status
from bookkeeper.wire.entry_size import entry_body_size_max, v2_copy_size_max
from bookkeeper.wire.framing import LENGTH, LENGTH_SIZE, bad_length
from bookkeeper.wire.messages import (
    AddAcks,
    AddFailed,
    AuthReply,
    BatchReadReply,
    MixedAddAcks,
    Operation,
    ReadBodies,
    ReadFailed,
    Response,
    append_response,
)
from bookkeeper.wire.packed_bodies import packed

VERSION = 2

ADD = 1
READ = 2
AUTH = 3
BATCH_READ = 7
OPERATIONS = {ADD: Operation.ADD, READ: Operation.READ, AUTH: Operation.AUTH, BATCH_READ: Operation.BATCH_READ}

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
STATUS_OF_CODE = {code: status for status, code in CODE_OF_STATUS.items()}

HEADER_SIZE = 4
IDS_SIZE = 16
BODY_OFFSET = HEADER_SIZE + MASTER_KEY_SIZE  # of an add, in its frame
READ_SIZE = HEADER_SIZE + IDS_SIZE
ANSWER_SIZE = HEADER_SIZE + 4 + IDS_SIZE
BATCH_ANSWER_SIZE = ANSWER_SIZE + 8

_LONG = struct.Struct(">q")
_BATCH_READ = struct.Struct(">i4sqqqiq")  # length, header, ledger, first entry, request id, count, size: a whole frame
_ANSWER_FIXED = struct.Struct(">iqq")  # code, ledger, entry

# What the run loops compare and unpack, from the frame's length field on.
READ_FRAME = struct.Struct(">16sq")  # length + header + ledger, entry: a whole frame
_ACK_RUN = struct.Struct(">20sq")  # length + header + code + ledger, entry: a whole frame
_ACK_HEAD = LENGTH.pack(ANSWER_SIZE) + bytes((VERSION, ADD, 0, 0)) + bytes(4)  # length, header, code OK
_ACK_PAIR = struct.Struct(f">{len(_ACK_HEAD)}xqq")  # ledger, entry: a whole frame
_BODIES_RUN = struct.Struct(">i16xq")  # length, header + code + ledger, entry


def unpack_header(data: bytes, start: int) -> tuple[int, int, int]:
    """Version, opcode and flags of a packet."""
    version = data[start]
    if version == 0:
        return 0, data[start + 3], 0
    return version, data[start + 1], data[start + 2] << 8 | data[start + 3]


def answer_header(version: int, opcode: int) -> bytes:
    """The packet header of an answer: the version and opcode of its request, no flags."""
    return bytes((0, 0, 0, opcode)) if version == 0 else bytes((version, opcode, 0, 0))


def decode_auth_message(data: bytes) -> tuple[str, bytes]:
    """Plugin name and payload of an AuthMessage."""
    from bookkeeper.wire import v3  # protobuf only for the few who authenticate

    return v3.decode_auth_message(data)


def encode_auth_message(plugin: str, payload: bytes) -> bytes:
    """An AuthMessage."""
    from bookkeeper.wire import v3

    return v3.encode_auth_message(plugin, payload)


# --- client: requests -----------------------------------------------------------------------------------------------


class RequestEncoder:
    """Requests of one client. Request ids are 0 and answers carry none, but for batch reads, which count from 1 on.

    body_size_max, copy_size_max: largest body of a new entry, and in a recovery add; longer ones raise
    LocalProtocolError.
    """

    version = VERSION

    def __init__(self, frame_size_max: int) -> None:
        self.body_size_max = entry_body_size_max(frame_size_max)
        self.copy_size_max = v2_copy_size_max(frame_size_max)
        # What precedes the body of the last single add: most ledgers of a client share size and password.
        self._add_size, self._add_key, self._add_prefix = -1, b"", b""
        self._next_request_id = 1

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

        The ids that travel are those inside the bodies. v2 has no word for a deferred sync: LocalProtocolError.
        """
        check_key(master_key)
        if deferred_sync:
            raise LocalProtocolError("protocol v2 has no deferred sync: use v3 (useV2WireProtocol=false)")
        flags = (FLAG_RECOVERY_ADD if recovery else 0) | (FLAG_HIGH_PRIORITY if high_priority else 0)
        header = bytes((VERSION, ADD, 0, flags)) + master_key
        size_max = self.copy_size_max if recovery else self.body_size_max
        prefix, known_size, frames = b"", -1, []
        for body in bodies:
            size = len(body)
            if size != known_size:
                if size > size_max:
                    raise too_large(ledger_id, size, size_max)
                prefix = LENGTH.pack(BODY_OFFSET + size) + header
                known_size = size
            frames.append(prefix + body)
        return 0, frames

    def encode_add(self, ledger_id: int, master_key: bytes, entry_id: int, body: bytes) -> bytes:
        """The frame of one add without flags, as `encode_adds` makes it."""
        size = len(body)
        if size != self._add_size or master_key != self._add_key:
            check_key(master_key)
            if size > self.body_size_max:
                raise too_large(ledger_id, size, self.body_size_max)
            self._add_prefix = LENGTH.pack(BODY_OFFSET + size) + bytes((VERSION, ADD, 0, 0)) + master_key
            self._add_size, self._add_key = size, master_key
        return self._add_prefix + body

    def encode_reads(
        self, ledger_id: int, entry_ids: Sequence[int], *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Plain reads, joined; entry -1 reads the last entry the bookie holds."""
        flags = FLAG_HIGH_PRIORITY if high_priority else 0
        fixed = LENGTH.pack(READ_SIZE) + bytes((VERSION, READ, 0, flags)) + _LONG.pack(ledger_id)
        pack = READ_FRAME.pack
        return 0, b"".join([pack(fixed, entry_id) for entry_id in entry_ids])

    def encode_fence_reads(
        self, ledger_id: int, entry_ids: Sequence[int], master_key: bytes, *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Reads that fence the ledger first, joined."""
        check_key(master_key)
        flags = FLAG_FENCE | (FLAG_HIGH_PRIORITY if high_priority else 0)
        fixed = LENGTH.pack(READ_SIZE + MASTER_KEY_SIZE) + bytes((VERSION, READ, 0, flags)) + _LONG.pack(ledger_id)
        pack = READ_FRAME.pack
        return 0, b"".join([pack(fixed, entry_id) + master_key for entry_id in entry_ids])

    def encode_batch_read(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_max: int
    ) -> tuple[int, bytes]:
        """Consecutive entries into one answer; count_max, size_max: <= 0 means no limit but the bookie's."""
        request_id = self._next_request_id
        self._next_request_id += 1
        header = bytes((VERSION, BATCH_READ, 0, 0))
        length = _BATCH_READ.size - LENGTH_SIZE
        return request_id, _BATCH_READ.pack(length, header, ledger_id, first_entry_id, request_id, count_max, size_max)

    def encode_auth(self, plugin: str, payload: bytes) -> tuple[int, bytes]:
        """One step of the authentication plugin's handshake."""
        message = bytes((VERSION, AUTH, 0, 0)) + encode_auth_message(plugin, payload)
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


def decode_responses(data: bytes, position: int, size_max: int, responses: list[Response]) -> int:
    """Append the answers of all whole frames from `position` on; return where the first incomplete frame starts.

    Raises RemoteProtocolError at a frame that ends the connection; what came before it is in `responses`.
    """
    end = len(data)
    while end - position >= LENGTH_SIZE:
        length = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= size_max:
            raise bad_length(length, size_max)
        start = position + LENGTH_SIZE
        stop = start + length
        if stop > end:
            break
        if _other_ledger_follows(data, position):
            position = _mixed_acks(data, position, responses)
            continue
        response = decode_response(data, start, stop)
        append_response(responses, response)
        position = stop
        if type(response) is AddAcks:
            position = _ack_run(data, start, position, responses[-1])
        elif type(response) is ReadBodies:
            position = _bodies_run(data, start, position, size_max, responses[-1])
    return position


def _other_ledger_follows(data: bytes, position: int) -> bool:
    """True when at `position` two plain acknowledgements follow each other that are of different ledgers."""
    following = position + _ACK_PAIR.size
    return (
        data.startswith(_ACK_HEAD, following)
        and following + _ACK_PAIR.size <= len(data)
        and data.startswith(_ACK_HEAD, position)
        and _ACK_PAIR.unpack_from(data, position)[0] != _ACK_PAIR.unpack_from(data, following)[0]
    )


def _mixed_acks(data: bytes, position: int, responses: list[Response]) -> int:
    """Append all plain acknowledgements from `position` on, of whatever ledgers, as one answer."""
    startswith, size = data.startswith, _ACK_PAIR.size
    stop, last = position, len(data) - size
    while stop <= last and startswith(_ACK_HEAD, stop):
        stop += size
    responses.append(MixedAddAcks(list(_ACK_PAIR.iter_unpack(memoryview(data)[position:stop]))))
    return stop


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


def _bodies_run(data: bytes, start: int, position: int, size_max: int, reads: Response) -> int:
    """Add to `reads` the frames at `position` that repeat header, code and ledger of the frame at `start` - 4."""
    assert isinstance(reads, ReadBodies)
    fixed = data[start : start + 16]
    entry_ids, bodies = reads.entry_ids, reads.bodies
    startswith, unpack = data.startswith, _BODIES_RUN.unpack_from
    end = len(data)
    last = end - LENGTH_SIZE - ANSWER_SIZE
    while position <= last and startswith(fixed, position + 4):
        length, entry_id = unpack(data, position)
        stop = position + 4 + length
        if stop > end or not ANSWER_SIZE <= length <= size_max:
            break
        entry_ids.append(entry_id)
        bodies.append(data[position + 28 : stop])
        position = stop
    return position


def decode_response(data: bytes, start: int, stop: int) -> Response:
    """The answer in the frame data[start:stop], of any packet version. Raises RemoteProtocolError when it is none.

    Bytes after the ids of a failed read are ignored: 4.2.3 repeats the ids there.
    """
    if stop - start < HEADER_SIZE:
        raise RemoteProtocolError(f"answer of {stop - start} bytes has no packet header: not a bookie")
    version, opcode, _ = unpack_header(data, start)
    if opcode == AUTH:
        plugin, payload = decode_auth_message(data[start + HEADER_SIZE : stop])
        return AuthReply(Status.OK, plugin, payload, None)
    if opcode not in OPERATIONS:
        raise RemoteProtocolError(f"packet version {version} with opcode {opcode} is no answer of protocol v2")
    if stop - start < (BATCH_ANSWER_SIZE if opcode == BATCH_READ else ANSWER_SIZE):
        raise RemoteProtocolError(f"{OPERATIONS[opcode].value} answer of {stop - start} bytes is cut short")
    code, ledger_id, entry_id = _ANSWER_FIXED.unpack_from(data, start + HEADER_SIZE)
    status = STATUS_OF_CODE.get(code, Status.IO_ERROR)  # an unknown code is no verdict
    if opcode == ADD:
        if status is Status.OK:
            return AddAcks(ledger_id, [entry_id], None)
        return AddFailed(ledger_id, entry_id, status, None)
    if opcode == READ:
        if status is Status.OK:
            return ReadBodies(ledger_id, [entry_id], [data[start + ANSWER_SIZE : stop]], None, None)
        return ReadFailed(ledger_id, entry_id, status, None)
    request_id = _LONG.unpack_from(data, start + ANSWER_SIZE)[0]
    bodies = cut_bodies(data, start + BATCH_ANSWER_SIZE, stop) if status is Status.OK else ()
    return BatchReadReply(ledger_id, entry_id, status, bodies, request_id)


def cut_bodies(data: bytes, position: int, stop: int) -> Sequence[bytes]:
    """The entries in data[position:stop], each behind its size. Raises RemoteProtocolError when that is not so.

    Entries of one size, as many batches have, stay where they are.
    """
    together = packed(data, position, stop)
    return cut_bodies_of_any_size(data, position, stop) if together is None else together


def cut_bodies_of_any_size(data: bytes, position: int, stop: int) -> tuple[bytes, ...]:
    """As `cut_bodies`, one after the other."""
    bodies = []
    unpack = LENGTH.unpack_from
    while position <= stop - LENGTH_SIZE:
        start = position + LENGTH_SIZE
        (size,) = unpack(data, position)
        position = start + size
        if size < 0 or position > stop:
            break
        bodies.append(data[start:position])
    if position != stop:
        raise RemoteProtocolError("batch read answer: an entry's size points outside the frame")
    return tuple(bodies)
