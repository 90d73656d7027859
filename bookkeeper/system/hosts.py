"""Host names that the system reads as numbers. Pure."""

from __future__ import annotations

import contextlib
import ipaddress
import socket


def read_as_number(host: str) -> str | None:
    """Return the IPv4 address that a number ("12345", "0x7f.1") means to the system; None for names and addresses."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return None
    with contextlib.suppress(OSError, ValueError):
        return socket.inet_ntoa(socket.inet_aton(host))
    return None


def check_no_number(host: str) -> str:
    """Return the host unchanged. Raises ValueError if the system reads it as a number."""
    if (number := read_as_number(host)) is not None:
        raise ValueError(
            f"{host!r} is a number, which would be read as the address {number}; write a name or an address"
        )
    return host
