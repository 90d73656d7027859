"""Child processes that do not outlive their parent, their output, words for their end, and ports for them.

A launcher that crashes must not leave servers holding ports and files. Linux tells a child by a signal when its parent
is gone, if the child asked for it; a one-line Python program asks, and then becomes the real one by exec (same pid).
This takes some 20 ms and, unlike `preexec_fn`, is safe in a process that has threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, TypeVar

from bookkeeper.errors import ConfigurationError

T = TypeVar("T")

PORT_MIN, PORT_END = 10_000, 32_768
"""Where `free_port` looks: above the well-known services, below Linux's usual range for outgoing connections."""

PORT_ATTEMPTS_MAX = 50
LOG_TAIL_LINES = 15

WAIT_S = 1.0
"""Longest part of a wait for a line."""

# PR_SET_PDEATHSIG is 1. The parent may have died before prctl ran: then the child has another parent by now.
_LAUNCHER = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl(1, {int(signal.SIGTERM)})\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit('the process that started this one is gone')\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` and gets SIGTERM when the thread that starts it ends.

    The thread, not the process: start such children by `on_lasting_thread`. Linux only.
    """
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]


def write_private(path: Path, text: str) -> None:
    """Write a file that only the user of this process can read, since it may contain passwords."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)


_Call = tuple[Callable[[], object], "Future[object]"]

_lasting: dict[int, queue.SimpleQueue[_Call]] = {}
"""Calls for the lasting thread, by process id: a forked child has no such thread yet."""


def on_lasting_thread(start: Callable[[], T]) -> T:
    """Run `start` on a thread that lasts as long as this process, and return what it returns. Thread: any.

    For children that die with their parent: on Linux they also die when the thread that started them ends.
    A child that is started although the waiting was interrupted is killed.
    """
    calls = _lasting.get(os.getpid())
    if calls is None:  # a race makes two such threads, which does no harm
        calls = _lasting[os.getpid()] = queue.SimpleQueue()
        threading.Thread(target=_call, args=(calls,), name="lasting", daemon=True).start()
    started: Future[Any] = Future()
    calls.put((start, started))
    try:
        result: T = started.result()
    except BaseException:  # an interrupt of the waiting, if it is not the error of `start`
        started.add_done_callback(_end_child)
        raise
    return result


def _end_child(started: Future[Any]) -> None:
    if started.exception() is None and isinstance(child := started.result(), subprocess.Popen):
        child.kill()
        child.wait()


def _call(calls: queue.SimpleQueue[_Call]) -> None:
    while True:
        call, started = calls.get()
        try:
            started.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
            started.set_exception(error)
        del call, started


def next_line(output: IO[str]) -> str:
    """Return the next line of a child that writes one line at a time; "" at the end. An interrupt ends the wait.

    A signal that arrives just before a blocking read does not interrupt the read, so this waits in parts of WAIT_S.
    """
    while not select.select([output], [], [], WAIT_S)[0]:
        pass
    return output.readline()


def ending(returncode: int) -> str:
    """How a process ended, in words. returncode: as subprocess.Popen has it, negative for a signal."""
    if returncode >= 0:
        return f"ended with code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-returncode}"


def report(name: str, pid: int, what: str, log_path: Path) -> str:
    """Tell what became of a process, with the last lines of its log."""
    lines = ["(no log)"]
    with contextlib.suppress(FileNotFoundError):
        lines = log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return "\n    ".join([f"{name}, process {pid}, {what}; the end of its log {log_path}:", *lines])


HELD_MAX = 100
"""Maximum number of ports that this process holds, with one descriptor each."""

_given: deque[int] = deque(maxlen=1000)
"""Ports returned recently, to any caller: perhaps no server listens on them yet."""

_held: deque[int] = deque()
"""Descriptors of sockets bound to the newest ports of `_given`: `free_port` of other processes skips these ports."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free TCP port and hold it: for a while, `free_port` returns it to no other process.

    Recently returned ports are skipped: two servers of a cluster must not get the same port before they listen. A held
    port does not disturb a server that listens with SO_REUSEADDR, as usual.

    The port is below the range of the kernel's outgoing connections, so a client's connection cannot take it while a
    server restarts. Raises ConfigurationError if no port of the host can be listened on.
    """
    for _ in range(PORT_ATTEMPTS_MAX):
        port = random.SystemRandom().randrange(PORT_MIN, _first_ephemeral_port())
        if port in _given:
            continue
        error = _hold(host, port)
        if error is None:
            _given.append(port)
            return port
        if error.errno != errno.EADDRINUSE:
            raise ConfigurationError(_cannot_listen(host, port, error, "check `ip address`")) from error
    with socket.socket() as probe:
        probe.bind((host, 0))
        chosen: int = probe.getsockname()[1]
        return chosen


def _hold(host: str, port: int) -> OSError | None:
    """Bind a socket to the port and keep it until HELD_MAX newer ports are held; return the error if that fails."""
    holder = socket.socket()
    try:
        holder.bind((host, port))
    except OSError as error:
        holder.close()
        return error
    # Set after the bind, which fails if any other socket is bound. From here on, a server can bind to the port, too.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(holder.detach())
    while len(_held) > HELD_MAX:
        os.close(_held.popleft())
    return None


def _first_ephemeral_port() -> int:
    with contextlib.suppress(OSError, ValueError):
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        if first > PORT_MIN:
            return first
    return PORT_END


def why_not_free(host: str, port: int, remedy: str) -> str | None:
    """Return why a server cannot listen on the port now and a remedy, or None. remedy: how to choose another port."""
    error = bind_error(host, port)
    return None if error is None else _cannot_listen(host, port, error, remedy)


def _cannot_listen(host: str, port: int, error: OSError, remedy: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: stop the process that listens on it, or {remedy}"
    if error.errno == errno.EACCES:
        return f"not allowed to listen on {host}:{port}: ports below 1024 need privileges; {remedy}"
    if error.errno == errno.EADDRNOTAVAIL:
        remedy = f"add the address {host} to this machine (`ip address` lists its addresses)"
    return f"cannot listen on {host}:{port}: {error.strerror}; {remedy}"


def bind_error(host: str, port: int) -> OSError | None:
    """Return why a server cannot listen on the port now, or None. Connections that are closing do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
        return None
