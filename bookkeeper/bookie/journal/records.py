"""Records out of bytes, and to a visitor, in batches.

`RecordSink` is the inner loop of a replay: a few operations per entry, one visitor call per ledger and few MiB.
"""

from __future__ import annotations

from typing import Protocol

from bookkeeper.bookie.journal.format import (
    EXPLICIT_LAC_ENTRY,
    EXPLICIT_LAC_SINCE,
    FENCE_ENTRY,
    FENCE_RECORDS_SINCE,
    GROUP_ENTRY,
    IDS_SIZE,
    KEY_RECORDS_SINCE,
    LENGTH,
    MASTER_KEY_ENTRY,
    RECORD_HEAD,
    embedded_bytes,
)
from bookkeeper.errors import CorruptRecord, InvalidArgument, StorageError

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Bodies handed over at once, all ledgers together; one record more may come on top."""

_RECORD_SIZE_MIN = LENGTH.size + IDS_SIZE


class ReplayVisitor(Protocol):
    """Takes what a journal holds. Everything may come twice, and must have the same effect as once (I-53).

    Per ledger the calls come in the order of the journal; entries of different ledgers may change places. Keys and
    explicit LACs that it cannot take it refuses with InvalidArgument; the replay tells where they stand.
    """

    entry_id_max: int
    """Highest entry id it can take; it is never asked to take a higher one."""

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        """Entries of one ledger; an id may repeat, and then the last one counts. The ledger may be unknown."""

    def master_key(self, ledger_id: int, key: bytes) -> None:
        """The ledger's key; comes before its entries, though not necessarily in this replay."""

    def fence(self, ledger_id: int) -> None:
        """The ledger is fenced."""

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """An explicit LAC, as the client sent it."""


class RecordSink:
    """Collects entries per ledger and passes them on; meta records at once, after the entries before them."""

    def __init__(self, visitor: ReplayVisitor) -> None:
        self._visitor = visitor
        self._batches: dict[int, tuple[list[int], list[bytes]]] = {}
        self._bytes = 0
        self.record_count = 0
        """Records taken, entries and meta records alike, groups excepted."""
        self.ignored_count = 0
        """Records of unknown meaning, or with a negative ledger id; they change nothing."""

    def take_all(self, data: bytes, start: int, end: int, *, path: str, base: int, version: int) -> None:
        """Take the records of data[start:end], which must be whole. `base`: offset of data[0] in the file.

        Raises CorruptRecord when they do not fill the range exactly.
        """
        at = self.take_some(data, start, end, path=path, base=base, version=version)
        if at != end:
            raise CorruptRecord(path, base + at, "a record does not end where its group does")

    def take_some(self, data: bytes, start: int, end: int, *, path: str, base: int, version: int) -> int:
        """Take whole records from data[start:end] up to the first that is not whole, or has no possible length.

        Returns the index behind the last record taken. Raises CorruptRecord, or StorageError for one that the visitor
        cannot take.
        """
        unpack, batches, entry_id_max = RECORD_HEAD.unpack_from, self._batches, self._visitor.entry_id_max
        current: int | None = None
        entry_ids: list[int] = []
        bodies: list[bytes] = []
        at, count = start, 0
        while at + _RECORD_SIZE_MIN <= end:
            size, ledger_id, entry_id = unpack(data, at)
            following = at + 4 + size
            if size < IDS_SIZE or following > end:
                break
            if 0 <= entry_id <= entry_id_max and ledger_id >= 0:
                if ledger_id != current:
                    batch = batches.get(ledger_id)
                    if batch is None:
                        batch = batches[ledger_id] = ([], [])
                    entry_ids, bodies = batch
                    current = ledger_id
                entry_ids.append(entry_id)
                bodies.append(data[at + 4 : following])
            else:
                self._take_other(ledger_id, entry_id, data[at + 4 : following], path, base + at, version)
                current = None
            count += 1
            at = following
        self.record_count += count
        self._bytes += at - start
        if self._bytes >= BATCH_BYTES_MAX:
            self.flush()
        return at

    def _take_other(self, ledger_id: int, entry_id: int, payload: bytes, path: str, offset: int, version: int) -> None:
        """A meta record, or an entry that cannot be taken."""
        if ledger_id < 0:
            self.ignored_count += 1
            return
        if entry_id >= 0:
            bound = self._visitor.entry_id_max
            raise _unusable(path, offset, ledger_id, f"entry id {entry_id} is above {bound}, the highest it stores")
        if entry_id == GROUP_ENTRY:
            raise CorruptRecord(path, offset, "a group record where none can be: the file's first group is damaged")
        required = _VERSION_OF.get(entry_id)
        if required is None:
            self.ignored_count += 1
            return
        if version < required:
            raise CorruptRecord(path, offset, f"a record of kind {entry_id} in a file of version {version}")
        self._flush_ledger(ledger_id)
        if entry_id == FENCE_ENTRY:
            self._visitor.fence(ledger_id)
            return
        content = embedded_bytes(payload)
        if content is None:
            raise CorruptRecord(path, offset, f"the length inside a record of kind {entry_id} does not fit the record")
        take = self._visitor.master_key if entry_id == MASTER_KEY_ENTRY else self._visitor.explicit_lac
        try:
            take(ledger_id, content)
        except InvalidArgument as error:
            raise _unusable(path, offset, ledger_id, str(error)) from error

    def _flush_ledger(self, ledger_id: int) -> None:
        batch = self._batches.pop(ledger_id, None)
        if batch is not None:
            self._visitor.entries(ledger_id, *batch)

    def flush(self) -> None:
        """Pass on what is collected."""
        batches = self._batches.copy()
        self._batches.clear()
        self._bytes = 0
        for ledger_id, (entry_ids, bodies) in batches.items():
            self._visitor.entries(ledger_id, entry_ids, bodies)


def _unusable(path: str, offset: int, ledger_id: int, why: str) -> StorageError:
    """An intact record with a value that Apache's bookie takes and this one does not."""
    return StorageError(
        f"{path} has a record of ledger {ledger_id} at offset {offset} that this bookie cannot take: {why}. Start "
        "Apache's bookie on these directories and stop it when it serves: what it has checkpointed is not replayed "
        "again. Or treat this bookie as failed: let its ledgers be replicated from the others, then empty it with "
        "'bookkeeper shell bookieformat'"
    )


_VERSION_OF = {
    MASTER_KEY_ENTRY: KEY_RECORDS_SINCE,
    FENCE_ENTRY: FENCE_RECORDS_SINCE,
    EXPLICIT_LAC_ENTRY: EXPLICIT_LAC_SINCE,
}
