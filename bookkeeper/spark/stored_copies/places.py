"""Where the copies of a unit are: read from index pages, in order of offset.

Per ledger two columns, entry ids and offsets of bodies: 16 bytes an entry. Blocking; any thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.index import format as index_fmt
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import File, FileSystem, OpenMode
from bookkeeper.spark.stored_copies.columns import ascend, less
from bookkeeper.spark.stored_copies.journaled import contains


@dataclass(slots=True)
class Places:
    """Of one ledger. offsets ascend. master_key: that of the index file, empty for none. path: of the index file."""

    ledger_id: int
    path: str
    entry_ids: array[int]
    offsets: array[int]
    master_key: bytes

    def __len__(self) -> int:
        return len(self.offsets)


def read_places(
    fs: FileSystem,
    path: str,
    ledger_id: int,
    pages: Sequence[tuple[int, int]],
    *,
    log_id: int,
    start: int,
    end: int,
    superseded: Sequence[int] = (),
) -> Places:
    """Those in an entry log from offset `start` on and before `end`, but for the superseded entries.

    pages: first page and number of pages of each run. Raises CorruptRecord, UnknownFormatVersion, OSError.
    """
    first = log_fmt.location(log_id, start)
    high = first + end - start  # the end of the last part of a log is no offset
    low = max(first, 1)  # entry log 0, which Apache's bookies begin with: its location 0 is "no entry"
    entry_ids, locations = array("q"), array("q")
    file = fs.open(path, OpenMode.READ)
    try:
        header = index_fmt.decode_header(file.pread(index_fmt.HEADER_SIZE, 0), path)
        for first_page, count in pages:
            for page in range(first_page, first_page + count):
                _take_page(file, path, page, low, high, entry_ids, locations)
    finally:
        file.close()
    if superseded:
        kept = [at for at, entry_id in enumerate(entry_ids) if not contains(superseded, entry_id)]
        entry_ids = array("q", [entry_ids[at] for at in kept])
        locations = array("q", [locations[at] for at in kept])
    if not ascend(locations):
        order = sorted(range(len(locations)), key=locations.__getitem__)
        entry_ids = array("q", [entry_ids[at] for at in order])
        locations = array("q", [locations[at] for at in order])
    offsets = less(locations, log_fmt.location(log_id, 0))
    return Places(ledger_id, path, entry_ids, offsets, header.master_key)


def _take_page(
    file: File, path: str, page: int, low: int, high: int, entry_ids: array[int], locations: array[int]
) -> None:
    first = page * index_fmt.PAGE_SLOTS
    offset = index_fmt.slot_offset(first)
    data = file.pread(index_fmt.PAGE_SIZE, offset)
    slots = index_fmt.decode_slots(data[: len(data) - len(data) % index_fmt.SLOT_SIZE])
    if not slots:
        raise CorruptRecord(path, offset, "the page had locations when the work was planned, and has none now")
    if min(slots) >= low and max(slots) < high:
        entry_ids.extend(range(first, first + len(slots)))
        locations.extend(slots)
        return
    for entry_id, location in enumerate(slots, first):
        if low <= location < high:
            entry_ids.append(entry_id)
            locations.append(location)
