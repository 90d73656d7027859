"""Segments as spans, the search for a txid, and the limits of micro-batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journalmgr.model import HADOOP_2_7, Segment, TxId
from journalmgr.segment import finalised_name, inprogress_name
from journalmgr.spark.edit_search import TxidSearch
from journalmgr.spark.edit_spans import BytesLimit, Gap, Span, choose, finalised_end, without_twins


def segment(first: int, last: int | None, ledger_id: int = 0) -> Segment:
    return Segment(TxId(first), None if last is None else TxId(last), HADOOP_2_7, ledger_id or first)


def span(first: int, last: int, *, in_progress: bool = False) -> Span:
    return Span(segment(first, None if in_progress else last), last)


SPANS = [span(1, 10), span(11, 20), span(21, 25, in_progress=True)]


def test_a_range_is_cut_at_segments() -> None:
    choice = choose(SPANS, 5, 22)
    assert [(part.low, part.high) for part in choice.parts] == [(5, 10), (11, 20), (21, 22)]
    assert (choice.gaps, choice.beyond) == ([], None)


def test_what_no_segment_has_is_a_gap() -> None:
    before, after = span(11, 20), span(31, 40)
    choice = choose([before, after], 5, 50)
    assert choice.gaps == [Gap(5, 10, before.segment), Gap(21, 30, after.segment)]
    assert [(part.low, part.high) for part in choice.parts] == [(11, 20), (31, 40)]
    assert choice.beyond == 41
    assert choose([before, after], 22, 25).gaps == [Gap(22, 25, after.segment)]
    assert choose([before, after], 1, 3).parts == []


def test_a_segment_in_progress_without_anything_confirmed_is_no_gap() -> None:
    choice = choose([span(1, 10), span(11, 10, in_progress=True)], 1, 12)
    assert [(part.low, part.high) for part in choice.parts] == [(1, 10)]
    assert (choice.gaps, choice.beyond) == ([], 11)


def test_what_two_segments_have_is_read_once() -> None:
    choice = choose([span(1, 10), span(5, 20)], 1, 20)
    assert [(part.span.first_txid, part.low, part.high) for part in choice.parts] == [(1, 1, 10), (5, 11, 20)]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12)), max_size=6), st.integers(1, 50), st.integers(1, 50))
def test_each_transaction_of_a_range_is_in_one_part_or_gap_or_beyond(
    given: list[tuple[int, int]], low: int, high: int
) -> None:
    spans = sorted((span(first, first + count - 1) for first, count in given), key=lambda each: each.first_txid)
    choice = choose(spans, low, high)
    covered = [txid for part in choice.parts for txid in range(part.low, part.high + 1)]
    missing = [txid for gap in choice.gaps for txid in range(gap.first, gap.last + 1)]
    if choice.beyond is not None:
        missing += range(choice.beyond, high + 1)
    assert sorted(covered + missing) == list(range(low, high + 1))
    assert covered == sorted(covered)
    held = {txid for each in spans for txid in range(each.first_txid, each.last_txid + 1)}
    assert set(covered) == held & set(range(low, high + 1))


def test_names_say_where_finalised_segments_end() -> None:
    assert finalised_end(finalised_name(1, 9)) == 9
    assert finalised_end(finalised_name(1, 10**18 + 1)) == 10**18 + 1
    for name in (inprogress_name(101), "edits_1_9", "edits", "edits_000000000000000001_00000000000000000x"):
        assert finalised_end(name) is None


def test_a_leftover_record_in_progress_is_hidden_by_its_finalised_twin() -> None:
    kept = without_twins([segment(11, None, 5), segment(11, 20, 5), segment(21, None, 6), segment(1, 10, 4)])
    assert [(each.first_txid, each.last_txid) for each in kept] == [(1, 10), (11, 20), (21, None)]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
    st.integers(0, 130),
    st.sets(st.integers(0, 40), max_size=12),
    st.booleans(),
)
def test_a_search_never_misses_the_entry_that_holds_a_txid(
    sizes: list[int], txid: int, damaged: set[int], to_end: bool
) -> None:
    firsts = [1 + sum(sizes[:at]) for at in range(len(sizes))]
    search = TxidSearch(txid, 0, len(sizes) - 1, to_end=to_end)
    probes = 0
    while (entry_id := search.probe) is not None:
        search.on_first_txid(None if entry_id in damaged else firsts[entry_id])
        probes += 1
        assert probes <= 4 * len(sizes) + 8
    truth = max((at for at, first in enumerate(firsts) if first <= txid), default=0)
    assert search.found >= truth if to_end else search.found <= truth
    if not damaged:
        assert search.found == truth
        assert probes <= len(sizes).bit_length() + 1


def test_a_micro_batch_ends_about_where_its_bytes_end() -> None:
    limit = BytesLimit(5, 1000)
    limit.on_part(5, 10, 100.0)
    assert (limit.end, limit.is_reached) == (11, False)
    limit.on_part(11, 100, 50.0)
    assert (limit.end, limit.is_reached) == (19, True)


def test_a_micro_batch_has_one_transaction_at_least() -> None:
    limit = BytesLimit(5, 10)
    limit.on_part(7, 10, 100.0)
    assert (limit.end, limit.is_reached) == (8, True)
    behind = BytesLimit(5, 10)
    behind.on_part(5, 5, 10.0)
    behind.on_part(6, 9, 10.0)
    assert (behind.end, behind.is_reached) == (6, True)
