"""Where a server listens and what it tells others: the address of an interface, a port that nobody else has."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import socket
import struct

from bookkeeper.errors import ConfigurationError

_SIOCGIFADDR = 0x8915
_IFREQ_ADDRESS = slice(20, 24)  # name 16 bytes, family 2, port 2, then the IPv4 address


def interface_address(interface: str | None) -> str:
    """The IP address of an interface, given by name or as an address; None: the address of this host's name.

    Raises ConfigurationError, naming the interface and those that exist.
    """
    if interface is None:
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError as error:
            raise ConfigurationError(
                f"this host's name {socket.gethostname()!r} has no address ({error}): set advertisedAddress and "
                "listeningInterface"
            ) from error
    try:
        return str(ipaddress.ip_address(interface))
    except ValueError:
        return _address_of_name(interface)


def _address_of_name(interface: str) -> str:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise ConfigurationError(
                f"listeningInterface={interface} has no IPv4 address ({error.strerror}); interfaces here: {names}"
            ) from error
    return socket.inet_ntoa(answer[_IFREQ_ADDRESS])


class PortReservation:
    """A bound port that nobody listens on yet: taken early, so that a conflict shows before anything is written.

    Bound with SO_REUSEADDR, so that our own listener may take it over while the reservation still stands.
    """

    def __init__(self, host: str, port: int, key: str = "bookiePort", host_key: str = "listeningInterface") -> None:
        """Bind; port 0: the system chooses. key, host_key: what sets port and host, for messages.

        Raises ConfigurationError when the port is taken or the host not ours.
        """
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise ConfigurationError(cannot_listen(host, port, error, key, host_key)) from error
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back; harmless when repeated."""
        self._socket.close()


def reserve_http_port(host: str, port: int) -> PortReservation | None:
    """The port of an HTTP server, before anything is written; None for port 0, which is never taken.

    Raises ConfigurationError when it is taken or the host not ours.
    """
    return PortReservation(host, port, *_HTTP_KEYS) if port else None


def cannot_serve_http(host: str, port: int, error: OSError) -> str:
    """As `cannot_listen`, of the HTTP server."""
    return cannot_listen(host, port, error, *_HTTP_KEYS)


_HTTP_KEYS = "httpServerPort", "httpServerHost"


def cannot_listen(
    host: str, port: int, error: OSError, key: str = "bookiePort", host_key: str = "listeningInterface"
) -> str:
    """Why a port could not be had, and what to do. key, host_key: what sets port and host."""
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is taken, cannot listen on {where}. `ss -ltnp 'sport = :{port}'` shows by whom; stop that "
            f"process or set another {key}"
        )
    if error.errno == errno.EACCES:
        return f"not allowed to listen on {where}: ports below 1024 need privileges; set another {key}"
    return f"cannot listen on {where}: {error.strerror}. Check {host_key} and {key}"


def is_loopback(host: str) -> bool:
    """Only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
