"""What a server answers over HTTP, out of the parts that it has; what it lacks is said to be elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.admin.http.autorecovery import TOP, AutoRecovery, Recovering, Troubled
from bookkeeper.admin.http.cluster import ClusterView
from bookkeeper.admin.http.garbage import Collecting, Garbage
from bookkeeper.admin.http.general import General, with_list
from bookkeeper.admin.http.ledgers import Ledgers
from bookkeeper.admin.http.one_bookie import OneBookie, ServedBookie
from bookkeeper.admin.http.routing import Route, Router
from bookkeeper.clock import wall_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from twisted.internet.defer import Deferred

    from bookkeeper.admin.http.ledger_access import MakeSettings
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import MetadataStore

BOOKIE = "/api/v1/bookie"
OF_ONE_BOOKIE = (
    *("info", "last_log_mark", "list_disk_file", "expand_storage", "state", "sanity", "is_ready"),
    *("entry_location_compact", "gc", "gc_details", "entry_logs", "ledgers", "unmended_index_pages"),
)
OF_RECOVERY = ("bookie", "decommission", "troubles", "auditor")
OF_CLUSTER = ("list_bookies", "list_bookie_info", "cluster_info")


@dataclass(frozen=True, slots=True)
class OperatorAccess:
    """What a process's configuration says for its operators.

    config: key -> effective value, secrets hidden. client_settings: of a client of the same cluster. recovering,
    troubled: of the auto-recovery beside a bookie, where it runs.
    """

    config: Callable[[], Mapping[str, str]]
    client_settings: MakeSettings
    recovering: Recovering | None = None
    troubled: Troubled | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What this process has. None: it has not.

    client: a ledger client, connected at first need. connect: another client, with some keys changed. ledger_content:
    httpServerLedgerContentEnabled. extra: additional routes of this process.
    """

    metrics_text: Callable[[], bytes]
    config: Callable[[], Mapping[str, str]] | None = None
    store: MetadataStore | None = None
    client: Callable[[], Deferred[LedgerClient]] | None = None
    connect: Callable[[Mapping[str, str]], Awaitable[LedgerClient]] | None = None
    bookie: ServedBookie | None = None
    collecting: Collecting | None = None
    recovering: Recovering | None = None
    troubled: Troubled | None = None
    now_ms: Callable[[], int] = wall_ms
    ledger_content: bool = False
    extra: Iterable[Route] = ()


def router_of(parts: Parts) -> Router:
    """The router of one server."""
    absent: dict[str, str] = {}
    routes = [*General(parts.metrics_text, parts.config).routes(), *parts.extra]
    if parts.client is not None:
        routes += Ledgers(parts.client, content=parts.ledger_content).routes()
    else:
        absent["/api/v1/ledger"] = "this process has no client of ledgers; ask a bookie"
    if parts.store is not None:
        routes += ClusterView(parts.store, parts.client).routes()
        tree = parts.store.underreplication
        routes += AutoRecovery(tree, parts.now_ms, parts.recovering, parts.troubled).routes()
    if parts.bookie is not None:
        routes += OneBookie(parts.bookie, parts.connect).routes()
        if parts.collecting is not None:
            routes += Garbage(parts.bookie.bookie_id, parts.collecting).routes()
    _fill(absent, routes, OF_ONE_BOOKIE, _why_no_bookie_part(parts))
    _fill(absent, routes, OF_CLUSTER, "this process has no session with the metadata store for it; ask a bookie")
    _fill_rest(absent, routes)
    return with_list(routes, absent)


def _why_no_bookie_part(parts: Parts) -> str:
    if parts.bookie is None:
        return "no bookie runs in this process; ask that of a bookie"
    return "this bookie runs without that part"


def _fill(absent: dict[str, str], routes: Iterable[Route], names: Iterable[str], why: str) -> None:
    served = {route.path for route in routes}
    absent.update({f"{BOOKIE}/{name}": why for name in names if f"{BOOKIE}/{name}" not in served})


def _fill_rest(absent: dict[str, str], routes: Iterable[Route]) -> None:
    served = {route.path for route in routes}
    if f"{TOP}/status" not in served:
        absent[TOP] = "this process has no session with the metadata store for it; ask a bookie"
    else:
        why = "this process recovers nobody; one that runs auto-recovery does, and so does `bookkeeper shell recover`"
        absent.update({f"{TOP}/{name}": why for name in OF_RECOVERY if f"{TOP}/{name}" not in served})
    if "/api/v1/config/server_config" not in served:
        absent["/api/v1/config"] = "this process does not tell its settings; `bookkeeper config show` does"
