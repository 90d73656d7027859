"""TLS: certificates out of PEM files, and the layer between records and plain bytes of one connection.

    transport -- records --> TlsLayer.receive -- plain bytes --> protocol
    transport <-- records -- TlsLayer.write <-- plain bytes -- protocol

The layer works over any transport, over real sockets and in tests alike, and belongs to the protocol: a connection
without TLS has none of it in its way. It uses the `ssl` module of Python, as Twisted's own layer is tied to the global
reactor (clients have reactors of their own). Back-pressure is the transport's: producers are registered there, and the
layer holds no bytes but an incomplete record.

Every certificate in a trust file is trusted, also that of an intermediate authority, as in Java's trust stores. If a
client refuses a certificate, its error names the missing issuer. A bookie's error cannot: OpenSSL does not show the
certificates of a client that failed the check.

Sessions are not resumed: each connection checks the other side's certificate anew, against the files of that moment.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from bookkeeper.clock import wall_s
from bookkeeper.config.security import CONVERT_STORE
from bookkeeper.errors import ConfigurationError
from bookkeeper.system.secret_files import exposed, warn_exposed

if TYPE_CHECKING:
    from cryptography import x509

    from bookkeeper.config import ClientSettings, ServerSettings
    from bookkeeper.ports import Transport

log = Logger()

FILE_SIZE_MAX = 1 << 20
STORES = {
    b"\xfe\xed\xfe\xed": "a Java key store",
    b"\xce\xce\xce\xce": "a Java key store",
    b"0": "a PKCS12 store or DER",
}
"""How files begin that are named in place of PEM files, and what they are."""

READ_SIZE = 1 << 18
WRITE_SIZE = 1 << 16
UNASKED_BYTES_MAX = 1 << 16
"""Bytes that TLS itself answers on one connection after the handshake: some 2,400 requests for new keys. Whoever sends
them without end, and reads none of the answers, would fill our memory, before it has shown any credentials."""

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NEWEST_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})

_UNKNOWN_AUTHORITY = (
    "comes from an unknown authority{issuer}: add that authority to {trust}; if it is an intermediate of an authority "
    "in {trust}, append its certificate to the other side's certificate file (tlsCertificatePath; of a hub: cert_path)"
)
_NO_AUTHORITY = "was signed with a certificate that is not a CA certificate (CA:TRUE): use one that a CA signed"
# What the certificate check found (X509_V_ERR_*), and what to do about it.
_VERIFY_REMEDIES = {
    2: _UNKNOWN_AUTHORITY,
    7: "was not signed by the authority that it names: check whether {trust} has an old certificate of it",
    9: "is not valid yet: look at the clocks",
    10: "has expired: give the other side a new one",
    18: "is self-signed and not among the trusted ones: name it in {trust}",
    19: "comes from an unknown authority{issuer}: add that authority to {trust}",
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    24: _NO_AUTHORITY,
    26: "is for another purpose: its extended key usage must have serverAuth on a server, clientAuth on a client",
    62: "is not for this host; {host}",
    64: "is not for this address; {host}",
    79: _NO_AUTHORITY,
}
_NO_REMEDY = "was refused: inspect it with `openssl x509 -noout -text -in FILE` on the other side"
_ISSUER_LENGTH_MAX = 200
_DER = 2  # _ssl.ENCODING_DER
_HOST_REMEDY = (
    "register the bookie under a name in its certificate (advertisedAddress), make a certificate with this name or "
    "address, or set tlsHostnameVerificationEnabled=false"
)
# Part of OpenSSL's reason -> what happened. Alerts are the other side's verdict on us.
_REASONS = (
    (
        "ALERT_CERTIFICATE_REQUIRED",
        "it asks for a certificate: set tlsClientAuthentication=true here, and name a certificate that an authority in "
        "its tlsTrustStore signed in tlsCertificatePath, and the private key in clientKeyStore",
    ),
    ("DID_NOT_RETURN_A_CERTIFICATE", "it showed no certificate, and tlsClientAuthentication=true asks for one"),
    (
        "ALERT_UNKNOWN_CA",
        "it does not trust the authority of our certificate: add that authority to its tlsTrustStore (a client's: "
        "clientTrustStore), append the certificates of intermediate authorities to our certificate file "
        "(tlsCertificatePath; of a hub: cert_path), or use a certificate of an authority that it trusts",
    ),
    ("ALERT_CERTIFICATE_EXPIRED", "it says that our certificate has expired"),
    ("ALERT_BAD_CERTIFICATE", "it does not accept our certificate"),
    ("ALERT_CERTIFICATE_UNKNOWN", "it does not accept our certificate"),
    # BoringSSL below Apache's bookies says this when Java's check of our certificate fails.
    ("ALERT_INTERNAL_ERROR", "it failed inside, as Apache's bookies do when they do not trust our certificate"),
    ("PROTOCOL_VERSION", "no version of TLS is spoken by both: look at tlsEnabledProtocols"),
    ("UNSUPPORTED_PROTOCOL", "no version of TLS is spoken by both: look at tlsEnabledProtocols"),
    ("NO_SHARED_CIPHER", "no cipher suite is allowed by both: look at tlsEnabledCipherSuites"),
    ("HANDSHAKE_FAILURE", "it found no version, cipher suite or certificate that both accept"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("HTTP_REQUEST", "it does not speak TLS"),
)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file, and the configuration key that names it."""

    key: str
    path: str

    def __str__(self) -> str:
        return f"{self.key}={self.path}"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What one side needs.

    private_key and certificate come together. trust None: the other side shows no certificate (bookies only).
    """

    server_side: bool
    private_key: NamedFile | None
    password: NamedFile | None
    certificate: NamedFile | None
    trust: NamedFile | None
    check_host: bool
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    refresh_s: float

    def files(self) -> Iterator[NamedFile]:
        """All files that are named."""
        for file in (self.private_key, self.password, self.certificate, self.trust):
            if file is not None:
                yield file

    def exposures(self) -> Iterator[str]:
        """Yield warnings about the modes of files with secrets, and of the file of trusted authorities."""
        for file, is_secret in ((self.private_key, True), (self.password, True), (self.trust, False)):
            if file is not None:
                yield exposed(str(file), file.path, is_secret=is_secret)


def bookie_options(settings: ServerSettings) -> TlsOptions | None:
    """Those of a bookie; None without TLS."""
    if not settings.tls_enabled:
        return None
    return TlsOptions(
        server_side=True,
        private_key=_named("tlsKeyStore", settings.tls_key_store),
        password=_named("tlsKeyStorePasswordPath", settings.tls_key_store_password_file),
        certificate=_named("tlsCertificatePath", settings.tls_certificate),
        trust=_named("tlsTrustStore", settings.tls_trust_store) if settings.tls_client_authentication else None,
        check_host=False,
        versions=settings.tls_versions,
        ciphers=settings.tls_ciphers,
        refresh_s=settings.tls_refresh_s,
    )


def client_options(settings: ClientSettings) -> TlsOptions | None:
    """Those of a client; None without TLS. Keys of the client take precedence over those it shares with bookies."""
    if not settings.tls_enabled:
        return None
    shows = settings.tls_client_authentication
    key = _named("clientKeyStore", settings.client_key_store) or _named("tlsKeyStore", settings.tls_key_store)
    password = _named("clientKeyStorePasswordPath", settings.client_key_store_password_file) or _named(
        "tlsKeyStorePasswordPath", settings.tls_key_store_password_file
    )
    return TlsOptions(
        server_side=False,
        private_key=key if shows else None,
        password=password if shows else None,
        certificate=_named("tlsCertificatePath", settings.tls_certificate) if shows else None,
        trust=_named("clientTrustStore", settings.client_trust_store)
        or _named("tlsTrustStore", settings.tls_trust_store),
        check_host=settings.tls_hostname_verification,
        versions=settings.tls_versions,
        ciphers=settings.tls_ciphers,
        refresh_s=settings.tls_refresh_s,
    )


def _named(key: str, path: str) -> NamedFile | None:
    return NamedFile(key, path) if path else None


# --- files ------------------------------------------------------------------------------------------------------------


class TlsCredentials:
    """Keys and certificates of one side, as they are in the files; makes the layer of each connection.

    Raises ConfigurationError, naming key, file and remedy, when what the files hold cannot work. Once loaded, files are
    looked at again every `refresh_s` when a connection is made; what is broken then is logged, and the old stays.
    Thread: one.
    """

    def __init__(self, options: TlsOptions, now_s: Callable[[], float]) -> None:
        self._options, self._now_s = options, now_s
        self._seen = _signatures(options)
        self._looked_s = now_s()
        self._context = load(options)

    def layer(self, transport: Transport, host: str | None = None) -> TlsLayer:
        """The layer of a connection. host: whom a client means to talk to."""
        self._refresh()
        options = self._options
        return TlsLayer(transport, self._context, options, host=None if options.server_side else host)

    def _refresh(self) -> None:
        options, now_s = self._options, self._now_s()
        if not options.refresh_s or 0 <= now_s - self._looked_s < options.refresh_s:  # < 0: the clock was set back
            return
        self._looked_s = now_s
        signatures = _signatures(options)
        if signatures == self._seen:
            return
        try:
            self._context = load(options)
        except ConfigurationError as error:
            log.error("The new TLS files are not used, those loaded before stay in use: {error}", error=error)
        else:
            self._seen = signatures
            log.info("Reloaded TLS files: {files}", files=", ".join(map(str, options.files())))


def _signatures(options: TlsOptions) -> list[tuple[int, ...] | None]:
    found: list[tuple[int, ...] | None] = []
    for file in options.files():
        try:
            status = os.stat(file.path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))
    return found


def load(options: TlsOptions) -> ssl.SSLContext:
    """Read the files and check them. Raises ConfigurationError; logs what works and should not stay so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if options.server_side else ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[name] for name in options.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if options.server_side:
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED if options.trust is not None else ssl.CERT_NONE
    else:
        context.check_hostname = options.check_host
        context.verify_mode = ssl.CERT_REQUIRED
    if options.ciphers:
        _set_ciphers(context, options.ciphers)
    if options.certificate is not None and options.private_key is not None:
        _load_certificate(context, options.certificate, options.private_key, options.password)
    if options.trust is not None:
        check_dates(options.trust, _certificates(options.trust))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cafile=options.trust.path)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"{options.trust}: {error}; name a PEM file of certificates") from error
    warn_exposed(*options.exposures())
    return context


def _load_certificate(
    context: ssl.SSLContext, certificate: NamedFile, private_key: NamedFile, password_file: NamedFile | None
) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    chain = _certificates(certificate)
    password = None if password_file is None else _read(password_file).strip()
    data = _read(private_key)
    try:
        loaded = load_pem_private_key(data, None)
    except TypeError:  # how the library says that it is encrypted
        if not password:
            raise ConfigurationError(
                f"{private_key}: the key is encrypted: name a file that holds its password in "
                f"{private_key.key}PasswordPath, or decrypt it with openssl pkey -in FILE -out NEW"
            ) from None
        try:
            loaded = load_pem_private_key(data, password)
        except ValueError as error:
            raise ConfigurationError(f"{password_file}: this is not the password of {private_key}") from error
    except UnsupportedAlgorithm as error:
        raise ConfigurationError(f"{private_key}: a kind of key that is not known here; use RSA or EC") from error
    except ValueError as error:
        raise _not_pem(
            private_key, data, "private key in PEM (it should begin with -----BEGIN PRIVATE KEY-----)"
        ) from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if loaded.public_key().public_bytes(*form) != chain[0].public_key().public_bytes(*form):
        raise ConfigurationError(
            f"{private_key} is not the private key of the first certificate in {certificate}: name the two that were "
            "made together"
        )
    check_dates(certificate, chain)
    try:
        context.load_cert_chain(certificate.path, private_key.path, lambda: password or b"")
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"{certificate}, {private_key}: OpenSSL does not take them: {error}") from error


def _certificates(file: NamedFile) -> list[x509.Certificate]:
    from cryptography import x509

    data = _read(file)
    try:
        return x509.load_pem_x509_certificates(data)
    except (ValueError, x509.InvalidVersion) as error:
        raise _not_pem(file, data, "certificate in PEM (it should begin with -----BEGIN CERTIFICATE-----)") from error


def _not_pem(file: NamedFile, data: bytes, wanted: str) -> ConfigurationError:
    """What to say of a file that is not what its key asks for."""
    store = next((store for begin, store in STORES.items() if data.startswith(begin)), None)
    if store is not None:
        return ConfigurationError(f"{file}: no {wanted}, but {store}: {CONVERT_STORE}")
    return ConfigurationError(f"{file}: no {wanted}; was a file named here that belongs to another key?")


def check_dates(file: NamedFile, certificates: list[x509.Certificate]) -> None:
    """Warn of certificates that have expired or are not valid yet."""
    now = datetime.fromtimestamp(wall_s(), UTC)
    for certificate in certificates:
        fields: dict[str, Any] = {"file": file, "subject": certificate.subject.rfc4514_string()}
        if certificate.not_valid_after_utc < now:
            log.warn(
                "{file}: the certificate of {subject} has expired on {date}; the other side will refuse it",
                date=certificate.not_valid_after_utc.isoformat(),
                **fields,
            )
        elif certificate.not_valid_before_utc > now:
            log.warn(
                "{file}: the certificate of {subject} is not valid before {date}; is the clock right?",
                date=certificate.not_valid_before_utc.isoformat(),
                **fields,
            )


def _read(file: NamedFile) -> bytes:
    try:
        with Path(file.path).open("rb") as opened:
            data = opened.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error.strerror}; name a file that this user may read"
        ) from error
    if len(data) > FILE_SIZE_MAX:
        raise ConfigurationError(f"{file} is larger than {FILE_SIZE_MAX} bytes, which no PEM file of this kind is")
    return data


def openssl_name(suite: str) -> str:
    """A cipher suite of TLSv1.2 as OpenSSL names it, from how Java does; a name of OpenSSL stays as it is.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 -> ECDHE-RSA-AES128-GCM-SHA256
    """
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    return "-".join([*([] if exchange == "RSA" else [exchange]), cipher]).replace("_", "-")


def _set_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    older = [suite for suite in suites if suite not in _NEWEST_SUITES]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    elif len(older) == len(suites):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if context.minimum_version > context.maximum_version:
        raise ConfigurationError("tlsEnabledCipherSuites has no suite of a version in tlsEnabledProtocols")
    for suite in older:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"tlsEnabledCipherSuites: {suite} is not known to {ssl.OPENSSL_VERSION}; leave it out"
            ) from error
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))


# --- one connection ---------------------------------------------------------------------------------------------------


class TlsLayer:
    """TLS of one connection: to a protocol it looks like the transport it is laid over.

    secured: the handshake is done, and with it every check of certificates. Nothing may be written before.
    error: what broke it, or the other side refused; no more is read. ended: the other side said its last word.
    """

    def __init__(self, transport: Transport, context: ssl.SSLContext, options: TlsOptions, *, host: str | None) -> None:
        self._transport = transport
        self._options = options
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(
            self._incoming, self._outgoing, server_side=options.server_side, server_hostname=host
        )
        self.secured = False
        self.ended = False
        self.error: str | None = None
        self._unasked_bytes = 0
        self.pauseProducing = transport.pauseProducing
        self.resumeProducing = transport.resumeProducing
        self.registerProducer = transport.registerProducer
        self.unregisterProducer = transport.unregisterProducer
        self.abortConnection = transport.abortConnection
        self.getPeer = transport.getPeer

    @property
    def description(self) -> str:
        """Version and cipher suite."""
        cipher = self._session.cipher()
        return f"{self._session.version()} {cipher[0] if cipher else ''}"

    @property
    def unsent_bytes(self) -> int:
        """See ports.Transport. This layer holds no data."""
        return self._transport.unsent_bytes

    def start(self) -> None:
        """Begin the handshake: a client speaks first."""
        self.receive(b"")

    def receive(self, data: bytes) -> bytes:
        """Take what arrived; returns the plain bytes in it. Look at `secured`, `error` and `ended` afterwards."""
        if self.error is not None or self.ended:
            return b""
        if data:
            self._incoming.write(data)
        plain: list[bytes] = []
        was_secured = self.secured
        try:
            if not self.secured:
                self._session.do_handshake()
                self.secured = True
            while True:
                part = self._session.read(READ_SIZE)
                if not part:
                    self.ended = True
                    break
                plain.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            self.error = self._describe(error)
        if was_secured and self.error is None:
            self._unasked_bytes += self._outgoing.pending
            if self._unasked_bytes > UNASKED_BYTES_MAX:
                self.error = "it asks for new keys again and again"
        self._flush()  # an answer of the handshake, or the alert that tells the other side what is wrong
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def write(self, data: bytes) -> None:
        """Send plain bytes."""
        assert self.secured
        view, position = memoryview(data), 0
        try:
            while position < len(view):
                position += self._session.write(view[position : position + WRITE_SIZE])
        except ssl.SSLError as error:
            self.error = self.error or self._describe(error)
        self._flush()

    def writeSequence(self, parts: Any) -> None:
        """As `write`, of several pieces."""
        self.write(b"".join(parts))

    def loseConnection(self) -> None:
        """Close once everything written has left. The other side's farewell is not waited for."""
        if self.secured and self.error is None:
            with contextlib.suppress(ssl.SSLError):  # it would wait for the other side's; ours is in the buffer then
                self._session.unwrap()
            self._flush()
        self._transport.loseConnection()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _describe(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            trust = "" if self._options.trust is None else self._options.trust.key
            remedy = _VERIFY_REMEDIES.get(error.verify_code, _NO_REMEDY)
            issuer = _missing_issuer(self._session) if "{issuer}" in remedy else None
            named = "" if issuer is None else f" {issuer!r}"
            found = remedy.format(trust=trust, host=_HOST_REMEDY, issuer=named)
            return f"its certificate {found} ({error.verify_message})"
        reason = error.reason or str(error)
        return next((text for part, text in _REASONS if part in reason), f"TLS failed: {reason}")


def _missing_issuer(session: ssl.SSLObject) -> str | None:
    """Return the issuer of the last certificate in the chain that the other side sent, or None if it is unknown."""
    from cryptography import x509

    # Public only from Python 3.13 on; on a server it returns nothing after a failed check.
    holder = session if hasattr(session, "get_unverified_chain") else getattr(session, "_sslobj", None)
    get_chain: Callable[[], Any] = getattr(holder, "get_unverified_chain", list)
    try:
        sent = [
            x509.load_der_x509_certificate(each if isinstance(each, bytes) else each.public_bytes(_DER))
            for each in get_chain() or ()
        ]
        by_subject = {each.subject: each for each in sent}
        issuer = sent[0].issuer if sent else None
        for _ in sent:  # ends even if the chain is circular
            if issuer in by_subject:
                issuer = by_subject[issuer].issuer
        return None if issuer is None else issuer.rfc4514_string()[:_ISSUER_LENGTH_MAX]
    except (ValueError, x509.InvalidVersion):  # OpenSSL accepts names and certificates that the library refuses
        return None
