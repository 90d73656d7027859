"""Which topic lists a ledger, over a simulated ZooKeeper."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.config import ClientSettings
from bookkeeper.metadata.memory.session import MemoryFaults, MemorySession
from bookkeeper.model import LedgerId
from hedwig.admin.listed_ledgers import owner_of
from hedwig.model import HubAddress, HubInfo, LedgerRange, LocalId, MessageId, Topic
from tests.support.hub_region import SETTINGS, Region

HUB = HubInfo(HubAddress("10.0.0.1", 4080), 1)


@pytest.fixture
def region() -> Region:
    """Topics `a`, without a ledger, and `b c`, with ledgers 7 and 8."""
    region = Region()
    metadata = region.hub()
    for name in (b"a", b"b c"):
        region.now(metadata.claim(Topic(name), HUB, exists=False))
        metadata.forget_claim(Topic(name))
    listed = [LedgerRange(7, LocalId(1), MessageId(LocalId(5))), LedgerRange(8, LocalId(6))]
    region.now(metadata.write_ranges(Topic(b"b c"), listed, region.now(metadata.ranges(Topic(b"b c"))).version))
    return region


def ask(region: Region, ledger_id: int, **options: Any) -> list[str]:
    client: Any = SimpleNamespace(context=SimpleNamespace(clock=region.clock, settings=ClientSettings()))
    session = MemorySession(region.servers, region.clock, random.Random(9), MemoryFaults(), SETTINGS)
    found: list[str] = region.now(owner_of(client, session, LedgerId(ledger_id), **options))
    return found


def test_the_topic_is_named_with_the_command_that_says_more(region: Region) -> None:
    [said] = ask(region, 8)
    assert said.startswith("it is one of 2 ledgers of topic 'b c' (/hedwig/standalone); ")
    assert said.endswith("bookkeeper why topic 'b c'")
    assert ask(region, 9) == []


def test_a_bound_and_a_list_that_cannot_be_read_leave_it_unknown(region: Region) -> None:
    assert ask(region, 9, topics_max=2) == []
    [said] = ask(region, 8, topics_max=1)
    assert said.startswith("whether it belongs to a topic is unknown: 1 topics below /hedwig do not list it")
    path = "/hedwig/standalone/topics/b c/ledgers"
    region.servers.leader.nodes[path].data = b"\xff"
    [said] = ask(region, 8)
    assert said.startswith(f"whether it belongs to a topic is unknown: {path}")


def test_where_there_are_no_hubs_nothing_is_said() -> None:
    assert ask(Region(), 8) == []
