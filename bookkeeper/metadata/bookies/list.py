"""Which bookies are registered: two directories of znodes, kept up to date by watches.

Source: bookkeeper/wire/FORMATS.md 4.6.

Each child is read once and watched; its creation id tells a re-registration apart from the old node even when both the
deletion and the new node fall between two listings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataCorrupt, MetadataError, MetadataUnavailable
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.bookies.service_info import parse_service_info
from bookkeeper.metadata.outcome import Errand, pause, until_connected
from bookkeeper.metadata.store import BookiesListener, MetadataSettings, StoreState, Watch
from bookkeeper.metadata.tree import NodeAbsent, Tree, TreeEvent, WatchListener
from bookkeeper.metadata.watches import Listeners, call_listener
from bookkeeper.model import AvailableBookies, BookieId, BookieServiceInfo

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

READ_ONLY_DIRECTORY = "readonly"
_CONSISTENT_ATTEMPTS_MAX = 5
_RECONNECTION_WAIT_S = 60.0
_REFUSAL_PAUSE_MAX_S = 30.0  # between attempts that fail for a reason which will hardly go away

log = Logger()


@dataclass(frozen=True, slots=True)
class _Registered:
    """One registration node."""

    creation_id: int
    info: BookieServiceInfo
    problem: str = ""  # why the bookie gets no new ledgers or copies; "" if it does


_Directory = dict[BookieId, _Registered]


class ZnodeBookies:
    """The BookieWatch over a Tree."""

    def __init__(self, tree: Tree, root: str, clock: Clock, settings: MetadataSettings) -> None:
        self._tree = tree
        self._clock = clock
        self._settings = settings
        self._writable_path = f"{root}/available"
        self._read_only_path = f"{root}/available/{READ_ONLY_DIRECTORY}"
        self._epochs: Mapping[BookieId, int] = {}
        self._listeners: Listeners[[AvailableBookies]] = Listeners()
        self._known: dict[str, _Directory] = {self._writable_path: {}, self._read_only_path: {}}
        self._outdated: dict[str, set[BookieId]] = {path: set() for path in self._known}  # to be read again
        self._reported = ReportedRecords()
        self._told: AvailableBookies | None = None
        self._refreshing = False
        self._stale = True  # something changed since the last refresh began

    def current(self) -> Deferred[AvailableBookies]:
        """See BookieWatch."""
        return Deferred.fromCoroutine(self._current())

    def watch(self, on_change: BookiesListener) -> Watch:
        """See BookieWatch."""
        subscription = self._listeners.add(on_change)
        if self._told is not None and not self._stale and not self._refreshing:
            call_listener(on_change, self._told)
        else:
            self._told = None
            self._refresh()
        return subscription

    def epoch(self, bookie_id: BookieId) -> int | None:
        """See BookieWatch."""
        return self._epochs.get(bookie_id)

    # --- once ------------------------------------------------------------------------------------------------------

    async def _current(self) -> AvailableBookies:
        """Read both directories. A bookie that changes its mode meanwhile must not be missed in both."""
        errand = Errand(self._tree, self._clock, self._settings, "list the bookies")
        for _ in range(_CONSISTENT_ATTEMPTS_MAX):
            before = await self._names(errand, self._writable_path)
            read_only = await self._read_all(errand, self._read_only_path)
            writable = await self._read_all(errand, self._writable_path)
            if set(before) == set(writable):
                return self._note(writable, read_only)
        raise MetadataUnavailable(
            f"the bookies under {self._writable_path} changed {_CONSISTENT_ATTEMPTS_MAX} times while they were listed"
        )

    async def _read_all(self, errand: Errand, path: str) -> _Directory:
        names = await self._names(errand, path)
        return await self._read_nodes(errand, path, names)

    async def _names(self, errand: Errand, path: str, watch: WatchListener | None = None) -> list[BookieId]:
        while True:
            try:
                names = await errand.children(path, watch)
            except NodeAbsent:
                # Not there yet; the watch is on its creation instead.
                if await errand.stat(path, watch) is None:
                    return []
                errand.check_time(f"{path} comes and goes")
                continue
            return [BookieId(name) for name in sorted(names) if name != READ_ONLY_DIRECTORY]

    async def _read_nodes(
        self,
        errand: Errand,
        path: str,
        names: Sequence[BookieId],
        watch_of: Callable[[BookieId], WatchListener] | None = None,
    ) -> _Directory:
        async def read(name: BookieId) -> _Registered | None:
            try:
                data, stat = await errand.read(f"{path}/{name}", None if watch_of is None else watch_of(name))
            except NodeAbsent:
                return None  # gone meanwhile
            return _registered(stat.creation_id, data, name, f"{path}/{name}")

        try:
            found = await gatherResults([Deferred.fromCoroutine(read(name)) for name in names], consumeErrors=True)
        except FirstError as error:
            error.subFailure.raiseException()  # callers act on what went wrong, not on the gathering
        return {name: registered for name, registered in zip(names, found, strict=True) if registered is not None}

    def _note(self, writable: _Directory, read_only: _Directory) -> AvailableBookies:
        epochs: dict[BookieId, int] = {}
        for directory in (writable, read_only):
            for name, registered in directory.items():
                epochs[name] = max(registered.creation_id, epochs.get(name, 0))
        self._epochs = epochs
        bad_records = BadRecords()
        unusable: dict[BookieId, str] = {}
        for path, directory in ((self._writable_path, writable), (self._read_only_path, read_only)):
            for name, registered in directory.items():
                if registered.problem:
                    unusable[name] = str(bad_records.add(f"{path}/{name}", registered.problem))
        self._reported.report(
            bad_records,
            "the bookie counts as registered, but gets no new ledgers or copies; restart it, or remove the znode",
        )
        return AvailableBookies(
            {name: registered.info for name, registered in writable.items()},
            {name: registered.info for name, registered in read_only.items()},
            unusable,
        )

    # --- for ever --------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        self._stale = True
        if not self._refreshing and len(self._listeners):
            self._refreshing = True
            Deferred.fromCoroutine(self._keep_refreshing()).addErrback(_log_unexpected)

    async def _keep_refreshing(self) -> None:
        delay_s = self._settings.retry_delay_s
        try:
            while self._stale and len(self._listeners) and self._tree.state is not StoreState.CLOSED:
                self._stale = False
                try:
                    await self._refresh_once()
                except MetadataError as error:
                    self._stale = True
                    if self._tree.state is StoreState.CONNECTED:
                        log.warn("Listing the bookies failed for now: {error}", error=error)
                    await until_connected(self._tree, self._clock, _RECONNECTION_WAIT_S)
                    await pause(self._clock, delay_s)
                    may_pass = isinstance(error, MetadataUnavailable)
                    delay_s = min(2 * delay_s, self._settings.retry_delay_max_s if may_pass else _REFUSAL_PAUSE_MAX_S)
        finally:
            self._refreshing = False

    async def _refresh_once(self) -> None:
        errand = Errand(self._tree, self._clock, self._settings, "list the bookies")
        for path, known in self._known.items():
            names = await self._names(errand, path, self._on_directory_event)
            outdated, self._outdated[path] = self._outdated[path], set()
            gone = [name for name in known if name not in names or name in outdated]
            for name in gone:
                del known[name]
            unread = [name for name in names if name not in known]
            known.update(await self._read_nodes(errand, path, unread, partial(_NodeListener, self, path)))
            if gone or unread:
                self._told = None
        if self._stale:
            return  # and once more
        if self._told is None:
            self._told = self._note(self._known[self._writable_path], self._known[self._read_only_path])
            self._listeners.tell(self._told)

    def _on_directory_event(self, _event: TreeEvent) -> None:
        self._refresh()

    def on_node_event(self, path: str, name: BookieId) -> None:
        """A watched registration node changed, went, or its watch was lost: read it again."""
        self._outdated[path].add(name)
        self._refresh()


@dataclass(frozen=True, slots=True)
class _NodeListener:
    bookies: ZnodeBookies
    path: str
    name: BookieId

    def __call__(self, _event: TreeEvent) -> None:
        self.bookies.on_node_event(self.path, self.name)


def _registered(creation_id: int, data: bytes, bookie_id: BookieId, path: str) -> _Registered:
    """Return the registration, with a problem if its data is unusable: the bookie is registered all the same (I-18)."""
    try:
        info = parse_service_info(data, bookie_id, path)
    except MetadataCorrupt as error:
        return _Registered(creation_id, BookieServiceInfo(()), str(error).removeprefix(f"{path}: "))
    if info.address() is not None:
        return _Registered(creation_id, info)
    # Genuine bookies from 4.12 on name their endpoint. Older ones write no data, and their id is the address.
    problem = "names no bookie-rpc endpoint" if data else "is empty, and its name is not host:port"
    return _Registered(creation_id, info, problem)


def _log_unexpected(failure: Failure) -> None:
    log.failure("Watching the bookies failed", failure=failure)
