"""Popular WebHDFS clients write and read files of our name node, and our client reads their files."""

import pytest

from journalmgr.namenode.fs_client import FileSystemClient
from tests.support.webhdfs_clients import CLIENTS, run_story


@pytest.mark.parametrize("client", CLIENTS)
def test_popular_clients_write_and_read(name_node: str, client: str) -> None:
    with FileSystemClient([name_node], user="ann") as files:
        found = run_story(client, *name_node.split(":"))
        assert (found["whole"], found["rest"], found["names"]) == ("hello world", "world", ["a", "sub"])
        assert f"/{client}/a does not exist" in found["error"]
        assert found["deleted"]
        status = found["status"]
        mode = "644" if client == "pywebhdfs" else "640"
        assert (status["owner"], status["permission"], status["length"]) == ("ann", mode, len("hello world"))
        assert files.read(f"/{client}/sub/b") == b"hello world"
        assert [entry["pathSuffix"] for entry in files.list_status(f"/{client}")] == ["sub"]
        files.create(f"/{client}/ours", b"from us")
