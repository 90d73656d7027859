"""Hubs as processes on this machine, beside a cluster of `bookkeeper.embedded`: for command lines, demos and tests.

    with LocalCluster(3) as cluster:
        hub = LocalHub.beside(cluster, 1)          not started yet
        cluster.start_others([hub])                stopped with the cluster, before its bookies
        hub.address                                127.0.0.1:PORT:SSLPORT, as clients are told
        hub.kill(); hub.start()                    the same ports, another life

    <directory>/hub-<n>/    hub.conf hub.log

Blocking, as all of that package. `bookkeeper standalone --hub` finds SERVICE by its entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.embedded.server import LocalServer
from bookkeeper.embedded.services import OtherService

PORT = 4080


class LocalHub(LocalServer):
    """One hub process. Restarting it keeps its ports; of a hub nothing else stays.

    port: 0 takes a free one. bookie_count: of the cluster; ledgers are not spread wider than that. settings: more keys.
    """

    def __init__(
        self,
        number: int,
        directory: Path,
        uri: str,
        port: int = 0,
        bookie_count: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        given = dict(settings or {})
        self.number, self.uri, self.port = number, uri, int(given.get("server_port", port)) or free_port()
        self.ssl_port: int | None = None
        if given.get("ssl_enabled") == "true":
            self.ssl_port = int(given.get("ssl_server_port", 0)) or free_port()
            given["ssl_server_port"] = str(self.ssl_port)
        super().__init__(
            f"hub {number}",
            directory,
            conf_name="hub.conf",
            log_name="hub.log",
            command=("hedwig.cli.main", "hub"),
            environment_prefix="HW_",
            settings={
                "metadataServiceUri": uri,
                "allowLoopback": "true",
                "listeningInterface": "lo",
                "bk_ensemble_size": str(min(3, bookie_count)),
                "bk_quorum_size": str(min(2, bookie_count)),
                **given,
                "server_port": str(self.port),
            },
        )

    @classmethod
    def beside(cls, cluster: LocalCluster, number: int, settings: Mapping[str, str] | None = None) -> LocalHub:
        """One of a cluster that runs."""
        return cls(number, cluster.directory / f"hub-{number}", cluster.uri, 0, len(cluster.bookies), settings)

    @property
    def address(self) -> str:
        """As clients are told."""
        return f"127.0.0.1:{self.port}:{-1 if self.ssl_port is None else self.ssl_port}"

    @property
    def shown_address(self) -> str:
        """For people."""
        return f"127.0.0.1:{self.port}" + ("" if self.ssl_port is None else f", TLS at port {self.ssl_port}")


def _check(settings: Mapping[str, str]) -> None:
    from hedwig.config.load import load_hub

    load_hub(None, settings)


SERVICE = OtherService(PORT, _check, LocalHub)
