"""The journal on a real file system, its worker driven by hand."""

import dataclasses
import os

from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import file_name
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
