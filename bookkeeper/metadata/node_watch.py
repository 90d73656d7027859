"""Following one znode for ever: what it is now, and every change that is seen; across sessions. Thread: reactor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataError, MetadataUnavailable
from bookkeeper.metadata.outcome import Errand, pause, until_connected
from bookkeeper.metadata.store import MetadataSettings, StoreState
from bookkeeper.metadata.tree import NodeAbsent, Stat, Tree, TreeEvent
from bookkeeper.metadata.watches import call_listener

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

NodeListener = Callable[[tuple[bytes, Stat] | None], object]

log = Logger()

_ATTEMPT_S = 60.0
_REFUSAL_PAUSE_MAX_S = 30.0  # between attempts that fail for a reason which will hardly go away


class NodeWatch:
    """Tells `on_change` the node soon (None: there is none), then every other state of it that is seen.

    A rewrite with the same bytes is a change: its version differs. What is told may lag, but not for ever.
    """

    def __init__(
        self, tree: Tree, clock: Clock, settings: MetadataSettings, path: str, on_change: NodeListener
    ) -> None:
        self._tree = tree
        self._clock = clock
        self._settings = settings
        self._path = path
        self._on_change = on_change
        self._told: tuple[int, int] | bool | None = False  # creation id and version; None: absent; False: nothing yet
        self._news: Deferred[None] | None = None
        self._cancelled = False
        self._telling = False  # from within `_follow`, which cannot be cancelled then
        self._following = Deferred.fromCoroutine(self._follow())
        self._following.addErrback(self._ended)

    def cancel(self) -> None:
        """No further callbacks."""
        if not self._cancelled:
            self._cancelled = True
            self._tree.forget(self._path, self._on_event)
            if not self._telling:
                self._following.cancel()

    async def _follow(self) -> None:
        delay_s = self._settings.retry_delay_s
        while not self._cancelled:
            try:
                if not await until_connected(self._tree, self._clock, _ATTEMPT_S):
                    if self._tree.state is StoreState.CLOSED:
                        return
                    continue
                news: Deferred[None] = Deferred()
                self._news = news
                self._tell(await self._look())
                delay_s = self._settings.retry_delay_s
                if not self._cancelled:
                    await news
            except MetadataError as error:
                if not isinstance(error, MetadataUnavailable):
                    log.error("Watching {path} failed for now: {error}", path=self._path, error=error)
                await pause(self._clock, delay_s)
                may_pass = isinstance(error, MetadataUnavailable)
                delay_s = min(2 * delay_s, self._settings.retry_delay_max_s if may_pass else _REFUSAL_PAUSE_MAX_S)

    async def _look(self) -> tuple[bytes, Stat] | None:
        errand = Errand(self._tree, self._clock, self._settings, f"watch {self._path}")
        while True:
            try:
                return await errand.read(self._path, self._on_event)
            except NodeAbsent:
                # The watch is on its creation instead.
                if await errand.stat(self._path, self._on_event) is None:
                    return None
                errand.check_time(f"{self._path} comes and goes")

    def _tell(self, found: tuple[bytes, Stat] | None) -> None:
        seen = None if found is None else (found[1].creation_id, found[1].version)
        if not self._cancelled and seen != self._told:
            self._told, self._telling = seen, True
            call_listener(self._on_change, found)
            self._telling = False

    def _on_event(self, _event: TreeEvent) -> None:
        news, self._news = self._news, None
        if news is not None and not news.called:
            news.callback(None)

    def _ended(self, failure: Failure) -> None:
        if not isinstance(failure.value, CancelledError) and not self._cancelled:
            log.failure("Watching {path} ended", path=self._path, failure=failure)
