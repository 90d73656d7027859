"""What is kept of commits: bytes, bounds, and what becomes of a commit."""

from __future__ import annotations

import pytest

from bookkeeper.errors import MetadataCorrupt, MetadataTooNew
from bookkeeper.spark.sink.commit_format import (
    ABORTED_MAX,
    LEDGERS_MAX,
    RECORD_BYTES_MAX,
    Commit,
    CommitRefused,
    Head,
    Kind,
    Owner,
    Verdict,
    WrittenLedger,
    by_partition,
    format_head,
    format_mark,
    format_record,
    head_path,
    judge,
    parse_head,
    parse_mark,
    parse_record,
    record_path,
    write_in_run,
)

QUERY, JOB = Owner(Kind.QUERY, "q"), Owner(Kind.JOB, "j")
LEDGERS = (WrittenLedger(7, 12, 1228, 0x9AB0C1D2, 0, 0), WrittenLedger(8, 8, 820, 0xC1D29A, 1, 2))
RECORD = (
    b'{"batch": 41, "bytes": 2048, "entries": 20, "format": 1, "ledgers": 2, "write": "w"}\n'
    b"7 12 1228 9ab0c1d2 0 0\n"
    b"8 8 820 00c1d29a 1 2"
)


def test_records_heads_and_marks_have_these_bytes() -> None:
    commit = Commit(41, "w", LEDGERS)
    assert format_record(commit) == RECORD
    assert parse_record(RECORD, "/r") == commit
    head = Head("this", 41, ("a", "b"))
    data = b'{"aborted": ["a", "b"], "format": 1, "instance": "this", "last_batch": 41}'
    assert (format_head(head), parse_head(data, "/h")) == (data, head)
    assert format_mark(17) == b'{"format": 1, "swept_before_ms": 17}'
    assert (parse_mark(format_mark(17), "/m"), parse_mark(b"", "/m")) == (17, 0)
    assert parse_record(format_record(Commit(0, "w", ())), "/r") == Commit(0, "w", ())


def test_records_have_these_places() -> None:
    assert record_path("/c", QUERY, 41) == "/c/queries/q/0000000000/0000000000041"
    assert record_path("/c", JOB, 12_345_678) == "/c/jobs/j/0000012345/0000012345678"
    assert head_path("/c", JOB) == "/c/jobs/j"
    assert record_path("/c", Owner(Kind.IMPORT, "i"), 0) == "/c/imports/i/0000000000/0000000000000"


def test_a_record_of_as_many_ledgers_as_there_may_be_fits_and_one_more_is_refused() -> None:
    longest = WrittenLedger(2**63 - 1, 2**63 - 1, 2**63 - 1, 2**32 - 1, LEDGERS_MAX, 2**15)
    data = format_record(Commit(2**62, "w" * 32, (longest,) * LEDGERS_MAX))
    assert len(data) <= RECORD_BYTES_MAX < 2**20 - 100_000
    with pytest.raises(CommitRefused, match=r"10001 ledgers.*coalesce"):
        format_record(Commit(0, "w", LEDGERS[:1] * (LEDGERS_MAX + 1)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"[]",
        RECORD[:-10],
        RECORD + b"\n",
        RECORD.replace(b"8 8 820", b"8 9 820"),
        RECORD.replace(b'"bytes": 2048', b'"bytes": 2047'),
        RECORD.rpartition(b"\n")[0],
        RECORD.replace(b'"batch": 41', b'"batch": "41"'),
        RECORD.replace(b'"batch": 41', b'"batch": -1'),
    ],
)
def test_a_damaged_record_is_told_with_its_place(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match=r"^/there: "):
        parse_record(data, "/there")


def test_what_a_newer_release_wrote_is_not_guessed_at() -> None:
    for parse, data in ((parse_record, RECORD), (parse_head, format_head(Head("i"))), (parse_mark, format_mark(1))):
        with pytest.raises(MetadataTooNew, match="format 2; this release knows 1"):
            parse(data.replace(b'"format": 1', b'"format": 2'), "/there")


def test_a_head_names_the_writes_that_were_given_up_last() -> None:
    head = Head("this")
    for number in range(ABORTED_MAX + 3):
        head = head.with_aborted(f"w{number}")
    assert head.aborted == tuple(f"w{number}" for number in range(3, ABORTED_MAX + 3))
    assert head.with_batch(5) == Head("this", 5, head.aborted)


def test_ledgers_are_read_by_partition() -> None:
    assert by_partition(LEDGERS[::-1]) == LEDGERS


NEW = Commit(5, "new", LEDGERS)
OTHERWISE = (WrittenLedger(9, 20, 2048, 7, 0, 0),)
"""The same rows in one partition."""
MORE, LARGER = (*LEDGERS, WrittenLedger(9, 3, 0, 0, 2, 0)), (*LEDGERS, WrittenLedger(9, 0, 30, 0, 2, 0))
"""Other rows."""


@pytest.mark.parametrize(
    ("head", "record", "verdict"),
    [
        (None, None, Verdict.COMMIT),
        (Head("this"), None, Verdict.COMMIT),
        (Head("this", 4, ("other",)), None, Verdict.COMMIT),
        (Head("this", 5), Commit(5, "new", ()), Verdict.DONE),
        (Head("this", 9), Commit(5, "new", ()), Verdict.DONE),
        (Head("this", 5), Commit(5, "other", LEDGERS), Verdict.REPEATED),
        (Head("this", 9), Commit(5, "other", OTHERWISE), Verdict.REPEATED),
        (Head("this", 5, ("new",)), Commit(5, "other", LEDGERS), Verdict.REPEATED),
    ],
)
def test_what_becomes_of_a_commit(head: Head | None, record: Commit | None, verdict: Verdict) -> None:
    assert judge(QUERY, head, record, NEW, "this") is verdict
    assert judge(Owner(Kind.IMPORT, "i"), head, record, NEW, "this") is verdict


@pytest.mark.parametrize(
    ("owner", "head", "record", "why"),
    [
        (QUERY, Head("that"), None, "instance id that; this one is this"),
        (QUERY, Head("this", 5), None, "batch 5 of query q was not committed, and 5 was"),
        (QUERY, Head("this", 9), None, "batch 5 of query q was not committed, and 9 was"),
        (QUERY, Head("this", 4, ("old", "new")), None, "given up before"),
        (
            JOB,
            Head("this", 5),
            Commit(5, "other", LEDGERS),
            r"by another write.*2 ledgers, 20 entries.*thread of foreachBatch, .*inheritable_thread_target\(session\)",
        ),
    ],
)
def test_which_commits_are_refused(owner: Owner, head: Head, record: Commit | None, why: str) -> None:
    with pytest.raises(CommitRefused, match=why):
        judge(owner, head, record, NEW, "this")


@pytest.mark.parametrize(
    ("ledgers", "committed"),
    [(MORE, "23 entries of 2048 bytes"), (LARGER, "20 entries of 2078 bytes"), ((), "0 entries of 0 bytes")],
)
def test_a_repeat_with_other_rows_than_were_committed_is_refused_unless_that_is_accepted(
    ledgers: tuple[WrittenLedger, ...], committed: str
) -> None:
    """As from an old copy of a checkpoint: what the batch has now would be left out, and is in no other."""
    numbers = f"committed before with {committed}, and this write of it has 20 entries of 2048 bytes.*acceptRepeat=true"
    record = Commit(5, "other", ledgers)
    for head in (Head("this", 5), Head("this", 9)):
        with pytest.raises(CommitRefused, match=f"^batch 5 of query q was {numbers}"):
            judge(QUERY, head, record, NEW, "this")
        assert judge(QUERY, head, record, NEW, "this", accept_repeat=True) is Verdict.REPEATED
    record = Commit(5, "r1.a", ledgers)
    with pytest.raises(CommitRefused, match=f"^batch 5 of job j was {numbers}") as refused:
        judge(JOB, head_of("r1.a"), record, in_run("r2", "new"), "this", "q")
    assert "checkpoint of query q is an old copy" in str(refused.value)
    assert "another name (option job)" in str(refused.value)
    assert judge(JOB, head_of("r1.a"), record, in_run("r2", "new"), "this", "q", accept_repeat=True) is Verdict.REPEATED


def test_a_second_write_by_one_name_in_a_batch_is_told_as_such_and_never_accepted() -> None:
    for record in (Commit(5, "r2.a", LEDGERS), Commit(5, "r2.a", MORE)):
        with pytest.raises(CommitRefused, match="written before in this run of batch 5"):
            judge(JOB, head_of("r2.a"), record, in_run("r2", "new"), "this", "q", accept_repeat=True)


def test_an_import_of_one_export_commits_the_same_twice_and_of_another_export_it_is_told_by_the_import() -> None:
    owner, head, new = Owner(Kind.IMPORT, "i"), Head("this", 5), in_run("e", "new")
    with pytest.raises(CommitRefused, match=r"23 entries of 2048 bytes.*The export was changed since") as refused:
        judge(owner, head, Commit(5, "e.other", MORE), new, "this")
    assert "acceptRepeat" not in str(refused.value)
    assert judge(owner, head, Commit(5, "e.other", OTHERWISE), new, "this") is Verdict.REPEATED
    assert judge(owner, head, Commit(5, "d.other", MORE), new, "this") is Verdict.REPEATED


def in_run(run: str, write: str, batch: int = 5) -> Commit:
    return Commit(batch, write_in_run(run, write), LEDGERS)


def head_of(last_write: str, *, query: str = "q", batch: int = 5) -> Head:
    return Head("this", batch, (), query, last_write)


@pytest.mark.parametrize(
    ("head", "record", "verdict"),
    [
        (None, None, Verdict.COMMIT),
        (Head("this"), None, Verdict.COMMIT),
        (head_of("r1.a", batch=4), None, Verdict.COMMIT),
        (head_of("r2.new"), in_run("r2", "new"), Verdict.DONE),
        # replayed, after a restart of the query; also when that was noted and the answer lost
        (head_of("r1.a"), in_run("r1", "a"), Verdict.REPEATED),
        (head_of("r2.new"), in_run("r1", "a"), Verdict.REPEATED),
        (head_of("r1.b", batch=6), in_run("r1", "a"), Verdict.REPEATED),
    ],
)
def test_a_job_of_a_query_is_committed_once_for_each_batch(
    head: Head | None, record: Commit | None, verdict: Verdict
) -> None:
    assert judge(JOB, head, record, in_run("r2", "new"), "this", "q") is verdict


@pytest.mark.parametrize(
    ("head", "record", "query", "why"),
    [
        (
            head_of("r2.a"),
            in_run("r2", "a"),
            "q",
            "written before in this run of batch 5 of query q.*a name of its own",
        ),
        (head_of("r2.b"), in_run("r1", "a"), "q", "written before in this run of batch 5 of query q"),
        (head_of("r2.a", batch=6), None, "q", "batch 5 of job j was not committed, and 6 was"),
        (head_of("r1.a"), in_run("r1", "a"), "p", "by query q in foreachBatch, and this write is by query p"),
        (
            head_of("r1.a"),
            in_run("r1", "a"),
            "",
            "by query q in foreachBatch, and this write is by a batch write.*thread of foreachBatch, .*inheritable",
        ),
        (Head("this", 0), None, "q", "by a batch write outside of streams, and this write is by query q"),
    ],
)
def test_a_name_of_a_job_stands_for_one_write_in_each_batch_of_one_query(
    head: Head, record: Commit | None, query: str, why: str
) -> None:
    with pytest.raises(CommitRefused, match=why):
        judge(JOB, head, record, in_run("r2", "new"), "this", query)


def test_a_head_of_a_job_of_a_query_says_so() -> None:
    head = Head("this").with_aborted("w").with_batch(5, "q", "r1.a")
    data = b'{"aborted": ["w"], "format": 1, "instance": "this", "last_batch": 5, "last_write": "r1.a", "query": "q"}'
    assert (format_head(head), parse_head(data, "/h")) == (data, head)
    assert parse_head(format_head(head.with_repeat("r2.b")), "/h") == Head("this", 5, ("w",), "q", "r2.b")
    with pytest.raises(MetadataCorrupt, match=r"^/h: query is 7"):
        parse_head(data.replace(b'"q"', b"7"), "/h")


def test_a_head_says_which_batches_are_forgotten_never_fewer_and_never_the_last_one() -> None:
    head = Head("this", 9).with_forgotten(5)
    assert format_head(head) == b'{"aborted": [], "forgotten": 5, "format": 1, "instance": "this", "last_batch": 9}'
    assert parse_head(format_head(head), "/h") == head
    assert [head.with_forgotten(batch).forgotten for batch in (3, 7, 9, 12)] == [5, 7, 9, 9]
    assert head.with_batch(20).forgotten == 5
