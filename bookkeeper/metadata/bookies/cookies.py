"""Cookies as znodes below R/cookies. The seam is `store.Cookies`. Source: bookkeeper/wire/FORMATS.md 4.1, 4.7."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.errors import NotInitialised, VersionConflict
from bookkeeper.metadata.bookies.service_info import check_bookie_id
from bookkeeper.metadata.ledgers.paths import NO_CLUSTER_REMEDY
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists, Tree
from bookkeeper.model import BookieId, Versioned

if TYPE_CHECKING:
    from bookkeeper.ports import Clock


class ZnodeCookies:
    """The Cookies over a Tree."""

    def __init__(self, tree: Tree, root: str, clock: Clock, settings: MetadataSettings) -> None:
        self._tree = tree
        self._root = root
        self._directory = f"{root}/cookies"
        self._clock = clock
        self._settings = settings

    def read(self, bookie_id: BookieId) -> Deferred[Versioned[bytes] | None]:
        """See Cookies."""
        return Deferred.fromCoroutine(self._read(bookie_id))

    def write(self, bookie_id: BookieId, data: bytes, version: int | None) -> Deferred[Versioned[bytes]]:
        """See Cookies."""
        if version is None:
            return Deferred.fromCoroutine(self._create(bookie_id, data))
        return Deferred.fromCoroutine(self._replace(bookie_id, data, version))

    def delete(self, bookie_id: BookieId, version: int) -> Deferred[None]:
        """See Cookies."""
        return Deferred.fromCoroutine(self._delete(bookie_id, version))

    def all(self) -> Deferred[Mapping[BookieId, Versioned[bytes]]]:
        """See Cookies."""
        return Deferred.fromCoroutine(self._all())

    async def _read(self, bookie_id: BookieId) -> Versioned[bytes] | None:
        found = await self._errand(f"read the cookie of {bookie_id}").read_surely(self._path(bookie_id))
        return None if found is None else Versioned(found[0], found[1].version)

    async def _create(self, bookie_id: BookieId, data: bytes) -> Versioned[bytes]:
        check_bookie_id(bookie_id)
        errand = self._errand(f"create the cookie of {bookie_id}")
        path = self._path(bookie_id)
        try:
            try:
                await errand.create(path, data, lambda found, stat: found == data and stat.version == 0)
            except NodeAbsent:
                await errand.ensure(self._directory)
                await errand.create(path, data, lambda found, stat: found == data and stat.version == 0)
        except NodeAbsent as error:
            raise NotInitialised(
                f"there is no cluster under {self._root} of {self._tree.description}; {NO_CLUSTER_REMEDY}"
            ) from error
        except NodeExists as error:
            raise VersionConflict(f"bookie {bookie_id} has a cookie already ({path})") from error
        return Versioned(data, 0)

    async def _replace(self, bookie_id: BookieId, data: bytes, version: int) -> Versioned[bytes]:
        path = self._path(bookie_id)
        try:
            stat = await self._errand(f"replace the cookie of {bookie_id}").write(path, data, version)
        except (NodeAbsent, NodeChanged) as error:
            raise VersionConflict(f"the cookie of {bookie_id} is not at version {version}: {error}") from error
        return Versioned(data, stat.version)

    async def _delete(self, bookie_id: BookieId, version: int) -> None:
        errand = self._errand(f"delete the cookie of {bookie_id}")
        path = self._path(bookie_id)
        stat = await errand.stat(path)
        if stat is None:
            return
        try:
            await errand.delete(path, version, stat.creation_id)
        except NodeAbsent:
            return
        except NodeChanged as error:
            raise VersionConflict(f"the cookie of {bookie_id} is not at version {version}: {error}") from error

    async def _all(self) -> Mapping[BookieId, Versioned[bytes]]:
        errand = self._errand("list the cookies")
        try:
            names = await errand.children(self._directory)
        except NodeAbsent:
            return {}
        cookies: dict[BookieId, Versioned[bytes]] = {}
        for name in sorted(names):
            found = await errand.read_if_present(f"{self._directory}/{name}")
            if found is not None:
                cookies[BookieId(name)] = Versioned(found[0], found[1].version)
        return cookies

    def _path(self, bookie_id: BookieId) -> str:
        return f"{self._directory}/{bookie_id}"

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose)
