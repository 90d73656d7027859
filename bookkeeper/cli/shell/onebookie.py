"""What one bookie, and no other, holds of a ledger: plain reads over a connection of our own.

The client asks another replica when one does not have an entry; who repairs a cluster wants to know just that.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from bookkeeper.cli.output import CommandFailed
from bookkeeper.errors import RemoteProtocolError
from bookkeeper.model import Status
from bookkeeper.wire.codec import request_encoder, response_decoder
from bookkeeper.wire.messages import ReadBodies, ReadFailed

TIMEOUT_S = 10.0
BATCH = 100
"""Entries asked for at once."""

RECEIVE_SIZE = 1024 * 1024
LAST_ENTRY = -1


class OneBookie:
    """A v2 connection to one bookie. Blocking; a context manager. Any digest: the bodies come as they are stored."""

    def __init__(self, bookie_id: str, address: tuple[str, int]) -> None:
        """Connect. Raises CommandFailed naming the bookie."""
        self._bookie_id = bookie_id
        self._encoder, self._decoder = request_encoder(2), response_decoder(2)
        try:
            self._socket = socket.create_connection(address, TIMEOUT_S)
        except OSError as error:
            raise CommandFailed(f"bookie {bookie_id} at {address[0]}:{address[1]}: {error}") from error

    def last(self, ledger_id: int) -> bytes | Status:
        """The stored body of the entry with the highest id it holds, or why there is none."""
        return self._read(ledger_id, [LAST_ENTRY], 1)[0][1]

    def read(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[int, bytes | Status]]:
        """(entry id, stored body or why not) of first..last, in order. Raises CommandFailed when the bookie is lost."""
        for start in range(first, last + 1, BATCH):
            ids = list(range(start, min(last + 1, start + BATCH)))
            found = dict(self._read(ledger_id, ids, len(ids)))
            yield from ((entry_id, found[entry_id]) for entry_id in ids)

    def _read(self, ledger_id: int, entry_ids: list[int], count: int) -> list[tuple[int, bytes | Status]]:
        found: list[tuple[int, bytes | Status]] = []
        try:
            self._socket.sendall(self._encoder.encode_reads(ledger_id, entry_ids)[1])
            while len(found) < count:
                data = self._socket.recv(RECEIVE_SIZE)
                if not data:
                    raise ConnectionError("it closed the connection")
                for response in self._decoder.receive(data):
                    if isinstance(response, ReadBodies):
                        found += zip(response.entry_ids, response.bodies, strict=True)
                    elif isinstance(response, ReadFailed):
                        found.append((response.entry_id, response.status))
                if self._decoder.error is not None:
                    raise self._decoder.error
        except (OSError, RemoteProtocolError) as error:
            raise CommandFailed(f"bookie {self._bookie_id}: {error}") from error
        return found

    def __enter__(self) -> OneBookie:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
