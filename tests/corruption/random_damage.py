"""A storage with a random past, damaged at random places while it lives on: it must never deny, mistake or forget.

What is known of every entry that was stored: a read gives its bytes or "unknown"; nobody is told that it is not here,
is let add it again, or is given an entry that was never stored (I-31, I-69). When the scrub has been through
everything, each entry that cannot be read is known to be damaged (I-67). Between damages the storage goes on: entries
at the borders of index pages, flushes, checkpoints, compactions, deletions, new processes.

The log that is being written is spared: its last page has no checksum yet, only the client's digest tells.
"""

from __future__ import annotations

import random

from bookkeeper.bookie.storage.index.format import HEADER_SIZE, PAGE_SIZE, PAGE_SLOTS, SLOT_SIZE
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import StorageError
from bookkeeper.model import Status
from tests.support.stored_ledgers import StoredLedgers

PROBED_MAX = 400
RUNS_PROBED = 4


class Life:
    """One storage, from a seed. told: what was damaged, for whoever looks. runs: entries that a run read gave."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.told: list[tuple[str, int, int]] = []
        self.runs = 0
        self.stored = StoredLedgers(
            settings=StorageSettings(
                memtable_bytes_max=1 << 20,
                open_files_max=16,
                entry_log_bytes_max=self.rng.choice([8 << 10, 60 << 10]),
                block_bytes=2 << 10,
                index_cache_bytes_max=self.rng.choice([1 << 14, 1 << 20]),
            )
        )
        self.stored.storage.replay_finished()
        self._next = dict.fromkeys(range(1, 6), 0)

    def run(self) -> None:
        """Raises AssertionError."""
        rng = self.rng
        self.work(rng.randrange(5, 40))
        self.stored.checkpoint()
        if rng.random() < 0.5:
            self.scrub()
        for _ in range(rng.randrange(1, 4)):
            for _ in range(rng.randrange(1, 3)):
                self.damage()
            if rng.random() < 0.6:
                self.restart()
            if rng.random() < 0.5:
                self.probe()
            if rng.random() < 0.5:
                self.scrub()
            if rng.random() < 0.5:
                self.work(6)
            self.probe()
            self.stored.checkpoint()
            self.restart()
            self.probe()
            self.scrub()
            self.probe()
            self.check_told()

    def restart(self) -> None:
        """Another process."""
        self.stored.start()
        self.stored.replay()

    def scrub(self) -> None:
        """A whole round, what reads met, and the checkpoint that writes pages anew."""
        scrub = self.stored.storage.scrub()
        list(scrub.steps(everything=True))
        list(scrub.looking_steps())
        self.stored.checkpoint()

    def work(self, count: int) -> None:
        """So many things that a bookie does."""
        acts = (*(self._add,) * 4, self._add_at_border, self.stored.flush, self.stored.checkpoint)
        acts = (*acts, self._compact, self._delete, self._end_log, self.probe)
        for _ in range(count):
            self.rng.choice(acts)()

    def _add(self) -> None:
        ledger_id, step = self.rng.choice(list(self._next)), self.rng.choice([1, 1, 2, 3])
        count, first = self.rng.choice([1, 5, 40, 200]), self._next[ledger_id]
        self.stored.add(ledger_id, first, count, step=step, payload=b"x" * self.rng.choice([1, 30, 200]))
        self._next[ledger_id] += count * step

    def _add_at_border(self) -> None:
        ledger_id = self.rng.choice(list(self._next))
        entry_id = (self._next[ledger_id] // PAGE_SLOTS + 1) * PAGE_SLOTS + self.rng.choice([-1, -1, 0, 1])
        if entry_id >= self._next[ledger_id]:
            self.stored.add(ledger_id, entry_id, 1)
            self._next[ledger_id] = entry_id + self.rng.choice([1, 1, 600])

    def _compact(self) -> None:
        closed = [log_id for log_id, _ in self.stored.storage.entry_logs.closed()]
        self.stored.checkpoint()
        if closed and (log_id := self.rng.choice(closed)) in self.stored.storage.entry_logs.log_ids:
            try:
                self.stored.compact(log_id)
            except StorageError:  # it is damaged, or an index page is: left alone
                self.restart()

    def _delete(self) -> None:
        if self.rng.random() < 0.15:
            self.stored.checkpoint()
            ledger_id = self.rng.choice(list(self._next))
            self.stored.delete(ledger_id)
            del self._next[ledger_id]
            self._next[ledger_id + 100] = 0  # no ledger id comes twice

    def _end_log(self) -> None:
        self.stored.checkpoint()
        self.stored.storage.end_log()

    def damage(self) -> None:
        """Bytes of an index file or of a log that nobody writes any more: zeros, random ones, all bits set."""
        active = self.stored.storage.entry_logs.active_log_id
        spared = None if active is None else f"/{active:x}.log"
        paths = [path for path in self.stored.fs.paths() if path.endswith((".idx", ".log"))]
        path = self.rng.choice([path for path in paths if spared is None or not path.endswith(spared)] or [""])
        if not path:
            return
        have = len(self.stored.fs.contents(path))
        pages = (have - HEADER_SIZE) // PAGE_SIZE
        if path.endswith(".log"):
            offset = self.rng.randrange(have)
            size = min(self.rng.choice([1, 1, 4, 512, 4096]), have - offset)
        elif pages <= 0 or self.rng.random() < 0.1:
            offset, size = self.rng.randrange(HEADER_SIZE), 1
        else:
            size = self.rng.choice([SLOT_SIZE, SLOT_SIZE, 64, 512, 4096, PAGE_SIZE])
            offset = HEADER_SIZE + self.rng.randrange(pages) * PAGE_SIZE + self.rng.randrange(PAGE_SIZE // size) * size
        new = self.rng.choice([bytes(size), bytes(size), self.rng.randbytes(size), b"\xff" * size])
        self.stored.fs.poke(path, offset, new)
        self.told.append((path, offset, size))

    def probe(self) -> None:
        """Nothing is denied, nothing is invented."""
        storage, entries = self.stored.storage, self.stored.entries
        by_ledger: dict[int, list[int]] = {}
        for ledger_id, entry_id in entries:
            by_ledger.setdefault(ledger_id, []).append(entry_id)
        for ledger_id, stored_ids in by_ledger.items():
            entry_ids = sorted(self.rng.sample(stored_ids, min(len(stored_ids), PROBED_MAX)))
            for entry_id, result in zip(entry_ids, self.stored.read(ledger_id, entry_ids), strict=True):
                assert result in (entries[ledger_id, entry_id], Status.IO_ERROR), (ledger_id, entry_id, self.told)
            self._probe_runs(ledger_id, stored_ids)
            last = max(stored_ids)
            absent = {last + 1, last + 2, 511, 1023, 1024, self.rng.randrange(last + 5)}.difference(stored_ids)
            assert not [each for each in self.stored.read(ledger_id, sorted(absent)) if isinstance(each, bytes)], (
                self.told
            )
            assert not storage.all_new(ledger_id, [last]), (ledger_id, last, self.told)
            try:
                held = storage.held_cold(ledger_id, 0, last + 1)
            except StorageError:
                continue
            assert set(stored_ids) <= {entry_id for run in held for entry_id in run}, (ledger_id, self.told)

    def _probe_runs(self, ledger_id: int, stored_ids: list[int]) -> None:
        """What a batch read sends as it lies in a log is what was stored."""
        rng = random.Random(len(stored_ids))  # of its own: what seeds do stays the same
        for first in rng.sample(stored_ids, min(len(stored_ids), RUNS_PROBED)):
            count = rng.choice([2, 7, 300])
            run = self.stored.storage.read_run(ledger_id, first, count, 1 << 20) or ()
            assert len(run) <= count
            for entry_id, body in enumerate(run, first):
                assert body == self.stored.entries.get((ledger_id, entry_id)), (ledger_id, entry_id, self.told)
            self.runs += len(run)

    def check_told(self) -> None:
        """Who looks at the record of damages knows all that cannot be read."""
        lost = [key for key in self.stored.entries if self.stored.read(key[0], [key[1]])[0] is Status.IO_ERROR]
        untold = [key for key in lost if not self.stored.storage.damaged(key[0], [key[1]])]
        assert not untold, (untold[:5], self.told)
