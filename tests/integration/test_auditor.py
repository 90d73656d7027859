"""Real processes: the auditor is killed together with a bookie, and the next one has everything made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.console.reactor import with_store
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import LedgerId
from tests.support.auto_recovery import LocalAutoRecovery, names, no_marks
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.metadata_contract import Heard
from tests.support.patience import until
from tests.support.zookeeper_sessions import end_dead_session

pytestmark = pytest.mark.timeout(240)

LEDGERS = 20
COUNT = 30


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 4, directory=tmp_path / "cluster", settings=STEADY) as cluster:
        yield cluster


def write(client: BlockingBookKeeper, members: list[str]) -> LedgerId:
    with client.create(ensemble=3, write_quorum=2, ack_quorum=2, bookies=members) as ledger:
        ledger.append_many([b"entry-%d" % number for number in range(COUNT)])
    return LedgerId(ledger.id)


def auditor_of(uri: str) -> str | None:
    async def use(store: MetadataStore) -> str | None:
        return await store.underreplication.current_auditor()

    return with_store(ClientSettings(metadata_service_uri=uri), use)


def await_repaired(uri: str, ids: list[LedgerId], dead: str) -> None:
    """Return once no ledger names the bookie and none is marked; woken by each ledger's metadata and the marks."""

    async def use(store: MetadataStore) -> None:
        from twisted.internet import reactor

        for ledger_id in ids:
            heard = Heard(reactor)
            watch = store.ledgers.watch(ledger_id, heard)
            await heard.until(lambda calls: not names(calls[-1].value, dead) if calls else False, f"{ledger_id} moved")
            watch.cancel()
        await no_marks(store)

    with_store(ClientSettings(metadata_service_uri=uri), use)


def test_a_bookie_and_the_auditor_die_together_and_the_next_auditor_counts_the_bookie_as_lost(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """I-77. No ledger is marked by hand. The second process becomes auditor when the session of the first expires."""
    *kept, dead, spare = cluster.bookies
    with connect(cluster.uri, with_long_timeouts()) as client:
        ids = [write(client, [bookie.bookie_id for bookie in (dead, *kept)]) for _ in range(LEDGERS)]
        settings = {"zkTimeout": "6000", "bookieId": "first:1"}
        first = LocalAutoRecovery(tmp_path / "first", cluster.uri, settings, "first")
        first.start()
        until(lambda: auditor_of(cluster.uri) == "first:1", "the first process is elected")
        with LocalAutoRecovery(tmp_path / "second", cluster.uri, {**STEADY, "bookieId": "second:1"}, "second"):
            first.kill()
            dead.kill()
            end_dead_session(cluster.uri, dead.bookie_id)
            await_repaired(cluster.uri, ids, dead.bookie_id)
            assert auditor_of(cluster.uri) == "second:1"
        for ledger_id in ids:
            assert names(client.metadata(ledger_id), spare.bookie_id)
            with client.open(ledger_id) as ledger:
                assert len(list(ledger.entries())) == COUNT
