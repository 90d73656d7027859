"""Walking the marks of under-replicated ledgers, a directory at a time; and hearing of new ones.

Nothing here syncs: what was marked a moment ago elsewhere may be missed, and is seen by the next walk. Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataError, MetadataUnavailable
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import LISTING_BATCH_MAX, MetadataSettings, StoreState
from bookkeeper.metadata.tree import NodeAbsent, Tree, TreeEvent
from bookkeeper.metadata.underreplication.format import (
    DIRECTORY_DEPTH,
    is_mark_directory,
    ledger_of_directory,
    ledger_of_leaf,
    mark_path,
)
from bookkeeper.metadata.watches import call_listener
from bookkeeper.model import LedgerId

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.ports import Clock, Timer

DIRECTORIES_WATCHED_MAX = 4096
"""Directories a WorkWatch watches: of 65536 ids each, so enough for 2**28 ledgers whose ids follow each other."""

READ_AHEAD = 32
"""Directories of marks that a walk reads at once."""

WORK_PAUSE_S = 2.0
"""Between two looks of a WorkWatch: an auditor that publishes a hundred thousand marks costs one listing per pause."""

log = Logger()


async def walk_marks(
    new_errand: Callable[[], Errand], base: str, bad_records: BadRecords | None
) -> AsyncIterator[list[LedgerId]]:
    """All marked ledgers under `base`, ascending, in batches of 1..LISTING_BATCH_MAX; holds the names of one directory
    per level, and of READ_AHEAD on the last.

    bad_records: receives znodes that are neither marks nor directories. Without it, a walk that found any raises
    MetadataCorrupt at its end: an incomplete listing must not look complete.
    """
    strays = BadRecords() if bad_records is None else bad_records
    async for batch in _batched(_walk(new_errand, base, base, DIRECTORY_DEPTH, strays)):
        yield batch
    if bad_records is None:
        strays.check()


async def walk_candidates(
    new_errand: Callable[[], Errand],
    base: str,
    random: Random,
    on_listed: Callable[[str, int], object],
    bad_records: BadRecords | None,
) -> AsyncIterator[list[LedgerId]]:
    """Ledgers that have a directory for a mark under `base`, in batches of 1..LISTING_BATCH_MAX, for workers.

    The directory tells the ledger, so that it is not listed, too: the mark is read under the lock of the ledger anyway,
    and one that was removed a moment ago is then found to be gone. Directories come in random order, so that many
    workers begin at different places.

    on_listed: called with each directory of such directories, and how many it holds. bad_records: as for `walk_marks`.
    """
    strays = BadRecords() if bad_records is None else bad_records
    async for batch in _batched(_walk_directories(new_errand, base, "", DIRECTORY_DEPTH, random, on_listed, strays)):
        yield batch
    if bad_records is None:
        strays.check()


async def _batched(source: AsyncIterator[LedgerId]) -> AsyncIterator[list[LedgerId]]:
    batch: list[LedgerId] = []
    async for ledger_id in source:
        batch.append(ledger_id)
        if len(batch) == LISTING_BATCH_MAX:
            yield batch
            batch = []
    if batch:
        yield batch


async def _walk_directories(
    new_errand: Callable[[], Errand],
    base: str,
    below: str,
    depth: int,
    random: Random,
    on_listed: Callable[[str, int], object],
    strays: BadRecords,
) -> AsyncIterator[LedgerId]:
    """What is under `base` + `below`, which holds directories of `depth` levels."""
    names = await _children(new_errand, base + below)
    if depth == 1:
        on_listed(base + below, len(names))
    random.shuffle(names)
    for name in names:
        path = f"{below}/{name}"
        if not is_mark_directory(name):
            _add_stray(strays, base + path)
        elif depth > 1:
            async for ledger_id in _walk_directories(new_errand, base, path, depth - 1, random, on_listed, strays):
                yield ledger_id
        elif (ledger := ledger_of_directory(path)) is not None:
            yield ledger
        else:
            _add_stray(strays, base + path)


async def _walk(
    new_errand: Callable[[], Errand], base: str, path: str, depth: int, strays: BadRecords
) -> AsyncIterator[LedgerId]:
    names = []
    for name in await _children(new_errand, path):
        if is_mark_directory(name):
            names.append(name)
        else:
            _add_stray(strays, f"{path}/{name}")
    names.sort(key=lambda name: (len(name), name))  # leaves of more digits have greater ids
    if depth > 1:
        for name in names:
            async for ledger_id in _walk(new_errand, base, f"{path}/{name}", depth - 1, strays):
                yield ledger_id
        return
    # Each of these holds a mark or a few: read one after the other they would cost a round trip per ledger.
    async for directory, found in _children_ahead(new_errand, [f"{path}/{name}" for name in names]):
        for name in sorted(found):
            ledger = ledger_of_leaf(name)
            if ledger is None or base + mark_path(ledger) != f"{directory}/{name}":
                _add_stray(strays, f"{directory}/{name}")
            else:
                yield ledger


def _add_stray(strays: BadRecords, path: str) -> None:
    strays.add(path, "is neither the mark of an under-replicated ledger nor a directory of marks")


async def _children_ahead(new_errand: Callable[[], Errand], paths: list[str]) -> AsyncIterator[tuple[str, list[str]]]:
    """Each path with its children, in order; up to READ_AHEAD of them are asked for at once."""
    asked: deque[tuple[str, Deferred[list[str]]]] = deque()
    left = iter(paths)
    try:
        while True:
            while len(asked) < READ_AHEAD and (path := next(left, None)) is not None:
                asked.append((path, Deferred.fromCoroutine(_children(new_errand, path))))
            if not asked:
                return
            path, reading = asked.popleft()
            yield path, await reading
    finally:
        for _, reading in asked:
            reading.addErrback(lambda _: None)  # nobody waits for it any more
            reading.cancel()


async def _children(new_errand: Callable[[], Errand], path: str) -> list[str]:
    try:
        return await new_errand().children(path)
    except NodeAbsent:
        return []  # its last mark was removed meanwhile, or there never was one


class WorkWatch:
    """Tells `on_work` soon, and again when marks have come or gone since, or notes of ledgers with bad copies under
    `reports`; at most once in WORK_PAUSE_S.

    It watches the directories above those of single marks, and reads again those that changed. Beyond
    DIRECTORIES_WATCHED_MAX changes in the rest go unnoticed; what is added to a note that is there is no news, nor is a
    lock that is given up: who waits for work looks again now and then.
    """

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        base: str,
        reports: str,
        on_work: Callable[[], object],
    ) -> None:
        self._tree = tree
        self._clock = clock
        self._settings = settings
        self._base = base
        self._reports = reports
        self._on_work = on_work
        self._watched: dict[str, _DirectoryListener] = {}  # by path
        self._changed: set[str] = {base, reports}  # to be read; each is watched, or is to be
        self._reading = False
        self._timer: Timer | None = None
        self._cancelled = False
        self._states = tree.watch_state(self._on_state)
        self._read_soon(0.0)

    def cancel(self) -> None:
        """No further callbacks."""
        self._cancelled = True
        self._states.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for path, listener in self._watched.items():
            self._tree.forget(path, listener)
        self._watched.clear()

    def _on_state(self, state: StoreState) -> None:
        if state is StoreState.CONNECTED:
            self._read_soon(0.0)
        elif state is StoreState.CLOSED:
            self.cancel()

    def on_event(self, path: str) -> None:
        """A watched directory changed, or its watch was lost."""
        self._changed.add(path)
        self._read_soon(WORK_PAUSE_S)

    def _read_soon(self, delay_s: float) -> None:
        if self._timer is None and not self._reading and not self._cancelled:
            self._timer = self._clock.callLater(delay_s, self._start_reading)

    def _start_reading(self) -> None:
        self._timer = None
        if self._tree.state is StoreState.CONNECTED:
            self._reading = True
            Deferred.fromCoroutine(self._read()).addBoth(self._on_read)

    async def _read(self) -> None:
        changed, self._changed = self._changed, set()
        while changed and not self._cancelled:
            path = changed.pop()
            try:
                changed.update(await self._read_directory(path))
            except MetadataError:
                self._changed |= {path, *changed}
                raise

    async def _read_directory(self, path: str) -> list[str]:
        """Watch and list one; the directories in it that are not watched yet."""
        listener = self._watched.get(path)
        if listener is None:
            if len(self._watched) >= DIRECTORIES_WATCHED_MAX:
                return []
            listener = self._watched[path] = _DirectoryListener(self, path)
        errand = Errand(self._tree, self._clock, self._settings, "watch for ledgers to repair")
        try:
            names = await errand.children(path, listener)
        except NodeAbsent:
            if path not in (self._base, self._reports):
                self._watched.pop(path, None)
            elif await errand.stat(path, listener) is not None:
                self.on_event(path)
            return []
        if path == self._reports:
            return []
        if path.count("/") - self._base.count("/") == DIRECTORY_DEPTH - 1:
            # Those below have room for one mark each and come and go with it: watching them would use up all watches.
            return []
        below = (f"{path}/{name}" for name in names if is_mark_directory(name))
        return [directory for directory in below if directory not in self._watched]

    def _on_read(self, result: object) -> None:
        self._reading = False
        if self._cancelled:
            for path, listener in self._watched.items():  # one that was under way when it was cancelled
                self._tree.forget(path, listener)
            return
        if isinstance(result, Failure) and not isinstance(result.value, MetadataUnavailable):
            log.error("Watching {base} failed for now: {error}", base=self._base, error=result.value)
        if self._changed:
            self._read_soon(WORK_PAUSE_S)
        if not isinstance(result, Failure):
            call_listener(self._on_work)


class _DirectoryListener:
    """The watch on one directory."""

    __slots__ = ("_of", "_path")

    def __init__(self, of: WorkWatch, path: str) -> None:
        self._of = of
        self._path = path

    def __call__(self, _event: TreeEvent) -> None:
        self._of.on_event(self._path)
