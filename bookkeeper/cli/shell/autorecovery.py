"""Shell commands on auto-recovery: who does it, whether it is on, and what waits for it."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Awaitable
from typing import TypeVar

from bookkeeper.cli.ledger.inspect import print_unreadable
from bookkeeper.cli.shell.base import ShellCommand, end_listing, no_arguments, with_store, with_store_and_clock
from bookkeeper.cli.shell.damaged import list_damaged
from bookkeeper.cli.worker_words import WorkerWords, known_troubles, trouble_words, words_of_workers
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    Progress,
    counted,
    end_partial,
    note,
    print_json,
    print_json_line,
    print_line,
)
from bookkeeper.console.subcommands import at_least
from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore, Underreplication
from bookkeeper.metadata.underreplication.format import DELAY_S_MAX, UnderreplicatedLedger
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.metadata.underreplication.recovery_processes import CurrentAuditor, ask_for_audit, find_auditor
from bookkeeper.model import BookieId, LedgerId
from bookkeeper.ports import Clock

T = TypeVar("T")

TROUBLES_TOLD_MAX = 20
"""Ledgers in trouble that are told one by one; --json has all."""

# --- listunderreplicated ----------------------------------------------------------------------------------------------


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-mr", "-missingreplica", "--missingreplica", type=BookieId, metavar="ID", dest="missing",
                        help="only ledgers that lack this bookie's copies (default: all)")  # fmt: skip
    parser.add_argument("-emr", "-excludingmissingreplica", "--excludingmissingreplica", type=BookieId, metavar="ID",
                        dest="excluded", help="no ledgers that lack this bookie's copies (default: all)")  # fmt: skip
    parser.add_argument("-pmr", "-printmissingreplica", "--printmissingreplica", action="store_true",
                        dest="print_missing", help="with the bookies whose copies are missing")  # fmt: skip
    parser.add_argument("-prw", "-printreplicationworkerid", "--printreplicationworkerid", action="store_true",
                        dest="print_worker", help="with the worker that has it, and why it waits")  # fmt: skip
    parser.add_argument("-c", "-onlydisplayledgercount", "--onlydisplayledgercount", action="store_true",
                        dest="count_only", help="their number only")  # fmt: skip
    parser.add_argument("-damaged", "--damaged", action="store_true", dest="damaged",
                        help="instead, ledgers of which bookies reported damaged copies, marked or not; what, and what "
                             "workers say; -mr and -emr name bookies that reported (not Apache's)")  # fmt: skip


def _list(args: argparse.Namespace) -> int:
    if args.damaged:
        return list_damaged(args)
    reads_marks = bool(args.missing or args.excluded or args.print_missing or args.json)

    async def use(store: MetadataStore, clock: Clock) -> int:
        marks, progress, count = store.underreplication, Progress("marked ledgers read"), 0
        words = await words_of_workers(marks, clock) if args.print_worker else WorkerWords({})
        seen = 0
        async for batch in marks.ids(bad_records):
            for ledger_id in batch:
                seen += 1
                progress.update(seen)
                try:
                    mark = await marks.read(ledger_id) if reads_marks else None
                except MetadataCorrupt as error:
                    record = bad_records.add_unreadable(error)
                    if not args.count_only:
                        print_unreadable(ledger_id, record, as_json=args.json)
                    continue
                if reads_marks and (mark is None or not _is_wanted(args, mark)):
                    continue  # None: it was repaired meanwhile
                count += 1
                if args.count_only:
                    continue
                worker = await _holder(marks, ledger_id, bad_records) if args.print_worker else None
                session_id = await marks.lock_session(ledger_id) if worker is not None else None
                progress.close()
                _print_marked(args, ledger_id, mark, worker, words.of(ledger_id, worker, session_id))
        progress.close()
        return count

    bad_records = BadRecords()
    count = with_store_and_clock(args, use)
    return end_listing(args, count, counted(count, "under-replicated ledger"), bad_records)


async def _or_none(asked: Awaitable[T], bad_records: BadRecords) -> T | None:
    """Return the answer, or None if its record cannot be read."""
    try:
        return await asked
    except MetadataCorrupt as error:
        bad_records.add_unreadable(error)
        return None


async def _holder(marks: Underreplication, ledger_id: LedgerId, bad_records: BadRecords) -> str | None:
    """Return the holder that the ledger's lock names: "" if the lock cannot be read, None without a lock."""
    try:
        return await marks.lock_holder(ledger_id)
    except MetadataCorrupt as error:
        bad_records.add_unreadable(error)
        return ""


def _is_wanted(args: argparse.Namespace, mark: UnderreplicatedLedger) -> bool:
    lacks = set(mark.missing)
    return (args.missing is None or args.missing in lacks) and (args.excluded is None or args.excluded not in lacks)


def _print_marked(
    args: argparse.Namespace, ledger_id: int, mark: UnderreplicatedLedger | None, worker: str | None, words: str
) -> None:
    if args.json:
        assert mark is not None
        shown = {"ledger_id": ledger_id, "missing": mark.missing, "marked_ms": mark.marked_ms}
        print_json_line({**shown, "worker": worker, "says": words} if args.print_worker else shown)
        return
    parts = [str(ledger_id)]
    if args.print_missing and mark is not None:
        parts.append(f"lacks copies of {', '.join(mark.missing)}")
        if mark.marked_ms is not None:
            parts.append(f"since {_time(mark.marked_ms)}")
    if args.print_worker:
        parts.append(words)
    print_line("  ".join(parts))


def _time(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# --- auditor ----------------------------------------------------------------------------------------------------------


def _whoisauditor(args: argparse.Namespace) -> int:
    async def use(store: MetadataStore) -> CurrentAuditor:
        return await find_auditor(store.underreplication, bad_records, with_process=True)

    bad_records = BadRecords()
    auditor = with_store(args, use)
    process = auditor.process
    if args.json:
        shown = {"auditor": auditor.bookie_id, "process": None if process is None else _process_json(process)}
        unreadable = [record.json() for record in bad_records.named]
        print_json({**shown, "unreadable": unreadable} if unreadable else shown)
    elif auditor.is_elected:
        print_line(auditor.bookie_id or "unknown")
        if process is not None:
            note(_process_words(process))
    if not auditor.is_elected:
        note("nobody: neither `bookkeeper autorecovery` nor a bookie with autoRecoveryDaemonEnabled=true runs")
    code = end_partial(bad_records)
    return code if auditor.is_elected else EXIT_FAILURE


def _process_words(process: RecoveryProcess) -> str:
    http = "no HTTP" if process.http is None else f"HTTP at {process.http[0]}:{process.http[1]}"
    return f"{process}, votes as {process.bookie_id}, since {_time(process.since_ms)}, {http}"


def _process_json(process: RecoveryProcess) -> dict[str, object]:
    http = None if process.http is None else f"{process.http[0]}:{process.http[1]}"
    return {
        "host": process.host,
        "pid": process.pid,
        "bookie": process.bookie_id,
        "since_ms": process.since_ms,
        "http": http,
    }


def _triggeraudit(args: argparse.Namespace) -> int:
    async def use(store: MetadataStore) -> tuple[CurrentAuditor, bool]:
        marks = store.underreplication
        await ask_for_audit(marks)
        return await find_auditor(marks, bad_records), await marks.is_enabled()

    bad_records = BadRecords()
    auditor, enabled = with_store(args, use)
    if not enabled:
        note("auto-recovery is off: the audit waits until `autorecovery -enable`")
    if not auditor.is_elected:
        note("there is no auditor now: the next one audits when it starts")
    else:
        who = auditor.bookie_id or "the auditor"
        note(f"asked {who} for an audit; `listunderreplicated` shows what it finds")
    return end_partial(bad_records)


# --- switches ---------------------------------------------------------------------------------------------------------


def _autorecovery_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Turn auto-recovery on or off; without a flag, say which it is."
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-e", "-enable", "--enable", action="store_true", dest="enable", help="turn it on")
    which.add_argument("-d", "-disable", "--disable", action="store_true", dest="disable", help="turn it off")


def _autorecovery(args: argparse.Namespace) -> int:
    async def look(store: MetadataStore) -> bool:
        return await store.underreplication.is_enabled()

    if not (args.enable or args.disable):
        enabled = with_store(args, look)
        if args.json:
            print_json({"enabled": enabled})
        else:
            print(f"Autorecovery is {'enabled' if enabled else 'disabled'}.")
        return EXIT_OK

    async def use(store: MetadataStore) -> bool:
        marks = store.underreplication
        return await (marks.enable() if args.enable else marks.disable())

    changed = with_store(args, use)
    now = "on" if args.enable else "off: lost copies are noted by nobody and made anew by nobody"
    note(f"auto-recovery {'is' if changed else 'was already'} {now}")
    return EXIT_OK


def _delay_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-g", "-get", "--get", action="store_true", dest="get", help="print it (default)")
    which.add_argument("-s", "-set", "--set", type=at_least(0), metavar="SECONDS", dest="seconds",
                       help="how long the auditor waits for a lost bookie (default: it stays)")  # fmt: skip


def _delay(args: argparse.Namespace) -> int:
    async def read(store: MetadataStore) -> int | None:
        return await store.underreplication.recovery_delay_s()

    async def write(store: MetadataStore) -> None:
        await store.underreplication.set_recovery_delay(min(args.seconds, DELAY_S_MAX))

    if args.seconds is not None:
        with_store(args, write)
        note(f"the auditor waits {args.seconds} s for a lost bookie; setting it asks for an audit, too")
        return EXIT_OK
    delay_s = with_store(args, read)
    if args.json:
        print_json({"lostBookieRecoveryDelay": delay_s})
    elif delay_s is None:
        print("0")
        note("none is stored: the first auditor stores the lostBookieRecoveryDelay of its settings")
    else:
        print(delay_s)
    return EXIT_OK


def _status(args: argparse.Namespace) -> int:
    async def use(store: MetadataStore, clock: Clock) -> dict[str, object]:
        marks, working, count = store.underreplication, [], 0
        damaged = [ledger_id async for batch in marks.bad_copy_ids(bad_records) for ledger_id in batch]
        words: WorkerWords | None = None
        async for batch in marks.ids(bad_records):
            for ledger_id in batch:
                count += 1
                holder = await _holder(marks, ledger_id, bad_records)
                session_id = None if holder is None else await marks.lock_session(ledger_id)
                if holder is not None and session_id is not None:
                    words = words or await words_of_workers(marks, clock)
                    says = words.of(ledger_id, holder, session_id)
                    working.append({"ledger_id": ledger_id, "worker": holder, "says": says})
        troubles = known_troubles(words or await words_of_workers(marks, clock))
        for path, problem in troubles.passed_over.items():
            if all(path != record.path for record in bad_records.named):
                bad_records.add(path, problem)
        auditor = await find_auditor(marks, bad_records)
        return {
            "enabled": await marks.is_enabled(),
            "auditor": auditor.bookie_id,
            "auditorElected": auditor.is_elected,
            "lostBookieRecoveryDelay": await _or_none(marks.recovery_delay_s(), bad_records),
            "underreplicated": count,
            "working": working,
            "processes": [_process_json(each) for each in await marks.processes(bad_records)],
            "damaged": len(damaged),
            "troubles": list(troubles.by_ledger.values()),
            "unrepairable": troubles.unrepairable,
            "processesThatDidNotTell": troubles.unasked,
            "unreadable": [record.json() for record in bad_records.named],
        }

    bad_records = BadRecords()
    status = with_store_and_clock(args, use)
    if args.json:
        print_json(status)
        return end_partial(bad_records)
    working, processes = status["working"], status["processes"]
    assert isinstance(working, list)
    assert isinstance(processes, list)
    auditor = status["auditor"] or ("unknown" if status["auditorElected"] else "nobody")
    print_line(f"auto-recovery: {'on' if status['enabled'] else 'off'}, auditor: {auditor}")
    for each in processes:
        http = "no HTTP" if each["http"] is None else f"HTTP at {each['http']}"
        print_line(f"process {each['pid']} of {each['host']}, votes as {each['bookie']}, {http}")
    print(f"under-replicated: {status['underreplicated']}, locked by workers: {len(working)}")
    if status["damaged"]:
        print(f"reported damaged by bookies: {status['damaged']} (`listunderreplicated -damaged` names them)")
    troubles = status["troubles"]
    assert isinstance(troubles, list)
    if troubles:
        silent = status["processesThatDidNotTell"]
        besides = f"; {silent} of the processes did not tell of all theirs" if silent else ""
        unread = f"without a copy that could be read for several tries: {status['unrepairable']}"
        print(f"in trouble: {len(troubles)}, {unread}{besides}")
    for each in working:
        print_line(f"ledger {each['ledger_id']}: {each['says']}")
    told = {each["ledger_id"] for each in working}
    for each in [each for each in troubles if each["ledger"] not in told][:TROUBLES_TOLD_MAX]:
        print_line(f"ledger {each['ledger']}: not repaired: {trouble_words(each)}")
    return end_partial(bad_records)


LISTUNDERREPLICATED = ShellCommand("listunderreplicated -pmr -prw", _list_arguments, _list)
WHOISAUDITOR = ShellCommand("whoisauditor", no_arguments, _whoisauditor)
TRIGGERAUDIT = ShellCommand("triggeraudit", no_arguments, _triggeraudit)
AUTORECOVERY = ShellCommand("autorecovery -disable", _autorecovery_arguments, _autorecovery)
LOSTBOOKIERECOVERYDELAY = ShellCommand("lostbookierecoverydelay -set 60", _delay_arguments, _delay)
QUERYAUTORECOVERYSTATUS = ShellCommand("queryautorecoverystatus", no_arguments, _status)
