"""Entries as readers return them: the running length, with every way to read."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest

from bookkeeper.client.read.entries import Entry
from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.config import ClientSettings
from bookkeeper.model import DigestType
from tests.support.fake_bookie import FakeCluster

ONE_SIZE = [b"entry %04d" % number for number in range(100)]
MANY_SIZES = [b"x" * (number % 7) for number in range(100)]


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def lengths_of(payloads: list[bytes]) -> list[int]:
    return list(accumulate(map(len, payloads)))


def written(cluster: FakeCluster, payloads: list[bytes], *, close: bool = True, **options: Any) -> int:
    ledger = cluster.wait(
        cluster.client(settings()).create(**{"ensemble": 3, "write_quorum": 3, "ack_quorum": 3, **options})
    )
    cluster.wait(ledger.append_many(payloads))
    if close:
        cluster.wait(ledger.close())
    return int(ledger.ledger_id)


def opened(cluster: FakeCluster, ledger_id: int, **values: Any) -> ReadHandle:
    handle: ReadHandle = cluster.wait(cluster.client(settings(**values)).open(ledger_id))
    return handle


def all_of(cluster: FakeCluster, handle: ReadHandle) -> list[Entry]:
    async def read() -> list[Entry]:
        return [entry async for entry in handle.entries()]

    found: list[Entry] = cluster.wait(read())
    return found


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
@pytest.mark.parametrize("write_quorum", [3, 2], ids=["in batches", "striped"])
@pytest.mark.parametrize("payloads", [ONE_SIZE, MANY_SIZES], ids=["one size", "many sizes"])
@pytest.mark.parametrize("digest", list(DigestType))
def test_every_read_gives_the_length_up_to_each_entry(
    digest: DigestType, payloads: list[bytes], write_quorum: int, use_v2: bool
) -> None:
    cluster = FakeCluster()
    ledger_id = written(cluster, payloads, write_quorum=write_quorum, ack_quorum=2, digest=digest)
    handle = opened(cluster, ledger_id, use_v2=use_v2)
    lengths = lengths_of(payloads)
    for _ in range(3):  # the first batch read of each bookie is a trial
        entries = cluster.wait(handle.read(0, 99))
        assert entries == [Entry(*each) for each in zip(range(100), payloads, lengths, strict=True)]
    assert all_of(cluster, handle) == entries
    assert cluster.wait(handle.read(50, 52)) == entries[50:53]
    assert cluster.wait(handle.read(7, 7)) == entries[7:8]
    assert cluster.wait(handle.read_last()) == entries[99]
    assert cluster.wait(handle.read_unconfirmed(20, 60)) == entries[20:61]
    some = cluster.wait(handle.read_batch(30))
    assert some == entries[30 : 30 + len(some)]
    assert handle.length == lengths[-1]


@pytest.mark.parametrize("damaged", [range(100), range(3, 100, 20)], ids=["all", "some"])
def test_lengths_beside_damaged_copies_are_those_of_the_good_copies(damaged: range) -> None:
    cluster = FakeCluster()
    ledger_id = written(cluster, MANY_SIZES)
    held = cluster.bookies[0].entries[ledger_id]
    for entry_id in damaged:  # one digit of the length
        held[entry_id] = held[entry_id][:31] + bytes([held[entry_id][31] ^ 1]) + held[entry_id][32:]
    handle = opened(cluster, ledger_id)
    for _ in range(4):
        assert [entry.length for entry in cluster.wait(handle.read(0, 99))] == lengths_of(MANY_SIZES)


def test_recovered_entries_keep_their_lengths() -> None:
    cluster = FakeCluster()
    ledger_id = written(cluster, MANY_SIZES, close=False)
    handle = opened(cluster, ledger_id)
    assert handle.closed
    assert [entry.length for entry in cluster.wait(handle.read(0, 99))] == lengths_of(MANY_SIZES)


def test_an_entry_confirmed_by_an_explicit_lac_has_its_length() -> None:
    cluster = FakeCluster()
    ledger = cluster.wait(cluster.client(settings(explicit_lac_interval_s=0.1)).create())
    cluster.wait(ledger.append_many([b"a", b"bc", b"def"]))
    cluster.run(1.0)
    handle = cluster.wait(cluster.client(settings(use_v2=False)).open_without_recovery(ledger.ledger_id))
    assert cluster.wait(handle.read_last_confirmed()) == 2, "no add says so"
    assert cluster.wait(handle.read(0, 2)) == [(0, b"a", 1), (1, b"bc", 3), (2, b"def", 6)]
