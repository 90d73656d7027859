"""The bookie in the metadata store: registered in its present mode, kept so, and taken out at the end.

    none --register--> registered --session lost--> lost --(the store's client makes a new one)--> registered
                           |  mode changed: registered again; lagging while that fails, and tried again by a timer
                           +-- another one has the id, or the store has lost this bookie's cookie or cluster:
                               lost for good, and the process ends

Only a bookie that serves is registered. While the store is unreachable the bookie goes on serving.
Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.bookie.identity.identity import check_still_known
from bookkeeper.bookie.identity.sessions import SessionFile
from bookkeeper.bookie.process.process_context import Surroundings
from bookkeeper.bookie.process.status import BookieChronicle
from bookkeeper.errors import BookKeeperError, MetadataError
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.metadata.outcome import within
from bookkeeper.metadata.store import MetadataStore, RegistrationEvent
from bookkeeper.model import BookieId, BookieMode, BookieServiceInfo
from bookkeeper.ports import Clock, Timer

log = Logger()

RETRY_S = 1.0
RETRY_MAX_S = 30.0
"""Delay before the next try, after a change of mode could not be registered; doubled each time, to RETRY_MAX_S."""

UNREGISTER_TIMEOUT_S = 3.0
"""Time to unregister. The session is closed next; if the store misses that too, the session's timeout ends both."""


class Registered:
    """The registration of one bookie.

    history_checked: awaited before each registration; returns once the store's history was checked in this session.
    on_lost_for_good: called when no client will find this bookie any more.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        store: MetadataStore,
        cookie: Cookie,
        bookie_id: BookieId,
        info: BookieServiceInfo,
        chronicle: BookieChronicle,
        history_checked: Callable[[], Awaitable[None]],
        on_lost_for_good: Callable[[], None],
    ) -> None:
        self._history_checked = history_checked
        self._mode = surroundings.mode
        self._sessions_lost = surroundings.metrics.counter("bookie_METADATA_SESSIONS_LOST")
        self._store, self._cookie = store, cookie
        self._registration, self._bookie_id, self._info = store.registration, bookie_id, info
        self._chronicle, self._on_lost_for_good = chronicle, on_lost_for_good
        self._clock: Clock = surroundings.reactor
        self._retry: Timer | None = None
        self._retry_s = RETRY_S
        self._ending = False

    async def register(self, sessions: SessionFile) -> None:
        """Return once clients can find the bookie. Raises MetadataError.

        sessions: the file in a directory whose lock is held, so whoever noted a session there is dead, and need not be
        waited for.
        """
        registration, mode = self._registration, self._mode
        registration.keep_sessions(sessions)
        await self._history_checked()
        registered = mode.mode
        await registration.register(self._bookie_id, self._info, registered)
        registration.check_renewals(self._check_renewal)
        self._chronicle.on_registration("registered")
        registration.watch(self._on_event)
        mode.on_change = self._on_mode
        if mode.mode is not registered:  # a disk filled up meanwhile
            self._on_mode(mode.mode)

    async def _check_renewal(self) -> None:
        await check_still_known(self._store, self._cookie)
        await self._history_checked()

    def expect_end(self) -> None:
        """The process stops: a registration that is lost from now on is no news."""
        self._ending = True
        self._stop_retry()

    async def unregister(self) -> None:
        """Remove the registration; if that fails, or takes over UNREGISTER_TIMEOUT_S, it ends with the session."""
        unregistering: Deferred[None] = self._registration.unregister(self._bookie_id)
        try:
            await within(self._clock, UNREGISTER_TIMEOUT_S, unregistering)
        except (MetadataError, CancelledError) as error:
            log.warn("Could not unregister, the registration ends with the session: {error}", error=error)

    def _on_mode(self, mode: BookieMode) -> None:
        log.info("The bookie is {mode} now", mode=mode.value)
        self._follow(mode)

    def _follow(self, mode: BookieMode) -> None:
        changed: Deferred[None] = self._registration.register(self._bookie_id, self._info, mode)
        changed.addCallbacks(lambda _: self._followed(), self._lagging)

    def _followed(self) -> None:
        self._retry_s = RETRY_S
        self._stop_retry()
        self._chronicle.on_registration("registered")

    def _lagging(self, failure: Failure) -> None:
        self._chronicle.on_registration("lagging", failure.value)
        log.error(
            "The change of mode could not be registered: {error}. Adds are refused or accepted regardless. Trying "
            "again in {delay:g} s",
            error=failure.value,
            delay=self._retry_s,
        )
        self._stop_retry()
        if not self._ending:
            self._retry = self._clock.callLater(self._retry_s, self._follow_again)
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _follow_again(self) -> None:
        """Register the mode again: it need not change again, and the session may continue."""
        self._retry = None
        self._follow(self._mode.mode)

    def _stop_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _on_event(self, event: RegistrationEvent, error: BookKeeperError | None) -> None:
        if event is RegistrationEvent.LOST:
            self._sessions_lost.add()
            self._chronicle.on_registration(
                "lost", "the session with the metadata store ended; a new one is being made"
            )
            log.warn("The metadata session is lost, and the registration with it; the bookie goes on serving")
        elif event is RegistrationEvent.RENEWED:
            self._followed()
            log.info("Registered again")
        elif not self._ending:
            self._chronicle.on_registration("lost for good", error)
            log.critical("The registration is lost for good: {error}", error=error)
            self._on_lost_for_good()
