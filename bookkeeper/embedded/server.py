"""One server process of ours on this machine: its directory, its conf file, its log; start, wait, kill, stop.

    <directory>/<conf_name>      written at each start
    <directory>/<log_name>       standard output and error, appended

Blocking: for command lines and tests, not for the reactor. It dies with this process (PR_SET_PDEATHSIG); what fails
says which one and shows the last lines of its log.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bookkeeper.embedded.process import dying_with_parent, ending, free_port, on_lasting_thread, report, write_private
from bookkeeper.errors import BookKeeperError

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
"""Only for processes that hang: the end of a process is noticed at once. Processes that start together are slow."""


_TRUE = frozenset({"true", "yes", "on"})
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def serves_http(settings: Mapping[str, str]) -> bool:
    """Return whether a server with these settings has an HTTP server."""
    return settings.get("httpServerEnabled", "").lower() in _TRUE


class LocalProcessFailed(BookKeeperError):
    """A process did not start, or ended by itself. The message holds the end of its log."""


class LocalServer:
    """One server process. Restarting it keeps its settings, so its ports, and its directory.

    name: in messages, as "bookie 1". command: module and words behind the interpreter; `--conf FILE` follows. settings:
    of its conf file; where its HTTP server is on without a port, it gets a free one. environment_prefix: of variables
    that would change settings.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        conf_name: str,
        log_name: str,
        command: Sequence[str],
        environment_prefix: str,
        settings: Mapping[str, str],
    ) -> None:
        self.name, self.directory = name, directory
        self.conf_path, self.log_path = directory / conf_name, directory / log_name
        self.settings = dict(settings)
        if serves_http(settings) and settings.get("httpServerPort", "0") == "0":
            self.settings["httpServerPort"] = str(free_port())
        self._command, self._environment_prefix = command, environment_prefix
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: socket.socket | None = None
        self._told_to_end = False

    @property
    def address(self) -> str:
        """Where clients find it, as they are told."""
        raise NotImplementedError

    @property
    def shown_address(self) -> str:
        """The same for people."""
        return self.address

    @property
    def http_address(self) -> str | None:
        """Address (host:port) of the HTTP server for clients on this machine; None without an HTTP server."""
        if not serves_http(self.settings):
            return None
        host = self.settings.get("httpServerHost", "127.0.0.1")
        host = _ANY_ADDRESS.get(host, host)
        return (
            f"[{host}]:{self.settings['httpServerPort']}"
            if ":" in host
            else f"{host}:{self.settings['httpServerPort']}"
        )

    @property
    def metrics_url(self) -> str | None:
        """Where its metrics are, when its HTTP server is on."""
        return None if self.http_address is None else f"http://{self.http_address}/metrics"

    @property
    def pid(self) -> int:
        """Process id. Raises LocalProcessFailed when it does not run."""
        if self._process is None:
            raise LocalProcessFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def ended_by_itself(self) -> bool:
        """True when the process was started and has ended although nobody asked it to here."""
        return self._process is not None and self._process.poll() is not None and not self._told_to_end

    def start(self, *, wait: bool = True) -> None:
        """Start the process; with `wait`, return once it is registered and serving (READY=1)."""
        if self.running:
            raise LocalProcessFailed(f"{self.name} is running already, process {self.pid}")
        self.directory.mkdir(0o700, parents=True, exist_ok=True)
        write_private(self.conf_path, "".join(f"{key}={value}\n" for key, value in self.settings.items()))
        self._close_ready()
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ready.bind("")  # an abstract name of the kernel's choosing: no file, no limit on a directory's length
        name = self._ready.getsockname()[1:].decode("ascii")
        # What this one must have is not for variables of the environment to change; other keys may come from there.
        prefix, settings = self._environment_prefix, self.settings
        environment = {key: value for key, value in os.environ.items() if key.removeprefix(prefix) not in settings}
        command = [sys.executable, "-m", *self._command, "--conf", str(self.conf_path)]
        self._told_to_end = False
        with self.log_path.open("ab") as log:
            self._process = on_lasting_thread(
                lambda: subprocess.Popen(
                    dying_with_parent(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**environment, "NOTIFY_SOCKET": f"@{name}"},
                    start_new_session=True,  # so that Ctrl-C reaches the supervisor and not the server
                )
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Return once it serves. Raises LocalProcessFailed when it ends first or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        process, ready = self._process, self._ready
        if process is None or ready is None:
            raise LocalProcessFailed(f"{self.name} was not started")
        try:
            while True:
                readable, _, _ = select.select([ready], [], [], 0.05)
                if readable and b"READY=1" in ready.recv(4096):
                    return
                code = process.poll()
                if code is not None:
                    raise self._failed(f"{ending(code)} before it served")
                if time.monotonic() > deadline:
                    raise self._failed(f"was not ready within {START_TIMEOUT_S:.0f} s")
        finally:
            self._close_ready()

    def _failed(self, how: str) -> LocalProcessFailed:
        return LocalProcessFailed(report(self.name, self.pid, how, self.log_path))

    def _close_ready(self) -> None:
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def kill(self) -> None:
        """SIGKILL; returns once the process is gone."""
        self._end(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit code. Killed when it does not end in time, which is an error."""
        self.terminate()
        return self.wait()

    def terminate(self) -> None:
        """SIGTERM; does not wait."""
        self._end(signal.SIGTERM)

    def _end(self, sign: signal.Signals) -> None:
        self._close_ready()
        if self._process is not None and self.running:
            self._told_to_end = True
            self._process.send_signal(sign)

    def wait(self) -> int:
        """Wait for the end and return the exit code; 0 when it never ran. Errors as `stop`."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self._failed(f"did not stop within {STOP_TIMEOUT_S:.0f} s") from None
