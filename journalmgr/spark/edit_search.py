"""Which entry of a ledger holds a txid: a search that looks into few of them. Pure.

    search = TxidSearch(txid, low, high)
    while (entry_id := search.probe) is not None:
        search.on_first_txid(<the first txid in that entry, or None where that cannot be told>)
    search.found

Txids rise with the entries. Where entries cannot be decoded the answer is on the side that was asked for: whoever
begins to read there begins early rather than late, whoever ends there ends late rather than early.
"""

from __future__ import annotations


class TxidSearch:
    """Looks for the last entry of low..high, both included, that begins at `txid` or before; `low` if none does.

    to_end: entries that cannot be decoded are taken to begin before it, not behind it.
    """

    def __init__(self, txid: int, low: int, high: int, *, to_end: bool = False) -> None:
        self._txid, self._to_end = txid, to_end
        self._low, self._high = low, high
        self._skipped = 0  # entries from the middle on that cannot be told

    @property
    def found(self) -> int:
        """Once there is nothing more to probe."""
        return self._low

    @property
    def probe(self) -> int | None:
        """Which entry to look into; None at the end."""
        return None if self._low >= self._high else self._middle + self._skipped

    @property
    def _middle(self) -> int:
        return (self._low + self._high + 1) // 2

    def on_first_txid(self, first_txid: int | None) -> None:
        """What the entry `probe` begins with."""
        entry_id = self.probe
        assert entry_id is not None
        if first_txid is None and entry_id < self._high:
            self._skipped += 1
            return
        if first_txid is not None and first_txid <= self._txid:
            self._low = entry_id
        elif not self._to_end:
            self._high = self._middle - 1
        elif first_txid is None:
            self._low = entry_id
        else:
            self._high = entry_id - 1
        self._skipped = 0
