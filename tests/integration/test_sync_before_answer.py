"""No answer leaves a bookie before the sync that covers it, seen from outside the code with strace.

Aim: adds (v2 and v3), fences and explicit LACs (I-20, I-22, I-48). Method: strace follows every thread of one bookie
while clients write; whenever bytes begin to leave on a client's connection they are decoded, and for each positive
answer in them the record must be in a journal write that had returned before an fdatasync began which has returned 0.
"""

from __future__ import annotations

import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.journal.format import explicit_lac_record, fence_record
from bookkeeper.embedded.cluster import LocalBookie
from bookkeeper.model import Status
from bookkeeper.wire.codec import request_encoder, response_decoder, v3_encoder
from bookkeeper.wire.messages import AddAcks, ReadBodies, ReadFailed, WriteLacReply
from tests.support.bookie_fakes import KEY, body_of, lac_packet
from tests.support.cluster import RawClient, local_cluster
from tests.support.strace_trace import SYSCALLS, Durability, Event, Moment, events_of

pytestmark = pytest.mark.timeout(300)

DETACH_TIMEOUT_S = 120
STRING_MAX = 1 << 24
V2_LEDGER, V3_LEDGER = 7, 8
ADDS = 400
BURSTS = (1, 2, 5, 1, 40, 1, 100, 1, 200, 1, 1, 47)
FENCED = range(100, 110)


class Strace:
    """strace on a running process and all its threads, from `with` to its end."""

    def __init__(self, pid: int, output: Path) -> None:
        self._pid, self.output = pid, output
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Strace:
        program = shutil.which("strace")
        if program is None:
            pytest.skip("counting syncs from outside needs the program strace")
        command = [program, "-f", "-yy", "-xx", "-s", str(STRING_MAX), "-e", f"trace={SYSCALLS}"]
        process = subprocess.Popen(
            [*command, "-o", str(self.output), "-p", str(self._pid)], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        said = process.stderr.readline()
        if "attached" not in said:
            process.kill()
            process.communicate()
            pytest.skip(f"strace may not follow another process here: {said.strip()}")
        self._process = process
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)  # it lets go of the process and writes out what it has
        self._process.communicate(timeout=DETACH_TIMEOUT_S)

    def events(self) -> list[Event]:
        return list(events_of(self.output.read_text().splitlines()))


@pytest.fixture
def bookie(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalBookie]:
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path) as cluster:
        yield cluster.bookies[0]


def body(ledger_id: int, entry_id: int) -> bytes:
    return body_of(ledger_id, entry_id, b"entry %d of ledger %d;" % (entry_id, ledger_id) * 5)


def write_entries(client: RawClient, ledger_id: int, version: int) -> None:
    """Bursts of adds, so that groups of one and of many are committed, some while a sync is under way."""
    encoder = request_encoder(3 if version == 3 else 2)
    first = 0
    for size in BURSTS:
        entry_ids = range(first, first + size)
        bodies = [body(ledger_id, entry_id) for entry_id in entry_ids]
        frames = encoder.encode_adds(ledger_id, KEY, list(entry_ids), bodies)[1]
        for start in range(0, size, 10):
            client.send(b"".join(frames[start : start + 10]))
        assert client.acknowledged(size) == list(entry_ids)
        first += size
    assert first == ADDS


def claims_of(answer: object) -> Iterator[bytes]:
    """The records that an answer says are durable, as bytes to be found in the journal."""
    if isinstance(answer, AddAcks):
        for entry_id in answer.entry_ids:
            entry = body(answer.ledger_id, entry_id)
            yield struct.pack(">i", len(entry)) + entry
    elif isinstance(answer, ReadFailed | ReadBodies):  # only fencing reads are sent here
        yield fence_record(answer.ledger_id)
    elif isinstance(answer, WriteLacReply):
        assert answer.status is Status.OK
        yield explicit_lac_record(answer.ledger_id, lac_packet(answer.ledger_id, 3))
    else:
        raise AssertionError(f"an answer to nothing that was asked: {answer}")


def check(events: list[Event], bookie_port: int) -> tuple[int, int]:
    """Fail at the first answer that left too early; how many claims were checked, and how many syncs were seen."""
    durable = Durability(re.compile(r"/journal/current/\w+\.txn$"))
    decoders: dict[str, Any] = {}
    claims = 0
    for event in events:
        durable.observe(event)
        if event.moment is Moment.BEGAN and f":{bookie_port}->" in event.target and event.data:
            if event.target not in decoders:
                # v2 answers begin with the version in their header's first byte; v3 ones are protobuf.
                decoders[event.target] = response_decoder(2 if event.data[4] == 2 else 3)
            decoder = decoders[event.target]
            for answer in decoder.receive(event.data):
                for record in claims_of(answer):
                    assert durable.is_synced(record), f"answered before its sync: {answer}"
                    claims += 1
            assert decoder.error is None
        elif event.moment is Moment.RETURNED and f":{bookie_port}->" in event.target and event.data:
            assert event.result == len(event.data), "a reply went out in pieces; make the test's bursts smaller"
    return claims, durable.syncs


def test_no_answer_leaves_before_the_sync_that_covers_it(bookie: LocalBookie, tmp_path: Path) -> None:
    with RawClient(bookie.port) as two, RawClient(bookie.port, version=3) as three:
        with Strace(bookie.pid, tmp_path / "strace.txt") as strace:
            write_entries(two, V2_LEDGER, 2)
            write_entries(three, V3_LEDGER, 3)
            for ledger_id in FENCED:
                two.send(request_encoder(2).encode_fence_reads(ledger_id, [-1], KEY)[1])
                assert two.receive()[0].status is Status.NO_ENTRY
            three.send(v3_encoder().encode_write_lac(V3_LEDGER, 3, KEY, lac_packet(V3_LEDGER, 3))[1])
            assert three.receive()[0].status is Status.OK
    claims, syncs = check(strace.events(), bookie.port)
    assert claims == 2 * ADDS + len(FENCED) + 1
    assert syncs >= 2 * len(BURSTS) + len(FENCED) + 1  # each of them waited for its answer before the next


# --- the check itself ---------------------------------------------------------------------------------------------

PORT = 3181


def quoted(data: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


def trace(*order: str) -> list[Event]:
    """A made-up trace of one add, with its calls in the order given."""
    entry = body(V2_LEDGER, 0)
    record = struct.pack(">i", len(entry)) + entry
    answer = struct.pack(">ibbhiqq", 24, 2, 1, 0, 0, V2_LEDGER, 0)
    journal, client = "5</d/journal/current/1.txn>", f"9<TCP:[127.0.0.1:{PORT}->127.0.0.1:40000]>"
    lines = {
        "write": f"11 pwrite64({journal}, {quoted(record)}, {len(record)}, 512) = {len(record)}",
        "write begins": f"11 pwrite64({journal}, {quoted(record)}, {len(record)}, 512 <unfinished ...>",
        "write returns": f"11 <... pwrite64 resumed>) = {len(record)}",
        "sync": f"12 fdatasync({journal}) = 0",
        "sync begins": f"12 fdatasync({journal} <unfinished ...>",
        "sync returns": "12 <... fdatasync resumed>) = 0",
        "other sync": "12 fdatasync(6</d/ledgers/current/0.log>) = 0",
        "answer": f"10 sendto({client}, {quoted(answer)}, {len(answer)}, 0, NULL, 0) = {len(answer)}",
    }
    return list(events_of(lines[name] for name in order))


@pytest.mark.parametrize(
    "order",
    [
        ("write", "sync", "answer"),
        ("write", "sync begins", "sync returns", "answer"),
        ("write begins", "write returns", "sync begins", "sync returns", "answer"),
    ],
)
def test_the_check_accepts_a_right_order(order: tuple[str, ...]) -> None:
    assert check(trace(*order), PORT) == (1, 1)


@pytest.mark.parametrize(
    "order",
    [
        ("answer", "write", "sync"),
        ("write", "answer", "sync"),
        ("write", "sync begins", "answer", "sync returns"),
        ("write begins", "sync begins", "write returns", "sync returns", "answer"),
        ("sync", "write", "answer"),
        ("write", "other sync", "answer"),
    ],
)
def test_the_check_finds_an_answer_that_left_too_early(order: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError, match="answered before its sync"):
        check(trace(*order), PORT)


@pytest.mark.parametrize("end", [" <detached ...>", ") = ?", " <unfinished ...>"])
def test_a_call_under_way_when_the_trace_ends_did_not_return(end: str) -> None:
    lines = [r'7 sendto(5<TCP:[127.0.0.1:1->127.0.0.1:2]>, "\x00\x01", 2, 0, NULL, 0' + end]
    assert [(event.moment, event.data) for event in events_of(lines)] == [(Moment.BEGAN, b"\0\1")]
