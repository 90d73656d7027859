"""Popular WebHDFS clients write and read files of our name node, and our client reads their files."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bookkeeper.embedded.process import dying_with_parent, free_port
from journalmgr.cli.main import main
from journalmgr.namenode.fs_client import FileSystemClient
from tests.support.webhdfs_clients import CLIENTS, run_story

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a name node on a journal in files."""
    directory, port = tmp_path_factory.mktemp("names"), free_port()
    journal = f"file://{directory}/edits"
    assert main(["format", journal]) == 0
    words = ["namenode", journal, "--images", f"{directory}/images", "--http", f"{HOST}:{port}"]
    with (directory / "log").open("wb") as log:
        command = dying_with_parent([sys.executable, "-m", "journalmgr.cli.main", *words])
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with FileSystemClient([f"{HOST}:{port}"], wait_s=60.0) as files:
            files.mkdirs("/ready")
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("client", CLIENTS)
def test_popular_clients_write_and_read(name_node: int, client: str) -> None:
    with FileSystemClient([f"{HOST}:{name_node}"], user="ann") as files:
        found = run_story(client, HOST, name_node)
        assert (found["whole"], found["rest"], found["names"]) == ("hello world", "world", ["a", "sub"])
        assert f"/{client}/a does not exist" in found["error"]
        assert found["deleted"]
        status = found["status"]
        mode = "644" if client == "pywebhdfs" else "640"
        assert (status["owner"], status["permission"], status["length"]) == ("ann", mode, len("hello world"))
        assert files.read(f"/{client}/sub/b") == b"hello world"
        assert [entry["pathSuffix"] for entry in files.list_status(f"/{client}")] == ["sub"]
        files.create(f"/{client}/ours", b"from us")
