"""Bytes of entry logs that a read met as damaged: the scrub looks at once whose entries are in them (I-67).

A read tells only of the entry it was for; the others in the same page, or in all that is gone of a log, would be found
by the next round, in days, or by whoever reads them when the other copies are gone.

    page of a log, or what is gone of it
    not known   --met-->                       waiting
    waiting     --taken, when it is due-->     looked at
    looked at   --the look failed-->           not known; its log is due no sooner than after a pause
                --met again-->                 nothing to do, but a damage that the read noted is checked once more
                --a round begins-->            not known, where it is gone; else it stays: the round reads all pages

    log         due at once, or behind the pause of its last look that failed: 10 s, doubling up to an hour, ended by a
                look that told, or by a round
    all logs    after a look that took long none is due for as long as it took: at most half of the time goes to looks

The bytes of a closed log never change, so one look at a page is enough. What is gone is keyed by where that begins: a
log may be cut again. What is gone names no page, and is looked at anew in each round: the index may name more entries,
or the record have room for them. A look that could not tell of all entries (an error, a record that is full) failed, as
has one at a log that is being written. Bounded: beyond PAGES_MAX what is met waits for the round.

Thread: any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from threading import Lock

GONE = -1
"""Instead of a page: all of a log that is not there. See `gone_from`."""

PAGES_MAX = 100_000
"""Pages that are remembered, of all logs: 400 MB of damaged bytes."""

PAUSE_S = 10.0
PAUSE_MAX_S = 3600.0
"""Between two looks at one log, the first of which failed."""

REST_MIN_S = 5.0
"""A look that took less needs no rest."""


def gone_from(size: int) -> int:
    """Instead of a page: what a log should have behind this many bytes, where its file ends."""
    return GONE - size


class BadBytes:
    """Pages of entry logs, by log id. now_s: any clock that only goes on."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = Lock()
        self._waiting: dict[int, set[int]] = {}
        self._looked: dict[int, set[int]] = {}
        self._count = 0
        self._late: set[int] = set()
        self._pauses: dict[int, tuple[int, float]] = {}  # looks that failed, one after the other; until when
        self._began_s = 0.0
        self._rest_until_s = float("-inf")

    def __len__(self) -> int:
        """Pages remembered."""
        return self._count

    @property
    def due(self) -> bool:
        """True when something is to be looked at, or checked once more, now."""
        with self._lock:
            return bool(self._late) or bool(self._waiting and self._due())

    def _due(self) -> list[int]:
        now_s = self._now_s()
        if now_s < self._rest_until_s:
            return []
        return [log_id for log_id in self._waiting if log_id not in self._pauses or self._pauses[log_id][1] <= now_s]

    def met(self, log_id: int, page: int, *, noted: bool = False) -> None:
        """A read found this page of a log damaged, GONE, or `gone_from`.

        noted: it has noted a damage that was not known. Where a look came before, that may be of an entry which was
        stored anew after the read had looked it up.
        """
        with self._lock:
            if page in self._waiting.get(log_id, ()):
                return
            if page in self._looked.get(log_id, ()) or self._count >= PAGES_MAX:
                if noted:
                    self._late.add(log_id)
                return
            self._count += 1
            self._waiting.setdefault(log_id, set()).add(page)

    def take(self) -> dict[int, list[int]]:
        """All that is due and nobody has looked at yet: logs, and their pages, ascending. The caller looks."""
        with self._lock:
            self._began_s = self._now_s()
            taken = {log_id: sorted(self._waiting.pop(log_id)) for log_id in self._due()}
            for log_id, pages in taken.items():
                self._looked.setdefault(log_id, set()).update(pages)
        return taken

    def take_late(self) -> list[int]:
        """Logs of which some damage is to be checked once more. The caller does."""
        with self._lock:
            late, self._late = sorted(self._late), set()
        return late

    def looked_at(self, log_id: int, pages: Iterable[int]) -> None:
        """Somebody looks at these without being asked."""
        with self._lock:
            waiting, looked = self._waiting.get(log_id, set()), self._looked.setdefault(log_id, set())
            for page in pages:
                if page in waiting:
                    waiting.discard(page)
                    looked.add(page)
                elif page not in looked and self._count < PAGES_MAX:
                    self._count += 1
                    looked.add(page)
            if not waiting:
                self._waiting.pop(log_id, None)
            if not looked:
                del self._looked[log_id]

    def checked(self, log_id: int) -> None:
        """What has been noted of the log so far is checked once more now."""
        with self._lock:
            self._late.discard(log_id)

    def told(self, log_id: int) -> None:
        """The look has told of all entries."""
        with self._lock:
            self._pauses.pop(log_id, None)

    def failed(self, log_id: int, pages: Iterable[int]) -> None:
        """The look did not tell: whoever meets them again has them looked at again, after a pause."""
        with self._lock:
            looked = self._looked.get(log_id, set())
            before = len(looked)
            looked.difference_update(pages)
            self._count -= before - len(looked)
            if not looked:
                self._looked.pop(log_id, None)
            tries = self._pauses.get(log_id, (0, 0.0))[0]
            pause_s = min(PAUSE_MAX_S, PAUSE_S * 2 ** min(tries, 16))
            self._pauses[log_id] = tries + 1, self._now_s() + pause_s

    def ended(self) -> None:
        """The look at what was taken last has ended."""
        with self._lock:
            now_s = self._now_s()
            if (took_s := now_s - self._began_s) >= REST_MIN_S:
                self._rest_until_s = now_s + took_s

    def begin_round(self, log_ids: Collection[int]) -> None:
        """A round begins: all that is gone may be met again at once. log_ids: of the logs there are."""
        with self._lock:
            self._pauses.clear()
            self._rest_until_s = float("-inf")
            looked = self._looked.items()
            kept = {log_id: {page for page in pages if page >= 0} for log_id, pages in looked if log_id in log_ids}
            self._looked = {log_id: pages for log_id, pages in kept.items() if pages}
            self._count = sum(map(len, (*self._waiting.values(), *self._looked.values())))
