"""The client's parts that need no hub: names and values, addresses of hubs, settings, what statuses there are."""

from __future__ import annotations

import dataclasses
import random

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

import hedwig
from bookkeeper.errors import ConfigurationError, InvalidArgument
from hedwig.client.connecting import core_settings, parse_hubs
from hedwig.client.faces.values import as_bytes, properties_of
from hedwig.client.hubs import HUBS_MAX, Asking, Hubs
from hedwig.client.link import HubLink, Turns
from hedwig.client.settings import PubSubSettings, backoff
from hedwig.client_config import HedwigClientSettings, load_hedwig_client
from hedwig.errors import PubSubError, UncertainState, error_of
from hedwig.model import HubAddress, Status
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.responses import Answer

USUAL = HedwigClientSettings()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("localhost:4080", [HubAddress("localhost", 4080)]),
        ("hub", [HubAddress("hub", 4080)]),
        ("a:1:2, b:3", [HubAddress("a", 1, 2), HubAddress("b", 3)]),
        ("10.0.0.1:4080:-1", [HubAddress("10.0.0.1", 4080)]),
        (["a:1", "b:2:3"], [HubAddress("a", 1), HubAddress("b", 2, 3)]),
        (None, [HubAddress("localhost", 4080, 9876)]),
    ],
)
def test_hubs_are_given_as_text_as_a_list_or_by_the_settings(given: object, wanted: list[HubAddress]) -> None:
    assert list(parse_hubs(given, USUAL)) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["", ",", "a:b", "a:0", "a:65536", "a:1:2:3", ":4080", "a:1,,b:2", []])
def test_what_is_no_hub_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        parse_hubs(given, USUAL)  # type: ignore[arg-type]


def test_with_tls_every_hub_needs_its_port_for_that() -> None:
    secured = HedwigClientSettings(tls=True, ssl_trust_all=True)
    assert parse_hubs("a:1:2", secured) == (HubAddress("a", 1, 2),)
    with pytest.raises(ConfigurationError, match="b:3:SSLPORT"):
        parse_hubs("a:1:2,b:3", secured)


def test_every_setting_of_the_core_comes_from_the_key_of_that_name() -> None:
    changed = {"tls": True, "shared_connections": False}
    for number, field in enumerate(dataclasses.fields(PubSubSettings), 1000):
        changed.setdefault(field.name, number)  # type: ignore[arg-type]
    found = core_settings(HedwigClientSettings(**changed))  # type: ignore[arg-type]
    assert dataclasses.asdict(found) == changed


def test_the_defaults_of_the_core_are_those_of_the_keys() -> None:
    assert core_settings(USUAL) == PubSubSettings()


def test_a_message_must_not_linger_until_its_time_is_over() -> None:
    load_hedwig_client(None, {"publish_linger_ms": "4999", "retry_timeout_ms": "5000"}, {})
    with pytest.raises(ConfigurationError, match="publish_linger_ms is not below retry_timeout_ms"):
        load_hedwig_client(None, {"publish_linger_ms": "5000", "retry_timeout_ms": "5000"}, {})


def test_text_is_utf8_and_bytes_are_taken_as_they_are() -> None:
    assert as_bytes("ä", "it") == b"\xc3\xa4"
    assert [as_bytes(each, "it") for each in (b"\xff", bytearray(b"x"), memoryview(b"y"))] == [b"\xff", b"x", b"y"]
    assert properties_of(None) == {}
    assert properties_of({"a": "b", "c": b"\x00"}) == {"a": b"b", "c": b"\x00"}
    for wrong in (None, 1, ["x"], "\ud800"):
        with pytest.raises(InvalidArgument, match=r"^the body"):
            as_bytes(wrong, "the body")
    with pytest.raises(InvalidArgument, match="name that is bytes"):
        properties_of({b"a": "b"})  # type: ignore[dict-item]


def test_every_status_of_the_protocol_is_known_and_becomes_an_error() -> None:
    assert {number for _, number in pb.StatusCode.items()} == {int(each) for each in Status}
    for each in Status:
        assert isinstance(error_of(each, "why"), PubSubError)
        assert str(error_of(each, ""))


def test_the_pause_grows_and_has_a_bound() -> None:
    settings, rng = PubSubSettings(retry_min_s=0.05, retry_max_s=1.0), random.Random(1)
    waited = 0.0
    for failures in [*range(1, 30), 5000]:
        longest = min(1.0, 0.05 * 1.25 ** min(failures - 1, 100))
        pause = backoff(settings, failures, rng)
        assert longest / 2 <= pause <= longest
        assert pause <= 0.05 + waited / 2, "what comes back is noticed soon after"
        waited += pause


def test_hubs_that_were_given_are_never_forgotten() -> None:
    given = HubAddress("given", 4080)
    hubs = Hubs(Clock(), None, None, [given], PubSubSettings())  # type: ignore[arg-type]
    for number in range(HUBS_MAX + 100):
        hubs.met(HubAddress("met", number))
    assert given in hubs._hubs  # noqa: SLF001 - nothing tells it but that it is asked when all others are gone
    assert len(hubs._hubs) == HUBS_MAX  # noqa: SLF001


def test_so_many_ask_at_a_time_in_their_order_and_one_may_give_up() -> None:
    asking, order = Asking(2), list[int]()
    done: list[Deferred[None]] = [Deferred() for _ in range(5)]

    async def one(number: int) -> None:
        async with asking:
            order.append(number)
            await done[number]

    asked = [Deferred.fromCoroutine(one(number)) for number in range(5)]
    assert order == [0, 1]
    asked[2].cancel()
    asked[2].addErrback(lambda _: None)
    done[1].callback(None)
    assert order == [0, 1, 3]
    done[0].errback(ZeroDivisionError())
    asked[0].addErrback(lambda _: None)
    assert order == [0, 1, 3, 4]
    done[3].callback(None)
    done[4].callback(None)
    assert all(each.called for each in asked)


def test_very_many_that_have_nothing_to_wait_for_do_not_end_within_each_other() -> None:
    asking, ended = Asking(1), list[int]()
    begin: Deferred[None] = Deferred()

    async def one(number: int) -> None:
        async with asking:
            if not number:
                await begin
        ended.append(number)

    asked = [Deferred.fromCoroutine(one(number)) for number in range(5000)]
    begin.callback(None)
    assert sorted(ended) == list(range(5000))
    assert all(each.called for each in asked)


def test_names_are_found_without_a_reactor() -> None:
    assert hedwig.HedwigClientSettings is HedwigClientSettings
    assert callable(hedwig.connect)
    with pytest.raises(AttributeError, match="nothing"):
        hedwig.nothing  # type: ignore[attr-defined]  # noqa: B018


# --- one connection


class Transport:
    """What is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def writeSequence(self, parts: list[bytes]) -> None:
        self.done.append("write")

    def loseConnection(self) -> None:
        self.done.append("lose")

    def abortConnection(self) -> None:
        self.done.append("abort")


class Asked:
    def __init__(self) -> None:
        self.outcome: Deferred[object] = Deferred()

    def on_answer(self, link: HubLink, answer: Answer) -> None:
        self.outcome.callback(answer)

    def on_unknown(self, link: HubLink, error: PubSubError) -> None:
        self.outcome.errback(error)


def link_of(clock: Clock) -> tuple[HubLink, list[HubLink]]:
    lost: list[HubLink] = []
    link = HubLink(clock, HubAddress("hub", 4080), lost.append, answer_timeout_s=10.0, heartbeat_s=5.0)
    return link, lost


def test_a_connection_that_was_closed_ends_though_the_hub_reads_no_more() -> None:
    clock, transport, asked = Clock(), Transport(), Asked()
    link, lost = link_of(clock)
    link.makeConnection(transport)  # type: ignore[arg-type]
    link.ask(lambda txn_id: b"question", asked)
    link.close()
    assert transport.done == ["write", "lose"]
    assert lost == [link]
    failure = asked.outcome.addErrback(lambda failed: failed.value).result
    assert isinstance(failure, UncertainState)
    later = Asked()
    link.ask(lambda txn_id: b"question", later)
    assert isinstance(later.outcome.addErrback(lambda failed: failed.value).result, UncertainState)
    clock.advance(10.0)
    assert transport.done == ["write", "lose", "abort"]
    link.connectionLost(None)
    assert lost == [link]
    assert clock.getDelayedCalls() == []


def test_a_connection_that_was_closed_before_it_was_made_is_dropped_when_it_is() -> None:
    clock, transport = Clock(), Transport()
    link, lost = link_of(clock)
    link.close()
    assert lost == []
    link.makeConnection(transport)  # type: ignore[arg-type]
    assert transport.done == ["abort"]
    link.connectionLost(None)
    assert lost == [link]


def test_what_breaks_in_the_middle_of_a_turn_leaves_the_others_alone() -> None:
    clock, written = Clock(), []
    turns = Turns(clock, 0.0)

    class Link:
        def flush(self) -> None:
            written.append("flushed")

    def breaks() -> None:
        turns.write(Link())  # type: ignore[arg-type]
        raise ZeroDivisionError

    turns.send(breaks)
    turns.send(lambda: written.append("sent"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(0)
    assert written == ["flushed"]
    clock.advance(0)
    assert written == ["flushed", "sent"]


def test_only_publishes_linger() -> None:
    """A subscribe, a heartbeat, a CONSUME that did would be late, or never leave before its hub is held to be dead."""
    clock, done = Clock(), []
    turns = Turns(clock, 5.0)

    class Link:
        def flush(self) -> None:
            done.append("flushed")

    def pump() -> None:
        done.append("sent")
        turns.write(Link())  # type: ignore[arg-type]

    turns.write(Link())  # type: ignore[arg-type]
    turns.send(pump)
    clock.advance(0)
    assert done == ["flushed"]
    clock.advance(5.0)
    assert done == ["flushed", "sent", "flushed"]
    assert clock.getDelayedCalls() == []
