"""Kinds of values that several formats have, and which of their words belong to a stream only, or to none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from bookkeeper.config.keys import Kind, integer
from bookkeeper.errors import ConfigurationError

T = TypeVar("T")

BOOKIES_MAX = 1000


def or_none(kind: Kind[T], unit: str | None = None) -> Kind[T | None]:
    """The same; None where nothing is given. unit: in words, where they are others."""
    return Kind(kind.unit if unit is None else unit, lambda value: kind.parse(value) if value else None)


def quorum() -> Kind[int]:
    """A number of bookies; 0 where none is given."""
    inner = integer("bookies", 1, BOOKIES_MAX)
    return Kind(inner.unit, lambda value: inner.parse(value) if value else 0)


def check_use(
    *, stream: bool, of_batches: Mapping[str, object], of_streams: Mapping[str, object], where: str = ""
) -> None:
    """Raise ConfigurationError for words that have no meaning in a stream, or none but in a stream.

    of_batches, of_streams: such words, and what was given for them (None, "": nothing). where: the format, to be named.
    """
    wrong = [name for name, value in (of_batches if stream else of_streams).items() if value not in (None, "")]
    if wrong:
        what, other = ("a stream", "a batch read") if stream else ("a batch read", "a stream")
        place = f"format {where}: " if where else ""
        raise ConfigurationError(f"{place}{', '.join(wrong)} belongs to {other}; leave it out of {what}")
