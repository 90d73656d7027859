"""Digests of entries: what they are made of, and that nothing else has the same."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest

from bookkeeper.spark.exports.digests import (
    NOTHING,
    digest_of_ledger,
    digest_of_lines,
    digest_of_numbered,
    digest_of_payload,
)

ENTRIES = [(number, b"entry %d" % number) for number in range(25)]


def plain(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_a_ledger_is_digested_by_ranges_of_lines_as_drawn() -> None:
    def of_range(first: int, after: int) -> str:
        return plain("".join(f"{number} {plain(f'entry {number}')}\n" for number in range(first, after)))

    lines = f"0 {of_range(0, 10)}\n1 {of_range(10, 20)}\n2 {of_range(20, 25)}\n"
    assert digest_of_ledger(ENTRIES, 10) == plain(lines)
    assert digest_of_ledger([], 10) == NOTHING == plain("")


def test_the_order_in_which_ranges_are_digested_does_not_matter() -> None:
    shuffled = list(ENTRIES)
    random.Random(7).shuffle(shuffled)
    assert digest_of_ledger(shuffled, 10) == digest_of_ledger(ENTRIES, 10)


@pytest.mark.parametrize(
    "other",
    [
        ENTRIES[:-1],
        ENTRIES[1:],
        [*ENTRIES, (25, b"")],
        [*ENTRIES[:3], (3, b"entry 4"), (4, b"entry 3"), *ENTRIES[5:]],
        [*ENTRIES[:9], (9, b"entry 10"), (10, b"entry 9"), *ENTRIES[11:]],
        [(number + 10, payload) for number, payload in ENTRIES],
        [*ENTRIES[:3], (3, b"entry 3entry"), (4, b" 4"), *ENTRIES[5:]],
        [*ENTRIES[:24], (24, b"entry 25")],
        [*ENTRIES, ENTRIES[0]],
    ],
)
def test_other_entries_or_another_order_is_another_digest(other: list[tuple[int, bytes]]) -> None:
    assert digest_of_ledger(other, 10) != digest_of_ledger(ENTRIES, 10)


def test_lines_are_a_set_that_the_caller_has_sorted() -> None:
    first, second = sorted(map(digest_of_payload, (b"a", b"b")))
    assert digest_of_lines([first, second]) == plain(f"{first}\n{second}\n")
    assert digest_of_lines([]) == NOTHING
    assert digest_of_numbered([(2, first), (1, second)]) == plain(f"1 {second}\n2 {first}\n")
