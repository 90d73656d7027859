"""What tasks of an export are told of its ledgers, by whichever server of the metadata store they have come to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from twisted.internet.defer import Deferred, succeed

from bookkeeper.config import ClientSettings
from bookkeeper.errors import NoSuchLedger
from bookkeeper.model import BookieId, DigestType, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.spark.exports import chosen
from bookkeeper.spark.exports.chosen import PLANNED, looking
from bookkeeper.spark.exports.options import EXPORT, ExportOptions
from bookkeeper.spark.options.tables import read_options
from bookkeeper.wire.digest import digest_of
from bookkeeper.wire.messages import ReadLac
from tests.support.fake_bookie import HOLD, FakeCluster

FRAGMENTS = (Fragment(EntryId(0), (BookieId("a:3181"),)),)
OPEN = LedgerMetadata(1, 1, 1, FRAGMENTS)
CLOSED = LedgerMetadata(1, 1, 1, FRAGMENTS, LedgerState.CLOSED, EntryId(4), 50)


class LaggingServer:
    """The client of a task, whose server shows what was written since only after a sync: a close, a new ledger."""

    def __init__(self) -> None:
        self.store = self
        self._is_current = False

    def sync(self) -> Deferred[None]:
        self._is_current = True
        return succeed(None)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        if not self._is_current and ledger_id == 2:
            raise NoSuchLedger("made just now", ledger_id=2)
        return CLOSED if self._is_current else OPEN

    def run(self, ask: Callable[[Any], Deferred[Any]]) -> object:
        found: list[object] = []
        ask(self).addCallback(found.append)
        return found[0]


def test_a_ledger_that_was_made_or_closed_just_before_is_exported_whatever_server_a_task_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = LaggingServer()
    monkeypatch.setattr(chosen, "client_of", lambda _: server)
    options = read_options(ExportOptions, {"uri": "zk://a/ledgers"}, where=EXPORT)
    ids = pa.RecordBatch.from_pydict({"ledger_id": [1, 2]})
    [batch] = looking(options)(iter([ids]))
    rows = [(row["ledger_id"], row["status"], row["last_entry_id"]) for row in batch.to_pylist()]
    assert rows == [(1, PLANNED, 4), (2, PLANNED, 4)]


@pytest.mark.parametrize("closed", [False, True])
def test_an_open_ledger_names_the_entries_that_are_left_out(monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    cluster = FakeCluster()
    client = cluster.client(ClientSettings(explicit_lac_interval_s=0.0))
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=2, ack_quorum=2))
    for number in range(10):
        cluster.wait(ledger.append(b"%d" % number))
    if closed:
        cluster.wait(ledger.close())
    monkeypatch.setattr(chosen, "client_of", lambda _: SimpleNamespace(run=lambda start: cluster.wait(start(client))))
    options = read_options(ExportOptions, {"uri": "zk://a/ledgers", "open": "true"}, where=EXPORT)
    ids = pa.RecordBatch.from_pydict({"ledger_id": [ledger.id]})
    [row] = next(looking(options)(iter([ids]))).to_pylist()
    assert (row["status"], row["last_entry_id"]) == (PLANNED, 9 if closed else 8)
    assert row["why"] == "" if closed else row["why"].endswith("entry 9 is stored and may be acknowledged too")


def test_an_open_ledger_is_exported_as_far_as_late_answers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one bookie knows that entry 9 is confirmed. It answers after the opening has its covering set."""
    cluster = FakeCluster()
    client = cluster.client(ClientSettings(explicit_lac_interval_s=0.0))
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=3, ack_quorum=2))
    for number in range(10):
        cluster.wait(ledger.append(b"%d" % number))
    slow, asked = cluster.bookies[0], []
    bodies, _ = digest_of(DigestType.CRC32C, b"").package(ledger.id, 10, 9, 10, [b"10"])
    slow.entries[ledger.id][10] = bodies[0]

    def rule(request: object) -> object:
        if isinstance(request, ReadLac):
            asked.append(request)
            if len(asked) == 1:
                return HOLD
            slow.release()
        return None

    slow.rule = rule
    monkeypatch.setattr(chosen, "client_of", lambda _: SimpleNamespace(run=lambda start: cluster.wait(start(client))))
    options = read_options(ExportOptions, {"uri": "zk://a/ledgers", "open": "true"}, where=EXPORT)
    ids = pa.RecordBatch.from_pydict({"ledger_id": [ledger.id]})
    [row] = next(looking(options)(iter([ids]))).to_pylist()
    assert row["last_entry_id"] == 9
