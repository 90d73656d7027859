"""What a soak records is read back as it was, and how its figures went is computed as by hand."""

from __future__ import annotations

import io

import pytest

from bookkeeper.cli.perf.soak_plot import draw
from bookkeeper.cli.perf.soak_record import COLUMNS, LOAD, NoSoak, SoakLine, SoakWriter, read_soak, slope, trends


def recorded(*lines: SoakLine) -> str:
    out = io.StringIO()
    SoakWriter(out).add(lines)
    return out.getvalue()


def test_what_was_recorded_is_read_back_and_what_is_none_stays_none() -> None:
    lines = [
        SoakLine(5.0, LOAD, 11, {"adds_per_s": 2000.0, "p99_ms": 3.25, "resident_bytes": 123456789.0}),
        SoakLine(5.0, "bookie 1", 12, {"ledger_bytes": 0.0, "open_files": 40.0}),
    ]
    assert read_soak(io.StringIO(recorded(*lines))) == lines


def test_a_line_that_was_cut_off_is_left_out() -> None:
    text = recorded(SoakLine(5.0, LOAD, 1, {"open_files": 7.0}), SoakLine(10.0, LOAD, 1, {"open_files": 8.0}))
    assert len(read_soak(io.StringIO(text[:-12]))) == 1


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", ",".join(COLUMNS) + "\n" + ",".join(["x"] * len(COLUMNS))])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(NoSoak):
        read_soak(io.StringIO(text))


def test_the_slope_is_that_of_the_straight_line() -> None:
    assert slope([(0, 1), (10, 6), (20, 11)]) == pytest.approx(0.5)
    assert slope([(0, 3), (10, 9), (20, 3)]) == pytest.approx(0.0)
    assert slope([(5, 1), (5, 9)]) == 0.0


def test_the_warm_up_is_not_judged_and_a_slope_is_per_hour() -> None:
    lines = [SoakLine(seconds, "bookie 1", 1, {"resident_bytes": 50.0 + seconds / 60}) for seconds in range(0, 601, 60)]
    lines.insert(0, SoakLine(0.0, "bookie 1", 1, {"resident_bytes": 1e9}))
    (found,) = trends(lines, 60.0)
    assert (found.process, found.figure, found.least, found.most) == ("bookie 1", "resident_bytes", 51, 60)
    assert found.slope_per_h == pytest.approx(60.0)
    assert found.share_per_h == pytest.approx(60 / 55.5)
    assert trends(lines, 500.0) == []  # two moments are no trend


def test_a_record_is_drawn_as_a_png() -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    lines = [SoakLine(seconds, LOAD, 1, {"p50_ms": 1.0 + seconds, "adds_per_s": 5.0}) for seconds in range(5)]
    lines += [SoakLine(seconds, "bookie 1", 2, {"ledger_bytes": 1e6 * seconds}) for seconds in range(5)]
    assert draw(lines, "title", warm_up_s=1.0).startswith(b"\x89PNG\r\n\x1a\n")
