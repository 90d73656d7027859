"""What can be found out about a bookie on its own host, whether it runs or not.

    settings     of --conf, with the origin of each
    directories  measured now: is it there, whose cookie it has, the disk, what of it are this bookie's files
    status file  what the bookie last said (`bookie.status`), and whether that process still runs
    metadata     the cluster, the cookie, the registration; or why they could not be asked

Reads only, takes no lock: a bookie that starts meanwhile is not in its way. Blocking.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bookkeeper.bookie.identity.cookie_rules import VERSION_FILE, DirectoryState, directories_of, verify
from bookkeeper.bookie.identity.identity import expected_cookie, inspect_directory
from bookkeeper.bookie.process import part_settings
from bookkeeper.bookie.process.status import WRITE_INTERVAL_S, process_identity, read_status
from bookkeeper.bookie.process.status_format import STATUS_FILE, BookieStatus
from bookkeeper.bookie.storage.disks import DiskSettings, current
from bookkeeper.cli.shell.base import loaded_server_settings, with_store
from bookkeeper.cli.shell.local import configured_bookie_id
from bookkeeper.clock import wall_ms
from bookkeeper.config import Loaded, ServerSettings
from bookkeeper.console.output import EXIT_USAGE, CommandFailed
from bookkeeper.errors import BookKeeperError, MetadataError, StorageError
from bookkeeper.filesystem import DiskUsage, FileSystem, RealFileSystem
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.model import BookieId, BookieMode

if TYPE_CHECKING:
    from bookkeeper.metadata.store import MetadataStore

FILES_MAX = 200_000
"""Files of one directory that are added up; beyond it "at least" is said."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Bytes on the disk of one kind of file. complete: all of them were counted."""

    count: int
    bytes: int
    complete: bool = True


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """One directory of the configuration. uses: the keys that name it. problem: why it cannot be used, "" if nothing.

    usage: of its disk; None where it could not be measured. disk: directories with the same number share one.
    own: by kind, "journal", "entry logs", "index files", "other".
    """

    path: str
    uses: tuple[str, ...]
    usage: DiskUsage | None
    problem: str = ""
    disk: int = 0
    own: Mapping[str, OwnFiles] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What the metadata store says. error: why it could not be asked, "" if it could; then the rest is unknown.

    registered: "writable", "read-only", or None.
    """

    error: str = ""
    instance_id: str | None = None
    registered: str | None = None
    cookie: bytes | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything. settings: effective; places: key -> where its value comes from.

    status: None where there is none; status_error: why. running: whether the process that wrote it still runs; None:
    cannot be told. refusal: why the bookie would not start with these cookies, "" if nothing is against it.
    """

    now_ms: int
    bookie_id: BookieId
    settings: ServerSettings
    disk_settings: DiskSettings
    places: Mapping[str, str]
    directories: tuple[DirectoryFacts, ...]
    store: StoreFacts
    status: BookieStatus | None
    status_path: str
    status_error: str = ""
    running: bool | None = None
    refusal: str = ""

    @property
    def has_no_cookie(self) -> bool:
        """The cluster has none for it: it was decommissioned, was never there, or the metadata store lost it."""
        return not self.store.error and self.store.instance_id is not None and self.store.cookie is None

    @property
    def ledger_directories(self) -> list[DirectoryFacts]:
        """Those of entry logs, in configured order."""
        return [each for each in self.directories if "ledgerDirectories" in each.uses]


def find_out(args: argparse.Namespace) -> HostFacts:
    """Look. Raises CommandFailed without --conf, ConfigurationError.

    Where bookie and metadata store seem to disagree it looks once more: a change of mode is in the status file up to a
    second later.
    """
    if args.conf is None:
        raise CommandFailed(f"which bookie? Give its conf file: bookkeeper why {args.about} --conf FILE", EXIT_USAGE)
    facts = _find_out(args)
    status = facts.status
    if facts.running and status is not None and not facts.store.error:
        mode = BookieMode.READ_ONLY if status.mode.read_only else BookieMode.WRITABLE
        if facts.store.registered != mode.value or status.phase == "starting":
            time.sleep(WRITE_INTERVAL_S + 0.1)
            return _find_out(args)
    return facts


def _find_out(args: argparse.Namespace) -> HostFacts:
    bookie_id = BookieId(configured_bookie_id(args))
    loaded = loaded_server_settings(args)
    settings, fs = loaded.settings, RealFileSystem()
    store = _ask_store(args, bookie_id)
    directories = tuple(_directories(fs, settings))
    status_path = os.path.join(current(str(settings.journal_directories[0])), STATUS_FILE)
    status, status_error = _read_status(fs, status_path)
    return HostFacts(
        now_ms=wall_ms(),
        bookie_id=bookie_id,
        settings=settings,
        disk_settings=part_settings.disk_settings(settings),
        places=_places(loaded),
        directories=directories,
        store=store,
        status=status,
        status_path=status_path,
        status_error=status_error,
        running=None if status is None else _runs(status.process),
        refusal=_refusal(fs, settings, bookie_id, store),
    )


def _places(loaded: Loaded[ServerSettings]) -> dict[str, str]:
    return {row.key.name: row.origin.place for row in loaded.rows}


def _read_status(fs: FileSystem, path: str) -> tuple[BookieStatus | None, str]:
    try:
        return read_status(fs, path), ""
    except FileNotFoundError:
        return None, f"there is no {path}: no bookie of this release has run with this journal directory"
    except (OSError, StorageError) as error:
        return None, str(error)


def _runs(process: str) -> bool | None:
    """Whether the process that said this still runs; None where the system cannot tell."""
    pid = process.partition(":")[0]
    if process_identity(os.getpid()) is None or not pid.isdigit():
        return None
    return process_identity(int(pid)) == process


# --- metadata store ---------------------------------------------------------------------------------------------------


def _ask_store(args: argparse.Namespace, bookie_id: BookieId) -> StoreFacts:
    async def use(store: MetadataStore) -> StoreFacts:
        instance_id = await store.admin.instance_id()
        cookie = await store.cookies.read(bookie_id)
        available = await store.bookies.current()
        registered = None
        if bookie_id in available.writable:
            registered = "writable"
        elif bookie_id in available.read_only:
            registered = "read-only"
        return StoreFacts("", instance_id, registered, None if cookie is None else cookie.value)

    try:
        return with_store(args, use)
    except MetadataError as error:
        return StoreFacts(str(error))


def _refusal(fs: FileSystem, settings: ServerSettings, bookie_id: BookieId, store: StoreFacts) -> str:
    """Why a start would be refused, as the bookie itself would put it; "" also where that cannot be told."""
    if store.error or store.instance_id is None:
        return ""
    expected = expected_cookie(settings, bookie_id, store.instance_id)
    try:
        found = [inspect_directory(fs, path, kind) for path, kind in directories_of(expected).items()]
        known = None if store.cookie is None else parse_cookie(store.cookie, f"cookie of {bookie_id}")
        if known is None and not any(state.cookie is not None or not state.empty for state in found):
            return ""  # a new bookie
        _verify(expected, known, found, settings)
    except (BookKeeperError, OSError) as error:
        return str(error)
    return ""


def _verify(expected: Cookie, known: Cookie | None, found: list[DirectoryState], settings: ServerSettings) -> None:
    verify(
        expected,
        known,
        found,
        expansion_allowed=settings.allow_storage_expansion,
        cluster_uri=settings.metadata_service_uri,
    )


# --- directories ------------------------------------------------------------------------------------------------------


def _directories(fs: FileSystem, settings: ServerSettings) -> list[DirectoryFacts]:
    uses: dict[str, tuple[str, ...]] = {}
    for path in map(str, settings.journal_directories):
        uses[path] = ("journalDirectories",)
    for path, keys in part_settings.directory_uses(settings).items():
        uses[path] = (*uses.get(path, ()), *keys)
    return [_directory(fs, path, keys) for path, keys in uses.items()]


def _directory(fs: FileSystem, path: str, uses: tuple[str, ...]) -> DirectoryFacts:
    if not fs.exists(path):
        return DirectoryFacts(path, uses, None, "is not there: not mounted, or never made")
    try:
        usage, disk = fs.usage(path), os.stat(path).st_dev
    except OSError as error:
        return DirectoryFacts(path, uses, None, f"cannot be measured: {error.strerror}")
    below = current(path)
    if not fs.is_dir(below):
        return DirectoryFacts(path, uses, usage, "was never used by a bookie: it has no `current`", disk)
    problem = "" if os.access(below, os.W_OK) or os.geteuid() == 0 else "cannot be written by this user"
    return DirectoryFacts(path, uses, usage, problem, disk, _own_files(below))


def _own_files(directory: str) -> dict[str, OwnFiles]:
    """Files below `current`, by kind, by what they take on the disk."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    seen = 0
    waiting = [directory]
    while waiting and seen < FILES_MAX:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    seen += 1
                    kind = _kind_of(entry.name)
                    counts[kind] = counts.get(kind, 0) + 1
                    sizes[kind] = sizes.get(kind, 0) + entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # gone meanwhile, or not readable: what is not counted is not this bookie's as far as we know
    return {kind: OwnFiles(counts[kind], sizes[kind], complete=not waiting) for kind in counts}


def _kind_of(name: str) -> str:
    if name.endswith(".txn"):
        return "journal"
    if name.endswith((".log", ".compacting", ".switching", ".compacted")):
        return "entry logs"
    if name.endswith(".idx"):
        return "index files"
    return "other" if name != VERSION_FILE else "cookie"
