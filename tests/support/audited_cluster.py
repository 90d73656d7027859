"""A simulated cluster's metadata with bookies that come and go, ledgers, and auditors that look after them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.config.auditor import AuditorSettings
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.memory.store import MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metrics import Metrics
from bookkeeper.model import (
    BookieId,
    BookieMode,
    BookieServiceInfo,
    Endpoint,
    EntryId,
    Fragment,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Versioned,
)
from bookkeeper.replication.audit.auditor import Auditor
from bookkeeper.replication.audit.jobs import Placement
from bookkeeper.replication.copies.fragments import fragments_of
from bookkeeper.replication.copies.verdicts import CopyVerdict, FragmentVerdict, Standing
from tests.support.simulated_clock import SimulatedClock

WALL_MS = 1_700_000_000_000
"""Milliseconds since 1970 at the simulated second 0."""

SETTINGS = MetadataSettings(session_timeout_s=6.0, operation_timeout_s=15.0)


def bookie(name: str) -> BookieId:
    """`bookie-a:3181`."""
    return BookieId(f"bookie-{name}:3181")


@dataclass(slots=True)
class Copies:
    """What bookies answer to an auditor: all is well but for what is noted here.

    bad: (ledger, bookie) -> standing of its copies. held: (ledger, bookie) -> what it lists; else everything.
    fail: ledgers whose check fails, and how. asked: ledgers checked so far. busiest: most of them at once.
    """

    bad: dict[tuple[int, BookieId], Standing] = field(default_factory=dict)
    held: dict[tuple[int, BookieId], list[range] | Exception] = field(default_factory=dict)
    fail: dict[int, Exception] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    before: list[Callable[[int], object]] = field(default_factory=list)
    takes_s: float = 0.0
    busy: int = 0
    busiest: int = 0


class AuditedCluster:
    """See the module. Bookies named by letters; `ledger("abc")` is one on three of them."""

    def __init__(self, letters: str = "abcd") -> None:
        self.clock = SimulatedClock()
        self.wall_ahead_s = 0.0
        """Seconds by which the auditors' date was set forward; negative: back."""
        self.shared = MemoryMetadata(clock=self.clock)
        self.truth = MemoryMetadataStore(self.shared, self.clock, random.Random(1), settings=SETTINGS)
        self.bookies: dict[str, MemoryMetadataStore] = {}
        self.copies = Copies()
        self.metrics = Metrics()
        for letter in letters:
            self.run(self.truth.cookies.write(bookie(letter), b"4\n", None))
            self.start(letter)

    # --- time

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """The result, however long it takes."""
        outcome: list[Any] = []

        async def wait() -> Any:
            return await awaitable

        Deferred.fromCoroutine(wait()).addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=3600.0), "nothing more happens"
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run_until(lambda: False, seconds=seconds)

    def until(self, condition: Callable[[], bool], seconds: float = 300.0) -> None:
        """Let time pass until it holds."""
        assert self.clock.run_until(condition, seconds=seconds), f"not within {seconds:g} s"

    # --- bookies and ledgers

    def start(self, letter: str, mode: BookieMode = BookieMode.WRITABLE) -> None:
        """It registers."""
        store = MemoryMetadataStore(self.shared, self.clock, random.Random(letter), settings=SETTINGS)
        info = BookieServiceInfo((Endpoint("bookie", f"bookie-{letter}", 3181, "bookie-rpc"),))
        self.run(store.registration.register(bookie(letter), info, mode))
        self.bookies[letter] = store

    def stop(self, letter: str) -> None:
        """Its registration goes."""
        self.run(self.bookies.pop(letter).close())

    def ledger(self, *ensembles: str, closed: bool = True, ledger_id: int | None = None) -> LedgerId:
        """A ledger of ten entries per fragment, each on these bookies."""
        fragments = tuple(
            Fragment(EntryId(10 * number), tuple(bookie(letter) for letter in ensemble))
            for number, ensemble in enumerate(ensembles)
        )
        size = len(ensembles[0])
        metadata = LedgerMetadata(
            ensemble_size=size,
            write_quorum=size,
            ack_quorum=max(1, size - 1),
            fragments=fragments,
            state=LedgerState.CLOSED if closed else LedgerState.OPEN,
            last_entry_id=EntryId(10 * len(ensembles) - 1) if closed else None,
            length=100 if closed else None,
        )
        chosen = None if ledger_id is None else LedgerId(ledger_id)
        created, _ = self.run(self.truth.ledgers.create(metadata, chosen))
        return LedgerId(created)

    def marks(self) -> dict[int, set[BookieId]]:
        """What is marked: ledger -> missing bookies."""

        async def read() -> dict[int, set[BookieId]]:
            found = {}
            async for batch in self.truth.underreplication.ids(BadRecords()):
                for ledger_id in batch:
                    mark = await self.truth.underreplication.read(ledger_id)
                    assert mark is not None
                    found[int(ledger_id)] = set(mark.missing)
            return found

        return dict(self.run(read()))

    # --- auditors

    def store(self, name: str, faults: MemoryFaults | None = None) -> MemoryMetadataStore:
        """A connection for an auditor."""
        return MemoryMetadataStore(self.shared, self.clock, random.Random(name), faults, settings=SETTINGS)

    def auditor(self, store: MemoryMetadataStore, name: str = "x", **settings: Any) -> Auditor:
        """An auditor that is not started. All intervals are 0, and the delay is, unless `settings` say else."""
        none: dict[str, Any] = {
            "auditor_bookie_check_interval_s": 0.0,
            "auditor_ledger_check_interval_s": 0.0,
            "auditor_ledgers_in_flight_max": 10,
        }
        return Auditor(
            store,
            self.clock,
            AuditorSettings(**(none | settings)),
            bookie(name),
            check=lambda ledger_id, metadata: self._check(ledger_id, metadata, store),
            list_entries=self._list,
            placement=Placement(lambda bookie_id: f"/rack-{bookie_id}", 2),
            wall_ms=lambda: WALL_MS + int((self.clock.seconds() + self.wall_ahead_s) * 1000),
            metrics=self.metrics,
        )

    async def _check(
        self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata], store: MemoryMetadataStore
    ) -> list[FragmentVerdict]:
        copies = self.copies
        copies.asked.append(ledger_id)
        copies.busy += 1
        copies.busiest = max(copies.busiest, copies.busy)
        try:
            for call in copies.before:
                call(ledger_id)
            if copies.takes_s:
                waiting: Deferred[None] = Deferred()
                self.clock.callLater(copies.takes_s, lambda: None if waiting.called else waiting.callback(None))
                await waiting
            if ledger_id in copies.fail:
                raise copies.fail[ledger_id]
            there = await store.bookies.current()
            registered = {*there.writable, *there.read_only}
            return [
                FragmentVerdict(
                    fragment,
                    tuple(
                        CopyVerdict(
                            index,
                            bookie_id,
                            copies.bad.get((ledger_id, bookie_id), Standing.PRESENT)
                            if bookie_id in registered
                            else Standing.GONE,
                            fragment.first_entry_id,
                        )
                        for index, bookie_id in enumerate(fragment.ensemble)
                    ),
                )
                for fragment in fragments_of(metadata.value, 10**6)
            ]
        finally:
            copies.busy -= 1

    async def _list(self, ledger_id: LedgerId, bookie_id: BookieId) -> list[range]:
        held = self.copies.held.get((ledger_id, bookie_id), [range(10**6)])
        if isinstance(held, Exception):
            raise held
        return held
