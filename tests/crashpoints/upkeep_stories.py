"""Stories of what a bookie does besides requests and checkpoints: scrub, copies too many, full disks, repairs."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from functools import partial

from bookkeeper.bookie.storage.disks import DiskSettings
from tests.crashpoints.history import Moved, Repairing, Returned
from tests.crashpoints.life import THE_END, Ended, Life
from tests.crashpoints.machine import GARBAGE, STORAGE, Layout, Machine
from tests.crashpoints.offline import damage_index, damage_log, lose_index, tear_header
from tests.crashpoints.story import Story
from tests.crashpoints.upkeep import UpkeepSettings
from tests.support.faulty_filesystem import Op

NEARLY_FULL = 0.04
"""Free share of a disk that takes no new files, and still writes."""


def scrub(life: Life) -> None:
    """Checksums for logs and index pages that have none, a header mended, while adds and a checkpoint go on."""
    bookie = life.start()
    for entry_id in range(0, 9, 3):
        for ledger_id in (1, 2):
            bookie.add(ledger_id, range(entry_id, entry_id + 3))
        life.settle()
    life.checkpoint()
    bookie.add(1, range(9, 12))
    bookie.fence(2)
    life.settle()
    life.flush()
    life.kill()  # two logs are not closed, some pages not settled
    life.accident(partial(_forget_checksums, names=(".crc", "l2/current/indexChecksums")))
    bookie = life.start()
    bookie.add(1, [12])
    life.settle()
    life.accident(partial(tear_header, ledger_id=2))
    bookie.add(3, range(2))
    life.scrub()
    life.checkpoint()
    bookie.delete_ledger(1)
    life.collect()


def _forget_checksums(machine: Machine, names: tuple[str, ...]) -> None:
    """Durably, as on the disks of a bookie that never made any."""
    fs = machine.fs
    for path in fs.paths():
        if path.endswith(names):
            fs.unlink(path)
            fs.sync_dir(path.rpartition("/")[0])


def damage(life: Life) -> None:
    """Entries and locations that go bad at rest: unknown, never denied; replaced by recovery."""
    bookie = life.start()
    for entry_id in range(0, 8, 4):
        for ledger_id in (1, 2):
            bookie.add(ledger_id, range(entry_id, entry_id + 4))
        life.settle()
        life.checkpoint()
    life.stop()
    life.accident(partial(damage_log, log_id=1))
    bookie = life.start()
    life.scrub()
    bookie.add(1, range(4), recovery=True)
    life.settle()
    life.checkpoint()
    bookie.add(2, [8])
    life.settle()
    life.stop()
    life.accident(partial(damage_index, ledger_id=2, entry_id=2))
    bookie = life.start()
    bookie.add(2, [2, 9], recovery=True)
    life.settle()
    life.checkpoint()
    bookie.fence(2)
    bookie.add(3, [0])
    life.settle()
    life.scrub()
    bookie.add(2, [3, 10], recovery=True)
    life.settle()
    life.checkpoint()


def mended_index(life: Life) -> None:
    """Index pages made anew out of logs: of a log that a kill cut short, of sealed ones while the ledger is written."""
    bookie = life.start()
    for entry_id in range(0, 8, 4):
        for ledger_id in (1, 2):
            bookie.add(ledger_id, range(entry_id, entry_id + 4))
        life.settle()
        life.checkpoint()
    bookie.add(2, [9])
    life.settle()
    life.flush()  # behind what was synced
    life.kill()
    life.accident(partial(damage_index, ledger_id=2, entry_id=7))
    bookie = life.start()
    bookie.add(2, [7])  # nobody can tell; it is in the log that was cut short
    life.settle()
    life.scrub()
    life.checkpoint()
    bookie.add(2, [7, 10])
    life.settle()
    life.stop()
    life.accident(partial(damage_index, ledger_id=1, entry_id=1))
    bookie = life.start()
    bookie.add(1, [1, 8], recovery=True)
    life.settle()
    life.flush()
    life.scrub()
    bookie.add(1, [9], recovery=True)
    life.settle()
    life.checkpoint()
    bookie.add(1, [2])
    life.settle()
    life.scrub()


def moved_copies(life: Life) -> None:
    """Copies that belong elsewhere go, their writers are refused, one comes back by a repair, one is deleted then."""
    bookie = life.start()
    for ledger_id in (1, 2, 3, 4):
        bookie.add(ledger_id, range(6))
        life.settle()
        life.checkpoint()
    bookie.fence(2)
    life.settle()
    for ledger_id in (1, 2):
        bookie.note(Moved(ledger_id))
    life.collect()
    bookie.add(1, [6])  # of a writer that does not know
    bookie.add(2, [6])
    life.settle()
    bookie.note(Repairing(1))
    bookie.add(1, range(3), recovery=True)
    life.settle()
    bookie.note(Moved(3))
    life.collect()  # 3 goes, 1 is locked
    bookie.add(1, range(3, 6), recovery=True)
    life.settle()
    bookie.note(Returned(1))
    bookie.delete_ledger(2)
    bookie.add(4, [6])
    life.collect()
    bookie.add(1, [6])
    bookie.add(2, [6], recovery=True)
    life.settle()


def full_disks(life: Life) -> None:
    """One disk fills up, then all: read-only; no byte fits any more; room again; a start in between (I-68)."""
    fs = life.machine.fs
    bookie = life.start()
    bookie.add(1, range(4))
    bookie.add(2, range(4))
    life.settle()
    fs.free_below = {"/l1": NEARLY_FULL}
    life.pass_time(3.5)
    bookie.add(3, range(4))
    bookie.add(1, range(4, 8))
    life.settle()
    life.checkpoint()
    fs.free_below = {"/l1": NEARLY_FULL, "/l2": NEARLY_FULL}
    life.pass_time(3.5)
    bookie.add(1, [8])  # refused
    bookie.add(2, [4], recovery=True)
    bookie.fence(2)
    bookie.fence(9)
    life.settle()
    life.checkpoint()
    bookie.add(3, range(4, 6), recovery=True)
    life.settle()
    fs.free_below = {"/l1": 0.0, "/l2": 0.0}
    bookie.fence(3)
    life.settle()
    life.checkpoint()
    life.pass_time(3.5)
    fs.free_below = {"/l1": 0.5, "/l2": NEARLY_FULL}
    life.pass_time(3.5)
    bookie.add(1, range(8, 12))
    life.settle()
    life.checkpoint()
    bookie.add(4, range(3))
    life.settle()
    fs.free_below = {"/l1": 0.0, "/l2": 0.0}
    life.stop()
    with contextlib.suppress(Ended):
        life.start()
    life.kill()
    fs.free_below = {}
    bookie = life.start()
    bookie.add(4, [3])
    life.settle()


def status_file(life: Life) -> None:
    """The status file is written anew at each change; nothing depends on it, not even the start of the next process."""
    fs = life.machine.fs
    bookie = life.start()
    bookie.add(1, range(3))
    life.settle()
    fs.free_below = {"/l1": NEARLY_FULL, "/l2": NEARLY_FULL}
    life.pass_time(3.5)
    bookie.add(1, [3])
    bookie.fence(1)
    life.settle()
    life.kill()
    bookie = life.start()  # read-only from the start
    bookie.fence(2)
    life.settle()
    fs.free_below = {}
    life.pass_time(3.5)
    bookie.add(3, range(2))
    life.settle()
    life.stop()
    life.start()


def rebuilt_index(life: Life) -> None:
    """Index files made anew: of a killed bookie whose own are fine, of lost ones, of one with a damaged page (I-59)."""
    bookie = life.start()
    for ledger_id in (1, 2, 3):
        bookie.add(ledger_id, range(5))
    bookie.write_lac(3, 2)
    life.settle()
    life.checkpoint()
    bookie.add(1, range(5, 8))
    bookie.add(4, [0])
    bookie.fence(1)
    life.settle()
    life.flush()
    life.kill()
    life.rebuild([1])
    bookie = life.start()
    bookie.add(2, [5])
    life.settle()
    life.stop()
    life.accident(partial(lose_index, ledger_id=2))
    life.accident(partial(damage_index, ledger_id=3, entry_id=1))
    life.rebuild([1, 2, 3])
    bookie = life.start()
    bookie.add(3, [5])
    life.settle()
    life.checkpoint()


def second_growth(life: Life) -> None:
    """Logs and index files grow again behind a crash, and the replay, which rolls and checkpoints, is cut short."""
    bookie = life.start()
    for ledger_id in (1, 2):
        bookie.add(ledger_id, range(4))
    life.settle()
    life.checkpoint()
    bookie.add(1, [4, 1022, 1023, 1024, 1025])
    for ledger_id in (3, 4, 5, 0x106):
        bookie.add(ledger_id, range(3))
    bookie.fence(2)
    life.settle()
    life.meanwhile = partial(_end, Op.SYNC, "indexChecksums", after=[0])
    with contextlib.suppress(Ended):
        life.checkpoint()
    life.lose_power(survives=False)
    life.meanwhile = partial(_end, Op.RENAME, ".idx.new", after=[2])
    with contextlib.suppress(Ended):
        life.start()
    life.lose_power(survives=True)
    bookie = life.start()
    bookie.add(1, [5, 2048, 2049])
    bookie.add(3, range(3, 9))
    bookie.add(0x107, range(3))
    life.settle()
    life.flush()
    life.lose_power(survives=False)
    life.meanwhile = partial(_end, Op.SYNC, ".log", after=[1])
    with contextlib.suppress(Ended):
        life.start()
    life.kill()
    bookie = life.start()
    bookie.add(1, [6, 1026])
    life.settle()


def _end(op: Op, name: str, now: Op, path: str, *, after: list[int]) -> None:
    """The process ends at such an operation, after so many of them."""
    if now is op and path.endswith(name):
        if after[0] == 0:
            raise OSError(errno.EIO, THE_END, path)
        after[0] -= 1


DISKS = DiskSettings(
    read_only_on_any_full=False, entry_log_free_bytes_min=1 << 20, reserve_bytes=1 << 20, check_interval_s=3.0
)

UPKEEP_STORIES: tuple[Story, ...] = (
    Story(
        "scrub",
        "checksums made by the scrub (I-59, I-67)",
        scrub,
        Layout(upkeep=UpkeepSettings(scrubs=True)),
    ),
    Story(
        "damage",
        "entries and locations that go bad at rest (I-31, I-59, I-67, I-69)",
        damage,
        Layout(upkeep=UpkeepSettings(scrubs=True)),
    ),
    Story(
        "mended-index",
        "damaged index pages made anew by the bookie (I-31, I-58, I-59, I-67)",
        mended_index,
        Layout(upkeep=UpkeepSettings(scrubs=True)),
    ),
    Story(
        "moved-copies",
        "copies one too many removed, and brought back (I-04, I-63, I-66)",
        moved_copies,
        Layout(garbage=replace(GARBAGE, overreplicated_wait_s=1.0)),
    ),
    Story(
        "full-disks",
        "read-only, without room, starts without room (I-22, I-68)",
        full_disks,
        Layout(upkeep=UpkeepSettings(disks=DISKS)),
        starts_full=True,
    ),
    Story(
        "status-file",
        "the file that says what a bookie does (I-68)",
        status_file,
        Layout(upkeep=UpkeepSettings(disks=DISKS, keeps_status=True)),
    ),
    Story(
        "rebuilt-index",
        "index files made anew offline (I-24, I-31, I-59)",
        rebuilt_index,
        rebuilds=True,
    ),
    Story(
        "second-growth",
        "growth behind a crash, crashes of the replay itself (I-53, I-57, I-58)",
        second_growth,
        Layout(
            storage=replace(STORAGE, memtable_bytes_max=1024, index_cache_bytes_max=64 * 1024, dirty_ledgers_max=8),
        ),
    ),
)
"""Those of `stories.STORIES` that are told here."""
