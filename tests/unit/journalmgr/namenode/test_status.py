"""What clients are shown of inodes, and listings by page."""

from journalmgr.edits.fields import AclEntry, Block
from journalmgr.namenode.namespace.apply import apply
from journalmgr.namenode.namespace.operations import Caller, Operations, Requests
from journalmgr.namenode.namespace.status import list_page, status_of
from journalmgr.namenode.namespace.tree import File, Namespace

ALICE = Caller("alice", client_name="c", client_machine="m")


def do(namespace: Namespace, operations: Operations) -> None:
    for op in operations:
        op.txid = namespace.last_txid + 1
        apply(op, namespace)


def sample() -> Namespace:
    namespace = Namespace()
    requests = Requests(namespace, block_size=1024, replication=2)
    do(namespace, requests.put("/d/f", b"hello", ALICE, 7, mode=0o640))
    do(namespace, requests.symlink("/d/l", "/elsewhere", ALICE, 8))
    do(namespace, requests.mkdir("/d/sub", ALICE, 9, mode=0o1777))
    return namespace


def test_the_status_of_a_file_has_the_fields_of_hdfs() -> None:
    file = sample().find("/d/f")
    assert file is not None
    assert status_of(file, "f").to_json() == {
        "accessTime": 7,
        "blockSize": 1024,
        "childrenNum": 0,
        "fileId": 16387,
        "group": "supergroup",
        "length": 5,
        "modificationTime": 7,
        "owner": "alice",
        "pathSuffix": "f",
        "permission": "640",
        "replication": 2,
        "storagePolicy": 0,
        "type": "FILE",
    }


def test_directories_and_links_show_what_they_are() -> None:
    directory, link = sample().find("/d"), sample().find("/d/l")
    assert directory is not None
    assert link is not None
    shown = status_of(directory)
    assert (shown.type, shown.children_num, shown.length, shown.path_suffix) == ("DIRECTORY", 3, 0, "")
    assert "symlink" not in shown.to_json()
    assert status_of(link).to_json()["type"] == "SYMLINK"
    assert status_of(link).to_json()["symlink"] == "/elsewhere"


def test_the_storage_policy_is_the_nearest_ancestors() -> None:
    namespace = sample()
    do(namespace, Requests(namespace).set_storage_policy("/", 12))
    do(namespace, Requests(namespace).put("/d/sub/g", b"", ALICE, 7))
    do(namespace, Requests(namespace).set_storage_policy("/d/sub", 2))
    expected = {"/": 12, "/d": 12, "/d/f": 12, "/d/l": 0, "/d/sub": 2, "/d/sub/g": 2}
    for path, policy in expected.items():
        inode = namespace.find(path)
        assert inode is not None
        assert status_of(inode).storage_policy == policy
    directory = namespace.find("/d")
    assert directory is not None
    assert [each.storage_policy for each in list_page(directory).entries] == [12, 0, 2]
    do(namespace, Requests(namespace).rename("/d/sub/g", "/d/g", ALICE, 8))
    moved = namespace.find("/d/g")
    assert moved is not None
    assert status_of(moved).storage_policy == 12


def test_an_access_control_list_is_marked() -> None:
    namespace = sample()
    do(namespace, Requests(namespace).set_acl("/d", _acl()))
    directory = namespace.find("/d")
    assert directory is not None
    assert status_of(directory).to_json()["aclBit"] is True


def _acl() -> list[AclEntry]:
    return [
        AclEntry(0, 0, 7, None),
        AclEntry(0, 0, 7, "bob"),
        AclEntry(1, 0, 0, None),
        AclEntry(3, 0, 0, None),
    ]


def test_the_length_of_a_file_with_blocks_is_theirs() -> None:
    file = sample().find("/d/f")
    assert isinstance(file, File)
    file.blocks = (Block(1, 100, 1), Block(2, 3, 1))
    assert status_of(file).length == 103


def test_a_directory_is_listed_by_name_in_pages() -> None:
    directory = sample().find("/d")
    assert directory is not None
    first = list_page(directory, limit=2)
    assert ([status.path_suffix for status in first.entries], first.remaining) == (["f", "l"], 1)
    rest = list_page(directory, start_after="l", limit=2)
    assert ([status.path_suffix for status in rest.entries], rest.remaining) == (["sub"], 0)
    assert rest.entries[0].permission == "1777"
    assert list_page(directory, start_after="zzz") == ([], 0)


def test_a_file_is_listed_as_itself() -> None:
    file = sample().find("/d/f")
    assert file is not None
    assert list_page(file) == ([status_of(file)], 0)
