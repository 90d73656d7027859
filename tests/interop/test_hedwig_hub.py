"""Hubs of both kinds on our bookies, with one set of records: they take topics from each other, and send clients to
each other. And our hubs alone, when one of them goes in the middle of everything, with genuine clients.

Our hub releases its topics on SIGTERM. A killed hub or a genuine hub keeps its topics until `HubSet.end` ends its
session.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from kazoo.client import KazooClient

import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.metadata.uri import parse_uri
from hedwig.model import LedgerRange, SubscriberId, Topic
from hedwig.names import Paths
from hedwig.wire.records import decode_hub_info, decode_ranges, decode_subscription
from tests.interop.hedwig_cells import MULTIPLEXED, ROWS, Cell, HedwigMatrix, Row, named
from tests.support.apache_hedwig import (
    CLIENT_VERSIONS,
    HUB_VERSIONS,
    OURS,
    HedwigClient,
    HedwigError,
    HubProcess,
    hub_of,
)
from tests.support.apache_hedwig.client import numbered
from tests.support.certificates import Authority
from tests.support.zookeeper_sessions import end_owner_session

SIZE_MAX, LARGE = 20_000, 300_000
TIMEOUT_S = 60
ATTEMPT_S = 20
ENTRIES_MAX = 25
ROLLING = {
    "max_entries_per_ledger": str(ENTRIES_MAX),  # a topic here has several ledgers
    "messages_consumed_thread_run_interval": "500",  # and those that nobody needs go soon
}
MANUAL = {"auto_send_consume_message_enabled": "false"}

_numbers = itertools.count(1)

Clients = Callable[[str], HedwigClient]


class HubSet:
    """Hubs that share topics, and a look at their records."""

    def __init__(
        self, cluster: LocalCluster, directory: Path, running: ExitStack, settings: Mapping[str, str] | None = None
    ) -> None:
        self._settings = {**ROLLING, **(settings or {})}
        self.prefix = f"/hubs-{next(_numbers)}"
        self._cluster, self._directory, self._running = cluster, directory, running
        self._paths = Paths(self.prefix, "standalone")
        self._zookeeper = KazooClient(hosts=parse_uri(cluster.uri).connect_string)
        self._zookeeper.start()
        running.callback(self._zookeeper.close)
        running.callback(self._zookeeper.stop)

    def start(self, kind: str, *, wait: bool = True, settings: Mapping[str, str] | None = None) -> HubProcess:
        """Start another hub; without `wait`, it may not serve yet. settings: override those of the set."""
        hub = hub_of(kind, self._directory, self._cluster.uri, self.prefix, {**self._settings, **(settings or {})})
        self._running.callback(hub.kill)
        hub.start(wait=wait)
        return hub

    def owner(self, topic: str) -> int | None:
        """The port of the hub that serves it by its record."""
        path = self._paths.owner(Topic(topic.encode()))
        if not self._zookeeper.exists(path):
            return None
        return decode_hub_info(self._zookeeper.get(path)[0], path).address.port

    def ranges(self, topic: str) -> list[LedgerRange]:
        """Its ledgers."""
        path = self._paths.ledgers(Topic(topic.encode()))
        return decode_ranges(self._zookeeper.get(path)[0], path)

    def await_stored(self, topic: str, subscriber: str, consumed: int) -> None:
        """Return once a subscriber's position is stored."""
        path = self._paths.subscription(Topic(topic.encode()), SubscriberId(subscriber.encode()))
        self._await(path, lambda data: decode_subscription(data, path).consumed.local == consumed)

    def await_first_kept(self, topic: str, first_id: int, timeout_s: float = TIMEOUT_S) -> None:
        """Return once a topic's ledgers begin there, or behind it."""
        path = self._paths.ledgers(Topic(topic.encode()))
        self._await(path, lambda data: (decode_ranges(data, path)[0].first or 1) >= first_id, timeout_s)

    def _await(self, path: str, is_enough: Callable[[bytes], bool], timeout_s: float = TIMEOUT_S) -> None:
        while True:
            changed = threading.Event()
            data, _ = self._zookeeper.get(path, watch=lambda _event, told=changed: told.set())
            if is_enough(data):
                return
            assert changed.wait(timeout_s), f"{path} stays {data.hex()}"

    def end(self, hub: HubProcess) -> None:
        """End the session of a hub process that has ended, which frees its topics."""
        address = parse_uri(self._cluster.uri).connect_string
        for name in self._zookeeper.get_children(self._paths.hubs):
            if name.split(":")[1] == str(hub.port):
                end_owner_session(address, f"{self._paths.hubs}/{name}", self._paths.root)

    def await_free(self, topic: str) -> None:
        """Return once no hub has it."""
        gone = threading.Event()
        path = self._paths.owner(Topic(topic.encode()))
        if self._zookeeper.exists(path, watch=lambda _event: gone.set()):
            assert gone.wait(TIMEOUT_S), "the owner's record is there, though its hub is not"


@pytest.fixture
def hub_set(cluster: LocalCluster, tmp_path: Path) -> Iterator[HubSet]:
    with ExitStack() as running:
        yield HubSet(cluster, tmp_path, running)


def assert_chain(ranges: list[LedgerRange], last_id: int) -> None:
    """The ledgers of a topic follow each other without a gap, and only the last may be open."""
    next_id = 1
    for each in ranges:
        assert each.first == next_id
        if each.last is None:
            assert each is ranges[-1]
            return
        next_id = each.last.local + 1
    assert next_id == last_id + 1


@pytest.mark.parametrize("version", HUB_VERSIONS)
@pytest.mark.parametrize("ours_first", [True, False], ids=["from-ours", "from-theirs"])
def test_a_topic_goes_to_the_other_kind_of_hub_and_back(
    version: str, ours_first: bool, hub_set: HubSet, hedwig_clients: Clients, hedwig_matrix: HedwigMatrix
) -> None:
    """The first hub is killed, the second one told to end; each time the next one knows all that there was."""
    kinds = (OURS, version, OURS) if ours_first else (version, OURS, version)
    name = "taken over: " + " -> ".join(map(named, kinds))
    hedwig_matrix.begin(name)
    tool = hedwig_clients(CLIENT_VERSIONS[HUB_VERSIONS.index(version)])
    first = hub_set.start(kinds[0])
    # All subscriptions on one connection: the answer to a close says that what was consumed before it was heard.
    cell = Cell(Row(tool.version, MULTIPLEXED), tool, first, next(_numbers))
    cell.topic = topic = "topic"
    everything = numbered(1, range(140), SIZE_MAX)
    seldom = [everything[number] for number in range(0, 140, 7)]

    client = cell.open("a", MANUAL)
    tool.run("subscribe", client, topic, "seldom", "CREATE", "every:7", "bound=1000")
    tool.run("close", client, topic, "seldom")
    for subscriber in ("all", "some"):
        tool.run("subscribe", client, topic, subscriber, "CREATE")
        tool.run("deliver", client, topic, subscriber)
    assert cell.ids("publish", client, topic, 1, 0, 1, SIZE_MAX) == [1]
    second = hub_set.start(kinds[1], wait=False)
    assert cell.ids("stream", client, topic, 1, 1, 119, SIZE_MAX) == list(range(2, 121))
    cell.received(client, "all", everything[:120])
    cell.received(client, "some", everything[:120])
    tool.run("consume", client, topic, "some", 60)
    hub_set.await_stored(topic, "some", 60)
    cell.shut(client)
    assert hub_set.owner(topic) == first.port
    first.kill()
    second.wait_ready()

    hub_set.end(first)
    client = cell.open("b", MANUAL, hub=second)
    assert cell.ids("publish", client, topic, 1, 120, 10, SIZE_MAX) == list(range(121, 131))
    assert hub_set.owner(topic) == second.port
    third = hub_set.start(kinds[2], wait=False)
    assert len(hub_set.ranges(topic)) >= 130 // ENTRIES_MAX
    assert_chain(hub_set.ranges(topic), 130)
    tool.run("subscribe", client, topic, "seldom", "ATTACH")
    tool.run("deliver", client, topic, "seldom", "filter")
    cell.received(client, "seldom", seldom[:19])
    for subscriber, consumed in (("all", 0), ("some", 60)):
        tool.run("subscribe", client, topic, subscriber, "ATTACH")
        tool.run("deliver", client, topic, subscriber)
        cell.received(client, subscriber, everything[consumed:130])
    tool.run("consume", client, topic, "some", 125)
    hub_set.await_stored(topic, "some", 125)
    tool.run("consume", client, topic, "some", 127)
    tool.run("close", client, topic, "some")
    cell.shut(client)
    third.wait_ready()
    second.stop()

    if kinds[1] != OURS:
        hub_set.end(second)
    hub_set.await_free(topic)
    stored = 127 if kinds[1] == OURS else 125  # a genuine hub does not store what is left when it is told to end
    hub_set.await_stored(topic, "some", stored)
    client = cell.open("c", MANUAL, hub=third)
    for subscriber, consumed in (("all", 0), ("some", stored)):
        tool.run("subscribe", client, topic, subscriber, "CREATE_OR_ATTACH")
        tool.run("deliver", client, topic, subscriber)
        cell.received(client, subscriber, everything[consumed:130])
    assert cell.ids("publish", client, topic, 1, 130, 10, SIZE_MAX) == list(range(131, 141))
    assert hub_set.owner(topic) == third.port
    assert_chain(hub_set.ranges(topic), 140)
    tool.run("subscribe", client, topic, "seldom", "ATTACH")
    tool.run("deliver", client, topic, "seldom", "filter")
    cell.received(client, "seldom", seldom)
    cell.received(client, "all", everything)
    cell.received(client, "some", everything[stored:])
    cell.close()
    hedwig_matrix.passed(name, cell.compared)


@pytest.mark.parametrize("kinds", [(OURS, "4.3.2"), ("4.2.0", OURS)], ids=["from-ours", "from-theirs"])
def test_a_topic_of_which_all_is_consumed_and_deleted_goes_on_with_its_numbers(
    kinds: tuple[str, str], hub_set: HubSet, hedwig_clients: Clients, hedwig_matrix: HedwigMatrix
) -> None:
    name = "taken over, consumed: " + " -> ".join(map(named, kinds))
    hedwig_matrix.begin(name)
    tool, count = hedwig_clients(CLIENT_VERSIONS[-1]), 3 * ENTRIES_MAX
    first = hub_set.start(kinds[0])
    cell = Cell(Row(tool.version, MULTIPLEXED), tool, first, next(_numbers))
    everything = numbered(1, range(count + 5), SIZE_MAX)

    client = cell.open("a", MANUAL)
    # Apache's hub sometimes misses the newest position, and deletes nothing until the next one: then try another topic.
    for attempt in range(1 if kinds[0] == OURS else 4):
        cell.topic = topic = f"topic-{attempt}"
        tool.run("subscribe", client, topic, "reader", "CREATE")
        tool.run("deliver", client, topic, "reader")
        assert cell.ids("publish", client, topic, 1, 0, count, SIZE_MAX) == list(range(1, count + 1))
        cell.received(client, "reader", everything[:count])
        tool.run("consume", client, topic, "reader", count)
        with suppress(AssertionError):
            hub_set.await_first_kept(topic, 2 * ENTRIES_MAX + 1, ATTEMPT_S)
            break
    else:
        pytest.fail(f"hub {named(kinds[0])} deleted no ledger of a topic that is consumed to its end")
    cell.shut(client)
    second = hub_set.start(kinds[1])
    first.kill()

    hub_set.end(first)
    client = cell.open("b", MANUAL, hub=second)
    tool.run("subscribe", client, topic, "reader", "ATTACH")
    tool.run("deliver", client, topic, "reader")
    assert cell.ids("publish", client, topic, 1, count, 5, SIZE_MAX) == list(range(count + 1, count + 6))
    cell.received(client, "reader", everything[count:])
    cell.close()
    hedwig_matrix.passed(name, cell.compared)


@pytest.mark.parametrize("version", HUB_VERSIONS)
def test_a_genuine_hub_takes_a_topic_whose_subscriptions_lost_messages(
    version: str, cluster: LocalCluster, tmp_path: Path, hedwig_clients: Clients, hedwig_matrix: HedwigMatrix
) -> None:
    """A position before the first listed message would make it drop the topic, with all publishers."""
    name = f"taken over, with deleted messages: {named(OURS)} -> {named(version)} -> {named(OURS)}"
    hedwig_matrix.begin(name)
    tool = hedwig_clients(CLIENT_VERSIONS[HUB_VERSIONS.index(version)])
    kept = 3 * ENTRIES_MAX
    everything = numbered(1, range(kept + 10), SIZE_MAX)
    with ExitStack() as running:
        hub_set = HubSet(cluster, tmp_path, running, {"limit_bytes": "1"})
        first = hub_set.start(OURS)
        cell = Cell(Row(tool.version, MULTIPLEXED), tool, first, next(_numbers))
        cell.topic = topic = "topic"
        client = cell.open("a", MANUAL)
        tool.run("subscribe", client, topic, "away", "CREATE")
        tool.run("close", client, topic, "away")
        tool.run("subscribe", client, topic, "slow", "CREATE")
        tool.run("deliver", client, topic, "slow")
        assert len(cell.ids("publish", client, topic, 1, 0, kept + 5, SIZE_MAX)) == kept + 5
        hub_set.await_first_kept(topic, kept + 1)
        with hedwig.blocking.connect(first.server) as ours, ours.subscribe(topic, "late", start=1) as late:
            assert [str(each) for each in late.gone] == [f"messages 1 to {kept}"]
        for subscriber in ("away", "slow", "late"):
            hub_set.await_stored(topic, subscriber, kept)
        cell.shut(client)
        second = hub_set.start(version)
        first.kill()

        hub_set.end(first)
        client = cell.open("b", MANUAL, hub=second)
        for subscriber in ("away", "slow", "late"):
            tool.run("subscribe", client, topic, subscriber, "ATTACH")
            tool.run("deliver", client, topic, subscriber)
            cell.received(client, subscriber, everything[kept : kept + 5])
        assert cell.ids("publish", client, topic, 1, kept + 5, 5, SIZE_MAX) == list(range(kept + 6, kept + 11))
        for subscriber in ("away", "slow", "late"):
            cell.received(client, subscriber, everything[kept:])
        cell.shut(client)
        third = hub_set.start(OURS)
        second.kill()

        hub_set.end(second)
        with hedwig.blocking.connect(third.server) as ours:
            for subscriber in ("away", "slow", "late"):
                with ours.subscribe(topic, subscriber, auto_consume=False) as again:
                    assert [str(each) for each in again.gone] == [f"messages 1 to {kept}"], "Apache's hub kept them"
                    assert next(again).local_id == kept + 1
        cell.close()
    hedwig_matrix.passed(name, cell.compared)


TOPIC_COUNT = 24


@pytest.mark.parametrize("kind", [OURS, *HUB_VERSIONS])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.version}-{row.channels}")
def test_clients_are_sent_to_the_hub_that_has_the_topic(
    kind: str,
    row: Row,
    pairs: Callable[[str], tuple[HubSet, HubProcess, HubProcess]],
    hedwig_clients: Clients,
    hedwig_matrix: HedwigMatrix,
) -> None:
    """Each of two hubs is asked first for half of the topics; publishers ask the other one than subscribers."""
    name = f"sent on, {OURS} and {named(kind)}"
    hedwig_matrix.begin(name)
    hubs, ours, other = pairs(kind)
    cell = Cell(row, hedwig_clients(row.version), ours, next(_numbers))
    tool, clients = cell.tool, (cell.open("a", hub=ours), cell.open("b", hub=other))
    owners: set[int | None] = set()
    for number in range(TOPIC_COUNT):
        topic = f"{cell.topic}-{number}"
        reader, writer = clients[number % 2], clients[1 - number % 2]
        tool.run("subscribe", reader, topic, "reader", "CREATE")
        tool.run("deliver", reader, topic, "reader")
        assert cell.ids("publish", writer, topic, number, 0, 3, SIZE_MAX) == [1, 2, 3]
        cell.received(reader, "reader", numbered(number, range(3), SIZE_MAX), topic)
        tool.run("unsubscribe", reader, topic, "reader")
        owners.add(hubs.owner(topic))
    cell.close()
    assert owners == {ours.port, other.port}
    hedwig_matrix.passed(name, cell.compared)


@pytest.fixture(scope="module")
def secure_pair(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, ...]]:
    """A hub of each kind, which share their topics and show the same certificate."""
    directory = tmp_path_factory.mktemp("secure")
    issued = Authority(directory / "ca", "ca").issue("hub")
    key = load_pem_private_key(issued.key.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    encryption = BestAvailableEncryption(b"secret")
    store = directory / "server.p12"
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"hub", key, certificate, None, encryption))
    settings = {"ssl_enabled": "true", "cert_path": str(store), "password": "secret"}
    with ExitStack() as running:
        hubs = HubSet(cluster, directory, running, settings)
        pair = tuple(hubs.start(kind, wait=False) for kind in (OURS, HUB_VERSIONS[-1]))
        for hub in pair:
            hub.wait_ready()
        yield pair


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.version}-{row.channels}")
def test_clients_with_tls_are_sent_to_the_tls_port_of_the_hub_that_has_the_topic(
    row: Row, secure_pair: tuple[HubProcess, ...], hedwig_clients: Clients, hedwig_matrix: HedwigMatrix
) -> None:
    name = f"sent on with TLS, {OURS} and {named(HUB_VERSIONS[-1])}"
    hedwig_matrix.begin(name)
    cell = Cell(row, hedwig_clients(row.version), secure_pair[0], next(_numbers))
    tool, secure = cell.tool, {"ssl_enabled": "true"}
    clients = [cell.open(f"client-{number}", secure, hub=hub) for number, hub in enumerate(secure_pair)]
    for number in range(TOPIC_COUNT // 2):
        topic = f"{cell.topic}-{number}"
        reader, writer = clients[number % 2], clients[1 - number % 2]
        tool.run("subscribe", reader, topic, "reader", "CREATE")
        tool.run("deliver", reader, topic, "reader")
        assert cell.ids("publish", writer, topic, number, 0, 3, LARGE) == [1, 2, 3]
        cell.received(reader, "reader", numbered(number, range(3), LARGE), topic)
    cell.close()
    hedwig_matrix.passed(name, cell.compared)


@pytest.fixture(scope="module")
def pairs(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[HubSet, HubProcess, HubProcess]]]:
    """A hub of ours and one of a kind, which share their topics; started at first need."""
    found: dict[str, tuple[HubSet, HubProcess, HubProcess]] = {}
    with ExitStack() as running:

        def pair(kind: str) -> tuple[HubSet, HubProcess, HubProcess]:
            if kind not in found:
                hubs = HubSet(cluster, tmp_path_factory.mktemp("pair"), running)
                other = hubs.start(kind, wait=False)
                found[kind] = (hubs, hubs.start(OURS), other)
                other.wait_ready()
            return found[kind]

        yield pair


LOAD_TOPICS = ("east", "north", "west")
LOAD_COUNT = 400
WINDOW = 8
SOON = {"server_ack_response_timeout": "8000", "timeout_thread_run_interval": "1000"}
OUTAGE = {"zk_timeout": "6000"}
"""Time for which the topics of a killed hub have no owner, while clients ask for them."""
ENDS = (*((row, True) for row in ROWS), (ROWS[0], False), (ROWS[-1], False))
"""Which clients are there when a hub is killed (True), or told to end."""


def _read_to_the_end(
    cell: Cell, reader: str, ended: HubProcess, hub: HubProcess, topic: str, last_body: str
) -> list[str]:
    """All that came up to this body: "id body" of each.

    The genuine client can lose itself where its connection ends while it resubscribes, and hands out nothing any more.
    It holds the subscription twice, and says "already subscribed" to itself without end; or it writes the request onto
    the connection that has just ended, and never learns of that: then the hub has no reader. Another one goes on.
    """
    try:
        return cell.tool.run("last", reader, topic, "reader", last_body)
    except HedwigError as stuck:
        said = cell.tool.log_path.read_text(errors="replace")
        twice = f"Resubscribe failed with error: Client is already subscribed for Topic: {topic}, SubscriberId: reader"
        unwritten = f"Error writing on channel to host: /127.0.0.1:{ended.port}"
        if "IllegalStateException: only" not in str(stuck) or not (twice in said or unwritten in said):
            raise
    told = cell.tool.run("bodies", reader, topic, "reader", 0)
    another = cell.open("another", hub=hub)
    cell.tool.run("subscribe", another, topic, "reader", "ATTACH", *(["force"] if twice in said else []))
    cell.tool.run("deliver", another, topic, "reader")
    return [*told, *cell.tool.run("last", another, topic, "reader", last_body)]


@pytest.mark.parametrize(
    ("row", "killed"),
    ENDS,
    ids=[f"{row.version}-{row.channels}-{'killed' if killed else 'told-to-end'}" for row, killed in ENDS],
)
def test_a_hub_goes_in_the_middle_and_the_client_goes_on_at_another(
    row: Row, killed: bool, hub_set: HubSet, hedwig_clients: Clients, hedwig_matrix: HedwigMatrix
) -> None:
    """Publishes with several on their way, and readers, on topics of a hub that ends under them.

    A reader may get again what it has not consumed, and never passes a message over; what was acknowledged with an id
    comes with this id, in the order of the ids.
    """
    name = f"hub {'killed' if killed else 'told to end'} under {row}"
    hedwig_matrix.begin(name)
    first = hub_set.start(OURS, settings=OUTAGE)
    cell = Cell(row, hedwig_clients(row.version), first, next(_numbers))
    tool, maker = cell.tool, cell.open("maker")
    for topic in LOAD_TOPICS:
        tool.run("subscribe", maker, topic, "reader", "CREATE")
        tool.run("close", maker, topic, "reader")
    second = hub_set.start(OURS)  # not before: it would have got some of the topics
    # What the genuine client hands to a connection just as that ends, a publish or the subscription that it takes up
    # again, is answered by its own timeout only.
    writer, reader = cell.open("writer", SOON, hub=second), cell.open("reader", SOON, hub=second)
    for topic in LOAD_TOPICS:
        tool.run("subscribe", reader, topic, "reader", "ATTACH")
        tool.run("deliver", reader, topic, "reader")
        assert hub_set.owner(topic) == first.port
        tool.run("load", f"{topic}-{cell.topic}", writer, topic, LOAD_COUNT, WINDOW)
    for topic in LOAD_TOPICS:
        tool.run("acked", f"{topic}-{cell.topic}", LOAD_COUNT // 4)
        tool.run("bodies", reader, topic, "reader", LOAD_COUNT // 8)
    if killed:
        first.kill()
    else:
        assert first.stop() == 0
    for topic in LOAD_TOPICS:
        *lines, failed = tool.run("loaded", f"{topic}-{cell.topic}")
        acknowledged = {int(local_id): body for body, local_id in (line.split() for line in lines)}
        assert len(acknowledged) == len(lines) >= LOAD_COUNT, failed
        assert hub_set.owner(topic) == second.port
        told = _read_to_the_end(cell, reader, first, second, topic, acknowledged[max(acknowledged)])
        delivered: dict[int, str] = {}
        for local_id, body in ((int(first_word), rest) for first_word, rest in (line.split() for line in told)):
            assert local_id <= len(delivered) + 1, "a message was passed over"
            assert delivered.setdefault(local_id, body) == body, "an id has two messages"
        assert acknowledged.items() <= delivered.items()
        cell.compared += len(acknowledged)
    cell.close()
    hedwig_matrix.passed(name, cell.compared)
