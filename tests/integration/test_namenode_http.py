"""The blocking client, the command and plain HTTP against servers on real sockets; their journal is in memory."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import gatherResults

from bookkeeper.admin.access.gate import Gate
from bookkeeper.admin.access.tokens import ENVIRONMENT
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.serving.http_channel import DISCARDED_BYTES_MAX
from journalmgr.cli.fs import EXAMPLES
from journalmgr.cli.main import main
from journalmgr.namenode import fs_client
from journalmgr.namenode.fs_client import (
    FileAlreadyExistsException,
    FileSystemClient,
    NoActiveServer,
    RemoteException,
)
from journalmgr.namenode.http.api import HttpApi
from journalmgr.namenode.http.server import BODY_BYTES_MAX, listen_http
from journalmgr.namenode.namespace.operations import Caller
from journalmgr.namenode.namespace.tree import CONTENT_BYTES_MAX
from journalmgr.namenode.server import RULES
from tests.support.command_line import CommandLine, Outcome, Piped
from tests.support.name_service import Group

pytestmark = pytest.mark.timeout(180)


class Servers:
    """Two of them, with ports of their own."""

    def __init__(self, token_file: str = "") -> None:
        self._gate = Gate(RULES, token_file)
        self.thread = ReactorThread()
        self.thread.call(self._start)

    def _start(self) -> None:
        reactor = self.thread.reactor
        apis = [HttpApi(lambda: 1000, reactor.seconds) for _ in range(2)]
        self.ports = [listen_http(reactor, "127.0.0.1", 0, api, self._gate) for api in apis]
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


def test_a_frozen_server_named_first_does_not_keep_the_others_from_being_asked(servers: Servers) -> None:
    """A process that is stopped has its connections accepted, and never answers."""
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        with FileSystemClient([address, *servers.addresses], wait_s=0.0, tell=told.append) as files:
            files.mkdirs("/a")
            assert files.active == servers.addresses[0]
    assert told == [f"waiting for {address}, which does not answer yet"]


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


def test_a_client_sends_the_token_that_its_operation_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {"read": "0123456789abcdef", "operate": "fedcba9876543210"}
    for role, token in tokens.items():
        (tmp_path / role).write_text(f"{role} {token}\n")
    (tmp_path / "all").write_text("".join(f"{role} {token}\n" for role, token in tokens.items()))
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    with contextlib.closing(Servers(str(tmp_path / "all"))) as servers:
        with FileSystemClient(servers.addresses) as files, pytest.raises(RemoteException, match=ENVIRONMENT) as caught:
            files.status("/")
        assert caught.value.status == 401
        monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "operate"))
        with FileSystemClient(servers.addresses) as files:
            files.mkdirs("/a")
            files.roll()
        monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "read"))
        with FileSystemClient(servers.addresses) as files:
            assert files.exists("/a")
            with pytest.raises(RemoteException, match="operate") as caught:
                files.mkdirs("/b")
        assert caught.value.status == 403


def test_two_steps_as_clients_of_hadoop_take_them(servers: Servers) -> None:
    host, _, port = servers.addresses[0].partition(":")
    first = http.client.HTTPConnection(host, int(port), timeout=60)
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


# --- the command


@pytest.fixture
def fs(servers: Servers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("JM_SERVER", ",".join(servers.addresses))
    monkeypatch.setenv("HADOOP_USER_NAME", "jo")
    monkeypatch.setattr(fs_client, "TELL_AFTER_S", 30.0)  # it adds a line to standard error, which tests compare
    monkeypatch.setattr(fs_client, "PROBE_S", 30.0)
    command = CommandLine(capsys, monkeypatch, main)
    return lambda *words, **options: command("fs", *words, **options)


def shown(outcome: Outcome) -> Any:
    return json.loads(outcome.out)


def test_the_command_makes_lists_and_removes(fs: Callable[..., Outcome], tmp_path: Path) -> None:
    fs("mkdir", "/a")
    assert "already" in fs("mkdir", "/a", code=1).err
    assert "/x does not exist" in fs("mkdir", "/x/y", code=1).err
    fs("mkdir", "-p", "/a", "/a/b/c", "--mode", "700")
    (tmp_path / "file").write_bytes(b"from a file\n")
    fs("put", tmp_path / "file", "/a/f")
    fs("put", "-", "/a/g", stdin=b"from a pipe\n")
    assert "/a/g exists" in fs("put", "-", "/a/g", stdin=b"x", code=1).err
    fs("put", "-a", "-", "/a/g", stdin=b"more\n")
    fs("put", "-a", "-", "/a/new", stdin=b"made\n")
    fs("put", "-f", "-", "/a/new", stdin=b"replaced\n")
    assert fs("cat", "/a/f", "/a/g", "/a/new").out == "from a file\nfrom a pipe\nmore\nreplaced\n"
    halves = fs("cat", "/a/f", "/a/none", "/a/new", code=1)
    assert (halves.out, "/a/none does not exist" in halves.err) == ("from a file\nreplaced\n", True)
    fs("ln", "-s", "/a/f", "/a/link")
    assert [each["path"] for each in shown(fs("ls", "-R", "/", "--json"))] == [
        *("/a", "/a/b", "/a/b/c", "/a/f", "/a/g", "/a/link", "/a/new"),
    ]
    lines = fs("ls", "/a").lines
    assert lines[1].split()[:5] == ["drwx------", "-", "jo", "supergroup", "0"]
    assert lines[4].split()[0] == "lrwxrwxrwx"
    assert lines[4].endswith("/a/link -> /a/f")
    assert [each["path"] for each in shown(fs("--json", "ls", "-d", "/a"))] == ["/a"]
    assert "would be deleted: 3 directories, 4 files" in fs("rm", "-r", "--dry-run", "/a").err
    assert "/a is not empty: 5 items; -r deletes it with all below" in fs("rm", "/a", code=1).err
    fs("rm", "-r", "/a")
    assert "/a does not exist" in fs("rm", "/a", code=1).err
    fs("rm", "-f", "/a")
    assert shown(fs("ls", "--json", "/")) == []


def test_a_terminal_alone_is_asked_before_a_tree_is_deleted(
    fs: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    fs("mkdir", "-p", "/a/b")
    monkeypatch.setattr(Piped, "isatty", lambda self: True)
    monkeypatch.setattr(Piped, "readline", lambda self: "n\n")
    refused = fs("rm", "-r", "/a", code=1).err
    assert ("Delete /a: 2 directories, 0 files? (y/N)" in refused, "Nothing was done" in refused) == (True, True)
    fs("rm", "-r", "-f", "/a")


def test_patterns_are_expanded_where_something_is_there_already(fs: Callable[..., Outcome]) -> None:
    fs("mkdir", "-p", "/logs/old", "/user/jo")
    for name in ("a1", "a2", "b1", "a*"):
        fs("put", "-", f"/logs/{name}", stdin=name.encode())
    assert fs("cat", "/logs/a[12]").out == "a1a2"
    assert fs("cat", "/logs/{b1,a1,none}").out == "a1b1"
    assert fs("cat", r"/logs/a\*").out == "a*"
    assert [each["path"] for each in shown(fs("ls", "--json", "/l*/a*"))] == ["/logs/a*", "/logs/a1", "/logs/a2"]
    assert fs("ls", "/logs/x*", code=1).err == (
        "journalmgr: /logs/x*: No such file or directory; the pattern matches nothing\n"
    )
    assert "no ] for the [" in fs("ls", "/logs/[a", code=2).err
    halves = fs("cat", "/logs/x*", "/logs/b?", code=1)
    assert (halves.out, "/logs/x*: No such file" in halves.err) == ("b1", True)
    fs("mv", "/logs/a[12]", "/logs/old")
    fs("mv", "/logs/old/*", ".")
    assert [each["path"] for each in shown(fs("ls", "--json"))] == ["/user/jo/a1", "/user/jo/a2"]
    assert "/logs/b1 is no directory" in fs("mv", "a*", "/logs/b1", code=1).err
    fs("rm", "-f", "/logs/none*")
    fs("rm", "-r", "/logs/*")
    assert fs("ls", "/logs").out == ""
    fs("mkdir", "/logs/*")  # the name of what is to be made is no pattern
    assert [each["path"] for each in shown(fs("ls", "--json", "/logs"))] == ["/logs/*"]


def test_the_directory_of_the_user_is_listed_without_a_path(fs: Callable[..., Outcome]) -> None:
    assert "/user/jo does not exist: it is the directory of the user" in fs("ls", code=1).err
    fs("mkdir", "-p", "x")
    assert [each["path"] for each in shown(fs("ls", "--json"))] == ["/user/jo/x"]


def test_files_are_put_into_directories_and_got_again(fs: Callable[..., Outcome], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    fs("mkdir", "-p", ".", "/d")
    fs("put", one, ".")
    fs("copyFromLocal", one, two, "/d")
    assert fs("cat", "one", "/d/one", "/d/two").out == "112"
    assert "-f replaces it" in fs("put", one, "/d", code=1).err
    assert "has no name" in fs("put", "-", "/d", code=1).err
    assert "is no directory" in fs("put", one, two, "/none", code=1).err
    halves = fs("put", "-f", tmp_path / "none", two, "/d", code=1).err
    assert halves == f"journalmgr: {tmp_path}/none: No such file or directory\n"
    got = tmp_path / "got"
    got.mkdir()
    fs("get", "/d/*", got)
    assert [(got / name).read_bytes() for name in ("one", "two")] == [b"1", b"2"]
    assert f"{got}/one exists; -f replaces it" in fs("copyToLocal", "/d/one", got, code=1).err
    fs("get", "-f", "/d/one", got / "two")
    assert (got / "two").read_bytes() == b"1"
    assert "/d is a directory" in fs("get", "/d", got, code=1).err
    assert not (got / "d").exists()


def test_more_words_of_hdfs(fs: Callable[..., Outcome]) -> None:
    fs("-mkdir", "-p", "/d/e")
    fs("-touchz", "/d/z")
    fs("touchz", "/d/z")
    fs("--wait", "5", "-put", "-", "/d/f", stdin=b"x" * 1536)
    assert "/d/f is not empty" in fs("touchz", "/d/f", code=1).err
    assert [line.split(maxsplit=1)[0] for line in fs("-du", "-h", "/d").lines[1:]] == ["0", "1.5", "0"]
    assert " 1.5 K " in fs("-ls", "-h", "/d").out
    assert " 1536 " in fs("-ls", "/d").out
    assert " 1.5 K " in fs("count", "-h", "/d").out
    for option, path, code in (
        *(("-e", "/d", 0), ("-e", "/none", 1), ("-e", "/d/f/x", 1), ("-d", "/d", 0), ("-d", "/d/f", 1)),
        *(("-f", "/d/f", 0), ("-f", "/d", 1), ("-z", "/d/z", 0), ("-z", "/d/f", 1), ("-s", "/d/f", 0), ("-s", "/d", 1)),
    ):
        outcome = fs("test", option, path, code=code)
        assert (outcome.out, outcome.err) == ("", "")
    assert "-r` deletes it" in fs("rmdir", "/d", code=1).err
    fs("rmdir", "--ignore-fail-on-non-empty", "/d")
    assert "is no directory" in fs("rmdir", "/d/f", code=1).err
    fs("rmdir", "/d/e")
    fs("-rm", "-R", "-skipTrash", "/d")
    assert "ACTION" in fs("--json", code=2).err


def test_a_message_names_the_option_that_would_have_done_it(fs: Callable[..., Outcome]) -> None:
    fs("mkdir", "/d")
    assert "-p makes the directories above" in fs("touch", "/none/x", code=1).err
    assert "/none does not exist" in fs("ls", "/none", code=1).err
    fs("touch", "-p", "/made/x", "/d/f")
    fs("touch", "/made/y")
    assert "-f replaces it" in fs("put", "-", "/d/f", code=1).err
    assert "-f replaces it" in fs("mv", "/made/x", "/made/y", code=1).err
    assert "contents of files are attributes" in fs("quota", "--space", "5", "/d").err
    assert fs("quota", "--space", "none", "/d").err == ""


def test_names_that_are_no_text_for_a_terminal_are_escaped_and_bytes_that_are_none_refused(
    fs: Callable[..., Outcome],
) -> None:
    name = "/a\x1b[2J\nb"
    fs("touch", name)
    assert fs("ls", "/").lines[1].endswith(r" /a\u001b[2J\nb")
    assert [each["path"] for each in shown(fs("ls", "--json", "/"))] == [name]
    for words in (
        ("ls", "/x\udcff"),
        ("put", "-", "/x\udcff"),
        ("ln", "-s", "\udcff", "/l"),
        ("--user", "\udcff", "ls", "/"),
    ):
        assert "is not UTF-8; names must be UTF-8 text" in fs(*words, code=2).err


def test_the_command_moves(fs: Callable[..., Outcome]) -> None:
    fs("mkdir", "/d")
    fs("put", "-", "/f", stdin=b"f")
    fs("mv", "/f", "/d")
    fs("mv", "/d/f", "/g")
    fs("put", "-", "/h", stdin=b"h")
    assert "/h exists already; -f replaces it" in fs("mv", "/g", "/h", code=1).err
    fs("mv", "-f", "/g", "/h")
    assert fs("cat", "/h").out == "f"


def test_the_command_sets_and_shows_attributes(fs: Callable[..., Outcome]) -> None:
    fs("touch", "/f")
    fs("touch", "/f")
    fs("chmod", "640", "/f")
    fs("chown", "ann:staff", "/f")
    fs("chown", ":wheel", "/f")
    fs("setrep", "5", "/f")
    status = shown(fs("stat", "/f", "--json"))[0]
    found = [status[name] for name in ("path", "permission", "owner", "group", "replication", "length")]
    assert found == ["/f", "640", "ann", "wheel", 5, 0]
    assert any(line.split() == ["owner", "ann"] for line in fs("stat", "/f").lines)
    fs("setfattr", "-n", "user.text", "-v", "a word", "/f")
    fs("setfattr", "-n", "user.bytes", "--value", "0x00FF", "/f")
    fs("setfattr", "-n", "user.none", "/f")
    fs("setfattr", "-x", "user.none", "/f")
    assert fs("getfattr", "-d", "/f").lines == [
        "# file: /f",
        "user.bytes=0x00ff",
        "user.content",
        'user.text="a word"',
    ]
    assert shown(fs("getfattr", "-n", "user.text", "/f", "--json"))[0]["xattrs"] == {"user.text": '"a word"'}
    fs("setfacl", "-m", "user:carla:rw-", "/f")
    assert fs("getfacl", "/f").lines == [
        *("# file: /f", "# owner: ann", "# group: wheel", "# mode: 660", "user:carla:rw-", "group::r--"),
    ]
    fs("setfacl", "-x", "user:carla", "/f")
    fs("setfacl", "-b", "/f")
    assert shown(fs("getfacl", "/f", "--json"))[0]["entries"] == []
    assert "only directories" in fs("setfacl", "-m", "default:user:carla:r--", "/f", code=1).err
    assert "aclspec='nonsense'" in fs("setfacl", "-m", "nonsense", "/f", code=1).err
    fs("setfacl", "--set", "user::rwx,group::r-x,other::---", "/f")
    fs("setfacl", "-k", "/f")
    assert shown(fs("stat", "/f", "--json"))[0]["permission"] == "750"


def test_values_of_attributes_are_written_and_shown_as_hdfs_does(fs: Callable[..., Outcome]) -> None:
    fs("mkdir", "/d")
    fs("touch", "/d/f")
    values = {
        "user.bare": "word",
        "user.quoted": '"0x41"',
        "user.hex": "0X4142",
        "user.base64": "0SQUI=",
        "user.no": '""',
    }
    for name, value in values.items():
        fs("setfattr", "-n", name, "-v", value, "/d")
    shown_as = {
        (): ['user.bare="word"', 'user.base64="AB"', 'user.hex="AB"', "user.no", 'user.quoted="0x41"'],
        ("-e", "hex"): [
            *("user.bare=0x776f7264", "user.base64=0x4142", "user.hex=0x4142", "user.no", "user.quoted=0x30783431"),
        ],
        ("-e", "BASE64"): [
            *("user.bare=0sd29yZA==", "user.base64=0sQUI=", "user.hex=0sQUI=", "user.no", "user.quoted=0sMHg0MQ=="),
        ],
    }
    for options, lines in shown_as.items():
        assert fs("getfattr", "-d", *options, "/d").lines == ["# file: /d", *lines]
    fs("setfattr", "-n", "user.hex", "-v", "0xff", "/d")
    assert fs("getfattr", "-n", "user.hex", "/d").lines[1] == "user.hex=0xff"
    assert fs("getfattr", "-n", "user.hex", "-e", "text", "/d").lines[1] == 'user.hex="\ufffd"'
    assert [line for line in fs("getfattr", "-R", "-d", "/d").lines if line[0] == "#"] == ["# file: /d", "# file: /d/f"]
    for value in ("0xf", "0s=", "0sA"):
        assert (
            f"-v {value!r} is no value: pairs of hexadecimal digits follow 0x"
            in fs("setfattr", "-n", "user.bad", "-v", value, "/d", code=2).err
        )
    failed = fs("setfattr", "-n", "user.a", "-v", "x", "/none", code=1).err
    assert "/none does not exist" in failed
    assert len(failed.splitlines()) == 1
    assert "Traceback" in fs("setfattr", "--verbose", "-n", "user.a", "/none", code=1).err


def test_paths_without_a_slash_are_below_the_directory_of_the_user(fs: Callable[..., Outcome]) -> None:
    fs("mkdir", "-p", "logs", "/user/ann/logs")
    fs("put", "-", "logs/a", stdin=b"a")
    fs("mv", "logs/a", "b")
    assert [each["path"] for each in shown(fs("ls", "-R", ".", "--json"))] == ["/user/jo/b", "/user/jo/logs"]
    assert shown(fs("stat", "./b", "--json"))[0]["owner"] == "jo"
    assert fs("--user", "ann", "ls", "logs").out == ""
    assert [each["path"] for each in shown(fs("--user", "ann", "ls", ".", "--json"))] == ["/user/ann/logs"]
    assert "write the path alone" in fs("ls", "hdfs://a:1/b", code=2).err
    assert "a path is empty" in fs("ls", "", code=2).err


def test_the_command_shows_and_limits_trees(fs: Callable[..., Outcome]) -> None:
    fs("mkdir", "-p", "/t/u")
    fs("put", "-", "/t/u/f", stdin=b"12345")
    fs("put", "-", "/t/g", stdin=b"1")
    assert [line.split() for line in fs("du", "/t").lines[1:]] == [["1", "/t/g"], ["5", "/t/u"]]
    assert fs("count", "/t").lines[1].split() == ["2", "2", "6", "/t"]
    fs("quota", "--names", "4", "--space", "1000", "/t")
    assert fs("quota", "/t").lines[1].split() == ["4", "4", "0", "1000", "/t"]
    assert "quota of /t" in fs("touch", "/t/more", code=1).err
    fs("quota", "--names", "none", "/t")
    fs("touch", "/t/more")


def test_the_command_shows_the_servers(fs: Callable[..., Outcome], servers: Servers) -> None:
    fs("mkdir", "/a")
    rows = shown(fs("status", "--json"))
    assert [(row["server"], row["role"]) for row in rows] == list(
        zip(servers.addresses, ("active", "standby"), strict=True)
    )
    assert len({line.split()[-1] for line in fs("fingerprint").lines[1:]}) == 1
    assert "are called" not in fs("status").err
    twice = f"{servers.addresses[0]},{servers.addresses[0]}"
    assert "2 servers are called" in fs("status", "--server", twice).err
    servers.elect(None)
    assert "active" not in fs("status", code=1).out
    assert fs("--wait", "0", "ls", "/", code=1).err.startswith("journalmgr: none of 127.0.0.1:")
    unreachable = fs("status", "--server", "127.0.0.1:1", code=1)
    assert "unreachable" in unreachable.out
    assert unreachable.err == "127.0.0.1:1: [Errno 111] Connection refused\n"


def test_the_command_says_what_is_wrong_with_its_words(fs: Callable[..., Outcome]) -> None:
    assert "HOST:PORT" in fs("ls", "--server", "nonsense", code=2).err
    assert "octal" in fs("chmod", "9", "/", code=2).err
    assert "invalid choice" in fs("remove", "/", code=2).err
    assert "at most 16377 bytes" in fs("put", "-", "/f", stdin=b"x" * 20000, code=1).err
    for action in EXAMPLES:
        assert f"journalmgr fs {action}" in fs(action, "--help").out
