"""What the client processes of the failover drill note, and the messages that they publish. Pure.

    message      topic u16 | number u32 | filler      the filler is of that number: another one's would be noticed
    publishes    one record for each, in the order of outcomes
    deliveries   one record for each, in the order in which a subscription handed them out

Numbers of a topic begin with 1. Times are of the machine's monotonic clock, one for all processes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_LABEL = struct.Struct(">HI")
LABEL_SIZE = _LABEL.size
SIZE_MIN = LABEL_SIZE

ACKNOWLEDGED, UNKNOWN, REFUSED = 0, 1, 2
"""What became of a publish: durable under an id; perhaps; not, as the client says."""

CHANGED = 0
"""The number of a delivery whose message is none that was published to its topic."""


class Publish(NamedTuple):
    """floor: the greatest id of its topic that was acknowledged when it was handed over. id: 0 without one."""

    topic: int
    number: int
    outcome: int
    id: int
    floor: int
    begun_s: float
    done_s: float


class Delivery(NamedTuple):
    """subscriber: of its topic. session: which of its subscription objects, from 1 on."""

    topic: int
    subscriber: int
    session: int
    id: int
    number: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Session:
    """One subscription object, closed. consumed: the last id that it said is consumed; 0: none."""

    topic: int
    subscriber: int
    number: int
    begun_s: float
    closed_s: float
    consumed: int


_PUBLISH = struct.Struct(">HIBQQdd")
_DELIVERY = struct.Struct(">HHIQId")


def body(topic: int, number: int, size: int) -> bytes:
    """A message."""
    label = _LABEL.pack(topic, number)
    return (label * (size // LABEL_SIZE + 1))[:size]


def number_of(message: bytes, topic: int) -> int:
    """Which of its topic's messages it is; CHANGED where it is none, byte for byte."""
    if len(message) < LABEL_SIZE:
        return CHANGED
    of, number = _LABEL.unpack_from(message)
    return number if of == topic and message == body(topic, number, len(message)) else CHANGED


def encode_publish(publish: Publish) -> bytes:
    """One record."""
    return _PUBLISH.pack(*publish)


def encode_delivery(delivery: Delivery) -> bytes:
    """One record."""
    return _DELIVERY.pack(*delivery)


def publishes(data: bytes) -> Iterator[Publish]:
    """Of a file."""
    return map(Publish._make, _PUBLISH.iter_unpack(data))


def deliveries(data: bytes) -> Iterator[Delivery]:
    """Of a file."""
    return map(Delivery._make, _DELIVERY.iter_unpack(data))
