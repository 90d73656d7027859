"""Random campaigns over the real client and bookie code: no promise breaks, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.campaign import run_seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.world import WALL_BACK, WALL_FORWARD

pytestmark = pytest.mark.timeout(1200)

STEPS_MIN = 100_000
SEEDS_FOR_STEPS = 300
MUTANT_SEEDS_MAX = 1500

SEEDS_THAT_FAILED = (
    41042,  # the handle of a killed client was closed, whose timers were taken for used up
)
FAULT_KINDS = (
    "power cut",
    "power cut in mid-operation",
    "bookie killed",
    "ended by a disk error",
    "read-only",
    "disk full",
    "connection cut",
    "partition",
    "slow link",
    "client killed",
    "session expired",
    "failed before",
    "reply lost",
    "outcome open",
    "too many requests",
    WALL_BACK,
    WALL_FORWARD,
)


def test_no_promise_is_broken_whatever_fails(
    seed: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    count: int = pytestconfig.getoption("--sim-seeds")
    faults: Counter[str] = Counter()
    steps = acknowledged = recovered = 0
    violations = []
    for each in range(seed, seed + count):
        outcome = run_seed(each)
        faults += outcome.faults
        steps += outcome.steps
        acknowledged += outcome.acknowledged
        recovered += outcome.recovered
        if outcome.violation is not None:
            violations.append(f"seed {each}: {outcome.violation}")
    with capsys.disabled():
        print(  # noqa: T201 - the summary is what this test is run for
            f"\nsimulation: seeds {seed}..{seed + count - 1}, {steps:,} steps, {acknowledged:,} entries acknowledged, "
            f"{recovered:,} take-overs during faults, violations {len(violations)}\nfaults: "
            + ", ".join(f"{kind} {number:,}" for kind, number in sorted(faults.items()))
        )
    assert not violations, "\n".join(violations)
    assert acknowledged > 10 * count
    if count >= SEEDS_FOR_STEPS:
        assert steps >= STEPS_MIN
        assert not [kind for kind in FAULT_KINDS if not faults[kind]]


def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    first, second, other = run_seed(seed), run_seed(seed), run_seed(seed + 1)
    assert first == second
    assert first.trace != other.trace


@pytest.mark.parametrize("each", SEEDS_THAT_FAILED)
def test_a_seed_that_failed_once_does_not_fail_again(each: int) -> None:
    assert run_seed(each).violation is None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with MUTANTS[name]():
        for each in range(1, MUTANT_SEEDS_MAX):
            violation = run_seed(each).violation
            if violation is not None:
                with capsys.disabled():
                    print(f"\nplanted bug {name!r}: found by seed {each}: {violation}")  # noqa: T201 - as above
                return
    pytest.fail(f"{name}: not found in {MUTANT_SEEDS_MAX} seeds")
