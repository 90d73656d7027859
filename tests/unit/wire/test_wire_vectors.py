"""Every byte vector named in bookkeeper/wire/FORMATS.md 7.1, made and read."""

from __future__ import annotations

import pytest

from bookkeeper.model import DigestType, Status
from bookkeeper.wire.codec import ServerCodec, request_encoder, response_decoder
from bookkeeper.wire.digest import digest_of, mac_key, master_key
from bookkeeper.wire.messages import (
    AddAcks,
    AddBatch,
    AddFailed,
    Auth,
    BatchRead,
    BatchReadReply,
    FenceRead,
    ReadBatch,
    ReadFailed,
    StartTls,
)

LEDGER_ID, ENTRY_ID, LAC, LENGTH, PAYLOAD, PASSWORD = 12345, 7, 6, 1005, b"hello", b"pw"
KEY = bytes.fromhex("2aa226ba095b6969a64871977693b14671710d76")
HEAD = "00000000000030390000000000000007000000000000000600000000000003ed"
BODIES = {
    DigestType.DUMMY: HEAD + "68656c6c6f",
    DigestType.CRC32: HEAD + "00000000ae1a61b668656c6c6f",
    DigestType.CRC32C: HEAD + "2a58d94968656c6c6f",
    DigestType.MAC: HEAD + "ac1ea7dcfd5e0921ee6962903702d837da6b12ef68656c6c6f",
}
LAC_PACKETS = {
    DigestType.DUMMY: "00000000000030390000000000000006",
    DigestType.CRC32: "0000000000003039000000000000000600000000efb91ad1",
    DigestType.CRC32C: "0000000000003039000000000000000624b2e169",
    DigestType.MAC: "0000000000003039000000000000000650b6db7b7805a45bd46c5ada4106c69d787e1a8f",
}
CRC32C_BODY = bytes.fromhex(BODIES[DigestType.CRC32C])
KEY_HEX = KEY.hex()

V2_ADDS = [
    (DigestType.CRC32C, False, "0000004102010000" + KEY_HEX + BODIES[DigestType.CRC32C]),
    (DigestType.CRC32C, True, "0000004102010006" + KEY_HEX + BODIES[DigestType.CRC32C]),
    (DigestType.MAC, False, "0000005102010000" + KEY_HEX + BODIES[DigestType.MAC]),
    (DigestType.CRC32, False, "0000004502010000" + KEY_HEX + BODIES[DigestType.CRC32]),
]
V2_READ = bytes.fromhex("000000140202000000000000000030390000000000000007")
V2_FENCE = bytes.fromhex("00000028020200010000000000003039ffffffffffffffff" + KEY_HEX)
V2_RECOVERY_READ = bytes.fromhex("0000002802020005000000000000303900000000" + "00000007" + KEY_HEX)
V2_AUTH = bytes.fromhex("0000001a020300000a124175746844697361626c6564506c7567696e1200")
V2_ADD_OK = bytes.fromhex("00000018020100000000000000000000000030390000000000000007")
V2_ADD_FENCED = bytes.fromhex("00000018020100000000006800000000000030390000000000000007")
V2_READ_NO_ENTRY = bytes.fromhex("00000018020200000000000200000000000030390000000000000007")
V2_BATCH_READ = bytes.fromhex(
    "00000028020700000000000000003039000000000000000700000000000000010000000a0000000000100000"
)
V2_BATCH_ANSWER = bytes.fromhex(
    "0000004d020700000000000000000000000030390000000000000007000000000000000100000029" + BODIES[DigestType.CRC32C]
)


def framed(hexadecimal: str) -> bytes:
    """The v3 vectors lack the frame length."""
    message = bytes.fromhex(hexadecimal)
    return len(message).to_bytes(4, "big") + message


V3_ADD = framed("0a06080310021801aa064608b96010071a14" + KEY_HEX + "2229" + BODIES[DigestType.CRC32C])
V3_ADD_OK = framed("0a060803100218011000aa0607080010b9601807")
V3_FENCE = framed("0a06080310011802a2062708b96010ffffffffffffffffff011a14" + KEY_HEX + "a00601")
V3_START_TLS = framed("0a06080310091801d20600")


def test_keys_come_from_the_password() -> None:
    assert master_key(PASSWORD) == KEY
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert mac_key(PASSWORD).hex() == "1f397c2df518ce03229cc4dc92b608068c3a2fad"


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_entry_bodies(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, PASSWORD)
    expected = bytes.fromhex(BODIES[digest_type])
    assert digest.package(LEDGER_ID, ENTRY_ID, LAC, LENGTH - len(PAYLOAD), [PAYLOAD]) == ([expected], LENGTH)
    assert digest.package_entries(LEDGER_ID, [ENTRY_ID], LAC, [LENGTH], [PAYLOAD]) == [expected]
    assert digest.verify(LEDGER_ID, [ENTRY_ID], [expected]) == [PAYLOAD]
    assert digest.overhead == len(expected) - len(PAYLOAD)


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_explicit_lac_packets(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, PASSWORD)
    expected = bytes.fromhex(LAC_PACKETS[digest_type])
    assert digest.package_lac(LEDGER_ID, LAC) == expected
    assert digest.verify_lac(LEDGER_ID, expected) == LAC


@pytest.mark.parametrize(("digest_type", "recovery", "expected"), V2_ADDS)
def test_v2_add(digest_type: DigestType, recovery: bool, expected: str) -> None:
    frame, body = bytes.fromhex(expected), bytes.fromhex(BODIES[digest_type])
    encoder = request_encoder(2)
    made = encoder.encode_adds(LEDGER_ID, KEY, [ENTRY_ID], [body], recovery=recovery, high_priority=recovery)
    assert made == (0, [frame])
    (batch,) = ServerCodec().receive(frame)
    assert isinstance(batch, AddBatch)
    assert (batch.ledger_id, batch.master_key, batch.entry_ids, batch.bodies) == (LEDGER_ID, KEY, [ENTRY_ID], [body])
    assert (batch.last_confirmed, batch.recovery, batch.high_priority) == (LAC, recovery, recovery)


def test_v2_reads() -> None:
    encoder = request_encoder(2)
    assert encoder.encode_reads(LEDGER_ID, [ENTRY_ID]) == (0, V2_READ)
    assert encoder.encode_fence_reads(LEDGER_ID, [-1], KEY) == (0, V2_FENCE)
    assert encoder.encode_fence_reads(LEDGER_ID, [ENTRY_ID], KEY, high_priority=True) == (0, V2_RECOVERY_READ)
    read, fence, recovery = ServerCodec().receive(V2_READ + V2_FENCE + V2_RECOVERY_READ)
    assert isinstance(read, ReadBatch)
    assert isinstance(fence, FenceRead)
    assert isinstance(recovery, FenceRead)
    assert (read.ledger_id, read.entry_ids) == (LEDGER_ID, [ENTRY_ID])
    assert (fence.ledger_id, fence.entry_id, fence.master_key, fence.high_priority) == (LEDGER_ID, -1, KEY, False)
    assert (recovery.entry_id, recovery.master_key, recovery.high_priority) == (ENTRY_ID, KEY, True)


def test_v2_auth() -> None:
    assert request_encoder(2).encode_auth("AuthDisabledPlugin", b"") == (0, V2_AUTH)
    codec = ServerCodec()
    (auth,) = codec.receive(V2_AUTH)
    assert isinstance(auth, Auth)
    assert (auth.plugin, auth.payload) == ("AuthDisabledPlugin", b"")
    assert codec.reply(auth, Status.OK, plugin="AuthDisabledPlugin", payload=b"") == V2_AUTH


def test_v2_answers() -> None:
    codec = ServerCodec()
    add, read = codec.receive(bytes.fromhex(V2_ADDS[0][2]) + V2_READ)
    assert isinstance(add, AddBatch)
    assert isinstance(read, ReadBatch)
    assert codec.add_replies([add], Status.OK) == V2_ADD_OK
    assert codec.add_replies([add], Status.FENCED) == V2_ADD_FENCED
    assert b"".join(codec.read_replies(read, [Status.NO_ENTRY])) == V2_READ_NO_ENTRY
    assert response_decoder(2).receive(V2_ADD_OK + V2_ADD_FENCED + V2_READ_NO_ENTRY) == [
        AddAcks(LEDGER_ID, [ENTRY_ID], None),
        AddFailed(LEDGER_ID, ENTRY_ID, Status.FENCED, None),
        ReadFailed(LEDGER_ID, ENTRY_ID, Status.NO_ENTRY, None),
    ]


def test_v2_batch_read() -> None:
    codec = ServerCodec()
    (request,) = codec.receive(V2_BATCH_READ)
    assert isinstance(request, BatchRead)
    assert (request.ledger_id, request.first_entry_id, request.request_id) == (LEDGER_ID, ENTRY_ID, 1)
    assert (request.count_max, request.size_max, request.fence, request.master_key) == (10, 1048576, False, None)
    assert codec.reply(request, Status.OK, bodies=[CRC32C_BODY]) == V2_BATCH_ANSWER
    answer = BatchReadReply(LEDGER_ID, ENTRY_ID, Status.OK, (CRC32C_BODY,), 1)
    assert response_decoder(2).receive(V2_BATCH_ANSWER) == [answer]


def test_v3_add() -> None:
    assert request_encoder(3).encode_adds(LEDGER_ID, KEY, [ENTRY_ID], [CRC32C_BODY]) == (1, [V3_ADD])
    codec = ServerCodec()
    (batch,) = codec.receive(V3_ADD)
    assert isinstance(batch, AddBatch)
    assert (batch.ledger_id, batch.entry_ids, batch.bodies) == (LEDGER_ID, [ENTRY_ID], [CRC32C_BODY])
    assert codec.add_replies([batch], Status.OK) == V3_ADD_OK
    assert response_decoder(3).receive(V3_ADD_OK) == [AddAcks(LEDGER_ID, [ENTRY_ID], [1])]


def test_v3_fencing_read() -> None:
    encoder = request_encoder(3)
    encoder.encode_reads(LEDGER_ID, [0])  # takes request id 1
    assert encoder.encode_fence_reads(LEDGER_ID, [-1], KEY) == (2, V3_FENCE)
    (fence,) = ServerCodec().receive(V3_FENCE)
    assert isinstance(fence, FenceRead)
    assert (fence.ledger_id, fence.entry_id, fence.master_key) == (LEDGER_ID, -1, KEY)


def test_v3_start_tls() -> None:
    (request,) = ServerCodec().receive(V3_START_TLS)
    assert isinstance(request, StartTls)
