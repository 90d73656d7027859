"""What this machine can do right now, measured inside the run: the yardstick for every other figure.

    echo        two processes on loopback, blocking sockets, 128-byte add frames unpacked and packed one by one with
                `struct` on both sides, 1000 outstanding: frames per second. It shares no code with the codec.
    fdatasync   4 KiB written into a zero-filled preallocated file, then fdatasync: p50 and p99 in seconds.
    append      400 records of 164 bytes joined, one pwrite, one fdatasync: records per second.

A figure of the cluster divided by one of these is comparable between moments and, roughly, between machines; an
absolute figure is neither.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import signal
import socket
import struct
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ECHO_WINDOW = 1000
ECHO_PAYLOAD_SIZE = 128
ECHO_SECONDS = 1.5
SYNC_SECONDS = 0.7
APPEND_SECONDS = 0.7

_REQUEST = struct.Struct(">iI20sqqqqI")
_HEAD = struct.Struct(">iI")
_IDS = struct.Struct(">qqqq")
_REPLY = struct.Struct(">iIiqq")
_ADD = 0x02010000
_BODY_OFFSET = 28


@dataclass(frozen=True, slots=True)
class Calibration:
    """One machine, one moment."""

    echo_frames_per_s: float
    fdatasync_p50_s: float
    fdatasync_p99_s: float
    append_records_per_s: float
    interpreter: str

    @property
    def text(self) -> str:
        """In one line."""
        return (
            f"this machine, this run: echo {self.echo_frames_per_s:,.0f} frames/s, fdatasync p50 "
            f"{self.fdatasync_p50_s * 1e3:.3f} ms p99 {self.fdatasync_p99_s * 1e3:.3f} ms, append loop "
            f"{self.append_records_per_s:,.0f} records/s; {self.interpreter}"
        )

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def calibrate(directory: Path) -> Calibration:
    """Measure for about four seconds. `directory`: on the disk whose fdatasync matters (the bookies' journals)."""
    echo = echo_frames_per_s()
    p50, p99 = fdatasync_seconds(directory)
    return Calibration(
        echo_frames_per_s=echo,
        fdatasync_p50_s=p50,
        fdatasync_p99_s=p99,
        append_records_per_s=append_records_per_s(directory),
        interpreter=interpreter_build(),
    )


def interpreter_build() -> str:
    """Name, version and whether the interpreter was built with profile-guided optimisation."""
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    if "--enable-optimizations" in arguments or "--with-lto" in arguments:
        build = "optimised (PGO)"
    elif "-Wdate-time" in arguments and "/usr" in str(sysconfig.get_config_var("prefix")):
        build = "Debian's build (PGO)"  # made with `make profile-opt`, which leaves no trace in the configuration
    else:
        build = "plain build: 1.3-2x slower than an optimised (PGO) one"
    return f"{platform.python_implementation()} {platform.python_version()}, {build}"


def echo_frames_per_s() -> float:
    """Frames per second through two processes, parsed and packed one by one in Python on both sides."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=_echo_connect_and_serve, args=(port,), daemon=True)
    server.start()
    try:
        listener.settimeout(30)
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _echo_client(connection)
    finally:
        listener.close()
        server.join(10)
        if server.is_alive():
            server.kill()


def _echo_connect_and_serve(port: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; this process ends with its connection
    # A measurement that is stopped closes the connection in the middle.
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b""
        while data := connection.recv(65536):
            rest += data
            position, size, replies = 0, len(rest), []
            while size - position >= _HEAD.size:
                length, header = _HEAD.unpack_from(rest, position)
                end = position + 4 + length
                if end > size:
                    break
                ledger, entry, _lac, _total = _IDS.unpack_from(rest, position + _BODY_OFFSET)
                body = rest[position + _BODY_OFFSET : end]
                replies.append(_REPLY.pack(24, header, 0 if body else 100, ledger, entry))
                position = end
            rest = rest[position:]
            connection.sendall(b"".join(replies))


def _echo_client(connection: socket.socket) -> float:
    key, payload = b"k" * 20, b"p" * ECHO_PAYLOAD_SIZE
    length = _REQUEST.size - 4 + ECHO_PAYLOAD_SIZE
    entry = answered = 0
    rest = b""
    started = time.perf_counter()
    deadline = started + ECHO_SECONDS
    free = ECHO_WINDOW
    while True:
        now = time.perf_counter()
        if now < deadline:
            ids = range(entry, entry + free)
            frames = [_REQUEST.pack(length, _ADD, key, 7, each, each - 1, each, 0) + payload for each in ids]
            entry += free
            connection.sendall(b"".join(frames))
        elif answered == entry:
            return answered / (now - started)
        rest += connection.recv(65536)
        position, size, before = 0, len(rest), answered
        while size - position >= _REPLY.size:
            _length, _header, code, _ledger, _entry = _REPLY.unpack_from(rest, position)
            answered += code == 0
            position += _REPLY.size
        rest = rest[position:]
        free = answered - before


def _zeroed_file(directory: Path, size: int) -> int:
    descriptor, name = tempfile.mkstemp(prefix="calibrate-", dir=directory)
    os.unlink(name)
    block = bytes(1 << 20)
    for offset in range(0, size, len(block)):
        os.pwrite(descriptor, block, offset)
    os.fsync(descriptor)
    return descriptor


def fdatasync_seconds(directory: Path) -> tuple[float, float]:
    """p50 and p99 of write 4 KiB + fdatasync in a preallocated file, in seconds (the sync alone is timed)."""
    size = 16 << 20
    descriptor = _zeroed_file(directory, size)
    block, offset, samples = os.urandom(4096), 0, []
    try:
        deadline = time.perf_counter() + SYNC_SECONDS
        while time.perf_counter() < deadline:
            os.pwrite(descriptor, block, offset % size)
            offset += len(block)
            started = time.perf_counter()
            os.fdatasync(descriptor)
            samples.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
    samples.sort()
    return samples[len(samples) // 2], samples[len(samples) * 99 // 100]


def append_records_per_s(directory: Path) -> float:
    """Records per second of the bare append loop: 400 records of 164 bytes, one pwrite, one fdatasync."""
    size = 64 << 20
    descriptor = _zeroed_file(directory, size)
    records = [os.urandom(164) for _ in range(400)]
    offset = done = 0
    started = time.perf_counter()
    try:
        while time.perf_counter() - started < APPEND_SECONDS:
            block = b"".join(records)
            if offset + len(block) > size:
                offset = 0
            os.pwrite(descriptor, block, offset)
            os.fdatasync(descriptor)
            offset += len(block)
            done += len(records)
        return done / (time.perf_counter() - started)
    finally:
        os.close(descriptor)
