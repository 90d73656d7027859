"""Walking the tree of ledgers, a directory at a time. Source: reference, 4.4."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from bookkeeper.errors import InvalidMetadata, MetadataCorrupt
from bookkeeper.metadata.layout import LayoutKind
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.paths import depth_below, is_directory_name, is_leaf_name, is_parent_name, ledger_id_of
from bookkeeper.metadata.store import LISTING_BATCH_MAX
from bookkeeper.metadata.tree import NodeAbsent
from bookkeeper.model import LedgerId


async def walk_ledgers(new_errand: Callable[[], Errand], root: str, kind: LayoutKind) -> AsyncIterator[list[LedgerId]]:
    """All ledger ids under `root`, ascending, in batches of at most LISTING_BATCH_MAX.

    Holds the names of one directory per level: at most 10 000 each, but all ledgers at once in the flat layout. Raises
    rather than leave something out: a name that is no ledger's and no directory's is MetadataCorrupt.
    """
    batch: list[LedgerId] = []
    top = [name for name in await new_errand().children(root) if is_parent_name(kind, name)]
    # Two-digit directories hold smaller ids than three-digit ones.
    for name in sorted(top, key=lambda name: (len(name), name)):
        async for path in _leaves(new_errand, f"{root}/{name}", depth_below(name)):
            try:
                batch.append(ledger_id_of(kind, path.removeprefix(root)))
            except InvalidMetadata as error:
                raise MetadataCorrupt(f"{path}: {error}") from error
            if len(batch) == LISTING_BATCH_MAX:
                yield batch
                batch = []
    if batch:
        yield batch


async def _leaves(new_errand: Callable[[], Errand], path: str, depth: int) -> AsyncIterator[str]:
    if depth == 0:
        yield path
        return
    try:
        names = await new_errand().children(path)
    except NodeAbsent:
        return  # its last ledger was deleted meanwhile
    is_expected = is_leaf_name if depth == 1 else is_directory_name
    for name in sorted(names):
        if not is_expected(name):
            raise MetadataCorrupt(f"{path}/{name} is neither a ledger nor a directory of ledgers")
        async for leaf in _leaves(new_errand, f"{path}/{name}", depth - 1):
            yield leaf
