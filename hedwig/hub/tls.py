"""TLS of a hub's second port: from the first byte, one certificate, nothing asked of clients.

    transport -- records --> TlsConnection -- plain bytes --> HubConnection, which takes the layer for its transport

The certificate comes from a PKCS12 file, as Apache's hubs have it, or from PEM files. They are read at the hub's start,
and again when they were changed: connections made from then on are shown the new one. What is broken then is logged,
and the old one stays. Source: hedwig/PROTOCOL.md 3.9.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from bookkeeper.errors import ConfigurationError
from bookkeeper.serving.admission import Closing, Place
from bookkeeper.serving.peers import name_of
from bookkeeper.system.secret_files import exposed, warn_exposed
from bookkeeper.tls import FILE_SIZE_MAX, NamedFile, TlsLayer, TlsOptions, check_dates, load
from hedwig.hub.endpoint import HubConnection
from hedwig.hub.meters import HubMeters

if TYPE_CHECKING:
    from cryptography import x509

    from bookkeeper.ports import Clock, Timer, Transport
    from hedwig.hub.server import HubTls

log = Logger()

HANDSHAKE_TIMEOUT_S = 10.0
FAREWELL_TIMEOUT_S = 10.0
"""What was written has so long to leave once the client has said its last word."""

REFRESH_S = 5.0
"""At most so often it is looked whether the files were changed, when a connection is made."""


class HubCredentials:
    """What connections are secured with. Raises ConfigurationError for files that cannot work when it is made."""

    def __init__(self, tls: HubTls, now_s: Callable[[], float] = time.monotonic) -> None:
        self._tls, self._now_s = tls, now_s
        self._options = TlsOptions(
            server_side=True,
            private_key=None,
            password=None,
            certificate=None,
            trust=None,
            check_host=False,
            versions=tls.versions,
            ciphers=(),
            refresh_s=0.0,
        )
        self._seen, self._looked_s = self._signature(), now_s()
        self._context = self._loaded()

    def _loaded(self) -> ssl.SSLContext:
        context = load(self._options)
        _load_certificate(context, self._tls)
        return context

    def _signature(self) -> list[tuple[int, ...] | None]:
        """What changes with the files."""
        found: list[tuple[int, ...] | None] = []
        for path in filter(None, (self._tls.certificate, self._tls.private_key)):
            try:
                status = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))
        return found

    def _refresh(self) -> None:
        now_s = self._now_s()
        if now_s - self._looked_s < REFRESH_S:
            return
        self._looked_s = now_s
        signature = self._signature()
        if signature == self._seen:
            return
        self._seen = signature  # a broken one is told once; two files that belong together change one after the other
        try:
            self._context = self._loaded()
        except ConfigurationError as error:
            log.error("The new certificate is not used, the one read before stays in use: {error}", error=error)
        else:
            log.info("The certificate was read again: {path}", path=self._tls.certificate)

    def layer(self, transport: Transport) -> TlsLayer:
        """That of one connection."""
        self._refresh()
        return TlsLayer(transport, self._context, self._options, host=None)


def _load_certificate(context: ssl.SSLContext, tls: HubTls) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    file = NamedFile("cert_path", tls.certificate)
    key, chain = _contents(file, tls)
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != chain[0].public_key().public_bytes(*form):
        raise ConfigurationError(
            f"the private key does not belong to the first certificate in {file}: name the two that were made together"
        )
    check_dates(file, chain)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += b"".join(each.public_bytes(Encoding.PEM) for each in chain)
    # OpenSSL's binding takes names of files only: this one is nowhere but in our memory.
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(memory, pem)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    except ssl.SSLError as error:
        raise ConfigurationError(f"{file}: OpenSSL does not take it: {error}") from error
    finally:
        os.close(memory)


def _contents(file: NamedFile, tls: HubTls) -> tuple[Any, list[x509.Certificate]]:
    data = _read(file)
    holds_key = b"-----BEGIN " not in data or b"PRIVATE KEY-----" in data
    warn_exposed(exposed(str(file), file.path, is_secret=holds_key))
    if b"-----BEGIN " in data:
        return _from_pem(file, data, tls)
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        found = pkcs12.load_pkcs12(data, tls.password or None)
    except ValueError as error:
        raise ConfigurationError(
            f"{file}: no PKCS12 file, or `password` is not its password; `openssl pkcs12 -info -noout -in FILE` tells "
            "which. A Java key store becomes one by keytool -importkeystore -deststoretype PKCS12"
        ) from error
    if found.key is None or found.cert is None:
        raise ConfigurationError(f"{file}: holds no private key with its certificate; export both into it")
    return found.key, [found.cert.certificate, *(each.certificate for each in found.additional_certs)]


def _from_pem(file: NamedFile, data: bytes, tls: HubTls) -> tuple[Any, list[x509.Certificate]]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key_file = NamedFile("cert_key_path", tls.private_key) if tls.private_key else file
    key_data = _read(key_file)
    warn_exposed(exposed(str(key_file), key_file.path))
    if b"PRIVATE KEY-----" not in key_data:
        raise ConfigurationError(f"{key_file}: holds no private key; name the PEM file that does in cert_key_path")
    try:
        chain = x509.load_pem_x509_certificates(data)
    except (ValueError, x509.InvalidVersion) as error:
        raise ConfigurationError(f"{file}: holds no certificate (-----BEGIN CERTIFICATE-----)") from error
    try:
        key = load_pem_private_key(key_data, None)
    except TypeError:  # how the library says that it is encrypted
        try:
            key = load_pem_private_key(key_data, tls.password)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{key_file}: the private key is encrypted; set `password` to its own") from error
    except ValueError as error:
        raise ConfigurationError(f"{key_file}: the private key cannot be read: {error}") from error
    return key, chain


def _read(file: NamedFile) -> bytes:
    try:
        with Path(file.path).open("rb") as opened:
            data = opened.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error.strerror}; name a file that this user may read"
        ) from error
    if len(data) > FILE_SIZE_MAX:
        raise ConfigurationError(f"{file} is larger than {FILE_SIZE_MAX} bytes, which no file of a certificate is")
    return data


class TlsConnection:
    """A connection that is nothing to the hub until its handshake is done. on_closed: told once, when it is gone."""

    def __init__(
        self,
        credentials: HubCredentials,
        inner: HubConnection,
        clock: Clock,
        meters: HubMeters,
        on_closed: Callable[[TlsConnection], object],
    ) -> None:
        self.inner = inner
        self._credentials, self._clock, self._meters, self._on_closed = credentials, clock, meters, on_closed
        self._transport: Transport | None = None
        self._place: Place | None = None
        self._peer = "?"
        self._tls: TlsLayer | None = None
        self._deadline: Timer | None = None
        self._farewell: Timer | None = None
        self._failed = self._gone = False

    def makeConnection(self, transport: Transport) -> None:
        """The connection is up, without TLS."""
        self._peer = name_of(transport.getPeer())
        self._place = self.inner.place = self.inner.admission.admit(self)
        if self._place is None:
            self.inner.peers.on_refused(self._peer, self.inner.admission.refusal)
            transport.abortConnection()
            return
        self._transport = transport
        self._tls = self._credentials.layer(transport)
        self._deadline = self._clock.callLater(HANDSHAKE_TIMEOUT_S, self._too_slow)

    def dataReceived(self, data: bytes) -> None:
        """Some records arrived."""
        tls = self._tls
        if tls is None:
            return  # the connection was refused
        plain = tls.receive(data)
        if tls.secured and self._deadline is not None:
            self._stop_clock()
            self._meters.tls_connections.add()
            self.inner.makeConnection(tls)
        if plain:
            self.inner.dataReceived(plain)
        if tls.error is not None:
            self._fail(tls.error.replace("tlsEnabledProtocols", "ssl_versions"))
        elif tls.ended and self._farewell is None:
            tls.loseConnection()
            if not self._gone:  # who reads no more, though it has said its last word, would keep what it is attached to
                self._farewell = self._clock.callLater(FAREWELL_TIMEOUT_S, self.abort)

    def _too_slow(self) -> None:
        self._deadline = None
        self._fail(f"its handshake was not done after {HANDSHAKE_TIMEOUT_S:g} s")

    def _fail(self, reason: str) -> None:
        if self._failed or self._transport is None:
            return
        self._failed = True
        self._meters.tls_failures.add()
        template = "Closing the TLS connection from {peer}: {reason}"
        self.inner.peers.warn(self._peer, f"TLS: {reason}", template, reason=reason)
        self._transport.abortConnection()

    def _stop_clock(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def close(self) -> None:
        """End it; once what was written has left, if it was secured."""
        if self._tls is not None and self._tls.secured:
            self.inner.close()
        elif self._transport is not None:
            self._transport.abortConnection()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abortConnection()

    @property
    def busy(self) -> bool:
        """See Bounded."""
        return self.inner.busy

    @property
    def untaken_bytes(self) -> int:
        """See Bounded."""
        return self.inner.untaken_bytes

    def give_up(self, closing: Closing) -> None:
        """See Bounded."""
        if self._tls is not None and self._tls.secured:
            self.inner.give_up(closing)
        else:
            self.inner.peers.on_closing(self._peer, closing)
            self.abort()

    def connectionLost(self, reason: Any) -> None:
        """The connection is gone."""
        self._gone = True
        if self._place is not None:
            self.inner.admission.forget(self._place)
        self._stop_clock()
        if self._farewell is not None and self._farewell.active():
            self._farewell.cancel()
        if self._tls is not None and self._tls.secured:
            self.inner.connectionLost(reason)
        self._on_closed(self)
