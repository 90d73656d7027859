"""Commands in this process, with files for standard streams: most of what a process of its own takes is its imports."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any
from unittest import mock


def run_here(
    main: Callable[[Sequence[str]], int], words: Sequence[str], environment: Mapping[str, str], data: bytes = b""
) -> tuple[int, bytes, str]:
    """Exit code, what it printed, what it said. data: its standard input."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(data)
        given.seek(0)
        with mock.patch.dict(os.environ, environment, clear=True), _streams(given, out, err), _sigterm():
            code = main(words)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read().decode()


@contextlib.contextmanager
def _streams(*files: IO[bytes]) -> Iterator[None]:
    """These as descriptors 0, 1 and 2, and as Python's streams of them."""
    before = (sys.stdin, sys.stdout, sys.stderr)
    own = (sys.__stdout__, sys.__stderr__)
    for stream in before[1:]:
        stream.flush()
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        sys.stdin = _text(0, "rb")
        sys.stdout, sys.stderr = _text(1, "wb"), _text(2, "wb", line_buffering=True)
        setattr(sys, "__stdout__", sys.stdout)  # noqa: B010 - a program takes these for the streams of its process
        setattr(sys, "__stderr__", sys.stderr)  # noqa: B010
        yield
        sys.stdout.flush()
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for name, stream in zip(("__stdout__", "__stderr__"), own, strict=True):
            setattr(sys, name, stream)
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _text(descriptor: int, mode: str, **options: Any) -> io.TextIOWrapper:
    binary: Any = open(descriptor, mode, closefd=False)  # noqa: SIM115 - it is the stream's
    return io.TextIOWrapper(binary, encoding="utf-8", **options)


@contextlib.contextmanager
def _sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
