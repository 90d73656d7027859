"""Directories of marks that hold none any more: when they are removed.

    U/ledgers/h/h/h/h     the mark's own: goes with it in one step; what a crash left, under the lock of its ledger once
                          it is OLD_MS older than the lock, by the store's clock
    U/ledgers/h/h/h       shared by up to 65 536: looked at once those that a walk had listed are gone, or when two
    and above             walks in a row found it empty

Nothing depends on it: who makes a mark makes its directories again, whenever they go. Only Apache's auditor gives up
where they go between two steps of its own, hence the ages.

Thread: reactor. Bound: COUNTED_MAX directories.
"""

from __future__ import annotations

from bookkeeper.errors import MetadataError
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.underreplication.format import DIRECTORY_DEPTH

OLD_MS = 60_000
"""Time after which nobody is about to make a mark in a directory that was made for it."""

COUNTED_MAX = 4096
"""Directories whose number of children is kept: enough for 2**28 ledgers whose ids follow each other."""


class MarkDirectories:
    """What is known of them. marks: U/ledgers."""

    def __init__(self, marks: str) -> None:
        self._marks = marks
        self._left: dict[str, int] = {}  # children of U/ledgers/h/h/h when last listed, less those removed since
        self._empty: set[str] = set()  # of these, found empty by the walk that is on, or was the last
        self._empty_before: set[str] = set()  # by the one before

    def begin_walk(self) -> None:
        """A walk begins."""
        self._empty_before, self._empty = self._empty, set()

    def on_listed(self, directory: str, children_count: int) -> None:
        """The walk listed a U/ledgers/h/h/h."""
        if children_count == 0 and len(self._empty) < COUNTED_MAX:
            self._empty.add(directory)
        self._count(directory, children_count)

    def long_empty(self) -> set[str]:
        """At the end of a walk: directories that it and the one before found empty."""
        return self._empty & self._empty_before

    def is_due(self, directory: str) -> bool:
        """The directory of a mark was removed: whether to look if its parent is empty by now."""
        parent = directory.rpartition("/")[0]
        left = self._left.get(parent)
        if left is None or left <= 1:
            self._left.pop(parent, None)
            return True
        self._left[parent] = left - 1
        return False

    async def tidy(self, errand: Errand, directory: str) -> None:
        """Remove the directory if it is empty, and those above that become so."""
        for _ in range(DIRECTORY_DEPTH):
            if directory == self._marks:
                return
            try:
                stat = await errand.stat(directory)
                if stat is None:
                    return
                if stat.children_count:
                    self._count(directory, stat.children_count)
                    return
                await errand.delete(directory, stat.version, stat.creation_id)
            except MetadataError:
                return  # usually NodeNotEmpty
            directory = directory.rpartition("/")[0]

    async def remove_if_old(self, errand: Errand, directory: str, lock_path: str) -> None:
        """The ledger of a locked directory has no mark: remove the directory unless it was made lately."""
        try:
            stat = await errand.stat(directory)
            if stat is None or stat.children_count:
                return
            lock = await errand.stat(lock_path)
            if lock is not None and lock.created_ms - stat.created_ms >= OLD_MS:
                await self.tidy(errand, directory)
        except MetadataError:
            return

    def _count(self, directory: str, children_count: int) -> None:
        if directory.count("/") - self._marks.count("/") != DIRECTORY_DEPTH - 1:
            return
        if directory in self._left or len(self._left) < COUNTED_MAX:
            self._left[directory] = children_count
