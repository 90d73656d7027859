"""Which entries of a ledger one bookie holds, as it says itself (v3, 4.10 and later). Thread: reactor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookieUnavailable, InvalidArgument, NotSupportedByBookie, again
from bookkeeper.model import BookieId, Status
from bookkeeper.wire.availability import decode_availability
from bookkeeper.wire.messages import GenericFailure, ListEntriesReply
from bookkeeper.wire.status import error_of

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext

_NOT_UNDERSTOOD = frozenset({Status.BAD_REQUEST, Status.BAD_VERSION})


async def ask_list_of_entries(context: ClientContext, ledger_id: int, bookie_id: BookieId) -> Sequence[range]:
    """Ask one bookie: ascending, disjoint ranges, taken on its word.

    Raises NoSuchLedgerOnBookie where it holds nothing of the ledger, NotSupportedByBookie where it is too old,
    UnauthorizedAccess where it wants TLS or credentials, BookieUnavailable (also from a genuine bookie with
    DbLedgerStorage, which leaves the question unanswered), RemoteProtocolError for an answer that makes no sense.
    """
    context.check_open()
    if ledger_id < 0:
        raise InvalidArgument(f"ledger {ledger_id}: ids are not negative")
    await context.directory.ready()
    channel = context.v3_channel(bookie_id)
    answered: Deferred[object] = Deferred(lambda _: None)
    channel.call(
        context.v3_encoder.encode_list_entries(ledger_id),
        context.settings.read_timeout_s,
        lambda reply: None if answered.called else answered.callback(reply),
        lambda error: None if answered.called else answered.errback(again(error)),
    )
    try:
        reply = await answered
    except BookieUnavailable as error:
        if channel.refused:
            raise NotSupportedByBookie(f"bookie {bookie_id} does not speak protocol v3 ({error})") from error
        raise
    if not isinstance(reply, ListEntriesReply | GenericFailure) or reply.status in _NOT_UNDERSTOOD:
        raise NotSupportedByBookie(f"bookie {bookie_id} does not list entries: it is older than 4.10")
    if reply.status is Status.UNAUTHORIZED:
        raise context.unauthorized(bookie_id, ledger_id)
    if reply.status is not Status.OK:
        raise error_of(reply.status, bookie_id=bookie_id, ledger_id=ledger_id)
    availability = reply.availability if isinstance(reply, ListEntriesReply) else None
    return [] if availability is None else decode_availability(availability)
