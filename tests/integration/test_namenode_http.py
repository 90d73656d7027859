"""The blocking client, the command and plain HTTP against servers on real sockets; their journal is in memory."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import gatherResults

from bookkeeper.client.reactor_thread import ReactorThread
from journalmgr.namenode.fs_client import (
    FileAlreadyExistsException,
    FileSystemClient,
    NoActiveServer,
    RemoteException,
)
from journalmgr.namenode.http_api import HttpApi
from journalmgr.namenode.http_server import BODY_BYTES_MAX, DISCARDED_BYTES_MAX, listen_http
from journalmgr.namenode.namespace import CONTENT_BYTES_MAX
from journalmgr.namenode.operations import Caller
from tests.support.name_service import Group

pytestmark = pytest.mark.timeout(60)


class Servers:
    """Two of them, with ports of their own."""

    def __init__(self) -> None:
        self.thread = ReactorThread()
        self.thread.call(self._start)

    def _start(self) -> None:
        reactor = self.thread.reactor
        apis = [HttpApi(lambda: 1000, reactor.seconds) for _ in range(2)]
        self.ports = [listen_http(reactor, "127.0.0.1", 0, api) for api in apis]
        self.addresses = [f"127.0.0.1:{port.getHost().port}" for port in self.ports]
        self.group = Group(*self.addresses, clock=reactor)
        for api, service in zip(apis, self.group.services, strict=True):
            api.serve(service)

    def elect(self, index: int | None) -> None:
        self.thread.call(lambda: self.group.elect(index))

    def hold_answers(self) -> None:
        """Changes are logged and not durable."""
        self.group.journal.answers_at_once = False

    def waiting(self) -> bool:
        """A flush waits for its answer."""
        return self.thread.call(lambda: bool(self.group.journal.writer.flushes))

    def close(self) -> None:
        def stop() -> Any:
            return gatherResults([port.stopListening() for port in self.ports] + self.group.stop())

        self.thread.run(stop)
        self.thread.stop()


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    try:
        yield servers
    finally:
        servers.close()


def test_files_survive_a_failover(servers: Servers) -> None:
    with FileSystemClient(servers.addresses, user="jo") as files:
        files.mkdirs("/a")
        files.create("/a/f", b"x" * CONTENT_BYTES_MAX)
        servers.elect(1)
        assert files.read("/a/f") == b"x" * CONTENT_BYTES_MAX
        assert files.active == servers.addresses[1]
        files.create("/a/g", b"after")
        servers.elect(0)
        assert [entry["pathSuffix"] for entry in files.list_status("/a")] == ["f", "g"]


def test_a_change_that_was_under_way_at_a_failover_happens_once(servers: Servers) -> None:
    """It is logged and durable, and its server loses the role before it can answer."""
    with FileSystemClient(servers.addresses) as files:
        files.create("/f", b"a")
        servers.hold_answers()
        done: list[object] = []
        worker = threading.Thread(target=lambda: done.append(files.append("/f", b"b")), daemon=True)
        worker.start()
        while not servers.waiting():
            assert worker.is_alive()

        def durable_but_not_told() -> None:
            writer = servers.group.journal.writer
            writer.durable_txid = writer.last_txid
            servers.group.journal.answers_at_once = True
            servers.group.elect(1)

        servers.thread.call(durable_but_not_told)
        worker.join(30.0)
        assert done == [None]
        assert files.active == servers.addresses[1]
        assert files.read("/f") == b"ab"


def test_nobody_is_active_for_too_long(servers: Servers) -> None:
    servers.elect(None)
    with FileSystemClient(servers.addresses, wait_s=0.2) as files, pytest.raises(NoActiveServer):
        files.mkdirs("/a")


def test_a_long_list_arrives_whole(servers: Servers) -> None:
    names = [f"{number:05}" for number in range(1500)]

    def fill() -> None:
        service, journal = servers.group.active, servers.group.journal
        journal.answers_at_once = False
        for name in names:
            service.change(lambda requests, name=name: requests.mkdirs(f"/{name}", Caller("jo"), 1))  # type: ignore[misc]
        journal.answers_at_once = True
        journal.writer.flushes[0].answer()

    servers.thread.call(fill)
    with FileSystemClient(servers.addresses) as files:
        whole = files.ask("GET", "LISTSTATUS", "/")
        assert [name in whole.decode() for name in (names[0], names[-1])] == [True, True]
        assert whole.endswith(b"]}}")
        assert [entry["pathSuffix"] for entry in files.list_status("/")] == names


def test_too_much_is_refused_and_the_reason_arrives(servers: Servers) -> None:
    with FileSystemClient(servers.addresses) as files:
        for size in (BODY_BYTES_MAX + 1, DISCARDED_BYTES_MAX):
            with pytest.raises(RemoteException, match=r"at most|no more") as caught:
                files.create("/f", b"x" * size)
            assert caught.value.status == 413
        assert not files.exists("/f")


def test_two_steps_as_clients_of_hadoop_take_them(servers: Servers) -> None:
    host, _, port = servers.addresses[0].partition(":")
    first = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        first.request("PUT", "/webhdfs/v1/f?op=CREATE&user.name=jo")
        response = first.getresponse()
        location = response.getheader("Location") or ""
        assert (response.status, response.read()) == (307, b"")
        assert location.startswith(f"http://{servers.addresses[0]}/webhdfs/v1/f?")
        # A generator has no length: it is sent in chunks.
        first.request("PUT", location.partition(servers.addresses[0])[2], iter([b"in ", b"pieces"]))
        response = first.getresponse()
        assert (response.status, response.read()) == (201, b"")
        first.request("GET", "/webhdfs/v1/f?op=OPEN")
        assert first.getresponse().read() == b"in pieces"
    finally:
        first.close()


def test_of_many_who_create_a_file_one_does(servers: Servers) -> None:
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def create() -> None:
        with FileSystemClient(servers.addresses) as files:
            barrier.wait()
            try:
                files.create("/one")
                outcomes.append("created")
            except FileAlreadyExistsException:
                outcomes.append("exists")

    workers = [threading.Thread(target=create, daemon=True) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30.0)
    assert sorted(outcomes) == ["created"] + ["exists"] * 7
