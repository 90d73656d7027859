"""The name node's HTTP server on a connection in memory: what is refused before the interface sees it."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs

from journalmgr.namenode.http_api import HttpApi
from journalmgr.namenode.http_server import HttpSite


class Connection:
    """A client of a server that is starting."""

    def __init__(self) -> None:
        clock = Clock()
        self.transport: Any = StringTransport(peerAddress=IPv4Address("TCP", "127.0.0.1", 40000))
        self.transport.writeSequence = lambda parts: self.transport.write(b"".join(parts))
        self._protocol = HttpSite(clock, HttpApi(lambda: 0, clock.seconds)).buildProtocol(None)
        self._protocol.makeConnection(self.transport)

    def send(self, data: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        self._protocol.dataReceived(data)
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        return int(head.split()[1]), body


@pytest.mark.parametrize("digits", [20, 5000, 60_000])
def test_a_length_that_no_integer_has_is_refused_without_a_failure_in_the_log(digits: int) -> None:
    connection = Connection()
    with capturedLogs() as events:
        status, body = connection.send(
            b"PUT /webhdfs/v1/f?op=CREATE HTTP/1.1\r\nContent-Length: %s\r\nHost: x\r\n\r\n" % (b"9" * digits)
        )
    assert (status, b"RemoteException" in body, f"{digits} digits" in body.decode()) == (400, True, True)
    assert connection.transport.disconnecting
    assert not [event for event in events if "log_failure" in event]
