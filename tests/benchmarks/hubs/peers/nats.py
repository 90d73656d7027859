"""NATS with JetStream: three servers, built from the Go module."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.embedded.process import free_port
from tests.benchmarks.hubs.peers.peer import CACHE, Servers, Serving, arriving, fetch, module_command, python_with
from tests.support.java_programs import Missing

MODULE, VERSION = "github.com/nats-io/nats-server/v2", "v2.11.4"
REQUIREMENT = "nats-py==2.11.0"
SERVERS = 3
_LEADER = re.compile(rb"(?i)new (JetStream cluster )?metadata leader")


@dataclass(frozen=True, slots=True)
class Nats:
    """It is here."""

    program: Path
    python: Path

    durability = (
        f"NATS {VERSION} JetStream, nats-py: three servers, streams of three copies, sync_interval always; an answer "
        "means that two of the three have written and synced it"
    )

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Serving]:
        """See Peer."""
        routes = [free_port() for _ in range(SERVERS)]
        ports = [free_port() for _ in range(SERVERS)]
        with Servers() as servers:
            pids = []
            for number, (port, route) in enumerate(zip(ports, routes, strict=True), 1):
                place = directory / f"nats-{number}"
                place.mkdir(parents=True)
                conf = place / "nats.conf"
                others = ", ".join(f'"nats://127.0.0.1:{each}"' for each in routes if each != route)
                conf.write_text(
                    f"server_name: n{number}\n"
                    f"listen: 127.0.0.1:{port}\n"
                    f'jetstream {{ store_dir: "{place / "store"}", sync_interval: always }}\n'
                    f"cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{others}] }}\n"
                )
                pids.append(servers.start(f"nats {number}", [str(self.program), "-c", str(conf)], place))
            servers.wait_ready(_LEADER)
            command = module_command(self.python, "nats_load", f"nats://127.0.0.1:{ports[0]}")
            yield Serving(command, hub_pids=tuple(pids))


def find() -> Nats:
    """Raises Missing."""
    python = python_with("nats-py", REQUIREMENT)
    installed = shutil.which("nats-server")
    if installed is not None:
        return Nats(Path(installed), python)
    place = CACHE / f"nats-{VERSION}"
    if not place.is_dir():
        if shutil.which("go") is None:
            raise Missing(f"nats-server: it is built from the Go module {MODULE}, and there is no go")
        with arriving(place) as making:
            fetch("nats-server", ["go", "install", f"{MODULE}@{VERSION}"], making, {"GOBIN": str(making)})
    return Nats(place / "nats-server", python)
