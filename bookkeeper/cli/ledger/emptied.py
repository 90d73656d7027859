"""`ledger close-empty`: close as empty a ledger that cannot be recovered because its bookies hold another key for it.

Another client that fences the id before the ledger's first entry leaves such a ledger. No program may take the refusals
for "empty": a genuine bookie forgets key checks when it restarts. So an operator decides.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.console.connection import connect
from bookkeeper.console.output import EXIT_OK, CommandFailed, confirm, note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.write.occupancy import Finding
    from bookkeeper.model import BookieId, LedgerMetadata


def close_empty(args: argparse.Namespace) -> int:
    """Recover the ledger if that is possible; otherwise ask, and close it as empty by compare-and-set."""
    from twisted.internet.defer import Deferred

    from bookkeeper.client.write.occupancy import Occupancy
    from bookkeeper.errors import LedgerIdOccupied

    ledger_id = args.ledger_id
    with connect(args) as client:
        metadata = client.metadata(ledger_id)
        if metadata.is_closed:
            note(f"ledger {ledger_id} is closed already, at entry {metadata.last_entry_id}")
            return EXIT_OK
        try:
            client.open_as_administrator(ledger_id, recover=True).close()
        except LedgerIdOccupied:
            pass
        else:
            note(f"ledger {ledger_id} was recovered: closed at entry {client.metadata(ledger_id).last_entry_id}")
            return EXIT_OK
        findings = client.run(lambda each: Deferred.fromCoroutine(_ask(each, ledger_id, metadata)))
        for bookie_id, found in findings.items():
            note(f"bookie {bookie_id}: {found}")
        holding = [b for b, found in findings.items() if found.occupancy is Occupancy.ENTRIES]
        silent = [b for b, found in findings.items() if found.occupancy is Occupancy.UNKNOWN]
        if holding:
            raise CommandFailed(
                f"ledger {ledger_id}: not empty and not changed, because entries are on {', '.join(holding)}; if they "
                f"are not needed, delete the ledger: bookkeeper ledger delete {ledger_id}"
            )
        if silent:
            raise CommandFailed(
                f"ledger {ledger_id}: not changed, because {', '.join(silent)} did not answer and may hold entries; "
                "try again when all bookies of the ledger are back"
            )
        confirm(
            f"Close ledger {ledger_id} as empty? None of its bookies holds an entry of it now. Entries that were "
            "acknowledged to its writer and then lost by these bookies are given up for good. The topic or journal of "
            "the ledger continues after it.",
            force=args.force,
        )
        client.run(lambda each: Deferred.fromCoroutine(_close(each, ledger_id)))
    note(f"closed ledger {ledger_id} as empty")
    return EXIT_OK


async def _ask(client: LedgerClient, ledger_id: int, metadata: LedgerMetadata) -> Mapping[BookieId, Finding]:
    from bookkeeper.client.write.occupancy import ask_occupancy
    from bookkeeper.model import LedgerId

    await client.context.directory.ready()
    members = sorted({bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble})
    return await ask_occupancy(client.context, LedgerId(ledger_id), members)


async def _close(client: LedgerClient, ledger_id: int) -> None:
    from bookkeeper.client.metadata_update import update_metadata
    from bookkeeper.model import LedgerId
    from bookkeeper.protocol.transitions import close_as_empty

    store, key = client.store, LedgerId(ledger_id)
    current = await store.ledgers.read(key)
    await update_metadata(
        store, client.context.clock, key, current, lambda found: close_as_empty(found, ledger_id=ledger_id)
    )
