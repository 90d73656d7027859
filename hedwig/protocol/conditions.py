"""Conditions on a message's header, as functions: true, false, or None for unknown. Pure.

What they mean is drawn in expressions.py, which puts them together. Each is made once, and asked for every message: so
what can be decided when it is made, is.

Time. A condition on a short value (`TERM_STEPS` bytes) takes a bounded time, which its expression deducts in advance.
For longer values, LIKE and the comparison of two properties take one step of `Steps` for each byte that they read. LIKE
is linear in the size of the value: it searches for the parts between two % from left to right and never goes back. `re`
searches for a literal with a table of its overlaps (Knuth, Morris and Pratt), so the time does not depend on the
literal. `bytes.find` may compare the whole literal at each byte. In a part with `_`, each literal between two `_` is
searched for in turn, from the position that the other literals allow. An adversary can cause (literals x value)
searches, so every search takes steps. Long numbers and a long $type take steps too.

A value is never unknown because it is long: its message would be lost silently. An evaluation that takes too long
raises FilterTooCostly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Protocol, TypeAlias

from hedwig.errors import FilterTooCostly
from hedwig.model import MessageId

PATTERN_SIZE_MAX = 256
NUMBER_SIZE_MAX = 40
"""Characters, at most, of a number in an expression. Values that are longer numbers take steps."""

STEPS_MAX = 1 << 19
"""Steps that an expression may take for one message: 1.5 ms at about 3 ns, the time to read one byte of a value.

Enough for one LIKE on a value of 512 KiB, or for 32 on values of 16 KiB.
"""

TERM_STEPS = 100
"""Steps of one condition on a short value, about 0.3 us; also the bytes of a short value."""

PROBE_STEPS = 64
"""Steps of one search for a literal of a part with _, in addition to the bytes that it passes: about 0.2 us."""

COMPARED_AT_ONCE = 16
"""Bytes of two long values that are compared in one step."""

DIGIT_STEPS = 4
"""Steps to read one byte of a long number: about 12 ns."""

ENCODED_AT_ONCE = 2
"""Characters of a long $type that are encoded in one step."""


class Steps:
    """The steps of one evaluation. left: remaining steps; the expression sets it for each message."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def take(self, count: int) -> None:
        """Deduct steps before the work begins. Raises FilterTooCostly."""
        self.left -= count
        if self.left < 0:
            raise FilterTooCostly(
                f"its expression exceeds the {STEPS_MAX:,} steps allowed for one message; LIKE takes one step per byte"
            )


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


Number: TypeAlias = int | float | Decimal
Condition: TypeAlias = Callable[[FilterableMessage], bool | None]
TextOf: TypeAlias = Callable[[FilterableMessage], bytes | None]
NumberOf: TypeAlias = Callable[[FilterableMessage], Number | None]
Source: TypeAlias = tuple[TextOf | None, NumberOf | None]
"""A value of a message as a text and as a number; None for what it never is. Either says None where it is not there."""


# --- values

_NUMBER = re.compile(rb"(?P<whole>[+-]?[0-9]++)|[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")


def number_of(value: bytes, steps: Steps) -> Number | None:
    """Return the value as a decimal number, exact if it is a whole number; None if it is no number.

    Numbers beyond the range of float, and long whole numbers, become a Decimal: the time of `int` is quadratic.
    """
    is_short = len(value) <= NUMBER_SIZE_MAX
    if not is_short:
        if value[0] not in b"+-.0123456789":
            return None
        steps.take(DIGIT_STEPS * len(value))
    elif value.isdigit():  # ASCII digits, as these are bytes
        return int(value)
    match = _NUMBER.fullmatch(value)
    if match is None:
        return None
    if match["whole"] is not None:
        return int(value) if is_short else Decimal(value.decode())
    found = float(value)
    if math.isfinite(found):
        return found
    try:
        return Decimal(value.decode())
    except InvalidOperation:  # an exponent of more than 18 digits
        return found


def property_source(name: str, steps: Steps) -> Source:
    """A header property."""

    def text(message: FilterableMessage) -> bytes | None:
        return message.properties.get(name)

    def number(message: FilterableMessage) -> Number | None:
        found = message.properties.get(name)
        return None if found is None else number_of(found, steps)

    return text, number


def _region(message: FilterableMessage) -> bytes | None:
    return message.region


def _id(message: FilterableMessage) -> Number | None:
    found = message.id
    return None if found is None else found.local


def _size(message: FilterableMessage) -> Number | None:
    return message.body_size


FACTS = ("$type", "$region", "$id", "$size")


def fact_source(name: str, steps: Steps) -> Source:
    """Return the source of one of FACTS."""

    def message_type(message: FilterableMessage) -> bytes | None:
        found = message.message_type
        if found is None:
            return None
        if len(found) > TERM_STEPS:
            steps.take(len(found) // ENCODED_AT_ONCE)
        return found.encode()

    sources: tuple[Source, ...] = ((message_type, None), (_region, None), (None, _id), (None, _size))
    return sources[FACTS.index(name)]


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


def compared(left: Source, sign: str, right: Source, steps: Steps) -> Condition:
    """Compare two values that both depend on the message: as numbers if both are numbers, else as texts."""
    (left_text, left_number), (right_text, right_number) = left, right

    def compare(message: FilterableMessage) -> bool | None:
        if left_number is not None and right_number is not None:
            a, b = left_number(message), right_number(message)
            if a is not None and b is not None:
                return _is(sign, a, b)
        if left_text is None or right_text is None:
            return None
        x, y = left_text(message), right_text(message)
        if x is None or y is None:
            return None
        steps.take(min(len(x), len(y)) // COMPARED_AT_ONCE)
        return _is(sign, x, y)

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


def one_of_texts(value: TextOf, items: frozenset[bytes]) -> Condition:
    size_max = max(map(len, items))

    def one_of(message: FilterableMessage) -> bool | None:
        found = value(message)
        # A longer value is not hashed, since hashing reads every byte.
        return None if found is None else len(found) <= size_max and found in items

    return one_of


def one_of_numbers(value: NumberOf, items: frozenset[Number]) -> Condition:
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


def like(value: TextOf, pattern: list[object], steps: Steps) -> Condition:
    """Return a condition for LIKE. pattern: texts of one character, ANY and ONE.

    The parts between two % are searched for from the left, each after the previous one. This finds a match if there is
    one, and never goes back.
    """
    parts: list[list[object]] = [[]]
    for each in pattern:
        if each is ANY:
            parts.append([])
        else:
            parts[-1].append(each)
    if ONE in pattern:
        return _like_characters(value, [_Part(part) for part in parts], steps)
    texts = ["".join(map(str, part)).encode() for part in parts]
    if len(texts) == 1:
        return compared_with(value, "=", texts[0])
    head, *middle, tail = texts
    searches = [re.compile(re.escape(text), re.DOTALL).search for text in middle if text]
    if not searches and not tail:
        return begins(value, head)
    size_min = len(head) + len(tail)

    def like(message: FilterableMessage) -> bool | None:
        found = value(message)
        if found is None:
            return None
        if len(found) < size_min or not found.startswith(head) or not found.endswith(tail):
            return False
        if len(found) > TERM_STEPS and searches:
            steps.take(len(found))
        position, end = len(head), len(found) - len(tail)
        for search in searches:
            at = search(found, position, end)
            if at is None:
                return False
            position = at.end()
        return True

    return like


class _Part:
    """Characters of a pattern between two %, with ONE for any character. literals: (position in the part, text)."""

    __slots__ = ("_searches", "literals", "size")

    def __init__(self, part: list[object]) -> None:
        self.size = len(part)
        self.literals: list[tuple[int, str]] = []
        open_ = False  # the previous character belongs to a literal
        for index, each in enumerate(part):
            if each is ONE:
                open_ = False
            elif open_:
                at, text = self.literals[-1]
                self.literals[-1] = (at, text + str(each))
            else:
                open_ = True
                self.literals.append((index, str(each)))
        self._searches = [(at, len(text), re.compile(re.escape(text)).search) for at, text in self.literals]

    def is_at(self, text: str, position: int) -> bool:
        """Return whether the part is at `position`. The text has at least `size` characters from there on."""
        return all(text.startswith(literal, position + at) for at, literal in self.literals)

    def find(self, text: str, position: int, end: int, steps: Steps) -> int:
        """Return the first position, at or after `position`, at which the part fits before `end`; -1 if there is none.

        Each literal in turn moves the position to its next occurrence. When all literals agree, the part is found. No
        match can be to the left of the position, so all searches together pass over the text once.
        """
        last = end - self.size
        agree = turn = 0
        while position <= last:
            if agree == len(self._searches):
                return position
            at, size, search = self._searches[turn]
            steps.take(PROBE_STEPS + size)
            found = search(text, position + at, last + at + size)
            if found is None:
                return -1
            place = found.start() - at
            agree = agree + 1 if place == position else 1
            position, turn = place, (turn + 1) % len(self._searches)
        return -1


def _like_characters(value: TextOf, parts: list[_Part], steps: Steps) -> Condition:
    """Return a condition for LIKE with _, which stands for a character and not for a byte."""
    head, *middle, tail = parts[0], *parts[1:-1], parts[-1]
    size_min = head.size + tail.size

    def like(message: FilterableMessage) -> bool | None:
        found = value(message)
        if found is None:
            return None
        if len(found) > TERM_STEPS:
            steps.take(len(found))
        try:
            text = found.decode()
        except UnicodeDecodeError:
            return None
        if len(parts) == 1:
            return len(text) == head.size and head.is_at(text, 0)
        if len(text) < size_min:
            return False
        position, end = head.size, len(text) - tail.size
        if not head.is_at(text, 0) or not tail.is_at(text, end):
            return False
        for part in middle:
            position = part.find(text, position, end, steps)
            if position < 0:
                return False
            position += part.size
        return True

    return like
