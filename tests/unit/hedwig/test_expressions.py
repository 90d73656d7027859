"""Filter expressions: SQL's three values against a simple twin, and errors that say where and what to do."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from hedwig.errors import FilterTooCostly, InvalidFilter
from hedwig.model import LocalId, MessageId, Status
from hedwig.protocol.conditions import DIGIT_STEPS, PATTERN_SIZE_MAX, STEPS_MAX, TERM_STEPS, Steps, number_of
from hedwig.protocol.expressions import (
    DEPTH_MAX,
    EXPRESSION_SIZE_MAX,
    TERMS_MAX,
    ExpressionError,
    parse_expression,
)
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.view import MessageView

PROPERTIES = {
    "color": b"red",
    "size": b"12",
    "price": b"-1.50",
    "big": b"9007199254740993",
    "flag": b"true",
    "empty": b"",
    "text": b"it's 100% a_b",
    "umlaut": "größe".encode(),
    "binary": b"\xff\x00",
    "a b": b"spaced",
    "and": b"keyword",
    "x.y": b"dotted",
}
MESSAGE = Message(b"body", PROPERTIES, "order", MessageId(LocalId(7)), b"r1")


def value_of(text: str, message: Message = MESSAGE) -> bool | None:
    expression = parse_expression(text)
    found = expression.evaluate(message)
    assert expression.matches(message) is (found is True)
    assert expression.evaluate(MessageView(encode_message(message))) is found
    return found


@pytest.mark.parametrize(
    "text",
    [
        "color = 'red'",
        "'red' = color",
        "color <> 'blue'",
        "color != 'blue'",
        "color > 'blue' and color < 'yellow' AND color >= 'red' And color <= 'red'",
        "size = 12",
        "size = 12.0",
        "size = '12'",
        "size <> '12.0'",
        "12 < size or size <= 12",
        "size > 9",
        "size < '9'",
        "price = -1.5",
        "price < -1e0",
        "price > - 2",
        "price < +3",
        "big > 9007199254740992",
        "big = 9007199254740993",
        "flag = TRUE and flag <> false",
        "empty = ''",
        "empty is not null",
        "missing IS NULL",
        "EXISTS color",
        "NOT EXISTS missing",
        'exists "a b"',
        "\"a b\" = 'spaced' AND \"and\" = 'keyword' and x.y = 'dotted'",
        "size BETWEEN 12 AND 13 AND color BETWEEN 'a' AND 'z'",
        "size NOT BETWEEN 13 AND 99",
        "color IN ('blue', 'red')",
        "color NOT IN ('blue')",
        "size IN (1, 12.0)",
        "size in ('12')",
        "$id in (7)",
        "$type = 'order' and $region = 'r1' and $id = 7 and $size = 4",
        "$region IN ('r1', 'r2') AND $type LIKE 'ord%'",
        "$id < size",
        "price < size",
        "size > price",
        "color < text or color > text",
        "text = 'it''s 100% a_b'",
        "text LIKE 'it''s%'",
        "text like '%100!%%' escape '!'",
        "text like '%a!_b' escape '!'",
        "umlaut like 'gr__e'",
        "umlaut like '%_ß_'",
        "umlaut starts with 'grö'",
        "color not starts with 'b'",
        "binary = X'ff00'",
        "binary = x'FF00'",
        "empty = X''",
        "empty like '' and empty like '%' and empty like '%%'",
        "umlaut = 'größe'",
        "color='red'and(size=12)",
        "((((color = 'red'))))",
        "not not not color = 'blue'",
        "color = 'blue' or color = 'green' and color = 'x' or size = 12",
        "not color = 'blue' and size = 12",
        "missing = 1 or color = 'red'",
        "color = 'red' or missing = 1",
        "  color\n=\t'red'  ",
    ],
)
def test_these_are_true_of_the_message(text: str) -> None:
    assert value_of(text) is True


@pytest.mark.parametrize(
    "text",
    [
        *("missing = 'x'", "missing <> 'x'", "NOT missing = 'x'", "missing IN ('x')", "missing NOT IN ('x')"),
        *("missing LIKE '%'", "missing NOT LIKE '%'", "missing STARTS WITH ''", "missing BETWEEN 1 AND 2"),
        *("missing = missing", "missing = color", "$id = missing", "missing < 1", "NOT (missing = 1 AND size = 12)"),
        *("color = 1", "color < 1", "color > $id", "empty = 0", "color IN (1, 2)", "binary LIKE '__'"),
        *("missing = 1 OR color = 'blue'", "color = 'red' AND missing = 1", "missing = 1 AND missing = 2"),
        "size BETWEEN 1 AND missing",
    ],
)
def test_what_cannot_be_said_is_unknown_and_no_match(text: str) -> None:
    assert value_of(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("color = 'Red'", "Color IS NOT NULL", "missing = 1 AND color = 'blue'", "color = 'blue' AND missing = 1"),
        *("text like 'it_'", "color like 'r%r'", "color like 'red_'", "size BETWEEN 13 AND missing", "EXISTS missing"),
        *("color like '%red%red%'", "color not like 'r_d'", "NOT (missing = 1 OR size = 12)", "flag = FALSE"),
    ],
)
def test_these_are_false(text: str) -> None:
    assert value_of(text) is False


def test_a_message_without_header_and_id_makes_all_of_it_unknown() -> None:
    bare = Message(b"")
    for text in ("$type = 'x'", "$region <> 'x'", "$id > 0", "color = 'red'"):
        assert value_of(text, bare) is None
    for text in ("$type IS NULL", "$region IS NULL", "$id IS NULL", "color IS NULL", "$size = 0"):
        assert value_of(text, bare) is True


def test_an_expression_knows_which_properties_it_looks_at() -> None:
    assert parse_expression("a = 1 AND (\"b c\" = 'x' OR EXISTS d) AND $id > 1").properties == {"a", "b c", "d"}


@pytest.mark.parametrize(
    ("text", "position", "token", "remedy"),
    [
        ("", 1, "the end", "write a condition"),
        ("   ", 1, "the end", "write a condition"),
        ("color", 6, "the end", "name = TRUE"),
        ("color = ", 8, "the end", "want a property"),
        ("color == 'red'", 8, "=", "want a property"),
        ("color = 'red", 9, "'red", "close it"),
        ('"color = 1', 1, '"color = 1', "no end"),
        ('"" = 1', 1, '"" = 1', "nothing in it"),
        ("color = red", 9, "red", None),
        ("color = 'red' && size = 1", 15, "&& size = 1", "AND and OR"),
        ("color = 'red' size = 1", 15, "size", "join conditions"),
        ("color = 'red')", 14, ")", "no ( for it"),
        ("(color = 'red'", 15, "the end", "for the ( at character 1"),
        ("size = 1x", 8, "1x", "between '"),
        ("size = 1 + 2", 10, "+", "complete"),
        ("size = + color", 8, "+", "no arithmetic"),
        ("size = 1e999", 8, "1e999", "too large"),
        (f"size = 1e{'9' * 30}", 8, f"1e{'9' * 30}", "too large"),
        (f"size = {'1' * 41}", 8, "1" * 41, "more than 40 characters"),
        ("$ids = 1", 1, "$ids", "$type, $region, $id, $size"),
        ("$size = 'x'", 9, "'x'", "$size is no text"),
        ("$type < 1", 9, "1", "$type is no number"),
        ("$type = $id", 9, "$id", "always"),
        ("1 = 1", 1, "1", "compare with a property"),
        ("'a' LIKE 'b'", 1, "'a'", "no text"),
        ("$id LIKE '1%'", 1, "$id", "no text"),
        ("color LIKE red", 12, "red", "want a pattern"),
        ("color LIKE 'a!' ESCAPE '!'", 12, "'a!'", "must stand before"),
        ("color LIKE 'a' ESCAPE 'ab'", 23, "'ab'", "one character"),
        (f"color LIKE '{'a' * 257}'", 12, f"'{'a' * 257}'", "shorten it"),
        ("color IN 'a'", 10, "'a'", "want ( behind IN"),
        ("color IN ()", 11, ")", "want a property"),
        ("color IN ('a', 1)", 16, "1", "join two INs"),
        ("color IN ('a' 'b')", 15, "'b'", "want ,"),
        ("color IN (size)", 11, "size", "compare properties by ="),
        ("$id IN ('a')", 1, "$id", "no text"),
        ("$type IN (1)", 1, "$type", "no number"),
        ("color NOT = 'a'", 11, "=", "want a comparison"),
        ("color IS 'a'", 10, "'a'", "IS NULL or IS NOT NULL"),
        ("'a' IS NULL", 1, "'a'", "may be NULL"),
        ("EXISTS 'a'", 8, "'a'", "name of a property"),
        ("size BETWEEN 1 OR 2", 16, "OR", "want AND"),
        ("color STARTS 'a'", 7, "STARTS", "STARTS WITH"),
        ("color STARTS WITH size", 19, "size", "between '"),
        ("color = X'0'", 9, "X'0'", "pairs"),
        ("and = 1", 1, "AND", 'between "'),
        ("color = ?", 9, "?", "means nothing"),
        ("color = \ud800", 9, "'\\ud800'", "half of a character"),
    ],
)
def test_an_error_says_where_and_what_to_do(text: str, position: int, token: str, remedy: str | None) -> None:
    if remedy is None:
        assert parse_expression(text).properties == {"color", "red"}, "two properties may be compared"
        return
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    error = caught.value
    assert (error.position, error.token) == (position, token)
    shown = token if len(token) < 40 else f"{token[:40]}..."
    assert str(error).startswith(f"filter expression, at character {position} ({shown}): ")
    assert remedy in str(error)
    assert isinstance(error, InvalidFilter)
    assert error.status is Status.INVALID_MESSAGE_FILTER


def test_length_terms_and_depth_are_bounded() -> None:
    terms = " OR ".join(["a = 1"] * TERMS_MAX)
    parse_expression(terms)
    with pytest.raises(ExpressionError, match=f"more than {TERMS_MAX}"):
        parse_expression(f"{terms} OR a = 1")
    with pytest.raises(ExpressionError, match=f"more than {TERMS_MAX}"):
        parse_expression(f"a IN ({','.join(['1'] * TERMS_MAX)})")
    parse_expression("(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX)
    for text in ("(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1), "NOT " * 1000 + "a = 1", "(" * 4000):
        with pytest.raises(ExpressionError, match=f"more than {DEPTH_MAX} deep"):
            parse_expression(text)
    parse_expression("a = 1".ljust(EXPRESSION_SIZE_MAX))
    with pytest.raises(ExpressionError, match=f"at most {EXPRESSION_SIZE_MAX}"):
        parse_expression("a = 1".ljust(EXPRESSION_SIZE_MAX + 1))


LONG_SIZES = (TERM_STEPS, TERM_STEPS + 1, 16_384, 16_385, 50_000, STEPS_MAX - 1_000, STEPS_MAX, STEPS_MAX + 1)
LONG_CONDITIONS = [
    pytest.param("a LIKE '%_rder%'", lambda size: b"order".rjust(size, b"q"), id="like with _"),
    pytest.param("a LIKE '%rder%'", lambda size: b"order".rjust(size, b"q"), id="like"),
    pytest.param(
        "a LIKE '\u00e4_%r'", lambda size: "\u00e4\u00e4".encode() + b"r" * (size - 4), id="like of characters"
    ),
    pytest.param("$type LIKE '%_rder'", lambda size: b"order".rjust(size, b"q"), id="type"),
    pytest.param("$type = '1' OR $type > 'p'", lambda size: b"q" * size, id="type compared"),
    pytest.param("a > 1e30", lambda size: b"1" * size, id="whole number"),
    pytest.param("a BETWEEN 0.1 AND 0.2", lambda size: b"0.1".ljust(size, b"5"), id="fraction"),
    pytest.param("a = 7", lambda size: b"7".rjust(size, b"0"), id="leading zeros"),
    pytest.param("a > b", lambda size: b"x" * size, id="two texts"),
    pytest.param("a IN ('1') OR a <> '1' AND a STARTS WITH 'x'", lambda size: b"x" * size, id="no limit"),
]


@pytest.mark.parametrize(("text", "value"), LONG_CONDITIONS)
def test_no_length_of_a_value_makes_it_unknown(text: str, value: Callable[[int], bytes]) -> None:
    """LIKE with _ was unknown for a value of more than 16,384 bytes, so a filter rejected the message silently."""
    expression, negated = parse_expression(text), parse_expression(f"NOT ({text})")
    costly = []
    for size in LONG_SIZES:
        message = Message(b"", {"a": value(size), "b": b"x"}, value(size).decode())
        try:
            assert expression.evaluate(message) is True
            assert negated.evaluate(message) is False
        except FilterTooCostly:
            costly.append(size)
            with pytest.raises(FilterTooCostly, match=f"exceeds the {STEPS_MAX:,} steps"):
                negated.evaluate(message)
    assert not costly or min(costly) > 50_000, "each of these is possible up to 50,000 bytes"
    assert expression.evaluate(Message(b"", {"b": b"x"})) is None


@pytest.mark.parametrize("value", [b"x" * 15_000, "\u00e4".encode() * 7_500, b"x" * 100 + b"b"])
def test_like_takes_one_step_for_each_byte_of_a_long_value(value: bytes) -> None:
    """A pattern with 100 _ and a b was once searched at each of 16,000 positions, 33 times: 150 ms for each message."""
    once = f"a LIKE '%{'_' * 100}b%'"
    expression = parse_expression(" OR ".join([once] * 33))
    message = Message(b"", {"a": value})
    assert expression.matches(message) is (value[-1:] == b"b")
    assert expression.steps <= 33 * (TERM_STEPS + len(value) + 2 * PATTERN_SIZE_MAX)


TOO_COSTLY = [
    pytest.param("a LIKE '%aab%'", b"a" * STEPS_MAX, id="a long value"),
    pytest.param(" OR ".join([f"a LIKE '%{'a_' * 50}b%'"] * 30), (b"a" * 120 + b"c") * 130, id="many literals"),
    pytest.param(" OR ".join(["a LIKE '%ab_%'"] * 180), b"a" * 3_000, id="many conditions"),
    pytest.param(" OR ".join(["a < b"] * 250), b"a" * 50_000, id="two long values"),
    pytest.param(" OR ".join([f"a LIKE '%{'a' * 49}b{'a' * 49}%'"] * 33), b"a" * 16_000, id="long literals"),
]


@pytest.mark.parametrize(("text", "value"), TOO_COSTLY)
def test_what_takes_too_long_is_an_error_and_neither_true_nor_unknown(text: str, value: bytes) -> None:
    expression = parse_expression(f"NOT ({text}) OR EXISTS missing")
    for _ in range(2):
        with pytest.raises(FilterTooCostly, match=f"exceeds the {STEPS_MAX:,} steps"):
            expression.evaluate(Message(b"", {"a": value, "b": value}))
    assert expression.evaluate(Message(b"", {"a": b"a" * 50, "b": b"b"})) is not None, "each message has all the steps"


def test_the_most_and_largest_conditions_never_are_too_costly_for_short_values() -> None:
    for text in ("a LIKE '%_a_b'", "a < b", "a LIKE '%aa%aab'", "a IN ('1')"):
        for value in (b"a" * TERM_STEPS, b"a" * 20):
            count = min(TERMS_MAX // 2, (EXPRESSION_SIZE_MAX + 4) // (len(text) + 4))
            parse_expression(" OR ".join([text] * count)).evaluate(Message(b"", {"a": value, "b": value}))


def test_texts_longer_than_all_of_a_list_are_not_hashed() -> None:
    class Value(bytes):
        def __hash__(self) -> int:
            raise AssertionError("hashed")

    expression = parse_expression("a IN ('red', 'green')")
    assert expression.evaluate(Message(b"", {"a": Value(b"purple")})) is False
    with pytest.raises(AssertionError):
        expression.evaluate(Message(b"", {"a": Value(b"red")}))


@pytest.mark.parametrize(
    "text", ["", "+", "-", ".", "1_0", " 1", "1 ", "nan", "inf", "1e", "0x1", "٣", "1" * 41 + "x", "x" * 41, "1e" * 50]
)
def test_these_are_no_numbers(text: str) -> None:
    assert number_of(text.encode(), Steps()) is None


def test_numbers_of_any_length_and_size_are_in_their_order() -> None:
    exponent = "9" * 30
    texts = [
        f"-1e{exponent}",
        "-1e999",
        "-" + "2" * 400,
        "-" + "2" * 50,
        "-1.5",
        "0." + "0" * 60 + "1",
        "0.5" + "0" * 50,
    ]
    texts += [
        "1" + "." + "5" * 90,
        "0" * 60 + "2",
        "9" * 40,
        "1" + "0" * 40,
        "1e300",
        "1" * 4_301,
        "1e5000",
        f"1e{exponent}",
    ]
    found = [number_of(text.encode(), Steps()) for text in texts]
    for index, each in enumerate(found):
        assert each is not None
        for other in found[index + 1 :]:
            assert other is not None
            assert each < other
            assert each != other
            assert not other <= each
    for longer, short in (
        ("0" * 60 + "2", b"2"),
        ("0.1" + "0" * 50, b"0.1"),
        ("9007199254740993".zfill(60), b"9007199254740993"),
    ):
        assert number_of(longer.encode(), Steps()) == number_of(short, Steps())


def test_a_long_number_takes_steps_and_a_long_text_takes_none() -> None:
    steps = Steps()
    number_of(b"x" * STEPS_MAX, steps)
    assert steps.left == STEPS_MAX
    number_of(b"1" * 1000, steps)
    assert steps.left == STEPS_MAX - DIGIT_STEPS * 1000


# --- against a simple twin

Twin: TypeAlias = Callable[[Message], bool | None]
NAMES = ["a", "b", "c", "missing"]
VALUES = [b"", b"1", b"2", b"2.0", b"-3", b"x", b"xy", b"x%y", "ä".encode(), b"\xff", b"true"]


def number(value: bytes) -> float | None:
    """Slow and plain; the values here are small."""
    return float(value) if re.fullmatch(rb"-?[0-9]+(\.[0-9]+)?", value) else None


def like(value: bytes, pattern: str) -> bool | None:
    text = value.decode("utf-8", "surrogateescape")
    if "_" in pattern and any("\udc80" <= char <= "\udcff" for char in text):
        return None
    regular = "".join({"%": ".*", "_": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(regular, text, re.DOTALL) is not None


def condition(rng: random.Random) -> tuple[str, Twin]:
    name = rng.choice(NAMES)

    def of(ask: Callable[[bytes], bool | None]) -> Twin:
        return lambda message: None if name not in message.properties else ask(message.properties[name])

    match rng.randrange(6):
        case 0:
            text = rng.choice(["x", "", "1", "2.0", "ä", "true"])
            sign = rng.choice(["=", "<>", "<", "<=", ">", ">="])
            return f"{name} {sign} '{text}'", of(lambda value: compare(value, sign, text.encode()))
        case 1:
            wanted = rng.choice([1, 2, -3, 0])
            sign = rng.choice(["=", "<>", "<", "<=", ">", ">="])

            def numeric(value: bytes) -> bool | None:
                found = number(value)
                return None if found is None else compare(found, sign, float(wanted))

            return f"{name} {sign} {wanted}", of(numeric)
        case 2:
            pattern = "".join(rng.choice("%%_xyä1") for _ in range(rng.randrange(5)))
            return f"{name} LIKE '{pattern}'", of(lambda value: like(value, pattern))
        case 3:
            items = [rng.choice(["x", "xy", "1", ""]) for _ in range(rng.randint(1, 3))]
            text = ", ".join(f"'{item}'" for item in items)
            return f"{name} IN ({text})", of(lambda value: value in [item.encode() for item in items])
        case 4:
            return f"{name} IS NULL", lambda message: name not in message.properties
        case _:
            other = rng.choice(NAMES)

            def two(message: Message) -> bool | None:
                if name not in message.properties or other not in message.properties:
                    return None
                x, y = message.properties[name], message.properties[other]
                a, b = number(x), number(y)
                return compare(x, "<", y) if a is None or b is None else compare(a, "<", b)

            return f"{name} < {other}", two


def compare(left: Any, sign: str, right: Any) -> bool:
    if sign in ("=", "<>"):
        return (left == right) is (sign == "=")
    signs = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    return bool(signs[sign](left, right))


def tree(rng: random.Random, depth: int) -> tuple[str, Twin]:
    kind = rng.randrange(4) if depth else 3
    if kind == 3:
        return condition(rng)
    text, twin = tree(rng, depth - 1)
    if kind == 2:

        def negated(message: Message) -> bool | None:
            found = twin(message)
            return None if found is None else not found

        return f"NOT ({text})", negated
    other_text, other = tree(rng, depth - 1)
    decisive = kind == 0  # what decides alone: True for OR

    def joined(message: Message) -> bool | None:
        found = [twin(message), other(message)]
        if decisive in found:
            return decisive
        return None if None in found else not decisive

    return f"({text}) {'OR' if decisive else 'AND'} ({other_text})", joined


def test_expressions_say_what_their_simple_twins_say(rng: random.Random) -> None:
    seen = set()
    for _ in range(1500):
        text, twin = tree(rng, 3)
        expression = parse_expression(text)
        for _ in range(5):
            message = Message(b"", {name: rng.choice(VALUES) for name in NAMES[:-1] if rng.random() < 0.8})
            found = expression.evaluate(message)
            assert found is twin(message), (text, message.properties)
            seen.add(found)
    assert seen == {True, False, None}


def matches_slowly(text: str, pattern: str) -> bool:
    """Match by the definition of % and _, one character at a time."""
    reached = {0}
    for char in pattern:
        if char == "%":
            reached = set(range(min(reached), len(text) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(text) and (char == "_" or text[at] == char)}
        if not reached:
            return False
    return len(text) in reached


@pytest.mark.parametrize("alphabet", ["ab", "aaab", "a\u00e4\U0001f600", "a.\n\\*"])
def test_like_matches_its_simple_twin(rng: random.Random, alphabet: str) -> None:
    seen = {True: 0, False: 0}
    for _ in range(1500):
        wild = rng.choice(["%", "_", "%_", "%__", "%%_"])
        pattern = "".join(rng.choice(alphabet * 2 + wild * 2) for _ in range(rng.randrange(12)))
        text = "".join(rng.choice(alphabet) for _ in range(rng.choice([3, 8, 20, 150])))
        if rng.random() < 0.5:  # a value that matches, or nearly matches
            filled = {"%": alphabet[-1] * rng.randrange(4), "_": rng.choice(alphabet)}
            text = "".join(filled.get(char, char) for char in pattern)
        found = parse_expression(f"a LIKE '{pattern}'").evaluate(Message(b"", {"a": text.encode()}))
        assert found is matches_slowly(text, pattern), (pattern, text)
        seen[found] += 1
        escaped = "".join("!" + char if char in "%_!" else char for char in text)
        assert value_of(f"a LIKE '{escaped}' ESCAPE '!'", Message(b"", {"a": text.encode()})) is True
    assert min(seen.values()) > 200


def test_any_text_is_an_expression_or_an_expression_error(rng: random.Random) -> None:
    pieces = [
        "a",
        "'x'",
        '"b"',
        "1",
        "-",
        "(",
        ")",
        ",",
        "=",
        "<",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "IS",
        "NULL",
        "$id",
    ]
    pieces += ["BETWEEN", "EXISTS", "STARTS", "WITH", "ESCAPE", "TRUE", "'", "%", "X'0", "\x00", "é", "1e5", ".", " "]
    read, positions = 0, []
    for _ in range(4000):
        text = rng.choice(["", " "]).join(rng.choice(pieces) for _ in range(rng.randrange(9)))
        try:
            parse_expression(text).evaluate(MESSAGE)
            read += 1
        except ExpressionError as error:
            positions.append((error.position, len(text)))
    assert read
    assert all(1 <= position <= size + 1 for position, size in positions)
