"""What `journalmgr fs` does with the content of files: put, get, cat, touch, touchz."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from bookkeeper.clock import wall_ms
from bookkeeper.console.output import CommandFailed
from journalmgr.cli.fs import absolute, server_text
from journalmgr.cli.fs_common import adding, child, for_each, is_directory, name_of
from journalmgr.namenode.fs_client import FileAlreadyExistsException, FileNotFoundException, FileSystemClient
from journalmgr.namenode.namespace.tree import CONTENT_BYTES_MAX


def put_files(files: FileSystemClient, args: argparse.Namespace) -> int:
    """Write files."""
    contents = {"-": _content("-")} if "-" in args.sources else {}  # before a server is looked for
    into = is_directory(files, args.path)
    if len(args.sources) > 1 and not into:
        raise CommandFailed(f"{args.path} is no directory: several go only into one")

    def put(source: str) -> None:
        path = args.path
        if into:
            if source == "-":
                raise CommandFailed(f"{path} is a directory, and what comes from standard input has no name: give one")
            name = os.path.basename(os.path.abspath(source))
            path = absolute(child(path, server_text(name)), "")
        content = contents[source] if source in contents else _content(source)
        _put_one(files, content, path, args)

    return for_each(args.sources, put)


def _content(source: str) -> bytes:
    limit = CONTENT_BYTES_MAX + 1
    piped = source == "-"
    with open(sys.stdin.fileno() if piped else source, "rb", closefd=not piped) as opened:
        content = opened.read(limit)
    if len(content) == limit:
        raise CommandFailed(f"{source}: a file carries at most {CONTENT_BYTES_MAX} bytes here")
    return content


def _put_one(files: FileSystemClient, content: bytes, path: str, args: argparse.Namespace) -> None:
    if args.append:
        try:
            files.append(path, content)
            return
        except FileNotFoundException:
            if files.exists(path):
                raise
    with adding(FileAlreadyExistsException, "-f replaces it") if not args.force else nullcontext():
        files.create(path, content, overwrite=args.force)


def get_files(files: FileSystemClient, args: argparse.Namespace) -> int:
    """Copy files to this machine."""
    local = Path(args.local)
    into = local.is_dir()
    if len(args.paths) > 1 and not into:
        raise CommandFailed(f"{local} is no directory: several go only into one")

    def get(path: str) -> None:
        if files.status(path)["type"] == "DIRECTORY":
            raise CommandFailed(f"{path} is a directory; get takes files, as '{path.rstrip('/')}/*'")
        content = files.read(path)
        target = local / os.fsdecode(name_of(path).encode()) if into else local
        try:
            with target.open("wb" if args.force else "xb") as opened:
                opened.write(content)
        except FileExistsError as error:
            raise CommandFailed(f"{target} exists; -f replaces it") from error

    return for_each(args.paths, get)


def cat_files(files: FileSystemClient, args: argparse.Namespace) -> int:
    """Print files."""

    def show(path: str) -> None:
        sys.stdout.buffer.write(files.read(path))

    sys.stdout.flush()
    code = for_each(args.paths, show)
    sys.stdout.buffer.flush()
    return code


def touch_files(files: FileSystemClient, args: argparse.Namespace) -> int:
    """Make empty files, or set their times to now."""

    def touch(path: str) -> None:
        now = wall_ms()
        try:
            files.set_times(path, now, now)
        except FileNotFoundException:
            try:
                with adding(FileNotFoundException, "-p makes the directories above"):
                    files.create(path, create_parents=args.parents)
            except FileAlreadyExistsException:  # somebody else was faster
                files.set_times(path, now, now)

    return for_each(args.paths, touch)


def touchz_files(files: FileSystemClient, args: argparse.Namespace) -> int:
    """Make empty files."""

    def touch(path: str) -> None:
        try:
            files.create(path, create_parents=False)
        except FileAlreadyExistsException as error:
            status = files.status(path)
            if status["type"] != "FILE":
                raise
            if status["length"]:
                raise CommandFailed(f"{path} is not empty") from error

    return for_each(args.paths, touch)
