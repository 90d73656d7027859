"""When a message was published: a header property, milliseconds since 1970, UTC, in decimal. Pure.

Decimal text, as any client can print and read it, and filter expressions can compare it: `hw.time > 1700000000000`.

The hub that stores a message gives it its time; what a publisher says is replaced, so that a message may be published
again with the properties it came with. The times of a topic never go back, whoever owned it before and whatever its
clock said. With a clock that is behind, messages get the time of the one before until the clock has caught up. A
message of another region gets the time when this one stored it. A message without one (stored by a hub that knows
nothing of it) has the creation time of its ledger, which is not later than the truth: ZooKeeper's, of the ledger's
znode, as the records that Apache's hubs can read do not say it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hedwig.protocol.options import NUMBER_MAX, TIME


def encode_time(time_ms: int) -> bytes:
    """The property's value. Raises ValueError for what is none."""
    if not 0 <= time_ms <= NUMBER_MAX:
        raise ValueError(f"{time_ms} is no time in milliseconds since 1970")
    return b"%d" % time_ms


def decode_time(value: bytes) -> int | None:
    """None for what is no time: applications may write anything, and reading goes on."""
    if not value.isdigit() or len(value) > 19:
        return None
    time_ms = int(value)
    return time_ms if time_ms <= NUMBER_MAX else None


def time_of(properties: Mapping[str, bytes]) -> int | None:
    """When a message was published, as far as it says so."""
    value = properties.get(TIME)
    return None if value is None else decode_time(value)


class PublishClock:
    """Times for one topic's messages, none less than the one before. last_ms: of the newest message; 0 for none."""

    __slots__ = ("last_ms",)

    def __init__(self, last_ms: int = 0) -> None:
        self.last_ms = last_ms

    def stamp(self, now_ms: int) -> int:
        """For a message that gets its id now."""
        if now_ms > self.last_ms:
            self.last_ms = now_ms
        return self.last_ms

    def ahead_ms(self, now_ms: int) -> int:
        """How far the topic's time is before the clock's; much of it means that somebody's clock was wrong."""
        return max(0, self.last_ms - now_ms)
