"""TLS with the genuine 4.18.0: its client on our bookies, ours on its bookies, in both protocol versions.

Each side checks the other's certificate against one authority; hosts are checked too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import BookKeeperError
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie, ApacheClient, ApacheError, running_bookies
from tests.support.certificates import FACTORY, Authority, Issued

pytestmark = pytest.mark.timeout(240)

PASSWORD = "pass-word"
COUNT = 500
ENTRIES = [b"entry-%d" % number for number in range(COUNT)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def shown_by_clients(authority: Authority) -> Issued:
    return authority.issue("client")


@pytest.fixture(scope="module")
def bookie_settings(authority: Authority) -> dict[str, str]:
    """The same keys for bookies of both kinds, with certificates asked of clients."""
    issued = authority.issue("bookie")
    return {
        "tlsProviderFactoryClass": FACTORY,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(issued.key),
        "tlsCertificatePath": str(issued.certificate),
        "tlsClientAuthentication": "true",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(authority.certificate),
    }


@pytest.fixture(scope="module")
def ours(bookie_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Bookies of ours, over TLS only."""
    directory = tmp_path_factory.mktemp("ours")
    with LocalCluster(3, directory=directory, settings={**SESSION_TIMEOUT, **bookie_settings}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def genuine(
    apache: Apache, bookie_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalCluster, list[ApacheBookie]]]:
    """A cluster of genuine bookies alone."""
    directory = tmp_path_factory.mktemp("genuine")
    with LocalCluster(0, directory=directory, settings=SESSION_TIMEOUT) as cluster:
        with running_bookies(apache, directory, cluster.uri, 3, bookie_settings) as bookies:
            yield cluster, list(bookies)


@pytest.fixture(params=[2, 3], ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


def java_keys(authority: Path, shown: Issued | None) -> list[str]:
    keys = [
        f"tlsProviderFactoryClass={FACTORY}",
        "clientTrustStoreType=PEM",
        f"clientTrustStore={authority}",
        "tlsHostnameVerificationEnabled=true",
    ]
    if shown is not None:
        keys += [
            "tlsClientAuthentication=true",
            "clientKeyStoreType=PEM",
            f"clientKeyStore={shown.key}",
            f"tlsCertificatePath={shown.certificate}",
        ]
    return keys


@pytest.fixture
def java(
    apache_client: ApacheClient, ours: LocalCluster, authority: Authority, shown_by_clients: Issued, version: int
) -> Iterator[tuple[ApacheClient, tuple[str, int]]]:
    """The genuine client, set to TLS, and its words for our cluster."""
    words = (ours.uri, version)
    apache_client.run("configure", *words, *java_keys(authority.certificate, shown_by_clients))
    yield apache_client, words
    apache_client.run("forget", *words)


def client(uri: str, authority: Authority, shown: Issued, version: int) -> BlockingBookKeeper:
    return connect(
        uri,
        ClientSettings(
            use_v2=version == 2,
            password=PASSWORD.encode(),
            read_timeout_base_s=REQUEST_TIMEOUT_S,
            tls_factory=FACTORY,
            client_trust_store=str(authority.certificate),
            tls_client_authentication=True,
            client_key_store=str(shown.key),
            tls_certificate=str(shown.certificate),
        ),
    )


def test_the_genuine_client_writes_and_reads_on_our_bookies(
    java: tuple[ApacheClient, tuple[str, int]],
    ours: LocalCluster,
    authority: Authority,
    shown_by_clients: Issued,
    version: int,
) -> None:
    genuine, words = java
    ledgers = (*words, "CRC32C", PASSWORD)
    (ledger_id,) = genuine.run("write", *ledgers, 3, 2, 2, COUNT)
    assert genuine.run("read", *ledgers, ledger_id) == [entry.decode() for entry in ENTRIES]
    with client(ours.uri, authority, shown_by_clients, version) as mine:
        with mine.open(int(ledger_id)) as reader:
            assert [entry.payload for entry in reader.entries()] == ENTRIES


@pytest.mark.parametrize("fault", ["authority", "certificate", "clear text"])
def test_the_genuine_client_is_refused_where_it_should_be(
    apache_client: ApacheClient,
    ours: LocalCluster,
    authority: Authority,
    shown_by_clients: Issued,
    version: int,
    tmp_path: Path,
    fault: str,
) -> None:
    words = (ours.uri, version)
    apache_client.run("forget", *words)
    keys = {
        "authority": java_keys(Authority(tmp_path, "other").certificate, shown_by_clients),
        "certificate": java_keys(authority.certificate, None),
        "clear text": ["tlsClientAuthentication=false"],
    }[fault]
    apache_client.run("configure", *words, *keys)
    try:
        with pytest.raises(ApacheError) as refused:
            apache_client.run("write", *words, "CRC32C", PASSWORD, 3, 3, 3, 1)
        assert refused.value.code in {-6, -8, -24, -102}
    finally:
        apache_client.run("forget", *words)
    words_of_log = {
        "authority": "TLS with",
        "certificate": "it showed no certificate, and tlsClientAuthentication=true asks for one",
        "clear text": "it came in clear text and tlsRequired=true",
    }[fault]
    deadline = time.monotonic() + 60
    while words_of_log not in (log := "".join(bookie.log_path.read_text() for bookie in ours.bookies)):
        assert time.monotonic() < deadline, log  # who is refused may know it before the bookie has logged it
        apache_client.run("forget", *words)  # paces the looks


def test_our_client_writes_and_reads_on_genuine_bookies(
    genuine: tuple[LocalCluster, list[ApacheBookie]], authority: Authority, shown_by_clients: Issued, version: int
) -> None:
    with client(genuine[0].uri, authority, shown_by_clients, version) as mine:
        with mine.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
            ledger.append_many(ENTRIES)
        with mine.open(ledger.id) as reader:
            assert [entry.payload for entry in reader.entries()] == ENTRIES
        large = [b"x" * 1_000_000] * 10
        with mine.create(ensemble=3, write_quorum=3, ack_quorum=2) as ledger:
            ledger.append_many(large)
        with mine.open(ledger.id) as reader:
            assert [entry.payload for entry in reader.entries()] == large


def test_a_genuine_bookie_that_we_cannot_trust_is_told(
    genuine: tuple[LocalCluster, list[ApacheBookie]], shown_by_clients: Issued, version: int, tmp_path: Path
) -> None:
    with client(genuine[0].uri, Authority(tmp_path, "other"), shown_by_clients, version) as mine:
        with pytest.raises(BookKeeperError, match="its certificate comes from an unknown authority"):
            mine.create(ensemble=3, write_quorum=3, ack_quorum=3)
