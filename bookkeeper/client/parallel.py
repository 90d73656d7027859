"""Running many pieces of work, some at a time. Thread: reactor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import again

T = TypeVar("T")


async def in_parallel(works: Iterable[Coroutine[Any, Any, None]], at_once: int) -> None:
    """Run all of them, `at_once` at a time, in the order they come; the first failure is raised once all have ended.

    After a failure no more are begun. Cancelling cancels those under way.
    """
    await _Crew(iter(works), at_once).run()


class _Crew:
    def __init__(self, works: Iterator[Coroutine[Any, Any, None]], at_once: int) -> None:
        self._works, self._at_once = works, at_once
        self._running: dict[Deferred[None], None] = {}
        self._failure: Failure | None = None
        self._exhausted = False
        self._filling = False
        self._done: Deferred[None] = Deferred(self._cancel)

    async def run(self) -> None:
        self._fill()
        if self._running:
            await self._done
        if self._failure is not None:
            self._failure.raiseException()

    def _fill(self) -> None:
        self._filling = True
        while not self._exhausted and self._failure is None and len(self._running) < self._at_once:
            work = next(self._works, None)
            if work is None:
                self._exhausted = True
                break
            task = Deferred.fromCoroutine(work)
            self._running[task] = None
            task.addBoth(self._ended, task)
        self._filling = False

    def _ended(self, result: object, task: Deferred[None]) -> None:
        self._running.pop(task, None)
        if isinstance(result, Failure) and self._failure is None:
            self._failure = result
        if self._filling:
            return
        self._fill()
        if not self._running and not self._done.called:
            self._done.callback(None)

    def _cancel(self, _: object) -> None:
        self._failure = self._failure or Failure(CancelledError())  # type: ignore[no-untyped-call]
        self._exhausted = True
        for task in list(self._running):
            task.cancel()


class Lanes:
    """At most `at_once` pieces of work at a time, begun one by one as they come up.

    Unlike `in_parallel` a failure is its piece's own affair: pieces must not raise.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running: dict[Deferred[None], None] = {}
        self._waiting: list[Deferred[None]] = []

    @property
    def busy(self) -> int:
        """Pieces under way."""
        return len(self._running)

    async def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a piece once there is a free lane; returns when it is started."""
        while len(self._running) >= self._at_once:
            try:
                await self._change()
            except BaseException:
                work.close()
                raise
        task = Deferred.fromCoroutine(work)
        self._running[task] = None
        task.addBoth(self._ended, task)

    async def drained(self) -> None:
        """Return when nothing is under way."""
        while self._running:
            await self._change()

    def cancel(self) -> None:
        """Cancel everything under way."""
        for task in list(self._running):
            task.cancel()

    def _change(self) -> Deferred[None]:
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    def _ended(self, result: object, task: Deferred[None]) -> object:
        self._running.pop(task, None)
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)
        if isinstance(result, Failure) and isinstance(result.value, CancelledError):
            return None
        return result


def tell_all(waiting: Iterable[Deferred[T]], result: T | Failure) -> None:
    """Fire every Deferred with the result; a Failure reaches each with an exception of its own."""
    if isinstance(result, Failure) and result.value is not None:
        for deferred in waiting:
            deferred.errback(again(result.value))
    else:
        for deferred in waiting:
            deferred.callback(result)


async def batched(source: AsyncIterator[list[T]]) -> AsyncIterator[T]:
    """The members of each batch, one by one."""
    async for batch in source:
        for each in batch:
            yield each
