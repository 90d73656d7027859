"""Bounds and intervals of a bookie's storage."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024

ENTRY_ID_MAX = (1 << 36) - 1
"""Highest entry id taken. An index file has 8 bytes for every id up to the highest, so an absurd id is refused (a
sparse file of 512 GiB is the most one entry can cause)."""

LEDGER_ID_MAX = (1 << 63) - 1

ENTRY_OVERHEAD_BYTES = 200
"""What one buffered entry costs beside its body: bytes header, dict slot, id (about 180 bytes on CPython 3.11)."""


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Bounds of memory and files, and when to checkpoint.

    memtable_bytes_max: one write buffer, Python's overhead included; up to three exist (one active, two being flushed).
    index_cache_bytes_max: locations in memory; a checkpoint is due when half of it is dirty.
    ledger_states_max: ledgers whose key, fence and LAC stay in memory once they are clean.
    dirty_ledgers_max: ledgers with something that no index file has yet, about 1 KiB each; a checkpoint is due at half
        of it, and nothing is added beyond it.
    open_files_max: entry logs and index files open at a time.
    entry_log_bytes_max: an entry log is closed when the next block would exceed it; at most 1 GiB, as Apache.
    block_bytes: size of one write to an entry log.
    flush_interval_s: how often a checkpoint is due at least.
    journal_bytes_between_checkpoints_max: entry bytes taken after which one is due at once (bounds the replay).
    checkpoint_duty_max: part of the time that interval checkpoints may take; with 20 000 ledgers one touches as many
        files.
    """

    memtable_bytes_max: int = 16 * MIB
    index_cache_bytes_max: int = 32 * MIB
    ledger_states_max: int = 32768
    dirty_ledgers_max: int = 131_072
    open_files_max: int = 1000
    entry_log_bytes_max: int = 1024 * MIB
    block_bytes: int = MIB
    flush_interval_s: float = 10.0
    journal_bytes_between_checkpoints_max: int = 256 * MIB
    checkpoint_duty_max: float = 0.1
