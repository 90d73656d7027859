"""The hubs' records over a simulated ZooKeeper: by version, at one place each, whatever becomes of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.memory.session import Fault
from bookkeeper.metadata.store import StoreState
from bookkeeper.metadata.tree import NodeKind
from hedwig.errors import StaleVersion, UnexpectedCondition
from hedwig.hub.metadata import RELEASED_AT_ONCE, Versioned
from hedwig.model import (
    HubAddress,
    HubInfo,
    LedgerRange,
    LocalId,
    MessageId,
    Preferences,
    SubscriberId,
    Subscription,
    Topic,
)
from hedwig.wire import records
from tests.support.hub_region import SETTINGS, Region
from tests.support.logged import logged

TOPIC, SUB = Topic(b"orders/eu"), SubscriberId(b"billing")
FLAT = Topic(b"orders")
HERE, THERE = HubAddress("127.0.0.1", 4080, 9876), HubAddress("127.0.0.1", 4081)
RANGES = [LedgerRange(3, LocalId(1), MessageId(LocalId(6))), LedgerRange(5, LocalId(7))]


@pytest.fixture
def region() -> Region:
    return Region()


def test_a_region_is_made_once_and_another_kind_of_metadata_is_refused(region: Region) -> None:
    hub = region.hub()
    region.now(hub.open())
    data, stat = region.now(hub.tree.read(hub.paths.layout))
    assert data.startswith(b'managerImpl: "org.apache.hedwig.server.meta.ZkMetadataManagerFactory"\n')
    region.now(hub.tree.write(hub.paths.layout, b'managerImpl: "other"\nmanagerVersion: 1\n', stat.version))
    with pytest.raises(UnexpectedCondition, match="kept by other, version 1"):
        region.now(hub.open())


def test_a_hub_is_there_as_long_as_its_session(region: Region) -> None:
    a, b = region.hub(), region.hub()
    info = region.now(a.register(HERE))
    region.now(b.register(THERE, 4))
    region.now(a.set_load(HERE, 7))
    assert region.now(a.hubs()) == {HERE: 7, THERE: 4}
    stat = region.now(a.tree.stat(a.paths.hub(HERE)))
    assert info == HubInfo(HERE, stat.creation_id)
    region.now(a.unregister(HERE))
    assert region.now(b.hubs()) == {THERE: 4}
    region.now(a.unregister(THERE))
    assert region.now(b.hubs()) == {THERE: 4}, "another session's stays"
    with pytest.raises(StaleVersion):
        region.now(a.set_load(THERE, 1))


def test_what_an_earlier_life_of_a_hub_left_is_replaced(region: Region) -> None:
    before = region.now(region.hub().register(HERE))
    after = region.now(region.hub().register(HERE))
    assert after.creation_id > before.creation_id


@pytest.mark.parametrize("fault", [Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_a_registration_whose_answer_is_lost_is_found(region: Region, fault: Fault) -> None:
    hub = region.hub()
    region.faults[0].force(fault, "create", "/hosts/")
    info = region.now(hub.register(HERE))
    assert region.now(hub.tree.stat(hub.paths.hub(HERE))).creation_id == info.creation_id


def test_an_unreadable_hub_record_is_skipped_and_named_once(region: Region) -> None:
    hub = region.hub()
    region.now(hub.register(HERE))
    region.now(hub.tree.create(f"{hub.paths.hubs}/nonsense", b"numTopics: 1\n", NodeKind.EPHEMERAL))
    region.now(hub.tree.create(f"{hub.paths.hubs}/h:1:2", b"many", NodeKind.EPHEMERAL))
    with logged() as lines:
        for _ in range(3):
            assert region.now(hub.hubs()) == {HERE: 0}
    paths = [f"{hub.paths.hubs}/{name}" for name in ("h:1:2", "nonsense")]
    assert sorted(line.partition(": ")[0] for line in lines) == paths
    found = BadRecords()
    assert region.now(hub.hubs(found)) == {HERE: 0}
    assert sorted(each.path for each in found.named) == paths


@pytest.mark.parametrize("fault", [None, Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_one_hub_owns_a_topic(region: Region, fault: Fault | None) -> None:
    a, b = region.hub(), region.hub()
    mine, other = region.now(a.register(HERE)), region.now(b.register(THERE))
    assert region.now(a.owner(TOPIC)) is None
    if fault is not None:
        region.faults[0].force(fault, "create", "/hub")
    assert region.now(a.claim(TOPIC, mine))
    assert not region.now(b.claim(TOPIC, other))
    assert region.now(b.owner(TOPIC)) == mine
    assert region.now(b.topics()) == ["orders"]
    region.now(b.release(TOPIC, other))
    assert region.now(b.owner(TOPIC)) == mine, "another hub's stays"
    region.now(a.release(TOPIC, mine))
    assert region.now(b.claim(TOPIC, other))


def test_an_owner_goes_with_its_session(region: Region) -> None:
    a, b = region.hub(), region.hub()
    assert region.now(a.claim(TOPIC, region.now(a.register(HERE))))
    region.now(region.sessions[0].close())
    assert region.now(b.owner(TOPIC)) is None


def test_an_owner_that_cannot_be_read_is_not_taken_for_none(region: Region) -> None:
    hub = region.hub()
    region.now(hub.claim(TOPIC, region.now(hub.register(HERE))))
    region.now(hub.tree.write(hub.paths.owner(TOPIC), b"\xff", 0))
    with pytest.raises(UnexpectedCondition, match="/topics/orders/eu/hub cannot be read"):
        region.now(hub.owner(TOPIC))


@pytest.mark.parametrize("fault", [None, Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_ledgers_are_written_by_version(region: Region, fault: Fault | None) -> None:
    """I-90: the hub that lost a topic cannot write its list any more."""
    a, b = region.hub(), region.hub()
    assert region.now(a.ranges(TOPIC)) == Versioned([], None)
    if fault is not None:
        region.faults[0].force(fault, "create", "/ledgers")
        region.faults[0].force(fault, "write", "/ledgers")
    assert region.now(a.write_ranges(TOPIC, RANGES[:1], None)) == 0
    with pytest.raises(StaleVersion):
        region.now(b.write_ranges(TOPIC, [], None))
    assert region.now(a.write_ranges(TOPIC, RANGES, 0)) == 1
    with pytest.raises(StaleVersion):
        region.now(b.write_ranges(TOPIC, [], 0))
    assert region.now(b.ranges(TOPIC)) == Versioned(RANGES, 1)


@pytest.mark.parametrize("fault", [None, Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_subscriptions_are_written_by_version(region: Region, fault: Fault | None) -> None:
    """I-93."""
    a, b = region.hub(), region.hub()
    first = Subscription(MessageId(LocalId(5)), Preferences(window_size=3))
    later = Subscription(MessageId(LocalId(9)), Preferences(window_size=3))
    assert region.now(a.subscriptions(TOPIC)) == {}
    if fault is not None:
        for operation, part in (("transact", "/ledgers"), ("write", "/subscribers/"), ("transact", "/ledgers")):
            region.faults[0].force(fault, operation, part)
    listed = region.now(a.write_ranges(TOPIC, [], None))
    assert region.now(a.create_subscription(TOPIC, SUB, first, listed)) == 0
    with pytest.raises(StaleVersion):
        region.now(b.create_subscription(TOPIC, SUB, later, listed))
    assert region.now(a.write_subscription(TOPIC, SUB, later, 0)) == 1
    with pytest.raises(StaleVersion):
        region.now(b.write_subscription(TOPIC, SUB, first, 0))
    with pytest.raises(StaleVersion):
        region.now(b.delete_subscription(TOPIC, SUB, 0, listed))
    assert region.now(b.subscriptions(TOPIC)) == {SUB: Versioned(later, 1)}
    region.now(a.delete_subscription(TOPIC, SUB, 1, listed))
    region.now(a.delete_subscription(TOPIC, SUB, 1, listed))
    assert region.now(b.subscriptions(TOPIC)) == {}


@pytest.mark.parametrize("fault", [Fault.FAILED_BEFORE, None])
def test_what_an_owner_began_is_not_done_in_the_next_session(region: Region, fault: Fault | None) -> None:
    """I-93: by then another hub may have ended the subscription and made one anew, at the same version; and have made
    an owner's record, all of which have the same version.
    """
    a, b = region.hub(), region.hub()
    mine, other = region.now(a.register(HERE)), region.now(b.register(THERE))
    first, stale, anew = (Subscription(MessageId(LocalId(number))) for number in (5, 9, 12))
    assert region.now(a.claim(TOPIC, mine))
    listed = region.now(a.write_ranges(TOPIC, [], None))
    region.now(a.create_subscription(TOPIC, SUB, first, listed))
    outage_s = SETTINGS.session_timeout_s + 2
    assert outage_s < SETTINGS.operation_timeout_s
    if fault is not None:
        region.faults[0].force(fault, "write", "/subscribers/")
    writing = Deferred.fromCoroutine(a.write_subscription(TOPIC, SUB, stale, 0))
    releasing = [Deferred.fromCoroutine(a.release(TOPIC, mine)), Deferred.fromCoroutine(a.release_all([TOPIC], mine))]
    region.sessions[0].cut_connection(outage_s)
    while region.now(b.owner(TOPIC)) is not None:
        pass
    assert region.now(b.claim(TOPIC, other))
    listed = region.now(b.ranges(TOPIC)).version or 0
    assert listed == 1, "the claim wrote it"
    # Whether the write was done in its own session or not: the new owner reads the version.
    version = region.now(b.subscriptions(TOPIC))[SUB].version
    region.now(b.delete_subscription(TOPIC, SUB, version, listed))
    region.now(b.create_subscription(TOPIC, SUB, anew, listed))
    outcomes = [region.now(each.addErrback(lambda failure: failure.value)) for each in (writing, *releasing)]
    assert region.sessions[0].state is StoreState.CONNECTED
    assert region.now(b.subscriptions(TOPIC)) == {SUB: Versioned(anew, 0)}
    assert region.now(b.owner(TOPIC)) == other
    assert all(isinstance(each, MetadataUnavailable | StaleVersion | None) for each in outcomes)
    if fault is not None:
        assert isinstance(outcomes[0], MetadataUnavailable)
        assert "has ended" in str(outcomes[0])


def test_a_hub_whose_list_another_one_wrote_makes_and_ends_no_subscription(region: Region) -> None:
    """I-90: the new owner would not know."""
    a, b = region.hub(), region.hub()
    record = Subscription(MessageId(LocalId(5)))
    listed = region.now(a.write_ranges(TOPIC, [], None))
    region.now(a.create_subscription(TOPIC, SUB, record, listed))
    assert region.now(b.write_ranges(TOPIC, [], listed)) == listed + 1
    with pytest.raises(StaleVersion):
        region.now(a.create_subscription(TOPIC, SubscriberId(b"late"), record, listed))
    with pytest.raises(StaleVersion):
        region.now(a.delete_subscription(TOPIC, SUB, 0, listed))
    assert region.now(b.subscriptions(TOPIC)) == {SUB: Versioned(record, 0)}


@pytest.mark.parametrize("fault", [None, Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_a_position_is_moved_by_the_version_of_the_list_too(region: Region, fault: Fault | None) -> None:
    """I-93: an owner that is none any more reads what the next one stored, and knows the version of it."""
    a, b = region.hub(), region.hub()
    first, moved, later = (Subscription(MessageId(LocalId(number))) for number in (9, 5, 12))
    listed = region.now(a.write_ranges(TOPIC, [], None))
    region.now(a.create_subscription(TOPIC, SUB, first, listed))
    if fault is not None:
        region.faults[0].force(fault, "transact", "/ledgers")
    assert region.now(a.move_subscription(TOPIC, SUB, moved, 0, listed)) == 1
    with pytest.raises(StaleVersion):
        region.now(a.move_subscription(TOPIC, SUB, moved, 0, listed))
    assert region.now(b.write_ranges(TOPIC, [], listed)) == listed + 1
    assert region.now(b.write_subscription(TOPIC, SUB, later, 1)) == 2
    with pytest.raises(StaleVersion):
        region.now(a.move_subscription(TOPIC, SUB, moved, 2, listed))
    assert region.now(b.subscriptions(TOPIC)) == {SUB: Versioned(later, 2)}


@pytest.mark.parametrize("fault", [None, Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_a_topic_that_is_not_there_is_made_and_claimed_at_once(region: Region, fault: Fault | None) -> None:
    a, b = region.hub(), region.hub()
    mine, other = region.now(a.register(HERE)), region.now(b.register(THERE))
    assert region.now(a.look(FLAT)) == (False, None)
    if fault is not None:
        region.faults[0].force(fault, "transact")
    assert region.now(a.claim(FLAT, mine, exists=False))
    assert a.is_new(FLAT)
    assert not region.now(b.claim(FLAT, other, exists=False)), "b saw too, before, that it was not there"
    assert not b.is_new(FLAT)
    assert region.now(b.look(FLAT)) == (True, mine)
    assert region.now(b.ranges(FLAT)) == ([], 0) == region.now(a.ranges(FLAT))
    assert region.now(b.subscriptions(FLAT)) == {} == region.now(a.subscriptions(FLAT))
    a.forget_claim(FLAT)
    assert region.now(a.write_ranges(FLAT, [LedgerRange(7, LocalId(1))], 0)) == 1
    assert region.now(a.ranges(FLAT)) == ([LedgerRange(7, LocalId(1))], 1)


@pytest.mark.parametrize("fault", [None, Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_a_claim_writes_a_list_that_has_no_open_ledger(region: Region, fault: Fault | None) -> None:
    """I-90: with the claim whoever had the topic before is stopped."""
    a, b = region.hub(), region.hub()
    mine, other = region.now(a.register(HERE)), region.now(b.register(THERE))
    ended = [LedgerRange(7, LocalId(1), MessageId(LocalId(9))), LedgerRange(8, LocalId(10), MessageId(LocalId(12)))]
    listed = region.now(b.write_ranges(TOPIC, ended, None))
    written = region.now(b.tree.read(b.paths.ledgers(TOPIC)))[0]
    if fault is not None:
        region.faults[0].force(fault, "transact", "/hub")
    assert region.now(a.claim(TOPIC, mine))
    assert a.is_listed(TOPIC)
    assert not a.is_new(TOPIC)
    assert region.now(a.ranges(TOPIC)) == (ended, listed + 1)
    assert region.now(b.tree.read(b.paths.ledgers(TOPIC)))[0] == written
    with pytest.raises(StaleVersion):
        region.now(b.write_ranges(TOPIC, [*ended, LedgerRange(9, LocalId(13))], listed))
    assert not region.now(b.claim(TOPIC, other))
    assert not b.is_listed(TOPIC)
    assert region.now(b.ranges(TOPIC)) == (ended, listed + 1), "the claim that failed changed nothing"
    a.forget_claim(TOPIC)
    assert not a.is_listed(TOPIC)


@pytest.mark.parametrize("last", [LedgerRange(9, LocalId(13)), LedgerRange(9, None, MessageId(LocalId(20)))])
def test_a_claim_leaves_a_list_alone_whose_ledgers_must_be_looked_at(region: Region, last: LedgerRange) -> None:
    """I-90: an open one is recovered before the list is written; of one without a beginning it is looked up."""
    a = region.hub()
    mine = region.now(a.register(HERE))
    listed = region.now(a.write_ranges(TOPIC, [last], None))
    assert region.now(a.claim(TOPIC, mine))
    assert not a.is_listed(TOPIC)
    assert region.now(a.ranges(TOPIC)) == ([last], listed)


def test_a_claim_with_a_list_that_is_older_than_the_newest_writes_nothing(region: Region) -> None:
    """I-19: it was read without a sync."""
    a, b = region.hub(lag_max_s=1e9), region.hub()
    mine = region.now(a.register(HERE))
    listed = region.now(b.write_ranges(TOPIC, [], None))
    region.now(a.ranges(TOPIC))
    opened = [LedgerRange(9, LocalId(13))]
    assert region.now(b.write_ranges(TOPIC, opened, listed)) == listed + 1
    assert region.now(a.claim(TOPIC, mine))
    assert region.faults[0].counts["stale read"]
    assert not a.is_listed(TOPIC)
    assert region.now(a.ranges(TOPIC, synced=True)) == (opened, listed + 1), "behind the claim it sees all of before"


def test_what_an_earlier_claim_of_the_session_left_is_not_taken_for_this_one(region: Region) -> None:
    """I-16: the record is the same; that the list was written is seen by the list."""
    a = region.hub()
    mine = region.now(a.register(HERE))
    listed = region.now(a.write_ranges(TOPIC, [], None))
    region.now(a.tree.create(a.paths.owner(TOPIC), records.encode_hub_info(mine), NodeKind.EPHEMERAL))
    region.faults[0].force(Fault.REPLY_LOST, "transact", "/hub")
    assert not region.now(a.claim(TOPIC, mine))
    assert not a.is_listed(TOPIC)
    assert region.now(a.ranges(TOPIC)) == ([], listed)


def test_a_list_that_cannot_be_read_is_said_before_its_topic_is_claimed(region: Region) -> None:
    a = region.hub()
    mine = region.now(a.register(HERE))
    region.now(a.write_ranges(TOPIC, [], None))
    region.now(a.tree.write(a.paths.ledgers(TOPIC), b"\xff", 0))
    with pytest.raises(UnexpectedCondition, match="/topics/orders/eu/ledgers"):
        region.now(a.claim(TOPIC, mine))
    assert region.now(a.owner(TOPIC)) is None


def test_a_new_topic_with_a_slash_lacks_its_parent_and_is_made_step_by_step(region: Region) -> None:
    a = region.hub()
    mine, topic = region.now(a.register(HERE)), Topic(b"orders/eu")
    assert region.now(a.claim(topic, mine, exists=False))
    assert not a.is_new(topic)
    assert region.now(a.owner(topic)) == mine


def test_the_owner_record_of_a_new_topic_goes_with_its_session(region: Region) -> None:
    a, b = region.hub(), region.hub()
    assert region.now(a.claim(FLAT, region.now(a.register(HERE)), exists=False))
    region.now(region.sessions[0].close())
    assert region.now(b.look(FLAT)) == (True, None)


@pytest.mark.parametrize("fault", [None, Fault.FAILED_BEFORE, Fault.REPLY_LOST])
def test_many_topics_are_given_up_in_few_transactions(region: Region, fault: Fault | None) -> None:
    a, b = region.hub(), region.hub()
    mine, other = region.now(a.register(HERE)), region.now(b.register(THERE))
    topics = [Topic(b"topic-%d" % number) for number in range(RELEASED_AT_ONCE + 3)]
    for topic in topics:
        assert region.now(a.claim(topic, mine, exists=False))
    region.now(a.release(topics[1], mine))
    assert region.now(b.claim(topics[1], other)), "somebody removed the record, and another hub took the topic"
    region.now(b.release(topics[1], other))
    assert region.now(b.claim(topics[1], other))
    if fault is not None:
        region.faults[0].force(fault, "transact")
    region.now(a.release_all([*topics[:1], *topics[2:]], mine))
    assert [region.now(b.owner(topic)) for topic in topics] == [None, other, *[None] * (RELEASED_AT_ONCE + 1)]


def test_what_another_hub_has_meanwhile_does_not_keep_the_others_from_being_given_up(region: Region) -> None:
    a = region.hub()
    mine = region.now(a.register(HERE))
    topics = [Topic(b"topic-%d" % number) for number in range(5)]
    for topic in topics:
        assert region.now(a.claim(topic, mine))
    region.now(a.release(topics[2], mine))
    region.now(a.release_all(topics, mine))
    assert [region.now(a.owner(topic)) for topic in topics] == [None] * 5


def test_topics_whose_names_fill_a_request_are_given_up_one_by_one(region: Region) -> None:
    a = region.hub(settings=replace(SETTINGS, request_size_max=1024))
    mine = region.now(a.register(HERE))
    topics = [Topic(b"topic-%d" % number) for number in range(20)]
    for topic in topics:
        assert region.now(a.claim(topic, mine))
    region.now(a.release_all(topics, mine))
    assert [region.now(a.owner(topic)) for topic in topics] == [None] * 20
