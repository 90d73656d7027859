"""What `journalmgr fs` does once its words are understood. Data to standard output, notes to standard error."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from bookkeeper.cli.output import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    confirm,
    counted,
    note,
    print_json,
    print_table,
)
from bookkeeper.errors import BookKeeperError, InvalidArgument
from journalmgr.cli.fs import absolute, servers_of, user_of
from journalmgr.namenode.fs_client import FileAlreadyExistsException, FileNotFoundException, FileSystemClient, Json
from journalmgr.namenode.http_answers import decoded, encoded
from journalmgr.namenode.namespace import CONTENT_BYTES_MAX

Entry = tuple[str, Json]
"""Path and status."""


def run(args: argparse.Namespace) -> int:
    """Carry one action out; its exit code."""
    user = user_of(args)
    try:
        client = FileSystemClient(
            servers_of(args), user=user, wait_s=float(args.wait), tell=lambda text: note(f"journalmgr: {text}")
        )
    except InvalidArgument as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    if "paths" in args:
        args.paths = [absolute(path, user) for path in args.paths]
    for name in ("path", "destination"):  # not the target of a link, which is kept as it was typed
        if name in args:
            setattr(args, name, absolute(getattr(args, name), user))
    with client as files:
        try:
            return _ACTIONS[args.action](files, args)
        except BookKeeperError as error:
            if "verbose" in args:
                raise
            # The program shows where an error came from for any word -v, which is a value's in `setfattr`.
            raise CommandFailed(str(error)) from error


def _each(paths: Sequence[str], act: Callable[[str], object]) -> int:
    """Do the same to several paths; one that fails does not stop the others."""
    failed = False
    for path in paths:
        try:
            act(path)
        except (BookKeeperError, CommandFailed) as error:
            if len(paths) == 1:
                raise
            note(f"journalmgr: {error}")
            failed = True
    return EXIT_FAILURE if failed else EXIT_OK


def _shown(
    paths: Sequence[str], look: Callable[[str], Json], args: argparse.Namespace, show: Callable[[list[Json]], None]
) -> int:
    """Look at several paths, and print what was found as one document or as text."""
    found: list[Json] = []
    code = _each(paths, lambda path: found.append({"path": path, **look(path)}))
    if args.json:
        print_json(found)
    else:
        show(found)
    return code


def _below(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}" if name else path


# --- names


def _mkdir(files: FileSystemClient, args: argparse.Namespace) -> int:
    def make(path: str) -> None:
        if not args.parents:
            path = path.rstrip("/") or "/"
            if files.exists(path):
                raise CommandFailed(f"{path} exists already; -p takes it as it is")
            parent = path.rpartition("/")[0] or "/"
            if not files.exists(parent):
                raise CommandFailed(f"{parent} does not exist; -p makes it too")
        files.mkdirs(path, args.mode)

    return _each(args.paths, make)


def _ls(files: FileSystemClient, args: argparse.Namespace) -> int:
    entries: list[Entry] = []

    def look(path: str) -> None:
        if args.itself:
            entries.append((path, files.status(path)))
        else:
            entries.extend(_tree(files, path, recursive=args.recursive))

    code = _each(args.paths, look)
    if args.json:
        print_json([{"path": path, **status} for path, status in entries])
    elif entries:
        header = ("mode", "copies", "owner", "group", "bytes", "modified", "path")
        print_table(header, [_row(path, status) for path, status in entries])
    return code


def _tree(files: FileSystemClient, path: str, *, recursive: bool) -> Iterator[Entry]:
    for status in files.list_status(path):
        below = _below(path, status["pathSuffix"])
        yield below, status
        if recursive and status["type"] == "DIRECTORY":
            yield from _tree(files, below, recursive=True)


def _row(path: str, status: Json) -> Sequence[object]:
    arrow = f" -> {status['symlink']}" if "symlink" in status else ""
    is_file = status["type"] == "FILE"
    return (
        _mode_text(status),
        status["replication"] if is_file else "-",
        status["owner"],
        status["group"],
        status["length"],
        _moment(status["modificationTime"]),
        path + arrow,
    )


def _mode_text(status: Json) -> str:
    mode = int(status["permission"], 8)
    letters = "".join(letter if mode & 1 << 8 - place else "-" for place, letter in enumerate("rwxrwxrwx"))
    if mode & 0o1000:
        letters = letters[:-1] + ("t" if mode & 1 else "T")
    kind = {"DIRECTORY": "d", "SYMLINK": "l"}.get(status["type"], "-")
    return kind + letters + ("+" if status.get("aclBit") else "")


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # somebody set it beyond the year 9999
        return f"{milliseconds}ms"


def _mv(files: FileSystemClient, args: argparse.Namespace) -> int:
    destination = args.destination
    try:
        into = files.status(destination)["type"] == "DIRECTORY"
    except FileNotFoundException:
        into = False
    if into:
        destination = _below(destination, args.path.rstrip("/").rpartition("/")[2])
    files.rename(args.path, destination, overwrite=args.force)
    return EXIT_OK


def _rm(files: FileSystemClient, args: argparse.Namespace) -> int:
    def remove(path: str) -> None:
        try:
            summary = files.content_summary(path) if args.recursive and not (args.force and not args.dry_run) else None
        except FileNotFoundException:
            if args.force:
                return
            raise
        if args.dry_run:
            if summary is None:
                files.status(path)
            note(f"{path} would be deleted{_extent(summary)}.")
            return
        if summary is not None and summary["directoryCount"] + summary["fileCount"] > 1:
            confirm(f"Delete {path}{_extent(summary)}?", force=args.force)
        if not files.delete(path, recursive=args.recursive) and not args.force:
            raise FileNotFoundException(f"{path} does not exist")

    return _each(args.paths, remove)


def _extent(summary: Json | None) -> str:
    if summary is None:
        return ""
    directories = counted(summary["directoryCount"], "directory", "directories")
    return f": {directories}, {counted(summary['fileCount'], 'file')}"


def _ln(files: FileSystemClient, args: argparse.Namespace) -> int:
    files.symlink(args.path, args.target)
    return EXIT_OK


# --- content


def _put(files: FileSystemClient, args: argparse.Namespace) -> int:
    limit = CONTENT_BYTES_MAX + 1
    piped = args.source == "-"
    with open(sys.stdin.fileno() if piped else args.source, "rb", closefd=not piped) as source:
        content = source.read(limit)
    if len(content) == limit:
        raise CommandFailed(f"{args.source}: a file carries at most {CONTENT_BYTES_MAX} bytes here")
    if args.append:
        try:
            files.append(args.path, content)
            return EXIT_OK
        except FileNotFoundException:
            if files.exists(args.path):
                raise
    files.create(args.path, content, overwrite=args.force)
    return EXIT_OK


def _cat(files: FileSystemClient, args: argparse.Namespace) -> int:
    def show(path: str) -> None:
        sys.stdout.buffer.write(files.read(path))

    sys.stdout.flush()
    code = _each(args.paths, show)
    sys.stdout.buffer.flush()
    return code


def _touch(files: FileSystemClient, args: argparse.Namespace) -> int:
    def touch(path: str) -> None:
        now = int(time.time() * 1000)
        try:
            files.set_times(path, now, now)
        except FileNotFoundException:
            try:
                files.create(path)
            except FileAlreadyExistsException:  # somebody else was faster
                files.set_times(path, now, now)

    return _each(args.paths, touch)


# --- attributes


def _stat(files: FileSystemClient, args: argparse.Namespace) -> int:
    def show(found: list[Json]) -> None:
        for status in found:
            print_table(("name", "value"), [(name, value) for name, value in status.items()])

    return _shown(args.paths, files.status, args, show)


def _chmod(files: FileSystemClient, args: argparse.Namespace) -> int:
    return _each(args.paths, lambda path: files.set_permission(path, args.mode))


def _chown(files: FileSystemClient, args: argparse.Namespace) -> int:
    owner, _, group = args.owner.partition(":")
    return _each(args.paths, lambda path: files.set_owner(path, owner, group))


def _setrep(files: FileSystemClient, args: argparse.Namespace) -> int:
    return _each(args.paths, lambda path: files.set_replication(path, args.replication))


def _setfattr(files: FileSystemClient, args: argparse.Namespace) -> int:
    if args.removed is not None:
        return _each(args.paths, lambda path: files.remove_xattr(path, args.removed))
    try:
        value = None if args.value is None else decoded(args.value)
    except ValueError as error:
        raise CommandFailed(
            f"-v {args.value!r} is no value: pairs of hexadecimal digits follow 0x, and base64 follows 0s; text that "
            "begins so stands in quotes of its own",
            EXIT_USAGE,
        ) from error
    return _each(args.paths, lambda path: files.set_xattr(path, args.name, value))


def _getfattr(files: FileSystemClient, args: argparse.Namespace) -> int:
    names = () if args.dump else (args.name,)
    found: list[Json] = []

    def look(path: str) -> None:
        attributes = files.xattrs(path, *names)
        texts = {name: _value_text(value, args.encoding) for name, value in sorted(attributes.items())}
        found.append({"path": path, "xattrs": texts})

    def look_below(path: str) -> None:
        look(path)
        if args.recursive and files.status(path)["type"] == "DIRECTORY":
            for below, _ in _tree(files, path, recursive=True):
                look(below)

    code = _each(args.paths, look_below)
    if args.json:
        print_json(found)
        return code
    for each in found:
        print(f"# file: {each['path']}")
        for name, value in each["xattrs"].items():
            print(name if value is None else f"{name}={value}")
    return code


def _value_text(value: bytes | None, encoding: str | None) -> str | None:
    """A value as `hdfs dfs -getfattr` shows it, and `setfattr` reads it; None for one that is empty.

    Differs from Hadoop where no encoding is asked for: what is no text on one line is shown in hexadecimal digits, and
    not with its bytes replaced.
    """
    if not value:
        return None
    if encoding is None:
        try:
            encoding = "text" if value.decode().isprintable() else "hex"
        except UnicodeDecodeError:
            encoding = "hex"
    return encoded(value, encoding)


def _setfacl(files: FileSystemClient, args: argparse.Namespace) -> int:
    def change(path: str) -> None:
        if args.modified is not None:
            files.modify_acl(path, args.modified)
        elif args.removed is not None:
            files.remove_acl_entries(path, args.removed)
        elif args.whole is not None:
            files.set_acl(path, args.whole)
        elif args.no_default:
            files.remove_default_acl(path)
        else:
            files.remove_acl(path)

    return _each(args.paths, change)


def _getfacl(files: FileSystemClient, args: argparse.Namespace) -> int:
    def show(found: list[Json]) -> None:
        for each in found:
            sticky = ", sticky" if each["stickyBit"] else ""
            print(f"# file: {each['path']}\n# owner: {each['owner']}\n# group: {each['group']}")
            print(f"# mode: {each['permission']}{sticky}")
            for entry in each["entries"]:
                print(entry)

    return _shown(args.paths, files.acl_status, args, show)


# --- trees


def _quota(files: FileSystemClient, args: argparse.Namespace) -> int:
    if args.names is not None or args.space is not None:
        return _each(args.paths, lambda path: files.set_quota(path, names=args.names, space=args.space))

    def show(found: list[Json]) -> None:
        def limit(value: int) -> object:
            return "none" if value < 0 else value

        print_table(
            ("names", "of", "bytes", "of", "path"),
            [
                (
                    each["directoryCount"] + each["fileCount"],
                    limit(each["quota"]),
                    each["spaceConsumed"],
                    limit(each["spaceQuota"]),
                    each["path"],
                )
                for each in found
            ],
        )

    return _shown(args.paths, files.content_summary, args, show)


def _du(files: FileSystemClient, args: argparse.Namespace) -> int:
    found: list[Json] = []

    def look(path: str) -> None:
        for status in files.list_status(path):
            below = _below(path, status["pathSuffix"])
            if status["type"] == "DIRECTORY":
                try:
                    summary = files.content_summary(below)
                except FileNotFoundException:
                    continue  # gone since it was listed
                found.append({"path": below, "length": summary["length"], "space": summary["spaceConsumed"]})
            else:
                found.append({"path": below, "length": status["length"], "space": 0})

    code = _each(args.paths, look)
    if args.json:
        print_json(found)
    elif found:
        print_table(("bytes", "path"), [(each["length"], each["path"]) for each in found])
    return code


def _count(files: FileSystemClient, args: argparse.Namespace) -> int:
    def show(found: list[Json]) -> None:
        names = ("directoryCount", "fileCount", "length", "path")
        print_table(("directories", "files", "bytes", "path"), [[each[name] for name in names] for each in found])

    return _shown(args.paths, files.content_summary, args, show)


# --- servers


def _status(files: FileSystemClient, args: argparse.Namespace) -> int:
    found: list[Json] = []
    for server in files.servers:
        try:
            found.append({"server": server, **files.server_status(server)})
        except BookKeeperError as error:
            found.append({"server": server, "role": "unreachable", "error": str(error)})
    if args.json:
        print_json(found)
    else:
        names = ("server", "server_id", "role", "applied_txid", "durable_txid", "checkpoint_txid", "inodes", "turns")
        header = ("server", "id", "role", "applied", "durable", "checkpoint", "inodes", "turns")
        print_table(header, [[each.get(name, "-") for name in names] for each in found])
        for each in found:
            if each.get("error"):
                note(f"{each['server']}: {each['error']}")
    for server_id, count in Counter(each["server_id"] for each in found if "server_id" in each).items():
        if count > 1:
            note(f"{count} servers are called {server_id}: start each with an --id of its own to tell them apart")
    return EXIT_OK if any(each["role"] == "active" for each in found) else EXIT_FAILURE


def _fingerprint(files: FileSystemClient, args: argparse.Namespace) -> int:
    found: list[Json] = []

    def look(server: str) -> None:
        txid, fingerprint = files.fingerprint(server)
        found.append({"server": server, "txid": txid, "fingerprint": fingerprint})

    code = _each(files.servers, look)
    if args.json:
        print_json(found)
    else:
        print_table(("server", "txid", "fingerprint"), [list(each.values()) for each in found])
    states: dict[int, set[str]] = {}
    for each in found:
        states.setdefault(each["txid"], set()).add(each["fingerprint"])
    differing = [txid for txid, fingerprints in states.items() if len(fingerprints) > 1]
    if differing:
        raise CommandFailed(f"servers differ at the same txid, {differing[0]}: their journals or their code do")
    return code


_ACTIONS: dict[str, Callable[[FileSystemClient, argparse.Namespace], int]] = {
    "mkdir": _mkdir,
    "put": _put,
    "cat": _cat,
    "ls": _ls,
    "mv": _mv,
    "rm": _rm,
    "stat": _stat,
    "chmod": _chmod,
    "chown": _chown,
    "touch": _touch,
    "ln": _ln,
    "setrep": _setrep,
    "setfattr": _setfattr,
    "getfattr": _getfattr,
    "setfacl": _setfacl,
    "getfacl": _getfacl,
    "quota": _quota,
    "du": _du,
    "count": _count,
    "status": _status,
    "fingerprint": _fingerprint,
}
