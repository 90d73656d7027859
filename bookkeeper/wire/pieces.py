"""Received pieces of an unfinished frame, of any protocol."""

from __future__ import annotations

PART_SIZE = 16 * 1024
"""Received pieces of at least PART_SIZE bytes are kept as they are. Smaller pieces are collected in one buffer."""


def keep_piece(pieces: list[bytes | bytearray], data: bytes) -> None:
    """Append a piece of an unfinished frame. Small pieces share one buffer: a bytes object takes 35 bytes more."""
    if not pieces or len(data) >= PART_SIZE:
        pieces.append(data)
    elif isinstance(last := pieces[-1], bytearray):
        last += data
    elif len(last) < PART_SIZE:
        pieces[-1] = bytearray(last) + data
    else:
        pieces.append(bytearray(data))
