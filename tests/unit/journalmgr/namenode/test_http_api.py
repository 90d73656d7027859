"""The HTTP interface without sockets: every operation, every refusal, and what happens once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from bookkeeper.admin.access.gate import Gate
from bookkeeper.admin.access.rules import Rules
from bookkeeper.serving.http_channel import ANSWER_RATE_MIN, BUFFER_SIZE, DISCARDED_BYTES_MAX
from journalmgr.errors import NotSupported, StreamFailed
from journalmgr.model import TxId
from journalmgr.namenode.http.api import HttpApi
from journalmgr.namenode.http.messages import Answer, HttpRequest
from journalmgr.namenode.http.operations import OPERATIONS, UNSUPPORTED
from journalmgr.namenode.http.server import BODY_BYTES_MAX, BOUNDS, HttpSite
from journalmgr.namenode.images.format import fingerprint
from journalmgr.namenode.namespace.operations import Caller
from journalmgr.namenode.namespace.tree import CONTENT_BYTES_MAX, Directory, File
from journalmgr.replica import Role
from tests.support.name_service import Group
from tests.support.simulated_clock import SimulatedClock

NOW_MS = 1_700_000_000_000
ONE = {"x-request-id": f"{'ab' * 16}:1"}
TWO = {"x-request-id": f"{'ab' * 16}:2"}


class Front:
    """A group of two servers, and the interface of the first."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("requests_max", 5000)
        self.clock = SimulatedClock()
        self.group = Group("a:1", "b:2", clock=self.clock)
        self.api = HttpApi(lambda: NOW_MS, self.clock.seconds, **options)
        self.api.serve(self.group.services[0])

    def start(self, method: str, target: str, body: bytes | None = None, **headers: str) -> list[Answer]:
        answers: list[Answer] = []
        self.api.answer(HttpRequest(method, target, headers, body)).addCallback(answers.append)
        return answers

    def send(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Answer:
        return self.start(method, target, body, **headers)[0]

    def get(self, path: str, op: str) -> Any:
        answer = self.send("GET", f"/webhdfs/v1{path}?op={op}")
        assert answer.status == 200, answer
        return json.loads(answer.body)

    def put(self, path: str, op: str, body: bytes | None = None) -> Answer:
        answer = self.send("PUT", f"/webhdfs/v1{path}?op={op}&user.name=jo", body)
        assert answer.status in (200, 201), answer
        return answer

    def fill(self, count: int) -> None:
        """/big with so many directories, of five digits each, in one flush."""
        self.put("/big", "MKDIRS")
        journal = self.group.journal
        journal.answers_at_once = False
        for number in range(count):
            self.start("PUT", f"/webhdfs/v1/big/{number:05}?op=MKDIRS")
        journal.answers_at_once = True
        journal.writer.flushes[0].answer()

    @property
    def namespace(self) -> Any:
        return self.group.namespace

    @property
    def transactions(self) -> int:
        return int(self.group.active.replica.log.next_txid)


@pytest.fixture
def front() -> Front:
    front = Front()
    front.put("/dir", "MKDIRS")
    front.put("/dir/file", "CREATE", b"hello")
    return front


def error_of(answer: Answer) -> tuple[int, str, str]:
    remote = json.loads(answer.body)["RemoteException"]
    assert remote["javaClassName"].endswith(f".{remote['exception']}")
    return answer.status, remote["exception"], remote["message"]


# --- operations


def test_directories_are_made_with_those_above(front: Front) -> None:
    answer = front.put("/x/y/z/", "MKDIRS&permission=700")
    assert json.loads(answer.body) == {"boolean": True}
    inode = front.namespace.find("/x/y/z")
    assert isinstance(inode, Directory)
    assert inode.permission == ("jo", "supergroup", 0o700)
    assert inode.mtime == NOW_MS


def test_a_file_is_created_in_one_step_and_read(front: Front) -> None:
    answer = front.put("/dir/new", "CREATE&permission=600&replication=2&blocksize=1048576", b"content")
    assert (answer.status, answer.headers) == (201, {"Location": "http://a:1/webhdfs/v1/dir/new"})
    file = front.namespace.find("/dir/new")
    assert isinstance(file, File)
    assert (file.permission.mode, file.replication, file.block_size, file.lease) == (0o600, 2, 1048576, None)
    read = front.send("GET", "/webhdfs/v1/dir/new?op=OPEN&offset=1&length=3")
    assert (read.body, read.content_type) == (b"ont", "application/octet-stream")


def test_without_a_body_the_client_is_told_where_to_send_it(front: Front) -> None:
    target = "/webhdfs/v1/dir/a%20b?op=CREATE&user.name=jo&overwrite=true"
    answer = front.send("PUT", target, host="name:9870")
    location = "http://name:9870/webhdfs/v1/dir/a%20b?op=CREATE&user.name=jo&overwrite=true&data=true"
    assert (answer.status, answer.headers["Location"]) == (307, location)
    assert front.namespace.find("/dir/a b") is None
    assert front.send("PUT", location.partition("9870")[2], b"x").status == 201
    assert front.namespace.find("/dir/a b").content == b"x"


def test_an_empty_file_is_created_in_the_second_step(front: Front) -> None:
    front.put("/dir/empty", "CREATE&data=true")
    assert front.namespace.find("/dir/empty").length == 0


def test_without_redirects_the_location_is_a_document(front: Front) -> None:
    created = front.send("PUT", "/webhdfs/v1/dir/n?op=CREATE&noredirect=true", host="h:1")
    assert json.loads(created.body) == {"Location": "http://h:1/webhdfs/v1/dir/n?op=CREATE&data=true"}
    opened = front.send("GET", "/webhdfs/v1/dir/file?op=OPEN&noredirect=true", host="h:1")
    assert json.loads(opened.body) == {"Location": "http://h:1/webhdfs/v1/dir/file?op=OPEN"}


def test_content_is_appended(front: Front) -> None:
    told = front.send("POST", "/webhdfs/v1/dir/file?op=APPEND")
    assert told.status == 307
    assert front.send("POST", "/webhdfs/v1/dir/file?op=APPEND", b" world").status == 200
    file = front.namespace.find("/dir/file")
    assert (file.content, file.lease, file.mtime) == (b"hello world", None, NOW_MS)


def test_statuses_are_those_of_webhdfs(front: Front) -> None:
    status = front.get("/dir/file", "GETFILESTATUS")["FileStatus"]
    assert (status["type"], status["length"], status["owner"], status["permission"]) == ("FILE", 5, "jo", "644")
    front.put("/dir/link", "CREATESYMLINK&destination=/dir/file&createParent=false")
    listed = front.get("/dir", "LISTSTATUS")["FileStatuses"]["FileStatus"]
    assert [(each["pathSuffix"], each["type"]) for each in listed] == [("file", "FILE"), ("link", "SYMLINK")]
    assert listed[1]["symlink"] == "/dir/file"
    assert front.get("/dir/file", "LISTSTATUS")["FileStatuses"]["FileStatus"][0]["pathSuffix"] == ""


def test_a_long_list_comes_page_by_page(front: Front) -> None:
    names = [f"{number:05}" for number in range(2001)]
    front.fill(2001)
    answer = front.send("GET", "/webhdfs/v1/big?op=LISTSTATUS")
    assert answer.pieces is not None
    body = answer.body + b"".join(_all(answer))
    assert [each["pathSuffix"] for each in json.loads(body)["FileStatuses"]["FileStatus"]] == names
    listing = front.get("/big", "LISTSTATUS_BATCH&startAfter=00998")["DirectoryListing"]
    entries = listing["partialListing"]["FileStatuses"]["FileStatus"]
    assert (entries[0]["pathSuffix"], entries[-1]["pathSuffix"]) == ("00999", "01998")
    assert listing["remainingEntries"] == 2


def _all(answer: Answer) -> list[bytes]:
    async def collect() -> list[bytes]:
        assert answer.pieces is not None
        return [piece async for piece in answer.pieces]

    found: list[list[bytes]] = []
    Deferred.fromCoroutine(collect()).addCallback(found.append)
    return found[0]


def test_a_tree_is_summed_up(front: Front) -> None:
    front.put("/dir/sub", "MKDIRS")
    front.put("/dir/link", "CREATESYMLINK&destination=nowhere")
    front.put("/dir", "SETQUOTA&namespacequota=10&storagespacequota=1000")
    assert front.get("/dir", "GETCONTENTSUMMARY")["ContentSummary"] == {
        "directoryCount": 2,
        "fileCount": 2,
        "length": 5,
        "quota": 10,
        "spaceConsumed": 0,
        "spaceQuota": 1000,
    }


def test_deleting_says_whether_something_was_there(front: Front) -> None:
    assert front.send("DELETE", "/webhdfs/v1/dir?op=DELETE&recursive=true").body == b'{"boolean":true}'
    assert front.send("DELETE", "/webhdfs/v1/dir?op=DELETE").body == b'{"boolean":false}'


def test_a_rename_says_false_or_with_options_why_not(front: Front) -> None:
    front.put("/other", "MKDIRS")
    assert front.put("/dir/file", "RENAME&destination=/other").body == b'{"boolean":true}'
    assert front.namespace.find("/other/file") is not None
    assert front.put("/dir/file", "RENAME&destination=/x").body == b'{"boolean":false}'
    front.put("/x", "CREATE", b"old")
    refused = front.send("PUT", "/webhdfs/v1/other/file?op=RENAME&destination=/x&renameoptions=NONE")
    assert error_of(refused)[:2] == (403, "FileAlreadyExistsException")
    assert front.put("/other/file", "RENAME&destination=/x&renameoptions=OVERWRITE").body == b""
    assert front.namespace.find("/x").content == b"hello"


def test_attributes_of_inodes_are_set(front: Front) -> None:
    front.put("/dir/file", "SETPERMISSION&permission=1711")
    front.put("/dir/file", "SETOWNER&owner=ann&group=staff")
    front.put("/dir/file", "SETTIMES&modificationtime=5&accesstime=6")
    assert front.put("/dir/file", "SETREPLICATION&replication=7").body == b'{"boolean":true}'
    front.put("/dir/file", "SETSTORAGEPOLICY&storagepolicy=COLD")
    file = front.namespace.find("/dir/file")
    assert file.permission == ("ann", "staff", 0o1711)
    assert (file.mtime, file.atime, file.replication, file.storage_policy_id) == (5, 6, 7, 2)


@pytest.mark.parametrize(
    ("text", "value", "encoding", "shown"),
    [
        ("plain", b"plain", "TEXT", '"plain"'),
        ('"quoted"', b"quoted", "text", '"quoted"'),
        ("0x00ff", b"\x00\xff", "HEX", "0x00ff"),
        ("0sAP8=", b"\x00\xff", "BASE64", "0sAP8="),
    ],
)
def test_extended_attributes_come_back_in_each_encoding(
    front: Front, text: str, value: bytes, encoding: str, shown: str
) -> None:
    front.put("/dir", f"SETXATTR&xattr.name=user.a&xattr.value={text}&flag=CREATE")
    assert front.namespace.find("/dir").xattrs[0].value == value
    found = front.get("/dir", f"GETXATTRS&xattr.name=user.a&encoding={encoding}")
    assert found == {"XAttrs": [{"name": "user.a", "value": shown}]}


def test_extended_attributes_are_listed_replaced_and_removed(front: Front) -> None:
    front.put("/dir", "SETXATTR&xattr.name=user.a")
    front.put("/dir", "SETXATTR&xattr.name=trusted.b&xattr.value=1")
    front.put("/dir", "SETXATTR&xattr.name=user.a&xattr.value=2&flag=REPLACE")
    assert sorted(json.loads(front.get("/dir", "LISTXATTRS")["XAttrNames"])) == ["trusted.b", "user.a"]
    both = front.get("/dir", "GETXATTRS&xattr.name=trusted.b&xattr.name=user.a")["XAttrs"]
    assert [item["name"] for item in both] == ["trusted.b", "user.a"]
    front.put("/dir", "REMOVEXATTR&xattr.name=user.a")
    assert json.loads(front.get("/dir", "LISTXATTRS")["XAttrNames"]) == ["trusted.b"]
    missing = front.send("GET", "/webhdfs/v1/dir?op=GETXATTRS&xattr.name=user.a")
    assert error_of(missing)[:2] == (403, "IOException")


def test_sets_of_flags_are_read_as_hadoops_client_sends_them(front: Front) -> None:
    for value in (1, 2):  # with both flags, the attribute may exist or not
        front.put("/dir", f"SETXATTR&xattr.name=user.a&xattr.value={value}&flag=CREATE,REPLACE")
    assert front.namespace.find("/dir").xattrs[0].value == b"2"
    front.put("/dir/new", "CREATE&createflag=CREATE,OVERWRITE,SYNC_BLOCK&createparent=false", b"1")
    front.put("/dir/new", "CREATE&createflag=CREATE,OVERWRITE", b"2")
    front.put("/dir/new", "CREATE&createflag=CREATE&overwrite=true", b"3")
    again = front.send("PUT", "/webhdfs/v1/dir/new?op=CREATE&createflag=CREATE&data=true", b"3")
    assert error_of(again)[:2] == (403, "FileAlreadyExistsException")
    front.put("/dir/file", "RENAME&destination=/dir/new&renameoptions=NONE,OVERWRITE")
    unknown = front.send("PUT", "/webhdfs/v1/dir?op=SETXATTR&xattr.name=user.a&flag=CREATE,MERGE")
    assert error_of(unknown)[:2] == (400, "IllegalArgumentException")


def test_an_access_control_list_keeps_the_sticky_bit(front: Front) -> None:
    front.put("/dir", "SETPERMISSION&permission=1770")
    for change in ("SETACL&aclspec=user::rwx,user:carla:rw-,group::r-x,other::---", "REMOVEDEFAULTACL", "REMOVEACL"):
        status = front.get("/dir", "GETACLSTATUS")["AclStatus"]
        assert (status["permission"], status["stickyBit"]) == ("1770", True)
        front.put("/dir", change)
    status = front.get("/dir", "GETACLSTATUS")["AclStatus"]
    assert (status["permission"], status["stickyBit"]) == ("1750", True)


def test_access_control_lists_are_set_changed_and_removed(front: Front) -> None:
    front.put("/dir", "SETACL&aclspec=user::rwx,user:carla:rw-,group::r-x,other::---")
    status = front.get("/dir", "GETACLSTATUS")["AclStatus"]
    assert status == {
        "entries": ["user:carla:rw-", "group::r-x"],
        "group": "supergroup",
        "owner": "jo",
        "permission": "770",
        "stickyBit": False,
    }
    front.put("/dir", "MODIFYACLENTRIES&aclspec=user:carla:r--,group:staff:r-x,default:user:carla:rwx")
    assert front.get("/dir", "GETACLSTATUS")["AclStatus"]["entries"] == [
        *("user:carla:r--", "group::r-x", "group:staff:r-x"),
        *(
            "default:user::rwx",
            "default:user:carla:rwx",
            "default:group::r-x",
            "default:mask::rwx",
            "default:other::---",
        ),
    ]
    assert front.get("/dir", "GETACLSTATUS")["AclStatus"]["permission"] == "750"
    front.put("/dir", "REMOVEACLENTRIES&aclspec=user:carla:")
    front.put("/dir", "REMOVEDEFAULTACL")
    assert front.get("/dir", "GETACLSTATUS")["AclStatus"]["entries"] == ["group::r-x", "group:staff:r-x"]
    front.put("/dir", "REMOVEACL")
    assert front.get("/dir", "GETACLSTATUS")["AclStatus"]["entries"] == []


def test_what_a_list_must_have_cannot_be_removed(front: Front) -> None:
    refused = front.send("PUT", "/webhdfs/v1/dir?op=REMOVEACLENTRIES&aclspec=group::")
    assert error_of(refused)[:2] == (403, "AclException")


def test_blocks_of_files_are_put_together(front: Front) -> None:
    front.put("/dir/a", "CREATE&data=true")
    front.put("/dir/b", "CREATE&data=true")
    refused = front.send("POST", "/webhdfs/v1/dir/a?op=CONCAT&sources=/dir/b")
    # Content in an attribute is no block: there is nothing here that it could work with.
    assert error_of(refused)[:2] == (400, "HadoopIllegalArgumentException")


def test_every_user_has_a_home(front: Front) -> None:
    assert front.get("/", "GETHOMEDIRECTORY&user.name=ann") == {"Path": "/user/ann"}


# --- what other clients send

CLIENTS = [
    # The recorded query of a CREATE, the client's additions to the redirect's Location, and the mode that it requests.
    pytest.param(
        "user.name=joe&overwrite=True&permission=644&blocksize=1048576&replication=2&buffersize=4096&op=CREATE",
        "&user.name=joe",
        "644",
        id="HdfsCLI-2.7.3",
    ),
    pytest.param("op=CREATE&overwrite=true&permission=600&user.name=joe", "", "600", id="pywebhdfs-0.4.1"),
    pytest.param("op=CREATE&overwrite=True&user.name=joe", "", "644", id="webhdfspy-1.0.0"),
    pytest.param("tempdir=%2Ftmp&overwrite=true&user.name=joe&op=CREATE", "", "644", id="fsspec-2026.9.0"),
    pytest.param("op=create&user.name=joe&overwrite=true&permission=0755", "", "755", id="npm-webhdfs"),
    pytest.param("op=CREATE&user.name=joe&permission=001755", "", "1755", id="leading-zeros"),
]


@pytest.mark.parametrize(("query", "added", "permission"), CLIENTS)
def test_clients_of_others_write_and_read(front: Front, query: str, added: str, permission: str) -> None:
    first = front.send("PUT", f"/webhdfs/v1/x?{query}")
    assert first.status == 307
    location = first.headers["Location"].partition("/webhdfs")[2]
    assert front.send("PUT", f"/webhdfs{location}{added}", b"hello").status == 201
    assert front.send("GET", "/webhdfs/v1/x?op=OPEN&user.name=joe&buffersize=10&user.name=joe").body == b"hello"
    status = json.loads(front.send("GET", "/webhdfs/v1/x?op=GETFILESTATUS&OP=LISTSTATUS&unknown=1").body)["FileStatus"]
    assert (status["owner"], status["permission"]) == ("joe", permission)


def test_the_first_of_a_repeated_parameter_counts(front: Front) -> None:
    front.put("/first", "MKDIRS&permission=700&permission=777&Permission=x")
    status = json.loads(front.send("GET", "/webhdfs/v1/first?op=GETFILESTATUS").body)["FileStatus"]
    assert status["permission"] == "700"


def test_the_servers_own_interface_refuses_parameters_that_it_does_not_have(front: Front) -> None:
    assert error_of(front.send("GET", "/api/v1/status?verbose=1"))[0] == 400


def test_an_operation_is_here_or_refused_by_name() -> None:
    assert not OPERATIONS.keys() & UNSUPPORTED.keys()


# --- refusals


@pytest.mark.parametrize(
    ("method", "target", "status", "name", "words"),
    [
        ("GET", "/none?op=GETFILESTATUS", 404, "FileNotFoundException", "/none"),
        ("GET", "/dir?op=OPEN", 404, "FileNotFoundException", "/dir is a directory"),
        ("GET", "/dir/file?op=OPEN&offset=6", 403, "IOException", "offset 6"),
        ("GET", "/dir/file/below?op=GETFILESTATUS", 403, "ParentNotDirectoryException", "/dir/file"),
        ("GET", "/a:b?op=GETFILESTATUS", 400, "InvalidPathException", "a:b"),
        ("PUT", "/dir/.snapshot/x?op=MKDIRS", 400, "HadoopIllegalArgumentException", '".snapshot" is a reserved name'),
        ("PUT", "/.reserved/x?op=MKDIRS", 400, "HadoopIllegalArgumentException", '".reserved" is a reserved name'),
        ("PUT", "/dir?op=RENAME&destination=/.snapshot", 400, "HadoopIllegalArgumentException", "another name"),
        ("GET", "/.reserved/raw?op=LISTSTATUS", 404, "FileNotFoundException", "/.reserved/raw"),
        ("GET", "/dir/.snapshot?op=LISTSTATUS", 404, "FileNotFoundException", "/dir/.snapshot"),
        ("PUT", "/dir/file/x?op=MKDIRS", 403, "ParentNotDirectoryException", "/dir/file"),
        ("PUT", "/dir?op=SETREPLICATION&replication=2", 404, "FileNotFoundException", "/dir is a directory"),
        ("PUT", "/dir?op=SETREPLICATION&replication=0", 400, "IllegalArgumentException", "replication='0'"),
        ("PUT", "/dir?op=MKDIRS&permission=9", 400, "IllegalArgumentException", "permission='9'"),
        ("PUT", "/dir?op=SETPERMISSION", 400, "IllegalArgumentException", "needs the parameter permission"),
        ("PUT", "/dir?op=SETOWNER", 400, "HadoopIllegalArgumentException", "neither"),
        ("PUT", "/dir?op=SETACL&aclspec=user:rw", 400, "IllegalArgumentException", "aclspec='user:rw'"),
        ("PUT", "/dir?op=SETXATTR&xattr.name=a.b&xattr.value=1", 403, "IOException", "a.b"),
        ("PUT", "/dir?op=SETXATTR&xattr.name=user.b&xattr.value=0xq", 400, "IllegalArgumentException", "0xq"),
        ("PUT", "/dir?op=SETSTORAGEPOLICY&storagepolicy=x", 400, "IllegalArgumentException", "hot"),
        (
            "PUT",
            "/s?op=CREATESYMLINK&destination=/x&createparent=true",
            400,
            "IllegalArgumentException",
            "createparent",
        ),
        ("DELETE", "/dir?op=DELETE", 403, "PathIsNotEmptyDirectoryException", "/dir"),
        ("DELETE", "/dir?op=DELETE&recursiv=true", 403, "PathIsNotEmptyDirectoryException", "/dir"),
        (
            "PUT",
            "/dir?op=CREATESNAPSHOT",
            400,
            "UnsupportedOperationException",
            "no snapshots; copy the files to keep",
        ),
        ("GET", "/dir/file?op=getFileChecksum", 400, "UnsupportedOperationException", "read it with OPEN"),
        ("POST", "/dir/file?op=TRUNCATE&newlength=1", 400, "UnsupportedOperationException", "overwrite=true"),
        ("GET", "/dir?op=LISTSTATUSES", 400, "IllegalArgumentException", "LISTSTATUS,"),
        ("GET", "/dir?op=MKDIRS", 400, "IllegalArgumentException", "it goes with PUT"),
        ("GET", "/dir", 400, "IllegalArgumentException", "op=''"),
        ("PATCH", "/dir?op=MKDIRS", 400, "IllegalArgumentException", "PATCH"),
        ("GET", "/dir?op=OPEN&user.name=a/b", 400, "IllegalArgumentException", "user.name"),
        ("GET", "/%ff?op=OPEN", 400, "IllegalArgumentException", "UTF-8"),
        ("GET", "/dir?op=GETXATTRS&xattr.name=%ff", 400, "IllegalArgumentException", "query"),
    ],
)
def test_a_refusal_names_what_is_wrong(
    front: Front, method: str, target: str, status: int, name: str, words: str
) -> None:
    before = front.transactions
    found = error_of(front.send(method, f"/webhdfs/v1{target}"))
    assert found[:2] == (status, name)
    assert words in found[2]
    assert front.transactions == before


def test_a_file_that_exists_is_overwritten_only_if_asked(front: Front) -> None:
    refused = front.send("PUT", "/webhdfs/v1/dir/file?op=CREATE", b"x")
    assert error_of(refused)[:2] == (403, "FileAlreadyExistsException")
    front.put("/dir/file", "CREATE&overwrite=true", b"x")
    assert front.namespace.find("/dir/file").content == b"x"


def test_more_content_than_a_file_carries_is_refused(front: Front) -> None:
    refused = front.send("PUT", "/webhdfs/v1/large?op=CREATE", b"x" * (CONTENT_BYTES_MAX + 1))
    assert refused.status == 413
    front.put("/large", "CREATE", b"x" * CONTENT_BYTES_MAX)
    assert front.send("POST", "/webhdfs/v1/large?op=APPEND", b"x").status == 413
    assert front.namespace.find("/large").length == CONTENT_BYTES_MAX


def test_a_file_that_somebody_writes_is_not_appended_to(front: Front) -> None:
    front.group.active.change(lambda requests: requests.append("/dir/file", Caller("jo", "writer")))
    refused = front.send("POST", "/webhdfs/v1/dir/file?op=APPEND", b"x")
    assert error_of(refused)[:2] == (403, "AlreadyBeingCreatedException")


def test_a_link_says_what_to_ask_for(front: Front) -> None:
    front.put("/link", "CREATESYMLINK&destination=/dir")
    refused = front.send("GET", "/webhdfs/v1/link/file?op=OPEN")
    assert error_of(refused) == (403, "UnresolvedPathException", "/link is a symbolic link: ask for /dir/file")


def test_a_quota_is_kept(front: Front) -> None:
    front.put("/dir", "SETQUOTA&namespacequota=2")
    refused = front.send("PUT", "/webhdfs/v1/dir/more?op=MKDIRS")
    assert error_of(refused)[:2] == (403, "QuotaExceededException")
    front.put("/dir", "SETQUOTA&namespacequota=-1")
    front.put("/dir/more", "MKDIRS")


@pytest.mark.parametrize("text", ["", "1", "ab:1", f"{'zz' * 16}:1", f"{'ab' * 16}:-1", f"{'ab' * 16}:2147483648"])
def test_a_request_id_that_is_none_is_refused(front: Front, text: str) -> None:
    refused = front.send("PUT", "/webhdfs/v1/x?op=MKDIRS", **{"x-request-id": text})
    assert error_of(refused)[:2] == (400, "IllegalArgumentException")


# --- who serves


def test_a_standby_says_who_is_active(front: Front) -> None:
    front.group.elect(1)
    for method, target in (("GET", "/?op=LISTSTATUS"), ("PUT", "/x?op=MKDIRS")):
        refused = front.send(method, f"/webhdfs/v1{target}")
        assert error_of(refused)[:2] == (403, "StandbyException")
        assert refused.headers["X-Active-Server"] == "b:2"


def test_nobody_is_active_for_a_moment(front: Front) -> None:
    front.group.elect(None)
    refused = front.send("GET", "/webhdfs/v1/?op=LISTSTATUS")
    assert refused.status == 403
    assert "X-Active-Server" not in refused.headers


def test_a_server_that_is_starting_is_not_active_yet() -> None:
    api = HttpApi(lambda: 0, lambda: 0.0)
    answers: list[Answer] = []
    for target in ("/webhdfs/v1/?op=LISTSTATUS", "/api/v1/status", "/heartbeat"):
        api.answer(HttpRequest("GET", target)).addCallback(answers.append)
    assert [answer.status for answer in answers] == [403, 403, 200]


def test_a_change_is_answered_once_it_is_durable(front: Front) -> None:
    front.group.journal.answers_at_once = False
    answers = front.start("PUT", "/webhdfs/v1/x?op=MKDIRS")
    assert not answers
    front.group.journal.writer.flushes[0].answer()
    assert [answer.status for answer in answers] == [200]


def test_a_change_whose_log_fails_is_open(front: Front) -> None:
    front.group.journal.answers_at_once = False
    answers = front.start("PUT", "/webhdfs/v1/x?op=MKDIRS", **ONE)
    front.group.journal.writer.flushes[0].fail(StreamFailed("the bookies are gone"))
    status, name, message = error_of(answers[0])
    assert (status, name) == (503, "RetriableException")
    assert "the bookies are gone" in message
    assert "X-Request-Id" in message
    assert answers[0].headers["Retry-After"] == "1"


def test_no_more_requests_than_may_be() -> None:
    front = Front(requests_max=1)
    front.group.journal.answers_at_once = False
    first = front.start("PUT", "/webhdfs/v1/x?op=MKDIRS")
    refused = front.send("PUT", "/webhdfs/v1/y?op=MKDIRS")
    assert error_of(refused)[:2] == (503, "RetriableException")
    assert "nothing was done" in error_of(refused)[2]
    assert front.send("GET", "/api/v1/status").status == 200, "operators are answered all the same"
    front.group.journal.writer.flushes[0].answer()
    assert first[0].status == 200
    assert front.send("GET", "/webhdfs/v1/?op=LISTSTATUS").status == 200


# --- once

CHANGES = [
    ("PUT", "/dir/new?op=CREATE", b"content"),
    ("POST", "/dir/file?op=APPEND", b" more"),
    ("PUT", "/dir/file?op=RENAME&destination=/dir/moved", None),
    ("PUT", "/dir/file?op=RENAME&destination=/dir/moved&renameoptions=NONE", None),
    ("DELETE", "/dir/file?op=DELETE", None),
    ("PUT", "/dir/link?op=CREATESYMLINK&destination=x", None),
    ("PUT", "/dir?op=SETXATTR&xattr.name=user.a&xattr.value=1&flag=CREATE", None),
]


@pytest.mark.parametrize(("method", "target", "body"), CHANGES)
@pytest.mark.parametrize("after", ["at once", "a restart", "a failover"])
def test_a_repeated_request_happens_once(
    front: Front, method: str, target: str, body: bytes | None, after: str
) -> None:
    target = f"/webhdfs/v1{target}"
    first = front.send(method, target, body, **ONE)
    assert first.status in (200, 201)
    before = fingerprint(front.namespace)
    if after == "a restart":
        front.group.restart()
    elif after == "a failover":
        front.group.elect(1)
        front.api.serve(front.group.active)
    transactions = front.transactions
    again = front.send(method, target, body, **ONE)
    assert (again.status, again.body) == (first.status, first.body)
    assert front.transactions == transactions
    if after == "at once":
        assert fingerprint(front.namespace) == before
    # Another call of the same client is another request.
    other = front.send(method, target, body, **TWO)
    assert (other.status, other.body) != (first.status, first.body) or front.transactions > transactions


def test_a_repetition_waits_until_the_first_is_durable(front: Front) -> None:
    front.group.journal.answers_at_once = False
    first = front.start("DELETE", "/webhdfs/v1/dir/file?op=DELETE", **ONE)
    again = front.start("DELETE", "/webhdfs/v1/dir/file?op=DELETE", **ONE)
    assert (first, again) == ([], [])
    front.group.journal.writer.flushes[0].answer()
    assert [answer.body for answer in first + again] == [b'{"boolean":true}'] * 2


def test_a_repetition_completes_a_file_that_a_crash_left_open(front: Front) -> None:
    journal = front.group.journal
    journal.answers_at_once = False
    first = front.start("PUT", "/webhdfs/v1/dir/new?op=CREATE", b"content", **ONE)
    # Of its two operations only the first is durable when the server goes.
    flush = journal.writer.flushes[0]
    flush.last_txid = TxId(flush.last_txid - 1)
    flush.answer()
    journal.answers_at_once = True
    front.group.elect(1)
    assert [answer.status for answer in first] == [503]
    front.api.serve(front.group.active)
    assert front.namespace.find("/dir/new").lease is not None
    assert front.send("PUT", "/webhdfs/v1/dir/new?op=CREATE", b"content", **ONE).status == 201
    file = front.namespace.find("/dir/new")
    assert (file.lease, file.content) == (None, b"content")


# --- the rest


def test_the_state_of_a_server_is_told(front: Front) -> None:
    status = json.loads(front.send("GET", "/api/v1/status").body)
    assert (status["role"], status["active"], status["applied_txid"]) == ("active", "a:1", status["durable_txid"])
    front.group.elect(1)
    status = json.loads(front.send("GET", "/api/v1/status").body)
    assert (status["role"], status["active"]) == (front.group.services[0].replica.role.value, "b:2")


def test_servers_that_applied_as_much_have_the_same_fingerprint(front: Front) -> None:
    front.send("POST", "/api/v1/roll")
    told = json.loads(front.send("GET", "/api/v1/fingerprint").body)
    standby = front.group.services[1]
    assert standby.replica.role is Role.STANDBY
    front.api.serve(standby)
    assert json.loads(front.send("GET", "/api/v1/fingerprint").body) == told


def test_the_active_rolls_and_counts_the_ends_of_segments(front: Front) -> None:
    first = json.loads(front.send("POST", "/api/v1/roll").body)["txid"]
    assert front.transactions == first + 1
    front.put("/x", "MKDIRS")
    assert front.namespace.last_txid == first + 1
    front.group.elect(1)
    assert front.send("POST", "/api/v1/roll").status == 403


def test_a_checkpoint_is_saved_by_who_was_told_how() -> None:
    front = Front(checkpoint=lambda: succeed(SimpleNamespace(name="image_7", txid=7)))
    assert json.loads(front.send("POST", "/api/v1/checkpoint").body) == {"name": "image_7", "txid": 7}
    assert front.send("GET", "/api/v1/checkpoint").status == 405


def test_what_a_server_cannot_do_is_not_worth_a_repetition() -> None:
    front = Front(checkpoint=lambda: fail(NotSupported("ask a standby")))
    found = error_of(front.send("POST", "/api/v1/checkpoint"))
    assert found == (400, "UnsupportedOperationException", "ask a standby")
    front.group.journal.answers_at_once = False
    front.start("POST", "/api/v1/roll")
    assert error_of(front.send("POST", "/api/v1/roll"))[:2] == (400, "IllegalArgumentException")


def test_metrics_are_shown() -> None:
    front = Front(metrics_text=lambda: b"up 1\n")
    answer = front.send("GET", "/metrics")
    assert (answer.body, answer.content_type.partition(";")[0]) == (b"up 1\n", "text/plain")


def test_another_path_names_those_that_there_are(front: Front) -> None:
    status, _, message = error_of(front.send("GET", "/explorer.html"))
    assert status == 404
    assert "/api/v1/status" in message
    assert error_of(front.send("GET", "/heartbeat?x=1"))[0] == 400


def test_a_fault_of_the_server_is_no_answer_of_the_file_system(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(front.group.active, "fingerprint", broken)
    answer = front.send("GET", "/api/v1/fingerprint")
    assert error_of(answer)[:2] == (500, "RuntimeException")
    assert front.send("GET", "/heartbeat").status == 200


def test_every_operation_is_tried_here() -> None:
    tried = Path(__file__).read_text()  # a name that is nowhere is an operation without a test
    assert [name for name in OPERATIONS if not re.search(rf'[="]{name}\b', tried)] == []


# --- the connection


class Wire:
    """A connection to a site, without a socket."""

    def __init__(self, **options: Any) -> None:
        self.front = Front(**options)
        self.clock = Clock()
        self.site = HttpSite(self.clock, self.front.api, Gate(Rules(frozenset({"a"}))), BOUNDS)
        self.transport = StringTransport(peerAddress=IPv4Address("TCP", "127.0.0.1", 40000))
        self.channel = self.site.buildProtocol(None)
        self.channel.makeConnection(self.transport)

    def send(self, data: bytes) -> bytes:
        self.transport.clear()
        self.channel.dataReceived(data)
        while self.channel.paused:  # parts of a chunked body
            self.clock.advance(0.0)
        return self.transport.value()


def request(line: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{line} HTTP/1.1", "Host: a:1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_a_request_is_answered_on_the_wire() -> None:
    wire = Wire()
    body = b"hello"
    line = "PUT /webhdfs/v1/file?op=CREATE&user.name=jo"
    sent = request(line, body, **{"Content-Length": str(len(body))})
    assert wire.send(sent).startswith(b"HTTP/1.1 201 ")
    assert wire.send(request("GET /webhdfs/v1/file?op=OPEN")).endswith(b"\r\n\r\nhello")
    chunked = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    sent = request(f"{line}&overwrite=true", chunked, **{"Transfer-Encoding": "chunked"})
    assert wire.send(sent).startswith(b"HTTP/1.1 201 ")
    assert wire.send(request("GET /webhdfs/v1/file?op=OPEN")).endswith(b"\r\n\r\nabcde")
    assert wire.send(request("PUT /webhdfs/v1/other?op=CREATE")).startswith(b"HTTP/1.1 307 ")


def test_a_body_of_any_split_is_one_body() -> None:
    wire = Wire()
    sent = request("PUT /webhdfs/v1/file?op=CREATE", b"hello", **{"Content-Length": "5"})
    answers = [wire.send(sent[position : position + 1]) for position in range(len(sent))]
    assert b"".join(answers[:-1]) == b""
    assert answers[-1].startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_not_kept(chunked: bool) -> None:
    wire = Wire()
    size = BODY_BYTES_MAX + 1
    head = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(size)}
    wire.send(request("PUT /webhdfs/v1/file?op=CREATE", **head))
    answer = wire.send((b"%x\r\n" % size if chunked else b"") + b"x" * size + (b"\r\n0\r\n\r\n" if chunked else b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert wire.front.namespace.find("/file") is None
    assert wire.send(request("GET /heartbeat")).endswith(b"OK\n"), "the connection goes on"


def test_a_body_far_too_large_is_refused_before_it_comes() -> None:
    wire = Wire()
    head = {"Content-Length": str(DISCARDED_BYTES_MAX + 1), "Expect": "100-continue"}
    answer = wire.send(request("PUT /webhdfs/v1/file?op=CREATE", **head))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer
    assert wire.transport.disconnecting


def test_a_body_that_does_not_end_is_cut_off() -> None:
    wire = Wire()
    wire.send(request("PUT /webhdfs/v1/file?op=CREATE", **{"Transfer-Encoding": "chunked"}))
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answers = [wire.send(piece) for _ in range(DISCARDED_BYTES_MAX // 65536 + 1)]
    assert answers[-1].startswith(b"HTTP/1.1 413 ")
    assert wire.transport.disconnecting
    assert wire.send(piece) == b""


def test_a_line_that_is_too_long_is_refused() -> None:
    wire = Wire()
    assert wire.send(b"GET /webhdfs/v1/" + b"a" * 70_000).startswith(b"HTTP/1.1 414 ")
    assert wire.transport.disconnecting


def test_a_client_that_sends_too_slowly_is_cut_off() -> None:
    wire = Wire()
    for byte in b"PUT /webhdfs":
        wire.send(bytes([byte]))
        wire.clock.advance(BOUNDS.first_request_s / 10)
    assert wire.transport.disconnecting


def test_a_request_that_waits_for_the_log_is_not_slow() -> None:
    wire = Wire()
    wire.front.group.journal.answers_at_once = False
    wire.send(request("PUT /webhdfs/v1/x?op=MKDIRS"))
    wire.clock.advance(10 * BOUNDS.first_request_s)
    assert not wire.transport.disconnecting
    wire.front.group.journal.writer.flushes[0].answer()
    assert wire.transport.value().startswith(b"HTTP/1.1 200 ")


def test_an_answer_to_who_has_gone_is_dropped() -> None:
    wire = Wire()
    wire.front.group.journal.answers_at_once = False
    wire.send(request("PUT /webhdfs/v1/x?op=MKDIRS"))
    wire.channel.connectionLost()
    wire.front.group.journal.writer.flushes[0].answer()
    assert wire.front.namespace.find("/x") is not None


def test_a_long_list_waits_for_who_takes_it() -> None:
    wire = Wire()
    wire.front.fill(2001)
    wire.send(request("GET /webhdfs/v1/big?op=LISTSTATUS"))
    assert b'"01000"' not in wire.transport.value()
    wire.channel.pauseProducing()
    wire.clock.advance(1)
    assert b'"02000"' not in wire.transport.value()
    wire.channel.resumeProducing()
    for _ in range(5):
        wire.clock.advance(0)
    value = wire.transport.value()
    assert value.endswith(b"0\r\n\r\n")
    assert b'"01000"' in value
    assert b'"02000"' in value


def test_who_does_not_take_a_long_list_is_cut_off() -> None:
    wire = Wire()
    wire.front.fill(1001)
    wire.send(request("GET /webhdfs/v1/big?op=LISTSTATUS"))
    wire.channel.pauseProducing()
    wire.clock.advance(BOUNDS.stall_timeout_s + 1)
    assert not wire.transport.disconnected
    wire.clock.advance((BUFFER_SIZE + len(wire.transport.value())) / ANSWER_RATE_MIN)
    assert wire.transport.disconnected


def test_a_long_list_is_cut_short_when_the_turn_ends() -> None:
    wire = Wire()
    wire.front.fill(1001)
    wire.send(request("GET /webhdfs/v1/big?op=LISTSTATUS"))
    wire.front.group.elect(1)
    wire.clock.advance(0)
    assert wire.transport.disconnected
    assert not wire.transport.value().endswith(b"0\r\n\r\n")
