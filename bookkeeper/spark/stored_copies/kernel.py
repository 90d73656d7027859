"""The inner loop: copies in a window of a file, verified a block at a time. Pure.

    window       bytes of an entry log from `base` on; a copy at offset o has its size at o - 4 - base

A block is decided as a whole, with calls that loop in C: nearly all blocks are good from end to end, and many are
entries of one size that follow each other, which lie in the file as in an answer to a batch read. Of one that is not
good, the entries that are not good for certain come back, and whoever reads the file looks at each by itself.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from crc32c import crc32c

from bookkeeper.model import ENTRY_HEADER_SIZE
from bookkeeper.spark.stored_copies.columns import are_steps
from bookkeeper.spark.stored_copies.model import CopyFault, GoodCopies, OtherLedger
from bookkeeper.wire.digest import Digest, length_of
from bookkeeper.wire.packed_bodies import packed

BLOCK_ENTRIES = 1024
"""Copies decided at once."""

_SIZE = struct.Struct(">i")
_SIZE_AND_LENGTH = struct.Struct(">i24xq")


class LedgerCheck:
    """Verifies the copies of one ledger and collects the good ones."""

    __slots__ = ("_digest", "good")

    def __init__(self, ledger_id: int, digest: Digest) -> None:
        self.good = GoodCopies(ledger_id)
        self._digest = digest

    def take_window(self, window: bytes, base: int, entry_ids: Sequence[int], offsets: Sequence[int]) -> list[int]:
        """Take the copies whose bodies begin at these offsets; the indexes of those that are not good in this window.

        base: offset of window[0] in the file; every offset is at least base + 4.
        """
        left: list[int] = []
        for start in range(0, len(offsets), BLOCK_ENTRIES):
            some = offsets[start : start + BLOCK_ENTRIES]
            left += [start + at for at in self._take_block(window, base, entry_ids[start : start + len(some)], some)]
        return left

    def _take_run(self, window: bytes, base: int, entry_ids: Sequence[int], offsets: Sequence[int]) -> bool:
        """Take entries of one size that lie one behind the other, as a flush writes them.

        False, and nothing done, where it is not that simple, or one of them is not good in this window.
        """
        count, first = len(offsets), offsets[0]
        step = offsets[1] - first if count > 1 else 0
        start = first - _SIZE.size - base
        stop = start + step * count
        if step <= _SIZE.size + self._digest.overhead or not 0 <= start < stop <= len(window):
            return False
        if not are_steps(offsets, step):
            return False
        bodies = packed(window, start, stop)
        if bodies is None or bodies.body_size != step - _SIZE.size:
            return False
        run = self._digest.verify_run(self.good.ledger_id, entry_ids, bodies)
        if run is None:
            return False
        good = self.good
        good.entry_ids.extend(entry_ids)
        good.payload_crcs.extend(array("I", list(map(crc32c, run.payloads))))
        good.payload_sizes.extend(array("I", [bodies.body_size - self._digest.overhead]) * count)
        good.lengths.extend(run.lengths)
        return True

    def _take_block(self, window: bytes, base: int, entry_ids: Sequence[int], offsets: Sequence[int]) -> Sequence[int]:
        if self._take_run(window, base, entry_ids, offsets):
            return ()
        unpack = _SIZE_AND_LENGTH.unpack_from
        shift = base + 4
        try:
            heads = [unpack(window, offset - shift) for offset in offsets]
        except struct.error:  # a head runs past the window
            return range(len(offsets))
        sizes = [size for size, _ in heads]
        # Copies do not overlap: sizes that add up to more are damaged, and slices of them would fill the memory.
        if min(sizes) < ENTRY_HEADER_SIZE or sum(sizes) > 2 * len(window):
            return range(len(offsets))
        bodies = [window[offset - base : offset - base + size] for offset, size in zip(offsets, sizes, strict=True)]
        payloads = self._digest.verify(self.good.ledger_id, entry_ids, bodies)
        if None not in payloads and sum(map(len, bodies)) == sum(sizes):
            good = [payload for payload in payloads if payload is not None]
            self._append(entry_ids, good, [length for _, length in heads])
            return ()
        left: list[int] = []
        for at, (payload, body, (size, length)) in enumerate(zip(payloads, bodies, heads, strict=True)):
            if payload is None or len(body) < size:
                left.append(at)
            else:
                self._append((entry_ids[at],), (payload,), (length,))
        return left

    def take_bodies(self, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[int]:
        """Take whole bodies; the indexes of those that are not good."""
        payloads = self._digest.verify(self.good.ledger_id, entry_ids, bodies)
        if None not in payloads:
            good = [payload for payload in payloads if payload is not None]
            self._append(entry_ids, good, list(map(length_of, bodies)))
            return []
        bad = []
        for at, (entry_id, body, payload) in enumerate(zip(entry_ids, bodies, payloads, strict=True)):
            if payload is None:
                bad.append(at)
            else:
                self._append((entry_id,), (payload,), (length_of(body),))
        return bad

    def why_bad(self, entry_id: int, body: bytes) -> tuple[CopyFault, str]:
        """What is wrong with a whole body that was not taken."""
        ledger_id = self.good.ledger_id
        found = struct.unpack_from(">qq", body) if len(body) >= 16 else None
        if found is not None and found != (ledger_id, entry_id):
            return CopyFault.OTHER_ENTRY, f"entry {found[1]} of ledger {found[0]} is there"
        if len(body) < self._digest.overhead:
            return CopyFault.LENGTH, f"{len(body)} bytes; {self._digest.overhead} are header and digest alone"
        return CopyFault.DIGEST, f"the {self._digest.type.name} digest of its {len(body)} bytes is wrong"

    def _append(self, entry_ids: Sequence[int], payloads: Sequence[bytes], lengths: Sequence[int]) -> None:
        good = self.good
        good.entry_ids.extend(entry_ids)
        good.payload_crcs.extend(map(crc32c, payloads))
        good.payload_sizes.extend(map(len, payloads))
        good.lengths.extend(lengths)


def measure(window: bytes, base: int, offsets: Sequence[int], other: OtherLedger) -> None:
    """Count copies that nobody asked for. One whose size is not in the window, or is impossible, has no bytes.

    Any offset: a damaged index names some where no body can be, as below 4.
    """
    end = len(window) - _SIZE.size
    shift = base + _SIZE.size
    unpack = _SIZE.unpack_from
    other.entry_count += len(offsets)
    sizes = [unpack(window, offset - shift)[0] for offset in offsets if 0 <= offset - shift <= end]
    other.byte_count += sum(size for size in sizes if size > 0)
