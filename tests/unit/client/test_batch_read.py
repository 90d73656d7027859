"""Batch reads: when they are used, how they go on, and what falls to plain reads and other replicas."""

from typing import Any

import pytest

from bookkeeper.client.bookies.reachability import REFUSAL_S
from bookkeeper.client.read import batch as batch_read
from bookkeeper.client.read.read_handle import BATCH_COUNT_SLACK, ReadHandle
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import EntryCorrupt, EntryMissing, InvalidArgument, ReadBeyondEnd
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch, BatchRead, ReadBatch
from tests.support.fake_bookie import CLOSE, HOLD, SILENCE, FakeBookie, FakeCluster


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


class Stored:
    """A closed ledger on every bookie, and a handle of a client that has read nothing yet."""

    def __init__(self, count: int = 100, *, reader: Any = None, size: int = 0, **sizes: Any) -> None:
        self.cluster = FakeCluster(3)
        sizes = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 3, **sizes}
        writer = self.cluster.client(settings())
        self.ledger: WriteHandle = self.cluster.wait(writer.create(**sizes))
        self.payloads = [b"entry %d" % number + bytes(size) for number in range(count)]
        self.cluster.wait(self.ledger.append_many(self.payloads))
        self.cluster.wait(self.ledger.close())
        self.client = self.cluster.client(settings(**(reader or {})))
        self.handle: ReadHandle = self.cluster.wait(self.client.open(self.ledger.ledger_id))
        self.forget()

    def forget(self) -> None:
        for bookie in self.cluster.bookies:
            bookie.requests.clear()

    def read(self, first: int = 0, last: int | None = None) -> list[bytes]:
        last = len(self.payloads) - 1 if last is None else last
        return [entry.payload for entry in self.cluster.wait(self.handle.read(first, last))]

    def warm(self) -> None:
        """Let every bookie answer one batch, so that it is known to be able to."""
        for _ in range(3):
            assert self.read(0, 1) == self.payloads[:2]
        assert len({name for name, _, _ in self.batches()}) == 3
        self.forget()

    def batches(self) -> list[tuple[str, int, int]]:
        """Bookie, first entry and count of each batch asked for."""
        return [
            (bookie.name, request.first_entry_id, request.count_max)
            for bookie in self.cluster.bookies
            for request in bookie.requests
            if isinstance(request, BatchRead)
        ]

    def plain(self) -> list[int]:
        """Entries asked for one by one."""
        requests = [request for bookie in self.cluster.bookies for request in bookie.requests]
        return sorted(entry for request in requests if isinstance(request, ReadBatch) for entry in request.entry_ids)

    def rule(self, verdict: object, *, times: int = 10**6, bookies: list[FakeBookie] | None = None) -> None:
        left = [times]

        def rule(request: Any) -> object:
            if not isinstance(request, BatchRead) or not left[0]:
                return None
            left[0] -= 1
            return verdict

        for bookie in bookies or self.cluster.bookies:
            bookie.rule = rule

    def held(self, place: int) -> dict[int, bytes]:
        return self.cluster.bookies[place].entries[self.ledger.ledger_id]


def test_a_range_is_one_request_to_one_bookie_and_ranges_take_turns() -> None:
    stored = Stored()
    stored.warm()
    for _ in range(3):
        assert stored.read() == stored.payloads
    assert sorted(stored.batches()) == [("b1", 0, 100), ("b2", 0, 100), ("b3", 0, 100)]
    assert stored.plain() == []


@pytest.mark.parametrize(
    ("reader", "sizes"),
    [
        pytest.param({"use_v2": False}, {}, id="v3"),
        pytest.param({"batch_read": False}, {}, id="switched off"),
        pytest.param({}, {"write_quorum": 2, "ack_quorum": 2}, id="no bookie has every entry"),
    ],
)
def test_plain_reads_where_batches_cannot_be(reader: Any, sizes: Any) -> None:
    stored = Stored(reader=reader, **sizes)
    assert stored.read() == stored.payloads
    assert stored.batches() == []
    assert stored.plain() == list(range(100))


def test_single_entries_are_read_plainly() -> None:
    stored = Stored()
    assert stored.read(7, 7) == stored.payloads[7:8]
    assert (stored.batches(), stored.plain()) == ([], [7])


def test_a_short_answer_is_gone_on_from() -> None:
    """A megabyte per answer: 17 entries of 60 000 bytes each."""
    stored = Stored(50, size=60_000)
    stored.warm()
    assert stored.read() == stored.payloads
    assert [first for _, first, _ in stored.batches()] == [0, 17, 34]
    assert len({name for name, _, _ in stored.batches()}) == 1
    assert stored.plain() == []


def test_an_entry_above_the_bound_comes_alone() -> None:
    stored = Stored(4, size=2 * batch_read.BATCH_BYTES)
    stored.warm()
    assert stored.read() == stored.payloads
    assert [first for _, first, _ in stored.batches()] == [0, 1, 2, 3]


def test_streams_read_in_batches() -> None:
    stored = Stored(1000)
    stored.warm()

    async def stream() -> list[bytes]:
        return [entry.payload async for entry in stored.handle.entries()]

    assert stored.cluster.wait(stream()) == stored.payloads
    assert len(stored.batches()) <= 8
    assert len({name for name, _, _ in stored.batches()}) == 3
    assert stored.plain() == []


# --- copies that are damaged or not there


@pytest.mark.parametrize("broken", [0, 5, 99])
def test_a_damaged_entry_is_read_from_the_next_replica(broken: int) -> None:
    """I-44."""
    stored = Stored()
    stored.warm()
    for place in (0, 1):
        held = stored.held(place)
        held[broken] = held[broken][:-1] + b"?"
    for _ in range(3):
        assert stored.read() == stored.payloads


def test_an_entry_damaged_everywhere_is_named() -> None:
    stored = Stored()
    stored.warm()
    for place in range(3):
        stored.held(place)[5] = stored.held(place)[5][:-1] + b"?"
    with pytest.raises(EntryCorrupt, match="entry 5"):
        stored.read()


def test_another_entry_s_body_is_no_answer() -> None:
    """Its digest is right and its id is not the one asked for."""
    stored = Stored()
    stored.warm()
    for place in (0, 1):
        stored.held(place)[5] = stored.held(place)[6]
    assert stored.read() == stored.payloads


@pytest.mark.parametrize("hole", [0, 5, 99])
def test_a_hole_is_read_from_the_next_replica_and_the_rest_from_the_same(hole: int) -> None:
    stored = Stored()
    stored.warm()
    for place in (0, 1):
        del stored.held(place)[hole]
    for _ in range(3):
        assert stored.read() == stored.payloads


def test_holes_in_every_copy_are_filled_from_the_others() -> None:
    stored = Stored()
    stored.warm()
    for place in range(3):
        for entry_id in range(place, 100, 3):
            del stored.held(place)[entry_id]
    assert stored.read() == stored.payloads


def test_an_entry_that_nobody_has_is_missing() -> None:
    stored = Stored()
    stored.warm()
    for place in range(3):
        del stored.held(place)[5]
    with pytest.raises(EntryMissing, match="entry 5"):
        stored.read()


def test_a_bookie_without_the_ledger_is_passed_over_at_once() -> None:
    stored = Stored()
    stored.warm()
    for bookie in stored.cluster.bookies[:2]:
        bookie.entries.clear()
        bookie.keys.clear()
    for _ in range(3):
        assert stored.read() == stored.payloads
    assert stored.plain() == []


# --- answers that are none


@pytest.mark.parametrize("status", [Status.IO_ERROR, Status.TOO_MANY_REQUESTS, Status.UNKNOWN_LEDGER_STATE])
def test_a_failure_falls_to_plain_reads_or_the_next_replica(status: Status) -> None:
    stored = Stored()
    stored.warm()
    stored.rule(status, times=2)
    assert stored.read() == stored.payloads


@pytest.mark.parametrize("verdict", [{"bodies": []}, CLOSE])
def test_ok_without_entries_or_a_cut_connection_falls_to_the_next_replica(verdict: object) -> None:
    stored = Stored()
    stored.warm()
    stored.rule(verdict, times=1)
    assert stored.read() == stored.payloads


def test_more_entries_than_asked_for_are_cut_off() -> None:
    stored = Stored()
    stored.warm()
    bodies = [stored.held(0)[entry_id] for entry_id in range(10, 20)]
    stored.rule({"bodies": bodies})
    assert stored.read(10, 14) == stored.payloads[10:15]


@pytest.mark.parametrize("warm", [True, False])
def test_silence_is_bridged_by_speculation(warm: bool) -> None:
    stored = Stored()
    if warm:
        stored.warm()
    stored.rule(SILENCE, times=1)
    before = stored.cluster.clock.seconds()
    assert stored.read() == stored.payloads
    assert stored.cluster.clock.seconds() - before < 3.0


def test_a_late_answer_disturbs_nothing() -> None:
    """I-29: it carries the id of a request that nobody waits for, and no entry's key."""
    stored = Stored(reader={"read_timeout_s": 1.0, "speculative_read_delay_s": 0.1})
    stored.warm()
    stored.rule(HOLD, times=1)
    assert stored.read() == stored.payloads
    stored.cluster.run(1.5)
    for bookie in stored.cluster.bookies:
        bookie.release()
    assert stored.read() == stored.payloads


# --- bookies older than the operation


@pytest.mark.parametrize("verdict", [CLOSE, Status.BAD_REQUEST, Status.BAD_VERSION])
def test_an_old_bookie_is_asked_once_until_it_registers_anew(verdict: object) -> None:
    stored = Stored()
    stored.rule(verdict)
    for _ in range(6):
        assert stored.read() == stored.payloads
    assert 1 <= len(stored.batches()) <= 3
    assert len({name for name, _, _ in stored.batches()}) == len(stored.batches())
    for bookie in stored.cluster.bookies:
        bookie.rule = lambda request: None
        bookie.leave()
    stored.cluster.run(1.0)
    for bookie in stored.cluster.bookies:
        bookie.start()
    stored.cluster.run(1.0)
    stored.forget()
    for _ in range(3):
        assert stored.read() == stored.payloads
    assert len(stored.batches()) == 3


def test_finding_out_ends_nobody_elses_requests() -> None:
    """The trial has a connection of its own: the writer of the same client loses no bookie."""
    stored = Stored()
    stored.rule(CLOSE)
    ledger = stored.cluster.wait(stored.client.create(ensemble=3, write_quorum=3, ack_quorum=3))
    for bookie in stored.cluster.bookies:
        bookie.rule = lambda request: (
            HOLD if isinstance(request, AddBatch) else (CLOSE if isinstance(request, BatchRead) else None)
        )
    pending = ledger.append(b"x")
    stored.cluster.run(0.1)
    for _ in range(3):
        assert stored.read() == stored.payloads
    assert stored.batches() != []
    for bookie in stored.cluster.bookies:
        bookie.release()
    assert stored.cluster.wait(pending) == 0
    assert len(ledger.metadata.fragments) == 1


def test_finding_out_quarantines_nobody() -> None:
    """Else the fourth bookie would be in every ensemble that follows."""
    cluster = FakeCluster(4)
    client = cluster.client(settings())
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=3, ack_quorum=3))
    cluster.wait(ledger.append_many([b"x"] * 10))
    for bookie in cluster.bookies:
        bookie.rule = lambda request: CLOSE if isinstance(request, BatchRead) else None
    for _ in range(3):
        assert len(cluster.wait(ledger.read(0, 9))) == 10
    assert sum(isinstance(request, BatchRead) for bookie in cluster.bookies for request in bookie.requests) >= 1
    ensembles = [cluster.wait(client.create(ensemble=3)).metadata.last_fragment.ensemble for _ in range(20)]
    (other,) = {bookie.bookie_id for bookie in cluster.bookies} - set(ledger.metadata.last_fragment.ensemble)
    assert any(other not in ensemble for ensemble in ensembles)


def test_a_trial_that_told_nothing_is_made_again_later() -> None:
    stored = Stored(reader={"read_timeout_s": 1.0, "speculative_read_delay_s": 0.1})
    stored.rule(SILENCE)
    for _ in range(6):
        assert stored.read() == stored.payloads
    stored.cluster.run(2.0)
    assert len(stored.batches()) == 3
    stored.cluster.run(REFUSAL_S)
    stored.rule(None)
    stored.forget()
    for _ in range(6):
        assert stored.read() == stored.payloads
    assert len(stored.batches()) == 6
    assert stored.plain() == []


# --- read_batch


def test_read_batch_returns_what_comes_in_one_go() -> None:
    stored = Stored(50, size=60_000)
    stored.warm()
    read = stored.handle.read_batch
    assert [entry.entry_id for entry in stored.cluster.wait(read(3, 5))] == [3, 4, 5, 6, 7]
    assert [entry.entry_id for entry in stored.cluster.wait(read(3, 0, 200_000))] == [3, 4, 5]
    assert [entry.entry_id for entry in stored.cluster.wait(read(3, 50, 1))] == [3]
    assert [entry.entry_id for entry in stored.cluster.wait(read(48))] == [48, 49]
    assert stored.cluster.wait(read(49)) == [(49, stored.payloads[49], sum(map(len, stored.payloads)))]
    everything = stored.cluster.wait(read(0))
    assert [entry.payload for entry in everything] == stored.payloads[: len(everything)]
    assert len(everything) > 1


@pytest.mark.parametrize("reader", [{"use_v2": False}, {"batch_read": False}])
def test_read_batch_keeps_its_bounds_where_entries_are_read_one_by_one(reader: Any) -> None:
    stored = Stored(50, size=60_000, reader=reader)
    assert [entry.entry_id for entry in stored.cluster.wait(stored.handle.read_batch(3, 5))] == [3, 4, 5, 6, 7]
    assert [entry.entry_id for entry in stored.cluster.wait(stored.handle.read_batch(3, 0, 200_000))] == [3, 4, 5]
    assert [entry.entry_id for entry in stored.cluster.wait(stored.handle.read_batch(3, 0, 1))] == [3]
    assert stored.batches() == []


@pytest.mark.parametrize("verdict", [CLOSE, Status.BAD_REQUEST, Status.IO_ERROR, {"bodies": []}])
def test_read_batch_from_bookies_that_cannot(verdict: object) -> None:
    stored = Stored()
    stored.rule(verdict)
    found = stored.cluster.wait(stored.handle.read_batch(10, 20))
    assert [entry.payload for entry in found] == stored.payloads[10 : 10 + len(found)]
    assert found


def test_read_batch_of_a_damaged_first_entry_gets_it_elsewhere() -> None:
    stored = Stored()
    stored.warm()
    for place in (0, 1):
        stored.held(place)[10] = stored.held(place)[10][:-1] + b"?"
    for _ in range(3):
        found = stored.cluster.wait(stored.handle.read_batch(10, 20))
        assert [entry.payload for entry in found] == stored.payloads[10 : 10 + len(found)]
        assert found


@pytest.mark.parametrize("verdict", [SILENCE, CLOSE, Status.BAD_VERSION])
def test_read_batch_asks_a_bookie_that_takes_no_batches_for_little_more_than_it_may_return(verdict: object) -> None:
    """Neither when that turns out, nor later, as long as nobody finds out anew."""
    stored = Stored(1000, size=100)
    stored.rule(verdict)
    for _ in range(4):
        stored.forget()
        entries = stored.cluster.wait(stored.handle.read_batch(0, 0, 400))
        assert [entry.payload for entry in entries] == stored.payloads[: len(entries)]
        assert 1 <= len(entries) <= 3
        stored.cluster.run(0.1)
        assert len(set(stored.plain())) <= BATCH_COUNT_SLACK * 3


def test_read_batch_returns_what_stands_before_an_entry_that_cannot_be_read() -> None:
    stored = Stored(3, ensemble=1, write_quorum=1, ack_quorum=1)
    assert stored.read() == stored.payloads  # its bookie is known to answer batches
    [held] = [bookie.entries[0] for bookie in stored.cluster.bookies if bookie.entries.get(stored.ledger.ledger_id)]
    held[2] = held[2][:-1] + b"?"
    entries = stored.cluster.wait(stored.handle.read_batch(0, 3))
    assert [entry.payload for entry in entries] == stored.payloads[:2]
    with pytest.raises(EntryCorrupt, match="entry 2"):
        stored.cluster.wait(stored.handle.read_batch(2, 1))


def test_read_batch_arguments() -> None:
    stored = Stored(3)
    for arguments in ((-1, 1, 1), (0, -1, 1), (0, 1, -1)):
        with pytest.raises(InvalidArgument):
            stored.cluster.wait(stored.handle.read_batch(*arguments))
    with pytest.raises(ReadBeyondEnd):
        stored.cluster.wait(stored.handle.read_batch(3, 1, 1))


@pytest.mark.parametrize("size_max", [0, 1, 60, 36 + 57, 36 + 2 * 57 - 1, 36 + 2 * 57, 1000])
def test_a_bound_of_bytes_means_the_same_in_either_protocol_version(size_max: int) -> None:
    """An entry: 32 bytes of ids, LAC and length, 4 of digest, 17 of payload, 4 of size; the answer: 36 more."""
    counts = {}
    for use_v2 in (True, False):
        cluster = FakeCluster(3)
        ledger = cluster.wait(cluster.client(settings()).create(ensemble=3, write_quorum=3, ack_quorum=3))
        cluster.wait(ledger.append_many([b"17 bytes, exactly"] * 40))
        cluster.wait(ledger.close())
        handle = cluster.wait(cluster.client(settings(use_v2=use_v2)).open(ledger.ledger_id))
        counts[use_v2] = len(cluster.wait(handle.read_batch(0, 0, size_max)))
    fitting = 40 if not size_max else min(40, max(1, (size_max - 36) // 57))
    assert counts == {True: fitting, False: fitting}
