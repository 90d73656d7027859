"""Delays and log lines of a topic's reads that failed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from bookkeeper.errors import NoSuchEntry
from hedwig.errors import UnexpectedCondition
from hedwig.hub.topics.read_retry import DELAY_FACTOR_MAX, LEDGERS_MAX, LOG_EVERY_S, ReadRetry
from hedwig.model import LocalId, SubscriberId, Topic

ME, YOU = SubscriberId(b"me"), SubscriberId(b"you")


class TopicLog:
    """A topic with ledgers of ten messages from 11 on."""

    topic = Topic(b"a roll")

    def range_of(self, local: LocalId) -> SimpleNamespace:
        if local < 11:
            raise UnexpectedCondition("not kept")
        return SimpleNamespace(ledger_id=local // 10)


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []

    def take(event: LogEvent) -> None:
        found.append(formatEvent(event))

    observer: Any = take
    globalLogPublisher.addObserver(observer)
    yield found
    globalLogPublisher.removeObserver(observer)


def failed(
    retry: ReadRetry, failures: int = 1, first: int = 11, subscriber: SubscriberId = ME, now_s: float = 0.0
) -> float:
    try:
        raise NoSuchEntry("entry 0 of ledger 1:\n  no bookie has it")
    except NoSuchEntry:
        reason = Failure()  # type: ignore[no-untyped-call]
    return retry.delay_s(failures, LocalId(first), subscriber, reason, first_s=0.5, now_s=now_s)


def made() -> ReadRetry:
    log: Any = TopicLog()
    return ReadRetry(log)


def test_a_failed_read_is_logged_in_one_line_with_topic_ledger_reason_and_remedy(lines: list[str]) -> None:
    failed(made())
    assert lines == [
        "Topic 'a roll' could not be read from message 11 on, in ledger 1, for subscriber 'me' and perhaps others: "
        "entry 0 of ledger 1: no bookie has it; next try in 0.5 s, later at most 16 s apart; what is lost and what "
        "can be done: bookkeeper why topic 'a roll'"
    ]


def test_delays_between_tries_double_up_to_a_bound() -> None:
    retry = made()
    delays = [failed(retry, number) for number in range(1, 9)]
    assert delays == [0.5, 1, 2, 4, 8, 16, 16, 16]
    assert failed(retry, 10**6) == 0.5 * DELAY_FACTOR_MAX


def test_repeated_failures_of_a_ledger_are_logged_rarely_for_all_subscribers(lines: list[str]) -> None:
    retry = made()
    for number, subscriber in enumerate((ME, YOU, ME, YOU)):
        failed(retry, number + 1, 11 + number, subscriber, now_s=float(number))
    assert len(lines) == 1
    failed(retry, first=25, now_s=5.0)
    assert "in ledger 2" in lines[-1]
    failed(retry, now_s=LOG_EVERY_S)
    assert "in ledger 1" in lines[-1]
    failed(retry, first=3, now_s=LOG_EVERY_S)
    assert "in ledger unknown" in lines[-1]
    assert len(lines) == 4


def test_of_many_ledgers_few_are_logged_within_the_interval(lines: list[str]) -> None:
    retry = made()
    for turn in range(3):
        for ledger_id in range(2, LEDGERS_MAX + 5):
            failed(retry, first=10 * ledger_id, now_s=float(turn))
    assert len(lines) == LEDGERS_MAX
    failed(retry, first=10 * (LEDGERS_MAX + 4), now_s=LOG_EVERY_S)
    assert len(lines) == LEDGERS_MAX + 1
