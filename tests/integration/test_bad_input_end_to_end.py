"""Bad input to running servers: the message names the thing and the remedy, nothing is lost, nobody else is disturbed.

Each case also shows that another client's add succeeds right afterwards and that memory did not grow over many
repetitions. Cases about frames have a bookie each, since a bookie logs one line per subject and ten seconds. What is
not here is in test_bookie_process.py (configuration, ports, cookies, ZooKeeper away), test_client_faces.py (the errors'
classes), test_durability.py (full disks) and the unit tests of each decoder.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import bookkeeper.blocking
from bookkeeper import BookKeeper
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.model import Status
from bookkeeper.wire.codec import request_encoder
from tests.support.bookie_fakes import KEY, body_of
from tests.support.cluster import ANSWER_TIMEOUT_S, STEADY, RawClient, local_cluster, wait_for_exit, with_long_timeouts

REPEATED = 300
WARM_UP = 60
GROWTH_MAX_KB = 4 * 1024
"""Noise of the allocator; a leak of 100 bytes for every byte sent would be far above."""


def resident_kb(bookie: LocalBookie) -> int:
    return int(Path(f"/proc/{bookie.pid}/status").read_text().split("VmRSS:")[1].split()[0])


def add_by_somebody_else(bookie: LocalBookie, entry_id: int = 0) -> None:
    """Another connection, another ledger."""
    with RawClient(bookie.port) as client:
        client.send(request_encoder(2).encode_adds(4711, KEY, [entry_id], [body_of(4711, entry_id)])[1][0])
        assert client.acknowledged(1) == [entry_id]


# --- frames ---------------------------------------------------------------------------------------------------------


def frame(packet: bytes) -> bytes:
    return struct.pack(">i", len(packet)) + packet


def add_frame(ledger_id: int, entry_id: int) -> bytes:
    return frame(b"\x02\x01\x00\x00" + KEY + body_of(ledger_id, entry_id))


def v3_frame(operation: int, rest: bytes = b"") -> bytes:
    """A v3 request with this operation number and these further fields."""
    header = bytes((0x08, 3, 0x10, operation, 0x18, 1))
    return frame(bytes((0x0A, len(header))) + header + rest)


def v3_add(ledger_id: int, body: bytes) -> bytes:
    """A v3 add whose entry id, like the body's, is 0."""
    request = b"\x08" + bytes((ledger_id,)) + b"\x10\x00" + b"\x1a\x14" + KEY + b"\x22" + bytes((len(body),)) + body
    return v3_frame(2, b"\xaa\x06" + bytes((len(request),)) + request)


@dataclass(frozen=True, slots=True)
class Case:
    """answered: the status of the answer, or bytes in one that a client cannot make sense of; None when the bookie
    closes the connection, or waits for the rest."""

    name: str
    data: bytes
    words: tuple[str, ...]
    answered: Status | bytes | None = None
    version: int = 2
    waits: bool = False


CLOSES = "Closing the connection from"
REFUSED = "Refused a request from"
V3_BAD_REQUEST = b"\x10\x94\x03"  # field 2, status: EBADREQ, 404
CASES = [
    Case("half a frame", add_frame(7, 0)[:-3], (), waits=True),
    Case("half a length", b"\x00\x00", (), waits=True),
    Case("oversized frame", struct.pack(">i", 6 << 20), (CLOSES, "6291456", "nettyMaxFrameSizeBytes")),
    Case("zero-length frame", bytes(4), (CLOSES, "frame length 0", "not a BookKeeper peer")),
    Case("negative length", struct.pack(">i", -2), (CLOSES, "frame length -2")),
    Case("a web browser", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", (CLOSES, "not a BookKeeper peer")),
    Case("garbage in a frame", frame(bytes(range(200, 256)) * 20), (CLOSES,)),
    Case("unknown v2 operation", frame(b"\x02\x63\x00\x00" + bytes(40)), (CLOSES, "opcode 99")),
    Case("unknown v3 operation", v3_frame(99), (REFUSED, "99"), V3_BAD_REQUEST, version=3),
    Case("negative entry id", add_frame(7, -5), (REFUSED, "entry -5: negative id"), Status.BAD_REQUEST),
    Case("negative ledger id", add_frame(-7, 0), (REFUSED, "ledger -7, entry 0: negative id"), Status.BAD_REQUEST),
    Case(
        "fence of a negative ledger",
        frame(b"\x02\x02\x00\x01" + struct.pack(">qq", -7, 0) + KEY),
        (REFUSED, "negative id"),
        Status.BAD_REQUEST,
    ),
    Case(
        "fence at a negative entry",
        frame(b"\x02\x02\x00\x01" + struct.pack(">qq", 7, -4096) + KEY),
        (REFUSED, "negative id"),
        Status.BAD_REQUEST,
    ),
    Case(
        "v3 ledger id not its body's",
        v3_add(7, body_of(8, 0)),
        (REFUSED, "ledger 7, entry 0: the body is of ledger 8"),
        Status.BAD_REQUEST,
        version=3,
    ),
]


@pytest.fixture(scope="module")
def bookie_of(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalBookie]]:
    """A bookie for each case, by its name."""
    root, directory = f"/bad-frames-{os.urandom(3).hex()}", tmp_path_factory.mktemp("bad-frames")
    with local_cluster(zookeeper.address, root, len(CASES), directory=directory) as cluster:
        yield {case.name: bookie for case, bookie in zip(CASES, cluster.bookies, strict=True)}


def ask(bookie: LocalBookie, case: Case) -> None:
    """Send the case's bytes and see it answered, or the connection closed, or kept for the rest."""
    if isinstance(case.answered, bytes):
        with socket.create_connection(("127.0.0.1", bookie.port), timeout=ANSWER_TIMEOUT_S) as plain:
            plain.sendall(case.data)
            assert case.answered in plain.recv(4096)
        return
    with RawClient(bookie.port, version=case.version) as client:
        client.send(case.data)
        if case.answered is not None:
            (answer,) = client.receive()
            assert answer.status is case.answered
        elif not case.waits:
            assert client.is_closed()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_frame_is_named_and_harms_nobody(case: Case, bookie_of: dict[str, LocalBookie]) -> None:
    bookie = bookie_of[case.name]
    ask(bookie, case)
    add_by_somebody_else(bookie, 0)
    said = bookie.log_path.read_text()
    for word in case.words:
        assert word in said
    for _ in range(WARM_UP):
        ask(bookie, case)
    before = resident_kb(bookie)
    for _ in range(REPEATED):
        ask(bookie, case)
    assert resident_kb(bookie) - before < GROWTH_MAX_KB
    add_by_somebody_else(bookie, 1)
    assert "Traceback" not in bookie.log_path.read_text()


# --- what a client is asked to do -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root, directory = f"/bad-calls-{os.urandom(3).hex()}", tmp_path_factory.mktemp("bad-calls")
    settings = {**STEADY, "flushInterval": "600000"}  # entries stay in the journal only
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def zk(zookeeper: Any) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


BadCall = Callable[[BookKeeper, int], Awaitable[object]]


async def _append_too_large(bk: BookKeeper, _: int) -> object:
    async with await bk.create() as ledger:
        return await ledger.append(bytes(6 << 20))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        pytest.param(
            lambda bk, _: bk.create(ensemble=2, write_quorum=3), ("ensemble 2", "write quorum 3", "need"), id="quorums"
        ),
        pytest.param(lambda bk, _: bk.create(ensemble=9), ("needs 9 bookies", "3 are writable"), id="too few bookies"),
        pytest.param(lambda bk, known: bk.open(known, b"wrong"), ("ledger {known}", "password"), id="password"),
        pytest.param(lambda bk, _: bk.open(123456789), ("123456789",), id="unknown ledger"),
        pytest.param(lambda bk, _: bk.open(-4), ("-4", "negative"), id="negative ledger"),
        pytest.param(_append_too_large, ("larger than",), id="entry too large"),
    ],
)
def test_a_bad_call_is_refused_with_the_reason(cluster: LocalCluster, call: BadCall, words: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with (
            await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk,
            await BookKeeper.connect(cluster.uri, with_long_timeouts()) as other,
        ):
            known = (await bk.create(password=b"right")).id
            ledger = await other.create()
            before = [0] * 3
            for number in range(30):
                with pytest.raises(BookKeeperError) as raised:
                    await call(bk, known)
                for word in words:
                    assert word.format(known=known) in str(raised.value)
                assert await ledger.append(b"meanwhile") == number
                if number == 10:
                    before = [resident_kb(bookie) for bookie in cluster.bookies]
            await ledger.close()
            for bookie, size in zip(cluster.bookies, before, strict=True):
                assert resident_kb(bookie) - size < GROWTH_MAX_KB

    asyncio.run(scenario())


# --- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (b"\x00\xff\x00garbage", ("not ledger metadata", "restorefromfile")),
        (b"", ("empty", "restorefromfile")),
        (b"BookieMetadataFormatVersion\t9\nwhatever", ("version 9", "newer release")),
    ],
    ids=["garbage", "empty", "of a newer release"],
)
def test_metadata_that_cannot_be_read_is_named_and_left_alone(
    cluster: LocalCluster, zk: KazooClient, stored: bytes, words: tuple[str, ...]
) -> None:
    with (
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk,
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as other,
    ):
        with bk.create() as ledger:
            ledger.append(b"one")
        path = f"{cluster.root}{hierarchical_path(ledger.id)}"
        good, _ = zk.get(path)
        zk.set(path, stored)
        for attempt in (bk.open, bk.open_without_recovery, bk.metadata, bk.delete):
            with pytest.raises(BookKeeperError) as raised:
                attempt(ledger.id)
            for word in (path, *words):
                assert word in str(raised.value)
        assert zk.get(path)[0] == stored
        with other.create() as undisturbed:
            assert undisturbed.append(b"x") == 0
        zk.set(path, good)
        assert bk.open(ledger.id).read(0, 0)[0].payload == b"one"


# --- journals ---------------------------------------------------------------------------------------------------------


class Damaged:
    """A ledger on all three bookies of which one was killed, so that its journal can be damaged."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster, self.bookie = cluster, cluster.bookies[0]
        with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk:
            with bk.create(ensemble=3, write_quorum=3, ack_quorum=3) as ledger:
                for number in range(20):
                    ledger.append(b"payload %d" % number * 10)
        self.ledger_id = ledger.id
        self.bookie.kill()
        journals = (self.bookie.journal_directory / "current").glob("*.txn")
        self.journal = max(journals, key=lambda path: int(path.stem, 16))
        self.data = self.journal.read_bytes()

    def check_all_there(self) -> None:
        """Everything is read, from the bookie too when it runs."""
        with bookkeeper.blocking.connect(self.cluster.uri, with_long_timeouts()) as bk:
            with bk.open(self.ledger_id) as ledger:
                assert len(list(ledger.entries())) == 20
            with bk.create(ensemble=2, write_quorum=2, ack_quorum=2) as another:
                assert another.append(b"x") == 0


def test_a_torn_write_at_the_end_of_a_journal_is_cut_off(cluster: LocalCluster) -> None:
    """What a power failure leaves of a group that was never answered: the first part of it."""
    damaged = Damaged(cluster)
    end = len(damaged.data.rstrip(b"\0"))
    start = (end + 511) // 512 * 512
    torn = damaged.data[512:1024][:300]
    damaged.journal.write_bytes(damaged.data[:start] + torn + bytes(1 << 16))
    damaged.bookie.start()
    damaged.check_all_there()
    with RawClient(damaged.bookie.port) as client:
        client.send(request_encoder(2).encode_reads(damaged.ledger_id, list(range(20)))[1])
        held: list[int] = []
        while len(held) < 20:
            for answer in client.receive():
                held += answer.entry_ids
        assert held == list(range(20))


def test_a_corrupt_record_in_the_middle_of_a_journal_stops_the_start(cluster: LocalCluster) -> None:
    damaged = Damaged(cluster)
    position = damaged.data.index(b"payload 3" * 3)
    broken = bytearray(damaged.data)
    broken[position] ^= 1
    damaged.journal.write_bytes(broken)
    said = len(damaged.bookie.log_path.read_text())
    assert wait_for_exit(damaged.bookie) != 0
    message = damaged.bookie.log_path.read_text()[said:]
    assert str(damaged.journal) in message
    assert "is damaged at offset" in message
    assert "restore the file" in message
    assert "Traceback" not in message
    damaged.check_all_there()  # the other two have it, and take adds
    damaged.journal.write_bytes(damaged.data)  # "restore the file"
    damaged.bookie.start()
    damaged.check_all_there()
