"""A measurement is a process: it tells two marks and then its figures, a line of JSON each, and ends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bookkeeper.embedded.process import dying_with_parent, ending
from tests.support.process_output import tail


class Failed(Exception):
    """A program did not start, or ended with an error; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a process told, and its id while it lived."""

    pid: int
    told: dict[str, Any]


def ask(command: Sequence[str], log_path: Path, *, timeout_s: float, on_mark: Callable[[str], None]) -> Answer:
    """Run it to its end. on_mark: is called at once with each mark. Raises Failed."""
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            dying_with_parent(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # so that Ctrl-C reaches the one that measures
        )
    told: dict[str, Any] | None = None
    deadline = time.monotonic() + timeout_s
    assert process.stdout is not None
    try:
        rest = b""
        while readable := select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in map(json.loads, lines):
                if "mark" in line:
                    on_mark(line["mark"])
                else:
                    told = line
        if not readable:
            raise Failed(f"no end within {timeout_s:g} s\n{tail(log_path)}")
        code = process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise Failed(f"did not end within {timeout_s:g} s\n{tail(log_path)}") from error
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    if code != 0 or told is None:
        raise Failed(f"{ending(code)} and told {'nothing' if told is None else 'figures'}\n{tail(log_path)}")
    return Answer(process.pid, told)
