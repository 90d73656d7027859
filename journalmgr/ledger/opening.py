"""Open a journal on ledgers from its URI: `bookkeeper://zk1:2181;zk2:2181/path`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from twisted.internet.defer import Deferred, fail

from bookkeeper.errors import InvalidArgument
from journalmgr.contract import JournalManager
from journalmgr.ledger.connecting import connect
from journalmgr.ledger.settings import LedgerJournalSettings
from journalmgr.model import NamespaceInfo
from journalmgr.uri import parse_uri

_SETTINGS = tuple(field.name for field in fields(LedgerJournalSettings))
_CONNECTING = ("client_settings", "hostname", "ledgers_root")
OPTIONS = tuple(sorted((*_CONNECTING, *_SETTINGS)))


def open_journal(
    uri: str, reactor: Any, namespace: NamespaceInfo | None, options: Mapping[str, Any]
) -> Deferred[JournalManager]:
    """See journalmgr.plugins.OpenJournal.

    options: client_settings (a ClientSettings), ledgers_root (the znode of the bookies' cluster, /ledgers unless
    given), hostname (what the journal says of its writer), and the fields of LedgerJournalSettings.
    """
    try:
        where = parse_uri(uri)
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise InvalidArgument(f"{uri}: unknown option {', '.join(unknown)}; known are {', '.join(OPTIONS)}")
        if not where.servers:
            raise InvalidArgument(f"{uri} names no ZooKeeper server: write bookkeeper://zk1:2181;zk2:2181/path")
        connecting = {name: options[name] for name in _CONNECTING if name in options}
        settings = LedgerJournalSettings(**{name: options[name] for name in _SETTINGS if name in options})
    except InvalidArgument:
        return fail()
    opening: Deferred[Any] = connect(
        where.servers, where.path.rstrip("/") or "/", reactor, namespace, settings, **connecting
    )
    return opening
