"""Guards of the client that only an accident tests: lagging servers, lost replies, damaged copies, old news."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bookkeeper.client.metadata_update import update_metadata
from bookkeeper.client.read.view import LedgerView
from bookkeeper.config import ClientSettings
from bookkeeper.errors import LedgerFencedOff, MetadataOutcomeUnknown, RecoveryFailed, VersionConflict
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerId, LedgerMetadata, LedgerState, Status, Versioned
from bookkeeper.protocol.transitions import start_recovery
from bookkeeper.wire.digest import digest_of
from bookkeeper.wire.messages import AddBatch
from tests.support.fake_bookie import HOLD, FakeBookie, FakeCluster

ALL = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2}
QUIET = ClientSettings(explicit_lac_interval_s=0.0)

OPEN = LedgerMetadata(2, 2, 2, (Fragment(EntryId(0), (BookieId("a"), BookieId("b"))),))


def by_ensemble(cluster: FakeCluster, ledger: Any) -> list[FakeBookie]:
    return [cluster.by_id(bookie_id) for bookie_id in ledger.metadata.last_fragment.ensemble]


class LaggingLedgers:
    """A ledger store whose server lags behind until it is synced, and whose replies may be lost."""

    def __init__(self, cluster: FakeCluster, stored: LedgerMetadata, *, replies_lost: int = 0) -> None:
        self.ledgers = self
        self.clock = cluster.clock
        self.stored = Versioned(stored, 7)
        self.served: Versioned[LedgerMetadata] = Versioned(OPEN, 3)
        self.replies_lost = replies_lost

    async def write(self, ledger_id: LedgerId, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
        if version != self.stored.version:
            raise VersionConflict(f"version {version}")
        self.stored = Versioned(metadata, version + 1)
        if self.replies_lost:
            self.replies_lost -= 1
            raise MetadataOutcomeUnknown("the reply was lost")
        return self.stored

    async def sync(self) -> None:
        self.served = self.stored

    async def read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        return self.served


def test_a_conflict_is_resolved_on_what_is_there_now_not_on_what_a_lagging_server_still_says() -> None:
    """I-19."""
    cluster = FakeCluster()
    store: Any = LaggingLedgers(cluster, dataclasses.replace(OPEN, custom={"newer": b""}))
    updated = cluster.wait(update_metadata(store, store.clock, LedgerId(0), Versioned(OPEN, 3), start_recovery))
    assert updated == store.stored
    assert (updated.value.state, dict(updated.value.custom)) == (LedgerState.IN_RECOVERY, {"newer": b""})


def test_an_update_whose_outcome_the_store_could_not_find_out_is_looked_up_again() -> None:
    """I-16."""
    cluster = FakeCluster()
    store: Any = LaggingLedgers(cluster, OPEN, replies_lost=1)
    updated = cluster.wait(update_metadata(store, store.clock, LedgerId(0), Versioned(OPEN, 7), start_recovery))
    assert (updated.value.state, updated.version) == (LedgerState.IN_RECOVERY, 8)


def test_a_closed_ledger_ends_where_its_metadata_says_whatever_was_heard_before() -> None:
    """I-42."""
    view = LedgerView(LedgerId(0), Versioned(OPEN, 1))
    assert view.advance(9)
    assert view.adopt(Versioned(OPEN.closed(EntryId(5), 50), 2))
    assert not view.advance(11)
    assert (view.last_add_confirmed, view.length) == (5, 50)


def test_older_metadata_that_comes_late_is_not_taken_for_news() -> None:
    """I-46."""
    newer = OPEN.with_fragment(EntryId(4), (BookieId("a"), BookieId("c")))
    view = LedgerView(LedgerId(0), Versioned(newer, 5))
    assert not view.adopt(Versioned(OPEN, 4))
    assert view.metadata == newer


def test_no_lac_is_learnt_from_a_damaged_last_entry() -> None:
    """I-33: it would skip the tail."""
    cluster = FakeCluster()
    ledger = cluster.wait(cluster.client(QUIET).create(**ALL))
    cluster.wait(ledger.append_many([b"entry %d" % number for number in range(6)]))
    cluster.run(0.1)
    _, second, third = by_ensemble(cluster, ledger)
    digest = digest_of(ledger.metadata.digest_type, b"")
    [forged] = digest.package_entries(ledger.id, [5], 100, [42], [b"entry 5"])[:1]
    for bookie in (second, third):
        bookie.entries[ledger.id][5] = forged[:-1] + b"?"  # names LAC 100 and fails its digest
    reader = cluster.wait(cluster.client(QUIET).open(ledger.id))
    assert reader.last_add_confirmed == 5
    assert cluster.wait(reader.read_last()).payload == b"entry 5"


def test_a_fenced_writer_of_the_same_client_does_not_end_the_recovery() -> None:
    """Answers of v2 name no request: the refusal of the writer's late add must not pass for the recoverer's."""
    cluster = FakeCluster()
    client = cluster.client(QUIET)
    ledger = cluster.wait(client.create(**ALL))
    cluster.wait(ledger.append(b"0"))
    third = by_ensemble(cluster, ledger)[2]
    third.rule = lambda request: HOLD if isinstance(request, AddBatch) and not request.recovery else None
    cluster.wait(ledger.append(b"1"))
    for bookie in cluster.bookies:
        if bookie is not third:
            bookie.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    third.rule = lambda request: HOLD if isinstance(request, AddBatch) and request.recovery else None
    opening = client.open(ledger.id)
    cluster.run(0.3)
    third.release()  # the writer's add, refused because the ledger is fenced; then the recoverer's
    cluster.run(0.1)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
        bookie.release()
    assert cluster.wait(opening).last_add_confirmed == 1
    with pytest.raises(LedgerFencedOff):
        cluster.wait(ledger.append(b"2"))


def test_bookies_that_all_refuse_the_write_back_do_not_take_turns() -> None:
    """L-9."""
    cluster = FakeCluster(5)
    ledger = cluster.wait(cluster.client(QUIET).create(**ALL))
    cluster.wait(ledger.append_many([b"0", b"1"]))
    for bookie in cluster.bookies:
        bookie.rule = lambda request: Status.IO_ERROR if isinstance(request, AddBatch) else None
    with pytest.raises(RecoveryFailed):
        cluster.wait(cluster.client(QUIET).open(ledger.id))
    refused = [request for bookie in cluster.bookies for request in bookie.requests if isinstance(request, AddBatch)]
    assert sum(request.recovery for request in refused) <= 2 * len(cluster.bookies)
