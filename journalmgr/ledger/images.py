"""Ledgers beside the segments that belong to a journal: the images that a server keeps below its znode.

    ROOT/images/image_<txid>     JSON: {"ledgerId": ...}
    ROOT/images/notes/<what>_<ledger id>

`journalmgr.namenode.images.ledger_checkpoints` writes them; they go with their journal when it is formatted. A ledger
is deleted only if its own metadata names the image: an id in a znode may name any ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookkeeper.errors import NoSuchLedger
from bookkeeper.texts import parse_json
from journalmgr.ledger.outcome import told
from journalmgr.segment import is_ledger_id

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from journalmgr.ledger.znodes import JournalZnodes

OWNER_KEY = "journalmgr.image"
"""Custom metadata of an image's ledger: the znode of the journal that it belongs to."""


def ledger_in(data: bytes) -> int | None:
    """The ledger that an image's znode names; None where it does not."""
    try:
        ledger_id = parse_json(data)["ledgerId"]
    except (ValueError, KeyError, TypeError):
        return None
    return ledger_id if isinstance(ledger_id, int) and not isinstance(ledger_id, bool) and ledger_id >= 0 else None


async def image_ledgers(znodes: JournalZnodes) -> list[int]:
    """All that images and notes of the journal name."""
    found: set[int] = set()
    directory = f"{znodes.root}/images"
    for name in await znodes.children(directory) or ():
        node = await znodes.read(f"{directory}/{name}")
        ledger_id = None if node is None else ledger_in(node[0])
        if ledger_id is not None:
            found.add(ledger_id)
    for name in await znodes.children(f"{directory}/notes") or ():
        number = name.rpartition("_")[2]
        if is_ledger_id(number):
            found.add(int(number))
    return sorted(found)


async def delete_image(client: LedgerClient, ledger_id: int, root: str) -> bool:
    """Delete a ledger that is an image of this journal, or is gone; False for one that does not say so."""
    with told(f"Couldn't delete ledger {ledger_id}, an image of {root}"):
        try:
            metadata = await client.metadata(ledger_id)
            if metadata.custom.get(OWNER_KEY) != root.encode():
                return False
            await client.delete(ledger_id)
        except NoSuchLedger:
            pass
    return True
