"""Shell commands that write another bookie id into ledgers: updateledgers (after updatecookie), updateBookieInLedger.

No copy is made: the bookie under the new id must have the disks of the one under the old id.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

from bookkeeper.cli.shell.base import ShellCommand, with_store_and_clock
from bookkeeper.cli.shell.updatecookie import HOSTNAME, IP, forms
from bookkeeper.client.metadata_update import pause, update_metadata
from bookkeeper.client.parallel import Lanes
from bookkeeper.console.connection import store_settings
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    counted,
    end_partial,
    note,
    print_json,
)
from bookkeeper.console.subcommands import at_least
from bookkeeper.errors import BookKeeperError, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LedgerId
from bookkeeper.ports import Clock
from bookkeeper.protocol.transitions import rename_member

FAILURES_TOLD_MAX = 20


def _pace_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "-updatespersec", "--updatespersec", type=at_least(1), default=5, metavar="N",
                        help="ledgers changed per second (default: %(default)s)")  # fmt: skip
    parser.add_argument("-r", "-maxOutstandingReads", "--maxOutstandingReads", type=at_least(1), metavar="N",
                        dest="reads", help="ledgers looked at at a time (default: 5 times -updatespersec)")  # fmt: skip
    parser.add_argument("-l", "-limit", "--limit", type=at_least(1), metavar="N",
                        help="ledgers to change at most (default: all)")  # fmt: skip
    parser.add_argument("-p", "-printprogress", "--printprogress", type=at_least(1), default=10, metavar="SECONDS",
                        help="between lines of progress where there is no terminal (default: %(default)s)")  # fmt: skip


def _updateledgers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Have the ledgers name the bookie of --conf by its host name, or by its address. First: updatecookie -bookieId ..."""
    parser.add_argument("-b", "-bookieId", "--bookieId", choices=(HOSTNAME, IP), dest="form", required=True,
                        help="the form of the id in ledgers from now on (required)")  # fmt: skip
    _pace_arguments(parser)


def _updatebookie_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Have the ledgers name a bookie by another id, for one that moved. No copy is made: the bookie of the new id must have
the disks of the old one."""
    parser.add_argument("-sb", "-srcBookie", "--srcBookie", type=BookieId, required=True, metavar="ID",
                        help="the id that ledgers name now (required)")  # fmt: skip
    parser.add_argument("-db", "-destBookie", "--destBookie", type=BookieId, required=True, metavar="ID",
                        help="the id that they are to name (required)")  # fmt: skip
    _pace_arguments(parser)


@dataclass(slots=True)
class _Renaming:
    """What was done so far."""

    looked_at: int = 0
    changed: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    strays: BadRecords = field(default_factory=BadRecords)


class _LedgerNames:
    """Rename a bookie in every ledger that names it, at a rate."""

    def __init__(self, args: argparse.Namespace, store: MetadataStore, clock: Clock, old: BookieId, new: BookieId):
        self._store, self._clock, self._old, self._new = store, clock, old, new
        self._interval_s = 1 / args.updatespersec
        self._limit = args.limit
        self._reads = args.reads or 5 * args.updatespersec
        self._next = clock.seconds()
        self._begun = 0
        self._progress = Progress("ledgers looked at", lines_every_s=args.printprogress)
        self.done = _Renaming()

    async def run(self) -> _Renaming:
        """All of them, or as many as the limit says."""
        lanes = Lanes(self._reads)
        try:
            async for batch in self._store.ledgers.ids(self.done.strays):
                for ledger_id in batch:
                    if self._is_enough:
                        break
                    await lanes.begin(self._one(ledger_id))
                if self._is_enough:
                    break
            await lanes.drained()
        finally:
            lanes.cancel()
        self._progress.finish(self.done.looked_at)
        return self.done

    @property
    def _is_enough(self) -> bool:
        return self._limit is not None and self._begun >= self._limit

    async def _one(self, ledger_id: LedgerId) -> None:
        try:
            await self._rename(ledger_id)
        except NoSuchLedger:
            pass  # deleted meanwhile
        except BookKeeperError as error:
            self.done.failures[ledger_id] = str(error)
        self.done.looked_at += 1
        self._progress.update(self.done.looked_at)

    async def _rename(self, ledger_id: LedgerId) -> None:
        current = await self._store.ledgers.read(ledger_id)
        if not any(self._old in fragment.ensemble for fragment in current.value.fragments) or self._is_enough:
            return
        self._begun += 1
        now = self._clock.seconds()
        self._next = max(now, self._next + self._interval_s)
        if self._next > now:
            await pause(self._clock, self._next - now)
        await update_metadata(
            self._store,
            self._clock,
            ledger_id,
            current,
            lambda metadata: rename_member(metadata, ledger_id=ledger_id, old=self._old, new=self._new),
        )
        self.done.changed += 1


def _run(args: argparse.Namespace, old: BookieId, new: BookieId) -> int:
    uri = store_settings(args).metadata_service_uri

    async def use(store: MetadataStore, clock: Clock) -> _Renaming:
        if await store.registration.is_registered(old):
            raise CommandFailed(
                f"bookie {old} is registered: it serves under that id, so it is not the one that moved to {new}"
            )
        if await store.cookies.read(new) is None:
            raise CommandFailed(
                f"bookie {new} has no cookie at {uri}: ledgers must name bookies that are there. Rename the bookie "
                "first (updatecookie), or start it under its new id"
            )
        return await _LedgerNames(args, store, clock, old, new).run()

    started = time.monotonic()
    done = with_store_and_clock(args, use)
    if args.json:
        print_json({"looked_at": done.looked_at, "changed": done.changed, "failures": done.failures})
    for ledger_id, why in list(done.failures.items())[:FAILURES_TOLD_MAX]:
        note(f"ledger {ledger_id}: not changed: {why}")
    note(
        f"{counted(done.changed, 'ledger')} of {done.looked_at:,} named {old} and name {new} now, "
        f"{counted(len(done.failures), 'failure')}, {time.monotonic() - started:.1f} s"
    )
    partial = end_partial(done.strays)
    return EXIT_FAILURE if done.failures else partial


def _updateledgers(args: argparse.Namespace) -> int:
    old_id, new_id = forms(args)
    return _run(args, old_id, new_id)


def _updatebookie(args: argparse.Namespace) -> int:
    if args.srcBookie == args.destBookie:
        raise CommandFailed(f"-srcBookie and -destBookie are both {args.srcBookie}", EXIT_USAGE)
    return _run(args, args.srcBookie, args.destBookie)


UPDATELEDGERS = ShellCommand("--conf bk_server.conf updateledgers -bookieId hostname", _updateledgers_arguments,
                             _updateledgers)  # fmt: skip
UPDATEBOOKIEINLEDGER = ShellCommand(
    "updateBookieInLedger -sb 10.0.0.1:3181 -db 10.0.0.9:3181", _updatebookie_arguments, _updatebookie
)
