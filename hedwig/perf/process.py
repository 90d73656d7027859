"""Client processes and whoever starts them: both sides of their talk, a JSON object on each line.

    parent   ClientProcess: tell, hear          blocks
    child    serve(work): say, heard            on the reactor; `work` gets the first line

The last line of a child is what `work` returned, or {"error": ...}; it ends then.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, Self

from twisted.internet import threads

from bookkeeper.console.supervision import run_coroutine
from bookkeeper.embedded.process import dying_with_parent, on_lasting_thread
from bookkeeper.errors import BookKeeperError

Line = dict[str, Any]


class WorkerFailed(BookKeeperError):
    """A client process came to nothing; the message says why."""


class ClientProcess:
    """A client process. A context manager. module: its program. role: what it is called in messages."""

    def __init__(self, module: str, role: str, task: Line) -> None:
        self._role = role
        self._process = on_lasting_thread(
            lambda: subprocess.Popen(
                dying_with_parent([sys.executable, "-m", module]),
                process_group=0,  # Ctrl-C is for whoever started it, who ends it
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        )
        self.tell(task)

    def tell(self, line: Line) -> None:
        """One line to it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"the client process ({self._role}) ended; its output says why") from None

    def hear(self, timeout_s: float) -> Line:
        """Its next line; it sends none unasked. Raises WorkerFailed."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not readable:
            raise WorkerFailed(f"the client process ({self._role}) said nothing for {timeout_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"the client process ({self._role}) ended; its output says why")
        told: Line = json.loads(line)
        if "error" in told:
            raise WorkerFailed(f"the client process ({self._role}): {told['error']}")
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def say(line: Line) -> None:
    """One line to the parent."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def heard(reactor: Any) -> Awaitable[Line]:
    """The parent's next line."""
    return threads.deferToThreadPool(reactor, reactor.getThreadPool(), lambda: json.loads(sys.stdin.readline()))


def serve(work: Callable[[Any, Line], Coroutine[Any, Any, Line]]) -> NoReturn:
    """Run a client process: run `work(reactor, task)`, report its result, and end."""
    task = json.loads(sys.stdin.readline())

    async def run(reactor: Any) -> None:
        try:
            result = await work(reactor, task)
        except Exception as error:  # noqa: BLE001 - top level of this process: the parent reports it in one line
            result = {"error": f"{type(error).__name__}: {error}"}
        say(result)

    run_coroutine(run)
