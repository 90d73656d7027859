"""Conditions on a message's header, as functions: true, false, or None for unknown. Pure.

What they mean is drawn in expressions.py, which puts them together. Each is made once, and asked for every message: so
what can be decided when it is made, is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from hedwig.model import MessageId

VALUE_SIZE_MAX = 16 * 1024
PATTERN_SIZE_MAX = 256
NUMBER_SIZE_MAX = 40


class FilterableMessage(Protocol):
    """What is asked of a message. Nothing is asked that the expression does not name."""

    @property
    def properties(self) -> Mapping[str, bytes]:
        """Of its header."""

    @property
    def message_type(self) -> str | None:
        """Of its header."""

    @property
    def region(self) -> bytes | None:
        """Where it was published."""

    @property
    def id(self) -> MessageId | None:
        """Its number."""

    @property
    def body_size(self) -> int:
        """Bytes of its body."""

    @property
    def body(self) -> bytes:
        """No expression asks for it; filters of others may."""


Number: TypeAlias = int | float
Condition: TypeAlias = Callable[[FilterableMessage], bool | None]
TextOf: TypeAlias = Callable[[FilterableMessage], bytes | None]
NumberOf: TypeAlias = Callable[[FilterableMessage], Number | None]
Source: TypeAlias = tuple[TextOf | None, NumberOf | None]
"""A value of a message as a text and as a number; None for what it never is. Either says None where it is not there."""


# --- values

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def number_of(value: bytes) -> Number | None:
    """A decimal number, exactly where it is a whole one; None where it is none."""
    if len(value) > NUMBER_SIZE_MAX:
        return None
    if value.isdigit():  # ASCII digits, as these are bytes
        return int(value)
    if _NUMBER.fullmatch(value) is None:
        return None
    try:
        return int(value)
    except ValueError:
        found = float(value)
    return None if found in (float("inf"), float("-inf")) else found


def property_source(name: str) -> Source:
    """A header property."""

    def text(message: FilterableMessage) -> bytes | None:
        return message.properties.get(name)

    def number(message: FilterableMessage) -> Number | None:
        found = message.properties.get(name)
        return None if found is None else number_of(found)

    return text, number


def _type(message: FilterableMessage) -> bytes | None:
    found = message.message_type
    return None if found is None else found.encode()


def _region(message: FilterableMessage) -> bytes | None:
    return message.region


def _id(message: FilterableMessage) -> Number | None:
    found = message.id
    return None if found is None else found.local


def _size(message: FilterableMessage) -> Number | None:
    return message.body_size


FACTS: dict[str, Source] = {
    "$type": (_type, None),
    "$region": (_region, None),
    "$id": (None, _id),
    "$size": (None, _size),
}


# --- conditions

COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


def compared_with(value: Callable[[FilterableMessage], bytes | Number | None], sign: str, other: object) -> Condition:
    """A value that depends on the message, and one that does not, of one kind."""

    # One function for each sign: the sign is not looked at for every message.
    def equal(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found == other

    def different(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found != other

    def less(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found < other  # type: ignore[operator]

    def at_most(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found <= other  # type: ignore[operator]

    def greater(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found > other  # type: ignore[operator]

    def at_least(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found >= other  # type: ignore[operator]

    by_sign = (equal, different, different, less, at_most, greater, at_least)
    return by_sign[COMPARISONS.index(sign)]


def _is(sign: str, left: bytes | Number, right: bytes | Number) -> bool:
    """Of one kind."""
    below, above = left < right, left > right  # type: ignore[operator]
    if sign == "=":
        return not below and not above
    if sign in ("<>", "!="):
        return below or above
    return {"<": below, "<=": not above, ">": above, ">=": not below}[sign]


def compared(left: Source, sign: str, right: Source) -> Condition:
    """Two values that both depend on the message: as numbers where both are, else as texts."""
    (left_text, left_number), (right_text, right_number) = left, right

    def compare(message: FilterableMessage) -> bool | None:
        if left_number is not None and right_number is not None:
            a, b = left_number(message), right_number(message)
            if a is not None and b is not None:
                return _is(sign, a, b)
        if left_text is None or right_text is None:
            return None
        x, y = left_text(message), right_text(message)
        return None if x is None or y is None else _is(sign, x, y)

    return compare


def both(parts: list[Condition]) -> Condition:
    first, *rest = parts

    def both(message: FilterableMessage) -> bool | None:
        result = first(message)
        if result is False:
            return False
        for part in rest:
            found = part(message)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return both


def either(parts: list[Condition]) -> Condition:
    first, *rest = parts

    def either(message: FilterableMessage) -> bool | None:
        result = first(message)
        if result is True:
            return True
        for part in rest:
            found = part(message)
            if found is True:
                return True
            if found is None:
                result = None
        return result

    return either


def negated(part: Condition) -> Condition:
    def negated(message: FilterableMessage) -> bool | None:
        found = part(message)
        return None if found is None else not found

    return negated


def one_of(value: Callable[[FilterableMessage], object], items: frozenset[object]) -> Condition:
    def one_of(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found in items

    return one_of


def begins(value: TextOf, prefix: bytes) -> Condition:
    def begins(message: FilterableMessage) -> bool | None:
        found = value(message)
        return None if found is None else found.startswith(prefix)

    return begins


def present(value: Callable[[FilterableMessage], object], *, wanted: bool) -> Condition:
    def present(message: FilterableMessage) -> bool | None:
        return (value(message) is not None) is wanted

    return present


ANY, ONE = object(), object()


def like(value: TextOf, pattern: list[object]) -> Condition:
    """pattern: texts of one character, ANY and ONE.

    The parts between two % are looked for from the left, each behind the one before: that finds a match if there is
    one, and never goes back, as a regular expression with several .* does.
    """
    parts: list[list[object]] = [[]]
    for each in pattern:
        if each is ANY:
            parts.append([])
        else:
            parts[-1].append(each)
    if ONE in pattern:
        return _like_characters(value, parts)
    texts = ["".join(map(str, part)).encode() for part in parts]
    if len(texts) == 1:
        return compared_with(value, "=", texts[0])
    head, *middle, tail = texts
    middle = [text for text in middle if text]
    if not middle and not tail:
        return begins(value, head)
    size_min = len(head) + len(tail)

    def like(message: FilterableMessage) -> bool | None:
        found = value(message)
        if found is None:
            return None
        if len(found) < size_min or not found.startswith(head) or not found.endswith(tail):
            return False
        position, end = len(head), len(found) - len(tail)
        for text in middle:
            at = found.find(text, position, end)
            if at < 0:
                return False
            position = at + len(text)
        return True

    return like


def _like_characters(value: TextOf, parts: list[list[object]]) -> Condition:
    """With _, which is a character and not a byte."""
    searches = [
        re.compile("".join("." if each is ONE else re.escape(str(each)) for each in part), re.DOTALL) for part in parts
    ]
    sizes = [len(part) for part in parts]
    size_min = sizes[0] + sizes[-1]

    def like(message: FilterableMessage) -> bool | None:
        found = value(message)
        if found is None or len(found) > VALUE_SIZE_MAX:
            return None
        try:
            text = found.decode()
        except UnicodeDecodeError:
            return None
        if len(searches) == 1:
            return searches[0].fullmatch(text) is not None
        position, end = sizes[0], len(text) - sizes[-1]
        if len(text) < size_min or searches[0].match(text) is None or searches[-1].match(text, end) is None:
            return False
        for search in searches[1:-1]:
            at = search.search(text, position, end)
            if at is None:
                return False
            position = at.end()
        return True

    return like
