"""What programs may hand over, in every face; all else is refused where it is given, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bookkeeper.errors import InvalidArgument
from hedwig.client.client import PubSubClient
from hedwig.client.faces.aio import AsyncSubscription
from hedwig.client.faces.blocking import BlockingSubscription
from hedwig.client.faces.values import bodies_of, id_of, preferences_of, properties_of
from hedwig.client.link import HubLink
from hedwig.client.subscriptions.start import replay_option
from hedwig.client.subscriptions.work_queue import one_by_one
from hedwig.errors import MalformedRequest
from hedwig.model import HubAddress, LocalId, MessageId, Preferences
from hedwig.protocol.options import ACK_TIMEOUT, DEAD_LETTER
from hedwig.wire.receiving import Received
from hedwig.wire.view import MessageView

MESSAGE = Received(b"x", LocalId(7))


@pytest.mark.parametrize("given", [MESSAGE, MessageId(LocalId(7)), 7])
def test_a_message_is_meant_by_itself_by_its_id_or_by_its_number(given: Any) -> None:
    assert id_of(given, "message") == MessageId(LocalId(7))
    assert replay_option(given).startswith(b"id:7;")


@pytest.mark.parametrize("given", ["7", b"7", 7.0, True, None, (7, ()), MessageId("7"), MessageId(None)])  # type: ignore[arg-type]
def test_what_is_no_message_is_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^message is .*must be a message, a MessageId, or an id as an int$"):
        id_of(given, "message")


@pytest.mark.parametrize("given", [0, -1, 2**63, MessageId(LocalId(-1))])
def test_an_id_that_no_message_can_have_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^message is .*ids of messages are from 1 to"):
        id_of(given, "message")
    if given != 0:
        with pytest.raises(InvalidArgument, match=r"^start is "):
            replay_option(given)


@pytest.mark.parametrize("given", ["2020", b"5", 1.5, None, [1]])
def test_a_start_that_is_none_is_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^start is .*datetime with a time zone$"):
        replay_option(given)


class Core:
    """A subscription, as the faces call it."""

    individual = True
    preferences = Preferences(window_size=100)

    def __init__(self) -> None:
        self.said: list[object] = []

    def consume(self, message: Any) -> None:
        self.said.append(id_of(message, "message"))

    ack = consume

    def nack(self, message: Any, delay_s: float) -> None:
        self.said.append((id_of(message, "message"), delay_s))

    def seek(self, start: Any) -> Deferred[None]:
        raise AssertionError("it was refused before")


class Crossing:
    """The other thread is this one."""

    def check(self) -> None:
        pass

    check_process = check

    def post(self, call: Callable[[], object]) -> None:
        try:
            call()
        except InvalidArgument as error:
            raise AssertionError("nobody would hear of it in that thread") from error


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
@pytest.mark.parametrize("what", ["consume", "ack", "nack"])
def test_every_face_takes_ids_as_numbers_and_refuses_words_at_once(face: str, what: str) -> None:
    core: Any = Core()
    crossing: Any = Crossing()
    messages: Any = AsyncSubscription(core, crossing) if face == "asyncio" else BlockingSubscription(core, crossing)
    call = getattr(messages, what)
    for given in (7, MessageId(LocalId(7)), MESSAGE):
        call(given)
    seven = MessageId(LocalId(7))
    assert core.said == [(seven, 0.0) if what == "nack" else seven] * 3
    for wrong in ("x", None, -1):
        with pytest.raises(InvalidArgument, match="message is "):
            call(wrong)


def test_a_blocking_program_hears_at_once_that_it_cannot_begin_there_or_give_back_so_late() -> None:
    core: Any = Core()
    crossing: Any = Crossing()
    messages = BlockingSubscription(core, crossing)
    wrong: Any = "2020"
    with pytest.raises(InvalidArgument, match="start is '2020'"):
        messages.seek(wrong)
    for delay_s in (-1.0, float("nan"), 1e9, wrong):
        with pytest.raises(InvalidArgument, match="delay_s is "):
            messages.nack(1, delay_s)
    counts: list[Any] = [0, 1.5, wrong]
    for count_max in counts:
        with pytest.raises(InvalidArgument, match="count_max is "):
            messages.receive(count_max)


@pytest.mark.parametrize("given", ["abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), 5, None])
def test_one_body_is_not_several(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^bodies is .*list of b"):
        bodies_of(given)


def test_several_bodies_are_text_or_bytes() -> None:
    assert bodies_of(["ä", b"b"]) == ["ä".encode(), b"b"]
    wrong: Any = ["a", 5]
    with pytest.raises(InvalidArgument, match=r"a body is 5 \(int\), and must be bytes or str"):
        bodies_of(wrong)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": "5"}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": 1e9}, "timeout_s"),
        ({"attempts_max": -1}, "attempts_max"),
        ({"attempts_max": "3"}, "attempts_max"),
        ({"in_flight_max": 0}, "in_flight_max"),
        ({"outstanding_max": 1.5}, "outstanding_max"),
        ({"dead_letter": 5}, "dead_letter"),
    ],
)
def test_a_work_queue_that_cannot_be_is_refused_by_the_name_of_the_argument(given: Any, name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name} is "):
        one_by_one(**given)


def test_the_topic_of_dead_letters_is_text_or_bytes() -> None:
    assert one_by_one(dead_letter="failed").options[DEAD_LETTER] == b"failed"
    assert one_by_one(dead_letter=b"failed").options[DEAD_LETTER] == b"failed"
    assert one_by_one(timeout_s=0.25).options[ACK_TIMEOUT] == b"250"
    with pytest.raises(MalformedRequest):
        one_by_one(dead_letter="")


def test_preferences_are_made_what_can_be_sent_or_refused() -> None:
    options: Any = {"mine": "text"}
    assert preferences_of(Preferences(options=options)).options == {"mine": b"text"}
    wrong: list[Any] = [
        {"mine": b"text"},
        Preferences(options={"mine": 5}),  # type: ignore[dict-item]
        Preferences(window_size=-1),
        Preferences(message_bound="5"),  # type: ignore[arg-type]
        Preferences(message_filter=b"x"),  # type: ignore[arg-type]
    ]
    for each in wrong:
        with pytest.raises(InvalidArgument, match=r"preferences|option 'mine' is 5"):
            preferences_of(each)
    pairs: Any = [("a", "b")]
    with pytest.raises(InvalidArgument, match=r"properties is .*mapping"):
        properties_of(pairs)


def client() -> PubSubClient:
    network: Any = None
    return PubSubClient(Clock(), network, [HubAddress("hub", 4080)])


def failure_of(deferred: Deferred[Any]) -> BaseException:
    found: list[Failure] = []
    deferred.addErrback(found.append)
    [failure] = found
    assert failure.value is not None
    return failure.value


def test_the_face_for_twisted_takes_text_too() -> None:
    core, sent = client(), list[tuple[bytes, bytes, dict[str, bytes]]]()

    def submit(topic: bytes, message: bytes, *_: object) -> None:
        view = MessageView(message)
        sent.append((topic, view.body, dict(view.properties)))

    core.submit = submit  # type: ignore[method-assign, assignment]
    core.publish("tw", "hello", {"color": "red"})
    core.publisher("tw").publish_many(["a", b"b"])
    assert sent == [(b"tw", b"hello", {"color": b"red"}), (b"tw", b"a", {}), (b"tw", b"b", {})]
    core.abandon()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda core: core.publish(5, b"x"), "the topic is 5"),
        (lambda core: core.publish("t", 5), "the body is 5"),
        (lambda core: core.publish("t", "x", {"a": 1}), "property 'a' is 1"),
        (lambda core: core.publisher("t").publish_many("abc"), "bodies is 'abc'"),
        (lambda core: core.publisher("t").publish_soon(5)[1], "the body is 5"),
        (lambda core: core.subscribe(5, "me"), "the topic is 5"),
        (lambda core: core.subscribe("t", 5), "the subscriber is 5"),
        (lambda core: core.subscribe("t", "me", "attach"), "mode is 'attach'"),
        (lambda core: core.subscribe("t", "me", preferences={}), "preferences is {}"),
        (lambda core: core.subscribe("t", "me", start="first"), "start is 'first'"),
        (lambda core: core.unsubscribe("t", None), "the subscriber is None"),
    ],
)
def test_the_face_for_twisted_refuses_all_else_by_name(call: Callable[[PubSubClient], Any], told: str) -> None:
    core = client()
    error = failure_of(call(core))
    assert isinstance(error, InvalidArgument)
    assert told in str(error)
    core.abandon()


def test_a_publisher_that_cannot_be_is_refused_by_name() -> None:
    core: Any = client()
    for arguments, told in (
        ({"message_type": b"x"}, "message_type is "),
        ({"producer": 5}, "the producer's name is 5"),
        ({"producer": "me", "first": "1"}, "first is '1'"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            core.publisher("t", **arguments)
    core.abandon()


def test_a_request_that_cannot_be_written_is_not_waited_for() -> None:
    """Else it would fail once more when the connection ends, and nobody would hear of it."""
    told: list[object] = []

    class Asked:
        def on_answer(self, *_: object) -> None:
            raise AssertionError

        def on_unknown(self, *_: object) -> None:
            told.append("unknown")

    def broken(txn_id: int) -> bytes:
        raise TypeError("expected bytes")

    link = HubLink(Clock(), HubAddress("hub", 4080), lambda _: None, answer_timeout_s=1.0, heartbeat_s=1.0)
    with pytest.raises(TypeError):
        link.ask(broken, Asked())
    link.connectionLost(None)
    assert told == []
