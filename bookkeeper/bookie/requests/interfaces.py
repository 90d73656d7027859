"""What a `Bookie` needs of its storage and its journals, and nothing more.

`storage.ledger_storage.LedgerStorage` and `journal.writer.Journal` satisfy these; unit tests put fakes in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Protocol

from bookkeeper.bookie.gc.deletion import Deletion
from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch
from bookkeeper.wire.packed_bodies import PackedBodies


class EntryStorage(Protocol):
    """Entries, keys, fences and explicit LACs of all ledgers of this bookie. Thread: reactor, except `*_cold`.

    None of it is durable when a call returns; the journal record is.
    """

    @property
    def is_full(self) -> bool:
        """The write buffers are at their bound; more is taken only after a flush."""

    @property
    def takes_ledgers(self) -> bool:
        """False while a ledger that is not there must not be created."""

    def is_loaded(self, ledger_id: int) -> bool:
        """True when the other calls about this ledger need no disk."""

    def load_cold(self, ledger_id: int) -> None:
        """Bring the ledger's state into memory. Thread: read worker."""

    def add(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> None:
        """Store entries; reads see them at once."""

    def add_plain(self, batches: Sequence[AddBatch], start: int, shut: Container[int]) -> int:
        """Store batches[start:] up to the first that needs a decision; return where that is (the end: none does).

        Ledgers that are `shut` need one. None is needed where the ledger is loaded and not fenced, the key is its own
        and journaled by this process, the ids ascend from above the last one held, and the batch is neither a recovery
        nor deferred.
        """

    def damaged(self, ledger_id: int, entry_ids: Sequence[int]) -> Collection[int]:
        """Those of the ids whose copies here are certainly damaged: only what cannot be read should be asked for."""

    def all_new(self, ledger_id: int, entry_ids: Sequence[int]) -> bool:
        """True when certainly none of the ids is held; False says nothing."""

    def read(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status | None]:
        """Bodies, NO_LEDGER or NO_ENTRY (certain: I-31) or IO_ERROR; None where only `read_cold` can tell."""

    def read_run(self, ledger_id: int, first_entry_id: int, count_max: int, size_max: int) -> PackedBodies | None:
        """Some consecutive entries of one size, at least two, from the first on, without waiting for a disk.

        At most `count_max`, and `size_max` bytes, 4 for each entry included. None says nothing: `read` tells.
        """

    def read_cold(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status]:
        """As `read`, from the disk where need be. Thread: read worker."""

    def held_cold(self, ledger_id: int, first: int, stop: int) -> list[range]:
        """The runs of entries held among the ids from `first` to `stop` - 1, ascending. Thread: read worker.

        Raises StorageError where that cannot be told for certain (I-31).
        """

    def exists(self, ledger_id: int) -> bool:
        """True when the ledger was ever written, fenced or given a key here."""

    def last_entry_id(self, ledger_id: int) -> int | None:
        """The highest entry id held."""

    def master_key(self, ledger_id: int) -> bytes | None:
        """The key of the ledger; None when none was recorded."""

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        """Record the key of a ledger that has none, creating the ledger."""

    def is_key_journaled(self, ledger_id: int) -> bool:
        """True when this process is sure that it put the key into the journal."""

    def key_journaled(self, ledger_id: int) -> None:
        """The key record was appended to the ledger's journal; forgetting that costs another record."""

    def is_fenced(self, ledger_id: int) -> bool:
        """True once a fence was set."""

    def set_fenced(self, ledger_id: int) -> bool:
        """Set the fence; True when it was not set before."""

    def tombstone(self, ledger_id: int) -> TombstoneKind | None:
        """Why the ledger was deleted here, while its old writers may still come (I-04); None for all others."""

    def doom(self, ledger_ids: Iterable[int]) -> list[int]:
        """Have these be absent from now on, their keyed requests waiting; return those for which that may be.

        Not those with something that only the journal and memory have.
        """

    def delete(self, deletion: Deletion) -> None:
        """Delete doomed ledgers, durably on return. Thread: storage worker. Raises NoWritableDisk (nothing is)."""

    def revive(self, ledger_ids: Iterable[int]) -> None:
        """End of what `doom` began, whether they were deleted or not."""

    def is_fence_journaled(self, ledger_id: int) -> bool:
        """True when this process is sure that it put the fence into the journal."""

    def fence_journaled(self, ledger_id: int) -> None:
        """The fence record was appended to the ledger's journal; forgetting that costs another record."""

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The explicit LAC packet with the highest LAC so far."""

    def set_explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """Record an explicit LAC packet; an older one than the stored one changes nothing (I-07)."""


class EntryJournal(Protocol):
    """The write-ahead log of the ledgers that map to it. Thread: reactor."""

    @property
    def pending_bytes(self) -> int:
        """Bytes appended whose sync has not been reported."""

    def append(
        self,
        parts: Sequence[bytes],
        size: int,
        on_durable: Callable[[BaseException | None], None],
        record_count: int = 1,
        *,
        deferred: bool = False,
    ) -> None:
        """Queue framed records, `size` bytes in all; record_count is for metrics.

        `on_durable` runs once, in order, in a later turn, after the sync; deferred: after the write, before the sync.
        Raises JournalFull when the queue is at its bound; nothing was queued.
        """

    def barrier(self, on_durable: Callable[[BaseException | None], None]) -> None:
        """Have `on_durable` run, once, after the sync of everything appended before; now if that is done.

        Raises JournalFull when the queue is at its bound.
        """
