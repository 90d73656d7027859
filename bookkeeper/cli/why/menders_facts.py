"""What can be found out about who makes reported copies good again: one look at a cluster.

Bounds: of bookies that publish an HTTP server ASKED_MAX are asked, as `processes` says, and only where nobody announces
itself. Thread: any; it blocks.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.cli.why.menders import Menders
from bookkeeper.cli.why.processes import ask_processes, whom_to_ask
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.console.http_questions import Address
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import AvailableBookies, BookieId

T = TypeVar("T")

ANY_LEDGER = 0
"""Whether a worker runs is told with what it says of a ledger, whichever that is."""


async def or_error(awaited: Awaitable[T]) -> T | BookKeeperError:
    """An answer, or why there is none."""
    try:
        return await awaited
    except BookKeeperError as error:
        return error


def http_servers_of(available: AvailableBookies) -> dict[BookieId, Address]:
    """Of the bookies that publish one."""
    found: dict[BookieId, Address] = {}
    for bookie_id, info in {**available.read_only, **available.writable}.items():
        server = next((each for each in info.endpoints if each.protocol == "http"), None)
        if server is not None:
            found[bookie_id] = (server.host, server.port)
    return found


def find_menders(uri: str, settings: ClientSettings) -> Menders:
    """Look. Raises ConfigurationError, MetadataUnavailable, NotInitialised."""
    servers: dict[BookieId, Address] = {}

    async def look(client: LedgerClient) -> Menders:
        tree = client.store.underreplication
        enabled, auditor = await or_error(tree.is_enabled()), await or_error(tree.current_auditor())
        processes = await or_error(tree.processes())
        if not isinstance(processes, BookKeeperError) and not processes:
            servers.update(http_servers_of(await client.store.bookies.current()))
        return Menders(enabled, auditor, processes if isinstance(processes, BookKeeperError) else len(processes))

    with connect(uri, settings) as client:
        found = client.run(lambda ledgers: Deferred.fromCoroutine(look(ledgers)))
    asked = whom_to_ask((), (), sorted(servers.items()))
    works = any(answer.works for answer in ask_processes(ANY_LEDGER, asked))
    return Menders(found.enabled, found.auditor, found.announced, works)
