"""Work on another thread, awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.ports import Worker

T = TypeVar("T")


def on_worker(worker: Worker, work: Callable[[], T]) -> Deferred[T]:
    """Run `work` on the worker's thread; fires on the reactor. Cancelling stops the waiting, not the work."""
    done: Deferred[T] = Deferred()
    worker.submit(work, done.callback, done.errback)
    return done
