"""Open a journal in a directory from its URI: `file:///path`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.clock import clock_of
from bookkeeper.errors import InvalidArgument
from bookkeeper.filesystem import FileSystem, RealFileSystem
from bookkeeper.runtime import ThreadWorker
from journalmgr.contract import JournalManager
from journalmgr.files.journal import FileJournal, FileJournalSettings
from journalmgr.model import NamespaceInfo
from journalmgr.uri import JournalUri, parse_uri

OPTIONS = ("filesystem", "private", "preallocation_size", "tail_period_s")


def open_journal(
    uri: str, reactor: Any, namespace: NamespaceInfo | None, options: Mapping[str, Any]
) -> Deferred[JournalManager]:
    """See journalmgr.plugins.OpenJournal. Touches no disk yet.

    options: filesystem (a FileSystem instead of the machine's); private (False: the umask sets the modes of new files);
    and the fields of FileJournalSettings.
    """
    try:
        journal = _open(parse_uri(uri), reactor, namespace, options)
    except InvalidArgument:
        return fail()
    return succeed(journal)


def _open(uri: JournalUri, reactor: Any, namespace: NamespaceInfo | None, options: Mapping[str, Any]) -> JournalManager:
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise InvalidArgument(f"{uri}: unknown option {', '.join(unknown)}; known are {', '.join(OPTIONS)}")
    if uri.authority not in ("", "localhost"):
        raise InvalidArgument(f"{uri}: a directory of this machine has no host {uri.authority!r}: use file:///path")
    path = uri.path.rstrip("/")
    if not path:
        raise InvalidArgument(f"{uri} names no directory: use file:///path")
    rest = dict(options)
    private = bool(rest.pop("private", True))
    fs: FileSystem = rest.pop("filesystem", None) or RealFileSystem(private=private)
    settings = FileJournalSettings(**rest)
    holder = f"{os.getpid()}@{socket.gethostname()}"
    worker = ThreadWorker(reactor, f"journal {path}")
    return FileJournal(fs, path, worker, clock_of(reactor), namespace, holder=holder, settings=settings)
