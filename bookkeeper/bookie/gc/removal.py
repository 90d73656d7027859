"""Deleting ledgers under a bookie that serves: their requests wait at the gates meanwhile (I-63).

Thread: reactor; the deletion itself runs on the storage worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from twisted.internet.defer import Deferred

from bookkeeper.bookie.gc.deletion import Deletion
from bookkeeper.bookie.requests.intake import Intake
from bookkeeper.errors import NoWritableDisk
from bookkeeper.ports import Worker

BATCH_MAX = 500
"""Ledgers whose requests wait at the same time."""


class LedgerRemoval:
    """storage_worker: the one that flushes and checkpoints."""

    def __init__(self, intake: Intake, storage_worker: Worker) -> None:
        self._intake = intake
        self._storage = intake.storage
        self._worker = storage_worker

    def remove(self, ledger_ids: Sequence[int], *, moved: bool) -> Deferred[list[int]]:
        """Delete up to BATCH_MAX ledgers; fires with those that were, once their files are gone for good.

        Left out are those that are being written, or whose state is on its way from the disk: they come again.
        moved: the metadata store has them, but not on this bookie. Fails with NoWritableDisk; nothing is deleted then.
        Any other failure ends the bookie (I-48), and then this never fires.
        """
        assert len(ledger_ids) <= BATCH_MAX
        gates = self._intake.gates
        closed = [ledger_id for ledger_id in ledger_ids if gates.close(ledger_id)]
        doomed = self._storage.doom(closed)
        self._open(set(closed).difference(doomed))
        done: Deferred[list[int]] = Deferred()
        if not doomed:
            done.callback([])
            return done

        def deleted(_: None) -> None:
            self._storage.revive(doomed)
            self._open(doomed)
            done.callback(doomed)

        def failed(error: BaseException) -> None:
            if not isinstance(error, NoWritableDisk):
                self._intake.fail(error)
                return
            self._storage.revive(doomed)
            self._open(doomed)
            done.errback(error)

        deletion = Deletion(tuple(doomed), moved=moved)
        self._worker.submit(partial(self._storage.delete, deletion), deleted, failed)
        return done

    def _open(self, ledger_ids: Sequence[int] | set[int]) -> None:
        for ledger_id in sorted(ledger_ids):
            self._intake.gates.open_again(ledger_id)
