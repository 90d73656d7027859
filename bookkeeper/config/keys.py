"""What a configuration key is, and how its text becomes a value.

A settings class declares each key once, as the default of the field that holds its value:

    flush_interval_s: float = key("flushInterval", seconds("ms", 1, DAY_MS), "10000", FLUSH, "Longest time between ...")

`keys_of` reads the table back. Parsers raise ValueError with a message that completes "key=value: ...".
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar, cast

T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
H = TypeVar("H", bound=Hashable)

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
INT32_MAX = 2**31 - 1
DAY_S = 86_400

_PER_SECOND = {"ms": 1000.0, "s": 1.0}
_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How the text of a value is read, and what the text means."""

    unit: str
    """Unit and range in words, for the .conf file and `config show`."""
    parse: Callable[[str], T]


@dataclass(frozen=True, slots=True)
class Key:
    """One row of a settings table."""

    name: str
    """Upstream's spelling, or our own where upstream has no such key."""
    attribute: str
    kind: Kind[object]
    default: str
    """As it would stand in the file; "" means not set."""
    group: str
    meaning: str
    differs: str
    """Why the default departs from Apache's; "" where it does not."""
    ours: bool
    """True for a key Apache does not have."""
    secret: bool
    """True if the value must not be shown."""


def integer(unit: str, low: int, high: int, *, scale: int = 1, multiple_of: int = 1) -> Kind[int]:
    """A whole number low..high inclusive, multiplied by `scale` (a key in MB becomes bytes)."""

    def parse(text: str) -> int:
        try:
            value = int(text, 10)
        except ValueError:
            raise ValueError(f"not a whole number (want {low}..{high} {unit})") from None
        if not low <= value <= high:
            raise ValueError(f"out of range (want {low}..{high} {unit})")
        if value % multiple_of:
            raise ValueError(f"not a multiple of {multiple_of} {unit}")
        return value * scale

    return Kind(f"{unit}, {low}..{high}" if unit else f"{low}..{high}", parse)


def seconds(unit: str, low: float, high: float, *, off: tuple[str, ...] = ()) -> Kind[float]:
    """A duration written in `unit` ("ms" or "s"), returned in seconds. A text in `off` means "none": 0.0."""

    def parse(text: str) -> float:
        if text in off:
            return 0.0
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"not a number (want {low:.15g}..{high:.15g} {unit})") from None
        if not low <= value <= high:  # false for nan as well
            raise ValueError(f"out of range (want {low:.15g}..{high:.15g} {unit})")
        return value / _PER_SECOND[unit]

    words = f"{unit}, {low:.15g}..{high:.15g}"
    return Kind(f"{words}; {' or '.join(off)} = off" if off else words, parse)


def ratio(low: float, high: float, *, empty: float | None = None) -> Kind[float]:
    """A number low..high; `empty` is the value of a key that is not set."""

    def parse(text: str) -> float:
        if not text and empty is not None:
            return empty
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"not a number (want {low:g}..{high:g})") from None
        if not low <= value <= high:
            raise ValueError(f"out of range (want {low:g}..{high:g})")
        return value

    return Kind(f"ratio, {low:g}..{high:g}", parse)


def boolean() -> Kind[bool]:
    """true or false; yes, no, on, off are read too, as upstream does."""

    def parse(text: str) -> bool:
        word = text.lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise ValueError("neither true nor false")

    return Kind("true or false", parse)


def text_or_none(unit: str, check: Callable[[str], str] | None = None) -> Kind[str | None]:
    """Text that may be absent. `check` returns the value to keep or raises ValueError."""

    def parse(text: str) -> str | None:
        if not text:
            return None
        return text if check is None else check(text)

    return Kind(unit, parse)


def text(unit: str, check: Callable[[str], str] | None = None) -> Kind[str]:
    """Text; "" when not set, and then unchecked."""

    def parse(value: str) -> str:
        return value if check is None or not value else check(value)

    return Kind(unit, parse)


def secret_bytes(unit: str) -> Kind[bytes]:
    """Text as UTF-8 bytes."""
    return Kind(unit, lambda value: value.encode())


def directories(*, may_be_empty: bool) -> Kind[tuple[Path, ...]]:
    """Directories separated by commas, made absolute against the working directory."""

    def parse(value: str) -> tuple[Path, ...]:
        parts = [part.strip() for part in value.split(",")] if value else []
        if not parts and not may_be_empty:
            raise ValueError("names no directory")
        if not all(parts):
            raise ValueError("has an empty name between commas")
        return tuple(Path(part).absolute() for part in parts)

    return Kind("directories, comma-separated", parse)


def choice(values: dict[str, E], words: str) -> Kind[E]:
    """One of a few names; `values` maps every accepted spelling in lower case."""

    def parse(value: str) -> E:
        try:
            return values[value.lower()]
        except KeyError:
            raise ValueError(f"unknown value (want {words})") from None

    return Kind(words, parse)


def key(
    name: str,
    kind: Kind[T],
    default: str,
    group: str,
    meaning: str,
    *,
    differs: str = "",
    ours: bool = False,
    secret: bool = False,
) -> T:
    """Declare a key as a dataclass field; its value by default is `default`, parsed."""
    row = Key(name, "", cast("Kind[object]", kind), default, group, meaning, differs, ours, secret)
    return dataclasses.field(default=kind.parse(default), repr=not secret, metadata={"key": row})


_tables: dict[type, Mapping[str, Key]] = {}


def keys_of(settings: type) -> Mapping[str, Key]:
    """Return the table of a settings class: key name -> row, in order of declaration."""
    known = _tables.get(settings)
    if known is not None:
        return known
    rows: dict[str, Key] = {}
    for field in dataclasses.fields(settings):
        row = field.metadata.get("key")
        if row is not None:
            rows[row.name] = dataclasses.replace(row, attribute=field.name)
    _tables[settings] = MappingProxyType(rows)
    return _tables[settings]


def repeated(values: Iterable[H]) -> list[H]:
    """Return the values that occur more than once, each once. Linear: a line of a file may have thousands of values."""
    seen: set[H] = set()
    found: dict[H, None] = {}
    for value in values:
        if value in seen:
            found[value] = None
        seen.add(value)
    return list(found)
