"""Many small ledgers that lose one of their bookies, and whether every copy is there again.

    write      ledgers that all have the victim as a member, each place of the ensemble in turn
    lose       the victim is killed, and `healing` watches what becomes of them
    verify     no ledger names the victim; each member has all entries of its share; all entries are what was written

Who repairs is not known here: our auto-recovery, or a genuine one in a comparison.

Thread: these run on the reactor of `with_client`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

from bookkeeper.cli.perf.churn_ledgers import Payloads
from bookkeeper.cli.perf.worker import Replication
from bookkeeper.console.output import Progress
from bookkeeper.model import BookieId, DigestType
from bookkeeper.protocol.schedule import holds

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

CONCURRENT_MAX = 64
"""Ledgers written, or looked up, at once."""

VERIFIED_AT_ONCE = 4
"""A bookie lists the entries of no more ledgers at a time, and refuses the others."""

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

    await for_each(range(plan.ledgers), write)
    progress.close()
    return ledger_ids


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

    await for_each(ledger_ids, check, VERIFIED_AT_ONCE)
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


async def for_each(
    items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]], at_once: int = CONCURRENT_MAX
) -> None:
    """All of them, a few at once; after the first error, which is raised, no other is begun.

    Any number of them may be done as soon as they are begun: none begins inside another.
    """
    left = deque(items)

    async def take_turns() -> None:
        while left:
            try:
                await work(left.popleft())
            except BaseException:
                left.clear()
                raise

    turns = [Deferred.fromCoroutine(take_turns()) for _ in range(min(at_once, len(left)))]
    try:
        await gatherResults(turns, consumeErrors=True)
    except FirstError as error:
        cause = error.subFailure.value
        assert cause is not None
        raise cause from error
