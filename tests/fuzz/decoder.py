"""One line of the table of decoders, and the check of decoded values."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from typing import Any

from bookkeeper.errors import BookKeeperError

Check = Callable[[object], "str | None"]
"""Returns a description of what is wrong with a value, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A decoder of bytes from outside.

    name: also the name of its corpus folder. covers: functions that `seeds` reach, as module:qualified name. decode:
    decodes one input; its result is checked against the declared types. seeds: valid inputs, made by our encoders.
    refusals: errors that mean a refusal. result: the declared type of the result if it is no dataclass. sealed: puts
    right checksums into an input, so that the decoder reaches later changes. suite_inputs: inputs of one test run.
    """

    name: str
    covers: tuple[str, ...]
    decode: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    refusals: tuple[type[Exception], ...] = (BookKeeperError,)
    result: Any = object
    tokens: tuple[bytes, ...] = ()
    openers: tuple[bytes, ...] = ()
    sealed: Callable[[bytes], bytes] | None = None
    suite_inputs: int = 10_000


def text(data: bytes) -> str:
    """Return a text of these bytes for a text decoder. Bytes that are not UTF-8 become one character each."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def fault_of(value: object, hint: Any) -> str | None:
    """Return a description of the first part with another type than the declared one, or None."""
    return _check_of(hint)(value)


def _dynamic(value: object) -> str | None:
    """Check a value without a declared type: by its own type, if that declares the types of its parts."""
    kind = type(value)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _parts_of(kind)(value)
    if isinstance(value, list | tuple):
        return _first(_dynamic(each) for each in value)
    if isinstance(value, dict):
        return _first(_dynamic(each) for each in (*value, *value.values()))
    return None


def _first(faults: typing.Iterable[str | None]) -> str | None:
    return next((fault for fault in faults if fault is not None), None)


@cache
def _parts_of(kind: type) -> Check:
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):  # names that are imported only for type checkers
        return lambda value: None
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
    else:
        names = list(kind._fields)  # type: ignore[attr-defined]  # a NamedTuple
    checks = [(name, _check_of(hints[name])) for name in names if name in hints]

    def check(value: object) -> str | None:
        for name, one in checks:
            fault = one(getattr(value, name))
            if fault is not None:
                return f"{kind.__name__}.{name}: {fault}"
        return None

    return check


@cache
def _check_of(hint: Any) -> Check:
    if isinstance(hint, typing.NewType):
        return _check_of(hint.__supertype__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _check_of(arguments[0])
    if origin in (typing.Union, types.UnionType):
        checks = [_check_of(each) for each in arguments]
        return lambda value: None if any(one(value) is None for one in checks) else f"{value!r:.100} is no {hint}"
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return _items_check(tuple, _check_of(arguments[0]))
    if origin is tuple:
        parts = [_check_of(each) for each in arguments]
        return lambda value: (
            _first(one(each) for one, each in zip(parts, value, strict=True))
            if isinstance(value, tuple) and len(value) == len(parts)
            else f"{value!r:.100} is no {hint}"
        )
    if origin in (list, set, frozenset, Sequence, AbstractSet):
        return _items_check(origin, _check_of(arguments[0]))
    if origin in (dict, Mapping):
        key, one = _check_of(arguments[0]), _check_of(arguments[1])
        return lambda value: (
            _first(fault for name, each in value.items() for fault in (key(name), one(each)))
            if isinstance(value, Mapping)
            else f"{value!r:.100} is no mapping"
        )
    if hint is None or hint is type(None):
        return lambda value: None if value is None else f"{value!r:.100} is not None"
    if hint is float:
        return lambda value: None if type(value) in (float, int) else f"{value!r:.100} is no float"
    if hint in (int, str, bytes, bool):
        return lambda value: (
            None if type(value) is hint or _is_enum(value, hint) else f"{value!r:.100} is no {hint.__name__}"
        )
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        return lambda value: _dynamic(value) if isinstance(value, hint) else f"{value!r:.100} is no {hint.__name__}"
    return _dynamic


def _is_enum(value: object, hint: type) -> bool:
    return hint is not bool and isinstance(value, hint) and not isinstance(value, bool)


def _items_check(kind: Any, one: Check) -> Check:
    def check(value: object) -> str | None:
        if not isinstance(value, kind) or isinstance(value, str | bytes):
            return f"{value!r:.100} is no {kind.__name__}"
        return _first(map(one, value))

    return check
