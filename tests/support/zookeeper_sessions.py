"""Ending a ZooKeeper session as the server would.

Sessions of tests are long, so that a process that pauses for seconds keeps its session. The nodes of a killed
process are removed here, as at the end of its session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from bookkeeper.metadata.uri import parse_uri

ATTEMPTS_MAX = 50
PATIENCE_S = 60.0


def end_session(address: str, key: tuple[int, bytes]) -> None:
    """Take the session over and close it, until the server knows it no more: its owner may snatch it back before."""
    for _ in range(ATTEMPTS_MAX):
        rival = KazooClient(hosts=address, client_id=key)
        try:
            rival.start(5.0)  # hangs if the owner takes the session back during the handshake
            found = rival.client_id[0]
        except KazooTimeoutError:
            continue  # snatched back in the middle of the handshake
        finally:
            rival.stop()
            rival.close()
        if found != key[0]:
            return
    raise AssertionError("the session could not be ended")


def end_dead_session(uri: str, name: str) -> None:
    """Remove the registration, vote and locks of a killed process from a cluster's metadata.

    name: the bookie id with which it registered or voted.
    """
    service = parse_uri(uri)
    with _connected(service.connect_string) as zookeeper:
        available, repairs = f"{service.root}/available", f"{service.root}/underreplication"
        owners = {
            stat.ephemeralOwner
            for path in (f"{available}/{name}", f"{available}/readonly/{name}")
            if (stat := zookeeper.exists(path)) is not None
        }
        for _, data, owner in _ephemerals(zookeeper, f"{repairs}/auditorelection"):
            if b'"%b"' % name.encode() in data:
                owners.add(owner)
        for below in (available, repairs):
            _remove(zookeeper, below, owners)


def end_owner_session(address: str, path: str, below: str) -> None:
    """Remove all znodes under `below` of the killed process that made the znode `path`."""
    with _connected(address) as zookeeper:
        stat = zookeeper.exists(path)
        if stat is not None:
            _remove(zookeeper, below, {stat.ephemeralOwner})


@contextmanager
def _connected(address: str) -> Iterator[KazooClient]:
    zookeeper = KazooClient(hosts=address, timeout=PATIENCE_S / 2)
    zookeeper.start(PATIENCE_S)
    try:
        yield zookeeper
    finally:
        zookeeper.stop()
        zookeeper.close()


def _ephemerals(zookeeper: KazooClient, path: str) -> Iterator[tuple[str, bytes, int]]:
    """Path, data and session of each ephemeral znode at and under `path`."""
    try:
        data, stat = zookeeper.get(path)
        if stat.ephemeralOwner:
            yield path, data or b"", stat.ephemeralOwner
        for name in zookeeper.get_children(path) if stat.numChildren else ():
            yield from _ephemerals(zookeeper, f"{path}/{name}")
    except NoNodeError:
        pass  # gone since it was listed


def _remove(zookeeper: KazooClient, below: str, owners: Collection[int]) -> None:
    for path, _, owner in list(_ephemerals(zookeeper, below)):
        if owner in owners:
            with suppress(NoNodeError):  # the session has ended
                zookeeper.delete(path)
