"""Which ledgers are suspected, and which entry logs are worth rewriting."""

import random
from itertools import pairwise

import pytest

from bookkeeper.bookie.gc.candidates import (
    ALARM_COUNT_MIN,
    CompactionKind,
    CompactionSchedule,
    CompactionSettings,
    LedgerBytes,
    LogUsage,
    Missing,
    Suspects,
    absent_from,
    ascending,
    ranges_above,
    worth_compacting,
)
from bookkeeper.errors import MetadataCorrupt


def test_missing_is_the_difference_however_the_listing_is_cut() -> None:
    """Against sets, over random ledgers and cuts (I-64: nothing listed may be missing, at any border)."""
    rng = random.Random(7)
    for _ in range(500):
        local = sorted(rng.sample(range(60), rng.randrange(0, 30)))
        listed = sorted(rng.sample(range(60), rng.randrange(0, 40)))
        missing = Missing(local)
        at = 0
        while at < len(listed):
            step = rng.randrange(1, 6)
            missing.feed(listed[at : at + step])
            at += step
        assert list(missing.finish()) == sorted(set(local) - set(listed))
        assert missing.listed_count == len(listed)


def test_ranges_have_every_id_above_the_limit_and_none_touches_another() -> None:
    rng = random.Random(9)
    for _ in range(300):
        ids = sorted(rng.sample(range(40), rng.randrange(0, 40)))
        after = rng.randrange(-1, 41)
        ranges = list(ranges_above(ids, after))
        assert [each for low, high in ranges for each in range(low, high + 1)] == [each for each in ids if each > after]
        assert all(high + 1 < low for (_, high), (low, _) in pairwise(ranges))


def test_ids_are_put_in_order_in_pieces_and_compared() -> None:
    rng = random.Random(5)
    for count in (0, 1, 49_999, 50_001, 120_000):
        ids = rng.sample(range(1 << 40), count)
        assert list(ascending(ids)) == sorted(ids)
    assert absent_from([1, 5, 9], [0, 1, 2, 9, 10]) == [0, 2, 10]
    assert absent_from([], [3]) == [3]
    assert absent_from([3], []) == []


def test_a_listing_that_goes_back_proves_nothing() -> None:
    missing = Missing([1, 2, 3])
    missing.feed([1, 5])
    with pytest.raises(MetadataCorrupt):
        missing.feed([4])


def test_a_listing_without_most_of_what_is_here_is_alarming() -> None:
    local = range(ALARM_COUNT_MIN * 2)
    missing = Missing(local)
    missing.finish()
    assert missing.alarming
    half = Missing(local)
    half.feed(local[:ALARM_COUNT_MIN])
    half.finish()
    assert not half.alarming
    few = Missing(range(5))
    few.finish()
    assert not few.alarming


def test_a_suspect_ripens_only_when_it_is_missing_in_every_round_for_the_grace() -> None:
    suspects = Suspects()
    assert suspects.observe([1, 2], 0.0, grace_s=10.0) == []
    assert suspects.observe([1, 2], 5.0, grace_s=10.0) == []
    assert suspects.observe([1], 10.0, grace_s=10.0) == [1]
    assert suspects.observe([1, 2], 12.0, grace_s=10.0) == [1]  # 2 was listed in between
    assert suspects.observe([1, 2], 22.0, grace_s=10.0) == [1, 2]
    suspects.forget([1])
    assert len(suspects) == 1


def test_one_look_is_never_enough_even_without_a_grace() -> None:
    suspects = Suspects()
    assert suspects.observe([1], 3.0, grace_s=0.0) == []
    assert suspects.observe([1], 4.0, grace_s=0.0) == [1]


def test_suspects_are_bounded() -> None:
    suspects = Suspects(count_max=3)
    suspects.observe(range(10), 0.0, grace_s=0.0)
    assert len(suspects) == 3
    assert suspects.observe(range(10), 1.0, grace_s=0.0) == [0, 1, 2]


def test_usage_counts_only_ledgers_that_are_here() -> None:
    ledgers = LedgerBytes({5: 100, 3: 50, 9: 850})
    usage = ledgers.usage(7, {3, 5, 11})
    assert usage == LogUsage(7, 1000, 150, 2)
    assert usage.share == pytest.approx(0.15)
    assert ledgers.usage(7, set()).dead
    assert list(ledgers.ledger_ids) == [3, 5, 9]
    assert ledgers.same_as(LedgerBytes({3: 50, 9: 850, 5: 100}))
    assert not ledgers.same_as(LedgerBytes({3: 50, 9: 849, 5: 101}))


def test_logs_with_the_smallest_live_share_are_rewritten_first_and_dead_ones_never() -> None:
    usages = [LogUsage(1, 100, 90, 1), LogUsage(2, 100, 10, 1), LogUsage(3, 100, 0, 0), LogUsage(4, 100, 19, 2)]
    assert [usage.log_id for usage in worth_compacting(usages, 0.2)] == [2, 4]
    assert worth_compacting(usages, 0.0) == []


def test_a_major_compaction_counts_as_a_minor_one() -> None:
    schedule = CompactionSchedule(CompactionSettings(minor_interval_s=10, major_interval_s=25), 0.0)
    assert schedule.due(9.0) is None
    assert schedule.due(10.0) is CompactionKind.MINOR
    schedule.done(CompactionKind.MINOR, 10.0)
    assert schedule.due(19.0) is None
    assert schedule.due(25.0) is CompactionKind.MAJOR
    schedule.done(CompactionKind.MAJOR, 26.0)
    assert schedule.due(35.0) is None
    assert schedule.due(36.0) is CompactionKind.MINOR


@pytest.mark.parametrize(
    "settings",
    [
        CompactionSettings(minor_threshold=0.0, major_interval_s=0.0),
        CompactionSettings(minor_interval_s=-1.0, major_threshold=-0.5),
    ],
)
def test_a_kind_with_a_threshold_or_interval_of_zero_or_less_is_off(settings: CompactionSettings) -> None:
    schedule = CompactionSchedule(settings, 0.0)
    assert schedule.due(1e9) is None
    assert settings.threshold(CompactionKind.MINOR) == settings.threshold(CompactionKind.MAJOR) == 0.0
