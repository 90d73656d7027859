"""What of a ledger with deferred sync is durable: who acknowledged over which connection, what a force proves. Pure.

With deferred sync a bookie acknowledges an entry before it is on disk. Its OK to a FORCE_LEDGER that was sent after the
acknowledgement, over the *same connection*, proves that the entry is on disk now: the process that acknowledged has
lived on. Over another connection it proves nothing: the bookie may have lost power, and come back without the entry.

    acknowledged by Qa, in order (adds)  ->  round: all E members are asked  ->  all proved it: durable, the new LAC

    -1 <= durable <= target of the running round <= last acknowledged

One round runs at a time: whoever asks meanwhile is served by it, or by the one after it.

Differs from Apache: its force takes any OK, also that of a bookie that was restarted since it acknowledged.
"""

from __future__ import annotations

import enum

from bookkeeper.model import EntryId

NEVER = -1
"""In place of a connection: it has ended, so what was acknowledged over it is never proved."""


class ForceOutcome(enum.Enum):
    """What one answer to a force amounts to."""

    WAITING = "others have not answered yet, or nobody waits for this answer"
    DURABLE = "the last one: everything up to the round's target is durable"
    UNPROVED = "the bookie acknowledged entries over a connection that has ended since; they may be lost"


class Forces:
    """The durable end of one ledger. Connections are numbers, from 1 on, that never come again for the same bookie.

    durable, length: up to where everything is durable already, and the payload bytes up to there.
    """

    __slots__ = ("_asked", "_covered", "_fresh", "_fresh_last", "_target", "_target_length", "durable", "length")

    def __init__(self, ensemble_size: int, *, durable: int = -1, length: int = 0) -> None:
        self.durable = EntryId(durable)
        self.length = length
        # Per ensemble index: the one connection over which came what it acknowledged and has not proved ...
        self._covered: list[int | None] = [None] * ensemble_size  # ... before the running round was begun
        self._fresh: list[int | None] = [None] * ensemble_size  # ... since then; counts while above `durable`
        self._fresh_last = [-1] * ensemble_size  # the highest of the fresh entry ids
        self._asked: set[int] = set()  # indexes whose answer the running round lacks; empty: none runs
        self._target, self._target_length = self.durable, length

    @property
    def running(self) -> bool:
        """Between `begin` and the last answer."""
        return bool(self._asked)

    @property
    def target(self) -> EntryId:
        """What the running round makes durable; `durable` when none runs."""
        return self._target

    def on_acks(self, index: int, connection: int, last_entry_id: int) -> bool:
        """`index` acknowledged entries, the highest of them `last_entry_id`, over this connection.

        False when it acknowledged others before over a connection that has ended: those can never be proved any more.
        """
        proved = self._covered[index] in (None, connection)
        if self._owes_fresh(index):
            proved = proved and self._fresh[index] == connection
            last_entry_id = max(last_entry_id, self._fresh_last[index])
        self._fresh[index] = connection if proved else NEVER
        self._fresh_last[index] = last_entry_id
        return proved

    def owes(self, index: int) -> bool:
        """Whether `index` acknowledged entries that it has not proved, and that are not durable without it.

        If its connection ends now they never can be proved. Late copies of what is durable already do not count.
        """
        return self._covered[index] is not None or self._owes_fresh(index)

    def begin(self, acknowledged: EntryId, length: int) -> bool:
        """Begin a round for everything acknowledged now; False when there is nothing to make durable.

        length: payload bytes up to there. The caller sends a force to every index after this call.
        """
        assert not self._asked, "a round is running"
        if acknowledged <= self.durable:
            return False
        for index in range(len(self._fresh)):
            self._covered[index] = self._fresh[index] if self._owes_fresh(index) else None
            self._fresh[index] = None
        self._asked = set(range(len(self._fresh)))
        self._target, self._target_length = acknowledged, length
        return True

    def on_forced(self, index: int, connection: int) -> ForceOutcome:
        """`index` answered the force of the running round with OK, asked and answered over this connection."""
        if index not in self._asked:
            return ForceOutcome.WAITING
        if self._covered[index] not in (None, connection):
            return ForceOutcome.UNPROVED
        self._covered[index] = None
        self._asked.remove(index)
        if self._asked:
            return ForceOutcome.WAITING
        self.durable, self.length = self._target, self._target_length
        return ForceOutcome.DURABLE

    def _owes_fresh(self, index: int) -> bool:
        return self._fresh[index] is not None and self._fresh_last[index] > self.durable
