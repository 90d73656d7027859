"""Shell commands that move everything off bookies.

    recover              does the copying itself
    decommissionbookie   has the cluster's auto-recovery do it, and waits

Differs from Apache: a cookie is deleted only when no ledger is left that names the bookie; with one left it is still
part of the cluster, and its data may be the only copy.
"""

from __future__ import annotations

import argparse
import dataclasses
import socket
from collections.abc import Collection, Sequence
from functools import partial

from bookkeeper.cli.shell.base import ShellCommand, server_settings, shell_settings
from bookkeeper.cli.shell.local import configured_bookie_id
from bookkeeper.cli.worker_words import words_of_one
from bookkeeper.client.client import LedgerClient
from bookkeeper.console.known_bookies import nobody_names, strangers
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    confirm,
    counted,
    end_partial,
    entries,
    note,
    print_json,
    print_json_line,
    print_line,
    readable_size,
)
from bookkeeper.console.reactor import with_client
from bookkeeper.console.subcommands import at_least
from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LedgerId
from bookkeeper.replication.bookie_recovery import BookieRecovery, LedgerOnBookies, RecoveryProgress
from bookkeeper.replication.daemon import worker_settings
from bookkeeper.replication.repair.settings import WorkerSettings

PROGRESS_LINES_S = 10.0
"""Between lines of progress where there is no terminal."""

FAILURES_TOLD_MAX = 20


def _bookie_ids(text: str) -> list[BookieId]:
    return [BookieId(word) for word in dict.fromkeys(text.split(",")) if word]


def _recover_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Make every copy that these bookies have anew, on others, and have the ledgers name those instead; also of bookies that
are alive. A ledger that is being written on one of them is recovered, which ends its writer, unless -sk is given."""
    parser.add_argument("bookies", type=_bookie_ids, metavar="BOOKIE[,BOOKIE...]", help="ids of the bookies")
    parser.add_argument("-q", "-query", "--query", action="store_true", dest="query",
                        help="list the ledgers that name them, and nothing else")  # fmt: skip
    parser.add_argument("-dr", "-dryrun", "--dryrun", action="store_true", dest="dry_run",
                        help="say what would be done, and do nothing")  # fmt: skip
    parser.add_argument("-f", "-force", "--force", action="store_true", dest="force", help="do not ask")
    parser.add_argument("-l", "-ledger", "--ledger", type=at_least(0), metavar="ID", dest="ledger_id",
                        help="this ledger only (default: all)")  # fmt: skip
    parser.add_argument("-sk", "-skipOpenLedgers", "--skipOpenLedgers", action="store_true", dest="skip_open",
                        help="leave ledgers alone that may be written")  # fmt: skip
    parser.add_argument("-sku", "-skipUnrecoverableLedgers", "--skipUnrecoverableLedgers", action="store_true",
                        dest="skip_unreadable", help="go on past entries of which no copy is left")  # fmt: skip
    parser.add_argument("-d", "-deleteCookie", "--deleteCookie", action="store_true", dest="delete_cookie",
                        help="delete their cookies when nothing names them any more")  # fmt: skip
    parser.add_argument("-rate", "-replicationRate", "--replicationRate", type=at_least(0), metavar="BYTES",
                        dest="rate", help="bytes per second (default: replicationRateByBytes)")  # fmt: skip


class _Shown:
    """The progress of a recovery on the terminal; how much there is to do is told once it is known."""

    def __init__(self, what: str, bookies: Collection[BookieId], *, by_workers: bool) -> None:
        self._by_workers = by_workers
        self._progress = Progress(what, lines_every_s=PROGRESS_LINES_S)
        self._names = ", ".join(bookies)
        self._told = False

    def __call__(self, state: RecoveryProgress) -> None:
        ended = state.ledgers_done + state.ledgers_skipped + state.ledgers_failed
        copied = f"{entries(state.entries)}, {state.entries_per_s:,.0f}/s, {readable_size(state.bytes)} copied"
        copied = "the replication workers copy" if self._by_workers else copied
        if state.listing_ended:
            # A decommission counts only when the list is complete; a recovery is at work by then.
            if not self._told and (state.ledgers_found or not state.waits_for):
                self._told = True
                self._progress.close()
                note(f"{counted(state.ledgers_found, 'ledger')} of {state.ledgers_seen:,} to move off {self._names}")
            self._progress.update(ended, state.waits_for, total=state.ledgers_found, besides=copied)
        else:
            listed = f"{state.ledgers_found:,} of {state.ledgers_seen:,} ledgers name it so far"
            self._progress.update(ended, state.waits_for, besides=f"{listed}, {copied}")

    def close(self) -> None:
        self._progress.close()


def _settings(args: argparse.Namespace) -> WorkerSettings:
    settings = worker_settings(server_settings(args))
    rate = getattr(args, "rate", None)
    return settings if rate is None else dataclasses.replace(settings, bytes_per_s=float(rate))


def _run(args: argparse.Namespace, what: str, bookies: Collection[BookieId], *, decommission: bool) -> RecoveryProgress:
    shown = _Shown(what, bookies, by_workers=decommission)
    settings = _settings(args)

    async def use(client: LedgerClient) -> RecoveryProgress:
        ask = partial(words_of_one, client.store.underreplication, client.context.clock)
        recovery = BookieRecovery(client, settings, socket.gethostname(), RecoveryProgress(on_change=shown), ask=ask)
        unknown = await strangers(client.store, bookies)
        if unknown:
            note(f"{', '.join(unknown)}: not registered, and without a cookie")
        if decommission:
            (bookie_id,) = bookies
            done = await recovery.decommission(bookie_id)
        else:
            ledger_id = None if args.ledger_id is None else LedgerId(args.ledger_id)
            if ledger_id is not None and not await _names_any(client, ledger_id, bookies):
                return RecoveryProgress(ledgers_seen=1)
            done = await recovery.recover(
                bookies,
                ledger_id=ledger_id,
                skip_open=args.skip_open,
                skip_unreadable=args.skip_unreadable,
                dry_run=args.dry_run,
            )
        if unknown and not done.ledgers_found and getattr(args, "ledger_id", None) is None:
            raise await nobody_names(client.store, unknown)
        if _deletes_cookies(args, done, decommission=decommission):
            for each in bookies:
                await _delete_cookie(client.store, each)
        return done

    try:
        return with_client(shell_settings(args), use)
    finally:
        shown.close()


async def _names_any(client: LedgerClient, ledger_id: LedgerId, bookies: Collection[BookieId]) -> bool:
    """Raises NoSuchLedger, which a recovery of all ledgers passes over."""
    metadata = (await client.store.ledgers.read(ledger_id)).value
    if any(each in fragment.ensemble for fragment in metadata.fragments for each in bookies):
        return True
    note(f"ledger {ledger_id} does not name {' or '.join(bookies)}: there is nothing to move")
    return False


def _deletes_cookies(args: argparse.Namespace, done: RecoveryProgress, *, decommission: bool) -> bool:
    if decommission:
        return True
    if not args.delete_cookie or args.dry_run:
        return False
    left = done.ledgers_failed + done.ledgers_skipped
    if left:
        note(f"no cookie is deleted: {counted(left, 'ledger')} may still name {', '.join(args.bookies)}")
    return not left


async def _delete_cookie(store: MetadataStore, bookie_id: BookieId) -> None:
    stored = await store.cookies.read(bookie_id)
    if stored is None:
        note(f"bookie {bookie_id} had no cookie")
        return
    await store.cookies.delete(bookie_id, stored.version)
    note(f"deleted the cookie of bookie {bookie_id}: it starts again only when it is empty")


def _recover(args: argparse.Namespace) -> int:
    if not args.bookies:
        raise CommandFailed("name the bookies to recover, as in 10.0.0.1:3181,10.0.0.2:3181", EXIT_USAGE)
    if args.ledger_id is not None and args.delete_cookie:
        raise CommandFailed(
            "-deleteCookie is for when nothing names a bookie any more, -ledger moves one ledger", EXIT_USAGE
        )
    if args.query:
        return _query(args)
    names = ", ".join(args.bookies)
    if not args.dry_run:
        confirm(f"Move everything that {names} {'has' if len(args.bookies) == 1 else 'have'} to other bookies?",
                force=args.force)  # fmt: skip
    done = _run(args, "ledgers recovered", args.bookies, decommission=False)
    _tell(args, done, f"moved off {names}" if not args.dry_run else f"would be moved off {names}; nothing was done")
    return EXIT_FAILURE if done.ledgers_failed else EXIT_OK


def _tell(args: argparse.Namespace, done: RecoveryProgress, what: str, *, by_workers: bool = False) -> None:
    """by_workers: the cluster's replication workers copied, which do not say here how much."""
    dry = getattr(args, "dry_run", False)
    moved = done.ledgers_found if dry else done.ledgers_done
    if args.json:
        print_json({
            "ledgers_found": done.ledgers_found, "ledgers_moved": 0 if dry else moved,
            "ledgers_skipped": done.ledgers_skipped, "ledgers_failed": done.ledgers_failed,
            "entries_copied": done.entries, "bytes_copied": done.bytes, "seconds": done.now_s - done.began_s,
            "failures": done.failures,
        })  # fmt: skip
    for ledger_id, reason in list(done.failures.items())[:FAILURES_TOLD_MAX]:
        note(f"ledger {ledger_id}: not moved: {reason}")
    if done.ledgers_skipped:
        note(f"{counted(done.ledgers_skipped, 'ledger')} skipped, as ordered")
    if done.ledgers_failed:
        note(f"{counted(done.ledgers_failed, 'ledger')} not moved; run it again when what is in the way is gone")
    took = f"in {done.now_s - done.began_s:,.1f} s"
    if by_workers:
        copied = f"the replication workers copied, {took}" if moved else f"there was nothing to copy, {took}"
    else:
        copied = f"{entries(done.entries)}, {readable_size(done.bytes)} copied {took}"
    note(f"{counted(moved, 'ledger')} {what}; {copied}")


def _query(args: argparse.Namespace) -> int:
    settings = _settings(args)
    wanted = frozenset(args.bookies)

    async def use(client: LedgerClient) -> int:
        progress, count = Progress("ledgers looked at"), 0
        state = RecoveryProgress(on_change=lambda state: progress.update(state.ledgers_seen))
        recovery = BookieRecovery(client, settings, socket.gethostname(), state)

        def unreadable(ledger_id: LedgerId, error: MetadataCorrupt) -> None:
            bad_records.add_unreadable(error)

        async for found in recovery.ledgers_on(wanted, unreadable):
            if args.ledger_id not in (None, found.ledger_id):
                continue
            count += 1
            progress.close()
            _print_found(found, wanted, as_json=args.json)
        progress.close()
        return count

    bad_records = BadRecords()
    note(f"{counted(with_client(shell_settings(args), use), 'ledger')} with one of {', '.join(args.bookies)}, marked *")
    return end_partial(bad_records)


def _print_found(found: LedgerOnBookies, wanted: Collection[BookieId], *, as_json: bool) -> None:
    state = found.metadata.value.state.name
    if as_json:
        fragments: Sequence[dict[str, object]] = [
            {"first_entry_id": each.first_entry_id, "ensemble": each.ensemble} for each in found.fragments
        ]
        print_json_line({"ledger_id": found.ledger_id, "state": state, "fragments": fragments})
        return
    print(f"ledger {found.ledger_id}: {state}")
    for each in found.fragments:
        members = ", ".join(f"{member}*" if member in wanted else member for member in each.ensemble)
        print_line(f"  from entry {each.first_entry_id}: {members}")


# --- decommissionbookie -----------------------------------------------------------------------------------------------


def _decommission_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Take a bookie that is down out of the cluster for good: the auditor and the workers of the cluster make its copies anew,
this waits until no ledger names it any more, and deletes its cookie."""
    parser.add_argument("-bookieid", "--bookieid", type=BookieId, metavar="ID", dest="bookie_id",
                        help="the bookie (default: that of --conf)")  # fmt: skip


def _decommission(args: argparse.Namespace) -> int:
    bookie_id = args.bookie_id or BookieId(configured_bookie_id(args))
    done = _run(args, "ledgers without it", [bookie_id], decommission=True)
    _tell(args, done, f"moved off {bookie_id}, and none names it any more", by_workers=True)
    return EXIT_OK


RECOVER = ShellCommand("recover -f -d 10.0.0.1:3181", _recover_arguments, _recover)
DECOMMISSIONBOOKIE = ShellCommand("decommissionbookie -bookieid 10.0.0.1:3181", _decommission_arguments, _decommission)
