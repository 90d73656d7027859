"""Removal of the registration, vote and locks of a killed process from a cluster's metadata.

Sessions of tests are long, so that a process that pauses for seconds keeps its session. Tests do not wait for the end
of a killed process's session: `end_of_dead` removes the nodes that the server would remove then.
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

    name: the bookie id with which it registered or voted.
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
                with suppress(NoNodeError):  # the session has ended
                    zookeeper.delete(path)
        zookeeper.stop()


def _ephemerals(zookeeper: KazooClient, path: str) -> Iterator[tuple[str, bytes, int]]:
    """Path, data and session of each ephemeral node at and under `path`."""
    with suppress(NoNodeError):
        data, stat = zookeeper.get(path)
        if stat.ephemeralOwner:
            yield path, data or b"", stat.ephemeralOwner
        for name in zookeeper.get_children(path) if stat.numChildren else ():
            yield from _ephemerals(zookeeper, f"{path}/{name}")
