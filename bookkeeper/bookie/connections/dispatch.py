"""From a decoded request to one call of the bookie, and from its verdict back to bytes.

The only place that knows both the bookie and the codec. START_TLS is answered BAD_REQUEST where TLS is not configured,
as Apache answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from twisted.logger import Logger

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.requests.batch_read import ANSWER_BYTES
from bookkeeper.bookie.requests.entry_reads import Results
from bookkeeper.filesystem import DiskUsage
from bookkeeper.model import Status
from bookkeeper.wire.availability import GROUP_SIZE, encode_availability
from bookkeeper.wire.availability import HEADER_SIZE as AVAILABILITY_HEADER_SIZE
from bookkeeper.wire.codec import ServerCodec
from bookkeeper.wire.framing import LENGTH_SIZE
from bookkeeper.wire.messages import (
    AddBatch,
    Auth,
    BatchRead,
    BookieInfo,
    FenceRead,
    ForceLedger,
    ListEntries,
    LongPollRead,
    Malformed,
    ReadBatch,
    ReadLac,
    Request,
    StartTls,
    WriteLac,
)

log = Logger()

NO_AUTH_PLUGIN = "AuthDisabledPlugin"
"""The plugin name with which a bookie without authentication answers an AUTH request; the client then goes on."""


LONG_POLLS_MAX = 1000
"""Long polls of one connection that wait, one for each ledger read; more are answered TOO_MANY_REQUESTS."""

_LIST_ANSWER_BYTES = 64
"""Room for what surrounds the availability in a list of entries: header, ledger id, lengths."""


class Dispatcher:
    """The requests of one connection. Thread: reactor.

    send: takes the requests that are answered and the pieces of the answer, in the order in which they go out. Every
    request comes once; adds may come several together.
    usage: total and free bytes of the ledger disks; may raise OSError.
    frame_size_max: of an answer, without its length field.
    park: called when a long poll begins to wait. unpark: called when its wait is over, before its answer; False when
    there is no room for an entry.
    """

    def __init__(
        self,
        bookie: Bookie,
        codec: ServerCodec,
        usage: Callable[[], DiskUsage],
        send: Callable[[Sequence[Request], Sequence[bytes]], None],
        *,
        frame_size_max: int,
        park: Callable[[Request], None],
        unpark: Callable[[Request], bool],
    ) -> None:
        self._bookie = bookie
        self._codec = codec
        self._usage = usage
        self._send = send
        self._frame_size_max = frame_size_max
        self._park = park
        self._unpark = unpark
        self._waiting_polls: dict[_PollSeat, Callable[[], None]] = {}
        self._closed = False

    def close(self) -> None:
        """The connection is gone: what waits for a LAC is dropped; the rest is done and answered to nobody."""
        self._closed = True
        polls, self._waiting_polls = self._waiting_polls, {}
        for cancel in polls.values():
            cancel()

    def dispatch(self, request: Request) -> None:
        """Have one request that is no add decided.

        Its answer goes to `send`, now or later, once (never, if the bookie fails).
        """
        self._CALLS[type(request)](self, request)

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

    def _batch_read(self, request: BatchRead) -> None:
        size_max = self._frame_size_max

        def answer(status: Status, bodies: Sequence[bytes]) -> None:
            if len(bodies) == 1 and ANSWER_BYTES + LENGTH_SIZE + len(bodies[0]) > size_max:
                # An earlier release or Apache's v2 client wrote this entry: an add has less around it. Apache's client
                # has no allowance, so a longer frame would end its connection.
                if self._bookie.log_limit.admits(f"no batch read of ledger {request.ledger_id}"):
                    log.warn(
                        "Entry {entry_id} of ledger {ledger_id} fits no answer to a batch read; read it alone",
                        ledger_id=request.ledger_id,
                        entry_id=request.first_entry_id,
                    )
                status, bodies = Status.BAD_REQUEST, ()
            self._reply(request, status, bodies=bodies)

        self._bookie.batch_read(request, answer, answer_bytes_max=size_max)

    def _long_poll(self, request: LongPollRead) -> None:
        def answer(status: Status, body: bytes | None, lac: int | None, lac_update_ms: int | None) -> None:
            self._reply(request, status, body=body, max_lac=lac, lac_update_ms=lac_update_ms)

        self._bookie.long_poll(request, answer, _PollSeat(self, request))

    def may_wait(self) -> bool:
        """One more long poll may wait."""
        return not self._closed and len(self._waiting_polls) < LONG_POLLS_MAX

    def waits(self, seat: _PollSeat, cancel: Callable[[], None]) -> None:
        """A long poll waits; `cancel` drops it."""
        self._waiting_polls[seat] = cancel
        self._park(seat.request)

    def resumes(self, seat: _PollSeat) -> bool:
        """A long poll is about to be answered; False when there is no room for an entry."""
        self._waiting_polls.pop(seat, None)
        return self._unpark(seat.request)

    def _force(self, request: ForceLedger) -> None:
        self._bookie.force(request, partial(self._reply, request))

    def _list_entries(self, request: ListEntries) -> None:
        def answer(status: Status, runs: Sequence[range]) -> None:
            availability = encode_availability(runs) if status is Status.OK else None
            self._reply(request, status, availability=availability)

        room = self._frame_size_max - _LIST_ANSWER_BYTES - AVAILABILITY_HEADER_SIZE
        self._bookie.list_entries(request, answer, runs_max=max(0, room // GROUP_SIZE))

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

    def _start_tls(self, request: StartTls) -> None:
        self._reply(request, Status.BAD_REQUEST)

    # One table for all: with bound methods in it, each closed connection would wait for the cycle collector.
    _CALLS: ClassVar[dict[type[Any], Callable[[Dispatcher, Any], None]]] = {
        ReadBatch: _read,
        FenceRead: _fence_read,
        BatchRead: _batch_read,
        LongPollRead: _long_poll,
        ForceLedger: _force,
        ListEntries: _list_entries,
        StartTls: _start_tls,
        ReadLac: _read_lac,
        WriteLac: _write_lac,
        BookieInfo: _info,
        Auth: _auth,
        Malformed: _refuse_malformed,
    }


class _PollSeat:
    """A long poll on this connection; see `long_poll.PollSeat`."""

    __slots__ = ("_dispatcher", "request")

    def __init__(self, dispatcher: Dispatcher, request: LongPollRead) -> None:
        self._dispatcher = dispatcher
        self.request = request

    def may_wait(self) -> bool:
        return self._dispatcher.may_wait()

    def on_wait(self, cancel: Callable[[], None]) -> None:
        self._dispatcher.waits(self, cancel)

    def on_resume(self) -> bool:
        return self._dispatcher.resumes(self)
