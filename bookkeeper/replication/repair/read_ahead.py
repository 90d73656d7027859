"""Listings fetched while what was found before is used. Thread: reactor."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import again

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """The members of `source`'s batches. At most `found_max` wait, and one batch more."""

    def __init__(self, source: AsyncIterator[list[T]], found_max: int) -> None:
        self._found: deque[T] = deque()
        self._found_max = found_max
        self._reader: Deferred[None] | None = None  # waits for something to be found
        self._fetcher: Deferred[None] | None = None  # waits for room
        self._ended = False
        self._error: BaseException | None = None
        self._task = Deferred.fromCoroutine(self._fetch(source))
        self._task.addBoth(self._on_end)

    async def next(self) -> T | None:
        """The next one; None at the end. Raises what the source raised, once all before that was taken."""
        while not self._found:
            if self._error is not None:
                raise again(self._error)
            if self._ended:
                return None
            self._reader = Deferred(lambda _: None)
            await self._reader
        found = self._found.popleft()
        if len(self._found) < self._found_max and self._fetcher is not None:
            fetcher, self._fetcher = self._fetcher, None
            fetcher.callback(None)
        return found

    def stop(self) -> None:
        """Want no more."""
        self._reader = None
        if not self._ended:
            self._task.cancel()

    async def _fetch(self, source: AsyncIterator[list[T]]) -> None:
        async for batch in source:
            self._found.extend(batch)
            self._wake()
            while len(self._found) >= self._found_max:
                self._fetcher = Deferred(lambda _: None)
                await self._fetcher

    def _on_end(self, result: object) -> None:
        self._ended = True
        if isinstance(result, Failure) and not isinstance(result.value, CancelledError):
            self._error = result.value
        self._wake()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.called:
            reader.callback(None)
