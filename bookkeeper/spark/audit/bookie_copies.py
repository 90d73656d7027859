"""Copies read through the bookies that should have them: each is asked for its own, and its answers are evidence.

    answer                                    evidence
    an entry whose digest is right            good, with the checksum and size of its payload
    an entry whose digest is wrong            bad
    no such entry, no such ledger             missing
    an I/O error                              bad: the bookie cannot read it
    anything else, or nothing                 unknown (I-30)

Asked are plain reads that fence nothing, in batches where bookies know them. Thread: reactor. Bounded: ASKED_MAX
entries of one bookie at a time, and what `BookiePaces` allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c
from twisted.internet.defer import Deferred

from bookkeeper.client.metadata_update import pause
from bookkeeper.client.read import batch as batch_read
from bookkeeper.errors import BookieUnavailable
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, Status
from bookkeeper.rate_limit import Pace
from bookkeeper.spark.audit.evidence import BAD, MISSING, UNKNOWN, Evidence

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest

ASKED_MAX = 1000

DAMAGED = "its digest is wrong"


class BookiePaces:
    """How fast each bookie is read. bytes_per_s: payload of each of them, 0 for no limit."""

    def __init__(self, bytes_per_s: float = 0) -> None:
        self._bytes_per_s = bytes_per_s
        self._paces: dict[str, Pace] = {}

    def delay_s(self, bookie: str, size: int, now: float) -> float:
        """`size` bytes of it were read: how long to leave it alone."""
        if self._bytes_per_s <= 0:
            return 0.0
        return self._paces.setdefault(bookie, Pace(self._bytes_per_s)).delay_s(size, now)


async def read_copies(
    context: ClientContext,
    digest: Digest,
    evidence: Evidence,
    entry_ids: Sequence[int],
    *,
    batches: bool,
    paces: BookiePaces,
) -> None:
    """Ask the bookie of `evidence` for these entries of its chunk, ascending; add what it says.

    batches: one answer may hold many that follow each other.
    """
    for start in range(0, len(entry_ids), ASKED_MAX):
        part = entry_ids[start : start + ASKED_MAX]
        asked = _Asked(digest, evidence, len(part))
        bookie_id = BookieId(evidence.bookie)
        if batches:
            batch_read.ask(context, asked, evidence.ledger_id, bookie_id, part, batch_read.BATCH_BYTES)
        else:
            context.channel(bookie_id).read(asked, evidence.ledger_id, part)
        await asked.answered
        delay_s = paces.delay_s(evidence.bookie, asked.size, context.clock.seconds())
        if delay_s > 0:
            await pause(context.clock, delay_s)


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
        digest, ledger_id = self._digest, self._evidence.ledger_id
        run = digest.verify_run(ledger_id, entry_ids, bodies) if isinstance(entry_ids, range) else None
        if run is not None:
            good = run.payloads
        else:
            pairs = list(zip(entry_ids, digest.verify(ledger_id, entry_ids, bodies), strict=True))
            good = [payload for _, payload in pairs if payload is not None]
            bad = [entry_id for entry_id, payload in pairs if payload is None]
            if bad:
                self._evidence.add(BAD, bad, DAMAGED)
                entry_ids = [entry_id for entry_id, payload in pairs if payload is not None]
        self._evidence.add_good(entry_ids, list(map(crc32c, good)), list(map(len, good)))
        self.size += sum(map(len, good))
        self._count(len(bodies))

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
