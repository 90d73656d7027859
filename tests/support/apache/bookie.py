"""A genuine bookie as a process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bookkeeper.embedded.process import dying_with_parent, free_port
from tests.support.apache.fetched import Apache
from tests.support.process_output import await_output, tail
from tests.support.zookeeper_sessions import end_dead_session

START_TIMEOUT_S = 100


class ApacheBookie:
    """A genuine bookie process on directories of its own, or on those of one of ours that does not run.

    Differs from the default only in small buffers, long sessions and permission to use the loopback interface.
    """

    def __init__(
        self, apache: Apache, directory: Path, uri: str, port: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """Prepare. The directories are `journal` and `ledgers` below `directory`, as those of a LocalBookie.

        settings: more keys, which win.
        """
        self._apache, self._directory, self._uri = apache, directory, uri
        self.bookie_id, self.port = f"127.0.0.1:{port}", port
        self.settings = {**apache.release.bookie_settings(directory, uri, port), **(settings or {})}
        self.conf_path, self.log_path = directory / "apache.conf", directory / "apache-bookie.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Process id of the bookie that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start; with `wait`, return once it serves.

        The registration of a killed process is removed first, so no other process with this id may run.
        """
        if self._directory.exists():
            end_dead_session(self._uri, self.bookie_id)
        self._directory.mkdir(parents=True, exist_ok=True)
        self.conf_path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        # Our classes too: a setting may name one.
        classes = self._apache.tool_classes()
        command = self._apache.command(self._apache.release.bookie_main, "--conf", self.conf_path, classes=classes)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                dying_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it serves and is registered. Fails the test with the end of its log when it does not.

        Clients see the registration a moment later: see `when_writable`.
        """
        assert self._process is not None
        # It listens, and resets connections, before it has replayed its journal: only a line of its log
        # shows that it serves. The line follows the registration, which waits until an earlier registration is gone.
        serves = self._apache.release.serves
        why = await_output(self._process, self.log_path, serves, timeout_s=START_TIMEOUT_S, start=self._log_start)
        if why is not None:
            self.kill()
            pytest.fail(f"Apache's bookie did not start: {why}\n{tail(self.log_path)}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(START_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL; does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


@contextmanager
def running_bookies(
    apache: Apache, directory: Path, uri: str, count: int, settings: Mapping[str, str] | None = None
) -> Iterator[Sequence[ApacheBookie]]:
    """Some genuine bookies of one release, started side by side, killed at the end."""
    bookies = [
        ApacheBookie(apache, directory / f"apache-{apache.release.version}-{number}", uri, free_port(), settings)
        for number in range(1, count + 1)
    ]
    try:
        for bookie in bookies:
            bookie.start(wait=False)
        for bookie in bookies:
            bookie.wait_ready()
        yield bookies
    finally:
        for bookie in bookies:
            bookie.kill()
