"""Which names topics, subscribers and regions may have, and where their znodes are. Pure.

    PREFIX/<region>/managers/METADATA/LAYOUT      what kind of metadata
    PREFIX/<region>/hosts/<host:port:sslport>     ephemeral: a hub, its load
    PREFIX/<region>/topics/<topic>                  /hub                    ephemeral: the owner
                                                    /ledgers                the topic's ledgers
                                                    /subscribers/<name>     a subscription
                                                    /hw.producers           who published what; not of Apache's
                                                    /hw.retention           how long messages are kept; not of Apache's

Names go into paths as they are, so not every name is one: UTF-8, no empty part, no control characters, no "." or "..".
A topic may have slashes; but no part after the first may be one of the five words above, for it would be the other
topic's record. A subscriber may have none: the part before the slash would be read as a subscriber.

Differs from Apache, which ends the hub process at an illegal name and lets one topic overwrite another's records.
Source: hedwig/PROTOCOL.md 4.1, 4.2.
"""

from __future__ import annotations

from hedwig.errors import MalformedRequest
from hedwig.model import HubAddress, SubscriberId, Topic

NAME_SIZE_MAX = 1024
"""Bytes of a topic's or subscriber's name: a znode's path has to be held in memory by all of ZooKeeper's servers."""

OWN_NODES = frozenset({"hub", "ledgers", "subscribers", "hw.producers", "hw.retention"})
"""Children of a topic's znode that are no topics."""


def shown(name: bytes) -> str:
    """A name as text, for messages; what is not UTF-8 can be told apart still."""
    return name.decode(errors="backslashreplace")


def _text(name: bytes, what: str) -> str:
    if not name:
        raise MalformedRequest(f"the name of the {what} is empty")
    if len(name) > NAME_SIZE_MAX:
        raise MalformedRequest(f"the name of the {what} has {len(name)} bytes; at most {NAME_SIZE_MAX} are possible")
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise MalformedRequest(f"the name of the {what}, {name!r}, is not UTF-8") from None
    bad = next((char for char in text if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or _is_refused(char)), None)
    if bad is not None:
        raise MalformedRequest(f"the name of the {what}, {text!r}, has the character {bad!r}, which ZooKeeper refuses")
    return text


def _is_refused(char: str) -> bool:
    """Surrogates, the private use area and the last non-characters (ZooKeeper's PathUtils)."""
    return "\ud800" <= char <= "\uf8ff" or "\ufff0" <= char <= "\uffff"


def topic_part(topic: Topic) -> str:
    """A topic as part of a path. Raises MalformedRequest."""
    text = _text(topic, "topic")
    parts = text.split("/")
    for position, part in enumerate(parts):
        if part in ("", ".", ".."):
            raise MalformedRequest(f"topic {text!r} has the part {part!r} between slashes, which ZooKeeper refuses")
        if position and part in OWN_NODES:
            raise MalformedRequest(
                f"topic {text!r} would be kept where topic {'/'.join(parts[:position])!r} keeps its {part}: call it "
                "otherwise"
            )
    return text


def subscriber_part(subscriber: SubscriberId) -> str:
    """A subscriber as part of a path. Raises MalformedRequest."""
    text = _text(subscriber, "subscriber")
    if "/" in text or text in (".", ".."):
        raise MalformedRequest(f"the name of the subscriber, {text!r}, must not have a slash, nor be '.' or '..'")
    return text


class Paths:
    """Znodes of one region. prefix: zk_prefix, absolute."""

    def __init__(self, prefix: str, region: str) -> None:
        self.root = f"{prefix}/{region}"
        self.layout = f"{self.root}/managers/METADATA/LAYOUT"
        self.hubs = f"{self.root}/hosts"
        self.topics = f"{self.root}/topics"

    def hub(self, address: HubAddress) -> str:
        """A hub's registration."""
        return f"{self.hubs}/{address}"

    def topic(self, topic: Topic) -> str:
        """A topic's znode."""
        return f"{self.topics}/{topic_part(topic)}"

    def owner(self, topic: Topic) -> str:
        """Who serves it."""
        return f"{self.topic(topic)}/hub"

    def ledgers(self, topic: Topic) -> str:
        """Its ledgers."""
        return f"{self.topic(topic)}/ledgers"

    def producers(self, topic: Topic) -> str:
        """What is remembered of those who publish once."""
        return f"{self.topic(topic)}/hw.producers"

    def retention(self, topic: Topic) -> str:
        """The retention that publishers set."""
        return f"{self.topic(topic)}/hw.retention"

    def subscribers(self, topic: Topic) -> str:
        """Parent of its subscriptions."""
        return f"{self.topic(topic)}/subscribers"

    def subscription(self, topic: Topic, subscriber: SubscriberId) -> str:
        """One of them."""
        return f"{self.subscribers(topic)}/{subscriber_part(subscriber)}"
