"""A manifest whose sums are not those of its lines."""

from __future__ import annotations

import pytest

from bookkeeper.spark.exports.checking import check_sums
from bookkeeper.spark.exports.lines import NotAnExport


def test_a_manifest_that_says_other_sums_than_its_lines_is_refused_with_both() -> None:
    lines = {"complete": 3, "incomplete": 1, "entries": 12_000}
    check_sums("/backup/monday", "ledgers", dict(lines), lines)
    with pytest.raises(NotAnExport) as raised:
        check_sums("/backup/monday", "ledgers", {**lines, "incomplete": 0, "entries": 7}, lines)
    assert str(raised.value) == (
        "/backup/monday/manifest has changed since the export: it says of ledgers incomplete 0 (the lines: 1), "
        "entries 7 (the lines: 12,000). Take another copy of the export"
    )
