"""Long operations that a request begins and does not wait for: what they are at, and how they ended. Thread: reactor.

TASKS_MAX are remembered, the newest; one of a kind runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.admin.http.routing import conflict
from bookkeeper.errors import BookKeeperError

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

log = Logger()

TASKS_MAX = 16


@dataclass(slots=True)
class Task:
    """state: "running", "done" or "failed". said: its outcome, or why it failed. Times in ms since 1970."""

    what: str
    began_ms: int
    progress: Callable[[], object] | None
    state: str = "running"
    ended_ms: int | None = None
    said: str = ""

    def shown(self) -> dict[str, object]:
        """For JSON."""
        found: dict[str, object] = {"task": self.what, "state": self.state, "beganMs": self.began_ms}
        if self.ended_ms is not None:
            found |= {"endedMs": self.ended_ms, "said": self.said}
        elif self.progress is not None:
            found["progress"] = self.progress()
        return found


class LongTasks:
    """Those of one kind."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._tasks: list[Task] = []

    def begin(self, what: str, start: Callable[[], tuple[Deferred[str], Callable[[], object]]]) -> Task:
        """Begin it, unless one runs (Refused). start: gives its outcome, as a sentence, and the progress meanwhile."""
        if self._tasks and self._tasks[-1].state == "running":
            raise conflict(f"{self._tasks[-1].what} is under way; one at a time")
        outcome, progress = start()
        task = Task(what, self._now_ms(), progress)
        self._tasks = [*self._tasks, task][-TASKS_MAX:]
        log.info("{what}: begun as asked over HTTP", what=what)

        def ended(result: str | Failure) -> None:
            task.ended_ms, task.progress = self._now_ms(), None
            if not isinstance(result, Failure):
                task.state, task.said = "done", result
                log.info("{what}: {said}", what=what, said=result)
                return
            task.state, task.said = "failed", str(result.value) or repr(result.value)
            if isinstance(result.value, BookKeeperError):
                log.error("{what} failed: {error}", what=what, error=result.value)
            else:
                log.failure("{what} failed", failure=result, what=what)

        outcome.addBoth(ended)
        return task

    def shown(self) -> list[dict[str, object]]:
        """The newest last."""
        return [task.shown() for task in self._tasks]
