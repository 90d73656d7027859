"""One ZooKeeper tree, several programs: ledger metadata, ledger paths and ids as ours and genuine clients make them.

Each layout has a cluster of its own, made by Apache's program, with bookies of ours; each test adds ledgers to it. The
last test looks at a cluster as Pulsar leaves one, in which nothing is ours.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingReadHandle, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.uri import parse_uri
from bookkeeper.model import DigestType, LedgerState
from tests.conftest import ZooKeeperServer
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import CLASSIC, DEFAULT, MIDDLE, Apache, ApacheClient, ApacheError, running_bookies
from tests.support.apache.content import fingerprint, fingerprints, payloads

PASSWORD = "pass-word"
CLIENT = ClientSettings(password=PASSWORD.encode(), read_timeout_base_s=REQUEST_TIMEOUT_S)
CLIENT_WITHOUT_PASSWORD = ClientSettings(read_timeout_base_s=REQUEST_TIMEOUT_S)
COUNT = 20
SIZE_MAX = 5000
MANY = 30
LAYOUTS = (LayoutKind.FLAT, LayoutKind.HIERARCHICAL, LayoutKind.LONG_HIERARCHICAL)
# The last id with a short path, the first with a long one, some beyond 32 bits, and the largest of ten digits. None of
# them is one that the long scheme of ids gives out first: it begins at 2 ** 32.
LARGE_IDS = (2147483646, 2147483647, 2147483648, 1 << 33, 9_999_999_999)
# No cluster of the flat layout has more than ten digits in its paths.
HUGE_IDS = (1 << 40, (1 << 62) + 12345)
CUSTOM = {"application": b"tests", "empty": b"", "octets": bytes(range(256)), "path/with=signs": b"a=b"}
PULSAR = {
    "application": b"pulsar",
    "component": b"managed-ledger",
    "pulsar/managed-ledger": b"public/default/persistent/topic-1",
}
WRITTEN = payloads(0, COUNT, SIZE_MAX)
CODE_ZOOKEEPER = -9

Clients = Callable[[str], ApacheClient]


class LaidOutCluster(LocalCluster):
    """A cluster whose metadata a genuine program makes."""

    def __init__(
        self,
        maker: ApacheClient,
        kind: LayoutKind,
        bookie_count: int,
        *,
        directory: Path,
        zookeeper: str | None = None,
        root: str = "/ledgers",
    ) -> None:
        super().__init__(bookie_count, directory=directory, zookeeper=zookeeper, root=root, settings=SESSION_TIMEOUT)
        self._maker, self.kind = maker, kind

    @property
    def uri(self) -> str:
        return super().uri.replace("zk+hierarchical:", f"zk+{self.kind.word}:")

    def _initialise(self) -> None:
        self._maker.run("initialise", self.uri)


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda kind: kind.word)
def laid_out(
    request: pytest.FixtureRequest,
    apache_client: ApacheClient,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LaidOutCluster]:
    directory = tmp_path_factory.mktemp("laid-out")
    root = f"/{directory.name}-{request.param.word}"
    cluster = LaidOutCluster(
        apache_client, request.param, 3, directory=directory, zookeeper=zookeeper.address, root=root
    )
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(laid_out: LaidOutCluster) -> Iterator[BlockingBookKeeper]:
    with connect(laid_out.uri, CLIENT) as client:
        yield client


def contents(ledger: BlockingReadHandle) -> list[bytes]:
    with ledger:
        return [entry.payload for entry in ledger.entries()]


def words(custom: Mapping[str, bytes]) -> list[str]:
    """Custom metadata as LedgerExtras takes it and tells it."""
    return [f"{key}={value.hex()}" for key, value in sorted(custom.items())]


def ids_of(client: BlockingBookKeeper) -> list[int]:
    return [ledger_id for batch in client.ids() for ledger_id in batch]


def begun_by(writer: ApacheClient, uri: str, digest: str = "CRC32C") -> int:
    """An open ledger with WRITTEN, its writer still there."""
    (ledger_id,) = writer.run("begin", uri, 2, digest, PASSWORD, 3, 2, 2, 0)
    writer.run("fill", ledger_id, COUNT, 0, SIZE_MAX)
    return int(ledger_id)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_reads_closes_and_recovers_metadata_that_the_other_wrote(
    laid_out: LaidOutCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    uri = laid_out.uri
    apache_client.run("configure", uri, 2, f"ledgerMetadataVersion={version}")
    apache_client.run("forget", uri, 2)
    # Closed and abandoned by us: they read the one and recover the other. Neither changes the version.
    closed = client.create(metadata_version=version, digest=DigestType.CRC32)
    abandoned = client.create(metadata_version=version, digest=DigestType.CRC32)
    for ledger in (closed, abandoned):
        ledger.append_many(WRITTEN)
    closed.close()
    abandoned.abort()
    final = f"{version} CLOSED {COUNT - 1} {sum(map(len, WRITTEN))} 1"
    assert apache_client.run("metadata", uri, 2, closed.id) == [final]
    for ledger in (closed, abandoned):
        where = (uri, 2, "CRC32", PASSWORD, ledger.id)
        assert apache_client.run("hashes", *where) == fingerprints(WRITTEN)
        assert apache_client.run("metadata", uri, 2, ledger.id) == [final]
        assert client.metadata(ledger.id).format_version == version
    # And the reverse.
    for close in (True, False):
        ledger_id = begun_by(apache_client, uri, "CRC32")
        assert client.metadata(ledger_id).state is LedgerState.OPEN
        apache_client.run("close" if close else "abandon", ledger_id)
        assert contents(client.open(ledger_id, digest=DigestType.CRC32)) == WRITTEN
        metadata = client.metadata(ledger_id)
        assert metadata.format_version == version
        assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, COUNT - 1)
        assert metadata.length == sum(map(len, WRITTEN))
        assert apache_client.run("metadata", uri, 2, ledger_id) == [final]


@pytest.mark.parametrize("version", [2, 3])
def test_custom_metadata_of_either_is_what_the_other_reads(
    laid_out: LaidOutCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    uri = laid_out.uri
    apache_client.run("configure", uri, 2, f"ledgerMetadataVersion={version}")
    apache_client.run("forget", uri, 2)
    with client.create(custom=CUSTOM, metadata_version=version) as ours:
        ours.append(b"entry-0")
    assert apache_client.run("custom", uri, 2, "CRC32C", PASSWORD, ours.id) == words(CUSTOM)
    (theirs,) = apache_client.run("create", uri, 2, "CRC32C", PASSWORD, 3, 2, 2, *words(CUSTOM))
    assert client.metadata(int(theirs)).custom == CUSTOM
    # Another's custom metadata outlives a rewrite.
    client.open(int(theirs)).close()
    metadata = client.metadata(int(theirs))
    assert (metadata.state, metadata.custom, metadata.format_version) == (LedgerState.CLOSED, CUSTOM, version)
    assert apache_client.run("custom", uri, 2, "CRC32C", PASSWORD, theirs) == words(CUSTOM)


def test_each_finds_ledgers_with_large_ids_that_the_other_made(
    laid_out: LaidOutCluster, client: BlockingBookKeeper, apache_client: ApacheClient
) -> None:
    large = LARGE_IDS if laid_out.kind is LayoutKind.FLAT else LARGE_IDS + HUGE_IDS
    for ledger_id in large:
        with client.create(ledger_id=ledger_id) as ledger:
            ledger.append_many(WRITTEN)
        where = (laid_out.uri, 2, "CRC32C", PASSWORD, ledger_id)
        assert apache_client.run("hashes", *where) == fingerprints(WRITTEN)
    theirs = [ledger_id - 1000 for ledger_id in large]
    for ledger_id in theirs:
        apache_client.run("chosen", laid_out.uri, 2, "CRC32C", PASSWORD, 3, 2, 2, ledger_id)
        assert apache_client.run("put", ledger_id, 0, SIZE_MAX, *reversed(range(COUNT))) == [f"{COUNT - 1}"]
        assert contents(client.open(ledger_id)) == WRITTEN
    listed = ids_of(client)
    assert {*large, *theirs} <= set(listed)
    assert listed == sorted({int(line) for line in apache_client.run("list", laid_out.uri, 2)})
    for mine, other in zip(large, theirs, strict=True):
        apache_client.run("delete", laid_out.uri, 2, mine)
        client.delete(other)
    assert not {*large, *theirs} & set(ids_of(client))
    assert ids_of(client) == sorted({int(line) for line in apache_client.run("list", laid_out.uri, 2)})


def check_ids_of_their_own(cluster: LaidOutCluster, creators: Sequence[ApacheClient]) -> list[int]:
    """Ledgers made by us and by all creators at the same time; their ids, after a look into each."""
    uri = cluster.uri
    with connect(uri, CLIENT) as client:
        before = set(ids_of(client))
        at_work = [(one, one.spawn("many", uri, 2, "CRC32", PASSWORD, 3, 2, 2, MANY)) for one in creators]
        ours: list[int] = []
        for _ in range(MANY):
            with client.create(digest=DigestType.CRC32) as ledger:
                ledger.append(b"ours")
            ours.append(ledger.id)
        theirs = [int(line) for one, number in at_work for line in one.wait(number)]
        made = ours + theirs
        assert len(set(made)) == len(made) == MANY * (1 + len(creators))
        assert not before & set(made)
        assert before | set(made) == set(ids_of(client))
        for ledger_id in ours:
            assert contents(client.open(ledger_id)) == [b"ours"]
        for ledger_id in theirs:
            assert contents(client.open(ledger_id)) == [b"entry-0"]
    return made


def test_ledgers_made_by_several_kinds_at_the_same_time_have_ids_of_their_own(
    laid_out: LaidOutCluster, apache_clients: Clients
) -> None:
    long = laid_out.kind is LayoutKind.LONG_HIERARCHICAL
    releases = (DEFAULT, MIDDLE) if long else (DEFAULT, MIDDLE, CLASSIC)
    made = check_ids_of_their_own(laid_out, [apache_clients(release.version) for release in releases])
    assert (min(made) >= 1 << 32) == (max(made) >= 1 << 32) == long


@pytest.mark.parametrize("laid_out", [LayoutKind.HIERARCHICAL], indirect=True, ids=["hierarchical"])
def test_so_they_have_once_the_short_ids_are_used_up(
    laid_out: LaidOutCluster, zookeeper: ZooKeeperServer, apache_clients: Clients
) -> None:
    creators = [apache_clients(release.version) for release in (DEFAULT, MIDDLE)]
    # What the program does that is given the id 2147483647. A client that found no such node does not look again.
    kazoo = KazooClient(zookeeper.address)
    kazoo.start()
    kazoo.create(f"{parse_uri(laid_out.uri).root}/idgen-long")
    kazoo.stop()
    kazoo.close()
    for creator in creators:
        creator.run("forget", laid_out.uri, 2)
    assert min(check_ids_of_their_own(laid_out, creators)) >= 1 << 32


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("digest", CLASSIC.digests, ids=lambda digest: digest.name)
def test_the_oldest_release_and_we_read_and_recover_each_others_ledgers(
    cluster: LocalCluster, apache_clients: Clients, version: int, digest: DigestType
) -> None:
    classic = apache_clients(CLASSIC.version)
    with connect(cluster.uri, CLIENT) as client:
        closed, abandoned = (client.create(metadata_version=version, digest=digest) for _ in range(2))
        for ledger in (closed, abandoned):
            ledger.append_many(WRITTEN)
        closed.close()
        abandoned.abort()
        for ledger in (closed, abandoned):
            where = (cluster.uri, 2, digest.name, PASSWORD, ledger.id)
            assert classic.run("hashes", *where) == fingerprints(WRITTEN)
            metadata = client.metadata(ledger.id)
            assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, COUNT - 1)
            assert metadata.format_version == version
        for end in ("close", "abandon"):
            ledger_id = begun_by(classic, cluster.uri, digest.name)
            classic.run(end, ledger_id)
            assert contents(client.open(ledger_id)) == WRITTEN
            assert client.metadata(ledger_id).format_version == CLASSIC.metadata_version
            assert classic.run("peek", cluster.uri, 2, digest.name, PASSWORD, ledger_id) == fingerprints(WRITTEN)


def test_the_oldest_release_refuses_metadata_that_is_too_new_and_goes_on(
    cluster: LocalCluster, apache_clients: Clients
) -> None:
    classic = apache_clients(CLASSIC.version)
    with connect(cluster.uri, CLIENT) as client:
        with client.create(digest=DigestType.CRC32) as ledger:
            ledger.append_many(WRITTEN)
        for command in ("hashes", "peek"):
            with pytest.raises(ApacheError) as refused:
                classic.run(command, cluster.uri, 2, "CRC32", PASSWORD, ledger.id)
            assert refused.value.code == CODE_ZOOKEEPER
        assert contents(client.open(ledger.id)) == WRITTEN
        (theirs,) = classic.run("many", cluster.uri, 2, "CRC32", PASSWORD, 3, 2, 2, 1)
        assert contents(client.open(int(theirs))) == [b"entry-0"]


def test_a_cluster_laid_out_as_pulsars_is_opened_tailed_and_read(
    apache: Apache, apache_client: ApacheClient, tmp_path: Path
) -> None:
    """A topic of three ledgers: two full ones and one that its broker still writes."""
    cluster = LaidOutCluster(apache_client, LayoutKind.LONG_HIERARCHICAL, 0, directory=tmp_path)
    with cluster, running_bookies(apache, tmp_path, cluster.uri, 2):
        assert parse_uri(cluster.uri).root == "/ledgers"
        ledgers: list[int] = []
        for number in range(3):
            (line,) = apache_client.run("create", cluster.uri, 2, "CRC32C", "-", 2, 2, 2, *words(PULSAR))
            ledgers.append(int(line))
            apache_client.run("fill", line, COUNT - 1, number, SIZE_MAX)
            apache_client.run("fill", line, 1, number, SIZE_MAX)
            if number < 2:
                apache_client.run("close", line)
        # A Pulsar cluster's URI names no layout: the one that is stored counts.
        with connect(cluster.uri.replace("zk+longhierarchical:", "zk:"), CLIENT_WITHOUT_PASSWORD) as client:
            assert ids_of(client) == sorted(ledgers)
            for number, ledger_id in enumerate(ledgers):
                metadata = client.metadata(ledger_id)
                assert metadata.custom == PULSAR
                assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (2, 2, 2)
                assert metadata.digest_type is DigestType.CRC32C
                if number < 2:
                    assert contents(client.open(ledger_id)) == payloads(number, COUNT, SIZE_MAX)
            everything = payloads(2, 3 * COUNT, SIZE_MAX)
            with client.open_without_recovery(ledgers[2]) as tailed:
                assert tailed.last_add_confirmed == COUNT - 2  # the last entry's own LAC says so much
                tail = (entry.payload for batch in tailed.tail() for entry in batch)
                assert take(tail, COUNT - 1) == everything[: COUNT - 1]
                apache_client.run("fill", ledgers[2], COUNT - 1, 2, SIZE_MAX)
                apache_client.run("fill", ledgers[2], 1, 2, SIZE_MAX)
                assert take(tail, COUNT) == everything[COUNT - 1 : 2 * COUNT - 1]
                apache_client.run("fill", ledgers[2], COUNT, 2, SIZE_MAX)
                apache_client.run("close", ledgers[2])
                assert list(tail) == everything[2 * COUNT - 1 :]
            assert client.metadata(ledgers[2]).state is LedgerState.CLOSED
            # What we write there, a broker reads.
            with client.create(ensemble=2, custom=PULSAR) as ours:
                ours.append_many(everything)
        found = apache_client.run("hashes", cluster.uri, 2, "CRC32C", "-", ours.id)
        assert found == [fingerprint(payload) for payload in everything]
        assert apache_client.run("custom", cluster.uri, 2, "CRC32C", "-", ours.id) == words(PULSAR)


def take(entries: Iterator[bytes], count: int) -> Sequence[bytes]:
    return list(islice(entries, count))
