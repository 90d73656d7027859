"""Before the first request: what a bookie answers to whom, in both protocol versions.

Source: bookkeeper/wire/FORMATS.md 2.7, 2.8.

A real bookie service over a transport in memory; TLS is real too, over the same transport.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, globalLogPublisher

from bookkeeper.auth.provider import Answer, AuthenticationFailed, Peer
from bookkeeper.bookie.connections.handshake_rules import AUTH_PAYLOAD_MAX, AUTH_ROUNDS_MAX, BookieSecurity
from bookkeeper.model import Status
from bookkeeper.serving.admission import STRANGERS_SHARE, ConnectionBounds
from bookkeeper.tls import NamedFile, TlsCredentials, TlsLayer, TlsOptions
from bookkeeper.wire.codec import request_encoder, response_decoder, v2_encoder, v3_encoder
from bookkeeper.wire.messages import (
    REQUESTS_AT_ONCE,
    AddAcks,
    AddFailed,
    AuthReply,
    GenericFailure,
    Operation,
    ReadFailed,
    StartTlsReply,
)
from tests.support.auth_plugins import TOKEN, Dialogue, Token
from tests.support.bookie_connections import MemoryTransport, ServiceBench, add_frames, answers, read_frames
from tests.support.bookie_fakes import KEY
from tests.support.certificates import Authority

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[TlsOptions, TlsOptions]:
    """The options of a bookie and of a client that trusts it."""
    authority = Authority(tmp_path_factory.mktemp("ca"), "ca")
    issued = authority.issue("bookie")
    common: dict[str, Any] = {"password": None, "versions": ("TLSv1.3",), "ciphers": (), "refresh_s": 0.0}
    bookie = TlsOptions(
        server_side=True,
        private_key=NamedFile("tlsKeyStore", str(issued.key)),
        certificate=NamedFile("tlsCertificatePath", str(issued.certificate)),
        trust=None,
        check_host=False,
        **common,
    )
    trust = NamedFile("clientTrustStore", str(authority.certificate))
    client = TlsOptions(server_side=False, private_key=None, certificate=None, trust=trust, check_host=True, **common)
    return bookie, client


Files = tuple[TlsOptions, TlsOptions]


def tls_of(files: Files) -> TlsCredentials:
    return TlsCredentials(files[0], lambda: 0.0)


class ClientEnd:
    """A client's TLS over what a connection of the bench sends and receives."""

    def __init__(self, transport: MemoryTransport, files: Files) -> None:
        self._transport = transport
        self._taken = len(transport.sent)
        self.tls: TlsLayer = TlsCredentials(files[1], lambda: 0.0).layer(self, "127.0.0.1")
        self.plain = b""

    def write(self, data: bytes) -> None:
        self._transport.connection.dataReceived(data)

    def read(self) -> bytes:
        """What arrived since, decrypted."""
        while self._taken < len(self._transport.sent):
            data = bytes(self._transport.sent[self._taken :])
            self._taken += len(data)
            self.plain += self.tls.receive(data)
        plain, self.plain = self.plain, b""
        return plain

    def shake_hands(self) -> None:
        self.tls.start()
        self.read()
        assert self.tls.secured, self.tls.error

    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: Any, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def getPeer(self) -> str:
        return "bookie"


def start_tls() -> bytes:
    return v3_encoder().encode_start_tls()[1]


def auth(payload: bytes = TOKEN, *, plugin: str = "token", version: int = 3) -> bytes:
    return request_encoder(3 if version == 3 else 2).encode_auth(plugin, payload)[1]


def secured(bench: ServiceBench, files: Files) -> tuple[MemoryTransport, ClientEnd]:
    transport = bench.connect()
    transport.connection.dataReceived(start_tls())
    (reply,) = answers(transport, 3)
    assert isinstance(reply, StartTlsReply)
    assert reply.status is Status.OK
    client = ClientEnd(transport, files)
    client.shake_hands()
    return transport, client


def decoded(data: bytes, version: int) -> list[Any]:
    decoder = response_decoder(3 if version == 3 else 2)
    found = list(decoder.receive(data))
    assert (decoder.error, decoder.buffered) == (None, 0)
    return found


def count(bench: ServiceBench, name: str) -> float:
    for line in bench.metrics.text().decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(f"{name} is not shown")


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_the_version_is_decided_anew_inside_tls(files: Files, version: int) -> None:
    """START_TLS is spoken in v3 by all clients, also by those that go on in v2."""
    bench = ServiceBench(security=BookieSecurity(tls_of(files)))
    _, client = secured(bench, files)
    client.tls.write(add_frames([0, 1], version=version))
    bench.finish()
    found = decoded(client.read(), version)
    assert [entry for ack in found for entry in ack.entry_ids] == [0, 1]
    assert count(bench, "bookkeeper_server_TLS_CONNECTIONS") == 1


@pytest.mark.parametrize("version", [2, 3])
def test_requests_in_clear_text_are_refused_where_tls_is_required(files: Files, version: int) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files)))
    bench.add([5])
    transport = bench.connect()
    transport.connection.dataReceived(add_frames([0, 1], version=version) + read_frames([5], version=version))
    bench.finish()
    found = answers(transport, version)
    assert all(answer.status is Status.UNAUTHORIZED for answer in found)
    assert len(found) == 3
    if version == 2:
        assert [type(answer) for answer in found] == [AddFailed, AddFailed, ReadFailed]
    else:  # header and status, no inner message
        assert [(type(answer), answer.operation) for answer in found] == [
            (GenericFailure, Operation.ADD),
            (GenericFailure, Operation.ADD),
            (GenericFailure, Operation.READ),
        ]
    assert not transport.closed


def test_clear_text_is_served_where_tls_is_offered_but_not_required(files: Files) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files), tls_required=False))
    transport = bench.connect()
    transport.connection.dataReceived(add_frames([0]))
    bench.finish()
    assert answers(transport) == [AddAcks(7, [0], None)]


@pytest.mark.parametrize("behind", ["a request", "a part of one", "another START_TLS"])
def test_what_follows_start_tls_in_clear_text_is_never_done(files: Files, behind: str) -> None:
    """Whoever is in between could append requests to the client's START_TLS, to be run as the client's."""
    bench = ServiceBench(security=BookieSecurity(tls_of(files)))
    transport = bench.connect()
    injected = {"a request": add_frames([0]), "a part of one": add_frames([0])[:20], "another START_TLS": start_tls()}
    transport.connection.dataReceived(start_tls() + injected[behind])
    bench.finish()
    assert transport.closed
    assert transport.sent == b""
    assert bench.storage.last_entry_id(7) is None
    assert count(bench, "bookkeeper_server_TLS_CONNECTIONS") == 0


def test_what_follows_start_tls_is_never_done_if_it_is_not_decoded_yet(files: Files) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files)))
    transport = bench.connect()
    refused = read_frames([0], ledger_id=1, version=3) + read_frames([0], ledger_id=2, version=3)
    before = (refused * REQUESTS_AT_ONCE)[: len(refused) // 2 * (REQUESTS_AT_ONCE - 1)]
    transport.connection.dataReceived(before + start_tls() + add_frames([0], version=3))
    bench.finish()
    assert transport.closed
    assert len(answers(transport, 3)) == REQUESTS_AT_ONCE - 1
    assert bench.storage.last_entry_id(7) is None


def test_clear_text_in_place_of_a_handshake_ends_the_connection(files: Files) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files)))
    transport = bench.connect()
    transport.connection.dataReceived(start_tls())
    transport.connection.dataReceived(add_frames([0]))
    bench.finish()
    assert transport.closed
    assert count(bench, "bookkeeper_server_TLS_FAILURES") == 1


def test_start_tls_without_tls_is_a_bad_request() -> None:
    for bench in (ServiceBench(), ServiceBench(security=BookieSecurity(provider=Token()))):
        transport = bench.connect()
        transport.connection.dataReceived(start_tls())
        bench.finish()
        (reply,) = answers(transport, 3)
        assert isinstance(reply, StartTlsReply)
        assert reply.status is Status.BAD_REQUEST


@pytest.mark.parametrize("authenticates", [False, True])
def test_tls_is_started_once(files: Files, authenticates: bool) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files), provider=Token() if authenticates else None))
    _, client = secured(bench, files)
    client.tls.write(start_tls())
    bench.finish()
    (reply,) = decoded(client.read(), 3)
    assert (type(reply), reply.status) == (StartTlsReply, Status.BAD_REQUEST)


def test_a_handshake_without_end_is_given_up(files: Files) -> None:
    security = BookieSecurity(tls_of(files), tls_required=False, timeout_s=TIMEOUT_S)
    bench = ServiceBench(bounds=ConnectionBounds(first_request_s=1000 * TIMEOUT_S), security=security)
    transport = bench.connect()
    bench.clock.advance(TIMEOUT_S * 10)
    assert not transport.aborted  # nothing is asked of it
    transport.connection.dataReceived(start_tls())
    bench.clock.advance(TIMEOUT_S + 0.1)
    assert transport.aborted


def test_a_client_that_asks_for_nothing_is_given_up_where_tls_is_required(files: Files) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files), timeout_s=TIMEOUT_S))
    transport = bench.connect()
    bench.clock.advance(TIMEOUT_S + 0.1)
    assert transport.aborted


def test_a_connection_that_is_served_has_no_more_time_limit(files: Files) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files), timeout_s=TIMEOUT_S))
    transport, client = secured(bench, files)
    bench.clock.advance(TIMEOUT_S * 3)
    client.tls.write(add_frames([0]))
    bench.finish()
    assert decoded(client.read(), 2) == [AddAcks(7, [0], None)]
    bench.clock.advance(TIMEOUT_S * 3)
    assert not transport.aborted


def test_a_lost_connection_leaves_no_timer(files: Files) -> None:
    bench = ServiceBench(security=BookieSecurity(tls_of(files), provider=Token()))
    transport = bench.connect()
    transport.connection.dataReceived(start_tls())
    transport.connection.connectionLost("gone")
    assert bench.clock.getDelayedCalls() == []


# --- authentication -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_who_is_authenticated_is_served(version: int) -> None:
    bench = ServiceBench(security=BookieSecurity(provider=Token()))
    transport = bench.connect()
    transport.connection.dataReceived(auth(version=version) + add_frames([0], version=version))
    bench.finish()
    reply, ack = answers(transport, version)
    assert isinstance(reply, AuthReply)
    assert (reply.status, reply.plugin, reply.payload) == (Status.OK, "token", b"")
    assert ack.entry_ids == [0]


def test_several_rounds_lead_there_too() -> None:
    bench = ServiceBench(security=BookieSecurity(provider=Dialogue()))
    transport = bench.connect()
    for payload in (b"hello", b"Lancelot", b"the grail", b"blue"):
        transport.connection.dataReceived(auth(payload, plugin="dialogue"))
    assert [reply.payload for reply in answers(transport, 3)] == [b"name?", b"quest?", b"colour?", b"pass"]
    transport.connection.dataReceived(add_frames([0], version=3))
    bench.finish()
    assert answers(transport, 3)[-1].entry_ids == [0]


def test_requests_before_authentication_in_v2() -> None:
    """Adds and reads, fencing ones too, are answered; anything else ends the connection."""
    bench = ServiceBench(security=BookieSecurity(provider=Token()))
    transport = bench.connect()
    fence = request_encoder(2).encode_fence_reads(7, [-1], KEY)[1]
    transport.connection.dataReceived(add_frames([0]) + read_frames([0, 1]) + fence)
    bench.finish()
    found = answers(transport)
    assert [answer.status for answer in found] == [Status.UNAUTHORIZED] * 4
    assert count(bench, "bookkeeper_server_UNAUTHORIZED_REQUESTS") >= 3
    transport.connection.dataReceived(v2_encoder().encode_batch_read(7, 0, 10, 1000)[1])
    assert transport.closed
    assert len(answers(transport)) == 4


def test_requests_before_authentication_in_v3() -> None:
    """All are answered with header and status alone; a fencing read fences nothing."""
    bench = ServiceBench(security=BookieSecurity(provider=Token()))
    transport = bench.connect()
    encoder = v3_encoder()
    requests = [
        encoder.encode_fence_reads(7, [-1], KEY)[1],
        encoder.encode_force(7)[1],
        encoder.encode_list_entries(7)[1],
        add_frames([0], version=3),
    ]
    transport.connection.dataReceived(b"".join(requests))
    bench.finish()
    found = answers(transport, 3)
    assert [(type(answer), answer.status) for answer in found] == [(GenericFailure, Status.UNAUTHORIZED)] * 4
    transport.connection.dataReceived(auth() + add_frames([0], version=3))
    bench.finish()
    assert answers(transport, 3)[-1].entry_ids == [0]  # nothing was fenced


@pytest.mark.parametrize("version", [2, 3])
def test_another_plugin(version: int) -> None:
    """v2 hangs up; v3 says no, and the client may try the right one."""
    bench = ServiceBench(security=BookieSecurity(provider=Token()))
    transport = bench.connect()
    transport.connection.dataReceived(auth(plugin="kerberos", version=version))
    assert count(bench, "bookkeeper_server_AUTH_FAILURES") == 1
    if version == 2:
        assert transport.closed
        assert transport.sent == b""
        return
    (refusal,) = answers(transport, 3)
    assert (type(refusal), refusal.status) == (GenericFailure, Status.UNAUTHORIZED)
    transport.connection.dataReceived(auth())
    assert answers(transport, 3)[-1].plugin == "token"


@pytest.mark.parametrize("version", [2, 3])
def test_wrong_credentials_end_the_connection_and_no_other(version: int) -> None:
    bench = ServiceBench(security=BookieSecurity(provider=Token()))
    friend, stranger = bench.connect(), bench.connect()
    friend.connection.dataReceived(auth(version=version))
    stranger.connection.dataReceived(auth(b"guess", version=version) + add_frames([0], version=version))
    bench.finish()
    assert stranger.closed
    if version == 2:
        assert stranger.sent == b""
    else:
        (refusal,) = answers(stranger, 3)
        assert (type(refusal), refusal.status) == (GenericFailure, Status.UNAUTHORIZED)
    friend.connection.dataReceived(add_frames([0], version=version))
    bench.finish()
    assert answers(friend, version)[-1].entry_ids == [0]
    assert count(bench, "bookkeeper_server_AUTH_FAILURES") == 1


class Slow:
    """A provider that takes its time."""

    plugin_name = "slow"

    def __init__(self) -> None:
        self.asked: list[Deferred[Answer]] = []

    def converse(self, peer: Peer) -> Slow:
        return self

    def respond(self, payload: bytes) -> Deferred[Answer]:
        self.asked.append(Deferred())
        return self.asked[-1]


def test_requests_wait_while_the_provider_thinks_and_others_do_not() -> None:
    slow = Slow()
    bench = ServiceBench(security=BookieSecurity(provider=slow, timeout_s=TIMEOUT_S))
    waiting, other = bench.connect(), bench.connect()
    waiting.connection.dataReceived(auth(plugin="slow") + add_frames([0], version=3))
    bench.finish()
    assert waiting.sent == b""
    assert not waiting.reading
    bench.clock.advance(TIMEOUT_S / 2)
    other.connection.dataReceived(auth(plugin="slow"))
    slow.asked[1].callback(Answer(b"", True))
    other.connection.dataReceived(add_frames([5], version=3))
    bench.finish()
    assert answers(other, 3)[-1].entry_ids == [5]
    bench.clock.advance(TIMEOUT_S * 2)  # its own thinking is not counted against the client
    assert not waiting.aborted
    slow.asked[0].callback(Answer(b"", True))
    bench.finish()
    assert answers(waiting, 3)[-1].entry_ids == [0]
    assert waiting.reading


@pytest.mark.parametrize("verdict", ["yes", "no"])
def test_a_verdict_on_a_connection_that_is_gone_goes_nowhere(verdict: str) -> None:
    slow = Slow()
    bench = ServiceBench(security=BookieSecurity(provider=slow))
    transport = bench.connect()
    transport.connection.dataReceived(auth(plugin="slow"))
    transport.connection.connectionLost("gone")
    if verdict == "yes":
        slow.asked[0].callback(Answer(b"", True))
    else:
        slow.asked[0].errback(AuthenticationFailed("no"))
    assert transport.sent == b""
    assert bench.clock.getDelayedCalls() == []


def test_a_provider_hears_that_the_connection_is_gone() -> None:
    """What it has not begun by then is work for nobody; and it is no failure of the client."""
    cancelled: list[Deferred[Answer]] = []

    class Listening(Slow):
        def respond(self, payload: bytes) -> Deferred[Answer]:
            return Deferred(cancelled.append)

    bench = ServiceBench(security=BookieSecurity(provider=Listening()))
    transport = bench.connect()
    transport.connection.dataReceived(auth(plugin="slow"))
    transport.connection.connectionLost("gone")
    assert len(cancelled) == 1
    assert count(bench, "bookkeeper_server_AUTH_FAILURES") == 0


def test_strangers_do_not_hold_up_those_who_are_served() -> None:
    """They wait for a provider, or never end their frames; the greediest goes, and not who merely shakes hands."""
    slow, share = Slow(), 10_000
    bounds = ConnectionBounds(received_bytes_max=share * STRANGERS_SHARE)
    bench = ServiceBench(bounds=bounds, security=BookieSecurity(provider=slow))
    served, modest = bench.connect(), bench.connect()
    served.connection.dataReceived(auth(plugin="slow"))
    slow.asked[0].callback(Answer(b"", True))
    modest.connection.dataReceived(auth(plugin="slow"))
    strangers = []
    for _ in range(20):
        waiting, partial = bench.connect(), bench.connect()
        waiting.connection.dataReceived(auth(plugin="slow") + add_frames([5], version=3, payload=b"x" * 3000))
        partial.connection.dataReceived(add_frames([5], version=3, payload=b"x" * 9000)[:4000])
        strangers += [waiting, partial]
        for transport in strangers:
            if transport.aborted:
                transport.connection.connectionLost("aborted")
        strangers = [transport for transport in strangers if not transport.aborted]
        assert bench.service.admission.stranger_bytes <= share
        served.connection.dataReceived(add_frames([0], version=3))
        bench.finish()
        assert served.reading
    assert answers(served, 3)[-1].entry_ids == [0] * 20
    assert not modest.aborted
    for transport in [*strangers, modest]:
        transport.connection.connectionLost("gone")
    admission = bench.service.admission
    assert (admission.stranger_bytes, bench.service.inbox_bytes, admission.partial_bytes) == (0, 0, 0)


def test_who_may_be_served_in_clear_text_is_no_stranger(files: Files) -> None:
    """The first frame of a client that asks for no TLS may be a large one."""
    bounds = ConnectionBounds(received_bytes_max=1000 * STRANGERS_SHARE)
    security = BookieSecurity(tls_of(files), tls_required=False)
    bench = ServiceBench(bounds=bounds, security=security)
    transport = bench.connect()
    frame = add_frames([0], payload=b"x" * 3000)
    transport.connection.dataReceived(frame[:2000])
    assert (transport.aborted, bench.service.admission.stranger_bytes) == (False, 0)
    transport.connection.dataReceived(frame[2000:])
    bench.finish()
    assert answers(transport)[0].entry_ids == [0]


def test_who_never_authenticates_is_given_up() -> None:
    bench = ServiceBench(security=BookieSecurity(provider=Dialogue(), timeout_s=TIMEOUT_S))
    transport = bench.connect()
    transport.connection.dataReceived(auth(b"hello", plugin="dialogue"))
    bench.clock.advance(TIMEOUT_S + 0.1)
    assert transport.aborted


def test_a_client_that_waits_for_the_provider_has_twice_the_time() -> None:
    """The client has sent its credentials, but a stuck check must not keep the connection for ever."""
    slow = Slow()
    bench = ServiceBench(bounds=ConnectionBounds(first_request_s=60.0), security=BookieSecurity(provider=slow))
    transport, stuck = bench.connect(), bench.connect()
    for each in (transport, stuck):
        each.connection.dataReceived(auth(plugin="slow"))
    bench.clock.pump([1.0] * 119)
    assert not any(each.closed or each.aborted for each in (transport, stuck))
    slow.asked[0].callback(Answer(b"", True))
    bench.clock.pump([1.0] * 2)
    assert stuck.closed or stuck.aborted
    transport.connection.dataReceived(add_frames([0], version=3))
    bench.finish()
    assert answers(transport, 3)[-1].entry_ids == [0]


def test_credentials_count_as_memory_of_a_stranger_until_they_are_checked() -> None:
    slow, share = Slow(), 50_000
    bounds = ConnectionBounds(received_bytes_max=share * STRANGERS_SHARE)
    bench = ServiceBench(bounds=bounds, security=BookieSecurity(provider=slow))
    transports = []
    for _ in range(20):
        transports.append(bench.connect())
        transports[-1].connection.dataReceived(auth(b"x" * 9_000, plugin="slow"))
        assert bench.service.admission.stranger_bytes <= share
    kept = [number for number, each in enumerate(transports) if not (each.closed or each.aborted)]
    assert bench.service.admission.stranger_bytes >= 9_000 * len(kept) > 0
    for number in kept:
        slow.asked[number].callback(Answer(b"", True))
    assert (bench.service.admission.stranger_bytes, bench.service.inbox_bytes) == (0, 0)


def test_rounds_and_payloads_are_bounded() -> None:
    bench = ServiceBench(security=BookieSecurity(provider=Token()))
    talkative, heavy = bench.connect(), bench.connect()
    talkative.connection.dataReceived(auth(plugin="wrong") * (AUTH_ROUNDS_MAX + 1))
    assert talkative.closed
    assert len(answers(talkative, 3)) == AUTH_ROUNDS_MAX
    heavy.connection.dataReceived(auth(b"x" * (AUTH_PAYLOAD_MAX - 1000)))  # a wrong one, but looked at
    assert len(answers(heavy, 3)) == 1


def test_who_authenticates_in_clear_text_and_then_starts_tls_is_taken(files: Files) -> None:
    """Both orders are; the provider is told which it is."""
    token = Token()
    bench = ServiceBench(security=BookieSecurity(tls_of(files), provider=token))
    transport = bench.connect()
    transport.connection.dataReceived(auth() + start_tls())
    reply, started = answers(transport, 3)
    assert (type(reply), type(started)) == (AuthReply, StartTlsReply)
    client = ClientEnd(transport, files)
    client.shake_hands()
    client.tls.write(add_frames([0]))
    bench.finish()
    assert decoded(client.read(), 2) == [AddAcks(7, [0], None)]
    assert [peer.secure for peer in token.peers] == [False]


def test_our_clients_authenticate_inside_tls(files: Files) -> None:
    token = Token()
    bench = ServiceBench(security=BookieSecurity(tls_of(files), provider=token))
    _, client = secured(bench, files)
    client.tls.write(add_frames([0]) + auth(version=2) + add_frames([0]))
    bench.finish()
    refused, reply, ack = decoded(client.read(), 2)
    assert refused.status is Status.UNAUTHORIZED
    assert isinstance(reply, AuthReply)
    assert ack.entry_ids == [0]
    assert [peer.secure for peer in token.peers] == [True]


def test_credentials_that_nobody_asked_for_are_taken_as_by_apache(files: Files) -> None:
    for security in (None, BookieSecurity(tls_of(files))):
        bench = ServiceBench(security=security)
        transport = bench.connect()
        transport.connection.dataReceived(auth())
        bench.finish()
        (reply,) = answers(transport, 3)
        assert (reply.status, reply.plugin) == (Status.OK, "AuthDisabledPlugin")


def test_many_refused_requests_of_who_does_not_read_are_held_back() -> None:
    """The answers to refused requests are bounded like all others."""
    bench = ServiceBench(security=BookieSecurity(provider=Token()))
    transport = bench.connect(room=0)
    frames = add_frames(range(500), payload=b"")
    for _ in range(100):
        transport.connection.dataReceived(frames)
    assert not transport.reading
    assert transport.unsent < 2 * 1024 * 1024
    transport.drain(1 << 30)
    bench.finish()
    assert transport.reading


def test_each_reason_is_logged_but_not_each_name_that_a_peer_makes_up() -> None:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        bench = ServiceBench(security=BookieSecurity(provider=Token()))
        transport = bench.connect()
        transport.connection.dataReceived(add_frames([0], version=3) * 3)
        for number in range(5):
            transport.connection.dataReceived(auth(plugin=f"made-up-{number}"))
    finally:
        globalLogPublisher.removeObserver(events.append)
    reasons = [event["reason"] for event in events if "reason" in event]
    assert len(reasons) == 2
    assert "it is not authenticated" in reasons[0]
    assert "'made-up-0'" in reasons[1]
