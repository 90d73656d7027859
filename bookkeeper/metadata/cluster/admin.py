"""Making, formatting and removing a cluster. The seam is `store.ClusterAdmin`.

Source: bookkeeper/wire/FORMATS.md 4.10.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, FirstError, gatherResults

from bookkeeper.errors import (
    ClusterExists,
    ClusterInUse,
    MetadataCorrupt,
    MetadataError,
    MetadataUnavailable,
    NotInitialised,
)
from bookkeeper.metadata.cluster.layout import DEFAULT_KIND, Layout, LayoutKind
from bookkeeper.metadata.cluster.stored_layout import StoredLayout
from bookkeeper.metadata.ledgers.paths import NO_CLUSTER_REMEDY, SEQUENTIAL_PREFIX, is_any_parent_name, is_special_name
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import Create, NodeAbsent, NodeChanged, NodeExists, NodeNotEmpty, Tree

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.ports import Clock

REMOVALS_IN_FLIGHT_MAX = 32
"""Children of one node that are removed at a time."""

_FORMATTED = (
    *("idgen", "idgen-long", "LAYOUT", "cookies"),
    *("underreplication/ledgers", "underreplication/locks", "underreplication/badcopies", "underreplication/history"),
)


class ZnodeAdmin:
    """The ClusterAdmin over a Tree."""

    def __init__(
        self,
        tree: Tree,
        root: str,
        layout: StoredLayout,
        clock: Clock,
        random: Random,
        settings: MetadataSettings,
        on_removal: Callable[[], object],
    ) -> None:
        self._tree = tree
        self._root = root
        self._layout = layout
        self._clock = clock
        self._random = random
        self._settings = settings
        self._on_removal = on_removal  # what is known of the cluster is true no longer
        self._id_path = f"{root}/INSTANCEID"
        self._bookie_paths = (f"{root}/available", f"{root}/available/readonly")

    def exists(self) -> Deferred[bool]:
        """See ClusterAdmin."""
        return Deferred.fromCoroutine(self._exists())

    def initialise(self) -> Deferred[str]:
        """See ClusterAdmin."""
        return Deferred.fromCoroutine(self._initialise())

    def format(self) -> Deferred[str]:
        """See ClusterAdmin."""
        return Deferred.fromCoroutine(self._format())

    def nuke(self, instance_id: str) -> Deferred[None]:
        """See ClusterAdmin."""
        return Deferred.fromCoroutine(self._nuke(instance_id))

    def instance_id(self) -> Deferred[str]:
        """See ClusterAdmin."""
        return Deferred.fromCoroutine(self._instance_id())

    def layout(self) -> Deferred[Layout | None]:
        """See ClusterAdmin."""
        return Deferred.fromCoroutine(self._layout.read(self._errand("read the ledger layout")))

    async def _exists(self) -> bool:
        errand = self._errand("look for a cluster")
        await errand.sync()
        return await errand.stat(self._root) is not None

    async def _instance_id(self) -> str:
        found = await self._errand("read the instance id").read_surely(self._id_path)
        if found is None:
            raise NotInitialised(
                f"there is no cluster, and no {self._id_path}, at {self._tree.description}; {NO_CLUSTER_REMEDY}"
            )
        try:
            return found[0].decode("utf-8")
        except UnicodeDecodeError as error:
            raise MetadataCorrupt(
                f"{self._id_path}: the instance id is not text: {error}; restore it from the instanceId in the VERSION "
                "file of a bookie's directory"
            ) from error

    # --- making ----------------------------------------------------------------------------------------------------

    async def _initialise(self) -> str:
        if await self._exists():
            raise ClusterExists(
                f"there is a cluster already: {self._root} exists at {self._tree.description}. Use it, or another "
                "root; 'bookkeeper shell metaformat' would empty it, and with it every ledger of that cluster is lost"
            )
        errand = self._errand("make a new cluster")
        instance_id = self._new_instance_id()
        steps = [Create(self._root), *map(Create, self._bookie_paths), Create(self._id_path, instance_id.encode())]

        async def is_done() -> bool:
            found = await errand.read_if_present(self._id_path)
            return found is not None and found[0] == instance_id.encode()

        try:
            await errand.transact(steps, is_done)
        except NodeExists as error:
            raise ClusterExists(f"{self._root} was made by somebody else meanwhile") from error
        except NodeAbsent as error:
            raise NotInitialised(
                f"the parent of {self._root} does not exist at {self._tree.description}; create it first, "
                "or let 'bookkeeper shell metaformat' do so"
            ) from error
        self._layout.forget()
        await self._layout.store(errand, self._layout.wanted or DEFAULT_KIND)
        return instance_id

    async def _format(self) -> str:
        errand = self._errand(f"make {self._root}")
        stored = await self._stored_kind(errand)
        await errand.ensure_all(self._root)
        for path in self._bookie_paths:
            await errand.ensure(path)
        names = await self._errand(f"list {self._root}").children(self._root)
        await self._remove_all(
            f"{self._root}/{name}" for name in names if is_any_parent_name(name) or name.startswith(SEQUENTIAL_PREFIX)
        )
        await self._remove_all(f"{self._root}/{name}" for name in _FORMATTED)
        self._layout.forget()
        self._on_removal()
        await self._layout.store(self._errand("store the layout"), self._layout.wanted or stored)
        await self._remove(self._id_path)
        instance_id = self._new_instance_id()
        await self._errand("store the instance id").create(
            self._id_path, instance_id.encode(), lambda data, _stat: data == instance_id.encode()
        )
        return instance_id

    async def _stored_kind(self, errand: Errand) -> LayoutKind:
        try:
            stored = await self._layout.read(errand)
        except MetadataError as error:
            if isinstance(error, MetadataUnavailable):
                raise
            stored = None  # unreadable or foreign: formatting is how one gets rid of it
        return DEFAULT_KIND if stored is None else stored.kind

    def _new_instance_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    # --- removing --------------------------------------------------------------------------------------------------

    async def _nuke(self, instance_id: str) -> None:
        stored = await self._instance_id()
        if stored != instance_id:
            raise ClusterInUse(f"the cluster under {self._root} has instance id {stored}, not {instance_id}")
        errand = self._errand(f"look at {self._root}")
        for path in self._bookie_paths:
            try:
                bookies = [name for name in await errand.children(path) if name != "readonly"]
            except NodeAbsent:
                continue
            if bookies:
                raise ClusterInUse(
                    f"bookies are registered under {path}: {', '.join(sorted(bookies))}; stop them first"
                )
        names = await errand.children(self._root)
        foreign = [name for name in names if not (is_special_name(name) or is_any_parent_name(name))]
        if foreign:
            raise ClusterInUse(
                f"not BookKeeper's own under {self._root}: {', '.join(sorted(foreign))}; remove it first"
            )
        self._layout.forget()
        self._on_removal()
        await self._remove(self._root)

    async def _remove_all(self, paths: Iterable[str]) -> None:
        """Remove several subtrees, a bounded number at a time."""
        waiting = list(paths)
        while waiting:
            some, waiting = waiting[:REMOVALS_IN_FLIGHT_MAX], waiting[REMOVALS_IN_FLIGHT_MAX:]
            try:
                await gatherResults([Deferred.fromCoroutine(self._remove(path)) for path in some], consumeErrors=True)
            except FirstError as error:
                error.subFailure.raiseException()

    async def _remove(self, path: str) -> None:
        """Remove a subtree, leaves first, each node by the version it was seen with."""
        errand = self._errand(f"remove {path}")
        while (stat := await errand.stat(path)) is not None:
            try:
                if stat.children_count:
                    await self._remove_all(f"{path}/{name}" for name in await errand.children(path))
                    errand = self._errand(f"remove {path}")
                await errand.delete(path, stat.version, stat.creation_id)
            except (NodeAbsent, NodeChanged, NodeNotEmpty):
                # Somebody else is at work here as well: look again.
                errand.check_time(f"{path} keeps changing")

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose)
