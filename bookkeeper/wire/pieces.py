"""Received pieces of an unfinished frame, of any protocol."""

from __future__ import annotations

PART_SIZE = 16 * 1024
"""Received pieces of at least so many bytes are kept as they are; smaller ones are collected in one buffer."""


def keep_piece(pieces: list[bytes | bytearray], data: bytes) -> None:
    """Append a received piece of an unfinished frame: small pieces share one buffer, as each object takes 35 bytes."""
    if len(data) >= PART_SIZE:
        pieces.append(data)
    elif pieces and isinstance(pieces[-1], bytearray):
        pieces[-1] += data
    else:
        pieces.append(bytearray(data))
