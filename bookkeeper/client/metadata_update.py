"""Changing a ledger's metadata: read, decide, compare-and-set, and again on conflict (I-15, I-16).

The decision (`protocol.transitions`) is a function of the value it was made from; it runs again on every value that
turns up, so it never rests on something outdated. It answers "no update" when the value needs no change: that is also
how an update whose reply was lost recognises itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataOutcomeUnknown, MetadataUnavailable, VersionConflict, again
from bookkeeper.model import LedgerId, LedgerMetadata, Versioned
from bookkeeper.protocol.transitions import Change, NoUpdate, Refused

if TYPE_CHECKING:
    from bookkeeper.metadata.store import MetadataStore
    from bookkeeper.ports import Clock

ATTEMPTS_MAX = 64
"""Conflicts and lost replies in a row before the caller hears of it (L-9)."""

RETRY_DELAY_S = 0.1
RETRY_DELAY_MAX_S = 5.0

Decide = Callable[[LedgerMetadata], Change]

Write = Callable[[LedgerMetadata, int], "Deferred[Versioned[LedgerMetadata]]"]
"""Replaces the value that has a version, and fails, as `LedgerStore.write`."""


async def update_metadata(
    store: MetadataStore,
    clock: Clock,
    ledger_id: LedgerId,
    current: Versioned[LedgerMetadata],
    decide: Decide,
    write: Write | None = None,
) -> Versioned[LedgerMetadata]:
    """Apply `decide` to the ledger's metadata, beginning with the copy at hand; return what is then in the store.

    decide: a new value, NO_UPDATE (which its own outcome must be answered with), or Refused, whose error is raised;
    it may also raise. write: how a new value is stored, where not by itself alone. Raises NoSuchLedger when the ledger
    is gone, VersionConflict or MetadataUnavailable after ATTEMPTS_MAX tries; nothing is known of the outcome after
    MetadataUnavailable.
    """
    delay_s = RETRY_DELAY_S
    for attempt in range(1, ATTEMPTS_MAX + 1):
        wanted = decide(current.value)
        if isinstance(wanted, Refused):
            raise again(wanted.error)
        if isinstance(wanted, NoUpdate):
            return current
        try:
            if write is not None:
                return await write(wanted, current.version)
            return await store.ledgers.write(ledger_id, wanted, current.version)
        except VersionConflict:
            if attempt == ATTEMPTS_MAX:
                raise
        except MetadataOutcomeUnknown:
            if attempt == ATTEMPTS_MAX:
                raise
            await pause(clock, delay_s)
            delay_s = min(RETRY_DELAY_MAX_S, delay_s * 2)
        current = await _read_again(store, clock, ledger_id)
    raise AssertionError("the last attempt returns or raises")


async def _read_again(store: MetadataStore, clock: Clock, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
    """The newest value the store has: after a sync, because a lagging server may serve an older one (I-19)."""
    delay_s = RETRY_DELAY_S
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            await store.sync()
            return await store.ledgers.read(ledger_id)
        except MetadataUnavailable:
            if attempt == ATTEMPTS_MAX:
                raise
            await pause(clock, delay_s)
            delay_s = min(RETRY_DELAY_MAX_S, delay_s * 2)
    raise AssertionError("the last attempt returns or raises")


def pause(clock: Clock, delay_s: float) -> Deferred[None]:
    """A Deferred that fires after `delay_s` seconds; cancelling it forgets the timer."""
    waiting: Deferred[None] = Deferred(lambda _: timer.cancel())
    timer = clock.callLater(delay_s, waiting.callback, None)
    return waiting
