"""The storage between its three threads: what was added is found at every moment, and never denied (I-31).

Everything is tiny, so that buffers rotate, pages and ledgers are evicted and files closed all the time, and the
interpreter changes threads as often as it can. A look at the state between two operations would need luck; many
thousands of reads at random moments do not.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.model import Status
from tests.support.stored_ledgers import KEY, entry_body

LEDGERS = 100
ROUNDS = 4000
"""Minimum; rounds continue until the other threads were busy, too."""


@pytest.fixture(autouse=True)
def _frequent_thread_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


class Threads:
    """A storage with a thread that flushes and checkpoints and one that reads; the test's own thread is the reactor."""

    def __init__(self, root: Path, seed: int) -> None:
        settings = StorageSettings(
            memtable_bytes_max=30_000,
            index_cache_bytes_max=30_000,
            ledger_states_max=20,
            open_files_max=16,
            entry_log_bytes_max=200_000,
            block_bytes=2000,
        )
        self.storage = LedgerStorage(RealFileSystem(), LedgerDirectories([str(root / "a"), str(root / "b")]), settings)
        self.storage.open()
        self.storage.replay_finished()
        self.visible: dict[int, int] = {}
        self.fenced: set[int] = set()
        self.errors: list[BaseException] = []
        self._seed = seed
        self._done = threading.Event()
        # Who has nothing to do waits for the other: the flusher for an add, the reactor for room.
        self._added, self._flushed = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._flush, self._read_cold)]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        try:
            self._react()
        finally:
            self._done.set()
            self._added.set()
            for thread in self._threads:
                thread.join()
        if self.errors:
            raise self.errors[0]

    def _guard(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            self.errors.append(error)
            self._flushed.set()

    def _flush(self) -> None:
        rng = random.Random(self._seed + 1)
        while not self._done.is_set():
            if rng.random() < 0.2:
                self.storage.checkpoint()
            elif self.storage.snapshot_count:
                self.storage.flush_snapshot()
            elif self.storage.is_full:  # of index pages or ledgers: only a checkpoint makes room
                self.storage.checkpoint()
            else:
                self._added.wait()
                self._added.clear()
                continue
            self._flushed.set()

    def _read_cold(self) -> None:
        rng = random.Random(self._seed + 2)
        while not self._done.is_set():
            ledger_id = rng.randrange(LEDGERS)
            last = self.visible.get(ledger_id)
            if last is not None:
                entry_ids = [rng.randint(0, last) for _ in range(5)]
                self._check(ledger_id, entry_ids, self.storage.read_cold(ledger_id, entry_ids))

    def _react(self) -> None:
        rng = random.Random(self._seed)
        storage = self.storage
        for number in itertools.count():
            if self.errors or (number >= ROUNDS and self._was_busy()):
                return
            while storage.is_full and not self.errors:
                storage.rotate()
                self._added.set()
                self._flushed.wait()
                self._flushed.clear()
            ledger_id = rng.randrange(LEDGERS)
            last = self.visible.get(ledger_id, -1)
            entry_ids = list(range(last + 1, last + 1 + rng.randint(1, 6)))
            storage.add(ledger_id, entry_ids, [entry_body(ledger_id, entry_id) for entry_id in entry_ids])
            storage.set_master_key(ledger_id, KEY)
            self.visible[ledger_id] = entry_ids[-1]
            if rng.random() < 0.02:
                storage.set_fenced(ledger_id)
                self.fenced.add(ledger_id)
            if storage.should_flush:
                storage.rotate()
            self._added.set()
            self._look(rng.randrange(LEDGERS), rng)

    def _was_busy(self) -> bool:
        """Return whether the other threads had enough turns; the number of their turns in the rounds varies."""
        counters = self.storage.counters
        return counters.flushes > 20 and counters.checkpoints > 10 and counters.cold_reads > 1000

    def _look(self, ledger_id: int, rng: random.Random) -> None:
        last = self.visible.get(ledger_id)
        if last is None:
            return
        entry_ids = [rng.randint(0, last) for _ in range(5)]
        self._check(ledger_id, entry_ids, self.storage.read(ledger_id, entry_ids))
        if self.storage.is_loaded(ledger_id):
            assert self.storage.last_entry_id(ledger_id) == last
            assert self.storage.is_fenced(ledger_id) == (ledger_id in self.fenced)
            assert self.storage.master_key(ledger_id) == KEY

    def _check(self, ledger_id: int, entry_ids: Sequence[int], results: Sequence[bytes | Status | None]) -> None:
        for entry_id, result in zip(entry_ids, results, strict=True):
            assert result is None or result == entry_body(ledger_id, entry_id), f"{ledger_id}/{entry_id}: {result!r}"


def test_reads_at_any_moment_find_what_was_added(tmp_path: Path, seed: int) -> None:
    Threads(tmp_path, seed).run()
