"""Shell command activeledgers: which ledgers in an entry log of a bookie the cluster still has."""

from __future__ import annotations

import argparse
import time

from bookkeeper.bookie.identity.identity import DirectoryKind
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.entry_log.format import log_name
from bookkeeper.cli.shell.base import ShellCommand, with_store
from bookkeeper.cli.shell.local import filled_directories
from bookkeeper.console.output import CommandFailed, Progress, counted, end_partial, note, print_json, print_table
from bookkeeper.console.subcommands import at_least
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", "-logId", "--logId", type=at_least(0), required=True, metavar="ID", dest="log_id",
                        help="entry log id, decimal as Apache has it (required)")  # fmt: skip
    parser.add_argument("-t", "-timeout", "--timeout", type=at_least(1), metavar="MS",
                        help="for the list of ledgers (default: as long as it takes)")  # fmt: skip


def _active(args: argparse.Namespace) -> int:
    fs = RealFileSystem()
    directories = filled_directories(args, DirectoryKind.LEDGER)
    path = dict(inspection.list_entry_logs(fs, directories)).get(args.log_id)
    if path is None:
        raise CommandFailed(f"no entry log {args.log_id} ({log_name(args.log_id)}) in {', '.join(directories)}")
    try:
        found = inspection.read_ledgers_map(fs, path)
    except CorruptRecord as error:
        note(f"{error}; the log is scanned")
        found = None
    in_log = inspection.scan_ledgers(fs, path) if found is None else found
    deadline = None if args.timeout is None else time.monotonic() + args.timeout / 1000

    async def use(store: MetadataStore) -> set[int]:
        progress, seen = Progress("ledgers of the cluster"), 0
        alive: set[int] = set()
        async for batch in store.ledgers.ids(strays):
            seen += len(batch)
            alive.update(ledger_id for ledger_id in batch if ledger_id in in_log)
            progress.update(seen)
            if deadline is not None and time.monotonic() > deadline:
                raise CommandFailed(f"the list of ledgers took more than {args.timeout} ms (-timeout); {seen:,} read")
        progress.close()
        # As in the garbage collector: a ledger is not known to be deleted if a stray znode spells its id.
        alive.update(ledger_id for ledger_id in strays.ledger_ids if ledger_id in in_log)
        return alive

    strays = BadRecords()
    alive = with_store(args, use)
    if args.json:
        print_json({"path": path, "active": {ledger_id: in_log[ledger_id] for ledger_id in sorted(alive)},
                    "deleted": sorted(set(in_log) - alive)})  # fmt: skip
    else:
        print_table(("ledger", "bytes"), [(ledger_id, in_log[ledger_id]) for ledger_id in sorted(alive)])
    live, total = sum(in_log[ledger_id] for ledger_id in alive), sum(in_log.values())
    share = f", {100 * live / total:.1f}% of its bytes" if total else ""
    note(f"{path}: {counted(len(alive), 'active ledger')} of {len(in_log):,}{share}")
    return end_partial(strays)


ACTIVELEDGERS = ShellCommand("--conf bk_server.conf activeledgers -l 7", _arguments, _active)
