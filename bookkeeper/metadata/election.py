"""Election: of the processes that stand for a role, the one whose ephemeral znode is there holds it.

    out --join()--> standing --node created--> elected --session lost, node gone, leave()--> out or standing again
                       |  ^
                       +--+  somebody else's node: wait until it goes, then try again

The node says who is *meant* to hold the role, nothing more (I-20): a process that is cut off or stopped may believe in
its turn after another's has begun. Whoever acts in the role is stopped by fencing, not by this.

A session that is lost ends the turn at once; one that is only suspended does not: the node is still there. Thread:
reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.outcome import Errand, pause, until_connected
from bookkeeper.metadata.store import MetadataSettings, StoreState, Watch
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists, NodeKind, Stat, Tree, TreeEvent

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

_ATTEMPT_S = 60.0
"""How long one attempt waits for a connection before it looks again whether it is still wanted."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the role. turn: rises with every change of holder (the znode's creation id)."""

    data: bytes
    turn: int


class Election:
    """One candidate. Made standing by `join`; may leave and join again.

    path: of the znode; its parents are made. data: what the node says of this candidate.
    on_elected(turn), on_lost(): the turn has begun; it has ended. They alternate, beginning with on_elected.
    on_failed(error): access was refused, or a fault of ours: the candidate stands no more.
    """

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        path: str,
        data: bytes,
        *,
        on_elected: Callable[[int], object],
        on_lost: Callable[[], object],
        on_failed: Callable[[BaseException], object],
    ) -> None:
        self._tree = tree
        self._clock = clock
        self._settings = settings
        self.path = path
        self._data = data
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._standing: Deferred[None] | None = None
        self._stands = False
        self._candidacy = 0  # counts joins and leaves: what an earlier one began must not go on
        self._telling = False  # from within `_stand`, which cannot be cancelled then
        self._may_hold = False  # a node of ours may be there
        self._turn: int | None = None
        self._news: Deferred[None] | None = None
        self._state_watch: Watch | None = None

    @property
    def elected(self) -> bool:
        """Whether the turn is this candidate's, as far as it knows."""
        return self._turn is not None

    def join(self) -> None:
        """Stand for the role from now on. Harmless when repeated."""
        if self._stands:
            return
        self._stands = self._may_hold = True
        self._candidacy += 1
        candidacy = self._candidacy
        self._state_watch = self._tree.watch_state(self._on_state)
        standing = Deferred.fromCoroutine(self._stand(candidacy))
        standing.addErrback(self._ended, candidacy)
        if candidacy == self._candidacy:
            self._standing = standing

    def leave(self) -> Deferred[None]:
        """Stand no more, and give the role up if it was held; fires once the node is gone. Harmless when repeated.

        Fails with MetadataUnavailable where the node could not be removed; it then goes with the session.
        """
        return Deferred.fromCoroutine(self._leave())

    def holder(self) -> Deferred[Holder | None]:
        """Who holds the role now; None while nobody does."""
        return Deferred.fromCoroutine(self._holder())

    async def _holder(self) -> Holder | None:
        found = await self._errand("see who").read_surely(self.path)
        return None if found is None else Holder(found[0], found[1].creation_id)

    # --- standing

    async def _stand(self, candidacy: int) -> None:
        delay_s = self._settings.retry_delay_s
        while True:
            try:
                if not await until_connected(self._tree, self._clock, _ATTEMPT_S):
                    if self._tree.state is StoreState.CLOSED:
                        return
                    continue
                await self._one_turn(candidacy)
                delay_s = self._settings.retry_delay_s
            except MetadataUnavailable as error:
                log.info("Standing for {path}: {error}", path=self.path, error=error)
                await pause(self._clock, delay_s)
                delay_s = min(2 * delay_s, self._settings.retry_delay_max_s)

    async def _one_turn(self, candidacy: int) -> None:
        """Wait for the turn and see it through; or see another's end."""
        errand = self._errand("stand")
        session_id = self._tree.session_id
        news = self._wait_for_news()
        try:
            stat = await errand.stat(self.path, self._on_event)
            if stat is None:
                self._tree.forget(self.path, self._on_event)
                await self._try_create(errand)
                return
            if stat.owner == session_id == self._tree.session_id:
                self._tell(candidacy, lambda: self._begin(stat))
            else:
                self._tell(candidacy, self._end)
            await news
            if self._tree.state is StoreState.CONNECTED:
                await self._check(session_id, candidacy)
        finally:
            if candidacy == self._candidacy or not self._stands:
                self._tree.forget(self.path, self._on_event)
                self._news = None

    async def _try_create(self, errand: Errand) -> None:
        """Make the node, unless somebody is faster: the next look watches his."""
        try:
            await errand.create(
                self.path, self._data, lambda _, stat: stat.owner == self._tree.session_id, kind=NodeKind.EPHEMERAL
            )
        except NodeAbsent:
            await errand.ensure_all(self.path.rpartition("/")[0])
        except NodeExists:
            return

    async def _check(self, session_id: int, candidacy: int) -> None:
        """After news: is the turn still ours? Its end is told before anything else is tried."""
        stat = await self._errand("look again").stat(self.path)
        if stat is None or stat.owner != session_id or session_id != self._tree.session_id:
            self._tell(candidacy, self._end)

    def _tell(self, candidacy: int, tell: Callable[[], None]) -> None:
        """Say how the turn is. Whoever hears it may leave: this candidacy is then over."""
        before, self._telling = self._telling, True
        try:
            tell()
        finally:
            self._telling = before
        if candidacy != self._candidacy:
            raise CancelledError

    def _wait_for_news(self) -> Deferred[None]:
        news: Deferred[None] = Deferred()
        self._news = news
        return news

    def _on_event(self, event: TreeEvent) -> None:
        self._tell_news()

    def _on_state(self, state: StoreState) -> None:
        if state in (StoreState.LOST, StoreState.CLOSED):
            self._end()
            self._tell_news()

    def _tell_news(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.called:
            news.callback(None)

    def _begin(self, stat: Stat) -> None:
        if self._turn != stat.creation_id:
            self._end()
            self._turn = stat.creation_id
            log.info("Elected: {path}", path=self.path)
            self._on_elected(stat.creation_id)

    def _end(self) -> None:
        if self._turn is not None:
            self._turn = None
            log.info("No longer elected: {path}", path=self.path)
            self._on_lost()

    # --- the end

    def _ended(self, failure: Failure, candidacy: int) -> None:
        if candidacy != self._candidacy:
            return  # `leave` has seen to the rest
        error = failure.value
        if error is None or isinstance(error, CancelledError) or self._tree.state is StoreState.CLOSED:
            self._end()  # with the session, or by `leave`
        else:
            log.failure("Standing for {path} ended", failure=failure, path=self.path)
            self._standing, self._stands = None, False
            if self._state_watch is not None:
                self._state_watch.cancel()
                self._state_watch = None
            self._end()
            self._on_failed(error)  # whoever hears it leaves, which removes a node that is there all the same

    async def _leave(self) -> None:
        if not self._may_hold:
            return
        standing, self._standing = self._standing, None
        self._stands = False
        self._candidacy += 1
        candidacy = self._candidacy
        if self._state_watch is not None:
            self._state_watch.cancel()
            self._state_watch = None
        if standing is not None and not self._telling:
            standing.cancel()
        self._end()
        errand = self._errand("leave")
        await errand.sync()  # what was on its way when the connection changed may not be on this server yet
        stat = await errand.stat(self.path)
        if stat is not None and stat.owner == self._tree.session_id != 0:
            with suppress(NodeAbsent, NodeChanged):
                await errand.delete(self.path, stat.version, stat.creation_id)
        if candidacy == self._candidacy:
            self._may_hold = False  # else it stands again, or a later call sees to it

    def _errand(self, what: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, f"{what} ({self.path})")
