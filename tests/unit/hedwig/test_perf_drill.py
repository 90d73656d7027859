"""What a failover drill notes, and that every broken promise is found in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookkeeper.console.output import EXIT_FAILURE, EXIT_USAGE
from hedwig.cli import perf
from hedwig.cli.main import main
from hedwig.cli.perf import arrange
from hedwig.perf.drill import Outcome, Plan
from hedwig.perf.drill_check import (
    EXAMPLES_MAX,
    LOST,
    ONCE,
    ONE_MESSAGE,
    ORDER,
    POSITION,
    REFUSED_STORED,
    Blow,
    Noted,
    Position,
    check,
    pauses,
)
from hedwig.perf.drill_records import (
    ACKNOWLEDGED,
    CHANGED,
    REFUSED,
    SIZE_MIN,
    UNKNOWN,
    Delivery,
    Publish,
    Session,
    body,
    deliveries,
    encode_delivery,
    encode_publish,
    number_of,
    publishes,
)


def story() -> Noted:
    """One topic, two subscribers; nothing is wrong.

    Message 3 was sent again after its outcome was unknown and has ids 3 and 4. Subscriber 1 took four ids, said that
    two are consumed, closed, attached again and got the rest.
    """
    noted = Noted(topics=1, subscribers_each=2)
    for number, message_id, floor in ((1, 1, 0), (2, 2, 1), (3, 4, 2), (4, 5, 4)):
        noted.publishes.append(Publish(0, number, ACKNOWLEDGED, message_id, floor, number, number + 0.5))
    stored = {1: 1, 2: 2, 3: 3, 4: 3, 5: 4}
    noted.deliveries += [Delivery(0, 0, 1, each, number, 10.0 + each) for each, number in stored.items()]
    noted.deliveries += [Delivery(0, 1, 1, each, stored[each], 10.0 + each) for each in (1, 2, 3, 4)]
    noted.deliveries += [Delivery(0, 1, 2, each, stored[each], 20.0 + each) for each in (3, 4, 5)]
    noted.sessions += [Session(0, 0, 1, 0.0, 30.0, 5), Session(0, 1, 1, 0.0, 19.0, 2), Session(0, 1, 2, 20.0, 30.0, 5)]
    noted.positions += [Position(0, 1, 12.5, 13.0, 2), Position(0, 1, 18.0, 18.5, 2), Position(0, 1, 31.0, 31.5, 5)]
    return noted


def test_a_drill_in_which_all_went_well_has_counts_and_no_faults() -> None:
    found = check(story())
    assert not found.faults
    assert not found.examples
    assert (found.acknowledged, found.delivered, found.sessions) == (4, 12, 3)
    assert (found.delivered_again, found.stored_again, found.overtaken) == (2, 1, 0)


def broken(promise: str, noted: Noted) -> str:
    """Only this promise is broken; the first example."""
    found = check(noted)
    assert set(found.faults) == {promise}
    assert found.examples[0].startswith(f"{promise}: topic 0")
    return found.examples[0]


def test_an_acknowledged_message_that_one_subscriber_did_not_get_is_lost() -> None:
    noted = story()
    noted.deliveries.remove(Delivery(0, 0, 1, 5, 4, 15.0))
    assert "subscriber 0: message 4, acknowledged as 5" in broken(LOST, noted)


def test_what_nobody_got_is_lost_for_every_subscriber() -> None:
    noted = story()
    noted.publishes.append(Publish(0, 5, ACKNOWLEDGED, 6, 5, 6.0, 6.5))
    assert check(noted).faults == {LOST: 2}


def test_an_id_that_is_left_out_within_one_object_is_out_of_order() -> None:
    noted = story()
    noted.publishes[1] = noted.publishes[1]._replace(outcome=UNKNOWN, id=0)
    noted.deliveries.remove(Delivery(0, 0, 1, 2, 2, 12.0))
    assert "id 3 came after 1" in broken(ORDER, noted)


def test_an_id_that_comes_again_within_one_object_is_out_of_order() -> None:
    noted = story()
    noted.deliveries.insert(2, Delivery(0, 0, 1, 2, 2, 12.0))
    assert "id 2 came after 2" in broken(ORDER, noted)


def test_a_message_with_a_smaller_id_than_one_that_was_acknowledged_before_is_out_of_order() -> None:
    noted = story()
    noted.publishes[3] = noted.publishes[3]._replace(floor=5)
    assert "message 4 was handed over when 5 was acknowledged, and has id 5" in broken(ORDER, noted)


def test_a_repeat_with_a_smaller_id_than_one_that_was_acknowledged_before_is_out_of_order() -> None:
    noted = story()
    noted.publishes[2] = noted.publishes[2]._replace(floor=3)
    assert "message 3 was handed over when 3 was acknowledged, and has id 3" in broken(ORDER, noted)


def test_messages_in_flight_together_may_overtake_each_other_and_are_counted() -> None:
    noted = story()
    noted.publishes[0] = noted.publishes[0]._replace(number=2)
    noted.publishes[1] = noted.publishes[1]._replace(number=1, floor=0)
    noted.deliveries = [each._replace(number={1: 2, 2: 1}.get(each.number, each.number)) for each in noted.deliveries]
    found = check(noted)
    assert not found.faults
    assert found.overtaken == 1


def test_publishers_that_store_once_may_do_neither() -> None:
    noted = replace(story(), once=True)
    assert "message 3 has ids [3, 4]" in broken(ONCE, noted)
    noted.deliveries = [each for each in noted.deliveries if each.id < 3]
    noted.publishes = [noted.publishes[0]._replace(number=2), noted.publishes[1]._replace(number=1, floor=0)]
    noted.deliveries = [each._replace(number={1: 2, 2: 1}[each.number]) for each in noted.deliveries]
    noted.positions.clear()
    assert "message 2 has id 1, one before it 2" in broken(ONCE, noted)


def test_an_id_with_two_messages_is_found() -> None:
    noted = story()
    noted.deliveries[-1] = noted.deliveries[-1]._replace(number=9)
    assert "id 5: message 9 for subscriber 1, 4 before" in broken(ONE_MESSAGE, noted)


def test_a_message_with_other_bytes_is_found() -> None:
    noted = story()
    noted.deliveries[-1] = noted.deliveries[-1]._replace(number=CHANGED)
    assert "has bytes that nobody published" in broken(ONE_MESSAGE, noted)


def test_a_stored_position_that_goes_back_is_found() -> None:
    noted = story()
    noted.positions[1] = replace(noted.positions[1], consumed=1)
    assert "went back from 2 to 1" in broken(POSITION, noted)


def test_a_stored_position_beyond_what_was_delivered_is_found() -> None:
    noted = story()
    noted.positions[0] = replace(noted.positions[0], ended_s=11.5)
    assert "2 is stored, and 1 was delivered last" in broken(POSITION, noted)


def test_an_object_that_begins_before_the_stored_position_is_found() -> None:
    noted = story()
    noted.positions[1] = replace(noted.positions[1], consumed=3)
    assert "object 2: began with 3, and 3 was stored" in broken(POSITION, noted)


def test_an_object_that_passes_over_what_was_not_consumed_is_found() -> None:
    noted = story()
    noted.deliveries.remove(Delivery(0, 1, 2, 3, 3, 23.0))
    assert "object 2: began with 4, and 2 was consumed" in broken(POSITION, noted)


def test_a_refused_publish_that_was_stored_is_found_and_an_unknown_one_may_be() -> None:
    noted = story()
    noted.publishes[3] = noted.publishes[3]._replace(outcome=UNKNOWN, id=0)
    assert not check(noted).faults
    noted.publishes[3] = noted.publishes[3]._replace(outcome=REFUSED)
    assert "message 4 has ids [5]" in broken(REFUSED_STORED, noted)


def test_all_faults_are_counted_and_few_are_told() -> None:
    noted = story()
    noted.deliveries.clear()
    noted.positions.clear()
    found = check(noted)
    assert found.faults == {LOST: 8}
    assert len(found.examples) == EXAMPLES_MAX


def test_a_pause_is_the_longest_of_the_topics_that_were_hit_from_the_blow_until_the_next_one() -> None:
    noted = Noted(topics=2, subscribers_each=1)
    for topic, times in ((0, (1.0, 2.0, 5.0, 6.0, 16.0)), (1, (1.0, 10.0, 11.0, 12.0))):
        noted.publishes += [Publish(topic, 1, ACKNOWLEDGED, 1, 0, at, at) for at in times]
        noted.deliveries += [Delivery(topic, 0, 1, 1, 1, at + 0.5) for at in times]
    blows = [Blow("hub kill", "hub 1", 2.5, frozenset({0})), Blow("bookie kill", "bookie 1", 5.5, frozenset({0, 1}))]
    hub, bookie = pauses(noted, blows)
    assert (hub.kind, hub.publishes, hub.deliveries) == ("hub kill", [2.5], [3.0])
    assert (bookie.publishes, bookie.deliveries) == ([10.0], [10.0])
    assert hub.to_json()["publish_pause_s_median"] == 2.5


def test_records_are_read_as_they_were_written() -> None:
    publish = Publish(3, 70_000, UNKNOWN, 2**40, 2**39, 1.5, 2.5)
    delivery = Delivery(3, 1, 7, 2**40, 70_000, 1.5)
    assert list(publishes(encode_publish(publish) * 2)) == [publish, publish]
    assert list(deliveries(encode_delivery(delivery) * 2)) == [delivery, delivery]


@pytest.mark.parametrize("size", [SIZE_MIN, 100, 256])
def test_a_message_tells_its_number_and_any_other_byte_shows(size: int) -> None:
    message = body(3, 70_000, size)
    assert len(message) == size
    assert number_of(message, 3) == 70_000
    assert number_of(message, 4) == CHANGED
    if size > SIZE_MIN:
        assert number_of(message[:-1] + b"\xff", 3) == CHANGED
    assert number_of(b"", 3) == CHANGED


def test_perf_without_an_action_measures_rates() -> None:
    assert arrange([]) == ["rates"]
    assert arrange(["--topics", "1"]) == ["rates", "--topics", "1"]
    for words in (["rates", "--json"], ["failover"], ["--help"]):
        assert arrange(words) == words


@pytest.fixture
def outcome() -> Outcome:
    blows = [Blow("hub kill", "hub 1", 1.0, frozenset({0}))]
    noted = story()
    return Outcome(Plan(1, 0), check(noted), blows, pauses(noted, blows), [], 0, 0, 9.0)


def drilled(monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> list[Plan]:
    """Instead of real drills: what was planned."""
    plans: list[Plan] = []

    def drill(plan: Plan, settings: dict[str, str], **_: object) -> Outcome:
        assert settings["consume_interval"] == "20"
        plans.append(plan)
        return outcome

    monkeypatch.setattr(perf, "drill", drill)
    return plans


def test_a_drill_that_kept_all_promises_ends_well(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = drilled(monkeypatch, outcome)
    words = ["--hub-kills", "30", "--bookie-kills", "10", "--topics", "20", "--subscribers", "40"]
    assert main(["perf", "failover", *words, "--json"]) == 0
    assert '"lost": 0' in capsys.readouterr().out
    [plan] = plans
    assert (plan.hub_kills, plan.bookie_kills, plan.topics, plan.subscribers_each) == (30, 10, 20, 2)


@pytest.mark.parametrize("trouble", [False, True])
def test_a_broken_promise_is_a_failure_that_says_which(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, trouble: bool
) -> None:
    if trouble:
        outcome.trouble.append("hub 2 ended by itself")
    else:
        outcome.findings.fault(LOST, "topic 0, subscriber 1: message 7")
    drilled(monkeypatch, outcome)
    assert main(["perf", "failover"]) == EXIT_FAILURE
    told = capsys.readouterr()
    assert "hub kills" in told.out
    assert ("hub 2 ended by itself" if trouble else "lost: topic 0, subscriber 1: message 7") in told.err


@pytest.mark.parametrize(
    "words", [["--subscribers", "41"], ["--rate", "0"], ["--hubs", "1"], ["--topics", "1,2"], ["-D", "server_prt=1"]]
)
def test_what_cannot_be_drilled_is_wrong_usage(
    words: list[str], outcome: Outcome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = drilled(monkeypatch, outcome)
    assert main(["perf", "failover", *words]) == EXIT_USAGE
    assert words[-1].partition("=")[0] in capsys.readouterr().err
    assert not plans
