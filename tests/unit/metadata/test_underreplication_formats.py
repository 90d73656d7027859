"""Names and bytes of the under-replication tree, and the arithmetic of bad ranges."""

import itertools
import random

import pytest

from bookkeeper.errors import InvalidMetadata, LayoutMismatch, MetadataCorrupt
from bookkeeper.metadata.underreplication.damaged_copies_format import (
    BAD_RANGES_MAX,
    CUT,
    REASON_SIZE_MAX,
    BadRange,
    bounded_reason,
    format_bad_copies,
    join_ranges,
    parse_bad_copies,
    without_ranges,
)
from bookkeeper.metadata.underreplication.format import (
    CheckKind,
    check_layout,
    format_check_time,
    format_delay,
    ledger_of_leaf,
    mark_path,
    parse_check_time,
    parse_delay,
    parse_mark,
    parse_vote,
    vote_number,
)
from bookkeeper.metadata.underreplication.recovery_process_format import (
    RecoveryProcess,
    format_process,
    node_name,
    parse_process,
)
from bookkeeper.model import BookieId, EntryId

A, B = BookieId("a:3181"), BookieId("b:3181")


def bad(bookie_id: BookieId, first: int, last: int, reason: str = "", at_ms: int | None = None) -> BadRange:
    return BadRange(bookie_id, EntryId(first), EntryId(last), reason, at_ms)


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/0000/0000/0000/0000/urL0000000000"),
        (12345, "/0000/0000/0000/3039/urL0000012345"),
        (4294967296, "/0000/0001/0000/0000/urL4294967296"),
        (2**63 - 1, "/7fff/ffff/ffff/ffff/urL9223372036854775807"),
    ],
)
def test_a_mark_is_under_its_id_in_hex_and_named_by_it_in_decimal(ledger_id: int, path: str) -> None:
    assert mark_path(ledger_id) == path
    assert ledger_of_leaf(path.rpartition("/")[2]) == ledger_id


@pytest.mark.parametrize("http", [None, ("10.0.0.7", 8001), ("::1", 8001)])
def test_a_process_says_who_it_is_and_where_it_can_be_asked(http: tuple[str, int] | None) -> None:
    process = RecoveryProcess("recovery/7", 4711, 1700000000000, A, http, 99)
    assert parse_process(format_process(process), "/p", 99) == process
    assert node_name(process) == "recovery_7-4711-18bcfe56800"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"host": "h", "pid": 1, "since": 2, "bookie": "b", "http": "nowhere"}',
        b'{"host": "h", "pid": 1, "since": 2, "bookie": "b", "http": "h:70000"}',
        b'{"host": "h", "pid": "1", "since": 2, "bookie": "b"}',
        b'{"host": "h", "pid": true, "since": 2, "bookie": "b"}',
        b'{"host": "h", "pid": 1, "since": true, "bookie": "b"}',
        b" " * 5000 + b"{}",
    ],
)
def test_what_no_process_says_of_itself_is_not_believed(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="/p: not what a process says"):
        parse_process(data, "/p", 1)


@pytest.mark.parametrize(
    "name", ["urL12345", "urL00000000001", "urL9223372036854775808", "urL", "L0000012345", "urL000001234x"]
)
def test_a_name_that_no_ledger_makes_is_no_mark(name: str) -> None:
    assert ledger_of_leaf(name) is None


@pytest.mark.parametrize("ledger_id", [-1, 2**63])
def test_an_id_that_no_ledger_has_has_no_mark(ledger_id: int) -> None:
    with pytest.raises(InvalidMetadata):
        mark_path(ledger_id)


def test_votes_are_numbered_as_zookeeper_numbers_them() -> None:
    assert vote_number("V_0000000007") == 7
    assert vote_number("V_-2147483648") == -(2**31)
    assert vote_number("V_") is None
    assert vote_number("X_0000000007") is None


def test_a_vote_for_nobody_is_corrupt() -> None:
    with pytest.raises(MetadataCorrupt, match="names no bookie"):
        parse_vote(b"", "/path")


@pytest.mark.parametrize("data", [b'replica: "a"\nctime: x\n', b"replica", b"\xff"])
def test_a_mark_that_is_not_text_is_corrupt(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        parse_mark(data, "/path")


def test_a_layout_of_another_kind_or_version_is_refused() -> None:
    for data in (b'type: "OTHER"\nversion: 1\n', b'type: "BASIC"\nversion: 2\n'):
        with pytest.raises(LayoutMismatch, match="/path"):
            check_layout(data, "/path")
    with pytest.raises(MetadataCorrupt):
        check_layout(b'type: "BASIC"\n', "/path")


def test_delays_are_what_java_reads() -> None:
    assert parse_delay(b"0", "/path") == 0
    assert parse_delay(b"-5", "/path") == 0
    assert parse_delay(b"2147483647", "/path") == 2**31 - 1
    for data in (b"", b"1.5", b"2147483648", b"soon", b"\xff", b" 1"):
        with pytest.raises(MetadataCorrupt, match="/path"):
            parse_delay(data, "/path")
    for delay_s in (-1, 2**31):
        with pytest.raises(InvalidMetadata):
            format_delay(delay_s)


@pytest.mark.parametrize("kind", list(CheckKind))
def test_a_check_that_notes_no_time_has_none(kind: CheckKind) -> None:
    assert parse_check_time(kind, b"", "/path") is None
    assert parse_check_time(kind, format_check_time(kind, 1700000000000), "/path") == 1700000000000


# --- bad ranges ----------------------------------------------------------------------------------------------------


def entries(ranges: tuple[BadRange, ...]) -> set[tuple[str, int]]:
    return {
        (each.bookie_id, number) for each in ranges for number in range(each.first_entry_id, each.last_entry_id + 1)
    }


def some_ranges(rng: random.Random) -> list[BadRange]:
    made = []
    for _ in range(rng.randrange(8)):
        first = rng.randrange(30)
        made.append(bad(rng.choice([A, B]), first, first + rng.randrange(5), rng.choice(["", "x"]), rng.randrange(9)))
    return made


def test_joining_and_taking_out_are_those_of_sets(rng: random.Random) -> None:
    for _ in range(500):
        some, others = some_ranges(rng), some_ranges(rng)
        joined = join_ranges(some)
        assert entries(joined) == entries(tuple(some))
        assert entries(without_ranges(joined, others)) == entries(tuple(some)) - entries(tuple(others))
        for left, right in itertools.pairwise(joined):
            assert left.bookie_id < right.bookie_id or left.last_entry_id + 1 < right.first_entry_id


def test_a_joined_range_says_what_was_reported_last() -> None:
    assert join_ranges([bad(A, 0, 3, "old", 10), bad(A, 2, 9, "new", 20)]) == (bad(A, 0, 9, "new", 20),)
    assert join_ranges([bad(A, 0, 3, "new", 20), bad(A, 2, 9, "", None)]) == (bad(A, 0, 9, "new", 20),)


def test_too_many_ranges_are_joined_over_the_smallest_gaps_and_none_is_lost() -> None:
    scattered = [bad(A, 10 * number, 10 * number) for number in range(BAD_RANGES_MAX)]
    scattered += [bad(A, 10**6, 10**6), bad(A, 10**6 + 3, 10**6 + 3), bad(B, 0, 0)]
    joined = join_ranges(scattered)
    assert len(joined) == BAD_RANGES_MAX
    assert entries(tuple(scattered)) <= entries(joined)
    assert bad(A, 10**6, 10**6 + 3) in joined
    assert joined[-1] == bad(B, 0, 0)


def test_the_largest_note_fits_into_a_znode() -> None:
    longest = BookieId("h" * 200 + ":3181")
    full = [
        BadRange(longest, EntryId(2 * number), EntryId(2 * number), "\U0001f4a5" * 1000, 2**62)
        for number in range(BAD_RANGES_MAX)
    ]
    data = format_bad_copies(full)
    assert len(data) < 1_040_000
    kept = parse_bad_copies(data, "/path")[0].reason
    assert kept == "\U0001f4a5" * ((REASON_SIZE_MAX - len(CUT)) // 16) + CUT


def test_a_reason_that_was_cut_says_so_and_one_that_fits_is_whole() -> None:
    """The remedy is at its end."""
    whole = "/l/0.log at 77: " + "x" * (REASON_SIZE_MAX - 16)
    assert bounded_reason(whole) == whole
    assert bounded_reason(whole + "y") == whole[: -len(CUT)] + CUT
    assert len(bounded_reason('"' * 1000)) < REASON_SIZE_MAX / 4 + len(CUT)


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 3)])
def test_a_range_that_is_none_is_refused_and_corrupt_where_it_is_stored(first: int, last: int) -> None:
    with pytest.raises(InvalidMetadata):
        bad(A, first, last)
    text = f'range {{ bookieId: "a" firstEntryId: {first} lastEntryId: {last} }}'
    with pytest.raises(MetadataCorrupt, match="/path"):
        parse_bad_copies(text.encode(), "/path")
