"""The cells that the bookie and its connections count in. Names and units: `bookkeeper.metrics`."""

from __future__ import annotations

from bookkeeper.metrics import Metrics


class BookieMeters:
    """What the bookie did. One writer: the reactor thread. A cell is touched once per batch, never once per entry."""

    def __init__(self, metrics: Metrics) -> None:
        self.adds = metrics.summary("bookie_BOOKIE_ADD_ENTRY")
        self.recovery_adds = metrics.summary("bookie_BOOKIE_RECOVERY_ADD_ENTRY")
        self.reads = metrics.summary("bookie_BOOKIE_READ_ENTRY")
        self.fences = metrics.summary("bookkeeper_server_READ_ENTRY_FENCE_REQUEST")
        self.forces = metrics.summary("bookie_BOOKIE_FORCE_LEDGER")
        self.write_bytes = metrics.counter("bookie_WRITE_BYTES")
        self.adds_rejected = metrics.counter("bookkeeper_server_ADD_ENTRY_REJECTED")
        self.polls_rejected = metrics.counter("bookkeeper_server_LONG_POLLS_REJECTED")
        self.reads_rejected = metrics.counter("bookkeeper_server_READ_ENTRY_REJECTED")


class ConnectionMeters:
    """What the connections did. One writer: the reactor thread."""

    def __init__(self, metrics: Metrics) -> None:
        self.writes = metrics.counter("bookkeeper_server_REPLY_WRITES")
        self.write_bytes = metrics.counter("bookkeeper_server_REPLY_BYTES")
        self.protocol_errors = metrics.counter("bookkeeper_server_PROTOCOL_ERRORS")
        self.tls_connections = metrics.counter("bookkeeper_server_TLS_CONNECTIONS")
        self.tls_failures = metrics.counter("bookkeeper_server_TLS_FAILURES")
        self.auth_failures = metrics.counter("bookkeeper_server_AUTH_FAILURES")
        self.unauthorized = metrics.counter("bookkeeper_server_UNAUTHORIZED_REQUESTS")
        self.reading_paused = metrics.counter("bookkeeper_server_READING_PAUSED")
