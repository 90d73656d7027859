"""Copies verified: through bookies, and in place from the directories of one that does not run.

Of both the count is of copies. In place is measured with what it takes to plan it: the indexes are read each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bookkeeper.console.output import CommandFailed
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.model import ENTRY_HEADER_SIZE, DigestType
from bookkeeper.spark.audit.report import audit
from bookkeeper.spark.stored_copies import LedgerToVerify, Unit, named_directories, open_bookie
from bookkeeper.wire.digest import digest_of
from tests.benchmarks.spark.ground import LEDGERS, TASKS, Cell, Ground, Load

DIGEST = DigestType.CRC32C


def copy_size(size: int) -> int:
    """Bytes of a stored copy whose payload has `size`: header and digest are verified too."""
    return ENTRY_HEADER_SIZE + digest_of(DIGEST, b"").size + size


def _through_bookies(ground: Ground, size: int) -> Load:
    """One ledger of those that the size has: three copies of each entry."""
    options = {"ledgers": ground.ledgers[size][0], "minPartitions": TASKS}
    began = time.monotonic()
    found = audit(ground.spark, ground.uri, options=options)
    seconds = time.monotonic() - began
    ground.spark.catalog.clearCache()
    if not found.is_clean or found.entries != ground.rows[size] // LEDGERS:
        raise CommandFailed(f"the audit saw {found.entries} entries and found {dict(found.found)}")
    return Load(found.copies, seconds)


def _in_place(ground: Ground, size: int) -> Load:
    """All ledgers of the size, on one bookie."""
    assert ground.bookie is not None
    path, ledger_ids = str(ground.bookie), ground.ledgers[size]
    asked = {ledger_id: LedgerToVerify(ledger_id, DIGEST) for ledger_id in ledger_ids}
    began = time.monotonic()
    fs = RealFileSystem()
    with open_bookie(fs, named_directories(fs, path)) as bookie:
        plan = bookie.plan(only=ledger_ids)
    units = ground.spark.sparkContext.parallelize(plan.units, max(1, len(plan.units)))
    counts = units.mapPartitions(partial(verified, path, asked)).collect()
    seconds = time.monotonic() - began
    good, bad = (sum(column) for column in zip(*counts, strict=True))
    if (good, bad + len(plan.bad) + len(plan.unknown)) != (ground.rows[size], 0):
        raise CommandFailed(f"in place {good} copies of {ground.rows[size]} are good, {bad} ranges bad or unknown")
    return Load(good, seconds)


def verified(path: str, asked: Mapping[int, LedgerToVerify], units: Iterator[Unit]) -> Sequence[tuple[int, int]]:
    """In a task: good copies of each unit, and ranges that are bad or unknown."""
    fs = RealFileSystem()
    found = []
    with open_bookie(fs, named_directories(fs, path)) as bookie:
        for unit in units:
            result = bookie.verify(unit, asked)
            found.append((sum(map(len, result.good.values())), len(result.bad) + len(result.unknown)))
    return found


THROUGH_BOOKIES = "audit through bookies"
IN_PLACE = "audit in place"
AUDITS = (Cell(THROUGH_BOOKIES, _through_bookies), Cell(IN_PLACE, _in_place, in_place=True))
