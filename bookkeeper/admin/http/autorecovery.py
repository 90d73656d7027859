"""autorecovery/*: the switches, marks and auditor of the cluster, and recoveries that this process carries out.

    GET PUT /api/v1/autorecovery/status?enabled=false                    {"enabled" : false}
    GET     /api/v1/autorecovery/list_under_replicated_ledger            [7, 8], 404 where there is none
              ?missingreplica=B&excludingmissingreplica=C&printmissingreplica=true       {"7" : ["B"]}
              with "unreadable": [{"path": ..., "problem": ...}] if a mark cannot be read (not in Apache)
    GET     /api/v1/autorecovery/who_is_auditor                          Auditor: host:port
    PUT     /api/v1/autorecovery/trigger_audit
    GET PUT /api/v1/autorecovery/lost_bookie_recovery_delay              {"delay_seconds": 60}
    PUT     /api/v1/autorecovery/bookie         {"bookie_src": ["B"], "bookie_dest": [], "delete_cookie": false}
    PUT     /api/v1/autorecovery/decommission   {"bookie_src": "B", "delete_cookie": false}
    GET     of these two                        what was begun here, how far it is, how it ended (not in Apache)
    GET     /api/v1/autorecovery/troubles       what the worker here could not repair, and why (not in Apache);
              and {"record": path, "state": "passed over", "reason": why} for znodes that worker or auditor passed over
    GET     /api/v1/autorecovery/auditor        what the auditor here does, elected or not (not in Apache)

A recovery or a decommission is begun, and the answer does not wait for it, as Apache's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from bookkeeper.admin.http.ledgers import and_unreadable
from bookkeeper.admin.http.routing import (
    Answer,
    HttpRequest,
    Route,
    bad_request,
    conflict,
    flag_of,
    json_answer,
    json_array_in_pieces,
    json_object_in_pieces,
    not_here,
    only_known,
    text_answer,
)
from bookkeeper.admin.http.tasks import LongTasks
from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import Underreplication
from bookkeeper.metadata.underreplication.recovery_processes import ask_for_audit, find_auditor
from bookkeeper.model import BookieId

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger

TOP = "/api/v1/autorecovery"
DELAY_MAX_S = 2**31 - 1


class Recovering(Protocol):
    """Who recovers bookies in this process. Thread: reactor."""

    def recover(
        self, sources: Sequence[BookieId], *, delete_cookies: bool
    ) -> tuple[Deferred[str], Callable[[], object]]:
        """Make the copies of these bookies anew, elsewhere. The outcome as a sentence, and the progress meanwhile."""

    def decommission(self, source: BookieId, *, delete_cookie: bool) -> tuple[Deferred[str], Callable[[], object]]:
        """Have an audit, and wait until no ledger names the bookie any more."""


class Troubled(Protocol):
    """The replication worker of this process, and its auditor."""

    def troubles(self, ledger_id: int | None) -> Sequence[Mapping[str, object]]:
        """What it could not repair: of one ledger, or of all; names as in JSON."""

    def auditor(self) -> Mapping[str, object]:
        """What the auditor of this process does, whether it is elected or not; names as in JSON."""


class AutoRecovery:
    """recovering, troubled: None where this process does no such thing."""

    def __init__(
        self,
        tree: Underreplication,
        now_ms: Callable[[], int],
        recovering: Recovering | None = None,
        troubled: Troubled | None = None,
    ) -> None:
        self._tree, self._recovering, self._troubled = tree, recovering, troubled
        self._recoveries, self._decommissions = LongTasks(now_ms), LongTasks(now_ms)

    def routes(self) -> list[Route]:
        """autorecovery/*"""
        routes = [
            Route("GET", f"{TOP}/status", self._status),
            Route("PUT", f"{TOP}/status", self._switch),
            Route("GET", f"{TOP}/list_under_replicated_ledger", self._list),
            Route("GET", f"{TOP}/who_is_auditor", self._auditor),
            Route("PUT", f"{TOP}/trigger_audit", self._audit),
            Route("GET", f"{TOP}/lost_bookie_recovery_delay", self._delay),
            Route("PUT", f"{TOP}/lost_bookie_recovery_delay", self._set_delay),
        ]
        if self._recovering is not None:
            routes += [
                Route("GET", f"{TOP}/bookie", self._show_recoveries),
                Route("PUT", f"{TOP}/bookie", self._recover),
                Route("GET", f"{TOP}/decommission", self._show_decommissions),
                Route("PUT", f"{TOP}/decommission", self._decommission),
            ]
        if self._troubled is not None:
            routes += [
                Route("GET", f"{TOP}/troubles", self._troubles),
                Route("GET", f"{TOP}/auditor", self._auditor_here),
            ]
        return routes

    # --- switches

    async def _status(self, _: HttpRequest) -> Answer:
        return json_answer({"enabled": await self._tree.is_enabled()})

    async def _switch(self, request: HttpRequest) -> Answer:
        if "enabled" in request.query:
            enabled = request.flag("enabled", default=True)
        else:
            body = request.object() if request.body.strip() else {}
            only_known(body, ("enabled",), request.path)
            if "enabled" not in body:
                raise bad_request(f"{request.path} needs enabled=true or enabled=false")
            enabled = flag_of("enabled", body["enabled"])
        await (self._tree.enable() if enabled else self._tree.disable())
        return json_answer({"enabled": await self._tree.is_enabled()})

    async def _delay(self, _: HttpRequest) -> Answer:
        delay_s = await self._tree.recovery_delay_s()
        if delay_s is None:
            raise not_here("no lostBookieRecoveryDelay is stored: no auditor ever ran in this cluster")
        return text_answer(f"lostBookieRecoveryDelay value: {delay_s}")

    async def _set_delay(self, request: HttpRequest) -> Answer:
        body = request.object('{"delay_seconds": 60}')
        only_known(body, ("delay_seconds",), request.path)
        delay_s = body.get("delay_seconds")
        if not isinstance(delay_s, int) or isinstance(delay_s, bool) or not 0 <= delay_s <= DELAY_MAX_S:
            raise bad_request(f'{request.path} needs {{"delay_seconds": N}}, N a whole number from 0 to {DELAY_MAX_S}')
        await self._tree.set_recovery_delay(delay_s)
        return text_answer(f"Success set lostBookieRecoveryDelay to {delay_s}")

    # --- marks and the auditor

    async def _list(self, request: HttpRequest) -> Answer:
        missing = request.query.get("missingreplica", "")
        excluded = request.query.get("excludingmissingreplica", "")
        # Apache's word is enough by being there.
        with_replicas = "printmissingreplica" in request.query and (
            not request.query["printmissingreplica"] or request.flag("printmissingreplica", default=True)
        )
        bad_records = BadRecords()
        marks = self._marks(missing, excluded, bad_records, read=with_replicas or bool(missing or excluded))
        try:
            first = await anext(marks)
        except StopAsyncIteration:
            passed_over = f"; passed over: {'; '.join(bad_records.lines())}" if bad_records else ""
            raise not_here(f"No under replicated ledgers found{passed_over}") from None

        async def batches() -> AsyncGenerator[list[tuple[int, UnderreplicatedLedger | None]]]:
            yield first
            async for batch in marks:
                yield batch

        if with_replicas:
            members: AsyncGenerator[list[tuple[str, object]]] = (
                [(str(ledger_id), list(mark.missing) if mark else []) for ledger_id, mark in batch]
                async for batch in batches()
            )
            return Answer(json_object_in_pieces(and_unreadable(members, bad_records)))
        return Answer(json_array_in_pieces([ledger_id for ledger_id, _ in batch] async for batch in batches()))

    async def _marks(
        self, missing: str, excluded: str, bad_records: BadRecords, *, read: bool
    ) -> AsyncGenerator[list[tuple[int, UnderreplicatedLedger | None]]]:
        """Yield the marked ledgers that fit, with their marks if these are read; no empty batches.

        A ledger with an unreadable mark is listed without it: the ledger is marked, and whether it fits is unknown.
        """
        async for ids in self._tree.ids(bad_records):
            found: list[tuple[int, UnderreplicatedLedger | None]] = []
            for ledger_id in ids:
                try:
                    mark = await self._tree.read(ledger_id) if read else None
                except MetadataCorrupt as error:
                    bad_records.add_unreadable(error)
                    found.append((ledger_id, None))
                    continue
                if read and mark is None:
                    continue  # repaired since it was listed
                bookies = mark.missing if mark is not None else ()
                if (not missing or missing in bookies) and (not excluded or excluded not in bookies):
                    found.append((ledger_id, mark))
            if found:
                yield found

    async def _auditor(self, _: HttpRequest) -> Answer:
        bad_records = BadRecords()
        auditor = await find_auditor(self._tree, bad_records)
        if not auditor.is_elected:
            raise not_here("No auditor elected")
        lines = [f"Auditor: {auditor.bookie_id or 'unknown'}"]
        return text_answer("\n".join([*lines, *(f"Unreadable: {line}" for line in bad_records.lines())]))

    async def _audit(self, _: HttpRequest) -> Answer:
        if not await self._tree.is_enabled():
            raise conflict(f"auto-recovery is disabled, so nobody audits; PUT {TOP}/status?enabled=true turns it on")
        if not (await find_auditor(self._tree, BadRecords())).is_elected:
            raise conflict("auto-recovery is enabled, but no auditor is elected: run `bookkeeper autorecovery`")
        await ask_for_audit(self._tree)
        return text_answer("Success trigger audit.")

    # --- what takes long

    async def _show_recoveries(self, _: HttpRequest) -> Answer:
        return json_answer(self._recoveries.shown())

    async def _show_decommissions(self, _: HttpRequest) -> Answer:
        return json_answer(self._decommissions.shown())

    async def _recover(self, request: HttpRequest) -> Answer:
        """Differs from Apache, which takes the first of the bookies and passes over the others and bookie_dest."""
        assert self._recovering is not None
        body = request.object('{"bookie_src": ["HOST:PORT"]}')
        only_known(body, ("bookie_src", "bookie_dest", "delete_cookie"), request.path)
        sources = _bookies("bookie_src", body.get("bookie_src"))
        if body.get("bookie_dest"):
            raise bad_request("bookie_dest: the placement policy chooses where copies go; leave it out")
        delete = flag_of("delete_cookie", body.get("delete_cookie", False))
        recovering = self._recovering
        self._recoveries.begin(
            f"recovery of {', '.join(sources)}", lambda: recovering.recover(sources, delete_cookies=delete)
        )
        return text_answer(f"Success send recovery request command. GET {request.path} shows how far it is.\n")

    async def _decommission(self, request: HttpRequest) -> Answer:
        assert self._recovering is not None
        body = request.object('{"bookie_src": "HOST:PORT"}')
        only_known(body, ("bookie_src", "delete_cookie"), request.path)
        if not isinstance(body.get("bookie_src"), str):
            raise bad_request(f'{request.path} needs {{"bookie_src": "HOST:PORT"}}')
        (source,) = _bookies("bookie_src", [body["bookie_src"]])
        delete = flag_of("delete_cookie", body.get("delete_cookie", False))
        recovering = self._recovering
        self._decommissions.begin(
            f"decommission of {source}", lambda: recovering.decommission(source, delete_cookie=delete)
        )
        said = f"Success send decommission Bookie command {source}."
        return text_answer(f"{said} GET {request.path} shows how far it is.\n")

    async def _troubles(self, request: HttpRequest) -> Answer:
        assert self._troubled is not None
        ledger_id = request.whole_number("ledger_id", -1, minimum=-1)
        return json_answer([dict(each) for each in self._troubled.troubles(None if ledger_id < 0 else ledger_id)])

    async def _auditor_here(self, _: HttpRequest) -> Answer:
        assert self._troubled is not None
        return json_answer(dict(self._troubled.auditor()))


def _bookies(name: str, value: object) -> list[BookieId]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each.strip() for each in value):
        raise bad_request(f'{name} must be a list of bookies, as ["HOST:PORT"]')
    return list(dict.fromkeys(BookieId(each.strip()) for each in value))
