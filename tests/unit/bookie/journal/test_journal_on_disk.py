"""The journal on a real file system, its worker driven by hand."""

import dataclasses
import os

from bookkeeper.bookie.journal.files import LARGE_GROUP_SIZE, list_journals
from bookkeeper.bookie.journal.format import file_name
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.model import LogMark
from tests.support.journals import SMALL, RunningJournal, replayed


def test_groups_rolls_collection_and_restarts_on_a_real_disk(tmp_path):
    """What was acknowledged comes back over five lives of one directory, with old files going below the mark."""
    fs, directory = RealFileSystem(), str(tmp_path / "current")
    fs.make_dirs(directory)
    settings = dataclasses.replace(SMALL, file_size_max=16384, recycle=True)
    end = mark = LogMark(0, 0)
    expected: set[tuple[int, int]] = set()
    for life in range(5):
        running = RunningJournal(fs, settings, end, directory=directory)
        for group in range(40):
            running.write([(life, 10 * group + entry) for entry in range(group % 5 + 1)])
            if group == 20:
                mark = running.journal.mark()
                expected.clear()
                running.acked.clear()
                running.journal.collect(mark)
        running.worker.run_all()
        expected |= set(running.acked)
        if life % 2:
            running.stop()
        assert running.failures == []
        assert list_journals(fs, directory)[0] == mark.journal_id
        state, end = replayed(fs, mark, directory)
        assert set(state.bodies) == expected
        assert end == running.journal.mark()


def test_a_group_leaves_in_one_write_and_one_sync(tmp_path, monkeypatch):
    fs, directory = RealFileSystem(), str(tmp_path)
    running = RunningJournal(fs, directory=directory)
    calls = []
    real_pwrite, real_fdatasync = os.pwrite, os.fdatasync

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        calls.append("write")
        return real_pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr("bookkeeper.filesystem._fdatasync", lambda fd: calls.append("sync") or real_fdatasync(fd))
    for entry_id in range(100):
        running.add(1, entry_id)
    running.worker.run_all()
    assert calls == ["write", "sync"] * 2
    assert len(running.acked) == 100
    assert (
        os.path.getsize(f"{directory}/{file_name(running.journal.mark().journal_id)}") == running.journal.mark().offset
    )


def test_large_groups_are_not_written_twice(tmp_path):
    """Zeros ahead spare small groups the metadata of a growing file; before large ones they double the writing."""
    fs = RealFileSystem()
    settings = JournalSettings(preallocation_size=4 << 20, preparation_slice_size=1 << 20, backups_max=0)

    def zeros_ahead(running: RunningJournal) -> int:
        mark = running.journal.mark()
        return os.path.getsize(tmp_path / file_name(mark.journal_id)) - mark.offset

    running = RunningJournal(fs, settings, directory=str(tmp_path))
    running.write([(1, 0)])
    assert zeros_ahead(running) >= (4 << 20) // 2
    for entry_id in range(1, 12):
        running.add(1, entry_id, b"z" * LARGE_GROUP_SIZE)
        running.worker.run_all()
    assert zeros_ahead(running) == 0
    running.write([(1, 12)])
    assert zeros_ahead(running) >= (4 << 20) // 2
    state, end = replayed(fs, LogMark(0, 0), str(tmp_path))
    assert set(state.bodies) == set(running.acked) == {(1, entry_id) for entry_id in range(13)}
    assert end == running.journal.mark()
