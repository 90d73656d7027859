"""The genuine Apache client against our bookies, and beside our client on the same ledgers.

One Java process and one cluster serve all tests; each test makes ledgers of its own. Entries are "entry-0", ...
"""

from collections.abc import Iterator

import pytest

from bookkeeper.client.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import LedgerFencedOff, NoSuchLedger
from bookkeeper.model import DigestType
from tests.support.apache import ApacheClient, ApacheError

VERSIONS = (2, 3)
DIGESTS = tuple(DigestType)
PASSWORD = "pass-word"
CODE_WRONG_PASSWORD = -102
CODE_FENCED = -101
CODE_NO_SUCH_LEDGER = -25


def entries(count: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(count)]


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    """The wire version that both clients use."""
    value: int = request.param
    return value


@pytest.fixture(scope="module")
def client(cluster: LocalCluster, version: int) -> Iterator[BlockingBookKeeper]:
    with connect(cluster.uri, ClientSettings(use_v2=version == 2)) as client:
        yield client


@pytest.mark.parametrize("digest", DIGESTS, ids=lambda digest: digest.name)
def test_we_read_what_the_genuine_client_wrote(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int, digest: DigestType
) -> None:
    (ledger_id,) = apache_client.run("write", cluster.uri, version, digest.name, PASSWORD, 3, 2, 2, 120)
    with client.open(int(ledger_id), password=PASSWORD.encode()) as ledger:
        assert ledger.closed
        assert [entry.payload for entry in ledger.entries()] == entries(120)
        assert ledger.metadata.digest_type is digest
        assert ledger.length == sum(map(len, entries(120)))


@pytest.mark.parametrize("digest", DIGESTS, ids=lambda digest: digest.name)
def test_the_genuine_client_reads_what_we_wrote(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int, digest: DigestType
) -> None:
    with client.create(digest=digest, password=PASSWORD.encode()) as ledger:
        ledger.append_many(entries(120))
    lines = apache_client.run("read", cluster.uri, version, digest.name, PASSWORD, ledger.id)
    assert [line.encode() for line in lines] == entries(120)


def test_the_genuine_client_recovers_our_abandoned_ledger_and_fences_our_writer(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    ledger = client.create(password=PASSWORD.encode())
    ledger.append_many(entries(150))
    lines = apache_client.run("read", cluster.uri, version, "CRC32C", PASSWORD, ledger.id)
    assert [line.encode() for line in lines] == entries(150)
    with pytest.raises(LedgerFencedOff):
        ledger.append(b"too late")
    assert client.metadata(ledger.id).last_entry_id == 149


def test_we_recover_the_genuine_clients_abandoned_ledger_and_fence_its_writer(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    (ledger_id,) = apache_client.run("begin", cluster.uri, version, "MAC", PASSWORD, 3, 3, 2, 150)
    with client.open(int(ledger_id), password=PASSWORD.encode()) as ledger:
        assert [entry.payload for entry in ledger.entries()] == entries(150)
    with pytest.raises(ApacheError) as refused:
        apache_client.run("append", ledger_id, 1)
    assert refused.value.code == CODE_FENCED
    assert client.metadata(int(ledger_id)).last_entry_id == 149


def test_we_tail_the_genuine_clients_ledger_without_disturbing_it(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    (ledger_id,) = apache_client.run("begin", cluster.uri, version, "CRC32", PASSWORD, 3, 2, 2, 10)
    with client.open_without_recovery(int(ledger_id), password=PASSWORD.encode()) as tail:
        assert tail.last_add_confirmed == 8  # the last entry's own LAC says so much
        assert apache_client.run("append", ledger_id, 5) == ["14"]
        assert tail.read_last_confirmed() == 13
        assert [entry.payload for entry in tail.entries()] == entries(14)


def test_the_genuine_client_tails_our_ledger(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    with client.create(password=PASSWORD.encode()) as ledger:
        for payload in entries(10):
            ledger.append(payload)
        # 8 from the last entry, or 9 when our explicit LAC was written already and the reader's protocol has it.
        (last_confirmed,) = apache_client.run("tail", cluster.uri, version, "CRC32C", PASSWORD, ledger.id)
        assert last_confirmed in ("8", "9")
        ledger.append(b"entry-10")


@pytest.mark.parametrize("metadata_version", [1, 2, 3])
def test_the_genuine_client_reads_every_metadata_version_we_write(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int, metadata_version: int
) -> None:
    with client.create(
        ensemble=3, write_quorum=2, ack_quorum=2, password=PASSWORD.encode(), metadata_version=metadata_version
    ) as ledger:
        ledger.append_many(entries(5))
    assert apache_client.run("read", cluster.uri, version, "CRC32C", PASSWORD, ledger.id) == [
        entry.decode() for entry in entries(5)
    ]


def test_the_genuine_client_refuses_the_wrong_password_of_our_ledger(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    with client.create(password=PASSWORD.encode()) as ledger:
        ledger.append(b"entry-0")
    with pytest.raises(ApacheError) as refused:
        apache_client.run("read", cluster.uri, version, "CRC32C", "other", ledger.id)
    assert refused.value.code == CODE_WRONG_PASSWORD


def test_either_client_deletes_the_others_ledger(
    cluster: LocalCluster, client: BlockingBookKeeper, apache_client: ApacheClient, version: int
) -> None:
    with client.create(password=PASSWORD.encode()) as ours:
        ours.append(b"entry-0")
    apache_client.run("delete", cluster.uri, version, ours.id)
    with pytest.raises(NoSuchLedger):
        client.metadata(ours.id)
    (theirs,) = apache_client.run("write", cluster.uri, version, "CRC32C", PASSWORD, 3, 2, 2, 1)
    client.delete(int(theirs))
    with pytest.raises(ApacheError) as gone:
        apache_client.run("read", cluster.uri, version, "CRC32C", PASSWORD, theirs)
    assert gone.value.code == CODE_NO_SUCH_LEDGER
