"""Whether a host is the machine that this process runs on: what reorderReadSequenceEnabled wants to know of bookies.

Asked of the system at once, without a name service and without sending anything. A container with an address of its own
is a machine of its own here; which rack it stands in can be told.
"""

from __future__ import annotations

import ipaddress
import socket

from bookkeeper.client.bookies.nearness import same_name


def is_this_machine(host: str) -> bool:
    """By its name or address. A name other than the machine's own, or localhost, is not looked up: it is another's."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost" or same_name(host, socket.gethostname())
    if address.is_loopback:
        return True
    if address.is_unspecified or address.is_multicast:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))  # of a system's own addresses only
        except OSError:
            return False
    return True
