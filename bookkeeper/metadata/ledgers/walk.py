"""Walking the tree of ledgers, a directory at a time. Source: bookkeeper/wire/FORMATS.md 4.1, 4.4.

A stray znode is neither a ledger nor a directory of ledgers. The walk adds it to the bad records, and passes over it
and everything below it. This hides no ledger: a ledger's path is a function of its id, both implementations use that
path alone, and ZooKeeper cannot rename a znode.

The digits of a stray path can spell a ledger id, for example after a change of LAYOUT, or in a directory one level too
high or too low. The bad record then carries the id, and the garbage collector keeps that ledger. Trees of other layouts
are walked to find such ids.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.ledgers.paths import (
    LEDGER_ID_LIMITS,
    depth_below,
    is_any_parent_name,
    is_directory_name,
    is_leaf_name,
    is_special_name,
    ledger_path,
    possible_ledger_id,
)
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import LISTING_BATCH_MAX
from bookkeeper.metadata.tree import NodeAbsent
from bookkeeper.model import LedgerId


async def walk_ledgers(
    new_errand: Callable[[], Errand], root: str, kind: LayoutKind, bad_records: BadRecords | None
) -> AsyncIterator[list[LedgerId]]:
    """Yield all ledger ids under `root`, ascending, in batches of at most LISTING_BATCH_MAX.

    Holds the names of one directory per level: at most 10 000 each, but all ledgers at once in the flat layout.

    bad_records: receives the stray znodes. Without it, a walk that found any raises MetadataCorrupt at its end.
    """
    strays = BadRecords() if bad_records is None else bad_records
    batch: list[LedgerId] = []
    # Two-digit directories hold smaller ids than three-digit ones.
    for name in sorted(await new_errand().children(root), key=lambda name: (len(name), name)):
        if is_special_name(name):
            continue
        if not is_any_parent_name(name):
            _add_stray(strays, root, f"/{name}")
            continue
        async for path in _leaves(new_errand, root, f"/{name}", depth_below(name), strays):
            ledger_id = possible_ledger_id(path)
            if ledger_id is None or not _is_path_of(kind, path, ledger_id):
                strays.add(root + path, f"is not a path of the {kind.word} layout, which LAYOUT names", ledger_id)
                continue
            batch.append(ledger_id)
            if len(batch) == LISTING_BATCH_MAX:
                yield batch
                batch = []
    if batch:
        yield batch
    if bad_records is None:
        strays.check()


def _is_path_of(kind: LayoutKind, path: str, ledger_id: LedgerId) -> bool:
    return ledger_id <= LEDGER_ID_LIMITS[kind] and ledger_path(kind, ledger_id) == path


def _add_stray(strays: BadRecords, root: str, path: str) -> None:
    strays.add(root + path, "is neither a ledger nor a directory of ledgers", possible_ledger_id(path))


async def _leaves(
    new_errand: Callable[[], Errand], root: str, path: str, depth: int, strays: BadRecords
) -> AsyncIterator[str]:
    """Yield the paths, relative to `root`, of the znodes `depth` levels below `path` that are named like a ledger."""
    if depth == 0:
        yield path
        return
    try:
        names = await new_errand().children(root + path)
    except NodeAbsent:
        return  # its last ledger was deleted meanwhile
    is_expected = is_leaf_name if depth == 1 else is_directory_name
    for name in sorted(names):
        if not is_expected(name):
            _add_stray(strays, root, f"{path}/{name}")
            continue
        async for leaf in _leaves(new_errand, root, f"{path}/{name}", depth - 1, strays):
            yield leaf
