"""The evidence of bookies on a chunk, judged; beside a plain twin that goes entry by entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.model import Fragment, LedgerMetadata
from bookkeeper.protocol.schedule import write_set
from bookkeeper.spark.audit.evidence import BAD, CHUNK_ENTRIES, GOOD, MISSING, UNKNOWN, UNSAID, Evidence, Note
from bookkeeper.spark.audit.judgement import ChunkVerdict, Finding, FindingKind, judge

LEDGER = 7
Content = dict[int, tuple[int, int, int]]
"""Entry -> verdict, checksum, size."""


def metadata_of(write_quorum: int, *fragments: tuple[int, tuple[str, ...]]) -> LedgerMetadata:
    made = tuple(Fragment(first, ensemble) for first, ensemble in fragments)
    return LedgerMetadata(len(fragments[0][1]), write_quorum, write_quorum, made)


def evidence_of(contents: Mapping[str, Content], chunk: int = 0) -> dict[str, Evidence]:
    found = {}
    for bookie, content in contents.items():
        each = Evidence(LEDGER, chunk, bookie)
        for entry_id, (verdict, crc, size) in content.items():
            if verdict == GOOD:
                each.add_good([entry_id], [crc], [size])
        for bad in (UNKNOWN, MISSING, BAD):
            each.add(bad, [entry_id for entry_id, (verdict, *_) in content.items() if verdict == bad], "why")
        found[bookie] = each
    return found


def all_good(metadata: LedgerMetadata, end: int) -> dict[str, Content]:
    contents: dict[str, Content] = {}
    for entry_id in range(end + 1):
        ensemble = metadata.fragment_of(entry_id).ensemble
        for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum):
            contents.setdefault(ensemble[index], {})[entry_id] = (GOOD, 100 + entry_id, 10 + entry_id % 3)
    return contents


STRIPED = metadata_of(2, (0, ("a", "b", "c")), (50, ("a", "d", "c")))
"""Entries at bookies: 0 a b, 1 b c, 2 c a, ..."""


@pytest.mark.parametrize("metadata", [STRIPED, metadata_of(3, (0, ("a", "b", "c")))])
def test_copies_that_are_all_good_and_equal_make_no_finding(metadata: LedgerMetadata) -> None:
    found = judge(LEDGER, metadata, 99, 0, evidence_of(all_good(metadata, 99)))
    assert found == ChunkVerdict((), 100, 100 * metadata.write_quorum, sum(10 + each % 3 for each in range(100)))


def test_a_chunk_is_judged_up_to_the_end_of_the_ledger_and_of_the_chunk() -> None:
    metadata = metadata_of(1, (0, ("a",)))
    first = Evidence(LEDGER, 0, "a")
    first.add_good(range(CHUNK_ENTRIES), [1] * CHUNK_ENTRIES, [2] * CHUNK_ENTRIES)
    second = Evidence(LEDGER, 1, "a")
    second.add_good(range(CHUNK_ENTRIES, CHUNK_ENTRIES + 5), [1] * 5, [2] * 5)
    assert judge(LEDGER, metadata, CHUNK_ENTRIES + 4, 0, {"a": first}).size == 2 * CHUNK_ENTRIES
    assert judge(LEDGER, metadata, CHUNK_ENTRIES + 4, 1, {"a": second}) == ChunkVerdict((), 5, 5, 10)


def test_what_one_bookie_lacks_is_one_finding_over_the_entries_it_should_have() -> None:
    contents = all_good(STRIPED, 99)
    for entry_id in contents["b"]:
        contents["b"][entry_id] = (MISSING, 0, 0)
    found = judge(LEDGER, STRIPED, 99, 0, evidence_of(contents))
    assert found.findings == (Finding(FindingKind.MISSING, LEDGER, 0, 49, "b", 1, "why", 34),)
    assert found.size is not None


def test_a_bookie_that_was_not_asked_is_unknown_and_never_lacks_anything() -> None:
    contents = all_good(STRIPED, 49)
    del contents["b"]
    found = judge(LEDGER, STRIPED, 49, 0, evidence_of(contents))
    assert [(each.kind, each.bookie, each.detail) for each in found.findings] == [
        (FindingKind.UNKNOWN, "b", "it was not asked")
    ]


def test_good_copies_that_differ_are_told_with_who_has_which() -> None:
    metadata = metadata_of(3, (0, ("a", "b", "c")))
    contents = all_good(metadata, 9)
    contents["b"][4] = (GOOD, 1, 1)
    found = judge(LEDGER, metadata, 9, 0, evidence_of(contents))
    assert found.findings == (Finding(FindingKind.DIVERGENT, LEDGER, 4, 4, "", 3, "a, c against b", 1),)


@pytest.mark.parametrize(("third", "lost"), [(MISSING, True), (BAD, True), (UNKNOWN, False), (UNSAID, False)])
def test_an_entry_is_lost_only_where_no_copy_is_unknown(third: int, lost: bool) -> None:
    metadata = metadata_of(3, (0, ("a", "b", "c")))
    contents = all_good(metadata, 2)
    contents["a"][1], contents["b"][1], contents["c"][1] = (MISSING, 0, 0), (BAD, 0, 0), (third, 0, 0)
    found = judge(LEDGER, metadata, 2, 0, evidence_of(contents))
    assert (FindingKind.LOST in {each.kind for each in found.findings}) is lost
    assert found.size is None


def test_the_best_that_is_said_of_an_entry_counts() -> None:
    log, journal = Evidence(LEDGER, 0, "a"), Evidence(LEDGER, 0, "a")
    log.add(BAD, [1, 2], "digest")
    log.add(UNKNOWN, [2, 3], "page")
    journal.add_good([2], [5], [6])
    journal.merge(log)
    journal.complete()
    assert journal.verdicts[:5] == bytes([MISSING, BAD, GOOD, UNKNOWN, MISSING])
    assert journal.notes == [Note(1, 2, "digest"), Note(3, 3, "page")]
    assert [journal.why(entry_id) for entry_id in (1, 3, 4)] == ["digest", "page", ""]


_verdict = st.sampled_from([GOOD] * 12 + [BAD, MISSING, UNKNOWN, UNSAID])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_findings_are_those_of_a_plain_look_at_each_entry(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 4))
    quorum = data.draw(st.integers(1, width))
    names = [f"b{number}" for number in range(width + 1)]
    changes = sorted(data.draw(st.sets(st.integers(1, 30), max_size=2)))
    fragments = [(first, tuple(data.draw(st.permutations(names))[:width])) for first in [0, *changes]]
    metadata, end = metadata_of(quorum, *fragments), data.draw(st.integers(0, 40))
    contents = all_good(metadata, end)
    for bookie in list(contents):
        for entry_id in list(contents[bookie]):
            verdict = data.draw(_verdict)
            if verdict == UNSAID:
                del contents[bookie][entry_id]
            elif verdict != GOOD:
                contents[bookie][entry_id] = (verdict, 0, 0)
            elif data.draw(st.integers(0, 30)) == 0:
                contents[bookie][entry_id] = (GOOD, 3, 4)

    found = judge(LEDGER, metadata, end, 0, evidence_of(contents))

    expected: Counter[tuple[str, str, int]] = Counter()
    size: int | None = 0
    for entry_id in range(end + 1):
        ensemble = metadata.fragment_of(entry_id).ensemble
        members = [ensemble[index] for index in write_set(entry_id, width, quorum)]
        said = {member: contents.get(member, {}).get(entry_id, (UNSAID, 0, 0)) for member in members}
        good = {said[member][1:] for member in members if said[member][0] == GOOD}
        words = {BAD: "bad", MISSING: "missing", UNKNOWN: "unknown", UNSAID: "unknown"}
        expected.update((words[each[0]], member, entry_id) for member, each in said.items() if each[0] != GOOD)
        expected.update([("divergent", "", entry_id)] if len(good) > 1 else [])
        expected.update([("lost", "", entry_id)] if all(each[0] in (BAD, MISSING) for each in said.values()) else [])
        first_good = next((said[member] for member in members if said[member][0] == GOOD), None)
        size = None if first_good is None or size is None else size + first_good[2]
    told: Counter[tuple[str, str, int]] = Counter()
    for each in found.findings:
        for entry_id in range(each.first_entry_id, each.last_entry_id + 1):
            ensemble = metadata.fragment_of(entry_id).ensemble
            holders = [ensemble[index] for index in write_set(entry_id, width, quorum)]
            if not each.bookie or each.bookie in holders:
                told.update([(each.kind.value, each.bookie, entry_id)])
    assert told == expected
    assert found.entry_count == end + 1
    if not any(each.kind is FindingKind.DIVERGENT for each in found.findings):
        assert found.size == size
