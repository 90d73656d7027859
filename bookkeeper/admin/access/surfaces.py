"""The ports of a process that other machines can reach without credentials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.errors import ConfigurationError
from bookkeeper.system.addresses import is_loopback, own_address

if TYPE_CHECKING:
    from bookkeeper.config import ServerSettings

log = Logger()


@dataclass(frozen=True, slots=True)
class Surface:
    """A port that needs no credentials.

    interface: name or address that the port listens on, or "" for all interfaces. remedy: how to close the port.
    """

    what: str
    interface: str
    port: int
    remedy: str

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach the port. True for an interface that this machine does not have."""
        if not self.interface:
            return True
        if is_loopback(self.interface):
            return False
        try:
            return not is_loopback(own_address(self.interface))
        except ConfigurationError:
            return True

    def __str__(self) -> str:
        host = f"[{self.interface}]" if ":" in self.interface else self.interface or "*"
        return f"{self.what} {host}:{self.port} ({self.remedy})"


def open_surfaces(surfaces: Iterable[Surface]) -> list[str]:
    """Return the surfaces that other machines can reach, as text."""
    return [str(surface) for surface in surfaces if surface.is_open]


def log_open_surfaces(surfaces: Iterable[Surface]) -> None:
    """Log the surfaces that other machines can reach, in one line."""
    found = open_surfaces(surfaces)
    if found:
        log.warn("Other machines can reach these ports without credentials: {surfaces}", surfaces="; ".join(found))


def http_surfaces(
    *,
    enabled: bool,
    host: str,
    port: int,
    token_file: str,
    ledger_content: bool = False,
    what: str = "HTTP",
    key: str = "httpServerTokenFile",
) -> list[Surface]:
    """Return the surface of an HTTP server; none if the server needs tokens.

    ledger_content: whether the server shows entries of ledgers. key: the setting that names a token file.
    """
    if not enabled or token_file:
        return []
    reads = "reads only" + (", but also of entries, without the passwords of their ledgers" if ledger_content else "")
    return [Surface(what, host, port, f"{reads}; restrict it with {key}")]


def http_surfaces_of(settings: ServerSettings) -> list[Surface]:
    """Return the surface of the HTTP server of a bookie, or of auto-recovery."""
    return http_surfaces(
        enabled=settings.http_server_enabled,
        host=settings.http_server_host,
        port=settings.http_server_port,
        token_file=settings.http_server_token_file,
        ledger_content=settings.http_server_ledger_content,
    )


def bookie_surfaces(settings: ServerSettings) -> list[Surface]:
    """Return the surfaces of a bookie. A client's certificate counts only if TLS is required."""
    missing = [
        name
        for name, is_set in (
            ("tlsProviderFactoryClass", settings.tls_enabled),
            ("tlsClientAuthentication=true", settings.tls_client_authentication),
            ("tlsRequired=true", settings.tls_required),
        )
        if not is_set
    ]
    found = http_surfaces_of(settings)
    if settings.auth_provider or not missing:
        return found
    remedy = f"restrict it with bookieAuthProviderFactoryClass, or with {' and '.join(missing)}"
    what = f"reads, and writes of ledgers without a password; {remedy}"
    return [Surface("bookie", settings.listening_interface or "", settings.bookie_port, what), *found]
