"""Scripted traces on the pure machines, and random ones beside them.

They show I-05, I-11, I-15, I-17, I-29, I-32, I-35 to I-38 and I-42.

Each trace names the mutant it must kill: remove the rule from the machine (or the driver) and the test fails.
"""

from __future__ import annotations

import random

import pytest

from bookkeeper.errors import LedgerClosed, LedgerFencedOff, RecoveryFailed
from bookkeeper.model import BookieId, EntryId, LedgerState
from bookkeeper.protocol.lac import LacRead
from bookkeeper.protocol.recovery import RecoveryState
from tests.unit.protocol.small_cluster import LEDGER, Body, Cluster, Recoverer, Writer, check_end


def half_written_entry_and_a_lost_fence(*, fencing_reads: bool) -> tuple[Cluster, Writer]:
    """e0 is on b1 only; b2 misses its fence; the recoverer asks b0 and b2 first, then the writer reaches b2."""
    cluster = Cluster(3, 3, 3, 2)
    writer = Writer(cluster)
    writer.append()
    writer.deliver("add", "b1")
    recoverer = Recoverer(cluster, batch=1, fencing_reads=fencing_reads)
    recoverer.start()
    recoverer.deliver("mark")
    recoverer.deliver("fence", "b0")
    recoverer.deliver("fence", "b1")
    recoverer.lose("fence", "b2")
    recoverer.deliver("read", "b0")
    recoverer.deliver("read", "b2")
    recoverer.deliver("close")
    assert recoverer.closed is not None
    assert recoverer.closed.last_entry_id == -1
    writer.deliver("add", "b2")
    writer.run()
    return cluster, writer


def test_a_recovery_read_fences_so_that_a_half_written_entry_is_not_acknowledged_after_the_close() -> None:
    """T1, I-29. Mutant: recovery reads without the fence flag (the next test shows that it loses the entry)."""
    cluster, writer = half_written_entry_and_a_lost_fence(fencing_reads=True)
    assert writer.acknowledged == []
    assert isinstance(writer.error, LedgerFencedOff)
    check_end(cluster, writer.acknowledged)


def test_without_fencing_reads_the_same_trace_loses_an_acknowledged_entry() -> None:
    """T1's mutant is real: the trace is sharp."""
    cluster, writer = half_written_entry_and_a_lost_fence(fencing_reads=False)
    assert writer.acknowledged == [0]
    with pytest.raises(AssertionError, match="cut off"):
        check_end(cluster, writer.acknowledged)


def test_a_second_fragment_that_knows_no_lac_is_recovered_from_its_own_first_entry() -> None:
    """T2, I-17, I-32. Mutant: start at the LAC told (-1), not at the last fragment: entry 0 gets a fragment."""
    cluster = Cluster(8, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(2)
    writer.run()
    new = [BookieId("b3"), BookieId("b4"), BookieId("b5")]
    assert cluster.compare_and_set(0, cluster.metadata.with_fragment(EntryId(2), new))
    cluster.bookies[BookieId("b3")].entries[2] = Body(b"002", 9, -1)

    recoverer = Recoverer(cluster)
    recoverer.start()
    recoverer.deliver("mark")
    recoverer.deliver("fence")
    recoverer.deliver("read")
    recoverer.deliver("read")
    recoverer.lose("add", "b4")
    recoverer.run()
    assert recoverer.closed is not None
    assert [fragment.first_entry_id for fragment in recoverer.closed.fragments] == [0, 2]
    assert "b4" not in recoverer.closed.last_fragment.ensemble
    assert recoverer.closed.last_entry_id == 2
    check_end(cluster, writer.acknowledged)
    assert min(entry_id for request in recoverer.reads_asked for entry_id in request.entry_ids) == 2


def test_the_last_fragment_may_be_empty_and_the_length_still_counts_the_fragments_before() -> None:
    """I-32: all members of the last fragment hold nothing; the length comes from the entry before it."""
    cluster = Cluster(6, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(2)
    writer.run()
    new = [BookieId("b3"), BookieId("b4"), BookieId("b5")]
    assert cluster.compare_and_set(0, cluster.metadata.with_fragment(EntryId(2), new))
    recoverer = Recoverer(cluster)
    recoverer.start()
    recoverer.run()
    assert cluster.metadata.last_entry_id == 1
    check_end(cluster, writer.acknowledged)


def test_a_dead_recoverers_swap_leaves_nothing_behind_that_misleads_the_next() -> None:
    """T3, I-35, I-36. Mutant: commit the private ensemble at once: the next recovery asks b3, which truly has none."""
    cluster = Cluster(5, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(3)
    writer.deliver("add", "b1")
    writer.deliver("add", "b2")
    assert writer.acknowledged == [0, 1, 2]
    first = Recoverer(cluster)
    first.start()
    first.deliver("mark")
    first.deliver("fence")
    while not any(message.kind == "add" for message in first.mail):
        first.deliver("read")
    first.lose("add", "b1")
    first.lose("add", "b2")
    first.deliver("replace")
    assert "b3" in {message.bookie_id for message in first.mail}
    # It dies here. b0 is slow: the second recoverer hears b3 or b4 only if it trusts the swap.
    assert [fragment.ensemble for fragment in cluster.metadata.fragments] == [("b0", "b1", "b2")]
    cluster.up.discard(BookieId("b0"))
    second = Recoverer(cluster)
    second.start()
    second.run()
    check_end(cluster, writer.acknowledged)


def test_reads_after_a_swap_still_go_to_the_bookies_of_the_start() -> None:
    """I-35. Mutant: read with the working ensemble: entry 1 is asked of b3, b4, who never saw it, and is cut off."""
    cluster = Cluster(5, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(2)
    writer.deliver("add", "b1")
    writer.deliver("add", "b2")
    recoverer = Recoverer(cluster, batch=1)
    recoverer.start()
    recoverer.deliver("mark")
    recoverer.deliver("fence")
    while not any(message.kind == "add" for message in recoverer.mail):
        recoverer.deliver("read")
    recoverer.lose("add", "b1")
    recoverer.lose("add", "b2")
    recoverer.run()
    assert {request.bookie_id for request in recoverer.reads_asked} <= {"b0", "b1", "b2"}
    check_end(cluster, writer.acknowledged)


def test_too_few_bookies_for_the_write_back_leave_the_ledger_in_recovery() -> None:
    """T4, I-37. Mutant: close although an entry reached fewer than Qa bookies."""
    cluster = Cluster(3, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(2)
    writer.deliver("add", "b1")
    recoverer = Recoverer(cluster)
    recoverer.start()
    recoverer.deliver("mark")
    recoverer.deliver("fence")
    while not any(message.kind == "add" for message in recoverer.mail):
        recoverer.deliver("read")
    recoverer.lose("add", "b0")
    recoverer.lose("add", "b2")
    recoverer.run()
    assert isinstance(recoverer.error, RecoveryFailed)
    assert cluster.metadata.state is LedgerState.IN_RECOVERY
    again = Recoverer(cluster)
    again.start()
    again.run()
    assert cluster.metadata.last_entry_id == 1
    check_end(cluster, writer.acknowledged)


def test_one_dead_bookie_and_no_spare_do_not_stop_a_recovery_that_reaches_qa() -> None:
    """I-28a. Mutant: abort when no replacement is found (what the genuine client does)."""
    cluster = Cluster(3, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(2)
    writer.deliver("add", "b1")
    cluster.up.discard(BookieId("b2"))
    recoverer = Recoverer(cluster)
    recoverer.start()
    recoverer.run()
    assert cluster.metadata.last_entry_id == 1
    assert cluster.metadata.last_fragment.ensemble == ("b0", "b1", "b2")
    check_end(cluster, writer.acknowledged)


@pytest.mark.parametrize(("steps", "error"), [(["mark"], LedgerFencedOff), (None, LedgerClosed)])
def test_an_ensemble_change_that_meets_a_recovery_ends_the_writer(
    steps: list[str] | None, error: type[Exception]
) -> None:
    """T5, I-11, I-15. Mutant: after the conflict write the writer's fragments over what was read."""
    cluster = Cluster(4, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(2)
    writer.deliver("add", "b0")
    writer.lose("add", "b2")
    recoverer = Recoverer(cluster)
    recoverer.start()
    if steps is None:
        recoverer.run()
    else:
        for kind in steps:
            recoverer.deliver(kind)
    before = cluster.metadata
    writer.deliver("change")  # conflict, re-read
    writer.deliver("change")
    assert isinstance(writer.error, error)
    assert cluster.metadata is before
    writer.run()
    assert writer.acknowledged == []


def test_entries_complete_but_queued_are_judged_again_after_a_double_failure() -> None:
    """T6, I-05. E=4 Qw=2 Qa=2: entry 2 is complete on b2, b3 behind entry 0; then both fail in one window.

    Mutant: resend only what is incomplete: entry 2 is acknowledged with no copy in the committed ensemble.
    """
    cluster = Cluster(7, 4, 2, 2)
    writer = Writer(cluster)
    writer.append(4)
    writer.deliver("add", "b2")
    writer.deliver("add", "b3")
    assert writer.acknowledged == []
    writer.append(4)
    writer.lose("add", "b2")
    writer.lose("add", "b3")  # merged into the running change
    writer.deliver("add", "b0")
    writer.deliver("add", "b1")
    assert writer.acknowledged == [], "no acknowledgement while the ensemble changes (I-09)"
    writer.run()
    assert writer.acknowledged == list(range(8))
    assert cluster.metadata.last_fragment.ensemble == ("b0", "b1", "b4", "b5")
    assert cluster.metadata.last_fragment.first_entry_id == 0
    for entry_id in range(8):
        assert cluster.holders(entry_id) == 2


def test_the_loser_of_two_recoveries_shows_no_reader_an_entry_past_the_end() -> None:
    """T8, I-38, I-42. Mutant: recovery adds carry the advancing LAC: a tailing reader learns of entry 2."""
    cluster = Cluster(3, 3, 3, 2)
    writer = Writer(cluster)
    writer.append(2)
    writer.run()
    writer.append(1)
    writer.append(1)
    writer.deliver("add", "b2")  # entries 2 and 3 are on b2 only
    opened_early = cluster.metadata
    first, second = Recoverer(cluster, batch=1), Recoverer(cluster, batch=1)
    for recoverer in (first, second):
        recoverer.start()
        recoverer.deliver("mark")
    second.deliver("fence", "b2")
    second.deliver("fence")
    first.deliver("fence", "b0")
    first.deliver("fence", "b1")
    # The second finds the whole tail on b2; the first asks b0 and b1 about entry 2 before it is written back.
    second.deliver("read", "b2")
    assert any(message.kind == "add" for message in second.mail)
    first.lose("fence", "b2")
    while first.lose("read", "b2") + first.deliver("read") + first.deliver("add"):
        pass  # the first recoverer cannot read from b2
    first.run()
    assert first.closed is not None
    while second.deliver("add") or second.deliver("read", "b2") or second.deliver("read", "b0"):
        pass  # entry 3, too, is found on b2 before b1 is heard
    second.run()
    assert second.machine.state is RecoveryState.FINISHED
    assert second.closed == first.closed
    end = first.closed.last_entry_id
    assert end is not None
    assert end == 1
    assert 3 in cluster.bookies[BookieId("b0")].entries, "the trace wrote past the end"
    reader = LacRead(opened_early, ledger_id=LEDGER)
    for bookie_id in reader.bookies:
        answer = cluster.bookies[bookie_id].read_last(fence=False)
        assert answer is not None
        reader.on_lac(bookie_id, answer[1].lac)
    assert reader.lac <= end
    check_end(cluster, writer.acknowledged)


SHAPES = [(3, 2, 2), (3, 3, 2), (4, 2, 2), (4, 3, 2), (5, 3, 2), (5, 3, 3), (2, 2, 1)]


def _random_run(seed: int) -> tuple[Cluster, Writer, list[Recoverer]]:
    """A writer and three recoverers whose messages arrive, get lost or wait at random."""
    chance = random.Random(seed)
    shape = chance.choice(SHAPES)
    cluster = Cluster(shape[0] + 3, *shape)
    writer = Writer(cluster, delay_ensemble_change=chance.random() < 0.3)
    recoverers = [Recoverer(cluster, batch=chance.choice([1, 2, 8])) for _ in range(3)]
    starts = sorted(chance.randrange(20, 160) for _ in recoverers)
    for step in range(260):
        if chance.random() < 0.3:
            writer.append(chance.randint(1, 4))
        if step in starts:
            recoverers[starts.index(step)].start()
            starts[starts.index(step)] = -1
        party = chance.choice([writer, writer, *recoverers])
        if not party.mail:
            continue
        message = party.mail.pop(chance.randrange(len(party.mail)))
        if message.bookie_id is not None and chance.random() < 0.06:
            message.lose()
        elif message.bookie_id is not None and chance.random() < 0.04:
            party.mail.append(message)
        else:
            message.deliver()
    return cluster, writer, recoverers


@pytest.mark.parametrize("block", range(8))
def test_whatever_the_order_and_the_losses_one_end_is_agreed_above_everything_acknowledged(block: int) -> None:
    """I-40, I-45, I-05, I-06. Kills most mutants of AddWindow and Recovery, as the mutants of the traces above."""
    acknowledged = closed = 0
    for seed in range(block * 40, block * 40 + 40):
        cluster, writer, recoverers = _random_run(seed)
        writer.mail.clear()
        for recoverer in recoverers:
            recoverer.run()
        # The faults have stopped: one more recovery must succeed (L-1).
        last = Recoverer(cluster)
        last.start()
        last.run()
        assert last.closed is not None, f"seed {seed}: {last.error}"
        try:
            check_end(cluster, writer.acknowledged)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        ends = {r.closed.last_entry_id for r in recoverers if r.closed is not None}
        assert ends <= {cluster.metadata.last_entry_id}, f"seed {seed}: two ends"
        acknowledged += len(writer.acknowledged)
        closed += sum(r.closed is not None for r in recoverers)
    assert acknowledged > 100
    assert closed > 20
