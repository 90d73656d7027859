"""Random histories of a storage against plain dictionaries, with restarts and power cuts; and what a ledger costs."""

import errno
import random
import tracemalloc
from collections import Counter

import pytest

from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import NoWritableDisk
from bookkeeper.model import Status
from tests.support.faulty_filesystem import Op
from tests.support.stored_ledgers import StoredLedgers

TIGHT = StorageSettings(
    memtable_bytes_max=1 << 20,
    index_cache_bytes_max=6_000,
    ledger_states_max=6,
    open_files_max=4,
    entry_log_bytes_max=20_000,
    block_bytes=1500,
)


def step(stored: StoredLedgers, rng: random.Random, done: Counter[str]) -> None:
    ledger_id = rng.choice((0, 1, 2, 255, 256, 65536, 1 << 40)) + rng.randrange(3)
    held = [entry_id for ledger, entry_id in stored.entries if ledger == ledger_id]
    action = rng.choice(("append",) * 5 + ("sparse", "fence", "lac", "flush", "checkpoint", "restart", "crash", "read"))
    done[action] += 1
    if action == "append":
        stored.add(ledger_id, max(held, default=-1) + 1, rng.randrange(1, 40), payload=b"p" * rng.choice((0, 9, 300)))
    elif action == "sparse":
        first = rng.randrange(4000)
        ids = [i for i in range(first, first + 50, rng.choice((1, 2, 7))) if i not in held]
        for entry_id in ids:
            stored.add(ledger_id, entry_id, 1)
    elif action == "fence":
        stored.fence(ledger_id)
    elif action == "lac":
        old = stored.lacs.get(ledger_id, bytes(16))
        stored.lac(ledger_id, int.from_bytes(old[8:], "big") + rng.randrange(1, 9))
    elif action == "flush":
        stored.flush()
    elif action == "checkpoint":
        stored.checkpoint()
    elif action == "restart":
        stored.checkpoint()
        stored.storage.close()
        stored.start()
        stored.storage.replay_finished()
    elif action == "crash":
        stored.crash(rng)
        stored.replay()
    elif held:
        wanted = [rng.randrange(max(held) + 4) for _ in range(20)]
        expected = [stored.entries.get((ledger_id, entry_id), Status.NO_ENTRY) for entry_id in wanted]
        stored.fs.nowait = rng.random() < 0.8
        assert stored.read(ledger_id, wanted) == expected


@pytest.mark.parametrize("number", range(25))
def test_a_random_history_equals_its_twin(number: int, seed: int) -> None:
    rng = random.Random(f"{seed}/{number}")
    stored = StoredLedgers(ledger_dirs=("/a", "/b"), index_dirs=("/a", "/i") if number % 2 else (), settings=TIGHT)
    done: Counter[str] = Counter()
    for _ in range(60):
        step(stored, rng, done)
    stored.check()
    stored.crash(rng)
    stored.replay()
    stored.check()
    assert stored.storage.open_file_count <= TIGHT.open_files_max


def test_a_disk_full_at_any_one_write_loses_nothing() -> None:
    """I-68: half of the write is there, the caller sees ENOSPC; the block goes to another log, or is tried again."""
    for nth in range(1, 120):
        stored = StoredLedgers(ledger_dirs=("/a", "/b"), settings=TIGHT)
        stored.fs.fail_nth(Op.WRITE, nth, errno.ENOSPC)
        for ledger_id in range(6):
            stored.add(ledger_id, 0, 30, payload=b"x" * 200)
            try:
                stored.checkpoint()
            except NoWritableDisk:
                stored.directories.set_full(())
        assert stored.storage.failure is None
        stored.check()
        stored.crash()
        stored.replay()
        stored.check()


def test_a_ledger_of_five_entries_costs_about_a_kilobyte() -> None:
    """20 000 of them must stay under 40 MB; measured on 2000."""
    count = 2000
    stored = StoredLedgers(settings=StorageSettings())
    storage = stored.storage
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for ledger_id in range(count):
            storage.set_master_key(ledger_id, ledger_id.to_bytes(20, "big"))
            storage.add(ledger_id, range(5), [b"%020d" % entry_id for entry_id in range(5)])
        storage.rotate()
        # The entry log itself is in this disk's memory, at 24 bytes an entry; no index file is written.
        storage.flush_snapshot()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 2000
