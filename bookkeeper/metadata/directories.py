"""Making missing directories once, however many operations find them missing at the same time."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from bookkeeper.metadata.outcome import Errand


class Directories:
    """Of a thousand ledgers created at once in a new directory, one makes the directory and the others wait for it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._waiting: dict[str, list[Deferred[None]]] = {}  # by the directory that is being made

    async def make(self, errand: Errand, path: str) -> None:
        """Make a directory below the root, or wait until somebody has tried; the caller tries again either way."""
        waiting = self._waiting.get(path)
        if waiting is not None:
            turn: Deferred[None] = Deferred()
            waiting.append(turn)
            await turn
            return
        self._waiting[path] = []
        try:
            await errand.ensure_all(path, self._root)
        finally:
            for turn in self._waiting.pop(path):
                if not turn.called:
                    turn.callback(None)
