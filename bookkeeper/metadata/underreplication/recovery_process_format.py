"""What a process that audits and repairs says of itself: U/workers/HOST-PID-START, JSON. Pure.

    {"bookie": "10.0.0.7:3181", "host": "recovery7", "http": "10.0.0.7:8001", "pid": 4711, "since": 1700000000000}

Not Apache's, and no Apache program looks at it. Votes and locks name a bookie or a host, and several processes may
stand under one name; they are told apart by the session that owns vote, lock and this.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.model import BookieId
from bookkeeper.texts import parse_json

TEXT_MAX = 4096
"""Bytes of one, at most: more is not ours."""

_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z.-]")
_ADDRESS = re.compile(r"(.+):(\d{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RecoveryProcess:
    """One process. bookie_id: what its vote says. http: where it serves HTTP, None where it does not.

    since_ms: when it began, by its own clock. session_id: owns its vote and its locks; 0 where it is not known yet.
    """

    host: str
    pid: int
    since_ms: int
    bookie_id: BookieId
    http: tuple[str, int] | None
    session_id: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} of {self.host}"


def node_name(process: RecoveryProcess) -> str:
    """The name of its node. Its start is part of it: in containers host and process id may be the same everywhere."""
    return f"{_NOT_IN_NAMES.sub('_', process.host)[:100]}-{process.pid}-{process.since_ms:x}"


def format_process(process: RecoveryProcess) -> bytes:
    """The bytes of its node."""
    http = None if process.http is None else f"{process.http[0]}:{process.http[1]}"
    said = {
        "bookie": process.bookie_id,
        "host": process.host,
        "http": http,
        "pid": process.pid,
        "since": process.since_ms,
    }
    return json.dumps(said, sort_keys=True).encode()


def parse_process(data: bytes, path: str, session_id: int) -> RecoveryProcess:
    """The process. Raises MetadataCorrupt."""
    try:
        if len(data) > TEXT_MAX:
            raise ValueError(f"{len(data)} bytes")
        said = parse_json(data)
        if not isinstance(said, dict):
            raise ValueError("no object")
        host, pid, since, bookie, http = (said.get(name) for name in ("host", "pid", "since", "bookie", "http"))
        # Not isinstance of int: true and false are ints to Python.
        if not (isinstance(host, str) and type(pid) is int and type(since) is int and isinstance(bookie, str)):
            raise ValueError("host, pid, since or bookie is missing, or not of its type")
        return RecoveryProcess(host, pid, since, BookieId(bookie), _address(http), session_id)
    except ValueError as error:
        raise MetadataCorrupt(f"{path}: not what a process says of itself: {error}") from error


def _address(http: object) -> tuple[str, int] | None:
    if http is None:
        return None
    match = _ADDRESS.fullmatch(http) if isinstance(http, str) else None
    if match is None or not 0 < int(match[2]) < 65_536:
        raise ValueError(f"http is {http!r:.100}, not HOST:PORT")
    return match[1], int(match[2])
