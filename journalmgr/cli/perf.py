"""Measure a journal: synced edits a second, replay, how long a failover takes, and what the loss of a bookie does.

Without a journal a cluster of its own is started and removed afterwards; `file:///DIRECTORY` measures files.

examples:
  journalmgr perf sync                                       1, 16 and 128 callers on a cluster of its own
  journalmgr perf sync 'bookkeeper://127.0.0.1:2181/perf' --callers 1,16,128,512 --seconds 10
  journalmgr perf replay --transactions 500000
  journalmgr perf failover --kills 50                        kill -9 and SIGSTOP of the active under load, checked
  journalmgr perf writers --writers 3 --bookies 5            as many journals at once; a bookie is killed meanwhile
  journalmgr perf all --json

A journal that is named is formatted, so it must be an empty one, or --force says that it may go.
Figures of a busy machine mean nothing; quote ratios within one run.

exit codes: 0 ok, 1 failure (of `failover` and `writers` too: an edit lost or doubled), 2 usage, 130 stopped by Ctrl-C
or SIGTERM
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkeeper.console.output import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    note,
    print_json,
    print_table,
)
from bookkeeper.console.subcommands import at_least
from bookkeeper.console.supervision import stopping_on_signals
from journalmgr.cli.session import Session, add_journal_argument, add_settings_arguments, session

if TYPE_CHECKING:
    from journalmgr.contract import JournalManager
    from journalmgr.model import NamespaceInfo

BOOKIES = 3
SERVERS = 2
DRILL_BOOKIES = 4
WRITERS = 3
WRITERS_BOOKIES = 5
CALLERS = "1,16,128"
RECORD_SIZE = 95
"""Of what is compared with HDFS's own journals: a MKDIR of a short path."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `journalmgr perf`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    sync = actions.add_parser("sync", help="synced edits a second by callers")
    replaying = actions.add_parser("replay", help="reading a journal from its beginning")
    failover = actions.add_parser("failover", help="kill the active server under load, and check what is left")
    writers = actions.add_parser("writers", help="several journals at once, and a bookie killed meanwhile; checked")
    everything = actions.add_parser("all", help="all of it, on a cluster of its own")
    for action in (sync, replaying):
        add_journal_argument(action)
        action.add_argument("--force", action="store_true", help="destroy what is in the journal")
    for action in (writers, everything):
        action.add_argument("--writers", type=at_least(1), default=WRITERS, metavar="N",
                            help="journals that are written at once (default: %(default)s)")  # fmt: skip
        action.add_argument("--writer-callers", type=at_least(1), default=16, metavar="N",
                            help="of each of these (default: %(default)s)")  # fmt: skip
    for action in (sync, everything):
        action.add_argument("--callers", type=_numbers, default=_numbers(CALLERS), metavar="N,N",
                            help=f"concurrent callers (default: {CALLERS})")  # fmt: skip
    for action in (sync, writers, everything):
        action.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: %(default)g)")
        action.add_argument("--size", type=at_least(0), default=RECORD_SIZE, metavar="BYTES",
                            help="of a record, 17 of them its frame (default: %(default)s)")  # fmt: skip
    for action in (replaying, everything):
        action.add_argument("--transactions", type=at_least(1), default=200_000, metavar="N",
                            help="in each journal that is replayed (default: %(default)s)")  # fmt: skip
    for action in (failover, everything):
        action.add_argument("--kills", type=at_least(1), default=10, metavar="N",
                            help="of the active (default: %(default)s)")  # fmt: skip
        action.add_argument("--stop-share", type=float, default=0.3, metavar="SHARE",
                            help="of them by SIGSTOP, SIGCONT after the failover (default: %(default)g)")  # fmt: skip
        action.add_argument("--servers", type=at_least(2), default=SERVERS, metavar="N",
                            help="metadata servers (default: %(default)s)")  # fmt: skip
        action.add_argument("--load-callers", type=at_least(1), default=2, metavar="N",
                            help="that write all the time (default: %(default)s)")  # fmt: skip
    for action, count in (
        (sync, str(BOOKIES)),
        (replaying, str(BOOKIES)),
        (failover, str(DRILL_BOOKIES)),
        (writers, str(WRITERS_BOOKIES)),
        (everything, f"{BOOKIES}; {DRILL_BOOKIES} for failovers, {WRITERS_BOOKIES} for the loss of one"),
    ):
        action.add_argument("--bookies", type=at_least(1), metavar="N", help=f"of its own cluster (default: {count})")
        add_settings_arguments(action)


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: want whole numbers from 1 on, separated by commas")
    return numbers


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    found: dict[str, Any] = {}
    with stopping_on_signals(EXIT_INTERRUPTED):
        if args.action in ("sync", "all"):
            found["sync"] = _sync(args)
        if args.action in ("replay", "all"):
            found["replay"] = _replay(args)
        if args.action in ("failover", "all"):
            found["failover"] = failover(args)
        if args.action in ("writers", "all"):
            found["writers"] = _writers(args)
    if args.json:
        print_json(found)
        return EXIT_OK
    for name, result in found.items():
        rows = result if isinstance(result, list) else [result]
        print(f"{name}:")
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    return EXIT_OK


# --- where


@contextlib.contextmanager
def _journals(args: argparse.Namespace, commands: Session) -> Iterator[str]:
    """The journal that is named, or the root of journals in a cluster of its own."""
    if getattr(args, "journal", None):
        yield args.journal
        return
    from bookkeeper.embedded.cluster import LocalCluster

    with LocalCluster(args.bookies or BOOKIES) as cluster:
        note(f"A cluster of its own: ZooKeeper and {args.bookies or BOOKIES} bookies in {cluster.directory}")
        yield f"bookkeeper://{_zookeeper(cluster)}/perf"


def _zookeeper(cluster: Any) -> str:
    return str(cluster.uri.partition("://")[2].partition("/")[0])


def _namespace() -> NamespaceInfo:
    from journalmgr.model import NamespaceInfo

    return NamespaceInfo(1, "CID-perf", "BP-perf")


def _formatted(commands: Session, uri: str, *, force: bool) -> JournalManager:
    from journalmgr.errors import HasData

    journal = commands.open(uri, _namespace())
    try:
        commands.call(lambda: journal.format(_namespace(), force=force))
    except HasData as error:
        raise CommandFailed(f"{error}; name an empty one, or say --force", EXIT_USAGE) from error
    return journal


# --- what


def _sync(args: argparse.Namespace) -> list[dict[str, object]]:
    from journalmgr.cli.measure import measure_sync
    from journalmgr.edit_log import EditLog

    results = []
    with session(args) as commands, _journals(args, commands) as uri:
        journal = _formatted(commands, uri, force=getattr(args, "force", True))
        edit_log = EditLog(journal)
        commands.call(edit_log.recover)
        commands.call(lambda: edit_log.open(1))
        for callers in args.callers:
            result = commands.run(partial(measure_sync, edit_log, callers, args.size, args.seconds))
            note(f"{callers} callers: {result.per_s:,.0f} edits/s")
            results.append(result.to_json())
        commands.call(edit_log.close)
    return results


def _replay(args: argparse.Namespace) -> list[dict[str, object]]:
    from journalmgr.cli.measure import fill_hdfs, fill_opaque, measure_replay
    from journalmgr.namenode.namespace.tree import Namespace

    results = []
    force = getattr(args, "force", True)
    with session(args) as commands, _journals(args, commands) as uri:
        journal = _formatted(commands, uri, force=force)
        commands.run(lambda: fill_opaque(journal, args.transactions, RECORD_SIZE))
        results.append(commands.run(lambda: measure_replay(journal, "opaque transactions")))
        journal = _formatted(commands, uri, force=True)
        commands.run(lambda: fill_hdfs(journal, args.transactions))
        results.append(commands.run(lambda: measure_replay(journal, "HDFS operations, applied", Namespace())))
    return [result.to_json() for result in results]


def failover(args: argparse.Namespace) -> dict[str, object]:
    """Kill the active again and again under load; what was found. Raises CommandFailed where a promise broke."""
    from bookkeeper.embedded.cluster import LocalCluster
    from journalmgr.cli.drill import check_journal, run_drill
    from journalmgr.cli.servers import LocalServers
    from journalmgr.edits.codec import decode
    from journalmgr.edits.ops import Add
    from journalmgr.model import FIRST_TXID
    from journalmgr.replaying import replay

    progress = Progress("failovers", args.kills)
    with (
        session(args) as commands,
        LocalCluster(args.bookies or DRILL_BOOKIES) as cluster,
        tempfile.TemporaryDirectory(prefix="journalmgr-") as directory,
    ):
        uri = f"bookkeeper://{_zookeeper(cluster)}/drill"
        journal = _formatted(commands, uri, force=True)
        options = [word for define in args.defines for word in ("-D", define)]
        with LocalServers(args.servers, Path(directory), uri, options) as servers:
            drill = run_drill(
                servers,
                kills=args.kills,
                stop_share=args.stop_share,
                callers=args.load_callers,
                tell=lambda number, seconds: progress.update(number),
            )
        progress.close()
        created: Counter[str] = Counter()

        async def audit() -> None:
            await journal.recover_unfinalized()
            async for batch in replay(journal, FIRST_TXID):
                for record in batch.records:
                    op = decode(record, batch.segment.layout_version)
                    if isinstance(op, Add):
                        created[op.path] += 1

        commands.run(audit)
        check_journal(created, drill.acknowledged)
        timeout_s = commands.settings.ha_session_timeout_s
    return {
        "kills": drill.kills,
        "stops": drill.stops,
        "acknowledged": len(drill.acknowledged),
        "missing": 0,
        "doubled": 0,
        "election_timeout_s": timeout_s,
        "failover_s_median": round(drill.median_s, 3),
        "failover_s_most": round(max(drill.failovers_s, default=0.0), 3),
        "beyond_timeout_s_median": round(drill.median_s - timeout_s, 3),
        "seconds": round(drill.seconds, 1),
    }


def _writers(args: argparse.Namespace) -> list[dict[str, object]]:
    """Several journals on one cluster, a bookie killed in the middle. Raises CommandFailed where a promise broke."""
    from bookkeeper.embedded.cluster import LocalCluster
    from journalmgr.cli import bookie_loss
    from journalmgr.ledger import LedgerJournal

    with session(args) as commands, LocalCluster(args.bookies or WRITERS_BOOKIES) as cluster:
        uris = [f"bookkeeper://{_zookeeper(cluster)}/writer-{number}" for number in range(1, args.writers + 1)]
        opened = [_formatted(commands, uri, force=False) for uri in uris]
        journals = [journal for journal in opened if isinstance(journal, LedgerJournal)]
        writers = commands.run(lambda: bookie_loss.open_writers(journals))
        bookie_id = commands.run(lambda: bookie_loss.most_used_bookie(writers))
        (victim,) = (bookie for bookie in cluster.bookies if bookie.bookie_id == bookie_id)

        def kill() -> None:
            note(f"SIGKILL of bookie {bookie_id}, which holds segments of the most writers")
            victim.kill()

        losses = commands.run(
            lambda: bookie_loss.write_through(writers, args.writer_callers, args.size, args.seconds, kill)
        )
        readers = [commands.open(uri, _namespace()) for uri in uris]
        commands.run(lambda: bookie_loss.audit(writers, readers))
    return [loss.to_json() for loss in losses]
