"""A ledger client that is connected when somebody first needs one, and kept.

It has a session with ZooKeeper of its own: whatever is asked over HTTP, the server's registration goes on undisturbed.
A failed attempt is nobody's fault for ever: the next request tries again. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.parallel import tell_all
from bookkeeper.errors import ClientClosed

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.config import ClientSettings

MakeSettings = Callable[[Mapping[str, str]], "ClientSettings"]
"""Client settings, with these keys changed. Raises ConfigurationError: a bookie's conf file need not make a client."""


class LedgerAccess:
    """Connects by `settings` to the cluster of the metadata service URI in them."""

    def __init__(self, reactor: Any, settings: MakeSettings) -> None:
        self._reactor, self._settings = reactor, settings
        self._client: LedgerClient | None = None
        self._waiting: list[Deferred[LedgerClient]] | None = None  # while it is being connected
        self._closed = False

    def client(self) -> Deferred[LedgerClient]:
        """The client. Fails with ConfigurationError, MetadataUnavailable, NotInitialised, ClientClosed."""
        answer: Deferred[LedgerClient] = Deferred()
        if self._closed:
            answer.errback(ClientClosed("the server is stopping"))
        elif self._client is not None:
            answer.callback(self._client)
        elif self._waiting is not None:
            self._waiting.append(answer)
        else:
            self._waiting = [answer]
            Deferred.fromCoroutine(self.connect({})).addBoth(self._connected)
        return answer

    async def connect(self, changes: Mapping[str, str]) -> LedgerClient:
        """Another client, with these keys changed; the caller closes it. Fails likewise."""
        from bookkeeper.client.connecting import connect_to  # a third of a client's start is importing it

        settings = self._settings(changes)
        return await connect_to(settings.metadata_service_uri, self._reactor, settings)

    def _connected(self, result: LedgerClient | Failure) -> None:
        waiting, self._waiting = self._waiting or [], None
        if isinstance(result, Failure):
            tell_all(waiting, result)
            return
        if self._closed:
            result.close()
            for answer in waiting:
                answer.errback(ClientClosed("the server is stopping"))
            return
        self._client = result
        for answer in waiting:
            answer.callback(result)

    async def close(self) -> None:
        """End it; later requests fail."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()
