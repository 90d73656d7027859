"""A `ports.Worker` without a thread: the test decides when work runs and when its callbacks are delivered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed


class ManualWorker:
    """Work waits in `submit` order until `run_one` or `run_all`; nothing ever runs inside `submit`."""

    def __init__(self, name: str = "manual") -> None:
        self.name = name
        self._queue: deque[tuple[Callable[[], Any], Callable[[Any], object], Callable[[BaseException], object]]] = (
            deque()
        )
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Pieces of work not yet run."""
        return len(self._queue)

    def submit(
        self, work: Callable[[], Any], on_done: Callable[[Any], object], on_error: Callable[[BaseException], object]
    ) -> None:
        """See ports.Worker."""
        if self._stopped:
            raise RuntimeError(f"worker {self.name} was stopped")
        self._queue.append((work, on_done, on_error))

    def run_one(self) -> None:
        """Run the oldest piece and its callback. Only an Exception goes to `on_error`; a power cut goes to the test."""
        work, on_done, on_error = self._queue.popleft()
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - as a real worker does
            on_error(error)
        else:
            on_done(result)

    def run_all(self) -> None:
        """Run until nothing waits, including what the callbacks submit."""
        while self._queue:
            self.run_one()

    def stop(self) -> Deferred[None]:
        """See ports.Worker."""
        self.run_all()
        self._stopped = True
        return succeed(None)
