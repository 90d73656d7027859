"""How far an ordered subscription is, and what its hub is told of that: all up to a message is consumed. Pure.

    heard       the last message that was delivered to this object: what comes again is passed over
    consumed    what the reader is done with; never beyond what was heard
    delivered   the last message that the present hub delivered; it takes no word for later ones (I-93)
    told        what it was told of; never beyond what it delivered

A hub that took the topic over knows of less than what is consumed, and delivers that again; then it is told.
"""

from __future__ import annotations

from collections.abc import Collection

from bookkeeper.errors import InvalidArgument
from hedwig.model import LocalId, MessageId
from hedwig.wire.receiving import Received

NOTHING = LocalId(0)


class InOrder:
    """Of one subscription object. See also hedwig.client.subscriptions.work_queue, which has the same methods."""

    keeps_waiting = True
    """What waits for the reader stays when the connection ends: it is not handed out again."""

    # told <= delivered; told <= consumed <= heard

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing was heard or consumed yet."""
        self._heard = self._delivered = self._told = NOTHING
        self._consumed = MessageId(NOTHING)
        self._judged: MessageId | None = None  # the last message that a filter looked at
        self._wanted = NOTHING  # and the last one that it left for the reader

    def on_attached(self) -> None:
        """A hub (again): it has delivered nothing, and knows of nothing."""
        self._delivered = self._told = NOTHING

    # --- what comes

    @property
    def heard(self) -> LocalId:
        """The last message that was delivered; 0 for none."""
        return self._heard

    def on_delivered(self, messages: list[Received], waiting: Collection[Received]) -> list[Received]:
        """Those that were not heard before."""
        last = messages[-1].local_id
        self._delivered = max(self._delivered, last)
        if messages[0].local_id <= self._heard:
            messages = [each for each in messages if each.local_id > self._heard]
        self._heard = max(self._heard, last)
        return messages

    def on_filtered(self, wanted: list[Received], others: list[Received]) -> None:
        """A filter of this client looked at them. The others are consumed with the last one before them."""
        judged = max([*wanted[-1:], *others[-1:]], key=lambda each: each.local_id, default=None)
        if judged is None:
            return
        self._judged = judged.id
        if wanted:
            self._wanted = wanted[-1].local_id
        elif self._wanted <= self._consumed.local:
            self.consume(judged.id)

    # --- what is done

    def consume(self, message_id: MessageId) -> None:
        """All up to this message is done; what was not delivered yet cannot be."""
        if message_id.local > self._heard:
            message_id = MessageId(self._heard)
        if message_id.local <= self._consumed.local:
            return
        if self._judged is not None and message_id.local >= self._wanted:
            message_id = max(message_id, self._judged)
        self._consumed = message_id

    def ack(self, local_id: LocalId) -> None:
        """Raises InvalidArgument."""
        raise InvalidArgument("ack: subscribe with preferences=one_by_one(); this subscription is consumed in order")

    def nack(self, local_id: LocalId, delay_s: float) -> MessageId:
        """Raises InvalidArgument."""
        raise InvalidArgument("nack: subscribe with preferences=one_by_one(); this subscription is consumed in order")

    # --- what is told

    @property
    def untold(self) -> int:
        """Ids that the hub is to be told of."""
        return max(0, min(self._consumed.local, self._delivered) - self._told)

    def to_tell(self) -> list[MessageId]:
        """What the CONSUMEs say that leave now."""
        if not self.untold:
            return []
        found = self._consumed if self._consumed.local <= self._delivered else MessageId(self._delivered)
        self._told = found.local
        return [found]
