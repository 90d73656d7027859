"""Encryption and authentication: keys that bookies and clients share. Names are Apache's, values too where they fit.

Certificates are PEM files, as Apache's TLSContextFactory reads them with a store type of PEM: tlsKeyStore is the
private key, tlsCertificatePath the certificate and its chain, tlsTrustStore the certificates of the authorities. What
the files hold is checked when they are loaded (`bookkeeper.tls`), at start; here it is checked that they are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bookkeeper.config.keys import DAY_S, Kind, boolean, key, keys_of, seconds, text
from bookkeeper.config.shared import Fault, SharedSettings, SwitchedOff

TLS = "TLS"
AUTHENTICATION = "Authentication"
LAST_GROUPS = (TLS, AUTHENTICATION)
"""Groups that stand at the end of the .conf file, although bookies and clients share them."""

TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
PEM = "PEM"
PASSWORD_FILE = "password-file"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")

CONVERT_STORE = (
    "convert it: keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype PKCS12 (for a "
    "Java store), then openssl pkcs12 -in store.p12 -nodes -nocerts -out key.pem and openssl pkcs12 -in store.p12 "
    "-nokeys -out certificates.pem; then name those files with type PEM"
)
"""What to do with a store that is no PEM file."""

_PYTHON_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def text_or_null(unit: str, check: Callable[[str], str] | None = None) -> Kind[str]:
    """Text; "null" means not set, as it stands in Apache's example file."""

    def parse(value: str) -> str:
        if value in {"", "null"}:
            return ""
        return value if check is None else check(value)

    return Kind(unit, parse)


def _check_factory(value: str) -> str:
    if value != TLS_FACTORY:
        raise ValueError(f"unknown (TLS is turned on by {TLS_FACTORY}; leave it empty to turn TLS off)")
    return value


def check_provider(value: str) -> str:
    """Return the name of an authentication provider if its form is one that can be loaded here."""
    if value != PASSWORD_FILE and _PYTHON_FACTORY.fullmatch(value) is None:
        raise ValueError(
            f"no provider here, where Java classes do not run: write {PASSWORD_FILE}, or package.module:factory of a "
            "provider in Python (see bookkeeper.auth)"
        )
    return value


def _versions() -> Kind[tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in value.split(",")) if value else TLS_VERSIONS
        for name in names:
            if name not in TLS_VERSIONS:
                raise ValueError(f"{name!r} is not one of {', '.join(TLS_VERSIONS)}; older versions are broken")
        return names

    return Kind("comma-separated, of TLSv1.2 and TLSv1.3", parse)


def _ciphers() -> Kind[tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in value.split(",") if part.strip())

    return Kind("names as Java writes them, comma-separated", parse)


def store_fault(*types: tuple[str, str]) -> Iterator[Fault]:
    """Yield that a store of another type than PEM is not read, and how to convert it.

    types: the keys that tell its type, and their values; the first that is set counts.
    """
    name, store_type = next((typed for typed in types if typed[1]), types[-1])
    if store_type.upper() != PEM:
        yield (name,), f"{name}={store_type}: only PEM files are read; {CONVERT_STORE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(SharedSettings):
    """What ServerSettings and ClientSettings have in common about TLS and authentication."""

    tls_factory: str = key(
        "tlsProviderFactoryClass",
        text_or_null("class", _check_factory),
        "",
        TLS,
        f"{TLS_FACTORY} turns TLS on: a bookie then offers START_TLS, a client sends nothing in clear text. The other "
        "keys of TLS have no effect without it.",
    )
    tls_client_authentication: bool = key(
        "tlsClientAuthentication",
        boolean(),
        "false",
        TLS,
        "Bookie: clients must show a certificate that an authority in tlsTrustStore signed. Client: it shows its own.",
    )
    tls_key_store_type: str = key(
        "tlsKeyStoreType",
        text("PEM"),
        PEM,
        TLS,
        "Type of tlsKeyStore.",
        differs="JKS there, a format of Java that is not read here.",
    )
    tls_key_store: str = key("tlsKeyStore", text_or_null("PEM file"), "", TLS, "Private key of tlsCertificatePath.")
    tls_key_store_password_file: str = key(
        "tlsKeyStorePasswordPath",
        text_or_null("file"),
        "",
        TLS,
        "File that holds the password of an encrypted private key.",
    )
    tls_certificate: str = key(
        "tlsCertificatePath",
        text_or_null("PEM file"),
        "",
        TLS,
        "Certificate that is shown to the other side, followed by those of intermediate authorities.",
    )
    tls_trust_store_type: str = key(
        "tlsTrustStoreType",
        text("PEM"),
        PEM,
        TLS,
        "Type of tlsTrustStore.",
        differs="JKS there, a format of Java that is not read here.",
    )
    tls_trust_store: str = key(
        "tlsTrustStore",
        text_or_null("PEM file"),
        "",
        TLS,
        "Certificates of the authorities that the other side's certificate is checked against.",
    )
    tls_trust_store_password_file: str = key(
        "tlsTrustStorePasswordPath",
        text_or_null("file"),
        "",
        TLS,
        "Without effect: certificates are not encrypted in PEM.",
    )
    tls_versions: tuple[str, ...] = key(
        "tlsEnabledProtocols", _versions(), "", TLS, "Versions of TLS that are spoken. Not set: both."
    )
    tls_ciphers: tuple[str, ...] = key(
        "tlsEnabledCipherSuites",
        _ciphers(),
        "",
        TLS,
        "Cipher suites that may be used. Not set: those OpenSSL takes for safe. Of TLSv1.3 all three or none: none "
        "when the list has none of them.",
    )
    tls_refresh_s: float = key(
        "tlsCertFilesRefreshDurationSeconds",
        seconds("s", 1, DAY_S * 365, off=("0",)),
        "0",
        TLS,
        "How often files of keys and certificates are looked at for changes; new connections use what changed. A "
        "broken new file is logged, and what was loaded before stays.",
    )
    start_tls_timeout_s: float = key(
        "startTLSTimeoutSecs",
        seconds("s", 0.1, 3600),
        "10",
        TLS,
        "Time for the TLS handshake, and for authentication after it; then the connection is closed.",
    )
    auth_over_clear_text: bool = key(
        "passwordOverClearText",
        boolean(),
        "false",
        AUTHENTICATION,
        f"Let the provider {PASSWORD_FILE} send or take passwords over a connection without TLS, where whoever can "
        "listen learns them.",
        ours=True,
    )

    @property
    def tls_enabled(self) -> bool:
        """TLS is on."""
        return bool(self.tls_factory)

    def switched_off(self) -> Iterator[SwitchedOff]:
        """Yield the features that are off; see SharedSettings. startTLSTimeoutSecs also bounds authentication."""
        if not self.tls_enabled:
            keys = [key.name for key in keys_of(type(self)).values() if key.group == TLS]
            names = tuple(name for name in keys if name not in ("tlsProviderFactoryClass", "startTLSTimeoutSecs"))
            yield names, f"TLS is off; to turn it on, set tlsProviderFactoryClass={TLS_FACTORY}"

    def provider_faults(self, name: str, provider: str, file_name: str, file: str) -> Iterator[Fault]:
        """Yield what the provider named by key `name` lacks."""
        if provider != PASSWORD_FILE:
            return
        if not file:
            yield (name, file_name), f"{name}={provider} needs a file: set {file_name}"
        if not (self.tls_enabled or self.auth_over_clear_text):
            yield (
                (name, "tlsProviderFactoryClass"),
                f"{name}={provider} without TLS would send passwords in clear text: set tlsProviderFactoryClass="
                f"{TLS_FACTORY} and the files it needs, or passwordOverClearText=true where nobody can listen",
            )
