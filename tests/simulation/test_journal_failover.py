"""Servers that take each other's place while everything breaks: no acknowledged transaction lost, none twice."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.failover import run_seed
from tests.simulation.mutants import timers_follow_the_wall_clock
from tests.simulation.world import WALL_BACK, WALL_FORWARD

pytestmark = pytest.mark.timeout(600)

MUTANT_SEEDS_MAX = 200

SHARE = 10
"""One seed of a campaign in so many; these runs are longer."""

FAULT_KINDS = (
    "server killed",
    "server asleep",
    "server killed in a change of the metadata",
    "power cut",
    "session expired",
    "outcome open",
    "reply lost",
    "failed before",
    WALL_BACK,
    WALL_FORWARD,
)


def test_no_acknowledged_transaction_is_lost_or_doubled_whoever_dies(
    seed: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """I-80 to I-85."""
    count = max(20, int(pytestconfig.getoption("--sim-seeds")) // SHARE)
    faults: Counter[str] = Counter()
    acknowledged = turns = 0
    violations = []
    for each in range(seed, seed + count):
        outcome = run_seed(each)
        faults += outcome.faults
        acknowledged += outcome.acknowledged
        turns += outcome.turns
        if outcome.violation is not None:
            violations.append(f"seed {each}: {outcome.violation}")
    with capsys.disabled():
        print(  # noqa: T201 - the summary is what this test is run for
            f"\nfailover: seeds {seed}..{seed + count - 1}, {acknowledged:,} transactions acknowledged, "
            f"{turns:,} turns, violations {len(violations)}\nfaults: "
            + ", ".join(f"{kind} {number:,}" for kind, number in sorted(faults.items()))
        )
    assert not violations, "\n".join(violations)
    assert acknowledged > 50 * count
    assert turns > 2 * count
    missing = [kind for kind in FAULT_KINDS if not faults[kind]]
    assert not missing, f"never happened: {', '.join(missing)}"


def test_timers_by_the_wall_clock_are_found() -> None:
    with timers_follow_the_wall_clock():
        assert any(run_seed(each).violation is not None for each in range(1, MUTANT_SEEDS_MAX))
