"""Copies read through the bookies that should have them: each is asked for its own, and its answers are evidence.

    answer                                    evidence
    an entry whose digest is right            good, with the checksum and size of its payload
    an entry whose digest is wrong            bad
    no such entry, no such ledger             missing
    an I/O error                              bad: the bookie cannot read it
    anything else, or nothing                 unknown (I-30)

Asked are plain reads that fence nothing, in batches where bookies know them. Thread: reactor. Bounded: ASKED_MAX
entries of one bookie at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c
from twisted.internet.defer import Deferred

from bookkeeper.client import batch_read
from bookkeeper.errors import BookieUnavailable
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, Status
from bookkeeper.spark.audit.evidence import BAD, MISSING, UNKNOWN, Evidence

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest

ASKED_MAX = 1000

DAMAGED = "its digest is wrong"


async def read_copies(
    context: ClientContext, digest: Digest, evidence: Evidence, entry_ids: Sequence[int], *, batches: bool
) -> int:
    """Ask the bookie of `evidence` for these entries of its chunk, ascending; add what it says. Payload bytes read.

    batches: they follow each other, so that one answer may hold many.
    """
    size = 0
    for start in range(0, len(entry_ids), ASKED_MAX):
        part = entry_ids[start : start + ASKED_MAX]
        asked = _Asked(digest, evidence, len(part))
        bookie_id = BookieId(evidence.bookie)
        if batches:
            batch_read.ask(context, asked, evidence.ledger_id, bookie_id, part, batch_read.BATCH_BYTES)
        else:
            context.channel(bookie_id).read(asked, evidence.ledger_id, part)
        await asked.answered
        size += asked.size
    return size


class _Asked:
    """Entries that one bookie was asked for at once."""

    def __init__(self, digest: Digest, evidence: Evidence, count: int) -> None:
        self.answered: Deferred[None] = Deferred()
        self.over = False
        self.size = 0
        self._digest, self._evidence, self._left = digest, evidence, count

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """Copies as it has them."""
        payloads = self._digest.verify(self._evidence.ledger_id, entry_ids, bodies)
        good = [payload for payload in payloads if payload is not None]
        if len(good) == len(payloads):
            self._evidence.add_good(entry_ids, list(map(crc32c, good)), list(map(len, good)))
        else:
            pairs = list(zip(entry_ids, payloads, strict=True))
            self._evidence.add(BAD, [entry_id for entry_id, payload in pairs if payload is None], DAMAGED)
            fine = [entry_id for entry_id, payload in pairs if payload is not None]
            self._evidence.add_good(fine, list(map(crc32c, good)), list(map(len, good)))
        self.size += sum(map(len, good))
        self._count(len(entry_ids))

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """A verdict on one."""
        self.on_verdict(bookie_id, [entry_id], status)

    def on_verdict(self, bookie_id: BookieId, entry_ids: list[int], status: Status) -> None:
        """A verdict on several."""
        if status in EXPLICIT_NEGATIVES:
            self._evidence.add(MISSING, entry_ids)
        elif status is Status.IO_ERROR:
            self._evidence.add(BAD, entry_ids, "the bookie cannot read it")
        else:
            self._evidence.add(UNKNOWN, entry_ids, f"it answers {status.name}")
        self._count(len(entry_ids))

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """No verdict."""
        self._evidence.add(UNKNOWN, entry_ids, str(error))
        self._count(len(entry_ids))

    def _count(self, answered: int) -> None:
        self._left -= answered
        if self._left <= 0 and not self.over:
            self.over = True
            self.answered.callback(None)
