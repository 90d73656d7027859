"""Disk space of bookies: one of them asked on demand, all writable ones asked now and then for weighted placement.

`DiskSpace` exists only with diskWeightBasedPlacementEnabled. It asks each writable bookie when it registers (anew),
then every `interval_s`, and after `retry_interval_s` when it did not tell; never more than ASKED_MAX at a time. What is
known of a bookie stays while it does not answer and is forgotten when it is no longer writable.

Thread: reactor. Source: Apache 4.18 client/BookieInfoReader.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookieUnavailable, BookKeeperError, NotSupportedByBookie, again
from bookkeeper.model import AvailableBookies, BookieId, Status
from bookkeeper.wire.messages import BookieInfoReply

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.metadata.store import BookieWatch, Watch
    from bookkeeper.ports import Clock, Timer

ASKED_MAX = 16
"""Bookies asked at the same time."""

V3 = 3
"""The protocol version that has the request."""

log = Logger()


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """Disk space of one bookie, in bytes."""

    total_bytes: int
    free_bytes: int


async def ask_disk_space(context: ClientContext, bookie_id: BookieId) -> BookieInfo:
    """Ask one bookie. Raises NotSupportedByBookie where it has no v3, UnauthorizedAccess, BookieUnavailable."""
    context.check_open()
    await context.directory.ready()
    # A bookie without v3 ends the connection: no failure, and for nobody else's requests to suffer from.
    channel = context.channels.get(bookie_id, V3, trial=context.version != V3)
    answered: Deferred[object] = Deferred(lambda _: None)
    channel.call(
        context.v3_encoder.encode_bookie_info(),
        context.settings.info_timeout_s,
        lambda reply: None if answered.called else answered.callback(reply),
        lambda error: None if answered.called else answered.errback(again(error)),
    )
    try:
        reply = await answered
    except BookieUnavailable as error:
        if channel.refused:
            raise NotSupportedByBookie(
                f"bookie {bookie_id} does not speak protocol v3: a release before 4.3, or no bookie ({error})"
            ) from error
        raise
    if not isinstance(reply, BookieInfoReply) or reply.status is not Status.OK:
        status = getattr(reply, "status", None)
        if status is Status.UNAUTHORIZED:
            raise context.unauthorized(bookie_id)
        raise NotSupportedByBookie(
            f"bookie {bookie_id} does not tell its disk space: {status.value if status else reply}"
        )
    return BookieInfo(reply.total_bytes or 0, reply.free_bytes or 0)


@dataclass(slots=True, eq=False)
class _Asked:
    """One registration of a bookie, and when it is asked next."""

    bookie_id: BookieId
    epoch: int | None
    timer: Timer | None = None
    """Runs while it is neither queued nor being asked."""
    silent: bool = False
    """It did not tell the last time it was asked."""


class DiskSpace:
    """The free space of the writable bookies, as last told by each."""

    def __init__(
        self,
        source: BookieWatch,
        clock: Clock,
        ask: Callable[[BookieId], Deferred[BookieInfo]],
        *,
        interval_s: float,
        retry_interval_s: float,
    ) -> None:
        self._source, self._clock, self._ask = source, clock, ask
        self._interval_s, self._retry_interval_s = interval_s, retry_interval_s
        self._bookies: dict[BookieId, _Asked] = {}  # the writable ones
        self._free_bytes: dict[BookieId, int] = {}  # of some of these
        self._queue: deque[_Asked] = deque()  # to be asked now, as soon as less than ASKED_MAX are being asked
        self._asking: dict[Deferred[BookieInfo], None] = {}
        self._watch: Watch | None = None
        self._stopped = False

    @property
    def free_bytes(self) -> Mapping[BookieId, int]:
        """Writable bookies that told; follows what they tell."""
        return MappingProxyType(self._free_bytes)

    def start(self) -> None:
        """Follow the registrations and ask, until `stop`."""
        self._watch = self._source.watch(self._on_bookies)

    def stop(self) -> None:
        """Ask nobody any more."""
        self._stopped = True
        if self._watch is not None:
            self._watch.cancel()
        for bookie_id in list(self._bookies):
            self._forget(bookie_id)
        for asking in list(self._asking):
            asking.cancel()

    def _on_bookies(self, available: AvailableBookies) -> None:
        if self._stopped:
            return
        for bookie_id in [known for known in self._bookies if known not in available.writable]:
            self._forget(bookie_id)
            self._free_bytes.pop(bookie_id, None)
        for bookie_id in sorted(available.writable):
            epoch = self._source.epoch(bookie_id)
            known = self._bookies.get(bookie_id)
            if known is None or known.epoch != epoch:
                self._forget(bookie_id)
                self._bookies[bookie_id] = new = _Asked(bookie_id, epoch)
                self._queue.append(new)
        self._ask_next()

    def _forget(self, bookie_id: BookieId) -> None:
        known = self._bookies.pop(bookie_id, None)
        if known is not None and known.timer is not None:
            known.timer.cancel()

    def _on_due(self, bookie: _Asked) -> None:
        bookie.timer = None
        self._queue.append(bookie)
        self._ask_next()

    def _ask_next(self) -> None:
        while self._queue and len(self._asking) < ASKED_MAX and not self._stopped:
            bookie = self._queue.popleft()
            if self._bookies.get(bookie.bookie_id) is not bookie:
                continue  # gone, or registered anew and in the queue again
            asking = self._ask(bookie.bookie_id)
            self._asking[asking] = None
            asking.addBoth(self._on_told, bookie, asking)

    def _on_told(self, told: BookieInfo | Failure, bookie: _Asked, asking: Deferred[BookieInfo]) -> None:
        self._asking.pop(asking, None)
        if self._bookies.get(bookie.bookie_id) is bookie:
            if isinstance(told, Failure):
                self._note_silence(bookie, told)
            else:
                bookie.silent = False
                self._free_bytes[bookie.bookie_id] = told.free_bytes
            delay_s = self._retry_interval_s if bookie.silent else self._interval_s
            bookie.timer = self._clock.callLater(delay_s, self._on_due, bookie)
        self._ask_next()

    def _note_silence(self, bookie: _Asked, failure: Failure) -> None:
        """One line for as long as it does not tell."""
        if not isinstance(failure.value, BookKeeperError):
            log.failure("Asking bookie {bookie_id} for its disk space", failure, bookie_id=bookie.bookie_id)
        elif not bookie.silent:
            log.info(
                "Bookie {bookie_id} did not tell its free space ({error}): {instead}; asked again every {again_s} s",
                bookie_id=bookie.bookie_id,
                error=failure.value,
                instead="what it told before counts on"
                if bookie.bookie_id in self._free_bytes
                else "it counts as the one with the least",
                again_s=f"{self._retry_interval_s:g}",
            )
        bookie.silent = True
