"""What a reader knows of a ledger: its metadata and how far it may read (I-42, I-46).

-1 <= last_add_confirmed; it only grows while the ledger is open; once CLOSED it is the last entry, even if more was
seen
"""

from __future__ import annotations

from bookkeeper.model import INVALID_ENTRY_ID, EntryId, LedgerId, LedgerMetadata, Versioned


class LedgerView:
    """One ledger as known now. Thread: reactor."""

    __slots__ = ("_confirmed", "_length", "_metadata", "ledger_id")

    def __init__(self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata]) -> None:
        self.ledger_id = ledger_id
        self._metadata = metadata
        self._confirmed = INVALID_ENTRY_ID
        self._length = 0

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata seen."""
        return self._metadata.value

    @property
    def versioned(self) -> Versioned[LedgerMetadata]:
        """The same with its version."""
        return self._metadata

    @property
    def closed(self) -> bool:
        """The end is agreed."""
        return self._metadata.value.is_closed

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that may be read: the one place where reads are clamped (I-42)."""
        last = self._metadata.value.last_entry_id
        return self._confirmed if last is None else last

    @property
    def length(self) -> int:
        """Payload bytes up to there; of an open ledger, as far as an entry read has told."""
        length = self._metadata.value.length
        return self._length if length is None else length

    def advance(self, last_add_confirmed: int, length: int = 0) -> bool:
        """A LAC was learnt; True when it is news."""
        self._length = max(self._length, length)
        if last_add_confirmed <= self._confirmed:
            return False
        self._confirmed = EntryId(last_add_confirmed)
        return not self.closed

    def adopt(self, metadata: Versioned[LedgerMetadata]) -> bool:
        """Metadata was read; only newer versions count. True when it is news."""
        if metadata.version <= self._metadata.version:
            return False
        self._metadata = metadata
        return True
