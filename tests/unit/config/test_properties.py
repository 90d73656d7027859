"""The .conf format: what Java's properties files may look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.config.properties import BadLine, Property, parse_properties


def _pairs(text: str) -> list[tuple[str, str]]:
    found, bad = parse_properties(text)
    assert bad == []
    return [(item.name, item.value) for item in found]


@pytest.mark.parametrize(
    "line", ["key=value", "key = value", "  key:value  ", "key : value", "key value", "key\tvalue"]
)
def test_key_and_value_are_separated_as_in_java(line: str) -> None:
    assert _pairs(line) == [("key", "value")]


def test_comments_and_blank_lines_are_skipped() -> None:
    assert _pairs("# one\n\n   ! two\n \t \nkey=value\n") == [("key", "value")]


def test_a_comment_sign_inside_a_value_is_part_of_it() -> None:
    assert _pairs("key=a # b") == [("key", "a # b")]


def test_only_the_first_separator_counts() -> None:
    assert _pairs("uri=zk+null://h:2181/a=b") == [("uri", "zk+null://h:2181/a=b")]


def test_a_value_may_be_empty() -> None:
    assert _pairs("key=\nother =  \n") == [("key", ""), ("other", "")]


def test_a_backslash_at_the_end_continues_the_line() -> None:
    text = "dirs=/a,\\\n     /b,\\\n     /c\nnext=1\n"
    found, _ = parse_properties(text)
    assert found == [Property("dirs", "/a,/b,/c", 1), Property("next", "1", 4)]


def test_an_even_number_of_backslashes_does_not_continue() -> None:
    assert _pairs("a=x\\\\\nb=y") == [("a", "x\\"), ("b", "y")]


def test_a_continued_line_may_look_like_a_comment() -> None:
    assert _pairs("a=x\\\n#y") == [("a", "x#y")]


def test_escapes_are_resolved() -> None:
    assert _pairs("a\\=b=\\u00e9\\t\\q\\\\") == [("a=b", "é\tq\\")]


def test_a_file_may_end_in_a_backslash() -> None:
    assert _pairs("a=x\\") == [("a", "x")]


def test_a_line_without_a_value_and_a_broken_escape_are_reported_with_their_lines() -> None:
    found, bad = parse_properties("good=1\nbare\n=nameless\nu=\\u12\n")
    assert found == [Property("good", "1", 1)]
    assert [line.line for line in bad] == [2, 3, 4]
    assert bad[0] == BadLine(2, "'bare' has no value: want key=value")
    assert bad[1] == BadLine(3, "'=nameless' has no key: want key=value")


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    found, bad = parse_properties(text)
    lines = [item.line for item in found] + [item.line for item in bad]
    assert len(set(lines)) == len(lines) <= text.count("\n") + text.count("\r") + 1


_names = st.text(st.characters(codec="utf-8", exclude_characters="\\#!=: \t\r\n\f"), min_size=1)
_values = st.text(st.characters(codec="utf-8", exclude_characters="\\\r\n"))


@given(st.lists(st.tuples(_names, _values.map(lambda value: value.strip(" \t\f"))), max_size=20))
def test_what_is_written_plainly_is_read_back(pairs: list[tuple[str, str]]) -> None:
    plain = [(name, value.lstrip("=: \t\f")) for name, value in pairs]
    assert _pairs("".join(f"{name}={value}\n" for name, value in plain)) == plain
