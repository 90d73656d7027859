"""One state after a crash: does the bookie start, does it hold what it promised, and does it go on? Raises Violation.

    start -> everything is compared -> it serves: adds, fences and keys are tried -> power cut that nothing unsynced
    survives -> start -> everything is compared, with what the first start showed, too -> no files are left over

The first start is itself cut short at one operation, which the state's id chooses, and the disk of that moment is
started and compared as well.
"""

from __future__ import annotations

import random
import re

from bookkeeper.errors import BookKeeperError
from bookkeeper.model import Status
from tests.crashpoints.enumeration import RANDOM_SUBSETS, State, crashed, is_kill
from tests.crashpoints.history import Asked, Belief, History, PowerLost
from tests.crashpoints.machine import BookieProcess, Machine
from tests.crashpoints.oracle import Held, Violation, check, check_unchanged, observe
from tests.crashpoints.stories import Story
from tests.support.disk_image import DiskImage
from tests.support.faulty_filesystem import CHANGING, Op

NESTED_MAX = 300
"""A nested crash is at one of so many operations after the first; where there are fewer, it does not happen."""

AFTERLIFE = 10**9
"""A ledger that is made after the crash."""

LEFT_OVER = re.compile(r"\.(new|compacting|switching|compacted)$")
"""What must not stay. A `.tmp` may: there is one for each of a few names, and the next write of the name takes it."""


def examine(story: Story, state: State) -> None:
    """See the module."""
    rng = random.Random(state.id)
    cut_at = rng.randrange(1, NESTED_MAX)
    cut_choice = rng.choice(("none", "none", "all", "kill", *(f"r{index}" for index in range(RANDOM_SUBSETS))))
    history = History(state.events)
    machine = state.machine(story)
    cut_short: list[tuple[DiskImage, bytes | None, int]] = []
    operations = 0

    def watch(op: Op, _: str) -> None:
        nonlocal operations
        operations += op in CHANGING
        if operations == cut_at and op in CHANGING:
            cut_short.append((DiskImage.of(machine.fs), machine.cookie, history.moment))

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
    machine.fs.on_operation = None
    events = history.events[:]
    again = after_power_cut(machine, history)
    later = Belief(history.events)
    bookie = started(again, history, state.id)
    shown_again = observe(bookie, later)
    check(later, shown_again)
    _refuse_writers_of_deleted(bookie, later)
    check_unchanged(belief, shown, shown_again, was_killed=state.was_killed)
    check_unchanged(later, collected, shown_again, was_killed=False)
    bookie.checkpoint()
    _check_leftovers(again)
    for image, cookie, moment in cut_short:
        nested = State(f"{state.id}/{cut_at}:{cut_choice}", machine.fs, events[:moment], cookie, is_kill(cut_choice))
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
    return Machine(machine.layout, fs, cookie=machine.cookie, events=history.events)


def _examine_nested(story: Story, state: State, image: DiskImage, choice: str) -> None:
    history = History(state.events)
    if not is_kill(choice):
        history.note(PowerLost())
    machine = Machine(story.layout, crashed(image, choice, state.id), cookie=state.cookie, events=state.events)
    try:
        bookie = started(machine, history, state.id)
        belief = Belief(history.events)
        check(belief, observe(bookie, belief))
    except Violation as error:
        raise Violation(f"after a second crash, {state.id.rpartition('/')[2]}: {error}") from error


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
        if known.deleted:
            continue
        next_id = max(known.entries, default=-1) + 2
        asked.append((bookie.add(ledger_id, [next_id], key=b"x" * 20), Status.UNAUTHORIZED))
        asked.append((bookie.add(ledger_id, [next_id]), Status.FENCED if held.fenced else Status.OK))
        if held.fenced:
            asked.append((bookie.add(ledger_id, [next_id], recovery=True), Status.OK))
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
