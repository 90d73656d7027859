"""Where an entry is: write buffer, its snapshots, index, entry log.

    reactor         add, read, rotate, keys and fences: memory, or what the page cache gives without waiting
    storage worker  flush_snapshot, checkpoint
    read worker     read_cold, load_cold

Nothing here is durable by itself: the journal is, until a checkpoint. Order of a read: active buffer, snapshots, index.
A flush publishes locations before it drops the snapshot, so an entry is always found in one of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from operator import lt

from bookkeeper.bookie.gc.deletion import Deletion, LedgerDeletion
from bookkeeper.bookie.gc.tombstone_file import TombstoneFile
from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.entries import DamagedEntries
from bookkeeper.bookie.integrity.damage.log_lines import DamageLines
from bookkeeper.bookie.integrity.damage.record import DamageRecord
from bookkeeper.bookie.integrity.scrub.indexed_records import IndexedRecords
from bookkeeper.bookie.integrity.scrub.page_repair import FoundPages, PageMending
from bookkeeper.bookie.integrity.scrub.steps import StorageScrub
from bookkeeper.bookie.offline.inspection import index_subdirectories, list_ledger_ids, list_unfinished_index_files
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.entry_log.reads import CountedReader, LogReader
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.bookie.storage.index.files import IndexFiles
from bookkeeper.bookie.storage.index.flush import IndexFlusher
from bookkeeper.bookie.storage.index.format import (
    EXPLICIT_LAC_SIZE_MAX,
    EXPLICIT_LAC_SIZE_MIN,
    KEY_SIZE_MAX,
)
from bookkeeper.bookie.storage.index.ledger_state import LedgerState
from bookkeeper.bookie.storage.memtable_flush import MemtableFlush
from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.bookie.storage.reads import StoredReads
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX, LEDGER_ID_MAX, StorageSettings
from bookkeeper.bookie.storage.write_buffers import WriteBuffers
from bookkeeper.clock import SteadyDate, wall_ms
from bookkeeper.errors import InvalidArgument, NoWritableDisk, StorageError
from bookkeeper.filesystem import FileSystem
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch
from bookkeeper.wire.packed_bodies import PackedBodies

_OVER = object()

_LAC_OF_PACKET = slice(8, 16)


@dataclass(slots=True)
class StorageCounters:
    """Sums since the start, for metrics."""

    entries_flushed: int = 0
    flushes: int = 0
    checkpoints: int = 0
    index_files_written: int = 0
    cold_reads: int = 0
    ledgers_deleted: int = 0


class LedgerStorage:
    """Entries, keys, fences and explicit LACs of all ledgers of a bookie."""

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        settings: StorageSettings,
        *,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.counters = StorageCounters()
        self.added_bytes = 0
        """Bytes of all entries added since the start; what the journal grew by, about."""
        self.failure: BaseException | None = None
        """The first failed write or sync. From then on nothing is written or denied any more (I-48)."""
        self.damage = DamageRecord()
        self._damage_lines = DamageLines()
        self._fs = fs
        self._directories = directories
        self._settings = settings
        self._files = OpenFiles(fs, settings.open_files_max)
        self._logs = EntryLogs(fs, directories, self._files, entry_log_bytes_max=settings.entry_log_bytes_max)
        self._index_checksums = IndexChecksums(fs, directories.index_dirs)
        self._logs.on_removed = self.damage.file_gone
        self._logs.before_new_log = self._index_checksums.note_log
        self._index_files = IndexFiles(fs, directories, self._files, self._index_checksums, self.damage)
        self._cache = LedgerCache(
            self._index_files, bytes_max=settings.index_cache_bytes_max, ledgers_max=settings.ledger_states_max
        )
        self._flush = MemtableFlush(self._logs, self._cache, block_bytes=settings.block_bytes)
        self._blocks: Iterator[None] | None = None  # what is left of the oldest snapshot, where some is written
        self._index_flusher = IndexFlusher(
            fs,
            directories,
            self._files,
            self._cache,
            self._index_checksums,
            open_files_max=settings.open_files_max,
        )
        self._found_pages = FoundPages()
        self._mending = PageMending(fs, self._logs, self._cache, self._index_checksums, self.damage, self._found_pages)
        self._buffers = WriteBuffers()
        self._reads = StoredReads(
            self._cache,
            self._buffers,
            warm=LogReader(
                self._logs, self._files, self.damage, self._damage_lines, directories.index_dirs, wait=False
            ),
            cold=LogReader(self._logs, self._files, self.damage, self._damage_lines, directories.index_dirs, wait=True),
            certain=lambda: self.failure is None,
        )
        self.tombstones = TombstoneFile(fs, directories, now_ms, SteadyDate(now_ms))
        self._deletion = LedgerDeletion(fs, directories, self._files, self.tombstones, self._index_checksums)

    # --- life ---------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Create missing `current` directories and find the entry logs; opens no index file.

        Blocking, before the reactor serves. Raises StorageError, OSError.
        """
        for directory in self._directories.all_dirs:
            self._fs.make_dirs(current(directory))
        self._make_names_durable()
        self._logs.open()
        self._index_checksums.open(self._logs.highest_log_id)
        self.tombstones.open()

    def _make_names_durable(self) -> None:
        """A killed process may have left index files whose names a power cut still takes back (I-49).

        Found, they would be written and synced as any other; only new files have their directories synced.
        """
        below = list(index_subdirectories(self._fs, self._directories.index_dirs))
        above = {os.path.dirname(directory) for directory in below}
        tops = map(current, self._directories.index_dirs)
        self._fs.sync_dirs([*sorted(below), *sorted(above), *tops])

    def replay_finished(self) -> None:
        """The journal was replayed and a checkpoint followed: a file shorter than it once was is damage from now on."""
        self._index_files.strict = True

    def close(self) -> None:
        """Close all files; flushes nothing. No worker may be in a call."""
        self._index_checksums.close()
        self._files.close()

    # --- adding -------------------------------------------------------------------------------------------------------

    def damaged(self, ledger_id: int, entry_ids: Sequence[int]) -> frozenset[int]:
        """Those of the entries whose copies are known to fail their checksum, or are not what the index says.

        An entry that can be read may be among them: its neighbours on an index page may be what is damaged.
        """
        return self.damage.among(ledger_id, entry_ids)

    def all_new(self, ledger_id: int, entry_ids: Sequence[int]) -> bool:
        """True when certainly none of the entries is held: all are above the last one. Raises StorageError."""
        state = self._state(ledger_id)
        return state is None or min(entry_ids) > state.last_entry_id

    def add(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> None:
        """Store entries, visible to reads at once, durable by the journal only. Thread: reactor.

        An entry that is held already is replaced: duplicates are sorted out before (I-69).
        Raises InvalidArgument (ids out of range) or StorageError; nothing was added then.
        """
        self._check_usable()
        highest = max(entry_ids)
        if not 0 <= ledger_id <= LEDGER_ID_MAX or min(entry_ids) < 0 or highest > ENTRY_ID_MAX:
            raise InvalidArgument(
                f"ledger {ledger_id}, entries {min(entry_ids)} to {highest}: ledger ids go from 0 to {LEDGER_ID_MAX}, "
                f"entry ids from 0 to {ENTRY_ID_MAX}"
            )
        state = self._writable_state(ledger_id)
        self.added_bytes += self._buffers.active.add(ledger_id, entry_ids, bodies)
        if len(self.damage):
            self.damage.replaced(ledger_id, entry_ids)
        if highest > state.last_entry_id:
            state.last_entry_id = highest

    def add_plain(self, batches: Sequence[AddBatch], start: int, shut: Container[int]) -> int:
        """Store batches[start:] up to the first that is not plain; return where that is. Thread: reactor.

        Plain: the ledger is not among the `shut`, its state is in memory, its key is the one presented and journaled
        by this process, it is not fenced, the ids ascend from above its last entry, and the batch is neither a recovery
        nor deferred. Everything else, errors included, is for whoever decides batches one by one. What is stored here
        is as after `add`.
        """
        if self.failure is not None:
            return start
        self._cache.trim(self._buffers.__contains__)
        get, add = self._cache.get, self._buffers.active.add
        size, stop = 0, len(batches)
        for position in range(start, stop):
            batch = batches[position]
            entry_ids = batch.entry_ids
            state = get(batch.ledger_id)
            if (
                state is None
                or batch.ledger_id in shut
                or state.fenced
                or not state.key_journaled
                or batch.recovery
                or batch.deferred_sync
                or entry_ids[0] <= state.last_entry_id
                or not compare_digest(state.master_key or b"", batch.master_key)
                or not (len(entry_ids) == 1 or all(map(lt, entry_ids, entry_ids[1:])))
                or entry_ids[-1] > ENTRY_ID_MAX
            ):
                stop = position
                break
            size += add(batch.ledger_id, entry_ids, batch.bodies)
            state.last_entry_id = entry_ids[-1]
        self.added_bytes += size
        return stop

    @property
    def _replaying(self) -> bool:
        """Until the journal was replayed what is on the disk may be a killed process's and not durable.

        Then a record that changes nothing makes the next checkpoint write and sync the header all the same.
        """
        return not self._index_files.strict

    @property
    def is_full(self) -> bool:
        """True when no more entries must be added: buffer and snapshots, or the index, wait for the disk."""
        settings = self._settings
        return (
            (self._buffers.active.size >= settings.memtable_bytes_max and not self._buffers.can_rotate)
            or self._cache.dirty_bytes >= settings.index_cache_bytes_max
            or not self.takes_ledgers
        )

    @property
    def takes_ledgers(self) -> bool:
        """False while so many ledgers wait for a checkpoint that no more may be created."""
        return self._cache.dirty_ledger_count < self._settings.dirty_ledgers_max

    @property
    def should_flush(self) -> bool:
        """True when the buffer is at its bound and can be rotated."""
        return self._buffers.active.size >= self._settings.memtable_bytes_max and self._buffers.can_rotate

    @property
    def snapshot_count(self) -> int:
        """Snapshots that wait to be written to the entry log."""
        return len(self._buffers.snapshots)

    @property
    def can_rotate(self) -> bool:
        """True when a snapshot slot is free."""
        return self._buffers.can_rotate

    def rotate(self) -> bool:
        """Make the buffer a snapshot and start an empty one. False when it is empty or no slot is free. Reactor."""
        return self._buffers.rotate()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status | None]:
        """See `StoredReads.read`. Thread: reactor, which evicts ledgers that earlier reads have loaded."""
        self._cache.trim(self._buffers.__contains__)
        return self._reads.read(ledger_id, entry_ids)

    def read_run(self, ledger_id: int, first_entry_id: int, count_max: int, size_max: int) -> PackedBodies | None:
        """See `StoredReads.read_run`. Thread: reactor."""
        return self._reads.read_run(ledger_id, first_entry_id, count_max, size_max)

    def read_cold(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status]:
        """See `StoredReads.read_cold`. Thread: read worker."""
        self.counters.cold_reads += len(entry_ids)
        return self._reads.read_cold(ledger_id, entry_ids)

    def held_cold(self, ledger_id: int, first: int, stop: int) -> list[range]:
        """See `StoredReads.held_cold`. Thread: read worker."""
        self._check_usable()
        return self._reads.held_cold(ledger_id, first, stop)

    # --- ledgers ------------------------------------------------------------------------------------------------------

    def is_loaded(self, ledger_id: int) -> bool:
        """True when the calls below need no disk."""
        return self._cache.is_known(ledger_id)

    def load_cold(self, ledger_id: int) -> None:
        """Bring the ledger's state into memory. Raises StorageError. Thread: read worker."""
        self._cache.load(ledger_id)

    def exists(self, ledger_id: int) -> bool:
        """True when the ledger was ever written, fenced or given a key here. Raises StorageError."""
        return self._state(ledger_id) is not None

    def last_entry_id(self, ledger_id: int) -> int | None:
        """The highest entry id held; None for no entries or no ledger. Raises StorageError."""
        state = self._state(ledger_id)
        return state.last_entry_id if state is not None and state.last_entry_id >= 0 else None

    def master_key(self, ledger_id: int) -> bytes | None:
        """The ledger's key; None when none was recorded. Raises StorageError."""
        state = self._state(ledger_id)
        return state.master_key if state is not None else None

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        """Record the key, creating the ledger; the same key again changes nothing.

        Raises InvalidArgument (size), StorageError (another key is recorded: the first one stays, I-73).
        """
        if not 0 < len(key) <= KEY_SIZE_MAX:
            raise InvalidArgument(f"a master key of {len(key)} bytes; it has 1 to {KEY_SIZE_MAX}")
        state = self._writable_state(ledger_id)
        if state.master_key == key:
            return
        if state.master_key is not None:
            raise StorageError(f"ledger {ledger_id} has another master key; the first one is kept")

        def change(state: LedgerState) -> None:
            state.master_key = key

        self._cache.change_header(state, change)

    def is_key_journaled(self, ledger_id: int) -> bool:
        """True when this process is sure that it put the key into the journal (`key_journaled`)."""
        state = self._cache.get(ledger_id)
        return state is not None and state.key_journaled

    def key_journaled(self, ledger_id: int) -> None:
        """The ledger's key record was appended to its journal. Forgotten with the ledger's state."""
        state = self._cache.get(ledger_id)
        if state is not None:
            state.key_journaled = True

    def is_fenced(self, ledger_id: int) -> bool:
        """True once a fence was set. Raises StorageError rather than guess."""
        state = self._state(ledger_id)
        return state is not None and state.fenced

    def set_fenced(self, ledger_id: int) -> bool:
        """Set the fence, for ever (I-24), creating the ledger (I-22); True when it was not set before."""
        state = self._writable_state(ledger_id)
        newly = not state.fenced
        if not newly and not self._replaying:
            return False

        def change(state: LedgerState) -> None:
            state.fenced = True

        self._cache.change_header(state, change)
        return newly

    def is_fence_journaled(self, ledger_id: int) -> bool:
        """True when this process is sure that it put the fence into the journal (`fence_journaled`)."""
        state = self._cache.get(ledger_id)
        return state is not None and state.fence_journaled

    def fence_journaled(self, ledger_id: int) -> None:
        """The ledger's fence record was appended to its journal. Forgotten with the ledger's state."""
        state = self._cache.get(ledger_id)
        if state is not None:
            state.fence_journaled = True

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The explicit LAC packet with the highest LAC so far. Raises StorageError."""
        state = self._state(ledger_id)
        return state.explicit_lac if state is not None else None

    def set_explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """Record a packet (ledger id, LAC, digest), creating the ledger; one with a lower LAC changes nothing (I-07).

        Raises InvalidArgument for a size no digest type has, StorageError.
        """
        if not EXPLICIT_LAC_SIZE_MIN <= len(packet) <= EXPLICIT_LAC_SIZE_MAX:
            raise InvalidArgument(f"an explicit LAC packet of {len(packet)} bytes for ledger {ledger_id}")
        state = self._writable_state(ledger_id)
        if state.explicit_lac is not None and _lac(state.explicit_lac) >= _lac(packet):
            if not self._replaying:
                return
            packet = state.explicit_lac

        def change(state: LedgerState) -> None:
            state.explicit_lac = packet

        self._cache.change_header(state, change)

    # --- deletion -----------------------------------------------------------------------------------------------------

    def tombstone(self, ledger_id: int) -> TombstoneKind | None:
        """Why the ledger was deleted here, while its old writers may still come (I-04)."""
        return self.tombstones.get(ledger_id)

    def doom(self, ledger_ids: Iterable[int]) -> list[int]:
        """See `LedgerCache.doom`: not those in a write buffer or with something unwritten. Thread: reactor."""
        return self._cache.doom(ledger_ids, self._buffers.__contains__)

    def delete(self, deletion: Deletion) -> None:
        """Delete doomed ledgers, durably on return. Thread: storage worker.

        Raises NoWritableDisk (no room for their tombstones: nothing is deleted); any other error is fatal (I-48).
        """
        self._check_usable()
        with _Fatal(self):
            self._deletion.delete(deletion)
        for ledger_id in deletion.ledger_ids:
            self.damage.ledger_gone(ledger_id)
        self.counters.ledgers_deleted += len(deletion.ledger_ids)

    def unfinished_files(self) -> list[str]:
        """Temporary index files; some may be in use. Thread: a worker; lists directories. Raises OSError."""
        return list_unfinished_index_files(self._fs, self._directories.index_dirs)

    def remove_unfinished(self, paths: Iterable[str]) -> None:
        """Remove temporary index files (`list_unfinished_index_files`): between flushes none is in use.

        Thread: storage worker. Raises OSError (fatal: I-48).
        """
        self._check_usable()
        with _Fatal(self):
            changed: set[str] = set()
            for path in paths:
                with suppress(FileNotFoundError):
                    self._fs.unlink(path)
                    changed.add(os.path.dirname(path))
            self._fs.sync_dirs(sorted(changed))

    def revive(self, ledger_ids: Iterable[int]) -> None:
        """See `LedgerCache.revive`. Thread: reactor."""
        self._cache.revive(ledger_ids)

    def scrub(self) -> StorageScrub:
        """What reads through the files in the background."""
        index_dirs = self._directories.index_dirs
        reader = CountedReader(self._logs, self._files, self.damage, self._damage_lines, index_dirs)
        return StorageScrub(
            self._fs,
            self._directories,
            self._logs,
            self._cache,
            self._index_checksums,
            self.damage,
            DamagedEntries(
                self._fs,
                self._directories,
                self._logs,
                self._cache,
                self._index_checksums,
                self.damage,
                reader,
                self._buffers.among,
            ),
            self._found_pages,
            self._buffers.__contains__,
        )

    def indexed_records(self) -> IndexedRecords:
        """What finds the records of a damaged log that are still needed."""
        return IndexedRecords(self._fs, self._directories, self._index_checksums, self._logs.checksums)

    @property
    def entry_logs(self) -> EntryLogs:
        """The entry logs, for whoever reclaims their space."""
        return self._logs

    @property
    def ledger_cache(self) -> LedgerCache:
        """The index, for whoever moves entries."""
        return self._cache

    def _state(self, ledger_id: int) -> LedgerState | None:
        return self._cache.load(ledger_id)

    def _writable_state(self, ledger_id: int) -> LedgerState:
        """The state, new if need be. Reactor only: here is where ledgers no longer used are evicted."""
        self._check_usable()
        if not 0 <= ledger_id <= LEDGER_ID_MAX:
            raise InvalidArgument(f"ledger id {ledger_id} is not between 0 and {LEDGER_ID_MAX}")
        self._cache.trim(self._buffers.__contains__)
        return self._cache.create(ledger_id)

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise StorageError(f"the storage failed and takes nothing more: {self.failure}") from self.failure

    # --- flush and checkpoint -----------------------------------------------------------------------------------------

    def flush_snapshot(self) -> int:
        """Write the oldest snapshot to the entry log (no sync) and drop it; return its entries, 0 when there is none.

        Raises NoWritableDisk: the snapshot stays, try again once there is room. Any other error is fatal (I-48): it is
        kept in `failure`. Thread: storage worker.
        """
        self._check_usable()
        if not self._buffers.snapshots:
            return 0
        count = self._buffers.snapshots[0].entry_count
        while self.flush_block():
            pass
        return count

    def flush_block(self) -> bool:
        """The next block of that; False once the snapshot is written and dropped, or there is none. As above."""
        self._check_usable()
        snapshots = self._buffers.snapshots
        if not snapshots:
            return False
        with _Fatal(self):
            blocks, self._blocks = self._blocks or self._flush.blocks(snapshots[0]), None  # after an error: all again
            if next(blocks, _OVER) is not _OVER:
                self._blocks = blocks
                return True
        self._buffers.drop_oldest()
        self.counters.entries_flushed += snapshots[0].entry_count
        self.counters.flushes += 1
        return False

    def checkpoint(self) -> None:
        """Make everything that was rotated before, and all keys, fences and LACs set before, durable in the files.

        Order: snapshots to the entry log, sync of the logs, then index files and their directories (I-58). What may be
        forgotten afterwards is what the journal had synced before the rotation (I-54). Thread: storage worker.
        Raises as `flush_snapshot`.
        """
        self._check_usable()
        for _ in self._buffers.snapshots:  # not those that adds fill meanwhile: under load that would never end
            self.flush_snapshot()
        with _Fatal(self):
            self._mending.apply()
            self._logs.sync()
            self.counters.index_files_written += self._index_flusher.flush(
                self._make_room, names_in_doubt=self._replaying
            )
        self.counters.checkpoints += 1

    def end_log(self) -> None:
        """Behind the last checkpoint: close the active log, sealed and durable, so that the next process need not read
        it to know what it has. Thread: storage worker. Raises OSError (fatal: I-48).
        """
        self._check_usable()
        with _Fatal(self):
            self._logs.roll()

    def _make_room(self) -> None:
        """Adds go on while very many files are written: flush what they filled, synced before the index names it."""
        if self._buffers.snapshots:
            self.flush_snapshot()
            self._logs.sync()

    @property
    def is_dirty(self) -> bool:
        """True when a checkpoint would write something."""
        return bool(self._buffers) or self._cache.dirty_ledger_count > 0 or len(self._found_pages) > 0

    @property
    def needs_checkpoint(self) -> bool:
        """True when half of the index cache or of the ledgers is dirty: it could not be bounded for long."""
        settings = self._settings
        return (
            self._cache.dirty_bytes > settings.index_cache_bytes_max // 2
            or self._cache.dirty_ledger_count > settings.dirty_ledgers_max // 2
        )

    @property
    def rolled_log_count(self) -> int:
        """Entry logs closed since the start."""
        return self._logs.rolled_count

    @property
    def memory_bytes(self) -> int:
        """What buffers and locations take, about."""
        return self._buffers.size + self._cache.page_bytes

    @property
    def open_file_count(self) -> int:
        """Descriptors held."""
        return len(self._files)

    @property
    def ledger_state_count(self) -> int:
        """Ledgers whose state is in memory."""
        return len(self._cache)

    def ledger_ids(self) -> Iterator[int]:
        """All ledgers here, each once, in no order. Lists directories; thread: a worker. Raises OSError."""
        in_memory = set(self._cache.ledger_ids())
        yield from in_memory
        for ledger_id in list_ledger_ids(self._fs, self._directories.index_dirs):
            if ledger_id not in in_memory:
                yield ledger_id

    def ledgers_with_checksums(self) -> Iterator[list[int]]:
        """Ledgers whose index file must be here, ascending, by index directory: also those that lost it.

        Thread: a worker.
        """
        yield from map(self._index_checksums.known_ledgers, self._directories.index_dirs)


class _Fatal:
    """Remember the first error that is not merely a full disk."""

    def __init__(self, storage: LedgerStorage) -> None:
        self._storage = storage

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, NoWritableDisk) and self._storage.failure is None:
            self._storage.failure = error


def _lac(packet: bytes) -> int:
    return int.from_bytes(packet[_LAC_OF_PACKET], "big", signed=True)
