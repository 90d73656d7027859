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

from bookkeeper.errors import MetadataCorrupt, MetadataError, MetadataUnavailable
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import LISTING_BATCH_MAX, MetadataSettings, StoreState
from bookkeeper.metadata.tree import NodeAbsent, Tree, TreeEvent
from bookkeeper.metadata.underreplication_format import DIRECTORY_DEPTH, is_mark_directory, ledger_of_leaf, mark_path
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
    new_errand: Callable[[], Errand], base: str, random: Random | None
) -> AsyncIterator[list[LedgerId]]:
    """All marked ledgers under `base`, in batches of 1..LISTING_BATCH_MAX; holds the names of one directory per level,
    and of READ_AHEAD on the last.

    random: None goes in ascending order, and a name that is no mark's and no directory's is MetadataCorrupt: a listing
    that may be short must not look complete. Otherwise directories, and marks in one, come in random order, so that
    many workers begin at different places; and a stranger, which must not stop all repair, is logged and passed over.
    """
    batch: list[LedgerId] = []
    async for ledger_id in _walk(new_errand, base, base, DIRECTORY_DEPTH, random):
        batch.append(ledger_id)
        if len(batch) == LISTING_BATCH_MAX:
            yield batch
            batch = []
    if batch:
        yield batch


async def _walk(
    new_errand: Callable[[], Errand], base: str, path: str, depth: int, random: Random | None
) -> AsyncIterator[LedgerId]:
    names = await _children(new_errand, path)
    async for ledger_id in _walk_names(new_errand, base, path, names, depth, random):
        yield ledger_id


async def _walk_names(
    new_errand: Callable[[], Errand], base: str, path: str, names: list[str], depth: int, random: Random | None
) -> AsyncIterator[LedgerId]:
    """What is below `path`, whose children are `names`."""
    names.sort(key=lambda name: (len(name), name))  # leaves of more digits have greater ids
    if random is not None:
        random.shuffle(names)
    if depth == 1:
        # Each of these holds a mark or a few: read one after the other they would cost a round trip per ledger.
        for name in names:
            if not is_mark_directory(name):
                _note_stranger(f"{path}/{name}", random)
        directories = [f"{path}/{name}" for name in names if is_mark_directory(name)]
        async for directory, found in _children_ahead(new_errand, directories):
            async for ledger_id in _walk_names(new_errand, base, directory, found, 0, random):
                yield ledger_id
        return
    for name in names:
        if depth and is_mark_directory(name):
            async for ledger_id in _walk(new_errand, base, f"{path}/{name}", depth - 1, random):
                yield ledger_id
            continue
        ledger = ledger_of_leaf(name) if depth == 0 else None
        if ledger is not None and base + mark_path(ledger) == f"{path}/{name}":
            yield ledger
        else:
            _note_stranger(f"{path}/{name}", random)


def _note_stranger(path: str, random: Random | None) -> None:
    if random is None:
        raise MetadataCorrupt(f"{path} is neither the mark of an under-replicated ledger nor a directory")
    log.error("{path} is no mark of an under-replicated ledger; passed over", path=path)


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
    """Tells `on_work` soon, and again when marks have come or gone since; at most once in WORK_PAUSE_S.

    It watches the directories above those of single marks, and reads again those that changed. Beyond
    DIRECTORIES_WATCHED_MAX changes in the rest go unnoticed; and a lock that is given up is no news either: who waits
    for work looks again now and then.
    """

    def __init__(
        self, tree: Tree, clock: Clock, settings: MetadataSettings, base: str, on_work: Callable[[], object]
    ) -> None:
        self._tree = tree
        self._clock = clock
        self._settings = settings
        self._base = base
        self._on_work = on_work
        self._watched: dict[str, _DirectoryListener] = {}  # by path
        self._changed: set[str] = {base}  # to be read; each is watched, or is to be
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
            if path != self._base:
                self._watched.pop(path, None)
            elif await errand.stat(path, listener) is not None:
                self.on_event(path)
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
