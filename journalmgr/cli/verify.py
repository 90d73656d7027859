"""Read a whole journal, and tell what is wrong: exit code 1 when anything is.

Checked are the chain of txids over all segments, every checksum and txid, the recorded end of every finalised segment
against its content, segments that were left in progress, and, on ledgers, the state of every ledger and ledgers that
hold an edit log and are in no segment. Nothing is changed, and nobody who writes is disturbed.

examples:
  journalmgr verify file:///var/lib/edits
  journalmgr verify 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' --json
  journalmgr verify bookkeeper://zk1:2181/a --other-journal bookkeeper://zk1:2181/b      one cluster, two journals
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.cli.output import EXIT_FAILURE, EXIT_OK, Progress, counted, note, print_json
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, check_uri, segment_json, session

if TYPE_CHECKING:
    from journalmgr.cli.session import Session
    from journalmgr.contract import JournalManager
    from journalmgr.ledger_audit import Census, LedgerAudit
    from journalmgr.verify import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr verify`."""
    add_journal_argument(parser)
    parser.add_argument("--no-orphans", action="store_true", help="do not look at ledgers that are in no segment")
    parser.add_argument(
        "--other-journal",
        action="append",
        default=[],
        metavar="JOURNAL",
        help="a journal of the same cluster, whose ledgers are no orphans; repeatable",
    )
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Verify, and print the findings."""
    from journalmgr.ledger_audit import orphan_findings
    from journalmgr.verify import verify

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
        census = None
        if audit is not None and not args.no_orphans:
            others = [journal, *(commands.open(other) for other in args.other_journal)]
            census = _census(commands, audit, others)
            report.findings += orphan_findings(census.orphans, bool(args.other_journal))
    if args.json:
        print_json({"journal": journal.description, **_report_json(report, census)})
    else:
        for finding in report.findings:
            print(f"{finding.problem.value}: {finding.text}")
    if census is not None and census.unread:
        note(
            f"{counted(len(census.unread), 'ledger')} could not be looked at, whether they are edit logs is not known:"
        )
        for ledger_id, why in census.unread.items():
            note(f"  ledger {ledger_id}: {why}")
    note(f"{_summary(report)}; {namespace or 'no namespace'}")
    return EXIT_FAILURE if report.findings or (census is not None and census.unread) else EXIT_OK


def _census(commands: Session, audit: LedgerAudit, journals: list[JournalManager]) -> Census:
    async def named() -> set[int]:
        listed = [segment for journal in journals for segment in await journal.segments()]
        return {segment.ledger_id for segment in listed if segment.ledger_id is not None}

    progress = Progress("ledgers looked at")
    try:
        return commands.run(lambda: audit.census(named, on_progress=progress.update))
    finally:
        progress.close()


def _summary(report: Report) -> str:
    span = "no transactions"
    if report.transactions:
        span = f"{counted(report.transactions, 'transaction')}, {report.first_txid}..{report.last_txid}"
    in_progress = "" if report.in_progress is None else f", of which {report.in_progress} is confirmed so far"
    return f"{counted(report.segments, 'segment')}, {span}{in_progress}; {counted(len(report.findings), 'finding')}"


def _report_json(report: Report, census: Census | None) -> dict[str, object]:
    return {
        "segments": report.segments,
        "transactions": report.transactions,
        "size": report.size,
        "first_txid": report.first_txid,
        "last_txid": report.last_txid,
        "in_progress": None if report.in_progress is None else segment_json(report.in_progress),
        "ledgers_looked_at": None if census is None else census.ledgers,
        "ledgers_unread": {} if census is None else {str(each): why for each, why in census.unread.items()},
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
