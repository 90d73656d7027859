"""How a topic's messages are stored. Pure but for the turns in which ledgers are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted.internet.defer import DeferredSemaphore

from bookkeeper.client.read.entries import payload_size_max
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT

OPENED_AT_ONCE = 100
"""Ledgers that a hub makes at a time: each takes memory meanwhile, and places in the metadata store's queue."""

PASSWORD = b"sillysecret"
"""Of every topic's ledgers, as Apache's hubs have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLogSettings:
    """ensemble, write_quorum, ack_quorum: of each ledger. entries_max, bytes_max, age_max_s: a ledger that has so many,
    or so much, or is so old and not empty is ended; 0: never. idle_max_s: and one to which nothing was added for so
    long, when `end_if_idle` is called; 0: never. openings: how many ledgers are made at a time, of all topics.
    pending_bytes_max: messages that are not acknowledged. password: of the ledgers. untimed: messages of topics whose
    names begin so get no times. remote_of_publishers: what publishers say of other regions counts, as with Apache's
    hubs; not where the numbers say what is stored of those. stored_size_max: bytes of the largest stored
    message that fits into an entry.
    """

    ensemble: int = 3
    write_quorum: int = 2
    ack_quorum: int = 2
    entries_max: int = 0
    bytes_max: int = 0
    age_max_s: float = 0.0
    idle_max_s: float = 0.0
    openings: DeferredSemaphore = field(
        default_factory=lambda: DeferredSemaphore(OPENED_AT_ONCE), repr=False, compare=False
    )
    pending_bytes_max: int = 64 * 1024 * 1024
    password: bytes = field(default=PASSWORD, repr=False)
    untimed: tuple[bytes, ...] = ()
    remote_of_publishers: bool = True
    stored_size_max: int = payload_size_max(FRAME_SIZE_MAX_DEFAULT)
