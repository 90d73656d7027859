"""Which ledgers an entry log has entries of: from its sealed map, else by reading all of it (I-60).

Apache may append entries while it writes the map, and an unsealed map may be damaged: such a log is scanned, in steps
that leave pauses to others, once in a process.

Thread: the collector's worker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from bookkeeper.bookie.gc.candidates import LedgerBytes
from bookkeeper.bookie.integrity.checksums.entry_log_files import LogChecksums
from bookkeeper.bookie.offline.inspection import is_unwritten, iter_records
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.filesystem import FileSystem, OpenMode

CACHED_LEDGERS_MAX = 4_000_000
"""Ledgers over all logs whose maps stay in memory: 64 MB. Those of sealed logs beyond it are read again."""

STEP_RECORDS = 2000
STEP_BYTES = 1024 * 1024
"""Of a scan between two pauses: some milliseconds."""


class LogLedgers:
    """Maps of closed logs, by id. A log that is closed never changes.

    checksums: a scanned page that fails its own is damage: a ledger might be overlooked there.
    """

    def __init__(
        self, fs: FileSystem, checksums: LogChecksums | None = None, *, ledgers_max: int = CACHED_LEDGERS_MAX
    ) -> None:
        self._fs = fs
        self._checksums = checksums
        self._ledgers_max = ledgers_max
        self._known: OrderedDict[int, LedgerBytes] = OrderedDict()
        self._sealed: set[int] = set()
        self._count = 0

    def known(self, log_id: int) -> LedgerBytes | None:
        """What was read before."""
        found = self._known.get(log_id)
        if found is not None:
            self._known.move_to_end(log_id)
        return found

    def read_map(self, log_id: int, path: str) -> LedgerBytes | None:
        """From the map, if it is sealed; None when the log must be scanned. Raises CorruptRecord, OSError.

        Of a log in which nothing was written: no ledger, which is no more certain than a scan (`is_sealed`).
        """
        file = self._fs.open(path, OpenMode.READ)
        try:
            if is_unwritten(file):
                return self._keep(log_id, LedgerBytes({}))
            header = fmt.decode_header(file.pread(fmt.HEADER_SIZE, 0), path)
            if header.seal is None or file.size() != header.map_offset + header.seal.map_size:
                return None
            data = file.pread(header.seal.map_size, header.map_offset)
        finally:
            file.close()
        if not header.seal.fits(data):
            return None
        ledger_bytes = fmt.decode_ledgers_map(
            data, ledger_count=header.ledger_count, offset=header.map_offset, path=path
        )
        self._sealed.add(log_id)
        return self._keep(log_id, LedgerBytes(ledger_bytes))

    def is_sealed(self, log_id: int) -> bool:
        """True when what is known of the log came from a sealed map."""
        return log_id in self._sealed

    def scan(self, log_id: int, path: str) -> Iterator[LedgerBytes | None]:
        """Read all records' heads: None after each step, at the end the result. Raises CorruptRecord, OSError."""
        found: dict[int, int] = {}
        check = self._checksums.checked(log_id) if self._checksums is not None else None
        records = size = 0
        for record in iter_records(self._fs, path, log_id=log_id, bodies=False, check=check):
            found[record.ledger_id] = found.get(record.ledger_id, 0) + record.size + fmt.SIZE.size
            records += 1
            size += record.size
            if records >= STEP_RECORDS or size >= STEP_BYTES:
                records = size = 0
                yield None
        yield self._keep(log_id, LedgerBytes(found))

    def keep_indexed(self, log_id: int, ledgers: LedgerBytes) -> LedgerBytes:
        """What the index needs of a log that cannot be read through: it will never be more."""
        return self._keep(log_id, ledgers)

    def forget(self, log_id: int) -> None:
        """The log is gone."""
        self._sealed.discard(log_id)
        self._drop(log_id)

    def _drop(self, log_id: int) -> None:
        known = self._known.pop(log_id, None)
        if known is not None:
            self._count -= len(known)

    def forget_others(self, is_there: Callable[[int], bool]) -> None:
        """Forget all logs that are not there any more."""
        for log_id in [log_id for log_id in (*self._known, *self._sealed) if not is_there(log_id)]:
            self.forget(log_id)

    def _keep(self, log_id: int, ledgers: LedgerBytes) -> LedgerBytes:
        self._drop(log_id)
        self._known[log_id] = ledgers
        self._count += len(ledgers)
        while self._count > self._ledgers_max and len(self._known) > 1:
            self._drop(next(iter(self._known)))
        return ledgers
