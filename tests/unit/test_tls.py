"""TLS: what the files hold, and the layer over a transport: every check that fails is told by name.

Both ends of the layer talk through transports in memory; nothing here waits or opens a socket.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from twisted.logger import LogEvent, globalLogPublisher

from bookkeeper.errors import ConfigurationError
from bookkeeper.tls import NamedFile, TlsCredentials, TlsLayer, TlsOptions, load, openssl_name
from tests.support.certificates import Authority, Issued


class Wire:
    """A transport that keeps what is written until it is carried over."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = self.aborted = False

    def write(self, data: bytes) -> None:
        self.data += data

    def loseConnection(self) -> None:
        self.closed = True

    def abortConnection(self) -> None:
        self.aborted = True

    def take(self) -> bytes:
        data, self.data = self.data, b""
        return data

    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: Any, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def getPeer(self) -> str:
        return "peer"


class Pair:
    """A client's and a bookie's end, and the bytes between them."""

    def __init__(
        self,
        client: TlsOptions,
        bookie: TlsOptions,
        *,
        host: str = "127.0.0.1",
        piece: int = 1 << 30,
        load: Callable[[TlsOptions], ssl.SSLContext] = load,
    ):
        self.client_wire, self.bookie_wire = Wire(), Wire()
        self.client = TlsCredentials(client, lambda: 0.0).layer(self.client_wire, host)
        self.bookie = TlsLayer(self.bookie_wire, load(bookie), bookie, host=None)
        self.received: dict[TlsLayer, bytes] = {self.client: b"", self.bookie: b""}
        self._piece = piece
        self.client.start()

    def carry(self) -> None:
        """Until nothing is left to carry."""
        ends = ((self.client_wire, self.bookie), (self.bookie_wire, self.client))
        while any(wire.data for wire, _ in ends):
            for wire, end in ends:
                data = wire.take()
                for start in range(0, len(data), self._piece):
                    self.received[end] += end.receive(data[start : start + self._piece])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    return Authority(directory, "ca")


@pytest.fixture(scope="module")
def other(directory: Path) -> Authority:
    return Authority(directory, "other-ca")


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("bookie")


def bookie_options(issued: Issued, trust: Path | None = None, **changes: Any) -> TlsOptions:
    options = TlsOptions(
        server_side=True,
        private_key=NamedFile("tlsKeyStore", str(issued.key)),
        password=None,
        certificate=NamedFile("tlsCertificatePath", str(issued.certificate)),
        trust=None if trust is None else NamedFile("tlsTrustStore", str(trust)),
        check_host=False,
        versions=("TLSv1.2", "TLSv1.3"),
        ciphers=(),
        refresh_s=0.0,
    )
    return dataclasses.replace(options, **changes)


def client_options(trust: Path, issued: Issued | None = None, **changes: Any) -> TlsOptions:
    options = TlsOptions(
        server_side=False,
        private_key=None if issued is None else NamedFile("clientKeyStore", str(issued.key)),
        password=None,
        certificate=None if issued is None else NamedFile("tlsCertificatePath", str(issued.certificate)),
        trust=NamedFile("clientTrustStore", str(trust)),
        check_host=True,
        versions=("TLSv1.2", "TLSv1.3"),
        ciphers=(),
        refresh_s=0.0,
    )
    return dataclasses.replace(options, **changes)


# --- the layer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("piece", [1 << 30, 1000, 1])
def test_bytes_go_both_ways_however_they_are_cut(
    authority: Authority, issued: Issued, version: str, piece: int
) -> None:
    pair = Pair(
        client_options(authority.certificate, versions=(version,)),
        bookie_options(issued),
        piece=piece,
        host="localhost",
    )
    pair.carry()
    assert pair.client.secured
    assert pair.bookie.secured
    assert pair.client.description.startswith(version)
    question, answer = b"q" * 300, b"a" * (100 if piece == 1 else 200_000)
    pair.client.write(question)
    pair.bookie.writeSequence([answer[:10], answer[10:]])
    pair.carry()
    assert pair.received == {pair.bookie: question, pair.client: answer}


def test_nothing_of_what_is_written_is_on_the_wire_in_clear_text(authority: Authority, issued: Issued) -> None:
    pair = Pair(client_options(authority.certificate), bookie_options(issued))
    pair.carry()
    pair.client.write(b"the secret" * 100)
    assert b"the secret" not in pair.client_wire.data


def test_a_farewell_ends_the_other_side_after_everything_written(authority: Authority, issued: Issued) -> None:
    pair = Pair(client_options(authority.certificate), bookie_options(issued))
    pair.carry()
    pair.client.write(b"last words")
    pair.client.loseConnection()
    assert pair.client_wire.closed
    pair.carry()
    assert pair.received[pair.bookie] == b"last words"
    assert (pair.bookie.ended, pair.bookie.error) == (True, None)


def test_a_record_that_was_tampered_with_ends_the_connection(authority: Authority, issued: Issued) -> None:
    pair = Pair(client_options(authority.certificate), bookie_options(issued))
    pair.carry()
    pair.client.write(b"x" * 100)
    record = bytearray(pair.client_wire.take())
    record[-1] ^= 1
    assert pair.bookie.receive(bytes(record)) == b""
    assert pair.bookie.error is not None
    assert pair.bookie.receive(b"more") == b""


def test_bytes_that_are_no_tls_are_told_as_such(issued: Issued) -> None:
    layer = TlsCredentials(bookie_options(issued), lambda: 0.0).layer(Wire())
    assert layer.receive(b"\x00\x00\x00\x20\x02\x01\x00\x00" + bytes(28)) == b""
    assert layer.error is not None
    assert not layer.secured


class Rekeying:
    """Stands for OpenSSL where the other side only ever asks for new keys, which Python cannot do."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **_: Any) -> Rekeying:
        self.incoming, self.outgoing = incoming, outgoing
        return self

    def do_handshake(self) -> None:
        self.outgoing.write(b"hello" * 1000)

    def read(self, size: int) -> bytes:
        if self.incoming.pending:
            self.outgoing.write(b"k" * len(self.incoming.read()))
        raise ssl.SSLWantReadError


def test_requests_for_new_keys_have_an_end(issued: Issued) -> None:
    """Each is answered with as many bytes, which a peer that does not read leaves to us."""
    wire = Wire()
    layer = TlsLayer(wire, Rekeying(), bookie_options(issued), host=None)
    layer.receive(b"")
    assert layer.secured
    for _ in range(2000):
        layer.receive(b"k" * 27)
    assert layer.error is None
    for _ in range(2000):
        layer.receive(b"k" * 27)
    assert layer.error is not None
    assert len(wire.take()) < 5000 + 27 * 2500


def failures(pair: Pair) -> tuple[str, str]:
    """What client and bookie say of a handshake, both of which fail in the end."""
    pair.carry()
    return pair.client.error or "", pair.bookie.error or ""


def with_version_4(issued: Issued) -> Issued:
    """Change the version of an issued certificate, so that its signature no longer matches."""
    der = ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())
    head, version, rest = der.partition(b"\xa0\x03\x02\x01\x02")
    assert version
    issued.certificate.write_text(ssl.DER_cert_to_PEM_cert(head + version[:-1] + b"\x03" + rest))
    return issued


def load_unchecked(options: TlsOptions) -> ssl.SSLContext:
    """Load files without checks, as a hostile server may."""
    assert options.certificate is not None
    assert options.private_key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.certificate.path, options.private_key.path)
    return context


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
class TestRefusals:
    """Each with what the client is told, and where it matters the bookie."""

    def test_an_unknown_authority(self, other: Authority, issued: Issued, version: str) -> None:
        client, bookie = failures(Pair(client_options(other.certificate, versions=(version,)), bookie_options(issued)))
        assert "unknown authority 'CN=ca': add that authority to clientTrustStore" in client
        assert "does not trust the authority" in bookie

    def test_a_certificate_of_an_unknown_version(self, other: Authority, tmp_path: Path, version: str) -> None:
        """OpenSSL reads the certificate; the library that names its issuer does not."""
        issued = with_version_4(Authority(tmp_path, "ca").issue("bookie"))
        pair = Pair(client_options(other.certificate, versions=(version,)), bookie_options(issued), load=load_unchecked)
        client, _ = failures(pair)
        assert "unknown authority: add that authority to clientTrustStore" in client

    @pytest.mark.parametrize(("sent", "missing"), [("", "middle"), ("middle", "root-of-all")])
    def test_the_missing_certificate_is_named(
        self, directory: Path, other: Authority, version: str, sent: str, missing: str
    ) -> None:
        root = Authority(directory / "chain", "root-of-all")
        middle = root.intermediate("middle")
        issued = middle.issue("below-middle")
        if sent:
            issued.certificate.write_bytes(issued.certificate.read_bytes() + middle.certificate.read_bytes())
        trust = other.certificate if sent else root.certificate
        client, bookie = failures(Pair(client_options(trust, versions=(version,)), bookie_options(issued)))
        assert f"unknown authority 'CN={missing}': add that authority to clientTrustStore; if it is an inter" in client
        assert "append its certificate to the other side's certificate file (tlsCertificatePath" in client
        assert "append the certificates of intermediate authorities to our certificate file (tlsCert" in bookie

    def test_what_no_authority_may_sign(self, directory: Path, version: str) -> None:
        root = Authority(directory / "powers", "root")
        none = root.intermediate("no-authority", ca=False)
        issued = none.issue("below")
        issued.certificate.write_bytes(issued.certificate.read_bytes() + none.certificate.read_bytes())
        trusting = client_options(root.certificate, versions=(version,))
        client, _ = failures(Pair(trusting, bookie_options(issued)))
        assert "certificate that is not a CA certificate (CA:TRUE)" in client
        issued = root.issue("client-alone", purposes=[ExtendedKeyUsageOID.CLIENT_AUTH])
        client, _ = failures(Pair(trusting, bookie_options(issued)))
        assert "for another purpose: its extended key usage must have serverAuth" in client

    def test_each_remedy_for_a_missing_intermediate_helps(self, directory: Path, version: str) -> None:
        root = Authority(directory / "remedies", "root")
        middle = root.intermediate("middle")
        issued = middle.issue("bookie")
        trusting = client_options(middle.certificate, versions=(version,))
        assert failures(Pair(trusting, bookie_options(issued))) == ("", "")
        issued.certificate.write_bytes(issued.certificate.read_bytes() + middle.certificate.read_bytes())
        trusting = client_options(root.certificate, versions=(version,))
        assert failures(Pair(trusting, bookie_options(issued))) == ("", "")

    def test_a_name_from_the_other_side_cannot_write_to_a_terminal(
        self, directory: Path, other: Authority, version: str
    ) -> None:
        issued = Authority(directory / "names", "\x1b[2J\u202e").issue("bookie")
        client, _ = failures(Pair(client_options(other.certificate, versions=(version,)), bookie_options(issued)))
        assert client.isprintable()
        assert "[2J" in client

    def test_an_expired_certificate(self, authority: Authority, version: str) -> None:
        old = authority.issue("expired", valid=timedelta(days=-1))
        client, bookie = failures(Pair(client_options(authority.certificate, versions=(version,)), bookie_options(old)))
        assert "its certificate has expired" in client
        assert "expired" in bookie

    @pytest.mark.parametrize(("host", "words"), [("127.0.0.2", "not for this address"), ("b.org", "not for this host")])
    def test_another_host(self, authority: Authority, issued: Issued, version: str, host: str, words: str) -> None:
        options = client_options(authority.certificate, versions=(version,))
        client, _ = failures(Pair(options, bookie_options(issued), host=host))
        assert words in client
        assert "tlsHostnameVerificationEnabled=false" in client

    def test_another_host_passes_when_it_is_not_checked(
        self, authority: Authority, issued: Issued, version: str
    ) -> None:
        options = client_options(authority.certificate, versions=(version,), check_host=False)
        pair = Pair(options, bookie_options(issued), host="elsewhere.org")
        assert failures(pair) == ("", "")
        assert pair.client.secured

    def test_a_client_without_the_certificate_it_needs(
        self, authority: Authority, issued: Issued, version: str
    ) -> None:
        options = client_options(authority.certificate, versions=(version,))
        client, bookie = failures(Pair(options, bookie_options(issued, authority.certificate)))
        assert "it showed no certificate" in bookie
        assert client

    def test_a_client_with_a_certificate_of_another_authority(
        self, authority: Authority, other: Authority, issued: Issued, version: str
    ) -> None:
        stranger = other.issue("stranger")
        options = client_options(authority.certificate, stranger, versions=(version,))
        client, bookie = failures(Pair(options, bookie_options(issued, authority.certificate)))
        assert "unknown authority: add that authority to tlsTrustStore; if it is an intermediate" in bookie
        assert "does not trust the authority of our certificate" in client

    def test_what_a_genuine_bookie_answers_to_such_a_certificate(
        self, authority: Authority, other: Authority, issued: Issued, version: str
    ) -> None:
        """It sends the alert internal_error (80), because of the library below it."""
        options = client_options(authority.certificate, other.issue("posing"), versions=(version,))
        pair = Pair(options, bookie_options(issued, authority.certificate))
        pair.client.receive(b"\x15\x03\x03\x00\x02\x02\x50")
        assert "as Apache's bookies do when they do not trust our certificate" in (pair.client.error or "")

    def test_a_client_with_its_certificate_is_let_in(self, authority: Authority, issued: Issued, version: str) -> None:
        options = client_options(authority.certificate, authority.issue("client"), versions=(version,))
        pair = Pair(options, bookie_options(issued, authority.certificate))
        assert failures(pair) == ("", "")
        assert pair.bookie.secured


def test_sides_without_a_common_version_say_so(authority: Authority, issued: Issued) -> None:
    pair = Pair(
        client_options(authority.certificate, versions=("TLSv1.2",)), bookie_options(issued, versions=("TLSv1.3",))
    )
    client, bookie = failures(pair)
    assert "tlsEnabledProtocols" in client
    assert "tlsEnabledProtocols" in bookie


# --- cipher suites --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_are_named_as_in_java(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl


def test_only_the_suites_of_the_list_are_used(authority: Authority, issued: Issued) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    pair = Pair(client_options(authority.certificate), bookie_options(issued, ciphers=(suite,)))
    pair.carry()
    assert pair.client.description == "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256"


def test_a_list_of_the_newest_suites_alone_leaves_the_newest_version(authority: Authority, issued: Issued) -> None:
    pair = Pair(client_options(authority.certificate), bookie_options(issued, ciphers=("TLS_AES_128_GCM_SHA256",)))
    pair.carry()
    assert pair.client.description.startswith("TLSv1.3")


@pytest.mark.parametrize(
    ("suites", "versions", "words"),
    [
        (("TLS_MADE_WITH_UP",), ("TLSv1.2", "TLSv1.3"), "TLS_MADE_WITH_UP is not known to OpenSSL"),
        (("TLS_AES_128_GCM_SHA256",), ("TLSv1.2",), "no suite of a version in tlsEnabledProtocols"),
    ],
)
def test_suites_that_cannot_be_used_are_refused(
    issued: Issued, suites: tuple[str, ...], versions: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(bookie_options(issued, ciphers=suites, versions=versions))


# --- files ----------------------------------------------------------------------------------------------------------


def refusal(options: TlsOptions) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load(options)
    return str(refused.value)


def warnings_of(options: TlsOptions) -> list[str]:
    """What is logged while files are loaded, all of which work."""
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        load(options)
    finally:
        globalLogPublisher.removeObserver(events.append)
    return [event["log_format"].format(**event) for event in events]


def test_a_missing_file_is_named_with_its_key(issued: Issued) -> None:
    missing = NamedFile("tlsCertificatePath", "/nowhere/c.pem")
    assert "tlsCertificatePath=/nowhere/c.pem cannot be read" in refusal(bookie_options(issued, certificate=missing))


def test_a_key_of_another_certificate_is_refused(authority: Authority, issued: Issued) -> None:
    another = NamedFile("tlsKeyStore", str(authority.issue("another").key))
    text = refusal(bookie_options(issued, private_key=another))
    assert f"{another} is not the private key of the first certificate in tlsCertificatePath=" in text


def test_files_in_each_others_place_are_told(issued: Issued) -> None:
    key = NamedFile("tlsKeyStore", str(issued.certificate))
    assert "no private key in PEM" in refusal(bookie_options(issued, private_key=key))
    certificate = NamedFile("tlsCertificatePath", str(issued.key))
    assert "no certificate in PEM" in refusal(bookie_options(issued, certificate=certificate))


def test_a_certificate_file_of_an_unknown_version_is_refused(authority: Authority) -> None:
    assert "no certificate in PEM" in refusal(bookie_options(with_version_4(authority.issue("version-4"))))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "but a Java key store: convert it: keytool -importkeystore"),
        (b"0\x82\x0a\x1e\2\1\3", "but a PKCS12 store or DER: convert it: keytool -importkeystore"),
        (b"hello\n", "was a file named here that belongs to another key?"),
    ],
)
@pytest.mark.parametrize("key", ["tlsKeyStore", "tlsCertificatePath", "tlsTrustStore"])
def test_a_store_of_java_is_told_with_how_to_convert_it_wherever_it_is_named(
    issued: Issued, tmp_path: Path, key: str, data: bytes, words: str
) -> None:
    store = tmp_path / "store"
    store.write_bytes(data)
    field = {"tlsKeyStore": "private_key", "tlsCertificatePath": "certificate", "tlsTrustStore": "trust"}[key]
    said = refusal(dataclasses.replace(bookie_options(issued), **{field: NamedFile(key, str(store))}))
    assert said.startswith(f"{key}={store}: no ")
    assert words in said


def test_an_encrypted_key_needs_its_password(authority: Authority, directory: Path) -> None:
    locked = authority.issue("locked", password=b"open sesame")
    assert "tlsKeyStorePasswordPath" in refusal(bookie_options(locked))
    wrong, right = directory / "wrong", directory / "right"
    wrong.write_text("abracadabra\n")
    right.write_text("open sesame\n")
    right.chmod(0o600)
    password = NamedFile("tlsKeyStorePasswordPath", str(wrong))
    assert f"{password}: this is not the password of" in refusal(bookie_options(locked, password=password))
    assert warnings_of(bookie_options(locked, password=NamedFile("tlsKeyStorePasswordPath", str(right)))) == []


def test_an_expired_certificate_is_warned_of(authority: Authority) -> None:
    (warning,) = warnings_of(bookie_options(authority.issue("old", valid=timedelta(hours=-1))))
    assert "the certificate of CN=old has expired on" in warning


def test_a_key_that_other_users_may_read_is_warned_of(authority: Authority) -> None:
    open_key = authority.issue("open")
    open_key.key.chmod(0o644)
    (warning,) = warnings_of(bookie_options(open_key))
    assert f"chmod o-r {open_key.key}" in warning


def test_a_trust_file_that_other_users_may_change_is_warned_of(directory: Path) -> None:
    authority = Authority(directory, "open-trust")
    authority.certificate.chmod(0o664)
    (warning,) = warnings_of(client_options(authority.certificate))
    assert "may change it: chmod go-w" in warning


def test_changed_files_are_used_by_new_connections_and_broken_ones_are_not(directory: Path) -> None:
    first, second = Authority(directory / "1", "first"), Authority(directory / "2", "second")
    files = first.issue("bookie")
    now = [0.0]
    credentials = TlsCredentials(bookie_options(files, refresh_s=60.0), lambda: now[0])

    def trusted_by(authority: Authority) -> bool:
        wires = Wire(), Wire()
        client = TlsCredentials(client_options(authority.certificate), lambda: 0.0).layer(wires[0], "127.0.0.1")
        bookie = credentials.layer(wires[1])
        client.start()
        while wires[0].data or wires[1].data:
            bookie.receive(wires[0].take())
            client.receive(wires[1].take())
        return client.secured

    replacement = second.issue("bookie")
    files.key.write_bytes(replacement.key.read_bytes())  # and the certificate does not follow: they do not match
    now[0] = 59.0
    assert trusted_by(first)
    now[0] = 61.0
    assert trusted_by(first)
    files.certificate.write_bytes(replacement.certificate.read_bytes())
    now[0] = 100.0
    assert trusted_by(first)  # not looked at again yet
    now[0] = 122.0
    assert trusted_by(second)
    assert not trusted_by(first)


def test_a_clock_that_was_set_back_does_not_keep_old_files_in_use(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(directory / "clock", "clock")
    files = authority.issue("bookie")
    now = [1e9]
    credentials = TlsCredentials(bookie_options(files, refresh_s=60.0), lambda: now[0])
    loaded: list[TlsOptions] = []

    def loading(options: TlsOptions) -> Any:
        loaded.append(options)
        return load(options)

    monkeypatch.setattr("bookkeeper.tls.load", loading)
    replacement = authority.issue("replacement")
    files.key.write_bytes(replacement.key.read_bytes())
    files.certificate.write_bytes(replacement.certificate.read_bytes())
    now[0] = 1e8
    credentials.layer(Wire())
    assert len(loaded) == 1


def test_a_key_that_goes_away_while_it_is_read_is_told_and_the_old_one_stays(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever renews certificates may do so by remove and create; the connection that meets it is served."""
    files = Authority(directory / "gone", "gone").issue("bookie")
    now = [0.0]
    options = bookie_options(files, refresh_s=60.0)
    credentials = TlsCredentials(options, lambda: now[0])
    files.certificate.write_bytes(files.certificate.read_bytes() + b"\n")
    kept = files.key.read_bytes()
    monkeypatch.setattr("bookkeeper.tls.check_dates", lambda *_: files.key.unlink())  # after the key was read
    now[0] = 61.0
    credentials.layer(Wire())
    files.key.write_bytes(kept)
    assert f"{options.private_key}: OpenSSL does not take them" in refusal(options)
