"""Shell command on a stopped bookie's files as a whole: localconsistencycheck."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bookkeeper.bookie.identity.cookie_rules import directories_of
from bookkeeper.bookie.identity.identity import LOCK_FILE, expected_cookie, inspect_directories
from bookkeeper.bookie.offline.local_check import LocalCheck
from bookkeeper.bookie.storage.disks import current, refuse_rocksdb
from bookkeeper.cli.shell.base import ShellCommand, no_arguments, server_settings
from bookkeeper.cli.shell.local import configured_bookie_id
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    CommandFailed,
    Progress,
    counted,
    entries,
    note,
    print_json_line,
    print_line,
)
from bookkeeper.errors import DirectoryInUse, MetadataError
from bookkeeper.filesystem import FileSystem, RealFileSystem
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.model import BookieId


def cookie_of_settings(args: argparse.Namespace) -> Cookie:
    """What the cookie of the bookie of --conf is to say, but for the cluster. Raises CommandFailed without --conf."""
    return expected_cookie(server_settings(args), BookieId(configured_bookie_id(args)), "")


def cluster_of_cookies(fs: FileSystem, expected: Cookie) -> str | None:
    """The cluster that the first readable cookie of the directories names."""
    try:
        states = inspect_directories(fs, directories_of(expected))
    except MetadataError:
        return None
    return next((state.cookie.instance_id for state in states if state.cookie is not None), None)


@contextmanager
def stopped_bookie(fs: FileSystem, cookie: Cookie) -> Iterator[None]:
    """Hold the locks of a bookie's directories, so that it does not start meanwhile (I-52); no directory is made.

    Raises CommandFailed while it runs. Apache's bookie takes no such lock.
    """
    used = [directory for directory in map(current, directories_of(cookie)) if fs.is_dir(directory)]
    with ExitStack() as locks:
        for directory in used:
            try:
                lock = fs.lock(os.path.join(directory, LOCK_FILE))
            except DirectoryInUse as error:
                raise CommandFailed(f"{error}. Stop the bookie first: a running one changes these files") from error
            locks.callback(lock.release)
        yield


def _check(args: argparse.Namespace) -> int:
    fs, expected = RealFileSystem(), cookie_of_settings(args)
    if not any(fs.is_dir(current(directory)) for directory in directories_of(expected)):
        raise CommandFailed(f"{', '.join(directories_of(expected))}: never used by a bookie; check --conf")
    refuse_rocksdb(fs, directories_of(expected))
    faults = 0
    with stopped_bookie(fs, expected):
        cluster = cluster_of_cookies(fs, expected)
        note(f"checking bookie {expected.bookie_id} of cluster {cluster or '(no cookie names it)'}")
        check = LocalCheck(fs, expected)
        progress: Progress | None = None

        def on_progress(done: int, total: int) -> None:
            nonlocal progress
            progress = progress or Progress("bytes checked", total)
            progress.update(done)

        for fault in check.run(on_progress):
            faults += 1
            if args.json:
                print_json_line(dataclasses.asdict(fault))
            else:
                print_line(fault)
        if progress is not None:
            progress.close()
    found = check.storage_counters
    logs = f"{counted(found.logs, 'entry log')} with {entries(found.records)}"
    indexes = f"{counted(found.ledgers, 'index file')} with {counted(found.locations, 'location')}"
    note(f"{logs}, {indexes}: {counted(faults, 'fault') if faults else 'no fault'}")
    if found.unindexed:
        note(
            f"{counted(found.unindexed, 'ledger')} in the entry logs without an index file: deleted and not compacted "
            "away yet, or the file is lost (`activeledgers -l LOG` shows which of a log's ledgers are alive, "
            "`regenerate-interleaved-storage-index-file` makes the file anew)"
        )
    return EXIT_FAILURE if faults else EXIT_OK


LOCALCONSISTENCYCHECK = ShellCommand("--conf bk_server.conf localconsistencycheck", no_arguments, _check)
