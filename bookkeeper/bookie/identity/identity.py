"""Who this bookie is, and proof that its directories and the metadata store agree on it.

The same cookie is stored in the metadata store and in `<directory>/current/VERSION` of every journal, ledger and index
directory. What their comparison allows: `cookie_rules`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, Sequence

from bookkeeper.bookie.identity.cookie_rules import (
    VERSION_FILE,
    DirectoryKind,
    DirectoryState,
    Verdict,
    check_owner,
    compare,
    directories_of,
    owner,
    stored_cookie,
    verify,
)
from bookkeeper.config import ServerSettings
from bookkeeper.errors import (
    ConfigurationError,
    CookieMismatch,
    DirectoryUnusable,
    MetadataError,
    NotInitialised,
    StorageError,
)
from bookkeeper.filesystem import FileSystem, Lock, read_whole, replace_durable
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.store import Cookies, MetadataStore
from bookkeeper.model import BookieId
from bookkeeper.system.addresses import THIS_MACHINE, Machine, is_loopback, own_address, routable_addresses
from bookkeeper.system.hosts import read_as_number

__all__ = [
    "LOCK_FILE",
    "VERSION_FILE",
    "DirectoryKind",
    "DirectoryState",
    "Verdict",
    "advertised_host",
    "bookie_id_of",
    "check_known",
    "check_still_known",
    "directories_of",
    "establish",
    "expected_cookie",
    "inspect_directories",
    "inspect_directory",
    "lock_directories",
    "other_ids",
    "stamp",
]

LOCK_FILE = "bookie.lock"
COOKIE_SIZE_MAX = 1024 * 1024
_OWN_NAMES = frozenset({VERSION_FILE, VERSION_FILE + ".tmp", LOCK_FILE})


# --- id -------------------------------------------------------------------------------------------------------------


def advertised_host(settings: ServerSettings, machine: Machine = THIS_MACHINE) -> str:
    """Return the host for clients: advertisedAddress, this host's name, or the address of the interface or the name.

    Nothing is looked up if advertisedAddress is set. Raises ConfigurationError for a loopback address that is not
    allowed: other machines could not connect to it, and bookies on several machines would have the same id.
    """
    if settings.advertised_address:
        return settings.advertised_address
    address = own_address(settings.listening_interface, machine)
    host = address
    if settings.use_host_name_as_bookie_id:
        host = socket.getfqdn(address) if not is_loopback(address) else socket.getfqdn()
        if settings.use_short_host_name and host != address:
            host = host.partition(".")[0]
        if (number := read_as_number(host)) is not None:
            raise ConfigurationError(
                f"the bookie would advertise the host name {host!r}, a number, which would be read as the address "
                f"{number}: set advertisedAddress, or useHostNameAsBookieID=false"
            )
    if is_loopback(address) and not settings.allow_loopback:
        other = "listeningInterface" if settings.listening_interface is None else "another listeningInterface"
        raise ConfigurationError(
            f"the bookie would advertise {host} ({address}), which only this machine can reach: set advertisedAddress "
            f"or {other}, or allowLoopback=true for a cluster on one machine"
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


# The class of bookkeeper/wire/FORMATS.md 4.6, [a-zA-Z0-9:-_.\-], in which `:-_` is a range.
_ID_CHARACTERS = frozenset(
    [chr(code) for code in range(ord("a"), ord("z") + 1)]
    + [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    + [chr(code) for code in range(ord(":"), ord("_") + 1)]
    + list("0123456789.-")
)


def other_ids(
    settings: ServerSettings, bookie_id: BookieId, port: int, machine: Machine = THIS_MACHINE
) -> list[BookieId]:
    """Return the ids of this bookie under other settings for the form of an id. A cookie with such an id is its own.

    With advertisedAddress the addresses come from the interfaces, since the name of the host may have no address.
    """
    if settings.bookie_id is not None:
        return []
    if settings.advertised_address:
        own = routable_addresses(machine)
        if settings.listening_interface is not None:
            own = [own_address(settings.listening_interface, machine)]
        hosts = [*own, machine.name]
    else:
        hosts = [own_address(settings.listening_interface, machine), machine.name, socket.getfqdn()]
    ids = dict.fromkeys(BookieId(f"{host}:{port}") for host in hosts)
    ids.pop(bookie_id, None)
    return list(ids)


# --- directories ----------------------------------------------------------------------------------------------------


def expected_cookie(settings: ServerSettings, bookie_id: BookieId, instance_id: str) -> Cookie:
    """The cookie that configuration and cluster call for."""
    return Cookie(
        bookie_id,
        tuple(map(str, settings.journal_directories)),
        tuple(map(str, settings.ledger_directories)),
        instance_id,
        tuple(map(str, settings.index_directories)),
    )


def inspect_directories(fs: FileSystem, kinds: Mapping[str, DirectoryKind]) -> list[DirectoryState]:
    """Look into each directory. Raises MetadataCorrupt or MetadataTooNew for a cookie that cannot be read, OSError."""
    return [inspect_directory(fs, path, kind) for path, kind in kinds.items()]


def inspect_directory(fs: FileSystem, path: str, kind: DirectoryKind) -> DirectoryState:
    """Look into one. Raises MetadataCorrupt or MetadataTooNew for a cookie that cannot be read, OSError."""
    current = os.path.join(path, "current")
    names = set(fs.listdir(current)) if fs.is_dir(current) else set()
    cookie = None
    if VERSION_FILE in names:
        version_path = os.path.join(current, VERSION_FILE)
        cookie = parse_cookie(read_whole(fs, version_path, size_max=COOKIE_SIZE_MAX), version_path)
    return DirectoryState(path, kind, cookie, not names - _OWN_NAMES)


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


# --- establishing ---------------------------------------------------------------------------------------------------


async def check_known(
    fs: FileSystem, cookies: Cookies, expected: Cookie, *, expansion_allowed: bool, cluster_uri: str
) -> None:
    """Refuse settings that differ from the cookie in the store, before a directory that they name is made.

    A directory that is another bookie's or cluster's is said first: then it is the wrong one, and was not moved.
    `establish` looks at everything again once the directories are locked. Raises CookieMismatch, MetadataCorrupt,
    MetadataTooNew, MetadataUnavailable.
    """
    stored = await cookies.read(expected.bookie_id)
    if stored is not None:
        known = stored_cookie(stored.value, expected)
        try:
            compare(expected, known, "the metadata store", expansion_allowed=expansion_allowed, cluster_uri=cluster_uri)
        except CookieMismatch:
            for path, kind in directories_of(expected).items():
                with contextlib.suppress(OSError, MetadataError):  # what cannot be read: the store's word has to do
                    check_owner(expected, inspect_directory(fs, path, kind), cluster_uri)
            raise


async def check_still_known(store: MetadataStore, cookie: Cookie) -> None:
    """Raise CookieMismatch if the metadata store no longer has this bookie's cookie and cluster.

    Called before a new session registers: a bookie registered in an emptied store would get new ledgers, while the
    store lists none of those that it holds. Raises MetadataUnavailable, MetadataError.
    """
    where = store.description
    try:
        instance_id = await store.admin.instance_id()
    except NotInitialised as error:
        raise CookieMismatch(_not_the_store(cookie, f"{where} has no cluster")) from error
    if instance_id != cookie.instance_id:
        raise CookieMismatch(_not_the_store(cookie, f"{where} has the cluster {instance_id}, not {cookie.instance_id}"))
    stored = await store.cookies.read(BookieId(cookie.bookie_id))
    if stored is None:
        raise CookieMismatch(_not_the_store(cookie, f"{where} has no cookie of this bookie"))
    known = stored_cookie(stored.value, cookie)
    try:
        compare(cookie, known, "the metadata store", expansion_allowed=False, cluster_uri=where)
    except CookieMismatch as error:
        raise CookieMismatch(_not_the_store(cookie, f"{where} has another cookie of this bookie")) from error


def _not_the_store(cookie: Cookie, what: str) -> str:
    return (
        f"bookie {cookie.bookie_id} does not register again: {what}. The metadata was emptied, or restored from a copy "
        "that is older than this bookie's cookie; restore a newer copy, then start the bookie. Its ledgers are kept"
    )


async def establish(
    fs: FileSystem,
    cookies: Cookies,
    expected: Cookie,
    alternatives: Sequence[BookieId],
    *,
    expansion_allowed: bool,
    cluster_uri: str,
) -> Verdict:
    """Check identity and, for a new or growing bookie, stamp it: directories first, durably, then the store.

    The directories must be locked. cluster_uri: where the metadata store is, for messages. Raises CookieMismatch,
    MetadataCorrupt, MetadataTooNew, MetadataUnavailable, OSError.
    """
    stored = await cookies.read(expected.bookie_id)
    found = inspect_directories(fs, directories_of(expected))
    if stored is None:
        for other in alternatives:
            if await cookies.read(other) is not None:
                raise CookieMismatch(
                    f"this is {owner(expected)} ({cluster_uri}), which has no cookie, but the metadata store knows it "
                    f"as {other}: its id must not change. Set bookieId or advertisedAddress so that it stays the same, "
                    "or rename it for good (updatecookie -bookieId, then updateledgers -bookieId)"
                )
    parsed = None if stored is None else stored_cookie(stored.value, expected)
    verdict = verify(expected, parsed, found, expansion_allowed=expansion_allowed, cluster_uri=cluster_uri)
    if verdict is not Verdict.KNOWN:
        stamp(fs, expected, found)
        version = None if stored is None else stored.version
        await cookies.write(expected.bookie_id, expected.format(), version)
    return verdict


def stamp(fs: FileSystem, cookie: Cookie, found: Sequence[DirectoryState]) -> None:
    """Give every directory this cookie, durably; never torn, so that what was cut short can be repeated."""
    data = cookie.format()
    for state in found:
        current = os.path.join(state.path, "current")
        if state.cookie != cookie:
            replace_durable(fs, os.path.join(current, VERSION_FILE), data)
        else:
            fs.sync_dir(current)  # whoever was killed while stamping it may have left the name unsynced (I-49)
