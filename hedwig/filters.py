"""Message filters by name: what a subscription's `message_filter` may be at a hub, and a client may run itself.

    header-expression                    our own (hedwig/protocol/expressions.py); the expression is the subscription's
    hedwig.filters.HeaderExpression      option "hw.expression", as UTF-8. Two names of one filter; Apache's Java client
                                         sends either by setMessageFilter

    [project.entry-points."hedwig.filters"]          filters of others, by any name:
    com.example.Cheap = "example.filters:cheap"      a callable that takes Preferences, and returns what is asked for
                                                     each message; for what can never work it raises InvalidFilter

A filter gets a FilterableMessage, which decodes what it is asked for: who looks at headers does not pay for bodies.
A message for which the filter raises is not delivered. The error is logged, at most `LOGGED_MAX` times in
`LOGGED_PERIOD_S`. FilterTooCostly ends the subscription instead: an expression raises it after `STEPS_MAX` steps
(hedwig/protocol/conditions.py), and any filter does that reads more than `PROPERTIES_MAX` properties. The time of
third-party filters has no other bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, TypeAlias

from twisted.logger import Logger

from bookkeeper.errors import RemoteProtocolError
from hedwig.errors import FilterTooCostly, InvalidFilter
from hedwig.model import HUB_SUBSCRIBER_PREFIX, LocalId, MessageId, Preferences, SubscriberId, Topic
from hedwig.names import shown
from hedwig.protocol.conditions import FilterableMessage
from hedwig.protocol.expressions import parse_expression
from hedwig.protocol.options import EXPRESSION
from hedwig.wire.messages import HeaderTooLarge

if TYPE_CHECKING:
    from hedwig.wire.receiving import Received

log = Logger()

Filter: TypeAlias = Callable[[FilterableMessage], bool]
"""Whether a message is for a subscriber."""

MakeFilter: TypeAlias = Callable[[Preferences], Filter]
"""Makes one from a subscription's preferences. Raises InvalidFilter."""

GROUP = "hedwig.filters"
"""The entry point group; the name of an entry is the filter's."""

HEADER_EXPRESSION = "header-expression"

LOGGED_MAX = 10
LOGGED_PERIOD_S = 60.0

EXPRESSION_LOGGED_MAX = 200
"""Characters of an expression that a log line shows."""


def header_expression(preferences: Preferences) -> Filter:
    """The filter of that name. Raises InvalidFilter."""
    value = preferences.options.get(EXPRESSION)
    if not value:
        raise InvalidFilter(
            f"the message filter {HEADER_EXPRESSION} needs the option {EXPRESSION!r} with an expression, such as "
            "color = 'red'"
        )
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise InvalidFilter(f"the option {EXPRESSION!r} is not UTF-8: {error}") from error
    return parse_expression(text).matches


def with_expression(text: str, preferences: Preferences | None = None) -> Preferences:
    """Preferences that ask the hub for this filter. Raises InvalidFilter for what no hub would take."""
    parse_expression(text)
    asked = Preferences(message_filter=HEADER_EXPRESSION, options={EXPRESSION: text.encode()})
    return (preferences or Preferences()).merged(asked)


class _Delivered:
    """A message at a client, as an expression wants it: its header is decoded once, however many conditions ask."""

    __slots__ = ("_properties", "_received")

    def __init__(self, received: Received) -> None:
        self._received = received
        self._properties: Mapping[str, bytes] | None = None

    @property
    def properties(self) -> Mapping[str, bytes]:
        if self._properties is None:
            self._properties = self._received.properties
        return self._properties

    @property
    def message_type(self) -> str | None:
        found: object = self._received.message_type
        # What protobuf makes of bytes that are not UTF-8 depends on its release: an error, or bytes.
        if found is not None and not isinstance(found, str):
            raise RemoteProtocolError(f"message {self._received.local_id} has the type {found!r}, which is no text")
        return found

    @property
    def region(self) -> bytes | None:
        return self._received.region or None

    @property
    def id(self) -> MessageId:
        return self._received.id

    @property
    def body_size(self) -> int:
        return len(self._received.body)

    @property
    def body(self) -> bytes:
        return self._received.body


def expression_filter(text: str) -> Callable[[Received], bool]:
    """The same for a client that runs it itself, at a hub that has no such filter. Raises InvalidFilter.

    A message whose header cannot be read is not wanted, and logged, as at a hub: it would end the subscription, and
    every one after it. The filter raises FilterTooCostly for a message that takes too long.
    """
    matches = parse_expression(text).matches

    def wanted(received: Received) -> bool:
        try:
            return matches(_Delivered(received))
        except FilterTooCostly as error:
            raise FilterTooCostly(f"the filter takes too long for message {received.local_id}: {error}") from error
        except RemoteProtocolError as error:
            kept_back = _OF_PROCESS.admit(time.monotonic())
            if kept_back is not None:
                log.warn("A message is passed over: {error}{others}", error=error, others=not_logged(kept_back))
            return False

    return wanted


BUILT_IN: Mapping[str, MakeFilter] = {
    HEADER_EXPRESSION: header_expression,
    "hedwig.filters.HeaderExpression": header_expression,
}


class InstalledFilters(Mapping[str, MakeFilter]):
    """The built-in ones, and those of other distributions, which are looked for when a name is not built in, once.

    They are loaded when they are first used: one that is broken is in nobody's way.
    """

    @cached_property
    def _installed(self) -> dict[str, MakeFilter]:
        found: dict[str, dict[str, EntryPoint]] = {}
        for entry in entry_points(group=GROUP):
            found.setdefault(entry.name, {})[entry.value] = entry
        for name in BUILT_IN.keys() & found.keys():
            log.warn(
                "Message filter {name} of {others} is not used: this name is built in",
                name=name,
                others=" and ".join(sorted(found.pop(name))),
            )
        return {name: _Installed(name, [one[value] for value in sorted(one)]) for name, one in found.items()}

    def __getitem__(self, name: str) -> MakeFilter:
        built_in = BUILT_IN.get(name)
        return self._installed[name] if built_in is None else built_in

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from self._installed

    def __len__(self) -> int:
        return len(BUILT_IN) + len(self._installed)


class _Installed:
    """A filter of somebody else; entries: one, or several that contradict each other."""

    def __init__(self, name: str, entries: list[EntryPoint]) -> None:
        self._name, self._entries = name, entries
        self._make: MakeFilter | None = None

    def __call__(self, preferences: Preferences) -> Filter:
        named = " and ".join(_described(entry) for entry in self._entries)
        if len(self._entries) > 1:
            raise InvalidFilter(f"more than one message filter has the name {self._name}: {named}; remove one")
        try:
            if self._make is None:
                self._make = self._entries[0].load()
            return self._make(preferences)
        except InvalidFilter:
            raise
        except Exception as error:
            raise InvalidFilter(
                f"the message filter {self._name}, {named}, broke: {type(error).__name__}: {error}"
            ) from error


def _described(entry: EntryPoint) -> str:
    return f"{entry.value} of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


DEFAULT_FILTERS: Mapping[str, MakeFilter] = InstalledFilters()
"""What a hub has unless it is told otherwise."""


# --- asking


class LogBound:
    """A limit of log lines in a period for all subscribers together, since one bad message concerns all of them."""

    def __init__(self, count_max: int = LOGGED_MAX, period_s: float = LOGGED_PERIOD_S) -> None:
        self._count_max, self._period_s = count_max, period_s
        self._begun_s = 0.0
        self._count = self._kept_back = 0

    def admit(self, now_s: float) -> int | None:
        """Whether to log now: how many were kept back since the last line; None if this one is, too."""
        if not self._count or not 0 <= now_s - self._begun_s < self._period_s:
            self._begun_s, self._count = now_s, 0
        if self._count >= self._count_max:
            self._kept_back += 1
            return None
        self._count += 1
        kept_back, self._kept_back = self._kept_back, 0
        return kept_back


_OF_PROCESS = LogBound()


def not_logged(kept_back: int) -> str:
    """Return the end of a log line: the number of similar lines that were not logged; "" if there are none."""
    return f" ({kept_back} similar lines were not logged)" if kept_back else ""


def guarded(
    wanted: Filter,
    topic: Topic,
    subscriber: SubscriberId,
    seconds: Callable[[], float],
    bound: LogBound = _OF_PROCESS,
) -> Filter:
    """Return the filter with errors caught: a message that breaks it is not wanted. seconds: the time, for the log.

    The returned filter raises only FilterTooCostly.
    """

    def ask(message: FilterableMessage) -> bool:
        try:
            return bool(wanted(message))
        except FilterTooCostly:
            raise
        except HeaderTooLarge as error:
            raise FilterTooCostly(str(error)) from error
        except Exception as error:  # noqa: BLE001 - third-party filters may raise any error, and delivery continues
            kept_back = bound.admit(seconds())
            if kept_back is not None:
                log.warn(
                    "A message of topic {topic!r} was not delivered to subscriber {subscriber!r}, since its filter "
                    "raised {error!r}{others}",
                    topic=shown(topic),
                    subscriber=shown(subscriber),
                    error=error,
                    others=not_logged(kept_back),
                )
            return False

    return ask


def log_suspended(
    topic: Topic,
    subscriber: SubscriberId,
    preferences: Preferences,
    local_id: LocalId,
    error: FilterTooCostly,
    now_s: float,
    bound: LogBound = _OF_PROCESS,
) -> None:
    """Log that a subscription is suspended at a message, within the bound on log lines."""
    kept_back = bound.admit(now_s)
    if kept_back is None:
        return
    expression = preferences.options.get(EXPRESSION, b"").decode(errors="replace")
    if len(expression) > EXPRESSION_LOGGED_MAX:
        expression = f"{expression[:EXPRESSION_LOGGED_MAX]}..."
    log.warn(
        "Subscriber {subscriber!r} of topic {topic!r} was suspended at message {local_id}: its filter {name!r} takes "
        "too long: {error}; expression: {expression!r}{others}",
        subscriber=shown(subscriber),
        topic=shown(topic),
        local_id=local_id,
        name=preferences.message_filter,
        error=error,
        expression=expression,
        others=not_logged(kept_back),
    )


def chosen_filter(
    filters: Mapping[str, MakeFilter],
    preferences: Preferences,
    topic: Topic,
    subscriber: SubscriberId,
    region: bytes,
    seconds: Callable[[], float],
) -> Filter | None:
    """Return the filter that a hub of this region applies to a subscription, or None if all messages are wanted. The
    filter raises only FilterTooCostly. Raises InvalidFilter.
    """
    name = preferences.message_filter
    chosen: Filter | None = None
    if name:
        make = filters.get(name)
        if make is None:
            known = ", ".join(sorted(filters)) or "none"
            raise InvalidFilter(f"this hub has no message filter {name!r}; it has: {known}")
        chosen = make(preferences)
    if not subscriber.startswith(HUB_SUBSCRIBER_PREFIX):
        return chosen and guarded(chosen, topic, subscriber, seconds)
    inner = chosen

    def of_this_region(message: FilterableMessage) -> bool:
        """Other regions get only what was published here, else messages would circulate (hedwig/PROTOCOL.md 3.7)."""
        return message.region == region and (inner is None or inner(message))

    return guarded(of_this_region, topic, subscriber, seconds)
