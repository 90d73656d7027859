"""Open a journal by its URI: the scheme names the implementation, found by entry point.

    [project.entry-points."journalmgr.journals"]
    bookkeeper = "journalmgr.ledger.opening:open_journal"
    file = "journalmgr.files.opening:open_journal"

A distribution of somebody else adds its scheme the same way; the callable is an OpenJournal. Hadoop's counterpart are
the keys dfs.namenode.edits.journal-plugin.SCHEME.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError, InvalidArgument
from journalmgr.contract import JournalManager
from journalmgr.errors import JournalError
from journalmgr.model import NamespaceInfo
from journalmgr.uri import parse_uri

GROUP = "journalmgr.journals"
"""The entry point group; the name of an entry is a URI scheme."""

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):/")


class OpenJournal(Protocol):
    """What an entry point names.

    uri: as it was configured; journalmgr.uri.parse_uri takes it apart. reactor: clock, network and threads are its.
    namespace: what the journal must have been formatted for, checked when it is used; None takes whatever is there.
    options: settings of this kind of journal, by name; unknown names are refused with InvalidArgument.

    Fires with the journal, which the caller closes. Nothing is formatted, and nobody fenced. Fails with InvalidArgument
    for what can never work, with JournalError for the rest.
    """

    def __call__(
        self, uri: str, reactor: Any, namespace: NamespaceInfo | None, options: Mapping[str, Any], /
    ) -> Deferred[JournalManager]:
        """Open it."""


def schemes() -> list[str]:
    """All that are installed, sorted."""
    return sorted({entry.name.lower() for entry in entry_points(group=GROUP)})


def unserved(text: str) -> str | None:
    """Why nothing can be opened at a URI, whatever else is in it: nobody serves its scheme; None where somebody does.

    None also for what has no scheme.
    """
    found = _SCHEME.match(text)
    if found is None or found[1].lower() in (known := schemes()):
        return None
    return f"no journal implementation for the scheme {found[1].lower()!r}; installed are {', '.join(known) or 'none'}"


def open_journal(
    uri: str, reactor: Any, namespace: NamespaceInfo | None, options: Mapping[str, Any] | None = None
) -> Deferred[JournalManager]:
    """The journal of a URI, by whatever implementation is installed for its scheme.

    Fails with InvalidArgument for a URI without an implementation; JournalError names an implementation that broke.
    """
    return Deferred.fromCoroutine(_open(uri, reactor, namespace, options or {}))


async def _open(uri: str, reactor: Any, namespace: NamespaceInfo | None, options: Mapping[str, Any]) -> JournalManager:
    entry = _entry(uri)
    try:
        opening: OpenJournal = entry.load()
        return await opening(uri, reactor, namespace, options)
    except BookKeeperError:
        raise  # says what is wrong
    except Exception as error:
        raise JournalError(
            f"{uri}: the journal implementation {entry.value}{_distribution(entry)} broke: "
            f"{type(error).__name__}: {error}"
        ) from error


def _entry(uri: str) -> EntryPoint:
    if (why := unserved(uri)) is not None:
        raise InvalidArgument(f"{uri}: {why}")
    scheme = parse_uri(uri).scheme
    found = {entry.value: entry for entry in entry_points(group=GROUP) if entry.name.lower() == scheme}
    if len(found) > 1:
        named = " and ".join(f"{value}{_distribution(entry)}" for value, entry in sorted(found.items()))
        raise InvalidArgument(f"{uri}: more than one implementation for the scheme {scheme!r}: {named}; remove one")
    return next(iter(found.values()))


def _distribution(entry: EntryPoint) -> str:
    return f" of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
