"""What a process that was killed still holds in a cluster's metadata, taken from it at once.

Sessions of tests are long, so that a process that stands still for seconds keeps its own. So nothing waits here for the
end of the session of a dead one: what is removed is what the server would remove then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bookkeeper.metadata.uri import parse_uri

PATIENCE_S = 60.0


def end_of_dead(uri: str, name: str) -> None:
    """Remove the registration, vote and locks of a killed process.

    name: the id of its bookie, or the one under which it stands for auditor.
    """
    service = parse_uri(uri)
    available, repairs = f"{service.root}/available", f"{service.root}/underreplication"
    zookeeper = KazooClient(hosts=service.connect_string, timeout=PATIENCE_S / 2)
    with closing(zookeeper):
        zookeeper.start(PATIENCE_S)
        held = [found for below in (available, repairs) for found in _ephemerals(zookeeper, below)]
        registrations = (f"{available}/{name}", f"{available}/readonly/{name}")
        vote = f'"{name}"'.encode()
        owners = {
            owner
            for path, data, owner in held
            if path in registrations or ("/auditorelection/" in path and vote in data)
        }
        for path, _, owner in held:
            if owner in owners:
                with suppress(NoNodeError):  # the session has ended by now
                    zookeeper.delete(path)
        zookeeper.stop()


def _ephemerals(zookeeper: KazooClient, path: str) -> Iterator[tuple[str, bytes, int]]:
    """Path, data and session of each ephemeral node there and below."""
    with suppress(NoNodeError):
        data, stat = zookeeper.get(path)
        if stat.ephemeralOwner:
            yield path, data or b"", stat.ephemeralOwner
        for name in zookeeper.get_children(path) if stat.numChildren else ():
            yield from _ephemerals(zookeeper, f"{path}/{name}")
