"""The highest LAC a bookie has been told of, per ledger: embedded in entries or explicit. Pure.

Monotone per ledger (I-07). The cache is bounded; after forgetting, the value is found again in the explicit LAC and in
the last entry that the storage holds, which is where it had come from.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from bookkeeper.bookie.requests.lru_map import RecentMap
from bookkeeper.wire.messages import AddBatch

_LAC_OF_BODY = struct.Struct(">16xq")
_LAC_OF_PACKET = struct.Struct(">8xq")


def lac_of_body(body: bytes) -> int:
    """LAC embedded in a stored entry; -1 where the body is too short to hold one."""
    return int(_LAC_OF_BODY.unpack_from(body)[0]) if len(body) >= _LAC_OF_BODY.size else -1


def lac_of_packet(packet: bytes | None) -> int:
    """LAC of an explicit-LAC packet; -1 for None."""
    return int(_LAC_OF_PACKET.unpack_from(packet)[0]) if packet is not None else -1


class KnownLacs:
    """Ledger -> highest LAC known. Thread: reactor. Bound: `ledgers_max` ledgers."""

    def __init__(self, *, ledgers_max: int) -> None:
        self._known: RecentMap[int, int] = RecentMap(ledgers_max)

    def get(self, ledger_id: int) -> int | None:
        """The LAC, or None when nothing is remembered of this ledger."""
        return self._known.get(ledger_id)

    def raise_to(self, ledger_id: int, lac: int) -> None:
        """Note `lac` if something is remembered and lower; an unremembered ledger stays so until `restore`.

        Starting from an embedded LAC alone could answer less than was answered before the ledger was forgotten.
        """
        known = self._known.get(ledger_id)
        if known is not None and lac > known:
            self._known.put(ledger_id, lac)

    def raise_all(self, batches: Iterable[AddBatch]) -> None:
        """Note the LACs inside batches of adds, as `raise_to`."""
        get = self._known.get
        for batch in batches:
            known = get(batch.ledger_id)
            if known is not None and batch.last_confirmed > known:
                self._known.put(batch.ledger_id, batch.last_confirmed)

    def restore(self, ledger_id: int, lac: int) -> None:
        """Note `lac` as found in the storage: the explicit LAC and the last entry taken together."""
        known = self._known.get(ledger_id)
        self._known.put(ledger_id, lac if known is None or lac > known else known)
