"""Bytes of entry logs that a read met as damaged: the scrub looks at once whose entries are in them (I-67).

    met ----> waiting ----(taken)----> looked at, for good ----(the look failed)----> may be met again

A read tells only of the entry it was for; the others in the same page, or in all that is gone of a log, would be found
by the next round, in days, or by whoever reads them when the other copies are gone. The bytes of a log never change, so
one look at a page is enough. Bounded: beyond PAGES_MAX what is met waits for the round.

Thread: any.
"""

from __future__ import annotations

from threading import Lock

GONE = -1
"""Instead of a page: what the file should have behind its end; all of a log that is not there."""

PAGES_MAX = 100_000
"""Pages that are remembered, of all logs: 400 MB of damaged bytes."""


class BadBytes:
    """Pages of entry logs, by log id."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[int, set[int]] = {}
        self._looked: dict[int, set[int]] = {}
        self._count = 0

    @property
    def waiting(self) -> bool:
        """True when a look is due."""
        return bool(self._waiting)

    def met(self, log_id: int, page: int) -> None:
        """A read found this page of a log damaged, or GONE."""
        with self._lock:
            if page in self._looked.get(log_id, ()) or page in self._waiting.get(log_id, ()):
                return
            if self._count < PAGES_MAX:
                self._count += 1
                self._waiting.setdefault(log_id, set()).add(page)

    def take(self) -> tuple[int, list[int]] | None:
        """A log and those of its pages that nobody has looked at yet, ascending; the caller does."""
        with self._lock:
            if not self._waiting:
                return None
            log_id, pages = self._waiting.popitem()
            self._looked.setdefault(log_id, set()).update(pages)
        return log_id, sorted(pages)

    def looked_at(self, log_id: int, pages: list[int]) -> None:
        """Somebody looks, or has looked, at these without being asked."""
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

    def failed(self, log_id: int, pages: list[int]) -> None:
        """The look did not tell: whoever meets them again has them looked at again."""
        with self._lock:
            looked = self._looked.get(log_id, set())
            self._count -= len(looked.intersection(pages))
            looked.difference_update(pages)
            if not looked:
                self._looked.pop(log_id, None)
