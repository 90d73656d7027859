"""Who is asked for its free disk space, when, and what comes of it."""

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from bookkeeper.client.bookies.disk_space import ASKED_MAX, BookieInfo, DiskSpace
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookieUnavailable
from bookkeeper.metadata.memory.store import MemoryMetadataStore
from bookkeeper.model import BookieId, BookieMode, BookieServiceInfo, Endpoint, Status
from bookkeeper.wire import messages
from tests.support.fake_bookie import FakeCluster

INTERVAL_S, RETRY_S = 1000.0, 60.0


class Asking:
    """A DiskSpace over the registrations of a cluster; the answers are given by the test."""

    def __init__(self, bookie_count: int) -> None:
        self.cluster = FakeCluster(bookie_count)
        self.asked: list[tuple[float, str]] = []
        self.open: dict[str, list[Deferred[BookieInfo]]] = {}
        store = MemoryMetadataStore(self.cluster.metadata, self.cluster.clock, random.Random(7))
        self.space = DiskSpace(
            store.bookies, self.cluster.clock, self.ask, interval_s=INTERVAL_S, retry_interval_s=RETRY_S
        )
        self.space.start()
        self.cluster.run(1.0)

    def ask(self, bookie_id: BookieId) -> Deferred[BookieInfo]:
        self.asked.append((self.cluster.clock.seconds(), bookie_id))
        answer: Deferred[BookieInfo] = Deferred()
        self.open.setdefault(bookie_id, []).append(answer)
        return answer

    def tell(self, bookie_id: str, free_bytes: int) -> None:
        self.open[bookie_id].pop(0).callback(BookieInfo(10 * free_bytes, free_bytes))

    def fail(self, bookie_id: str) -> None:
        self.open[bookie_id].pop(0).errback(BookieUnavailable("no route to it"))

    def asked_since(self, start: float) -> list[tuple[float, str]]:
        """Seconds after `start` and who, rounded to whole seconds."""
        return [(round(at - start), bookie_id) for at, bookie_id in self.asked if at >= start]

    @property
    def now(self) -> float:
        return self.cluster.clock.seconds()


def test_every_writable_bookie_is_asked_at_once_and_then_at_intervals() -> None:
    asking = Asking(2)
    assert [bookie_id for _, bookie_id in asking.asked] == ["b1:3181", "b2:3181"]
    assert asking.space.free_bytes == {}
    start = asking.now
    asking.tell("b1:3181", 50)
    asking.tell("b2:3181", 60)
    assert asking.space.free_bytes == {"b1:3181": 50, "b2:3181": 60}
    asking.cluster.run(INTERVAL_S + 1)
    assert asking.asked_since(start) == [(1000, "b1:3181"), (1000, "b2:3181")]
    asking.tell("b1:3181", 40)
    assert asking.space.free_bytes == {"b1:3181": 40, "b2:3181": 60}


def test_who_does_not_tell_is_asked_again_sooner_and_said_once() -> None:
    asking = Asking(1)
    asking.tell("b1:3181", 50)
    asking.cluster.run(INTERVAL_S + 1)
    start = asking.now
    with capturedLogs() as said:
        for _ in range(3):
            asking.fail("b1:3181")
            asking.cluster.run(RETRY_S)
    assert asking.asked_since(start) == [(60, "b1:3181"), (120, "b1:3181"), (180, "b1:3181")]
    assert asking.space.free_bytes == {"b1:3181": 50}, "what it told before counts on"
    (line,) = [event for event in said if event["log_namespace"] == "bookkeeper.client.bookies.disk_space"]
    assert (line["bookie_id"], str(line["error"]), line["again_s"]) == ("b1:3181", "no route to it", "60")
    asking.tell("b1:3181", 30)
    assert asking.space.free_bytes == {"b1:3181": 30}
    asking.cluster.run(RETRY_S + 1)
    assert not asking.open["b1:3181"], "back to the long interval"


def test_a_new_bookie_is_asked_when_it_registers_and_forgotten_when_it_leaves() -> None:
    asking = Asking(2)
    asking.tell("b1:3181", 50)
    asking.tell("b2:3181", 60)
    bookie, start = asking.cluster.bookies[0], asking.now
    bookie.leave()
    asking.cluster.run(1.0)
    assert asking.space.free_bytes == {"b2:3181": 60}
    bookie.start()
    asking.cluster.run(1.0)
    assert [bookie_id for _, bookie_id in asking.asked_since(start)] == ["b1:3181"]
    asking.tell("b1:3181", 55)
    assert asking.space.free_bytes == {"b1:3181": 55, "b2:3181": 60}
    asking.cluster.run(INTERVAL_S + 1)
    assert len(asking.asked_since(start)) == 3, "one timer for each, not one for each registration"


def test_an_answer_of_an_earlier_life_does_not_count() -> None:
    asking = Asking(1)
    bookie = asking.cluster.bookies[0]
    bookie.leave()
    asking.cluster.run(1.0)
    bookie.start()
    asking.cluster.run(1.0)
    asking.tell("b1:3181", 1)  # asked before it left
    assert asking.space.free_bytes == {}
    asking.tell("b1:3181", 2)
    assert asking.space.free_bytes == {"b1:3181": 2}


def test_a_bookie_that_becomes_read_only_is_asked_no_more() -> None:
    asking = Asking(1)
    asking.tell("b1:3181", 50)
    bookie = asking.cluster.bookies[0]
    info = BookieServiceInfo((Endpoint("b", bookie.name, 3181, "bookie-rpc"),))
    bookie.store.registration.register(bookie.bookie_id, info, BookieMode.READ_ONLY)
    asking.cluster.run(1.0)
    assert asking.space.free_bytes == {}
    count = len(asking.asked)  # perhaps once while it was registered in both modes
    for waiting in asking.open.values():
        for answer in waiting:
            answer.callback(BookieInfo(500, 50))
    asking.cluster.run(2 * INTERVAL_S)
    assert asking.space.free_bytes == {}
    assert len(asking.asked) == count


def test_no_more_than_some_are_asked_at_the_same_time() -> None:
    asking = Asking(ASKED_MAX + 3)
    names = [bookie.bookie_id for bookie in asking.cluster.bookies]
    assert len(asking.asked) == ASKED_MAX
    while len(asking.space.free_bytes) < len(names):
        answered = next(bookie_id for bookie_id, waiting in asking.open.items() if waiting)
        asking.tell(answered, 5)
        assert sum(map(len, asking.open.values())) <= ASKED_MAX
    assert sorted(bookie_id for _, bookie_id in asking.asked) == sorted(names), "each once"


@pytest.mark.parametrize("answered", [True, False])
def test_nobody_is_asked_after_the_end(answered: bool) -> None:
    asking = Asking(ASKED_MAX + 1)
    if answered:
        for bookie_id in [bookie_id for bookie_id, waiting in asking.open.items() if waiting]:
            asking.tell(bookie_id, 5)
    count = len(asking.asked)
    asking.space.stop()
    asking.cluster.bookies[0].leave()
    asking.cluster.bookies[0].start()
    asking.cluster.run(2 * INTERVAL_S)
    assert len(asking.asked) == count


# --- through a client


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def info_requests(cluster: FakeCluster) -> list[int]:
    """Of each bookie."""
    return [sum(isinstance(one, messages.BookieInfo) for one in bookie.requests) for bookie in cluster.bookies]


def test_a_client_that_does_not_weigh_asks_nobody() -> None:
    cluster = FakeCluster(3)
    client = cluster.client(settings())
    cluster.wait(client.create(ensemble=1, write_quorum=1, ack_quorum=1))
    cluster.run(200_000.0)
    assert info_requests(cluster) == [0, 0, 0]


def test_new_ensembles_and_replacements_follow_the_free_space() -> None:
    """All the room is on b2 and b3, without limit: nothing else is chosen while they will do."""
    cluster = FakeCluster(5)
    for bookie, free_bytes in zip(cluster.bookies, (1, 10**15, 10**15, 1, 1), strict=True):
        bookie.free_bytes = free_bytes
    client = cluster.client(settings(disk_weights=True, disk_weight_multiple_max=-1))
    cluster.run(1.0)
    assert info_requests(cluster) == [1] * 5
    for _ in range(20):
        ledger = cluster.wait(client.create(ensemble=2, write_quorum=2, ack_quorum=2))
        assert set(ledger.metadata.last_fragment.ensemble) == {"b2:3181", "b3:3181"}
    ledger = cluster.wait(client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=["b1:3181", "b2:3181"]))
    cluster.by_id("b1:3181").crash()
    cluster.wait(ledger.append(b"x"))
    assert ledger.metadata.last_fragment.ensemble == ("b3:3181", "b2:3181")


def test_bookies_that_do_not_tell_are_chosen_all_the_same() -> None:
    cluster = FakeCluster(3)
    cluster.bookies[0].version_3 = False
    cluster.bookies[1].rule = lambda request: Status.IO_ERROR if isinstance(request, messages.BookieInfo) else None
    client = cluster.client(settings(disk_weights=True))
    context = client._context  # noqa: SLF001
    cluster.run(1.0)
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=3, ack_quorum=3))
    cluster.wait(ledger.append(b"x"))
    assert set(ledger.metadata.last_fragment.ensemble) == {"b1:3181", "b2:3181", "b3:3181"}
    asked_until = cluster.clock.seconds() + 130.0
    while cluster.clock.seconds() < asked_until:
        cluster.run(1.0)
        assert context.directory.quarantined == frozenset(), "not to know of disk space is no failure"
    assert info_requests(cluster)[1:] == [3, 1]


def test_asking_ends_with_the_client() -> None:
    cluster = FakeCluster(2)
    client = cluster.client(settings(disk_weights=True, info_interval_s=10.0))
    cluster.run(25.0)
    assert info_requests(cluster) == [3, 3]
    cluster.wait(client.close())
    cluster.run(100.0)
    assert info_requests(cluster) == [3, 3]
