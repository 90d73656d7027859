"""The blocking client over servers in memory: who is asked, how often, and what comes back."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import succeed

from bookkeeper.admin.access.tokens import ENVIRONMENT
from bookkeeper.admin.questions import HttpAnswer
from bookkeeper.errors import InvalidArgument
from journalmgr.errors import JournalUnavailable
from journalmgr.namenode import fs_client
from journalmgr.namenode.errors import RequestRefused
from journalmgr.namenode.fs_client import (
    PROBE_S,
    PROBE_TARGET,
    TELL_AFTER_S,
    FileAlreadyExistsException,
    FileNotFoundException,
    FileSystemClient,
    NoActiveServer,
    RemoteException,
    StandbyException,
    UnresolvedPathException,
)
from journalmgr.namenode.http.api import HttpApi
from journalmgr.namenode.http.messages import Answer, HttpRequest
from journalmgr.namenode.images.format import fingerprint
from tests.support.hostile_http import FakeTime, negative_chunk, serve_packets
from tests.support.name_service import Group
from tests.support.simulated_clock import SimulatedClock

A, B = "a:1", "b:2"


class Servers:
    """A group behind connections that exist only here; `trouble` decides what becomes of a request or an answer."""

    def __init__(self, **options: Any) -> None:
        self.clock = SimulatedClock()
        self.group = Group(A, B, clock=self.clock)
        self.apis = {}
        for service in self.group.services:
            api = HttpApi(
                lambda: 1000,
                self.clock.seconds,
                checkpoint=lambda: succeed(SimpleNamespace(name="image", txid=3)),
            )
            api.serve(service)
            self.apis[service.address] = api
        self.asked: list[str] = []
        self.probed: list[str] = []
        self.sent_tokens: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.lost: set[str] = set()
        self.frozen: set[str] = set()
        self.lose_answers = 0
        self.slow_s = 0.0
        self.on_sleep: Callable[[], object] = lambda: None
        self.slept: list[float] = []
        self.files = FileSystemClient(
            [A, B],
            **{
                "user": "jo",
                "client_id": b"c" * 16,
                "clock": self.clock.seconds,
                "sleep": self._sleep,
                "connect": self._connect,
                **options,
            },
        )

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()
        self.clock.run_until(lambda: False, seconds=seconds)

    def _connect(self, host: str, port: int, timeout: float) -> Any:
        return _Connection(self, f"{host}:{port}")


class _Connection:
    """The part of BoundedConnection that the client uses."""

    def __init__(self, servers: Servers, address: str) -> None:
        self._servers, self._address = servers, address

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        timeout_s: float,
        **_: object,
    ) -> HttpAnswer:
        servers = self._servers
        (servers.probed if target == PROBE_TARGET else servers.asked).append(self._address)
        if "Authorization" in headers:
            servers.sent_tokens.append((self._address, target.partition("?")[0], headers["Authorization"]))
        if self._address in servers.lost or self._address not in servers.apis:
            raise ConnectionRefusedError("refused")
        if self._address in servers.frozen:
            servers.clock.run_until(lambda: False, seconds=timeout_s)
            raise TimeoutError("timed out")
        if "X-Request-Id" in headers:
            servers.ids.append(headers["X-Request-Id"])
        lower = {name.lower(): value for name, value in headers.items()}
        answers: list[Answer] = []
        servers.apis[self._address].answer(HttpRequest(method, target, lower, body)).addCallback(answers.append)
        [answer] = answers
        if target != PROBE_TARGET:
            if servers.lose_answers:
                servers.lose_answers -= 1
                raise http.client.RemoteDisconnected("gone")
            if servers.slow_s > timeout_s:
                raise TimeoutError("timed out")
            servers.clock.run_until(lambda: False, seconds=servers.slow_s)
        return HttpAnswer(answer.status, answer.body, "", {k.lower(): v for k, v in answer.headers.items()})

    def close(self) -> None:
        pass


def test_every_operation_has_a_method() -> None:
    servers = Servers()
    files = servers.files
    files.mkdirs("/d/ä b", 0o700)
    assert files.status("/d/ä b")["permission"] == "700"
    files.create("/d/f", b"hello", mode=0o600, replication=2, block_size=1 << 20)
    files.append("/d/f", b"!")
    assert (files.read("/d/f"), files.read("/d/f", 1, 2)) == (b"hello!", b"el")
    files.create("/d/f", b"over", overwrite=True)
    files.symlink("/d/l", "/d/f")
    assert [entry["pathSuffix"] for entry in files.list_status("/d")] == ["f", "l", "ä b"]
    files.rename("/d/f", "/d/g")
    files.create("/d/f")
    files.rename("/d/f", "/d/g", overwrite=True)
    files.set_permission("/d/g", 0o640)
    files.set_owner("/d/g", "ann", "staff")
    files.set_times("/d/g", 5, 6)
    files.set_replication("/d/g", 4)
    status = files.status("/d/g")
    shown = [status[name] for name in ("permission", "owner", "group", "modificationTime", "accessTime", "replication")]
    assert shown == ["640", "ann", "staff", 5, 6, 4]
    files.set_quota("/d", names=100, space=200)
    assert files.content_summary("/d")["quota"] == 100
    files.set_xattr("/d/g", "user.a", b"\x00\xff", flag="CREATE")
    files.set_xattr("/d/g", "user.b")
    assert files.xattrs("/d/g", "user.a") == {"user.a": b"\x00\xff"}
    files.remove_xattr("/d/g", "user.b")
    assert "user.b" not in files.xattrs("/d/g")
    files.set_acl("/d", "user::rwx,group::r-x,other::---")
    files.modify_acl("/d", "user:carla:rw-,default:user:carla:r--")
    assert "user:carla:rw-" in files.acl_status("/d")["entries"]
    files.remove_acl_entries("/d", "user:carla:")
    files.remove_default_acl("/d")
    files.remove_acl("/d")
    assert files.acl_status("/d")["entries"] == []
    with pytest.raises(fs_client.HadoopIllegalArgumentException):
        files.concat("/d/g", ["/d/g"])
    assert files.delete("/d", recursive=True)
    assert not files.delete("/d")
    assert not files.exists("/d")
    assert files.exists("/")


def test_a_list_longer_than_a_page_is_whole() -> None:
    servers = Servers()
    servers.group.journal.answers_at_once = False
    for number in range(1001):
        servers.apis[A].answer(HttpRequest("PUT", f"/webhdfs/v1/{number:05}?op=MKDIRS"))
        if number == 999:  # as many as one server carries out at a time
            servers.group.journal.writer.flushes[0].answer()
            servers.group.journal.writer.flushes[0].answer()
    servers.group.journal.answers_at_once = True
    servers.group.journal.writer.flushes[0].answer()
    names = [entry["pathSuffix"] for entry in servers.files.list_status("/")]
    assert names == [f"{number:05}" for number in range(1001)]


def test_errors_have_the_names_of_hadoop() -> None:
    files = Servers().files
    with pytest.raises(FileNotFoundException, match="/none does not exist") as caught:
        files.read("/none")
    assert (caught.value.status, caught.value.java_class_name) == (404, "java.io.FileNotFoundException")
    files.create("/f")
    with pytest.raises(FileAlreadyExistsException):
        files.create("/f")
    files.symlink("/l", "/f")
    with pytest.raises(UnresolvedPathException, match="/f"):
        files.read("/l")
    with pytest.raises(RemoteException, match="no attribute"):
        files.remove_xattr("/f", "user.a")


def test_a_path_that_does_not_begin_with_a_slash_is_not_sent() -> None:
    servers = Servers()
    with pytest.raises(InvalidArgument, match="'logs' is no path here"):
        servers.files.status("logs")
    assert servers.asked == []


def test_what_is_no_text_is_not_sent() -> None:
    servers = Servers()
    with pytest.raises(InvalidArgument, match=r"'/x\\udcff' has a character that UTF-8 lacks"):
        servers.files.status("/x\udcff")
    with pytest.raises(InvalidArgument, match=r"'\\udcff' has a character that UTF-8 lacks"):
        servers.files.set_xattr("/x", "\udcff")
    assert servers.asked == []


def test_every_refusal_of_the_name_node_has_its_exception() -> None:
    def kinds(kind: type[RequestRefused]) -> set[str]:
        return {kind.hadoop_name}.union(*(kinds(each) for each in kind.__subclasses__()))

    names = {name.rpartition(".")[2] for name in kinds(RequestRefused)}
    # A plain IOException is what RemoteException itself stands for.
    assert [name for name in names if not hasattr(fs_client, name)] == ["IOException"]


def test_an_answer_that_is_no_error_of_hadoop_is_shown_as_it_is() -> None:
    servers = Servers()
    servers.apis[A].answer = lambda request: succeed(Answer(502, b"<html>bad gateway"))  # type: ignore[method-assign]
    with pytest.raises(RemoteException, match=r"HTTP 502.*bad gateway"):
        servers.files.read("/f")
    servers.apis[A].answer = lambda request: succeed(Answer(200, b"[]"))  # type: ignore[method-assign]
    with pytest.raises(RemoteException, match="no object"):
        servers.files.status("/f")


def test_the_active_is_found_by_what_a_standby_says() -> None:
    servers = Servers()
    servers.group.elect(1)
    servers.files.mkdirs("/x")
    assert servers.asked == [A, B]
    assert servers.files.active == B
    servers.files.mkdirs("/y")
    assert servers.asked == [A, B, B], "it is remembered"
    assert servers.slept == []


def test_a_server_that_is_gone_is_passed_over() -> None:
    servers = Servers()
    servers.lost.add(A)
    servers.group.elect(1)
    servers.files.mkdirs("/x")
    assert (servers.probed, servers.asked) == ([A, B], [B])


def test_it_waits_while_nobody_is_active() -> None:
    servers = Servers()
    servers.group.elect(None)
    servers.on_sleep = lambda: servers.group.elect(1) if len(servers.slept) == 3 else None
    servers.files.mkdirs("/x")
    assert len(servers.slept) == 3
    assert servers.slept == sorted(servers.slept), "longer each time"
    assert servers.group.namespace.find("/x") is not None


def test_it_gives_up_in_time_and_says_why() -> None:
    servers = Servers(wait_s=5.0)
    servers.group.elect(None)
    with pytest.raises(NoActiveServer, match=r"a:1, b:2 .* 5 s; .*(loading|standby)") as caught:
        servers.files.mkdirs("/x")
    assert isinstance(caught.value.__cause__, StandbyException)
    assert 5.0 <= servers.clock.seconds() < 7.0
    servers.lost |= {A, B}
    with pytest.raises(NoActiveServer, match="refused"):
        servers.files.mkdirs("/x")


def test_a_refusal_is_not_tried_again() -> None:
    servers = Servers()
    with pytest.raises(FileNotFoundException):
        servers.files.read("/none")
    assert servers.asked == [A]


def test_a_change_whose_answer_was_lost_happens_once() -> None:
    servers = Servers()
    servers.files.create("/f", b"a")
    servers.asked.clear()
    servers.ids.clear()
    servers.lose_answers = 1
    servers.files.append("/f", b"b")
    assert servers.asked == [A, A], "a connection that had been used may just have been idle too long"
    assert servers.ids == [f"{b'c'.hex() * 16}:2"] * 2
    assert servers.files.read("/f") == b"ab"


def test_a_change_whose_answer_was_lost_happens_once_across_a_failover() -> None:
    servers = Servers()
    servers.files.create("/f", b"a")
    servers.files.close()
    servers.lose_answers = 2
    servers.on_sleep = lambda: servers.group.elect(1)
    assert servers.files.delete("/f"), "it was there when it was deleted"
    assert servers.group.namespace.find("/f") is None
    assert servers.files.active == B


def test_each_change_has_its_own_number_and_looks_have_none() -> None:
    servers = Servers()
    servers.files.mkdirs("/x")
    servers.files.status("/x")
    servers.files.mkdirs("/y")
    assert [text.partition(":")[2] for text in servers.ids] == ["1", "2"]


def test_a_hint_that_leads_nowhere_does_not_stop_the_search() -> None:
    servers = Servers()
    servers.group.elect(1)
    servers.group.services[1].address = "gone:3"
    servers.files.mkdirs("/x")
    assert (servers.probed, servers.asked) == ([A, "gone:3", B], [A, B])


def test_a_frozen_server_is_waited_for_once_though_others_still_name_it() -> None:
    """It holds the role until its session expires; the client is with its successor a moment after that."""
    servers = Servers(timeout_s=10.0)
    servers.files.mkdirs("/w")
    servers.frozen.add(A)
    servers.on_sleep = lambda: servers.group.elect(1) if servers.clock.seconds() > 12.0 else None
    servers.files.mkdirs("/x")
    assert servers.asked.count(A) == 2, "once for each change"
    assert servers.clock.seconds() < 15.0


def test_a_server_frozen_from_the_start_costs_no_more_than_a_probe_and_is_sent_no_request() -> None:
    servers = Servers(timeout_s=10.0, wait_s=2.0)
    servers.group.elect(1)
    servers.frozen.add(A)
    servers.files.mkdirs("/x")
    assert servers.asked == [B]
    assert servers.clock.seconds() == PROBE_S


def test_every_server_is_asked_however_little_time_there_is() -> None:
    servers = Servers(wait_s=0.0)
    servers.group.elect(1)
    servers.files.mkdirs("/x")
    assert servers.asked == [A, B]
    frozen = Servers(wait_s=0.0)
    frozen.group.elect(1)
    frozen.frozen.add(A)
    frozen.files.mkdirs("/x")
    assert (frozen.probed, frozen.asked) == ([A, B], [B])


def test_an_attempt_takes_no_longer_than_what_is_left() -> None:
    servers = Servers(timeout_s=10.0, wait_s=4.0)
    servers.files.mkdirs("/w")
    servers.frozen |= {A, B}
    with pytest.raises(NoActiveServer, match=r"b:2: no answer within 1\.5 s"):
        servers.files.mkdirs("/x")
    assert servers.asked == [A, A], "its connection was known to work"
    assert servers.clock.seconds() == 4.0 + PROBE_S


def test_a_change_that_is_slow_is_waited_for_and_sent_once() -> None:
    servers = Servers(timeout_s=10.0)
    servers.slow_s = 8.0
    servers.files.create("/f", b"a")
    assert servers.asked == [A]


def test_saying_it_does_not_make_a_probe_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that passes until it is said is a part of what the server is given."""
    clock = FakeTime()
    notes: list[str] = []

    class NothingArrives:
        def register(self, opened: socket.socket, events: int) -> None:
            pass

        def poll(self, milliseconds: float) -> list[object]:
            clock.now_s += milliseconds / 1000
            return []

    monkeypatch.setattr("journalmgr.namenode.fs_client.select.poll", NothingArrives)
    timeouts_s = serve_packets(monkeypatch, clock)
    files = FileSystemClient([A], tell=notes.append, wait_s=0.0, clock=clock.monotonic)
    with files, pytest.raises(NoActiveServer):
        files.mkdirs("/x")
    assert notes == [f"waiting for {A}, which does not answer yet"]
    assert timeouts_s == [PROBE_S - TELL_AFTER_S]


def test_it_says_once_what_is_waited_for() -> None:
    notes: list[str] = []
    servers = Servers(tell=notes.append, wait_s=30.0)
    servers.files.mkdirs("/quick")
    servers.group.elect(None)
    servers.on_sleep = lambda: servers.group.elect(1) if len(servers.slept) == 8 else None
    assert notes == []
    servers.files.mkdirs("/x")
    assert [text.partition(";")[0] for text in notes] == ["waiting up to 30 s for an active server"]


def test_a_frozen_server_is_asked_again_where_there_is_no_other() -> None:
    servers = Servers(timeout_s=1.0)
    servers.lost.add(B)
    servers.frozen.add(A)
    servers.on_sleep = lambda: servers.frozen.clear() if servers.clock.seconds() > 5.0 else None
    servers.files.mkdirs("/x")
    assert servers.files.active == A


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tokens"
    file.write_text("read 0123456789abcdef\noperate fedcba9876543210\n")
    file.chmod(0o600)
    monkeypatch.setenv(ENVIRONMENT, str(file))


@pytest.mark.usefixtures("tokens")
def test_a_token_goes_only_to_servers_that_the_caller_named() -> None:
    servers = Servers()
    servers.group.elect(1)
    servers.group.services[1].address = "evil:3"
    servers.apis["evil:3"] = servers.apis[B]
    servers.files.mkdirs("/x")
    assert servers.asked == [A, "evil:3"]
    assert servers.sent_tokens == [(A, "/webhdfs/v1/x", "Bearer fedcba9876543210")]


@pytest.mark.usefixtures("tokens")
def test_a_named_server_gets_the_token_of_the_operation_and_its_probe_gets_none() -> None:
    servers = Servers()
    servers.group.elect(1)
    servers.files.mkdirs("/x")
    servers.files.status("/x")
    assert servers.probed == [A, B]
    change, read = "Bearer fedcba9876543210", "Bearer 0123456789abcdef"
    path = "/webhdfs/v1/x"
    assert servers.sent_tokens == [(A, path, change), (B, path, change), (B, path, read)]


def requires_token(request: HttpRequest) -> Any:
    return succeed(Answer(401, b"{}"))


@pytest.mark.usefixtures("tokens")
def test_another_name_of_a_server_that_requires_a_token_does_not_stop_a_failover() -> None:
    servers = Servers()
    servers.group.elect(1)
    servers.group.services[1].address = "alias:2"
    servers.apis["alias:2"] = SimpleNamespace(answer=requires_token)  # type: ignore[assignment]
    servers.files.mkdirs("/x")
    assert (servers.asked, servers.slept, servers.files.active) == ([A, "alias:2", B], [], B)


@pytest.mark.usefixtures("tokens")
def test_a_named_server_gets_the_token_under_each_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"b": frozenset({"10.0.0.2"}), "alias": frozenset({"10.0.0.2", "10.0.0.3"})}
    monkeypatch.setattr(fs_client, "addresses_of", lambda host: known.get(host, frozenset()))
    servers = Servers()
    servers.group.elect(1)
    servers.group.services[1].address = "alias:2"
    servers.apis["alias:2"] = servers.apis[B]
    servers.files.mkdirs("/x")
    assert [server for server, *_ in servers.sent_tokens] == [A, "alias:2"]


@pytest.mark.usefixtures("tokens")
def test_an_unnamed_server_that_requires_a_token_is_named_with_the_remedy() -> None:
    servers = Servers(wait_s=5.0)
    servers.group.elect(1)
    servers.group.services[1].address = "new:3"
    servers.apis["new:3"] = SimpleNamespace(answer=requires_token)  # type: ignore[assignment]
    servers.lost.add(B)
    with pytest.raises(NoActiveServer, match=r"new:3, which another server named, .* add it to the list of servers"):
        servers.files.mkdirs("/x")
    assert servers.asked.count("new:3") == 1


def test_a_redirect_is_not_followed() -> None:
    servers = Servers()
    servers.apis[A].answer = lambda request: succeed(  # type: ignore[method-assign]
        Answer(307, b"", headers={"Location": "http://evil:3/webhdfs/v1/f"})
    )
    with pytest.raises(RemoteException, match="HTTP 307"):
        servers.files.read("/f")
    assert (servers.probed, servers.asked) == ([A], [A])


def test_servers_that_name_ever_new_ones_are_followed_no_longer_than_asked() -> None:
    servers = Servers(wait_s=5.0)
    servers.group.elect(None)

    class Chain(dict[str, Any]):
        def __missing__(self, address: str) -> Any:
            body = b'{"RemoteException":{"exception":"StandbyException","javaClassName":"","message":""}}'
            headers = {"X-Active-Server": f"evil:{int(address.partition(':')[2]) + 1}"}
            return SimpleNamespace(answer=lambda request: succeed(Answer(403, body, headers=headers)))

        def __contains__(self, address: object) -> bool:
            return True

    servers.apis = Chain()
    servers.slow_s = 0.5
    with pytest.raises(NoActiveServer):
        servers.files.mkdirs("/x")
    assert servers.clock.seconds() < 7.0


def test_an_error_with_a_list_for_its_name_is_a_plain_one() -> None:
    servers = Servers()
    body = b'{"RemoteException":{"exception":[],"javaClassName":"","message":"no"}}'
    servers.apis[A].answer = lambda request: succeed(Answer(500, body))  # type: ignore[method-assign]
    with pytest.raises(RemoteException, match="no"):
        servers.files.read("/f")


@pytest.mark.parametrize("answer", [negative_chunk(200_000), b"HTTP/1.1 100 Continue\r\n\r\n" * 8000])
def test_an_answer_without_end_is_given_up(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs_client, "ANSWER_BYTES_MAX", 1000)
    serve_packets(monkeypatch, FakeTime(), answer)
    with FileSystemClient([A]) as files, pytest.raises(JournalUnavailable, match="too many bytes"):
        files.server_status(A)


def test_an_answer_of_one_byte_at_a_time_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(step_s=0.5)
    serve_packets(monkeypatch, clock, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", *[b"x"] * 100)
    with FileSystemClient([A]) as files, pytest.raises(JournalUnavailable, match="no answer within"):
        files.server_status(A)
    assert clock.now_s < 3.0


def test_single_servers_are_asked_for_their_state() -> None:
    servers = Servers()
    files = servers.files
    assert files.server_status(B)["role"] == "standby"
    first = files.roll()
    namespace = servers.group.namespace
    assert files.fingerprint(A) == files.fingerprint(B) == (namespace.last_txid, fingerprint(namespace))
    assert files.fingerprint(A)[0] == first
    assert files.checkpoint(B) == {"name": "image", "txid": 3}
    servers.lost.add(B)
    with pytest.raises(JournalUnavailable, match="b:2: refused"):
        files.server_status(B)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="HOST:PORT"):
        FileSystemClient([text])


def test_a_client_needs_servers_and_an_id() -> None:
    with pytest.raises(InvalidArgument, match="no server"):
        FileSystemClient([])
    with pytest.raises(InvalidArgument, match="16 bytes"):
        FileSystemClient([A], client_id=b"x")
    assert fs_client.parse_address("[::1]:80") == ("::1", 80)
