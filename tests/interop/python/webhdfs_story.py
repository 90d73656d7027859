"""Write and read files with a WebHDFS client, and print the results as JSON: webhdfs_story.py CLIENT HOST PORT.

Runs without this project. CLIENT: hdfs (HdfsCLI), pywebhdfs or fsspec. Each client does this in /CLIENT, as user "ann":

    create a with 3,000 bytes, overwrite it with "hello", append " world", read it whole and from byte 6
    create the directory sub, list, rename a to sub/b, set its mode to 640, get its status, delete it
    get the status of a, which is absent

pywebhdfs 0.4.1 cannot set a mode. fsspec 2026.9.0 cannot append: it sends the bytes to no address.
"""

import json
import sys
from typing import Any

Story = tuple[bytes, bytes, list[str], dict[str, Any], bool, str | None]
"""Content, content from byte 6, names in the directory, status of sub/b, whether the file was deleted, the error."""

LONG = b"0123456789" * 300


def hdfs(host: str, port: str, top: str) -> Story:
    from hdfs import HdfsError, InsecureClient

    client = InsecureClient(f"http://{host}:{port}", user="ann")
    client.makedirs(top)
    client.write(f"{top}/a", LONG)
    client.write(f"{top}/a", b"hello", overwrite=True)
    client.write(f"{top}/a", b" world", append=True)
    with client.read(f"{top}/a") as reader:
        whole = reader.read()
    with client.read(f"{top}/a", offset=6) as reader:
        rest = reader.read()
    client.makedirs(f"{top}/sub")
    names = client.list(top)
    client.rename(f"{top}/a", f"{top}/sub/b")
    client.set_permission(f"{top}/sub/b", "640")
    status = client.status(f"{top}/sub/b")
    client.write(f"{top}/gone", b"x")
    deleted = client.delete(f"{top}/gone")
    try:
        client.status(f"{top}/a")
        error = None
    except HdfsError as caught:
        error = str(caught)
    return whole, rest, names, status, deleted, error


def pywebhdfs(host: str, port: str, top: str) -> Story:
    from pywebhdfs.errors import FileNotFound
    from pywebhdfs.webhdfs import PyWebHdfsClient

    client = PyWebHdfsClient(host=host, port=str(port), user_name="ann")
    client.make_dir(top)
    client.create_file(f"{top}/a", LONG)
    client.create_file(f"{top}/a", b"hello", overwrite=True)
    client.append_file(f"{top}/a", b" world")
    whole = client.read_file(f"{top}/a")
    rest = client.read_file(f"{top}/a", offset=6)
    client.make_dir(f"{top}/sub")
    names = [each["pathSuffix"] for each in client.list_dir(top)["FileStatuses"]["FileStatus"]]
    client.rename_file_dir(f"{top}/a", f"{top}/sub/b")
    status = client.get_file_dir_status(f"{top}/sub/b")["FileStatus"]
    client.create_file(f"{top}/gone", b"x")
    deleted = client.delete_file_dir(f"{top}/gone")
    try:
        client.get_file_dir_status(f"{top}/a")
        error = None
    except FileNotFound as caught:
        error = str(caught.msg)
    return whole, rest, names, status, deleted, error


def fsspec(host: str, port: str, top: str) -> Story:
    import fsspec as package

    client = package.filesystem("webhdfs", host=host, port=int(port), user="ann", skip_instance_cache=True)
    client.makedirs(top)
    client.pipe_file(f"{top}/a", LONG)
    client.pipe_file(f"{top}/a", b"hello world")
    whole = client.cat_file(f"{top}/a")
    rest = client.cat_file(f"{top}/a", start=6)
    client.makedirs(f"{top}/sub")
    names = [each.rpartition("/")[2] for each in client.ls(top, detail=False)]
    client.mv(f"{top}/a", f"{top}/sub/b")
    client.chmod(f"{top}/sub/b", "640")
    status = client.info(f"{top}/sub/b")
    client.pipe_file(f"{top}/gone", b"x")
    client.rm(f"{top}/gone")
    deleted = not client.exists(f"{top}/gone")
    try:
        client.info(f"{top}/a")
        error = None
    except FileNotFoundError as caught:
        error = str(caught)
    return whole, rest, names, status, deleted, error


def main(name: str, host: str, port: str) -> None:
    whole, rest, names, status, deleted, error = globals()[name](host, port, f"/{name}")
    found = {
        "whole": whole.decode(),
        "rest": rest.decode(),
        "names": sorted(names),
        "status": {key: status[key] for key in ("owner", "permission", "length")},
        "deleted": bool(deleted),
        "error": error,
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
