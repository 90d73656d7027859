"""Cookies: layout versions 3 to 5, byte by byte, and damage (I-70)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import InvalidMetadata, MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.model import BookieId

PATH = "/ledgers/cookies/10.0.0.1:3181"
COOKIE = Cookie(BookieId("10.0.0.1:3181"), ("/j",), ("/a", "/b"), "5b0d", ("/i",))

# bookkeeper/bookie/FORMATS.md 3.1, 3.2; the TAB inside the strings is written as an escape.
VERSION_4 = b'4\nbookieHost: "10.0.0.1:3181"\njournalDir: "/j"\nledgerDirs: "2\\t/a\\t/b"\ninstanceId: "5b0d"\n'
VERSION_5 = VERSION_4.replace(b"4\n", b"5\n", 1) + b'indexDirs: "1\\t/i"\n'
VERSION_3 = b"3\n10.0.0.1:3181\n/j\n2\t/a\t/b\n"


def test_version_5_is_written_as_apache_does() -> None:
    assert COOKIE.format() == VERSION_5


@pytest.mark.parametrize(
    ("data", "cookie"),
    [
        (VERSION_5, COOKIE),
        (VERSION_4, Cookie(BookieId("10.0.0.1:3181"), ("/j",), ("/a", "/b"), "5b0d", None, 4)),
        (VERSION_3, Cookie(BookieId("10.0.0.1:3181"), ("/j",), ("/a", "/b"), layout_version=3)),
    ],
)
def test_every_version_is_read_and_kept(data: bytes, cookie: Cookie) -> None:
    assert parse_cookie(data, PATH) == cookie
    assert cookie.format() == data


def test_several_journal_directories_are_joined_with_commas() -> None:
    cookie = Cookie(BookieId("b"), ("/j1", "/j2"), ("/a",))
    assert b'journalDir: "/j1,/j2"' in cookie.format()
    assert parse_cookie(cookie.format(), PATH) == cookie


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", MetadataCorrupt),
        (b"5", MetadataCorrupt),
        (b"x\n", MetadataCorrupt),
        (b"2\nb\n/j\n1\t/a\n", MetadataCorrupt),
        (b"6\n" + VERSION_5[2:], MetadataTooNew),
        (b"5\n", MetadataCorrupt),
        (VERSION_5.replace(b"2\\t", b"3\\t"), MetadataCorrupt),
        (VERSION_5.replace(b"journalDir", b"journalDirectory"), MetadataCorrupt),
        (VERSION_5[:-3], MetadataCorrupt),
        (VERSION_5.replace(b"/j", b"/\xff"), MetadataCorrupt),
        (b"3\nb\n/j\n", MetadataCorrupt),
        (b"3\nb\n\xff\n1\t/a\n", MetadataCorrupt),
    ],
)
def test_a_wrong_cookie_is_refused_and_the_error_names_its_place(data: bytes, expected: type[Exception]) -> None:
    with pytest.raises(expected, match=PATH) as raised:
        parse_cookie(data, PATH)
    assert type(raised.value) is expected


@pytest.mark.parametrize(
    "directories", [{"journal_dirs": ("/a,b",)}, {"ledger_dirs": ("/a\tb",)}, {"index_dirs": ("",)}]
)
def test_directories_that_a_cookie_cannot_name_are_refused(directories: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(InvalidMetadata, match="director"):
        Cookie(**{"bookie_id": BookieId("b"), "journal_dirs": ("/j",), "ledger_dirs": ("/l",), **directories})


def test_a_layout_version_that_nobody_reads_is_refused() -> None:
    with pytest.raises(InvalidMetadata, match="version 6"):
        Cookie(BookieId("b"), ("/j",), ("/l",), layout_version=6)


DIRECTORIES = st.lists(
    st.text(st.characters(exclude_characters="\t\n,", exclude_categories=["Cs"]), min_size=1, max_size=9)
)


@given(DIRECTORIES.filter(bool), DIRECTORIES, st.none() | st.text(max_size=9), st.none() | DIRECTORIES)
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read(
    journal: list[str], ledger: list[str], instance_id: str | None, index: list[str] | None
) -> None:
    index_dirs = None if index is None else tuple(index)
    cookie = Cookie(BookieId("ü:1"), tuple(journal), tuple(ledger), instance_id, index_dirs)
    assert parse_cookie(cookie.format(), PATH) == cookie


@given(st.integers(0, 8 * len(VERSION_5) - 1))
@settings(max_examples=200, deadline=None)
def test_a_flipped_bit_is_read_or_refused(bit: int) -> None:
    damaged = bytearray(VERSION_5)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        cookie = parse_cookie(bytes(damaged), PATH)
    except (MetadataCorrupt, MetadataTooNew) as error:
        assert PATH in str(error)  # noqa: PT017 - both outcomes are fine, each has its own condition
    else:
        assert parse_cookie(cookie.format(), PATH) == cookie
