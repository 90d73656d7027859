"""Ensemble change: choose replacements for failed bookies, ask them, then compare-and-set (I-09, I-10, I-11).

The choice is made again for every new value of the metadata, among bookies that are neither members nor failed. Before
a change is refused for lack of bookies, the list of bookies is read again: the watch may be late, for instance when the
bookies of a cluster restart one after the other. A bookie that already holds something under the ledger's id is not
used (`occupancy`): it would refuse the adds, or return entries of another ledger. The window and the writer act on the
result: they judge the pending adds again and send them to the new members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bookkeeper.client.bookies import placement
from bookkeeper.client.bookies.access_errors import Refusal, refusal_of
from bookkeeper.client.metadata_update import update_metadata
from bookkeeper.client.write.occupancy import Finding, Occupancy, ask_occupancy
from bookkeeper.errors import BookKeeperError, NotEnoughBookies, PortableError
from bookkeeper.model import BookieId, EntryId, LedgerId, LedgerMetadata, Versioned
from bookkeeper.protocol.transitions import Change, Refused, Replacement, Reselect, change_ensemble

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest

Chosen = dict[int, BookieId]


def choose_replacements(
    context: ClientContext,
    ensemble: Sequence[BookieId],
    write_quorum: int,
    failed: Mapping[int, BookieId],
    avoid: frozenset[BookieId],
) -> dict[int, BookieId]:
    """A new bookie for each failed index of the ensemble, as far as there are any (I-10).

    Raises NotEnoughBookies where the settings insist on racks that the result would not span.
    """
    chosen = placement.choose_replacements(
        indexes=failed,
        ensemble=ensemble,
        write_quorum=write_quorum,
        candidates=context.directory.writable,
        excluded=avoid | frozenset(failed.values()),
        quarantined=context.directory.quarantined,
        rack_of=context.rack_of,
        rng=context.rng,
        weights=context.weights,
    )
    if chosen:
        context.check_racks([chosen.get(index, member) for index, member in enumerate(ensemble)], write_quorum)
    return chosen


async def commit_new_ensemble(
    context: ClientContext,
    ledger_id: LedgerId,
    current: Versioned[LedgerMetadata],
    *,
    first_entry_id: EntryId,
    failed: Callable[[], Mapping[int, BookieId]],
    avoid: Callable[[], frozenset[BookieId]],
    own: frozenset[BookieId],
    digest: Digest,
    answers: dict[str, object],
) -> Versioned[LedgerMetadata]:
    """Replace the failed bookies from `first_entry_id` on; return the metadata as committed.

    failed, avoid: the members to replace, and who must not come instead of them because it failed shortly before; asked
    before every compare-and-set, since more bookies may fail until then. own: bookies that this writer has had as
    members; they are not asked. answers: the bookies' answers, for messages; those of replacements that were asked and
    not used are added. Raises NotEnoughBookies when not one of them can be replaced, or the Refusal for
    which all of them failed or no other bookie can come in; LedgerFencedOff or LedgerClosed when the ledger is not OPEN
    any more (I-11), MetadataError.
    """

    admitted: frozenset[BookieId] = frozenset()
    refused: dict[BookieId, Finding] = {}
    has_read_again = False

    def choose(metadata: LedgerMetadata, standing: dict[int, BookieId], shut_out: frozenset[BookieId]) -> Chosen:
        ensemble, write_quorum = metadata.last_fragment.ensemble, metadata.write_quorum
        if admitted:  # a random choice would ask further bookies: prefer those that were asked, if they suffice
            others = context.directory.writable - admitted
            with contextlib.suppress(NotEnoughBookies):
                chosen = choose_replacements(context, ensemble, write_quorum, standing, shut_out | others)
                if len(chosen) == len(standing):
                    return chosen
        return choose_replacements(context, ensemble, write_quorum, standing, shut_out)

    def decide(metadata: LedgerMetadata) -> Change:
        now_failed = dict(failed())
        shut_out = avoid() | refused.keys()
        known = own | admitted
        while True:
            ensemble = metadata.last_fragment.ensemble
            standing = {index: bookie for index, bookie in now_failed.items() if ensemble[index] == bookie}
            try:
                chosen = choose(metadata, standing, shut_out)
            except NotEnoughBookies:
                if not has_read_again:
                    raise _ReadFirst from None
                raise
            if standing and not chosen:
                if not has_read_again:
                    raise _ReadFirst
                return Refused(_nobody_left(context, ledger_id, metadata, standing, answers, refused))
            unasked = [bookie for bookie in chosen.values() if bookie not in known]
            if unasked:
                raise _AskFirst(unasked)
            change = change_ensemble(
                metadata,
                ledger_id=ledger_id,
                first_entry_id=first_entry_id,
                replacements={i: Replacement(failed=standing[i], chosen=new) for i, new in chosen.items()},
            )
            if not isinstance(change, Reselect):
                return change
            shut_out |= change.taken

    while True:  # the list is read at most once, and each writable bookie is asked at most once
        findings: Mapping[BookieId, Finding] = {}
        try:
            return await update_metadata(context.store, context.clock, ledger_id, current, decide)
        except _AskFirst as question:
            findings = await ask_occupancy(context, ledger_id, question.bookies)
        except _ReadFirst:
            has_read_again = True
            await context.directory.read_again()
        context.check_open()
        for bookie_id, found in findings.items():
            if found.admits(ledger_id, first_entry_id, digest):
                admitted |= {bookie_id}
            else:
                refused[bookie_id] = found
                answers[bookie_id] = found.why or str(found)


class _ReadFirst(PortableError):
    """A lack of known bookies: the list is read before the writer fails, since a bookie may have just registered."""


class _AskFirst(PortableError):
    """Chosen replacements that must be asked first what they hold."""

    def __init__(self, bookies: list[BookieId]) -> None:
        super().__init__(bookies)
        self.bookies = bookies


def _nobody_left(
    context: ClientContext,
    ledger_id: LedgerId,
    metadata: LedgerMetadata,
    failed: Mapping[int, BookieId],
    answers: Mapping[str, object],
    refused: Mapping[BookieId, Finding],
) -> BookKeeperError:
    refusals = {b: why for b in failed.values() if isinstance(why := answers.get(b), Refusal)}
    if len(refusals) == len(failed):
        return refusal_of(f"ledger {ledger_id} cannot be written", refusals, answers)
    ensemble = metadata.last_fragment.ensemble
    spare = sorted(context.directory.writable - set(ensemble))
    shut = {bookie_id: found.why for bookie_id, found in refused.items() if isinstance(found.why, Refusal)}
    if shut and shut.keys() >= set(spare):
        where = f"ledger {ledger_id} cannot be written, no replacement for {', '.join(sorted(failed.values()))}"
        return refusal_of(where, shut, answers)
    shunned = sorted(context.directory.quarantined & set(spare))
    avoided = f" (of these {', '.join(shunned)} failed this client shortly before)" if shunned else ""
    occupied = {b: found for b, found in sorted(refused.items()) if found.occupancy is not Occupancy.UNKNOWN}
    remedy = "start more bookies, then write on in a new ledger"
    if occupied:
        avoided += "".join(
            f"; bookie {bookie_id}{' ' if found.occupancy is Occupancy.ENTRIES else ': '}{found}"
            for bookie_id, found in occupied.items()
        )
        remedy = "write on in a new ledger, which gets another id"
    return NotEnoughBookies(
        f"ledger {ledger_id}: no replacement for {', '.join(sorted(failed.values()))} in ensemble "
        f"{', '.join(ensemble)}; writable bookies outside it: {', '.join(spare) or 'none'}"
        f"{avoided}: {remedy}",
        ledger_id=ledger_id,
        answers=answers,
    )
