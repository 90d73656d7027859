"""Bookies as tables ask them over HTTP: where each serves it, or why it cannot be asked; shared out to tasks."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from bookkeeper.admin.questions import Address
from bookkeeper.client.blocking import BlockingBookKeeper
from bookkeeper.model import BookieId
from bookkeeper.spark.cluster.bookies import NOT_REGISTERED, http_of, known_bookies

BOOKIES_MAX = 8
"""Bookies that one task asks, one after the other: each may take the time-out of two questions."""

Asked = tuple[BookieId, Address | None, str]
"""A bookie, where to ask it, and why it cannot be."""


def shares_of_bookies(client: BlockingBookKeeper, no_http: str) -> Sequence[object]:
    """All bookies that are known, as lists of Asked. no_http: what is said of one that serves none."""
    known = client.run(lambda ledgers: Deferred.fromCoroutine(known_bookies(ledgers)))
    asked: list[Asked] = []
    for bookie_id, (_, info) in known.items():
        address = http_of(info)
        asked.append((bookie_id, address, NOT_REGISTERED if info is None else "" if address else no_http))
    return [asked[first : first + BOOKIES_MAX] for first in range(0, len(asked), BOOKIES_MAX)]


def did_not_tell(address: Address, why: str) -> str:
    """What is said of a bookie whose answer is none."""
    return f"its HTTP server at {address[0]}:{address[1]} did not tell: {why}"
