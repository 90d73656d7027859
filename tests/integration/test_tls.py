"""TLS on real bookies, with our client in both protocol versions: what works, and what each failed check says."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper import BookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import BookKeeperError, ConfigurationError
from bookkeeper.model import Status
from bookkeeper.wire.codec import ServerCodec, v3_encoder
from bookkeeper.wire.messages import GenericFailure, StartTlsReply
from tests.support.certificates import FACTORY, Authority, Issued
from tests.support.cluster import STEADY, RawClient, local_cluster, with_long_timeouts

pytestmark = pytest.mark.timeout(300)

WAIT_S = 120.0
BOOKIES = 3


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


def tls_settings(issued: Issued, **more: str) -> dict[str, str]:
    """A bookie's settings."""
    return {
        **STEADY,
        "tlsProviderFactoryClass": FACTORY,
        "tlsKeyStore": str(issued.key),
        "tlsCertificatePath": str(issued.certificate),
        **more,
    }


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies that serve over TLS only."""
    # An endless handshake takes ten seconds. Other handshakes may take long, too, if processes pause.
    settings = tls_settings(authority.issue("bookie"), startTLSTimeoutSecs="10")
    root = f"/tls-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("tls")
    with local_cluster(zookeeper.address, root, BOOKIES, directory=directory, settings=settings) as running:
        yield running


@pytest.fixture(params=[True, False], ids=["v2", "v3"])
def settings(request: pytest.FixtureRequest, authority: Authority) -> ClientSettings:
    return with_long_timeouts(
        ClientSettings(
            use_v2=request.param,
            tls_factory=FACTORY,
            client_trust_store=str(authority.certificate),
            explicit_lac_interval_s=0.1,
        )
    )


def run(cluster: LocalCluster, settings: ClientSettings, scenario: Callable[[BookKeeper], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, settings) as bk:
            await asyncio.wait_for(scenario(bk), WAIT_S)

    asyncio.run(main())


ALL = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 3}


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


def await_log(cluster: LocalCluster, *texts: str) -> None:
    """Return once bookies have logged these texts. A client may receive a refusal before it is in the log."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        log = "".join(bookie.log_path.read_text() for bookie in cluster.bookies)
        if all(text in log for text in texts):
            return
        assert time.monotonic() < deadline_s, log[-2000:]


# --- it works -------------------------------------------------------------------------------------------------------


def test_ledgers_are_written_read_tailed_and_recovered_over_tls(
    cluster: LocalCluster, settings: ClientSettings
) -> None:
    async def scenario(bk: BookKeeper) -> None:
        entries = [b"entry %d" % number for number in range(20_000)]
        ledger = await bk.create(ensemble=3, write_quorum=2, ack_quorum=2)
        tail = await bk.open_without_recovery(ledger.id)
        await ledger.append_many(entries[:100])
        followed: list[bytes] = []

        async def follow() -> None:
            async for batch in tail.tail():
                followed.extend(entry.payload for entry in batch)

        following = asyncio.create_task(follow())
        await ledger.append_many(entries[100:])
        reader = await bk.open(ledger.id)  # fences and recovers: the writer did not close it
        assert [entry.payload async for entry in reader.entries()] == entries
        await following
        assert followed == entries
        assert (await bk.bookie_info(cluster.bookies[0].bookie_id)).total_bytes > 0

    run(cluster, settings, scenario)


def test_large_entries_and_back_pressure_under_tls(cluster: LocalCluster, settings: ClientSettings) -> None:
    """Far more than the buffers of either side, in both directions, then many small reads."""

    async def scenario(bk: BookKeeper) -> None:
        large = [os.urandom(64) * (16_000 * (1 + number % 4)) for number in range(24)]  # 1 to 4 MB
        async with await bk.create(**ALL) as ledger:
            await ledger.append_many(large)
        async with await bk.open(ledger.id) as reader:
            assert [entry.payload async for entry in reader.entries()] == large
        async with await bk.create(**ALL) as small:
            await small.append_many([b"%d" % number for number in range(5000)])
        async with await bk.open(small.id) as reader:
            answers = await asyncio.gather(*[reader.read(number, number) for number in range(0, 5000, 5)])
            assert [entries[0].payload for entries in answers] == [b"%d" % number for number in range(0, 5000, 5)]

    run(cluster, replace(settings, connection_bytes_max=8 * 1024 * 1024), scenario)


def test_a_killed_bookie_costs_nothing_under_tls(cluster: LocalCluster, settings: ClientSettings) -> None:
    async def scenario(bk: BookKeeper) -> None:
        ledger = await bk.create(ensemble=3, write_quorum=3, ack_quorum=2)
        acknowledged = await ledger.append_many([b"before"] * 100)
        assert len(acknowledged) == 100
        cluster.bookies[0].kill()
        async with await bk.open(ledger.id) as reader:
            assert [entry.payload async for entry in reader.entries()] == [b"before"] * 100

    try:
        run(cluster, settings, scenario)
    finally:
        if not cluster.bookies[0].running:
            cluster.bookies[0].start()


def test_only_one_client_certificate_is_asked_for_and_checked(
    zookeeper: Any, authority: Authority, settings: ClientSettings, tmp_path: Path
) -> None:
    trusted = Authority(tmp_path, "clients")
    mine, strange = trusted.issue("me"), Authority(tmp_path / "strange", "strangers").issue("stranger")
    bookie = tls_settings(
        authority.issue("mutual"), tlsClientAuthentication="true", tlsTrustStore=str(trusted.certificate)
    )
    root = f"/mutual-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, BOOKIES, directory=tmp_path, settings=bookie) as cluster:

        def with_certificate(issued: Issued) -> ClientSettings:
            return replace(
                settings,
                tls_client_authentication=True,
                client_key_store=str(issued.key),
                tls_certificate=str(issued.certificate),
            )

        async def scenario(bk: BookKeeper) -> None:
            async with await bk.create(**ALL) as ledger:
                await ledger.append(b"x")

        run(cluster, with_certificate(mine), scenario)
        assert "certificate" in failure(cluster, settings)
        assert "authority of our certificate" in failure(cluster, with_certificate(strange))
        await_log(
            cluster,
            "it showed no certificate, and tlsClientAuthentication=true asks for one",
            "its certificate comes from an unknown authority: add that authority to tlsTrustStore",
        )


# --- it does not ----------------------------------------------------------------------------------------------------


def test_an_unknown_authority_is_told(cluster: LocalCluster, settings: ClientSettings, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    told = failure(cluster, replace(settings, client_trust_store=str(other.certificate)))
    assert "its certificate comes from an unknown authority 'CN=" in told


@pytest.mark.parametrize("fault", ["host", "expired"])
def test_a_certificate_for_another_host_or_time_is_told(
    zookeeper: Any, authority: Authority, settings: ClientSettings, tmp_path: Path, fault: str
) -> None:
    if fault == "host":
        issued, words = authority.issue("elsewhere", hosts=["elsewhere.org"]), "its certificate is not for this address"
    else:
        issued, words = authority.issue("expired", valid=timedelta(days=-1)), "its certificate has expired"
    root = f"/fault-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, BOOKIES, directory=tmp_path, settings=tls_settings(issued)) as cluster:
        assert words in failure(cluster, settings)
        if fault == "host":

            async def scenario(bk: BookKeeper) -> None:
                async with await bk.create(**ALL) as ledger:
                    await ledger.append(b"x")

            run(cluster, replace(settings, tls_hostname_verification=False), scenario)
        else:
            await_log(cluster, "has expired on")


def test_a_client_in_clear_text_is_refused(cluster: LocalCluster, settings: ClientSettings) -> None:
    told = failure(cluster, ClientSettings(use_v2=settings.use_v2))
    assert "neither: set tlsProviderFactoryClass and clientAuthProviderFactoryClass" in told
    await_log(cluster, "it came in clear text and tlsRequired=true: turn TLS on at that client")


def test_a_client_with_tls_never_falls_back_to_clear_text(
    zookeeper: Any, settings: ClientSettings, tmp_path: Path
) -> None:
    root = f"/plain-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, BOOKIES, directory=tmp_path, settings=STEADY) as cluster:
        assert "it has no TLS: turn TLS on there, or off here" in failure(cluster, settings)


def test_both_are_served_while_clients_are_moved(
    zookeeper: Any, authority: Authority, settings: ClientSettings, tmp_path: Path
) -> None:
    bookie = tls_settings(authority.issue("both"), tlsRequired="false")
    root = f"/both-{os.urandom(3).hex()}"

    async def scenario(bk: BookKeeper) -> None:
        async with await bk.create(**ALL) as ledger:
            await ledger.append(b"x")

    with local_cluster(zookeeper.address, root, BOOKIES, directory=tmp_path, settings=bookie) as cluster:
        for one in (settings, ClientSettings(use_v2=settings.use_v2)):
            run(cluster, one, scenario)


# --- the wire -------------------------------------------------------------------------------------------------------


def test_clear_text_behind_start_tls_is_never_done(cluster: LocalCluster) -> None:
    _, start = v3_encoder().encode_start_tls()
    _, force = v3_encoder().encode_force(1)
    with RawClient(cluster.bookies[0].port, version=3) as client:
        client.send(start + force)
        assert client.is_closed()


def test_requests_in_clear_text_are_answered_as_unauthorized(cluster: LocalCluster) -> None:
    with RawClient(cluster.bookies[0].port, version=3) as client:
        client.send(v3_encoder().encode_force(1)[1])
        (refusal,) = client.receive()
        assert isinstance(refusal, GenericFailure)
        assert refusal.status is Status.UNAUTHORIZED


def test_a_handshake_without_end_is_given_up_and_nobody_else_waits(
    cluster: LocalCluster, settings: ClientSettings
) -> None:
    with RawClient(cluster.bookies[0].port, version=3) as client:
        client.send(v3_encoder().encode_start_tls()[1])
        (reply,) = client.receive()
        assert isinstance(reply, StartTlsReply)

        async def scenario(bk: BookKeeper) -> None:
            async with await bk.create(**ALL) as ledger:
                await ledger.append(b"x")

        run(cluster, settings, scenario)
        with pytest.raises(ConnectionError):  # startTLSTimeoutSecs=10; aborted, not closed in order
            client.receive()


def test_a_client_that_dies_during_the_handshake_leaves_nothing(
    cluster: LocalCluster, settings: ClientSettings
) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", cluster.bookies[0].port)) as raw:
            raw.sendall(v3_encoder().encode_start_tls()[1])
            raw.recv(100)
            raw.sendall(b"\x16\x03\x01")  # the beginning of a ClientHello

    async def scenario(bk: BookKeeper) -> None:
        async with await bk.create(**ALL) as ledger:
            await ledger.append(b"x")

    run(cluster, settings, scenario)


def test_a_bookie_that_dies_during_the_handshake_is_told_as_such(
    zookeeper: Any, authority: Authority, settings: ClientSettings, cluster: LocalCluster
) -> None:
    """Something that agrees to TLS and then hangs up, at the address of a registered bookie."""

    async def scenario() -> str:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            length = await reader.readexactly(4)
            codec = ServerCodec()
            (request,) = codec.receive(length + await reader.readexactly(int.from_bytes(length, "big")))
            writer.write(codec.reply(request, Status.OK))
            await reader.read(1)
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", cluster.bookies[0].port)
        try:
            async with await BookKeeper.connect(cluster.uri, settings) as bk:
                with pytest.raises(BookKeeperError) as failed:
                    await asyncio.wait_for(bk.bookie_info(cluster.bookies[0].bookie_id), WAIT_S)
                return str(failed.value)
        finally:
            server.close()

    cluster.bookies[0].kill()
    try:
        assert "TLS with bookie" in asyncio.run(scenario())
    finally:
        cluster.bookies[0].start()


# --- start ----------------------------------------------------------------------------------------------------------


def test_a_bookie_whose_files_cannot_work_does_not_start(zookeeper: Any, authority: Authority, tmp_path: Path) -> None:
    issued = replace(authority.issue("one"), key=authority.issue("two").key)
    cluster = local_cluster(
        zookeeper.address, f"/bad-{os.urandom(3).hex()}", 1, directory=tmp_path, settings=tls_settings(issued)
    )
    with pytest.raises(BookKeeperError, match="is not the private key of the first certificate"), cluster:
        raise AssertionError("it started")


def test_a_client_whose_files_cannot_work_says_so_before_it_connects(settings: ClientSettings) -> None:
    broken = replace(settings, client_trust_store="/nowhere/ca.pem", metadata_service_uri="zk://127.0.0.1:1/ledgers")
    with pytest.raises(ConfigurationError, match=r"clientTrustStore=/nowhere/ca\.pem cannot be read"):
        asyncio.run(BookKeeper.connect("zk://127.0.0.1:1/ledgers", broken))


def test_the_registration_says_that_there_is_tls(cluster: LocalCluster, settings: ClientSettings) -> None:
    async def scenario(bk: BookKeeper) -> None:
        bookies = await bk.available_bookies()
        assert len(bookies.writable) == BOOKIES
        for info in bookies.writable.values():
            assert info.endpoints[0].extensions == ("tls",)

    run(cluster, settings, scenario)
