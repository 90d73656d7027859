"""Explicit LACs: written to the journal before anybody sees them, and read with the last entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookkeeper.bookie.journal.format import explicit_lac_record
from bookkeeper.bookie.requests.entry_reads import EntryReads
from bookkeeper.bookie.requests.fence import KeyCheck
from bookkeeper.bookie.requests.intake import Intake
from bookkeeper.bookie.requests.known_lac import lac_of_packet
from bookkeeper.bookie.requests.long_poll import LacWatches
from bookkeeper.bookie.storage.index.format import EXPLICIT_LAC_SIZE_MAX, EXPLICIT_LAC_SIZE_MIN
from bookkeeper.model import LAST_ENTRY, Status
from bookkeeper.wire.messages import ReadLac, WriteLac

_REFUSALS = {
    KeyCheck.WRONG: Status.UNAUTHORIZED,
    KeyCheck.GONE: Status.NO_LEDGER,
    KeyCheck.MOVED: Status.UNKNOWN_LEDGER_STATE,
}


class LacRequests:
    """Thread: reactor."""

    def __init__(self, intake: Intake, reads: EntryReads, watches: LacWatches) -> None:
        self._intake = intake
        self._storage = intake.storage
        self._reads = reads
        self._watches = watches

    def write_lac(self, request: WriteLac, reply: Callable[[Status], None]) -> None:
        """Store an explicit LAC; OK after its sync. One that is not higher is answered OK and changes nothing (I-07).

        Fenced ledgers still take it, as with Apache. READ_ONLY, UNAUTHORIZED, BAD_REQUEST (packet too short).
        """
        if not self._intake.begin():
            return
        refuse = partial(self._intake.answer, reply)
        self._intake.decide_loaded(
            request.ledger_id, len(request.body), partial(self._apply_lac, request, reply), refuse
        )

    def _apply_lac(self, request: WriteLac, reply: Callable[[Status], None]) -> None:
        ledger_id, packet = request.ledger_id, request.body
        if self._intake.mode.read_only:
            self._intake.answer(reply, Status.READ_ONLY)
            return
        if not EXPLICIT_LAC_SIZE_MIN <= len(packet) <= EXPLICIT_LAC_SIZE_MAX or lac_of_packet(packet) < -1:
            self._intake.answer(reply, Status.BAD_REQUEST)
            return
        refusal = _REFUSALS.get(self._intake.access.check_key(ledger_id, request.master_key))
        if refusal is not None:
            self._intake.answer(reply, refusal)
            return
        stored = self._storage.explicit_lac(ledger_id)
        if stored is not None and lac_of_packet(stored) >= lac_of_packet(packet):
            self._intake.answer(reply, Status.OK)
            return
        if self._intake.may_not_create(ledger_id):
            self._intake.answer(reply, Status.TOO_MANY_REQUESTS)
            return
        record = explicit_lac_record(ledger_id, packet)
        on_durable = partial(self._lac_durable, ledger_id, packet, reply)
        self._intake.append(ledger_id, request.master_key, [record], len(record), on_durable)
        if self._storage.master_key(ledger_id) is None:
            self._storage.set_master_key(ledger_id, request.master_key)

    def _lac_durable(self, ledger_id: int, packet: bytes, reply: Callable[[Status], None]) -> None:
        """Only now may readers see it: a LAC that was served must not fall back after a crash (I-07)."""

        def run() -> None:
            self._storage.set_explicit_lac(ledger_id, packet)
            self._intake.lacs.raise_to(ledger_id, lac_of_packet(packet))
            self._watches.on_lac(ledger_id, lac_of_packet(packet))
            self._intake.answer(reply, Status.OK)

        self._intake.decide(run, partial(self._intake.answer, reply))

    def read_lac(self, request: ReadLac, reply: Callable[[Status, bytes | None, bytes | None], None]) -> None:
        """The explicit LAC packet and the body of the last entry, each None where there is none.

        NO_ENTRY when there is neither, also for an unknown ledger.
        Differs from Apache: an entry that cannot be read is IO_ERROR, never NO_ENTRY (I-31).
        """
        if not self._intake.begin():
            return

        def refuse(status: Status) -> None:
            self._intake.answer(reply, status, None, None)

        def run() -> None:
            explicit = self._storage.explicit_lac(request.ledger_id)
            self._reads.read(request.ledger_id, [LAST_ENTRY], lambda results: found(explicit, results[0]))

        def found(explicit: bytes | None, last: bytes | Status) -> None:
            if isinstance(last, bytes):
                self._intake.answer(reply, Status.OK, explicit, last)
            elif last not in (Status.NO_ENTRY, Status.NO_LEDGER):
                self._intake.answer(reply, last, explicit, None)
            else:
                self._intake.answer(reply, Status.NO_ENTRY if explicit is None else Status.OK, explicit, None)

        self._intake.decide_loaded(request.ledger_id, 0, run, refuse)
