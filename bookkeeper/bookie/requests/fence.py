"""Master key and fence of each ledger: who may write, and since when nobody but a recoverer may.

Invariants, all decided in the reactor's turn over the storage's in-memory state:
    the first key seen is the ledger's for ever, also the one that the index file brings back (I-26, I-73);
    a key record is journaled before, or with, the first entry that this process journals for the ledger (I-53);
    a fence, once set, is never cleared (I-24), and no answer to a fencing request leaves before the sync that contains
    the fence record (I-23).

Of ledgers that were deleted here a tombstone is left (storage.tombstones has the table): their old writers are refused
although key and fence are gone (I-04).
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable

from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.requests.interfaces import EntryStorage
from bookkeeper.model import MASTER_KEY_SIZE


class KeyCheck(enum.Enum):
    """How a presented key compares with the ledger's."""

    SAME = "the ledger's key"
    FIRST = "the ledger has no key yet"
    WRONG = "another key"
    GONE = "deleted here, and in the metadata store"
    MOVED = "deleted here, being one copy too many; a repair may bring it back"


class FenceState(enum.Enum):
    """How far the fence of a ledger is."""

    ABSENT = "not fenced"
    UNSURE = "set by an earlier process, which may have been killed before that was durable"
    PENDING = "set, its journal record is not synced yet"
    DURABLE = "set and durable"


class LedgerAccess:
    """Keys and fences as the bookie's requests see them. Thread: reactor."""

    def __init__(self, storage: EntryStorage) -> None:
        self._storage = storage
        self._waiting_fences: dict[int, list[Callable[[], None]]] = {}

    def check_key(self, ledger_id: int, key: bytes) -> KeyCheck:
        """Compare in constant time. The ledger's state must be loaded. Raises StorageError when it cannot be read.

        A ledger without a key takes only keys of MASTER_KEY_SIZE bytes; other sizes are WRONG. GONE comes before
        everything else; MOVED only as long as nothing of the ledger is here.
        Differs from Apache: the key in the index file counts, so that after a restart the first comer cannot set
        another.
        """
        tombstone = self._storage.tombstone(ledger_id)
        if tombstone is TombstoneKind.DELETED:
            return KeyCheck.GONE
        known = self._storage.master_key(ledger_id)
        if known is None:
            if tombstone is not None and len(key) == MASTER_KEY_SIZE:
                return KeyCheck.MOVED
            return KeyCheck.FIRST if len(key) == MASTER_KEY_SIZE else KeyCheck.WRONG
        return KeyCheck.SAME if hmac.compare_digest(known, key) else KeyCheck.WRONG

    def fence_state(self, ledger_id: int) -> FenceState:
        """How far the fence is. The ledger's state must be loaded."""
        if ledger_id in self._waiting_fences:
            return FenceState.PENDING
        if self._storage.tombstone(ledger_id) is not None:
            return FenceState.DURABLE
        if not self._storage.is_fenced(ledger_id):
            return FenceState.ABSENT
        return FenceState.DURABLE if self._storage.is_fence_journaled(ledger_id) else FenceState.UNSURE

    def fence_appended(self, ledger_id: int) -> None:
        """Set the fence; its record was queued in the journal in this very turn."""
        self._waiting_fences.setdefault(ledger_id, [])
        self._storage.set_fenced(ledger_id)
        self._storage.fence_journaled(ledger_id)

    def when_durable(self, ledger_id: int, call: Callable[[], None]) -> None:
        """Run `call` once the fence is durable: now, or with the sync that is under way."""
        waiting = self._waiting_fences.get(ledger_id)
        if waiting is None:
            call()
        else:
            waiting.append(call)

    def fence_durable(self, ledger_id: int) -> None:
        """The sync that contains the fence record returned; let the answers go, in order of the requests."""
        for call in self._waiting_fences.pop(ledger_id, ()):
            call()
