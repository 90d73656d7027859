"""Addresses of this machine: where a server listens, which host it advertises by default, which ports are free.

A host name resolves to its IPv4 address, or to IPv6 if it has no IPv4 address. Ids of bookies and hubs are derived
from the result, so a host that also gets an IPv6 address keeps its id. If a look-up fails for another reason (the name
server does not answer), the name is refused with that reason. Nothing is looked up if the settings give the answer.

    listeningInterface                         the server listens on
    a name or an address                       its address, IPv4 first
    not set, IPv6 address advertised           "::", which accepts IPv4 too
    not set, interfaces with only IPv6         "::" (loopback counts if there is no other interface)
    not set, otherwise                         all IPv4 addresses
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import socket
import struct

from bookkeeper.errors import ConfigurationError
from bookkeeper.system.hosts import read_as_number

ANY_IPV4, ANY_IPV6 = "", "::"

_SIOCGIFADDR = 0x8915
_IFREQ_ADDRESS = slice(20, 24)  # name 16 bytes, family 2, port 2, then the IPv4 address
_IPV6_TABLE = "/proc/net/if_inet6"
_IPV6_LINK_LOCAL = 0x20  # useless without the name of the interface
_NO_SUCH_ADDRESS = frozenset([socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY])


class Machine:
    """Name, name service and interfaces of this machine, as the system reports them."""

    @property
    def name(self) -> str:
        return socket.gethostname()

    def look_up(self, name: str, family: socket.AddressFamily) -> list[str]:
        """Return the addresses of a name, in the system's order. Raises socket.gaierror."""
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)]

    def interfaces(self) -> list[str]:
        """Return the names of the interfaces."""
        return [name for _, name in socket.if_nameindex()]

    def addresses_of(self, interface: str) -> list[str]:
        """Return the first IPv4 address of an interface or alias, if any, then its IPv6 addresses except link-local."""
        found: list[str] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
            found.append(socket.inet_ntoa(answer[_IFREQ_ADDRESS]))
        with contextlib.suppress(FileNotFoundError), open(_IPV6_TABLE, encoding="ascii") as table:  # none: IPv6 is off
            found.extend(
                str(ipaddress.IPv6Address(bytes.fromhex(row[0])))
                for row in map(str.split, table)
                if row[5] == interface and int(row[3], 16) != _IPV6_LINK_LOCAL
            )
        return found

    def addresses(self) -> list[str]:
        """Return the addresses of all interfaces, without a look-up."""
        return [address for each in self.interfaces() for address in self.addresses_of(each)]


THIS_MACHINE = Machine()


def own_address(interface: str | None, machine: Machine = THIS_MACHINE) -> str:
    """Return the IP address of an interface, given by name or address. None: the address of this host's name.

    Raises ConfigurationError, naming the interface and those that exist.
    """
    if interface is None:
        return _address_of_own_name(machine)
    try:
        return str(ipaddress.ip_address(interface))
    except ValueError:
        pass
    if not (found := machine.addresses_of(interface)):
        names = machine.interfaces()
        what = "has no address" if interface in names else "does not exist"
        raise ConfigurationError(
            f"listeningInterface={interface}: this interface {what}; set one of {', '.join(names)}, or an address"
        )
    return found[0]


def _address_of_own_name(machine: Machine) -> str:
    name = machine.name
    remedy = "set advertisedAddress or listeningInterface"
    if (number := read_as_number(name)) is not None:
        raise ConfigurationError(
            f"this host's name {name!r} is a number, which would be read as the address {number}; {remedy}"
        )
    reason: OSError | None = None
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found = [each for each in machine.look_up(name, family) if "%" not in each]
        except socket.gaierror as error:
            reason = error
            if error.errno not in _NO_SUCH_ADDRESS:
                break
        else:
            if found:
                return found[0]
    raise ConfigurationError(f"this host's name {name!r} has no address ({reason}); {remedy}") from reason


def listen_host(interface: str | None, advertised: str, machine: Machine = THIS_MACHINE) -> str:
    """Return the address to listen on (see the module). Raises ConfigurationError if an interface has no address."""
    if interface is not None:
        return own_address(interface, machine)
    with contextlib.suppress(ValueError):
        return ANY_IPV6 if ipaddress.ip_address(advertised).version == 6 else ANY_IPV4
    usable = routable_addresses(machine) or machine.addresses()
    return ANY_IPV6 if usable and all(":" in each for each in usable) else ANY_IPV4


def routable_addresses(machine: Machine = THIS_MACHINE) -> list[str]:
    """Return the addresses of this machine that other machines may reach, without a look-up of its name."""
    return [address for address in machine.addresses() if not is_loopback(address)]


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
