"""Tell systemd, or whoever set NOTIFY_SOCKET, how the service is doing (sd_notify)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send e.g. "READY=1" or "STOPPING=1"; False when nobody asked. Raises OSError when the listener is gone."""
    address = environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    return True
