"""Reads: from memory in the reactor's turn, from the disk through the read worker.

The known LAC travels with v3 reads. After it was forgotten it is found again in the explicit LAC and the last entry,
which costs one more body in the same look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.requests.interfaces import EntryStorage
from bookkeeper.bookie.requests.known_lac import KnownLacs, lac_of_body, lac_of_packet
from bookkeeper.errors import StorageError
from bookkeeper.model import LAST_ENTRY, Status
from bookkeeper.ports import Worker

log = Logger()

Results = list[bytes | Status]
OnResults = Callable[[Results], None]


class EntryReads:
    """Looks entries up. Thread: reactor; disk work on `worker`.

    entries_max: entries being read from the disk at once; more are answered TOO_MANY_REQUESTS, except that one batch
    is always taken when none is being read.
    Bodies come as the storage holds them, uncopied.
    """

    def __init__(self, storage: EntryStorage, worker: Worker, lacs: KnownLacs, *, entries_max: int) -> None:
        self._storage = storage
        self._worker = worker
        self._lacs = lacs
        self._entries_max = entries_max
        self.cold_count = 0
        """Entries being read from the disk now."""

    def read(self, ledger_id: int, entry_ids: Sequence[int], on_results: OnResults) -> None:
        """Look up; one result per id, in order. LAST_ENTRY stands only alone and means the last one as of this turn.

        Raises StorageError when the ledger's state cannot be read. The state must be loaded for LAST_ENTRY.
        """
        if entry_ids[0] == LAST_ENTRY:
            last = self._storage.last_entry_id(ledger_id)
            if last is None:
                # Differs from Apache, which has no tombstones: a tombstone answers NO_ENTRY, so that no new ledger
                # takes an id for which this bookie refuses adds.
                known = self._storage.exists(ledger_id) or self._storage.tombstone(ledger_id) is not None
                on_results([Status.NO_ENTRY if known else Status.NO_LEDGER])
                return
            entry_ids = [last]
        results = self._storage.read(ledger_id, entry_ids)
        if None in results:
            self._read_cold(ledger_id, entry_ids, on_results)
        else:
            on_results(results)  # type: ignore[arg-type] # no None is left

    def read_with_lac(
        self, ledger_id: int, entry_ids: Sequence[int], on_results: Callable[[Results, int | None], None]
    ) -> None:
        """As `read`, with the known LAC as of the answer (None: unknown ledger). The ledger's state must be loaded."""
        if self._lacs.get(ledger_id) is None:
            last = self._storage.last_entry_id(ledger_id)
            if last is not None:
                whole = [*([last] if entry_ids[0] == LAST_ENTRY else entry_ids), last]
                self.read(ledger_id, whole, partial(self._restored, ledger_id, last, on_results))
                return
            if self._storage.exists(ledger_id):
                self._lacs.restore(ledger_id, lac_of_packet(self._storage.explicit_lac(ledger_id)))
        self.read(ledger_id, entry_ids, lambda results: on_results(results, self._lacs.get(ledger_id)))

    def _restored(
        self, ledger_id: int, last_id: int, on_results: Callable[[Results, int | None], None], results: Results
    ) -> None:
        last = results.pop()
        self._restore(
            ledger_id, last_id, last, lambda lac: on_results(results, None if isinstance(lac, Status) else lac)
        )

    def known_lac(self, ledger_id: int, on_lac: Callable[[int | Status], None]) -> None:
        """The known LAC (-1: none), found again if it was forgotten; NO_LEDGER, or why it cannot be told.

        The ledger's state must be loaded. Raises StorageError.
        """
        known = self._lacs.get(ledger_id)
        if known is not None:
            on_lac(known)
            return
        if not self._storage.exists(ledger_id):
            on_lac(Status.NO_LEDGER)
            return
        last_id = self._storage.last_entry_id(ledger_id)
        if last_id is None:
            lac = lac_of_packet(self._storage.explicit_lac(ledger_id))
            self._lacs.restore(ledger_id, lac)
            on_lac(lac)
            return
        self.read(ledger_id, [last_id], lambda results: self._restore(ledger_id, last_id, results[0], on_lac))

    def _restore(
        self, ledger_id: int, last_id: int, last: bytes | Status, on_lac: Callable[[int | Status], None]
    ) -> None:
        """Note the LAC as found in the explicit LAC and in `last`, read as the entry `last_id`."""
        if isinstance(last, Status):
            on_lac(Status.IO_ERROR if last in (Status.NO_ENTRY, Status.NO_LEDGER) else last)
            return
        try:
            if self._storage.last_entry_id(ledger_id) != last_id:
                # A LAC that arrived while the disk was read was not noted: the new last entry, in memory, has it.
                self.known_lac(ledger_id, on_lac)
                return
            explicit = lac_of_packet(self._storage.explicit_lac(ledger_id))
        except StorageError as error:
            log.error("The LAC of ledger {ledger_id} is unreadable: {error}", ledger_id=ledger_id, error=error)
            on_lac(Status.IO_ERROR)
            return
        self._lacs.restore(ledger_id, max(explicit, lac_of_body(last)))
        known = self._lacs.get(ledger_id)
        assert known is not None
        on_lac(known)

    def _read_cold(self, ledger_id: int, entry_ids: Sequence[int], on_results: OnResults) -> None:
        count = len(entry_ids)
        if self.cold_count and self.cold_count + count > self._entries_max:
            on_results([Status.TOO_MANY_REQUESTS] * count)
            return
        self.cold_count += count

        def done(results: Results) -> None:
            self.cold_count -= count
            on_results(results)

        def failed(error: BaseException) -> None:
            self.cold_count -= count
            log.error("Could not read ledger {ledger_id} from the disk: {error}", ledger_id=ledger_id, error=error)
            on_results([Status.IO_ERROR] * count)

        self._worker.submit(partial(self._storage.read_cold, ledger_id, list(entry_ids)), done, failed)
