"""Who this bookie is, and proof that its directories and the metadata store agree on it.

The same cookie is stored in the metadata store and in `<directory>/current/VERSION` of every journal, ledger and index
directory. Decision table (source: reference 7.11, safer by I-70 and I-71):

    store     directories                          result
    absent    all unused                           new bookie: stamp the directories, durably, then the store
    absent    anything else                        refuse: the store forgot us, or this is somebody else's data
    present   all stamped, all fields equal        go on
    present   new ones unused, expansion allowed   stamp all with the larger cookie, then the store, by compare-and-set
    present   some not stamped otherwise           refuse: their data is gone (I-71)
    any       a field differs                      refuse, naming directory, field, both values and the remedy

Unused: nothing in `current`, or nothing but the very cookie that we would write (a first start that was cut short).
"""

from __future__ import annotations

import enum
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.addresses import is_loopback
from bookkeeper.config import ServerSettings
from bookkeeper.errors import ConfigurationError, CookieMismatch, DirectoryUnusable, StorageError
from bookkeeper.filesystem import FileSystem, Lock, read_whole, replace_durable
from bookkeeper.metadata.cookie import Cookie, parse_cookie
from bookkeeper.metadata.store import Cookies
from bookkeeper.model import BookieId, Versioned

VERSION_FILE = "VERSION"
LOCK_FILE = "bookie.lock"
COOKIE_SIZE_MAX = 1024 * 1024
_PLAIN_LAYOUT = 3
_OWN_NAMES = frozenset({VERSION_FILE, VERSION_FILE + ".tmp", LOCK_FILE})


# --- id -------------------------------------------------------------------------------------------------------------


def advertised_host(settings: ServerSettings, interface_address: str) -> str:
    """The host that clients are told: advertisedAddress, this host's name, or the address of the interface.

    Raises ConfigurationError for a loopback address that was not allowed: from another machine it would lead nowhere,
    and bookies of several machines would have the same id.
    """
    if settings.advertised_address:
        return settings.advertised_address
    host = interface_address
    if settings.use_host_name_as_bookie_id:
        host = socket.getfqdn(interface_address) if not is_loopback(interface_address) else socket.getfqdn()
        if settings.use_short_host_name:
            host = host.partition(".")[0]
    if is_loopback(interface_address) and not settings.allow_loopback:
        raise ConfigurationError(
            f"the bookie would advertise {host} ({interface_address}), which only this machine can reach: set "
            "advertisedAddress or listeningInterface, or allowLoopback=true for a cluster on one machine"
        )
    return host


def bookie_id_of(settings: ServerSettings, host: str, port: int) -> BookieId:
    """bookieId as configured, or host:port. Raises ConfigurationError for characters an id must not have."""
    if settings.bookie_id is not None:
        return BookieId(settings.bookie_id)
    bookie_id = f"{host}:{port}"
    if not set(bookie_id) <= _ID_CHARACTERS:
        raise ConfigurationError(
            f"{bookie_id!r} cannot be a bookie id: only letters, digits, '.', '-', '_', ':' are allowed. "
            "Set bookieId or advertisedAddress"
        )
    return BookieId(bookie_id)


# The reference's class [a-zA-Z0-9:-_.\-], in which `:-_` is a range.
_ID_CHARACTERS = frozenset(
    [chr(code) for code in range(ord("a"), ord("z") + 1)]
    + [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    + [chr(code) for code in range(ord(":"), ord("_") + 1)]
    + list("0123456789.-")
)


def other_ids(settings: ServerSettings, bookie_id: BookieId, interface_address: str, port: int) -> list[BookieId]:
    """The ids this bookie would have under other settings of the id's form; a cookie under one of them is ours."""
    if settings.bookie_id is not None:
        return []
    hosts = [interface_address, socket.gethostname(), socket.getfqdn()]
    if settings.advertised_address:
        hosts.append(settings.advertised_address)
    ids = dict.fromkeys(BookieId(f"{host}:{port}") for host in hosts)
    ids.pop(bookie_id, None)
    return list(ids)


# --- directories ----------------------------------------------------------------------------------------------------


class DirectoryKind(enum.Enum):
    """What a directory is used for; the names are the configuration's."""

    JOURNAL = "journalDirectories"
    LEDGER = "ledgerDirectories"
    INDEX = "indexDirectories"


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """What was found in `<path>/current`. cookie: None without a VERSION file. empty: nothing else is there."""

    path: str
    kind: DirectoryKind
    cookie: Cookie | None
    empty: bool


def expected_cookie(settings: ServerSettings, bookie_id: BookieId, instance_id: str) -> Cookie:
    """The cookie that configuration and cluster call for."""
    return Cookie(
        bookie_id,
        tuple(map(str, settings.journal_directories)),
        tuple(map(str, settings.ledger_directories)),
        instance_id,
        tuple(map(str, settings.index_directories)),
    )


def directories_of(cookie: Cookie) -> dict[str, DirectoryKind]:
    """Every directory of a bookie, each once, under the first use it has."""
    kinds: dict[str, DirectoryKind] = {}
    for kind, paths in (
        (DirectoryKind.JOURNAL, cookie.journal_dirs),
        (DirectoryKind.LEDGER, cookie.ledger_dirs),
        (DirectoryKind.INDEX, cookie.index_dirs or ()),
    ):
        for path in paths:
            kinds.setdefault(path, kind)
    return kinds


def inspect_directories(fs: FileSystem, kinds: Mapping[str, DirectoryKind]) -> list[DirectoryState]:
    """Look into each directory. Raises MetadataCorrupt or MetadataTooNew for a cookie that cannot be read, OSError."""
    states = []
    for path, kind in kinds.items():
        current = os.path.join(path, "current")
        names = set(fs.listdir(current)) if fs.is_dir(current) else set()
        cookie = None
        if VERSION_FILE in names:
            version_path = os.path.join(current, VERSION_FILE)
            cookie = parse_cookie(read_whole(fs, version_path, size_max=COOKIE_SIZE_MAX), version_path)
        states.append(DirectoryState(path, kind, cookie, not names - _OWN_NAMES))
    return states


def lock_directories(fs: FileSystem, kinds: Mapping[str, DirectoryKind]) -> list[Lock]:
    """Make each directory and take its lock, so that no second process uses it (I-52).

    Raises DirectoryInUse, or DirectoryUnusable when one cannot be made or written; locks taken so far are released.
    """
    locks: list[Lock] = []
    try:
        for directory, kind in kinds.items():
            locks.append(_lock_directory(fs, directory, kind))
    except StorageError:
        for lock in locks:
            lock.release()
        raise
    return locks


def _lock_directory(fs: FileSystem, directory: str, kind: DirectoryKind) -> Lock:
    try:
        fs.make_dirs(os.path.join(directory, "current"))
        return fs.lock(os.path.join(directory, "current", LOCK_FILE))
    except OSError as error:
        where = error.filename or directory
        raise DirectoryUnusable(
            f"{kind.value} names {directory}, which cannot be used: {error.strerror} ({where}). It must be a directory "
            f"that this user may write: create it, change its owner, or set {kind.value} to another one"
        ) from error


# --- decision -------------------------------------------------------------------------------------------------------


class Verdict(enum.Enum):
    """What the comparison of store and directories allows."""

    NEW = "stamp directories and store, and start empty"
    KNOWN = "go on"
    EXPAND = "stamp the larger cookie, and go on"


def verify(
    expected: Cookie, stored: Cookie | None, found: Sequence[DirectoryState], *, expansion_allowed: bool
) -> Verdict:
    """Compare as in the table above. Pure. Raises CookieMismatch, saying what differs and what to do."""
    if stored is None:
        _verify_new(expected, found)
        return Verdict.NEW
    where = "the metadata store"
    expands = _compare(expected, stored, where, expansion_allowed=expansion_allowed)
    for state in found:
        if state.cookie is not None:
            known = _compare(expected, state.cookie, state.path, expansion_allowed=expansion_allowed)
            expands = expands or known
    known_dirs = directories_of(stored)
    for state in found:
        if state.cookie is None and (state.path in known_dirs or not state.empty or not expands):
            raise CookieMismatch(_missing_cookie(state, expected.bookie_id))
    return Verdict.EXPAND if expands else Verdict.KNOWN


def _verify_new(expected: Cookie, found: Sequence[DirectoryState]) -> None:
    for state in found:
        if state.cookie is not None and state.cookie != expected:
            _compare(expected, state.cookie, state.path, expansion_allowed=False)
        if not state.empty:
            stamp = "a cookie and data" if state.cookie is not None else "data but no cookie"
            raise CookieMismatch(
                f"bookie {expected.bookie_id} has no cookie in the metadata store, but {state.kind.value} {state.path} "
                f"holds {stamp}. If the store lost the cookie, restore it (cookie_create -cookie-file "
                f"{state.path}/current/{VERSION_FILE} {expected.bookie_id}); to start a new, empty bookie, "
                "give it empty directories"
            )


def _missing_cookie(state: DirectoryState, bookie_id: BookieId) -> str:
    content = "is empty" if state.empty else "has data but no cookie"
    return (
        f"bookie {bookie_id} is known to the metadata store, but {state.kind.value} {state.path} {content}: what it "
        "acknowledged may be missing, so it must not answer. Mount or restore the right directory. If its data is gone "
        "for good: re-replicate the bookie's ledgers, delete its cookie (cookie_delete) and start with empty "
        "directories. If the directory was added on purpose: empty it and set allowStorageExpansion=true"
    )


def _compare(expected: Cookie, found: Cookie, where: str, *, expansion_allowed: bool) -> bool:
    """True when `expected` has directories more than `found`; raises CookieMismatch for any other difference."""
    found_index = found.index_dirs if found.index_dirs is not None else found.ledger_dirs
    expected_index = expected.index_dirs if expected.index_dirs is not None else expected.ledger_dirs
    expands = False
    for field, wanted, there, may_grow in (
        ("bookie id", (expected.bookie_id,), (found.bookie_id,), False),
        ("journalDirectories", expected.journal_dirs, found.journal_dirs, False),
        ("ledgerDirectories", expected.ledger_dirs, found.ledger_dirs, True),
        ("indexDirectories", expected_index, found_index, True),
        ("cluster instance id", (expected.instance_id or "",), (found.instance_id or "",), False),
    ):
        if wanted == there or (field.startswith("cluster") and _predates_instances(found)):
            continue
        if may_grow and expansion_allowed and set(wanted) > set(there):
            expands = True
            continue
        raise CookieMismatch(_difference(where, field, wanted, there))
    return expands


def _predates_instances(cookie: Cookie) -> bool:
    return cookie.layout_version == _PLAIN_LAYOUT and cookie.instance_id is None


def _difference(where: str, field: str, wanted: Sequence[str], there: Sequence[str]) -> str:
    if field == "bookie id":
        remedy = (
            "the directory belongs to another bookie, or this one's address changed: use its own directories, "
            "or set bookieId to the old id"
        )
    elif field == "cluster instance id":
        remedy = "the directory belongs to another cluster: check metadataServiceUri and the directories"
    else:
        remedy = (
            f"set {field} as in the cookie (order counts); to add directories, append empty ones and set "
            "allowStorageExpansion=true"
        )
    return f"the cookie in {where} says {field} {','.join(there)!r}, this bookie has {','.join(wanted)!r}: {remedy}"


# --- establishing ---------------------------------------------------------------------------------------------------


async def check_known(cookies: Cookies, expected: Cookie, *, expansion_allowed: bool) -> None:
    """Refuse settings that differ from the cookie in the store, before a directory that they name is made.

    `establish` looks at everything again once the directories are locked. Raises CookieMismatch, MetadataCorrupt,
    MetadataTooNew, MetadataUnavailable.
    """
    stored = await cookies.read(expected.bookie_id)
    if stored is not None:
        known = parse_cookie(stored.value, f"cookie of {expected.bookie_id}")
        _compare(expected, known, "the metadata store", expansion_allowed=expansion_allowed)


async def establish(
    fs: FileSystem, cookies: Cookies, expected: Cookie, alternatives: Sequence[BookieId], *, expansion_allowed: bool
) -> Verdict:
    """Check identity and, for a new or growing bookie, stamp it: directories first, durably, then the store.

    The directories must be locked. Raises CookieMismatch, MetadataCorrupt, MetadataTooNew, MetadataUnavailable,
    OSError.
    """
    stored = await cookies.read(expected.bookie_id)
    found = inspect_directories(fs, directories_of(expected))
    if stored is None:
        for other in alternatives:
            if await cookies.read(other) is not None:
                raise CookieMismatch(
                    f"this bookie would be {expected.bookie_id}, but the metadata store knows it as {other}: "
                    "its id must not change. Set bookieId or advertisedAddress so that it stays the same"
                )
    parsed = None if stored is None else parse_cookie(stored.value, f"cookie of {expected.bookie_id}")
    verdict = verify(expected, parsed, found, expansion_allowed=expansion_allowed)
    if verdict is not Verdict.KNOWN:
        await _stamp(fs, cookies, expected, found, stored)
    return verdict


async def _stamp(
    fs: FileSystem,
    cookies: Cookies,
    cookie: Cookie,
    found: Sequence[DirectoryState],
    stored: Versioned[bytes] | None,
) -> None:
    data = cookie.format()
    for state in found:
        path = os.path.join(state.path, "current", VERSION_FILE)
        if state.cookie != cookie:
            replace_durable(fs, path, data)  # never torn, so that a first start that was cut short can be repeated
    await cookies.write(cookie.bookie_id, data, None if stored is None else stored.version)
