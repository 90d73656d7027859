"""Watching one ledger's metadata. Cheap enough for tens of thousands: no timer and no subscription per watch.

    event or new watch -> WatchRefresher's queue -> at most REFRESHES_IN_FLIGHT_MAX reads at a time, each setting the
    watch again -> a newer version is told

After a reconnection every watch is read anew through the same queue, so that other operations are not starved.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataCorrupt, MetadataError, MetadataUnavailable
from bookkeeper.metadata.ledgers.codec import parse_ledger
from bookkeeper.metadata.store import LedgerListener, MetadataSettings, StoreState
from bookkeeper.metadata.tree import NodeAbsent, Stat, Tree, TreeEvent
from bookkeeper.metadata.watches import call_listener
from bookkeeper.model import LedgerId, Versioned

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer

REFRESHES_IN_FLIGHT_MAX = 64

log = Logger()


class WatchRefresher:
    """Reads watched ledgers, a few at a time. The queue holds a watch at most once, so the watches are its bound."""

    def __init__(self, tree: Tree, clock: Clock, settings: MetadataSettings) -> None:
        self.tree = tree
        self._clock = clock
        self._settings = settings
        self._queue: dict[LedgerWatch, None] = {}
        self._in_flight = 0
        self._pumping = False
        self._timer: Timer | None = None
        self._states = tree.watch_state(lambda _state: self._pump())

    def request(self, watch: LedgerWatch) -> None:
        """Read this ledger soon."""
        self._queue[watch] = None
        self._pump()

    def request_later(self, watch: LedgerWatch) -> None:
        """Read this ledger after a short pause: the last read failed."""
        self._queue[watch] = None
        if self._timer is None:
            self._timer = self._clock.callLater(self._settings.retry_delay_s, self._on_timer)

    def drop(self, watch: LedgerWatch) -> None:
        """The watch was cancelled."""
        self._queue.pop(watch, None)

    def stop(self) -> None:
        """Read nothing more."""
        self._queue.clear()
        self._states.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _pump(self) -> None:
        if self._pumping:
            return  # called from below: the loop there goes on
        self._pumping = True
        while (
            self._queue
            and self._timer is None
            and self._in_flight < REFRESHES_IN_FLIGHT_MAX
            and self.tree.state is StoreState.CONNECTED
        ):
            watch = next(iter(self._queue))
            del self._queue[watch]
            self._in_flight += 1
            Deferred.fromCoroutine(watch.refresh()).addBoth(self._on_refreshed)
        self._pumping = False

    def _on_refreshed(self, result: object) -> None:
        self._in_flight -= 1
        if isinstance(result, Failure):
            log.failure("Reading a watched ledger failed", failure=result)
        self._pump()


class LedgerWatch:
    """One watch on one ledger."""

    __slots__ = (
        "_again",
        "_cancelled",
        "_find_path",
        "_ledger_id",
        "_on_change",
        "_on_error",
        "_path",
        "_refresher",
        "_refreshing",
        "_told_version",
    )

    def __init__(
        self,
        refresher: WatchRefresher,
        find_path: Callable[[LedgerId], Coroutine[Any, Any, str]],
        ledger_id: LedgerId,
        on_change: LedgerListener,
        after_version: int,
        on_error: Callable[[MetadataError], object] | None,
    ) -> None:
        self._refresher = refresher
        self._find_path = find_path
        self._ledger_id = ledger_id
        self._on_change = on_change
        self._on_error = on_error
        self._told_version = after_version
        self._path: str | None = None
        self._cancelled = False
        self._refreshing = False
        self._again = False  # an event came during a refresh
        refresher.request(self)

    def cancel(self) -> None:
        """No further callbacks."""
        self._cancelled = True
        self._refresher.drop(self)
        if self._path is not None:
            self._refresher.tree.forget(self._path, self._on_event)

    def _is_on(self) -> bool:
        return not self._cancelled

    async def refresh(self) -> None:
        """Read the ledger, set the watch again and tell what is new."""
        self._refreshing, self._again = True, False
        try:
            await self._read_and_tell()
        except MetadataUnavailable:
            if self._is_on() and self._refresher.tree.state is not StoreState.CLOSED:
                self._refresher.request_later(self)
        except MetadataCorrupt as error:
            self._tell_error(error)
        except MetadataError as error:
            self.cancel()
            self._tell_error(error)
        finally:
            self._refreshing = False
            self._ask_again()

    async def _read_and_tell(self) -> None:
        if self._path is None:
            self._path = await self._find_path(self._ledger_id)
        if not self._is_on():
            return
        path = self._path
        try:
            data, stat = await self._read(path)
        except NodeAbsent:
            if self._is_on():
                self.cancel()
                call_listener(self._on_change, None)
            return
        if self._is_on() and stat.version > self._told_version:
            metadata = parse_ledger(data, path)
            self._told_version = stat.version
            call_listener(self._on_change, Versioned(metadata, stat.version))

    async def _read(self, path: str) -> tuple[bytes, Stat]:
        tree = self._refresher.tree
        try:
            return await tree.read(path, self._on_event)
        except NodeAbsent:
            # A server that lags may not have heard of the ledger yet (I-19).
            await tree.sync()
            return await tree.read(path, self._on_event)

    def _ask_again(self) -> None:
        if self._again and self._is_on():
            self._refresher.request(self)

    def _on_event(self, _event: TreeEvent) -> None:
        if not self._is_on():
            return
        if self._refreshing:
            self._again = True
        else:
            self._refresher.request(self)

    def _tell_error(self, error: MetadataError) -> None:
        if self._on_error is not None:
            call_listener(self._on_error, error)
        else:
            log.error("Watched ledger {ledger_id} cannot be read: {error}", ledger_id=self._ledger_id, error=error)
