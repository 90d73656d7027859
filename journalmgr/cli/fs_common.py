"""What the actions of `journalmgr fs` have in common: several paths, names below others, names and sizes as shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, CommandFailed, expected_text, note
from bookkeeper.errors import BookKeeperError
from journalmgr.namenode.fs_client import FileNotFoundException, FileSystemClient, RemoteException

_UNITS = "KMGTPE"
_SAID_TO_PROGRAMS = ("; delete it recursively", "; overwrite it, or delete it first", "; overwrite it")


def for_each(paths: Sequence[str], act: Callable[[str], object]) -> int:
    """Do the same to several paths; one that fails does not stop the others."""
    failed = False
    for path in paths:
        try:
            act(path)
        except (BookKeeperError, CommandFailed) as error:
            if len(paths) == 1:
                raise
            note(f"journalmgr: {error}")
            failed = True
        except OSError as error:
            if error.filename is None or len(paths) == 1:  # without a file it is a standard stream, and all is over
                raise
            note(f"journalmgr: {expected_text(error)}")
            failed = True
    return EXIT_FAILURE if failed else EXIT_OK


def child(path: str, name: str) -> str:
    """A child; the path itself for no name."""
    return f"{path.rstrip('/')}/{name}" if name else path


def is_directory(files: FileSystemClient, path: str) -> bool:
    """Whether one is there."""
    try:
        return bool(files.status(path)["type"] == "DIRECTORY")
    except FileNotFoundException:
        return False


def name_of(path: str) -> str:
    """The last component."""
    return path.rstrip("/").rpartition("/")[2]


@contextmanager
def adding(kind: type[RemoteException], advice: str) -> Iterator[None]:
    """Name the option that would have done it, in the place of what a server says to programs."""
    try:
        yield
    except kind as error:
        text = str(error)
        for said in _SAID_TO_PROGRAMS:
            text = text.removesuffix(said)
        raise kind(f"{text}; {advice}", java_class_name=error.java_class_name, status=error.status) from error


def size_text(size: int, *, human: bool) -> object:
    """Bytes, or as `hdfs dfs -h` has them: 1.5 K, in units of 1024."""
    if not human or size < 1024:
        return size
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    whole, rest = divmod(size, 1024**power)
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}" if rest else f"{whole} {_UNITS[power - 1]}"
