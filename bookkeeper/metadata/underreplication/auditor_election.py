"""Who is the auditor: Apache's election by sequential ephemeral votes. Source: bookkeeper/wire/FORMATS.md 4.8.

    U/auditorelection/V_0000000007     bookieId: "10.0.0.1:3181"     the lowest: elected
    U/auditorelection/V_0000000009     bookieId: "10.0.0.2:3181"     watches V_0000000007, and nothing else

    out --join()--> voting --vote made--> waiting for its predecessor --none left--> elected
                                                      ^                                 |
                                                      +------ session lost, vote gone --+

Ours and Apache's candidates stand in one election. The vote says who is *meant* to audit, nothing more (I-20): two
auditors at once publish the same marks twice. A znode without a session is not a vote. A lost session ends the turn at
once; a suspended session does not. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.outcome import Errand, pause, until_connected
from bookkeeper.metadata.store import AuditorCandidate, MetadataSettings, StoreState, Watch
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, Stat, Tree, TreeEvent
from bookkeeper.metadata.underreplication.format import VOTE_PREFIX, format_vote, parse_vote, vote_number
from bookkeeper.model import BookieId

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

_ATTEMPT_S = 60.0
"""How long one attempt waits for a connection before it looks again whether it is still wanted."""


async def votes_of(errand: Errand, path: str) -> list[str]:
    """Names of the votes under `path`, the auditor's first. Raises NodeAbsent."""
    numbered = [(vote_number(name), name) for name in await errand.children(path)]
    return [name for _, name in sorted((number, name) for number, name in numbered if number is not None)]


async def elected_auditor(errand: Errand, path: str) -> BookieId | None:
    """Whose vote is the lowest; None while nobody stands. Raises MetadataCorrupt."""
    lowest = await _lowest_vote(errand, path)
    return None if lowest is None else parse_vote(lowest[1][0], lowest[0])


async def auditor_session(errand: Errand, path: str) -> int | None:
    """Which session made it."""
    lowest = await _lowest_vote(errand, path)
    return None if lowest is None else lowest[1][1].owner


async def _lowest_vote(errand: Errand, path: str) -> tuple[str, tuple[bytes, Stat]] | None:
    await errand.sync()
    while True:
        try:
            votes = await votes_of(errand, path)
        except NodeAbsent:
            return None
        for vote in votes:
            found = await errand.read_if_present(f"{path}/{vote}")
            if found is None:
                break
            if found[1].owner:
                return f"{path}/{vote}", found
        else:
            return None
        errand.check_time(f"votes under {path} come and go")


class AuditorElection:
    """One candidate. Made standing by `join`; may leave and join again. See AuditorCandidate.

    path: U/auditorelection. prepare(errand): makes it where it is missing.
    """

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        path: str,
        prepare: Callable[[Errand], Deferred[None]],
        bookie_id: BookieId,
        *,
        on_elected: Callable[[], object],
        on_lost: Callable[[], object],
        on_failed: Callable[[BaseException], object],
    ) -> None:
        self._tree = tree
        self._clock = clock
        self._settings = settings
        self._path = path
        self._prepare = prepare
        self._data = format_vote(bookie_id)
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._standing: Deferred[None] | None = None
        self._stands = False
        self._candidacy = 0  # counts joins and leaves: what an earlier one began must not go on
        self._telling = False  # from within `_stand`, which cannot be cancelled then
        self._vote: tuple[int, str] | None = None  # session and path of ours
        self._unsure_session = 0  # in which a vote of ours may be there that we do not know of
        self._elected = False
        self._news: Deferred[None] | None = None
        self._watched: str | None = None
        self._state_watch: Watch | None = None
        self._reported = ReportedRecords()

    @property
    def elected(self) -> bool:
        """Whether this candidate is the auditor, as far as it knows."""
        return self._elected

    def join(self) -> None:
        """See AuditorCandidate."""
        if self._stands:
            return
        self._stands = True
        self._candidacy += 1
        candidacy = self._candidacy
        self._state_watch = self._tree.watch_state(self._on_state)
        standing = Deferred.fromCoroutine(self._stand(candidacy))
        standing.addErrback(self._ended, candidacy)
        if candidacy == self._candidacy:
            self._standing = standing

    def leave(self) -> Deferred[None]:
        """See AuditorCandidate."""
        return Deferred.fromCoroutine(self._leave())

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
                log.info("Standing for auditor under {path}: {error}", path=self._path, error=error)
                await pause(self._clock, delay_s)
                delay_s = min(2 * delay_s, self._settings.retry_delay_max_s)

    async def _one_turn(self, candidacy: int) -> None:
        """Vote, look who is before us, and wait until that changes; or until our own turn ends."""
        errand = self._errand("stand", one_session=True)
        session_id = self._tree.session_id
        await self._prepare(errand)
        vote = await self._own_vote(errand, session_id)
        votes = await votes_of(errand, self._path)
        if vote not in votes:
            self._vote = None  # somebody removed it: vote anew
            self._tell(candidacy, self._end)
            return
        before = await self._predecessor(errand, votes[: votes.index(vote)])
        watched = f"{self._path}/{vote if before is None else before}"
        news: Deferred[None] = Deferred()
        self._news, self._watched = news, watched
        try:
            if await errand.stat(watched, self._on_event) is None or session_id != self._tree.session_id:
                return
            if before is not None:
                self._tell(candidacy, self._end)
            else:
                await self._sign(errand)
                if session_id != self._tree.session_id or self._tree.state is StoreState.LOST:
                    return
                self._tell(candidacy, self._begin)
            await news
            if before is None and self._tree.state is StoreState.CONNECTED:
                await self._check(session_id, candidacy, watched)
        finally:
            if candidacy == self._candidacy or not self._stands:
                self._forget()

    async def _predecessor(self, errand: Errand, votes: list[str]) -> str | None:
        """Return the last of the votes that belongs to a session, which is the vote to watch; None without one.

        A znode without a session is a stray: no candidate made it, so it would be watched for ever.
        """
        strays = BadRecords()
        found = None
        for name in reversed(votes):
            stat = await errand.stat(f"{self._path}/{name}")
            if stat is None or stat.owner:
                found = name
                break
            strays.add(f"{self._path}/{name}", "belongs to no session, so it is not a vote")
        self._reported.report(strays, "it is passed over; remove the znode, because Apache's candidates wait for it")
        return found

    async def _own_vote(self, errand: Errand, session_id: int) -> str:
        """The name of our vote in this session, made if there is none."""
        if self._vote is not None and self._vote[0] == session_id:
            return self._vote[1]
        found = await self._find_own(errand, session_id) if self._unsure_session == session_id else None
        if found is None:
            self._unsure_session = session_id
            found = await errand.create_sequential(
                f"{self._path}/{VOTE_PREFIX}", data=self._data, find_ours=lambda: self._find_own(errand, session_id)
            )
        self._vote = (session_id, found.rpartition("/")[2])
        self._unsure_session = 0
        return self._vote[1]

    async def _find_own(self, errand: Errand, session_id: int) -> str | None:
        """A vote of this session that says what ours says."""
        with suppress(NodeAbsent):
            for name in await votes_of(errand, self._path):
                found = await errand.read_if_present(f"{self._path}/{name}")
                if found is not None and found[1].owner == session_id and found[0] == self._data:
                    return f"{self._path}/{name}"
        return None

    async def _sign(self, errand: Errand) -> None:
        """Say in the election's node who won: for people only, so that a rival's word is left alone."""
        with suppress(NodeAbsent, NodeChanged):
            data, stat = await errand.read(self._path)
            if data != self._data:
                await errand.write(self._path, self._data, stat.version)

    async def _check(self, session_id: int, candidacy: int, vote: str) -> None:
        """After news: is the turn still ours? Its end is told before anything else is tried."""
        stat = await self._errand("look again").stat(vote)
        if stat is None or session_id != self._tree.session_id:
            self._vote = None
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

    def _on_event(self, _event: TreeEvent) -> None:
        self._tell_news()

    def _on_state(self, state: StoreState) -> None:
        if state in (StoreState.LOST, StoreState.CLOSED):
            self._end()
            self._tell_news()

    def _tell_news(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.called:
            news.callback(None)

    def _forget(self) -> None:
        watched, self._watched = self._watched, None
        self._news = None
        if watched is not None:
            self._tree.forget(watched, self._on_event)

    def _begin(self) -> None:
        if not self._elected:
            self._elected = True
            log.info("Elected auditor: {path}", path=self._path)
            self._on_elected()

    def _end(self) -> None:
        if self._elected:
            self._elected = False
            log.info("No longer auditor: {path}", path=self._path)
            self._on_lost()

    # --- the end

    def _ended(self, failure: Failure, candidacy: int) -> None:
        if candidacy != self._candidacy:
            return  # `leave` has seen to the rest
        error = failure.value
        if error is None or isinstance(error, CancelledError) or self._tree.state is StoreState.CLOSED:
            self._end()
            return
        log.failure("Standing for auditor under {path} ended", failure=failure, path=self._path)
        self._standing, self._stands = None, False
        if self._state_watch is not None:
            self._state_watch.cancel()
            self._state_watch = None
        self._end()
        self._on_failed(error)

    async def _leave(self) -> None:
        standing, self._standing = self._standing, None
        self._stands = False
        self._candidacy += 1
        if self._state_watch is not None:
            self._state_watch.cancel()
            self._state_watch = None
        if standing is not None and not self._telling:
            standing.cancel()
        self._forget()
        self._end()
        session_id = self._tree.session_id
        if self._unsure_session != session_id and (self._vote is None or self._vote[0] != session_id):
            return  # what an earlier session voted went with it
        errand = self._errand("leave", one_session=True)
        await errand.sync()  # what was on its way when the connection changed may not be on this server yet
        path = await self._find_own(errand, session_id)
        stat = None if path is None else await errand.stat(path)
        if path is None or stat is None or self._stands:
            return  # a candidacy that began meanwhile goes on with this vote
        self._unsure_session = session_id  # whatever becomes of it, the next candidacy looks
        if self._vote == (session_id, path.rpartition("/")[2]):
            self._vote = None
        with suppress(NodeAbsent, NodeChanged):
            await errand.delete(path, stat.version, stat.creation_id)

    def _errand(self, what: str, *, one_session: bool = False) -> Errand:
        return Errand(
            self._tree, self._clock, self._settings, f"{what} for auditor ({self._path})", one_session=one_session
        )


if TYPE_CHECKING:

    def _is_a_candidate(election: AuditorElection) -> AuditorCandidate:
        return election
