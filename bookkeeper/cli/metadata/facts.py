"""Requests to the metadata store and to all bookies, for `bookkeeper metadata check`.

A bookie lists its ledgers over HTTP (`httpServerEnabled=true`). Its report of the last collection is in the metadata
store, even if the bookie cannot be asked.
"""

from __future__ import annotations

import argparse
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from bookkeeper.admin.questions import ERRORS, Address, get_json
from bookkeeper.bookie.gc.candidates import absent_from
from bookkeeper.cli.metadata.comparison import BookieFacts, Facts, held_by_none
from bookkeeper.cli.shell.base import with_store
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import MetadataCorrupt, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.cluster.history_format import GeneratedIds, Note
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import AvailableBookies, BookieId, BookieServiceInfo, LedgerId

LEDGERS_PATH = "/api/v1/bookie/ledgers"
HISTORY_PATH = "/api/v1/bookie/metadata_history"
ANSWER_MAX = 4 * 1024 * 1024
TIMEOUT_S = 15.0
ASKED_AT_ONCE = 16
READS_MAX = 64
UNHELD_MAX = 10_000
"""Maximum number of ledgers without a bookie to read metadata of. Whether others have entries stays unknown."""

NO_HTTP = "it serves no HTTP: httpServerEnabled=true there would show its ledgers"
NOT_REGISTERED = "it is not registered"
NO_LEDGERS = "its HTTP server names no ledgers: it is Apache's, or older than this release"


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of the store.

    notes: the note, or the error. registered: None for a bookie with only a cookie. unusable: registrations that cannot
    be read or have no address, and the reason.
    """

    description: str
    ledgers: array[int]
    notes: Mapping[BookieId, Note | str]
    registered: Mapping[BookieId, BookieServiceInfo | None]
    unusable: Mapping[BookieId, str] = field(default_factory=dict)


def find_out(args: argparse.Namespace, bad_records: BadRecords) -> Facts:
    """Read the store and ask all bookies. Raises MetadataError. bad_records: receives stray znodes among ledgers."""
    return find_out_with(
        lambda: with_store(args, lambda store: read_store(store, bad_records)),
        lambda: with_store(args, read_again),
        lambda ledger_ids: with_store(args, lambda store: with_entries(store, ledger_ids)),
        ask,
    )


def find_out_with(
    read: Callable[[], Stored],
    again: Callable[[], tuple[array[int], GeneratedIds]],
    entries: Callable[[Sequence[int]], list[int]],
    ask: Callable[[Stored, BookieId], BookieFacts],
) -> Facts:
    """Ask the bookies between two listings of ledgers, and read the id generators last.

    So a ledger that is created or deleted during the check counts neither as unheld nor as absent from the store.
    """
    stored = read()
    with ThreadPoolExecutor(ASKED_AT_ONCE, "bookies") as threads:
        bookies = list(threads.map(lambda bookie_id: ask(stored, bookie_id), sorted(stored.registered)))
    ledgers, ids = again()
    deleted = array("q", absent_from(ledgers, stored.ledgers))
    facts = Facts(stored.description, ids, ledgers, bookies, deleted=deleted)
    silent = [each for each in bookies if each.held is None]
    if silent:
        names = ", ".join(each.bookie_id for each in silent)
        return replace(facts, unheld_unknown=f"no list of ledgers from {names}")
    unheld = held_by_none(stored.ledgers, bookies)
    if len(unheld) > UNHELD_MAX:
        unknown = f"for {len(unheld) - UNHELD_MAX} more ledgers that no bookie has: they may be without entries"
        facts = replace(facts, unheld_unknown=unknown)
    return replace(facts, unheld=entries(unheld[:UNHELD_MAX]))


async def read_store(store: MetadataStore, bad_records: BadRecords) -> Stored:
    """Read what is needed to ask the bookies, and list the ledgers that they should have."""
    notes: dict[BookieId, Note | str] = {}
    for bookie_id in await store.history.bookies():
        try:
            note = (await store.history.look(bookie_id)).note
        except MetadataCorrupt as error:
            notes[bookie_id] = str(error)
        else:
            if note is not None:
                notes[bookie_id] = note
    ledgers = await _list(store, bad_records)
    available = await store.bookies.current()
    return Stored(store.description, ledgers, notes, await _members(store, available), available.unusable)


async def read_again(store: MetadataStore) -> tuple[array[int], GeneratedIds]:
    """List the ledgers, then read the id generators. Stray znodes were reported by the first listing."""
    return await _list(store, BadRecords()), await store.history.generated_ids()


async def _list(store: MetadataStore, bad_records: BadRecords) -> array[int]:
    ledgers = array("q")
    async for batch in store.ledgers.ids(bad_records):
        ledgers.extend(batch)
    return ledgers


async def bookies_with_notes(store: MetadataStore) -> list[BookieId]:
    """Return the bookies of the cluster that have a note. Notes of bookies that were decommissioned are left out."""
    members = await _members(store, await store.bookies.current())
    return [bookie_id for bookie_id in await store.history.bookies() if bookie_id in members]


async def _members(store: MetadataStore, available: AvailableBookies) -> dict[BookieId, BookieServiceInfo | None]:
    """Return all bookies with a cookie or a registration; None for those that are not registered."""
    found: dict[BookieId, BookieServiceInfo | None] = dict.fromkeys(await store.cookies.all())
    return found | {**available.read_only, **available.writable}


async def with_entries(store: MetadataStore, ledger_ids: Sequence[int]) -> list[int]:
    """Return the closed ledgers with entries. An open ledger may have none yet, so it is left out."""
    found: list[int] = []

    async def look(ledger_id: LedgerId) -> None:
        try:
            metadata = (await store.ledgers.read(ledger_id)).value
        except (NoSuchLedger, MetadataCorrupt):
            return
        if metadata.last_entry_id is not None and metadata.last_entry_id >= 0:
            found.append(ledger_id)

    await in_parallel((look(LedgerId(ledger_id)) for ledger_id in ledger_ids), READS_MAX)
    return sorted(found)


# --- a bookie


def ask(stored: Stored, bookie_id: BookieId) -> BookieFacts:
    """Return what the bookie answers over HTTP, with its note. Thread: any."""
    info = stored.registered[bookie_id]
    facts = _noted(bookie_id, stored.notes.get(bookie_id))
    if info is None:
        return replace(facts, problem=NOT_REGISTERED)
    address = next(((each.host, each.port) for each in info.endpoints if each.protocol == "http"), None)
    if address is None:
        unusable = stored.unusable.get(bookie_id)
        return replace(facts, problem=NO_HTTP if unusable is None else f"its registration cannot be read: {unusable}")
    try:
        held = _held(bookie_id, address)
        history = get_json(address, HISTORY_PATH, timeout_s=TIMEOUT_S)
        if held is None:
            return replace(facts, problem=NO_LEDGERS)
        if isinstance(history, dict):
            facts = replace(facts, finding=str(history["finding"]), kept_count=int(history["kept"]))
    except (*ERRORS, KeyError, TypeError) as error:
        return replace(facts, problem=f"its HTTP server at {address[0]}:{address[1]} did not answer: {error}")
    return replace(facts, held=held)


def _noted(bookie_id: BookieId, note: Note | str | None) -> BookieFacts:
    if note is None:
        return BookieFacts(bookie_id, None)
    if isinstance(note, str):
        return BookieFacts(bookie_id, None, finding=note)
    report = note.report
    return BookieFacts(
        bookie_id,
        None,
        finding=report.finding,
        kept_count=report.kept_count,
        kept=report.kept,
        absent=report.absent,
        reported_ms=report.reported_ms,
    )


def _held(bookie_id: BookieId, address: Address) -> array[int] | None:
    """Return the ledgers of a bookie, ascending; None if its server does not list them. Raises ERRORS."""
    held = array("q")
    after = -1
    while True:
        answer = get_json(address, f"{LEDGERS_PATH}?after={after}", size_max=ANSWER_MAX, timeout_s=TIMEOUT_S)
        if answer is None:
            return None
        if answer["bookie"] != bookie_id:
            raise ValueError(f"bookie {answer['bookie']} answered; check httpServerPort")
        for first, last in answer["ledgers"]:
            if not after < first <= last:
                raise ValueError("its ranges do not ascend")
            held.extend(range(first, last + 1))
            after = last
        if not answer["more"]:
            return held
        if not answer["ledgers"]:
            raise ValueError("it announces more ledgers but lists none")
