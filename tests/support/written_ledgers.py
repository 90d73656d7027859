"""Ledgers that a client wrote to real bookies, and what the copies of their entries must be in the bookies' files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

import crc32c

import bookkeeper.blocking
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.model import DigestType
from bookkeeper.spark.stored_copies import LedgerToVerify, named_directories, open_bookie
from tests.support.cluster import with_long_timeouts
from tests.support.stored_copies import Verdict, flattened, run_all

PASSWORD = b"pass-word"
BATCH = 50


class WrittenLedgers:
    """Ledgers of each digest."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._rng = random.Random(3)
        self.asked: dict[int, LedgerToVerify] = {}
        self.payloads: dict[int, list[bytes]] = {}

    def write(self, count: int, *, size_max: int = 2000, quorum: tuple[int, int] = (3, 2)) -> None:
        """One more ledger of each digest, entries of all of them mixed. quorum: ensemble, and both others."""
        with bookkeeper.blocking.connect(self._uri, with_long_timeouts()) as client:
            ensemble, qw = quorum
            handles = [
                client.create(ensemble=ensemble, write_quorum=qw, ack_quorum=qw, digest=digest, password=PASSWORD)
                for digest in DigestType
            ]
            for handle, digest in zip(handles, DigestType, strict=True):
                self.asked[handle.id] = LedgerToVerify(handle.id, digest, PASSWORD)
                self.payloads[handle.id] = []
            for _ in range(0, count, BATCH):
                for handle in handles:
                    some = [self._rng.randbytes(self._rng.randrange(size_max)) for _ in range(BATCH)]
                    handle.append_many(some)
                    self.payloads[handle.id] += some
            for handle in handles:
                handle.close()

    def delete(self, ledger_ids: Sequence[int]) -> None:
        """Delete them."""
        with bookkeeper.blocking.connect(self._uri, with_long_timeouts()) as client:
            for ledger_id in ledger_ids:
                client.delete(ledger_id)
                del self.payloads[ledger_id], self.asked[ledger_id]

    def check(self) -> None:
        """A client reads all of it."""
        with bookkeeper.blocking.connect(self._uri, with_long_timeouts()) as client:
            for ledger_id, payloads in self.payloads.items():
                asked = self.asked[ledger_id]
                with client.open(ledger_id, digest=asked.digest_type, password=PASSWORD) as ledger:
                    assert [entry.payload for entry in ledger.entries()] == payloads

    @property
    def expected(self) -> dict[tuple[int, int], Verdict]:
        """Of each entry, what a good copy is."""
        return {
            (ledger_id, entry_id): ("good", crc32c.crc32c(payload), len(payload), length)
            for ledger_id, payloads in self.payloads.items()
            for entry_id, (payload, length) in enumerate(zip(payloads, accumulate(map(len, payloads)), strict=True))
        }

    def in_place(self, directory: str, bookie_id: str) -> dict[tuple[int, int], Verdict]:
        """What a bookie has that does not run. directory: any of its own."""
        fs = RealFileSystem()
        with open_bookie(fs, named_directories(fs, directory), bookie_id=bookie_id) as stored:
            plan, results = run_all(stored, self.asked)
        assert not plan.unknown
        return flattened(plan, results, [])
