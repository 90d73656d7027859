"""Asking the HTTP servers of many processes at the same time, with one bound. Thread: any; it blocks."""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bookkeeper.metadata.recovery_process_format import RecoveryProcess

T = TypeVar("T")

Address = tuple[str, int]

TIMEOUT_S = 2.0
"""Of one request."""

ALL_TIMEOUT_S = 4.0
"""Of all of them."""

ANSWER_MAX = 1024 * 1024
"""Bytes of one answer."""

ERRORS = (OSError, http.client.HTTPException, ValueError)
"""What `get_json` raises."""


def all_at_once(questions: Sequence[Callable[[], T]]) -> list[T | None]:
    """Run all questions, none of which raises; None for each that has no answer after ALL_TIMEOUT_S."""
    answers: dict[int, T] = {}

    def ask(number: int, question: Callable[[], T]) -> None:
        answers[number] = question()

    threads = [
        threading.Thread(target=ask, args=(number, question), name=f"question {number}", daemon=True)
        for number, question in enumerate(questions)
    ]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + ALL_TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    return [answers.get(number) for number in range(len(questions))]


def get_json(address: Address, path: str) -> Any:
    """The answer's JSON; None where the process has no such thing. Raises ERRORS."""
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(ANSWER_MAX)
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        if answer.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"HTTP status {answer.status} for {path}")
        return json.loads(body)
    finally:
        connection.close()


def why_out_of_reach(process: RecoveryProcess) -> str:
    """Why a process cannot be asked from here, as far as that is known beforehand; "" where it may be."""
    if process.http is None:
        return "it serves no HTTP: httpServerEnabled=true there would show it"
    try:
        loopback = ipaddress.ip_address(process.http[0]).is_loopback
    except ValueError:
        loopback = process.http[0] == "localhost"
    if loopback and process.host != socket.gethostname():
        return f"it serves HTTP on its own host {process.host} only (httpServerHost): ask there"
    return ""
