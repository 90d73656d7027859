"""Checkpoints in a directory, and the namespace as a state machine over them."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError
from bookkeeper.filesystem import OpenMode
from journalmgr.contract import RecordBatch
from journalmgr.edits.codec import encode
from journalmgr.edits.frame import RecordDecoder
from journalmgr.edits.ops import Delete, Mkdir, StartLogSegment
from journalmgr.edits.ops import Op as Edit
from journalmgr.errors import EditsCorrupt, JournalError, NamespaceMismatch
from journalmgr.model import HADOOP_2_7, NamespaceInfo, Segment, TxId
from journalmgr.namenode.errors import ImageError, ReplayError
from journalmgr.namenode.images.checkpoints import Checkpoint, DirectoryCheckpoints, image_name, txid_of_image
from journalmgr.namenode.images.format import fingerprint
from journalmgr.namenode.images.schedule import Checkpointing, CheckpointSettings
from journalmgr.namenode.machine import CheckpointGivenUp, NamespaceMachine, NoCheckpointLoads
from journalmgr.replica import Role
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut
from tests.support.scripted_journal import ScriptedJournal
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess, SimulatedWorker

T = TypeVar("T")

INFO = NamespaceInfo(7, "CID-7", "BP-7")
DIRECTORY = "/images"


class Ground:
    """One process on one disk, in simulated time."""

    def __init__(self, fs: FaultyFileSystem | None = None) -> None:
        self.clock = SimulatedClock()
        self.fs = fs or FaultyFileSystem()
        self.worker = SimulatedWorker("checkpoints", SimulatedProcess("server", self.clock), random.Random(1))
        self.store = DirectoryCheckpoints(self.fs, self.worker, DIRECTORY)
        self.machine = NamespaceMachine(self.store, INFO)

    def run(self, deferred: Deferred[T]) -> T:
        results: list[Any] = []
        deferred.addBoth(results.append)
        assert self.clock.run_until(lambda: bool(results), seconds=60)
        if isinstance(results[0], Failure):
            raise results[0].value  # type: ignore[misc]
        result: T = results[0]
        return result

    def read(self, checkpoint: Checkpoint) -> bytes:
        return self.run(Deferred.fromCoroutine(_joined(self.store.read(checkpoint))))


async def unchecked(checkpoint: Checkpoint, pieces: AsyncIterator[bytes]) -> None:
    """What is written need not be an image."""
    async for _ in pieces:
        pass


async def _joined(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


def batch(*ops: Edit, first: int = 1, layout_version: int = HADOOP_2_7) -> RecordBatch:
    for txid, op in enumerate(ops, first):
        op.txid = txid
    data = b"".join(encode(op, layout_version) for op in ops)
    records = RecordDecoder(layout_version, source="test").feed(data)
    return RecordBatch(Segment(TxId(first), None, layout_version, name="test"), records)


def directories(*names: str, first: int = 1) -> RecordBatch:
    ops: list[Edit] = [StartLogSegment()] if first == 1 else []
    ops += [Mkdir(path=f"/{name}") for name in names]
    return batch(*ops, first=first)


def names_of(machine: NamespaceMachine) -> list[str]:
    return sorted(machine.namespace.root.children)


def test_names_of_images_hold_their_txid_and_nothing_else_is_an_image() -> None:
    assert txid_of_image(image_name(4711)) == 4711
    for name in ("image_4711", "image_0000000000000004711.unfinished", "fsimage_0000000000000004711", ""):
        assert txid_of_image(name) is None


def test_what_is_written_is_listed_and_read_back() -> None:
    ground = Ground()
    assert ground.run(ground.store.all()) == []
    pieces = [b"a" * 10, b"b" * 3_000_000, b"c"]
    written = ground.run(ground.store.write(9, iter(pieces), unchecked))
    ground.run(ground.store.write(3, iter([b"older"]), unchecked))
    assert [found.txid for found in ground.run(ground.store.all())] == [3, 9]
    assert ground.read(written) == b"".join(pieces)
    ground.run(ground.store.remove(written))
    ground.run(ground.store.remove(written))
    assert [found.txid for found in ground.run(ground.store.all())] == [3]


def test_an_image_of_a_txid_that_is_there_already_stays() -> None:
    ground = Ground()
    first = ground.run(ground.store.write(9, iter([b"first"]), unchecked))
    again = ground.run(ground.store.write(9, iter([b"second"]), unchecked))
    assert again == first
    assert ground.read(first) == b"first"


def test_what_was_given_up_or_cut_short_does_not_fill_the_disk() -> None:
    """Each image has another name, so nobody would ever write over the rest of one."""
    ground = Ground()

    def given_up() -> Iterator[bytes]:
        yield b"first"
        raise CheckpointGivenUp("more urgent")

    with pytest.raises(CheckpointGivenUp):
        ground.run(ground.store.write(3, given_up(), unchecked))
    assert ground.run(ground.store.all()) == []
    assert ground.fs.listdir(DIRECTORY) == []
    ground.store.write(5, iter([b"first"] * 1000), unchecked)
    assert ground.clock.run_until(lambda: bool(ground.fs.listdir(DIRECTORY)), seconds=60)
    ground.clock.run_until(lambda: False, seconds=0.0)
    again = Ground(ground.fs)  # the process that wrote it is dead
    again.run(again.store.write(9, iter([b"whole"]), unchecked))
    assert again.fs.listdir(DIRECTORY) == [image_name(9)]


def test_two_processes_that_save_the_same_state_never_list_half_an_image() -> None:
    """Two servers on one directory by mistake: what is listed is what the journal is purged for."""
    ground = Ground()
    other = DirectoryCheckpoints(ground.fs, ground.worker, DIRECTORY)
    second: list[Deferred[Checkpoint]] = []

    def pieces() -> Iterator[bytes]:
        yield b"one"
        second.append(other.write(9, iter([b"one", b"two", b"three"]), unchecked))
        yield b"two"
        yield b"three"

    first = ground.store.write(9, pieces(), unchecked)
    outcomes: list[object] = []
    first.addBoth(outcomes.append)
    assert ground.clock.run_until(lambda: bool(outcomes), seconds=60)
    # Looked at without letting the other one go on: it may never do so.
    if ground.fs.exists(path := f"{DIRECTORY}/{image_name(9)}"):
        assert ground.fs.open(path, OpenMode.READ).pread(100, 0) == b"onetwothree"
    second[0].addBoth(outcomes.append)
    assert ground.clock.run_until(lambda: len(outcomes) == 2, seconds=60)
    [checkpoint] = ground.run(ground.store.all())
    assert ground.read(checkpoint) == b"onetwothree"


@pytest.mark.parametrize("operation", range(1, 12))
def test_power_that_goes_at_any_moment_leaves_no_half_image_in_the_list(operation: int) -> None:
    ground = Ground()
    ground.run(ground.store.write(3, iter([b"older"]), unchecked))
    ground.fs.cut_power_at(operation)
    whole = [b"x" * 5000, b"y" * 5000]
    done: list[Any] = []
    ground.store.write(9, iter(whole), unchecked).addBoth(done.append)
    try:
        ground.clock.run_until(lambda: bool(done), seconds=60)
    except PowerCut:
        assert not done
    ground.fs.crash(random.Random(operation))
    after = Ground(ground.fs)
    for found in after.run(after.store.all()):
        assert after.read(found) == (b"older" if found.txid == 3 else b"".join(whole))
    again = after.run(after.store.write(9, iter(whole), unchecked))
    assert after.read(again) == b"".join(whole)


def test_a_disk_that_fails_is_told_with_the_directory() -> None:
    ground = Ground()
    ground.fs.quota_bytes = 10
    with pytest.raises(BookKeeperError, match=DIRECTORY):
        ground.run(ground.store.write(9, iter([b"x" * 5000]), unchecked))
    assert ground.run(ground.store.all()) == []


def test_the_machine_comes_back_from_its_checkpoint() -> None:
    ground = Ground()
    assert ground.run(ground.machine.load()) == 0
    ground.machine.apply(directories("a", "b"))
    ground.run(ground.machine.checkpoint())
    ground.machine.apply(directories("c", first=4))
    other = Ground(ground.fs)
    assert other.run(other.machine.load()) == 3
    assert names_of(other.machine) == ["a", "b"]
    other.machine.apply(directories("c", first=4))
    assert fingerprint(other.machine.namespace) == fingerprint(ground.machine.namespace)


def test_loading_forgets_what_was_applied() -> None:
    ground = Ground()
    ground.machine.apply(directories("a"))
    assert ground.run(ground.machine.load()) == 0
    assert names_of(ground.machine) == []


def test_an_image_of_another_namespace_is_refused() -> None:
    """I-87."""
    ground = Ground()
    ground.machine.apply(directories("a"))
    ground.run(ground.machine.checkpoint())
    stranger = NamespaceMachine(ground.store, NamespaceInfo(8, "CID-8", "BP-8"))
    with pytest.raises(NamespaceMismatch, match="namespace id 7"):
        ground.run(stranger.load())


def damage(ground: Ground, checkpoint: Checkpoint) -> None:
    """Change a bit in the middle of an image that is listed."""
    file = ground.fs.open(f"{DIRECTORY}/{checkpoint.name}", OpenMode.UPDATE)
    data = ground.read(checkpoint)
    file.pwrite(bytes([data[len(data) // 2] ^ 1]), len(data) // 2)
    file.close()


def two_images(ground: Ground) -> list[Checkpoint]:
    """At txid 2 with /a, at txid 3 with /a and /b."""
    images = []
    for applied in (directories("a"), directories("b", first=3)):
        ground.machine.apply(applied)
        images.append(ground.run(ground.machine.checkpoint()))
    return images


def test_the_image_before_a_damaged_one_is_loaded_and_that_is_said_aloud() -> None:
    ground = Ground()
    [_, newest] = two_images(ground)
    damage(ground, newest)
    other = Ground(ground.fs)
    with capturedLogs() as events:
        assert other.run(other.machine.load()) == 2
    assert names_of(other.machine) == ["a"]
    assert other.machine.checkpoint_txid == 2
    said = [formatEvent(event) for event in events if event["log_level"] is LogLevel.error]
    assert [newest.name in said[0], "from txid 3 on" in said[1]] == [True, True]


def test_a_bad_sector_is_damage_too() -> None:
    ground = Ground()
    [_, newest] = two_images(ground)
    ground.fs.fail_nth(Op.READ, 1, errno.EIO, path=newest.name)
    assert ground.run(ground.machine.load()) == 2


def test_trouble_that_may_pass_is_no_reason_to_pass_an_image_over() -> None:
    """The edits behind the older one may be purged, and then the server would end for want of a descriptor."""
    ground = Ground()
    [_, newest] = two_images(ground)
    ground.fs.fail_nth(Op.OPEN, 1, errno.EMFILE, path=newest.name)
    with pytest.raises(JournalError, match=DIRECTORY):
        ground.run(ground.machine.load())
    assert ground.run(ground.machine.load()) == 3


def test_where_no_image_loads_all_are_named_with_the_remedy() -> None:
    ground = Ground()
    images = two_images(ground)
    for image in images:
        damage(ground, image)
    with pytest.raises(NoCheckpointLoads, match="remove them all") as caught:
        ground.run(ground.machine.load())
    assert all(f"{DIRECTORY}/{image.name} at offset" in str(caught.value) for image in images)


def test_an_image_under_the_name_of_another_txid_is_refused() -> None:
    """Replay would begin in the wrong place."""
    ground = Ground()
    [older, newest] = two_images(ground)
    ground.fs.rename(f"{DIRECTORY}/{newest.name}", f"{DIRECTORY}/{image_name(9)}")
    assert ground.run(ground.machine.load()) == older.txid


def test_an_image_that_is_removed_while_it_is_loaded_makes_room_for_the_newest() -> None:
    """Another server has saved two newer ones since the list was read."""
    ground = Ground()
    [older, _] = two_images(ground)
    other = Ground(ground.fs)
    list_all, late = other.store.all, [older]

    def listing() -> Deferred[list[Checkpoint]]:
        if not late:
            return list_all()
        ground.run(ground.store.remove(older))
        listed: Deferred[list[Checkpoint]] = Deferred()
        listed.callback([late.pop()])
        return listed

    other.store.all = listing  # type: ignore[method-assign]
    with capturedLogs() as events:
        assert other.run(other.machine.load()) == 3
    assert [event for event in events if event["log_level"] is LogLevel.error] == []


def test_an_image_that_is_not_stored_as_it_was_written_is_not_listed() -> None:
    """What is listed is what the journal is purged for."""
    ground = Ground()
    ground.machine.apply(directories("a"))
    opened = ground.fs.open

    def open_badly(path: str, mode: OpenMode) -> Any:
        file: Any = opened(path, mode)
        if mode is OpenMode.CREATE_EXCLUSIVE:
            write = file.pwrite
            file.pwrite = lambda data, offset: write(data[:-1] + b"?", offset)
        return file

    ground.fs.open = open_badly  # type: ignore[method-assign]
    with pytest.raises(ImageError):
        ground.run(ground.machine.checkpoint())
    assert ground.run(ground.store.all()) == []
    assert ground.machine.checkpoint_txid == 0
    assert ground.fs.listdir(DIRECTORY) == []


def test_a_damaged_image_is_saved_anew_by_who_is_at_the_same_txid() -> None:
    ground = Ground()
    [_, newest] = two_images(ground)
    damage(ground, newest)
    assert ground.run(ground.machine.checkpoint()) == newest
    assert ground.run(ground.machine.load()) == 3


def test_transactions_wait_for_the_checkpoint_under_way() -> None:
    ground = Ground()
    ground.machine.apply(directories("a"))
    saving = ground.machine.checkpoint()
    applying = ground.machine.apply(directories("b", first=3))
    assert applying is not None
    assert names_of(ground.machine) == ["a"]
    ground.run(saving)
    ground.run(applying)
    assert names_of(ground.machine) == ["a", "b"]
    other = Ground(ground.fs)
    assert other.run(other.machine.load()) == 2


def test_transactions_do_not_wait_until_the_image_is_read_back() -> None:
    ground = Ground()
    ground.machine.apply(directories("a"))
    saving = ground.machine.checkpoint()
    applying = ground.machine.apply(directories("b", first=3))
    assert applying is not None
    ground.run(applying)
    assert ground.machine.saving
    assert ground.run(saving).txid == 2
    assert ground.run(ground.machine.load()) == 2
    assert names_of(ground.machine) == ["a"]


def test_a_checkpoint_is_given_up_when_something_more_urgent_comes() -> None:
    """At once: the disk may take its time for the piece that is being written."""
    ground = Ground()
    ground.machine.apply(directories("a"))
    saving = ground.machine.checkpoint()
    applying = ground.machine.apply(directories("b", first=3))
    assert applying is not None
    ground.machine.give_up_checkpoint()
    assert names_of(ground.machine) == ["a", "b"]
    assert ground.machine.apply(directories("c", first=4)) is None
    with pytest.raises(CheckpointGivenUp):
        ground.run(saving)
    ground.run(applying)
    assert names_of(ground.machine) == ["a", "b", "c"]
    assert ground.run(ground.store.all()) == []
    assert ground.run(ground.machine.checkpoint()).txid == 4


def test_a_checkpoint_is_given_up_while_it_is_read_back() -> None:
    ground = Ground()
    ground.machine.apply(directories("a"))
    saving = ground.machine.checkpoint()
    applying = ground.machine.apply(directories("b", first=3))
    assert applying is not None
    ground.run(applying)
    ground.machine.give_up_checkpoint()
    with pytest.raises(CheckpointGivenUp):
        ground.run(saving)
    assert ground.run(ground.store.all()) == []


def test_looking_at_an_old_image_is_given_up_when_something_more_urgent_comes() -> None:
    """Thousands of pieces take the processor from a takeover."""
    ground = Ground()
    [older, _] = two_images(ground)
    verifying = ground.machine.verify(older)
    ground.machine.give_up_checkpoint()
    with pytest.raises(CheckpointGivenUp):
        ground.run(verifying)
    ground.run(ground.machine.verify(older))


def test_what_does_not_fit_the_namespace_stops_the_machine_there() -> None:
    ground = Ground()
    with pytest.raises(ReplayError, match="txid 3"):
        ground.machine.apply(batch(StartLogSegment(), Mkdir(path="/a"), Delete(path="/b")))
    assert ground.machine.namespace.last_txid == 2


def test_a_body_that_cannot_be_taken_apart_names_segment_and_offset() -> None:
    ground = Ground()
    found = directories("a")
    broken = found.records[1]._replace(body=found.records[1].body[:-1])
    with pytest.raises(EditsCorrupt, match="test at offset 17, txid 2"):
        ground.machine.apply(found._replace(records=[found.records[0], broken]))


# --- when


class Watched:
    """A server's checkpointing, its role given by the test."""

    def __init__(self, **settings: Any) -> None:
        self.ground = Ground()
        self.role = Role.STANDBY
        self.journal = ScriptedJournal()
        self.purged: list[int] = []
        self.journal.purge_older_than = self._purge  # type: ignore[method-assign, assignment]
        self.checkpointing = Checkpointing(
            self.ground.machine,
            self.journal,
            self.ground.clock,
            CheckpointSettings(check_period_s=1.0, **settings),
            lambda: self.role,
        )
        self.checkpointing.start()

    def _purge(self, txid: TxId) -> Deferred[list[Segment]]:
        self.purged.append(txid)
        done: Deferred[list[Segment]] = Deferred()
        done.callback([])
        return done

    def wait(self, seconds: float) -> list[int]:
        self.ground.clock.run_until(lambda: False, seconds=seconds)
        return [found.txid for found in self.ground.run(self.ground.store.all())]


def test_a_standby_takes_a_checkpoint_after_enough_transactions() -> None:
    watched = Watched(transactions=3, period_s=1000.0)
    watched.ground.machine.apply(directories("a"))
    assert watched.wait(5) == []
    watched.ground.machine.apply(directories("b", first=3))
    assert watched.wait(5) == [3]
    assert watched.wait(5) == [3]


def test_a_standby_takes_a_checkpoint_after_a_while_if_there_is_news() -> None:
    watched = Watched(transactions=1000, period_s=10.0)
    assert watched.wait(20) == []
    watched.ground.machine.apply(directories("a"))
    assert watched.wait(12) == [2]
    assert watched.wait(30) == [2]


def test_only_so_many_are_kept() -> None:
    watched = Watched(transactions=1, period_s=1000.0, retained=2)
    for number in range(5):
        watched.ground.machine.apply(directories(f"d{number}", first=watched.ground.machine.namespace.last_txid + 1))
        listed = watched.wait(3)
    assert listed == [5, 6]


def test_the_active_takes_none_and_purges_what_the_oldest_one_kept_covers() -> None:
    """I-86."""
    watched = Watched(transactions=1, period_s=1000.0, extra_transactions=1)
    for number in range(3):
        watched.ground.machine.apply(directories(f"d{number}", first=watched.ground.machine.namespace.last_txid + 1))
        watched.wait(3)
    assert watched.purged == []
    watched.role = Role.ACTIVE
    watched.ground.machine.apply(directories("e", first=5))
    assert watched.wait(1.5) == [3, 4]
    assert set(watched.purged) == {3}


def active_with_images(count: int, **settings: Any) -> Watched:
    """An active server and images of txid 2, 3 ... that another one saved."""
    watched = Watched(transactions=1, period_s=1000.0, extra_transactions=0, **settings)
    saver = Ground(watched.ground.fs)
    for number in range(count):
        saver.machine.apply(directories(f"d{number}", first=saver.machine.namespace.last_txid + 1))
        saver.run(saver.machine.checkpoint())
    watched.role = Role.ACTIVE
    return watched


def test_nothing_is_purged_before_there_are_as_many_checkpoints_as_are_kept() -> None:
    """I-86: or one image that is damaged later would be all that there was of it."""
    watched = active_with_images(1, retained=2)
    watched.wait(5)
    assert watched.purged == []
    watched = active_with_images(1, retained=1)
    watched.wait(5)
    assert set(watched.purged) == {3}


def test_a_damaged_checkpoint_is_no_reason_to_purge() -> None:
    """I-86: neither on its own account, nor as one of the two that there have to be."""
    for damaged, purged in ((2, {3}), (1, {3}), (0, {4})):
        watched = active_with_images(3, retained=2)
        damage(watched.ground, watched.ground.run(watched.ground.store.all())[damaged])
        watched.wait(5)
        assert set(watched.purged) == purged
    watched = active_with_images(2, retained=2)
    damage(watched.ground, watched.ground.run(watched.ground.store.all())[0])
    watched.wait(5)
    assert watched.purged == []


def test_an_image_of_another_namespace_is_no_reason_to_purge() -> None:
    watched = active_with_images(1, retained=1)
    stranger = NamespaceMachine(watched.ground.store, NamespaceInfo(8, "CID-8", "BP-8"))
    stranger.apply(directories("a", "b", "c"))
    watched.ground.run(stranger.checkpoint())
    watched.wait(5)
    assert set(watched.purged) == {3}


def test_a_checkpoint_that_cannot_be_read_now_is_looked_at_again() -> None:
    watched = active_with_images(1, retained=1)
    watched.ground.fs.fail_nth(Op.OPEN, 1, errno.EMFILE)
    watched.wait(1.5)
    assert watched.purged == []
    watched.wait(2)
    assert set(watched.purged) == {3}


def test_an_old_checkpoint_stays_as_long_as_a_newer_one_is_damaged() -> None:
    watched = active_with_images(2, retained=2)
    watched.role = Role.STANDBY
    damage(watched.ground, watched.ground.run(watched.ground.store.all())[1])
    watched.ground.run(watched.ground.machine.load())
    for txid, listed in ((4, [2, 3, 4]), (5, [4, 5])):
        first = watched.ground.machine.namespace.last_txid + 1
        watched.ground.machine.apply(directories(*[f"n{each}" for each in range(first, txid + 1)], first=first))
        assert watched.wait(3) == listed


def test_stopping_waits_for_what_is_under_way() -> None:
    """Or it would go on with a worker and a journal that are closed."""
    watched = Watched(transactions=1)
    watched.ground.machine.apply(directories("a"))
    saving = watched.checkpointing.save()
    outcomes: list[Any] = []
    saving.addErrback(lambda failure: outcomes.append(failure.type))
    stopping = watched.checkpointing.stop()
    stopping.addCallback(lambda _: outcomes.append("stopped"))
    assert outcomes == []
    watched.ground.run(stopping)
    assert set(outcomes) == {CheckpointGivenUp, "stopped"}
    watched.ground.run(watched.checkpointing.stop())


def test_without_any_checkpoint_nothing_is_purged() -> None:
    watched = Watched()
    watched.role = Role.ACTIVE
    watched.wait(5)
    assert watched.purged == []


def test_a_turn_does_not_wait_for_a_checkpoint() -> None:
    watched = Watched(transactions=1)
    watched.ground.machine.apply(directories("a"))
    watched.ground.clock.run_until(lambda: watched.ground.machine.saving, seconds=5)
    watched.role = Role.TAKING_OVER
    watched.checkpointing.on_role(watched.role)
    assert watched.wait(1) == []
    assert not watched.ground.machine.saving


def test_a_server_that_is_alone_takes_one_before_it_stands() -> None:
    watched = Watched(transactions=2)
    watched.ground.machine.apply(directories("a"))
    watched.ground.run(Deferred.fromCoroutine(watched.checkpointing.before_standing()))
    assert [found.txid for found in watched.ground.run(watched.ground.store.all())] == [2]


def test_after_stop_nothing_is_looked_at() -> None:
    watched = Watched(transactions=1)
    watched.checkpointing.stop()
    watched.ground.machine.apply(directories("a"))
    assert watched.wait(10) == []


def _endless() -> Iterator[bytes]:
    while True:
        yield b"x"


def test_pieces_are_taken_one_by_one() -> None:
    """An image larger than memory: nothing runs ahead of the disk."""
    ground = Ground()
    done: list[object] = []
    ground.store.write(9, _endless(), unchecked).addBoth(done.append)
    ground.clock.run_until(lambda: False, seconds=0.5)
    assert not done
