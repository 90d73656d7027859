"""Long walks over the namespace in slices, so that other requests are served between them.

    run(steps) --first step--> done, or waits --SLICE_S of each turn for all walks, a step each in turn--> done

At most WALKS_MAX walks wait; another one is refused. A walk of one step never waits. Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twisted.internet.defer import Deferred

from journalmgr.namenode.http.messages import Overloaded

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

T = TypeVar("T")

SLICE_S: Final = 0.005
WALKS_MAX: Final = 16


class Slices:
    """See the module."""

    # _walks is empty, or _turn is scheduled, or _turn runs

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._walks: deque[tuple[Generator[None, None, Any], Deferred[Any]]] = deque()
        self._is_scheduled = False

    def run(self, steps: Generator[None, None, T]) -> Deferred[T]:
        """Fire with what the walk returns, or fail with what it raises. Raises Overloaded if too many walks wait."""
        done: Deferred[T] = Deferred()
        if _ends(steps, done):
            return done
        if len(self._walks) >= WALKS_MAX:
            steps.close()
            raise Overloaded(f"{WALKS_MAX} long looks at the namespace are in progress; repeat it later")
        self._walks.append((steps, done))
        self._schedule()
        return done

    def _schedule(self) -> None:
        if self._walks and not self._is_scheduled:
            self._is_scheduled = True
            self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        until_s = self._clock.seconds() + SLICE_S
        while self._walks:
            steps, done = self._walks.popleft()
            if not _ends(steps, done):
                self._walks.append((steps, done))
            if self._clock.seconds() >= until_s:
                break
        self._is_scheduled = False
        self._schedule()


def _ends(steps: Generator[None, None, T], done: Deferred[T]) -> bool:
    """Take a step; whether it was the last one."""
    try:
        next(steps)
    except StopIteration as end:
        done.callback(end.value)
        return True
    except Exception:  # noqa: BLE001 - of one request: other walks continue
        done.errback()
        return True
    return False
