"""ledger/list, metadata, read, delete: any ledger of the cluster, through a client.

    GET    /api/v1/ledger/list?print_metadata=true&page=1       {"7" : null, ...}, or metadata, 100 ledgers a page
    GET    /api/v1/ledger/metadata?ledger_id=7                  {"7" : {...}}
    GET    /api/v1/ledger/read?ledger_id=7&start_entry_id=0&end_entry_id=9&page=1     {"0" : "text", ...}, 1000 a page
    DELETE /api/v1/ledger/delete?ledger_id=7

read and delete run with the rights of the server and do not check a ledger's password. They are therefore answered 403
unless httpServerLedgerContentEnabled=true.

A ledger with unreadable metadata has the value null. Unreadable records and stray znodes are named in a last member,
"unreadable": [{"path": ..., "problem": ...}], which is absent if there are none. Apache answers 500 instead. So a
program made for Apache's answers meets a member without a number, like the "Entries for page: " of ledger/read, only if
a record is bad.

Lists of any length leave in pieces, so that memory stays bounded. Nothing is fenced: a read opens without recovery.
Differs from Apache: a ledger's password is never shown; metadata always comes decoded (there print_metadata without
decode_meta gives the record's bytes as if they were text, password included).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, FirstError, gatherResults

from bookkeeper.admin.http.routing import (
    Answer,
    HttpRequest,
    Refused,
    Route,
    bad_request,
    json_answer,
    json_object_in_pieces,
)
from bookkeeper.errors import MetadataCorrupt, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.model import LedgerId, LedgerMetadata

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

LEDGERS_A_PAGE = 100
ENTRIES_A_PAGE = 1000
READ_AT_ONCE = 100
METADATA_AT_ONCE = 50


def metadata_value(ledger_id: int, metadata: LedgerMetadata) -> dict[str, object]:
    """Ledger metadata with the names that Apache's JSON has; no password."""
    return {
        "ledgerId": ledger_id,
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
        "closed": metadata.is_closed,
        "lastEntryId": -1 if metadata.last_entry_id is None else metadata.last_entry_id,
        "length": metadata.length or 0,
        "ctime": -1 if metadata.created_ms is None else metadata.created_ms,
        "digestType": None if metadata.digest_type is None else metadata.digest_type.name,
        "customMetadata": {name: b64encode(value).decode() for name, value in metadata.custom.items()},
        "allEnsembles": {
            str(fragment.first_entry_id): [{"id": bookie_id} for bookie_id in fragment.ensemble]
            for fragment in metadata.fragments
        },
        "ctoken": metadata.creator_token or 0,
    }


class Ledgers:
    """client: connected at first need. content: whether requests may read entries and delete ledgers."""

    def __init__(self, client: Callable[[], Deferred[LedgerClient]], *, content: bool) -> None:
        self._client, self._content = client, content

    def routes(self) -> list[Route]:
        """ledger/*"""
        return [
            Route("GET", "/api/v1/ledger/list", self._list),
            Route("GET", "/api/v1/ledger/metadata", self._metadata),
            Route("GET", "/api/v1/ledger/read", self._read if self._content else _content_is_off),
            Route("DELETE", "/api/v1/ledger/delete", self._delete if self._content else _content_is_off),
        ]

    async def _list(self, request: HttpRequest) -> Answer:
        with_metadata = request.flag("print_metadata", default=False)
        page = request.whole_number("page", 0)
        client = await self._client()
        bad_records = BadRecords()
        ids = client.ids(bad_records)
        if page:
            ids = _page(ids, page, LEDGERS_A_PAGE)
        members = _with_metadata(client, ids, bad_records) if with_metadata else _bare(ids)
        return Answer(json_object_in_pieces(and_unreadable(members, bad_records)))

    async def _metadata(self, request: HttpRequest) -> Answer:
        ledger_id = request.whole_number("ledger_id")
        metadata = await (await self._client()).metadata(ledger_id)
        return json_answer({str(ledger_id): metadata_value(ledger_id, metadata)})

    async def _read(self, request: HttpRequest) -> Answer:
        ledger_id = request.whole_number("ledger_id")
        first = request.whole_number("start_entry_id", 0)
        last = request.whole_number("end_entry_id", -1, minimum=-1)
        page = request.whole_number("page", 0)
        wanted = (first, last)
        if page:
            first = max(first, (page - 1) * ENTRIES_A_PAGE)
            page_last = page * ENTRIES_A_PAGE - 1
            last = page_last if last < 0 else min(last, page_last)
        if 0 <= last < first:
            raise bad_request(
                f"no entries: start_entry_id={wanted[0]}, end_entry_id={wanted[1]}, page={page or 'none'}"
            )
        client = await self._client()
        handle = await client.open_as_administrator(ledger_id, recover=False)
        try:
            end = handle.last_add_confirmed
            if not handle.closed:
                end = max(end, await handle.read_last_confirmed())
            # Of an open ledger what is acknowledged; of a closed one its end.
            last = end if last < 0 else min(last, end)
            found: list[tuple[str, object]] = []
            if page:
                found.append(("Entries for page: ", str(page)))
        except BaseException:
            await handle.close()
            raise

        async def entries() -> AsyncIterator[list[tuple[str, object]]]:
            try:
                if found:
                    yield found
                for start in range(first, last + 1, READ_AT_ONCE):
                    batch = await handle.read(start, min(last, start + READ_AT_ONCE - 1))
                    # Bytes beyond ASCII become U+FFFD, as there.
                    yield [(str(entry.entry_id), entry.payload.decode("ascii", "replace")) for entry in batch]
            finally:
                await handle.close()

        return Answer(json_object_in_pieces(entries()))

    async def _delete(self, request: HttpRequest) -> Answer:
        ledger_id = request.whole_number("ledger_id")
        await (await self._client()).delete(ledger_id)
        return json_answer(f"Deleted ledger: {ledger_id}")


async def _content_is_off(request: HttpRequest) -> Answer:
    raise Refused(
        403,
        f"{request.path} is off, since it does not check a ledger's password; set "
        "httpServerLedgerContentEnabled=true, or use `bookkeeper ledger` or `bookkeeper shell`",
    )


async def _page(ids: AsyncIterator[list[LedgerId]], page: int, size: int) -> AsyncIterator[list[LedgerId]]:
    """The page-th `size` ids, from 1."""
    skipped, left = (page - 1) * size, size
    async for batch in ids:
        wanted = batch[skipped : skipped + left]
        skipped = max(0, skipped - len(batch))
        left -= len(wanted)
        if wanted:
            yield wanted
        if not left:
            return


async def and_unreadable(
    members: AsyncIterator[list[tuple[str, object]]], bad_records: BadRecords
) -> AsyncIterator[list[tuple[str, object]]]:
    """Yield the members of an object, and one more that names the bad records if there are any."""
    async for batch in members:
        yield batch
    if bad_records:
        yield [("unreadable", [record.json() for record in bad_records.named])]


async def _bare(ids: AsyncIterator[list[LedgerId]]) -> AsyncIterator[list[tuple[str, object]]]:
    async for batch in ids:
        yield [(str(ledger_id), None) for ledger_id in batch]


async def _with_metadata(
    client: LedgerClient, ids: AsyncIterator[list[LedgerId]], bad_records: BadRecords
) -> AsyncIterator[list[tuple[str, object]]]:
    async def read(ledger_id: LedgerId) -> tuple[str, object] | None:
        try:
            return str(ledger_id), metadata_value(ledger_id, await client.metadata(ledger_id))
        except NoSuchLedger:
            return None  # deleted since it was listed
        except MetadataCorrupt as error:
            bad_records.add_unreadable(error)
            return str(ledger_id), None

    async for batch in ids:
        for start in range(0, len(batch), METADATA_AT_ONCE):
            some = batch[start : start + METADATA_AT_ONCE]
            try:
                found = await gatherResults([Deferred.fromCoroutine(read(each)) for each in some], consumeErrors=True)
            except FirstError as error:
                error.subFailure.raiseException()  # the cause rather than the wrapper
            yield [each for each in found if each is not None]
