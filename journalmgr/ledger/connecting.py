"""Building a journal on ledgers from the parts of its URI: bookkeeper://ZK1:2181;ZK2:2181/ROOT.

One ZooKeeper session serves the ledger client and the journal, as in Hadoop. The reactor is passed in. The one
place that wires.
"""

from __future__ import annotations

import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.client.connecting import connect_to, metadata_settings
from bookkeeper.clock import clock_of
from bookkeeper.config import ClientSettings
from bookkeeper.errors import ConfigurationError, InvalidArgument
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.uri import DEFAULT_ROOT
from bookkeeper.metadata.zookeeper import ZooKeeperStore
from bookkeeper.system.addresses import own_address
from journalmgr.errors import JournalError
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.ledger.outcome import told
from journalmgr.ledger.settings import LedgerJournalSettings, default_client_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from journalmgr.model import NamespaceInfo


def connect(
    servers: Sequence[str],
    root: str,
    reactor: Any,
    namespace: NamespaceInfo | None = None,
    settings: LedgerJournalSettings | None = None,
    client_settings: ClientSettings | None = None,
    *,
    ledgers_root: str = DEFAULT_ROOT,
    hostname: str | None = None,
) -> Deferred[LedgerJournal]:
    """Connect to a journal, which need not be formatted yet. Closing it closes client and session.

    servers: ZooKeeper's, host:port each. root: the journal's znode. ledgers_root: where the bookies are.
    namespace: whose journal it must be; None for whoever only reads. hostname: "name/address"; found if None.
    Fails with InvalidArgument, JournalUnavailable, JournalError.
    """
    return Deferred.fromCoroutine(
        _connect(servers, root, reactor, namespace, settings, client_settings, ledgers_root, hostname)
    )


async def _connect(
    servers: Sequence[str],
    root: str,
    reactor: Any,
    namespace: NamespaceInfo | None,
    settings: LedgerJournalSettings | None,
    client_settings: ClientSettings | None,
    ledgers_root: str,
    hostname: str | None,
) -> LedgerJournal:
    check_root(root)
    settings = settings or LedgerJournalSettings()
    client_settings = client_settings or default_client_settings()
    store_settings = metadata_settings(client_settings)
    clock = clock_of(reactor)
    found: list[ZooKeeperStore] = []

    async def make_available_path(store: ZooKeeperStore) -> None:
        # As Hadoop does before it builds its client: bookies that start later find where to register.
        found.append(store)
        errand = Errand(store.tree, clock, store_settings, f"create {settings.available_path}")
        with told(f"Couldn't create bookie available path {settings.available_path}"):
            await errand.ensure_all(settings.available_path)

    uri = f"bookkeeper://{';'.join(servers)}{root}"
    with told_of(uri), told(f"Error connecting to the journal {root} at {';'.join(servers)}"):
        client = await connect_to(
            f"zk://{';'.join(servers)}{ledgers_root}", reactor, client_settings, prepare=make_available_path
        )
    [store] = found
    return LedgerJournal(
        client,
        store.tree,
        clock,
        store_settings,
        root,
        namespace,
        settings,
        hostname=local_hostname() if hostname is None else hostname,
        on_close=client.close,
    )


_NAMES_THE_SETTING = re.compile(r"metadataServiceUri \([^)]*\)")


@contextmanager
def told_of(uri: str) -> Iterator[None]:
    """Errors of connecting, in terms of the journal: nobody who names one wrote a metadataServiceUri."""
    try:
        yield
    except JournalError as error:
        text, count = _NAMES_THE_SETTING.subn(lambda _: f"the journal's URI ({uri})", str(error))
        if not count:
            raise
        raise type(error)(text) from error


def check_root(root: str) -> None:
    """Raise InvalidArgument unless this can be a journal's znode."""
    parts = root.split("/")
    if len(parts) < 2 or parts[0] or not all(parts[1:]) or {".", ".."} & set(parts) or root == "/zookeeper":
        raise InvalidArgument(f"{root!r} cannot be the znode of a journal: want a path such as /hdfsjournal")


def local_hostname() -> str:
    """This host as Java's InetAddress.getLocalHost() prints it: "name/address"."""
    name = socket.gethostname()
    try:
        return f"{name}/{own_address(None)}"
    except ConfigurationError:
        return f"{name}/127.0.0.1"
