"""Which entries the indexes name in some bytes of an entry log of a bookie that does not run, and what becomes of them.

The indexes tell, not the log: where its bytes are damaged, so may be the heads of its records. Reads only. Blocking;
any thread. Memory: the places that one ledger has in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode

LEDGERS_TOLD_MAX = 8
RANGES_TOLD_MAX = 8
"""Ledgers, and ranges of each, that are named in one line."""


def needed_entries(
    fs: FileSystem, indexes: Mapping[int, str], log_id: int, path: str, runs: Sequence[tuple[int, int]]
) -> list[dict[int, list[int]]]:
    """For each run of bytes, from the first to before the second: ledger -> entries that lie there, all ascending.

    indexes: the index file of each ledger. Raises OSError.
    """
    found: list[dict[int, list[int]]] = [{} for _ in runs]
    file = fs.open(path, OpenMode.READ)
    try:
        for ledger_id in _ledgers(fs, file, path, indexes):
            places = sorted(
                (log_fmt.split_location(location)[1], entry_id)
                for entry_id, location in inspection.iter_index(fs, indexes[ledger_id])
                if location >> 32 == log_id
            )
            for run, there in zip(runs, found, strict=True):
                entry_ids = _entries_in(file, places, run)
                if entry_ids:
                    there[ledger_id] = entry_ids
    finally:
        file.close()
    return found


def _entries_in(file: File, places: Sequence[tuple[int, int]], run: tuple[int, int]) -> list[int]:
    low = bisect_left(places, (run[0], -1))
    high = bisect_left(places, (run[1] + log_fmt.SIZE.size, -1))
    if low > 0 and _end_of(file, places[low - 1][0]) > run[0]:
        low -= 1
    return sorted({entry_id for _, entry_id in places[low:high]})


def _end_of(file: File, offset: int) -> int:
    """Where the record ends whose body is at `offset`, by its own word."""
    data = file.pread(log_fmt.SIZE.size, max(0, offset - log_fmt.SIZE.size))
    return offset + (log_fmt.SIZE.unpack(data)[0] if len(data) == log_fmt.SIZE.size else 0)


def _ledgers(fs: FileSystem, file: File, path: str, indexes: Mapping[int, str]) -> list[int]:
    """Those that may have entries in the log: of its map where that is the sealed one, else all there are."""
    try:
        header = inspection.read_log_header(fs, path)
        data = file.pread(header.seal.map_size, header.map_offset) if header.seal is not None else b""
        if header.seal is None or not header.seal.fits(data):
            return sorted(indexes)
        named = log_fmt.decode_ledgers_map(data, ledger_count=header.ledger_count, offset=header.map_offset, path=path)
    except StorageError:
        return sorted(indexes)
    return sorted(indexes.keys() & named.keys())


def told(entries: Mapping[int, Sequence[int]]) -> str:
    """What is said of entries that lie in damaged bytes, with what happens next."""
    if not entries:
        return "no index names an entry there, so that none is lost"
    some = list(entries.items())[:LEDGERS_TOLD_MAX]
    names = ", ".join(f"{_ranges(entry_ids)} of ledger {ledger_id}" for ledger_id, entry_ids in some)
    if len(entries) > len(some):
        names += f", and entries of {len(entries) - len(some)} more ledgers"
    return (
        f"there: {names}. The bookie denies none of them and serves none that is damaged: once it runs it reports them "
        "when they are read or the scrub comes by, and auto-recovery writes them anew from good copies. `bookkeeper "
        f"why ledger {some[0][0]}` says who has some; without another copy they cannot be read any more"
    )


def _ranges(entry_ids: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for entry_id in entry_ids:
        if ranges and ranges[-1][1] == entry_id - 1:
            ranges[-1][1] = entry_id
        else:
            ranges.append([entry_id, entry_id])
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:RANGES_TOLD_MAX]]
    what = "entry" if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else "entries"
    more = f" and {len(ranges) - len(shown)} more ranges" if len(ranges) > len(shown) else ""
    return f"{what} {', '.join(shown)}{more}"
