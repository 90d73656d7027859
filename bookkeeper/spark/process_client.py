"""One ledger client per process and settings, for code that Spark runs: planners, committers and tasks.

Each of these runs in a Python process of its own that Spark forked and may use again for the next task, so a client is
made at first use, kept, and found again by the process's id and the settings. It lives on a daemon thread, which does
not keep the process from ending; its ZooKeeper session ends with the process.

Bound: CLIENTS_MAX clients; the one that was used least lately is closed when another is needed.
Thread: any.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger, LogLevel

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.logs import start_logging
from bookkeeper.metadata.store import StoreState
from bookkeeper.metadata.znode_store import ZnodeStore

log = Logger()

CLIENTS_MAX = 4

_lock = threading.Lock()
_logging: list[bool] = []
_clients: OrderedDict[tuple[int, ClientSettings], BlockingBookKeeper] = OrderedDict()
_cut_off: set[tuple[int, ClientSettings]] = set()
"""Those of which it was said that they cannot reach their metadata store, until they can."""


def client_of(settings: ClientSettings) -> BlockingBookKeeper:
    """The client of this process with these settings. Not to be closed by who uses it.

    Raises ConfigurationError, MetadataUnavailable, NotInitialised, LayoutMismatch.
    """
    key = (os.getpid(), settings)
    with _lock:
        found = _clients.get(key)
        if found is None:
            for other in [each for each in _clients if each[0] != key[0]]:
                del _clients[other]  # of the process that this one was forked from: its thread is not here
            while len(_clients) >= CLIENTS_MAX:
                _clients.popitem(last=False)[1].close()
            show_warnings()
            found = _clients[key] = connect(settings.metadata_service_uri, settings)
        _clients.move_to_end(key)
        _tell_of_outage(key, found)
        return found


def instance_of(client: BlockingBookKeeper) -> str:
    """The id of the cluster that a client is connected to. Raises MetadataError."""

    async def ask(ledgers: LedgerClient) -> str:
        store = ledgers.store
        assert isinstance(store, ZnodeStore), "a cluster's own metadata store"
        return await store.admin.instance_id()

    return client.run(lambda ledgers: Deferred.fromCoroutine(ask(ledgers)))


def _tell_of_outage(key: tuple[int, ClientSettings], client: BlockingBookKeeper) -> None:
    """Say once that the metadata store cannot be reached, to whoever is about to wait for it."""
    where, state = client.run(lambda ledgers: succeed((ledgers.store.description, ledgers.store.state)))
    if state is StoreState.CONNECTED:
        _cut_off.discard(key)
    elif key not in _cut_off:
        _cut_off.add(key)
        log.warn("{where} cannot be reached; waiting for it", where=where)


def show_warnings() -> None:
    """Send the warnings of client and sources to standard error, which Spark keeps: nothing else starts a log here.

    The driver of a command needs this, too, or it drops the warnings. May be repeated. Warnings of libraries are left
    out: processes that Spark keeps for the next task outlive a ZooKeeper, and no task waits for it.
    """
    if not _logging:
        _logging.append(True)
        start_logging(level=LogLevel.warn, libraries=False)
