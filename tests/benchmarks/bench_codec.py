"""Microseconds per entry of the codec and the digests, over batches like those of a busy connection.

Run: python tests/benchmarks/bench_codec.py [entries per chunk] [payload bytes]. Best of several rounds; compare ratios
within one run only.
"""

from __future__ import annotations

import platform
import random
import sys
import time
from collections.abc import Callable
from typing import Literal

from bookkeeper.model import DigestType, Status
from bookkeeper.wire.codec import ServerCodec, request_encoder, response_decoder
from bookkeeper.wire.digest import digest_of, master_key
from bookkeeper.wire.messages import AddBatch, ReadBatch

ROUNDS = 30
LEDGER_ID = 12345
FIRST_ENTRY_ID = 100_000


def report(name: str, count: int, work: Callable[[], object]) -> None:
    """Print the best time of `work`, which handles `count` entries."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    print(f"{name:<44}{best / count * 1e6:8.3f} us")


def bench_version(version: Literal[2, 3], count: int, payload_size: int) -> None:
    """Everything one add and one read cost on both sides."""
    key = master_key(b"")
    digest = digest_of(DigestType.CRC32C, b"")
    entry_ids = list(range(FIRST_ENTRY_ID, FIRST_ENTRY_ID + count))
    bodies, _ = digest.package(LEDGER_ID, FIRST_ENTRY_ID, FIRST_ENTRY_ID - 1, 0, [bytes(payload_size)] * count)
    encoder = request_encoder(version)

    def decode(stream: bytes) -> tuple[ServerCodec, AddBatch | ReadBatch]:
        codec = ServerCodec()
        (batch,) = codec.receive(stream)
        assert isinstance(batch, AddBatch | ReadBatch)
        return codec, batch

    adds = b"".join(encoder.encode_adds(LEDGER_ID, key, entry_ids, bodies)[1])
    reads = encoder.encode_reads(LEDGER_ID, entry_ids)[1]
    report(f"v{version} add: client encode", count, lambda: encoder.encode_adds(LEDGER_ID, key, entry_ids, bodies))
    report(f"v{version} add: server decode", count, lambda: decode(adds))
    codec, batch = decode(adds)
    assert isinstance(batch, AddBatch)
    report(f"v{version} add: server answer", count, lambda: codec.add_replies([batch], Status.OK))
    acks = codec.add_replies([batch], Status.OK)
    report(f"v{version} add: client decode of the answer", count, lambda: response_decoder(version).receive(acks))
    report(f"v{version} read: client encode", count, lambda: encoder.encode_reads(LEDGER_ID, entry_ids))
    report(f"v{version} read: server decode", count, lambda: decode(reads))
    codec, wanted = decode(reads)
    assert isinstance(wanted, ReadBatch)
    report(f"v{version} read: server answer", count, lambda: b"".join(codec.read_replies(wanted, bodies, 7)))
    found = b"".join(codec.read_replies(wanted, bodies, 7))
    report(f"v{version} read: client decode of the answer", count, lambda: response_decoder(version).receive(found))
    bench_many_ledgers(version, count, payload_size)


def bench_many_ledgers(version: Literal[2, 3], count: int, payload_size: int) -> None:
    """Adds of a different ledger each: every batch has one entry."""
    encoder, key, digest = request_encoder(version), master_key(b""), digest_of(DigestType.CRC32C, b"")
    frames = []
    for ledger_id in random.Random(1).sample(range(20_000), count):
        bodies, _ = digest.package(ledger_id, 7, 6, 0, [bytes(payload_size)])
        frames += encoder.encode_adds(ledger_id, key, [7], bodies)[1]
    stream = b"".join(frames)
    report(f"v{version} add: server decode, a ledger per entry", count, lambda: ServerCodec().receive(stream))


def bench_digests(count: int, payload_size: int) -> None:
    """Packing and checking entry bodies."""
    payloads = [bytes(payload_size)] * count
    entry_ids = range(FIRST_ENTRY_ID, FIRST_ENTRY_ID + count)
    for digest_type in DigestType:
        digest = digest_of(digest_type, b"")
        bodies, _ = digest.package(LEDGER_ID, FIRST_ENTRY_ID, 1, 0, payloads)
        work = lambda digest=digest: digest.package(LEDGER_ID, FIRST_ENTRY_ID, 1, 0, payloads)  # noqa: E731
        report(f"{digest_type.name} package", count, work)
        check = lambda digest=digest, bodies=bodies: digest.verify(LEDGER_ID, entry_ids, bodies)  # noqa: E731
        report(f"{digest_type.name} verify", count, check)


def main() -> None:
    """Print all figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    payload_size = int(sys.argv[2]) if len(sys.argv) > 2 else 128
    build = f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}"
    print(f"{build}, {count} entries of {payload_size} B per chunk")
    bench_version(2, count, payload_size)
    bench_version(3, count, payload_size)
    bench_digests(count, payload_size)


if __name__ == "__main__":
    main()
