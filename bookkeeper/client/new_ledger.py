"""Id and ensemble of a new ledger: an id that no bookie knows, and bookies that said so.

    take an id --> ask the ensemble (`occupancy`) --all FREE--> write the metadata --> the handle
        ^                |         |
        |                |         +--some UNKNOWN--> other bookies in their place; ask these
        +--passed over --+--some CLAIMED or ENTRIES: a named id fails with LedgerIdOccupied

All this comes before the metadata is written, so an id that is passed over leaves nothing to close or delete, and the
id of a handle never changes. A create costs one more round trip to its bookies, at the same time to all of them; the
connections are those that the first add needs anyway.

Ids that follow each other are often claimed together, and the store gives out one at a time. So each id that is passed
over lengthens the stride to the next one, up to STRIDE_MAX: 3000 claimed ids take 18 questions, and ATTEMPTS_MAX
questions get past 14 000. Beyond that LedgerIdOccupied is raised; the next create continues from there.

Where no other bookie can take the place of one that does not answer, that one stays a member as long as each entry
reaches its ack quorum without it: a writer with delayEnsembleChange bears a silent bookie. It is the one case in which
a member was not asked: should that bookie hold entries of an earlier ledger of the id, and never get an add of this
one, a reader may see them. The log names it. For an id that the caller named the create fails instead.
Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.client.ensemble_change import choose_replacements
from bookkeeper.client.occupancy import Finding, Occupancy, ask_occupancy, occupied
from bookkeeper.client.refusals import Refusal, refusal_of
from bookkeeper.errors import BookKeeperError, LedgerExists, LedgerIdOccupied, NoSuchLedger, NotEnoughBookies
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata, Versioned

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext

log = Logger()

ATTEMPTS_MAX = 64
"""Ids that one create may pass over."""

STRIDE_MAX = 256
"""Ids taken together, and given to nobody but the last."""

Describe = Callable[[tuple[BookieId, ...]], LedgerMetadata]
"""The metadata to write for an ensemble."""


class NewLedger:
    """One create. Ensemble and quorums as checked by the caller."""

    def __init__(
        self,
        context: ClientContext,
        ensemble: tuple[BookieId, ...],
        write_quorum: int,
        ack_quorum: int,
        describe: Describe,
    ) -> None:
        self._context, self._write_quorum, self._describe = context, write_quorum, describe
        self._spare_copies = write_quorum - ack_quorum
        self._ensemble = ensemble
        self._silent: dict[str, BookKeeperError] = {}  # did not answer; out for the rest of this create

    async def create_named(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        """Under an id that the caller chose. Raises LedgerExists, LedgerIdOccupied, NotEnoughBookies, a Refusal."""
        self._spare_copies = 0  # an id that the caller names may well have been used before
        error = await self._ask(ledger_id)
        if error is not None:
            await self._check_absent(ledger_id)
            raise error
        _, created = await self._context.store.ledgers.create(self._describe(self._ensemble), ledger_id)
        return created

    async def create(self) -> tuple[LedgerId, Versioned[LedgerMetadata]]:
        """Under an id that no bookie of the ensemble knows. Raises LedgerIdOccupied, NotEnoughBookies, a Refusal."""
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
                            "Passed over ledger ids {first}..{last}, which bookies know already; the new ledger is "
                            "{ledger_id}",
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
                    f"no ledger was created: {attempts} ids from {first} to {ledger_id} are known to bookies already; "
                    "find out who claims ids (bookies log the fences of unknown ledgers), then try again",
                    ledger_id=ledger_id,
                    answers=error.answers if isinstance(error, LedgerIdOccupied) else None,
                ) from error
            stride = min(STRIDE_MAX, max(1, 2 * (ledger_id - first)))

    async def _ask(self, ledger_id: LedgerId) -> LedgerIdOccupied | None:
        """Ask the ensemble; put other bookies in the place of those that do not answer, and ask them."""
        unasked = tuple(bookie_id for bookie_id in self._ensemble if bookie_id not in self._silent)
        while True:
            findings = await ask_occupancy(self._context, ledger_id, unasked)
            self._context.check_open()
            unasked = self._replace_silent(findings)
            error = occupied(ledger_id, findings)
            if error is not None or not unasked:
                return error

    def _replace_silent(self, findings: Mapping[BookieId, Finding]) -> tuple[BookieId, ...]:
        """The bookies that came in for those that did not answer."""
        context = self._context
        silent = {bookie_id: found.why for bookie_id, found in findings.items() if found.occupancy is Occupancy.UNKNOWN}
        if not silent:
            return ()
        for bookie_id, why in silent.items():
            assert why is not None
            self._silent[bookie_id] = why
            if not isinstance(why, Refusal):
                context.directory.quarantine(bookie_id)
        failed = {index: bookie_id for index, bookie_id in enumerate(self._ensemble) if bookie_id in silent}
        chosen = choose_replacements(
            context, self._ensemble, self._write_quorum, failed, frozenset(map(BookieId, self._silent))
        )
        if sum(member in self._silent for member in self._ensemble) - len(chosen) > self._spare_copies:
            raise self._too_few(failed)
        if len(chosen) < len(failed):
            log.warn(
                "A new ledger has bookies that could not be asked whether they know its id, as there are no others: "
                "{unasked}",
                unasked=", ".join(f"{b}: {why}" for i, b in failed.items() if i not in chosen and (why := silent[b])),
            )
        self._ensemble = tuple(chosen.get(index, bookie_id) for index, bookie_id in enumerate(self._ensemble))
        return tuple(chosen.values())

    def _too_few(self, failed: dict[int, BookieId]) -> BookKeeperError:
        answers: dict[str, object] = {**self._silent}
        refusals = {bookie_id: why for bookie_id, why in self._silent.items() if isinstance(why, Refusal)}
        if len(refusals) == len(self._silent):
            return refusal_of("no ledger was created", refusals, answers)
        return NotEnoughBookies(
            f"no ledger was created: no writable bookie can take the place of {', '.join(sorted(failed.values()))} in "
            f"the ensemble {', '.join(self._ensemble)}; start more bookies, or find out why these do not answer",
            answers=answers,
        )

    async def _check_absent(self, ledger_id: LedgerId) -> None:
        try:
            await self._context.store.ledgers.read(ledger_id)
        except NoSuchLedger:
            return
        raise LedgerExists(f"ledger {ledger_id} exists already")
