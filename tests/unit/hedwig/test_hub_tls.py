"""The certificate that a hub shows."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.errors import ConfigurationError
from hedwig.hub.endpoint import HubConnection
from hedwig.hub.meters import HubMeters
from hedwig.hub.server import HubTls
from hedwig.hub.tls import FAREWELL_TIMEOUT_S, REFRESH_S, HubCredentials, TlsConnection
from tests.support.certificates import Authority
from tests.support.simulated_clock import SimulatedClock


class _Wire:
    """The transport of the hub's side."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.ended: list[str] = []

    def write(self, data: bytes) -> None:
        self.sent += data

    def loseConnection(self) -> None:
        self.ended.append("lose")

    def abortConnection(self) -> None:
        self.ended.append("abort")

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


class _Client:
    """A client's side, whose records go to `receive`."""

    def __init__(self, wire: _Wire, receive: Callable[[bytes], object], authority: Authority) -> None:
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(authority.certificate))
        self.session = context.wrap_bio(self._incoming, self.outgoing, server_hostname="127.0.0.1")
        for _ in range(10):
            try:
                self.session.do_handshake()
            except ssl.SSLWantReadError:
                receive(self.outgoing.read())
                self._incoming.write(bytes(wire.sent))
                wire.sent.clear()
            else:
                receive(self.outgoing.read())
                return
        raise AssertionError("the handshake does not end")


def shown(credentials: HubCredentials, authority: Authority) -> bytes | None:
    """The certificate that a client sees who connects now."""
    wire = _Wire()
    layer = credentials.layer(wire)
    return _Client(wire, layer.receive, authority).session.getpeercert(binary_form=True)


def test_who_says_farewell_and_takes_nothing_more_is_not_waited_for_without_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    issued = authority.issue("hub")
    credentials = HubCredentials(HubTls(port=0, certificate=str(issued.certificate), private_key=str(issued.key)))
    clock, wire = SimulatedClock(), _Wire()
    gone: list[TlsConnection] = []
    inner = HubConnection(SimpleNamespace(clock=clock, owned={}))  # type: ignore[arg-type]
    connection = TlsConnection(credentials, inner, clock, HubMeters(), gone.append)
    connection.makeConnection(wire)
    client = _Client(wire, connection.dataReceived, authority)
    with pytest.raises(ssl.SSLWantReadError):
        client.session.unwrap()
    for record in (client.outgoing.read(), b"more"):
        connection.dataReceived(record)
        assert wire.ended == ["lose"]
    clock.run_until(lambda: "abort" in wire.ended, seconds=FAREWELL_TIMEOUT_S + 1)
    connection.connectionLost(None)
    assert (gone, inner.closed) == ([connection], True)


def test_a_certificate_file_with_the_key_is_warned_of_if_others_may_use_it(tmp_path: Path) -> None:
    issued = Authority(tmp_path, "authority").issue("hub")
    both = tmp_path / "both.pem"
    both.write_bytes(issued.key.read_bytes() + issued.certificate.read_bytes())
    for mode, may in ((0o640, []), (0o644, ["read"]), (0o620, ["change"])):
        both.chmod(mode)
        with capturedLogs() as events:
            HubCredentials(HubTls(port=1, certificate=str(both)))
        expected = [
            f"cert_path={both} has mode {mode:04o}, so other users of this machine may {each} it" for each in may
        ]
        assert [formatEvent(event).partition(": chmod ")[0] for event in events] == expected


def test_a_renewed_certificate_is_shown_without_a_restart_and_a_broken_one_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    issued = authority.issue("hub")
    now_s = 0.0
    tls = HubTls(port=0, certificate=str(issued.certificate), private_key=str(issued.key))
    credentials = HubCredentials(tls, lambda: now_s)
    first = shown(credentials, authority)
    authority.issue("hub")
    assert shown(credentials, authority) == first, "it is not looked each time"
    now_s += REFRESH_S
    second = shown(credentials, authority)
    assert second != first
    key = issued.key.read_bytes()
    issued.key.write_bytes(b"nothing")
    with capturedLogs() as logged:
        for _ in range(3):
            now_s += REFRESH_S
            assert shown(credentials, authority) == second
    assert [event["log_level"].name for event in logged] == ["error"], "told once"
    with pytest.raises(ConfigurationError):
        HubCredentials(tls)
    issued.key.write_bytes(key)
    authority.issue("hub")
    now_s += REFRESH_S
    assert shown(credentials, authority) not in (first, second)
