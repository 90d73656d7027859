"""Many small ledgers, the loss of one of their bookies, and the time until every copy is there again.

    write      ledgers that all have the victim as a member, each place of the ensemble in turn
    lose       the victim is killed; from then on the marks of under-replicated ledgers are watched
    verify     no ledger names the victim; each member has all entries of its share; all entries are what was written

Who repairs is not known here: our auto-recovery, or a genuine one in a comparison.

Thread: these run on the reactor of `with_client` and `with_store_and_clock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore, FirstError, gatherResults

from bookkeeper.cli.output import CommandFailed, Progress
from bookkeeper.cli.perf.churn_ledgers import Payloads
from bookkeeper.cli.perf.worker import Replication
from bookkeeper.metadata.outcome import pause
from bookkeeper.model import BookieId, DigestType, LedgerId
from bookkeeper.protocol.schedule import holds

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import MetadataStore
    from bookkeeper.ports import Clock

CONCURRENT_MAX = 64
"""Ledgers written, or looked up, at once."""

VERIFIED_AT_ONCE = 4
"""A bookie lists the entries of no more ledgers at a time, and refuses the others."""

LOOK_INTERVAL_S = 0.25

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DamagePlan:
    """What is damaged: so many ledgers with so many entries each."""

    ledgers: int
    entries: int
    entry_size: int
    replication: Replication

    def ensemble(self, number: int, victim: str, others: Sequence[str]) -> list[str]:
        """Of one ledger: the victim at another place each time, the others in turn."""
        size = self.replication.ensemble
        members = [others[(number + each) % len(others)] for each in range(size - 1)]
        members.insert(number % size, victim)
        return members

    def copies_on(self, place: int) -> int:
        """Entries of a ledger that the member at this place of the ensemble holds."""
        size, copies = self.replication.ensemble, self.replication.write_quorum
        return sum(holds(place, entry_id, size, copies) for entry_id in range(self.entries))

    @property
    def lost_copies(self) -> int:
        """On the victim, over all ledgers."""
        each = [self.copies_on(place) for place in range(self.replication.ensemble)]
        return sum(each[number % len(each)] for number in range(self.ledgers))


@dataclass(frozen=True, slots=True)
class Healing:
    """Seconds after the loss: until the first ledger was marked as under-replicated, and until none was."""

    marked_s: float
    healed_s: float

    @property
    def repair_s(self) -> float:
        """Of the repair itself, without the time in which nobody could know."""
        return max(1e-9, self.healed_s - self.marked_s)


async def write_ledgers(client: LedgerClient, plan: DamagePlan, victim: str, others: Sequence[str]) -> list[int]:
    """Their ids."""
    payloads, progress = Payloads(plan.entry_size), Progress("writing ledgers", plan.ledgers, lines_every_s=10.0)
    ledger_ids: list[int] = []

    async def write(number: int) -> None:
        replication = plan.replication
        handle = await client.create(
            ensemble=replication.ensemble,
            write_quorum=replication.write_quorum,
            ack_quorum=replication.ack_quorum,
            digest=DigestType[replication.digest],
            bookies=plan.ensemble(number, victim, others),
        )
        ledger_id = int(handle.ledger_id)
        await handle.append_many([payloads.of(ledger_id, entry_id) for entry_id in range(plan.entries)])
        await handle.close()
        ledger_ids.append(ledger_id)
        progress.update(len(ledger_ids))

    await _each(range(plan.ledgers), write)
    progress.close()
    return ledger_ids


async def await_healing(
    store: MetadataStore,
    clock: Clock,
    ledger_ids: Sequence[int],
    victim: str,
    *,
    lost_s: float,
    limit_s: float,
    copied: Callable[[], tuple[int, int]] | None,
) -> Healing:
    """Return once none of these ledgers is marked or names the victim. Others, of a load that goes on, do not matter:
    one that is being written is left to its writer for a while.

    lost_s: of the loss, as time.monotonic has it. copied: entries and bytes that were copied by now, where somebody can
    tell. Raises CommandFailed after `limit_s`.
    """
    marked_s: float | None = None
    ours = frozenset(ledger_ids)
    progress = Progress("repaired ledgers", len(ledger_ids), lines_every_s=5.0)
    while True:
        left = sum([len(ours.intersection(batch)) async for batch in store.underreplication.ids()])
        now_s = time.monotonic() - lost_s
        if left and marked_s is None:
            marked_s = now_s
        if marked_s is not None and not left and not await _any_names(store, ledger_ids, victim):
            progress.close()
            return Healing(marked_s, now_s)
        if now_s > limit_s:
            state = "none was ever marked" if marked_s is None else f"{left:,} are left"
            raise CommandFailed(f"the ledgers are not whole {limit_s:g} s after the loss of {victim}: {state}")
        _show(progress, len(ledger_ids) - left, left, now_s, marked_s, copied)
        await pause(clock, LOOK_INTERVAL_S)


def _show(
    progress: Progress,
    done: int,
    left: int,
    now_s: float,
    marked_s: float | None,
    copied: Callable[[], tuple[int, int]] | None,
) -> None:
    if marked_s is None:
        progress.update(0, "the auditor to find the loss")
        return
    text = f"{left:,} marked"
    if copied is not None:
        took_s = max(now_s - marked_s, 1e-9)
        entries, size = copied()
        text += f", {entries / took_s:,.0f} entries/s, {size / took_s / 1e6:,.1f} MB/s"
    progress.update(max(0, done), besides=text)


async def _any_names(store: MetadataStore, ledger_ids: Iterable[int], bookie_id: str) -> bool:
    found = False

    async def look(ledger_id: int) -> None:
        nonlocal found
        if not found:
            metadata = (await store.ledgers.read(LedgerId(ledger_id))).value
            found |= any(bookie_id in fragment.ensemble for fragment in metadata.fragments)

    await _each(ledger_ids, look)
    return found


async def verify_ledgers(
    client: LedgerClient, plan: DamagePlan, ledger_ids: Sequence[int], victim: str
) -> tuple[int, list[str]]:
    """How many entries were read as written, and what is wrong: one line a ledger."""
    payloads, progress = Payloads(plan.entry_size), Progress("verifying ledgers", len(ledger_ids), lines_every_s=10.0)
    good = done = 0
    faults: list[str] = []

    async def check(ledger_id: int) -> None:
        nonlocal good, done
        reader = await client.open_without_recovery(ledger_id)
        wrong = await _wrong_copies(client, reader.metadata.fragments, plan, ledger_id, victim)
        found = await reader.read(0, plan.entries - 1) if plan.entries else []
        read = sum(entry.payload == payloads.of(ledger_id, entry.entry_id) for entry in found)
        if read != plan.entries:
            wrong.append(f"{read} of {plan.entries} entries are what was written")
        if wrong:
            faults.append(f"ledger {ledger_id}: {'; '.join(wrong)}")
        good, done = good + read, done + 1
        progress.update(done)

    await _each(ledger_ids, check, VERIFIED_AT_ONCE)
    progress.close()
    return good, faults


async def _wrong_copies(
    client: LedgerClient, fragments: Sequence[Any], plan: DamagePlan, ledger_id: int, victim: str
) -> list[str]:
    """What members of a closed ledger of one fragment lack."""
    size, copies = plan.replication.ensemble, plan.replication.write_quorum
    if len(fragments) != 1:
        return [f"it has {len(fragments)} fragments"]
    wrong = []
    for place, bookie_id in enumerate(fragments[0].ensemble):
        if bookie_id == victim:
            wrong.append(f"{victim} is still a member")
            continue
        held = {entry_id for each in await client.list_entries(ledger_id, BookieId(bookie_id)) for entry_id in each}
        wanted = {entry_id for entry_id in range(plan.entries) if holds(place, entry_id, size, copies)}
        if not wanted <= held:
            wrong.append(f"{bookie_id} lacks {len(wanted - held)} of {len(wanted)} entries")
    return wrong


async def _each(
    items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]], at_once: int = CONCURRENT_MAX
) -> None:
    """All of them, a few at once; the first error ends it."""
    places = DeferredSemaphore(at_once)

    def begin(item: T) -> Deferred[None]:
        return Deferred.fromCoroutine(work(item))

    try:
        await gatherResults([places.run(begin, item) for item in items], consumeErrors=True)
    except FirstError as error:
        cause = error.subFailure.value
        assert cause is not None
        raise cause from error
