"""What can be found out about one ledger: metadata, bookies, auto-recovery, and what each bookie says it holds.

Each question that fails leaves its error in the place of its answer, so that one silent bookie does not hide the rest.
Nothing is changed and nobody is fenced. Bounds: ASKED_MAX bookies are asked for their entries, each within the read
timeout of the settings; of PLACES_READ_MAX places ENTRIES_READ entries are read; HTTP servers as `processes` says.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.cli.shell.base import shell_settings
from bookkeeper.cli.why.copies import entries_listed
from bookkeeper.cli.why.lost import lost_entries
from bookkeeper.cli.why.menders_facts import http_servers_of, or_error
from bookkeeper.cli.why.plugins import owners
from bookkeeper.cli.why.processes import ProcessAnswer, ask_processes, whom_to_ask
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.connecting import connect_to
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.client.write.occupancy import Occupancy, ask_occupancy
from bookkeeper.clock import wall_ms
from bookkeeper.config import ClientSettings
from bookkeeper.console.http_questions import ERRORS, all_at_once, get_json
from bookkeeper.errors import BookieIOError, BookKeeperError, NoSuchLedger
from bookkeeper.metadata.cluster.history_format import Report
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import MetadataStore, StoreHistory
from bookkeeper.metadata.underreplication.damaged_copies_format import BadCopies
from bookkeeper.metadata.underreplication.format import CheckKind, UnderreplicatedLedger
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.model import AvailableBookies, BookieId, LedgerId, LedgerMetadata
from bookkeeper.replication.copies.access import access_of
from bookkeeper.replication.copies.fragment_check import LedgerChecker
from bookkeeper.replication.copies.fragments import FragmentRange, fragments_of
from bookkeeper.replication.copies.verdicts import CopyVerdict

if TYPE_CHECKING:
    from bookkeeper.metadata.tree import Tree
    from bookkeeper.metadata.zookeeper import ZooKeeperStore

ASKED_MAX = 64

PLACES_READ_MAX = 64
"""Places of fragments of which some entries are read; an index may list what an entry log does not have any more."""

ENTRIES_READ = 8
"""Entries that are read of each such place: the first, the last, and some between."""


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """Auto-recovery. Each may be the error that kept it from being known.

    locked_ms: since when it is locked, by the store's clock. lock_session, auditor_session: owners of lock and lowest
    vote. announced: how many processes say that they audit and repair; None: nobody looked.
    """

    enabled: bool | BookKeeperError
    auditor: BookieId | BookKeeperError | None
    delay_s: int | BookKeeperError | None
    mark: UnderreplicatedLedger | BookKeeperError | None
    lock: str | BookKeeperError | None
    bad_copies: BadCopies | BookKeeperError | None
    checked_ms: int | BookKeeperError | None
    locked_ms: int | BookKeeperError | None = None
    lock_session: int | BookKeeperError | None = None
    auditor_session: int | BookKeeperError | None = None
    announced: int | BookKeeperError | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """An open ledger, looked at twice before its bookies say what they hold.

    lac, lac_later: the last entry that bookies knew to be acknowledged, the first time and the second.
    """

    lac: int
    lac_later: int
    observed_s: float


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Everything.

    metadata: or why it could not be read. registered: bookie -> "writable" or "read-only". cookies: bookies that ever
    belonged to the cluster; None where that could not be read. held: bookie -> the entries it says it holds, or its
    error; only of bookies that were asked. elsewhere: the same of registered bookies outside the ensembles, at most
    ASKED_MAX, if no member has some entries. looks: by first entry id and ensemble index of a place, what came of
    reading some of its entries; not of all places. unmended: of bookies with an I/O error, why index pages of the
    ledger stay damaged, as they say over HTTP. progress: of an open ledger. claimed: of an open ledger, the members
    that hold a key or a fence but no entry. processes: what those with an HTTP server say. bookies_unasked: registered
    ones that publish none, or are too many. belongs_to: sentences about its owner. notes: of a ledger that the store
    lacks, the bookies' last reports about the store, or why one was not read.
    """

    now_ms: int
    ledger_id: LedgerId
    store: str
    metadata: LedgerMetadata | BookKeeperError
    registered: Mapping[BookieId, str]
    cookies: frozenset[BookieId] | None
    repair: RepairFacts
    held: Mapping[BookieId, Sequence[range] | BookKeeperError] = field(default_factory=dict)
    elsewhere: Mapping[BookieId, Sequence[range] | BookKeeperError] = field(default_factory=dict)
    looks: Mapping[tuple[int, int], CopyVerdict] = field(default_factory=dict)
    unmended: Mapping[BookieId, list[str]] = field(default_factory=dict)
    progress: Progress | BookKeeperError | None = None
    claimed: frozenset[BookieId] = frozenset()
    processes: tuple[ProcessAnswer, ...] = ()
    bookies_unasked: int = 0
    belongs_to: tuple[str, ...] = ()
    notes: Mapping[BookieId, Report | BookKeeperError] = field(default_factory=dict)


def find_out(args: argparse.Namespace) -> LedgerFacts:
    """Look. Raises ConfigurationError, MetadataUnavailable, NotInitialised."""
    settings = shell_settings(args)
    crossing = ReactorThread()
    http_servers: dict[BookieId, tuple[str, int]] = {}
    announced: list[RecoveryProcess] = []
    trees: list[Tree] = []

    async def keep(store: ZooKeeperStore) -> None:
        trees.append(store.tree)

    async def look() -> LedgerFacts:
        client = await connect_to(
            settings.metadata_service_uri, crossing.reactor, settings, resolve=crossing.resolve, prepare=keep
        )
        ledger_id = LedgerId(args.ledger_id)
        try:
            facts = await _Looking(client, client.store, ledger_id, crossing.reactor, settings).run(
                args.observe, http_servers, announced
            )
            return replace(facts, belongs_to=await _belongs_to(client, trees[0], ledger_id))
        finally:
            await client.close()

    try:
        facts = crossing.run(lambda: Deferred.fromCoroutine(look()))
    finally:
        crossing.stop()
    # Of many not all are asked: first those that matter most.
    matter = (facts.repair.lock_session, facts.repair.auditor_session)
    recovery = sorted(announced, key=lambda process: process.session_id not in matter)
    servers = [(each, http_servers[each]) for each in sorted(http_servers, key=_after(facts.repair.auditor))]
    asked = whom_to_ask(args.ask, recovery, servers)
    processes = ask_processes(facts.ledger_id, asked)
    addresses = {each.address for each in asked[: len(processes)]}
    beside = {each.process.bookie_id for each in asked[: len(processes)] if each.process is not None}
    unasked = sum(http_servers.get(each) not in addresses and each not in beside for each in facts.registered)
    unable = [each for each, held in facts.held.items() if isinstance(held, BookieIOError) and each in http_servers]
    reasons = all_at_once([partial(_unmended, http_servers[each], facts.ledger_id) for each in unable])
    unmended = {each: why for each, why in zip(unable, reasons, strict=True) if why}
    return replace(facts, processes=processes, bookies_unasked=unasked, unmended=unmended)


async def _belongs_to(client: LedgerClient, tree: Tree, ledger_id: LedgerId) -> tuple[str, ...]:
    """Return what other packages report about the owner of a ledger."""
    found: list[str] = []
    for name, find in owners():
        try:
            found += await find(client, tree, ledger_id)
        except BookKeeperError as error:
            found.append(f"whether it belongs to a {name} is unknown: {error}")
    return tuple(found)


def _unmended(address: tuple[str, int], ledger_id: int) -> list[str]:
    """Why index pages of a ledger stay damaged; nothing from who does not know the question, or does not answer."""
    try:
        pages = get_json(address, f"/api/v1/bookie/unmended_index_pages?ledger_id={ledger_id}")
    except ERRORS:
        return []
    told = [each for each in pages if isinstance(each, dict)] if isinstance(pages, list) else []
    return [f"page {each.get('page')} of {each.get('path')} stays damaged: {each.get('why')}" for each in told]


def _after(first: object) -> Callable[[BookieId], tuple[bool, str]]:
    return lambda bookie_id: (bookie_id != first, bookie_id)


class _Looking:
    """One look. Thread: reactor."""

    def __init__(
        self, client: LedgerClient, store: MetadataStore, ledger_id: LedgerId, reactor: Any, settings: ClientSettings
    ) -> None:
        self._client, self._store, self._ledger_id = client, store, ledger_id
        self._reactor, self._settings = reactor, settings

    async def run(
        self,
        observe_s: float,
        http_servers: dict[BookieId, tuple[str, int]],
        announced: list[RecoveryProcess],
    ) -> LedgerFacts:
        processes = await or_error(self._store.underreplication.processes())
        announced += [] if isinstance(processes, BookKeeperError) else processes
        metadata = await or_error(self._client.metadata(self._ledger_id))
        progress: Progress | BookKeeperError | None = None
        if isinstance(metadata, LedgerMetadata) and not metadata.is_closed:
            # First what was acknowledged, then who should hold it, then what they hold: a ledger is written meanwhile,
            # and what the time between the two looks leaves to the slowest copy is more than it needs.
            progress = await or_error(self._progress(observe_s))
            metadata = await or_error(self._client.metadata(self._ledger_id))
        available = await self._store.bookies.current()
        http_servers.update(http_servers_of(available))
        cookies = await or_error(self._store.cookies.all())
        registered = _registered(available)
        members = _members(metadata, registered)
        held = await self._held([each for each in members if each in registered])
        return LedgerFacts(
            now_ms=wall_ms(),
            ledger_id=self._ledger_id,
            store=self._settings.metadata_service_uri,
            metadata=metadata,
            registered=registered,
            cookies=None if isinstance(cookies, BookKeeperError) else frozenset(cookies),
            repair=await self._repair(processes if isinstance(processes, BookKeeperError) else len(processes)),
            held=held,
            elsewhere=await self._elsewhere(metadata, progress, registered, held),
            looks=await self._read_some(metadata, progress, held) if isinstance(metadata, LedgerMetadata) else {},
            progress=progress if isinstance(metadata, LedgerMetadata) and not metadata.is_closed else None,
            claimed=await self._claimed(metadata, held),
            notes=await notes_of(self._store.history, registered) if isinstance(metadata, NoSuchLedger) else {},
        )

    async def _claimed(
        self, metadata: LedgerMetadata | BookKeeperError, held: Mapping[BookieId, object]
    ) -> frozenset[BookieId]:
        if isinstance(metadata, BookKeeperError) or metadata.is_closed:
            return frozenset()
        members = [each for each in metadata.last_fragment.ensemble if held.get(each) == []]
        findings = await ask_occupancy(self._client.context, self._ledger_id, members)
        return frozenset(each for each, found in findings.items() if found.occupancy is Occupancy.CLAIMED)

    async def _repair(self, announced: int | BookKeeperError) -> RepairFacts:
        tree, ledger_id = self._store.underreplication, self._ledger_id
        return RepairFacts(
            enabled=await or_error(tree.is_enabled()),
            auditor=await or_error(tree.current_auditor()),
            delay_s=await or_error(tree.recovery_delay_s()),
            mark=await or_error(tree.read(ledger_id)),
            lock=await or_error(tree.lock_holder(ledger_id)),
            bad_copies=await or_error(tree.bad_copies(ledger_id)),
            checked_ms=await or_error(tree.check_time_ms(CheckKind.ALL_LEDGERS)),
            locked_ms=await or_error(tree.locked_ms(ledger_id)),
            lock_session=await or_error(tree.lock_session(ledger_id)),
            auditor_session=await or_error(tree.auditor_session()),
            announced=announced,
        )

    async def _held(self, bookies: list[BookieId]) -> dict[BookieId, Sequence[range] | BookKeeperError]:
        asked = bookies[:ASKED_MAX]
        answers = await gatherResults(
            [Deferred.fromCoroutine(entries_listed(self._client, self._ledger_id, each)) for each in asked]
        )
        return dict(zip(asked, answers, strict=True))

    async def _elsewhere(
        self,
        metadata: LedgerMetadata | BookKeeperError,
        progress: Progress | BookKeeperError | None,
        registered: Mapping[BookieId, str],
        held: Mapping[BookieId, Sequence[range] | BookKeeperError],
    ) -> dict[BookieId, Sequence[range] | BookKeeperError]:
        if isinstance(metadata, BookKeeperError):
            return {}
        fragments = fragments_of(metadata, progress.lac if isinstance(progress, Progress) else -1)
        if not lost_entries(metadata, fragments, registered, held).gone.count:
            return {}
        return await self._held([each for each in sorted(registered) if each not in held])

    async def _read_some(
        self,
        metadata: LedgerMetadata,
        progress: Progress | BookKeeperError | None,
        held: Mapping[BookieId, Sequence[range] | BookKeeperError],
    ) -> dict[tuple[int, int], CopyVerdict]:
        """Of bookies that answered: what they list says nothing of damage."""
        if metadata.password is None or metadata.digest_type is None:
            return {}  # whether an entry is good cannot be told
        access = access_of(self._settings, self._ledger_id, metadata)
        checker = LedgerChecker(self._client.context, entries_max=PLACES_READ_MAX * ENTRIES_READ)
        places = [
            (fragment, index, entry_ids)
            for fragment in fragments_of(metadata, progress.lac if isinstance(progress, Progress) else -1)
            for index, bookie_id in enumerate(fragment.ensemble)
            if isinstance(held.get(bookie_id), list | BookieIOError) and (entry_ids := some_entries(fragment, index))
        ][:PLACES_READ_MAX]
        looks = [Deferred.fromCoroutine(checker.look_for(access, *place)) for place in places]
        verdicts = await gatherResults(looks)
        return {(place[0].first_entry_id, place[1]): each for place, each in zip(places, verdicts, strict=True)}

    async def _progress(self, observe_s: float) -> Progress:
        handle = await self._client.open_as_administrator(self._ledger_id, recover=False)
        try:
            before = await handle.read_last_confirmed()
            await pause(self._reactor, observe_s)
            return Progress(before, await handle.read_last_confirmed(), observe_s)
        finally:
            await handle.close()


async def notes_of(
    history: StoreHistory, registered: Mapping[BookieId, str]
) -> dict[BookieId, Report | BookKeeperError]:
    """Return the bookies' reports in the store, of at most ASKED_MAX bookies, registered ones first."""
    names = await or_error(history.bookies())
    if isinstance(names, BookKeeperError):
        return dict.fromkeys(registered, names)
    found: dict[BookieId, Report | BookKeeperError] = {}
    for bookie_id in sorted(names, key=lambda each: (each not in registered, each))[:ASKED_MAX]:
        sight = await or_error(history.look(bookie_id))
        if isinstance(sight, BookKeeperError):
            found[bookie_id] = sight
        elif sight.note is not None:
            found[bookie_id] = sight.note.report
    return found


def some_entries(fragment: FragmentRange, index: int) -> list[int]:
    """ENTRIES_READ of those that an ensemble index stores, or all if they are fewer; ascending."""
    first, last = fragment.first_stored_by(index), fragment.last_stored_by(index)
    if first is None or last is None:
        return []
    steps, size = ENTRIES_READ - 1, len(fragment.ensemble)
    starts = [first + (last - first) * step // steps for step in range(steps)]
    found = {fragment.stored_within(index, start, min(start + size - 1, last))[0] for start in starts}
    return sorted(found | {last})


def _registered(available: AvailableBookies) -> dict[BookieId, str]:
    return {**dict.fromkeys(available.read_only, "read-only"), **dict.fromkeys(available.writable, "writable")}


def _members(metadata: LedgerMetadata | BookKeeperError, registered: Mapping[BookieId, str]) -> list[BookieId]:
    """Who is asked: the bookies of the ledger; where its metadata tells nothing, whoever is there."""
    if isinstance(metadata, BookKeeperError):
        return sorted(registered)
    return list(dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.ensemble))
