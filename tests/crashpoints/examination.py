"""One state after a crash: does the bookie start, does it hold what it promised, and does it go on? Raises Violation.

    start -> everything is compared -> it serves: adds, fences and keys are tried -> power cut that nothing unsynced
    survives -> start -> everything is compared, with what the first start showed, too -> no files are left over

The first start is itself cut short at one operation, which the state's id chooses, and the disk of that moment is
started and compared as well.

Besides, as the story has it: the first start of all is on a disk without room, and may fail; index files that were lost
are made anew, once the bookie has shown that it denies nothing of them; damaged entries are repaired; a last scrub
finds no damage but what was done (I-67).
"""

from __future__ import annotations

import contextlib
import errno
import random
import re

from bookkeeper.errors import BookKeeperError, NoWritableDisk
from bookkeeper.model import Status
from tests.crashpoints.enumeration import RANDOM_SUBSETS, State, crashed, is_kill
from tests.crashpoints.history import Asked, Belief, History, Mended, PowerLost
from tests.crashpoints.machine import BookieProcess, Machine, Stored
from tests.crashpoints.offline import rebuild_index_files
from tests.crashpoints.oracle import Held, Violation, check, check_unchanged, observe
from tests.crashpoints.story import Story
from tests.support.disk_image import DiskImage
from tests.support.faulty_filesystem import CHANGING, Op

NESTED_MAX = 300
"""A nested crash is at one of so many operations after the first; where there are fewer, it does not happen."""

AFTERLIFE = 10**9
"""A ledger that is made after the crash."""

_DROPPED_INDEX = re.compile(r":sync:[^:]*/([0-9a-f]+)\.idx[^:]*:\d+:dropped/")

LEFT_OVER = re.compile(r"\.(new|compacting|switching|compacted)$")
"""What must not stay. A `.tmp` may: there is one for each of a few names, and the next write of the name takes it."""


def examine(story: Story, state: State) -> None:
    """See the module."""
    rng = random.Random(state.id)
    cut_at = rng.randrange(1, NESTED_MAX)
    cut_choice = rng.choice(("none", "none", "all", "kill", *(f"r{index}" for index in range(RANDOM_SUBSETS))))
    history = History(state.events)
    machine = state.machine(story)
    cut_short: list[tuple[DiskImage, Stored, int]] = []
    operations = 0

    def watch(op: Op, _: str) -> None:
        nonlocal operations
        operations += op in CHANGING
        if operations == cut_at and op in CHANGING:
            cut_short.append((DiskImage.of(machine.fs), machine.stored, history.moment))

    if story.starts_full:
        _start_without_room(machine, history, state.id, rng)
    _mend(story, machine, history, state.id)
    machine.fs.on_operation = watch
    bookie = started(machine, history, state.id)
    belief = Belief(history.events)
    shown = observe(bookie, belief)
    check(belief, shown)
    _serve(bookie, belief, shown)
    try:
        bookie.collect()
    except (BookKeeperError, OSError) as error:
        raise Violation(f"the bookie failed after the restart: {error!r}") from error
    later = Belief(history.events)
    collected = observe(bookie, later)
    check(later, collected)
    _refuse_writers_of_moved(bookie, later, shown)
    machine.fs.on_operation = None
    events = history.events[:]
    again = after_power_cut(machine, history)
    later = Belief(history.events)
    bookie = started(again, history, state.id)
    shown_again = observe(bookie, later)
    check(later, shown_again)
    _refuse_writers_of_deleted(bookie, later)
    _refuse_writers_of_moved(bookie, later, shown)
    check_unchanged(belief, shown, shown_again, was_killed=state.was_killed)
    check_unchanged(later, collected, shown_again, was_killed=False)
    bookie.checkpoint()
    _check_leftovers(again)
    _scrub(bookie, later, sync_failed=state.id.endswith(":dropped"))
    for image, stored, moment in cut_short:
        nested = State(f"{state.id}/{cut_at}:{cut_choice}", machine.fs, events[:moment], stored, is_kill(cut_choice))
        _examine_nested(story, nested, image, cut_choice)


def started(machine: Machine, history: History, seed: str) -> BookieProcess:
    """A bookie that serves. Raises Violation when it does not start."""
    bookie = BookieProcess(machine, history, seed)
    try:
        bookie.start()
    except (BookKeeperError, OSError) as error:
        raise Violation(f"the bookie does not start: {error!r}") from error
    return bookie


def after_power_cut(machine: Machine, history: History) -> Machine:
    """Nothing unsynced survives."""
    history.note(PowerLost())
    fs = DiskImage.of(machine.fs).after_power_cut(())
    return Machine(machine.layout, fs, stored=machine.stored, events=history.events)


def _examine_nested(story: Story, state: State, image: DiskImage, choice: str) -> None:
    history = History(state.events)
    if not is_kill(choice):
        history.note(PowerLost())
    machine = Machine(story.layout, crashed(image, choice, state.id), stored=state.stored, events=state.events)
    try:
        bookie = started(machine, history, state.id)
        belief = Belief(history.events)
        check(belief, observe(bookie, belief, _dropped(state.id)))
    except Violation as error:
        raise Violation(f"after a second crash, {state.id.rpartition('/')[2]}: {error}") from error


def _dropped(id: str) -> set[int]:
    """The ledger whose index page the kernel took for stored when its sync failed.

    The next process finds the page in the cache and may vouch for it; where power fails before the page is written
    anew, its checksum tells, and the page is unknown until it is made anew out of the logs (I-31, I-48, I-59).
    """
    found = _DROPPED_INDEX.search(id)
    return {int(found[1], 16)} if found else set()


def _serve(bookie: BookieProcess, belief: Belief, shown: dict[int, Held | None]) -> None:
    """Each ledger takes what it should, and refuses what it should.

    What is there although nobody was told of it is asked for once more: from its answer on it must not be lost.
    """
    asked: list[tuple[Asked, Status]] = []
    for ledger_id, held in shown.items():
        bookie.settle()
        if held is None or held.key is None:
            continue
        known = belief.ledgers[ledger_id]
        if known.deleted or known.elsewhere or known.index_damaged:
            continue
        next_id = max(known.entries, default=-1) + 2
        asked.append((bookie.add(ledger_id, [next_id], key=b"x" * 20), Status.UNAUTHORIZED))
        asked.append((bookie.add(ledger_id, [next_id]), Status.FENCED if held.fenced else Status.OK))
        if held.fenced:
            asked.append((bookie.add(ledger_id, [next_id], recovery=True), Status.OK))
        if held.unknown:
            entries = [known.entries[entry_id] for entry_id in held.unknown]
            bodies = [(entry.agreed or entry.possible)[0] for entry in entries]
            asked.append((bookie.add(ledger_id, list(held.unknown), bodies=bodies, recovery=True), Status.OK))
        unsure = [entry_id for entry_id in held.entries if not known.entries[entry_id].held]
        if unsure:
            bodies = [held.entries[entry_id] for entry_id in unsure]
            asked.append((bookie.add(ledger_id, unsure, bodies=bodies, recovery=True), Status.OK))
        if held.fenced and not known.fenced:
            asked.append((bookie.fence(ledger_id, entry_id=next_id + 1), Status.NO_ENTRY))
        if held.lac is not None and held.lac != known.lac:
            asked.append((bookie.write_lac(ledger_id, int.from_bytes(held.lac[8:16], "big")), Status.OK))
    bookie.settle()
    asked.append((bookie.add(AFTERLIFE, [0, 1]), Status.OK))
    asked.append((bookie.write_lac(AFTERLIFE, 1), Status.OK))
    bookie.settle()
    _compare(bookie, asked)
    _refuse_writers_of_deleted(bookie, belief)


def _refuse_writers_of_deleted(bookie: BookieProcess, belief: Belief) -> None:
    """I-04: of a ledger that was fenced and deleted."""
    fenced = [ledger_id for ledger_id, known in belief.ledgers.items() if known.deleted and known.fenced]
    asked = [(bookie.add(ledger_id, [1000]), Status.FENCED) for ledger_id in fenced]
    bookie.settle()
    _compare(bookie, asked)


def _refuse_writers_of_moved(bookie: BookieProcess, belief: Belief, shown: dict[int, Held | None]) -> None:
    """I-66: once the copy here is gone, as it is after a collection, and also when a repair brings it back.

    shown: what was here before the collection.
    """
    moved = [
        ledger_id
        for ledger_id, known in belief.ledgers.items()
        if not known.deleted and (known.writers_refused or (known.elsewhere and shown.get(ledger_id) is not None))
    ]
    asked = [(bookie.add(ledger_id, [1000]), Status.FENCED) for ledger_id in moved]
    bookie.settle()
    _compare(bookie, asked)


def _start_without_room(machine: Machine, history: History, seed: str, rng: random.Random) -> None:
    """What it does before it gives up must do no harm; a bookie that starts all the same must not deny anything."""
    fs = machine.fs
    directories = (machine.layout.ledger_dirs, machine.layout.journal_dirs, ("",))[rng.randrange(3)]
    fs.free_below = dict.fromkeys(directories, 0.0)
    bookie = BookieProcess(machine, history, seed)
    try:
        bookie.start()
        belief = Belief(history.events)
        check(belief, observe(bookie, belief))
        bookie.settle()
    except NoWritableDisk:
        pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise Violation(f"no start on a full disk: {error!r}") from error
    except BookKeeperError as error:
        raise Violation(f"no start on a full disk: {error!r}") from error
    fs.free_below = {}
    machine.kill()


def _mend(story: Story, machine: Machine, history: History, seed: str) -> None:
    """Make lost index files anew. Before that, a bookie, if it starts, must not deny what was in them."""
    belief = Belief(history.events)
    lost = [ledger_id for ledger_id, known in belief.ledgers.items() if known.index_damaged]
    if not lost or not story.rebuilds:
        return
    twin = Machine(machine.layout, DiskImage.of(machine.fs).after_kill(), stored=machine.stored, events=history.events)
    bookie = BookieProcess(twin, History(history.events), seed)
    with contextlib.suppress(BookKeeperError):  # the journal may have entries for a file that is gone
        bookie.start()
        check(belief, observe(bookie, belief))
    for rebuilt in rebuild_index_files(machine, lost):
        if rebuilt.refused is not None:
            raise Violation(f"the index of ledger {rebuilt.ledger_id} is not made anew: {rebuilt.refused}")
        history.note(Mended(rebuilt.ledger_id))


def _scrub(bookie: BookieProcess, belief: Belief, *, sync_failed: bool) -> None:
    """No damage but what was done.

    sync_failed: the cache had bytes that no sync stores any more, and that the next process took for stored.
    """
    storage = bookie.storage
    for _ in storage.scrub().steps(everything=True):
        pass
    for damage in storage.damage.all():
        known = belief.ledgers.get(damage.ledger_id)
        excused = known is not None and (known.deleted or known.index_damaged)
        if damage.path not in belief.damaged_paths and not excused and not sync_failed:
            raise Violation(f"the scrub takes this for damaged (I-67): {damage}")


def _compare(bookie: BookieProcess, asked: list[tuple[Asked, Status]]) -> None:
    if bookie.failure is not None:
        raise Violation(f"the bookie failed after the restart: {bookie.failure!r}")
    for request, expected in asked:
        answer = bookie.history.answer_of(request)
        if answer is not expected:
            kind = type(request.request).__name__.lower()
            raise Violation(f"{kind}, ledger {request.request.ledger_id}: answered {answer}, and {expected} is due")


def _check_leftovers(machine: Machine) -> None:
    """Whatever a crash left behind is gone by now, or used."""
    paths = machine.fs.paths()
    left = [path for path in paths if LEFT_OVER.search(path)]
    if left:
        raise Violation(f"left behind for ever: {', '.join(left)}")
    journals_max = machine.layout.journals.backups_max + 3
    for directory in machine.layout.journal_dirs:
        journals = [path for path in paths if path.startswith(directory + "/") and path.endswith(".txn")]
        if len(journals) > journals_max:
            raise Violation(f"{len(journals)} journals in {directory}, more than {journals_max}")
