"""`readledger -b`: the copy of a ledger that one bookie has, read through, and what of it is missing there.

    what the bookie answers      where the entry belongs           counts as
    an entry, its digest right   anywhere                          read
    an entry, its digest wrong   anywhere                          could not be read
    no such entry or ledger      this bookie, up to the end        could not be read
    no such entry or ledger      other bookies, or past the end    not this bookie's
    anything else                anywhere                          could not be read

The end: the last entry of a closed ledger; of an open one the last that this bookie has.
"""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from bookkeeper.cli.ledger.inspect import check_begin
from bookkeeper.cli.shell.base import shell_settings, with_store
from bookkeeper.cli.shell.onebookie import OneBookie
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.console.known_bookies import strangers, taken_for
from bookkeeper.console.output import EXIT_USAGE, CommandFailed, entries, note
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, DigestType, EntryId, LedgerMetadata, Status
from bookkeeper.protocol.schedule import holds
from bookkeeper.wire.digest import digest_of, ids_of

NAMED_MAX = 5
"""Entries that could not be read, named in the last line."""


@dataclass(slots=True)
class Tally:
    """What came of the entries that were asked for."""

    read: int = 0
    elsewhere: int = 0
    failed: int = 0
    named: list[int] = field(default_factory=list)

    def fail(self, entry_id: int) -> None:
        """This one could not be read."""
        self.failed += 1
        if len(self.named) < NAMED_MAX:
            self.named.append(entry_id)

    def text(self) -> str:
        """In one line."""
        parts = [entries(self.read)]
        if self.failed:
            more = ", ..." if self.failed > len(self.named) else ""
            parts.append(f"{entries(self.failed)} could not be read: {', '.join(map(str, self.named))}{more}")
        if self.elsewhere:
            parts.append(f"{entries(self.elsewhere)} not this bookie's")
        return "; ".join(parts)


def belongs(metadata: LedgerMetadata, bookie_id: BookieId, entry_id: int) -> bool:
    """Whether the ledger's metadata has the entry on this bookie."""
    firsts = [fragment.first_entry_id for fragment in metadata.fragments]
    place = bisect_right(firsts, EntryId(entry_id)) - 1
    if place < 0:
        return False
    ensemble = metadata.fragments[place].ensemble
    return bookie_id in ensemble and holds(
        ensemble.index(bookie_id), entry_id, metadata.ensemble_size, metadata.write_quorum
    )


def read_copy(args: argparse.Namespace, client: BlockingBookKeeper, show: Callable[[int, bytes], None]) -> str:
    """Show what this bookie holds; what it does not hold is said on standard error. Returns what came of it.

    show: entry id, payload. Raises CommandFailed where an entry could not be read, or none at all.
    """
    if args.recover:
        raise CommandFailed("-b reads one bookie as it is; -r recovers: take one of them", EXIT_USAGE)
    ledger_id, bookie_id = args.ledger_id, BookieId(args.bookie)
    metadata = client.metadata(ledger_id)
    digest = digest_of(metadata.digest_type or DigestType.CRC32, metadata.password or b"")
    if metadata.last_entry_id is not None:
        check_begin(ledger_id, args.firstentryid, metadata.last_entry_id)
    tally = Tally()
    with _connected(args, client) as bookie:
        end = metadata.last_entry_id if metadata.last_entry_id is not None else _last_of(bookie, ledger_id, bookie_id)
        last = args.lastentryid if args.lastentryid >= 0 else end
        for entry_id, body in bookie.read(ledger_id, args.firstentryid, last):
            if isinstance(body, Status):
                note(f"entry {entry_id}: {body.value}")
                if body in EXPLICIT_NEGATIVES and (entry_id > end or not belongs(metadata, bookie_id, entry_id)):
                    tally.elsewhere += 1
                else:
                    tally.fail(entry_id)
                continue
            payload = digest.verify(ledger_id, [entry_id], [body])[0]
            if payload is None:
                note(f"entry {entry_id}: damaged, it fails its digest")
                tally.fail(entry_id)
                continue
            show(entry_id, payload)
            tally.read += 1
    if tally.failed:
        raise CommandFailed(f"ledger {ledger_id} on bookie {bookie_id}: {tally.text()}")
    if not tally.read and metadata.last_entry_id != -1:
        raise CommandFailed(f"bookie {bookie_id} has nothing of what was asked for of ledger {ledger_id}")
    return tally.text()


def _last_of(bookie: OneBookie, ledger_id: int, bookie_id: BookieId) -> int:
    """The highest entry id it holds, -1 for none. Raises CommandFailed where it does not tell."""
    body = bookie.last(ledger_id)
    if isinstance(body, bytes):
        return ids_of(body)[1]
    if body in EXPLICIT_NEGATIVES:
        return -1
    raise CommandFailed(
        f"bookie {bookie_id} does not tell the last entry that it has of ledger {ledger_id}: {body.value}; "
        "-le asks for a range"
    )


def _connected(args: argparse.Namespace, client: BlockingBookKeeper) -> OneBookie:
    available = client.available_bookies()
    bookie_id = BookieId(args.bookie)
    info = available.writable.get(bookie_id) or available.read_only.get(bookie_id)
    address = None if info is None else info.address()
    if address is None:
        host, _, port = bookie_id.rpartition(":")
        if not host or not port.isdigit():
            raise CommandFailed(
                f"bookie {bookie_id} is not registered, so nothing tells its address{_known(args, bookie_id)}"
            )
        address = host, int(port)
    try:
        return OneBookie(bookie_id, address, shell_settings(args))
    except CommandFailed as failure:
        if info is not None:
            raise
        raise CommandFailed(f"{failure}; it is not registered{_known(args, bookie_id)}") from failure


def _known(args: argparse.Namespace, bookie_id: BookieId) -> str:
    """What else the metadata store knows of a bookie that is not registered."""

    async def look(store: MetadataStore) -> str:
        if await strangers(store, [bookie_id]):
            return f" and has no cookie: no such bookie is known; {await taken_for(store, bookie_id)}"
        return ", but has a cookie: it does not run, or has lost its session"

    return with_store(args, look)
