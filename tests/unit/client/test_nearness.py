"""Which copy is asked for first where reorderReadSequenceEnabled is on."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.client.bookies.nearness import Nearness, levels_up, own_rack, same_name
from bookkeeper.client.connecting import known_racks
from bookkeeper.config import ClientSettings, load_client
from bookkeeper.errors import ConfigurationError
from bookkeeper.model import BookieId
from bookkeeper.protocol.schedule import write_set
from bookkeeper.wire.messages import BatchRead, ReadBatch
from tests.support.fake_bookie import FakeCluster

MINE = "10.0.0.1"


def is_mine(host: str) -> bool:
    return host == MINE


def distances(racks: dict[str, str], *bookies: str) -> list[int]:
    near = Nearness(racks, is_mine)
    return [near.distance(BookieId(each), each.rpartition(":")[0]) for each in bookies]


@pytest.mark.parametrize(
    ("own", "other", "levels"),
    [
        ("/r1", "/r1", 0),
        ("/r1", "/r2", 1),
        ("/eu/r1", "/eu/r1", 0),
        ("/eu/r1", "/eu/r2", 1),
        ("/eu/r1", "/us/r1", 2),
        ("/eu/r1", "/default-rack", 2),
        ("/eu/r1", "/eu", 1),
        ("/eu", "/eu/r1", 1),
        ("/eu/dc1/r1", "/eu/dc2/r1", 2),
    ],
)
def test_racks_are_as_far_as_the_names_that_they_do_not_share(own: str, other: str, levels: int) -> None:
    assert levels_up(own, other) == levels


def test_this_machine_is_nearest_then_its_rack_then_its_region() -> None:
    racks = {MINE: "/eu/r1", "10.0.0.2": "/eu/r1", "10.0.0.3": "/eu/r2", "10.0.0.4": "/us/r1"}
    bookies = [f"10.0.0.{number}:3181" for number in range(1, 6)]
    assert distances(racks, *bookies) == [0, 1, 2, 3, 3]


def test_without_known_racks_only_this_machine_is_nearer_than_others() -> None:
    assert distances({}, "10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.1:3182") == [0, 1, 0]
    assert distances({"10.0.0.2": "/r2"}, "10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181") == [0, 1, 1]


def test_a_bookie_that_is_said_to_stand_in_another_rack_is_not_here() -> None:
    racks = {MINE: "/r1", "10.0.0.1:3182": "/r2"}
    assert distances(racks, "10.0.0.1:3181", "10.0.0.1:3182") == [0, 2]


def test_a_bookie_whose_id_is_no_address_is_measured_by_where_it_listens() -> None:
    near = Nearness({MINE: "/r1", "10.0.0.2": "/r1"}, is_mine)
    found = [near.distance(BookieId("a"), host) for host in (MINE, "10.0.0.2", "10.0.0.3", None)]
    assert found == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("racks", "rack"),
    [
        ({MINE: "/r1", "10.0.0.1:3181": "/r2"}, "/r1"),
        ({"10.0.0.1:3181": "/r2", "10.0.0.2:3181": "/r3"}, "/r2"),
        ({"10.0.0.1:3181": "/r2", "10.0.0.1:3182": "/r3"}, None),
        ({"10.0.0.2": "/r3"}, None),
        ({}, None),
    ],
)
def test_a_machines_rack_is_what_is_said_of_it_or_else_of_its_bookies(racks: dict[str, str], rack: str | None) -> None:
    assert own_rack(racks, is_mine) == rack


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("bk1", "bk1", True),
        ("BK1.example.com", "bk1.example.com.", True),
        ("bk1", "bk1.example.com", True),
        ("bk1.example.com", "bk1", True),
        ("bk1.example.com", "bk1.example.org", False),
        ("bk1", "bk2.example.com", False),
    ],
)
def test_a_name_without_its_domain_is_the_same_name(name: str, other: str, same: bool) -> None:
    assert same_name(name, other) is same


# --- the client


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def first_asked(
    cluster: FakeCluster, nearness: Nearness | None, *, write_quorum: int, lost: int = 0, one_by_one: bool = False
) -> tuple[dict[int, str], Any]:
    """Who was asked first for each of 30 entries, and the metadata. lost: bookies that are gone by then."""
    writer = cluster.client(settings())
    ledger = cluster.wait(writer.create(ensemble=3, write_quorum=write_quorum, ack_quorum=write_quorum))
    cluster.wait(ledger.append_many([b"%d" % number for number in range(30)]))
    cluster.wait(ledger.close())
    for bookie in cluster.bookies[:lost]:
        bookie.leave()
    for bookie in cluster.bookies:
        bookie.requests.clear()
    reader = cluster.wait(cluster.client(settings(), nearness=nearness).open(ledger.ledger_id))
    if one_by_one:
        for number in range(30):
            cluster.wait(reader.read(number, number))
    else:
        cluster.wait(reader.read(0, 29))
    asked: dict[int, str] = {}
    for bookie in cluster.bookies:
        for request in bookie.requests:
            if isinstance(request, ReadBatch):
                asked.update(dict.fromkeys(request.entry_ids, str(bookie.bookie_id)))
            elif isinstance(request, BatchRead):
                first = request.first_entry_id
                asked.update(dict.fromkeys(range(first, first + request.count_max), str(bookie.bookie_id)))
    return asked, reader.metadata


def near(*hosts: str) -> Nearness:
    return Nearness({}, lambda host: host in hosts)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_copy_on_this_machine_is_read_where_the_write_set_has_one(one_by_one: bool) -> None:
    asked, metadata = first_asked(FakeCluster(), near("b2"), write_quorum=2, one_by_one=one_by_one)
    assert sorted(asked) == list(range(30))
    ensemble = metadata.last_fragment.ensemble
    for entry_id, bookie in asked.items():
        members = [ensemble[index] for index in write_set(entry_id, 3, 2)]
        assert bookie == ("b2:3181" if "b2:3181" in members else members[0])
    assert set(asked.values()) > {"b2:3181"}, "a third of the entries has no copy there"


@pytest.mark.parametrize("one_by_one", [False, True])
def test_where_every_bookie_has_every_entry_only_the_near_one_is_asked(one_by_one: bool) -> None:
    asked, _ = first_asked(FakeCluster(), near("b3"), write_quorum=3, one_by_one=one_by_one)
    assert asked == dict.fromkeys(range(30), "b3:3181")


def test_without_the_setting_all_bookies_share_the_reads() -> None:
    asked, _ = first_asked(FakeCluster(), None, write_quorum=2)
    assert len(set(asked.values())) == 3


def test_a_near_bookie_that_is_gone_is_asked_last() -> None:
    asked, _ = first_asked(FakeCluster(), near("b1", "b2"), write_quorum=3, lost=1)
    assert asked == dict.fromkeys(range(30), "b2:3181")


def test_racks_are_told_in_the_settings_themselves_or_in_a_file_but_not_in_both() -> None:
    told = load_client(None, {"networkTopology": "bk1 /r1, 10.0.0.2:3181 /r2"}, {}).settings
    assert known_racks(told) == {"bk1": "/r1", "10.0.0.2:3181": "/r2"}
    with pytest.raises(ConfigurationError, match=r"networkTopology and networkTopologyFile say the same"):
        load_client(None, {"networkTopology": "bk1 /r1", "networkTopologyFile": "racks"}, {})
    wrong = load_client(None, {"networkTopology": "bk1 /r1, bk2"}, {}).settings
    with pytest.raises(ConfigurationError, match=r"networkTopology line 2: 'bk2' is not 'bookie rack'"):
        known_racks(wrong)
    random = {"networkTopologyFile": "/nowhere", "ensemblePlacementPolicy": "random"}
    assert known_racks(load_client(None, random, {}).settings) == {}, "nothing goes by them"
    with pytest.raises(ConfigurationError, match="nowhere"):
        known_racks(load_client(None, {**random, "reorderReadSequenceEnabled": "true"}, {}).settings)
