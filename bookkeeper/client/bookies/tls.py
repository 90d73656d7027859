"""How a client protects its connections: TLS and credentials, loaded once and shared by all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.protocol.handshake import Handshake

if TYPE_CHECKING:
    from bookkeeper.auth.provider import ClientProvider
    from bookkeeper.config import ClientSettings
    from bookkeeper.tls import TlsCredentials

_TLS_KEY, _PROVIDER_KEY = "tlsProviderFactoryClass", "clientAuthProviderFactoryClass"


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What every connection of a client goes through before its first request."""

    tls: TlsCredentials | None
    provider: ClientProvider | None
    timeout_s: float

    def handshake(self) -> Handshake:
        """That of a new connection."""
        return Handshake(tls=self.tls is not None, credentials=self.provider is not None)

    @property
    def hint(self) -> str:
        """What may be behind a bookie's "unauthorized" besides a wrong password; "" where nothing is lacking.

        A bookie says the same to a request before TLS or authentication as to a wrong password.
        """
        if self.tls is not None and self.provider is not None:
            return ""
        if self.tls is None and self.provider is None:
            wants, keys = "TLS or authentication, and this client has neither", f"{_TLS_KEY} and {_PROVIDER_KEY}"
        elif self.tls is None:
            wants, keys = "TLS, and this client has none", _TLS_KEY
        else:
            wants, keys = "authentication, and this client shows no credentials", _PROVIDER_KEY
        return f"the bookie asks for {wants}: set {keys} as it wants them (its log says what is missing)"


def security_of(settings: ClientSettings, now_s: Callable[[], float]) -> ClientSecurity:
    """As the settings say. Raises ConfigurationError for files and providers that cannot be used."""
    tls, provider = None, None
    if settings.tls_enabled:
        from bookkeeper.tls import TlsCredentials, client_options  # OpenSSL only for those who use it

        options = client_options(settings)
        assert options is not None
        tls = TlsCredentials(options, now_s)
    if settings.auth_provider:
        from bookkeeper.auth.selection import client_provider

        provider = client_provider(settings)
    return ClientSecurity(tls, provider, settings.start_tls_timeout_s)
