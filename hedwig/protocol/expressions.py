"""Filter expressions: which messages a subscriber wants, said about their headers. Pure; nothing is evaluated as code.

    color = 'red' AND (size BETWEEN 10 AND 20 OR "content-type" LIKE 'text/%') AND NOT EXISTS test

    expression   conditions joined by AND, OR, NOT and parentheses; NOT binds closest, OR loosest
    condition    value = value     also <> != < <= > >=
                 value [NOT] BETWEEN value AND value
                 value [NOT] IN (literal, literal, ...)
                 value [NOT] LIKE 'pattern' [ESCAPE 'c']     % is any text, _ any one character
                 value [NOT] STARTS WITH 'text'
                 value IS [NOT] NULL;   EXISTS name is the same as name IS NOT NULL
    value        name              a header property; "any name" where it is not letters, digits, _ and dots, or a word
                                   of this language
                 $type $region     of the message, texts
                 $id $size         of the message, numbers: its local id, the bytes of its body
                 'text'            a quote is doubled: 'it''s'; X'00ff' are bytes
                 12  -0.5  1e6     a number
                 TRUE FALSE        stand for the texts true and false, in small letters

Words of the language may be in any case; names may not.

Properties are bytes, and what they are compared with says what they are taken for. With a text: bytes, which is the
order of UTF-8. With a number: a decimal number. Two properties: numbers if both are, else texts.

As in SQL, what cannot be said is *unknown*: a property that is missing, or no number where one is wanted. NOT unknown
is unknown; AND is false if one side is, OR true if one side is; and only what is true matches. So `color <> 'red'`
passes over messages without a color, and so does `NOT color = 'red'`; add `OR color IS NULL` to have them.

Bounds of an expression: `EXPRESSION_SIZE_MAX`, `TERMS_MAX`, `DEPTH_MAX`, `PATTERN_SIZE_MAX`, `NUMBER_SIZE_MAX`. Values
have no bound: a value that takes too long raises an error, and is never unknown.

Time: an expression takes at most `STEPS_MAX` steps for one message, about 1.5 ms, and less than 0.1 ms if no value is
long. Beyond the maximum it raises FilterTooCostly instead of returning a value. A hub then ends the attachment at this
message, so that no message is lost (hedwig/hub/subscriptions/attachment.py).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

from hedwig.errors import InvalidFilter
from hedwig.protocol.conditions import (
    ANY,
    COMPARISONS,
    FACTS,
    NUMBER_SIZE_MAX,
    ONE,
    PATTERN_SIZE_MAX,
    STEPS_MAX,
    TERM_STEPS,
    Condition,
    FilterableMessage,
    Number,
    NumberOf,
    Source,
    Steps,
    TextOf,
    begins,
    both,
    compared,
    compared_with,
    either,
    fact_source,
    like,
    negated,
    number_of,
    one_of_numbers,
    one_of_texts,
    present,
    property_source,
)

EXPRESSION_SIZE_MAX = 4096
"""Characters."""

TERMS_MAX = 256
"""Conditions, and items of lists, of one expression."""

DEPTH_MAX = 32
"""Parentheses and NOTs inside each other."""

TOKEN_SHOWN_MAX = 40
"""Characters of a token that an error repeats."""


class ExpressionError(InvalidFilter):
    """An expression that cannot be read. position: of `token`, which is at fault, counted from 1."""

    def __init__(self, why: str, position: int, token: str) -> None:
        shown = token if len(token) <= TOKEN_SHOWN_MAX else f"{token[:TOKEN_SHOWN_MAX]}..."
        super().__init__(f"filter expression, at character {position} ({shown}): {why}")
        self.position, self.token = position, token


class Expression:
    """A parsed expression, evaluated for each message by one thread at a time. properties: names that it reads."""

    __slots__ = ("_allowance", "_condition", "_steps", "properties", "text")

    def __init__(
        self, text: str, condition: Condition, properties: frozenset[str], steps: Steps, allowance: int
    ) -> None:
        self.text, self._condition, self.properties = text, condition, properties
        self._steps, self._allowance = steps, allowance

    @property
    def steps(self) -> int:
        """Number of steps that the last evaluation took."""
        return STEPS_MAX - self._steps.left

    def evaluate(self, message: FilterableMessage) -> bool | None:
        """Return whether the expression is true of the message, or None for unknown. Raises FilterTooCostly."""
        self._steps.left = self._allowance
        return self._condition(message)

    def matches(self, message: FilterableMessage) -> bool:
        """Return whether the expression is true of the message; unknown is false. Raises FilterTooCostly."""
        self._steps.left = self._allowance
        return self._condition(message) is True


def parse_expression(text: str) -> Expression:
    """Raises ExpressionError."""
    return _Parser(text).parse()


# --- reading

_WORDS = frozenset(
    {
        *("AND", "OR", "NOT", "TRUE", "FALSE", "EXISTS", "IS", "NULL"),
        *("IN", "LIKE", "ESCAPE", "BETWEEN", "STARTS", "WITH"),
    }
)

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<bytes>[xX]'(?:[^']|'')*') | (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")+") |
    (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])) |
    (?P<name>[^\W0-9][\w.]*) | (?P<fact>\$\w*) | (?P<sign><>|!=|<=|>=|[=<>(),+-])
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    """kind: a group of _TOKEN, "word", or "end". text: as written; a word in capitals."""

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else self.text


@dataclass(frozen=True, slots=True)
class _Value:
    """One side of a comparison. source: of what depends on the message; literal: what is always the same."""

    token: _Token
    source: Source = (None, None)
    literal: bytes | Number | None = None

    @property
    def text(self) -> TextOf | None:
        """As a text, if it can be one."""
        return self.source[0]

    @property
    def number(self) -> NumberOf | None:
        """As a number, if it can be one."""
        return self.source[1]


def _tokens(text: str) -> list[_Token]:
    if len(text) > EXPRESSION_SIZE_MAX:
        raise ExpressionError(
            f"it has {len(text)} characters, and at most {EXPRESSION_SIZE_MAX} are possible: use a property that the "
            "publisher sets, or filter in the subscriber",
            EXPRESSION_SIZE_MAX + 1,
            "the whole",
        )
    bad = next((index for index, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
    if bad is not None:
        raise ExpressionError("half of a character: it is no text", bad + 1, repr(text[bad]))
    found: list[_Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position, end)
        if match is None:
            position += len(text[position:end]) - len(text[position:end].lstrip())
            _no_token(text, position)
        kind = match.lastgroup or ""
        start, content = match.start(kind), match[kind]
        if kind == "name" and content.upper() in _WORDS:
            kind, content = "word", content.upper()
        found.append(_Token(kind, content, start + 1))
        position = match.end()
    found.append(_Token("end", "", end + 1))
    return found


def _no_token(text: str, position: int) -> NoReturn:
    char = text[position]
    if char == "'":
        why = "this text has no end: close it with ', and double a ' that is part of it"
    elif char == '"':
        why = "this name has no end, or nothing in it: close it with \", and use ' for texts"
    elif char.isdigit() or char == ".":
        why = "this is neither a number nor a name: put a text between ', and such a name between \""
    elif char in "&|":
        why = "write AND and OR"
    else:
        why = "this means nothing here: put texts between ', and names that are no words between \""
    raise ExpressionError(why, position + 1, text[position : position + 12])


class _Parser:
    """By descent; the depth is bounded, so the stack is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._terms = 0
        self._steps = Steps()
        self._names: set[str] = set()

    def parse(self) -> Expression:
        if self._token.kind == "end":
            raise ExpressionError("there is nothing: write a condition, such as color = 'red'", 1, "the end")
        condition = self._or(0)
        if self._token.kind != "end":
            remedy = "join conditions by AND or OR"
            if self._token.text == ")":
                remedy = "there is no ( for it"
            self._fail(f"the expression is complete before this: {remedy}")
        allowance = STEPS_MAX - self._terms * TERM_STEPS
        return Expression(self._text, condition, frozenset(self._names), self._steps, allowance)

    # --- tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        found = self._tokens[self._next]
        if found.kind != "end":
            self._next += 1
        return found

    def _took(self, *texts: str) -> bool:
        """Take these words or signs, if they are next."""
        following = self._tokens[self._next : self._next + len(texts)]
        if [each.text for each in following if each.kind in ("word", "sign")] != list(texts):
            return False
        self._next += len(texts)
        return True

    def _want(self, text: str, why: str) -> None:
        if not self._took(text):
            self._fail(f"want {text} {why}")

    def _fail(self, why: str, token: _Token | None = None) -> NoReturn:
        token = self._token if token is None else token
        raise ExpressionError(why, token.position, str(token))

    def _count(self, token: _Token) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            self._fail(
                f"it has more than {TERMS_MAX} conditions and items: use a property that the publisher sets, or "
                "filter in the subscriber",
                token,
            )

    # --- conditions

    def _or(self, depth: int) -> Condition:
        parts = [self._and(depth)]
        while self._took("OR"):
            parts.append(self._and(depth))
        return parts[0] if len(parts) == 1 else either(parts)

    def _and(self, depth: int) -> Condition:
        parts = [self._not(depth)]
        while self._took("AND"):
            parts.append(self._not(depth))
        return parts[0] if len(parts) == 1 else both(parts)

    def _not(self, depth: int) -> Condition:
        token = self._token
        if depth > DEPTH_MAX:
            self._fail(f"parentheses and NOTs are more than {DEPTH_MAX} deep: write it flatter", token)
        if self._took("NOT"):
            return negated(self._not(depth + 1))
        if self._took("("):
            inner = self._or(depth + 1)
            self._want(")", f"for the ( at character {token.position}")
            return inner
        return self._condition()

    def _condition(self) -> Condition:
        self._count(self._token)
        if self._took("EXISTS"):
            token = self._take()
            if token.kind not in ("name", "quoted"):
                self._fail("want the name of a property behind EXISTS", token)
            text = self._named(token).text
            assert text is not None
            return present(text, wanted=True)
        value = self._value()
        if self._token.kind == "sign" and self._token.text in COMPARISONS:
            sign = self._take().text
            return self._comparison(value, sign, self._value())
        if self._took("IS"):
            wanted = self._took("NOT")
            self._want("NULL", "behind IS: IS NULL or IS NOT NULL")
            found = value.text or value.number
            if found is None or value.literal is not None:
                self._fail("only a property, or $type, $region, $id, $size, may be NULL or not", value.token)
            return present(found, wanted=wanted)
        negate = self._took("NOT")
        condition = self._ranged(value)
        return negated(condition) if negate else condition

    def _ranged(self, value: _Value) -> Condition:
        if self._took("BETWEEN"):
            low = self._value()
            self._want("AND", "between the two ends of BETWEEN")
            high = self._value()
            return both([self._comparison(value, ">=", low), self._comparison(value, "<=", high)])
        if self._took("IN"):
            return self._in(value)
        if self._took("LIKE"):
            return self._pattern(value)
        if self._took("STARTS", "WITH"):
            prefix = self._value()
            if not isinstance(prefix.literal, bytes):
                self._fail("want a text behind STARTS WITH, between '", prefix.token)
            return begins(self._as_text(value, "STARTS WITH"), prefix.literal)
        self._fail(
            "want a comparison behind a value: = <> < <= > >=, BETWEEN, IN, LIKE, STARTS WITH, IS NULL; for a property "
            "that is true or false write name = TRUE"
        )

    def _comparison(self, left: _Value, sign: str, right: _Value) -> Condition:
        if left.literal is not None and right.literal is not None:
            self._fail("both sides are always the same: compare with a property", left.token)
        if left.literal is not None:
            turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
            return self._comparison(right, turned, left)
        if right.literal is None:
            if (left.text is None or right.text is None) and (left.number is None or right.number is None):
                self._fail("one side is a number and the other is a text, always", right.token)
            return compared(left.source, sign, right.source, self._steps)
        if isinstance(right.literal, bytes):
            return compared_with(self._as_text(left, "a text", right.token), sign, right.literal)
        return compared_with(self._as_number(left, right.token), sign, right.literal)

    def _as_text(self, value: _Value, what: str, token: _Token | None = None) -> TextOf:
        if value.text is None or value.literal is not None:
            self._fail(f"{value.token} is no text: {what} needs a property, $type or $region", token or value.token)
        return value.text

    def _as_number(self, value: _Value, token: _Token) -> NumberOf:
        if value.number is None or value.literal is not None:
            self._fail(f"{value.token} is no number: put what it is compared with between '", token)
        return value.number

    def _in(self, value: _Value) -> Condition:
        self._want("(", "behind IN")
        texts: set[bytes] = set()
        numbers: set[Number] = set()
        while True:
            item = self._value()
            self._count(item.token)
            if item.literal is None:
                self._fail("want texts or numbers in the list of IN; compare properties by = and OR", item.token)
            if isinstance(item.literal, bytes):
                texts.add(item.literal)
            else:
                numbers.add(item.literal)
            if texts and numbers:
                self._fail("want all texts or all numbers in the list of IN: join two INs by OR", item.token)
            if self._took(")"):
                break
            self._want(",", "or ) behind an item of IN")
        if texts:
            return one_of_texts(self._as_text(value, "IN with texts"), frozenset(texts))
        return one_of_numbers(self._as_number(value, value.token), frozenset(numbers))

    def _pattern(self, value: _Value) -> Condition:
        token = self._take()
        if token.kind != "text":
            self._fail("want a pattern behind LIKE, between '", token)
        pattern, escape = _unquoted(token.text), None
        if len(pattern) > PATTERN_SIZE_MAX:
            self._fail(f"the pattern has more than {PATTERN_SIZE_MAX} characters: shorten it", token)
        if self._took("ESCAPE"):
            escaping = self._take()
            escape = _unquoted(escaping.text) if escaping.kind == "text" else ""
            if len(escape) != 1:
                self._fail("want one character behind ESCAPE, between '", escaping)
        parts: list[object] = []
        characters = iter(pattern)
        for char in characters:
            if char == escape:
                following = next(characters, "")
                if following not in ("%", "_", escape):
                    self._fail(f"in the pattern, {escape} must stand before %, _ or itself", token)
                parts.append(following)
            else:
                parts.append(ANY if char == "%" else ONE if char == "_" else char)
        return like(self._as_text(value, "LIKE"), parts, self._steps)

    # --- values

    def _value(self) -> _Value:
        token = self._take()
        match token.kind:
            case "name" | "quoted":
                return self._named(token)
            case "fact":
                if token.text not in FACTS:
                    self._fail(
                        f'want one of {", ".join(FACTS)}; a property whose name begins with $ goes between "', token
                    )
                return _Value(token, fact_source(token.text, self._steps))
            case "text":
                return _Value(token, literal=_unquoted(token.text).encode())
            case "bytes":
                try:
                    return _Value(token, literal=bytes.fromhex(token.text[2:-1]))
                except ValueError:
                    self._fail("want pairs of hexadecimal digits, as in X'00ff'", token)
            case "number":
                return self._number(token, token.text)
            case "word" if token.text in ("TRUE", "FALSE"):
                return _Value(token, literal=token.text.lower().encode())
            case "sign" if token.text in "+-":
                if self._token.kind != "number":
                    self._fail("there is no arithmetic here, only numbers with a sign", token)
                return self._number(token, token.text + self._take().text)
        if token.kind == "word":
            self._fail('want a property or a literal; a property of this name goes between "', token)
        self._fail("want a property, or a text between ', or a number", token)

    def _number(self, token: _Token, text: str) -> _Value:
        found = number_of(text.encode(), self._steps) if len(text) <= NUMBER_SIZE_MAX else None
        if found is None or isinstance(found, Decimal) or found in (math.inf, -math.inf):
            self._fail(f"this number is too large, or has more than {NUMBER_SIZE_MAX} characters", token)
        return _Value(token, literal=found)

    def _named(self, token: _Token) -> _Value:
        name = token.text if token.kind == "name" else token.text[1:-1].replace('""', '"')
        self._names.add(name)
        return _Value(token, property_source(name, self._steps))


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
