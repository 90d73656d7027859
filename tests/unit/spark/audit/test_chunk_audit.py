"""Chunks read through bookies that stop, keep silent, lag behind, or change while they are asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.config import ClientSettings
from bookkeeper.errors import NoSuchLedger
from bookkeeper.model import DigestType, Fragment, LedgerId, LedgerState, Status
from bookkeeper.spark.audit.bookie_copies import BookiePaces
from bookkeeper.spark.audit.chunk_audit import ON_THE_WAY_S, audit_chunk
from bookkeeper.spark.audit.evidence import CHUNK_ENTRIES
from bookkeeper.spark.audit.judgement import ChunkVerdict
from bookkeeper.spark.cluster.extents import known_reach
from bookkeeper.wire.messages import AddBatch, BatchRead, ReadBatch
from tests.support.fake_bookie import CLOSE, HOLD, SILENCE, FakeBookie, FakeCluster

READS = (ReadBatch, BatchRead)


class Audited:
    """A cluster of four, a client that writes and audits."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = FakeCluster(4)
        self.client = self.cluster.client(
            ClientSettings(explicit_lac_interval_s=0.0, read_timeout_s=1.0, add_timeout_s=60.0, **settings)
        )
        self.paces = BookiePaces()

    def wait(self, work: Any) -> Any:
        return self.cluster.wait(work)

    def written(self, count: int, *, close: bool = True, quorums: tuple[int, int, int] = (3, 3, 2), **how: Any) -> Any:
        """The write handle; entries are their numbers."""
        ensemble, write_quorum, ack_quorum = quorums
        names = [each.bookie_id for each in self.cluster.bookies[:ensemble]]
        ledger = self.wait(
            self.client.create(
                ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum, bookies=names, **how
            )
        )
        self.wait(ledger.append_many([b"%d" % number for number in range(count)]))
        if close:
            self.wait(ledger.close())
        return ledger

    def look(self, ledger_id: int, end: int, chunk: int = 0) -> ChunkVerdict:
        verdict: ChunkVerdict = self.wait(audit_chunk(self.client, ledger_id, end, chunk, paces=self.paces))
        return verdict

    def findings(self, ledger_id: int, end: int, chunk: int = 0) -> list[tuple[str, int, int, str]]:
        return [
            (each.kind.value, each.first_entry_id, each.last_entry_id, each.bookie.partition(":")[0])
            for each in self.look(ledger_id, end, chunk).findings
        ]

    def change(self, ledger_id: LedgerId, **to: Any) -> None:
        seen = self.wait(self.client.store.ledgers.read(ledger_id))
        self.wait(self.client.store.ledgers.write(ledger_id, dataclasses.replace(seen.value, **to), seen.version))


def once_asked(bookie: FakeBookie, then: Callable[[], object], entry_id: int = 0) -> None:
    """Let something happen when the bookie is first read for this entry or a later one; what that returns it does."""
    happened = False

    def rule(request: Any) -> object:
        nonlocal happened
        if happened or not isinstance(request, READS):
            return None
        if isinstance(request, ReadBatch) and max(request.entry_ids) < entry_id:
            return None
        happened = True
        return then()

    bookie.rule = rule


def test_a_bookie_that_goes_down_while_it_is_read_leaves_copies_unknown_and_none_missing() -> None:
    audited = Audited()
    ledger_id = audited.written(3000, quorums=(3, 2, 2)).ledger_id
    victim = audited.cluster.bookies[1]

    def dies() -> object:
        victim.crash()
        return CLOSE

    once_asked(victim, dies, entry_id=1500)
    verdict = audited.look(ledger_id, 2999)
    assert {(each.kind.value, each.bookie) for each in verdict.findings} == {("unknown", victim.bookie_id)}
    assert sum(each.entries for each in verdict.findings) == 1000  # of the 2000 that it should have
    assert verdict.size == sum(len(b"%d" % number) for number in range(3000))


def test_a_bookie_that_keeps_silent_does_not_cost_each_chunk_a_time_out_and_is_asked_again_later() -> None:
    audited = Audited()
    ledger_id = audited.written(2 * CHUNK_ENTRIES, quorums=(3, 2, 2)).ledger_id
    end, silent = 2 * CHUNK_ENTRIES - 1, audited.cluster.bookies[2]
    silent.rule = lambda request: SILENCE if isinstance(request, READS) else None
    before = audited.cluster.clock.seconds()
    for number in range(10):
        found = audited.findings(ledger_id, end, number % 2)
        assert {(kind, bookie) for kind, _, _, bookie in found} == {("unknown", "b3")}
    assert audited.cluster.clock.seconds() - before < 5.0
    silent.rule = lambda request: None
    audited.cluster.run(120.0)
    assert audited.findings(ledger_id, end) == []


def test_a_copy_on_its_way_to_a_bookie_behind_the_ack_quorum_is_not_missing() -> None:
    audited = Audited()
    slow = audited.cluster.bookies[2]
    slow.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    ledger = audited.written(10, close=False)
    audited.cluster.clock.callLater(ON_THE_WAY_S / 2, slow.release)
    assert audited.findings(ledger.ledger_id, 9) == []
    audited.wait(ledger.append_many([b"later"] * 3))
    assert audited.findings(ledger.ledger_id, 12) == [("missing", 10, 12, "b3")]  # nothing came in time


def test_what_lies_beyond_what_is_confirmed_is_none_of_an_audits_business() -> None:
    audited = Audited()
    ledger = audited.written(10, close=False)
    audited.cluster.run(1.0)  # also to the third
    for bookie in audited.cluster.bookies[1:]:
        bookie.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    ledger.append_many([b"on its way"] * 5)
    audited.cluster.run(0.5)
    reach = audited.wait(known_reach(audited.client, ledger.ledger_id))
    assert audited.cluster.bookies[0].payload_count(ledger.ledger_id) == 15
    assert reach.end in (8, 9)
    verdict = audited.look(ledger.ledger_id, reach.end)
    assert (verdict.findings, verdict.entry_count) == ((), reach.end + 1)


def test_a_bookie_that_was_replaced_while_it_was_asked_is_not_blamed() -> None:
    """Its ledger is repaired at that moment: the copies are on another one, and the metadata say so."""
    audited = Audited()
    ledger_id = audited.written(20).ledger_id
    audited.cluster.run(1.0)
    first, second, third, spare = audited.cluster.bookies

    def replaced() -> object:
        spare.entries[ledger_id], spare.keys[ledger_id] = third.entries.pop(ledger_id), third.keys[ledger_id]
        members = tuple(each.bookie_id for each in (first, second, spare))
        audited.change(ledger_id, fragments=(Fragment(0, members),))
        return Status.NO_LEDGER

    once_asked(third, replaced)
    assert audited.findings(ledger_id, 19) == []


def test_a_ledger_that_is_deleted_while_it_is_read_is_gone_and_lost_nothing() -> None:
    audited = Audited()
    ledger_id = audited.written(20).ledger_id

    def deleted() -> object:
        audited.wait(audited.client.delete(ledger_id))
        for bookie in audited.cluster.bookies[:3]:
            bookie.entries.pop(ledger_id)
        return Status.NO_LEDGER

    once_asked(audited.cluster.bookies[0], deleted)
    with pytest.raises(NoSuchLedger):
        audited.look(ledger_id, 19)


def test_a_ledger_in_recovery_is_audited_up_to_what_is_confirmed_and_stays_in_recovery() -> None:
    audited = Audited()
    ledger = audited.written(10, close=False)
    audited.wait(ledger.append(b"tells what is confirmed"))
    audited.change(ledger.ledger_id, state=LedgerState.IN_RECOVERY)
    for bookie in audited.cluster.bookies[:3]:
        bookie.fenced.add(ledger.ledger_id)
    reach = audited.wait(known_reach(audited.client, ledger.ledger_id))
    assert reach.end in (9, 10)
    assert audited.findings(ledger.ledger_id, reach.end) == []
    assert audited.wait(audited.client.metadata(ledger.ledger_id)).state is LedgerState.IN_RECOVERY


@pytest.mark.parametrize("password", [b"", b"secret"])
@pytest.mark.parametrize("digest", list(DigestType))
def test_whatever_digest_a_ledger_has_its_copies_are_verified_with_it(digest: DigestType, password: bytes) -> None:
    """The auditing client has another digest and password. Without a digest the copies can only be compared."""
    audited = Audited(digest_type=DigestType.CRC32C, password=b"the client's")
    ledger_id = audited.written(30, quorums=(3, 2, 2), digest=digest, password=password).ledger_id
    assert audited.findings(ledger_id, 29) == []
    second = audited.cluster.bookies[1]  # entry 10 is on the second and the third, and on no other
    body = second.entries[ledger_id][10]
    second.entries[ledger_id][10] = body[:-1] + bytes([body[-1] ^ 1])
    expected = ("divergent", 10, 10, "") if digest is DigestType.DUMMY else ("bad", 10, 10, "b2")
    assert audited.findings(ledger_id, 29) == [expected]
