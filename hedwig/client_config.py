"""Settings of a publish-subscribe client. Keys and meanings are those of Apache's client (hw_client.conf, 4.2 and 4.3).

    command line (-D KEY=VALUE) > environment (HW_KEY) > file > default

Defaults differ where Apache's keep a client slow (a window of ten messages). A key that is not known is refused; one
that tunes what is different here has no effect, and is reported. Source: hedwig/PROTOCOL.md 5.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.config import ConfText, Loaded, keys_of
from bookkeeper.config.keys import DAY_S, GIB, INT32_MAX, KIB, MIB, Kind, boolean, integer, key, seconds, text
from bookkeeper.config.table import Given, Rules, nearest
from bookkeeper.system.hosts import check_no_number
from hedwig.config.hub import HubConfig
from hedwig.config.load import load
from hedwig.model import HubAddress

CONNECTIONS = "Connections"
TLS = "TLS"
PUBLISHING = "Publishing"
SUBSCRIBING = "Subscribing"

DEFAULT_PORT = 4080

_PORT = re.compile(r"[0-9]{1,5}")


def parse_server(text: str) -> HubAddress:
    """One hub: host, host:port or host:port:sslport, with -1 for no TLS port, as hubs write it. Raises ValueError."""
    host, *ports = text.strip().removesuffix(":-1").split(":")
    if not host or len(ports) > 2 or not all(_PORT.fullmatch(port) and 0 < int(port) < 65536 for port in ports):
        raise ValueError(f"{text.strip()!r} is not host:port or host:port:sslport")
    return HubAddress(
        check_no_number(host), int(ports[0]) if ports else DEFAULT_PORT, int(ports[1]) if len(ports) == 2 else None
    )


def _servers() -> Kind[tuple[HubAddress, ...]]:
    return Kind(
        "host:port:sslport, comma-separated", lambda value: tuple(parse_server(each) for each in value.split(","))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HedwigClientSettings:
    """A client's settings. Sizes in bytes, durations in seconds."""

    # --- connections
    servers: tuple[HubAddress, ...] = key(
        "default_server_host",
        _servers(),
        "localhost:4080:9876",
        CONNECTIONS,
        "Hubs that are asked first, each in its turn; they say where a topic is served. One is enough as long as it "
        "runs.",
    )
    frame_size_max: int = key(
        "max_message_size",
        integer("bytes", KIB, INT32_MAX),
        "2097152",
        CONNECTIONS,
        "Largest answer or delivered message, besides up to 64 KiB that hubs add; a larger message ends its "
        "subscription, a larger answer the connection.",
    )
    hub_frame_size_max: int = key(
        "hub_max_message_size",
        integer("bytes", KIB, INT32_MAX),
        "1258291",
        CONNECTIONS,
        "max_message_size of the hubs: what is larger is refused before it is sent, as they would end the connection. "
        "Above max_message_size it counts for nothing, as what is published could not be received.",
        ours=True,
    )
    connect_timeout_s: float = key(
        "connect_timeout_ms", seconds("ms", 1, DAY_S * 1000), "5000", CONNECTIONS, "Time to connect.", ours=True
    )
    answer_timeout_s: float = key(
        "server_ack_response_timeout",
        seconds("ms", 1, DAY_S * 1000),
        "10000",
        CONNECTIONS,
        "A hub that is asked and silent for so long is left, for another one.",
        differs="30000 there.",
    )
    heartbeat_s: float = key(
        "heartbeat_ms",
        seconds("ms", 10, DAY_S * 1000),
        "5000",
        CONNECTIONS,
        "Silence of a subscription's connection after which the hub is asked for a sign of life.",
        ours=True,
    )
    retry_timeout_s: float = key(
        "retry_timeout_ms",
        seconds("ms", 1, DAY_S * 1000),
        "60000",
        CONNECTIONS,
        "How long one call, a publish too, looks for a hub that can serve it.",
        ours=True,
    )
    retry_min_s: float = key(
        "retry_wait_min_ms",
        seconds("ms", 1, DAY_S * 1000),
        "50",
        CONNECTIONS,
        "First delay before another attempt; the next ones are longer by a quarter each, and half of each is chance.",
        ours=True,
    )
    retry_max_s: float = key(
        "subscribe_reconnect_retry_wait_time",
        seconds("ms", 1, DAY_S * 1000),
        "1000",
        CONNECTIONS,
        "Longest delay before another attempt, to attach a subscription again and to publish.",
        differs="10000 there, before every attempt.",
    )
    shared_connections: bool = key(
        "subscription_channel_sharing_enabled",
        boolean(),
        "true",
        CONNECTIONS,
        "All subscriptions at one hub share a connection. Hubs before 4.2 need false.",
        differs="false there.",
    )

    # --- TLS
    tls: bool = key("ssl_enabled", boolean(), "false", TLS, "Speak TLS, at the hubs' second port.")
    ssl_trust_path: str = key(
        "ssl_trust_path",
        text("PEM file"),
        "",
        TLS,
        "Certificates of the authorities that signed those of the hubs, or those themselves.",
        ours=True,
    )
    ssl_verify_hostname: bool = key(
        "ssl_verify_hostname", boolean(), "true", TLS, "The certificate must be for the hub's address.", ours=True
    )
    ssl_trust_all: bool = key(
        "ssl_trust_all",
        boolean(),
        "false",
        TLS,
        "Take any certificate, as Apache's client does: whoever can stand between reads and changes everything.",
        ours=True,
    )

    # --- publishing
    linger_s: float = key(
        "publish_linger_ms",
        seconds("ms", 0, 60_000),
        "0",
        PUBLISHING,
        "How long a publish waits for others to share a write with; 0: for those of the same turn.",
        ours=True,
    )
    outstanding_max: int = key(
        "max_outstanding_publishes",
        integer("messages", 1, INT32_MAX),
        "5000",
        PUBLISHING,
        "Publishes of one topic that are not answered; who publishes more waits.",
        ours=True,
    )
    outstanding_bytes_max: int = key(
        "max_outstanding_publish_bytes",
        integer("bytes", MIB, 64 * GIB),
        "33554432",
        PUBLISHING,
        "And their bytes.",
        ours=True,
    )

    # --- subscribing
    window: int = key(
        "max_outstanding_messages",
        integer("messages", 1, INT32_MAX),
        "1000",
        SUBSCRIBING,
        "Messages that are delivered and not consumed, of a subscription that has no window. Stored with a new one.",
        differs="10 there.",
    )
    auto_consume: bool = key(
        "auto_send_consume_message_enabled",
        boolean(),
        "true",
        SUBSCRIBING,
        "A message counts as consumed once the program asks for the next one.",
    )
    consume_every: int = key(
        "consumed_messages_buffer_size",
        integer("messages", 1, INT32_MAX),
        "100",
        SUBSCRIBING,
        "Consumed messages that the hub is told of at once.",
        differs="5 there.",
    )
    consume_delay_s: float = key(
        "consume_delay_ms",
        seconds("ms", 0, DAY_S * 1000),
        "100",
        SUBSCRIBING,
        "How long a consumed message waits for others to be told with.",
        ours=True,
    )
    message_bound: int = key(
        "subscription_message_bound",
        integer("messages; 0 = no limit", 0, INT32_MAX),
        "0",
        SUBSCRIBING,
        "Only so many of the newest messages are kept for a subscription that does not say, an older one too.",
    )

    def switched_off(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the features that are off, with the keys that have no effect without them."""
        if not self.tls:
            names = tuple(key.name for key in keys_of(HedwigClientSettings).values() if key.group == TLS)
            yield names, "the client does not use TLS; to use it, set ssl_enabled=true"

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield what is wrong between keys, each of which is right by itself."""
        if self.retry_min_s > self.retry_max_s:
            names = ("retry_wait_min_ms", "subscribe_reconnect_retry_wait_time")
            yield names, f"{names[0]} is above {names[1]}"
        if self.consume_every > self.window:
            names = ("consumed_messages_buffer_size", "max_outstanding_messages")
            yield names, f"{names[0]} is above {names[1]}: the hub would wait for what it is never told"
        if self.linger_s >= self.retry_timeout_s:
            names = ("publish_linger_ms", "retry_timeout_ms")
            yield (
                names,
                f"{names[0]} is not below {names[1]}: the time of every message would be over before it is sent",
            )
        if not self.tls:
            return
        if not self.ssl_trust_path and not self.ssl_trust_all:
            yield (
                ("ssl_enabled", "ssl_trust_path"),
                "ssl_enabled=true needs to know whom to trust: set ssl_trust_path (or ssl_trust_all=true, which leaves "
                "it open whom the client talks to)",
            )
        for server in self.servers:
            if server.ssl_port is None:
                yield (
                    ("default_server_host", "ssl_enabled"),
                    f"ssl_enabled=true, and default_server_host names no TLS port for {server.host}: write "
                    f"{server.host}:{server.port}:SSLPORT",
                )


_WITHIN = "a call looks for the topic's hub for retry_timeout_ms, however often it is sent on"
_OWN_TIMER = "each request has a timer of its own"

IGNORED: dict[str, str] = {
    "max_server_redirects": _WITHIN,
    "timeout_thread_run_interval": _OWN_TIMER,
    "message_consume_retry_wait_time": "a message is given to the program once; what it raises is its own",
    "proxy_port": "belongs to Apache's proxy, which is not part of this project",
}
"""Key -> why it has no effect."""


def _judge(given: Given) -> str | None:
    table = keys_of(HedwigClientSettings)
    if given.name in table:
        return None
    reason = IGNORED.get(given.name)
    if reason is None:
        if given.name in keys_of(HubConfig):
            raise ValueError(f"{given.name} is a hub's key; a client has other ones (`hedwig config show --client`)")
        raise ValueError(f"unknown key {given.name!r}" + nearest(given.name, [*table, *IGNORED]))
    return reason


def load_hedwig_client(
    conf: str | Path | ConfText | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded[HedwigClientSettings]:
    """Return a client's settings, in `.settings`. Arguments and errors as of `load_hub`."""
    conf = Path(conf) if isinstance(conf, str) else conf
    return load(HedwigClientSettings, Rules(_judge), conf, overrides, environ)
