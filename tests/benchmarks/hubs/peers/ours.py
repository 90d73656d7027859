"""Our hub on three of our bookies, driven by our client."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from tests.benchmarks.apache.processes import BOOKIES, DISK_SETTINGS, ROOT
from tests.benchmarks.hubs.peers.peer import Servers, Serving, module_command

_SERVES = re.compile(rb"^serving ", re.MULTILINE)
PREFIX = "/hedwig"


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
        with (
            LocalCluster(BOOKIES, directory=directory / "cluster", settings=DISK_SETTINGS) as cluster,
            Servers() as hubs,
        ):
            port = free_port()
            program = "tests.support.apache_hedwig.run_our_hub"
            began = time.monotonic()
            command = [sys.executable, "-m", program, cluster.uri, str(port), PREFIX]
            hub = hubs.start("our hub", command, directory / "hub", {"PYTHONPATH": str(ROOT)})
            hubs.wait_ready(_SERVES)
            start_s = time.monotonic() - began
            client = module_command(sys.executable, "our_load", f"127.0.0.1:{port}")
            yield Serving(client, (hub,), tuple(bookie.pid for bookie in cluster.bookies), hub_start_s=start_s)


def find() -> Ours:
    """See Peer."""
    return Ours()
