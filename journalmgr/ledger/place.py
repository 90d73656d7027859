"""Where a journal may be: a znode of its own, neither somebody else's nor around or inside what is somebody else's.

    ROOT             nothing yet, or a journal's: no children but those that journals have
    ROOT/ledgers     if there: segments only. BookKeeper's own tree has the same name, and is not a journal's list
    above ROOT       no journal, and not the tree of the bookies' cluster

Looked at before anything is formatted, forced or not: what is not a journal is not for `format` to remove (I-87).
"""

from __future__ import annotations

from collections.abc import Callable

from journalmgr.errors import JournalError
from journalmgr.ledger.znodes import JournalZnodes

JOURNAL_CHILDREN = frozenset({"version", "ledgers", "CurrentInprogress", "maxtxid", "deleting", "upgrade", "images"})
SEGMENT_PREFIXES = ("inprogress_", "edits_")
SHOWN_MAX = 5


async def check_place(znodes: JournalZnodes, ledgers_root: str) -> None:
    """Raise JournalError where the journal's znode cannot be, or is something else. ledgers_root: the cluster's."""
    root = znodes.root
    for one, other in ((root, ledgers_root), (ledgers_root, root)):
        if one == other or one.startswith(f"{other}/"):
            raise JournalError(
                f"{root} cannot be a journal's znode: the metadata of the ledgers is at {ledgers_root}; choose one "
                "of its own, as /journal"
            )
    strangers = await _strangers(znodes, root, lambda name: name in JOURNAL_CHILDREN)
    strangers += await _strangers(znodes, znodes.list_path, lambda name: name.startswith(SEGMENT_PREFIXES))
    if strangers:
        shown = ", ".join(strangers[:SHOWN_MAX]) + (" ..." if len(strangers) > SHOWN_MAX else "")
        raise JournalError(
            f"{root} is not a journal's znode alone: {shown} would be destroyed; choose another znode, or remove "
            "what is not needed by hand"
        )
    above = root.rpartition("/")[0]
    while above:
        children = set(await znodes.children(above) or ())
        if {"version", "ledgers"} <= children:
            raise JournalError(f"{root} is inside the journal {above}: choose a znode beside it")
        above = above.rpartition("/")[0]


async def _strangers(znodes: JournalZnodes, path: str, known: Callable[[str], bool]) -> list[str]:
    return [f"{path}/{name}" for name in sorted(await znodes.children(path) or ()) if not known(name)]
