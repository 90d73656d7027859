"""One entry log while it is written: the active one, or what compaction copies live entries to.

What a crash leaves behind: a log without a ledgers map, perhaps with a cut record at its end; both are legal in
Apache's format (such a log is scanned).

Thread: its owner's, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from bookkeeper.bookie.integrity.checksums.entry_log_files import LogChecksumWriter
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.filesystem import File, is_no_space


class LogWriter:
    """Appends to a file that has its header.

    directory: the configured one. size: where the next record goes. synced: nothing was appended since `sync`.
    ledger_bytes: what the map will say. checksums: the log's side file, which follows it.
    """

    __slots__ = ("checksums", "directory", "file", "ledger_bytes", "log_id", "path", "size", "synced")

    def __init__(self, log_id: int, directory: str, path: str, file: File, checksums: LogChecksumWriter) -> None:
        self.log_id = log_id
        self.directory = directory
        self.path = path
        self.file = file
        self.size = fmt.HEADER_SIZE
        self.synced = True
        self.ledger_bytes: dict[int, int] = {}
        self.checksums = checksums

    def append(self, block: bytes, ledger_sizes: Iterable[tuple[int, int]]) -> int:
        """Write a block of framed records and return its location: log id << 32 | offset. Not durable before `sync`.

        ledger_sizes: (ledger id, bytes with the 4-byte sizes) for the map. Raises OSError; nothing counts as written.
        """
        offset = self.size
        self.file.pwrite(block, offset)
        self.file.start_writeback(offset, len(block))
        self.checksums.append(block)
        self.size += len(block)
        self.synced = False
        ledger_bytes = self.ledger_bytes
        for ledger_id, ledger_size in ledger_sizes:
            ledger_bytes[ledger_id] = ledger_bytes.get(ledger_id, 0) + ledger_size
        return fmt.location(self.log_id, offset)

    def sync(self) -> None:
        """Make everything appended durable. Raises OSError (fatal: I-48)."""
        if not self.synced:
            self.file.sync()
            self.synced = True
            self.checksums.synced()

    def seal(self) -> None:
        """End the log: ledgers map, sync, then the header that names and seals the map, sync (I-61).

        A disk too full for the map leaves the log without one, which is legal. Raises OSError (fatal: I-48).
        """
        file = self.file
        # A block that found no space may have left a cut record behind, which a scan would run into.
        if file.size() > self.size:
            file.truncate(self.size)
        ledgers_map = fmt.encode_ledgers_map(self.ledger_bytes)
        mapped = _write_if_room(file, ledgers_map, self.size)
        if not mapped:
            file.truncate(self.size)
        file.sync()
        if mapped:
            self.checksums.append(ledgers_map)
            header = fmt.LogHeader(
                map_offset=self.size, ledger_count=len(self.ledger_bytes), seal=fmt.Seal.of(ledgers_map)
            )
            mapped = _write_if_room(file, fmt.encode_header(header)[: fmt.SEALED_SIZE], 0)
            if not mapped:
                file.pwrite(fmt.encode_header(fmt.LogHeader())[: fmt.SEALED_SIZE], 0)
            file.sync()
        self.synced = True
        self.checksums.close(sealed=mapped)


def _write_if_room(file: File, data: bytes, offset: int) -> bool:
    """False when the disk is full; a part may have been written then."""
    try:
        file.pwrite(data, offset)
    except OSError as error:
        if not is_no_space(error):
            raise
        return False
    return True
