"""The journal contract over ledgers, on a simulated cluster; with small entries too, so that flushes are several."""

from __future__ import annotations

from typing import Any

import pytest

from journalmgr.contract import JournalManager
from journalmgr.model import NamespaceInfo
from tests.simulation.journals import journal_of
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import SimulatedClient
from tests.support.journal_contract import NAMESPACE, Fact, facts


class LedgerWorld:
    """See JournalWorld."""

    fences = True

    def __init__(self, **settings: Any) -> None:
        self.world = started_world(3)
        self.clock = self.world.clock
        self._settings = settings
        self._clients: dict[int, SimulatedClient] = {}

    async def open(self, namespace: NamespaceInfo = NAMESPACE) -> JournalManager:
        client = self.world.add_client()
        journal = journal_of(client, namespace=namespace, **self._settings)
        self._clients[id(journal)] = client
        return journal

    def crash(self, journal: JournalManager) -> None:
        self._clients[id(journal)].crash()


@pytest.mark.parametrize("buffer_size", [128 * 1024, 256], ids=["one entry a flush", "several"])
@pytest.mark.parametrize("fact", facts().values(), ids=facts().keys())
def test_ledger_journal(fact: Fact, buffer_size: int) -> None:
    world = LedgerWorld(output_buffer_size=buffer_size)
    run(world.world, fact(world), seconds=600.0)
