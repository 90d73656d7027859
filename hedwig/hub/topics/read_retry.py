"""Retries of a topic's reads that failed: growing delays, and a bounded number of log lines. Thread: reactor."""

from __future__ import annotations

import shlex
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.logger import Logger
from twisted.python.failure import Failure

from hedwig.errors import PubSubError
from hedwig.names import shown

if TYPE_CHECKING:
    from hedwig.hub.topics.log import TopicLog
    from hedwig.hub.topics.service import TopicService
    from hedwig.model import LocalId, SubscriberId

log = Logger()

DELAY_FACTOR_MAX = 32
"""Greatest delay between two tries, in units of the first one (`retry_delay_s`)."""

LOG_EVERY_S = 600.0
"""Least time between two log lines about one ledger of a topic, whichever subscribers need it."""

LEDGERS_MAX = 16
"""Maximum number of a topic's ledgers that are logged within LOG_EVERY_S."""


def try_later(
    service: TopicService,
    subscriber: SubscriberId,
    first: LocalId,
    failures: int,
    reason: object,
    again: Callable[[], object],
) -> None:
    """Call `again` after the delay; the arguments are those of `ReadRetry.delay_s`."""
    clock = service.clock
    delay_s = service.reader.retry.delay_s(
        failures, first, subscriber, reason, first_s=service.settings.retry_delay_s, now_s=clock.seconds()
    )
    clock.callLater(delay_s, again)


class ReadRetry:
    """The retries of one topic, for all of its subscribers."""

    __slots__ = ("_log", "_reported")

    def __init__(self, topic_log: TopicLog) -> None:
        self._log = topic_log
        self._reported: OrderedDict[int | None, float] = OrderedDict()

    def delay_s(
        self, failures: int, first: LocalId, subscriber: SubscriberId, reason: object, *, first_s: float, now_s: float
    ) -> float:
        """Return after how long to try again, and log the failure unless its ledger was reported a short time ago.

        failures: consecutive ones of the subscriber, from 1. first: the message that it needs. first_s: delay after the
        first failure.
        """
        delay_s = first_s * min(1 << min(failures - 1, 20), DELAY_FACTOR_MAX)
        ledger_id = self._ledger_of(first)
        reported_s = self._reported.get(ledger_id)
        if reported_s is not None and now_s - reported_s < LOG_EVERY_S:
            return delay_s
        if ledger_id not in self._reported and len(self._reported) >= LEDGERS_MAX:
            oldest = next(iter(self._reported))
            if now_s - self._reported[oldest] < LOG_EVERY_S:
                return delay_s
            del self._reported[oldest]
        self._reported[ledger_id] = now_s
        self._reported.move_to_end(ledger_id)
        name = shown(self._log.topic)
        log.warn(
            "Topic {topic!r} could not be read from message {first} on, in ledger {ledger}, for subscriber "
            "{subscriber!r} and perhaps others: {reason}; next try in {delay:g} s, later at most {most:g} s apart; "
            "what is lost and what can be done: bookkeeper why topic {word}",
            topic=name,
            first=first,
            ledger="unknown" if ledger_id is None else ledger_id,
            subscriber=shown(subscriber),
            reason=_text(reason),
            delay=delay_s,
            most=first_s * DELAY_FACTOR_MAX,
            word=shlex.quote(name),
        )
        return delay_s

    def _ledger_of(self, first: LocalId) -> int | None:
        try:
            found = self._log.range_of(first)
        except PubSubError:
            return None  # not kept any more
        return None if found is None else found.ledger_id


def _text(reason: object) -> str:
    text = reason.getErrorMessage() if isinstance(reason, Failure) else str(reason)
    return " ".join(text.split())
