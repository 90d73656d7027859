r"""The .conf format: Java's properties files as far as Apache's configuration uses them.

    # comment, or ! comment          whole lines only; blank lines are skipped
    key=value                        also `key: value` and `key value`; spaces around both are dropped
    key=first,\
        second                       a line ending in an odd number of backslashes goes on in the next one
    \t \n \r \f \\ \uXXXX \=         escapes; any other escaped character stands for itself
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FILE_SIZE_MAX = 1024 * 1024
"""Larger than any configuration; a path to something else entirely is noticed before it is read."""

SHOWN_MAX = 40
"""Characters of a bad line that its message repeats."""

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A key ends at the first unescaped '=', ':' or blank; one '=' or ':' with blanks around it separates.
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])+)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)(.*)", re.DOTALL)
_BARE = re.compile(r"(?:\\.|[^\\=: \t\f])+", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\n|\r")  # str.splitlines knows more of them than Java does
_BLANKS = " \t\f"


@dataclass(frozen=True, slots=True)
class Property:
    """One key and value, and the line (from 1) on which the key stands."""

    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is neither comment nor property."""

    line: int
    why: str


def _unescape(text: str) -> str:
    def replacement(found: re.Match[str]) -> str:
        mark = found[1]
        if mark == "u":
            raise ValueError("\\u is not followed by four hexadecimal digits")
        if len(mark) == 5:
            return chr(int(mark[1:], 16))
        return _NAMED.get(mark, mark)

    return _ESCAPE.sub(replacement, text)


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Join continued lines; each result has the number of its first line."""
    joined: list[tuple[int, str]] = []
    pending: list[str] = []
    first = 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.strip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        if _goes_on(line):
            pending.append(line[:-1])
        else:
            joined.append((first, "".join([*pending, line])))
            pending = []
    if pending:  # the file ends in a backslash
        joined.append((first, "".join(pending)))
    return joined


def parse_properties(text: str) -> tuple[list[Property], list[BadLine]]:
    """Return the properties in order, repeated keys included, and the lines that are none."""
    found: list[Property] = []
    bad: list[BadLine] = []
    for number, line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            lacks = "value" if _BARE.fullmatch(line) else "key"
            bad.append(BadLine(number, f"{line[:SHOWN_MAX]!r} has no {lacks}: want key=value"))
            continue
        try:
            found.append(Property(_unescape(pair[1]), _unescape(pair[2].strip(_BLANKS)), number))
        except ValueError as error:
            bad.append(BadLine(number, str(error)))
    return found, bad
