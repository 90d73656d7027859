"""A byte that changes on a bookie's disk, and what the bookie then stores as others see it."""

from __future__ import annotations

from bookkeeper.embedded.cluster import LocalBookie
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.messages import ReadBodies
from tests.support.cluster import RawClient


def stored(bookie: LocalBookie, ledger_id: int, entry_id: int) -> bytes | None:
    """The bytes of an entry as the bookie gives them; None where it does not."""
    with RawClient(bookie.port) as raw:
        raw.send(request_encoder(2).encode_reads(ledger_id, [entry_id])[1])
        (answer,) = raw.receive()
    return answer.bodies[0] if isinstance(answer, ReadBodies) else None


def change_a_byte(bookie: LocalBookie, after: bytes) -> None:
    """Stop the bookie, change the byte that follows the first `after` in its only entry log, and start it again."""
    assert bookie.stop() == 0
    (path,) = bookie.directory.rglob("ledgers/current/*.log")
    at = path.read_bytes().index(after) + len(after)
    with path.open("r+b") as file:
        file.seek(at)
        changed = bytes([file.read(1)[0] ^ 1])
        file.seek(at)
        file.write(changed)
    bookie.start()
