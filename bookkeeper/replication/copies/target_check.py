"""A check that a bookie may take copies of a ledger: it must not hold entries of another ledger with that id.

Ids repeat when metadata is restored from an older copy, so a bookie that joins a fragment may hold entries of an
earlier ledger. It may also hold entries of this ledger, from an interrupted repair or as a former member. So the
entries are compared, not counted:

    the target                                         may take copies
    is named by another fragment of the ledger         yes: it was checked when it joined
    holds nothing, or a key, a fence, a tombstone      yes: an add with another key is refused there
    holds entries, the greatest with a bad digest      no
    ... the greatest in an agreed fragment             if a member has an equal entry
    ... the greatest in no agreed fragment             yes: readers do not ask for them there, and each copy that
                                                       differs from a held entry is refused (I-69)
    does not answer, or the members do not             no

The check costs one read from each joining target, and one more entry if the target holds entries. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from bookkeeper.client.write.occupancy import Finding, Occupancy, ask_occupancy
from bookkeeper.errors import BookieUnavailable, BookKeeperError, LedgerError, LedgerIdOccupied
from bookkeeper.model import BookieId, LedgerMetadata
from bookkeeper.replication.copies.fragments import FragmentRange, fragments_of

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.replication.copies.access import LedgerAccess
    from bookkeeper.replication.copies.copy import LedgerCopying


async def unfit_targets(
    context: ClientContext,
    access: LedgerAccess,
    metadata: LedgerMetadata,
    targets: Collection[BookieId],
    copying: LedgerCopying,
) -> Mapping[BookieId, BookKeeperError]:
    """Return the targets that may not take copies, each with the reason. copying: reads entries of members."""
    named = {bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble}
    unknown = [bookie_id for bookie_id in targets if bookie_id not in named]
    unfit: dict[BookieId, BookKeeperError] = {}
    if not unknown:
        return unfit
    for bookie_id, found in (await ask_occupancy(context, access.ledger_id, unknown)).items():
        if found.occupancy is Occupancy.UNKNOWN:
            assert found.why is not None
            unfit[bookie_id] = found.why
        elif found.occupancy is Occupancy.ENTRIES:
            why = await _difference(access, fragments_of(metadata), found, copying)
            if why:
                unfit[bookie_id] = LedgerIdOccupied(
                    f"bookie {bookie_id} {found} (ledger {access.ledger_id}): {why}; it gets no copies",
                    ledger_id=access.ledger_id,
                    answers={str(bookie_id): str(found)},
                )
    context.check_open()
    return unfit


async def _difference(
    access: LedgerAccess, fragments: Sequence[FragmentRange], found: Finding, copying: LedgerCopying
) -> str:
    """Return what is wrong with the greatest entry that a target holds, or ""."""
    last = access.digest.verify_last(access.ledger_id, found.body)
    if last is None:
        return "its last entry has a bad digest, or the digest of another password"
    entry_id, payload = last
    for fragment in fragments:
        if fragment.agreed and fragment.first_entry_id <= entry_id <= fragment.last_entry_id:
            try:
                same = await copying.payload_of(fragment, entry_id) == payload
            except (BookieUnavailable, LedgerError) as error:
                return f"entry {entry_id} could not be compared with the members' entry: {error}"
            return "" if same else f"entry {entry_id} differs from the members' entry"
    return ""
