"""Entry bodies of one size as they lie one behind the other: looked at together, cut apart only when asked.

    ... | size i32 | body | size i32 | body | ...      the same size everywhere
    a column: the same bytes of every body

So they lie in an answer to a batch read, and so in an entry log: a bookie sends what the log has as it is. Whoever
verifies them takes columns, which loops in C and makes no object that is not needed; to everybody else they are a
sequence of bytes. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, overload

_SIZE = struct.Struct(">i")

BODY_SIZE_MAX = 65536
"""Larger entries gain nothing by being looked at together."""

ROWS_TOGETHER = 64
"""Bodies unpacked by one call: half the time of one after the other."""


class PackedBodies(Sequence[bytes]):
    """The bodies in data[start:stop], each `body_size` bytes behind its size. All of `data` lives as long as this."""

    __slots__ = ("_cut", "_data", "_start", "_stop", "body_size")

    def __init__(self, data: bytes, start: int, stop: int, body_size: int) -> None:
        assert (stop - start) % (_SIZE.size + body_size) == 0, "whole bodies"
        self._data, self._start, self._stop, self.body_size = data, start, stop, body_size
        self._cut: tuple[bytes, ...] | None = None

    def columns(self, fields: str) -> list[list[Any]]:
        """The bodies as columns, one for each of `fields` (as of `struct`, big-endian), which make up a body.

        There must be a body, and a field.
        """
        view, one = self.framed, _rows(fields, 1)
        columns: list[list[Any]] = [[] for _ in one.unpack_from(view)]
        many = len(self) // ROWS_TOGETHER
        if many:
            rows = _rows(fields, ROWS_TOGETHER)
            for block in rows.iter_unpack(view[: many * rows.size]):
                for at, column in enumerate(columns):
                    column += block[at :: len(columns)]
            view = view[many * rows.size :]
        if view:
            for column, values in zip(columns, zip(*one.iter_unpack(view), strict=True), strict=True):
                column += values
        return columns

    @property
    def framed(self) -> memoryview:
        """Each body behind its size, uncopied."""
        return memoryview(self._data)[self._start : self._stop]

    def cut(self) -> tuple[bytes, ...]:
        """Every body for itself."""
        if self._cut is None:
            self._cut = tuple(self.columns(f"{self.body_size}s")[0]) if len(self) else ()
        return self._cut

    def __len__(self) -> int:
        return (self._stop - self._start) // (_SIZE.size + self.body_size)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            first, stop, step = place.indices(len(self))
            if step == 1:
                whole = _SIZE.size + self.body_size
                stop = max(first, stop)
                return PackedBodies(self._data, self._start + first * whole, self._start + stop * whole, self.body_size)
        return self.cut()[place]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.cut())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.cut() == tuple(other)

    def __hash__(self) -> int:
        return hash(self.cut())

    def __repr__(self) -> str:
        return f"PackedBodies({self.cut()!r})"


class BodyPieces(Sequence[bytes]):
    """Bodies in the pieces in which they were found, some packed."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[Sequence[bytes]]) -> None:
        self._pieces = pieces

    @property
    def pieces(self) -> Sequence[Sequence[bytes]]:
        """In order."""
        return self._pieces

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        return tuple(self)[place]

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self._pieces)


def framed(bodies: Sequence[bytes]) -> list[bytes | memoryview]:
    """Each body behind its size, in parts to be joined; what is packed is one part, uncopied."""
    if isinstance(bodies, PackedBodies):
        return [bodies.framed]
    if isinstance(bodies, BodyPieces):
        return [part for piece in bodies.pieces for part in framed(piece)]
    sizes = list(map(len, bodies))
    if sizes and sizes.count(sizes[0]) == len(sizes):
        return [_SIZE.pack(sizes[0]).join((b"", *bodies))]  # the same, a third of the time
    return [part for size, body in zip(sizes, bodies, strict=True) for part in (_SIZE.pack(size), body)]


def packed(data: bytes, start: int, stop: int) -> PackedBodies | None:
    """What lies in data[start:stop], where that is bodies of one size and nothing else; else None."""
    if stop - start <= _SIZE.size:
        return None
    (body_size,) = _SIZE.unpack_from(data, start)
    if not 0 < body_size <= BODY_SIZE_MAX:
        return None
    whole = _SIZE.size + body_size
    count, rest = divmod(stop - start, whole)
    if rest:
        return None
    for at in range(start, start + _SIZE.size):  # each byte of the sizes, of all of them
        if data[at:stop:whole] != data[at : at + 1] * count:
            return None
    return PackedBodies(data, start, stop, body_size)


@lru_cache(maxsize=128)
def _rows(fields: str, count: int) -> struct.Struct:
    return struct.Struct(">" + f"4x{fields}" * count)
