"""Why a ledger is as it is: who holds its entries, who repairs it, what happens next. Pure.

place of a fragment      its bookie is            and says             it counts as
holds entries e..f       registered               all of them          good
                         registered               not all of them      lacking, with numbers
                         registered               all, and cannot      damaged
                                                  read some
                         registered               nothing (an error)   unknown
                         not registered           -                    lost, until it comes back
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bookkeeper.cli.why.at_work import auditor_said, holder_of_lock, say_auditor, say_lock, say_workers
from bookkeeper.cli.why.damaged import reported, say_damaged
from bookkeeper.cli.why.explanation import Explanation, clock_time, duration, runs_text
from bookkeeper.cli.why.ledger_facts import LedgerFacts, Progress
from bookkeeper.cli.why.lost import LostEntries, lost_entries, say_lost
from bookkeeper.cli.why.untold import say_silent, say_unable
from bookkeeper.console.output import counted, entries
from bookkeeper.errors import BookieIOError, BookieUnavailable, BookKeeperError, NoSuchLedger
from bookkeeper.metadata.cluster.history_format import Report, includes
from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger
from bookkeeper.model import BookieId, LedgerMetadata, LedgerState
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.audit.conclusions import lost_members
from bookkeeper.replication.copies.fragments import FragmentRange, fragments_of
from bookkeeper.replication.copies.verdicts import Standing as CopyStanding

PLACES_MAX = 20
"""Places of fragments that are told one by one."""


class Standing(enum.Enum):
    """What is known of the copies at one place."""

    GOOD = "has all"
    LACKING = "lacks some"
    UNKNOWN = "did not tell"
    DAMAGED = "lists what it cannot read"
    LOST = "is not registered"


@dataclass(frozen=True, slots=True)
class Place:
    """One ensemble index of one fragment that stores something. missing: how many, and the first; 0 and None."""

    fragment: FragmentRange
    index: int
    bookie_id: BookieId
    standing: Standing
    expected: int
    missing: int = 0
    first_missing: int | None = None
    error: str = ""


def explain_ledger(facts: LedgerFacts) -> Explanation:
    """The whole answer."""
    found = Explanation(f"ledger {facts.ledger_id}", holds=list(facts.belongs_to))
    metadata = facts.metadata
    if isinstance(metadata, NoSuchLedger):
        _explain_absent(facts, found)
    elif isinstance(metadata, BookKeeperError):
        found.trouble(f"its metadata cannot be read: {metadata}")
        found.next.append("nothing: no client opens it, and no collector deletes what cannot be proven to be deleted")
        found.do.append("restore its metadata: bookkeeper shell ledgermetadata -l ID -restorefromfile FILE -update")
    else:
        _explain(facts, metadata, found)
    found.facts["belongs_to"] = list(facts.belongs_to)
    return found


def _explain_absent(facts: LedgerFacts, found: Explanation) -> None:
    holders = {bookie: held for bookie, held in facts.held.items() if isinstance(held, Sequence) and held}
    keepers = {bookie: why for bookie, note in facts.notes.items() if (why := _why_kept(facts, bookie, note))}
    found.headline = f"does not exist: {facts.store} has no such ledger; it was deleted, or never made"
    if keepers:
        found.headline = ""
        found.trouble(
            f"is not in {facts.store}, and {counted(len(keepers), 'bookie')} kept its entries: the store seems to have "
            "been restored from an older copy"
        )
    for bookie, held in holders.items():
        count = sum(len(run) for run in held)
        found.holds.append(f"{bookie} still holds {entries(count)} of it: {_runs(held)}")
    found.holds.extend(keepers.values())
    for bookie, error in facts.held.items():
        if isinstance(error, BookKeeperError):
            found.holds.append(f"{bookie} did not tell what it holds: {error}")
            found.doubt()
    others = [bookie for bookie in holders if bookie not in keepers]
    unknown = {each: note for each in others if isinstance(note := facts.notes.get(each), BookKeeperError)}
    for bookie, error in unknown.items():
        found.holds.append(f"whether {bookie} keeps the ledger is unknown: its note in the store was not read: {error}")
        found.doubt()
    if len(unknown) < len(others):
        deleters = [each for each in others if each not in unknown]
        what = "deletes its entries" if len(deleters) == 1 else "delete their entries"
        found.next.append(
            f"{', '.join(deleters)} {what} once two rounds of garbage collection (gcWaitTime) and a proof say that the "
            "ledger is gone"
        )
        found.do.append("on the host of a bookie that keeps them for long: bookkeeper why space --conf FILE")
    if keepers:
        found.next.append("nothing at the bookies that kept it, until the store is as new as before or you decide")
        found.do.append(
            "bookkeeper metadata check shows what the store lacks: restore a newer copy of the metadata, or decide by "
            "bookkeeper metadata keep or discard"
        )
    if isinstance(facts.repair.mark, UnderreplicatedLedger):
        found.holds.append("it is still marked as under-replicated; a worker that takes it removes the mark")
    found.facts = {"exists": False, "held": _held_json(facts), "kept_by": sorted(keepers)}


def _why_kept(facts: LedgerFacts, bookie: BookieId, note: Report | BookKeeperError) -> str:
    """Return why a bookie keeps a ledger that the store lacks, in a sentence; "" if it does not say that it does."""
    if isinstance(note, BookKeeperError):
        return ""
    when = clock_time(note.reported_ms, facts.now_ms)
    if includes(note.kept, facts.ledger_id):
        return f"{bookie} reported {when} that it keeps the ledger until an operator decides"
    if note.finding and (facts.held.get(bookie) or includes(note.absent, facts.ledger_id)):
        return f"{bookie} reported {when} why it deletes nothing: {note.finding}"
    return ""


def _explain(facts: LedgerFacts, metadata: LedgerMetadata, found: Explanation) -> None:
    last = _known_end(facts, metadata)
    fragments = fragments_of(metadata, last)
    places = list(_places(facts, fragments))
    bad = [place for place in places if place.standing in (Standing.LACKING, Standing.LOST)]
    unknown = [place for place in places if place.standing is Standing.UNKNOWN]
    spoilt = [place for place in places if place.standing is Standing.DAMAGED]
    state = _state(facts, metadata, last, found)
    known_end = metadata.is_closed or isinstance(facts.progress, Progress)
    lost = lost_entries(metadata, fragments, facts.registered, facts.held)
    if lost.gone.count:
        found.trouble(f"{state}, and no copy is left of {lost.gone}: the bookies that should hold them lack them")
    elif bad:
        found.trouble(f"{state}, and lacks copies: {_lack_sentence(bad)}")
    elif spoilt:
        found.trouble(f"{state}, and {_names(spoilt)} cannot read entries that its index lists")
    elif unknown or not known_end:
        which = _names(unknown)
        found.headline = f"{state}; whether every copy is there is unknown" + (f": {which} did not tell" * bool(which))
        found.doubt()
    elif metadata.is_closed:
        bad_too = " by what its bookies list, which says nothing of damage" if reported(facts) else ""
        found.headline = f"{state}; every copy is where it should be{bad_too}"
    elif last >= 0:
        found.headline = f"{state}, every copy up to entry {last} is there"
    else:
        found.headline = f"{state}, no entry is known to be acknowledged"
    _say_unreadable(metadata, places, found)
    _say_places(places, [*bad, *spoilt], unknown, found)
    say_damaged(facts, fragments, found)
    away = sorted(each for each in facts.cookies or () if each not in facts.registered)
    say_lost(facts.ledger_id, lost, facts.elsewhere, away, found)
    _say_repair(facts, metadata, bad, lost, found)
    if not metadata.is_closed:
        _say_open(facts, metadata, bad, found)
    for bookie in dict.fromkeys(place.bookie_id for place in spoilt):
        say_unable(facts, metadata, fragments, bookie, found)
    _say_unknown(facts, metadata, fragments, unknown, found)
    found.facts |= {
        "exists": True,
        "state": metadata.state.name,
        "last_entry_id": metadata.last_entry_id,
        "known_last_entry_id": last,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "places": [
            {
                "first_entry_id": place.fragment.first_entry_id,
                "last_entry_id": place.fragment.last_entry_id,
                "bookie_id": place.bookie_id,
                "registered": facts.registered.get(place.bookie_id),
                "standing": place.standing.name,
                "expected": place.expected,
                "missing": place.missing,
                "error": place.error,
            }
            for place in places
        ],
        "marked_for": list(facts.repair.mark.missing) if isinstance(facts.repair.mark, UnderreplicatedLedger) else [],
        "lock": facts.repair.lock if isinstance(facts.repair.lock, str) else None,
        "auditor": facts.repair.auditor if isinstance(facts.repair.auditor, str) else None,
        "auditor_said": auditor_said(facts),
        "entries_without_copy": lost.gone.count,
        "nobody_left": bool(_nobody_left(facts, bad)),
        "processes_asked": {process.where: process.error or "answered" for process in facts.processes},
        "locked_ms": facts.repair.locked_ms if isinstance(facts.repair.locked_ms, int) else None,
        "marked_ms": facts.repair.mark.marked_ms if isinstance(facts.repair.mark, UnderreplicatedLedger) else None,
        "auto_recovery_enabled": facts.repair.enabled if isinstance(facts.repair.enabled, bool) else None,
        "held": _held_json(facts),
    }


def _held_json(facts: LedgerFacts) -> dict[str, object]:
    return {
        bookie: str(held) if isinstance(held, BookKeeperError) else [[run[0], run[-1]] for run in held if run][:1000]
        for bookie, held in facts.held.items()
    }


def _known_end(facts: LedgerFacts, metadata: LedgerMetadata) -> int:
    """The last entry that every copy must have: of an open ledger what bookies know to be acknowledged."""
    if metadata.last_entry_id is not None:
        return metadata.last_entry_id
    # What was acknowledged before the bookies were asked what they hold: of what came later a copy may be on its way.
    return facts.progress.lac if isinstance(facts.progress, Progress) else -1


# --- who holds what ---------------------------------------------------------------------------------------------------


def _places(facts: LedgerFacts, fragments: Sequence[FragmentRange]) -> Iterator[Place]:
    lost = () if isinstance(facts.metadata, BookKeeperError) else lost_members(facts.metadata, facts.registered)
    for fragment in fragments:
        for index, bookie in enumerate(fragment.ensemble):
            expected = fragment.stored_count(index)
            if bookie in lost:
                # Also without entries: who is lost there takes the next ones, or is marked by an auditor all the same.
                yield Place(fragment, index, bookie, Standing.LOST, expected, expected)
                continue
            held = facts.held.get(bookie)
            if held is None or isinstance(held, BookKeeperError):
                why = "was not asked" if held is None else str(held)
                yield Place(fragment, index, bookie, Standing.UNKNOWN, expected, error=why)
                continue
            missing, first = missing_of(fragment, index, held)
            standing, why = Standing.LACKING if missing else Standing.GOOD, ""
            look = facts.looks.get((fragment.first_entry_id, index))
            if not missing and look is not None and look.standing is not CopyStanding.PRESENT:
                silent = look.standing is CopyStanding.SILENT
                standing = Standing.UNKNOWN if silent else Standing.DAMAGED
                why = f"entry {look.entry_id}: {look.reason}"
            yield Place(fragment, index, bookie, standing, expected, missing, first, why)


def missing_of(fragment: FragmentRange, index: int, held: Sequence[range]) -> tuple[int, int | None]:
    """How many entries that an ensemble index stores are in none of the ascending runs, and the first of them."""
    count, first, at = 0, None, fragment.first_entry_id
    for run in [*held, range(fragment.last_entry_id + 1, fragment.last_entry_id + 2)]:
        if not run or run[-1] < at:
            continue
        gap_end = min(run[0] - 1, fragment.last_entry_id)
        if gap_end >= at:
            gap = replace(fragment, first_entry_id=at, last_entry_id=gap_end)
            in_gap = gap.stored_count(index)
            if in_gap and first is None:
                first = gap.first_stored_by(index)
            count += in_gap
        at = max(at, run[-1] + 1)
        if at > fragment.last_entry_id:
            break
    return count, first


def _names(places: Sequence[Place]) -> str:
    return ", ".join(dict.fromkeys(place.bookie_id for place in places))


def _lack_sentence(bad: Sequence[Place]) -> str:
    lost = list(dict.fromkeys(place.bookie_id for place in bad if place.standing is Standing.LOST))
    lacking = list(dict.fromkeys(place.bookie_id for place in bad if place.standing is Standing.LACKING))
    parts = []
    if lost:
        parts.append(f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'} not registered")
    if lacking:
        parts.append(f"{', '.join(lacking)} {'lacks' if len(lacking) == 1 else 'lack'} entries")
    return ", ".join(parts)


def _state(facts: LedgerFacts, metadata: LedgerMetadata, last: int, found: Explanation) -> str:
    """The state in words; quorums are told beside."""
    made = "" if metadata.created_ms is None else f", made {clock_time(metadata.created_ms, facts.now_ms)}"
    quorums = f"E={metadata.ensemble_size} Qw={metadata.write_quorum} Qa={metadata.ack_quorum}"
    found.holds.append(f"{quorums}, {counted(len(metadata.fragments), 'fragment')}{made}")
    if not metadata.is_closed:
        return metadata.state.name
    return f"CLOSED at entry {last}, {counted(metadata.length or 0, 'byte')}" if last >= 0 else "CLOSED, empty"


def _say_places(places: Sequence[Place], bad: Sequence[Place], unknown: Sequence[Place], found: Explanation) -> None:
    shown = [*bad, *unknown, *(place for place in places if place.standing is Standing.GOOD)]
    for place in shown[:PLACES_MAX]:
        found.holds.append(_place_sentence(place))
    if len(shown) > PLACES_MAX:
        found.holds.append(f"and {len(shown) - PLACES_MAX} more places (--json has all)")


def _place_sentence(place: Place) -> str:
    fragment = place.fragment
    where = (
        f"from entry {fragment.first_entry_id} on"
        if fragment.empty
        else f"entries {fragment.first_entry_id}..{fragment.last_entry_id}"
    )
    if place.standing is Standing.LOST:
        return f"{where}: {place.bookie_id} is not registered; it should hold {place.expected} of them"
    if place.standing is Standing.LACKING:
        return (
            f"{where}: {place.bookie_id} lacks {place.missing} of the {place.expected} it should hold, the first is "
            f"entry {place.first_missing}"
        )
    if place.standing is Standing.UNKNOWN:
        return f"{where}: {place.bookie_id} should hold {place.expected}; what it holds is unknown: {place.error}"
    if place.standing is Standing.DAMAGED:
        return (
            f"{where}: {place.bookie_id} lists all {place.expected} it should hold, and cannot read all: {place.error}"
        )
    if not place.expected:
        return f"{where}: {place.bookie_id} has none of them to hold"
    return f"{where}: {place.bookie_id} holds all {place.expected} it should"


def _say_unreadable(metadata: LedgerMetadata, places: Sequence[Place], found: Explanation) -> None:
    """Whether some entries have no registered holder at all."""
    by_fragment: dict[int, list[Place]] = {}
    for place in places:
        by_fragment.setdefault(place.fragment.first_entry_id, []).append(place)
    size, write_quorum = metadata.ensemble_size, metadata.write_quorum
    for first, members in by_fragment.items():
        fragment = members[0].fragment
        if fragment.empty:
            continue
        lost = {place.index for place in members if place.standing is Standing.LOST}
        for entry_id in range(first, min(first + size, fragment.last_entry_id + 1)):
            if set(write_set(entry_id, size, write_quorum)) <= lost:
                lost_ids = range(entry_id, fragment.last_entry_id + 1, size)
                which = ", ".join(map(str, lost_ids[:3])) + (", ..." if len(lost_ids) > 3 else "")
                found.errors.append(
                    f"{entries(len(lost_ids))} ({which}) can be read from nobody now: all bookies that should hold "
                    "them are lost"
                )
                found.do.append("bring one of the lost bookies back before anything else: its copies are the last")
                break


def _say_unknown(
    facts: LedgerFacts,
    metadata: LedgerMetadata,
    fragments: list[FragmentRange],
    unknown: Sequence[Place],
    found: Explanation,
) -> None:
    """What to do about bookies that did not tell."""
    if not unknown:
        return
    found.holds.append("whether every copy is there is unknown until those bookies answer")
    for bookie in dict.fromkeys(place.bookie_id for place in unknown):
        error = facts.held.get(bookie)
        if isinstance(error, BookieIOError):
            say_unable(facts, metadata, fragments, bookie, found)
        elif isinstance(error, BookieUnavailable | list):
            say_silent(facts, bookie, found)
        else:
            found.next.append(f"{bookie} is not taken for one that lost entries: nothing is copied for that alone")
            found.do.append(f"see to what {bookie} said, then ask again: {error or 'it was not asked'}")


def _runs(held: Sequence[range]) -> str:
    return runs_text([(run[0], run[-1]) for run in held if run])


# --- who is at work ---------------------------------------------------------------------------------------------------


def _say_repair(
    facts: LedgerFacts, metadata: LedgerMetadata, bad: Sequence[Place], lost: LostEntries, found: Explanation
) -> None:
    repair = facts.repair
    mark = repair.mark
    if isinstance(mark, UnderreplicatedLedger):
        when = "" if mark.marked_ms is None else f" {clock_time(mark.marked_ms, facts.now_ms)}"
        whose = ", ".join(mark.missing) or "nobody by name"
        found.working.append(f"marked for repair{when}, for the copies of {whose}")
        if not bad and found.healthy:
            found.trouble("is marked as under-replicated, though every copy that could be asked about is there")
    elif isinstance(mark, BookKeeperError):
        found.working.append(f"whether it is marked for repair is unknown: {mark}")
        found.doubt()
    elif bad:
        found.working.append("not marked for repair: no auditor has reported it yet")
    say_lock(facts, found)
    if repair.enabled is False:
        found.working.append("auto-recovery is disabled in this cluster: auditor and workers pause")
    elif isinstance(repair.enabled, BookKeeperError):
        found.working.append(f"whether auto-recovery is on is unknown: {repair.enabled}")
    if bad or isinstance(mark, UnderreplicatedLedger):
        say_auditor(facts, found)
    say_workers(facts, found)
    missing = sum(place.missing for place in bad)
    is_hopeless = bool(lost.gone.count) and missing == lost.gone.count * metadata.write_quorum
    if (bad or isinstance(mark, UnderreplicatedLedger)) and not is_hopeless:
        _say_next(facts, metadata, bad, found)


def _say_next(facts: LedgerFacts, metadata: LedgerMetadata, bad: Sequence[Place], found: Explanation) -> None:
    repair = facts.repair
    lost = list(dict.fromkeys(place.bookie_id for place in bad if place.standing is Standing.LOST))
    nobody_left = _nobody_left(facts, bad)
    if nobody_left:
        found.errors.extend(nobody_left[:PLACES_MAX])
        found.do.append("start more bookies, or bring the lost one back: workers try again as soon as one registers")
    if repair.enabled is False:
        found.next.append("nothing, until auto-recovery is enabled again")
        found.do.append("bookkeeper shell autorecovery -enable")
    elif isinstance(repair.mark, UnderreplicatedLedger):
        answer = holder_of_lock(facts)
        if isinstance(repair.lock, str) and nobody_left:
            found.next.append("nothing, until more bookies are writable: the worker that locked it can only wait")
        elif isinstance(repair.lock, str) and answer is not None and answer.trouble is not None:
            found.next.append(f"the worker tries again in {answer.trouble.get('secondsToNextTry', '?')} s")
        elif isinstance(repair.lock, str):
            found.next.append("the worker copies what is missing to another bookie, then the metadata names that one")
        elif nobody_left:
            found.next.append("nothing, until more bookies are writable")
        elif repair.auditor is None:
            found.next.append("nothing: the mark waits for a worker, and no process with auto-recovery seems to run")
            found.do.append("run auto-recovery: bookkeeper autorecovery, or autoRecoveryDaemonEnabled=true on bookies")
        else:
            found.next.append("the next worker that is free takes it; workers look again at least once a minute")
    elif repair.auditor is None:
        found.next.append("nothing: without an auditor the ledger is not marked, and without a mark nobody repairs it")
        found.do.append("run auto-recovery: bookkeeper autorecovery, or autoRecoveryDaemonEnabled=true on bookies")
    elif lost:
        delay = repair.delay_s if isinstance(repair.delay_s, int) else 0
        found.next.append(
            "the auditor marks the ledger"
            + (f" {duration(delay)} after the bookie was lost, unless it returns" if delay else " at its next look")
        )
        found.do.append("bookkeeper shell triggeraudit makes it look now")
    elif bad:
        checked = repair.checked_ms
        last = "never yet" if not isinstance(checked, int) else clock_time(checked, facts.now_ms)
        found.next.append(
            "the auditor finds it in its next check of all ledgers (auditorPeriodicCheckInterval); the last one ended: "
            + last
        )
    for bookie in lost:
        known = facts.cookies is None or bookie in facts.cookies
        found.do.append(
            f"start {bookie} again: what it held is good again at once"
            if known
            else f"{bookie} has no cookie: it was removed from the cluster, only a repair helps"
        )


def _nobody_left(facts: LedgerFacts, bad: Sequence[Place]) -> list[str]:
    """Fragments whose lost copies nobody can take: by the bookies that are registered now.

    A bookie that is writable takes anew what it lacks itself.
    """
    writable = [bookie for bookie, mode in facts.registered.items() if mode == "writable"]
    told = []
    for first in dict.fromkeys(place.fragment.first_entry_id for place in bad):
        lost = {place.bookie_id for place in bad if place.fragment.first_entry_id == first} - set(writable)
        ensemble = next(place.fragment.ensemble for place in bad if place.fragment.first_entry_id == first)
        spare = len(set(writable) - set(ensemble))
        if spare < len(lost):
            hold = f"only {spare} of them without it" if spare else "all of them hold it already"
            told.append(
                f"no bookie is left to take {counted(len(lost) - spare, 'copy', 'copies')} of the fragment at entry "
                f"{first}: {counted(len(writable), 'bookie')} writable, {hold}"
            )
    return told


# --- open ledgers -----------------------------------------------------------------------------------------------------


def _say_open(facts: LedgerFacts, metadata: LedgerMetadata, bad: Sequence[Place], found: Explanation) -> None:
    progress = facts.progress
    ledger_id = facts.ledger_id
    highest = max(
        (run[-1] for held in facts.held.values() if not isinstance(held, BookKeeperError) for run in held if run),
        default=-1,
    )
    if isinstance(progress, BookKeeperError) or progress is None:
        found.errors.append(f"its last confirmed entry cannot be read: {progress}")
        moved = False
    else:
        lac = progress.lac_later
        found.holds.append(f"acknowledged up to entry {lac}, as the bookies know; the highest stored is {highest}")
        moved = progress.lac_later > progress.lac
    if facts.claimed and highest < 0:
        found.holds.append(
            f"a key or a fence but no entry is on {', '.join(sorted(facts.claimed))}: the ledger is being recovered, "
            "or another client claimed its id before the first entry"
        )
        found.do.append(
            "if recovery fails because the id was claimed, and no entry of the ledger is missed: "
            f"bookkeeper ledger close-empty {ledger_id}"
        )
    if metadata.state is LedgerState.IN_RECOVERY:
        found.trouble("IN_RECOVERY: somebody fenced it and has not closed it; its writer can write no more")
        found.next.append("whoever recovers it closes it; if that one is gone, whoever opens it with recovery next")
        found.do.append(f"close it: bookkeeper shell readledger -l {ledger_id} -r")
        return
    if moved:
        assert progress is not None
        assert not isinstance(progress, BookKeeperError)
        found.headline += (
            f"; its writer is alive: its last confirmed entry rose by {progress.lac_later - progress.lac:,} in "
            f"{duration(progress.observed_s)}"
        )
        found.working.append(
            f"its writer is alive: entries {progress.lac + 1}..{progress.lac_later} were acknowledged within "
            f"{duration(progress.observed_s)}"
        )
        return
    seconds = "" if progress is None or isinstance(progress, BookKeeperError) else duration(progress.observed_s)
    found.working.append(
        f"no progress in {seconds or 'the time it was looked at'}: its writer is idle, or gone. Nobody records who "
        "writes a ledger, so which of them it is, its application knows"
    )
    last_lost = [place for place in bad if not place.fragment.agreed]
    if last_lost:
        found.next.append(
            "a bookie of its last fragment is lost: once it is marked, a worker waits "
            "openLedgerRereplicationGracePeriod (30 s unless set), then fences the writer and closes it"
        )
    else:
        found.next.append(
            "it stays open until its writer closes it, or somebody opens it with recovery; auto-recovery leaves an "
            "open ledger alone whose last bookies are there"
        )
    found.headline += f"; not written to in the {seconds} it was watched" if seconds else ""
    found.do.append(
        f"if its writer is gone: bookkeeper shell readledger -l {ledger_id} -r recovers and closes it at the last "
        "entry that may have been acknowledged; a writer that still lives is fenced by that"
    )
