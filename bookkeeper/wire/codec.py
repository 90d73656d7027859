"""One connection's codec, whatever its protocol version.

The server finds out which version a client speaks (bookkeeper/wire/FORMATS.md 1.2): a connection begins as v3; the
first frame that is no v3 request turns it into v2 for good. A v2 packet begins with its version, 0 to 2, which no
protobuf message can begin with, so a client that speaks v2 from its first byte never makes us load protobuf.

The client knows what it speaks. Its encoder belongs to the whole client, its decoder to one connection: on v3 one
encoded add, with one request id, serves all replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT, Status
from bookkeeper.wire import v2, v2_server
from bookkeeper.wire.framing import LENGTH_SIZE, ChunkBuffer, answer_size_max, request_size_max
from bookkeeper.wire.messages import (
    REQUESTS_AT_ONCE,
    AddBatch,
    Auth,
    BatchRead,
    FenceRead,
    Malformed,
    ReadBatch,
    Request,
    Response,
)

if TYPE_CHECKING:
    from bookkeeper.wire import v3

__all__ = [
    "RequestEncoder",
    "ResponseDecoder",
    "ServerCodec",
    "request_encoder",
    "response_decoder",
    "v2_encoder",
    "v3_encoder",
]


class ServerCodec:
    """The bookie's side of one connection: requests out of chunks, answers out of statuses.

    error: why the connection must be closed; set by `receive`, which never raises for what a peer sent.
    version: 2 or 3, None before the first frame. Answers go in the version of their request.
    frame_size_max: nettyMaxFrameSizeBytes; received frames may be FRAME_ALLOWANCE longer.
    pending: received requests are not decoded yet; `receive` with b"" decodes the next ones.
    Bounds: at most frame_size_max + FRAME_ALLOWANCE + 4 bytes held between calls. While requests are pending, also all
    received bytes that are not decoded.
    """

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX_DEFAULT) -> None:
        self._size_max = request_size_max(frame_size_max)
        self._buffer = ChunkBuffer(self._size_max)
        self._rest = b""  # received bytes that are not decoded yet, from the start of a frame
        self.error: RemoteProtocolError | None = None
        self.version: Literal[2, 3] | None = None

    def start_over(self) -> None:
        """The connection begins anew, inside TLS: the client's version is open again."""
        self.version = None
        self._buffer = ChunkBuffer(self._size_max)
        self._rest = b""

    @property
    def buffered(self) -> int:
        """Bytes of an unfinished frame held back."""
        return self._buffer.buffered

    @property
    def pending(self) -> bool:
        """Whether received requests are not decoded yet."""
        return bool(self._rest)

    def drop_pending(self) -> None:
        """Discard the pending requests."""
        self._rest = b""

    def receive(self, data: bytes) -> list[Request]:
        """The requests completed by `data`, in order of arrival; nothing once `error` is set."""
        requests: list[Request] = []
        if self.error is not None:
            return requests
        rest, self._rest = self._rest, b""
        chunk = rest + data if rest else self._buffer.feed(data)
        try:
            position = 0
            if self.version != 2:
                position = self._receive_v3(chunk, requests)
            if self.version == 2:
                position = v2_server.decode_requests(chunk, position, self._size_max, requests)
            if len(requests) < REQUESTS_AT_ONCE:
                self._buffer.keep(chunk, position)
            else:
                self._rest = chunk[position:]
        except RemoteProtocolError as error:
            self.error = error
        return requests

    def _receive_v3(self, chunk: bytes, requests: list[Request]) -> int:
        """Decode v3 requests up to the first frame that is none, and note the version."""
        if len(chunk) <= LENGTH_SIZE:
            return 0
        position, parses = 0, chunk[LENGTH_SIZE] > v2.VERSION
        if parses:
            from bookkeeper.wire import v3_server

            position, parses = v3_server.decode_requests(chunk, 0, self._size_max, requests)
            if position:
                self.version = 3
        if not parses:
            self.version = 2
        return position

    def add_replies(self, batches: Sequence[AddBatch], status: Status) -> bytes:
        """The same answer to all adds of some batches that arrived in this order, joined."""
        if type(batches[0].token) is bytes:  # and so are those of all that came later
            return v2_server.add_replies(batches, status)
        from bookkeeper.wire import v3_server

        frames = []
        for position, batch in enumerate(batches):
            if type(batch.token) is bytes:
                frames.append(v2_server.add_replies(batches[position:], status))
                break
            frames.append(v3_server.add_replies(batch, status))
        return b"".join(frames)

    def read_replies(
        self, batch: ReadBatch, results: Sequence[bytes | Status], max_lac: int | None = None
    ) -> list[bytes]:
        """The answers to all reads of a batch as parts to send one after the other.

        results: a body, or a status other than OK, for each entry id. max_lac: the bookie's known LAC; v2 has no place
        for it.
        """
        if type(batch.token) is bytes:
            return v2_server.read_replies(batch, results)
        from bookkeeper.wire import v3_server

        return v3_server.read_replies(batch, results, max_lac)

    def reply(
        self,
        request: Request,
        status: Status,
        *,
        body: bytes | None = None,
        max_lac: int | None = None,
        lac_update_ms: int | None = None,
        explicit_lac: bytes | None = None,
        last_entry: bytes | None = None,
        total_bytes: int | None = None,
        free_bytes: int | None = None,
        plugin: str = "",
        payload: bytes = b"",
        bodies: Sequence[bytes] = (),
        availability: bytes | None = None,
    ) -> bytes:
        """The answer to any request; what a request does not know of is ignored.

        FenceRead: body. LongPollRead: body, max_lac, lac_update_ms. ReadLac: explicit_lac, last_entry. BookieInfo:
        total_bytes, free_bytes. Auth: plugin, payload. BatchRead: bodies. ListEntries: availability.
        AddBatch, ReadBatch: one status for all, for reads other than OK. Malformed: always its own status.
        A v2 Auth that is refused has no answer (b""): close the connection.
        """
        if isinstance(request, AddBatch):
            return self.add_replies((request,), status)
        if isinstance(request, ReadBatch):
            return b"".join(self.read_replies(request, [status] * len(request.entry_ids)))
        if type(request.token) is bytes:
            match request:
                case FenceRead():
                    return v2_server.read_reply(request, status, body)
                case BatchRead():
                    return v2_server.batch_read_reply(request, status, bodies)
                case Malformed():
                    return v2_server.refusal(request)
                case Auth():
                    return v2_server.auth_reply(status, plugin, payload)
        from bookkeeper.wire import v3_server

        answer = v3_server.Answer(
            body=body,
            max_lac=max_lac,
            lac_update_ms=lac_update_ms,
            explicit_lac=explicit_lac,
            last_entry=last_entry,
            total_bytes=total_bytes,
            free_bytes=free_bytes,
            plugin=plugin,
            payload=payload,
            availability=availability,
        )
        return v3_server.reply(request, status, answer)

    def unauthorized(self, request: Request) -> bytes:
        """Return the answer before authentication: in v3 only header and status (bookkeeper/wire/FORMATS.md 2.7)."""
        if isinstance(request.token, bytes):
            return self.reply(request, Status.UNAUTHORIZED)
        from bookkeeper.wire import v3_server

        return v3_server.bare_replies(request, Status.UNAUTHORIZED)


class RequestEncoder(Protocol):
    """Requests of one client in one version.

    body_size_max: largest body of a new entry, the same in both versions (`entry_size`). copy_size_max: largest body in
    a recovery add, which copies an existing entry. Longer ones raise LocalProtocolError.
    Every method returns the first request id and the bytes; further requests of the call have the ids that follow. On
    v2 only batch reads have request ids, everything else has 0.
    """

    version: int
    body_size_max: int
    copy_size_max: int

    def encode_adds(
        self,
        ledger_id: int,
        master_key: bytes,
        entry_ids: Sequence[int],
        bodies: Sequence[bytes],
        *,
        recovery: bool = False,
        high_priority: bool = False,
        deferred_sync: bool = False,
    ) -> tuple[int, list[bytes]]:
        """One frame per entry; the same frame goes to every bookie of its write set.

        deferred_sync: the bookie may acknowledge before the sync; v3 only, LocalProtocolError on v2.
        """

    def encode_add(self, ledger_id: int, master_key: bytes, entry_id: int, body: bytes) -> bytes:
        """The frame of one plain add; cheaper than a batch of one."""

    def encode_reads(
        self, ledger_id: int, entry_ids: Sequence[int], *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Plain reads, joined; entry -1 reads the last entry the bookie holds."""

    def encode_fence_reads(
        self, ledger_id: int, entry_ids: Sequence[int], master_key: bytes, *, high_priority: bool = False
    ) -> tuple[int, bytes]:
        """Reads that fence the ledger first, joined."""

    def encode_auth(self, plugin: str, payload: bytes) -> tuple[int, bytes]:
        """One step of the authentication plugin's handshake."""


def request_encoder(version: Literal[2, 3], frame_size_max: int = FRAME_SIZE_MAX_DEFAULT) -> RequestEncoder:
    """An encoder for one client, shared by its connections."""
    return v2.RequestEncoder(frame_size_max) if version == 2 else v3_encoder(frame_size_max)


def v2_encoder(frame_size_max: int = FRAME_SIZE_MAX_DEFAULT) -> v2.RequestEncoder:
    """An encoder that also knows the request v3 does not have: batch reads."""
    return v2.RequestEncoder(frame_size_max)


def v3_encoder(frame_size_max: int = FRAME_SIZE_MAX_DEFAULT) -> v3.RequestEncoder:
    """An encoder that also knows the requests v2 does not have."""
    from bookkeeper.wire import v3

    return v3.RequestEncoder(frame_size_max)


class ResponseDecoder:
    """The client's side of one connection.

    error: why the connection must be closed; set by `receive`, which never raises for what a peer sent.
    frame_size_max: nettyMaxFrameSizeBytes; received frames may be ANSWER_ALLOWANCE longer.
    Bounds: at most frame_size_max + ANSWER_ALLOWANCE + 4 bytes held between calls.
    """

    def __init__(self, version: Literal[2, 3], frame_size_max: int) -> None:
        self.version = version
        self.error: RemoteProtocolError | None = None
        self._size_max = answer_size_max(frame_size_max)
        self._buffer = ChunkBuffer(self._size_max)
        if version == 2:
            self._decode = v2.decode_responses
        else:
            from bookkeeper.wire import v3

            self._decode = v3.decode_responses

    @property
    def buffered(self) -> int:
        """Bytes of an unfinished frame held back."""
        return self._buffer.buffered

    def receive(self, data: bytes) -> list[Response]:
        """The answers completed by `data`, in order of arrival; nothing once `error` is set."""
        responses: list[Response] = []
        if self.error is not None:
            return responses
        chunk = self._buffer.feed(data)
        try:
            position = self._decode(chunk, 0, self._size_max, responses)
            self._buffer.keep(chunk, position)
        except RemoteProtocolError as error:
            self.error = error
        return responses


def response_decoder(version: Literal[2, 3], frame_size_max: int = FRAME_SIZE_MAX_DEFAULT) -> ResponseDecoder:
    """A decoder for one connection."""
    return ResponseDecoder(version, frame_size_max)
