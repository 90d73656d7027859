"""The name node's HTTP server on an in-memory connection: requests that are refused before the API sees them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.admin.access.gate import Gate
from journalmgr.namenode.http.api import HttpApi
from journalmgr.namenode.http.server import HttpSite
from journalmgr.namenode.server import RULES

FORM = "Content-Type: application/x-www-form-urlencoded"
BROWSER = "User-Agent: Mozilla/5.0"


class Connection:
    """A client of a server that is still starting."""

    def __init__(self, peer: str = "127.0.0.1") -> None:
        clock = Clock()
        self.transport: Any = StringTransport(peerAddress=IPv4Address("TCP", peer, 40000))
        self.transport.writeSequence = lambda parts: self.transport.write(b"".join(parts))
        gate = Gate(replace(RULES, names=frozenset({"nn"})))
        self._protocol = HttpSite(clock, HttpApi(lambda: 0, clock.seconds), gate).buildProtocol(None)
        self._protocol.makeConnection(self.transport)

    def send(self, data: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        self._protocol.dataReceived(data)
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def ask(self, line: str, *headers: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the RemoteException of the answer."""
        status, body = self.send("\r\n".join([f"{line} HTTP/1.1", *headers, "", ""]).encode())
        return status, json.loads(body)["RemoteException"]


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


STARTING = (403, "StandbyException")
"""The answer to a request that reaches the API."""


@pytest.mark.parametrize(
    ("line", "headers", "status", "name"),
    [
        ("PUT /webhdfs/v1/f?op=MKDIRS", ["Host: nn:9870"], *STARTING),
        ("PUT /webhdfs/v1/f?op=MKDIRS", ["Host: evil.example"], 421, "AccessControlException"),
        ("GET /webhdfs/v1/f?op=OPEN", ["Host: evil.example"], 421, "AccessControlException"),
        ("GET /webhdfs/v1/f?op=OPEN", ["Host: nn", "Origin: http://evil.example"], 403, "AccessControlException"),
        # Hadoop's client, then a browser.
        ("POST /webhdfs/v1/f?op=CONCAT&sources=/a", ["Host: nn", FORM, "User-Agent: Java/17.0.1"], *STARTING),
        ("POST /webhdfs/v1/f?op=CONCAT&sources=/a", ["Host: nn", FORM, BROWSER], 403, "AccessControlException"),
        ("POST /api/v1/roll", ["Host: nn"], 403, "AccessControlException"),
        ("POST /api/v1/roll", ["Host: nn", "X-BookKeeper-Request: 1"], *STARTING),
    ],
)
def test_a_request_is_checked_before_the_interface_sees_it(
    line: str, headers: list[str], status: int, name: str
) -> None:
    found, error = Connection().ask(line, *headers)
    assert (found, error["exception"]) == (status, name)


def test_only_this_machine_changes_anything_without_tokens() -> None:
    status, error = Connection(peer="10.0.0.1").ask("PUT /webhdfs/v1/f?op=MKDIRS", "Host: 10.0.0.2")
    assert status == 403
    assert "journalmgr.http.token-file" in error["message"]
    assert Connection(peer="10.0.0.1").ask("GET /webhdfs/v1/f?op=OPEN", "Host: 10.0.0.2")[1]["exception"] == STARTING[1]


def test_a_deletion_is_logged_with_its_path_and_peer() -> None:
    with capturedLogs() as events:
        Connection().ask("DELETE /webhdfs/v1/a?op=DELETE&user.name=jo", "Host: nn")
    assert [(event["log_level"].name, formatEvent(event)) for event in events] == [
        ("info", "HTTP DELETE /webhdfs/v1/a?op=DELETE&user.name=jo of 127.0.0.1, role none: 403")
    ]


@pytest.mark.parametrize("kind", [FORM, "Content-Type: multipart/form-data", "Content-Type: a/b\x0bc"])
def test_a_form_is_not_parsed(kind: str) -> None:
    head = f"POST /webhdfs/v1/f?op=CONCAT&sources=/a HTTP/1.1\r\nHost: nn\r\n{kind}\r\nContent-Length: 9\r\n\r\n"
    with capturedLogs() as events:
        assert Connection().send(head.encode() + b"op=DELETE")[0] == STARTING[0]
    assert not [event for event in events if "log_failure" in event]
