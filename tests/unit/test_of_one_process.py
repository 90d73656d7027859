"""Pickling clients, handles or journals fails with what to pass to another process instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces import aio, blocking
from bookkeeper.client.faces.process_objects import AsyncPieces, Pieces
from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.client.read.stream import EntryStream, LedgerTail, PayloadStream
from bookkeeper.client.write.chosen_ids import AdvancedWriteHandle
from bookkeeper.client.write.write_handle import WriteHandle
from hedwig.client.client import Publisher, PubSubClient
from hedwig.client.faces.aio import AsyncClient, AsyncPublisher, AsyncSubscription
from hedwig.client.faces.blocking import BlockingClient, BlockingPublisher, BlockingSubscription
from hedwig.client.subscriptions.subscription import Subscription
from journalmgr.aio import AsyncMember
from journalmgr.edit_log import EditLog
from journalmgr.files.journal import FileJournal
from journalmgr.group import Member
from journalmgr.journal_set import JournalSet
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.replica import Replica

LEDGERS = [
    *[LedgerClient, WriteHandle, AdvancedWriteHandle, ReadHandle, EntryStream, PayloadStream, LedgerTail],
    *[aio.BookKeeper, aio.AsyncWriteHandle, aio.AsyncAdvancedWriteHandle, aio.AsyncReadHandle, AsyncPieces],
    *[blocking.BlockingBookKeeper, blocking.BlockingWriteHandle, blocking.BlockingAdvancedWriteHandle],
    *[blocking.BlockingReadHandle, Pieces],
]
HUBS = [
    *[PubSubClient, Publisher, Subscription, AsyncClient, AsyncPublisher, AsyncSubscription],
    *[BlockingClient, BlockingPublisher, BlockingSubscription],
]
JOURNALS = [Member, Replica, AsyncMember, EditLog, LedgerJournal, FileJournal, JournalSet]


@pytest.mark.parametrize(
    ("kind", "passed"),
    [
        *[(kind, "the metadataServiceUri, the ClientSettings") for kind in LEDGERS],
        *[(kind, "the hubs' addresses and the HedwigClientSettings") for kind in HUBS],
        *[(kind, "the journal's URI and") for kind in JOURNALS],
    ],
)
@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_names_what_to_pass_instead(kind: type, passed: str, how: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__}: cannot be pickled or copied.* pass {passed}.* instead, and"):
        how(object.__new__(kind))
