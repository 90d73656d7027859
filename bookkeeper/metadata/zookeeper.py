"""Connecting to the metadata of a cluster in ZooKeeper: the composition of session and store."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred

from bookkeeper.errors import MetadataUnavailable, again
from bookkeeper.metadata.outcome import until_connected
from bookkeeper.metadata.session import ZooKeeperSession
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.uri import MetadataUri, parse_uri
from bookkeeper.metadata.znode_store import ZnodeStore

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.ports import Clock


class ZooKeeperStore(ZnodeStore):
    """One process's connection to a cluster's metadata in ZooKeeper."""

    def __init__(
        self, session: ZooKeeperSession, uri: MetadataUri, clock: Clock, random: Random, settings: MetadataSettings
    ) -> None:
        super().__init__(session, uri.root, uri.kind, clock, random, settings)
        self.session = session
        self.uri = uri


def connect(
    uri: str | MetadataUri,
    *,
    clock: Clock,
    call_from_thread: Callable[[Callable[[], object]], object],
    random: Random,
    settings: MetadataSettings | None = None,
) -> Deferred[ZooKeeperStore]:
    """Connect to the servers of a metadataServiceUri. Whether there is a cluster is looked at by `ledgers.prepare`.

    call_from_thread: runs a call on the reactor thread (reactor.callFromThread).
    Raises ConfigurationError for a URI or credentials that cannot be, MetadataUnavailable after
    settings.session_timeout_s or as soon as it is certain that no server's host exists, AccessDenied.
    """
    return Deferred.fromCoroutine(_connect(uri, clock, call_from_thread, random, settings or MetadataSettings()))


async def _connect(
    uri: str | MetadataUri,
    clock: Clock,
    call_from_thread: Callable[[Callable[[], object]], object],
    random: Random,
    settings: MetadataSettings,
) -> ZooKeeperStore:
    where = parse_uri(uri) if isinstance(uri, str) else uri
    session = ZooKeeperSession(where.connect_string, clock, call_from_thread, settings)
    session.start()
    connected = until_connected(session, clock, settings.session_timeout_s)
    unknown: list[str] = []

    def on_unknown(why: str) -> None:
        if not connected.called:
            unknown.append(why)
            if not settings.unknown_host_waits:
                connected.cancel()

    _look_up_hosts(where.servers, lambda why: call_from_thread(lambda: on_unknown(why)))
    try:
        if await connected:
            return ZooKeeperStore(session, where, clock, random, settings)
    except CancelledError:
        if not unknown:
            session.close()
            raise
    await session.close()
    if unknown:
        raise MetadataUnavailable(f"{unknown[0]}; check the address in metadataServiceUri ({where})")
    if session.refusal is not None:
        raise again(session.refusal)
    raise MetadataUnavailable(
        f"no answer from {session.description} within {settings.session_timeout_s:g} s; check that it runs, that the "
        f"address in metadataServiceUri ({where}) is right, and that nothing blocks the way"
    )


def _look_up_hosts(servers: Sequence[str], on_unknown: Callable[[str], object]) -> None:
    """Call `on_unknown`, on a thread of its own, if the resolver is sure that none of the servers' hosts exists.

    A resolver that cannot tell now may be able to later, and kazoo asks it again with every attempt.
    """
    hosts = [server.rpartition(":")[0].strip("[]") for server in servers]

    def look_up() -> None:
        for host in hosts:
            try:
                socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except socket.gaierror as error:
                if error.errno != socket.EAI_NONAME:
                    return
            else:
                return
        on_unknown(f"no such host: {', '.join(hosts)}")

    threading.Thread(target=look_up, name="zookeeper-hosts", daemon=True).start()
