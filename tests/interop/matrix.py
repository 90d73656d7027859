"""Which client meets which bookies, what cannot be and why, and the table of what was counted.

A cell: for every digest that the pair has, a ledger of entries of random sizes, written by the row's client, read back
by it and by the other kind of client, compared by content. `impossible` is the whole list of cells that do not exist.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

import pytest

from bookkeeper.model import DigestType
from tests.support.apache import CLASSIC, DEFAULT, MIDDLE, Release
from tests.support.apache.releases import ALL_DIGESTS

ENTRY_SIZE_MAX = 1 << 20
_WIDTH = 132


@dataclass(frozen=True, slots=True)
class Row:
    """A writing client. release: None for ours."""

    release: Release | None
    protocol: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{f'Apache {self.release.version}' if self.release else 'our client'}, v{self.protocol}"


@dataclass(frozen=True, slots=True)
class Column:
    """A set of bookies. release: of the genuine ones among them. ours: whether there are some of ours."""

    release: Release | None
    ours: bool

    @property
    def name(self) -> str:
        """As the table has it."""
        if self.release is None:
            return "our bookies"
        return f"ours and Apache {self.release.version}" if self.ours else f"Apache {self.release.version}"


ROWS = (
    Row(None, 2),
    Row(None, 3),
    *(Row(release, protocol) for release in (DEFAULT, MIDDLE, CLASSIC) for protocol in release.protocols),
)
COLUMNS = (
    Column(None, ours=True),
    Column(DEFAULT, ours=False),
    Column(MIDDLE, ours=False),
    Column(CLASSIC, ours=False),
    Column(DEFAULT, ours=True),
)


def impossible(row: Row, column: Column) -> str | None:
    """Why there is no such cell; None when there is one."""
    if row.release is None:
        if column.release is not None and row.protocol not in column.release.protocols:
            return f"bookies of {column.release.version} know v2 alone"
        return None
    if column.release is None or column.release is row.release:
        return None
    if not column.ours:
        return "genuine on genuine is the control, and only of one release"
    return None


CELLS = tuple((row, column) for column in COLUMNS for row in ROWS if impossible(row, column) is None)


def readers(row: Row, column: Column) -> tuple[Release, ...]:
    """The genuine clients that read what our client wrote there: of each release that can."""
    if row.release is not None:
        return ()
    if column.release is not None:
        return (column.release,)
    return tuple(release for release in (DEFAULT, MIDDLE) if row.protocol in release.protocols)


def _releases(row: Row, column: Column) -> set[Release]:
    return {release for release in (row.release, column.release, *readers(row, column)) if release is not None}


def digests(row: Row, column: Column) -> list[DigestType]:
    """The digests that everybody in a cell has."""
    involved = _releases(row, column)
    return [digest for digest in ALL_DIGESTS if all(digest in release.digests for release in involved)]


def entry_size_max(row: Row, column: Column) -> int:
    """The largest entry that everybody in a cell takes."""
    return min([ENTRY_SIZE_MAX, *(release.entry_size_max for release in _releases(row, column))])


def metadata_version(row: Row, column: Column) -> int:
    """What our client writes so that every reader of the cell can read it."""
    return min([3, *(release.metadata_version for release in _releases(row, column))])


@dataclass(slots=True)
class Matrix:
    """What the cells of a run counted; a cell that began and did not end has failed."""

    cells: dict[tuple[Row, Column], str] = field(default_factory=dict)

    def begin(self, row: Row, column: Column) -> None:
        """A cell's test has what it needs and runs."""
        self.cells[row, column] = "FAILED"

    def passed(self, row: Row, column: Column, entry_count: int, digest_count: int) -> None:
        """A cell held with so many entries."""
        self.cells[row, column] = f"{entry_count} ({digest_count} digests)"

    def lines(self) -> list[str]:
        """The table and what its n/a mean."""
        reasons: list[str] = []
        table = [["", *(column.name for column in COLUMNS)]]
        for row in ROWS:
            table.append([row.name])
            for column in COLUMNS:
                why = impossible(row, column)
                if why is None:
                    table[-1].append(self.cells.get((row, column), "not run"))
                    continue
                if why not in reasons:
                    reasons.append(why)
                table[-1].append(f"n/a {reasons.index(why) + 1}")
        widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
        lines = ["   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
        lines.insert(1, "-" * len(lines[0]))
        lines += textwrap.wrap(
            "Entries of each cell, 0 B to 1 MiB (a little less with 4.2.3, whose frames end there), written by the "
            "client of the row on the bookies of the column, read back by it and by the other kind of client, compared "
            "by content.",
            _WIDTH,
        )
        return lines + [f"n/a {number}: {why}" for number, why in enumerate(reasons, 1)]


MATRIX = pytest.StashKey[Matrix]()
"""Where a run keeps it, in `config.stash`."""
