"""Authentication at real bookies, with our client in both protocol versions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper import BookKeeper
from bookkeeper.auth.passwords import hash_password
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import Status
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.messages import AuthReply, GenericFailure
from tests.support.certificates import FACTORY, Authority
from tests.support.cluster import STEADY, RawClient, local_cluster, wait_for_exit, with_long_timeouts

pytestmark = pytest.mark.timeout(180)

WAIT_S = 60.0
BOOKIES = 3
ALL = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 3}
PLUGINS = "tests.support.auth_plugins"


def run(cluster: LocalCluster, settings: ClientSettings, scenario: Callable[[BookKeeper], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, with_long_timeouts(settings)) as bk:
            await asyncio.wait_for(scenario(bk), WAIT_S)

    asyncio.run(main())


async def write_and_read(bk: BookKeeper) -> None:
    entries = [b"entry %d" % number for number in range(2000)]
    async with await bk.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
        await ledger.append_many(entries)
    async with await bk.open(ledger.id) as reader:
        assert [entry.payload async for entry in reader.entries()] == entries
    assert (await bk.bookie_info(next(iter((await bk.available_bookies()).writable)))).total_bytes > 0


def failure(cluster: LocalCluster, settings: ClientSettings) -> str:
    """Return the error message of a create by a client that the bookies refuse."""
    told: list[str] = []

    async def scenario(bk: BookKeeper) -> None:
        with pytest.raises(BookKeeperError) as failed:
            await bk.create(**ALL)
        told.append(str(failed.value))
        assert "more bookies" not in told[0]

    run(cluster, settings, scenario)
    return told[0]


def log_of(cluster: LocalCluster) -> str:
    return "".join(bookie.log_path.read_text() for bookie in cluster.bookies)


def password(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users"
    path.write_text(f"alice:{hash_password(b'secret')}\n")
    return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def cluster(
    zookeeper: Any, users: Path, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """Bookies with TLS and passwords."""
    issued = authority.issue("bookie")
    settings = {
        **STEADY,
        "tlsProviderFactoryClass": FACTORY,
        "tlsKeyStore": str(issued.key),
        "tlsCertificatePath": str(issued.certificate),
        "bookieAuthProviderFactoryClass": "password-file",
        "bookiePasswordFile": str(users),
    }
    root = f"/auth-{os.urandom(3).hex()}"
    with local_cluster(
        zookeeper.address, root, BOOKIES, directory=tmp_path_factory.mktemp("auth"), settings=settings
    ) as running:
        yield running


@pytest.fixture(params=[True, False], ids=["v2", "v3"])
def settings(request: pytest.FixtureRequest, authority: Authority, tmp_path: Path) -> ClientSettings:
    return ClientSettings(
        use_v2=request.param,
        tls_factory=FACTORY,
        client_trust_store=str(authority.certificate),
        auth_provider="password-file",
        auth_password_file=password(tmp_path / "alice", "alice:secret\n"),
    )


def test_the_right_password_over_tls(cluster: LocalCluster, settings: ClientSettings) -> None:
    run(cluster, settings, write_and_read)


def test_a_wrong_password_is_told_with_user_and_plugin(
    cluster: LocalCluster, settings: ClientSettings, tmp_path: Path
) -> None:
    wrong = replace(settings, auth_password_file=password(tmp_path / "wrong", "alice:guess"))
    told = failure(cluster, wrong)
    assert "as 'alice' with plug-in PasswordFile" in told
    assert f"clientPasswordFile={tmp_path / 'wrong'}" in told
    assert "guess" not in told
    log = log_of(cluster)
    assert "user 'alice' does not exist or has another password" in log
    assert "guess" not in log
    run(cluster, settings, write_and_read)  # nobody else was affected


def test_a_client_without_credentials_is_refused(cluster: LocalCluster, settings: ClientSettings) -> None:
    told = failure(cluster, replace(settings, auth_provider=""))
    assert "this client shows no credentials: set clientAuthProviderFactoryClass" in told
    assert "it is not authenticated: set clientAuthProviderFactoryClass at that client" in log_of(cluster)


def test_a_client_with_another_plugin_is_told(cluster: LocalCluster, settings: ClientSettings) -> None:
    told = failure(cluster, replace(settings, auth_provider=f"{PLUGINS}:token_client"))
    assert "with plug-in token" in told
    assert "it offers plug-in 'token', and 'PasswordFile' is wanted" in log_of(cluster)


def test_a_new_password_counts_without_a_restart(
    cluster: LocalCluster, settings: ClientSettings, users: Path, tmp_path: Path
) -> None:
    before = users.read_text()
    line = subprocess.run(
        [sys.executable, "-m", "bookkeeper.cli.main", "auth", "line", "bob"],
        input="a new one\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    bob = replace(settings, auth_password_file=password(tmp_path / "bob", "bob:a new one"))
    assert "as 'bob'" in failure(cluster, bob)
    try:
        users.write_text(before + line)
        run(cluster, bob, write_and_read)
    finally:
        users.write_text(before)


def test_no_password_leaves_for_a_bookie_without_tls(
    zookeeper: Any, settings: ClientSettings, users: Path, tmp_path: Path
) -> None:
    """Neither does a client that has TLS fall back, nor is a bookie without TLS started by mistake."""
    root = f"/clear-{os.urandom(3).hex()}"
    bookie = {
        **STEADY,
        "bookieAuthProviderFactoryClass": "password-file",
        "bookiePasswordFile": str(users),
        "passwordOverClearText": "true",
    }
    with local_cluster(zookeeper.address, root, BOOKIES, directory=tmp_path, settings=bookie) as cluster:
        assert "it has no TLS" in failure(cluster, settings)
        run(cluster, replace(settings, tls_factory="", auth_over_clear_text=True), write_and_read)
        assert "a password is not sent over clear text" in failure(cluster, replace(settings, tls_factory=""))
        first = cluster.bookies[0]
        first.stop()
        first.settings["passwordOverClearText"] = "false"
        assert wait_for_exit(first) == 1
        assert "without TLS would send passwords in clear text" in first.log_path.read_text()


@pytest.mark.parametrize("plugin", ["token", "dialogue"])
def test_providers_of_ones_own_in_one_round_and_in_several(
    zookeeper: Any, settings: ClientSettings, tmp_path: Path, plugin: str
) -> None:
    bookie = {**STEADY, "bookieAuthProviderFactoryClass": f"{PLUGINS}:{plugin}_bookie"}
    client = ClientSettings(use_v2=settings.use_v2, auth_provider=f"{PLUGINS}:{plugin}_client")
    root = f"/own-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, BOOKIES, directory=tmp_path, settings=bookie) as cluster:
        run(cluster, client, write_and_read)
        if plugin == "token":
            wrong = replace(client, auth_provider=f"{PLUGINS}:wrong_token_client")
            assert "with plug-in token" in failure(cluster, wrong)


def test_a_client_with_credentials_at_bookies_that_ask_for_none(
    zookeeper: Any, settings: ClientSettings, tmp_path: Path
) -> None:
    client = ClientSettings(use_v2=settings.use_v2, auth_provider=f"{PLUGINS}:token_client")
    root = f"/none-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, BOOKIES, directory=tmp_path, settings=STEADY) as cluster:
        run(cluster, client, write_and_read)


@pytest.mark.parametrize("version", [2, 3])
def test_the_wire_of_a_refusal(zookeeper: Any, tmp_path: Path, version: int) -> None:
    bookie = {"bookieAuthProviderFactoryClass": f"{PLUGINS}:token_bookie"}
    root = f"/wire-{os.urandom(3).hex()}"
    encoder = request_encoder(3 if version == 3 else 2)
    with local_cluster(zookeeper.address, root, 1, directory=tmp_path, settings=bookie) as cluster:
        port = cluster.bookies[0].port
        with RawClient(port, version=version) as client:
            client.send(encoder.encode_auth("token", b"guess")[1])
            if version == 3:
                (refusal,) = client.receive()
                assert isinstance(refusal, GenericFailure)
                assert refusal.status is Status.UNAUTHORIZED
            assert client.is_closed()
        with RawClient(port, version=version) as client:
            client.send(encoder.encode_auth("token", b"secret")[1])
            (reply,) = client.receive()
            assert isinstance(reply, AuthReply)
            assert (reply.status, reply.plugin) == (Status.OK, "token")
