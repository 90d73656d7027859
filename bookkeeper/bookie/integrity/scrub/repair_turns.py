"""Which damaged index pages a round tries to make anew: those behind the last one that was tried. Pure.

So that whatever cannot be made anew, for now or for good, holds up no other. Bounds: the pages of one round, twice.
"""

from __future__ import annotations

from bisect import insort

from bookkeeper.bookie.integrity.scrub.page_repair import BadPage


class MendingTurn:
    """The pages of one round.

    pages_max: tried at most. tried: the last one of those that were tried before, None where none was.
    """

    def __init__(self, pages_max: int, tried: BadPage | None) -> None:
        self._tried = None if tried is None else _order(tried)
        self._behind = _First(pages_max)
        self._all = _First(pages_max)

    def found(self, page: BadPage) -> None:
        """One that is damaged; in any order."""
        self._all.add(page)
        if self._tried is not None and _order(page) > self._tried:
            self._behind.add(page)

    @property
    def chosen(self) -> list[BadPage]:
        """Those to try, in their order: from the beginning again where none is behind."""
        return self._turn.pages

    @property
    def more(self) -> bool:
        """True when others are behind those."""
        return self._turn.more

    @property
    def _turn(self) -> _First:
        return self._behind if self._behind.pages else self._all


class _First:
    """The first of some pages, at most so many."""

    def __init__(self, pages_max: int) -> None:
        self._pages_max = pages_max
        self.pages: list[BadPage] = []
        self.more = False

    def add(self, page: BadPage) -> None:
        insort(self.pages, page, key=_order)
        if len(self.pages) > self._pages_max:
            self.pages.pop()
            self.more = True


def _order(page: BadPage) -> tuple[str, int, int]:
    return page.directory, page.ledger_id, page.page
