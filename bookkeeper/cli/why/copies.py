"""A look at the entries of a ledger that its bookies list, for programs that own the ledger. Thread: reactor."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.cli.why.lost import Held, LostEntries, lost_entries
from bookkeeper.errors import BookKeeperError, NoSuchLedgerOnBookie
from bookkeeper.model import BookieId, LedgerId
from bookkeeper.replication.copies.fragments import fragments_of

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient


@dataclass(frozen=True, slots=True)
class LedgerCopies:
    """The lost entries of one ledger, as far as bookies answered.

    problem: why nothing is known, or "". silent: bookies of the ledger that did not answer or are not registered.
    """

    ledger_id: LedgerId
    lost: LostEntries
    silent: tuple[BookieId, ...] = ()
    problem: str = ""


async def entries_listed(
    client: LedgerClient, ledger_id: LedgerId, bookie_id: BookieId
) -> Sequence[range] | BookKeeperError:
    """Return the entries that a bookie lists (none if it does not have the ledger), or its error."""
    try:
        return await client.list_entries(ledger_id, bookie_id)
    except NoSuchLedgerOnBookie:
        return []
    except BookKeeperError as error:
        return error


async def look_at_copies(client: LedgerClient, ledger_id: LedgerId, registered: Container[BookieId]) -> LedgerCopies:
    """Ask the bookies of a ledger. Of an open ledger, the last fragment is left out: its end is not known."""
    try:
        metadata = await client.metadata(ledger_id)
    except BookKeeperError as error:
        return LedgerCopies(ledger_id, LostEntries(), problem=str(error))
    members = list(dict.fromkeys(each for fragment in metadata.fragments for each in fragment.ensemble))
    asked = [each for each in members if each in registered]
    answers = await gatherResults([Deferred.fromCoroutine(entries_listed(client, ledger_id, each)) for each in asked])
    held: Held = dict(zip(asked, answers, strict=True))
    silent = tuple(each for each in members if not isinstance(held.get(each), Sequence))
    return LedgerCopies(ledger_id, lost_entries(metadata, fragments_of(metadata), registered, held), silent)
