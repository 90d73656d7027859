"""Random campaigns over real hubs: nothing acknowledged is lost, no order broken, and planted bugs are found.

Most of what they once found has stories of its own, in test_hub_connection.py and in unit/hedwig/test_hub_metadata.py.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from tests.simulation.hub_mutants import MUTANTS
from tests.simulation.hubs import run_seed
from tests.simulation.mutants import TIMERS
from tests.simulation.world import WALL_BACK, WALL_FORWARD

pytestmark = pytest.mark.timeout(1200)

SHARE = 30
"""One seed of a campaign in so many; these runs are longer. `make sim` so has 166, of some 7,000 steps each."""

SEEDS_FOR_STEPS = 160
STEPS_MIN = 1_000_000
MUTANT_SEEDS_MAX = 400

ONCE_BROKEN = (
    4212184075,  # I-93: who was no owner any more brought another hub's positions back to the end that it knew
)

FAULT_KINDS = (
    "hub killed",
    "hub asleep",
    "hub stopped",
    "hub with a stale session",
    "hub cut off from the metadata",
    "hub struck in a change of the metadata",
    "topic given away",
    "told TOPIC_MOVED",
    "told SUBSCRIPTION_FORCED_CLOSED",
    "subscriber stalled",
    "bookie killed",
    "partition",
    "outcome open",
    "reply lost",
    WALL_BACK,
    WALL_FORWARD,
)

FOUND_BY = {
    TIMERS: 14,
    "list not by version": 7,
    "answer before it is durable": 4,
    "deliver before it is durable": 50,
    "published again after an error": 4,
    "deliver past a gap": 183,
    "position not by version": 66,
    "subscription behind what is not durable": 31,
    "trim one too much": 2,
    "trim by what is in memory": 2,
}
"""The seed that found a planted bug last; it is tried first, and saves the search."""


def test_nothing_acknowledged_is_lost_and_no_order_is_broken_whatever_fails(
    seed: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """I-88 to I-96."""
    count = max(10, int(pytestconfig.getoption("--sim-seeds")) // SHARE)
    faults: Counter[str] = Counter()
    steps = acknowledged = deliveries = duplicates = takeovers = trimmed = 0
    violations = []
    for each in range(seed, seed + count):
        outcome = run_seed(each)
        faults += outcome.faults
        steps += outcome.steps
        acknowledged += outcome.acknowledged
        deliveries += outcome.deliveries
        duplicates += outcome.duplicates
        takeovers += outcome.takeovers
        trimmed += outcome.trimmed
        if outcome.violation is not None:
            violations.append(f"seed {each}: {outcome.violation}")
    with capsys.disabled():
        print(  # noqa: T201 - the summary is what this test is run for
            f"\nhubs: seeds {seed}..{seed + count - 1}, {steps:,} steps, {acknowledged:,} messages acknowledged, "
            f"{deliveries:,} delivered, {duplicates:,} of them again, {takeovers:,} topics acquired, {trimmed:,} "
            f"ledgers trimmed, violations {len(violations)}\nfaults: "
            + ", ".join(f"{kind} {number:,}" for kind, number in sorted(faults.items()))
        )
    assert not violations, "\n".join(violations)
    assert acknowledged > 50 * count
    assert deliveries > acknowledged
    assert takeovers > 2 * count
    if count >= SEEDS_FOR_STEPS:
        assert steps >= STEPS_MIN
        assert not [kind for kind in FAULT_KINDS if not faults[kind]]


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_seeds_that_once_found_something_stay_clean(seed: int) -> None:
    assert run_seed(seed).violation is None


def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    first, second, other = run_seed(seed), run_seed(seed), run_seed(seed + 1)
    assert first == second
    assert first.trace != other.trace


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with MUTANTS[name]():
        for each in chain((FOUND_BY.get(name, 1),), range(1, MUTANT_SEEDS_MAX)):
            violation = run_seed(each).violation
            if violation is not None:
                with capsys.disabled():
                    print(f"\nplanted bug {name!r}: found by seed {each}: {violation}")  # noqa: T201 - as above
                return
    pytest.fail(f"{name}: not found in {MUTANT_SEEDS_MAX} seeds")
