"""Asking the HTTP servers of many processes at the same time, with one bound. Thread: any; it blocks."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from bookkeeper.admin.questions import ERRORS, Address, get_json
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess

__all__ = ["ALL_TIMEOUT_S", "ERRORS", "Address", "all_at_once", "get_json", "why_out_of_reach"]

T = TypeVar("T")

ALL_TIMEOUT_S = 4.0
"""Of all of them."""


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
