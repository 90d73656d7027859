"""The n-th system call of a story fails, for every n; then the bookie is started again on a disk without faults.

    eio       it fails, a write after its first half; the process that follows finds the cache as it was
    dropped   a sync fails and the kernel takes the pages for clean: they are in the cache, and no later sync stores
              them (I-48); the process that follows finds them there
    enospc    it finds no room, a write after its first half; the machine loses power afterwards
    full      from here on nothing grows any more, until the story is over (I-68)

Names of operations are those of crash points, with reads, listings, opens and closes besides, as in
`append:sync:j1/1.txn:2:eio`. A write or sync of the bookie's data that fails must end the bookie or its start (I-48).
A full disk may also make it read-only. Whatever it is, nothing acknowledged is lost.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from tests.crashpoints.enumeration import Names, State
from tests.crashpoints.history import History, PowerLost
from tests.crashpoints.life import Ended, Life
from tests.crashpoints.oracle import Violation
from tests.crashpoints.story import Story
from tests.support.disk_image import DiskImage
from tests.support.faulty_filesystem import CHANGING, Op

GROWING = frozenset({Op.CREATE, Op.WRITE, Op.TRUNCATE, Op.RENAME, Op.LINK, Op.MAKE_DIR})
"""Operations that can find no room."""

FORGIVEN = ("metadata.sessions", ".crc", "bookie.status")
"""No data depends on these files, which are made anew: their errors do not end a bookie."""

FORGIVEN_WORKER = "scrub"
"""Nor do those of the scrub, which makes checksums of what has none."""


@dataclass(frozen=True, slots=True)
class Call:
    """A system call of a story, and how it can fail."""

    name: str
    op: Op

    @property
    def kinds(self) -> tuple[str, ...]:
        """See the module."""
        if self.op is Op.SYNC:
            return ("eio", "dropped")
        if self.op in GROWING:
            return ("eio", "enospc", "full")
        return ("eio",)


def calls_of(story: Story) -> list[Call]:
    """Every system call of a story."""
    names = Names()
    calls: list[Call] = []
    life = Life(story.name, story.layout, lambda op, path: calls.append(Call(names.next(op, path), op)))
    story.tell(life)
    return calls


def failed(story: Story, call: Call, kind: str) -> State:
    """Tell the story with this failure; the machine that it leaves. Raises Violation when the bookie goes on."""
    names = Names()
    happened = forgiven = scrubs = False
    of_forgiven: dict[str, bool] = {}  # by directory: whether what happened in it last was done to such a file
    ends = 0

    def watch(op: Op, path: str) -> None:
        nonlocal happened, forgiven, scrubs, ends
        if not happened:
            # A directory is synced for what was done in it last; other threads do other things elsewhere meanwhile.
            if op is not Op.SYNC_DIR:
                of_forgiven[os.path.dirname(path)] = any(name in path for name in FORGIVEN)
            forgiven = of_forgiven.get(path if op is Op.SYNC_DIR else os.path.dirname(path), False)
            scrubs = any(worker.busy and worker.name == FORGIVEN_WORKER for worker in life.bookie.workers)
        if happened or names.next(op, path) != call.name:
            return
        happened = True
        ends = len(life.ends)
        fs = life.machine.fs
        if kind == "full":
            fs.quota_bytes = fs.used_bytes
            return
        fs.tears_sectors = False
        fs.last_failure_drops = kind == "dropped"
        number = errno.ENOSPC if kind == "enospc" else errno.EIO
        raise OSError(number, os.strerror(number), path)

    life = Life(story.name, story.layout, watch)
    ended = False
    try:
        story.tell(life)
    except Ended:
        ended = True
    machine = life.machine
    machine.fs.on_operation = None
    machine.fs.quota_bytes = None
    ended = ended or len(life.ends) > ends or any(process.failure is not None for process in life.processes)
    fatal = call.op in CHANGING and kind in ("eio", "dropped") and not forgiven and not scrubs
    if fatal and happened and not ended:
        raise Violation(f"the bookie went on after a failed {call.op.value} (I-48)")
    image, events = DiskImage.of(machine.fs), life.history.events
    if kind == "enospc":
        known = History(events)
        known.note(PowerLost())
        return State(f"{story.name}:{call.name}:{kind}", image.after_power_cut(()), known.events, machine.stored, False)
    return State(f"{story.name}:{call.name}:{kind}", image.after_kill(), events, machine.stored, True)
