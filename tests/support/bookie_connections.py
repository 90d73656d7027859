"""Connections of a bookie in memory: a transport whose peer may read slowly, a bench, frames and answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from bookkeeper.bookie.bookie import BookieBounds
from bookkeeper.bookie.connections.endpoint import Connection
from bookkeeper.bookie.connections.handshake_rules import BookieSecurity
from bookkeeper.bookie.connections.service import BookieService
from bookkeeper.filesystem import DiskUsage
from bookkeeper.serving.admission import ConnectionBounds
from bookkeeper.wire.codec import request_encoder, response_decoder
from bookkeeper.wire.messages import (
    AddAcks,
)
from tests.support.bookie_fakes import KEY, BookieBench, body_of

FRAME_SIZE_MAX = 64 * 1024
BUFFER_SIZE = 64 * 1024


class MemoryTransport:
    """What a connection writes, and the pressure of a peer that may read slowly.

    room: bytes the peer takes before the transport counts as full; None: any number.
    """

    def __init__(self, connection: Connection, *, room: int | None = None) -> None:
        self.connection = connection
        self.room = room
        self.sent = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self._unsent = bytearray()
        self._producer: Any = None
        self._producer_paused = False
        connection.makeConnection(self)

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes += 1
        self._unsent += data
        self._move()
        if self._producer is not None and len(self._unsent) > BUFFER_SIZE and not self._producer_paused:
            self._producer_paused = True
            self._producer.pauseProducing()

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def drain(self, room: int) -> None:
        """The peer reads on."""
        assert self.room is not None
        self.room += room
        self._move()
        if not self._unsent and self._producer_paused:
            self._producer_paused = False
            self._producer.resumeProducing()

    def _move(self) -> None:
        size = len(self._unsent) if self.room is None else min(self.room, len(self._unsent))
        self.sent += self._unsent[:size]
        del self._unsent[:size]
        if self.room is not None:
            self.room -= size

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def loseConnection(self) -> None:
        self.closed = True

    def abortConnection(self) -> None:
        self.aborted = True

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def getPeer(self) -> str:
        return "memory"


class ServiceBench(BookieBench):
    """A bookie bench with connections. `turn` lets scheduled calls run."""

    def __init__(
        self,
        *,
        bounds: ConnectionBounds | None = None,
        bookie_bounds: BookieBounds | None = None,
        security: BookieSecurity | None = None,
    ) -> None:
        super().__init__(bounds=bookie_bounds)
        self.service = BookieService(
            self.bookie,
            self.clock,
            lambda: DiskUsage(total=1000, free=250),
            bounds or ConnectionBounds(),
            frame_size_max=FRAME_SIZE_MAX,
            metrics=self.metrics,
            security=security,
        )

    def connect(self, *, room: int | None = None) -> MemoryTransport:
        return MemoryTransport(self.service.accept(), room=room)

    def turn(self) -> None:
        self.clock.advance(0)

    def finish(self) -> None:
        """Everything asked is done and answered."""
        self.settle()
        self.turn()


def answers(transport: MemoryTransport, version: int = 2) -> list[Any]:
    decoder = response_decoder(3 if version == 3 else 2)
    found = decoder.receive(bytes(transport.sent))
    assert decoder.error is None
    assert decoder.buffered == 0
    return list(found)


def add_frames(
    entry_ids: Sequence[int], *, ledger_id: int = 7, version: int = 2, key: bytes = KEY, payload: bytes = b"payload"
) -> bytes:
    encoder = request_encoder(3 if version == 3 else 2)
    bodies = [body_of(ledger_id, entry_id, payload) for entry_id in entry_ids]
    return b"".join(encoder.encode_adds(ledger_id, key, list(entry_ids), bodies)[1])


def read_frames(entry_ids: Sequence[int], *, ledger_id: int = 7, version: int = 2) -> bytes:
    return request_encoder(3 if version == 3 else 2).encode_reads(ledger_id, list(entry_ids))[1]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def assert_others_are_served(bench: ServiceBench) -> None:
    """Another client's add on the same server succeeds, and nothing is left of the first one's bytes."""
    other = bench.connect()
    other.connection.dataReceived(add_frames([0], ledger_id=99))
    bench.finish()
    assert answers(other) == [AddAcks(99, [0], None)]
    assert bench.service.admission.partial_bytes == 0
    assert bench.exits == []


def v2_packet(opcode: int, rest: bytes, *, version: int = 2, flags: int = 0) -> bytes:
    """A framed v2 request."""
    return framed(struct.pack(">BBH", version, opcode, flags) + rest)
