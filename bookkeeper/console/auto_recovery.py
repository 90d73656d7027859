"""Auto-recovery out of a configuration: the parts that run in a process of their own, or beside a bookie.

The client they work with has the settings that the same file gives a client: protocol, timeouts, TLS, credentials, and
digestType and passwd for ledgers older than 4.2.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import ConfigurationError
from bookkeeper.model import BookieId

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.config import ClientSettings, ServerSettings
    from bookkeeper.metrics import Metrics
    from bookkeeper.replication.audit.auditor import Auditor
    from bookkeeper.replication.daemon import AutoRecovery, Part
    from bookkeeper.replication.repair.worker import ReplicationWorker


def client_settings_of(conf: Path | None, overrides: Mapping[str, str]) -> ClientSettings:
    """The client's part of a bookie's configuration. Raises ConfigurationError."""
    from bookkeeper.config import load_client

    return load_client(conf, overrides).settings


def make_auto_recovery(
    settings: ServerSettings, client_settings: ClientSettings, reactor: Any, metrics: Metrics
) -> AutoRecovery:
    """Everything of auto-recovery, not started."""
    from bookkeeper.client.connecting import connect_to
    from bookkeeper.replication.daemon import AutoRecovery, make_auditor, make_presence, make_worker

    async def connect() -> LedgerClient:
        return await connect_to(settings.metadata_service_uri, reactor, client_settings)

    def parts(client: LedgerClient) -> list[Part]:
        bookie_id = own_id(settings)
        return [
            make_presence(client, bookie_id, http_address(settings, bookie_id)),
            make_auditor(client, settings, bookie_id, metrics),
            make_worker(client, settings, metrics),
        ]

    return AutoRecovery(connect, parts, reactor)


def own_id(settings: ServerSettings) -> BookieId:
    """Who we are to the cluster's people: the bookie's id, as the configuration has it; else this host's name."""
    from bookkeeper.bookie.identity.identity import advertised_host, bookie_id_of

    try:
        host = advertised_host(settings)
    except ConfigurationError:
        host = socket.gethostname()
    return bookie_id_of(settings, host, settings.bookie_port)


def http_address(settings: ServerSettings, bookie_id: BookieId) -> tuple[str, int] | None:
    """Where this process serves HTTP, as others are told; None where it does not, or on any free port."""
    if not settings.http_server_enabled or not settings.http_server_port:
        return None
    host = settings.http_server_host
    if host in ("", "0.0.0.0", "::"):
        host = bookie_id.rpartition(":")[0] or socket.gethostname()
    return host, settings.http_server_port


def auditor_of(recovery: AutoRecovery) -> Auditor | None:
    """Its auditor, elected or not, while it runs."""
    from bookkeeper.replication.audit.auditor import Auditor

    return next((part for part in recovery.parts if isinstance(part, Auditor)), None)


def worker_of(recovery: AutoRecovery) -> ReplicationWorker | None:
    """Its worker, while it runs."""
    from bookkeeper.replication.repair.worker import ReplicationWorker

    return next((part for part in recovery.parts if isinstance(part, ReplicationWorker)), None)
