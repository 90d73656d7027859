"""Create or attach, positions that only go forward, and what may be deleted."""

from __future__ import annotations

import random

import pytest

from hedwig.errors import AlreadySubscribed, MalformedRequest, NotSubscribed
from hedwig.model import Gone, LocalId, MessageId, Preferences, SubscribeMode, SubscriberId, Subscription, Topic
from hedwig.protocol.subscription import (
    PASSED_OVER_MAX,
    Position,
    check_consumed,
    first_kept,
    subscribed,
    topic_bound,
    trim_point,
)

TOPIC, SUB = Topic(b"t"), SubscriberId(b"s")
LAST = MessageId(LocalId(9), ((b"r1", 4),))


def at(local: int) -> MessageId:
    return MessageId(LocalId(local))


def ask(
    found: Subscription | None,
    mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH,
    preferences: Preferences | None = None,
    bound: int | None = None,
    window_if_none: int | None = None,
) -> Subscription:
    return subscribed(TOPIC, SUB, found, mode, preferences, bound, LAST, window_if_none)


def test_a_new_subscription_begins_behind_the_last_message() -> None:
    for mode in (SubscribeMode.CREATE, SubscribeMode.CREATE_OR_ATTACH):
        assert ask(None, mode) == Subscription(LAST, Preferences())
    assert ask(None, preferences=Preferences(window_size=3)).preferences == Preferences(window_size=3)
    assert ask(None, preferences=Preferences(message_bound=3), bound=7).preferences.message_bound == 7
    assert ask(None, window_if_none=4).preferences == Preferences(window_size=4)
    both = ask(None, preferences=Preferences(message_bound=3), window_if_none=0)
    assert both.preferences == Preferences(message_bound=3, window_size=0)
    with pytest.raises(NotSubscribed):
        ask(None, SubscribeMode.ATTACH)


def test_an_attached_one_goes_on_where_it_was_and_its_preferences_are_merged() -> None:
    found = Subscription(at(2), Preferences(5, "a.Filter", None, {"a": b"1", "b": b"2"}))
    assert ask(found, SubscribeMode.ATTACH) is found
    assert ask(found, preferences=Preferences(message_bound=5)) is found
    assert ask(found, bound=77) is found
    assert ask(found, window_if_none=77) is found
    newer = Preferences(None, "b.Filter", 4, {"b": b"3", "c": b"4"})
    merged = Preferences(5, "b.Filter", 4, {"a": b"1", "b": b"3", "c": b"4"})
    assert ask(found, preferences=newer) == Subscription(at(2), merged)
    with pytest.raises(AlreadySubscribed):
        ask(found, SubscribeMode.CREATE)


def test_a_window_counts_ids_that_are_not_consumed() -> None:
    """hedwig/PROTOCOL.md 2.10: window 3, 1..3 delivered, 2 consumed, 4 and 5 follow."""
    position = Position(at(0), 3)
    assert (position.next_id, position.room()) == (1, 3)
    position.on_sent(LocalId(3))
    assert position.room() == 0
    assert position.on_consumed(at(2))
    assert (position.next_id, position.room()) == (4, 2)
    position.on_sent(LocalId(5))
    position.attach(3)
    assert position.next_id == 3, "delivered again what was not consumed"
    assert Position(at(0)).room() is None


def test_what_is_passed_over_does_not_use_the_window_up_for_ever() -> None:
    """I-95: nobody would ever consume it."""
    position = Position(at(0), 3)
    position.on_passed_over(LocalId(1), LocalId(10))
    assert (position.next_id, position.room(), position.consumed) == (11, 3, 10)
    position.on_sent(LocalId(11))
    position.on_passed_over(LocalId(12), LocalId(12))
    assert (position.consumed, position.room()) == (10, 2), "11 is not consumed"
    position.on_passed_over(LocalId(13), LocalId(99))
    assert position.room() == 2, "nobody was given what is passed over"
    assert position.on_consumed(at(11))
    assert (position.consumed, position.room()) == (99, 3), "nor waits for it"
    position.on_sent(LocalId(100))
    position.on_passed_over(LocalId(101), LocalId(200))
    position.attach(3)
    position.on_sent(LocalId(101))
    assert (position.consumed, position.room()) == (99, 1), "another filter may want what was passed over"


def stored(position: Position) -> tuple[int, Gone | None]:
    return position.consumed_id.local, position.gone


def gone(first: int, last: int) -> Gone:
    return Gone(LocalId(first), LocalId(last))


def test_a_position_is_never_stored_before_a_deleted_message() -> None:
    """Apache's hubs lose the topic at the attempt to read there."""
    position = Position(at(3), 8)
    position.on_sent(LocalId(5))
    position.on_deleted(LocalId(10))
    assert (stored(position), position.is_due()) == ((10, gone(4, 10)), True)
    position.on_stored(Subscription(at(10), gone=gone(4, 10)))
    assert (position.stored, position.is_dirty) == (10, False)
    assert position.room() == 6, "4 and 5 are with the subscriber"
    again = Position(at(10), gone=gone(4, 10))
    assert (again.next_id, again.gone, again.is_dirty) == (11, gone(4, 10), False)


def test_deleted_messages_are_remembered_until_a_later_one_is_consumed() -> None:
    """An answer that names them may be lost, so the next one names them again."""
    position = Position(at(3))
    position.on_deleted(LocalId(10))
    for _ in range(2):
        position.attach(0)
        assert (position.gone, position.next_id, position.is_unnamed) == (gone(4, 10), 11, False)
        position.on_sent(LocalId(12))
    assert position.on_consumed(at(11))
    assert stored(position) == (11, None)


def test_messages_that_a_filter_passes_over_are_not_consumed_by_the_subscriber() -> None:
    """The position moves on, since a filter that passes nothing would keep all ledgers."""
    position = Position(at(3))
    position.on_deleted(LocalId(10))
    position.attach(0)
    position.on_passed_over(LocalId(11), LocalId(12))
    assert stored(position) == (12, gone(4, 10))


def test_deletions_during_one_attachment_are_one_range() -> None:
    position = Position(at(3))
    position.on_deleted(LocalId(10))
    position.attach(0)
    position.on_sent(LocalId(12))
    position.on_deleted(LocalId(20))
    position.on_passed_over(LocalId(21), LocalId(25))
    assert stored(position) == (20, gone(4, 20)), "11 and 12 are not consumed"
    assert position.on_consumed(at(12))
    assert stored(position) == (25, gone(13, 20))
    position.on_sent(LocalId(26))
    assert position.on_consumed(at(26))
    assert stored(position) == (26, gone(13, 20)), "no answer has named these"
    position.attach(0)
    position.on_sent(LocalId(27))
    assert position.on_consumed(at(27))
    assert stored(position) == (27, None)


def test_messages_that_were_deleted_on_their_way_are_not_lost_once_they_are_consumed() -> None:
    position = Position(at(0))
    position.on_sent(LocalId(23))
    position.on_deleted(LocalId(20))
    assert (stored(position), position.is_unnamed) == ((20, gone(1, 20)), False)
    assert position.on_consumed(at(7))
    assert stored(position) == (20, gone(8, 20))
    position.attach(0)
    assert position.on_consumed(at(9)), "a message of the earlier attachment"
    assert not position.on_consumed(at(9))
    assert stored(position) == (20, gone(10, 20))
    position.move(at(20), gone(1, 20))
    assert not position.on_consumed(at(9)), "said of deliveries before the move"
    assert stored(position) == (20, gone(1, 20))


def test_messages_that_a_bound_gave_up_are_not_reported() -> None:
    position = Position(at(3))
    position.on_deleted(LocalId(10), LocalId(8))
    assert stored(position) == (10, gone(8, 10))
    position = Position(at(3))
    position.on_deleted(LocalId(10), LocalId(11))
    assert (stored(position), position.is_unnamed) == ((10, None), False)


def test_who_consumes_nothing_while_much_is_passed_over_is_remembered_in_bounded_memory() -> None:
    position = Position(at(0))
    position.on_sent(LocalId(1))
    for local in range(2, 4 * PASSED_OVER_MAX, 2):
        position.on_passed_over(LocalId(local), LocalId(local))
        position.on_sent(LocalId(local + 1))
    assert position.on_consumed(at(position.sent - 2))
    assert position.consumed == position.sent - 1


def test_what_was_not_delivered_is_not_consumed() -> None:
    """I-93: a position that jumps forward loses messages."""
    position = Position(at(5))
    position.on_sent(LocalId(8))
    assert not position.on_consumed(at(9))
    assert not position.on_consumed(at(5))
    assert position.on_consumed(at(8))
    assert not position.on_consumed(at(7)), "never back"
    assert position.consumed_id == at(8)


def test_an_id_that_no_hub_gave_is_not_stored() -> None:
    check_consumed(MessageId(LocalId(1), tuple((b"region-%d" % number, 1) for number in range(500))))
    with pytest.raises(MalformedRequest, match="send the id of the message as it came"):
        check_consumed(MessageId(LocalId(1), ((bytes(1 << 20), 1),)))


def test_a_position_is_stored_now_and_then() -> None:
    position = Position(at(0))
    position.on_sent(LocalId(100))
    position.on_consumed(at(49))
    assert (position.is_dirty, position.is_due()) == (True, False)
    position.on_consumed(at(50))
    assert (position.is_dirty, position.is_due()) == (True, True)
    position.on_stored(Subscription(at(50)))
    assert (position.is_dirty, position.is_due()) == (False, False)
    position.on_stored(Subscription(at(20)))
    assert position.stored == 50
    assert not position.is_due(0), "all of it is stored"
    position.on_consumed(at(51))
    assert position.is_due(0)


def test_a_position_that_is_moved_knows_of_nothing_that_was_delivered_before() -> None:
    position = Position(at(20))
    position.on_sent(LocalId(50))
    position.on_consumed(at(40))
    position.move(at(9))
    assert (position.consumed, position.stored, position.next_id) == (9, 9, 10)
    assert not position.is_dirty
    assert not position.on_consumed(at(45)), "said of deliveries before the move"
    position.on_sent(LocalId(12))
    assert position.on_consumed(at(12))


@pytest.mark.parametrize("seed", range(20))
def test_positions_keep_their_order_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    position = Position(at(rng.randrange(5)), rng.choice((0, 1, 4)))
    consumed_before = position.consumed
    given: set[int] = set()  # and not consumed
    unread: set[int] = set()  # deleted before this attachment delivered them, and not named by its answer
    deleted = 0
    for _ in range(300):
        room = position.room()
        step = rng.randrange(1, 5) if room is None else rng.randrange(0, room + 1)
        match rng.randrange(7):
            case 0 if step:
                given.update(range(position.sent + 1, position.sent + step + 1))
                position.on_sent(LocalId(position.sent + step))
            case 1 if step:
                position.on_passed_over(position.next_id, LocalId(position.sent + step))
            case 2:
                up_to = rng.randrange(position.delivered + 5)
                if position.on_consumed(at(up_to)):
                    given = {each for each in given if each > up_to}
            case 3:
                position.on_stored(Subscription(position.consumed_id, gone=position.gone))
            case 4:
                last = position.sent + rng.randrange(-5, 5)
                unread.update(range(max(position.sent, deleted) + 1, last + 1))
                deleted = max(deleted, last)
                position.on_deleted(LocalId(last))
            case _:
                position.attach(position.window_size)
                given.clear()
                unread.clear()
        covered = range(0) if position.gone is None else range(position.gone.first, position.gone.last + 1)
        assert unread.issubset(covered), "an answer has to name these"
        assert all(each in covered for each in given if each <= deleted), "these are deleted, and not consumed"
        assert covered.stop <= deleted + 1
        assert deleted <= max(position.consumed_id.local, 0)
        assert position.stored <= position.consumed_id.local <= position.sent <= position.delivered
        assert position.consumed >= consumed_before
        assert position.consumed == min(given, default=position.sent + 1) - 1
        assert position.room() == (position.window_size - len(given) if position.window_size else None)
        consumed_before = position.consumed


def test_a_topic_is_bounded_when_every_subscriber_is() -> None:
    bounded = [Preferences(message_bound=3), Preferences(message_bound=8)]
    assert topic_bound(bounded) == 8
    assert topic_bound([*bounded, Preferences()]) == 0
    assert topic_bound([*bounded, Preferences(message_bound=0)]) == 0
    assert topic_bound([]) == 0
    assert first_kept(8, LocalId(100)) == 93
    assert first_kept(8, LocalId(5)) == 1
    assert first_kept(0, LocalId(100)) == 1


def test_only_what_all_stored_positions_are_past_may_go() -> None:
    """I-94."""
    assert trim_point([LocalId(5), LocalId(7)], 0, LocalId(100)) == 5
    assert trim_point([LocalId(5), LocalId(7)], 10, LocalId(100)) == 90
    assert trim_point([LocalId(95)], 10, LocalId(100)) == 95
    assert trim_point([], 0, LocalId(100)) == 100
