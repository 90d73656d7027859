"""What the auditor concludes: losses and their delay, certain losses, racks, times, counts of copies."""

import itertools
import random

import pytest

from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.audit.conclusions import (
    Adherence,
    Loss,
    LostBookies,
    certain_losses,
    first_wait_s,
    is_overdue,
    lost_members,
    placement_of,
    suspicions,
)
from bookkeeper.replication.audit.progress import ERRORS_KEPT_MAX, TOLD_EVERY_S, Job, JobProgress
from bookkeeper.replication.audit.replica_counts import CHUNK_ENTRIES_MAX, Shortage, chunks, count_missing
from bookkeeper.replication.copies.fragments import FragmentRange
from bookkeeper.replication.copies.verdicts import CopyVerdict, FragmentVerdict, Standing

A, B, C, D = (BookieId(f"{name}:3181") for name in "abcd")


# --- losses --------------------------------------------------------------------------------------------------------


def test_without_a_delay_each_loss_is_audited_at_once_and_only_once() -> None:
    losses = LostBookies([A, B, C], 0)
    assert losses.on_registered(0, [A, B, C]) is Loss.NOTHING
    assert losses.on_registered(1, [A, B]) is Loss.AUDIT
    assert losses.on_registered(2, [A, B]) is Loss.NOTHING
    assert losses.on_registered(3, [A, B, C]) is Loss.NOTHING
    assert losses.on_registered(4, [A, C]) is Loss.AUDIT
    assert losses.due_s is None


def test_a_single_loss_waits_for_the_delay_and_is_called_off_when_the_bookie_is_back() -> None:
    losses = LostBookies([], 30)
    assert losses.on_registered(0, [A, B]) is Loss.NOTHING
    assert losses.on_registered(10, [A]) is Loss.DELAYED
    assert (losses.due_s, losses.gone) == (40, {B})
    assert losses.on_registered(20, [A, C]) is Loss.NOTHING, "a new bookie changes nothing"
    assert losses.on_time(39.9) is Loss.NOTHING
    assert losses.on_registered(39.95, [A, B, C]) is Loss.CALLED_OFF
    assert losses.on_time(41) is Loss.NOTHING
    assert losses.on_registered(50, [A, C]) is Loss.DELAYED, "and every loss has a delay of its own"
    assert losses.on_time(80) is Loss.AUDIT
    assert losses.on_registered(90, [A, C]) is Loss.NOTHING


def test_two_bookies_that_are_gone_at_once_are_audited_at_once() -> None:
    losses = LostBookies([A, B, C], 30)
    losses.on_registered(0, [A, B, C])
    assert losses.on_registered(10, [A, B]) is Loss.DELAYED
    assert losses.on_registered(20, [A]) is Loss.AUDIT
    assert (losses.due_s, losses.gone) == (None, set())
    assert losses.on_registered(25, [A, B, C]) is Loss.NOTHING
    assert losses.on_registered(30, []) is Loss.AUDIT


def test_a_bookie_that_goes_as_another_one_comes_back_has_the_whole_delay() -> None:
    losses = LostBookies([A, B, C], 30)
    losses.on_registered(0, [A, B, C])
    losses.on_registered(10, [A, B])
    assert losses.on_registered(20, [A, C]) is Loss.DELAYED
    assert (losses.due_s, losses.gone) == (50, {B})


def test_bookies_that_were_lost_before_the_auditor_began_count() -> None:
    """I-77: one of them has the delay as from now, several are audited at once."""
    assert LostBookies([A, B, C], 0).on_registered(5, [A, B]) is Loss.AUDIT
    one = LostBookies([A, B, C], 30)
    assert one.on_registered(5, [A, B]) is Loss.DELAYED
    assert one.due_s == 35
    assert LostBookies([A, B, C], 30).on_registered(5, [A]) is Loss.AUDIT


def test_setting_the_delay_asks_for_an_audit_or_moves_the_one_that_is_due() -> None:
    losses = LostBookies([A, B], 30)
    losses.on_registered(0, [A, B])
    assert losses.on_delay(1, 60) is Loss.NOTHING
    assert losses.on_registered(10, [A]) is Loss.DELAYED
    assert losses.on_delay(20, 100) is Loss.DELAYED
    assert losses.due_s == 120
    assert losses.on_delay(21, 100) is Loss.AUDIT, "the same once more"
    assert losses.due_s is None
    losses.on_registered(30, [A, B])
    losses.on_registered(40, [A])
    assert losses.on_delay(41, 0) is Loss.AUDIT
    losses.on_registered(50, [A, B])
    losses.delay_s = 10
    losses.on_registered(60, [A])
    assert losses.on_demand() is Loss.AUDIT
    assert losses.due_s is None


def test_whatever_happens_a_lost_bookie_is_audited_or_due(rng: random.Random) -> None:
    """Against a twin that remembers for each bookie whether its loss was audited."""
    for _ in range(300):
        known = [A, B, C, D]
        losses = LostBookies(known, rng.choice([0, 10]))
        open_losses: set[BookieId] = set()
        registered: set[BookieId] = set(known)
        now = 0.0
        for _ in range(30):
            now += rng.choice([1, 5, 20])
            loss = losses.on_time(now)
            if loss is Loss.NOTHING:
                roll = rng.random()
                if roll < 0.8:
                    new = {bookie for bookie in known if rng.random() < 0.7}
                    open_losses = (open_losses | (registered - new)) - new
                    registered = new
                    loss = losses.on_registered(now, new)
                else:
                    loss = losses.on_delay(now, rng.choice([0, 10, 20]))
            if loss is Loss.AUDIT:
                open_losses.clear()
            assert losses.gone == open_losses
            assert (losses.due_s is not None) == bool(losses.gone)
            assert len(losses.gone) <= 1
            assert losses.due_s is None or losses.due_s <= now + 20


# --- ledgers -------------------------------------------------------------------------------------------------------


def ledger(*ensembles: str, closed: bool = True, write_quorum: int = 2) -> LedgerMetadata:
    fragments = tuple(
        Fragment(EntryId(10 * number), tuple(BookieId(f"{name}:3181") for name in ensemble))
        for number, ensemble in enumerate(ensembles)
    )
    return LedgerMetadata(
        ensemble_size=len(ensembles[0]),
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        fragments=fragments,
        state=LedgerState.CLOSED if closed else LedgerState.OPEN,
        last_entry_id=EntryId(10 * len(ensembles) - 1) if closed else None,
        length=0 if closed else None,
    )


def test_lost_are_members_of_any_fragment_that_are_not_registered() -> None:
    assert lost_members(ledger("abc", "dbc", "dba"), {A, B, C, D}) == []
    assert lost_members(ledger("abc", "dbc"), {B, C, D}) == [A]
    assert lost_members(ledger("abc", "dbc", closed=False), {B}) == [A, C, D]


def verdict(standings: dict[BookieId, tuple[Standing, int | None]], *, agreed: bool = True) -> FragmentVerdict:
    fragment = FragmentRange(0, 9, tuple(standings), 2, agreed=agreed)
    return FragmentVerdict(
        fragment,
        tuple(
            CopyVerdict(index, bookie_id, standing, entry_id)
            for index, (bookie_id, (standing, entry_id)) in enumerate(standings.items())
        ),
    )


@pytest.mark.parametrize("agreed", [True, False])
def test_who_gives_no_answer_lacks_nothing(agreed: bool) -> None:
    """I-77, and unknown is never no."""
    found = [verdict({A: (Standing.SILENT, 3), B: (Standing.PRESENT, None)}, agreed=agreed)]
    assert certain_losses(found, ()) == set()
    assert suspicions(found) == set()


def test_denied_and_damaged_copies_of_settled_fragments_are_certain_losses() -> None:
    found = [verdict({A: (Standing.ABSENT, 0), B: (Standing.UNREADABLE, 4), C: (Standing.PRESENT, None)})]
    assert certain_losses(found, ()) == {A, B}
    assert suspicions(found) == set()


def test_copies_of_a_fragment_still_written_are_only_suspected() -> None:
    """I-74's surprise: one of Qw may be behind for a moment; nobody is to be fenced for it."""
    found = [verdict({A: (Standing.ABSENT, 9), B: (Standing.UNREADABLE, 9)}, agreed=False)]
    assert certain_losses(found, ()) == set()
    assert suspicions(found) == {(A, 9), (B, 9)}


def test_who_is_gone_and_has_time_to_come_back_is_not_lost_yet() -> None:
    for agreed in (True, False):
        found = [verdict({A: (Standing.GONE, None), B: (Standing.GONE, None)}, agreed=agreed)]
        assert certain_losses(found, {A}) == {B}


@pytest.mark.parametrize(
    ("racks", "racks_min", "racks_there", "expected"),
    [
        ("xyz", 2, 3, Adherence.STRICT),
        ("xyy", 2, 3, Adherence.FAILS),
        ("xxx", 2, 2, Adherence.FAILS),
        ("xxx", 2, 1, Adherence.SOFT),
        ("xxx", 1, 3, Adherence.STRICT),
        ("xyz", 9, 3, Adherence.STRICT),
    ],
)
def test_placement_asks_for_racks_that_exist(racks: str, racks_min: int, racks_there: int, expected: Adherence) -> None:
    rack_of = dict(zip([A, B, C], racks, strict=True)).__getitem__
    assert placement_of(ledger("abc"), rack_of, racks_min, racks_there) is expected


def test_the_fragment_that_is_still_written_is_not_judged_by_its_racks() -> None:
    rack_of = {A: "x", B: "y", C: "x", D: "x"}.__getitem__
    assert placement_of(ledger("ab", "cd", closed=False), rack_of, 2, 2) is Adherence.STRICT
    assert placement_of(ledger("ab", "cd"), rack_of, 2, 2) is Adherence.FAILS
    assert placement_of(ledger("cd", "ab", closed=False), rack_of, 2, 2) is Adherence.FAILS


def test_a_new_auditor_goes_on_with_the_rhythm_of_the_last_one() -> None:
    assert first_wait_s(100, None, 50_000) == 0
    assert first_wait_s(100, 20_000, 50_000) == 70
    assert first_wait_s(100, 20_000, 500_000) == 0
    assert first_wait_s(100, 90_000, 50_000) == 100, "a clock was wrong"


def test_overdue_is_what_waits_longer_than_the_grace() -> None:
    assert is_overdue(10_000, 5, 15_001)
    assert not is_overdue(10_000, 5, 15_000)
    assert not is_overdue(None, 5, 10**9)
    assert not is_overdue(0, 0, 10**9)


# --- copies --------------------------------------------------------------------------------------------------------


def runs(entry_ids: set[int]) -> list[range]:
    found: list[range] = []
    for entry_id in sorted(entry_ids):
        if found and found[-1].stop == entry_id:
            found[-1] = range(found[-1].start, entry_id + 1)
        else:
            found.append(range(entry_id, entry_id + 1))
    return found


def test_counts_are_those_of_looking_at_every_entry(rng: random.Random) -> None:
    for _ in range(300):
        size = rng.randint(1, 5)
        write_quorum = rng.randint(1, size)
        ack_quorum = rng.randint(1, write_quorum)
        first = rng.randrange(20)
        last = first + rng.randrange(25)
        fragment = FragmentRange(first, last, tuple(BookieId(f"b{n}") for n in range(size)), write_quorum, agreed=True)
        held: dict[int, set[int] | None] = {
            index: None
            if rng.random() < 0.2
            else {e for e in range(first - 2, last + 3) if e >= 0 and rng.random() < 0.9}
            for index in range(size)
        }
        missing: dict[int, int] = {}
        fewest = write_quorum
        for entry_id in range(first, last + 1):
            there = 0
            for index in write_set(entry_id, size, write_quorum):
                has = held[index]
                if has is None or entry_id in has:
                    there += 1
                else:
                    missing[index] = missing.get(index, 0) + 1
            fewest = min(fewest, there)
        counts, shortage = count_missing(
            fragment, ack_quorum, {i: None if h is None else runs(h) for i, h in held.items()}, first, last
        )
        assert counts == missing
        assert (shortage is Shortage.NO_COPY) == (fewest == 0)
        assert (shortage is Shortage.BELOW_ACK_QUORUM) == (0 < fewest < ack_quorum)
        assert (shortage is Shortage.BELOW_WRITE_QUORUM) == (ack_quorum <= fewest < write_quorum and fewest > 0)
        assert (shortage is Shortage.NONE) == (not missing)


def test_a_long_fragment_is_counted_in_pieces_that_make_up_the_whole() -> None:
    last = 2 * CHUNK_ENTRIES_MAX + 4
    assert write_set(last, 3, 2) == (0, 1)
    fragment = FragmentRange(3, last, (A, B, C), 2, agreed=True)
    pieces = chunks(fragment)
    assert [pieces[0][0], pieces[-1][1]] == [3, last]
    assert all(left[1] + 1 == right[0] for left, right in itertools.pairwise(pieces))
    held = {0: [range(last)], 1: [range(last + 1)], 2: [range(last + 1)]}
    found = [count_missing(fragment, 2, held, *piece) for piece in pieces]
    assert found[:-1] == [({}, Shortage.NONE)] * (len(pieces) - 1)
    assert found[-1] == ({0: 1}, Shortage.BELOW_ACK_QUORUM)


def test_an_empty_fragment_has_no_pieces() -> None:
    assert chunks(FragmentRange(5, 4, (A,), 1, agreed=True)) == []


# --- progress ------------------------------------------------------------------------------------------------------


def test_progress_says_how_far_how_fast_and_what_went_wrong() -> None:
    progress = JobProgress(Job.LEDGERS)
    assert str(progress.status(0)) == "not done yet"
    progress.begin(100)
    progress.looked_at, progress.marked = 50, 2
    for number in range(ERRORS_KEPT_MAX + 5):
        progress.doubt(number, "no answer")
    status = progress.status(110)
    assert str(status) == "50 ledgers looked at (5/s), 2 marked, 15 undecided"
    assert len(status.doubts) == ERRORS_KEPT_MAX
    assert progress.end(120) == 20
    assert str(progress.status(1000)) == "done: 50 ledgers looked at in 20.0 s, 2 marked, 15 undecided"
    progress.begin(2000)
    progress.looked_at = 10
    assert str(progress.status(2001)) == "10 of about 50 ledgers looked at (10/s), 0 marked"
    progress.fail(2002, "the store is away")
    assert str(progress.status(2003)).endswith("; the last attempt failed: the store is away")
    assert not progress.status(2003).running_since_s


def test_a_long_run_is_told_now_and_then() -> None:
    progress = JobProgress(Job.BOOKIES)
    assert not progress.is_telling(1000)
    progress.begin(1000)
    assert not progress.is_telling(1000 + TOLD_EVERY_S - 1)
    assert progress.is_telling(1000 + TOLD_EVERY_S)
    assert not progress.is_telling(1000 + TOLD_EVERY_S + 1)
