"""A sample of the crash points of a bookie; `make crashpoints` tries all of them, and names what fails.

Method: each story is told once, and every so many-th of its states is examined: started, compared with what was
acknowledged, used, crashed again. Besides, all states of the kinds that have failed before.
"""

from collections.abc import Iterator

import pytest

from bookkeeper.bookie.integrity.scrub.page_repair import LogScan
from bookkeeper.bookie.journal.files import JournalFiles
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.crashpoints.enumeration import choices_at, points_of, state_at
from tests.crashpoints.examination import examine
from tests.crashpoints.failures import calls_of
from tests.crashpoints.history import (
    Add,
    Answered,
    Asked,
    Belief,
    Damaged,
    Deleted,
    Fence,
    Force,
    Mended,
    Moved,
    PowerLost,
    Repairing,
    body_of,
)
from tests.crashpoints.stories import STORIES
from tests.crashpoints.sweep import Attempt, Part, examine_one, examine_part, story_named
from tests.support.disk_image import DiskImage, Name, Sector, Size
from tests.support.faulty_filesystem import FaultyFileSystem

EVERY = 499
"""Seven states of each story at least: some seconds together."""


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[story.name for story in STORIES])
def test_a_sample_of_each_storys_crash_points(number: int) -> None:
    """I-23, I-24, I-31, I-47 to I-49, I-51 to I-58, I-61 to I-63, I-68."""
    tally = examine_part(Part(STORIES[number].name, every=EVERY, offset=17 * number))
    assert tally.states > 5
    assert tally.failures == []


@pytest.mark.parametrize(
    ("story", "operation", "choice"),
    [
        ("first-start", "sync_dir:", "kill"),  # directories, cookies, marks, journals: names that no sync covers
        ("one-directory", "sync_dir:", "kill"),
        ("ahead", "sync_dir:", "kill"),  # fences and index files ahead of the journal
        ("ahead", "make_dir:", "kill"),
        ("ahead", "sync:l1/0", "all"),  # index files that nobody comes back to
    ],
)
def test_what_failed_before(story: str, operation: str, choice: str) -> None:
    """I-04, I-23, I-49, I-54, I-56, I-62, I-70; each has a test of its own in test_kills.py as well."""
    told = story_named(story)
    points, events = points_of(told)
    chosen = [point for point in points if point.name.startswith(operation) and choice in choices_at(point)]
    assert len(chosen) > 3
    for point in chosen:
        state = state_at(told, point, events, choice)
        assert Attempt(state.id, state).examine(told) is None, state.id


@pytest.mark.parametrize(
    ("story", "operation", "choice"),
    [
        ("rebuilt-index", "rename:l1/0/2/2.idx.new", "none"),  # a lost index file, forgotten before it was made anew
        ("rebuilt-index", "sync:l2/0/3/3.idx.new", "all"),
        ("scrub", "sync:j2/4.txn", "kill"),  # checksums of bytes that were in the cache alone
        ("damage", "sync:l1/0/2/2.idx", "all"),  # something is added to a damaged page
        ("mended-index", "sync:l1/indexChecksums", "-1"),  # of two records not yet synced the disk stored the last
        ("mended-index", "sync:l1/indexChecksums", "+2"),
    ],
)
def test_what_failed_before_in_upkeep(story: str, operation: str, choice: str) -> None:
    """I-31, I-59, I-67; each has a unit test as well."""
    told = story_named(story)
    points, events = points_of(told)
    chosen = [point for point in points if point.name.startswith(operation) and choice in choices_at(point)]
    assert chosen
    for point in chosen:
        state = state_at(told, point, events, choice)
        assert Attempt(state.id, state).examine(told) is None, state.id


@pytest.mark.parametrize("id", ["sync_dir:l2/current:23:eio", "sync_dir:l1/current:17:eio"])
def test_a_side_file_is_told_from_others_while_another_thread_works(id: str) -> None:
    """The oracle of I-48: the journal was written between the making of a log's side file and the directory's sync."""
    assert examine_one(f"busy-checkpoints:{id}") is None


def _dropped_syncs(story: str, path: str) -> list[str]:
    """The states of a story in which a sync of this file fails and the kernel drops what was written."""
    names = [call.name for call in calls_of(story_named(story)) if "dropped" in call.kinds]
    return [f"{story}:{name}:dropped" for name in names if name.startswith(f"sync:{path}:")]


def test_a_page_whose_sync_failed_is_written_whole_by_the_next_process() -> None:
    """I-48, I-59: the kernel had taken it for stored; a checksum vouched for all of it, not for the new slot alone."""
    assert [examine_one(each) for each in _dropped_syncs("recycled-journals", "l2/0/1/1.idx")] == [None, None]


def test_a_page_that_the_kernel_dropped_is_unknown_and_not_denied_after_a_power_cut() -> None:
    """I-31, I-48, I-59: the scrub had taken its bytes in the cache for stored."""
    assert {examine_one(each) for each in _dropped_syncs("scrub", "l1/0/2/2.idx")} == {None}


def test_the_stories_of_upkeep_meet_what_they_are_about() -> None:
    """A story that lost its subject would pass for ever."""
    answers = {
        story: [event.answer for event in points_of(story_named(story))[1] if isinstance(event, Answered)]
        for story in ("damage", "mended-index", "moved-copies", "full-disks", "status-file", "rebuilt-index")
    }
    assert Status.IO_ERROR in answers["damage"]  # a normal add where nobody can tell what is held
    assert answers["mended-index"].count(Status.IO_ERROR) == 1  # before the page is made anew, and never again
    assert answers["moved-copies"].count(Status.FENCED) == 3
    assert answers["full-disks"].count(Status.READ_ONLY) == 1
    assert answers["full-disks"][-1] is Status.OK
    assert Status.READ_ONLY in answers["status-file"]
    events = points_of(story_named("rebuilt-index"))[1]
    assert [type(event) for event in events if isinstance(event, Damaged | Mended)] == [Mended, Damaged, Damaged] + [
        Mended
    ] * 3


def test_a_bookie_that_answers_before_the_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-47: a mutant, to see that the oracle sees."""
    monkeypatch.setattr(JournalFiles, "write_group", _written_and_not_synced)
    assert _failures("append", "none")


def test_an_index_ahead_of_its_log_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-58: a mutant."""
    monkeypatch.setattr(EntryLogs, "sync", lambda self: None)
    assert _failures("checkpoints", "none")


def test_an_index_page_made_anew_without_a_log_that_was_cut_short_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I-31, I-59: a mutant."""
    closed = LogScan.closed

    def sealed_ones(self: LogScan, log_id: int) -> Iterator[int]:
        path = self._logs.path_of(log_id)
        if path is not None and self._maps.read_map(log_id, path) is not None:
            yield from closed(self, log_id)

    monkeypatch.setattr(LogScan, "closed", sealed_ones)
    assert _failures("mended-index", "kill")


def _written_and_not_synced(self: JournalFiles, parts: list[bytes]) -> object:
    file = self._open_file()
    sync, file.sync = file.sync, lambda: None  # type: ignore[method-assign]
    try:
        return self._write_group(parts)
    finally:
        file.sync = sync  # type: ignore[method-assign]


def _failures(story: str, choice: str) -> int:
    told = story_named(story)
    points, events = points_of(told)
    states = [state_at(told, point, events, choice) for point in points[::10]]
    return sum(Attempt(state.id, state).examine(told) is not None for state in states)


# --- the parts


def test_units_of_a_disk_are_sectors_sizes_and_names_that_are_not_stored() -> None:
    fs = FaultyFileSystem()
    fs.make_dirs("/d")
    old = fs.open("/d/old", OpenMode.CREATE_EXCLUSIVE)
    old.pwrite(b"a" * 1024, 0)
    old.sync()
    fs.sync_dir("/d")
    old.pwrite(b"b" * 600, 0)
    old.pwrite(b"c", 1024)
    fs.open("/d/new", OpenMode.CREATE_EXCLUSIVE)
    image = DiskImage.of(fs)
    kinds = [type(unit) for unit in image.units]
    assert sorted(kinds, key=str) == sorted([Size, Sector, Sector, Sector, Name], key=str)
    assert image.after_power_cut(()).contents("/d/old") == b"a" * 1024
    whole = image.after_power_cut(image.units)
    assert whole.contents("/d/old") == b"b" * 600 + b"a" * 424 + b"c"
    assert whole.paths() == ["/d/new", "/d/old"]
    second = [unit for unit in image.units if isinstance(unit, Sector) and unit.offset == 512]
    assert image.after_power_cut(second).contents("/d/old") == b"a" * 512 + b"b" * 88 + b"a" * 424
    killed = image.after_kill()
    assert killed.contents("/d/old") == whole.contents("/d/old")
    killed.crash()
    assert killed.contents("/d/old") == b"a" * 1024


def test_an_image_is_not_touched_by_what_comes_later() -> None:
    fs = FaultyFileSystem()
    file = fs.open("/f", OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(b"first", 0)
    image = DiskImage.of(fs)
    file.pwrite(b"other", 0)
    fs.unlink("/f")
    assert image.after_kill().contents("/f") == b"first"
    assert image.after_power_cut(image.units).contents("/f") == b"first"


def test_what_must_hold_follows_from_what_was_answered() -> None:
    events = [
        Asked(0, Add(1, b"key", {0: b"a", 1: b"b"}, deferred=False)),
        Answered(0, Status.OK),
        Asked(2, Add(1, b"key", {2: b"c"}, deferred=True)),
        Answered(2, Status.OK),
        Asked(4, Fence(1, b"key")),
        Asked(5, Add(1, b"other", {0: b"z"}, deferred=False)),
        Answered(5, Status.UNAUTHORIZED),
    ]
    ledger = Belief(events).ledgers[1]
    assert [entry.held for entry in ledger.entries.values()] == [True, True, True]
    assert (ledger.fenced, ledger.may_be_fenced) == (False, True)
    assert ledger.entries[0].possible == [b"a"]
    assert not Belief([*events, PowerLost()]).ledgers[1].entries[2].held
    forced = [*events, Asked(7, Force(1)), Answered(7, Status.OK), PowerLost()]
    assert Belief(forced).ledgers[1].entries[2].held
    assert Belief([*events, Deleted(1)]).ledgers[1].deleted
    damaged = Belief([*events, Damaged("/l/1.log", 1, (1,))]).ledgers[1]
    assert [entry.damaged for entry in damaged.entries.values()] == [False, True, False]
    again = [Asked(8, Add(1, b"key", {1: b"b"}, deferred=False)), Answered(8, Status.OK)]
    assert not Belief([*events, Damaged("/l/1.log", 1, (1,)), *again]).ledgers[1].entries[1].damaged
    moved = Belief([*events, Moved(1)]).ledgers[1]
    assert not any(entry.held for entry in moved.entries.values())
    copied = Belief([*events, Moved(1), Repairing(1), *again]).ledgers[1]
    assert [entry.held for entry in copied.entries.values()] == [False, True, False]


def test_the_payload_that_was_acknowledged_first_is_the_one_to_be_held() -> None:
    """I-69; an add that was answered "unknown" before may be held in its place only with the same payload."""
    first, again = body_of(1, 0), body_of(1, 0, lac=5)
    other, late = body_of(1, 0, version=1), body_of(1, 0, version=2)
    events = [
        Asked(0, Add(1, b"key", {0: first}, deferred=False)),
        Answered(0, Status.IO_ERROR),
        Asked(2, Add(1, b"key", {0: other}, deferred=False)),
    ]
    refused = [*events, Answered(2, Status.IO_ERROR), Asked(4, Add(1, b"key", {0: again}, deferred=False))]
    late_one = Asked(6, Add(1, b"key", {0: late}, deferred=False))
    assert Belief([*events, Answered(2, Status.OK), late_one]).ledgers[1].entries[0].agreed == [other]
    assert Belief([*refused, Answered(4, Status.OK), late_one]).ledgers[1].entries[0].agreed == [first, again]


def test_a_state_is_the_same_each_time_it_is_made() -> None:
    story = story_named("checkpoints")
    names = [[point.name for point in points_of(story)[0]] for _ in range(2)]
    assert names[0] == names[1]
    points, events = points_of(story)
    for choice in ("r0", "torn"):
        point = next(point for point in points[200:] if choice in choices_at(point))
        made = [state_at(story, point, events, choice).fs for _ in range(2)]
        assert [[(path, fs.contents(path)) for path in fs.paths()] for fs in made[:1]] == [
            [(path, fs.contents(path)) for path in fs.paths()] for fs in made[1:]
        ]
    examine(story, state_at(story, points[-1], events, "none"))
