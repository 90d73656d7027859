"""From a decoded request to one call of the bookie, and from its verdict back to bytes.

The only place that knows both the bookie and the codec. What this release does not serve yet is answered BAD_REQUEST,
as Apache answers an operation it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from twisted.logger import Logger

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.reads import Results
from bookkeeper.filesystem import DiskUsage
from bookkeeper.model import Status
from bookkeeper.wire.codec import ServerCodec
from bookkeeper.wire.messages import (
    AddBatch,
    Auth,
    BookieInfo,
    FenceRead,
    Malformed,
    ReadBatch,
    ReadLac,
    Request,
    WriteLac,
)

log = Logger()

NO_AUTH_PLUGIN = "AuthDisabledPlugin"
"""The plugin name with which a bookie without authentication answers an AUTH request; the client then goes on."""


class Dispatcher:
    """The requests of one connection. Thread: reactor.

    send: takes the requests that are answered and the pieces of the answer, in the order in which they go out. Every
    request comes once; adds may come several together.
    usage: total and free bytes of the ledger disks; may raise OSError.
    """

    def __init__(
        self,
        bookie: Bookie,
        codec: ServerCodec,
        usage: Callable[[], DiskUsage],
        send: Callable[[Sequence[Request], Sequence[bytes]], None],
    ) -> None:
        self._bookie = bookie
        self._codec = codec
        self._usage = usage
        self._send = send

    def dispatch(self, request: Request) -> None:
        """Have one request that is no add decided.

        Its answer goes to `send`, now or later, once (never, if the bookie fails).
        """
        self._CALLS.get(type(request), Dispatcher._refuse_unserved)(self, request)

    def dispatch_adds(self, batches: Sequence[AddBatch]) -> None:
        """As `dispatch`, of many adds that arrived one after the other."""
        self._bookie.add_many(batches, self._answer_adds)

    def _answer_adds(self, batches: Sequence[AddBatch], status: Status) -> None:
        self._send(batches, [self._codec.add_replies(batches, status)])

    def _reply(self, request: Request, status: Status, **fields: Any) -> None:
        self._send((request,), [self._codec.reply(request, status, **fields)])

    def _read(self, batch: ReadBatch) -> None:
        def answer(results: Results, lac: int | None) -> None:
            self._send((batch,), self._codec.read_replies(batch, results, lac))

        self._bookie.read(batch, answer, with_lac=self._codec.version == 3)

    def _fence_read(self, request: FenceRead) -> None:
        def answer(result: bytes | Status) -> None:
            if isinstance(result, Status):
                self._reply(request, result)
            else:
                self._reply(request, Status.OK, body=result)

        self._bookie.fence_read(request, answer)

    def _read_lac(self, request: ReadLac) -> None:
        def answer(status: Status, explicit: bytes | None, last: bytes | None) -> None:
            self._reply(request, status, explicit_lac=explicit, last_entry=last)

        self._bookie.read_lac(request, answer)

    def _write_lac(self, request: WriteLac) -> None:
        self._bookie.write_lac(request, partial(self._reply, request))

    def _info(self, request: BookieInfo) -> None:
        try:
            usage = self._usage()
        except OSError as error:
            log.error("Disk usage is not known: {error}", error=error)
            self._reply(request, Status.IO_ERROR)
            return
        self._reply(
            request,
            Status.OK,
            total_bytes=usage.total if request.total else None,
            free_bytes=usage.free if request.free else None,
        )

    def _auth(self, request: Auth) -> None:
        self._reply(request, Status.OK, plugin=NO_AUTH_PLUGIN, payload=b"")

    def _refuse_malformed(self, request: Malformed) -> None:
        self._reply(request, request.status)

    def _refuse_unserved(self, request: Request) -> None:
        self._reply(request, Status.BAD_REQUEST)

    # One table for all: with bound methods in it, each closed connection would wait for the cycle collector.
    _CALLS: ClassVar[dict[type[Any], Callable[[Dispatcher, Any], None]]] = {
        ReadBatch: _read,
        FenceRead: _fence_read,
        ReadLac: _read_lac,
        WriteLac: _write_lac,
        BookieInfo: _info,
        Auth: _auth,
        Malformed: _refuse_malformed,
    }
