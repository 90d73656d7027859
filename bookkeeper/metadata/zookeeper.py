"""Connecting to the metadata of a cluster in ZooKeeper: the composition of session and store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataUnavailable
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
    settings.session_timeout_s, AccessDenied.
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
    if await until_connected(session, clock, settings.session_timeout_s):
        return ZooKeeperStore(session, where, clock, random, settings)
    await session.close()
    if session.refusal is not None:
        raise session.refusal
    raise MetadataUnavailable(
        f"no answer from {session.description} within {settings.session_timeout_s:g} s; check that it runs, that the "
        f"address in metadataServiceUri ({where}) is right, and that nothing blocks the way"
    )
