"""Journals that share a ZooKeeper with one that is looked at: whose ledgers are not its orphans.

A ledger does not say which journal it belongs to, for Hadoop's keep nothing in it that would. So the lists of all
journals that can be found are read. What looks like a journal: a znode with the list of segments and one of the others
that every journal has. Looked at are the neighbours first, then level by level from the root of the tree, bounded in
depth and number. Nothing is changed. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from itertools import islice

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.errors import BookKeeperError

DEPTH_MAX = 4
"""Levels of znodes below the root of the tree that are looked at: /a/b/c/d has four."""

LOOKS_MAX = 2000
"""Znodes whose children are listed: some seconds."""

LOOKS_AT_ONCE = 16

ListChildren = Callable[[str], Awaitable[list[str] | None]]
"""Names below a znode; None where there is none."""


@dataclass(slots=True)
class Search:
    """roots: of the journals that were found, sorted. complete: everything within DEPTH_MAX was looked at."""

    roots: list[str] = field(default_factory=list)
    complete: bool = True


def is_journal(children: Collection[str]) -> bool:
    """Whether a znode with these children is a journal's."""
    return "ledgers" in children and not {"version", "CurrentInprogress", "maxtxid"}.isdisjoint(children)


async def find_journals(
    list_children: ListChildren, root: str, ledgers_root: str, looks_max: int = LOOKS_MAX
) -> Search:
    """Search for journals besides the one at `root`. ledgers_root: of the bookies' metadata, which has none."""
    search = Search()
    left = looks_max
    seen = {root, ledgers_root, "/zookeeper"}

    async def look(path: str) -> tuple[str, list[str]]:
        try:
            return path, await list_children(path) or []
        except BookKeeperError:  # not for us to read, for example: there may be one
            search.complete = False
            return path, []

    level = [root.rpartition("/")[0] or "/", "/"]
    while level:
        level = [path for path in dict.fromkeys(level) if path not in seen and path.count("/") <= DEPTH_MAX]
        seen.update(level)
        below: list[str] = []
        paths = iter(level)
        while chunk := list(islice(paths, min(LOOKS_AT_ONCE, left))):
            left -= len(chunk)
            for path, children in await gatherResults([Deferred.fromCoroutine(look(each)) for each in chunk]):
                if is_journal(children):
                    search.roots.append(path)
                elif "LAYOUT" not in children:  # another cluster's ledgers: many, and no journals
                    below += [f"{path.rstrip('/')}/{name}" for name in children]
        search.complete = search.complete and next(paths, None) is None
        level = below
    search.roots.sort()
    return search
