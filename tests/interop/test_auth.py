"""Authentication with the genuine 4.18.0: its client at our bookies, ours at its bookies, in both protocol versions.

One plug-in in two languages: tests/interop/java/TokenAuth.java and tests/support/auth_plugins.py.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import BookKeeperError
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie, ApacheClient, ApacheError, running_bookies
from tests.support.certificates import FACTORY, Authority

pytestmark = pytest.mark.timeout(240)

PASSWORD = "pass-word"
ATTEMPTS_MAX = 10
COUNT = 200
ENTRIES = [b"entry-%d" % number for number in range(COUNT)]
PLUGINS = "tests.support.auth_plugins"


@pytest.fixture(scope="module")
def with_plugin(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Apache:
    """The default release with our plug-in among its jars, so that every program of it finds it."""
    release = dataclasses.replace(apache.release, java_sources=(*apache.release.java_sources, "TokenAuth.java"))
    classes = dataclasses.replace(apache, release=release).tool_classes()
    jars = tmp_path_factory.mktemp("jars")
    for jar in apache.jars.iterdir():
        (jars / jar.name).symlink_to(jar)
    shutil.make_archive(str(jars / "token-auth"), "zip", classes)
    (jars / "token-auth.zip").rename(jars / "token-auth.jar")
    return dataclasses.replace(apache, jars=jars)


@pytest.fixture(scope="module")
def java(with_plugin: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheClient]:
    with ApacheClient(with_plugin, tmp_path_factory.mktemp("client") / "client.log") as client:
        yield client


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {**SESSION_TIMEOUT, "bookieAuthProviderFactoryClass": f"{PLUGINS}:token_bookie"}
    with LocalCluster(3, directory=tmp_path_factory.mktemp("ours"), settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def genuine(
    with_plugin: Apache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalCluster, list[ApacheBookie]]]:
    directory = tmp_path_factory.mktemp("genuine")
    settings = {"bookieAuthProviderFactoryClass": "TokenAuth$Bookie"}
    with LocalCluster(0, directory=directory, settings=SESSION_TIMEOUT) as cluster:
        with running_bookies(with_plugin, directory, cluster.uri, 3, settings) as bookies:
            yield cluster, list(bookies)


@pytest.fixture(params=[2, 3], ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


def write(java: ApacheClient, uri: str, version: int, *keys: str) -> list[str]:
    """The genuine client writes a ledger with these settings and reads it back."""
    words = (uri, version)
    java.run("configure", *words, *keys)
    try:
        (ledger_id,) = java.run("write", *words, "CRC32C", PASSWORD, 3, 2, 2, COUNT)
        return java.run("read", *words, "CRC32C", PASSWORD, ledger_id)
    finally:
        java.run("forget", *words)


def write_repeatedly(java: ApacheClient, uri: str, version: int, *keys: str) -> None:
    """Call `write` ATTEMPTS_MAX times, each time with new connections."""
    for _ in range(ATTEMPTS_MAX):
        write(java, uri, version, *keys)


GENUINE = "clientAuthProviderFactoryClass=TokenAuth$Client"


def test_the_genuine_client_authenticates_at_our_bookies(java: ApacheClient, ours: LocalCluster, version: int) -> None:
    assert write(java, ours.uri, version, GENUINE) == [entry.decode() for entry in ENTRIES]


@pytest.mark.parametrize("keys", [(GENUINE, "testToken=guess"), ("testToken=none",)], ids=["wrong", "none"])
def test_the_genuine_client_without_the_right_word_is_refused(
    java: ApacheClient, ours: LocalCluster, version: int, keys: tuple[str, ...]
) -> None:
    with pytest.raises(ApacheError) as refused:
        write(java, ours.uri, version, *keys)
    assert refused.value.code in {-6, -8, -102}


def test_the_genuine_client_authenticates_inside_tls(java: ApacheClient, version: int, tmp_path: Path) -> None:
    """A plug-in that waits for TLS, as its interface offers, is served.

    A plug-in that speaks at once does so in clear text. Mostly that is behind START_TLS, in one segment, where a man in
    the middle could speak too: the bookie does nothing of it. The client may also send credentials before START_TLS,
    which depends on its threads; the bookie serves that.
    """
    authority = Authority(tmp_path / "ca", "ca")
    issued = authority.issue("bookie")
    bookie = {
        **SESSION_TIMEOUT,
        "bookieAuthProviderFactoryClass": f"{PLUGINS}:token_bookie",
        "tlsProviderFactoryClass": FACTORY,
        "tlsKeyStore": str(issued.key),
        "tlsCertificatePath": str(issued.certificate),
    }
    keys = (
        GENUINE,
        f"tlsProviderFactoryClass={FACTORY}",
        "clientTrustStoreType=PEM",
        f"clientTrustStore={authority.certificate}",
    )
    with LocalCluster(3, directory=tmp_path, settings=bookie) as cluster:
        assert write(java, cluster.uri, version, *keys, "testAfterTls=true") == [entry.decode() for entry in ENTRIES]
        with pytest.raises(ApacheError):
            write_repeatedly(java, cluster.uri, version, *keys)


def test_our_client_authenticates_at_genuine_bookies(
    genuine: tuple[LocalCluster, list[ApacheBookie]], version: int
) -> None:
    settings = ClientSettings(
        use_v2=version == 2,
        password=PASSWORD.encode(),
        auth_provider=f"{PLUGINS}:token_client",
        read_timeout_base_s=REQUEST_TIMEOUT_S,
    )
    with connect(genuine[0].uri, settings) as client:
        with client.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
            ledger.append_many(ENTRIES)
        with client.open(ledger.id) as reader:
            assert [entry.payload for entry in reader.entries()] == ENTRIES


def test_our_client_with_a_wrong_word_is_told_by_genuine_bookies(
    genuine: tuple[LocalCluster, list[ApacheBookie]], version: int
) -> None:
    settings = ClientSettings(use_v2=version == 2, auth_provider=f"{PLUGINS}:wrong_token_client")
    with connect(genuine[0].uri, settings) as client:
        with pytest.raises(BookKeeperError, match="as 'somebody' with plug-in token"):
            client.create(ensemble=3, write_quorum=3, ack_quorum=3)
