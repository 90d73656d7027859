"""The end of a topic: its last acknowledged message, from the newest ledger and the hub that serves the topic.

The bookies of the ledger that is being written learn that a message is acknowledged with the next message, or within
the hub's explicitLacInterval. Where they store messages behind the last one known to be acknowledged, the hub that the
topic's record names is asked (option hw.end of hedwig.protocol.options). The request does not claim the topic, so the
topic does not move; for a topic without a hub none is asked. Apache's hubs do not answer the question. Then the end is
unknown, and the reader reports it.

Thread: reactor.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bookkeeper.errors import BookKeeperError, ConnectFailed, again
from hedwig.client.connecting import core_settings
from hedwig.client.hubs import Hubs
from hedwig.client.link import HubLink
from hedwig.client.request import Waiting
from hedwig.errors import ServiceDown, UncertainState
from hedwig.model import FIRST_ID, HubAddress, LedgerRange, LocalId, Status, SubscribeMode, Topic
from hedwig.names import shown
from hedwig.protocol.options import END_SUBSCRIBER, end_of, end_question
from hedwig.wire.requests import subscribe_frame

if TYPE_CHECKING:
    from bookkeeper.client.read.read_handle import ReadHandle
    from bookkeeper.ports import Clock, Network
    from hedwig.admin.region import Region
    from hedwig.client_config import HedwigClientSettings

TIMEOUT_S = 3.0
"""Timeout of a connection to a hub, and of its answer: a reader waits no longer for the last second of a topic."""


class TopicEnds:
    """Connections to hubs that are asked for the ends of topics: one for each hub, until `close`.

    A hub that could not be reached, or did not answer a question in time, is not tried again: it may serve thousands of
    topics.
    """

    def __init__(self, clock: Clock, network: Network, settings: HedwigClientSettings) -> None:
        self._clock, self._network = clock, network
        self._settings = replace(core_settings(settings), connect_timeout_s=TIMEOUT_S)
        if settings.tls:
            from hedwig.client.tls import SecureNetwork, TrustedHubs  # OpenSSL only for those who use it

            self._network = SecureNetwork(network, clock, TrustedHubs(settings))
        self._hubs: Hubs | None = None
        self._failed: dict[HubAddress, BookKeeperError] = {}
        self._answers: Counter[HubAddress] = Counter()

    async def ask(self, topic: Topic, hub: HubAddress) -> LocalId:
        """Return the last message that the hub has acknowledged, 0 if there is none.

        Raises BookKeeperError if the hub does not serve the topic, does not answer, or does not support the question.
        """
        link = await self._link(hub)
        waiting = Waiting(lambda link, answer: None)
        link.ask(lambda txn_id: _question(txn_id, topic), waiting)
        answers = self._answers[hub]
        silent = UncertainState(f"hub {link.name} did not answer within {TIMEOUT_S:g} s")
        timer = self._clock.callLater(TIMEOUT_S, waiting.on_unknown, link, silent)
        try:
            answer = await waiting.answer
        except UncertainState as error:
            if self._answers[hub] == answers:  # otherwise it may only be stuck with this topic
                self._failed[hub] = error
            raise
        finally:
            if timer.active():
                timer.cancel()
        self._answers[hub] += 1
        if answer.status == Status.NOT_RESPONSIBLE_FOR_TOPIC:
            raise ServiceDown(f"hub {link.name} no longer serves the topic")
        found = None if answer.preferences is None else end_of(answer.preferences)
        if answer.status != Status.SUCCESS or found is None:
            text = f": {answer.text}" if answer.text else ""
            raise ServiceDown(f"hub {link.name} did not return its last acknowledged message{text}")
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
        """Close all connections."""
        if self._hubs is not None:
            self._hubs.close()


def _question(txn_id: int, topic: Topic) -> bytes:
    return subscribe_frame(
        txn_id, topic, END_SUBSCRIBER, SubscribeMode.ATTACH, end_question(), synchronous=False, should_claim=False
    )


class End(NamedTuple):
    """The end of a topic.

    last: the last message known to be acknowledged; if none is, the id before the ledger's first message.
    unconfirmed: text that names later messages that may be acknowledged too; None if there are none.
    """

    last: LocalId
    unconfirmed: str | None = None


async def end_of_topic(
    region: Region, topic: Topic, ledger: LedgerRange, handle: ReadHandle, ends: TopicEnds, *, at_least: int = 0
) -> End:
    """Return the end of a topic.

    ledger, handle: its newest ledger, opened just now. at_least: a message known to be acknowledged, 0 if none is.
    Failures to read the topic's record or to ask its hub are reported in `End.unconfirmed`.
    """
    base = ledger.first or FIRST_ID
    confirmed = LocalId(max(base + handle.last_add_confirmed, at_least))
    stored: LocalId | None = None
    try:
        stored = LocalId(base + await handle.last_stored())
    except BookKeeperError as error:
        later = f"whether later messages are acknowledged is unknown ({error})"
    else:
        if handle.closed or stored <= confirmed:
            return End(max(confirmed, LocalId(base + handle.last_add_confirmed)))
        named = f"message {stored} is" if stored == confirmed + 1 else f"messages {confirmed + 1} to {stored} are"
        later = f"{named} stored and may be acknowledged too"
    try:
        owner = (await region.metadata.look(topic)).owner
        if owner is None:
            raise ServiceDown("no hub serves the topic now; the next hub that serves it fixes its end")
        known = await ends.ask(topic, owner.address)
        ended = await _ended(region, topic, ledger)
    except BookKeeperError as error:
        return End(confirmed, f"{_known(topic, confirmed)}; {later} ({error})")
    if ended is not None:
        return End(ended)
    if known <= confirmed:
        return End(confirmed)
    if stored is None:
        return End(
            confirmed, f"{_known(topic, confirmed)} by its bookies; its hub has acknowledged up to message {known}"
        )
    return End(min(known, stored))


async def _ended(region: Region, topic: Topic, ledger: LedgerRange) -> LocalId | None:
    """Return the end of a ledger that was ended since it was opened; None if it is still being written.

    A hub that takes the topic over may end the ledger before messages that are stored and not acknowledged. It gives
    their ids to other messages in the next ledger, so the messages that it acknowledges are not in this one. It writes
    the list of ledgers first. Raises BookKeeperError.
    """
    listed = (await region.metadata.ranges(topic)).value
    found = next((each for each in listed if each.ledger_id == ledger.ledger_id), None)
    if found is None:
        raise ServiceDown(f"ledger {ledger.ledger_id} was deleted during the read")
    return None if found.last is None else found.last.local


def _known(topic: Topic, confirmed: int) -> str:
    last = f"message {confirmed} is the last one" if confirmed >= FIRST_ID else "no message is"
    return f"topic {shown(topic)!r}: {last} known to be acknowledged"
