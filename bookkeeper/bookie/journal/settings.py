"""Bounds of a journal; sizes in bytes. Pure. `config.server` holds the keys of bk_server.conf they come from."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.bookie.journal.format import ALIGNMENT, GROUP_SIZE_MAX, HEADER_SIZE, PADDING_SINCE, VERSION
from bookkeeper.errors import ConfigurationError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How large files, groups and queues get.

    file_size_max: a new file is begun once this much is written (journalMaxSizeMB).
    preallocation_size: zeros kept written ahead of the last group (journalPreAllocSizeMB); 0 writes none.
    preparation_slice_size: zeros written and synced at once, so that no group waits for more than that.
    backups_max: files kept below the mark (journalMaxBackups).
    group_bytes_max: waiting records beyond this go into the next group; a single larger append still goes in one.
    pending_bytes_max: records not yet durable; more are refused (journalMaxMemorySizeMb).
    alignment: groups end at multiples of this (journalAlignmentSize).
    format_version: 6; 5 is for tests of files without explicit LACs.
    recycle: reuse a file below the mark instead of deleting it (journalReuseFiles).
    """

    file_size_max: int = 2048 * MIB
    preallocation_size: int = 16 * MIB
    preparation_slice_size: int = MIB // 2
    backups_max: int = 5
    group_bytes_max: int = 4 * MIB
    pending_bytes_max: int = 64 * MIB
    alignment: int = ALIGNMENT
    format_version: int = VERSION
    recycle: bool = False

    def __post_init__(self) -> None:
        faults = []
        if self.alignment < ALIGNMENT or self.alignment % ALIGNMENT:
            faults.append(f"alignment {self.alignment} is not a multiple of {ALIGNMENT}")
        if self.file_size_max < HEADER_SIZE + 2 * self.alignment:
            faults.append(f"file_size_max {self.file_size_max} has no room for a header and a group")
        if not PADDING_SINCE <= self.format_version <= VERSION:
            faults.append(f"format_version {self.format_version} is not {PADDING_SINCE} or {VERSION}")
        if not 0 < self.group_bytes_max <= GROUP_SIZE_MAX // 2:
            faults.append(f"group_bytes_max {self.group_bytes_max} is not in 1 .. {GROUP_SIZE_MAX // 2}")
        if self.preallocation_size < 0 or self.preparation_slice_size < ALIGNMENT:
            faults.append(
                f"preallocation_size {self.preallocation_size} must be >= 0 and preparation_slice_size "
                f"{self.preparation_slice_size} >= {ALIGNMENT}"
            )
        if self.backups_max < 0 or self.pending_bytes_max < 1:
            faults.append(f"backups_max {self.backups_max} or pending_bytes_max {self.pending_bytes_max} is too small")
        if faults:
            raise ConfigurationError("journal settings: " + "; ".join(faults))
