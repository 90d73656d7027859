"""Payloads in batches: the same entries as one by one, verified alike, within the same bounds."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from bookkeeper.client.read.entries import PayloadBatch
from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.client.read.stream import ANSWER_BYTES, PayloadStream
from bookkeeper.config import ClientSettings
from bookkeeper.errors import EntryCorrupt, InvalidArgument, LedgerClosed
from bookkeeper.model import DigestType
from bookkeeper.wire.messages import BatchRead, ReadBatch
from tests.support.fake_bookie import FakeCluster

ONE_SIZE = [b"entry %04d" % number for number in range(200)]
MANY_SIZES = [b"x" * (number % 7) for number in range(200)]


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


class Stored:
    """A closed ledger on every bookie, and a handle that reads it in batches, 20 entries each."""

    def __init__(self, payloads: list[bytes], *, write_quorum: int = 3, **options: Any) -> None:
        self.cluster, self.payloads = FakeCluster(3), payloads
        ledger = self.cluster.wait(
            self.cluster.client(settings()).create(
                ensemble=3, write_quorum=write_quorum, ack_quorum=2, digest=options.pop("digest", None)
            )
        )
        self.cluster.wait(ledger.append_many(payloads))
        self.cluster.wait(ledger.close())
        self.ledger_id = ledger.ledger_id
        self.client = self.cluster.client(settings(**{"read_ahead_entries_max": 80, **options}))
        self.handle: ReadHandle = self.cluster.wait(self.client.open(ledger.ledger_id))
        for _ in range(3):  # let every bookie answer one batch, so that it is known to be able to
            self.cluster.wait(self.handle.read(0, 1))
        for bookie in self.cluster.bookies:
            bookie.requests.clear()

    def requests(self, kind: type) -> list[Any]:
        return [each for bookie in self.cluster.bookies for each in bookie.requests if isinstance(each, kind)]

    def damage(self, entry_id: int, *, copies: int) -> None:
        for bookie in self.cluster.bookies[:copies]:
            held = bookie.entries[self.ledger_id]
            held[entry_id] = held[entry_id][:-1] + bytes([held[entry_id][-1] ^ 1])

    def all_of(self, stream: PayloadStream, found: list[bytes]) -> None:
        """Read to the end; what came before a failure is in `found`."""

        async def read() -> None:
            while batch := await stream.next():
                assert batch.first_entry_id == len(found)
                assert list(batch.entry_ids) == list(range(len(found), len(found) + len(batch)))
                found.extend(batch.payloads)

        self.cluster.wait(read())


@pytest.mark.parametrize("payloads", [ONE_SIZE, MANY_SIZES], ids=["one size", "many sizes"])
@pytest.mark.parametrize("digest", list(DigestType))
@pytest.mark.parametrize("write_quorum", [3, 2], ids=["in batches", "one by one"])
def test_every_payload_comes_in_order(payloads: list[bytes], digest: DigestType, write_quorum: int) -> None:
    stored = Stored(payloads, digest=digest, write_quorum=write_quorum)
    found: list[bytes] = []
    stored.all_of(stored.handle.payload_stream(), found)
    assert found == payloads
    assert bool(stored.requests(ReadBatch)) is (write_quorum == 2)


def test_a_batch_is_one_answer_of_one_bookie_and_they_take_turns() -> None:
    stored = Stored(ONE_SIZE)
    stored.all_of(stored.handle.payload_stream(), [])
    asked = sorted((each.first_entry_id, each.count_max) for each in stored.requests(BatchRead))
    assert asked == [(first, 20) for first in range(0, 200, 20)]
    assert min(len(bookie.requests) for bookie in stored.cluster.bookies) >= 3


def test_what_is_not_taken_is_read_ahead_within_the_bounds() -> None:
    stored = Stored(ONE_SIZE)
    stream = stored.handle.payload_stream()
    assert len(stored.cluster.wait(stream.next())) == 20
    stored.cluster.run(1.0)
    assert sum(each.count_max for each in stored.requests(BatchRead)) <= 20 + 80
    stream.stop()


@pytest.mark.parametrize("kind", ["payloads", "entries"])
def test_a_stream_that_is_dropped_when_its_client_closes_logs_nothing(kind: str) -> None:
    """The case of `bookkeeper ledger read 7 | head`: the read-ahead fails, and no caller reads the failure."""
    stored = Stored(ONE_SIZE)
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        stream = stored.handle.payload_stream() if kind == "payloads" else stored.handle.stream(0, None)
        stored.cluster.wait(stream.next())
        stored.cluster.wait(stored.client.close())
        stored.cluster.run(1.0)
        del stream
        gc.collect()
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert not [event for event in events if "log_failure" in event]


def test_large_entries_make_small_batches_that_fit_an_answer() -> None:
    size = ANSWER_BYTES // 10
    stored = Stored([bytes(size)] * 40, read_ahead_bytes_max=1 << 30)
    found: list[bytes] = []
    stored.all_of(stored.handle.payload_stream(), found)
    assert len(found) == 40
    assert {each.count_max for each in stored.requests(BatchRead)} <= {9, 4}  # nine fit, with what is around them


def test_a_part_of_a_ledger_and_nothing_past_its_end() -> None:
    stored = Stored(ONE_SIZE)

    async def read(first: int, last: int | None) -> list[tuple[int, int]]:
        return [(each.first_entry_id, len(each)) async for each in stored.handle.payload_batches(first, last)]

    assert stored.cluster.wait(read(5, 30)) == [(5, 20), (25, 6)]
    assert stored.cluster.wait(read(195, None)) == [(195, 5)]
    assert stored.cluster.wait(read(200, None)) == []
    assert not PayloadBatch(200, ())
    with pytest.raises(InvalidArgument, match="first entry -1 is negative"):
        stored.handle.payload_stream(-1)
    stored.cluster.wait(stored.handle.close())
    with pytest.raises(LedgerClosed):
        stored.handle.payload_stream()


@pytest.mark.parametrize("payloads", [ONE_SIZE, MANY_SIZES], ids=["one size", "many sizes"])
def test_a_damaged_copy_is_passed_over_for_a_good_one(payloads: list[bytes]) -> None:
    """I-44."""
    stored = Stored(payloads)
    for entry_id in (6, 41, 199):
        stored.damage(entry_id, copies=2)
    found: list[bytes] = []
    stored.all_of(stored.handle.payload_stream(), found)
    assert found == payloads


@pytest.mark.parametrize("entry_id", [34, 41, 20])
def test_a_failure_comes_after_all_that_lies_before_it_and_nothing_is_skipped(entry_id: int) -> None:
    """Also what lies before the bad entry in its own batch."""
    stored = Stored(ONE_SIZE)
    stored.damage(entry_id, copies=3)
    stream, found = stored.handle.payload_stream(), list[bytes]()
    for _ in range(2):
        with pytest.raises(EntryCorrupt, match=f"entry {entry_id}:"):
            stored.all_of(stream, found)
        assert found == ONE_SIZE[:entry_id]
