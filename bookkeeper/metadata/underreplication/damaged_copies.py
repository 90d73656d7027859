"""U/badcopies: ledgers of which a bookie reported bad copies, each a note that is changed by version only (I-76).

Not Apache's. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataOutcomeUnknown, VersionConflict
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import LISTING_BATCH_MAX
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists
from bookkeeper.metadata.underreplication.damaged_copies_format import (
    BadCopies,
    BadRange,
    format_bad_copies,
    join_ranges,
    parse_bad_copies,
    without_ranges,
)
from bookkeeper.metadata.underreplication.format import leaf_name, ledger_of_leaf
from bookkeeper.model import LedgerId


class ZnodeBadCopies:
    """The notes under `base`. make_directory(errand, path): makes it where it is missing."""

    def __init__(
        self,
        base: str,
        new_errand: Callable[[str], Errand],
        make_directory: Callable[[Errand, str], Deferred[None]],
    ) -> None:
        self._base = base
        self._new_errand = new_errand
        self._make_directory = make_directory

    async def report(self, ledger_id: LedgerId, ranges: tuple[BadRange, ...]) -> None:
        """Add ranges; every report changes the version, so that a removal under way fails and looks again."""
        if not ranges:
            return
        errand = self._new_errand(f"report bad copies of ledger {ledger_id}")
        path = self._path(ledger_id)
        new = format_bad_copies(join_ranges(ranges))
        while True:
            try:
                await errand.create(path, new, lambda _data, _stat: False)  # every report changes the version
                return
            except NodeAbsent:
                await self._make_directory(errand, self._base)
            except NodeExists:
                try:
                    data, stat = await errand.read(path)
                    joined = join_ranges((*parse_bad_copies(data, path), *ranges))
                    await errand.write(path, format_bad_copies(joined), stat.version)
                    return
                except (NodeAbsent, NodeChanged, MetadataOutcomeUnknown):
                    pass  # the next look tells
            errand.check_time(f"{path} keeps changing")

    async def read(self, ledger_id: LedgerId) -> BadCopies | None:
        """The ledger's note, or None where there is certainly none."""
        path = self._path(ledger_id)
        found = await self._new_errand(f"read the bad copies of ledger {ledger_id}").read_surely(path)
        if found is None:
            return None
        data, stat = found
        return BadCopies(ledger_id, parse_bad_copies(data, path), stat.version, stat.creation_id)

    async def remove(self, seen: BadCopies, ranges: tuple[BadRange, ...]) -> None:
        """Take entries out of the note as it was seen; a note without any is removed. Raises VersionConflict."""
        errand = self._new_errand(f"remove bad copies of ledger {seen.ledger_id}")
        path = self._path(seen.ledger_id)
        changed = f"the bad copies of ledger {seen.ledger_id} are not noted as they were seen ({path})"
        left = without_ranges(seen.ranges, ranges)
        await errand.sync()
        stat = await errand.stat(path)
        if stat is None and not left:
            return
        if stat is None or (stat.creation_id, stat.version) != (seen.creation_id, seen.version):
            raise VersionConflict(changed)
        try:
            if left:
                await errand.write(path, format_bad_copies(left), seen.version)
            else:
                await errand.delete(path, seen.version, seen.creation_id)
        except NodeAbsent as error:
            if left:
                raise VersionConflict(changed) from error
        except NodeChanged as error:
            raise VersionConflict(changed) from error

    async def ids(self, bad_records: BadRecords | None) -> AsyncIterator[list[LedgerId]]:
        """Yield all ledgers with a note, ascending, in batches. bad_records: see Underreplication.ids."""
        strays = BadRecords() if bad_records is None else bad_records
        try:
            names = await self._new_errand("list the bad copies").children(self._base)
        except NodeAbsent:
            return
        found: list[LedgerId] = []
        for name in names:
            ledger_id = ledger_of_leaf(name)
            if ledger_id is None:
                strays.add(f"{self._base}/{name}", "is not the note of a ledger's bad copies")
            else:
                found.append(ledger_id)
        found.sort()
        for start in range(0, len(found), LISTING_BATCH_MAX):
            yield found[start : start + LISTING_BATCH_MAX]
        if bad_records is None:
            strays.check()

    def _path(self, ledger_id: LedgerId) -> str:
        return f"{self._base}/{leaf_name(ledger_id)}"
