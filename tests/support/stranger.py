"""A peer without any password that claims ledger ids by fencing them with a key of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.client.context import ClientContext
from bookkeeper.errors import BookieUnavailable
from bookkeeper.model import LAST_ENTRY, BookieId, Status

INVENTED_KEY = b"\x66" * 20


async def claim(
    context: ClientContext, bookies: Iterable[BookieId], ledger_ids: Iterable[int], key: bytes = INVENTED_KEY
) -> list[object]:
    """Fence every ledger at each bookie; return the answers, each a status or an error."""
    bookies = list(bookies)
    fences = [_Fence(context, bookie_id, ledger_id, key) for ledger_id in ledger_ids for bookie_id in bookies]
    return [await fence.answered for fence in fences]


class _Fence:
    def __init__(self, context: ClientContext, bookie_id: BookieId, ledger_id: int, key: bytes) -> None:
        self.answered: Deferred[object] = Deferred()
        context.channel(bookie_id).read(self, ledger_id, (LAST_ENTRY,), fence_key=key)

    def on_bodies(self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Any, max_lac: int | None) -> None:
        self.answered.callback(Status.OK)

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        self.answered.callback(status)

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        self.answered.callback(error)
