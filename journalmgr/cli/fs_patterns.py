"""Patterns of paths as `hdfs dfs` has them, matched by whoever asks: * ? [abc] [a-z] [^a] {one,other}, \\ before one.

`*` and `?` stand for anything in one component, a dot at its beginning too. Pure: what there is comes from `Listing`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from bookkeeper.errors import PortableError

_SPECIAL = frozenset("*?[{\\")


class PatternError(PortableError, ValueError):
    """A pattern that is none: a bracket without its other one, a backslash at the end."""


class Listing(Protocol):
    """What there is."""

    def children(self, path: str) -> Iterator[tuple[str, bool]]:
        """Names below a path, and whether each is a directory; nothing where there is no directory."""

    def exists(self, path: str) -> bool:
        """Whether something is there."""


def is_pattern(path: str) -> bool:
    """Whether `expand` would make something else of it."""
    return not _SPECIAL.isdisjoint(path)


def expand(pattern: str, listing: Listing) -> list[str]:
    """The paths that match, in order; a directory is listed once for each component that is a pattern below it.

    Raises PatternError.
    """
    found: set[str] = set()
    for alternative in _alternatives(pattern):
        components = [_matcher(component) for component in alternative.split("/") if component]
        found.update(_below("", components, listing))
    return sorted(found)


def _below(path: str, components: list[str | re.Pattern[str]], listing: Listing) -> Iterator[str]:
    for position, component in enumerate(components):
        if isinstance(component, str):
            path = f"{path}/{component}"
            continue
        rest = components[position + 1 :]
        for name, is_directory in listing.children(path or "/"):
            if component.fullmatch(name) and (is_directory or not rest):
                yield from _below(f"{path}/{name}", rest, listing) if rest else (f"{path}/{name}",)
        return
    if listing.exists(path or "/"):
        yield path or "/"


def _alternatives(pattern: str) -> Iterator[str]:
    """Without braces. What is in brackets, or behind a backslash, opens none."""
    position, in_brackets = 0, False
    while position < len(pattern):
        letter = pattern[position]
        if letter == "\\":
            position += 1
        elif in_brackets:
            in_brackets = letter != "]"
        elif letter == "[":
            in_brackets = True
        elif letter == "{":
            choices, end = _choices(pattern, position)
            for choice in choices:
                yield from _alternatives(pattern[:position] + choice + pattern[end:])
            return
        position += 1
    yield pattern


def _choices(pattern: str, opened: int) -> tuple[list[str], int]:
    """What stands between the brace at `opened` and its other one, and where it goes on after that."""
    choices, depth, position = [""], 1, opened + 1
    while position < len(pattern):
        letter = pattern[position]
        if letter == "\\":
            letter = pattern[position : position + 2]
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return choices, position + 1
        if letter == "," and depth == 1:
            choices.append("")
        else:
            choices[-1] += letter
        position += len(letter)
    raise PatternError(f"{pattern}: no }} for the {{ in it; a \\ before it takes it as it is")


def _matcher(component: str) -> str | re.Pattern[str]:
    """The name itself where only one can be meant."""
    name, expression, is_name = "", "", True
    position = 0
    while position < len(component):
        letter = component[position]
        position += 1
        if letter == "\\":
            if position == len(component):
                raise PatternError(f"{component}: nothing follows the \\ at its end; \\\\ is one")
            letter = component[position]
            position += 1
        elif letter in "*?":
            expression += ".*" if letter == "*" else "."
            is_name = False
            continue
        elif letter == "[":
            chosen, position = _letters(component, position)
            expression += chosen
            is_name = False
            continue
        name += letter
        expression += re.escape(letter)
    return name if is_name else re.compile(expression, re.DOTALL)


def _letters(component: str, position: int) -> tuple[str, int]:
    """A choice of letters as an expression, and where it goes on after it."""
    start = position
    negated = component[position : position + 1] in ("^", "!")
    position += negated
    letters: list[str | None] = []  # None: a hyphen that stands for a range
    while position < len(component):
        letter = component[position]
        position += 1
        if letter == "]" and letters:
            return f"[{'^' if negated else ''}{_ranges(component, letters)}]", position
        if letter == "\\" and position < len(component):
            letters.append(component[position])
            position += 1
        else:
            letters.append(None if letter == "-" else letter)
    raise PatternError(f"{component}: no ] for the [ before {component[start:]!r}; a \\ before it takes it as it is")


def _ranges(component: str, letters: list[str | None]) -> str:
    expression, position = "", 0
    while position < len(letters):
        first = letters[position] or "-"
        if position + 2 < len(letters) and letters[position + 1] is None:
            last = letters[position + 2] or "-"
            if last < first:
                raise PatternError(f"{component}: {first}-{last} is no range")
            expression += f"{re.escape(first)}-{re.escape(last)}"
            position += 3
        else:
            expression += re.escape(first)
            position += 1
    return expression
