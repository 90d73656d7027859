"""Id and ensemble of a new ledger: an id under which the ensemble's bookies hold nothing.

    take an id --> ask the ensemble (`occupancy`) --all FREE--> write the metadata --> the handle
        ^                |         |
        |                |         +--some UNKNOWN, none of these below--> replace the UNKNOWN; ask the replacements
        +--passed over --+--some CLAIMED or ENTRIES: a named id fails with LedgerIdOccupied

Bookies that are UNKNOWN under an id that is passed over are replaced before the next id is asked.

All this happens before the metadata is written. So an id that is passed over leaves nothing to close or delete, and
the id of a handle never changes. A create costs one more round trip, to all its bookies at once, on the connections
that the first add needs anyway.

Consecutive ids are often claimed together, and the store gives out one at a time. So each id that is passed over
lengthens the stride to the next one, up to STRIDE_MAX: 3000 claimed ids take 18 questions and 3060 ids, and
ATTEMPTS_MAX questions get past 14 000. Beyond that LedgerIdOccupied is raised; the next create continues from there.
Measured with 3000 claimed ids: 9 to 10 s for create, append and close instead of 0.05 s (three bookies and a ZooKeeper
on two cores at a load of 10). ZooKeeper makes and removes a znode per id.

No member remains unasked: if a bookie that does not answer cannot be replaced, the create fails, also where each entry
would reach its ack quorum without it (delayEnsembleChange). The bookie may hold entries of an earlier ledger of this
id, and a reader may see them if it never gets an add of the new one. Once its registration ends, a create for which
there are too few bookies fails anyway.
Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.client.bookies.access_errors import Refusal, refusal_of
from bookkeeper.client.write.ensemble_change import choose_replacements
from bookkeeper.client.write.occupancy import Finding, Occupancy, ask_occupancy, occupied
from bookkeeper.errors import (
    BookKeeperError,
    ClientClosed,
    LedgerExists,
    LedgerIdOccupied,
    NoSuchLedger,
    NotEnoughBookies,
)
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata, Versioned

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext

log = Logger()

ATTEMPTS_MAX = 64
"""Ids that one create tries."""

STRIDE_MAX = 256
"""Ids taken from the store at once; only the last one is used."""

Describe = Callable[[tuple[BookieId, ...]], LedgerMetadata]
"""Returns the metadata to write for an ensemble."""


def stride_after(first: int, last: int) -> int:
    """Return how many ids to take together after those from first to last were passed over."""
    return min(STRIDE_MAX, max(1, 2 * (last - first)))


class NewLedger:
    """One create; the caller has checked ensemble and quorums."""

    def __init__(
        self,
        context: ClientContext,
        ensemble: tuple[BookieId, ...],
        write_quorum: int,
        describe: Describe,
    ) -> None:
        self._context, self._write_quorum, self._describe = context, write_quorum, describe
        self._ensemble = ensemble
        self._silent: dict[str, BookKeeperError] = {}  # did not answer; not asked again by this create

    async def create_named(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        """Create the ledger under an id that the caller chose.

        Raises LedgerExists, LedgerIdOccupied, NotEnoughBookies, a Refusal.
        """
        error: BookKeeperError | None
        try:
            error = await self._ask(ledger_id)
        except ClientClosed:
            raise
        except BookKeeperError as too_few:
            error = too_few
        if error is not None:
            await self._check_absent(ledger_id)
            raise error
        _, created = await self._context.store.ledgers.create(self._describe(self._ensemble), ledger_id)
        return created

    async def create(self) -> tuple[LedgerId, Versioned[LedgerMetadata]]:
        """Create the ledger under a generated id. Raises LedgerIdOccupied, NotEnoughBookies, a Refusal."""
        ledgers = self._context.store.ledgers
        first: LedgerId | None = None
        attempts, stride = 0, 1
        while True:
            ledger_id = await ledgers.new_id(stride)
            error: BookKeeperError | None = await self._ask(ledger_id)
            if error is None:
                try:
                    _, created = await ledgers.create(self._describe(self._ensemble), ledger_id, generated=True)
                except LedgerExists as exists:
                    error = exists
                else:
                    if first is not None:
                        log.warn(
                            "Passed over ledger ids {first}..{last}, as a claim or entries exist under some of them; "
                            "the new ledger is {ledger_id}",
                            first=first,
                            last=ledger_id - 1,
                            ledger_id=ledger_id,
                        )
                    return ledger_id, created
            self._context.ids_passed_over += 1
            attempts += 1
            if first is None:
                first = ledger_id
            if attempts == ATTEMPTS_MAX:
                raise LedgerIdOccupied(
                    f"no ledger was created: claims or entries exist under {attempts} ids from {first} to {ledger_id}; "
                    "find the peer that claims ids (bookies log fences of ledgers without entries), then try again",
                    ledger_id=ledger_id,
                    answers=error.answers if isinstance(error, LedgerIdOccupied) else None,
                ) from error
            stride = stride_after(first, ledger_id)

    async def _ask(self, ledger_id: LedgerId) -> LedgerIdOccupied | None:
        """Ask the ensemble; replace bookies that do not answer, and ask the replacements.

        If a bookie holds something under the id, no other bookie is needed for the id: those that did not answer are
        replaced before the next id is asked.
        """
        self._replace_silent()
        unasked = self._ensemble
        while True:
            findings = await ask_occupancy(self._context, ledger_id, unasked)
            self._context.check_open()
            self._note_silent(findings)
            error = occupied(ledger_id, findings)
            if error is not None:
                return error
            unasked = self._replace_silent()
            if not unasked:
                return None

    def _note_silent(self, findings: Mapping[BookieId, Finding]) -> None:
        for bookie_id, found in findings.items():
            if found.occupancy is Occupancy.UNKNOWN:
                assert found.why is not None
                self._silent[bookie_id] = found.why
                if not isinstance(found.why, Refusal):
                    self._context.directory.quarantine(bookie_id)

    def _replace_silent(self) -> tuple[BookieId, ...]:
        """Replace members that did not answer; return the replacements."""
        failed = {index: bookie_id for index, bookie_id in enumerate(self._ensemble) if bookie_id in self._silent}
        if not failed:
            return ()
        chosen = choose_replacements(
            self._context, self._ensemble, self._write_quorum, failed, frozenset(map(BookieId, self._silent))
        )
        if len(chosen) < len(failed):
            raise self._too_few(failed)
        self._ensemble = tuple(chosen.get(index, bookie_id) for index, bookie_id in enumerate(self._ensemble))
        return tuple(chosen.values())

    def _too_few(self, failed: dict[int, BookieId]) -> BookKeeperError:
        answers: dict[str, object] = {**self._silent}
        refusals = {bookie_id: why for bookie_id, why in self._silent.items() if isinstance(why, Refusal)}
        others = {*self._context.directory.writable, *self._ensemble} - refusals.keys()
        too_few = len(others) < len(self._ensemble)  # also if all of these answered
        if refusals and (too_few or len(refusals) == len(self._silent)):
            return refusal_of("no ledger was created", refusals, answers)
        return NotEnoughBookies(
            f"no ledger was created: no writable bookie can replace {', '.join(sorted(failed.values()))} in the "
            f"ensemble {', '.join(self._ensemble)}; start more bookies, or find out why these do not answer",
            answers=answers,
        )

    async def _check_absent(self, ledger_id: LedgerId) -> None:
        try:
            await self._context.store.ledgers.read(ledger_id)
        except NoSuchLedger:
            return
        raise LedgerExists(f"ledger {ledger_id} exists already")
