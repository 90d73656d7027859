"""Digests of entries in their order, put together from ranges. Pure.

    entry     SHA-256 of its payload
    range     SHA-256 of a line for each of its entries, ascending:  <entry id> <digest of the entry>
    ledger    SHA-256 of a line for each of its ranges, ascending:   <range number> <digest of the range>
    lines     SHA-256 of a line for each digest of a text, ascending by the digest:  <digest>

Digests are written as 64 hexadecimal digits, ids and numbers in decimal; everything is ASCII, and each line ends with a
line feed. Range `n` has the entries n * RANGE_ENTRIES up to the next range's first; one without entries has no line, so
a ledger without entries has the digest of nothing. Another order, another id or another byte is another digest. Ranges
are digested by many tasks, in any order, and what comes out does not depend on who did what.

`bookkeeper.spark.exports.entry_digests` does the same in SQL; this is its plain twin.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

RANGE_ENTRIES = 10_000

NOTHING = sha256().hexdigest()
"""Of a ledger without entries, and of no lines."""


def digest_of_payload(payload: bytes) -> str:
    """Of one entry."""
    return sha256(payload).hexdigest()


def digest_of_numbered(numbered: Iterable[tuple[int, str]]) -> str:
    """Of a range from the digests of its entries by their ids, or of a ledger from those of its ranges."""
    lines = sha256()
    for number, digest in sorted(numbered):
        lines.update(f"{number} {digest}\n".encode())
    return lines.hexdigest()


def digest_of_ledger(entries: Iterable[tuple[int, bytes]], range_entries: int = RANGE_ENTRIES) -> str:
    """Of all entries of a ledger: ids and payloads."""
    ranges: dict[int, list[tuple[int, str]]] = {}
    for entry_id, payload in entries:
        ranges.setdefault(entry_id // range_entries, []).append((entry_id, digest_of_payload(payload)))
    return digest_of_numbered((number, digest_of_numbered(found)) for number, found in ranges.items())


def digest_of_lines(digests: Iterable[str]) -> str:
    """Of a set of lines from the digest of each; these ascend."""
    lines = sha256()
    for digest in digests:
        lines.update(f"{digest}\n".encode())
    return lines.hexdigest()
