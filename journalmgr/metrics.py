"""What a name node counts: its log, its place among the servers, its clients. The table, and who feeds it.

    metrics = NameNodeMetrics()
    metrics.watch(service)                     role, txids, turns, sizes: read when they are shown, free until then
    metrics.watch_newest(lambda: txid)         a standby's lag: the newest txid that it knows of, where it knows one
    metrics.on_flush(transactions, size, s)    the log, once for each flush that succeeded, never for each transaction
    metrics.on_flush_failed(s)                 ... and for the one that failed
    HttpApi(..., metrics_text=metrics.text, counts=metrics)

Names begin with `namenode_`; text and cells are those of `bookkeeper.metrics`. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bookkeeper.metrics import LONGEST_TURN, PROCESS_METRICS, Kind, Metrics, MetricSpec
from journalmgr.replica import Role

if TYPE_CHECKING:
    from journalmgr.namenode.service import NameService

ROLE_NUMBERS = {
    Role.FAILED: -1,
    Role.STOPPED: -1,
    Role.LOADING: 0,
    Role.STANDBY: 1,
    Role.TAKING_OVER: 2,
    Role.ACTIVE: 3,
}

TABLE = (
    # --- log
    MetricSpec("namenode_FLUSH", Kind.SUMMARY, "Milliseconds from the write of a batch to its durability."),
    MetricSpec("namenode_FLUSH_TRANSACTIONS", Kind.SUMMARY, "Transactions of one flush: how many callers shared it."),
    MetricSpec("namenode_TRANSACTIONS", Kind.COUNTER, "Transactions made durable."),
    MetricSpec("namenode_TRANSACTION_BYTES", Kind.COUNTER, "Bytes of transactions made durable."),
    # --- place among the servers
    MetricSpec(
        "namenode_ROLE", Kind.GAUGE, "3 active, 2 taking over, 1 standby, 0 loading, -1 ended: failed or stopped."
    ),
    MetricSpec("namenode_FAILOVERS", Kind.COUNTER, "Times this server became the active one."),
    MetricSpec("namenode_APPLIED_TXID", Kind.GAUGE, "Last transaction of the state."),
    MetricSpec("namenode_CHECKPOINT_TXID", Kind.GAUGE, "Last transaction of the newest image; 0 without any."),
    MetricSpec("namenode_TAIL_LAG_TXIDS", Kind.GAUGE, "Transactions known to be in the journal and not applied yet."),
    # --- state
    MetricSpec("namenode_INODES", Kind.GAUGE, "Directories, files and links."),
    MetricSpec("namenode_REMEMBERED_CALLS", Kind.GAUGE, "Calls of clients that would not be done twice."),
    # --- clients
    MetricSpec("namenode_HTTP_REQUEST", Kind.SUMMARY, "Milliseconds of an HTTP request; failed: answered with 5xx."),
    MetricSpec("namenode_HTTP_REFUSED", Kind.COUNTER, "HTTP requests answered with 4xx, those to a standby included."),
    *PROCESS_METRICS,
)


class NameNodeMetrics:
    """The cells of one server."""

    def __init__(self) -> None:
        self._metrics = Metrics(TABLE)
        self._flush = self._metrics.summary("namenode_FLUSH")
        self._batch = self._metrics.summary("namenode_FLUSH_TRANSACTIONS")
        self._transactions = self._metrics.counter("namenode_TRANSACTIONS")
        self._bytes = self._metrics.counter("namenode_TRANSACTION_BYTES")
        self._requests = self._metrics.summary("namenode_HTTP_REQUEST")
        self._refused = self._metrics.counter("namenode_HTTP_REFUSED")
        self._applied: Callable[[], int] = lambda: 0

    def watch_turns(self, longest_s: Callable[[], float]) -> None:
        """Show the longest reactor turn. Called once."""
        self._metrics.gauge(LONGEST_TURN, longest_s)

    def watch(self, service: NameService) -> None:
        """Show this server's state; once."""
        replica, machine, metrics = service.replica, service.machine, self._metrics
        self._applied = lambda: machine.namespace.last_txid
        metrics.gauge("namenode_ROLE", lambda: ROLE_NUMBERS[replica.role])
        metrics.counter("namenode_FAILOVERS", lambda: replica.turns)
        metrics.gauge("namenode_APPLIED_TXID", self._applied)
        metrics.gauge("namenode_CHECKPOINT_TXID", lambda: machine.checkpoint_txid)
        metrics.gauge("namenode_INODES", lambda: len(machine.namespace.inodes))
        metrics.gauge("namenode_REMEMBERED_CALLS", lambda: len(machine.namespace.retries))

    def watch_newest(self, newest_txid: Callable[[], int]) -> None:
        """Show how far the state is behind the newest txid that this server knows to be in the journal; once."""
        self._metrics.gauge("namenode_TAIL_LAG_TXIDS", lambda: max(0, newest_txid() - self._applied()))

    def on_flush(self, transactions: int, size: int, seconds: float) -> None:
        """So many transactions, of so many bytes, became durable with one flush."""
        self._flush.observe(seconds * 1000)
        self._batch.observe(transactions)
        self._transactions.add(transactions)
        self._bytes.add(size)

    def on_flush_failed(self, seconds: float) -> None:
        """A flush failed, and with it the log."""
        self._flush.observe_failure(seconds * 1000)

    def on_request(self, status: int, seconds: float) -> None:
        """An HTTP request was answered."""
        if status >= 500:
            self._requests.observe_failure(seconds * 1000)
        else:
            self._requests.observe(seconds * 1000)
            if status >= 400:
                self._refused.add()

    def value(self, name: str) -> float:
        """As of `bookkeeper.metrics.Metrics`."""
        return self._metrics.value(name)

    def text(self) -> bytes:
        """The body of GET /metrics."""
        return self._metrics.text()
