"""Requests: what is refused, what is logged, and that the standby comes to the same.

Method: `Server` does what the active does, check, log, apply; a second namespace gets the same operations as bytes,
through the codec, and must have the same fingerprint.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journalmgr.edits import ops as o
from journalmgr.edits.codec import decode, encode
from journalmgr.edits.fields import AclEntry, Block, RpcIds
from journalmgr.edits.frame import RecordDecoder
from journalmgr.namenode import errors
from journalmgr.namenode.images.format import fingerprint
from journalmgr.namenode.namespace.apply import apply
from journalmgr.namenode.namespace.operations import Caller, Operations, Requests, XAttrMode
from journalmgr.namenode.namespace.tree import (
    CONTENT_BYTES_MAX,
    PATH_DEPTH_MAX,
    XATTRS_MAX,
    Directory,
    File,
    Inode,
    Namespace,
    path_of,
    subtree,
    usage_of,
)

ALICE = Caller("alice", client_name="c1", client_machine="h1", rpc=RpcIds(b"a" * 16, 1))
BOB = Caller("bob", client_name="c2", client_machine="h2")
LAYOUT = -63

Request = Callable[[Requests], Operations]


class Server:
    """An active and, behind its log, a standby."""

    def __init__(self) -> None:
        self.namespace = Namespace()
        self.standby = Namespace()
        self.requests = Requests(self.namespace)

    def do(self, request: Request) -> Operations:
        """Check, log, apply; the operations."""
        before = fingerprint(self.namespace)
        try:
            operations = request(self.requests)
        finally:
            assert fingerprint(self.namespace) == before, "a request changes nothing by itself"
        for op in operations:
            op.txid = self.namespace.last_txid + 1
            record = encode(op, LAYOUT)
            apply(op, self.namespace)
            [logged] = RecordDecoder(LAYOUT, source="log").feed(record)
            apply(decode(logged, LAYOUT), self.standby)
        return operations

    def refuse(self, error: type[errors.RequestRefused], why: str, request: Request) -> errors.RequestRefused:
        with pytest.raises(error, match=why) as caught:
            self.do(request)
        return caught.value

    def paths(self) -> list[str]:
        return [path_of(inode) for inode in subtree(self.namespace.root)]

    def inode(self, path: str) -> Inode:
        found = self.namespace.find(path)
        assert found is not None
        return found

    def file(self, path: str) -> File:
        found = self.inode(path)
        assert isinstance(found, File)
        return found


@pytest.fixture
def server() -> Server:
    """/a/b, /a/f closed with content, /a/open of c1, /empty, /link -> a/b."""
    server = Server()
    server.do(lambda r: r.mkdirs("/a/b", ALICE, 10))
    server.do(lambda r: r.put("/a/f", b"hello", ALICE, 11))
    server.do(lambda r: r.create("/a/open", ALICE, 12))
    server.do(lambda r: r.mkdir("/empty", BOB, 13))
    server.do(lambda r: r.symlink("/link", "a/b", ALICE, 14))
    return server


# --- directories ------------------------------------------------------------------------------------------------------


def test_mkdirs_makes_what_is_missing_and_nothing_twice(server: Server) -> None:
    made = server.do(lambda r: r.mkdirs("/a/x/y", BOB, 20, mode=0o500))
    assert [op.path for op in made if isinstance(op, o.Mkdir)] == ["/a/x", "/a/x/y"]
    assert server.inode("/a/x").permission == ("bob", "supergroup", 0o700)  # so that y can be made below it
    assert server.inode("/a/x/y").permission == ("bob", "supergroup", 0o500)
    assert server.do(lambda r: r.mkdirs("/a/x/y", BOB, 21)) == server.do(lambda r: r.mkdirs("/", BOB, 21)) == ()


def test_what_is_made_gets_the_group_of_its_directory(server: Server) -> None:
    server.do(lambda r: r.set_owner("/a", group="staff"))
    server.do(lambda r: r.put("/a/new/file", b"", BOB, 20))
    assert server.inode("/a/new").permission.group == server.inode("/a/new/file").permission.group == "staff"


@pytest.mark.parametrize(
    ("error", "why", "request_"),
    [
        (errors.FileAlreadyExists, "/a exists", lambda r: r.mkdir("/a", BOB, 1)),
        (errors.FileNotFound, "/none does not", lambda r: r.mkdir("/none/x", BOB, 1)),
        (errors.ParentNotDirectory, "/a/f is a file", lambda r: r.mkdir("/a/f/x", BOB, 1)),
        (errors.FileAlreadyExists, "is a file", lambda r: r.mkdirs("/a/f", BOB, 1)),
        (errors.NotPossible, "no mode", lambda r: r.mkdir("/x", BOB, 1, mode=0o2000)),
        (errors.UnresolvedLink, "ask for /a/b/x", lambda r: r.mkdir("/link/x", BOB, 1)),
        (errors.UnresolvedLink, "ask for /a/b$", lambda r: r.mkdirs("/link", BOB, 1)),
        *[
            (errors.InvalidPath, ".", lambda r, path=path: r.mkdirs(path, BOB, 1))
            for path in ("", "x", "//", "/x//y", "/x/", "/.", "/x/..", "/a:b", "/a\0", "/\ud800")
        ],
        (errors.LimitExceeded, "at most 255", lambda r: r.mkdir("/" + "é" * 128, BOB, 1)),
        (errors.LimitExceeded, "components", lambda r: r.mkdirs("/x" * (PATH_DEPTH_MAX + 1), BOB, 1)),
        (errors.LimitExceeded, "characters", lambda r: r.mkdirs(("/" + "x" * 200) * 40, BOB, 1)),
        (errors.FileNotFound, "/none", lambda r: r.symlink("/none/x", "/a", BOB, 1)),
        (errors.NotPossible, "needs a target", lambda r: r.symlink("/x", "", BOB, 1)),
        (errors.NotPossible, "4097 bytes", lambda r: r.symlink("/x", "x" * 4097, BOB, 1)),
        (errors.PathIsNotEmptyDirectory, "3 items", lambda r: r.delete("/a", BOB, 1)),
        (errors.NotPossible, "root", lambda r: r.delete("/", BOB, 1, recursive=True)),
    ],
)
def test_names_are_refused(server: Server, error: Any, why: str, request_: Request) -> None:
    server.refuse(error, why, request_)


def test_the_longest_names_and_paths_are_taken(server: Server) -> None:
    server.do(lambda r: r.mkdir("/" + "x" * 255, BOB, 1))
    server.do(lambda r: r.mkdirs("/x" * PATH_DEPTH_MAX, BOB, 1))
    assert {"/" + "x" * 255, "/x" * PATH_DEPTH_MAX} <= set(server.paths())
    assert fingerprint(server.standby) == fingerprint(server.namespace)


@pytest.mark.parametrize(
    "path", ["/.snapshot", "/a/.snapshot", "/a/.snapshot/x", "/.snapshot/x/y", "/.reserved", "/.reserved/raw/x"]
)
def test_no_operation_makes_a_name_that_a_namenode_reserves(server: Server, path: str) -> None:
    requests: list[Request] = [
        lambda r: r.mkdir(path, BOB, 1),
        lambda r: r.mkdirs(path, BOB, 1),
        lambda r: r.mkdirs(f"{path}/below", BOB, 1),
        lambda r: r.symlink(path, "/a", BOB, 1),
        lambda r: r.create(path, BOB, 1),
        lambda r: r.put(path, b"", BOB, 1, overwrite=True),
        lambda r: r.rename("/a/f", path, BOB, 1),
        lambda r: r.rename("/a/f", path, BOB, 1, overwrite=True),
        lambda r: r.rename_into("/a/f", path, BOB, 1),
        lambda r: r.concat(path, ["/a/f"], BOB, 1),
    ]
    for each in requests:
        refused = server.refuse(
            errors.NotPossible, '^\'/.*".(snapshot|reserved)" is a reserved name.*; choose another name', each
        )
        assert path in str(refused)
        assert refused.hadoop_name == "org.apache.hadoop.HadoopIllegalArgumentException"
    server.do(lambda r: r.mkdirs("/a/.snapshots/x.snapshot/.reserved", BOB, 1))


def test_a_reserved_name_of_an_older_journal_can_be_read_moved_and_deleted(server: Server) -> None:
    for op in server.requests.mkdirs("/a/old/x", ALICE, 20):
        assert isinstance(op, o.Mkdir)
        op.path, op.txid = op.path.replace("old", ".snapshot"), server.namespace.last_txid + 1
        apply(op, server.namespace)
        apply(op, server.standby)
    assert server.inode("/a/.snapshot/x")
    server.refuse(errors.NotPossible, "reserved", lambda r: r.rename_into("/a/.snapshot", "/empty", ALICE, 21))
    server.do(lambda r: r.rename("/a/.snapshot", "/a/kept", ALICE, 22))
    assert server.inode("/a/kept/x")
    server.refuse(errors.FileNotFound, "does not exist", lambda r: r.set_permission("/a/.snapshot", 0o700))
    assert server.do(lambda r: r.delete("/a/.snapshot", ALICE, 23)) == ()


def test_delete_of_nothing_is_nothing(server: Server) -> None:
    assert server.do(lambda r: r.delete("/none/at/all", BOB, 1)) == ()
    server.do(lambda r: r.delete("/link", BOB, 1))
    server.do(lambda r: r.delete("/a", BOB, 1, recursive=True))
    assert server.paths() == ["/", "/empty"]


# --- renames ----------------------------------------------------------------------------------------------------------


def test_renames_move_into_directories_or_to_names(server: Server) -> None:
    server.do(lambda r: r.rename_into("/a/f", "/empty", ALICE, 20))
    server.do(lambda r: r.rename_into("/empty/f", "/a/g", ALICE, 21))
    server.do(lambda r: r.rename("/a/g", "/a/open", ALICE, 22, overwrite=True))
    assert server.do(lambda r: r.rename_into("/a/open", "/a/open", ALICE, 23)) == ()
    server.do(lambda r: r.rename("/a", "/empty/a", ALICE, 24))
    assert server.paths() == ["/", "/empty", "/empty/a", "/empty/a/b", "/empty/a/open", "/link"]
    assert server.file("/empty/a/open").content == b"hello"


@pytest.mark.parametrize(
    ("error", "why", "request_"),
    [
        (errors.FileNotFound, "/none", lambda r: r.rename("/none", "/x", ALICE, 1)),
        (errors.FileNotFound, "/none", lambda r: r.rename("/a", "/none/a", ALICE, 1)),
        (errors.FileAlreadyExists, "overwrite it", lambda r: r.rename("/a/f", "/a/open", ALICE, 1)),
        (errors.FileAlreadyExists, ".", lambda r: r.rename("/a", "/a", ALICE, 1, overwrite=True)),
        (errors.FileAlreadyExists, ".", lambda r: r.rename_into("/a/f", "/a/open", ALICE, 1)),
        (errors.FileAlreadyExists, ".", lambda r: r.rename_into("/a/f", "/a", ALICE, 1)),
        (errors.RenameRefused, "below", lambda r: r.rename("/a", "/a/b/c", ALICE, 1)),
        (errors.RenameRefused, "below", lambda r: r.rename_into("/a", "/a/b", ALICE, 1)),
        (errors.RenameRefused, "root", lambda r: r.rename("/", "/x", ALICE, 1)),
        (errors.RenameRefused, "to the root", lambda r: r.rename("/a", "/", ALICE, 1, overwrite=True)),
        (errors.RenameRefused, "replace", lambda r: r.rename("/a/f", "/empty", ALICE, 1, overwrite=True)),
        (errors.RenameRefused, "replace", lambda r: r.rename("/empty", "/a/f", ALICE, 1, overwrite=True)),
        (errors.PathIsNotEmptyDirectory, ".", lambda r: r.rename("/empty", "/a", ALICE, 1, overwrite=True)),
        (errors.InvalidPath, ".", lambda r: r.rename("/a", "x", ALICE, 1)),
    ],
)
def test_renames_are_refused(server: Server, error: Any, why: str, request_: Request) -> None:
    server.refuse(error, why, request_)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_created_written_completed_and_appended_to(server: Server) -> None:
    server.do(lambda r: r.create("/new/dir/file", BOB, 30, replication=2, block_size=1024))
    assert server.file("/new/dir/file").lease == ("c2", "h2")
    server.do(lambda r: r.write("/new/dir/file", b"one", BOB))
    server.do(lambda r: r.complete("/new/dir/file", BOB, 31))
    file = server.file("/new/dir/file")
    assert (file.content, file.length, file.lease, file.mtime, file.replication) == (b"one", 3, None, 31, 2)
    server.do(lambda r: r.append("/new/dir/file", ALICE))
    server.do(lambda r: r.write("/new/dir/file", b"one two", ALICE))
    server.do(lambda r: r.complete("/new/dir/file", ALICE, 32))
    assert file.content == b"one two"


def test_overwriting_gives_a_new_file(server: Server) -> None:
    old = server.file("/a/f").id
    server.do(lambda r: r.put("/a/f", b"new", BOB, 40, overwrite=True))
    assert (server.file("/a/f").content, server.file("/a/f").id > old) == (b"new", True)


def test_release_closes_what_a_dead_client_left(server: Server) -> None:
    server.do(lambda r: r.release("/a/open", 50))
    assert server.file("/a/open").lease is None
    assert server.do(lambda r: r.release("/a/open", 51)) == ()


def test_a_call_is_known_again(server: Server) -> None:
    txid = server.namespace.done(*ALICE.rpc)
    assert txid == server.standby.done(*ALICE.rpc) == server.namespace.last_txid


@pytest.mark.parametrize("fields", [{"user": "\ud800"}, {"client_name": "\0"}, {"client_machine": "x" * 5000}])
def test_a_caller_whose_names_cannot_be_logged_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(errors.NotPossible):
        Caller(**({"user": "u"} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "why", "request_"),
    [
        (errors.FileAlreadyExists, "overwrite it", lambda r: r.create("/a/f", BOB, 1)),
        (errors.FileAlreadyExists, "a directory", lambda r: r.create("/a", BOB, 1, overwrite=True)),
        (errors.LeaseHeld, "'c1' on h1", lambda r: r.create("/a/open", BOB, 1)),
        (errors.LeaseHeld, "'c1' on h1", lambda r: r.append("/a/open", BOB)),
        (errors.LeaseAbsent, "'c1', not by 'c2'", lambda r: r.complete("/a/open", BOB, 1)),
        (errors.LeaseAbsent, "not open", lambda r: r.complete("/a/f", ALICE, 1)),
        (errors.LeaseAbsent, "not open", lambda r: r.write("/a/f", b"", ALICE)),
        (errors.NotPossible, "needs a name", lambda r: r.create("/x", Caller("eve"), 1)),
        (errors.NotPossible, "0 copies", lambda r: r.create("/x", BOB, 1, replication=0)),
        (errors.NotPossible, "block size", lambda r: r.create("/x", BOB, 1, block_size=0)),
        (errors.NotPossible, "block size", lambda r: r.create("/x/y", BOB, 1, block_size=1 << 63)),
        (errors.FileNotFound, "/x does not", lambda r: r.create("/x/y", BOB, 1, create_parents=False)),
        (errors.ParentNotDirectory, ".", lambda r: r.create("/a/f/y", BOB, 1)),
        (errors.UnresolvedLink, ".", lambda r: r.create("/link", BOB, 1, overwrite=True)),
        (errors.FileNotFound, ".", lambda r: r.append("/none", BOB)),
        (errors.NotAFile, ".", lambda r: r.append("/a", BOB)),
        (errors.UnresolvedLink, ".", lambda r: r.append("/link", BOB)),
        (errors.ContentTooLarge, "at most 16377", lambda r: r.put("/x", bytes(CONTENT_BYTES_MAX + 1), BOB, 1)),
        (errors.ContentTooLarge, "user.content", lambda r: r.write("/a/open", bytes(99_999), ALICE)),
        (errors.NotPossible, "attribute", lambda r: r.concat("/a/f", ["/a/g"], ALICE, 1)),
        (errors.NotPossible, "no sources", lambda r: r.concat("/a/f", [], ALICE, 1)),
    ],
)
def test_files_are_refused(server: Server, error: Any, why: str, request_: Request) -> None:
    if why == "attribute":
        server.do(lambda r: r.put("/a/g", b"more", ALICE, 1))
    server.refuse(error, why, request_)


def test_the_largest_content_is_taken(server: Server) -> None:
    server.do(lambda r: r.put("/x", bytes(CONTENT_BYTES_MAX), BOB, 1))
    assert server.file("/x").length == CONTENT_BYTES_MAX
    assert fingerprint(server.standby) == fingerprint(server.namespace)


def test_blocks_of_files_are_put_together(server: Server) -> None:
    def with_block(path: str, block: Block) -> Request:
        return lambda r: (*r.create(path, BOB, 1), o.Close(path=path, mtime=1, blocks=(block,)))

    for path, block in (("/empty/1", Block(1, 10, 1001)), ("/empty/2", Block(2, 20, 1001))):
        server.do(with_block(path, block))
    server.do(lambda r: r.concat("/empty/1", ["/empty/2"], BOB, 60))
    assert server.file("/empty/1").length == 30
    server.refuse(errors.NotPossible, "directory of", lambda r: r.concat("/empty/1", ["/a/f"], BOB, 61))


# --- attributes -------------------------------------------------------------------------------------------------------


def test_attributes_are_set(server: Server) -> None:
    server.do(lambda r: r.set_permission("/a/f", 0o1600))
    server.do(lambda r: r.set_owner("/a/f", "carol"))
    server.do(lambda r: r.set_times("/a/f", mtime=5))
    server.do(lambda r: r.set_replication("/a/f", 7))
    server.do(lambda r: r.set_storage_policy("/a/f", 12))
    server.do(lambda r: r.set_xattr("/a/f", "trusted.k", b"v", BOB, XAttrMode.CREATE))
    server.do(lambda r: r.set_xattr("/a/f", "TRUSTED.k", b"w", BOB, XAttrMode.REPLACE))
    server.do(lambda r: r.set_quota_by_storage_type("/a", 1, 1000))
    file = server.file("/a/f")
    assert (file.permission, file.mtime, file.replication) == (("carol", "supergroup", 0o1600), 5, 7)
    assert {(item.namespace, item.name): item.value for item in file.xattrs}[1, "k"] == b"w"
    assert server.do(lambda r: r.set_replication("/a/f", 7)) == ()
    server.do(lambda r: r.remove_xattr("/a/f", "trusted.k", BOB))
    assert len(file.xattrs) == 1
    assert fingerprint(server.standby) == fingerprint(server.namespace)


@pytest.mark.parametrize(
    ("error", "why", "request_"),
    [
        (errors.FileNotFound, ".", lambda r: r.set_permission("/none", 0)),
        (errors.UnresolvedLink, ".", lambda r: r.set_permission("/link", 0)),
        (errors.NotPossible, "no mode", lambda r: r.set_permission("/a", -1)),
        (errors.NotPossible, "neither", lambda r: r.set_owner("/a")),
        (errors.NotPossible, "no text", lambda r: r.set_owner("/a/open", "\ud800")),  # CLOSE could not be logged
        (errors.NotPossible, "no text", lambda r: r.set_owner("/a/open", "", "\ud800")),
        (errors.NotPossible, "times", lambda r: r.set_times("/a", 1 << 63)),
        (errors.NotPossible, "no text", lambda r: r.set_xattr("/a", "user.\ud800", b"", BOB)),
        (errors.NotPossible, "no text", lambda r: r.set_acl("/a", [*minimal(), AclEntry(0, 0, 7, "\ud800")])),
        (errors.AclRefused, "33 entries", lambda r: r.set_acl("/a", [AclEntry(0, 0, 7, str(i)) for i in range(33)])),
        (errors.NotPossible, "times", lambda r: r.set_times("/a")),
        (errors.NotPossible, "times", lambda r: r.set_times("/a", -2, 5)),
        (errors.NotAFile, ".", lambda r: r.set_replication("/a", 1)),
        (errors.NotPossible, "513 copies", lambda r: r.set_replication("/a/f", 513)),
        (errors.NotPossible, "no storage policy", lambda r: r.set_storage_policy("/a", 3)),
        (errors.NotADirectory, ".", lambda r: r.set_quota("/a/f", names=1)),
        (errors.NotPossible, "-2 is no quota", lambda r: r.set_quota("/a", names=-2)),
        (errors.NotPossible, "no quota is given", lambda r: r.set_quota("/a")),
        (errors.NotPossible, "root", lambda r: r.set_quota("/", names=-1)),
        (errors.NotPossible, "storage type 4", lambda r: r.set_quota_by_storage_type("/a", 4, 1)),
        (errors.XAttrRefused, "no name", lambda r: r.set_xattr("/a", "k", b"", BOB)),
        (errors.XAttrRefused, "no name", lambda r: r.set_xattr("/a", "user.", b"", BOB)),
        (errors.XAttrRefused, "system", lambda r: r.set_xattr("/a", "system.k", b"", BOB)),
        (errors.XAttrRefused, "16385 bytes", lambda r: r.set_xattr("/a", "user.k", bytes(16384), BOB)),
        (errors.XAttrRefused, "has no attr", lambda r: r.set_xattr("/a", "user.k", b"", BOB, XAttrMode.REPLACE)),
        (errors.XAttrRefused, "already", lambda r: r.set_xattr("/a/f", "user.content", b"", BOB, XAttrMode.CREATE)),
        (errors.XAttrRefused, "has no attr", lambda r: r.remove_xattr("/a", "user.k", BOB)),
        (errors.AclRefused, "needed", lambda r: r.set_acl("/a", [])),
        (errors.AclRefused, "needed", lambda r: r.set_acl("/a", [AclEntry(0, 0, 7, None)])),
        (errors.AclRefused, "twice", lambda r: r.set_acl("/a", [*minimal(), AclEntry(0, 0, 7, None)])),
        (errors.AclRefused, "no name", lambda r: r.set_acl("/a", [*minimal(), AclEntry(2, 0, 7, "x")])),
        (errors.AclRefused, "none", lambda r: r.set_acl("/a", [*minimal(), AclEntry(0, 0, 8, "x")])),
        (errors.AclRefused, "default", lambda r: r.set_acl("/a/f", [*minimal(), *minimal(scope=1)])),
    ],
)
def test_attributes_are_refused(server: Server, error: Any, why: str, request_: Request) -> None:
    server.refuse(error, why, request_)


def minimal(scope: int = 0, group: int = 5) -> list[AclEntry]:
    return [AclEntry(0, scope, 7, None), AclEntry(1, scope, group, None), AclEntry(3, scope, 0, None)]


def test_an_attribute_too_many_is_refused(server: Server) -> None:
    for count in range(XATTRS_MAX):
        server.do(lambda r, count=count: r.set_xattr("/a/open", f"user.{count}", b"", BOB))  # type: ignore[misc]
    server.refuse(errors.XAttrRefused, "at most 32", lambda r: r.set_xattr("/a/open", "user.more", b"", BOB))
    server.refuse(errors.XAttrRefused, "at most 32", lambda r: r.write("/a/open", b"", ALICE))


def test_an_acl_gets_a_mask_and_is_removed(server: Server) -> None:
    server.do(lambda r: r.set_acl("/a/f", [*minimal(group=4), AclEntry(0, 0, 2, "bob")]))
    assert server.inode("/a/f").permission.mode == 0o760
    server.do(lambda r: r.remove_acl("/a/f"))
    assert server.inode("/a/f").permission.mode == 0o740
    assert server.do(lambda r: r.remove_acl("/a/f")) == ()


def test_a_default_acl_is_inherited(server: Server) -> None:
    named = AclEntry(0, 1, 7, "bob")
    server.do(lambda r: r.set_acl("/empty", [*minimal(), *minimal(scope=1), named]))
    server.do(lambda r: r.put("/empty/x/y/f", b"", ALICE, 1, mode=0o640))
    assert any(entry.scope == 1 for entry in server.inode("/empty/x/y").acl)
    file = server.inode("/empty/x/y/f")
    assert (AclEntry(0, 0, 7, "bob") in file.acl, any(entry.scope == 1 for entry in file.acl)) == (True, False)
    assert file.permission.mode == 0o640
    assert fingerprint(server.standby) == fingerprint(server.namespace)


# --- quotas -----------------------------------------------------------------------------------------------------------


def test_a_quota_of_names_holds_for_all_that_comes_below(server: Server) -> None:
    server.do(lambda r: r.set_quota("/empty", names=3))
    server.do(lambda r: r.mkdirs("/empty/1/2", ALICE, 1))
    requests: list[Request] = [
        lambda r: r.mkdir("/empty/x", ALICE, 1),
        lambda r: r.create("/empty/x", ALICE, 1),
        lambda r: r.symlink("/empty/x", "/", ALICE, 1),
        lambda r: r.rename("/a/f", "/empty/1/2/f", ALICE, 1),
    ]
    for request in requests:
        error = server.refuse(errors.QuotaExceeded, "the quota of /empty is 3 names, 3 are used", request)
        assert isinstance(error, errors.QuotaExceeded)
        assert error.path == "/empty"
    server.do(lambda r: r.rename("/empty/1/2", "/empty/2", ALICE, 1))  # within it
    server.do(lambda r: r.rename("/empty/2", "/2", ALICE, 1))  # out of it
    server.refuse(errors.QuotaExceeded, "takes 2 more", lambda r: r.mkdirs("/empty/x/y", ALICE, 1))
    server.do(lambda r: r.put("/empty/f", b"", ALICE, 1))
    server.do(lambda r: r.put("/empty/f", b"", ALICE, 1, overwrite=True))
    server.do(lambda r: r.set_quota("/empty", names=-1))
    server.do(lambda r: r.mkdirs("/empty/x/y", ALICE, 1))


def test_a_quota_of_bytes_holds_for_copies(server: Server) -> None:
    server.do(
        lambda r: (*r.create("/empty/f", BOB, 1, replication=1), o.Close(path="/empty/f", blocks=(Block(1, 50, 1),)))
    )
    server.do(lambda r: r.set_quota("/empty", space=120))
    server.do(lambda r: r.set_replication("/empty/f", 2))
    server.refuse(errors.QuotaExceeded, "120 bytes, 100", lambda r: r.set_replication("/empty/f", 3))


# --- active and standby -----------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "ü", "🜁"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
CALLERS = st.sampled_from([ALICE, BOB])


@st.composite
def requests_(draw: st.DrawFn) -> Request:
    one, two, caller, now = draw(PATHS), draw(PATHS), draw(CALLERS), draw(st.integers(0, 100))
    choices: list[Request] = [
        lambda r: r.mkdirs(one, caller, now),
        lambda r: r.mkdir(one, caller, now),
        lambda r: r.put(one, one.encode(), caller, now, overwrite=now > 50),
        lambda r: r.create(one, caller, now, overwrite=now > 50),
        lambda r: r.append(one, caller),
        lambda r: r.complete(one, caller, now),
        lambda r: r.release(one, now),
        lambda r: r.delete(one, caller, now, recursive=now > 30),
        lambda r: r.rename(one, two, caller, now, overwrite=now > 50),
        lambda r: r.rename_into(one, two, caller, now),
        lambda r: r.set_quota(one, names=now % 7 - 1),
        lambda r: r.set_quota(one, space=now % 7 - 1),
        lambda r: r.set_xattr(one, "user.x", None if now > 50 else b"v", caller),
        lambda r: r.set_acl(one, [*minimal(), *minimal(scope=1)]),
        lambda r: r.symlink(one, two, caller, now),
        lambda r: r.set_times(one, mtime=now),
    ]
    return draw(st.sampled_from(choices))


@given(st.lists(requests_(), max_size=30))
def test_whatever_is_accepted_applies_and_the_standby_is_equal(requests: list[Request]) -> None:
    """Each request that is not refused applies; the standby, fed with bytes, is equal; indices and usage are right."""
    server = Server()
    for request in requests:
        try:
            operations = request(server.requests)
        except errors.RequestRefused:
            continue
        server.do(lambda _, operations=operations: operations)  # type: ignore[misc]
    assert fingerprint(server.standby) == fingerprint(server.namespace)
    inodes = list(subtree(server.namespace.root))
    assert server.namespace.inodes == {inode.id: inode for inode in inodes}
    assert server.namespace.open_files == {
        inode.id: inode for inode in inodes if isinstance(inode, File) and inode.lease is not None
    }
    limited = [inode for inode in inodes if isinstance(inode, Directory) and inode.quota is not None]
    assert server.namespace.quota_count == len(limited)
    for directory in limited:
        assert directory.quota is not None
        assert (directory.quota.used_names, directory.quota.used_space) == usage_of(directory)
