"""Unique ledger ids, from sequential znodes. Source: bookkeeper/wire/FORMATS.md 4.5.

    flat                  R/ID-nnnnnnnnnn
    legacy, hierarchical  R/idgen/ID-nnnnnnnnnn
    long scheme           R/idgen-long/HOB-hhhhhhhhhh/ID-nnnnnnnnnn    id = h << 32 | n; h is 1 at first

The hierarchical layout goes over to the long scheme once R/idgen-long exists, or when the short numbers are used up.
ZooKeeper counts in 32 bits: after 2147483647 come negative numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataCorrupt, MetadataError
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.directories import Directories
from bookkeeper.metadata.ledgers.paths import SEQUENTIAL_PREFIX, SHORT_ID_LIMIT
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.tree import Access, NodeAbsent, NodeChanged, NodeNotEmpty, Tree
from bookkeeper.model import LedgerId

HIGH_ORDER_DIRECTORIES_KEPT = 3
_FIRST_HIGH_ORDER = 1
_HIGH_ORDER_MAX = 2**31 - 1
"""A greater number, which only a stray directory has, would put every id beyond LEDGER_ID_MAX."""
_HIGH_ORDER_NAME = re.compile(r"HOB-(\d{10})", re.ASCII)
_SEQUENCE_SUFFIX = re.compile(r"ID-(-?\d{10,11})", re.ASCII)


class LedgerIds:
    """Generates ledger ids for one layout."""

    def __init__(self, tree: Tree, root: str, directories: Directories) -> None:
        self._tree = tree
        self._directories = directories
        self._root = root
        self._long_scheme: bool | None = None  # None: not yet looked
        self._high_order: int | None = None  # of the directory used last

    async def generate(self, errand: Errand, kind: LayoutKind, ahead: int = 1) -> LedgerId:
        """Return a ledger id that no client has been given.

        ahead: numbers to take; the last becomes the id. The store's counter advances by one per request, but requests
        that are sent together cost one round trip.
        """
        if kind is LayoutKind.FLAT:
            return self._short_only(await self._next(errand, self._root, ahead), kind)
        if kind is LayoutKind.LEGACY_HIERARCHICAL:
            return self._short_only(await self._next_below_idgen(errand, ahead), kind)
        if kind is LayoutKind.LONG_HIERARCHICAL:
            return await self._generate_long(errand, ahead)
        if self._long_scheme is None:
            self._long_scheme = await errand.stat(self._long_path) is not None
        if not self._long_scheme:
            number = await self._next_below_idgen(errand, ahead)
            if 0 <= number < SHORT_ID_LIMIT:
                return LedgerId(number)
            self._long_scheme = True
        return await self._generate_long(errand, ahead)

    @property
    def _long_path(self) -> str:
        return f"{self._root}/idgen-long"

    def _short_only(self, number: int, kind: LayoutKind) -> LedgerId:
        if number < 0:
            raise MetadataError(
                f"the ledger ids of the {kind.word} layout under {self._root} are used up (number {number}); "
                "create ledgers with ids of your own, or a cluster of the hierarchical layout"
            )
        return LedgerId(number)

    async def _next_below_idgen(self, errand: Errand, ahead: int) -> int:
        directory = f"{self._root}/idgen"
        while True:
            try:
                return await self._next(errand, directory, ahead)
            except NodeAbsent:
                errand.check_time(f"{directory} vanishes as fast as it is made")
                await self._directories.make(errand, directory)

    async def _next(self, errand: Errand, directory: str, ahead: int) -> int:
        """Take `ahead` numbers and return the last, or a negative number once ZooKeeper has run out of others."""
        if ahead == 1:
            return await self._next_number(errand, directory)
        asked = [Deferred.fromCoroutine(self._next_number(errand, directory)) for _ in range(ahead)]
        numbers: list[int] = []
        results: list[tuple[bool, Any]] = await DeferredList(asked, consumeErrors=True)
        for succeeded, result in results:
            if not succeeded:
                result.raiseException()
            numbers.append(result)
        return min(numbers) if min(numbers) < 0 else max(numbers)

    async def _next_number(self, errand: Errand, directory: str) -> int:
        path = await errand.create_sequential(f"{directory}/{SEQUENTIAL_PREFIX}")
        found = _SEQUENCE_SUFFIX.fullmatch(path.rpartition("/")[2])
        if found is None:
            raise MetadataCorrupt(f"{path} does not end in a sequence number")
        self._tree.delete(path, 0).addErrback(_left_to_the_session)
        return int(found[1])

    async def _generate_long(self, errand: Errand, ahead: int) -> LedgerId:
        while True:
            if self._high_order is None:
                self._high_order = await self._newest_high_order(errand)
            high_order = self._high_order
            try:
                number = await self._next(errand, self._high_order_path(high_order), ahead)
            except NodeAbsent:
                # Others went on and removed the directory, or none was made yet.
                self._high_order = None
                continue
            if 0 <= number < SHORT_ID_LIMIT:
                return LedgerId(high_order << 32 | number)
            await self._make_high_order(errand, high_order + 1)
            self._high_order = None

    async def _newest_high_order(self, errand: Errand) -> int:
        try:
            numbers = await self._high_orders(errand)
        except NodeAbsent:
            await errand.ensure(self._long_path)
            numbers = []
        if not numbers:
            await self._make_high_order(errand, _FIRST_HIGH_ORDER)
            return _FIRST_HIGH_ORDER
        return numbers[-1]

    async def _make_high_order(self, errand: Errand, number: int) -> None:
        await errand.ensure(self._high_order_path(number), access=Access.OPEN)
        for old in (await self._high_orders(errand))[:-HIGH_ORDER_DIRECTORIES_KEPT]:
            try:
                await errand.delete(self._high_order_path(old), 0)
            except (NodeAbsent, NodeNotEmpty, NodeChanged):
                continue  # somebody else removed it, or still has a number in it; the next one to come here tries again

    async def _high_orders(self, errand: Errand) -> list[int]:
        return _high_orders(await errand.children(self._long_path))

    def _high_order_path(self, number: int) -> str:
        return f"{self._long_path}/HOB-{number:010d}"


def _high_orders(names: Iterable[str]) -> list[int]:
    numbers = [int(found[1]) for found in map(_HIGH_ORDER_NAME.fullmatch, names) if found]
    return sorted(number for number in numbers if number <= _HIGH_ORDER_MAX)


def newest_high_order(names: Iterable[str]) -> int | None:
    """Return the highest number among the long scheme's directories in `names`, or None without one."""
    found = _high_orders(names)
    return found[-1] if found else None


def _left_to_the_session(failure: Failure) -> None:
    """The number was used, only its node could not be removed: it is ephemeral and goes with the session."""
    failure.trap(MetadataError)  # type: ignore[no-untyped-call]
