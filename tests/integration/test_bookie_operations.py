"""Every operation beyond plain adds and reads, on the wire of a real bookie process, also across its sudden death."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.embedded.cluster import LocalBookie
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT, Status
from bookkeeper.wire import v2, v3
from bookkeeper.wire.availability import decode_availability
from bookkeeper.wire.messages import (
    AddAcks,
    BatchReadReply,
    ForceReply,
    ListEntriesReply,
    LongPollReply,
    ReadBodies,
    ReadFailed,
    StartTlsReply,
)
from tests.support.bookie_fakes import KEY, OTHER_KEY, body_of, lac_packet
from tests.support.cluster import STEADY, RawClient, local_cluster

pytestmark = pytest.mark.timeout(240)

_ledger_ids = itertools.count(100)


@pytest.fixture(scope="module")
def bookie(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBookie]:
    """One bookie; each test uses a ledger of its own."""
    directory = tmp_path_factory.mktemp("operations")
    with local_cluster(
        zookeeper.address,
        f"/operations-{os.urandom(3).hex()}",
        1,
        directory=directory,
        settings={**STEADY, "maxBatchReadSize": "1000000"},
    ) as cluster:
        yield cluster.bookies[0]


@pytest.fixture
def ledger_id() -> int:
    return next(_ledger_ids)


class Client:
    """A v3 connection with its encoder; answers come one by one."""

    def __init__(self, bookie: LocalBookie) -> None:
        self.raw = RawClient(bookie.port, version=3)
        self.encoder = v3.RequestEncoder(FRAME_SIZE_MAX_DEFAULT)
        self._answers: list[Any] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()

    def send(self, request: tuple[int, bytes]) -> int:
        """Send a request; its id."""
        self.raw.send(request[1])
        return request[0]

    def next(self) -> Any:
        """The next answer."""
        while not self._answers:
            self._answers = self.raw.receive()
        return self._answers.pop(0)

    def add(self, ledger_id: int, entry_ids: range, *, lac: int = -1, deferred: bool = False) -> None:
        """Add entries and wait for their acknowledgements."""
        bodies = [body_of(ledger_id, entry_id, b"z" * 100, lac=lac) for entry_id in entry_ids]
        self.raw.send(b"".join(self.encoder.encode_adds(ledger_id, KEY, entry_ids, bodies, deferred_sync=deferred)[1]))
        acknowledged: list[int] = []
        while len(acknowledged) < len(entry_ids):
            answer = self.next()
            assert isinstance(answer, AddAcks), answer
            acknowledged += answer.entry_ids
        assert acknowledged == list(entry_ids)


def batch_read(
    client: RawClient, ledger_id: int, first: int, count: int, size: int = FRAME_SIZE_MAX_DEFAULT
) -> BatchReadReply:
    client.send(v2.RequestEncoder(FRAME_SIZE_MAX_DEFAULT).encode_batch_read(ledger_id, first, count, size)[1])
    (answer,) = client.receive()
    assert isinstance(answer, BatchReadReply)
    return answer


def listed(client: Client, ledger_id: int) -> list[range]:
    client.send(client.encoder.encode_list_entries(ledger_id))
    answer = client.next()
    assert isinstance(answer, ListEntriesReply)
    assert answer.status is Status.OK
    assert answer.availability is not None
    return decode_availability(answer.availability)


def test_a_long_poll_waits_for_the_next_entry(bookie: LocalBookie, ledger_id: int) -> None:
    with Client(bookie) as reader, Client(bookie) as writer:
        unknown = reader.send(reader.encoder.encode_long_poll(ledger_id, -1, 60_000))
        assert reader.next() == ReadFailed(ledger_id, -1, Status.NO_LEDGER, unknown)
        writer.add(ledger_id, range(2), lac=-1)
        poll = reader.send(reader.encoder.encode_long_poll(ledger_id, -1, 60_000))
        # The reader's own requests go on meanwhile, and their answers show that the poll was taken before the add.
        reader.send(reader.encoder.encode_reads(ledger_id, [0]))
        assert reader.next().entry_ids == [0]
        writer.add(ledger_id, range(2, 3), lac=1)
        answer = reader.next()
        assert answer == ReadBodies(ledger_id, [0], [body_of(ledger_id, 0, b"z" * 100)], 1, [poll])


def test_a_long_poll_is_woken_by_an_explicit_lac_by_a_fence_and_by_its_time(
    bookie: LocalBookie, ledger_id: int
) -> None:
    with Client(bookie) as reader, Client(bookie) as writer:
        writer.add(ledger_id, range(3), lac=1)

        def poll(previous_lac: int, timeout_ms: int) -> int:
            number = reader.send(reader.encoder.encode_long_poll(ledger_id, previous_lac, timeout_ms))
            reader.send(reader.encoder.encode_reads(ledger_id, [0]))
            assert reader.next().entry_ids == [0]
            return number

        explicit = poll(1, 60_000)
        packet = lac_packet(ledger_id, 2)
        writer.send(writer.encoder.encode_write_lac(ledger_id, 2, KEY, packet))
        assert writer.next().status is Status.OK
        body = body_of(ledger_id, 2, b"z" * 100, lac=1)
        assert reader.next() == ReadBodies(ledger_id, [2], [body], 2, [explicit])
        timed = reader.send(reader.encoder.encode_long_poll(ledger_id, 2, 50))
        assert reader.next() == LongPollReply(ledger_id, -1, None, 2, timed)
        fenced = poll(2, 60_000)
        writer.send(writer.encoder.encode_fence_reads(ledger_id, [-1], KEY))
        assert writer.next().entry_ids == [-1]
        assert reader.next() == LongPollReply(ledger_id, -1, None, 2, fenced)


def test_thousands_of_long_polls_cost_one_connection_each_nothing_when_it_ends(
    bookie: LocalBookie, ledger_id: int
) -> None:
    with Client(bookie) as writer:
        writer.add(ledger_id, range(2), lac=0)
        for _ in range(5):
            with Client(bookie) as reader:
                polls = [reader.encoder.encode_long_poll(ledger_id, 0, 60_000)[1] for _ in range(1001)]
                reader.raw.send(b"".join(polls))
                answer = reader.next()
                assert isinstance(answer, ReadFailed)
                assert answer.status is Status.TOO_MANY_REQUESTS  # the one beyond the bound
        writer.add(ledger_id, range(2, 3), lac=1)


def test_batch_reads_are_bounded_by_count_size_and_setting(bookie: LocalBookie, ledger_id: int) -> None:
    bodies = [body_of(ledger_id, entry_id, b"z" * 100) for entry_id in range(10_000)]
    with Client(bookie) as writer:
        writer.add(ledger_id, range(10_000))
    with RawClient(bookie.port) as client:
        assert batch_read(client, ledger_id, 5, 3).bodies == tuple(bodies[5:8])
        assert batch_read(client, ledger_id, 0, 100, 36 + 7 * 136).bodies == tuple(bodies[:7])
        assert batch_read(client, ledger_id, 0, 100, 36 + 7 * 136 - 1).bodies == tuple(bodies[:6])
        assert batch_read(client, ledger_id, 0, 100, 1).bodies == tuple(bodies[:1])
        assert batch_read(client, ledger_id, 0, 0).bodies == tuple(bodies[: (1_000_000 - 36) // 136])
        assert batch_read(client, ledger_id, 9_998, 0).bodies == tuple(bodies[9_998:])
        assert batch_read(client, ledger_id, 10_000, 5).status is Status.NO_ENTRY
        assert batch_read(client, ledger_id + 1_000_000, 0, 5).status is Status.NO_LEDGER


def test_a_fencing_batch_read_needs_the_key_and_keeps_the_writer_out(bookie: LocalBookie, ledger_id: int) -> None:
    with Client(bookie) as writer, RawClient(bookie.port) as recoverer:
        writer.add(ledger_id, range(3))
        request = v2.RequestEncoder(FRAME_SIZE_MAX_DEFAULT).encode_batch_read(ledger_id, 0, 10, 1 << 20)[1]
        fencing = bytearray(request)
        fencing[7] |= 1  # the fence flag; the key follows the request
        for key, status in ((OTHER_KEY, Status.UNAUTHORIZED), (KEY, Status.OK)):
            packet = bytes(fencing[4:]) + key
            recoverer.send(len(packet).to_bytes(4, "big") + packet)
            (answer,) = recoverer.receive()
            assert answer.status is status
        assert len(answer.bodies) == 3
        writer.raw.send(writer.encoder.encode_adds(ledger_id, KEY, [3], [body_of(ledger_id, 3)])[1][0])
        assert writer.next().status is Status.FENCED


def test_a_list_names_what_is_held_before_and_after_a_restart(bookie: LocalBookie, ledger_id: int) -> None:
    held = [range(3), range(5, 6), range(PAGE_SLOTS - 2, PAGE_SLOTS + 2), range(5000, 5001)]
    with Client(bookie) as client:
        for run in held:
            client.add(ledger_id, run)
        assert listed(client, ledger_id) == held
        missing = client.send(client.encoder.encode_list_entries(ledger_id + 1_000_000))
        assert client.next() == ListEntriesReply(ledger_id + 1_000_000, Status.NO_LEDGER, None, missing)
    assert bookie.stop() == 0
    bookie.start()
    with Client(bookie) as client:
        assert listed(client, ledger_id) == held


def test_deferred_adds_survive_the_death_of_the_process(bookie: LocalBookie, ledger_id: int) -> None:
    """Nothing is synced for them in time, but the kernel has what was acknowledged."""
    count = 0
    for _ in range(3):
        with Client(bookie) as client:
            for _ in range(20):
                client.add(ledger_id, range(count, count + 50), deferred=True)
                count += 50
            bookie.kill()
        bookie.start()
        with Client(bookie) as client:
            assert listed(client, ledger_id) == [range(count)]


def test_a_force_is_answered_once_adds_before_it_are_durable(bookie: LocalBookie, ledger_id: int) -> None:
    with Client(bookie) as client:
        client.add(ledger_id, range(100), deferred=True)
        for target in (ledger_id, ledger_id + 1_000_000):
            number = client.send(client.encoder.encode_force(target))
            assert client.next() == ForceReply(target, Status.OK, number)
        # Pipelined behind adds that are still under way.
        bodies = [body_of(ledger_id, entry_id) for entry_id in range(100, 200)]
        frames = client.encoder.encode_adds(ledger_id, KEY, range(100, 200), bodies, deferred_sync=True)[1]
        client.raw.send(b"".join(frames) + client.encoder.encode_force(ledger_id)[1])
        answers: list[Any] = []
        while not (answers and isinstance(answers[-1], ForceReply)):
            answers.append(client.next())
        assert sum(len(answer.entry_ids) for answer in answers[:-1]) == 100


def test_tls_is_refused_where_it_is_not_configured(bookie: LocalBookie) -> None:
    with Client(bookie) as client:
        number = client.send(client.encoder.encode_start_tls())
        assert client.next() == StartTlsReply(Status.BAD_REQUEST, number)


def test_a_bookie_that_stops_answers_those_who_wait(bookie: LocalBookie, ledger_id: int) -> None:
    """The poll itself would last for a minute."""
    with Client(bookie) as reader:
        reader.add(ledger_id, range(2), lac=0)
        asked_s = time.monotonic()
        poll = reader.send(reader.encoder.encode_long_poll(ledger_id, 0, 60_000))
        reader.send(reader.encoder.encode_reads(ledger_id, [0]))
        assert reader.next().entry_ids == [0]
        assert bookie.pid is not None
        os.kill(bookie.pid, signal.SIGTERM)
        assert reader.next() == LongPollReply(ledger_id, -1, None, 0, poll)
        assert time.monotonic() - asked_s < 55, "before the poll was over"
    assert bookie.stop() == 0
    bookie.start()
