"""How a publish-subscribe client behaves; the defaults suit most programs. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hedwig.model import HubAddress
from hedwig.wire.framing import FRAME_SIZE_MAX_CLIENT, FRAME_SIZE_MAX_HUB

GROWTH = 1.25
"""Of the pause between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubSettings:
    """All times in seconds.

    connect_timeout_s: for one connection. answer_timeout_s: a hub that is silent so long, though asked, is left.
    heartbeat_s: silence of a subscription's connection after which its hub is asked for a sign of life.
    retry_timeout_s: how long one call goes on looking for a hub that can serve it; a publish as well.
    retry_min_s, retry_max_s: between attempts, growing; half of it by chance. linger_s: how long a publish waits for
    others to share a write with; 0 takes those of the same turn of the reactor.
    outstanding_max, outstanding_bytes_max: publishes of one topic that are not answered; who publishes waits there.
    window: unconsumed delivered messages of a subscription without a stored window; also the bound of its buffer.
    consume_every: consumed messages that one CONSUME tells, at most; consume_delay_s: how long one waits for that.
    shared_connections: subscriptions at one hub share a connection; else each has its own.
    frame_size_max: of frames from hubs, without FRAME_ALLOWANCE. hub_frame_size_max: of frames that hubs accept;
    larger ones are not published.
    """

    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 10.0
    heartbeat_s: float = 5.0
    retry_timeout_s: float = 60.0
    retry_min_s: float = 0.05
    retry_max_s: float = 1.0
    linger_s: float = 0.0
    outstanding_max: int = 5_000
    outstanding_bytes_max: int = 32 * 1024 * 1024
    window: int = 1_000
    consume_every: int = 100
    consume_delay_s: float = 0.1
    shared_connections: bool = True
    frame_size_max: int = FRAME_SIZE_MAX_CLIENT
    hub_frame_size_max: int = FRAME_SIZE_MAX_HUB
    tls: bool = False


def backoff(settings: PubSubSettings, failures: int, rng: random.Random) -> float:
    """Seconds to wait after so many failures in a row.

    About a quarter of the time that the trouble has lasted, so that its end is noticed soon; half of it by chance, as
    those that lost the same hub would come back all at once.
    """
    longest = min(settings.retry_max_s, settings.retry_min_s * GROWTH ** min(failures - 1, 100))
    return longest * (1.0 + rng.random()) / 2


def name_of(address: HubAddress) -> str:
    """A hub in a message, as people give it; the third part, its TLS port, is for hubs and clients to read."""
    return f"{address.host}:{address.port}"


def port_of(settings: PubSubSettings, address: HubAddress) -> int | None:
    """The port to connect to; None where the hub has none of that kind."""
    return address.ssl_port if settings.tls else address.port
