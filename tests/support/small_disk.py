"""File systems of their own for tests that fill a disk or take it away."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(path: Path, size: int) -> Iterator[Path]:
    """A tmpfs of `size` bytes at `path`, which is made. Skips the test where that is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("a disk of its own needs the program `mount`")
    if done.returncode:
        pytest.skip(f"a disk of its own needs the right to mount a tmpfs (root): {done.stderr.strip()}")
    try:
        yield path
    finally:
        if path.is_mount():
            take_away(path)


def take_away(path: Path) -> None:
    """Unmount it, also while files on it are open: these go on, and nothing else of it is found any more."""
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path, leave: int) -> Path:
    """Take all of a file system but `leave` bytes with one file; deleting it frees them."""
    ballast = path / "ballast"
    with ballast.open("wb") as file:
        while True:
            space = os.statvfs(path)
            try:
                os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - leave)
            except OSError as error:
                if error.errno != errno.ENOSPC:  # else somebody took some of it meanwhile
                    raise
            else:
                return ballast
