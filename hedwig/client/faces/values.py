"""What programs hand over, as the client has it; the same rule in all faces. Pure.

    topics, subscribers, bodies, values of properties      str (as UTF-8) or bytes
    a message                                              as it was delivered, its MessageId, or its number as an int

All else is refused by InvalidArgument, which names the argument, the value and what is wanted: where it is given, and
not somewhere within a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from bookkeeper.errors import InvalidArgument
from hedwig.model import FIRST_ID, NO_OPTIONS, LocalId, MessageId, Preferences, SubscriberId, Topic
from hedwig.wire.receiving import Received

Text: TypeAlias = str | bytes
"""Text is taken as UTF-8."""

Of: TypeAlias = Received | MessageId | int
"""Which message is meant."""

ID_MAX = 2**63 - 1
"""Java's long."""

UINT32_MAX = 2**32 - 1


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
    raise InvalidArgument(f"{what} is {shown(value)}, and must be bytes or str")


def topic_of(topic: Text, what: str = "the topic") -> Topic:
    """A topic's name."""
    return Topic(as_bytes(topic, what))


def subscriber_of(subscriber: Text) -> SubscriberId:
    """A subscriber's name."""
    return SubscriberId(as_bytes(subscriber, "the subscriber"))


def shown(value: object) -> str:
    """A value that is refused: its type, and as much of it as fits into a line."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:60] + '...'} ({type(value).__name__})"


def bodies_of(bodies: Iterable[Text]) -> list[bytes]:
    """Several bodies. Raises InvalidArgument for a single one, which would be taken apart."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise InvalidArgument(f"bodies is {shown(bodies)}, one body: give a list of bodies, or call `publish`")
    if not isinstance(bodies, Iterable):
        raise InvalidArgument(f"bodies is {shown(bodies)}, and must be a list of bytes or str")
    return [as_bytes(body, "a body") for body in bodies]


def id_of(message: Of, what: str, low: int = FIRST_ID) -> MessageId:
    """Which message is meant. Raises InvalidArgument."""
    if isinstance(message, Received):
        return message.id
    if isinstance(message, MessageId):
        number: object = message.local
    else:
        number, message = message, MessageId(LocalId(message))
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidArgument(f"{what} is {shown(number)}, and must be a message, a MessageId, or an id as an int")
    if not low <= number <= ID_MAX:
        raise InvalidArgument(f"{what} is {number}: ids of messages are from {FIRST_ID} to {ID_MAX}")
    return message


def int_of(value: object, what: str) -> int:
    """Raises InvalidArgument."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{what} is {shown(value)}, and must be an int")
    return value


def number_of(value: object, what: str, low: int, high: int) -> int:
    """Raises InvalidArgument."""
    number = int_of(value, what)
    if not low <= number <= high:
        raise InvalidArgument(f"{what} is {number}, and must be from {low} to {high}")
    return number


def seconds_of(value: object, what: str, high: float) -> float:
    """Seconds from 0 on. Raises InvalidArgument."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= high:
        raise InvalidArgument(f"{what} is {shown(value)}, and must be seconds from 0 to {high:g}")
    return value


def properties_of(properties: Mapping[str, Text] | None, what: str = "property") -> Mapping[str, bytes]:
    """Header properties, or options of a subscription."""
    if not properties:
        return NO_OPTIONS
    if not isinstance(properties, Mapping):
        raise InvalidArgument(f"properties is {shown(properties)}, and must be a mapping of str to bytes or str")
    found: dict[str, bytes] = {}
    for key, value in properties.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"the {what} {key!r} has a name that is {type(key).__name__}, and must be str")
        found[key] = as_bytes(value, f"{what} {key!r}")
    return found


def preferences_of(preferences: Preferences) -> Preferences:
    """As they can be sent. Raises InvalidArgument."""
    if not isinstance(preferences, Preferences):
        raise InvalidArgument(f"preferences is {shown(preferences)}, and must be hedwig.model.Preferences")
    for name in ("message_bound", "window_size"):
        number = getattr(preferences, name)
        if number is not None:
            number_of(number, f"preferences, {name}", 0, UINT32_MAX)
    if not isinstance(preferences.message_filter, str | None):
        raise InvalidArgument(f"preferences, message_filter is {shown(preferences.message_filter)}, and must be a str")
    return replace(preferences, options=properties_of(preferences.options, "option"))
