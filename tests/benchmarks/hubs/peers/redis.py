"""Redis with one replica, from Debian: installed, or unpacked into .cache."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.embedded.process import free_port
from tests.benchmarks.hubs.peers.peer import CACHE, Servers, Serving, arriving, fetch, module_command, python_with
from tests.support.java_programs import Missing

REQUIREMENT = "redis[hiredis]==6.4.0"
PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "always",
    "auto-aof-rewrite-percentage": "0",
    "save": '""',
    "repl-diskless-sync-delay": "0",
    "daemonize": "no",
}
_SERVES = re.compile(rb"Ready to accept connections")
_COPIES = re.compile(rb"MASTER <-> REPLICA sync: Finished with success")


@dataclass(frozen=True, slots=True)
class Redis:
    """It is here."""

    program: Path
    libraries: Path | None
    python: Path

    durability = (
        "Redis 7 streams, redis-py with hiredis: appendfsync always on the primary and on one replica, WAIT 1 behind "
        "each pipeline; WAIT promises that the replica received it, not that it synced it; a reader may see a message "
        "before the replica has it, and keeps its position itself; no automatic failover"
    )

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Serving]:
        """See Peer."""
        ports = free_port(), free_port()
        environment = {} if self.libraries is None else {"LD_LIBRARY_PATH": str(self.libraries)}
        with Servers() as primary, Servers() as replica:
            pids = []
            for name, servers, port in (("primary", primary, ports[0]), ("replica", replica, ports[1])):
                settings = {**SETTINGS, "port": str(port)}
                if servers is replica:
                    settings["replicaof"] = f"127.0.0.1 {ports[0]}"
                place = directory / name
                place.mkdir(parents=True)
                conf = place / "redis.conf"
                conf.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
                pids.append(servers.start(f"redis {name}", [str(self.program), str(conf)], place, environment))
                servers.wait_ready(_SERVES)
            replica.wait_ready(_COPIES)
            command = module_command(self.python, "redis_load", str(ports[0]))
            yield Serving(command, hub_pids=(pids[0],), store_pids=(pids[1],))


def find() -> Redis:
    """Raises Missing."""
    python = python_with("redis-py", REQUIREMENT)
    installed = shutil.which("redis-server")
    if installed is not None:
        return Redis(Path(installed), None, python)
    place = CACHE / "redis"
    if not place.is_dir():
        with arriving(place) as making:
            fetch("redis-server", ["apt-get", "download", *PACKAGES], making)
            for package in sorted(making.glob("*.deb")):
                fetch("redis-server", ["dpkg", "-x", package, making], making)
                package.unlink()
    program = place / "usr" / "bin" / "redis-server"
    libraries = next((path.parent for path in (place / "usr" / "lib").glob("*/libjemalloc.so.2")), None)
    if libraries is None or not os.access(program, os.X_OK):
        raise Missing(f"redis-server: Debian's packages in {place} have no program; remove them to fetch them again")
    return Redis(program, libraries, python)
