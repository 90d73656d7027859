"""Counts of a cluster's bookies by their records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.bookies.cookie import parse_cookie
from bookkeeper.model import AvailableBookies, BookieId, Versioned


@dataclass(frozen=True, slots=True)
class BookieCounts:
    """Numbers of bookies; a bookie that changes its mode counts as writable.

    unavailable: bookies with a cookie but without a registration that can be used.
    """

    writable: int
    read_only: int
    unavailable: int

    @property
    def total(self) -> int:
        """All bookies."""
        return self.writable + self.read_only + self.unavailable


def count_bookies(
    available: AvailableBookies, cookies: Mapping[BookieId, Versioned[bytes]], bad_records: BadRecords
) -> BookieCounts:
    """Count the bookies that have a readable registration or a readable cookie.

    bad_records: receives the registrations and cookies that cannot be read. Such a record alone is no bookie.
    """
    for _, problem in sorted(available.unusable.items()):
        bad_records.add_unreadable(problem)
    known: set[BookieId] = set()
    for bookie_id, cookie in sorted(cookies.items()):
        try:
            parse_cookie(cookie.value, f"cookie of {bookie_id}")
        except MetadataCorrupt as error:
            bad_records.add_unreadable(error)
        else:
            known.add(bookie_id)
    writable = available.writable.keys() - available.unusable.keys()
    read_only = available.read_only.keys() - available.unusable.keys() - writable
    return BookieCounts(len(writable), len(read_only), len(known - writable - read_only))
