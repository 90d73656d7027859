"""Values of publish-subscribe: topics, message ids, subscriptions, addresses of hubs. Pure.

    topic        bytes, UTF-8; every message in it has an id, 1, 2, 3, ... in the order that all subscribers see (I-89)
    message id   the number in this region, and what is known of other regions
    subscription who reads a topic: a subscriber's name, its preferences, and how far it has consumed
    hub          a server; each topic is served by one at a time

Source: hedwig/PROTOCOL.md 1.4, 1.5, 2.12, 2.14, 4.4, 4.5.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, NewType

Topic = NewType("Topic", bytes)
SubscriberId = NewType("SubscriberId", bytes)
LocalId = NewType("LocalId", int)

FIRST_ID = LocalId(1)
"""Of a topic's first message."""

HUB_SUBSCRIBER_PREFIX = b"__"
"""Subscribers that are hubs of other regions begin so; ordinary ones must not."""

NO_OPTIONS: Mapping[str, bytes] = MappingProxyType({})

KEY_PROPERTY = "key"
"""Header property that is a message's key for command lines and data frames; nothing in Hedwig knows of it."""


class Status(enum.IntEnum):
    """The outcome of a request, with its number on the wire."""

    SUCCESS = 0
    MALFORMED_REQUEST = 401
    NO_SUCH_TOPIC = 402
    CLIENT_ALREADY_SUBSCRIBED = 403
    CLIENT_NOT_SUBSCRIBED = 404
    COULD_NOT_CONNECT = 405
    TOPIC_BUSY = 406
    RESUBSCRIBE_EXCEPTION = 407
    NOT_RESPONSIBLE_FOR_TOPIC = 501
    SERVICE_DOWN = 502
    UNCERTAIN_STATE = 503
    INVALID_MESSAGE_FILTER = 504
    BAD_VERSION = 520
    NO_TOPIC_PERSISTENCE_INFO = 521
    TOPIC_PERSISTENCE_INFO_EXISTS = 522
    NO_SUBSCRIPTION_STATE = 523
    SUBSCRIPTION_STATE_EXISTS = 524
    NO_TOPIC_OWNER_INFO = 525
    TOPIC_OWNER_INFO_EXISTS = 526
    UNEXPECTED_CONDITION = 600
    COMPOSITE = 700


class Event(enum.IntEnum):
    """What a subscriber is told besides messages."""

    TOPIC_MOVED = 1
    SUBSCRIPTION_FORCED_CLOSED = 2


class SubscribeMode(enum.IntEnum):
    """Whether a subscription must be new, must be there already, or either."""

    CREATE = 0
    ATTACH = 1
    CREATE_OR_ATTACH = 2


class MessageId(NamedTuple):
    """local: in this region's order. remote: (region, its number) of others, as far as known; each region once."""

    local: LocalId
    remote: tuple[tuple[bytes, int], ...] = ()

    def merged(self, other: tuple[tuple[bytes, int], ...]) -> MessageId:
        """With the greater number of each remote region."""
        if not other:
            return self
        known = dict(self.remote)
        for region, number in other:
            known[region] = max(number, known.get(region, 0))
        return MessageId(self.local, tuple(known.items()))

    def __str__(self) -> str:
        remote = "".join(f";{region.decode('utf-8', 'replace')}:{number}" for region, number in self.remote)
        return f"local:{self.local}{remote}"


class Gone(NamedTuple):
    """Deleted messages that a reader asked for. first, last: both included.

    maybe: the reader asked for a time, and some or all of the messages may be older.
    """

    first: LocalId
    last: LocalId
    maybe: bool = False

    def __str__(self) -> str:
        return f"messages {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Preferences:
    """How a subscriber wants its messages. None: not said.

    message_bound: only so many of the newest are kept for it; 0 none. message_filter: the name of a filter that the
    hub runs. window_size: at most so many ids are delivered and not consumed; 0 no limit. options: for filters.
    """

    message_bound: int | None = None
    message_filter: str | None = None
    window_size: int | None = None
    options: Mapping[str, bytes] = field(default_factory=lambda: NO_OPTIONS)

    def merged(self, newer: Preferences) -> Preferences:
        """With what the newer ones say; nothing can be unsaid."""
        return Preferences(
            self.message_bound if newer.message_bound is None else newer.message_bound,
            self.message_filter if newer.message_filter is None else newer.message_filter,
            self.window_size if newer.window_size is None else newer.window_size,
            MappingProxyType({**self.options, **newer.options}) if newer.options else self.options,
        )


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscriber's durable state: everything up to `consumed` is consumed, or deleted (I-93).

    gone: deleted messages that it did not consume, all up to `consumed`; kept until a later message is consumed.
    """

    consumed: MessageId
    preferences: Preferences = Preferences()
    gone: Gone | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class SharedSubscription(Subscription):
    """One whose messages are acknowledged one by one. acknowledged: a snapshot of which are, above `consumed`, and how
    often the others were delivered; what it says is true for ever, so an old one costs deliveries, and no message.
    """

    acknowledged: bytes = b""


@dataclass(frozen=True, slots=True)
class NamedKeep:
    """The retention that publishers set for a topic, in milliseconds; None: none was set.

    set_by: the newest message of this region that set a retention; 0: none did.
    """

    keep_ms: int | None = None
    set_by: LocalId = LocalId(0)


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Messages first..last of a topic in one ledger, entry 0 being the first; last is None while it is written.

    first: None in records of hubs before 4.2, which did not note it.
    """

    ledger_id: int
    first: LocalId | None
    last: MessageId | None = None


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where a hub is. ssl_port: None where it offers no TLS."""

    host: str
    port: int
    ssl_port: int | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}:{-1 if self.ssl_port is None else self.ssl_port}"


@dataclass(frozen=True, slots=True)
class HubInfo:
    """Which life of which hub: creation_id is of the znode that it registered with."""

    address: HubAddress
    creation_id: int
