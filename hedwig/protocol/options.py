"""Names that clients and hubs of this project give each other in old fields: options of subscriptions, header
properties of messages. Pure.

Nothing of it is on the wire unless a client requests it, or messages are missing (hw.gone); other clients and hubs pass
it on unread. All names begin with `PREFIX`; applications choose names that do not. Values are text, so that filter
expressions can compare them, and any client can write them: numbers are decimal, truth is "true" or "false".

Header properties of a message (hedwig/protocol/producers.py, publish_time.py, acknowledgements.py)

    hw.pid, hw.seq            who published it, and as its how manieth: a repeat is stored once
    hw.prev                   the number of the one before, of the same producer: it is never stored before that one
    hw.time                   when: milliseconds since 1970, UTC
    hw.keep                   milliseconds for which all messages of this topic are kept, until a message sets another
                              value (hedwig/hub/named_retention.py)
    hw.attempt                which delivery of the message this is, from 2 on, with individual acknowledgement
    hw.dead.topic, .subscriber, .id, .attempts      of a dead letter: where it could not be consumed, and how often it
                              was tried

Options of a subscription (SubscriptionPreferences.options). They are stored with it, a later subscribe changes them one
by one, and none can be taken back; an empty value is as good as none.

    hw.expression             which messages it wants; with the message filter "header-expression"
    hw.ack                    "cumulative" (CONSUME means all up to the id), or "individual" (the one id)
    hw.ack.timeout            milliseconds; what is not acknowledged in time is delivered again
    hw.ack.attempts           deliveries of one message; after so many it is a dead letter. 0: no end
    hw.dead-letter            the topic for dead letters; without one they are dropped, and logged
    hw.ack.outstanding        messages delivered and not acknowledged, of all its consumers; a number above 10,000
                              counts as 10,000
    hw.shared                 "true": several connections hold it, and share its messages; implies individual
    hw.shared.in-flight       messages delivered to one of the connections and not acknowledged
    hw.replay                 where to begin instead: "id:17", "time:1700000000000" or "first"; see Replay

In the answer to a subscribe, and stored nowhere:

    hw.granted                "true": this hub heeds hw.ack, hw.shared and hw.replay, one of which holds. Hubs that know
                              nothing of them store them all the same; there a CONSUME of one id would take all before

In the answer, and stored with the subscription; hubs accept it from no client, and Apache's hubs keep it as it is:

    hw.gone                   "17-42": deleted messages that the subscription did not consume; it continues behind them.
                              One range, from the first of the oldest to the last of the newest. Named by each answer
                              until a later message is consumed. If it starts at a time, some or all of them may be
                              older than that time. A client that reads it says so by the field `readsGone` of its
                              subscribe. If messages are deleted while such a client is attached, the hub ends the
                              attachment (TOPIC_MOVED), and the answer to the next attach names them

The window of a client that does not name one: a field of the subscribe

    windowIfNone              stored with a new subscription. If a subscription is stored without a window, this one
                              applies while it is attached; the answer names it, and it is not stored. Otherwise it has
                              no effect. A hub that knows the field ignores the window of the preferences. Other hubs
                              skip the field, so a subscribe that may create a subscription (CREATE, CREATE_OR_ATTACH)
                              also names the window in its preferences

The end of a topic, asked by a subscribe that attaches and changes nothing (hedwig/admin/topic_ends.py):

    hw.end                    in the question: any value; in the answer, which is a success: the id of the last message
                              that the hub has acknowledged, 0 if there is none. Apache's hubs answer NotSubscribed

With individual acknowledgement a CONSUME may say more in the remote components of its id, in the place of a region:

    hw.from                   all from this id to the local one are acknowledged, and not just that
    hw.nack                   the message is given back, to be delivered again in so many milliseconds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from hedwig.errors import MalformedRequest
from hedwig.model import FIRST_ID, Gone, LocalId, MessageId, Preferences, SubscriberId, Topic
from hedwig.names import topic_part
from hedwig.wire.records import GONE, decode_gone, encode_gone

PREFIX = "hw."

PRODUCER = "hw.pid"
SEQUENCE = "hw.seq"
PREVIOUS = "hw.prev"
TIME = "hw.time"
KEEP = "hw.keep"
DEAD_TOPIC = "hw.dead.topic"
DEAD_SUBSCRIBER = "hw.dead.subscriber"
DEAD_ID = "hw.dead.id"
DEAD_ATTEMPTS = "hw.dead.attempts"
ATTEMPT = "hw.attempt"

EXPRESSION = "hw.expression"
ACK = "hw.ack"
ACK_TIMEOUT = "hw.ack.timeout"
ACK_ATTEMPTS = "hw.ack.attempts"
ACK_OUTSTANDING = "hw.ack.outstanding"
DEAD_LETTER = "hw.dead-letter"
SHARED = "hw.shared"
SHARED_IN_FLIGHT = "hw.shared.in-flight"
REPLAY = "hw.replay"

GRANTED = "hw.granted"

END = "hw.end"

END_SUBSCRIBER = SubscriberId(b"hw.end")
"""The subscriber in a question for the end of a topic. It never subscribes."""

CONSUME_FROM = b"hw.from"
CONSUME_NACK = b"hw.nack"

_OPTIONS = frozenset(
    {
        *(EXPRESSION, ACK, ACK_TIMEOUT, ACK_ATTEMPTS, ACK_OUTSTANDING),
        *(DEAD_LETTER, SHARED, SHARED_IN_FLIGHT, REPLAY),
    }
)

_OF_INDIVIDUAL = frozenset({ACK_TIMEOUT, ACK_ATTEMPTS, ACK_OUTSTANDING, DEAD_LETTER, SHARED_IN_FLIGHT})

NUMBER_MAX = 2**63 - 1
"""Java's long."""

KEEP_MS_MAX = 2**62


@dataclass(frozen=True, slots=True)
class Replay:
    """Where a subscription begins: at a message, at a time, or at the first message that is kept (neither given)."""

    local_id: LocalId | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckOptions:
    """How a subscription with individual acknowledgement works. shared: several connections hold it.

    timeout_ms, attempts_max (0: no end), outstanding_max, in_flight_max (of one connection), dead_letter: see above.
    """

    timeout_ms: int = 60_000
    attempts_max: int = 0
    outstanding_max: int = 10_000
    in_flight_max: int = 1_000
    dead_letter: bytes | None = None
    shared: bool = False


TIMEOUT_MS_MAX = 7 * 24 * 3600 * 1000
ATTEMPTS_MAX = 1_000_000
OUTSTANDING_ASKED_MAX = 50_000
"""The largest number that clients may request and hubs may store: earlier hubs allowed 50,000 outstanding messages."""
OUTSTANDING_MAX = 10_000
"""Outstanding messages of one subscription, at most. They take 2.5 MiB of memory. To put all of them back takes 3 ms of
a reactor turn, a snapshot takes 4 ms. The snapshot has to fit into a znode."""


PREFERENCES_SIZE_MAX = 64 * 1024
"""Bytes. All of a subscription has to fit into a znode; one that does not fit would end the hub's session with the
metadata store, and all its topics with it."""


def check_size(preferences: Preferences) -> None:
    """What is to be stored with a subscription. Raises MalformedRequest."""
    size = len((preferences.message_filter or "").encode())
    size += sum(len(name.encode()) + len(value) + 16 for name, value in preferences.options.items())
    if size > PREFERENCES_SIZE_MAX:
        raise MalformedRequest(
            f"the subscription would have preferences of {size} bytes, and at most {PREFERENCES_SIZE_MAX} can be stored"
        )


def number_of(value: bytes, name: str, low: int, high: int) -> int:
    """A decimal number between two, inclusive. Raises MalformedRequest."""
    if not (value.isdigit() and len(value) <= 19) or not low <= int(value) <= high:
        raise MalformedRequest(
            f"{name} is {_shown(value)}, and must be a decimal number from {low} to {high}, written as text"
        )
    return int(value)


def _shown(value: bytes) -> str:
    return repr(value if len(value) <= 40 else value[:40] + b"...")[1:]


def check_options(preferences: Preferences) -> None:
    """Refuse, before anything is stored, what no hub of ours understands. Raises MalformedRequest.

    Options that do not begin with `PREFIX` are for filters, and not looked at.
    """
    for name in preferences.options:
        if name.startswith(PREFIX) and name not in _OPTIONS:
            raise MalformedRequest(f"there is no option {name[:100]!r}; known are: {', '.join(sorted(_OPTIONS))}")
    ack_options(preferences)
    replay_of(preferences.options.get(REPLAY))


def check_wanted(asked: Preferences | None, wanted: Preferences, topic: Topic) -> AckOptions | None:
    """What `ack_options` says of the preferences that a subscription will have, if it is granted what it asks for.

    Raises MalformedRequest for what no hub understands, and for what would be stored and never be heeded.
    """
    if asked is not None:
        check_options(asked)
    found = ack_options(wanted)
    if asked is not None and found is None:
        useless = sorted(name for name in _OF_INDIVIDUAL if asked.options.get(name))
        if useless:
            raise MalformedRequest(
                f"{', '.join(useless)}: heeded with individual acknowledgement alone; add {ACK}=individual, or "
                f"{SHARED}=true"
            )
    if found is not None and found.dead_letter is not None:
        if not found.attempts_max:
            raise MalformedRequest(
                f"option {DEAD_LETTER} names a topic, and without {ACK_ATTEMPTS} no message ever becomes a dead letter"
            )
        if found.dead_letter == topic:
            raise MalformedRequest(f"option {DEAD_LETTER} names the topic itself: its dead letters would never end")
        topic_part(Topic(found.dead_letter))
    return found


def ack_options(preferences: Preferences) -> AckOptions | None:
    """None for the way it always was: CONSUME means all up to an id. Raises MalformedRequest."""
    options = preferences.options
    shared = _choice(options, SHARED, (b"false", b"true")) == b"true"
    individual = _choice(options, ACK, (b"cumulative", b"individual")) == b"individual"
    usual = AckOptions()

    def number(name: str, default: int, low: int, high: int) -> int:
        value = options.get(name)
        return number_of(value, f"option {name}", low, high) if value else default

    found = AckOptions(
        timeout_ms=number(ACK_TIMEOUT, usual.timeout_ms, 1, TIMEOUT_MS_MAX),
        attempts_max=number(ACK_ATTEMPTS, usual.attempts_max, 0, ATTEMPTS_MAX),
        outstanding_max=min(number(ACK_OUTSTANDING, usual.outstanding_max, 1, OUTSTANDING_ASKED_MAX), OUTSTANDING_MAX),
        in_flight_max=number(SHARED_IN_FLIGHT, usual.in_flight_max, 1, OUTSTANDING_ASKED_MAX),
        dead_letter=options.get(DEAD_LETTER) or None,
        shared=shared,
    )
    return found if shared or individual else None


def _choice(options: Mapping[str, bytes], name: str, choices: tuple[bytes, ...]) -> bytes:
    """The first is meant where nothing is said."""
    value = options.get(name) or choices[0]
    if value not in choices:
        raise MalformedRequest(
            f"option {name} is {_shown(value)}, and must be one of: {', '.join(each.decode() for each in choices)}"
        )
    return value


def replay_of(value: bytes | None) -> Replay | None:
    """What `hw.replay` asks for; None where nothing. Raises MalformedRequest.

    Anything may follow a semicolon, "id:17;again": see replay_wanted.
    """
    if not value:
        return None
    kind, _, number = value.partition(b";")[0].partition(b":")
    if kind == b"first" and not number:
        return Replay()
    if kind == b"id":
        return Replay(LocalId(number_of(number, f"option {REPLAY}, the id", 1, NUMBER_MAX)))
    if kind == b"time":
        return Replay(time_ms=number_of(number, f"option {REPLAY}, the time", 0, NUMBER_MAX))
    raise MalformedRequest(
        f"option {REPLAY} is {_shown(value)}; write id:NUMBER, time:MILLISECONDS or first; ;anything behind it makes "
        "it differ from the one before"
    )


def replay_wanted(stored: Preferences | None, asked: Preferences | None) -> Replay | None:
    """What a subscribe asks for, given what is stored, None for a new subscription. Raises MalformedRequest.

    Only a *change* of the option is a wish: clients say the same again whenever they reconnect, and must go on then
    where they were. To repeat the same wish, change what follows the semicolon.
    """
    value = None if asked is None else asked.options.get(REPLAY)
    if not value or (stored is not None and stored.options.get(REPLAY) == value):
        return None
    return replay_of(value)


# --- the answer


class Granted(NamedTuple):
    """A hub's answer to a subscribe.

    preferences: those that apply. heeded: the hub supports the options above. gone: deleted messages, see hw.gone.
    """

    preferences: Preferences
    heeded: bool = False
    gone: Gone | None = None


def answered(preferences: Preferences, gone: Gone | None = None) -> Preferences:
    """Return the preferences of a hub's answer to a subscribe."""
    extra: dict[str, bytes] = {}
    if preferences.options.get(REPLAY) or ack_options(preferences) is not None:
        extra[GRANTED] = b"true"
    if gone is not None:
        extra[GONE] = encode_gone(gone)
    return preferences.merged(Preferences(options=extra)) if extra else preferences


def granted(preferences: Preferences) -> Granted:
    """Parse the preferences of a hub's answer."""
    found = preferences.options
    if GRANTED not in found and GONE not in found:
        return Granted(preferences)
    options = {name: value for name, value in found.items() if name not in (GRANTED, GONE)}
    return Granted(replace(preferences, options=options), GRANTED in found, _gone(found.get(GONE), found.get(REPLAY)))


def _gone(value: bytes | None, begun: bytes | None) -> Gone | None:
    found = decode_gone(value)
    if found is None:
        return None
    return found._replace(maybe=found.first == FIRST_ID and (begun or b"").startswith(b"time:"))


# --- the end of a topic


def end_question() -> Preferences:
    """Return preferences of a subscribe that asks for the end of a topic."""
    return Preferences(options={END: b"?"})


def asks_end(preferences: Preferences | None) -> bool:
    """Return whether an attaching subscribe asks for the end of its topic."""
    return preferences is not None and END in preferences.options


def end_answer(last: LocalId) -> Preferences:
    """Return the preferences that answer it."""
    return Preferences(options={END: b"%d" % last})


def end_of(preferences: Preferences) -> LocalId | None:
    """Parse the answer; return None if it is malformed."""
    try:
        return LocalId(number_of(preferences.options.get(END, b""), END, 0, NUMBER_MAX))
    except MalformedRequest:
        return None


# --- consuming


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """These ids, both inclusive."""

    first: LocalId
    last: LocalId


@dataclass(frozen=True, slots=True)
class GiveBack:
    """This message, to be delivered again after a while."""

    local_id: LocalId
    delay_ms: int


def acknowledgement(up_to: MessageId) -> Acknowledge | GiveBack:
    """What a CONSUME says in a subscription with individual acknowledgement. Raises MalformedRequest."""
    said = dict(up_to.remote)
    delay_ms, first = said.get(CONSUME_NACK), said.get(CONSUME_FROM)
    if delay_ms is not None:
        if first is not None:
            raise MalformedRequest("a consume says hw.nack and hw.from: messages are given back one by one")
        return GiveBack(up_to.local, min(delay_ms, TIMEOUT_MS_MAX))
    if first is not None and not 1 <= first <= up_to.local:
        raise MalformedRequest(f"a consume is of the ids from {first} to {up_to.local}: the first must not be greater")
    return Acknowledge(up_to.local if first is None else LocalId(first), up_to.local)


def consumed(said: Acknowledge | GiveBack) -> MessageId:
    """The same, as a client writes it."""
    if isinstance(said, GiveBack):
        return MessageId(said.local_id, ((CONSUME_NACK, said.delay_ms),))
    return MessageId(said.last, () if said.first == said.last else ((CONSUME_FROM, said.first),))
