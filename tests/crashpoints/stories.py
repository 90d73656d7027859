"""Workloads whose every operation of the disk is a crash point. Each is short, deterministic, and has one subject.

A story begins on an empty machine. What it may rely on: `Life` raises Ended once the bookie is gone.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

from tests.crashpoints.life import THE_END, Ended, Life
from tests.crashpoints.machine import JOURNALS, STORAGE, Layout
from tests.crashpoints.story import Story
from tests.crashpoints.upkeep_stories import UPKEEP_STORIES
from tests.support.faulty_filesystem import Op


def first_start(life: Life) -> None:
    """Stamped directories, cookie, first journals; a little data; and the same once more after an orderly stop."""
    bookie = life.start()
    bookie.add(1, [0, 1])
    bookie.fence(2)
    life.settle()
    life.stop()
    bookie = life.start()
    bookie.add(3, [0])
    life.settle()
    life.stop()


def append(life: Life) -> None:
    """All kinds of records in one ledger each and mixed; journals roll; no checkpoint before the end."""
    bookie = life.start()
    for entry_id in range(3):
        bookie.add(1, [entry_id])
        bookie.add(2, [2 * entry_id, 2 * entry_id + 1], lac=entry_id)
    bookie.write_lac(1, 0)
    life.settle()
    bookie.add(3, [0, 1], deferred=True)
    bookie.add(4, [0], deferred=True)
    life.settle()
    bookie.force(3)
    life.settle()
    bookie.add(3, [2], deferred=True)
    bookie.fence(2, entry_id=3)
    bookie.add(2, [6])  # too late
    bookie.add(2, [6, 8], recovery=True)
    bookie.fence(9)  # never seen before (I-22)
    life.settle()
    bookie.add(1, [2, 3])  # 2 is held already
    bookie.add(1, [0], version=1)  # another body: refused (I-69)
    bookie.add(1, [4], key=b"another key, 20 byte")
    bookie.write_lac(1, 2)
    bookie.write_lac(1, 1)
    bookie.write_lac(5, 7)
    life.settle()
    for entry_id in range(4, 14):
        bookie.add(1, [entry_id])
        bookie.add(6, list(range(3 * entry_id, 3 * entry_id + 3)))
        life.settle()


def checkpoints(life: Life) -> None:
    """Three checkpoints: new ledgers, headers that change, pages that grow, several batches of index files."""
    bookie = life.start()
    for ledger_id in (1, 2, 3, 0x104, 0x105, 0x10001):
        bookie.add(ledger_id, range(4))
    bookie.fence(2)
    bookie.write_lac(3, 2)
    life.settle()
    life.checkpoint()
    bookie.add(1, range(4, 9))
    bookie.add(3, [1022, 1023, 1024, 1025])
    bookie.fence(3)
    bookie.fence(9)
    bookie.write_lac(0x104, 3)
    life.settle()
    life.checkpoint()
    bookie.add(0x105, [5])  # 4 stays a gap
    bookie.add(2, [4], recovery=True)
    bookie.write_lac(3, 1024)
    bookie.fence(1)
    life.settle()
    life.checkpoint()
    bookie.add(10, range(2))
    life.settle()


def busy_checkpoints(life: Life) -> None:
    """Adds, fences and LACs are acknowledged between any two operations of a checkpoint (I-54)."""
    bookie = life.start()
    for ledger_id in range(1, 8):
        bookie.add(ledger_id, range(3))
    life.settle()
    looks = 0
    next_entry = dict.fromkeys(range(1, 12), 3)

    def meanwhile(op: Op, _: str) -> None:
        nonlocal looks
        storage = next(worker for worker in bookie.workers if worker.name == "storage")
        if not storage.busy or any(worker.busy for worker in bookie.workers if worker is not storage):
            return
        looks += 1
        if looks % 9 == 0:
            ledger_id = looks // 9 % 11 + 1
            bookie.add(ledger_id, [next_entry[ledger_id]])
            next_entry[ledger_id] += 1
            if looks % 63 == 0:
                bookie.fence(looks // 63 + 20)
                bookie.write_lac(ledger_id, next_entry[ledger_id])
            while bookie.turn("journal-0", "journal-1"):
                pass

    life.meanwhile = meanwhile
    life.checkpoint()
    bookie.fence(4)
    life.settle()
    life.checkpoint()
    life.meanwhile = None
    life.checkpoint()


def ahead_of_the_journal(life: Life) -> None:
    """Checkpoints overtake the journal: index files of ledgers whose records no journal has yet."""
    bookie = life.start()
    bookie.add(1, range(3))
    life.settle()
    for turn in range(3):
        for ledger_id in (1, 2 + 3 * turn, 3 + 3 * turn, 0x104 + turn):
            bookie.add(ledger_id, range(3 + turn, 5 + turn))
        bookie.fence(4 + 3 * turn)
        while bookie.turn("read"):
            pass  # that the ledgers are new
        life.checkpoint(ahead=True)
        life.settle()


def rolls(life: Life) -> None:
    """Buffers fill and flush block by block, logs roll between the directories, checkpoints come by themselves."""
    bookie = life.start()
    for entry_id in range(0, 40, 4):
        for ledger_id in (1, 2, 3):
            bookie.add(ledger_id, range(entry_id, entry_id + 4))
        life.settle()
        life.pass_time(0.3)
    bookie.fence(1)
    life.settle()
    life.pass_time(2.5)
    bookie.add(2, [40])
    life.settle()
    life.pass_time(2.5)


def recycled_journals(life: Life) -> None:
    """Journals fill fast, are recycled and deleted, one of two has little to do (I-51, I-52, I-56)."""
    bookie = life.start()
    for turn in range(7):
        bookie.add(2, range(4 * turn, 4 * turn + 4))
        bookie.add(4, range(4 * turn, 4 * turn + 4))
        life.settle()
        if turn % 3 == 0:
            bookie.add(1, [turn])
        life.checkpoint()
    life.stop()
    bookie = life.start()
    bookie.add(2, [28, 29])
    life.settle()
    life.checkpoint()
    bookie.add(2, [30])
    life.settle()


def power_cuts(life: Life) -> None:
    """Two power cuts and the replays after them: one that loses nothing, one that loses what was not synced."""
    bookie = life.start()
    for ledger_id in (1, 2, 3, 0x102):
        bookie.add(ledger_id, range(4))
    bookie.write_lac(2, 3)
    life.settle()
    life.checkpoint()
    bookie.add(1, range(4, 12))
    bookie.fence(2)
    bookie.add(5, range(6))
    bookie.add(6, range(2), deferred=True)
    life.settle()
    life.flush()
    life.lose_power(survives=True)
    bookie = life.start()
    bookie.add(5, range(6, 9))
    bookie.fence(7)
    life.settle()
    life.flush()
    bookie.add(1, [12])
    bookie.turn("journal-0", "journal-1")
    life.lose_power(survives=False)
    bookie = life.start()
    bookie.add(5, [9])
    life.settle()


def kills(life: Life) -> None:
    """A process is killed twice, the second time right after its start; what it left unsynced is in the cache alone."""
    bookie = life.start()
    for ledger_id in (1, 2, 0x103):
        bookie.add(ledger_id, range(5))
    life.settle()
    life.checkpoint()
    bookie.add(1, range(5, 11))
    bookie.add(4, range(3), deferred=True)
    bookie.fence(2)
    bookie.write_lac(1, 9)
    life.settle()
    life.flush()
    bookie.add(4, [3], deferred=True)
    life.settle()
    life.kill()
    bookie = life.start()
    life.kill()
    bookie = life.start()
    bookie.add(1, [11])
    bookie.fence(0x103)
    life.settle()
    life.stop()
    life.start()


def collection(life: Life) -> None:
    """Ledgers are deleted, fenced and not, their logs removed, one still being written; then all of it once more."""
    bookie = life.start()
    for ledger_id in (1, 2, 3, 4):
        bookie.add(ledger_id, range(6))
        life.settle()
        life.checkpoint()
    bookie.fence(2)
    bookie.fence(9)
    bookie.write_lac(3, 4)
    life.settle()
    life.checkpoint()
    for ledger_id in (1, 2, 9):
        bookie.delete_ledger(ledger_id)
    bookie.add(3, [6, 7])
    life.settle()
    life.collect()
    bookie.add(2, [6])  # of a writer that does not know
    bookie.add(4, [6])
    bookie.add(5, range(8))
    life.settle()
    bookie.delete_ledger(3)
    bookie.add(5, range(8, 12))
    life.collect()
    bookie.add(5, [12])
    life.settle()


def compaction(life: Life) -> None:
    """Logs with dead and live entries are rewritten while ledgers go on, and the rewritten ones again."""
    bookie = life.start()
    for entry_id in range(0, 12, 3):
        for ledger_id in (1, 2, 0x103):
            bookie.add(ledger_id, range(entry_id, entry_id + 3))
        life.settle()
    bookie.fence(2)
    bookie.write_lac(1, 5)
    life.settle()
    life.checkpoint()
    bookie.delete_ledger(1)
    bookie.add(2, [12], recovery=True)
    life.settle()
    life.collect()
    bookie.add(0x103, [12, 13])
    bookie.add(4, range(6))
    life.settle()
    life.checkpoint()
    bookie.delete_ledger(2)
    life.collect()
    bookie.add(4, [6])
    life.settle()


def busy_compaction(life: Life) -> None:
    """The same while the bookie answers: entries move while others come, a ledger is deleted and compacted at once."""
    bookie = life.start()
    for entry_id in range(0, 12, 3):
        for ledger_id in (1, 2, 3):
            bookie.add(ledger_id, range(entry_id, entry_id + 3))
        life.settle()
    life.checkpoint()
    bookie.delete_ledger(1)
    looks = 0

    def meanwhile(_: Op, __: str) -> None:
        nonlocal looks
        if any(worker.busy for worker in bookie.workers if worker.name.startswith(("journal", "read"))):
            return
        looks += 1
        if looks % 7 == 0:
            bookie.add(2 + looks // 7 % 2, [12 + looks // 7])
            if looks == 140:
                bookie.fence(2)
            while bookie.turn("journal-0", "journal-1", "read"):
                pass

    life.meanwhile = meanwhile
    life.collect()
    life.meanwhile = None
    life.settle()


def interrupted_compaction(life: Life) -> None:
    """A compaction that a kill cut short behind its links is finished by the next process."""
    bookie = life.start()
    for entry_id in range(0, 12, 3):
        for ledger_id in (1, 2):
            bookie.add(ledger_id, range(entry_id, entry_id + 3))
        life.settle()
    life.checkpoint()
    bookie.delete_ledger(1)

    def meanwhile(op: Op, path: str) -> None:
        if op is Op.UNLINK and path.endswith(".compacting"):
            raise OSError(errno.EIO, THE_END, path)

    life.meanwhile = meanwhile
    with contextlib.suppress(Ended):
        life.collect()
    life.kill()
    bookie = life.start()
    bookie.add(2, range(12, 15))
    life.settle()
    life.collect()
    bookie.add(3, [0])
    life.settle()


def wide_records(life: Life) -> None:
    """One journal, no zeros ahead, files kept; index files apart from the logs."""
    bookie = life.start()
    for turn in range(4):
        bookie.add(1, range(8 * turn, 8 * turn + 8))
        bookie.add(turn + 2, range(3), deferred=turn % 2 == 0)
        life.settle()
        bookie.fence(turn + 2)
        life.settle()
        life.checkpoint()
    life.stop()
    bookie = life.start()
    bookie.add(1, range(32, 36))
    life.settle()


def one_directory(life: Life) -> None:
    """Marks, cookie and everything else in one place; restarts that find nothing to replay."""
    bookie = life.start()
    bookie.add(1, range(6))
    life.settle()
    life.checkpoint()
    life.stop()
    bookie = life.start()
    life.kill()
    bookie = life.start()
    bookie.add(1, range(6, 20))
    bookie.fence(2)
    life.settle()
    life.checkpoint()
    bookie.add(1, range(20, 26))
    life.settle()
    life.checkpoint()


STORIES: tuple[Story, ...] = (
    Story("first-start", "cookies, first files, orderly stop (I-49, I-70)", first_start),
    Story("append", "records of all kinds, rolling journals (I-23, I-47, I-51, I-53)", append),
    Story("checkpoints", "index files, marks, journals (I-54, I-55, I-56, I-58)", checkpoints),
    Story("busy-checkpoints", "the same while the bookie answers (I-54)", busy_checkpoints),
    Story("ahead", "index files ahead of the journal (I-31, I-62)", ahead_of_the_journal),
    Story("rolls", "entry logs that roll, flushes in blocks (I-58, I-61)", rolls),
    Story("recycled-journals", "journals recycled and deleted (I-52, I-56)", recycled_journals),
    Story("power-cuts", "replay (I-51, I-53, I-57)", power_cuts),
    Story("kills", "replay of what is in the cache alone (I-48, I-53)", kills),
    Story("collection", "ledgers deleted, logs removed (I-04, I-63, I-64)", collection),
    Story("compaction", "logs rewritten (I-62)", compaction),
    Story("busy-compaction", "logs rewritten under adds and fences (I-62, I-63)", busy_compaction),
    Story("interrupted-compaction", "a compaction finished by the next process (I-62)", interrupted_compaction),
    Story(
        "one-journal",
        "one journal without recycling, index directories of their own (I-54)",
        wide_records,
        Layout(
            ("/j",),
            ("/l1", "/l2"),
            ("/x",),
            replace(JOURNALS, recycle=False, preallocation_size=0, backups_max=2),
            replace(STORAGE, entry_log_bytes_max=6000),
        ),
    ),
    Story(
        "one-directory",
        "a single directory for everything, no journals kept (I-55, I-56)",
        one_directory,
        Layout(("/d",), ("/d",), (), replace(JOURNALS, file_size_max=2048)),
    ),
    *UPKEEP_STORIES,
)
