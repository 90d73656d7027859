"""A shared subscription: several consumers, each message to one of them. Pure.

    Acknowledgements --what is next--> WorkQueue --who takes it--> consumer, at most so many not acknowledged

Consumers take turns; one that is full, or whose connection takes nothing, is passed over. What a consumer has when it
goes is delivered to others, lowest ids first. Of these the lowest is an attempt that counts, for it was worked on, and
may be what ended the consumer; the others only waited there. Any consumer may acknowledge any message: a late
acknowledgement, after a timeout gave the message to somebody else, counts too.

With one consumer this is individual acknowledgement, not shared. Bounds: those of Acknowledgements, `consumers_max`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from hedwig.errors import TopicBusy
from hedwig.model import LocalId
from hedwig.protocol.acknowledgements import Acknowledgements

C = TypeVar("C")

CONSUMERS_MAX = 1000


class Assignment(NamedTuple, Generic[C]):
    """A message for a consumer. attempt: from 1."""

    consumer: C
    local_id: LocalId
    attempt: int


class WorkQueue(Generic[C]):
    """C: a consumer's connection; equal ones are the same."""

    def __init__(
        self, acknowledgements: Acknowledgements, in_flight_max: int, consumers_max: int = CONSUMERS_MAX
    ) -> None:
        self.acknowledgements = acknowledgements
        self.in_flight_max, self._consumers_max = in_flight_max, consumers_max
        self._consumers: OrderedDict[C, set[LocalId]] = OrderedDict()  # in the order of their turns
        self._holders: dict[LocalId, C] = {}

    @property
    def consumers(self) -> list[C]:
        """The one whose turn is next first."""
        return list(self._consumers)

    def in_flight(self, consumer: C) -> int:
        """How many it has."""
        return len(self._consumers[consumer])

    def attach(self, consumer: C) -> None:
        """One more; harmless when repeated. Raises TopicBusy."""
        if consumer not in self._consumers and len(self._consumers) >= self._consumers_max:
            raise TopicBusy(f"the subscription has {self._consumers_max} consumers already, and may have no more")
        self._consumers.setdefault(consumer, set())

    def detach(self, consumer: C, now_s: float, *, counts: bool = True) -> list[LocalId]:
        """It is gone; what it had is for others, in order. Harmless when repeated.

        counts: whether the first of these counts as attempted: that may be what ended the consumer.
        """
        held = sorted(self._consumers.pop(consumer, ()))
        for local_id in held:
            del self._holders[local_id]
        if held and counts:
            self.acknowledgements.give_back(held[0], now_s)
        self.acknowledgements.cancel(*held[1 if counts else 0 :])
        return held

    def assign(
        self,
        now_s: float,
        durable: LocalId,
        takes: Callable[[C], bool] = lambda consumer: True,
        count_max: int | None = None,
    ) -> list[Assignment[C]]:
        """Who gets what now; all of it is out. takes: whether a consumer's connection takes something now, asked once.

        Timeouts are seen to first. durable: the last message that may be delivered.
        """
        self.advance(now_s)
        turns = [each for each, held in self._consumers.items() if len(held) < self.in_flight_max and takes(each)]
        assigned: list[Assignment[C]] = []
        while turns:
            still = []
            for consumer in turns:
                if len(assigned) == count_max:
                    return assigned
                local_id = self.acknowledgements.take(durable)
                if local_id is None:
                    return assigned
                held = self._consumers[consumer]
                held.add(local_id)
                self._holders[local_id] = consumer
                attempt = self.acknowledgements.on_delivered(local_id, now_s)
                assigned.append(Assignment(consumer, local_id, attempt))
                self._consumers.move_to_end(consumer)
                if len(held) < self.in_flight_max:
                    still.append(consumer)
            turns = still
        return assigned

    def advance(self, now_s: float) -> list[LocalId]:
        """The time is now; whose timeout ended."""
        ended = self.acknowledgements.advance(now_s)
        for local_id in ended:
            self._let_go(local_id)
        return ended

    def acknowledge(self, first: LocalId, last: LocalId) -> list[LocalId]:
        """See Acknowledgements."""
        news = self.acknowledgements.acknowledge(first, last)
        for local_id in news:
            self._let_go(local_id)
        return news

    def give_back(self, consumer: C, local_id: LocalId, now_s: float, delay_s: float = 0.0) -> bool:
        """See Acknowledgements; of the consumer that has it only: another's message is not its to give back."""
        if self._holders.get(local_id) != consumer:
            return False
        self._let_go(local_id)
        return self.acknowledgements.give_back(local_id, now_s, delay_s)

    def take_back(self, local_id: LocalId) -> None:
        """It was assigned, and not sent: it waits, and this attempt does not count."""
        self._let_go(local_id)
        self.acknowledgements.cancel(local_id)

    def pass_over(self, first: LocalId, last: LocalId) -> None:
        """See Acknowledgements."""
        for local_id in self.acknowledgements.pass_over(first, last):
            self._let_go(local_id)

    def _let_go(self, local_id: LocalId) -> None:
        consumer = self._holders.pop(local_id, None)
        if consumer is not None:
            self._consumers[consumer].discard(local_id)
