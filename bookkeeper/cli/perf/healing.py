"""Watching a repair without loading what repairs: when it began, how far it is, and when the last ledger was whole.

    start   the first look that finds a mark; looks are 0.1 s apart until then
    end     the latest time, by the store's clock, at which the metadata of one of the ledgers was written: it no longer
            names the victim since. It is read when all is over, so it does not matter how seldom somebody looked
    between one listing of marks now and then, at most 2 % of a processor (`repair_sight`)

The store runs on this machine: its clock is ours, and is read as an age, so that a step of the clock during the repair
does not matter. Nothing is changed here, and no mark is read: not even a directory is tidied away.

Thread: the reactor of `with_store_and_clock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from bookkeeper.cli.perf.damage import for_each
from bookkeeper.cli.perf.repair_sight import RepairSight
from bookkeeper.clock import wall_ms
from bookkeeper.console.output import CommandFailed, Progress
from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata.ledgers.codec import parse_ledger
from bookkeeper.metadata.ledgers.paths import ledger_path
from bookkeeper.metadata.outcome import Errand, pause
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeAbsent
from bookkeeper.metadata.underreplication.mark_walk import walk_candidates

if TYPE_CHECKING:
    from bookkeeper.metadata.cluster.layout import LayoutKind
    from bookkeeper.metadata.znode_store import ZnodeStore
    from bookkeeper.ports import Clock

Copied = Callable[[], tuple[int, int]]
"""Entries and bytes copied by now, by whoever repairs."""


@dataclass(frozen=True, slots=True)
class Healing:
    """Seconds after the loss: until the first ledger was marked as under-replicated (at most 0.1 s and a look too
    late), and until the last one no longer named the victim (to the millisecond)."""

    marked_s: float
    healed_s: float

    @property
    def repair_s(self) -> float:
        """Of the repair itself, without the time in which nobody could know."""
        return max(1e-9, self.healed_s - self.marked_s)


async def await_healing(
    store: ZnodeStore,
    clock: Clock,
    ledger_ids: Sequence[int],
    victim: str,
    *,
    since_loss_s: Callable[[], float],
    limit_s: float,
    copied: Copied | None,
    now_ms: Callable[[], int] = wall_ms,
    used_s: Callable[[], float] = time.process_time,
) -> Healing:
    """Return once none of these ledgers names the victim. Others, of a load that goes on, do not matter: one that is
    being written is left to its writer for a while.

    since_loss_s: by a clock that only moves on. copied: where somebody can tell. now_ms: the store's clock, since 1970.
    used_s: processor time of whoever watches; what a look takes by the clock says more of those who repair.
    Raises CommandFailed after `limit_s`.
    """
    looks = _Looks(store, clock, (await store.ledgers.prepare()).kind, victim)
    sight = RepairSight(ledger_ids)
    progress = Progress("repaired ledgers", len(ledger_ids), lines_every_s=5.0)
    marked_s: float | None = None
    before_s = 0.0  # when the look before this one began
    while True:
        began_s, used_before_s = since_loss_s(), used_s()
        sight.on_listing(await looks.listed())
        if marked_s is None and sight.has_begun:
            marked_s = began_s
        await looks.read(sight)
        if marked_s is None and sight.has_begun:
            marked_s = before_s  # the first mark has come and gone since
        if marked_s is not None and sight.is_over:
            progress.close()
            return Healing(marked_s, since_loss_s() - (now_ms() - sight.healed_ms) / 1000)
        if began_s > limit_s:
            state = "none was ever marked" if marked_s is None else f"{len(ledger_ids) - sight.repaired:,} are left"
            raise CommandFailed(f"the ledgers are not whole {limit_s:g} s after the loss of {victim}: {state}")
        if progress.is_due:
            _show(progress, sight, None if marked_s is None else began_s - marked_s, copied)
        before_s = began_s
        await pause(clock, min(sight.pause_s(used_s() - used_before_s), max(0.0, limit_s - began_s) + 0.1))


def _show(progress: Progress, sight: RepairSight, took_s: float | None, copied: Copied | None) -> None:
    if took_s is None:
        progress.update(0, "the auditor to find the loss")
        return
    text = f"{sight.marked:,} marked"
    if sight.unmarked:
        text += f", {sight.unmarked:,} not seen marked yet"
    if copied is not None:
        entries, size = copied()
        text += f", {entries / max(took_s, 1e-9):,.0f} entries/s, {size / max(took_s, 1e-9) / 1e6:,.1f} MB/s"
    progress.update(sight.repaired, besides=text)


class _Looks:
    """What is read of the cluster, and how."""

    def __init__(self, store: ZnodeStore, clock: Clock, kind: LayoutKind, victim: str) -> None:
        self._store = store
        self._clock = clock
        self._kind = kind
        self._victim = victim
        self._order = Random(0)  # of the directories of marks; any will do

    async def listed(self) -> set[int]:
        """Ledgers that have a directory for a mark: a request for each of the directories above."""
        base = f"{self._store.root}/underreplication/ledgers"
        walk = walk_candidates(self._errand, base, self._order, lambda _directory, _count: None, None)
        return {ledger_id async for batch in walk for ledger_id in batch}

    async def read(self, sight: RepairSight) -> None:
        """Tell the sight which are whole; nothing further is asked once one is not."""
        damaged = False

        async def look(ledger_id: int) -> None:
            nonlocal damaged
            if damaged:
                return
            path = self._store.root + ledger_path(self._kind, ledger_id)
            try:
                data, stat = await self._errand().read(path)
            except NodeAbsent as error:
                raise NoSuchLedger(f"ledger {ledger_id} is gone while its repair is awaited ({path})") from error
            if any(self._victim in fragment.ensemble for fragment in parse_ledger(data, path).fragments):
                damaged = True
            else:
                sight.on_whole(ledger_id, stat.modified_ms)

        await for_each(sight.to_read(), look)

    def _errand(self) -> Errand:
        return Errand(self._store.tree, self._clock, MetadataSettings(), "watch a repair")
