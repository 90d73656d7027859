"""The ZooKeeper session itself: outages, expiry, several servers, a chroot, credentials, bounds."""

import dataclasses
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from kazoo.client import KazooClient
from twisted.internet import reactor, threads
from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from bookkeeper.errors import (
    AccessDenied,
    ConfigurationError,
    MetadataOutcomeUnknown,
    MetadataTooLarge,
    MetadataUnavailable,
    NotInitialised,
)
from bookkeeper.metadata.outcome import until_connected
from bookkeeper.metadata.session import ZooKeeperSession, may_be_older
from bookkeeper.metadata.store import REQUEST_SIZE_MAX, MetadataSettings, RegistrationEvent, StoreState
from bookkeeper.metadata.tree import (
    Check,
    Create,
    Delete,
    NodeAbsent,
    NodeChanged,
    NotAttempted,
    Write,
    operation_size,
)
from bookkeeper.metadata.zookeeper import ZooKeeperStore, connect
from bookkeeper.model import BookieId, BookieMode, EntryId, LedgerId
from tests.support.metadata_contract import Heard, all_ids, ledger, raises, service_info
from tests.support.zookeeper_proxy import Mode, ZooKeeperProxy
from tests.support.zookeeper_sessions import end_session

BOOKIE = BookieId("bookie-a:3181")
STEADY_S = 40.0
"""The longest session timeout that servers grant, so that no session ends because a process pauses."""


class Connections:
    """Makes stores, and closes them when the test is over."""

    def __init__(self) -> None:
        self.stores: list[ZooKeeperStore] = []

    async def __call__(self, uri: str, **settings: Any) -> ZooKeeperStore:
        store = await connect(
            uri,
            clock=reactor,
            call_from_thread=reactor.callFromThread,
            random=random.Random(),
            settings=MetadataSettings(**settings),
        )
        self.stores.append(store)
        return store


@pytest_twisted.async_yield_fixture
async def connected() -> AsyncIterator[Connections]:
    connections = Connections()
    yield connections
    for store in connections.stores:
        await store.close()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that the test may kill."""
    with EmbeddedZooKeeper(data_dir=tmp_path) as server:
        yield server


@pytest.fixture
def dead_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_another_session(tree: ZooKeeperSession, before: tuple[int, bytes]) -> None:
    """Nothing else happens on this thread meanwhile."""
    deadline_s = time.monotonic() + 30
    while tree.session_key in (None, before):
        assert time.monotonic() < deadline_s, "no session"


async def restart(server: EmbeddedZooKeeper) -> None:
    """kill -9, and again on the same port with the same data."""
    server.kill()
    await threads.deferToThread(server.restart)


@pytest_twisted.ensureDeferred
async def test_writes_survive_a_server_killed_in_their_midst(
    own_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    """I-16: every create and every close has exactly one outcome, which the client knows, though the server died amid
    them. Creates and closes run in a window of 20; the server is killed while they do, twice."""
    store = await connected(f"zk://{own_zookeeper.address}/ledgers", operation_timeout_s=100.0)
    await store.admin.format()
    made: list[LedgerId] = []

    async def worker() -> None:
        for _ in range(30):
            ledger_id, created = await store.ledgers.create(ledger())
            closed = await store.ledgers.write(ledger_id, created.value.closed(EntryId(7), 70), created.version)
            assert closed.version == 1
            made.append(ledger_id)

    states = Heard(reactor)
    store.watch_state(states)
    workers = gatherResults([Deferred.fromCoroutine(worker()) for _ in range(20)], consumeErrors=True)
    for size in (100, 350):
        while len(made) < size:
            await store.sync()
        await restart(own_zookeeper)
    await workers
    assert StoreState.SUSPENDED in states.calls
    await store.sync()
    assert await all_ids(store) == sorted(made)
    assert len(set(made)) == 600
    for ledger_id in made[::50]:
        assert (await store.ledgers.read(ledger_id)).value.is_closed


@pytest_twisted.ensureDeferred
async def test_watches_and_the_registration_survive_a_restarted_server(
    own_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    uri = f"zk://{own_zookeeper.address}/ledgers"
    store, bookie = [await connected(uri, session_timeout_s=STEADY_S) for _ in range(2)]
    await store.admin.initialise()
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    ledger_id, created = await store.ledgers.create(ledger())
    ledgers, bookies, states = Heard(reactor), Heard(reactor), Heard(reactor)
    store.ledgers.watch(ledger_id, ledgers)
    store.bookies.watch(bookies)
    await ledgers.until(len, "the ledger")
    await bookies.until(lambda calls: calls and BOOKIE in calls[-1].writable, "the bookie")
    store.watch_state(states)
    await restart(own_zookeeper)
    await states.until(lambda calls: calls and calls[-1] is StoreState.CONNECTED, "the reconnection")
    assert StoreState.LOST not in states.calls
    recovering = await store.ledgers.write(ledger_id, created.value.in_recovery(), 0)
    await ledgers.until(lambda calls: recovering in calls, "the change")
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY)
    await bookies.until(lambda calls: BOOKIE in calls[-1].read_only, "the change of mode")


@pytest_twisted.ensureDeferred
async def test_a_session_that_the_server_ended_is_replaced(
    own_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    uri = f"zk://{own_zookeeper.address}/ledgers"
    bookie = await connected(uri, session_timeout_s=STEADY_S, operation_timeout_s=30.0)
    await bookie.admin.initialise()
    await bookie.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    first_session = bookie.session.session_id
    events, states = Heard(reactor), Heard(reactor)
    bookie.registration.watch(events)
    bookie.watch_state(states)
    key = bookie.session.session_key

    await threads.deferToThread(end_session, own_zookeeper.address, key)
    await events.until(lambda calls: (RegistrationEvent.RENEWED, None) in calls, "the renewal")
    assert bookie.session.session_id != first_session
    assert states.calls.index(StoreState.LOST) < states.calls.index(
        StoreState.CONNECTED, states.calls.index(StoreState.LOST)
    )
    assert BOOKIE in (await bookie.bookies.current()).writable


@pytest_twisted.ensureDeferred
async def test_nothing_is_sent_in_a_session_that_is_not_heard_of_yet(
    own_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    """As when the process was stopped: it goes on with what it has before it, and thinks that it has the old one."""
    store = await connected(f"zk://{own_zookeeper.address}/ledgers", session_timeout_s=STEADY_S)
    tree = store.session
    await tree.create("/it", b"old")
    before = tree.session_key
    assert before is not None
    # All of this on the reactor's thread: no message of kazoo's is read meanwhile.
    end_session(own_zookeeper.address, before)
    wait_for_another_session(tree, before)
    assert tree.state is StoreState.CONNECTED
    writing = tree.write("/it", b"stale", 0)
    await raises(NotAttempted, writing)
    states = Heard(reactor)
    store.watch_state(states)
    # The store may have had the old session again for a moment, while the session was being ended.
    await states.until(
        lambda _: tree.state is StoreState.CONNECTED and tree.session_id not in (0, before[0]), "the next session"
    )
    assert (await tree.read("/it"))[0] == b"old"
    await tree.write("/it", b"new", 0)


@pytest_twisted.ensureDeferred
async def test_a_change_whose_outcome_stays_open_says_so(
    own_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    """I-16: nobody is there to be asked. Many changes in flight, so that some of them were sent."""
    store = await connected(f"zk://{own_zookeeper.address}/ledgers", operation_timeout_s=2.0)
    await store.admin.initialise()
    await store.ledgers.prepare()
    writes = [store.cookies.write(BookieId(f"bookie-{n}:1"), b"5\n", None) for n in range(200)]
    own_zookeeper.kill()
    outcomes = await DeferredList(writes, consumeErrors=True)
    failures = [failure.value for succeeded, failure in outcomes if not succeeded]
    assert any(type(failure) is MetadataOutcomeUnknown for failure in failures)
    assert all(isinstance(failure, MetadataUnavailable) for failure in failures)
    assert own_zookeeper.address in str(failures[0])
    error = await raises(MetadataUnavailable, store.ledgers.read(LedgerId(1)))
    assert own_zookeeper.address in str(error)


@pytest_twisted.ensureDeferred
async def test_without_a_server_connecting_fails_in_time_and_names_it(dead_port: int, connected: Connections) -> None:
    error = await raises(MetadataUnavailable, connected(f"zk://127.0.0.1:{dead_port}/ledgers", session_timeout_s=0.5))
    assert f"127.0.0.1:{dead_port}" in str(error)
    assert "0.5 s" in str(error)


@pytest.fixture
def resolver_says(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have every look-up of a name fail with an error number of getaddrinfo."""

    def install(number: int) -> None:
        def look_up(host: str, *_: object, **__: object) -> Any:
            raise socket.gaierror(number, f"nothing known of {host}")

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return install


@pytest_twisted.ensureDeferred
async def test_a_host_that_does_not_exist_is_told_at_once(
    connected: Connections, resolver_says: Callable[[int], None]
) -> None:
    """The session timeout is an hour, and nothing waits for it."""
    resolver_says(socket.EAI_NONAME)
    error = await raises(MetadataUnavailable, connected("zk://zk1:2181;zk2:2181/ledgers", session_timeout_s=3600.0))
    assert "no such host: zk1, zk2;" in str(error)
    assert "zk://zk1:2181;zk2:2181/ledgers" in str(error)


@pytest_twisted.ensureDeferred
async def test_a_resolver_that_does_not_know_yet_is_waited_for(
    connected: Connections, resolver_says: Callable[[int], None]
) -> None:
    resolver_says(socket.EAI_AGAIN)
    error = await raises(MetadataUnavailable, connected("zk://zk1:2181/ledgers", session_timeout_s=0.2))
    assert "no answer from ZooKeeper at zk1:2181 within 0.2 s" in str(error)


@pytest_twisted.ensureDeferred
async def test_a_server_waits_for_a_host_that_does_not_exist_yet(
    connected: Connections, resolver_says: Callable[[int], None]
) -> None:
    """In a cluster of containers a name may come a moment after whoever needs it."""
    resolver_says(socket.EAI_NONAME)
    began = time.monotonic()
    error = await raises(
        MetadataUnavailable, connected("zk://zk1:2181/ledgers", session_timeout_s=3.0, unknown_host_waits=True)
    )
    assert time.monotonic() - began >= 3.0
    assert "no such host: zk1;" in str(error)


@pytest_twisted.ensureDeferred
async def test_one_server_of_several_is_enough(
    zookeeper, ledgers_root: str, dead_port: int, connected: Connections
) -> None:
    uri = f"zk+hierarchical://127.0.0.1:{dead_port};{zookeeper.address}{ledgers_root}"
    for _ in range(4):  # kazoo begins with any of them
        store = await connected(uri)
        assert not await store.admin.exists()


@pytest_twisted.ensureDeferred
async def test_a_chroot_is_a_longer_root(zookeeper, ledgers_root: str, connected: Connections) -> None:
    store = await connected(f"zk://{zookeeper.address}{ledgers_root}/of/mine/ledgers")
    error = await raises(NotInitialised, store.admin.initialise())
    assert "parent" in str(error)
    await store.admin.format()
    ledger_id, created = await store.ledgers.create(ledger())
    assert await store.ledgers.read(ledger_id) == created
    outside = await connected(f"zk://{zookeeper.address}{ledgers_root}")
    await raises(NotInitialised, outside.admin.instance_id())


@pytest_twisted.ensureDeferred
async def test_a_secure_cluster_is_the_creators_alone(zookeeper, ledgers_root: str, connected: Connections) -> None:
    """bookkeeper/wire/FORMATS.md 4.9: creator: all on everything, except the high-order directories of ids."""
    uri = f"zk+longhierarchical://{zookeeper.address}{ledgers_root}"
    owner = await connected(uri, secure=True, digest_auth="bookkeeper:secret")
    await owner.admin.initialise()
    ledger_id, created = await owner.ledgers.create(ledger())
    await owner.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE)
    await owner.cookies.write(BOOKIE, b"5\n", None)

    colleague = await connected(uri, secure=True, digest_auth="bookkeeper:secret")
    assert await colleague.ledgers.read(ledger_id) == created
    for stranger in (
        await connected(uri),
        await connected(uri, secure=True, digest_auth="bookkeeper:wrong"),
    ):
        error = await raises(AccessDenied, stranger.ledgers.read(ledger_id))
        assert ledgers_root in str(error)
        await raises(AccessDenied, stranger.cookies.read(BOOKIE))
        await raises(AccessDenied, stranger.bookies.current())

    def acls() -> dict[str, Any]:
        kazoo = KazooClient(hosts=zookeeper.address, auth_data=[("digest", "bookkeeper:secret")])
        kazoo.start()
        paths = (
            "",
            "/LAYOUT",
            "/INSTANCEID",
            f"/available/{BOOKIE}",
            f"/cookies/{BOOKIE}",
            "/idgen-long/HOB-0000000001",
        )
        found = {path: kazoo.get_acls(ledgers_root + path)[0] for path in paths}
        kazoo.stop()
        kazoo.close()
        return found

    found = await threads.deferToThread(acls)
    opened = found.pop("/idgen-long/HOB-0000000001")
    assert [(acl.id.scheme, acl.id.id, acl.perms) for acl in opened] == [("world", "anyone", 31)]
    for path, acl in found.items():
        assert [(one.id.scheme, one.perms) for one in acl] == [("digest", 31)], path


@pytest_twisted.ensureDeferred
async def test_security_without_credentials_is_refused_at_once(zookeeper, connected: Connections) -> None:
    error = await raises(ConfigurationError, connected(f"zk://{zookeeper.address}/ledgers", secure=True))
    assert "user:password" in str(error)


@pytest_twisted.ensureDeferred
async def test_operations_beyond_the_bound_are_refused_and_the_others_succeed(
    zookeeper, ledgers_root: str, connected: Connections
) -> None:
    store = await connected(
        f"zk://{zookeeper.address}{ledgers_root}", operations_in_flight_max=4, operations_waiting_max=10
    )
    await store.admin.initialise()
    outcomes = await DeferredList([store.cookies.all() for _ in range(20)], consumeErrors=True)
    refused = [failure.value for succeeded, failure in outcomes if not succeeded]
    assert len(refused) == 6
    assert "10 operations wait" in str(refused[0])
    assert await store.cookies.all() == {}


@pytest_twisted.ensureDeferred
async def test_a_thousand_creates_at_once_are_pipelined_into_a_thousand_ledgers(
    zookeeper, ledgers_root: str, connected: Connections
) -> None:
    store = await connected(f"zk://{zookeeper.address}{ledgers_root}", session_timeout_s=STEADY_S)
    await store.admin.initialise()
    made = await gatherResults([store.ledgers.create(ledger()) for _ in range(1000)])
    assert sorted(ledger_id for ledger_id, _ in made) == await all_ids(store)


@pytest_twisted.ensureDeferred
async def test_closing_fails_what_is_pending_and_is_repeatable(
    zookeeper, ledgers_root: str, connected: Connections
) -> None:
    store = await connected(f"zk://{zookeeper.address}{ledgers_root}")
    pending = store.admin.exists()
    await gatherResults([store.close(), store.close()])
    error = await raises(MetadataUnavailable, pending)
    assert "closed" in str(error)
    assert store.state is StoreState.CLOSED


REGISTER_AND_HANG = """
import random, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.zookeeper import connect
from bookkeeper.model import BookieMode, BookieServiceInfo

async def main():
    store = await connect(sys.argv[1], clock=reactor, call_from_thread=reactor.callFromThread, random=random.Random(),
                          settings=MetadataSettings(session_timeout_s=5.0))
    await store.registration.register(sys.argv[2], BookieServiceInfo(()), BookieMode.WRITABLE)
    print("registered", flush=True)

Deferred.fromCoroutine(main())
reactor.run()
"""


def start_bookie(uri: str) -> "subprocess.Popen[bytes]":
    """A process that registers the bookie, says so and hangs."""
    return subprocess.Popen(
        [sys.executable, "-c", REGISTER_AND_HANG, uri, BOOKIE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


@pytest_twisted.ensureDeferred
async def test_a_bookie_killed_and_restarted_at_once_registers_when_the_old_session_is_over(
    zookeeper, ledgers_root: str, connected: Connections
) -> None:
    """kill -9 leaves the registration of the dead process until the server ends its session; the new one waits."""
    uri = f"zk://{zookeeper.address}{ledgers_root}"
    store = await connected(uri)
    await store.admin.initialise()
    old = start_bookie(uri)
    try:
        assert old.stdout is not None
        assert await threads.deferToThread(old.stdout.readline) == b"registered\n"
        before = (await store.bookies.current()).writable
        epoch = store.bookies.epoch(BOOKIE)
    finally:
        old.kill()
        old.communicate()
    assert BOOKIE in before
    await store.registration.register(BOOKIE, service_info("new"), BookieMode.WRITABLE)
    assert (await store.bookies.current()).writable == {BOOKIE: service_info("new")}
    assert (store.bookies.epoch(BOOKIE) or 0) > (epoch or 0)


@pytest_twisted.ensureDeferred
async def test_null_data_is_null_to_others_and_nothing_to_us(
    own_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    """ZooKeeper tells null data from empty data, and Java programs do so too."""
    store = await connected(f"zk://{own_zookeeper.address}/ledgers")
    await store.tree.create("/created", None)
    await store.tree.create("/emptied", b"text")
    await store.tree.create("/empty", b"")
    assert (await store.tree.write("/emptied", None, 0)).version == 1
    other = KazooClient(own_zookeeper.address)
    await threads.deferToThread(other.start)
    try:
        found = [(await threads.deferToThread(other.get, path))[0] for path in ("/created", "/emptied", "/empty")]
    finally:
        await threads.deferToThread(other.stop)
        await threads.deferToThread(other.close)
    assert found == [None, None, b""]
    for path in ("/created", "/emptied", "/empty"):
        data, _ = await store.tree.read(path)
        assert data == b""


@pytest_twisted.ensureDeferred
async def test_a_transaction_happens_only_while_what_it_checks_is_unchanged(
    own_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    store = await connected(f"zk://{own_zookeeper.address}/ledgers")
    tree = store.tree
    for path in ("/checked", "/old", "/kept"):
        await tree.create(path, b"")
    steps = [Write("/kept", b"new", 0), Create("/new", b"data"), Delete("/old", 0)]
    await tree.write("/checked", b"changed", 0)
    await raises(NodeChanged, tree.transact([Check("/checked", 0), *steps]))
    await raises(NodeAbsent, tree.transact([Check("/absent", 0), *steps]))
    assert await tree.stat("/old") is not None
    assert await tree.stat("/new") is None
    await tree.transact([Check("/checked", 1), *steps])
    assert await tree.stat("/old") is None
    assert (await tree.read("/new"))[0] == b"data"
    assert (await tree.read("/kept"))[0] == b"new"
    await raises(NodeChanged, tree.transact([Check("/checked", 1), Write("/kept", b"again", 0)]))
    assert (await tree.read("/kept"))[0] == b"new"


@pytest_twisted.ensureDeferred
async def test_a_znode_says_when_it_was_made_and_when_it_was_last_written(
    zookeeper, ledgers_root: str, connected: Connections
) -> None:
    """Written until the server's clock, in whole milliseconds, has moved on: at most as often as its tick is long."""
    store = await connected(f"zk://{zookeeper.address}{ledgers_root}")
    await store.admin.initialise()
    path, began_ms = f"{ledgers_root}/dated", time.time_ns() // 1_000_000
    await store.tree.create(path, b"")
    made = await store.tree.stat(path)
    assert made is not None
    assert began_ms <= made.created_ms == made.modified_ms <= time.time_ns() // 1_000_000
    written = made
    while written.modified_ms == made.modified_ms:
        assert written.version < 1000
        written = await store.tree.write(path, b"", written.version)
    assert written.modified_ms > written.created_ms == made.created_ms
    assert await store.tree.stat(path) == written


@pytest.fixture
def proxy(zookeeper: Any) -> Iterator[ZooKeeperProxy]:
    with ZooKeeperProxy(zookeeper.address) as proxy:
        yield proxy


@pytest_twisted.ensureDeferred
async def test_a_session_is_lost_when_servers_end_all_handshakes(proxy: ZooKeeperProxy, connected: Connections) -> None:
    """A server that was restored from an older copy does that. The next session has seen no transaction."""
    store = await connected(f"zk://{proxy.address}/refused", session_timeout_s=3.0)
    await store.admin.format()
    states = Heard(reactor)
    store.watch_state(states)
    before = store.tree.session_id
    begun_s = time.monotonic()
    with capturedLogs() as events:
        proxy.turn(Mode.REFUSE)
        await states.until(lambda calls: StoreState.LOST in calls, "the loss")
    assert time.monotonic() - begun_s >= 3.0
    assert [call for call in states.calls if call is not StoreState.SUSPENDED] == [StoreState.LOST]
    assert store.sessions_refused == 0  # not known before the servers show their state
    [line] = [text for event in events if "ended each handshake" in (text := formatEvent(event))]
    assert "older state than this process has seen (restored from a backup?)" in line
    await raises(NotAttempted, store.tree.sync())
    refused = proxy.accepted_count
    assert refused < 60  # several tries a second at first, then one
    # A server that starts slowly continues to refuse: the loss is reported once.
    await until(lambda: proxy.accepted_count >= refused + 5, "five more tries")
    assert states.calls.count(StoreState.LOST) == 1
    proxy.turn(Mode.PASS)
    await states.until(lambda calls: calls[-1] is StoreState.CONNECTED, "the next session")
    assert store.tree.session_id not in (0, before)
    assert await store.admin.instance_id()
    assert store.sessions_refused == 1


@pytest_twisted.ensureDeferred
async def test_a_session_that_servers_without_quorum_ended_is_no_sign_of_an_older_copy(
    proxy: ZooKeeperProxy, connected: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader that follows begins a new epoch; the server here has none, so the comparison stands in for it."""
    compared: list[tuple[int, int]] = []
    monkeypatch.setattr("bookkeeper.metadata.session.may_be_older", lambda *zxids: compared.append(zxids))
    store = await connected(f"zk://{proxy.address}/quorum", session_timeout_s=3.0)
    await store.admin.format()
    states = Heard(reactor)
    store.watch_state(states)
    proxy.turn(Mode.REFUSE)
    await states.until(lambda calls: StoreState.LOST in calls, "the loss")
    proxy.turn(Mode.PASS)
    await states.until(lambda calls: calls[-1] is StoreState.CONNECTED, "the next session")
    assert await store.admin.instance_id()
    assert store.sessions_refused == 0
    [(zxid, seen)] = compared
    assert zxid >= seen > 0


@pytest.mark.parametrize(
    ("zxid", "seen", "older"),
    [
        (0x5_00000010, 0x5_00000100, True),
        (0x5_00000200, 0x5_00000100, True),  # new transactions may have followed the restored ones
        (0x4_00000900, 0x5_00000001, True),
        (0x6_00000001, 0x5_00000100, False),
    ],
)
def test_only_a_later_epoch_shows_that_servers_have_no_older_state(zxid: int, seen: int, older: bool) -> None:
    assert may_be_older(zxid, seen) is older


@pytest_twisted.ensureDeferred
async def test_a_server_that_does_not_answer_is_waited_for(proxy: ZooKeeperProxy, connected: Connections) -> None:
    """The session may still be alive."""
    store = await connected(f"zk://{proxy.address}/waited-for", session_timeout_s=2.0)
    await store.admin.format()
    states = Heard(reactor)
    store.watch_state(states)
    begun_s = time.monotonic()
    proxy.turn(Mode.SILENT)
    await until(lambda: proxy.accepted_count >= 4, "four handshakes")
    assert time.monotonic() - begun_s > 4.0  # twice the session timeout
    assert set(states.calls) == {StoreState.SUSPENDED}


@pytest.fixture
def strict_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper with a jute.maxbuffer of 1 MiB, one byte more than the default."""
    with EmbeddedZooKeeper(data_dir=tmp_path, jute_max_buffer_mib=1) as server:
        yield server


@pytest_twisted.ensureDeferred
async def test_a_request_that_is_too_large_costs_neither_the_session_nor_other_calls(
    strict_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    store = await connected(f"zk://{strict_zookeeper.address}/large", session_timeout_s=STEADY_S)
    await store.admin.format()
    tree, states = store.tree, Heard(reactor)
    store.watch_state(states)
    before = tree.session_id
    path = "/large/record"
    largest = b"x" * (REQUEST_SIZE_MAX - operation_size(path))
    await tree.create(path, largest)
    await tree.transact([Write(path, b"", 0), Create("/large/second", largest[: -operation_size(path)])])
    others = gatherResults([tree.stat("/large") for _ in range(100)], consumeErrors=True)
    refused = [
        tree.create("/large/third", 2 * largest),
        tree.write(path, largest + b"x", 1),
        tree.transact([Write(path, largest, 1), Check(path, 1)]),
        tree.read("/" + "n" * REQUEST_SIZE_MAX),
    ]
    found = await DeferredList(refused, consumeErrors=True)
    assert [type(getattr(outcome, "value", outcome)) for _, outcome in found] == [MetadataTooLarge] * 4
    assert all(await others)
    assert (await tree.write(path, largest, 1)).version == 2
    assert (states.calls, tree.session_id) == ([], before)
    await restart(strict_zookeeper)  # a record on disk is longer than its request
    await states.until(lambda calls: calls[-1:] == [StoreState.CONNECTED], "the server")
    assert (await tree.read(path))[0] == largest


@pytest_twisted.ensureDeferred
async def test_a_limit_above_that_of_the_servers_shows_in_the_error(
    strict_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    """Mutant: the default limit. The server then closes the connection at each attempt, and the session stays alive."""
    store = await connected(f"zk://{strict_zookeeper.address}/large", request_size_max=4 << 20, operation_timeout_s=5.0)
    await store.admin.format()
    before = store.tree.session_id
    note = dataclasses.replace(ledger(), custom={"note": b"x" * (2 << 20)})
    with pytest.raises(MetadataOutcomeUnknown, match=r"jute\.maxbuffer below the 2097[0-9]{3} bytes of"):
        await store.ledgers.create(note)
    assert await until_connected(store.tree, reactor, 30.0)
    assert await store.ledgers.create(ledger())
    assert store.tree.session_id == before


@pytest_twisted.ensureDeferred
async def test_answers_may_be_larger_than_the_largest_request(
    strict_zookeeper: EmbeddedZooKeeper, connected: Connections
) -> None:
    """A list of 15 000 names takes 1.5 MB. Neither servers nor this client bound answers."""
    tree = (await connected(f"zk://{strict_zookeeper.address}/large")).tree
    await tree.create("/names", b"")
    names = [f"{number:0100d}" for number in range(15_000)]
    for first in range(0, len(names), 1000):
        await tree.transact([Create(f"/names/{name}") for name in names[first : first + 1000]])
    assert sorted(await tree.children("/names")) == names


async def until(satisfied: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true, for at most 30 s; check it ten times a second."""
    deadline_s = time.monotonic() + 30.0
    while not satisfied():
        assert time.monotonic() < deadline_s, what
        await deferLater(reactor, 0.1)
