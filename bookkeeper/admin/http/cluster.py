"""bookie/list_bookies, list_bookie_info, cluster_info: what any server of a cluster can say of all its bookies.

    GET /api/v1/bookie/list_bookies?type=rw|ro&print_hostnames=true      {"host:port" : null or the host}
    GET /api/v1/bookie/list_bookie_info        {"host:port" : ": {Free: 12000(12KB), Total: ...},", ...}
    GET /api/v1/bookie/cluster_info            auditor, under-replication, counts of bookies

The hosts are those that bookies registered; nothing is looked up. A bookie that does not tell its space has the reason
in place of numbers, and is not in the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.admin.http.routing import Answer, HttpRequest, Route, bad_request, json_answer, not_here
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.bookies.counts import count_bookies
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.metadata.underreplication.recovery_processes import find_auditor
from bookkeeper.model import BookieId

if TYPE_CHECKING:
    from bookkeeper.client.bookies.disk_space import BookieInfo
    from bookkeeper.client.client import LedgerClient

ASKED_AT_ONCE = 32
_UNITS = ("", "KB", "MB", "GB", "TB")


class ClusterView:
    """store: connected. client: at first need."""

    def __init__(self, store: MetadataStore, client: Callable[[], Deferred[LedgerClient]] | None) -> None:
        self._store, self._client = store, client

    def routes(self) -> list[Route]:
        """The three."""
        top = "/api/v1/bookie"
        routes = [
            Route("GET", f"{top}/list_bookies", self._list),
            Route("GET", f"{top}/cluster_info", self._info),
        ]
        if self._client is not None:
            routes.append(Route("GET", f"{top}/list_bookie_info", self._space))
        return routes

    async def _list(self, request: HttpRequest) -> Answer:
        kind = request.query.get("type", "rw")
        if kind not in ("rw", "ro"):
            raise bad_request(f"type={kind!r} is neither rw (read-write) nor ro (read-only)")
        with_hosts = request.flag("print_hostnames", default=False)
        available = await self._store.bookies.current()
        found: dict[str, str | None] = {}
        for bookie_id, info in sorted((available.read_only if kind == "ro" else available.writable).items()):
            address = info.address()
            found[bookie_id] = address[0] if with_hosts and address is not None else None
        return json_answer(found)

    async def _space(self, _: HttpRequest) -> Answer:
        assert self._client is not None
        available = await self._store.bookies.current()
        bookies = sorted({*available.writable, *available.read_only})
        if not bookies:
            raise not_here("no bookie is registered, so none can be asked for its space")
        client = await self._client()
        output: dict[str, str] = {}
        free = total = 0
        for start in range(0, len(bookies), ASKED_AT_ONCE):
            some = bookies[start : start + ASKED_AT_ONCE]
            answers = await gatherResults([Deferred.fromCoroutine(_ask(client, each)) for each in some])
            for bookie_id, answer in zip(some, answers, strict=True):
                if isinstance(answer, BookKeeperError):
                    output[bookie_id] = f": unknown: {answer}"
                    continue
                free, total = free + answer.free_bytes, total + answer.total_bytes
                output[bookie_id] = f": {{{_free_and_total(answer.free_bytes, answer.total_bytes)}}},"
        output["ClusterInfo: "] = f"{{{_free_and_total(free, total)}}}"
        return json_answer(output)

    async def _info(self, _: HttpRequest) -> Answer:
        """Differs from Apache: an auditor with an unreadable vote counts as elected, and the record is named."""
        tree, bad_records = self._store.underreplication, BadRecords()
        auditor = await find_auditor(tree, bad_records)
        under_replicated = False
        async for _ids in tree.ids(BadRecords()):
            under_replicated = True
            break
        available = await self._store.bookies.current()
        counts = count_bookies(available, await self._store.cookies.all(), bad_records)
        return json_answer(
            {
                "auditorElected": auditor.is_elected,
                "auditorId": auditor.bookie_id or "",
                "clusterUnderReplicated": under_replicated,
                "ledgerReplicationEnabled": await tree.is_enabled(),
                "totalBookiesCount": counts.total,
                "writableBookiesCount": counts.writable,
                "readonlyBookiesCount": counts.read_only,
                "unavailableBookiesCount": counts.unavailable,
                **({"unreadable": [record.json() for record in bad_records.named]} if bad_records else {}),
            }
        )


async def _ask(client: LedgerClient, bookie_id: BookieId) -> BookieInfo | BookKeeperError:
    try:
        return await client.bookie_info(bookie_id)
    except BookKeeperError as error:  # one that does not answer does not hide the others
        return error


def _free_and_total(free: int, total: int) -> str:
    return f"Free: {free}{_readable(free)}, Total: {total}{_readable(total)}"


def _readable(size: int) -> str:
    """`(1.234GB)`: three decimals at most, rounded down; nothing below a kilobyte."""
    power = min((len(str(size)) - 1) // 3, len(_UNITS) - 1)
    if power == 0:
        return ""
    thousandths = size * 1000 // 1000**power
    return "(" + f"{thousandths // 1000}.{thousandths % 1000:03}".rstrip("0").rstrip(".") + _UNITS[power] + ")"
