"""Ending a ZooKeeper session as the server would."""

from __future__ import annotations

from kazoo.client import KazooClient


def end_session(address: str, key: tuple[int, bytes]) -> None:
    """Take the session over and close it, until the server knows it no more: its owner may snatch it back before."""
    for _ in range(20):
        rival = KazooClient(hosts=address, client_id=key)
        rival.start()
        found = rival.client_id[0]
        rival.stop()
        rival.close()
        if found != key[0]:
            return
    raise AssertionError("the session could not be ended")
