"""Who is available, where, and through which connection.

`BookieDirectory` follows the registrations and keeps the quarantine: a bookie that failed is chosen for new ensembles
only when there are not enough others, until its time is over or it registers anew. `BookieChannels` holds one
`BookieChannel` per bookie and protocol version, and closes connections that were idle for long. Both are bounded by
the number of bookies the cluster ever had.

Thread: reactor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.defer import Deferred, succeed

from bookkeeper.client.bookies.connection import BookieChannel
from bookkeeper.client.bookies.pending_requests import AddOwner
from bookkeeper.errors import ClientClosed, MetadataUnavailable
from bookkeeper.model import AvailableBookies, BookieId

if TYPE_CHECKING:
    from bookkeeper.metadata.store import BookieWatch, Watch
    from bookkeeper.ports import Clock, Timer


T = TypeVar("T")

READY_TIMEOUT_S = 30.0
"""How long an operation waits for the first list of bookies; longer than a session takes to be made again."""


_PORT = re.compile(r"[0-9]{1,5}")


class BookieDirectory:
    """The registered bookies, kept current by a watch, and those in quarantine."""

    def __init__(self, source: BookieWatch, clock: Clock, *, quarantine_s: float) -> None:
        self._source, self._clock, self._quarantine_s = source, clock, quarantine_s
        self._known: AvailableBookies | None = None
        self._registered: frozenset[BookieId] = frozenset()  # in either mode
        self._writable: frozenset[BookieId] = frozenset()
        self._watch: Watch | None = None
        self._change_count = 0
        self._asking: list[Deferred[None]] = []
        self._is_reading = False
        self._waiting: list[Deferred[None]] = []
        self._quarantined: dict[BookieId, tuple[float, int | None]] = {}  # until when, epoch at the failure
        self._closed = False

    def ready(self) -> Deferred[None]:
        """Fires once the registrations have been told for the first time.

        Fails with MetadataUnavailable after READY_TIMEOUT_S, ClientClosed when the client closes.
        """
        if self._known is not None:
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        timer = self._clock.callLater(READY_TIMEOUT_S, self._give_up, waiting)

        def stop_timer(result: T) -> T:
            if timer.active():
                timer.cancel()
            return result

        waiting.addBoth(stop_timer)
        if self._watch is None:
            self._watch = self._source.watch(self._on_change)
        return waiting

    def _give_up(self, waiting: Deferred[None]) -> None:
        self._waiting.remove(waiting)
        waiting.errback(
            MetadataUnavailable(
                f"the metadata store did not tell the registered bookies within {READY_TIMEOUT_S:g} s; is it up?"
            )
        )

    def read_again(self) -> Deferred[None]:
        """Read the list of bookies from the metadata store, since the watch is late by a moment. Raises MetadataError.

        Called before a refusal for lack of bookies. One read answers all calls that came before it began.
        """
        done: Deferred[None] = Deferred()
        self._asking.append(done)
        if not self._is_reading:
            self._is_reading = True
            Deferred.fromCoroutine(self._read_while_asked())
        return done

    async def _read_while_asked(self) -> None:
        while self._asking:
            asking, self._asking = self._asking, []
            changes = self._change_count
            failure: Exception | None = None
            try:
                bookies = await self._source.current()
                if self._change_count == changes:  # otherwise the watch has shown something newer
                    self._on_change(bookies)
            except Exception as error:  # noqa: BLE001 - the callers raise it
                failure = error
            for done in asking:
                if not done.called:
                    done.callback(None) if failure is None else done.errback(failure)
        self._is_reading = False

    def _on_change(self, bookies: AvailableBookies) -> None:
        self._change_count += 1
        self._known = bookies
        self._registered = frozenset(bookies.writable) | frozenset(bookies.read_only)
        self._writable = frozenset(bookies.writable) - bookies.unusable.keys()
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)

    @property
    def writable(self) -> frozenset[BookieId]:
        """Bookies that take new ledgers."""
        return self._writable

    @property
    def current(self) -> AvailableBookies:
        """As last told."""
        return self._known if self._known is not None else AvailableBookies({}, {})

    def is_registered(self, bookie_id: BookieId) -> bool:
        """In either mode, as last told."""
        return bookie_id in self._registered

    def all_well(self, bookies: Iterable[BookieId]) -> bool:
        """All are registered and no bookie at all is in quarantine: there is nothing to choose by."""
        return not self._quarantined and self._registered.issuperset(bookies)

    def epoch(self, bookie_id: BookieId) -> int | None:
        """Number of its newest registration; None when it has none."""
        return self._source.epoch(bookie_id)

    def address_of(self, bookie_id: BookieId) -> tuple[str, int] | None:
        """Where it listens: as registered, else what its id says (ids were host:port before 4.12); None if neither."""
        for bookies in (self.current.writable, self.current.read_only):
            info = bookies.get(bookie_id)
            if info is not None and (address := info.address()) is not None:
                return address
        host, colon, port = bookie_id.rpartition(":")
        return (host, int(port)) if colon and host and _PORT.fullmatch(port) is not None else None

    def quarantine(self, bookie_id: BookieId) -> None:
        """It failed: avoid it for a while."""
        self._quarantined[bookie_id] = (self._clock.seconds() + self._quarantine_s, self.epoch(bookie_id))

    @property
    def quarantined(self) -> frozenset[BookieId]:
        """Bookies to avoid now."""
        if not self._quarantined:
            return frozenset()
        now = self._clock.seconds()
        for bookie_id, (until, epoch) in list(self._quarantined.items()):
            if until <= now or self.epoch(bookie_id) not in (epoch, None):
                del self._quarantined[bookie_id]
        return frozenset(self._quarantined)

    def close(self) -> None:
        """Watch no longer."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.errback(ClientClosed("the client was closed while it waited for the list of bookies"))


class BookieChannels:
    """All channels of one client. `make` builds one for a bookie and protocol version."""

    def __init__(self, make: Callable[[BookieId, int], BookieChannel], clock: Clock, *, idle_s: float) -> None:
        self._make, self._clock, self._idle_s = make, clock, idle_s
        self._channels: dict[tuple[BookieId, int, bool, bool], BookieChannel] = {}
        self._kept: dict[BookieChannel, set[object]] = {}
        self.full: set[BookieChannel] = set()  # all that are full, and perhaps some that are not any more
        self._sweep: Timer | None = None
        self._closed = False

    def get(self, bookie_id: BookieId, version: int, *, apart: bool = False, trial: bool = False) -> BookieChannel:
        """The channel; made at first need, connected when something is sent.

        apart: a second one, for the recovery of a ledger that this very client wrote. trial: another one, for what an
        old bookie may end the connection on, which is no failure.
        """
        channel = self._channels.get((bookie_id, version, apart, trial))
        if channel is None:
            channel = self._channels[(bookie_id, version, apart, trial)] = self._make(bookie_id, version)
            channel.quarantines = not trial
            if self._closed:
                channel.close()  # whoever asks still is told so
            elif self._sweep is None:
                self._sweep = self._clock.callLater(self._idle_s / 2, self._close_idle)
        return channel

    def keep(self, channel: BookieChannel, owner: object) -> None:
        """Its present connection matters to `owner`: do not close it for idleness before `let_go`."""
        self._kept.setdefault(channel, set()).add(owner)

    def let_go(self, channel: BookieChannel, owner: object) -> None:
        """The owner does not mind any more."""
        owners = self._kept.get(channel)
        if owners is not None:
            owners.discard(owner)
            if not owners:
                del self._kept[channel]

    def forget_writer(self, ledger_id: int, owner: AddOwner) -> None:
        """A write handle or recovery is finished: no channel reports to it any more."""
        for channel in self._channels.values():
            channel.forget_writer(ledger_id, owner)

    @property
    def transport_writes(self) -> int:
        """Transport writes of all channels so far."""
        return sum(channel.write_count for channel in self._channels.values())

    def _close_idle(self) -> None:
        self._sweep = self._clock.callLater(self._idle_s / 2, self._close_idle)
        for channel in self._channels.values():
            idle = channel.idle and channel not in self._kept
            if idle and self._clock.seconds() - channel.last_used_s >= self._idle_s:
                channel.disconnect()

    def close(self) -> None:
        """End all connections; everything outstanding fails as unknown."""
        self._closed = True
        if self._sweep is not None and self._sweep.active():
            self._sweep.cancel()
        for channel in list(self._channels.values()):
            channel.close()
