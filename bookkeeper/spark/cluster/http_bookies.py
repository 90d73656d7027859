"""Bookies as tables ask them over HTTP: where each serves it, or why it cannot be asked; shared out to tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from twisted.internet.defer import Deferred

from bookkeeper.admin.questions import Address
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.model import BookieId
from bookkeeper.spark.cluster.bookies import NOT_REGISTERED, http_of, known_bookies
from bookkeeper.spark.cluster.table import Row
from bookkeeper.spark.options.bounds import Bounds

BOOKIES_MAX = 8
"""Bookies that one task asks, one after the other: each may take the time-out of two questions."""

TIMEOUT_S = 15.0
"""Timeout of one question. A bookie first lists its files, on its collector's thread, after current work there."""

Asked = tuple[BookieId, Address | None, str]
"""A bookie, where to ask it, and why it cannot be."""


def shares_of_bookies(no_http: str) -> Callable[[BlockingBookKeeper, object, Bounds], Sequence[object]]:
    """The shares of a table: all bookies that are known, as lists of Asked. no_http: what is said of one without."""

    def shares(client: BlockingBookKeeper, options: object, bounds: Bounds) -> Sequence[object]:
        del options, bounds
        known = client.run(lambda ledgers: Deferred.fromCoroutine(known_bookies(ledgers)))
        asked: list[Asked] = []
        for bookie_id, (_, info) in known.items():
            address = http_of(info)
            asked.append((bookie_id, address, NOT_REGISTERED if info is None else "" if address else no_http))
        return [asked[first : first + BOOKIES_MAX] for first in range(0, len(asked), BOOKIES_MAX)]

    return shares


def rows_of_bookies(
    ask: Callable[[str, Address], Iterator[Sequence[Row]]], nothing: Callable[[str, str], Row]
) -> Callable[[BlockingBookKeeper, object, Sequence[Asked]], Iterator[Sequence[Row]]]:
    """The rows of a table. ask: a bookie at its address. nothing: the row of one that cannot be asked, and why."""

    def rows(client: BlockingBookKeeper, options: object, share: Sequence[Asked]) -> Iterator[Sequence[Row]]:
        del client, options
        for bookie_id, address, problem in share:
            if address is None:
                yield [nothing(bookie_id, problem)]
            else:
                yield from ask(bookie_id, address)

    return rows


def did_not_tell(address: Address, why: str) -> str:
    """What is said of a bookie whose answer is none."""
    return f"its HTTP server at {address[0]}:{address[1]} did not tell: {why}"
