"""The compare-and-set loop."""

import dataclasses
from typing import Any

import pytest

from bookkeeper.client.metadata_update import ATTEMPTS_MAX, update_metadata
from bookkeeper.errors import LedgerClosed, MetadataUnavailable, NoSuchLedger, VersionConflict
from bookkeeper.metadata.memory.store import Fault, MemoryFaults
from bookkeeper.model import LedgerId, LedgerMetadata, Versioned
from bookkeeper.protocol.transitions import NO_UPDATE, Change, Refused, start_recovery
from tests.support.fake_bookie import FakeCluster

LEDGER = LedgerId(0)


class Case:
    """One ledger, a client's store with faults, and another client that interferes."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.faults = MemoryFaults(delay_max_s=0.01)
        self.client = self.cluster.client(faults=self.faults)
        self.cluster.wait(self.client.create())
        self.current: Versioned[LedgerMetadata] = self.cluster.wait(self.client.store.ledgers.read(LEDGER))
        self.other = self.cluster.client().store

    def update(self, decide: Any) -> Versioned[LedgerMetadata]:
        updated: Versioned[LedgerMetadata] = self.cluster.wait(
            update_metadata(self.client.store, self.cluster.clock, LEDGER, self.current, decide), seconds=3600.0
        )
        return updated

    def interfere(self, custom: str) -> None:
        now = self.cluster.wait(self.other.ledgers.read(LEDGER))
        changed = dataclasses.replace(now.value, custom={custom: b""})
        self.cluster.wait(self.other.ledgers.write(LEDGER, changed, now.version))


def test_the_decision_runs_again_on_what_somebody_else_wrote() -> None:
    """I-15."""
    case = Case()
    case.interfere("theirs")
    seen: list[int] = []

    def decide(metadata: LedgerMetadata) -> Change:
        seen.append(len(metadata.custom))
        return start_recovery(metadata)

    updated = case.update(decide)
    assert seen == [0, 1]
    assert (dict(updated.value.custom), updated.value.state.name) == ({"theirs": b""}, "IN_RECOVERY")
    assert case.cluster.wait(case.other.ledgers.read(LEDGER)) == updated


def test_no_update_writes_nothing() -> None:
    case = Case()
    assert case.update(lambda metadata: NO_UPDATE) == case.current


def test_a_refusal_is_raised() -> None:
    case = Case()
    with pytest.raises(LedgerClosed, match="because"):
        case.update(lambda metadata: Refused(LedgerClosed("because")))


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.FAILED_BEFORE, Fault.SESSION_LOST])
def test_a_write_with_unknown_outcome_is_looked_up_and_applied_once(fault: Fault) -> None:
    """I-16."""
    case = Case()
    case.faults.force(fault, "write")
    updated = case.update(start_recovery)
    assert updated == case.cluster.wait(case.other.ledgers.read(LEDGER))
    assert updated.version == case.current.version + 1


def test_conflicts_without_end_are_given_up() -> None:
    """L-9."""
    case = Case()
    rounds: list[int] = []

    def decide(metadata: LedgerMetadata) -> Change:
        rounds.append(1)
        case.interfere(f"round {len(rounds)}")
        return start_recovery(metadata)

    with pytest.raises(VersionConflict):
        case.update(decide)
    assert len(rounds) == ATTEMPTS_MAX


def test_a_ledger_that_is_gone_is_told() -> None:
    """I-18."""
    case = Case()
    now = case.cluster.wait(case.other.ledgers.read(LEDGER))
    case.cluster.wait(case.other.ledgers.delete(LEDGER, now.version))
    with pytest.raises(NoSuchLedger):
        case.update(start_recovery)


def test_an_unreachable_store_is_unavailable_not_absent() -> None:
    """I-18."""
    case = Case()
    case.client.store.cut_connection(100_000.0)  # type: ignore[attr-defined]  # the store in memory
    with pytest.raises(MetadataUnavailable):
        case.update(start_recovery)
