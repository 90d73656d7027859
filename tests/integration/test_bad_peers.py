"""Peers that are not what they should be, against running processes: clients of other releases, a bookie of another
cluster, and things that are no bookies at all where one is registered.

Each gets a clear answer or error that names peer, value and remedy; the connection, where the protocol lets it live,
the bookie and the rest of the cluster stay usable for others. Not here: broken frames (test_bad_input_end_to_end.py),
directories of another cluster or bookie (test_bookie_process.py), certificates and credentials.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import bookkeeper.blocking
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.bookies.service_info import format_service_info
from bookkeeper.model import BookieServiceInfo, Endpoint, Status
from bookkeeper.wire.codec import request_encoder, response_decoder
from tests.support.bookie_fakes import KEY, body_of
from tests.support.cluster import ANSWER_TIMEOUT_S, STEADY, RawClient, local_cluster, wait_for_exit, with_long_timeouts
from tests.support.patience import until

# --- clients of other releases ----------------------------------------------------------------------------------------

LEDGER_ID = 7


def frame(packet: bytes) -> bytes:
    return struct.pack(">i", len(packet)) + packet


def v2_header(version: int, opcode: int, flags: int = 0) -> bytes:
    """Version 0 knows no header: its first int is the opcode."""
    return struct.pack(">i", opcode) if version == 0 else struct.pack(">BBh", version, opcode, flags)


def v2_add(version: int, entry_id: int) -> bytes:
    return frame(v2_header(version, 1) + KEY + body_of(LEDGER_ID, entry_id))


def v2_read(version: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
    fences = fence_key is not None
    return frame(v2_header(version, 2, int(fences)) + struct.pack(">qq", LEDGER_ID, entry_id) + (fence_key or b""))


def v3_read(version: int, operation: int = 1) -> bytes:
    """A v3 read of entry 0, with this version and operation in its header."""
    header = bytes((0x08, version, 0x10, operation, 0x18, 9))
    request = bytes((0x08, LEDGER_ID, 0x10, 0))
    return frame(bytes((0x0A, len(header))) + header + b"\xa2\x06" + bytes((len(request),)) + request)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_adds_and_reads_of_the_oldest_clients_are_served(served: LocalBookie, version: int) -> None:
    """No handshake, no credentials: the first frame is an add, as from 4.2.3 and before it."""
    entry_id = 10 + version
    with RawClient(served.port) as client:
        client.send(v2_add(version, entry_id))
        assert client.acknowledged(1) == [entry_id]
        client.send(v2_read(version, entry_id))
        (answer,) = client.receive()
        assert (answer.entry_ids, list(answer.bodies)) == ([entry_id], [body_of(LEDGER_ID, entry_id)])


def test_a_fence_of_the_oldest_clients_needs_the_key_that_only_version_2_sends(served: LocalBookie) -> None:
    with RawClient(served.port) as client:
        client.send(v2_add(2, 20))
        assert client.acknowledged(1) == [20]
        client.send(v2_read(1, -1, fence_key=KEY))
        (refused,) = client.receive()
        assert refused.status is Status.UNAUTHORIZED
        client.send(v2_add(2, 21))
        assert client.acknowledged(1) == [21], "nothing was fenced"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A request that no release up to 4.18 sends in this form.

    answer: the status or, for an answer that echoes what our decoder does not know either, its bytes; None: the bookie
    closes, since nothing could be answered. words: in the bookie's line about it, besides the peer's address.
    """

    name: str
    request: bytes
    answer: Status | bytes | None
    words: tuple[str, ...]
    version: int = 2


V3_BAD_REQUEST, V3_BAD_VERSION = b"\x10\x94\x03", b"\x10\xf7\x03"  # field 2, status: 404, 503
REFUSED, SERVED_V2, SERVED_V3 = "Refused a request from", "0 to 2 are served", "only 3 is served"
FOREIGN = [
    Foreign("v2 add of version 3", v2_add(3, 0), Status.BAD_VERSION, (REFUSED, "packet version 3,", SERVED_V2)),
    Foreign("v2 read of version 9", v2_read(9, 0), Status.BAD_VERSION, (REFUSED, "packet version 9,", SERVED_V2)),
    Foreign("v3 of version 1", v3_read(1), Status.BAD_VERSION, (REFUSED, "protocol version 1 ", SERVED_V3), version=3),
    Foreign("v3 of version 2", v3_read(2), Status.BAD_VERSION, (REFUSED, "protocol version 2 ", SERVED_V3), version=3),
    Foreign("v3 of version 9", v3_read(9), V3_BAD_VERSION, (REFUSED, "protocol version 9 ", SERVED_V3), version=3),
    Foreign(
        "v3 operation 99", v3_read(3, 99), V3_BAD_REQUEST, (REFUSED, "operation number 99", "after 4.18"), version=3
    ),
    Foreign(
        "v2 opcode 8", frame(v2_header(2, 8) + bytes(40)), None, ("Closing the connection", "opcode 8", "after 4.18")
    ),
    Foreign(
        "a TLS client", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", None, ("Closing the connection", "speaks TLS")
    ),
]


@pytest.fixture(scope="module")
def bookies(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LocalBookie]]:
    """One for each refused case, since a bookie logs one line per subject and ten seconds; the last for the others."""
    root = f"/bad-clients-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("bad-clients")
    with local_cluster(zookeeper.address, root, len(FOREIGN) + 1, directory=directory, settings=STEADY) as cluster:
        yield list(cluster.bookies)


@pytest.fixture
def served(bookies: list[LocalBookie]) -> LocalBookie:
    return bookies[-1]


@pytest.mark.parametrize("number", range(len(FOREIGN)), ids=[case.name for case in FOREIGN])
def test_a_client_of_another_release_is_answered_and_named_and_harms_nobody(
    bookies: list[LocalBookie], number: int
) -> None:
    case, bookie = FOREIGN[number], bookies[number]
    encoder = request_encoder(3 if case.version == 3 else 2)
    with (
        socket.create_connection(("127.0.0.1", bookie.port), timeout=ANSWER_TIMEOUT_S) as plain,
        RawClient(bookie.port) as other,
    ):
        peer = f"127.0.0.1:{plain.getsockname()[1]}"
        plain.sendall(case.request)
        if case.answer is None:
            with suppress(ConnectionResetError):
                assert plain.recv(4096) == b""
        else:
            answer = plain.recv(4096)
            echoed = struct.pack(">i", len(answer) - 4) + case.request[4:6] if case.version == 2 else b""
            assert answer.startswith(echoed), "version and opcode as they came"
            if isinstance(case.answer, bytes):
                assert case.answer in answer
            else:
                assert status_in(answer, case.version) is case.answer
            plain.sendall(encoder.encode_adds(LEDGER_ID, KEY, [1], [body_of(LEDGER_ID, 1)])[1][0])
            assert status_in(plain.recv(4096), case.version) is Status.OK, "the connection goes on"
        other.send(request_encoder(2).encode_adds(4711, KEY, [0], [body_of(4711, 0)])[1][0])
        assert other.acknowledged(1) == [0]
        said = bookie.log_path.read_text()
        (line,) = [line for line in said.splitlines() if peer in line]
        for word in case.words:
            assert word in line
        for _ in range(50):
            with RawClient(bookie.port) as again:
                again.send(case.request)
        other.send(request_encoder(2).encode_adds(4711, KEY, [1], [body_of(4711, 1)])[1][0])
        assert other.acknowledged(1) == [1]
    assert "Traceback" not in bookie.log_path.read_text()
    assert len(bookie.log_path.read_text().splitlines()) < len(said.splitlines()) + 25, "one line, not one for each"


def status_in(answer: bytes, version: int) -> Status:
    """The status of the one add or read answer in these bytes."""
    (found,) = response_decoder(3 if version == 3 else 2).receive(answer)
    status: Status = getattr(found, "status", Status.OK)
    return status


# --- a bookie of another cluster --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root, directory = f"/bad-bookies-{os.urandom(3).hex()}", tmp_path_factory.mktemp("bad-bookies")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def zk(zookeeper: Any) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_bookie_of_another_instance_refuses_to_start_and_the_others_serve_on(
    cluster: LocalCluster, zk: KazooClient
) -> None:
    """As after somebody formatted the metadata under running bookies: the cluster's id is not that of their data."""
    path, other_id = f"{cluster.root}/INSTANCEID", "11111111-2222-3333-4444-555555555555"
    own_id = zk.get(path)[0].decode()
    stopped, *serving = cluster.bookies
    assert stopped.stop() == 0
    zk.set(path, other_id.encode())
    try:
        assert wait_for_exit(stopped) == 5
        last = stopped.log_path.read_text().strip().splitlines()[-1]
        for word in ("cluster instance id", own_id, other_id, "another cluster", "check metadataServiceUri"):
            assert word in last
        assert "Traceback" not in stopped.log_path.read_text()
        with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk:
            assert set(bk.available_bookies().writable) == {bookie.bookie_id for bookie in serving}
            with bk.create(ensemble=2, write_quorum=2, ack_quorum=2) as ledger:
                assert ledger.append(b"meanwhile") == 0
            with bk.open(ledger.id) as reader:
                assert reader.read(0, 0)[0].payload == b"meanwhile"
    finally:
        zk.set(path, own_id.encode())
    stopped.start()
    with (
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk,
        bk.create(ensemble=3, write_quorum=3, ack_quorum=3) as ledger,
    ):
        assert ledger.append(b"all three again") == 0


# --- things that are no bookies ---------------------------------------------------------------------------------------

Speak = Callable[[socket.socket], object]


def _answering(data: bytes) -> Speak:
    def speak(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(data)
        with suppress(OSError):
            while peer.recv(4096):  # until the client has had enough
                pass

    return speak


HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"  # fatal, protocol_version
IMPOSTORS = {
    "a web server": (_answering(HTTP_ANSWER), "not a BookKeeper peer, it speaks HTTP"),
    "a TLS server": (_answering(TLS_ALERT), "not a BookKeeper peer, it speaks TLS"),
    "garbage": (_answering(b"\xff" * 100), "not a BookKeeper peer"),
    "garbage in a frame": (_answering(frame(bytes(range(200, 256)))), "broke the protocol|is no v3 response"),
    "closes at once": (lambda peer: None, "ended"),
    "closes when asked": (lambda peer: peer.recv(1), "ended"),
}


class Impostor:
    """Listens where a bookie is registered, and is none."""

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._serve)]
        self.bookie_id = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connection_count = 0
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connection_count += 1
            thread = threading.Thread(target=self._answer, args=(peer,))
            self._threads.append(thread)
            thread.start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            self._speak(peer)

    def close(self) -> None:
        """After the clients are closed, so that no thread is left."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@contextmanager
def impostor_in(cluster: LocalCluster, zk: KazooClient, speak: Speak) -> Iterator[Impostor]:
    """Registered as a bookie is whose id is its address."""
    with ExitStack() as stack:
        impostor = Impostor(speak)
        stack.callback(impostor.close)
        path = f"{cluster.root}/available/{impostor.bookie_id}"
        zk.create(path, b"")
        stack.callback(zk.delete, path)
        yield impostor


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
@pytest.mark.parametrize("kind", IMPOSTORS)
def test_what_is_no_bookie_is_named_and_shunned_and_the_others_are_used(
    cluster: LocalCluster, zk: KazooClient, kind: str, use_v2: bool
) -> None:
    speak, words = IMPOSTORS[kind]
    real = [bookie.bookie_id for bookie in cluster.bookies]
    settings = with_long_timeouts(ClientSettings(use_v2=use_v2))
    with (
        impostor_in(cluster, zk, speak) as impostor,
        bookkeeper.blocking.connect(cluster.uri, settings=settings) as bk,
        bookkeeper.blocking.connect(cluster.uri, settings=settings) as other,
    ):
        # Written in spite of it: an ensemble change puts a real one in its place.
        with bk.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=[impostor.bookie_id, *real[:2]]) as ledger:
            assert [ledger.append(b"entry %d" % number) for number in range(20)] == list(range(20))
        assert set(ledger.metadata.last_fragment.ensemble) == set(real)
        # Shunned from then on, with three others there.
        asked = impostor.connection_count
        for _ in range(5):
            with bk.create(ensemble=3, write_quorum=3, ack_quorum=3) as next_ledger:
                assert next_ledger.append(b"x") == 0
            assert set(next_ledger.metadata.fragments[0].ensemble) == set(real)
        assert impostor.connection_count == asked
        # Named, with what it did.
        with pytest.raises(BookKeeperError) as raised:
            other.bookie_info(impostor.bookie_id)
        assert impostor.bookie_id in str(raised.value)
        assert re.search(words, str(raised.value))
        # Where nobody else is left to take, the writer hears the same.
        with (
            pytest.raises(BookKeeperError) as failed,
            other.create(ensemble=4, write_quorum=4, ack_quorum=4) as hopeless,
        ):
            hopeless.append(b"x")
        assert impostor.bookie_id in str(failed.value)
        assert re.search(words, str(failed.value))
        # And read in spite of it, as a member of the ensemble that nobody replaced.
        with bk.open(ledger.id) as reader:
            assert [entry.payload for entry in reader.read(0, 19)] == [b"entry %d" % number for number in range(20)]


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_weighing_free_space_goes_round_what_is_no_bookie(cluster: LocalCluster, zk: KazooClient, kind: str) -> None:
    """It is asked for its free space like the others, does not tell, and holds up nobody."""
    real = {bookie.bookie_id for bookie in cluster.bookies}
    settings = with_long_timeouts(ClientSettings(disk_weights=True))
    with (
        impostor_in(cluster, zk, IMPOSTORS[kind][0]) as impostor,
        bookkeeper.blocking.connect(cluster.uri, settings=settings) as bk,
    ):
        for _ in range(10):
            with bk.create(ensemble=3, write_quorum=3, ack_quorum=3) as ledger:
                assert ledger.append(b"x") == 0
            assert set(ledger.metadata.last_fragment.ensemble) == real
        until(lambda: impostor.connection_count > 0, "it was asked, beside the creates")


def test_reads_go_round_a_replica_that_is_no_bookie_any_more(
    zookeeper: Any, zk: KazooClient, ledgers_root: str, tmp_path: Path
) -> None:
    """The port of a bookie that is gone was taken by a web server, while its registration lingers."""
    with local_cluster(zookeeper.address, ledgers_root, 3, directory=tmp_path, settings=STEADY) as cluster:
        with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk:
            with bk.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
                ledger.append_many([b"entry %d" % number for number in range(30)])
        gone = cluster.bookies[0]
        assert gone.stop() == 0
        impostor = Impostor(_answering(HTTP_ANSWER))
        try:
            path = f"{cluster.root}/available/{gone.bookie_id}"
            zk.create(path, _registered_at(gone.bookie_id, impostor.bookie_id))
            with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk, bk.open(ledger.id) as reader:
                found = [entry.payload for entry in reader.entries()]
            assert found == [b"entry %d" % number for number in range(30)]
            until(lambda: impostor.connection_count > 0, "it was asked first for some")
        finally:
            impostor.close()


def _registered_at(bookie_id: str, address: str) -> bytes:
    """The registration of a bookie at another address."""
    host, _, port = address.rpartition(":")
    return format_service_info(BookieServiceInfo((Endpoint(bookie_id, host, int(port), "bookie-rpc"),)))
