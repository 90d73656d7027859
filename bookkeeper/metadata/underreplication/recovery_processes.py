"""U/workers: an ephemeral node for every process that audits and repairs, kept as long as the process wants.

The auditor's vote has the session of its process. So this list names the auditor even if the vote cannot be read.

Not Apache's. Who is missing here may be at work all the same: Apache's programs, and whose session has just ended.

Thread: reactor. Bound: PROCESSES_MAX are read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataCorrupt, MetadataError, MetadataUnavailable
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.outcome import Errand, pause, until_connected
from bookkeeper.metadata.store import Announcement, MetadataSettings, StoreState, Underreplication
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists, NodeKind, Tree, TreeEvent
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess, parse_process
from bookkeeper.model import BookieId

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

PROCESSES_MAX = 1000

_ATTEMPT_S = 60.0
_REFUSAL_PAUSE_MAX_S = 30.0


async def announced(errand: Errand, base: str, bad_records: BadRecords | None) -> tuple[RecoveryProcess, ...]:
    """Return all announced processes, by name. bad_records: receives unreadable records, which are passed over."""
    await errand.sync()
    try:
        names = sorted(await errand.children(base))[:PROCESSES_MAX]
    except NodeAbsent:
        return ()
    found: list[RecoveryProcess] = []
    for name in names:
        node = await errand.read_if_present(f"{base}/{name}")
        if node is not None:
            try:
                found.append(parse_process(node[0], f"{base}/{name}", node[1].owner))
            except MetadataCorrupt as error:
                log.debug("passed over: {error}", error=error)
                if bad_records is not None:
                    bad_records.add_unreadable(error)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class CurrentAuditor:
    """The candidate with the lowest vote.

    bookie_id: from the vote or, if that cannot be read, from the announcement of its process; else None. session_id: of
    the vote, None without a candidate. process: of that session, if it was searched for and is announced.
    """

    bookie_id: BookieId | None
    session_id: int | None
    process: RecoveryProcess | None

    @property
    def is_elected(self) -> bool:
        """Whether an auditor exists, with a known name or without."""
        return self.bookie_id is not None or self.session_id is not None


async def ask_for_audit(tree: Underreplication) -> None:
    """Write the recovery delay unchanged, which makes the auditor look for lost bookies now.

    Write nothing if no delay is stored: the auditor that begins stores the configured one.
    """
    delay_s = await tree.recovery_delay_s()
    if delay_s is not None:
        await tree.set_recovery_delay(delay_s)


async def find_auditor(
    tree: Underreplication, bad_records: BadRecords, *, with_process: bool = False
) -> CurrentAuditor:
    """Find the current auditor. bad_records: receives a vote that cannot be read.

    with_process: search for the process even if the vote can be read; that reads all announcements.
    """
    voted: BookieId | None = None
    try:
        voted = await tree.current_auditor()
    except MetadataCorrupt as error:
        bad_records.add_unreadable(error)
    session_id = await tree.auditor_session()
    process = None
    if session_id is not None and (voted is None or with_process):
        process = next((each for each in await tree.processes() if each.session_id == session_id), None)
    if voted is None and process is not None:
        voted = process.bookie_id
    return CurrentAuditor(voted, session_id, process)


class KeptAnnouncement:
    """An Announcement. make_directory(errand): makes U/workers."""

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        path: str,
        data: bytes,
        make_directory: Callable[[Errand], Deferred[None]],
    ) -> None:
        self._tree, self._clock, self._settings = tree, clock, settings
        self._path, self._data = path, data
        self._make_directory = make_directory
        self._news: Deferred[None] | None = None
        self._ended = False
        self._keeping = Deferred.fromCoroutine(self._keep())
        self._keeping.addErrback(self._on_end)

    def withdraw(self) -> Deferred[None]:
        """See Announcement."""
        return Deferred.fromCoroutine(self._withdraw())

    async def _keep(self) -> None:
        delay_s = self._settings.retry_delay_s
        while not self._ended:
            try:
                if not await until_connected(self._tree, self._clock, _ATTEMPT_S):
                    if self._tree.state is StoreState.CLOSED:
                        return
                    continue
                news: Deferred[None] = Deferred()
                self._news = news
                if await self._is_there():
                    delay_s = self._settings.retry_delay_s
                    await news
                    continue
            except MetadataError as error:
                log.debug("announcing this process: {error}", error=error)
                if not isinstance(error, MetadataUnavailable):
                    delay_s = min(2 * delay_s, _REFUSAL_PAUSE_MAX_S)
            await pause(self._clock, delay_s)
            delay_s = min(2 * delay_s, _REFUSAL_PAUSE_MAX_S)

    async def _is_there(self) -> bool:
        """Make it, and watch it; False where it went again, or that of an earlier session is still there."""
        session_id = self._tree.session_id
        errand = self._errand("announce this process")
        try:
            await errand.create(
                self._path, self._data, lambda _, stat: stat.owner == session_id, kind=NodeKind.EPHEMERAL
            )
        except NodeAbsent:
            await self._make_directory(errand)
            return False
        except NodeExists:
            pass
        stat = await errand.stat(self._path, self._on_event)
        return stat is not None and stat.owner == session_id

    def _on_event(self, _event: TreeEvent) -> None:
        news, self._news = self._news, None
        if news is not None and not news.called:
            news.callback(None)

    async def _withdraw(self) -> None:
        self._ended = True
        self._tree.forget(self._path, self._on_event)
        self._keeping.cancel()
        session_id = self._tree.session_id
        try:
            errand = self._errand("withdraw this process")
            stat = await errand.stat(self._path)
            if stat is not None and stat.owner == session_id:
                with suppress(NodeAbsent, NodeChanged):
                    await errand.delete(self._path, stat.version, stat.creation_id)
        except MetadataError as error:
            log.debug("withdrawing this process: {error}", error=error)

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose, one_session=True)

    def _on_end(self, failure: Failure) -> None:
        if not isinstance(failure.value, CancelledError) and not self._ended:
            log.failure("Announcing this process ended", failure=failure)


if TYPE_CHECKING:

    def _is_an_announcement(kept: KeptAnnouncement) -> Announcement:
        return kept
