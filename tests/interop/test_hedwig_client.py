"""Apache Hedwig's client, of both releases and with both kinds of channels, at our hub; and at genuine hubs, on our
bookies, as the control: the same scenarios with the same outcome.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.interop.hedwig_cells import CELLS, Cell, HedwigMatrix
from tests.support.apache_hedwig import OURS, HedwigClient, HedwigError, HubProcess
from tests.support.apache_hedwig.client import numbered

SMALL = 1000
LARGE = 1_048_000  # a little below what a hub takes with its header and its frame, and 1 MiB
LARGEST, TOO_LARGE = 1_258_100, 1_258_288  # with its header, and alone more than a frame
MANUAL = {"auto_send_consume_message_enabled": "false"}

ALREADY_SUBSCRIBED, NOT_SUBSCRIBED, SERVICE_DOWN = 403, 404, 502

_numbers = itertools.count(1)


@pytest.fixture(params=CELLS, ids=[f"{row.version}-{row.channels}-at-{kind.replace(' ', '-')}" for row, kind in CELLS])
def cell(
    request: pytest.FixtureRequest,
    hedwig_clients: Callable[[str], HedwigClient],
    hedwig_hubs: Callable[[str], HubProcess],
    hedwig_matrix: HedwigMatrix,
) -> Iterator[Cell]:
    row, kind = request.param
    cell = Cell(row, hedwig_clients(row.version), hedwig_hubs(kind), next(_numbers))
    hedwig_matrix.begin((row, kind))
    yield cell
    cell.close()
    if cell.passed:
        hedwig_matrix.passed((row, kind), cell.compared)


def test_messages_of_all_sizes_and_their_headers_arrive_as_they_were_published(cell: Cell) -> None:
    tool, client = cell.tool, cell.open("a")
    cell.reads(client, "reader", "CREATE")
    assert cell.ids("publish", client, cell.topic, 1, 0, 20, LARGE) == list(range(1, 21))
    assert cell.ids("stream", client, cell.topic, 1, 20, 40, LARGE) == list(range(21, 61))
    assert tool.run("blind", client, cell.topic, 1, 60, 40, LARGE) == []
    cell.received(client, "reader", numbered(1, range(100), LARGE))
    cell.done()


def test_a_subscription_must_be_new_or_there_as_was_asked(cell: Cell) -> None:
    tool, client, other = cell.tool, cell.open("a"), cell.open("b")
    with pytest.raises(HedwigError, match="ClientNotSubscribed") as missing:
        tool.run("subscribe", client, cell.topic, "reader", "ATTACH")
    assert missing.value.code == SERVICE_DOWN  # so the client tells it, with the reason as its cause
    with pytest.raises(HedwigError) as missing:
        tool.run("unsubscribe", client, cell.topic, "reader")
    assert missing.value.code == NOT_SUBSCRIBED
    tool.run("subscribe", client, cell.topic, "reader", "CREATE")
    tool.run("publish", client, cell.topic, 1, 0, 3, SMALL)
    with pytest.raises(HedwigError) as there:
        tool.run("subscribe", other, cell.topic, "reader", "CREATE")
    assert there.value.code == ALREADY_SUBSCRIBED
    tool.run("close", client, cell.topic, "reader")
    for mode in ("ATTACH", "CREATE_OR_ATTACH"):
        tool.run("subscribe", other, cell.topic, "reader", mode)
        assert tool.run("has", other, cell.topic, "reader") == ["true"]
        tool.run("close", other, cell.topic, "reader")
        assert tool.run("has", other, cell.topic, "reader") == ["false"]
    cell.reads(other, "reader", "ATTACH")
    cell.received(other, "reader", numbered(1, range(3), SMALL))
    cell.done()


def test_a_new_subscription_begins_behind_what_is_there_and_ends_with_unsubscribe(cell: Cell) -> None:
    tool, client = cell.tool, cell.open("a")
    tool.run("publish", client, cell.topic, 1, 0, 5, SMALL)
    tool.run("subscribe", client, cell.topic, "reader", "CREATE")
    tool.run("publish", client, cell.topic, 1, 5, 2, SMALL)
    tool.run("deliver", client, cell.topic, "reader")
    first = numbered(1, [5, 6], SMALL, 6)
    cell.received(client, "reader", first)
    tool.run("unsubscribe", client, cell.topic, "reader")
    with pytest.raises(HedwigError) as missing:
        tool.run("unsubscribe", client, cell.topic, "reader")
    assert missing.value.code == NOT_SUBSCRIBED
    tool.run("publish", client, cell.topic, 1, 7, 3, SMALL)
    cell.reads(client, "reader", "CREATE")
    tool.run("publish", client, cell.topic, 1, 10, 1, SMALL)
    cell.received(client, "reader", first + numbered(1, [10], SMALL, 11))
    cell.done()


def test_what_was_not_consumed_comes_again_after_a_close(cell: Cell) -> None:
    """By itself the client says after every fifth message how far it is. With that window, message 11 comes only when
    the hub has heard of it: it could hear of a new connection first.
    """
    tool, client = cell.tool, cell.open("a")
    cell.reads(client, "reader", "CREATE", "window=5")
    tool.run("publish", client, cell.topic, 1, 0, 12, SMALL)
    everything = numbered(1, range(12), SMALL)
    cell.received(client, "reader", everything)
    tool.run("close", client, cell.topic, "reader")
    cell.reads(client, "reader", "ATTACH")
    cell.received(client, "reader", everything + everything[10:])
    cell.done()


def test_a_client_that_starts_again_goes_on_where_it_consumed_by_hand(cell: Cell) -> None:
    tool, client = cell.tool, cell.open("a", MANUAL)
    cell.reads(client, "reader", "CREATE", "window=19")
    tool.run("publish", client, cell.topic, 1, 0, 20, SMALL)
    everything = numbered(1, range(20), SMALL)
    cell.received(client, "reader", everything[:19])
    tool.run("consume", client, cell.topic, "reader", 7)
    cell.received(client, "reader", everything)  # so the hub has heard of it
    if cell.hub.kind == OURS:
        tool.run("consume", client, cell.topic, "reader", 4)  # nothing new; a genuine hub goes back to it
    tool.run("close", client, cell.topic, "reader")
    cell.shut(client)
    again = cell.open("b", MANUAL)
    cell.reads(again, "reader", "CREATE_OR_ATTACH")
    cell.received(again, "reader", everything[7:])
    with pytest.raises(HedwigError) as missing:
        tool.run("consume", again, cell.topic, "somebody", 1)
    assert missing.value.code == NOT_SUBSCRIBED
    cell.done()


def test_a_window_holds_messages_back_until_others_are_consumed(cell: Cell) -> None:
    """What comes for a subscription without a window, of later messages, says that nothing else was on its way."""
    tool, client = cell.tool, cell.open("a", MANUAL)
    cell.reads(client, "narrow", "CREATE", "window=3")
    cell.reads(client, "wide", "CREATE")
    everything = numbered(1, range(9), SMALL)
    tool.run("publish", client, cell.topic, 1, 0, 8, SMALL)
    cell.received(client, "wide", everything[:8])
    cell.received(client, "narrow", everything[:3])
    tool.run("consume", client, cell.topic, "narrow", 2)
    cell.received(client, "narrow", everything[:5])
    tool.run("publish", client, cell.topic, 1, 8, 1, SMALL)
    cell.received(client, "wide", everything)
    cell.received(client, "narrow", everything[:5])
    tool.run("consume", client, cell.topic, "narrow", 5)
    cell.received(client, "narrow", everything[:8])
    tool.run("consume", client, cell.topic, "narrow", 8)
    cell.received(client, "narrow", everything)
    cell.done()


def test_a_bounded_subscription_is_left_the_newest_messages(cell: Cell) -> None:
    tool, client = cell.tool, cell.open("a")
    tool.run("subscribe", client, cell.topic, "reader", "CREATE", "bound=3")
    tool.run("close", client, cell.topic, "reader")
    tool.run("publish", client, cell.topic, 1, 0, 10, SMALL)
    cell.reads(client, "reader", "ATTACH")
    cell.received(client, "reader", numbered(1, range(7, 10), SMALL, 8))
    cell.done()


def test_a_filter_in_the_client_gets_the_preferences_that_the_hub_keeps(cell: Cell) -> None:
    tool, client, other = cell.tool, cell.open("a", MANUAL), cell.open("b", MANUAL)
    tool.run("subscribe", client, cell.topic, "reader", "CREATE", "every:4", "colour:red")
    tool.run("deliver", client, cell.topic, "reader", "filter")
    tool.run("publish", client, cell.topic, 1, 0, 13, SMALL)
    wanted = [numbered(1, range(17), SMALL)[number] for number in (0, 4, 8, 12, 16)]
    cell.received(client, "reader", wanted[:4])
    tool.run("close", client, cell.topic, "reader")
    tool.run("publish", client, cell.topic, 1, 13, 4, SMALL)
    tool.run("subscribe", other, cell.topic, "reader", "ATTACH")  # and says nothing of it
    tool.run("deliver", other, cell.topic, "reader", "filter")
    cell.received(other, "reader", wanted)
    cell.done()


def test_every_subscriber_gets_every_message(cell: Cell) -> None:
    tool, client, other = cell.tool, cell.open("a"), cell.open("b")
    readers = [(client, "one"), (client, "two"), (other, "three")]
    for name, subscriber in readers:
        cell.reads(name, subscriber, "CREATE")
    tool.run("stop", client, cell.topic, "two")
    # This client keeps the order of its publishes from the time on when it has a connection for them.
    tool.run("publish", other, cell.topic, 1, 0, 1, SMALL)
    tool.run("stream", other, cell.topic, 1, 1, 29, SMALL)
    everything = numbered(1, range(30), SMALL)
    cell.received(client, "one", everything)
    tool.run("deliver", client, cell.topic, "two")
    cell.received(client, "two", everything)
    cell.received(other, "three", everything)
    cell.done()


def test_a_subscription_that_somebody_holds_is_busy_unless_it_is_taken_by_force(cell: Cell) -> None:
    tool, holder, taker = cell.tool, cell.open("a", MANUAL), cell.open("b", MANUAL)
    cell.reads(holder, "reader", "CREATE", "once")
    tool.run("publish", holder, cell.topic, 1, 0, 5, SMALL)
    everything = numbered(1, range(8), SMALL)
    cell.received(holder, "reader", everything[:5])
    with pytest.raises(HedwigError, match="TopicBusy") as busy:
        tool.run("subscribe", taker, cell.topic, "reader", "ATTACH")
    assert busy.value.code == SERVICE_DOWN
    if cell.hub.kind != OURS:
        taker = cell.open(
            "c", MANUAL
        )  # a genuine hub ends the connection that it said "busy" on, now or a little later
    tool.run("subscribe", taker, cell.topic, "reader", "ATTACH", "force")
    assert tool.run("events", holder, 1) == [f"{cell.topic} reader SUBSCRIPTION_FORCED_CLOSED"]
    tool.run("deliver", taker, cell.topic, "reader")
    tool.run("publish", holder, cell.topic, 1, 5, 3, SMALL)
    cell.received(taker, "reader", everything)
    cell.received(holder, "reader", everything[:5])
    assert tool.run("has", holder, cell.topic, "reader") == ["false"]
    cell.done()


def test_the_largest_message_passes_and_a_larger_one_fails_alone(cell: Cell) -> None:
    """The hub's limit is of the frame; the old ledger client of genuine hubs sends it on to our bookies whole."""
    tool, client = cell.tool, cell.open("a")
    cell.reads(client, "reader", "CREATE")
    assert cell.ids("publish", client, cell.topic, 2, 0, 2, LARGEST) == [1, 2]
    with pytest.raises(HedwigError) as too_large:
        tool.run("publish", client, cell.topic, 2, 1, 1, TOO_LARGE)
    assert too_large.value.code == SERVICE_DOWN
    assert cell.ids("publish", client, cell.topic, 2, 0, 1, LARGEST) == [3]
    first, largest = numbered(2, range(2), LARGEST)
    cell.received(client, "reader", [first, largest, first.replace("1", "3", 1)])
    cell.done()
