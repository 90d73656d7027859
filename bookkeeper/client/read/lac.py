"""Asking the bookies for the LAC: drives `protocol.lac` over the channels (bookkeeper/wire/FORMATS.md 3.8).

READ_LAC (v3) tells the explicit LAC and the last entry; where a bookie has no v3, the last entry is read with v2 and
the LAC inside it counts, which is behind by the adds that were in flight. Only digest-checked values count. Thread:
reactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.client.bookies.access_errors import explained
from bookkeeper.errors import BookieUnavailable, DigestMismatch
from bookkeeper.model import EXPLICIT_NEGATIVES, LAST_ENTRY, BookieId, EntryId, Status
from bookkeeper.protocol.lac import LacRead, ToldLac, TryLacRead
from bookkeeper.wire.digest import lac_of, length_of
from bookkeeper.wire.messages import ReadLacReply

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.client.read.view import LedgerView
    from bookkeeper.wire.digest import Digest

_NOT_UNDERSTOOD = frozenset({Status.BAD_REQUEST, Status.BAD_VERSION})


class LacReading:
    """One question for the LAC to the last fragment's bookies. `result` fires with the greatest LAC that counts.

    explicit: ask for the explicit LAC where the bookie has v3; else only for the last entry.
    """

    def __init__(
        self,
        context: ClientContext,
        view: LedgerView,
        digest: Digest,
        core: LacRead | TryLacRead | ToldLac,
        *,
        explicit: bool,
    ) -> None:
        self.result: Deferred[EntryId] = Deferred(self._cancelled)
        self._context, self._view, self._digest, self._core = context, view, digest, core
        self._explicit = explicit
        self._over = False

    def start(self) -> Deferred[EntryId]:
        """Ask all of them."""
        for bookie_id in list(self._core.bookies):
            if self._explicit:
                self._ask_v3(bookie_id)
            else:
                self._ask_last_entry(bookie_id)
        return self.result

    def _ask_v3(self, bookie_id: BookieId) -> None:
        channel = self._context.v3_channel(bookie_id)
        if channel.refused:
            self._ask_last_entry(bookie_id)
            return
        channel.call(
            self._context.v3_encoder.encode_read_lac(self._view.ledger_id),
            self._context.settings.read_timeout_s,
            lambda reply: self._on_lac_reply(bookie_id, reply),
            lambda error: self._on_no_lac_reply(bookie_id, error),
        )

    def _ask_last_entry(self, bookie_id: BookieId) -> None:
        self._context.channel(bookie_id).read(self, self._view.ledger_id, (LAST_ENTRY,))

    # --- answers

    def _on_no_lac_reply(self, bookie_id: BookieId, error: Exception) -> None:
        if self._context.v3_channel(bookie_id).refused and not self._over:
            self._ask_last_entry(bookie_id)
        else:
            self._note(self._core.on_unknown(bookie_id, error))

    def _on_lac_reply(self, bookie_id: BookieId, reply: Any) -> None:
        if not isinstance(reply, ReadLacReply) or reply.status in _NOT_UNDERSTOOD:
            if not self._over:
                self._ask_last_entry(bookie_id)
            return
        ledger_id = self._view.ledger_id
        known = []
        if reply.explicit_lac is not None:
            known.append(self._digest.verify_lac(ledger_id, reply.explicit_lac))
        if reply.last_entry is not None:
            known.append(self._checked_lac(reply.last_entry))
        good = [lac for lac in known if lac is not None]
        if good:
            self._note(self._core.on_lac(bookie_id, max(good)))
        elif known:
            self._note(self._core.on_unknown(bookie_id, self._damaged(bookie_id)))
        else:
            self._on_status(bookie_id, reply.status)

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """The last entry a bookie holds."""
        lac = self._checked_lac(bodies[0])
        if lac is None:
            self._note(self._core.on_unknown(bookie_id, self._damaged(bookie_id)))
        else:
            self._note(self._core.on_lac(bookie_id, lac))

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """It holds none, or will not say."""
        self._on_status(bookie_id, status)

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """It cannot be asked."""
        self._note(self._core.on_unknown(bookie_id, error))

    def _on_status(self, bookie_id: BookieId, status: Status) -> None:
        if status in EXPLICIT_NEGATIVES:
            self._note(self._core.on_negative(bookie_id, status))
        else:
            why: object = status.value
            if status is not Status.OK:
                why = self._context.error_of(status, bookie_id=bookie_id, ledger_id=self._view.ledger_id)
            self._note(self._core.on_unknown(bookie_id, why))

    def _checked_lac(self, body: bytes) -> int | None:
        if self._digest.verify_last(self._view.ledger_id, body) is None:
            return None
        lac = lac_of(body)
        self._view.advance(lac, length_of(body) if lac >= 0 else 0)
        return lac

    def _damaged(self, bookie_id: BookieId) -> DigestMismatch:
        return DigestMismatch(
            f"bookie {bookie_id}: the last entry of ledger {self._view.ledger_id} fails its digest",
            bookie_id=bookie_id,
            ledger_id=self._view.ledger_id,
        )

    def _cancelled(self, _: object) -> None:
        """The caller lost interest: late answers are dropped."""
        self._over = True

    def _note(self, done: bool) -> None:
        if not done or self._over:
            return
        self._over = True
        error = self._core.error()
        if error is not None:
            self.result.errback(explained(error))
        else:
            self.result.callback(EntryId(self._core.lac))
