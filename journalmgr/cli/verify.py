"""Read a whole journal, and tell what is wrong: exit code 1 when anything is.

Checked are the chain of txids over all segments, every checksum and txid, the recorded end of every finalised segment
against its content, segments that were left in progress, and, on ledgers, the state of every ledger. Nothing is
changed, and nobody who writes is disturbed.

On ledgers all others of the cluster are looked at too. One that holds an edit log and is in no segment is
  no orphan         if it is another journal's, of the same ZooKeeper: those are found, or named with --other-journal
  orphan ledger     if this journal noted that it was about to delete it, or if --other-journal named the other journals
                    and it is none's; a finding
  possible orphan   otherwise: a segment whose record was lost, what a crash left, or a ledger of a journal that could
                    not be found. Shown, and no finding

examples:
  journalmgr verify file:///var/lib/edits
  journalmgr verify 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' --json
  journalmgr verify 'bookkeeper://zk1:2181/a' --other-journal 'bookkeeper://zk2:2181/b'     these two, and no others
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, Progress, counted, note, print_json, print_line
from journalmgr.cli.damage import remedy
from journalmgr.cli.segments import note_beginning
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, check_uri, segment_json, session

if TYPE_CHECKING:
    from journalmgr.cli.session import Session
    from journalmgr.contract import JournalManager
    from journalmgr.ledger_audit import Census, LedgerAudit, Neighbourhood, PossibleOrphan
    from journalmgr.verify import Finding, Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr verify`."""
    add_journal_argument(parser)
    parser.add_argument("--no-orphans", action="store_true", help="do not look at ledgers that are in no segment")
    parser.add_argument(
        "--other-journal",
        action="append",
        default=[],
        metavar="JOURNAL",
        help="another journal on the same bookies; with all of them named, or found in the same ZooKeeper, what is "
        "none's is an orphan; repeatable",
    )
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Verify, and print the findings."""
    from journalmgr.uri import parse_uri
    from journalmgr.verify import Problem, verify

    damage = (Problem.DAMAGED, Problem.UNREADABLE, Problem.ENDS_ELSEWHERE)
    for uri in args.other_journal:
        check_uri(uri)
    with session(args) as commands:
        uri = commands.uri(args.journal)
        journal = commands.open(uri)
        namespace = commands.namespace_of(journal)
        audit = commands.open_audit(uri)
        progress = Progress("transactions read")
        try:
            report = commands.run(lambda: verify(journal, audit, on_progress=progress.update))
        finally:
            progress.close()
        others = None
        if audit is not None and not args.no_orphans:
            named = [commands.open(other) for other in args.other_journal]
            others = _look_at_others(commands, audit, parse_uri(uri).path.rstrip("/"), journal, named)
            report.findings += others.findings
    if args.json:
        print_json({"journal": journal.description, **_report_json(report, others)})
    else:
        for finding in report.findings:
            print_line(f"{finding.problem.value}: {finding.text}")
        for each in others.possible if others is not None else ():
            print_line(f"possible orphan: {each.text}")
    if others is not None:
        _note_others(others)
    note(f"{_summary(report)}; {namespace or 'no namespace'}")
    if any(finding.problem in damage for finding in report.findings):
        note(remedy(uri))
    if report.first_txid is not None:
        note_beginning(report.first_txid)
    return EXIT_FAILURE if report.findings or (others is not None and others.census.unread) else EXIT_OK


@dataclass(frozen=True, slots=True)
class _Others:
    """What was found out of ledgers that are in no segment."""

    census: Census
    neighbourhood: Neighbourhood
    findings: list[Finding]
    possible: list[PossibleOrphan]


def _look_at_others(
    commands: Session, audit: LedgerAudit, root: str, journal: JournalManager, named: list[JournalManager]
) -> _Others:
    from journalmgr.ledger_audit import judged

    neighbourhood = commands.run(lambda: audit.neighbourhood(root, commands.settings.ledgers_root))

    async def in_a_list() -> set[int]:
        listed = [segment for each in (journal, *named) for segment in await each.segments()]
        return {
            segment.ledger_id for segment in listed if segment.ledger_id is not None
        } | await neighbourhood.ledgers()

    progress = Progress("ledgers looked at")
    try:
        census = commands.run(lambda: audit.census(in_a_list, on_progress=progress.update))
    finally:
        progress.close()
    noted = commands.run(lambda: audit.unfinished_deletions(root))
    segments = commands.call(journal.segments)
    findings, possible = judged(census.orphans, noted, segments, all_named=bool(named))
    return _Others(census, neighbourhood, findings, possible)


def _note_others(others: _Others) -> None:
    census, neighbourhood = others.census, others.neighbourhood
    if neighbourhood.roots:
        note(f"Other journals in the same ZooKeeper: {', '.join(neighbourhood.roots)}")
    for path in neighbourhood.unreadable:
        note(f"{path} cannot be read: which ledger it means is not known")
    if others.possible:
        searched = "" if neighbourhood.complete else ", where not every znode could be looked at"
        note(
            f"{counted(len(others.possible), 'possible orphan')}: no journal in this ZooKeeper names them{searched}; "
            "name journals elsewhere that use the same bookies with --other-journal to be sure"
        )
    if census.unread:
        note(
            f"{counted(len(census.unread), 'ledger')} could not be looked at, whether they are edit logs is not known:"
        )
        for ledger_id, why in census.unread.items():
            note(f"  ledger {ledger_id}: {why}")


def _summary(report: Report) -> str:
    span = "no transactions"
    if report.transactions:
        span = f"{counted(report.transactions, 'transaction')}, {report.first_txid}..{report.last_txid}"
    in_progress = ""
    if report.in_progress is not None:
        in_progress = (
            f" (the segment from {report.in_progress.first_txid} on is still written, and read as far as confirmed)"
        )
    return f"{counted(report.segments, 'segment')}, {span}{in_progress}; {counted(len(report.findings), 'finding')}"


def _report_json(report: Report, others: _Others | None) -> dict[str, object]:
    census = None if others is None else others.census
    return {
        "segments": report.segments,
        "transactions": report.transactions,
        "size": report.size,
        "first_txid": report.first_txid,
        "last_txid": report.last_txid,
        "in_progress": None if report.in_progress is None else segment_json(report.in_progress),
        "ledgers_looked_at": None if census is None else census.ledgers,
        "ledgers_unread": {} if census is None else {str(each): why for each, why in census.unread.items()},
        "other_journals": [] if others is None else others.neighbourhood.roots,
        "possible_orphans": [
            {"ledger_id": each.orphan.ledger_id, "first_txid": each.orphan.first_txid, "text": each.text}
            for each in (others.possible if others is not None else ())
        ],
        "findings": [
            {
                "problem": finding.problem.value,
                "text": finding.text,
                "segment": None if finding.segment is None else segment_json(finding.segment),
                "ledger_id": finding.ledger_id,
            }
            for finding in report.findings
        ],
    }
