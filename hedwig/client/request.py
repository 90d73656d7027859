"""One request to whichever hub serves a topic: redirects, hubs that are gone, and when to give up.

    no hub known --any hub--> 501 names another --there, with a claim--> answered
                              501 names nobody, busy elsewhere, no connection: wait a little, any hub again

Thread: reactor. Source: hedwig/PROTOCOL.md 2.14.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred

from bookkeeper.errors import ClientClosed, ConnectFailed, again
from hedwig.client.hubs import Hubs, Waits
from hedwig.client.link import HubLink
from hedwig.client.settings import name_of
from hedwig.errors import PubSubError, ServiceDown, UncertainState, error_of
from hedwig.model import HubAddress, Status, Topic
from hedwig.wire.records import parse_address
from hedwig.wire.responses import Answer

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

REDIRECTS_MAX = 8
"""Redirects followed without waiting."""

MakeFrame = Callable[[int, bool], bytes]
"""Of the request's id, and whether the hub should claim the topic."""

OnLate = Callable[[HubLink, Answer], object]


def connected(link: HubLink) -> str:
    """What is waited for, where a hub was asked."""
    return f"waiting for hub {link.name}: connected, no answer yet"


def trying_again(topic: Topic, why: str) -> str:
    """What is waited for, where the last attempt failed."""
    return f"topic {topic.decode(errors='replace')} is tried again: {why}"


class Waiting:
    """An answer that is waited for. See Asked. on_late: told of an answer that nobody waits for any more."""

    def __init__(self, on_late: OnLate) -> None:
        self.answer: Deferred[Answer] = Deferred()
        self._on_late = on_late

    def on_answer(self, link: HubLink, answer: Answer) -> None:
        """The hub answered."""
        if self.answer.called:
            self._on_late(link, answer)
        else:
            self.answer.callback(answer)

    def on_unknown(self, link: HubLink, error: PubSubError) -> None:
        """The connection ended first."""
        if not self.answer.called:
            self.answer.errback(again(error))


def pause(clock: Clock, delay_s: float) -> Deferred[None]:
    """Fires after so many seconds; may be cancelled."""
    timer: Any = None
    waiting: Deferred[None] = Deferred(lambda _: timer.cancel() if timer.active() else None)
    timer = clock.callLater(delay_s, waiting.callback, None)
    return waiting


class Asker:
    """Asks the hub of a topic. Requests that may be done twice only: what became unknown is asked again."""

    def __init__(self, clock: Clock, hubs: Hubs) -> None:
        self._clock, self._hubs = clock, hubs

    async def ask(
        self,
        topic: Topic,
        make: MakeFrame,
        connect: Callable[[HubAddress], Awaitable[HubLink]],
        *,
        timeout_s: float | None = None,
        on_link: Callable[[HubLink], object] = lambda link: None,
        on_late: OnLate = lambda link, answer: None,
        again_on: tuple[Status, ...] = (),
    ) -> tuple[Answer, HubLink]:
        """The answer SUCCESS, and where it came from. Raises the error of any other.

        connect: the connection to a hub that is to be used. timeout_s: how long it is tried; None: for ever. on_link:
        told before each attempt. on_late: told of an answer that came when it was not waited for any more. again_on:
        statuses that are no answer yet.
        """
        waits = Waits(self._clock.seconds(), "waiting for a connection to a hub")
        self._hubs.waits[waits] = None
        try:
            return await self._ask(topic, make, connect, timeout_s, on_link, on_late, again_on, waits)
        finally:
            del self._hubs.waits[waits]

    async def _ask(
        self,
        topic: Topic,
        make: MakeFrame,
        connect: Callable[[HubAddress], Awaitable[HubLink]],
        timeout_s: float | None,
        on_link: Callable[[HubLink], object],
        on_late: OnLate,
        again_on: tuple[Status, ...],
        waits: Waits,
    ) -> tuple[Answer, HubLink]:
        clock, hubs = self._clock, self._hubs
        deadline = None if timeout_s is None else clock.seconds() + timeout_s
        target: HubAddress | None = None
        redirects = failures = 0
        while True:
            error: Exception
            try:
                async with hubs.asking:
                    address = target or hubs.route(topic) or hubs.any_hub()
                    link = await connect(address)
                    if not failures:
                        waits.text = connected(link)
                    on_link(link)
                    waiting = Waiting(on_late)
                    claim = target is not None
                    link.ask(lambda txn_id, claim=claim: make(txn_id, claim), waiting)  # type: ignore[misc]
                    answer = await self._bounded(link, waiting, deadline)
            except ConnectFailed as failed:
                error = failed
            except (ClientClosed, CancelledError):
                raise
            except PubSubError as unknown:
                error = unknown
            else:
                if answer.status == Status.SUCCESS:
                    hubs.learn(topic, link.address)
                    return answer, link
                owner = _owner(answer)
                if answer.status == Status.NOT_RESPONSIBLE_FOR_TOPIC:
                    hubs.forget(topic)
                    named = "no other" if owner is None else name_of(owner)
                    error = ServiceDown(f"hub {link.name} does not serve the topic, and names {named}")
                    if owner is not None and owner != link.address and redirects < REDIRECTS_MAX:
                        redirects += 1
                        hubs.met(owner)
                        target = owner
                        continue
                else:
                    error = error_of(Status(answer.status), answer.text)
                    if not isinstance(error, (ServiceDown, UncertainState)) and answer.status not in again_on:
                        raise error
            if hubs.closed:
                raise ClientClosed("the client was closed before a hub answered")
            no_hub = hubs.no_hub()
            if no_hub is not None:
                raise no_hub from error
            waits.text = trying_again(topic, str(error))
            hubs.forget(topic)
            target, redirects = None, 0
            failures += 1
            delay = hubs.pause_s(failures)
            if deadline is not None and clock.seconds() + delay > deadline:
                if isinstance(error, PubSubError):
                    raise error
                raise ServiceDown(f"topic {topic!r}: no hub answered in time; the last failure: {error}") from error
            await pause(clock, delay)

    async def _bounded(self, link: HubLink, waiting: Waiting, deadline: float | None) -> Answer:
        """Not longer than a call may take: a hub that lives may be stuck with one topic, and others want their turn."""
        clock = self._clock
        left_s = self._hubs.settings.retry_timeout_s if deadline is None else max(0.0, deadline - clock.seconds())
        error = UncertainState(f"hub {link.name} has not answered in time; it may have been done or not")
        timer = clock.callLater(left_s, waiting.on_unknown, link, error)
        try:
            return await waiting.answer
        finally:
            if timer.active():
                timer.cancel()


def _owner(answer: Answer) -> HubAddress | None:
    if answer.status != Status.NOT_RESPONSIBLE_FOR_TOPIC or not answer.text:
        return None
    try:
        return parse_address(answer.text)
    except ValueError:
        return None
