"""This process's bookie registration: an ephemeral znode in one of two directories.

Source: bookkeeper/wire/FORMATS.md 4.6.

                 own node exists in            order
    WRITABLE     R/available/id                create it, then remove R/available/readonly/id
    READ_ONLY    R/available/readonly/id       create it, then remove R/available/id

So a bookie that changes its mode is in both for a moment and never in none. A node of another session is waited for: it
is that of a predecessor which did not say goodbye, and goes with its session, or that of a living rival. Only where a
`SessionRecord` says that the session was this very bookie's, and that its process is dead, the node is removed at once.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import AlreadyRegistered, BookKeeperError, MetadataError, MetadataUnavailable, NotInitialised
from bookkeeper.metadata.bookies.service_info import check_bookie_id, format_service_info
from bookkeeper.metadata.ledgers.paths import NO_CLUSTER_REMEDY
from bookkeeper.metadata.outcome import Errand, pause, until_connected
from bookkeeper.metadata.store import (
    MetadataSettings,
    RegistrationEvent,
    RegistrationListener,
    SessionRecord,
    StoreState,
    Watch,
)
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists, NodeKind, Stat, Tree, TreeEvent
from bookkeeper.metadata.watches import Listeners
from bookkeeper.model import BookieId, BookieMode, BookieServiceInfo

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

_RENEWAL_ATTEMPT_S = 60.0
"""How long one attempt of a renewal waits for a connection before it looks again whether it is still wanted."""


class _Phase(enum.Enum):
    IDLE = enum.auto()  # nothing registered, nothing wanted
    REGISTERED = enum.auto()
    LOST = enum.auto()  # was registered; a renewal is under way


class ZnodeRegistration:
    """The Registration over a Tree."""

    def __init__(self, tree: Tree, root: str, clock: Clock, settings: MetadataSettings) -> None:
        self._tree = tree
        self._root = root
        self._clock = clock
        self._settings = settings
        self._listeners: Listeners[[RegistrationEvent, BookKeeperError | None]] = Listeners()
        self._turn = DeferredLock()  # one change at a time
        self._phase = _Phase.IDLE
        self._wanted: tuple[BookieId, BookieServiceInfo, BookieMode] | None = None
        self._registered_session = 0
        self._record: SessionRecord | None = None
        self._check: Callable[[], Awaitable[None]] | None = None
        tree.watch_state(self._on_state)

    def register(self, bookie_id: BookieId, info: BookieServiceInfo, mode: BookieMode) -> Deferred[None]:
        """See Registration."""
        return self._turn.run(lambda: Deferred.fromCoroutine(self._register(bookie_id, info, mode)))

    def keep_sessions(self, record: SessionRecord) -> None:
        """See Registration."""
        self._record = record

    def check_renewals(self, check: Callable[[], Awaitable[None]]) -> None:
        """See Registration."""
        self._check = check

    def unregister(self, bookie_id: BookieId) -> Deferred[None]:
        """See Registration."""
        return self._turn.run(lambda: Deferred.fromCoroutine(self._unregister(bookie_id)))

    def is_registered(self, bookie_id: BookieId) -> Deferred[bool]:
        """See Registration."""
        return Deferred.fromCoroutine(self._is_registered(bookie_id))

    def watch(self, on_event: RegistrationListener) -> Watch:
        """See Registration."""
        return self._listeners.add(on_event)

    # --- asked for -------------------------------------------------------------------------------------------------

    async def _register(self, bookie_id: BookieId, info: BookieServiceInfo, mode: BookieMode) -> None:
        check_bookie_id(bookie_id)
        self._wanted = (bookie_id, info, mode)
        try:
            await self._establish(bookie_id, info, mode)
        except MetadataError:
            if self._phase is _Phase.IDLE:
                self._wanted = None
            raise

    async def _unregister(self, bookie_id: BookieId) -> None:
        if self._wanted is not None and self._wanted[0] == bookie_id:
            self._wanted = None
            self._phase = _Phase.IDLE
        for mode in BookieMode:
            await self._withdraw(self._path(bookie_id, mode))

    async def _is_registered(self, bookie_id: BookieId) -> bool:
        errand = self._errand(f"look for bookie {bookie_id}")
        await errand.sync()
        for mode in BookieMode:
            if await errand.stat(self._path(bookie_id, mode)) is not None:
                return True
        return False

    # --- kept up ---------------------------------------------------------------------------------------------------

    def _on_state(self, state: StoreState) -> None:
        if state is StoreState.CLOSED:
            self._phase, self._wanted = _Phase.IDLE, None
        elif self._phase is _Phase.REGISTERED and (
            state is StoreState.LOST
            or (state is StoreState.CONNECTED and self._tree.session_id != self._registered_session)
        ):
            self._phase = _Phase.LOST
            log.warn("The session with the metadata store ended; registering again")
            self._listeners.tell(RegistrationEvent.LOST, None)
            self._turn.run(lambda: Deferred.fromCoroutine(self._renew())).addErrback(_log_unexpected)

    async def _renew(self) -> None:
        delay_s = self._settings.retry_delay_s
        while self._phase is _Phase.LOST and self._wanted is not None:
            try:
                if await until_connected(self._tree, self._clock, _RENEWAL_ATTEMPT_S):
                    await self._establish(*self._wanted)
                    log.info("Registered again as {bookie_id}", bookie_id=self._wanted[0])
            except MetadataUnavailable as error:
                log.warn("Registering again failed for now: {error}", error=error)
                await pause(self._clock, delay_s)
                delay_s = min(2 * delay_s, self._settings.retry_delay_max_s)
            except BookKeeperError as error:
                self._phase, self._wanted = _Phase.IDLE, None
                self._listeners.tell(RegistrationEvent.FAILED, error)
        if self._is_registered_now():
            # By this renewal, or by a change of mode that had its turn before.
            self._listeners.tell(RegistrationEvent.RENEWED, None)

    def _is_registered_now(self) -> bool:
        return self._phase is _Phase.REGISTERED

    # --- znodes ----------------------------------------------------------------------------------------------------

    async def _establish(self, bookie_id: BookieId, info: BookieServiceInfo, mode: BookieMode) -> None:
        other = BookieMode.READ_ONLY if mode is BookieMode.WRITABLE else BookieMode.WRITABLE
        while True:
            session_id = self._tree.session_id
            if self._check is not None and session_id != self._registered_session:
                await self._check()
            if self._record is not None and session_id != 0:
                await self._record.add(session_id)
            if mode is BookieMode.READ_ONLY:
                await self._ensure_read_only_directory(bookie_id)
            await self._own(bookie_id, self._path(bookie_id, mode), format_service_info(info))
            await self._withdraw(self._path(bookie_id, other))
            if session_id == self._tree.session_id != 0:
                break
            # The session ended on the way, and what we made with it.
        self._registered_session = session_id
        self._phase = _Phase.REGISTERED

    async def _ensure_read_only_directory(self, bookie_id: BookieId) -> None:
        try:
            await self._errand(f"register bookie {bookie_id}").ensure(f"{self._root}/available/readonly")
        except NodeAbsent as error:
            raise self._not_initialised(bookie_id) from error

    async def _own(self, bookie_id: BookieId, path: str, data: bytes) -> None:
        """Let the node exist, of this session, with this data."""
        give_up_s = self._clock.seconds() + self._settings.registration_wait_s
        while True:
            errand = self._errand(f"register bookie {bookie_id}")
            changed = _Once()
            stat = await errand.stat(path, changed.fire)
            if stat is None:
                self._tree.forget(path, changed.fire)
                if await self._try_create(errand, bookie_id, path, data):
                    return
                continue
            if stat.owner == self._tree.session_id:
                self._tree.forget(path, changed.fire)
                if await self._try_update(errand, path, data):
                    return
                continue
            if stat.owner in self._predecessors:
                self._tree.forget(path, changed.fire)
                log.info("Removing the registration that a dead process of {bookie_id} left", bookie_id=bookie_id)
                await self._remove(errand, path, stat)
                continue
            left_s = give_up_s - self._clock.seconds()
            if left_s <= 0:
                self._tree.forget(path, changed.fire)
                raise AlreadyRegistered(
                    f"bookie {bookie_id} is registered by another process ({path}, session 0x{stat.owner:x}) and still "
                    f"was after {self._settings.registration_wait_s:g} s; stop that process or give this one another id"
                )
            log.info("Waiting for an older registration of {bookie_id} to vanish", bookie_id=bookie_id)
            await changed.within(self._clock, left_s)

    async def _try_create(self, errand: Errand, bookie_id: BookieId, path: str, data: bytes) -> bool:
        def is_ours(_data: bytes, stat: Stat) -> bool:
            return stat.owner == self._tree.session_id

        try:
            await errand.create(path, data, is_ours, kind=NodeKind.EPHEMERAL)
        except NodeExists:
            return False
        except NodeAbsent as error:
            raise self._not_initialised(bookie_id) from error
        return True

    async def _try_update(self, errand: Errand, path: str, data: bytes) -> bool:
        try:
            found, stat = await errand.read(path)
            if found != data:
                await errand.write(path, data, stat.version)
        except (NodeAbsent, NodeChanged):
            return False
        return True

    async def _withdraw(self, path: str) -> None:
        """Remove the node if it is this session's, or a recorded one's. Any other goes with its session."""
        errand = self._errand(f"withdraw {path}")
        while True:
            stat = await errand.stat(path)
            if stat is None or stat.owner not in {self._tree.session_id, *self._predecessors}:
                return
            if await self._remove(errand, path, stat):
                return

    async def _remove(self, errand: Errand, path: str, stat: Stat) -> bool:
        """Remove the node that was seen; False when it has changed meanwhile.

        The store compares versions only: a rival's node made in that very moment could go instead. A rival with this
        id is refused by the cookie and by the directory locks, and would register again.
        """
        try:
            await errand.delete(path, stat.version, stat.creation_id)
        except NodeAbsent:
            return True
        except NodeChanged:
            errand.check_time(f"{path} keeps changing")
            return False
        return True

    @property
    def _predecessors(self) -> frozenset[int]:
        """Sessions of this bookie that are over, though the store may not know it yet."""
        known = frozenset(self._record.known()) if self._record is not None else frozenset()
        return known - {self._tree.session_id, 0}

    def _path(self, bookie_id: BookieId, mode: BookieMode) -> str:
        directory = "available" if mode is BookieMode.WRITABLE else "available/readonly"
        return f"{self._root}/{directory}/{bookie_id}"

    def _not_initialised(self, bookie_id: BookieId) -> NotInitialised:
        return NotInitialised(
            f"bookie {bookie_id} cannot register: there is no cluster under {self._root} of {self._tree.description}; "
            f"{NO_CLUSTER_REMEDY}"
        )

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose)


class _Once:
    """Waits for one event, for a while."""

    def __init__(self) -> None:
        self._happened = False
        self._waiting: Deferred[None] | None = None

    def fire(self, _event: TreeEvent) -> None:
        self._happened = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    async def within(self, clock: Clock, delay_s: float) -> None:
        """Return at the event or after `delay_s` seconds."""
        if not self._happened:
            waiting: Deferred[None] = Deferred()
            self._waiting = waiting
            timer = clock.callLater(delay_s, self.fire, TreeEvent.LOST)
            try:
                await waiting
            finally:
                if timer.active():
                    timer.cancel()


def _log_unexpected(failure: Failure) -> None:
    log.failure("Renewing the registration failed", failure=failure)
