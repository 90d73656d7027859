"""What `journalmgr fs` does once its words are understood. Data to standard output, notes to standard error."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    confirm,
    counted,
    note,
    print_json,
    print_line,
    print_table,
)
from bookkeeper.errors import BookKeeperError, InvalidArgument
from journalmgr.cli.fs import ALIASES, absolute, decode_words, servers_of, user_of
from journalmgr.cli.fs_common import adding, child, for_each, is_directory, name_of, size_text
from journalmgr.cli.fs_content import cat_files, get_files, put_files, touch_files, touchz_files
from journalmgr.cli.fs_patterns import PatternError, expand, is_pattern
from journalmgr.namenode.fs_client import (
    FileAlreadyExistsException,
    FileNotFoundException,
    FileSystemClient,
    Json,
    ParentNotDirectoryException,
    PathIsNotEmptyDirectoryException,
)
from journalmgr.namenode.http.answers import decoded, encoded

Entry = tuple[str, Json]
"""Path and status."""


def run(args: argparse.Namespace) -> int:
    """Carry one action out; its exit code."""
    decode_words(args)
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
    args.action = ALIASES.get(args.action, args.action)
    with client as files:
        try:
            missing = args.action not in _MADE and "paths" in args and _expand(files, args)
            # Nothing is left where `rm -f` matches nothing.
            code = _ACTIONS[args.action](files, args) if "paths" not in args or args.paths else EXIT_OK
        except BookKeeperError as error:
            raise CommandFailed(
                str(error), EXIT_USAGE if isinstance(error, InvalidArgument) else EXIT_FAILURE
            ) from error
    return code or (EXIT_FAILURE if missing else EXIT_OK)


@dataclass(frozen=True, slots=True)
class _OnServer:
    """What there is, for patterns."""

    files: FileSystemClient

    def children(self, path: str) -> Iterator[tuple[str, bool]]:
        """Names below a path, and whether each is a directory."""
        try:
            for status in self.files.list_status(path):
                if status["pathSuffix"]:  # a file is listed as itself, without one
                    yield status["pathSuffix"], status["type"] == "DIRECTORY"
        except (FileNotFoundException, ParentNotDirectoryException):
            return

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        try:
            return self.files.exists(path)
        except ParentNotDirectoryException:
            return False


def _expand(files: FileSystemClient, args: argparse.Namespace) -> bool:
    """Put the paths that match in the place of patterns; whether one matches nothing, which is said here."""
    found: list[str] = []
    failures: list[CommandFailed] = []
    for path in args.paths:
        if not is_pattern(path):
            found.append(path)
            continue
        try:
            matching = expand(path, _OnServer(files))
        except PatternError as error:
            raise CommandFailed(str(error), EXIT_USAGE) from error
        if not matching and not (args.action == "rm" and args.force):
            failures.append(CommandFailed(f"{path}: No such file or directory; the pattern matches nothing"))
        found += matching
    if failures and len(args.paths) == 1:
        raise failures[0]
    for failure in failures:
        note(f"journalmgr: {failure}")
    args.paths = found
    return bool(failures)


def _shown(
    paths: Sequence[str], look: Callable[[str], Json], args: argparse.Namespace, show: Callable[[list[Json]], None]
) -> int:
    """Look at several paths, and print what was found as one document or as text."""
    found: list[Json] = []
    code = for_each(paths, lambda path: found.append({"path": path, **look(path)}))
    if args.json:
        print_json(found)
    else:
        show(found)
    return code


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

    return for_each(args.paths, make)


def _ls(files: FileSystemClient, args: argparse.Namespace) -> int:
    entries: list[Entry] = []

    def look(path: str) -> None:
        if args.itself:
            entries.append((path, files.status(path)))
        else:
            try:
                entries.extend(_tree(files, path, recursive=args.recursive))
            except FileNotFoundException as error:
                if path != absolute(".", user_of(args)):
                    raise
                raise CommandFailed(
                    f"{error}: it is the directory of the user; `journalmgr fs mkdir -p .` makes it, `ls /` is the root"
                ) from error

    code = for_each(args.paths, look)
    if args.json:
        print_json([{"path": path, **status} for path, status in entries])
    elif entries:
        header = ("mode", "copies", "owner", "group", "bytes", "modified", "path")
        print_table(header, [_row(path, status, human=args.human) for path, status in entries])
    return code


def _tree(files: FileSystemClient, path: str, *, recursive: bool) -> Iterator[Entry]:
    for status in files.list_status(path):
        below = child(path, status["pathSuffix"])
        yield below, status
        if recursive and status["type"] == "DIRECTORY":
            yield from _tree(files, below, recursive=True)


def _row(path: str, status: Json, *, human: bool) -> Sequence[object]:
    arrow = f" -> {status['symlink']}" if "symlink" in status else ""
    is_file = status["type"] == "FILE"
    return (
        _mode_text(status),
        status["replication"] if is_file else "-",
        status["owner"],
        status["group"],
        size_text(status["length"], human=human),
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
    into = is_directory(files, args.destination)
    if len(args.paths) > 1 and not into:
        raise CommandFailed(f"{args.destination} is no directory: several go only into one")

    def move(path: str) -> None:
        destination = child(args.destination, name_of(path)) if into else args.destination
        with adding(FileAlreadyExistsException, "-f replaces it") if not args.force else nullcontext():
            files.rename(path, destination, overwrite=args.force)

    return for_each(args.paths, move)


def _rm(files: FileSystemClient, args: argparse.Namespace) -> int:
    def remove(path: str) -> None:
        try:
            # Only a terminal is asked: a script means what it says, as with `hdfs dfs`.
            asked = args.dry_run or (not args.force and sys.stdin.isatty())
            summary = files.content_summary(path) if args.recursive and asked else None
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
        with adding(PathIsNotEmptyDirectoryException, "-r deletes it with all below"):
            there = files.delete(path, recursive=args.recursive)
        if not there and not args.force:
            raise FileNotFoundException(f"{path} does not exist")

    return for_each(args.paths, remove)


def _rmdir(files: FileSystemClient, args: argparse.Namespace) -> int:
    def remove(path: str) -> None:
        if files.status(path)["type"] != "DIRECTORY":
            raise CommandFailed(f"{path} is no directory; rm deletes it")
        try:
            files.delete(path)
        except PathIsNotEmptyDirectoryException as error:
            if not args.lenient:
                raise CommandFailed(f"{error}; `rm -r` deletes it with all below") from error

    return for_each(args.paths, remove)


def _extent(summary: Json | None) -> str:
    if summary is None:
        return ""
    directories = counted(summary["directoryCount"], "directory", "directories")
    return f": {directories}, {counted(summary['fileCount'], 'file')}"


def _ln(files: FileSystemClient, args: argparse.Namespace) -> int:
    files.symlink(args.path, args.target)
    return EXIT_OK


# --- attributes


def _test(files: FileSystemClient, args: argparse.Namespace) -> int:
    try:
        status = files.status(args.path)
    except (FileNotFoundException, ParentNotDirectoryException):
        return EXIT_FAILURE
    is_file = status["type"] == "FILE"
    found = {
        "e": True,
        "d": status["type"] == "DIRECTORY",
        "f": is_file,
        "s": is_file and status["length"] > 0,
        "z": is_file and status["length"] == 0,
    }
    return EXIT_OK if found[args.test] else EXIT_FAILURE


def _stat(files: FileSystemClient, args: argparse.Namespace) -> int:
    def show(found: list[Json]) -> None:
        for status in found:
            print_table(("name", "value"), [(name, value) for name, value in status.items()])

    return _shown(args.paths, files.status, args, show)


def _chmod(files: FileSystemClient, args: argparse.Namespace) -> int:
    return for_each(args.paths, lambda path: files.set_permission(path, args.mode))


def _chown(files: FileSystemClient, args: argparse.Namespace) -> int:
    owner, _, group = args.owner.partition(":")
    return for_each(args.paths, lambda path: files.set_owner(path, owner, group))


def _setrep(files: FileSystemClient, args: argparse.Namespace) -> int:
    return for_each(args.paths, lambda path: files.set_replication(path, args.replication))


def _setfattr(files: FileSystemClient, args: argparse.Namespace) -> int:
    if args.removed is not None:
        return for_each(args.paths, lambda path: files.remove_xattr(path, args.removed))
    try:
        value = None if args.value is None else decoded(args.value)
    except ValueError as error:
        raise CommandFailed(
            f"-v {args.value!r} is no value: pairs of hexadecimal digits follow 0x, and base64 follows 0s; text that "
            "begins so stands in quotes of its own",
            EXIT_USAGE,
        ) from error
    return for_each(args.paths, lambda path: files.set_xattr(path, args.name, value))


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

    code = for_each(args.paths, look_below)
    if args.json:
        print_json(found)
        return code
    for each in found:
        print_line(f"# file: {each['path']}")
        for name, value in each["xattrs"].items():
            print_line(name if value is None else f"{name}={value}")
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

    return for_each(args.paths, change)


def _getfacl(files: FileSystemClient, args: argparse.Namespace) -> int:
    def show(found: list[Json]) -> None:
        for each in found:
            sticky = ", sticky" if each["stickyBit"] else ""
            for name, value in (("file", each["path"]), ("owner", each["owner"]), ("group", each["group"])):
                print_line(f"# {name}: {value}")
            print(f"# mode: {each['permission']}{sticky}")
            for entry in each["entries"]:
                print_line(entry)

    return _shown(args.paths, files.acl_status, args, show)


# --- trees


def _quota(files: FileSystemClient, args: argparse.Namespace) -> int:
    if args.names is not None or args.space is not None:
        if args.space is not None and args.space >= 0:
            note("journalmgr: the limit is kept; contents of files are attributes here, which --space does not count")
        return for_each(args.paths, lambda path: files.set_quota(path, names=args.names, space=args.space))

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
            below = child(path, status["pathSuffix"])
            if status["type"] == "DIRECTORY":
                try:
                    summary = files.content_summary(below)
                except FileNotFoundException:
                    continue  # gone since it was listed
                found.append({"path": below, "length": summary["length"], "space": summary["spaceConsumed"]})
            else:
                found.append({"path": below, "length": status["length"], "space": 0})

    code = for_each(args.paths, look)
    if args.json:
        print_json(found)
    elif found:
        print_table(
            ("bytes", "path"),
            [(size_text(each["length"], human=args.human), each["path"]) for each in found],
        )
    return code


def _count(files: FileSystemClient, args: argparse.Namespace) -> int:
    def show(found: list[Json]) -> None:
        print_table(
            ("directories", "files", "bytes", "path"),
            [
                (
                    *(each["directoryCount"], each["fileCount"]),
                    *(size_text(each["length"], human=args.human), each["path"]),
                )
                for each in found
            ],
        )

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
                note(f"{each['server']}: {each['error'].removeprefix(each['server'] + ': ')}")
    for server_id, count in Counter(each["server_id"] for each in found if "server_id" in each).items():
        if count > 1:
            note(f"{count} servers are called {server_id}: start each with an --id of its own to tell them apart")
    return EXIT_OK if any(each["role"] == "active" for each in found) else EXIT_FAILURE


def _fingerprint(files: FileSystemClient, args: argparse.Namespace) -> int:
    found: list[Json] = []

    def look(server: str) -> None:
        txid, fingerprint = files.fingerprint(server)
        found.append({"server": server, "txid": txid, "fingerprint": fingerprint})

    code = for_each(files.servers, look)
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


_MADE = frozenset({"mkdir", "touch", "touchz"})
"""Their paths are names of what is to be made, and no patterns."""

_ACTIONS: dict[str, Callable[[FileSystemClient, argparse.Namespace], int]] = {
    "mkdir": _mkdir,
    "put": put_files,
    "get": get_files,
    "cat": cat_files,
    "ls": _ls,
    "mv": _mv,
    "rm": _rm,
    "rmdir": _rmdir,
    "stat": _stat,
    "chmod": _chmod,
    "chown": _chown,
    "touch": touch_files,
    "touchz": touchz_files,
    "test": _test,
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
