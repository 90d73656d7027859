"""The end of a topic: its last acknowledged message, as its ledger and the hub that serves it know it.

The bookies of the ledger that is being written know of the last messages that they are acknowledged with the next one,
or within the hub's explicitLacInterval. Where they hold more than they know to be acknowledged, the hub that the
topic's record names is asked (option hw.end of hedwig.protocol.options). It is asked without a claim, so nothing moves;
a topic that no hub serves is left alone. Hubs of other programs do not answer: then the end is not known, and whoever
reads reports it.

Thread: reactor.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bookkeeper.errors import BookKeeperError, ConnectFailed, again
from hedwig.client.asking import Waiting
from hedwig.client.connecting import core_settings
from hedwig.client.hubs import Hubs
from hedwig.client.link import HubLink
from hedwig.errors import ServiceDown, UncertainState
from hedwig.model import FIRST_ID, HubAddress, LedgerRange, LocalId, Status, SubscribeMode, Topic
from hedwig.names import shown
from hedwig.protocol.options import END_SUBSCRIBER, end_of, end_question
from hedwig.wire.requests import subscribe_frame

if TYPE_CHECKING:
    from bookkeeper.client.reader import ReadHandle
    from bookkeeper.ports import Clock, Network
    from hedwig.admin.region import Region
    from hedwig.client_config import HedwigClientSettings

TIMEOUT_S = 3.0
"""For a connection to a hub, and for an answer. A reader waits no longer to know the last second of a topic."""


class TopicEnds:
    """Hubs that are asked for the ends of topics: one connection each, until `close`.

    A hub that could not be connected to is not tried again.
    """

    def __init__(self, clock: Clock, network: Network, settings: HedwigClientSettings) -> None:
        self._clock, self._network = clock, network
        self._settings = replace(core_settings(settings), connect_timeout_s=TIMEOUT_S)
        if settings.tls:
            from hedwig.client.secure import SecureNetwork, TrustedHubs  # OpenSSL only for those who use it

            self._network = SecureNetwork(network, clock, TrustedHubs(settings))
        self._hubs: Hubs | None = None
        self._failed: dict[HubAddress, ConnectFailed] = {}

    async def ask(self, topic: Topic, hub: HubAddress) -> LocalId:
        """Return the last message that the hub has acknowledged, 0 where there is none.

        Raises BookKeeperError: the hub does not serve the topic, does not answer, or does not know the question.
        """
        link = await self._link(hub)
        waiting = Waiting(lambda link, answer: None)
        link.ask(lambda txn_id: _question(txn_id, topic), waiting)
        silent = UncertainState(f"hub {link.name} did not answer within {TIMEOUT_S:g} s")
        timer = self._clock.callLater(TIMEOUT_S, waiting.on_unknown, link, silent)
        try:
            answer = await waiting.answer
        finally:
            if timer.active():
                timer.cancel()
        if answer.status == Status.NOT_RESPONSIBLE_FOR_TOPIC:
            raise ServiceDown(f"hub {link.name} does not serve it any more")
        found = None if answer.preferences is None else end_of(answer.preferences)
        if answer.status != Status.SUCCESS or found is None:
            said = f", and says: {answer.text}" if answer.text else ""
            raise ServiceDown(f"hub {link.name} does not say how far it has acknowledged{said}")
        return found

    async def _link(self, hub: HubAddress) -> HubLink:
        if hub in self._failed:
            raise again(self._failed[hub])
        if self._hubs is None:
            self._hubs = Hubs(self._clock, self._network, random.Random(), [hub], self._settings)
        try:
            link = self._hubs.link(hub, "publish")
            return link if isinstance(link, HubLink) else await link
        except ConnectFailed as error:
            self._failed[hub] = error
            raise

    def close(self) -> None:
        """End all connections."""
        if self._hubs is not None:
            self._hubs.close()


def _question(txn_id: int, topic: Topic) -> bytes:
    return subscribe_frame(
        txn_id, topic, END_SUBSCRIBER, SubscribeMode.ATTACH, end_question(), synchronous=False, should_claim=False
    )


class End(NamedTuple):
    """last: the last message known to be acknowledged, the one before the ledger's first where none is.

    unconfirmed: for people, which later ones may be acknowledged too; None where there are none.
    """

    last: LocalId
    unconfirmed: str | None = None


async def end_of_topic(
    region: Region, topic: Topic, ledger: LedgerRange, handle: ReadHandle, ends: TopicEnds, *, at_least: int = 0
) -> End:
    """Return the end of a topic, whose last ledger was opened just now.

    at_least: a message that is known to be acknowledged, if any is. Raises BookKeeperError where the record of the
    topic's hub cannot be read.
    """
    base = ledger.first or FIRST_ID
    confirmed = LocalId(max(base + handle.last_add_confirmed, at_least))
    stored: LocalId | None = None
    try:
        stored = LocalId(base + await handle.last_stored())
    except BookKeeperError as error:
        later = f"whether later ones are acknowledged is unknown ({error})"
    else:
        if handle.closed or stored <= confirmed:
            return End(max(confirmed, LocalId(base + handle.last_add_confirmed)))
        named = f"message {stored} is" if stored == confirmed + 1 else f"messages {confirmed + 1} to {stored} are"
        later = f"{named} stored and may be acknowledged too"
    try:
        owner = (await region.metadata.look(topic)).owner
        if owner is None:
            raise ServiceDown("no hub serves the topic now; the one that takes it over fixes its end")
        known = await ends.ask(topic, owner.address)
    except BookKeeperError as error:
        return End(confirmed, f"{_known(topic, confirmed)}; {later} ({error})")
    if known <= confirmed:
        return End(confirmed)
    if stored is None:
        return End(confirmed, f"{_known(topic, confirmed)} by its bookies; its hub has acknowledged up to {known}")
    return End(min(known, stored))


def _known(topic: Topic, confirmed: int) -> str:
    last = f"message {confirmed} is the last one" if confirmed >= FIRST_ID else "no message is"
    return f"topic {shown(topic)!r}: {last} known to be acknowledged"
