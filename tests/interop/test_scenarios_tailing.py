"""Ledgers that are still written: each client hears of what the other adds, on bookies of both kinds.

That a wait is a long poll and no repeated question is shown by settings: whoever waits asks again after POLL_S at the
earliest, which is far beyond the time that the test may take.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bookkeeper.client.faces.blocking import connect
from tests.interop.ground import PASSWORD, Ground
from tests.support.apache import MIDDLE, Apache, ApacheClient
from tests.support.apache.content import fingerprint, fingerprints, payload, payloads

SIZE_MAX = 3000
ROUNDS = 15
POLL_S = 600
HEARD_S = 60
EXPLICIT_LAC_MS = 50


@pytest.fixture(scope="module")
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.mark.parametrize("version", [2, 3])
def test_neither_reader_disturbs_the_others_writer(ground: Ground, apache_client: ApacheClient, version: int) -> None:
    client = ground.client(version)
    written = payloads(0, 20, SIZE_MAX)
    (theirs,) = apache_client.run("begin", *ground.where(version), 3, 2, 2, 0)
    with client.open_without_recovery(int(theirs)) as tail:
        assert tail.last_add_confirmed == -1
        apache_client.run("fill", theirs, 9, 0, SIZE_MAX)
        apache_client.run("fill", theirs, 1, 0, SIZE_MAX)
        assert tail.read_last_confirmed() == 8  # the last entry's own LAC says so much
        assert tail.try_read_last_confirmed() == 8
        assert [entry.payload for entry in tail.read(0, 8)] == written[:9]
        assert [entry.payload for entry in tail.read_unconfirmed(9, 9)] == written[9:10]
        apache_client.run("fill", theirs, 10, 0, SIZE_MAX)
        assert apache_client.run("close", theirs) == [f"19 {sum(map(len, written))}"]
        assert [entry.payload for batch in tail.tail() for entry in batch] == written
    with client.create(ensemble=3, write_quorum=2, ack_quorum=2) as ours:
        assert apache_client.run("watch", *ground.where(version, ours.id)) == ["-1"]
        ours.append_many(written[:9])
        ours.append(written[9])
        assert apache_client.run("lac", ours.id) == ["8"]
        assert apache_client.run("peek", *ground.where(version, ours.id)) == fingerprints(written[:9])
        last = apache_client.run("unconfirmed", *ground.where(version, ours.id), 9, 9)
        assert last == [fingerprint(written[9])]
        ours.append_many(written[10:])
    assert apache_client.run("peek", *ground.where(version, ours.id)) == fingerprints(written)


@pytest.mark.parametrize("write_quorum", [2, 3])
def test_our_tail_hears_of_their_adds_by_long_polls(
    ground: Ground, apache_client: ApacheClient, aside: ThreadPoolExecutor, write_quorum: int
) -> None:
    (theirs,) = apache_client.run("begin", *ground.where(3), 3, write_quorum, 2, 0)
    apache_client.run("fill", theirs, 1, 1, SIZE_MAX)
    apache_client.run("fill", theirs, 1, 1, SIZE_MAX)
    patient = replace(ground.settings(3), tail_poll_min_s=POLL_S, tail_poll_max_s=POLL_S)
    with connect(ground.uri, patient) as client, client.open_without_recovery(int(theirs)) as reader:
        tail = (entry.payload for batch in reader.tail() for entry in batch)
        assert next(tail) == payload(1, 0, SIZE_MAX)
        for entry_id in range(1, ROUNDS):
            hearing = aside.submit(next, tail)
            apache_client.run("fill", theirs, 1, 1, SIZE_MAX)
            assert hearing.result(HEARD_S) == payload(1, entry_id, SIZE_MAX)
        hearing = aside.submit(next, tail)
        apache_client.run("close", theirs)
        assert hearing.result(HEARD_S) == payload(1, ROUNDS, SIZE_MAX)
        assert list(tail) == []


def test_their_long_poll_hears_of_our_adds(ground: Ground, apache_client: ApacheClient) -> None:
    with ground.client(3).create(ensemble=3, write_quorum=3, ack_quorum=3) as ours:
        for entry_id in (0, 1):
            ours.append(payload(2, entry_id, SIZE_MAX))
        assert apache_client.run("watch", *ground.where(3, ours.id)) == ["0"]
        for entry_id in range(1, ROUNDS):
            polling = apache_client.spawn("poll", ours.id, entry_id, POLL_S * 1000)
            ours.append(payload(2, entry_id + 1, SIZE_MAX))
            assert apache_client.wait(polling) == [f"{entry_id}", fingerprint(payload(2, entry_id, SIZE_MAX))]


def test_our_wait_ends_without_news_after_its_time(ground: Ground, apache_client: ApacheClient) -> None:
    (theirs,) = apache_client.run("begin", *ground.where(3), 3, 3, 2, 2)
    with ground.client(3).open_without_recovery(int(theirs)) as reader:
        assert reader.read_last_confirmed_and_entry(1, 0.05) == (0, None)
        found = reader.read_last_confirmed_and_entry(0, POLL_S)
        assert found.entry is not None
        assert found.entry.payload == b"entry-0"


def test_their_wait_ends_without_news_after_its_time(ground: Ground, apache_client: ApacheClient) -> None:
    with ground.client(3).create(ensemble=3, write_quorum=3, ack_quorum=2) as ours:
        for text in (b"entry-0", b"entry-1"):
            ours.append(text)
        apache_client.run("watch", *ground.where(3, ours.id))
        assert apache_client.run("poll", ours.id, 1, 50) == ["0"]
        assert apache_client.run("poll", ours.id, 0, POLL_S * 1000) == ["0", fingerprint(b"entry-0")]


@pytest.mark.parametrize("release", ["4.18.0", MIDDLE.version])
def test_our_reader_hears_of_the_last_entry_by_their_explicit_lac(
    ground: Ground, apache_clients: Callable[[str], ApacheClient], aside: ThreadPoolExecutor, release: str
) -> None:
    writer = apache_clients(release)
    writer.run("configure", ground.apart, 3, f"explicitLacInterval={EXPLICIT_LAC_MS}")
    writer.run("forget", ground.apart, 3)
    (theirs,) = writer.run("begin", ground.apart, 3, "CRC32C", PASSWORD, 3, 3, 2, 10)
    patient = replace(ground.settings(3), tail_poll_min_s=POLL_S, tail_poll_max_s=POLL_S)
    with connect(ground.uri, patient) as client, client.open_without_recovery(int(theirs)) as reader:
        tail = (entry.payload for batch in reader.tail() for entry in batch)
        # No entry follows: nothing but the explicit LAC can tell of entry 9, and a long poll tells of that.
        hearing = aside.submit(lambda: [next(tail) for _ in range(10)])
        assert hearing.result(HEARD_S) == [b"entry-%d" % number for number in range(10)]
        assert reader.read_last_confirmed() == 9
    writer.run("close", theirs)


def test_no_bookie_refuses_their_explicit_lac_while_they_write(
    ground: Ground, apache: Apache, apache_client: ApacheClient, tmp_path: Path
) -> None:
    """Apache's client packages the LAC after it has set the field, so the packet is often ahead of the field."""
    with ApacheClient(apache, tmp_path / "client.log") as writer:
        writer.run("configure", ground.uri, 3, "explicitLacInterval=1")
        (theirs,) = writer.run("begin", *ground.where(3), 3, 3, 2, 0)
        apache_client.run("watch", *ground.where(3, theirs))
        confirmed = [-1]
        for _ in range(ROUNDS):
            writer.run("fill", theirs, 400, 5, 100)
            (explicit,) = apache_client.run("explicit", theirs)
            confirmed.append(int(explicit))
        assert confirmed == sorted(confirmed)
        assert writer.run("close", theirs)[0].split()[0] == f"{400 * ROUNDS - 1}"
        assert "WriteLac did not succeed" not in writer.log_path.read_text()


def test_their_reader_hears_of_the_last_entry_by_our_explicit_lac(ground: Ground, apache_client: ApacheClient) -> None:
    settings = replace(ground.settings(3), explicit_lac_interval_s=EXPLICIT_LAC_MS / 1000)
    with connect(ground.uri, settings) as client, client.create(ensemble=3, write_quorum=3, ack_quorum=2) as ours:
        ours.append_many(payloads(3, 10, SIZE_MAX))
        apache_client.run("watch", *ground.where(3, ours.id))
        found = apache_client.run("poll", ours.id, 9, POLL_S * 1000)
        assert found == ["9", fingerprint(payload(3, 9, SIZE_MAX))]
        # One bookie answers the poll. The others may get the explicit LAC a moment later.
        deadline = time.monotonic() + HEARD_S
        for question in ("explicit", "lac"):
            while (answer := apache_client.run(question, ours.id)) != ["9"]:
                assert time.monotonic() < deadline, answer
