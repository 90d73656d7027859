"""bookie/*: the mode, space and files of the bookie in this process.

    GET      /api/v1/bookie/state                {"running", "readOnly", "shuttingDown", ...}
    GET PUT  /api/v1/bookie/state/readonly       {"readOnly": true}; stays until it is taken back, or a restart
    GET      /api/v1/bookie/is_ready             OK, or 503
    GET      /api/v1/bookie/sanity               {"passed", "readOnly"}: a ledger is written here and read back
    GET      /api/v1/bookie/info                 {"freeSpace", "totalSpace"} in bytes, each disk once
    GET      /api/v1/bookie/last_log_mark        {"LastLogMark: Journal Id - 26(1a.txn)" : "Pos - 512"}
    GET      /api/v1/bookie/list_disk_file?file_type=journal|entrylog|index         names, each followed by a tab
    GET      /api/v1/bookie/unmended_index_pages[?ledger_id=7]     [{"ledger", "path", "page", "why"}]; not Apache's
    PUT      /api/v1/bookie/expand_storage
    GET PUT  /api/v1/bookie/entry_location_compact

Differs from Apache: writable is what an operator who ordered read-only may take back, and nothing else: a bookie whose
disks are full stays read-only, and the answer says why. There an order to write holds until the next look at the disks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.admin.http.routing import (
    Answer,
    HttpRequest,
    Route,
    bad_request,
    conflict,
    flag_of,
    json_answer,
    not_here,
    only_known,
    text_answer,
    unavailable,
)
from bookkeeper.client.parallel import tell_all
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import BookieId, LogMark

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bookkeeper.client.client import LedgerClient

SANITY_ENTRIES = 10
SANITY_PASSWORD = b"bookiesanity"
SANITY_SETTINGS: Mapping[str, str] = {
    # No other bookie may step in for this one, or its failure would go unnoticed.
    "maxNumEnsembleChanges": "0",
    "addEntryTimeoutSec": "5",
    "readEntryTimeoutSec": "5",
}

FILE_KINDS = ("journal", "entrylog", "index")


@dataclass(frozen=True, slots=True)
class BookieState:
    """reasons: why it is read-only, as sentences; ordered: an operator's order is one of them."""

    running: bool
    read_only: bool
    shutting_down: bool
    priority_writes: bool
    reasons: tuple[str, ...] = ()
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class UnmendedPage:
    """A damaged page of an index file that could not be made anew when that was tried last, and why."""

    ledger_id: int
    path: str
    page: int
    why: str


class ServedBookie(Protocol):
    """The bookie of this process, as HTTP needs it. Thread: reactor; what blocks runs on another."""

    @property
    def bookie_id(self) -> BookieId:
        """Its id."""

    def state(self) -> BookieState:
        """Now."""

    def order_read_only(self, *, read_only: bool) -> None:
        """An operator's order, or its end. Raises InvalidArgument where the configuration forbids it."""

    def space(self) -> Deferred[tuple[int, int]]:
        """Free and total bytes of the ledger directories, each disk once."""

    def last_marks(self) -> Deferred[Sequence[LogMark]]:
        """The marks in the ledger directories, in the order of the journals."""

    def files(self, kind: str) -> Deferred[Sequence[str]]:
        """Names of the files of one of FILE_KINDS, sorted."""

    def unmended_pages(self) -> Sequence[UnmendedPage]:
        """Damaged index pages that stay so for now; ten thousand at most."""

    def check_storage(self) -> Deferred[str]:
        """Compare cookie and directories; a sentence on what is covered. Raises CookieMismatch."""


class OneBookie:
    """connect: another client with some keys changed, for the sanity check, which closes it."""

    def __init__(
        self, bookie: ServedBookie, connect: Callable[[Mapping[str, str]], Awaitable[LedgerClient]] | None
    ) -> None:
        self._bookie, self._connect = bookie, connect
        self._sanity_waiting: list[Deferred[Answer]] | None = None  # while a check is under way

    def routes(self) -> list[Route]:
        """bookie/*, but for collection and what is about the cluster."""
        top = "/api/v1/bookie"
        routes = [
            Route("GET", f"{top}/state", self._state),
            Route("GET", f"{top}/state/readonly", self._read_only),
            Route("PUT", f"{top}/state/readonly", self._order),
            Route("GET", f"{top}/is_ready", self._is_ready),
            Route("GET", f"{top}/info", self._info),
            Route("GET", f"{top}/last_log_mark", self._marks),
            Route("GET", f"{top}/list_disk_file", self._files),
            Route("GET", f"{top}/unmended_index_pages", self._pages),
            Route("PUT", f"{top}/expand_storage", self._expand),
            Route("GET", f"{top}/entry_location_compact", self._location_state),
            Route("PUT", f"{top}/entry_location_compact", self._location_compact),
        ]
        if self._connect is not None:
            routes.append(Route("GET", f"{top}/sanity", self._sanity))
        return routes

    async def _state(self, _: HttpRequest) -> Answer:
        state = self._bookie.state()
        return json_answer(
            {
                "running": state.running,
                "readOnly": state.read_only,
                "shuttingDown": state.shutting_down,
                "availableForHighPriorityWrites": state.priority_writes,
            }
        )

    async def _read_only(self, _: HttpRequest) -> Answer:
        return json_answer({"readOnly": self._bookie.state().read_only})

    async def _order(self, request: HttpRequest) -> Answer:
        body = request.object('{"readOnly": true}')
        only_known(body, ("readOnly",), request.path)
        if "readOnly" not in body:
            raise bad_request(f'{request.path} needs {{"readOnly": true}} or {{"readOnly": false}}')
        wanted = flag_of("readOnly", body["readOnly"])
        self._bookie.order_read_only(read_only=wanted)
        state = self._bookie.state()
        if state.read_only and not wanted:
            raise conflict(f"the bookie stays read-only: {'; '.join(state.reasons)}")
        return json_answer({"readOnly": state.read_only})

    async def _is_ready(self, _: HttpRequest) -> Answer:
        state = self._bookie.state()
        if state.running and not state.shutting_down:
            return text_answer("OK")
        raise unavailable("the bookie is stopping" if state.shutting_down else "the bookie is not fully started yet")

    async def _info(self, _: HttpRequest) -> Answer:
        free, total = await self._bookie.space()
        return json_answer({"freeSpace": free, "totalSpace": total})

    async def _marks(self, _: HttpRequest) -> Answer:
        marks = await self._bookie.last_marks()
        return json_answer(
            {
                f"LastLogMark: Journal Id - {mark.journal_id}({mark.journal_id:x}.txn)": f"Pos - {mark.offset}"
                for mark in marks
            }
        )

    async def _files(self, request: HttpRequest) -> Answer:
        kind = request.query.get("file_type", "")
        if kind and kind not in FILE_KINDS:
            raise bad_request(f"file_type={kind!r} is none of {', '.join(FILE_KINDS)}")
        found = {}
        for each in (kind,) if kind else FILE_KINDS:
            found[f"{each} files"] = "".join(f"{name}\t" for name in await self._bookie.files(each))
        return json_answer(found)

    async def _pages(self, request: HttpRequest) -> Answer:
        wanted = request.whole_number("ledger_id") if request.query.get("ledger_id") else None
        return json_answer(
            [
                {"ledger": each.ledger_id, "path": each.path, "page": each.page, "why": each.why}
                for each in self._bookie.unmended_pages()
                if wanted in (None, each.ledger_id)
            ]
        )

    async def _expand(self, _: HttpRequest) -> Answer:
        """Differs from Apache in words only: neither reads its conf file again, so there is nothing new to stamp."""
        covered = await self._bookie.check_storage()
        return text_answer(
            f"{covered} To add directories: append empty ones to ledgerDirectories (indexDirectories), set "
            "allowStorageExpansion=true, restart.\n"
        )

    async def _location_state(self, _: HttpRequest) -> Answer:
        """As an Apache bookie with interleaved or sorted storage: there is no such index."""
        return json_answer({})

    async def _location_compact(self, _: HttpRequest) -> Answer:
        raise not_here(
            "this bookie keeps entry locations in index files, not in RocksDB: there is nothing to compact. Entry logs "
            "are compacted by PUT /api/v1/bookie/gc"
        )

    # --- sanity

    async def _sanity(self, _: HttpRequest) -> Answer:
        """One check at a time; who asks meanwhile gets its outcome."""
        if self._bookie.state().read_only:
            return json_answer({"passed": False, "readOnly": True})
        answer: Deferred[Answer] = Deferred()
        if self._sanity_waiting is not None:
            self._sanity_waiting.append(answer)
            return await answer
        self._sanity_waiting = [answer]
        Deferred.fromCoroutine(self._check()).addBoth(self._checked)
        return await answer

    def _checked(self, result: Answer | Failure) -> None:
        waiting, self._sanity_waiting = self._sanity_waiting or [], None
        tell_all(waiting, result)

    async def _check(self) -> Answer:
        assert self._connect is not None
        client = await self._connect(SANITY_SETTINGS)
        try:
            why = await _write_and_read_back(client, self._bookie.bookie_id)
        finally:
            await client.close()
        if why is None:
            return json_answer({"passed": True, "readOnly": False})
        return json_answer({"passed": False, "readOnly": self._bookie.state().read_only, "why": why})


async def _write_and_read_back(client: LedgerClient, bookie_id: BookieId) -> str | None:
    """What went wrong, if anything did. The ledger is deleted again."""
    payloads = [b"entry-%d" % number for number in range(SANITY_ENTRIES)]
    try:
        writer = await client.create(
            ensemble=1, write_quorum=1, ack_quorum=1, password=SANITY_PASSWORD, bookies=[bookie_id]
        )
        try:
            await writer.append_many(payloads)
            await writer.close()
            reader = await client.open(writer.id, password=SANITY_PASSWORD)
            found = [entry.payload for entry in await reader.read(0, SANITY_ENTRIES - 1)]
            await reader.close()
        finally:
            await client.delete(writer.id)
    except BookKeeperError as error:
        return str(error)
    return None if found == payloads else f"{SANITY_ENTRIES} entries came back otherwise than they were written"
