"""What a client has heard, what is consumed of it, and what its hub is told: in order, and one by one."""

from __future__ import annotations

import random

import pytest
from twisted.internet.task import Clock

from bookkeeper.errors import ClientClosed, InvalidArgument
from hedwig.client.subscriptions.cursor import InOrder
from hedwig.client.subscriptions.inbox import Taking
from hedwig.client.subscriptions.work_queue import OneByOne
from hedwig.model import LocalId, MessageId
from hedwig.wire.receiving import Received


def some(*local_ids: int) -> list[Received]:
    return [Received(b"%d" % each, LocalId(each)) for each in local_ids]


def ids(messages: list[Received]) -> list[int]:
    return [each.local_id for each in messages]


def up_to(local_id: int) -> MessageId:
    return MessageId(LocalId(local_id))


def told(done: InOrder | OneByOne) -> list[int]:
    return [each.local for each in done.to_tell()]


# --- in order


def test_what_is_delivered_again_is_passed_over_and_told() -> None:
    done = InOrder()
    assert ids(done.on_delivered(some(1, 2, 3, 4), [])) == [1, 2, 3, 4]
    done.consume(up_to(3))
    assert told(done) == [3]
    done.on_attached()  # a hub that knows of nothing, and takes no word for what it has not delivered
    assert done.untold == 0
    assert ids(done.on_delivered(some(1, 2), [])) == []
    assert told(done) == [2]
    assert ids(done.on_delivered(some(3, 4, 5), [])) == [5]
    assert told(done) == [3]
    assert told(done) == []


def test_what_was_not_delivered_cannot_be_consumed_and_stalls_nothing() -> None:
    done = InOrder()
    done.consume(up_to(10**9))
    assert done.untold == 0
    done.on_delivered(some(1, 2), [])
    done.consume(up_to(10**9))
    assert told(done) == [2]
    done.on_delivered(some(3, 4), [])
    assert done.untold == 0, "it was not there to be consumed"
    done.consume(up_to(3))
    assert told(done) == [3]


def test_messages_that_a_filter_passes_over_are_consumed_with_the_one_before_them() -> None:
    done = InOrder()
    done.on_delivered(some(1, 2), [])
    done.on_filtered([], some(1, 2))
    assert told(done) == [2], "nothing waits before them"
    done.on_delivered(some(3, 4, 5), [])
    done.on_filtered(some(4), some(3, 5))
    assert done.untold == 0
    done.consume(up_to(4))
    assert told(done) == [5]


def test_a_filter_that_breaks_has_nothing_consumed_that_waits() -> None:
    """The batch was cut off at the message that broke it: what it left for the reader is still to be read."""
    done = InOrder()
    done.on_delivered(some(1), [])
    done.on_filtered(some(1), [])
    done.on_delivered(some(2, 3, 4), [])
    done.on_filtered(some(2), some(3))
    done.consume(up_to(1))
    assert told(done) == [1]


def test_beginning_anew_forgets_everything() -> None:
    done = InOrder()
    done.on_delivered(some(1, 2, 3), [])
    done.consume(up_to(3))
    done.begin_anew()
    assert done.untold == 0
    assert ids(done.on_delivered(some(2, 3), [])) == [2, 3]
    assert done.untold == 0


def test_in_order_nothing_is_acknowledged() -> None:
    with pytest.raises(InvalidArgument, match="one_by_one"):
        InOrder().ack(LocalId(1))
    with pytest.raises(InvalidArgument, match="one_by_one"):
        InOrder().nack(LocalId(1), 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_a_hub_is_told_of_no_more_than_it_delivered_and_the_reader_has_done(seed: int) -> None:
    """Against a hub that stores what it takes, and begins behind that again each time."""
    rng = random.Random(seed)
    done, taking = InOrder(), Taking(Clock())
    stored = delivered = read = 0
    for _ in range(400):
        match rng.randrange(4):
            case 0:
                done.on_attached()
                delivered = stored = stored if rng.random() < 0.5 else max(0, stored - rng.randrange(5))
            case 1:
                batch = some(*range(delivered + 1, delivered + 1 + rng.randrange(1, 9)))
                delivered += len(batch)
                found = done.on_delivered(batch, taking.ready)
                assert all(each.local_id > read for each in found)
                taking.put(found)
            case 2:
                for message in taking.take(rng.randrange(1, 6)):
                    read += 1
                    assert message.local_id == read, "a gap, or one twice"
                done.consume(up_to(rng.randrange(read + 1)))
            case 3:
                for each in done.to_tell():
                    assert each.local <= delivered
                    assert each.local <= read
                    stored = max(stored, each.local)


# --- one by one


def test_what_is_done_does_not_come_again_and_is_told_again() -> None:
    done = OneByOne()
    assert ids(done.on_delivered(some(1, 2, 3, 5), [])) == [1, 2, 3, 5]
    for each in (5, 1, 2):
        done.ack(LocalId(each))
    assert [(each.local, each.remote) for each in done.to_tell()] == [(2, ((b"hw.from", 1),)), (5, ())]
    waiting = some(3)
    assert ids(done.on_delivered(some(1, 3, 4), waiting)) == [4]
    assert told(done) == [1]
    said = done.nack(LocalId(1), 0.5)
    assert (said.local, said.remote) == (1, ((b"hw.nack", 500),))
    assert ids(done.on_delivered(some(1), [])) == [1]


def test_what_is_given_back_is_not_acknowledged() -> None:
    done = OneByOne()
    done.on_delivered(some(1, 2), [])
    done.ack(LocalId(1))
    done.nack(LocalId(1), 0.0)
    assert done.untold == 0


# --- taking


def test_what_was_given_is_over_when_more_is_asked_for() -> None:
    taking = Taking(Clock())
    taking.put(some(1, 2, 3))
    taking.ask(counts=True)
    assert ids(taking.take(2)) == [1, 2]
    assert taking.over is None
    taking.ask(counts=True)
    assert taking.over == up_to(2)
    assert ids(taking.take(9)) == [3]
    taking.forget_taken()
    taking.note_taken()
    assert taking.over == up_to(2)


def test_of_an_iteration_all_but_the_current_one_is_over() -> None:
    taking = Taking(Clock())
    taking.put(some(1, 2, 3))
    for number in (1, 2, 3):
        message = taking.next_now()
        assert message is not None
        assert message.local_id == number
        assert taking.over == (up_to(number - 1) if number > 1 else None)
    assert taking.next_now() is None
    assert taking.over == up_to(3)
    assert taking.iterated == 3


def test_what_is_given_back_comes_first_and_not_after_beginning_anew() -> None:
    taking = Taking(Clock())
    taking.put(some(1, 2, 3))
    taking.ask(counts=True)
    given = taking.take(2)
    assert taking.give_back(given)
    taking.ask(counts=True)
    assert taking.over is None
    given = taking.take(3)
    assert ids(given) == [1, 2, 3]
    taking.begin_anew()
    taking.put(some(1))
    assert not taking.give_back(given)
    assert ids(taking.take(9)) == [1]


def test_a_reader_waits_until_something_comes_or_its_time_is_over_or_all_is() -> None:
    clock = Clock()
    taking = Taking(clock)
    first = taking.wait(2, 1.0)
    clock.advance(1.0)
    assert first.result == []
    second = taking.wait(2, 1.0)
    assert taking.is_awaited
    taking.put(some(1, 2, 3))
    assert ids(second.result) == [1, 2]  # type: ignore[arg-type]
    assert clock.getDelayedCalls() == []
    taking.take(9)
    third = taking.wait(2, None)
    third.cancel()
    third.addErrback(lambda _: None)
    assert not taking.is_awaited
    fourth = taking.wait(2, None)
    taking.end(ClientClosed("closed"))
    failed: list[object] = []
    fourth.addErrback(lambda failure: failed.append(failure.value))
    assert isinstance(failed[0], ClientClosed)
