"""One attempt at a round."""

from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.apache.attempts import AttemptFailed, carry_out
from tests.benchmarks.apache.records import ATTEMPTS_MAX, Record, Records


@dataclass(frozen=True)
class Side:
    name: str


@dataclass(frozen=True)
class Cell:
    name: str
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class Round:
    cell: Cell
    repetition: int
    sides: tuple[Side, ...]


OURS, THEIRS = Side("ours"), Side("theirs")
ROUND = Round(Cell("publish", (OURS, THEIRS)), 2, (THEIRS, OURS))


def test_the_sides_are_measured_in_order_and_kept(tmp_path: Path) -> None:
    records = Records(tmp_path / "run.jsonl")
    lines = carry_out(records, ROUND, ROUND.sides, 3.0, lambda side: {"quiet": True, "per_s": len(side.name)})
    assert [(line["side"], line["order"], line["per_s"], line["attempt"]) for line in lines] == [
        ("theirs", 0, 6, 0),
        ("ours", 1, 4, 0),
    ]
    assert Records(tmp_path / "run.jsonl").all == lines
    assert carry_out(records, ROUND, ROUND.sides, 3.0, lambda side: {}) == [], "the round is done"


def test_an_attempt_ends_with_who_fails_and_is_made_again_a_few_times(tmp_path: Path) -> None:
    records = Records(tmp_path / "run.jsonl")

    def measure(side: Side) -> Record:
        raise AttemptFailed("its bookie ended", OURS)

    for attempt in range(ATTEMPTS_MAX):
        [line] = carry_out(records, ROUND, ROUND.sides, 3.0, measure)
        assert (line["kind"], line["side"], line["attempt"]) == ("failed", "ours", attempt)
        assert line["error"] == "its bookie ended"
    assert carry_out(records, ROUND, ROUND.sides, 3.0, measure) == []
