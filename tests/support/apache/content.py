"""Entries of random sizes and contents, made from a seed alone: LedgerTool.java makes the same ones.

A noise of 1 MiB, SHA-256 of "noise/0", "noise/1", ... one after the other, is common to all. Entry `n` of a seed is a
piece of that noise, which wraps around: SHA-256 of "<seed>/<n>" says where it begins and how long it is. Entry 0 is
empty and entry 1 as large as allowed; of the rest one in eight is of any size, and most are small.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

NOISE_SIZE = 1 << 20
_HASH_SIZE = 32


@functools.cache
def _noise() -> bytes:
    return b"".join(hashlib.sha256(b"noise/%d" % block).digest() for block in range(NOISE_SIZE // _HASH_SIZE))


def payload(seed: int, entry_id: int, size_max: int) -> bytes:
    """Entry `entry_id` of a seed. size_max: at most NOISE_SIZE."""
    choice = hashlib.sha256(b"%d/%d" % (seed, entry_id)).digest()
    start = int.from_bytes(choice[0:4]) % NOISE_SIZE
    kind, size = choice[4] % 16, int.from_bytes(choice[5:9])
    if entry_id < 2:
        size = size_max * entry_id
    elif kind == 0:
        size = 0
    elif kind < 3:
        size %= size_max + 1
    else:
        size %= min(size_max, 2047 if kind > 7 else 65535) + 1
    piece = _noise()[start : start + size]
    return piece + _noise()[: size - len(piece)]


def payloads(seed: int, count: int, size_max: int) -> list[bytes]:
    """The first `count` entries of a seed."""
    return [payload(seed, entry_id, size_max) for entry_id in range(count)]


def fingerprint(payload: bytes) -> str:
    """What LedgerTool's `hashes` prints of an entry."""
    return f"{len(payload)} {hashlib.sha256(payload).hexdigest()}"


def fingerprints(payloads: Sequence[bytes]) -> list[str]:
    """Of one entry after the other."""
    return [fingerprint(payload) for payload in payloads]
