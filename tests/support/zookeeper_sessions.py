"""Ending a ZooKeeper session as the server would."""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

ATTEMPTS_MAX = 50


def end_session(address: str, key: tuple[int, bytes]) -> None:
    """Take the session over and close it, until the server knows it no more: its owner may snatch it back before."""
    for _ in range(ATTEMPTS_MAX):
        rival = KazooClient(hosts=address, client_id=key)
        try:
            rival.start(5.0)  # after a snatch in the middle of the handshake it waits in vain
            found = rival.client_id[0]
        except KazooTimeoutError:
            continue  # snatched back in the middle of the handshake
        finally:
            rival.stop()
            rival.close()
        if found != key[0]:
            return
    raise AssertionError("the session could not be ended")
