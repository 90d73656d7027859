"""Whether a bookie may take copies of a ledger: not if it holds entries of another ledger of that id.

Ids repeat when metadata is restored from an older copy, so a bookie that joins a fragment may hold what an earlier
ledger left. But re-replication also meets its own: copies that an interrupted repair left, and what a former member
holds. So the entries are compared, not counted:

    the target                                         may take copies
    is named by another fragment of the ledger         yes: it was asked when it came in
    holds nothing, or a key, a fence, a tombstone      yes: an add with another key is refused there
    holds entries, the greatest one in an agreed       if that one is the same entry that a member has
      fragment
    ... beyond all of them                             yes: nobody reads them there, and each copy that differs from
                                                       what is held is refused (I-69)
    does not answer, or the members do not             no

It costs one read of a target that comes in, and one more entry where it holds some. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from bookkeeper.client.occupancy import Finding, Occupancy, ask_occupancy
from bookkeeper.errors import BookieUnavailable, BookKeeperError, LedgerError, LedgerIdOccupied
from bookkeeper.model import BookieId, LedgerMetadata
from bookkeeper.replication.fragments import FragmentRange, fragments_of

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.replication.access import LedgerAccess
    from bookkeeper.replication.copying import LedgerCopying


async def unfit_targets(
    context: ClientContext,
    access: LedgerAccess,
    metadata: LedgerMetadata,
    targets: Collection[BookieId],
    copying: LedgerCopying,
) -> Mapping[BookieId, BookKeeperError]:
    """Those of the bookies that may not take copies, and why. copying: reads what members have."""
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
                    f"bookie {bookie_id} {found} (ledger {access.ledger_id}): {why}; it gets no copies. Look at both "
                    "with `bookkeeper metadata check`",
                    ledger_id=access.ledger_id,
                    answers={str(bookie_id): str(found)},
                )
    context.check_open()
    return unfit


async def _difference(
    access: LedgerAccess, fragments: Sequence[FragmentRange], found: Finding, copying: LedgerCopying
) -> str:
    """What is wrong with the greatest entry that a target holds; "" for nothing."""
    last = access.digest.verify_last(access.ledger_id, found.body)
    if last is None:
        return "its digest is damaged, or of another password"
    entry_id, payload = last
    for fragment in fragments:
        if fragment.agreed and fragment.first_entry_id <= entry_id <= fragment.last_entry_id:
            try:
                same = await copying.payload_of(fragment, entry_id) == payload
            except (BookieUnavailable, LedgerError) as error:
                return f"whether it is the same cannot be told: {error}"
            return "" if same else f"entry {entry_id} is another one than the members have"
    return ""
