"""Verification finds what is wrong, says where, and is silent about a journal that is whole or being written."""

import pytest

from journalmgr.errors import JournalUnavailable, NotFormatted, SegmentUnreadable
from journalmgr.files.names import finalised_name, in_progress_name
from journalmgr.model import OPAQUE, Segment, TxId
from journalmgr.verify import Problem, Report, findings_of_chain, verify
from tests.support.file_story import FileStory
from tests.support.journal_contract import finalised_segment, opaque, written

HEADER_SIZE = 8


@pytest.fixture
def story() -> FileStory:
    return FileStory()


async def three_segments(story: FileStory) -> None:
    journal = await story.formatted()
    for first in (1, 11, 21):
        await finalised_segment(journal, first, first + 9)
    await journal.close()


def file_of(first: int, last: int) -> str:
    return f"/edits/current/{finalised_name(first, last)}"


def verified(story: FileStory) -> Report:
    report: Report = story.run(verify(story.open(namespace=None)))
    return report


def problems(report: Report) -> list[tuple[Problem, int]]:
    return [(finding.problem, finding.segment.first_txid if finding.segment else 0) for finding in report.findings]


def segment(first: int, last: int | None) -> Segment:
    return Segment(TxId(first), None if last is None else TxId(last), OPAQUE)


# --- headers


def test_a_damaged_header_is_a_finding_of_its_own_segment(story: FileStory) -> None:
    story.run(three_segments(story))
    story.damage(file_of(11, 20), 5)
    report = verified(story)
    assert problems(report) == [(Problem.UNREADABLE, 11)]
    assert "from another copy of the journal" in report.findings[0].text
    assert (report.segments, report.transactions, report.first_txid, report.last_txid) == (3, 20, 1, 30)


def test_a_damaged_header_of_what_is_in_progress_is_too(story: FileStory) -> None:
    async def write() -> Report:
        journal = await story.formatted()
        await finalised_segment(journal, 1, 10)
        await written(journal, 11, 15)
        story.damage("/edits/current/" + in_progress_name(11), 5)
        return await verify(story.open(namespace=None))

    report: Report = story.run(write())
    assert problems(report) == [(Problem.DAMAGED, 11)]
    assert (report.segments, report.transactions, report.last_txid) == (2, 10, 10)


# --- whole journals


def test_a_whole_journal_has_no_findings(story: FileStory) -> None:
    story.run(three_segments(story))
    seen: list[int] = []
    report: Report = story.run(verify(story.open(namespace=None), on_progress=seen.append))
    assert report.findings == []
    assert (report.segments, report.transactions, report.first_txid, report.last_txid) == (3, 30, 1, 30)
    assert report.size == sum(map(len, opaque(1, 30)))
    assert report.in_progress is None
    assert seen == [10, 20, 30]


def test_an_empty_journal_has_no_findings(story: FileStory) -> None:
    story.run(story.formatted())
    report = verified(story)
    assert (report.segments, report.transactions, report.findings) == (0, 0, [])


def test_a_segment_that_is_being_written_is_read_as_far_as_it_is_confirmed(story: FileStory) -> None:
    async def write() -> Report:
        journal = await story.formatted()
        await finalised_segment(journal, 1, 10)
        writer = await written(journal, 11, 15)
        writer.write(opaque(16, 20))
        return await verify(story.open(namespace=None))

    report: Report = story.run(write())
    assert report.findings == []
    assert report.last_txid == 15
    assert report.in_progress is not None
    assert report.in_progress.first_txid == 11


def test_a_journal_that_was_purged_begins_where_it_begins(story: FileStory) -> None:
    async def purge() -> None:
        await three_segments(story)
        await story.open().purge_older_than(TxId(15))

    story.run(purge())
    report = verified(story)
    assert (report.first_txid, report.last_txid, report.findings) == (11, 30, [])


# --- findings


def test_a_changed_byte_is_damage_and_the_rest_is_read_all_the_same(story: FileStory) -> None:
    story.run(three_segments(story))
    story.damage(file_of(11, 20), HEADER_SIZE + 20)
    report = verified(story)
    assert problems(report) == [(Problem.DAMAGED, 11)]
    assert file_of(11, 20) in report.findings[0].text
    assert (report.segments, report.transactions, report.last_txid) == (3, 20, 30)


def test_a_finalised_segment_that_ends_before_its_name_does_is_found(story: FileStory) -> None:
    story.run(three_segments(story))
    story.cut(file_of(11, 20), HEADER_SIZE + sum(map(len, opaque(11, 18))))
    assert problems(verified(story)) == [(Problem.ENDS_ELSEWHERE, 11)]


def test_a_segment_that_is_missing_is_a_gap(story: FileStory) -> None:
    story.run(three_segments(story))
    story.fs.unlink(file_of(11, 20))
    report = verified(story)
    assert problems(report) == [(Problem.GAP, 21)]
    assert "txids 11..20 are in no segment" in report.findings[0].text
    assert report.transactions == 20


def test_all_findings_are_told(story: FileStory) -> None:
    story.run(three_segments(story))
    story.damage(file_of(1, 10), HEADER_SIZE + 20)
    story.fs.unlink(file_of(11, 20))
    story.cut(file_of(21, 30), HEADER_SIZE + 5)
    report = verified(story)
    assert problems(report) == [(Problem.DAMAGED, 1), (Problem.DAMAGED, 21), (Problem.GAP, 21)]
    assert report.transactions == 0


def test_a_journal_that_was_never_formatted_is_no_finding(story: FileStory) -> None:
    with pytest.raises(NotFormatted):
        verified(story)


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([(1, 10), (11, 20), (21, None)], []),
        ([(5, 10)], []),
        ([(1, 10), (12, 20)], [(Problem.GAP, 12)]),
        ([(1, 10), (10, 20)], [(Problem.OVERLAP, 10)]),
        ([(1, 10), (1, 20)], [(Problem.OVERLAP, 1)]),
        ([(1, None), (11, 20)], [(Problem.LEFT_OPEN, 1)]),
        ([(1, None), (11, None)], [(Problem.LEFT_OPEN, 1)]),
        ([(1, 10), (12, None)], [(Problem.GAP, 12)]),
        ([], []),
    ],
)
def test_the_chain_of_segments(segments: list[tuple[int, int | None]], expected: list[tuple[Problem, int]]) -> None:
    findings = findings_of_chain([segment(first, last) for first, last in segments])
    assert [(each.problem, each.segment.first_txid if each.segment else 0) for each in findings] == expected


# --- journals that change, and that cannot be asked


class Meddled:
    """A journal whose list is what the test says, the next time it is asked for."""

    def __init__(self, journal: object, lists: list[list[Segment] | Exception]) -> None:
        self._journal, self._lists = journal, lists

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def segments(self) -> list[Segment]:
        found = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        if isinstance(found, Exception):
            raise found
        return found


def meddled(story: FileStory, *lists: list[Segment] | Exception) -> Report:
    report: Report = story.run(verify(Meddled(story.open(namespace=None), list(lists))))  # type: ignore[arg-type]
    return report


def test_a_segment_that_is_purged_meanwhile_is_no_finding(story: FileStory) -> None:
    story.run(three_segments(story))
    listed = story.run(_segments(story))
    story.fs.unlink(file_of(1, 10))
    report = meddled(story, listed, listed[1:])
    assert (report.segments, report.first_txid, report.findings) == (2, 11, [])


async def _segments(story: FileStory) -> list[Segment]:
    return await story.open(namespace=None).segments()


def test_a_segment_that_is_finalised_meanwhile_is_read_as_that(story: FileStory) -> None:
    story.run(three_segments(story))
    listed = story.run(_segments(story))
    was = [*listed[:2], Segment(TxId(21), None, OPAQUE, name="edits_inprogress_0000000000000000021")]
    report = meddled(story, was, listed)
    assert (report.segments, report.last_txid, report.in_progress, report.findings) == (3, 30, None, [])


def test_a_list_that_cannot_be_read_is_a_finding_and_not_the_end_of_the_world(story: FileStory) -> None:
    report = meddled(story, SegmentUnreadable("inprogress_1 is empty"))
    assert [finding.problem for finding in report.findings] == [Problem.LIST]


def test_what_could_not_be_asked_is_neither_health_nor_damage(story: FileStory) -> None:
    report = meddled(story, JournalUnavailable("no answer"))
    assert [finding.problem for finding in report.findings] == [Problem.NOT_CHECKED]
