"""Our hub on three of our bookies, driven by our client."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.embedded.cluster import LocalCluster
from hedwig.embedded import LocalHub
from tests.benchmarks.apache.processes import BOOKIES, DISK_SETTINGS
from tests.benchmarks.hubs.peers.peer import Serving, module_command


@dataclass(frozen=True, slots=True)
class Ours:
    """It is always here."""

    durability = (
        f"our hub, our client and {BOOKIES} bookies of ours: two bookies have synced a message (E3 Qw2 Qa2); defaults "
        f"but {' '.join(f'{key}={value}' for key, value in DISK_SETTINGS.items())}"
    )

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Serving]:
        """See Peer."""
        with LocalCluster(BOOKIES, directory=directory / "cluster", settings=DISK_SETTINGS) as cluster:
            hub = LocalHub.beside(cluster, 1)
            began = time.monotonic()
            cluster.start_others([hub])
            start_s = time.monotonic() - began
            client = module_command(sys.executable, "our_load", hub.address)
            try:
                yield Serving(client, (hub.pid,), tuple(bookie.pid for bookie in cluster.bookies), hub_start_s=start_s)
            finally:
                hub.kill()  # its topics are thrown away: giving back ten thousand of them takes a while


def find() -> Ours:
    """See Peer."""
    return Ours()
