"""Inputs for a decoder: valid inputs with changes at some places. A seed and valid inputs give a reproducible sequence.

The changes know how formats are built in general, but not the format that they change:

    bytes       flip a bit, set a byte, insert, remove, cut off
    structure   duplicate or exchange parts, splice two inputs, copy a part many times
    lengths     overwrite 1, 2, 4 or 8 bytes with a boundary (0, -1, the size of the input, the largest), or a varint
    text        replace a decimal number (up to 4400 digits), insert a token of the format, or bytes that are not UTF-8
    depth       repeat an opening token thousands of times
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

SIZE_MAX = 64 * 1024
"""Usual maximum of bytes in an input. Deep nesting may add DEPTH_MAX tokens."""

DEPTH_MAX = 20_000
CHANGES_MAX = 4
KEPT_MAX = 64
"""Accepted inputs that are kept as a base for later ones."""

_NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"00",
    b"2147483648",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
)
_LONG_NUMBERS = (b"9" * 400, b"9" * 4400, b"1e9999", b"NaN", b"0x7f", b"-0", "\u0661\u00b2".encode())
_NOT_TEXT = (b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00", b"\xef\xbf\xbe")
_VARINTS = (b"\x00", b"\x7f", b"\x80\x01", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 10 + b"\x01")
_DIGITS = re.compile(rb"[0-9]+")


class Mutator:
    """A sequence of inputs. seeds: valid inputs. tokens: parts of the format. openers: tokens that may nest."""

    def __init__(
        self,
        rng: random.Random,
        seeds: Sequence[bytes],
        *,
        tokens: Sequence[bytes] = (),
        openers: Sequence[bytes] = (),
    ) -> None:
        self._rng = rng
        self._seeds = list(seeds)
        self._kept: list[bytes] = []
        self._tokens = list(tokens)
        self._openers = list(openers)
        self._changes = [
            *(self._flip, self._flip, self._set, self._set, self._insert, self._remove, self._cut),
            *(self._duplicate, self._exchange, self._splice, self._length, self._length, self._varint),
            *(self._number, self._not_text),
            *([self._token] * 3 if self._tokens else []),
        ]

    def keep(self, data: bytes) -> None:
        """Use this input, which the decoder accepted, as a base for later ones."""
        if len(data) > SIZE_MAX:
            return
        if len(self._kept) < KEPT_MAX:
            self._kept.append(data)
        else:
            self._kept[self._rng.randrange(KEPT_MAX)] = data

    def next(self) -> bytes:
        """Return the next input."""
        rng = self._rng
        pool = self._kept if self._kept and rng.random() < 0.3 else self._seeds
        data = bytearray(pool[int(rng.random() * len(pool))])
        for _ in range(1 + int(rng.random() * CHANGES_MAX)):
            self._changes[int(rng.random() * len(self._changes))](data)
        if rng.random() < 0.005:
            self._repeat(data)
        elif self._openers and rng.random() < 0.002:
            opener = rng.choice(self._openers)
            data[self._at(data) : self._at(data)] = opener * rng.choice((10, 200, 1500, DEPTH_MAX))
            return bytes(data)
        return bytes(data[:SIZE_MAX])

    def _at(self, data: bytearray) -> int:
        return int(self._rng.random() * (len(data) + 1))

    def _part(self, data: bytearray) -> tuple[int, int]:
        start = self._at(data)
        return start, start + int(self._rng.random() ** 2 * min(len(data) - start, 200)) + 1

    def _flip(self, data: bytearray) -> None:
        if data:
            data[int(self._rng.random() * len(data))] ^= 1 << int(self._rng.random() * 8)

    def _set(self, data: bytearray) -> None:
        if data:
            value = self._rng.choice((0, 1, 0x7F, 0x80, 0xFF, int(self._rng.random() * 256)))
            data[int(self._rng.random() * len(data))] = value

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self._rng.randbytes(1 + int(self._rng.random() ** 3 * 40))

    def _remove(self, data: bytearray) -> None:
        start, end = self._part(data)
        del data[start:end]

    def _cut(self, data: bytearray) -> None:
        del data[self._at(data) :]

    def _duplicate(self, data: bytearray) -> None:
        start, end = self._part(data)
        at = self._at(data)
        data[at:at] = data[start:end]

    def _repeat(self, data: bytearray) -> None:
        start, end = self._part(data)
        part = bytes(data[start:end])
        data[end:end] = part * min(SIZE_MAX // max(1, len(part)), self._rng.choice((8, 300, SIZE_MAX)))

    def _exchange(self, data: bytearray) -> None:
        start, end = self._part(data)
        part = data[start:end]
        del data[start:end]
        at = self._at(data)
        data[at:at] = part

    def _splice(self, data: bytearray) -> None:
        other = self._rng.choice(self._seeds)
        data[self._at(data) :] = other[int(self._rng.random() * (len(other) + 1)) :]

    def _length(self, data: bytearray) -> None:
        rng = self._rng
        size = rng.choice((1, 2, 4, 4, 8))
        highest = (1 << 8 * size) - 1
        near = len(data) + rng.choice((-8, -4, -1, 0, 1, 4))
        value = rng.choice(
            (0, 1, highest, highest >> 1, (highest >> 1) + 1, near, int(rng.random() * 2 * (len(data) + 1)))
        )
        at = self._at(data)
        data[at : at + size] = (max(0, value) & highest).to_bytes(size, rng.choice(("big", "big", "little")))

    def _varint(self, data: bytearray) -> None:
        at = self._at(data)
        data[at : at + int(self._rng.random() * 3)] = self._rng.choice(_VARINTS)

    def _number(self, data: bytearray) -> None:
        found = _DIGITS.search(data, self._at(data)) or _DIGITS.search(data)
        if found is not None:
            data[found.start() : found.end()] = self._rng.choice(
                _LONG_NUMBERS if self._rng.random() < 0.2 else _NUMBERS
            )

    def _not_text(self, data: bytearray) -> None:
        at = self._at(data)
        data[at : at + int(self._rng.random() * 2)] = self._rng.choice(_NOT_TEXT)

    def _token(self, data: bytearray) -> None:
        at = self._at(data)
        data[at : at + int(self._rng.random() * 3)] = self._rng.choice(self._tokens)
