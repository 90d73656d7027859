"""Bytes to standard output."""

from __future__ import annotations

import os


def write_out(descriptor: int, data: bytes) -> None:
    """All of it, or OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
