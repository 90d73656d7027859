"""What programs hand over, text or bytes, as the client has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from bookkeeper.errors import InvalidArgument
from hedwig.model import NO_OPTIONS, SubscriberId, Topic

Text: TypeAlias = str | bytes
"""Text is taken as UTF-8."""


def as_bytes(value: object, what: str) -> bytes:
    """Raises InvalidArgument for what is neither text nor bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{what} has a character that UTF-8 has not: {error}") from error
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"{what} is {type(value).__name__}, and must be bytes or str")


def topic_of(topic: Text) -> Topic:
    """A topic's name."""
    return Topic(as_bytes(topic, "the topic"))


def subscriber_of(subscriber: Text) -> SubscriberId:
    """A subscriber's name."""
    return SubscriberId(as_bytes(subscriber, "the subscriber"))


def properties_of(properties: Mapping[str, Text] | None) -> Mapping[str, bytes]:
    """Header properties, or options of a filter."""
    if not properties:
        return NO_OPTIONS
    found: dict[str, bytes] = {}
    for key, value in properties.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"the property {key!r} has a name that is {type(key).__name__}, and must be str")
        found[key] = as_bytes(value, f"property {key!r}")
    return found
