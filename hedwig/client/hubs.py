"""Which hub serves a topic, as far as known, and the connections to hubs.

    topic known  -> its hub
    not known    -> one of the hubs that the client was given, or has met; it answers, or names another

A connection carries publishes or subscriptions, never both, so that deliveries do not hold up publishes. Hubs that
could not be reached are asked last. Bounds: topics remembered, hubs remembered. Thread: reactor. Source:
hedwig/PROTOCOL.md 2.13, 2.14.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.parallel import tell_all
from bookkeeper.errors import ClientClosed, ConfigurationError, ConnectFailed, RemoteProtocolError
from hedwig.client.link import HubLink, Turns
from hedwig.client.settings import PubSubSettings, backoff, name_of, port_of
from hedwig.errors import NoHub
from hedwig.model import HubAddress, Topic

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Network

Kind = Literal["publish", "subscribe"]

ROUTES_MAX = 1_000_000
HUBS_MAX = 1_000

ASKED_AT_ONCE = 500
"""Requests for answers at a time, publishes apart: who holds a hundred thousand subscriptions attaches them anew in
turns when their hub is gone."""


class Asking:
    """So many at a time; others wait in their order. An asynchronous context manager.

    Unlike Twisted's semaphore it does not look through all that wait when one gives up, nor does the end of one run
    that of the next within it: there may be a hundred thousand.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: OrderedDict[Deferred[None], None] = OrderedDict()
        self._letting_in = False

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        waiting: Deferred[None] = Deferred(self._given_up)
        self._waiting[waiting] = None
        await waiting

    def _given_up(self, waiting: Deferred[None]) -> None:
        del self._waiting[waiting]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free += 1
        if self._letting_in:
            return
        self._letting_in = True
        try:
            while self._free and self._waiting:
                waiting, _ = self._waiting.popitem(last=False)
                self._free -= 1
                waiting.callback(None)
        finally:
            self._letting_in = False


SILENT_ENDS = 5
SILENT_ENDS_S = 2.0
"""An address that ended so many connections without ever a word, for so long, is no hub's. One that is starting behind
a proxy may do so for a moment."""


FOREIGN_ENDS = 2
"""An address that answered so many connections with what no hub says is none."""


class _Suspect:
    """An address that has never spoken as a hub does. foreign: what it said instead."""

    def __init__(self, now: float) -> None:
        self.since, self.ends, self.foreign_ends = now, 0, 0
        self.foreign: RemoteProtocolError | None = None

    @property
    def is_foreign(self) -> bool:
        """It said so more than once: a hub may have said something wrong once."""
        return self.foreign_ends >= FOREIGN_ENDS


class Waits:
    """A request that is waited for. text: for what, at the moment."""

    def __init__(self, now: float, text: str) -> None:
        self.since, self.text = now, text


class Hubs:
    """Routes and connections of one client."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        rng: random.Random,
        given: Sequence[HubAddress],
        settings: PubSubSettings,
    ) -> None:
        if not given:
            raise ConfigurationError("no hub to ask: give the address of at least one, as host:port")
        self.settings = settings
        self.turns = Turns(clock, settings.linger_s)
        self._clock, self._network, self._rng = clock, network, rng
        self.given = tuple(dict.fromkeys(given))
        self._hubs: OrderedDict[HubAddress, None] = OrderedDict.fromkeys(given)  # the last ones failed last
        self._routes: OrderedDict[Topic, HubAddress] = OrderedDict()
        self._links: dict[tuple[HubAddress, Kind], HubLink] = {}
        self._connecting: dict[tuple[HubAddress, Kind], list[Deferred[HubLink]]] = {}
        self._all: set[HubLink] = set()
        self._suspects: dict[HubAddress, _Suspect] = {}
        self._known: set[HubAddress] = set()  # those that answered once
        self.asking = Asking(ASKED_AT_ONCE)
        self.waits: dict[Waits, None] = {}
        """In their order."""
        self.closed = False

    # --- routes

    def route(self, topic: Topic) -> HubAddress | None:
        """Where the topic was served last."""
        return self._routes.get(topic)

    def learn(self, topic: Topic, address: HubAddress) -> None:
        """The hub serves this topic."""
        if self._routes.get(topic) is not address:
            self._routes[topic] = address
            if len(self._routes) > ROUTES_MAX:
                self._routes.popitem(last=False)

    def forget(self, topic: Topic) -> None:
        """It does no more."""
        self._routes.pop(topic, None)

    def any_hub(self) -> HubAddress:
        """Whom to ask where nobody is known; one of those that did not fail last, at random."""
        hubs = list(self._hubs)
        return self._rng.choice(hubs[: max(1, (len(hubs) + 1) // 2)])

    def met(self, address: HubAddress) -> None:
        """Another hub was named by one."""
        if address not in self._hubs:
            self._hubs[address] = None
            if len(self._hubs) > HUBS_MAX:
                # Those that were given stay: the others may all be gone one day.
                oldest = next((each for each in self._hubs if each not in self.given), None)
                if oldest is not None:
                    del self._hubs[oldest]

    def _failed(self, address: HubAddress) -> None:
        if address in self._hubs:
            self._hubs.move_to_end(address)

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return backoff(self.settings, failures, self._rng)

    # --- connections

    def link(self, address: HubAddress, kind: Kind) -> HubLink | Deferred[HubLink]:
        """The connection to a hub that is shared; made where there is none. Fails with ConnectFailed, ClientClosed."""
        found = self._links.get((address, kind))
        if found is not None:
            return found
        self._check_open()
        waiting: Deferred[HubLink] = Deferred()
        others = self._connecting.setdefault((address, kind), [])
        others.append(waiting)
        if len(others) == 1:
            self.dial(address).addBoth(self._connected, address, kind)
        return waiting

    def _connected(self, result: HubLink | Failure, address: HubAddress, kind: Kind) -> None:
        if not isinstance(result, Failure):
            self._links[address, kind] = result
        tell_all(self._connecting.pop((address, kind)), result)

    def dial(self, address: HubAddress) -> Deferred[HubLink]:
        """A new connection. Fails with ConnectFailed, ClientClosed."""
        return Deferred.fromCoroutine(self._dial(address))

    async def _dial(self, address: HubAddress) -> HubLink:
        self._check_open()
        settings = self.settings
        port = port_of(settings, address)
        if port is None:
            self._failed(address)
            raise ConnectFailed(f"hub {name_of(address)} offers no TLS: set ssl_enabled there, or connect without it")
        name = name_of(address) if port == address.port else f"{name_of(address)} (its TLS port {port})"
        link = HubLink(
            self._clock,
            address,
            self._lost,
            answer_timeout_s=settings.answer_timeout_s,
            heartbeat_s=settings.heartbeat_s,
            turns=self.turns,
            frame_size_max=settings.frame_size_max,
        )
        self._all.add(link)
        try:
            address.host.encode("idna")  # here, as resolvers break at what is none
            await self._network.connect(address.host, port, link, timeout_s=settings.connect_timeout_s)
        except (ConnectFailed, OSError, ValueError) as error:  # ValueError: a name that can be no host's
            link.connectionLost(None)
            raise ConnectFailed(f"hub {name} cannot be reached: {str(error).rstrip('.')}") from error
        except BaseException:
            link.closed_here = True  # the waiting was cancelled: it is nobody's fault
            link.connectionLost(None)
            raise
        try:
            self._check_open()
        except ClientClosed:
            link.abort()
            raise
        if link.lost:
            raise ConnectFailed(f"hub {name} ended the connection at once")
        if address in self._suspects:
            link.beat()  # any hub answers that, though it may end the connection because of what is asked next
        return link

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed("the client is closed; connect again")

    def _lost(self, link: HubLink) -> None:
        self._all.discard(link)
        self._note_end(link)
        if not link.closed_here:
            self._failed(link.address)
        for kind in ("publish", "subscribe"):
            if self._links.get((link.address, kind)) is link:
                del self._links[link.address, kind]

    def _note_end(self, link: HubLink) -> None:
        address = link.address
        if link.heard or self._is_heard(address):
            if len(self._known) >= HUBS_MAX:
                self._known.clear()
            self._known.add(address)
            self._suspects.pop(address, None)
        elif address in self._hubs and address not in self._known and (link.foreign or link.was_left_unanswered):
            suspect = self._suspects.setdefault(address, _Suspect(self._clock.seconds()))
            suspect.ends += 1
            if link.foreign is not None:
                suspect.foreign = link.foreign
                suspect.foreign_ends += 1

    def _is_heard(self, address: HubAddress) -> bool:
        return any(each.heard for each in self._all if each.address == address)

    def no_hub(self) -> NoHub | None:
        """Where nothing that could be asked is a hub: why that is certain enough to try no longer."""
        now, found = self._clock.seconds(), []
        for address in self._hubs:
            suspect = self._suspects.get(address)
            if suspect is None or self._is_heard(address):
                return None
            if suspect.is_foreign:
                found.append(f"{name_of(address)} is no hub: it answers what no hub says ({suspect.foreign})")
            elif suspect.ends >= SILENT_ENDS and now - suspect.since >= SILENT_ENDS_S:
                found.append(
                    f"{name_of(address)} is no hub: it ended {suspect.ends} connections, and answered on none of them"
                )
            else:
                return None
        return NoHub(
            f"{'; '.join(found)}. Give a hub's address, host:port (4080 usually; its TLS port needs ssl_enabled=true)"
        )

    @property
    def are_foreign(self) -> bool:
        """All that was asked says what no hub says: nothing was done there."""
        return all(each in self._suspects and self._suspects[each].is_foreign for each in self._hubs)

    def expire(self) -> None:
        """Give up publishes whose deadline has passed."""
        for link in list(self._all):
            link.expire()

    def close(self) -> None:
        """End all connections, once what was written has left."""
        self.closed = True
        for link in list(self._all):
            link.close()

    def abort(self) -> None:
        """End all connections at once."""
        self.closed = True
        for link in list(self._all):
            link.abort()
