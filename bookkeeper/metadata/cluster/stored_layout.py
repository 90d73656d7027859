"""The cluster's LAYOUT node: read once, or written by the first process. Source: bookkeeper/wire/FORMATS.md 4.2."""

from __future__ import annotations

from bookkeeper.errors import LayoutMismatch, MetadataCorrupt, NotInitialised
from bookkeeper.metadata.cluster.layout import DEFAULT_KIND, Layout, LayoutKind, parse_layout
from bookkeeper.metadata.ledgers.paths import NO_CLUSTER_REMEDY
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.tree import NodeAbsent, NodeExists


class StoredLayout:
    """The layout of the cluster under one root.

    wanted: the layout that the configuration asks for; None takes what is stored.
    """

    def __init__(self, root: str, wanted: LayoutKind | None) -> None:
        self.wanted = wanted
        self._root = root
        self._path = f"{root}/LAYOUT"
        self._known: Layout | None = None

    async def current(self, errand: Errand) -> Layout:
        """The layout; stored first where there is none. Raises LayoutMismatch, NotInitialised."""
        if self._known is None:
            layout = await self.read(errand) or await self.store(errand, self.wanted or DEFAULT_KIND)
            if self.wanted is not None and self.wanted is not layout.kind:
                raise LayoutMismatch(
                    f"{self._path} says {layout.kind.word}, the configuration asks for {self.wanted.word}; "
                    "leave the layout out of metadataServiceUri (zk://...) to take the stored one"
                )
            await self._ensure_read_only_directory(errand)
            self._known = layout
        return self._known

    async def read(self, errand: Errand) -> Layout | None:
        """The stored layout, if any."""
        found = await errand.read_if_present(self._path)
        return None if found is None else self._parsed(found[0])

    def _parsed(self, data: bytes) -> Layout:
        try:
            return parse_layout(data, self._path)
        except MetadataCorrupt as error:
            raise type(error)(
                f"{error}; write the layout again, because no ledger can be found without it; the {DEFAULT_KIND.word} "
                f"layout is {Layout(DEFAULT_KIND).format()!r}"
            ) from error

    async def store(self, errand: Errand, kind: LayoutKind) -> Layout:
        """Store a layout, or find the one that somebody else stored first."""
        layout = Layout(kind)
        try:
            await errand.create(self._path, layout.format(), lambda data, _stat: data == layout.format())
        except NodeExists:
            stored, _ = await errand.read(self._path)
            return self._parsed(stored)
        except NodeAbsent as error:
            raise NotInitialised(
                f"there is no cluster under {self._root} of {errand.tree.description}; {NO_CLUSTER_REMEDY}"
            ) from error
        return layout

    def forget(self) -> None:
        """Read it anew next time."""
        self._known = None

    async def _ensure_read_only_directory(self, errand: Errand) -> None:
        try:
            await errand.ensure(f"{self._root}/available/readonly")
        except NodeAbsent:
            return  # no R/available: whoever registers first is told
