"""What a hub counts: publishes, deliveries, refusals, and what it holds. The table, and who feeds it.

    meters = HubMeters()
    meters.published.add(count)               once for each answered batch, never for each message
    meters.refused(status, count)             every answer that is not SUCCESS
    meters.watch(...)                         topics, connections, memory: read when they are shown, free until then
    meters.text()                             the body of GET /metrics

Names begin with `hub_`; text and cells are those of `bookkeeper.metrics`. There are no labels of topics or subscribers:
their number has no bound. Thread: reactor. Apache's hub shows its counts by JMX alone (hedwig/PROTOCOL.md 3.11).
"""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.metrics import LONGEST_TURN, PROCESS_METRICS, Counter, Kind, Metrics, MetricSpec
from hedwig.model import Status

REFUSED: dict[Status, str] = {
    status: f"hub_REFUSED_{status.name}"
    for status in Status
    if status not in (Status.SUCCESS, Status.NOT_RESPONSIBLE_FOR_TOPIC)
}

TABLE = (
    # --- requests
    MetricSpec("hub_PUBLISHED_MESSAGES", Kind.COUNTER, "Messages made durable and answered."),
    MetricSpec("hub_PUBLISHED_BYTES", Kind.COUNTER, "Bytes of them."),
    MetricSpec("hub_DELIVERED_MESSAGES", Kind.COUNTER, "Messages sent to subscribers, each one counted for each."),
    MetricSpec(
        "hub_LOST_MESSAGES",
        Kind.COUNTER,
        "Messages that a limit of age or size took before all subscribers had consumed them.",
    ),
    MetricSpec("hub_SUBSCRIBES", Kind.COUNTER, "Subscribe requests that were granted."),
    MetricSpec("hub_REDIRECTS", Kind.COUNTER, "Requests answered with the address of another hub, or of none."),
    *(
        MetricSpec(name, Kind.COUNTER, f"Requests answered with {status.name} ({status}).")
        for status, name in REFUSED.items()
    ),
    # --- what there is now
    MetricSpec("hub_OWNED_TOPICS", Kind.GAUGE, "Topics that this hub serves."),
    MetricSpec("hub_CONNECTIONS", Kind.GAUGE, "Connections of clients."),
    MetricSpec(
        "hub_CONNECTIONS_CLOSED_BY_BOUNDS",
        Kind.COUNTER,
        "Connections closed or refused by a bound on their number, silence or memory.",
    ),
    MetricSpec("hub_ATTACHED_SUBSCRIPTIONS", Kind.GAUGE, "Subscriptions that a connection holds."),
    MetricSpec(
        "hub_UNREADABLE_SUBSCRIPTIONS",
        Kind.GAUGE,
        "Subscriptions of served topics with an unreadable record: refused; messages that they may need are kept.",
    ),
    MetricSpec("hub_CACHE_BYTES", Kind.GAUGE, "Bytes of messages in memory."),
    MetricSpec("hub_CACHE_BYTES_MAX", Kind.GAUGE, "Bytes of messages that may be in memory (cache_size)."),
    # --- ledgers
    MetricSpec(
        "hub_LEDGER_IDS_PASSED_OVER",
        Kind.COUNTER,
        "Generated ledger ids that were not used for a topic, because bookies knew them already.",
    ),
    # --- other regions
    MetricSpec("hub_REGION_MESSAGES", Kind.COUNTER, "Messages of other regions that were stored here."),
    MetricSpec("hub_REGION_REPEATS", Kind.COUNTER, "Messages of other regions that came again, and were here already."),
    MetricSpec(
        "hub_REGION_FAILURES", Kind.COUNTER, "Attempts to get a topic's messages from another region that failed."
    ),
    MetricSpec("hub_REGION_SUBSCRIPTIONS", Kind.GAUGE, "Topics subscribed to in other regions, each counted for each."),
    MetricSpec("hub_REGION_MISSING", Kind.GAUGE, "Topics that should be subscribed to there, and are not now."),
    # --- TLS
    MetricSpec("hub_TLS_CONNECTIONS", Kind.COUNTER, "Connections that were secured with TLS."),
    MetricSpec("hub_TLS_FAILURES", Kind.COUNTER, "TLS handshakes that failed, and connections that TLS ended."),
    *PROCESS_METRICS,
)


class HubMeters:
    """The cells of one hub."""

    def __init__(self) -> None:
        metrics = self._metrics = Metrics(TABLE)
        self.published = metrics.counter("hub_PUBLISHED_MESSAGES")
        self.published_bytes = metrics.counter("hub_PUBLISHED_BYTES")
        self.delivered = metrics.counter("hub_DELIVERED_MESSAGES")
        self.lost = metrics.counter("hub_LOST_MESSAGES")
        self.subscribes = metrics.counter("hub_SUBSCRIBES")
        self.redirects = metrics.counter("hub_REDIRECTS")
        self.region_messages = metrics.counter("hub_REGION_MESSAGES")
        self.region_repeats = metrics.counter("hub_REGION_REPEATS")
        self.region_failures = metrics.counter("hub_REGION_FAILURES")
        self.tls_connections = metrics.counter("hub_TLS_CONNECTIONS")
        self.tls_failures = metrics.counter("hub_TLS_FAILURES")
        self._refused: dict[Status, Counter] = {}

    def refused(self, status: Status, count: int) -> None:
        """So many requests got this answer, which is not SUCCESS."""
        if status is Status.NOT_RESPONSIBLE_FOR_TOPIC:
            self.redirects.add(count)
            return
        cell = self._refused.get(status)
        if cell is None:
            cell = self._refused[status] = self._metrics.counter(REFUSED[status])
        cell.add(count)

    def watch_turns(self, longest_s: Callable[[], float]) -> None:
        """Show the longest reactor turn."""
        self._metrics.gauge(LONGEST_TURN, longest_s)

    def watch(
        self,
        *,
        owned: Callable[[], int],
        connections: Callable[[], int],
        closed: Callable[[], int],
        attached: Callable[[], int],
        unreadable: Callable[[], int],
        cache_size: Callable[[], int],
        cache_size_max: int,
        ids_passed_over: Callable[[], int],
    ) -> None:
        """Set where values are read that are counted elsewhere."""
        show = self._metrics.gauge
        show("hub_OWNED_TOPICS", owned)
        show("hub_CONNECTIONS", connections)
        self._metrics.counter("hub_CONNECTIONS_CLOSED_BY_BOUNDS", closed)
        show("hub_ATTACHED_SUBSCRIPTIONS", attached)
        show("hub_UNREADABLE_SUBSCRIPTIONS", unreadable)
        show("hub_CACHE_BYTES", cache_size)
        show("hub_CACHE_BYTES_MAX").set(cache_size_max)
        self._metrics.counter("hub_LEDGER_IDS_PASSED_OVER", ids_passed_over)

    def watch_regions(self, *, attached: Callable[[], int], missing: Callable[[], int]) -> None:
        """The same of other regions, where there are some."""
        self._metrics.gauge("hub_REGION_SUBSCRIPTIONS", attached)
        self._metrics.gauge("hub_REGION_MISSING", missing)

    def value(self, name: str) -> float:
        """The current one."""
        return self._metrics.value(name)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return self._metrics.text()
