"""Which hub delivers a subscription: attached, attached anew when that hub is lost, let go of.

                  subscribe                    SUCCESS                      connection lost, topic moved
    new ------------------------> attaching ------------> attached ----------------------------------+
                                      ^                       |                                       |
                                      +---- again, ATTACH ----|---------------------------------------+
                                                              +-- forced off, unsubscribed elsewhere --> failed

Where it is to begin instead is said until a hub has granted it, and not again: another client may have had it begin
elsewhere meanwhile, and to a hub each change is a wish.

A request, also after a move, names only the preferences that the caller named, since a hub overwrites stored
preferences with them. The client's own window is a separate field, for a subscription without a stored window
(`subscribe_frame`). Two alternatives do not work. CREATE first, then ATTACH after a refusal: Apache's hubs close the
connection after a refused subscribe, and with it all subscriptions that share it. ATTACH first, then a second request
with the window: its answer waits behind deliveries on a connection that may not be read.

A hub that ends every connection after the same message is not asked again and again without a pause. Thread: reactor.
Source: hedwig/PROTOCOL.md 2.3, 2.4, 2.13-2.16, 7.3, 7.4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, ClientClosed
from hedwig.client.hubs import Hubs
from hedwig.client.link import Delivered, HubLink
from hedwig.client.request import Asker, pause
from hedwig.client.subscriptions.inbox import stop_timer
from hedwig.errors import MalformedRequest, PubSubError, TopicBusy, UnexpectedCondition
from hedwig.model import Event, Gone, HubAddress, Preferences, Status, SubscribeMode, SubscriberId, Topic
from hedwig.protocol.options import REPLAY, ack_options, granted
from hedwig.wire.requests import close_subscription_frame, subscribe_frame
from hedwig.wire.responses import Answer, Told

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()


class Attached(Delivered, Protocol):
    """The subscription that is attached; connections deliver to it, not through here."""

    def on_granted(self, gone: Gone | None) -> None:
        """A hub said what holds: see `preferences`. What this raises of PubSubError ends the attempt, as a refusal.

        gone: deleted messages with which it was to begin or continue.
        """

    def on_attached(self) -> None:
        """A hub delivers from now on (again); it was asked to begin where it should."""

    def on_detached(self) -> None:
        """No hub does any more; another is asked."""

    def on_failed(self, error: BookKeeperError) -> None:
        """None does, and none is asked."""


class Attaching:
    """Of one subscription."""

    # link is None or asked is None

    def __init__(
        self,
        clock: Clock,
        hubs: Hubs,
        subscription: Attached,
        topic: Topic,
        subscriber: SubscriberId,
        mode: SubscribeMode,
        preferences: Preferences,
        *,
        force: bool,
    ) -> None:
        self.link: HubLink | None = None
        """Where it is attached. Looked at for each delivery: an attribute, which nobody else sets."""
        self.preferences = preferences
        """Preferences that the caller named; after attaching, those that apply."""
        self.individual = ack_options(preferences) is not None
        """Messages are acknowledged one by one: see hedwig.client.subscriptions.work_queue."""
        self._clock, self._hubs, self._settings = clock, hubs, hubs.settings
        self._asker = Asker(clock, hubs)
        self._subscription, self._topic, self._subscriber = subscription, topic, subscriber
        self._mode, self._force, self._named = mode, force, preferences
        self._wish = preferences.options.get(REPLAY) or None
        self._asked: HubLink | None = None
        self._under_way: Deferred[None] | None = None
        self._attached_once = False
        self._attached_s = 0.0
        self._fruitless = 0
        self._is_ending = False

    # --- attaching

    async def attach(self, *, timeout_s: float | None) -> None:
        """Subscribe. Raises what the hub says, and ServiceDown where none does in time."""
        said: bytes | None = None

        def frame(txn_id: int, claim: bool) -> bytes:
            nonlocal said
            said = self._wish
            return subscribe_frame(
                txn_id,
                self._topic,
                self._subscriber,
                self._mode,
                self._preferences_said(),
                force=self._force,
                reads_gone=True,
                window_if_none=self._settings.window if self._named.window_size is None else None,
                should_claim=claim,
            )

        busy = (Status.TOPIC_BUSY,) if self._attached_once else ()
        try:
            answer, link = await self._asker.ask(
                self._topic,
                frame,
                self._connect,
                timeout_s=timeout_s,
                on_link=self._listen,
                on_late=self._attached_late,
                again_on=busy,
            )
        except BaseException as error:
            self._leave(None)
            if isinstance(error, TopicBusy) and not self._force and not self._is_shared:
                raise TopicBusy(f"{error}; force=True (`hedwig sub --force`) takes it from there") from error
            raise
        if self._is_ending:
            self._let_go(link)
            raise ClientClosed("the subscription was closed meanwhile")
        self._attached_once, self._mode, self._force = True, SubscribeMode.ATTACH, False
        if link.lost:
            self._moved(link)
            return
        self.link, self._asked = link, None
        self._attached_s = self._clock.seconds()
        try:
            self._subscription.on_granted(self._check(link, answer, said))
        except PubSubError:
            self.link = None
            self._let_go(link)
            raise
        if said != self._wish:  # sought meanwhile, and the hub was not told
            self.link = None
            self._drop(link)
            return
        self._wish = None
        self._subscription.on_attached()

    @property
    def _is_shared(self) -> bool:
        options = ack_options(self.preferences)
        return options is not None and options.shared

    def _preferences_said(self) -> Preferences:
        options = {name: value for name, value in self._named.options.items() if name != REPLAY}
        if self._wish is not None:
            options[REPLAY] = self._wish
        return replace(self._named, options=options)

    def _check(self, link: HubLink, answer: Answer, said: bytes | None) -> Gone | None:
        """Check that hub and client agree; return the deleted messages. said: where the hub was asked to begin."""
        heeded, gone = False, None
        if answer.preferences is not None:
            self.preferences, heeded, gone = granted(answer.preferences)
        if not self.individual and ack_options(self.preferences) is not None:
            # What CONSUME means is the subscription's, and was perhaps said by another client.
            raise MalformedRequest(
                f"the messages of subscriber {self._subscriber!r} of topic {self._topic!r} are acknowledged one by "
                "one: subscribe with preferences=one_by_one() (`hedwig sub --one-by-one`), or with the option "
                "hw.ack=cumulative (and hw.shared=false)"
            )
        if not heeded and (self.individual or said is not None):
            raise UnexpectedCondition(
                f"hub {link.name} knows nothing of acknowledging one by one and of beginning again elsewhere: it is "
                "no hub of this project, or an older one. Nothing was consumed there"
            )
        return gone

    async def _connect(self, address: HubAddress) -> HubLink:
        if not self._settings.shared_connections:
            return await self._hubs.dial(address)
        found = self._hubs.link(address, "subscribe")
        return found if isinstance(found, HubLink) else await found

    def _attached_late(self, link: HubLink, answer: Answer) -> None:
        """The hub attached it when nobody waited for that any more; it would be nobody's while this client lives."""
        if answer.status == Status.SUCCESS and not link.subscriptions.get((self._topic, self._subscriber)):
            self._let_go(link)

    def _listen(self, link: HubLink) -> None:
        # Before the answer: the first messages may come in the same read.
        self._leave(link)
        self._asked = link
        link.subscriptions[self._topic, self._subscriber] = self._subscription

    def _leave(self, unless: HubLink | None) -> None:
        """Nothing is expected any more of the hub that was asked last, where the next one is another."""
        asked, self._asked = self._asked, None
        if asked is not None and asked is not unless:
            self._drop(asked)

    def _drop(self, link: HubLink) -> None:
        """Nothing of this connection is for this subscription any more."""
        self._listen_no_more(link)
        if not self._settings.shared_connections:
            link.close()

    def _listen_no_more(self, link: HubLink) -> None:
        if link.subscriptions.get((self._topic, self._subscriber)) is self._subscription:
            del link.subscriptions[self._topic, self._subscriber]

    # --- attaching anew

    def on_event(self, link: HubLink, told: Told) -> None:
        """See Delivered."""
        if link is not self.link:
            return
        self._drop(link)
        if told.event is Event.SUBSCRIPTION_FORCED_CLOSED:
            self.link = None
            self._subscription.on_failed(
                TopicBusy(f"subscriber {self._subscriber!r} of topic {self._topic!r} was attached by another client")
            )
        else:
            self._moved(link)

    def on_link_lost(self, link: HubLink) -> None:
        """See Delivered."""
        if link is self.link:
            self._moved(link)

    def begin_elsewhere(self, wish: bytes) -> None:
        """Attach anew, and begin where the option says. `on_attached` tells when a hub granted it."""
        # A hub that attaches it just now was not told of it: then it is asked again.
        self._wish = wish
        link, self.link = self.link, None
        if link is not None:
            self._drop(link)
        self._subscription.on_detached()
        if self._under_way is None:
            self._fruitless = 0
            self._again()

    def _moved(self, link: HubLink) -> None:
        if self.link is link:
            self.link = None
        self._subscription.on_detached()
        self._hubs.forget(self._topic)
        self._again()

    def _again(self) -> None:
        """Attach anew, for as long as it takes."""
        if self._is_ending or self._under_way is not None:
            return
        lasted_s = self._clock.seconds() - self._attached_s
        fruitless = self._fruitless = 0 if lasted_s > self._settings.retry_max_s else self._fruitless + 1

        async def again() -> None:
            if fruitless > 1:
                await pause(self._clock, self._hubs.pause_s(fruitless - 1))
            await self.attach(timeout_s=None)

        self._under_way = Deferred.fromCoroutine(again())
        self._under_way.addBoth(self._was_attached)

    def _was_attached(self, result: Failure | None) -> None:
        self._under_way = None
        if isinstance(result, Failure):
            error = result.value
            if not isinstance(error, CancelledError):
                if not isinstance(error, BookKeeperError):
                    log.failure("Attaching a subscription failed", failure=result)
                    error = UnexpectedCondition(f"a fault of this client: {error!r}")
                self._subscription.on_failed(error)
        elif self.link is None:
            self._again()

    # --- letting go

    def ask_no_more(self) -> None:
        """Where it is attached stays until `let_go`; it is not attached anew, and a hub that does just now lets go."""
        self._is_ending = True
        if self._under_way is not None:
            self._under_way.cancel()

    def let_go(self) -> Deferred[None]:
        """Have the hub deliver no more, where one does. Fires once that is done, or given up."""
        link, self.link = self.link, None
        if link is None or link.lost:
            return succeed(None)
        return self._let_go(link)

    def _let_go(self, link: HubLink) -> Deferred[None]:
        self._listen_no_more(link)
        closing = _Closing(None if self._settings.shared_connections else link)
        # Also where the connection ends next: the hub may notice that later than whoever attaches it now.
        link.ask(lambda txn_id: close_subscription_frame(txn_id, self._topic, self._subscriber), closing)
        if not closing.done.called:
            # Another subscription may keep the connection from being read.
            timer = self._clock.callLater(self._settings.answer_timeout_s, closing.on_unknown, link, None)
            closing.done.addBoth(stop_timer, timer)
        return closing.done


class _Closing:
    """A CLOSESUBSCRIPTION: whatever is answered, it is closed. own: its connection, which ends with it."""

    def __init__(self, own: HubLink | None) -> None:
        self.done: Deferred[None] = Deferred()
        self._own = own

    def on_answer(self, link: HubLink, answer: object) -> None:
        """Closed."""
        self._closed()

    def on_unknown(self, link: HubLink, error: object) -> None:
        """Closed by the connection's end, or given up."""
        self._closed()

    def _closed(self) -> None:
        if self.done.called:
            return
        if self._own is not None:
            self._own.close()
        self.done.callback(None)
