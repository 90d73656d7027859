"""Whether cookies allow a start: the comparison of settings, metadata store and directories. Pure.

Decision table (source: bookkeeper/bookie/FORMATS.md 3.3; I-70, I-71):

    store     directories                          result
    absent    all unused                           new bookie: stamp the directories, durably, then the store
    absent    anything else                        refuse: the store forgot us, or this is somebody else's data
    present   all stamped, all fields equal        go on
    present   new ones unused, expansion allowed   stamp all with the larger cookie, then the store, by compare-and-set
    present   some not stamped otherwise           refuse: their data is gone (I-71)
    any       a field differs                      refuse, naming directory, field, both values and the remedy

Unused: nothing in `current`, or nothing but the very cookie that we would write (a first start that was cut short).
Every refusal says whose the thing is, bookie and cluster, and who asks: with several clusters on one machine a disk
mounted at the wrong place is the usual cause.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bookkeeper.errors import CookieMismatch, MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie

VERSION_FILE = "VERSION"
_PLAIN_LAYOUT = 3
_BOOKIE_ID, _INSTANCE_ID = "bookie id", "cluster instance id"


def stored_cookie(data: bytes, own: Cookie) -> Cookie:
    """Return the cookie of the metadata store. own: the bookie's own one; its directories have copies.

    Raises MetadataTooNew, and MetadataCorrupt with the command that restores the cookie.
    """
    try:
        return parse_cookie(data, f"cookie of {own.bookie_id}")
    except MetadataTooNew:
        raise
    except MetadataCorrupt as error:
        directory = (*own.journal_dirs, "DIRECTORY")[0]
        raise MetadataCorrupt(
            f"{error}; to restore it from the bookie's copy, on its host: "
            f"bookkeeper shell cookie_update -cookie-file {directory}/current/{VERSION_FILE} {own.bookie_id}"
        ) from error


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


class Verdict(enum.Enum):
    """What the comparison of store and directories allows."""

    NEW = "stamp directories and store, and start empty"
    KNOWN = "go on"
    EXPAND = "stamp the larger cookie, and go on"


def verify(
    expected: Cookie,
    stored: Cookie | None,
    found: Sequence[DirectoryState],
    *,
    expansion_allowed: bool,
    cluster_uri: str,
) -> Verdict:
    """Compare as in the table above. Raises CookieMismatch, saying what differs and what to do.

    cluster_uri: where the metadata store is, for messages.
    """
    if stored is None:
        _verify_new(expected, found, cluster_uri)
        return Verdict.NEW
    expands = compare(
        expected, stored, "the metadata store", expansion_allowed=expansion_allowed, cluster_uri=cluster_uri
    )
    for state in found:
        if state.cookie is not None:
            larger = compare(
                expected, state.cookie, state.path, expansion_allowed=expansion_allowed, cluster_uri=cluster_uri
            )
            expands = expands or larger
    known_dirs = directories_of(stored)
    for state in found:
        if state.cookie is None and (state.path in known_dirs or not state.empty or not expands):
            raise CookieMismatch(_missing_cookie(state, expected, cluster_uri))
    return Verdict.EXPAND if expands else Verdict.KNOWN


def owner(cookie: Cookie) -> str:
    """Whose cookie it is: bookie and cluster."""
    if cookie.instance_id is None:
        return f"bookie {cookie.bookie_id} of a cluster that the cookie does not name"
    return f"bookie {cookie.bookie_id} of cluster {cookie.instance_id}"


def differences(expected: Cookie, found: Cookie) -> Iterator[tuple[str, str, str]]:
    """(field, expected value, found value) of every field in which two cookies differ."""
    for field, wanted, there in _fields(expected, found):
        if wanted != there:
            yield field, ",".join(wanted), ",".join(there)


def compare(expected: Cookie, found: Cookie, where: str, *, expansion_allowed: bool, cluster_uri: str) -> bool:
    """True when `expected` has directories more than `found`; raises CookieMismatch for any other difference."""
    expands = False
    for field, wanted, there in _fields(expected, found):
        if wanted == there:
            continue
        if expansion_allowed and field in _MAY_GROW and set(wanted) > set(there):
            expands = True
            continue
        raise CookieMismatch(_mismatch(expected, found, where, (field, wanted, there), cluster_uri))
    return expands


def check_owner(expected: Cookie, state: DirectoryState, cluster_uri: str) -> None:
    """Raise CookieMismatch for a directory with the cookie of another bookie or cluster, whatever else differs."""
    for field, wanted, there in () if state.cookie is None else _whose(expected, state.cookie):
        if wanted != there:
            assert state.cookie is not None
            raise CookieMismatch(_mismatch(expected, state.cookie, state.path, (field, wanted, there), cluster_uri))


def _mismatch(
    expected: Cookie, found: Cookie, where: str, differing: tuple[str, tuple[str, ...], tuple[str, ...]], uri: str
) -> str:
    field, wanted, there = differing
    return (
        f"the cookie in {where} says {field} {','.join(there)!r}, this bookie has {','.join(wanted)!r}: "
        f"{_remedy(field)}. The cookie is that of {owner(found)}; this is {_asker(expected, uri)}"
    )


_MAY_GROW = frozenset({DirectoryKind.LEDGER.value, DirectoryKind.INDEX.value})


def _fields(expected: Cookie, found: Cookie) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Field, its expected and its found value; first those that say that the whole thing is somebody else's."""
    yield from _whose(expected, found)
    yield DirectoryKind.JOURNAL.value, expected.journal_dirs, found.journal_dirs
    yield DirectoryKind.LEDGER.value, expected.ledger_dirs, found.ledger_dirs
    yield DirectoryKind.INDEX.value, _index_dirs(expected), _index_dirs(found)


def _whose(expected: Cookie, found: Cookie) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    predates_instances = found.layout_version == _PLAIN_LAYOUT and found.instance_id is None
    if not predates_instances:
        yield _INSTANCE_ID, (expected.instance_id or "",), (found.instance_id or "",)
    yield _BOOKIE_ID, (expected.bookie_id,), (found.bookie_id,)


def _index_dirs(cookie: Cookie) -> tuple[str, ...]:
    return cookie.ledger_dirs if cookie.index_dirs is None else cookie.index_dirs


def _remedy(field: str) -> str:
    if field == _BOOKIE_ID:
        return (
            "the directory belongs to another bookie, or this one's address changed: use its own directories, "
            "or set bookieId to the old id"
        )
    if field == _INSTANCE_ID:
        return "it belongs to another cluster, or the cluster was formatted: check metadataServiceUri and directories"
    return (
        f"set {field} as in the cookie (order counts); if a directory was moved or renamed on purpose, with all of its "
        "files: `bookkeeper shell --conf FILE updatecookie -moved`; to add directories, append empty ones and set "
        "allowStorageExpansion=true, or run `bookkeeper shell --conf FILE updatecookie -expandstorage` once"
    )


def _asker(expected: Cookie, cluster_uri: str) -> str:
    return f"{owner(expected)} ({cluster_uri})"


def _verify_new(expected: Cookie, found: Sequence[DirectoryState], cluster_uri: str) -> None:
    for state in found:
        if state.cookie is not None and state.cookie != expected:
            compare(expected, state.cookie, state.path, expansion_allowed=False, cluster_uri=cluster_uri)
        if not state.empty:
            stamp = "a cookie and data" if state.cookie is not None else "data but no cookie"
            raise CookieMismatch(
                f"bookie {expected.bookie_id} has no cookie in the metadata store of cluster {expected.instance_id} "
                f"({cluster_uri}), but {state.kind.value} {state.path} holds {stamp}. If it was decommissioned, "
                "which deletes the cookie, no ledger needs these files: to start a new, empty bookie, give it empty "
                "directories. If the store lost the cookie, restore it (cookie_create -cookie-file "
                f"{state.path}/current/{VERSION_FILE} {expected.bookie_id})"
            )


def _missing_cookie(state: DirectoryState, expected: Cookie, cluster_uri: str) -> str:
    content = "is empty" if state.empty else "has data but no cookie"
    return (
        f"{_asker(expected, cluster_uri)} is known to the metadata store, but {state.kind.value} {state.path} "
        f"{content}: what it acknowledged may be missing, so it must not answer. Mount or restore the right directory. "
        "If its data is gone for good: re-replicate the bookie's ledgers, delete its cookie (cookie_delete) and start "
        "with empty directories. If the directory was added on purpose: empty it and set allowStorageExpansion=true, "
        "or run `bookkeeper shell --conf FILE updatecookie -expandstorage` once"
    )
