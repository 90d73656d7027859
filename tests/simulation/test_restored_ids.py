"""A new ledger never shows entries that an earlier ledger of its id left on a bookie, even if that bookie is late.

Method: the real client over bookies that overwrite entries, as Apache's do, and hold entries of earlier ledgers with
the digest type and password of the new ones. Members crash during writes, and bookies with old entries come back late.
Every reader (while the ledger is open, after its writer closed it, after a recovery, after re-replication) is compared
with what the writer appended. A planted bug shows that the check can fail.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from unittest import mock

import pytest
from twisted.internet.defer import succeed

from bookkeeper.client.write import ensemble_change, new_ledger
from bookkeeper.client.write.occupancy import Finding, Occupancy
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError, LedgerExists, LedgerIdOccupied, NotEnoughBookies
from bookkeeper.model import DigestType, LedgerId
from bookkeeper.replication.copies import target_check
from bookkeeper.wire.digest import digest_of
from tests.support.damaged_ledgers import Repairs
from tests.support.fake_bookie import FakeBookie, FakeCluster

SETTINGS = ClientSettings(add_timeout_s=1.0, read_timeout_s=1.0, explicit_lac_interval_s=0.0)
EARLIER_IDS = 12
ENTRIES = 40


def _leave_entries(bookie: FakeBookie, ledger_id: int, count: int) -> None:
    """Store entries of an earlier ledger with the new one's digest type and password, so that adds are accepted."""
    payloads = [b"old %d" % entry_id for entry_id in range(count)]
    bodies, _ = digest_of(DigestType.CRC32C, b"").package(ledger_id, 0, count - 2, 0, payloads)
    bookie.entries[ledger_id] = dict(enumerate(bodies))


class _Run:
    """A cluster after a restore, its writers and readers, and their findings."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"restored ids/{seed}")
        self.cluster = FakeCluster(6, seed=seed)
        self.foreign: list[str] = []
        self.counts: Counter[str] = Counter()
        for ledger_id in range(EARLIER_IDS):
            for bookie in self.rng.sample(self.cluster.bookies, 3):
                _leave_entries(bookie, ledger_id, self.rng.randrange(1, 2 * ENTRIES))
        self.away: list[FakeBookie] = []
        for bookie in self.rng.sample(self.cluster.bookies, self.rng.randrange(3)):
            self.go(bookie)

    def go(self, bookie: FakeBookie) -> None:
        """Stop a bookie: half of the time by a crash, which leaves its registration for a while."""
        if self.rng.random() < 0.5:
            bookie.leave()
        else:
            bookie.crash()
        self.away.append(bookie)

    def come_back(self) -> None:
        if self.away:
            self.away.pop(self.rng.randrange(len(self.away))).start()
            self.counts["came back"] += 1

    def write(self) -> None:
        cluster, rng = self.cluster, self.rng
        writer = cluster.client(SETTINGS)
        named = LedgerId(rng.randrange(2 * EARLIER_IDS)) if rng.random() < 0.5 else None
        quorum = 3 if named is None and len(self.away) == 0 else 2
        try:
            if named is None:
                ledger = cluster.wait(writer.create(ensemble=3, write_quorum=quorum, ack_quorum=2, password=b""))
            else:
                ledger = cluster.wait(
                    writer.create_advanced(ensemble=3, write_quorum=2, ack_quorum=2, password=b"", ledger_id=named)
                )
        except (LedgerExists, LedgerIdOccupied, NotEnoughBookies) as error:
            self.counts[type(error).__name__] += 1
            return
        self.counts["created"] += 1
        appended: list[bytes] = []
        try:
            for entry_id in range(ENTRIES):
                if rng.random() < 0.06 and len(self.away) < 2:
                    self.go(rng.choice([each for each in cluster.bookies if each not in self.away]))
                if rng.random() < 0.1:
                    self.come_back()
                payload = b"new %d" % entry_id
                added = ledger.append(payload) if named is None else ledger.append(entry_id, payload)
                cluster.wait(added)
                appended.append(payload)
                if rng.random() < 0.1:
                    self.read(ledger.id, appended, recover=False)
        except (NotEnoughBookies, BookKeeperError) as error:
            self.counts[f"ended by {type(error).__name__}"] += 1
        if rng.random() < 0.5:
            with contextlib.suppress(BookKeeperError):
                cluster.wait(ledger.close())
        while self.away and rng.random() < 0.8:
            self.come_back()
        self.read(ledger.id, appended, recover=True)
        self.repair(ledger.id, appended)

    def read(self, ledger_id: int, appended: list[bytes], *, recover: bool) -> None:
        """Compare what a reader sees now. An entry that it cannot read does not count as foreign."""
        cluster = self.cluster

        async def scenario() -> list[bytes]:
            async with cluster.client(SETTINGS) as client:
                opened = client.open if recover else client.open_without_recovery
                handle = await opened(ledger_id, b"")
                return [entry.payload async for entry in handle.entries()]

        try:
            seen = cluster.wait(scenario())
        except BookKeeperError as error:
            self.counts[f"not read: {type(error).__name__}"] += 1
            return
        self.counts["reads"] += 1
        # One entry that was not acknowledged may have been stored.
        expected = [*appended, b"new %d" % len(appended)]
        if seen != expected[: len(seen)] or (recover and len(seen) < len(appended)):
            self.foreign.append(f"ledger {ledger_id}: {seen[:3]}... of {len(seen)}, appended {len(appended)}")

    def repair(self, ledger_id: int, appended: list[bytes]) -> None:
        """Re-replicate the copies of one member to another bookie, then read."""
        cluster = self.cluster
        repairs = Repairs(cluster, cluster.client(SETTINGS))
        try:
            metadata = cluster.wait(repairs.client.store.ledgers.read(LedgerId(ledger_id))).value
            if not metadata.is_closed:
                return
            lost = cluster.by_id(self.rng.choice(metadata.last_fragment.ensemble))
            cluster.wait(repairs.restore(LedgerId(ledger_id), lost))
        except BookKeeperError as error:
            self.counts[f"not repaired: {type(error).__name__}"] += 1
            return
        self.counts["repairs"] += 1
        self.read(ledger_id, appended, recover=True)


def _run(seed: int) -> _Run:
    run = _Run(seed)
    for _ in range(4):
        run.write()
    return run


def test_no_reader_sees_an_entry_of_an_earlier_ledger(
    seed: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    for each in range(seed, seed + max(10, pytestconfig.getoption("--sim-seeds") // 10)):
        run = _run(each)
        assert not run.foreign, f"seed {each}: {run.foreign}"
        counts += run.counts
    with capsys.disabled():
        print(f"\nrestored ids: {dict(sorted(counts.items()))}")  # noqa: T201
    assert min(counts["created"], counts["LedgerIdOccupied"], counts["came back"], counts["repairs"]) > 0


def test_a_client_that_does_not_ask_the_bookies_is_found() -> None:
    def free(context: object, ledger_id: object, bookies: list[str]) -> object:
        return succeed({bookie: Finding(Occupancy.FREE) for bookie in bookies})

    modules = (new_ledger, ensemble_change, target_check)
    patches = [mock.patch.object(module, "ask_occupancy", free) for module in modules]
    for patch in patches:
        patch.start()
    try:
        assert any(_run(each).foreign for each in range(1, 30))
    finally:
        for patch in patches:
            patch.stop()
