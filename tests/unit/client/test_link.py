"""A connection of the client before its first request: TLS and credentials, and what each way to fail is called.

The bookie's end is a codec, a real gate and real TLS over a transport in memory (`ServiceBench`), or a script.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from bookkeeper.bookie.connections.handshake_rules import BookieSecurity
from bookkeeper.client.bookies.link import BookieLink
from bookkeeper.client.bookies.tls import security_of
from bookkeeper.config import ClientSettings
from bookkeeper.errors import AuthenticationRefused, BookieUnavailable, ConnectionLost, RequestTimedOut, TlsFailed
from bookkeeper.model import BookieId, Status
from bookkeeper.tls import NamedFile, TlsCredentials, TlsLayer, TlsOptions
from bookkeeper.wire.codec import ServerCodec, request_encoder, v3_encoder
from bookkeeper.wire.messages import AddAcks
from tests.support.auth_plugins import Dialogue, Token
from tests.support.bookie_connections import MemoryTransport, ServiceBench, add_frames
from tests.support.certificates import FACTORY, Authority, Issued

PLUGINS = "tests.support.auth_plugins"


class Reason:
    value = "gone"


class Owner:
    """Notes what its link tells."""

    def __init__(self) -> None:
        self.ready = 0
        self.received: list[Any] = []
        self.errors: list[BookieUnavailable] = []

    def on_ready(self, link: BookieLink) -> None:
        self.ready += 1

    def on_messages(self, link: BookieLink, received: list[Any]) -> None:
        self.received += received

    def on_link_lost(self, link: BookieLink, error: BookieUnavailable) -> None:
        self.errors.append(error)


class Outgoing:
    """The link's transport: `carry` brings what was written to the bookie and its answers back."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self.unsent: list[bytes] = []
        self.written = b""
        self.closed = self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data
        self.unsent.append(data)

    def carry(self, link: BookieLink) -> None:
        while self.unsent:
            answer = self._answer(self.unsent.pop(0))
            if answer:
                link.dataReceived(answer)

    def loseConnection(self) -> None:
        self.closed = True

    def abortConnection(self) -> None:
        self.aborted = True

    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: Any, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def getPeer(self) -> str:
        return "bookie"


class Bench:
    """One link of a client with `settings`, connected to `answer`."""

    def __init__(self, settings: ClientSettings, answer: Callable[[bytes], bytes], *, host: str = "127.0.0.1") -> None:
        self.clock, self.owner = Clock(), Owner()
        version = 2 if settings.use_v2 else 3
        self.encoder = request_encoder(2 if version == 2 else 3)
        security = security_of(settings, self.clock.seconds)
        bookie_id = BookieId("b1:3181")
        self.link = BookieLink(self.owner, bookie_id, self.encoder, self.clock, settings, security, host=host)
        self.transport = Outgoing(answer)
        self.link.makeConnection(self.transport)
        self.carry()

    def carry(self) -> None:
        self.transport.carry(self.link)

    @property
    def error(self) -> BookieUnavailable:
        assert self.owner.errors
        return self.owner.errors[0]


def bookie(bench: ServiceBench) -> Callable[[bytes], bytes]:
    """A connection to a real bookie service."""
    transport: MemoryTransport = bench.connect()
    taken = 0

    def answer(data: bytes) -> bytes:
        nonlocal taken
        if not transport.closed:
            transport.connection.dataReceived(data)
        bench.finish()
        found = bytes(transport.sent[taken:])
        taken += len(found)
        return found

    return answer


def scripted(*replies: Callable[[ServerCodec, Any], bytes]) -> Callable[[bytes], bytes]:
    """A bookie that answers its requests as told, one after the other."""
    codec, left = ServerCodec(), list(replies)

    def answer(data: bytes) -> bytes:
        return b"".join(left.pop(0)(codec, request) for request in codec.receive(data))

    return answer


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ca")


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("bookie")


@pytest.fixture
def secure(issued: Issued) -> TlsCredentials:
    options = TlsOptions(
        server_side=True,
        private_key=NamedFile("tlsKeyStore", str(issued.key)),
        password=None,
        certificate=NamedFile("tlsCertificatePath", str(issued.certificate)),
        trust=None,
        check_host=False,
        versions=("TLSv1.2", "TLSv1.3"),
        ciphers=(),
        refresh_s=0.0,
    )
    return TlsCredentials(options, lambda: 0.0)


@pytest.fixture(params=[True, False], ids=["v2", "v3"])
def settings(request: pytest.FixtureRequest, authority: Authority) -> Callable[..., ClientSettings]:
    def make(*, tls: bool = True, **values: Any) -> ClientSettings:
        if tls:
            values = {"tls_factory": FACTORY, "client_trust_store": str(authority.certificate), **values}
        return ClientSettings(**{"use_v2": request.param, **values})

    return make


Make = Callable[..., ClientSettings]


@pytest.mark.parametrize("plugin", ["", "token", "dialogue"])
@pytest.mark.parametrize("tls", [True, False], ids=["tls", "clear"])
def test_requests_leave_once_all_that_is_configured_is_done(
    settings: Make, secure: TlsCredentials, tls: bool, plugin: str
) -> None:
    provider = {"": None, "token": Token(), "dialogue": Dialogue()}[plugin]
    service = ServiceBench(security=BookieSecurity(secure if tls else None, provider=provider))
    bench = Bench(settings(tls=tls, auth_provider=f"{PLUGINS}:{plugin}_client" if plugin else ""), bookie(service))
    assert (bench.owner.ready, bench.owner.errors) == (1, [])
    bench.link.transport.write(add_frames([0], version=bench.encoder.version))
    bench.carry()
    (ack,) = bench.owner.received
    assert isinstance(ack, AddAcks)
    assert bench.clock.getDelayedCalls() == []
    if tls:
        assert b"secret" not in bench.transport.written  # the token went through TLS


def test_credentials_are_not_asked_for_by_every_bookie(settings: Make) -> None:
    bench = Bench(settings(tls=False, auth_provider=f"{PLUGINS}:token_client"), bookie(ServiceBench()))
    assert bench.owner.ready == 1


def test_a_bookie_without_tls(settings: Make) -> None:
    bench = Bench(settings(), bookie(ServiceBench()))
    assert isinstance(bench.error, TlsFailed)
    assert bench.error.code == -24
    assert "it has no TLS" in str(bench.error)
    assert (bench.owner.ready, bench.transport.aborted) == (0, True)


def test_a_certificate_for_another_host(settings: Make, secure: TlsCredentials) -> None:
    service = ServiceBench(security=BookieSecurity(secure))
    bench = Bench(settings(), bookie(service), host="elsewhere.org")
    assert isinstance(bench.error, TlsFailed)
    assert "TLS with bookie b1:3181 at elsewhere.org: its certificate is not for this host" in str(bench.error)
    assert bench.owner.ready == 0
    assert bench.transport.closed  # in order: the bookie is told why


@pytest.mark.parametrize("host", ["", ".example.org"])
def test_a_host_that_is_none(settings: Make, secure: TlsCredentials, host: str) -> None:
    bench = Bench(settings(), bookie(ServiceBench(security=BookieSecurity(secure))), host=host)
    assert isinstance(bench.error, TlsFailed)
    assert "no certificate can be for" in str(bench.error)
    assert bench.transport.aborted


def test_a_client_in_clear_text_at_a_bookie_that_requires_tls(settings: Make, secure: TlsCredentials) -> None:
    service = ServiceBench(security=BookieSecurity(secure))
    bench = Bench(settings(tls=False), bookie(service))
    bench.link.transport.write(add_frames([0], version=bench.encoder.version))
    bench.carry()
    assert [message.status for message in bench.owner.received] == [Status.UNAUTHORIZED]


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "clear"])
def test_credentials_that_are_refused(settings: Make, secure: TlsCredentials, tls: bool) -> None:
    """With TLS the refusal and the bookie's farewell arrive together; in v2 there is only the farewell."""
    service = ServiceBench(security=BookieSecurity(secure if tls else None, provider=Token()))
    bench = Bench(settings(tls=tls, auth_provider=f"{PLUGINS}:wrong_token_client"), bookie(service))
    bench.link.connectionLost(Reason())
    assert isinstance(bench.error, AuthenticationRefused)
    assert bench.error.code == -102
    assert "authentication at bookie b1:3181 as 'somebody' with plug-in token" in str(bench.error)
    assert f"check clientAuthProviderFactoryClass={PLUGINS}:wrong_token_client and what it shows" in str(bench.error)
    assert bench.owner.ready == 0


def test_a_password_that_is_refused_is_told_with_its_file(settings: Make, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("alice:guess")
    service = ServiceBench(security=BookieSecurity(None, provider=Token()))
    mine = settings(tls=False, auth_provider="password-file", auth_password_file=str(file), auth_over_clear_text=True)
    bench = Bench(mine, bookie(service))
    bench.link.connectionLost(Reason())
    assert isinstance(bench.error, AuthenticationRefused)
    assert f"check clientAuthProviderFactoryClass=password-file and user and password in clientPasswordFile={file}" in (
        str(bench.error)
    )
    assert "guess" not in str(bench.error)


@pytest.mark.parametrize("shown", [False, True], ids=["none", "a stranger's"])
def test_a_client_certificate_that_is_missing_or_not_trusted(
    settings: Make, authority: Authority, issued: Issued, tmp_path: Path, shown: bool
) -> None:
    trusted = NamedFile("tlsTrustStore", str(authority.certificate))
    options = TlsOptions(
        server_side=True,
        private_key=NamedFile("tlsKeyStore", str(issued.key)),
        password=None,
        certificate=NamedFile("tlsCertificatePath", str(issued.certificate)),
        trust=trusted,
        check_host=False,
        versions=("TLSv1.2", "TLSv1.3"),
        ciphers=(),
        refresh_s=0.0,
    )
    service = ServiceBench(security=BookieSecurity(TlsCredentials(options, lambda: 0.0)))
    mine = Authority(tmp_path, "strangers").issue("me")
    shows = {"tls_client_authentication": True, "client_key_store": str(mine.key)} if shown else {}
    bench = Bench(settings(**shows, **({"tls_certificate": str(mine.certificate)} if shown else {})), bookie(service))
    assert isinstance(bench.error, TlsFailed)
    told = str(bench.error)
    assert "tlsCertificatePath" in told
    assert "tlsTrustStore" in told
    assert shown or ("tlsClientAuthentication=true" in told and "clientKeyStore" in told)


def test_a_bookie_that_asks_for_ever_is_given_up(settings: Make) -> None:
    def ask(codec: ServerCodec, request: Any) -> bytes:
        return codec.reply(request, Status.OK, plugin="dialogue", payload=b"name?")

    bench = Bench(settings(tls=False, auth_provider=f"{PLUGINS}:dialogue_client"), scripted(*[ask] * 100))
    assert isinstance(bench.error, AuthenticationRefused)
    assert "rounds" in str(bench.error)


def test_clear_text_behind_the_answer_to_start_tls_is_not_believed(settings: Make) -> None:
    """Whoever is in between could put answers there, to be taken for the bookie's."""

    def agree_and_go_on(codec: ServerCodec, request: Any) -> bytes:
        return codec.reply(request, Status.OK) + codec.reply(request, Status.OK)

    bench = Bench(settings(), scripted(agree_and_go_on))
    assert isinstance(bench.error, TlsFailed)
    assert "somebody may be in between" in str(bench.error)
    assert (bench.owner.ready, bench.owner.received) == (0, [])


def test_a_bookie_that_says_nothing_is_given_up(settings: Make) -> None:
    bench = Bench(settings(start_tls_timeout_s=3.0), lambda data: b"")
    bench.clock.advance(3.1)
    assert isinstance(bench.error, TlsFailed)
    assert "startTLSTimeoutSecs" in str(bench.error)
    assert bench.transport.aborted
    silent = Bench(settings(tls=False, auth_provider=f"{PLUGINS}:token_client"), lambda data: b"")
    silent.clock.advance(10.1)
    assert isinstance(silent.error, RequestTimedOut)


def test_a_bookie_that_dies_during_the_handshake(settings: Make) -> None:
    bench = Bench(settings(), scripted(lambda codec, request: codec.reply(request, Status.OK), lambda *_: b""))
    bench.link.connectionLost(Reason())
    assert isinstance(bench.error, TlsFailed)
    assert "ended during the handshake" in str(bench.error)
    assert bench.clock.getDelayedCalls() == []


def test_a_bookie_that_dies_later_is_lost_as_any_other(settings: Make, secure: TlsCredentials) -> None:
    bench = Bench(settings(), bookie(ServiceBench(security=BookieSecurity(secure))))
    bench.link.connectionLost(Reason())
    assert type(bench.error) is ConnectionLost


def test_what_a_bookie_says_before_credentials_were_sent_does_not_revive_a_connection(
    settings: Make, secure: TlsCredentials, tmp_path: Path
) -> None:
    """In TLSv1.2 a bookie's handshake may end in one chunk with its next words."""
    file = tmp_path / "password"
    file.write_text("alice:one")
    codec, end = ServerCodec(), Outgoing(lambda data: b"")
    layers: list[TlsLayer] = []

    def answer(data: bytes) -> bytes:
        if not layers:
            (request,) = codec.receive(data)
            file.unlink()
            layers.append(secure.layer(end))
            return codec.reply(request, Status.OK)
        layer = layers[0]
        layer.receive(data)
        if layer.secured:
            _, frame = v3_encoder().encode_auth("PasswordFile", b"")
            (request,) = codec.receive(frame)
            layer.write(codec.reply(request, Status.OK, plugin="AuthDisabledPlugin", payload=b""))
        data, end.written = end.written, b""
        return data

    mine = settings(auth_provider="password-file", auth_password_file=str(file), tls_versions=("TLSv1.2",))
    bench = Bench(mine, answer)
    assert layers[0].secured
    assert isinstance(bench.error, AuthenticationRefused)
    assert bench.owner.ready == 0


def test_a_password_is_sent_with_its_user(settings: Make, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("alice:one")
    sent: list[bytes] = []

    def note(codec: ServerCodec, request: Any) -> bytes:
        sent.append(request.payload)
        return codec.reply(request, Status.OK, plugin="PasswordFile", payload=b"")

    mine = settings(tls=False, auth_provider="password-file", auth_password_file=str(file), auth_over_clear_text=True)
    assert Bench(mine, scripted(note)).owner.ready == 1
    assert sent == [b"\0alice\0one"]
