"""Shell commands that write and read to see whether a cluster or a bookie works."""

from __future__ import annotations

import argparse
import time

from bookkeeper.cli.shell.base import ShellCommand, connect
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.console.ledger_options import ACK_QUORUM_DEFAULT, ENSEMBLE, QUORUM_DEFAULT, quorums_of
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, Progress, entries
from bookkeeper.console.subcommands import at_least
from bookkeeper.model import BookieId

PASSWORD = b"simpletest"
BATCH = 1000


def _simpletest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-e", "-ensemble", "--ensemble", type=int, default=ENSEMBLE, metavar="N", help="bookies (default: %(default)s)"
    )
    parser.add_argument(
        "-w", "-writeQuorum", "--writeQuorum", type=int, metavar="N", help=f"copies (default: {QUORUM_DEFAULT})"
    )
    parser.add_argument("-a", "-ackQuorum", "--ackQuorum", type=int, metavar="N",
                        help=f"copies to wait for (default: {ACK_QUORUM_DEFAULT})")  # fmt: skip
    parser.add_argument(
        "-n",
        "-numEntries",
        "--numEntries",
        type=at_least(1),
        default=1000,
        metavar="N",
        help="entries (default: %(default)s)",
    )


def _simpletest(args: argparse.Namespace) -> int:
    count = args.numEntries
    quorums = quorums_of(args.ensemble, args.writeQuorum, args.ackQuorum)
    started = time.perf_counter()
    with connect(args) as client:
        progress = Progress("entries written", count)
        with client.create(
            ensemble=quorums.ensemble, write_quorum=quorums.write, ack_quorum=quorums.ack, password=PASSWORD
        ) as ledger:
            for first in range(0, count, BATCH):
                ledger.append_many([_payload(number) for number in range(first, min(count, first + BATCH))])
                progress.update(first)
        progress.close()
        _read_back(client, ledger.id, count)
        client.delete(ledger.id)
    print(f"{entries(count)} written to ledger {ledger.id} and read back in {time.perf_counter() - started:.2f} s")
    return EXIT_OK


def _payload(number: int) -> bytes:
    return b"entry-%d" % number


def _read_back(client: BlockingBookKeeper, ledger_id: int, count: int) -> None:
    with client.open(ledger_id, password=PASSWORD) as ledger:
        if ledger.last_add_confirmed != count - 1:
            raise CommandFailed(f"ledger {ledger_id} ends at entry {ledger.last_add_confirmed}, wrote {entries(count)}")
        for entry in ledger.entries():
            if entry.payload != _payload(entry.entry_id):
                raise CommandFailed(f"entry {entry.entry_id} of ledger {ledger_id} came back as {entry.payload!r}")


def _bookiesanity_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-e", "-entries", "--entries", type=at_least(1), default=10, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument("-t", "-timeout", "--timeout", type=float, default=1.0, metavar="SECONDS",
                        help="for a write or a read (default: %(default)g)")  # fmt: skip
    parser.add_argument("-b", "-bookie", "--bookie", metavar="ID", help="bookie to test (default: the conf file's)")


def _bookiesanity(args: argparse.Namespace) -> int:
    from bookkeeper.cli.shell.local import NO_CONF, configured_bookie_id

    if args.bookie is None and args.conf is None:
        raise CommandFailed(f"{NO_CONF}; or after it, its id (-b HOST:PORT)", EXIT_USAGE)
    bookie_id = BookieId(args.bookie or configured_bookie_id(args))
    timeout = f"{args.timeout:g}"
    # No other bookie may step in for this one, or its failure would go unnoticed.
    changes = {"maxNumEnsembleChanges": "0", "addEntryTimeoutSec": timeout, "readEntryTimeoutSec": timeout}
    with connect(args, changes) as client:
        if bookie_id not in client.available_bookies().writable:
            raise CommandFailed(f"bookie {bookie_id} is not registered as writable; `listbookies -a` shows its state")
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=PASSWORD, bookies=[bookie_id]) as ledger:
            ledger.append_many([_payload(number) for number in range(args.entries)])
        _read_back(client, ledger.id, args.entries)
        client.delete(ledger.id)
    print(f"bookie {bookie_id} wrote and returned {entries(args.entries)}")
    return EXIT_OK


SIMPLETEST = ShellCommand("simpletest -e 3 -w 2 -a 2 -n 100", _simpletest_arguments, _simpletest)
BOOKIESANITY = ShellCommand("bookiesanity -b 127.0.0.1:3181", _bookiesanity_arguments, _bookiesanity)
