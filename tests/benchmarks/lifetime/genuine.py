"""A genuine server of Apache's on a directory, killed at the end: its auto-recovery, or a bookie on given files."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bookkeeper.embedded.process import dying_with_parent, ending
from tests.benchmarks.apache.processes import DidNotStart, Genuine

LOG_NAME = "java.log"


class JavaServer:
    """One process; a context manager. `began`: time.perf_counter() when it was started."""

    def __init__(self, genuine: Genuine, directory: Path, main: str, settings: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        conf = directory / "java.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.log_path = directory / LOG_NAME
        with self.log_path.open("wb") as log:
            self.began = time.perf_counter()
            self.process = subprocess.Popen(
                dying_with_parent(genuine.command(main, "--conf", conf)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                start_new_session=True,  # so that Ctrl-C reaches the one that measures
            )

    def seconds_until(self, pattern: re.Pattern[bytes], limit_s: float) -> float:
        """From the start to when its log says so, to some ms. Raises DidNotStart."""
        while not pattern.search(self.log_path.read_bytes()):
            if (code := self.process.poll()) is not None or time.perf_counter() - self.began > limit_s:
                how = f"not within {limit_s:g} s" if code is None else ending(code)
                tail = self.log_path.read_text(errors="replace").splitlines()[-20:]
                raise DidNotStart("\n".join([f"{self.log_path.parent.name}: {how}; the end of its log:", *tail]))
            time.sleep(0.005)
        return time.perf_counter() - self.began

    def stop(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
