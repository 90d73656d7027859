"""The certificate that a hub shows."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import capturedLogs

from bookkeeper.errors import ConfigurationError
from hedwig.hub.secure import REFRESH_S, HubCredentials
from hedwig.hub.server import HubTls
from tests.support.certificates import Authority


class _Wire:
    """The transport of the hub's side."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def write(self, data: bytes) -> None:
        self.sent += data

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def shown(credentials: HubCredentials, authority: Authority) -> bytes | None:
    """The certificate that a client sees who connects now."""
    wire = _Wire()
    layer = credentials.layer(wire)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(authority.certificate))
    session = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    for _ in range(10):
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            layer.receive(outgoing.read())
            incoming.write(bytes(wire.sent))
            wire.sent.clear()
        else:
            return session.getpeercert(binary_form=True)
    raise AssertionError("the handshake does not end")


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
